"""Bodies of chat completions: what they mean, and how they are refused."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.http.chat_request import DEFAULT_MAX_TOKENS, ChatRequest, ChatTurn, parse_chat_request
from skynet.http.errors import HttpError
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    encode_message,
)
from skynet_agent.requests import OneTool, ToolDefinition

NOW = 1_700_000_000_000
USER = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
PNG = base64.b64encode(b"\x89PNG\r\n").decode()


def parse(body: bytes | None = None, /, **fields: Any) -> ChatTurn:
    if body is None:
        body = json.dumps({"model": "skynet", "messages": [USER], **fields}).encode()
    return parse_chat_request(body, now_ms=NOW)


def refusal(body: bytes | None = None, /, **fields: Any) -> HttpError:
    with pytest.raises(HttpError) as caught:
        parse(body, **fields)
    assert caught.value.status == 400
    assert caught.value.kind == "invalid_request_error"
    return caught.value


def texts(*messages: Any) -> list[str]:
    return ["".join(block.text for block in message.content) for message in messages]


def test_a_message_alone_continues_the_stored_transcript() -> None:
    turn = parse(messages=[{"role": "system", "content": "be brief"}, USER, {"role": "developer", "content": "kind"}])
    assert turn.content == (TextBlock(text="hello"),)
    assert turn.history is None
    assert turn.system == "be brief\n\nkind"
    assert not turn.stream
    assert not turn.include_usage
    assert turn.options.max_tokens == DEFAULT_MAX_TOKENS == 4096


def test_earlier_turns_are_the_conversation() -> None:
    turn = parse(messages=[USER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"}])
    assert turn.history is not None
    assert turn.content == (TextBlock(text="more"),)
    assert [type(message) for message in turn.history] == [UserMessage, AssistantMessage]
    assert texts(*turn.history) == ["hello", "hi"]


def test_two_user_messages_are_a_conversation() -> None:
    turn = parse(messages=[USER, {"role": "user", "content": "again"}])
    assert turn.history is not None
    assert texts(*turn.history) == ["hello"]
    assert turn.content == (TextBlock(text="again"),)


def test_a_conversation_may_end_in_tool_results() -> None:
    turn = parse(
        messages=[
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
        ]
    )
    assert turn.content == ()
    assert turn.history is not None
    _, call, result = turn.history
    assert isinstance(call, AssistantMessage)
    assert call.content == [ToolCallBlock(id="c1", name="look", arguments={"at": 1})]
    assert call.stop_reason == "toolUse"
    assert result == ToolResultMessage(
        tool_call_id="c1", tool_name="look", content=[TextBlock(text="42")], is_error=False, timestamp=NOW
    )


@pytest.mark.parametrize("arguments", ["", "not json", "[1]", "null", '{"a": ' + "9" * 30 + "}", "[" * 5000])
def test_arguments_that_are_no_object_become_an_empty_one(arguments: str) -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": arguments}}
    turn = parse(messages=[{"role": "assistant", "tool_calls": [call]}, USER])
    assert turn.history is not None
    assert turn.history[0].content == [ToolCallBlock(id="c1", name="look", arguments={})]


def test_empty_turns_are_left_out() -> None:
    turn = parse(messages=[{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, USER])
    assert turn.history is None


def test_images_come_as_data_urls() -> None:
    parts = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/PNG;base64,{PNG}", "detail": "low"}},
    ]
    turn = parse(messages=[{"role": "user", "content": parts}])
    assert turn.content == (TextBlock(text="what is it?"), ImageBlock(mime_type="image/png", data=PNG))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.org/a.png", "does not fetch"),
        ("HTTP://example.org/a.png", "does not fetch"),
        ("data:image/png,abc", "expected data:image"),
        ("data:text/html;base64,YQ==", "expected data:image"),
        ("file:///etc/passwd", "expected data:image"),
        ("data:image/png;base64,", "empty"),
        ("data:image/png;base64,a", "base64"),
        ("data:image/png;base64,ä===", "base64"),
    ],
)
def test_other_image_urls_are_refused(url: str, words: str) -> None:
    error = refusal(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert words in str(error)
    assert error.param == "messages[0].content[0].image_url.url"


@pytest.mark.parametrize("kind", ["input_audio", "file"])
def test_other_parts_are_refused(kind: str) -> None:
    error = refusal(messages=[USER, {"role": "user", "content": [{"type": kind, kind: {}}]}])
    assert error.param == "messages[1].content[0].type"
    assert kind in str(error)


def test_options_pass_through() -> None:
    function = {"name": "look", "description": "Look.", "parameters": {"type": "object"}, "strict": True}
    turn = parse(
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=5,
        max_completion_tokens=7,
        temperature=0,
        top_p=0.5,
        stop="END",
        seed=1,
        tools=[{"type": "function", "function": function}, {"type": "function", "function": {"name": "go"}}],
        tool_choice={"type": "function", "function": {"name": "look"}},
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
        reasoning_effort="low",
        presence_penalty=1,
        logit_bias={"50256": -100},
        user="alice",
        a_field_of_next_year={"x": [1]},
    )
    options = turn.options
    assert (turn.stream, turn.include_usage, turn.user) == (True, True, "alice")
    assert (options.max_tokens, options.temperature, options.top_p, options.seed) == (7, 0.0, 0.5, 1)
    assert options.stop == ["END"]
    assert options.tools == [
        ToolDefinition(name="look", description="Look.", parameters={"type": "object"}, strict=True),
        ToolDefinition(name="go"),
    ]
    assert options.tool_choice == OneTool("look")
    assert options.parallel_tool_calls is False
    assert options.response_format == {"type": "json_object"}
    assert options.thinking == "low"
    assert options.extra == {"presence_penalty": 1.0, "logit_bias": {"50256": -100.0}}
    assert options.user is None  # who uses an application is not the provider's business


def test_null_is_as_good_as_absent() -> None:
    fields = dict.fromkeys(set(ChatRequest.__struct_fields__) - {"model", "messages"})
    assert parse(**fields) == parse()


def test_nothing_asked_for_is_nothing_sent() -> None:
    options = parse(tools=[], stop="", n=1, logprobs=False, modalities=["text"]).options
    assert (options.tools, options.stop, options.tool_choice, options.thinking) == ([], None, None, None)


@pytest.mark.parametrize(("effort", "level"), [("none", "off"), ("minimal", "minimal"), ("xhigh", "xhigh")])
def test_how_much_to_think(effort: str, level: str) -> None:
    assert parse(reasoning_effort=effort).options.thinking == level


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_choices_of_tools(choice: str) -> None:
    assert parse(tool_choice=choice).options.tool_choice == choice


@pytest.mark.parametrize("parameters", [None, {}])
def test_a_tool_without_parameters_has_an_empty_schema(parameters: Any) -> None:
    function = {"name": "x", "description": None, "strict": None, "parameters": parameters}
    (tool,) = parse(tools=[{"type": "function", "function": function}]).options.tools
    assert tool == ToolDefinition(name="x")
    assert tool.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "system", "content": "x"}],
        [{"role": "assistant", "content": "x"}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [USER, {"role": "user", "content": [{"type": "text", "text": ""}]}],
    ],
)
def test_no_user_message(messages: list[Any]) -> None:
    error = refusal(messages=messages)
    assert str(error) == "Missing user message in `messages`."
    assert error.param == "messages"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"model": "x" * 513}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [USER, {"role": "user", "content": 5}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        ({"messages": [USER, {"role": "tool", "content": "x", "tool_call_id": "?"}]}, "messages[1].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "b"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"user": 5}, "user"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"stop": [1]}, "stop[0]"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 10**30}, "seed"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "x"}]}, "functions"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "x", "y": 2**70}}]}, "tools"),
        (
            {"tools": [{"type": "function", "function": {"name": "x", "description": 5}}]},
            "tools[0].function.description",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "x", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "function", "function": {"name": "x", "strict": "no"}}]}, "tools[0].function.strict"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"reasoning_effort": "hard"}, "reasoning_effort"),
        ({"reasoning_effort": ""}, "reasoning_effort"),
        ({"response_format": "json"}, "response_format"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert param.rpartition(".")[2] in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b"{",
        b"{}x",
        b"\xef\xbb\xbf{}",
        b'{"model": NaN}',
        b'{"model": "skynet", "messages": [], "temperature": 1e999}',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800", "messages": []}',
        b'{"model": "skynet", "messages": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "skynet", "messages": [], "tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "skynet", "messages": [], "seed": ' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    refusal(body)


def test_tools_that_no_provider_could_be_sent_are_refused() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    tool = {"type": "function", "function": {"name": "x", "parameters": deep}}
    assert refusal(tools=[tool]).param == "tools"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "x"])},
        optional={
            "content": st.text()
            | json_values
            | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()})),
            "tool_calls": json_values | st.just([CALL]),
            "tool_call_id": st.just("c1") | json_values,
        },
    ),
    max_size=4,
)
bodies = st.fixed_dictionaries(
    {"model": st.text() | json_values, "messages": messages},
    optional=dict.fromkeys(
        ["stream", "user", "tools", "stop", "seed", "tool_choice", "response_format", "n", "temperature"], json_values
    ),
)


def is_turn_or_refusal(body: bytes) -> None:
    """*Any bytes are a turn that can be stored, or an error in OpenAI's shape.*"""
    try:
        turn = parse_chat_request(body, now_ms=NOW)
    except HttpError as error:
        assert error.status == 400
        assert json.loads(error.body())["error"]["message"]
        return
    for message in turn.history or ():
        encode_message(message)
    encode_message(UserMessage(content=list(turn.content), timestamp=NOW))
    turn.system.encode()
    assert turn.content or turn.history


@given(st.binary(max_size=300))
def test_any_bytes(body: bytes) -> None:
    is_turn_or_refusal(body)


@given(bodies)
def test_any_object(body: dict[str, Any]) -> None:
    is_turn_or_refusal(json.dumps(body).encode())


@given(bodies, st.integers(0, 400), st.binary(max_size=3))
def test_any_damage(body: dict[str, Any], at: int, junk: bytes) -> None:
    data = json.dumps(body).encode()
    is_turn_or_refusal(data[:at] + junk + data[at + 1 :])
