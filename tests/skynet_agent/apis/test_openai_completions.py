"""``openai-completions``: the body that is sent, and the reader of what comes back (SK-060)."""

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.apis.openai_completions import build_body, reader, wire_messages
from skynet_agent.errors import AuthFailed, BadRequest, Overloaded, ProviderError, RateLimited, StreamCut
from skynet_agent.events import Ended, Part, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.history import MISSING_RESULT
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import MOST_CHARACTERS, MOST_TOKENS, AnswerReader, Source
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.sse import SseEvent

LAB = ProviderRow(name="lab")
MODEL = ModelInfo(id="m-1", input=("text", "image"))


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts], 1)


def assistant(*blocks: Any, stop_reason: StopReason = "stop") -> AssistantMessage:
    return AssistantMessage(list(blocks), "openai-completions", "lab", "m-1", stop_reason, 2)


def result(call: str, *blocks: Any) -> ToolResultMessage:
    return ToolResultMessage(call, "exec", list(blocks), False, 3)


def wire(*messages: Message, row: ProviderRow = LAB, system: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return wire_messages(row, MODEL, ModelRequest(messages=messages, system=system))


# The body


def test_a_plain_body() -> None:
    request = ModelRequest(system=("tier 1", "", "tier 2"), messages=[user("hi")])
    assert build_body(ProviderRow(name="lab"), MODEL, request) == {
        "model": "m-1",
        "messages": [{"role": "system", "content": "tier 1\n\ntier 2"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_options_are_passed_through() -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    options = ModelOptions(
        max_tokens=100,
        temperature=0.0,
        top_p=0.5,
        stop=["\n"],
        seed=7,
        user="u",
        tools=[
            ToolDefinition(name="exec", description="Run a command.", parameters=schema, strict=True),
            ToolDefinition(name="now"),
        ],
        tool_choice=OneTool("exec"),
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
        thinking="low",
        extra={"logit_bias": {"1": 2}, "model": "other", "stream": False, "temperature": 9, "user": "v", "tools": []},
    )
    body = build_body(LAB, MODEL, ModelRequest(messages=[user("hi")], options=options))
    body.pop("messages")
    nothing = {"type": "object", "properties": {}}
    assert body == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["\n"],
        "seed": 7,
        "user": "u",
        "tools": [
            {
                "type": "function",
                "function": {"name": "exec", "description": "Run a command.", "parameters": schema, "strict": True},
            },
            {"type": "function", "function": {"name": "now", "description": "", "parameters": nothing}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "exec"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "logit_bias": {"1": 2},
    }


def test_without_tools_nothing_is_said_about_them() -> None:
    options = ModelOptions(tool_choice="required", parallel_tool_calls=True)
    body = build_body(LAB, MODEL, ModelRequest(messages=[user("hi")], options=options))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_a_model_that_takes_no_sampling_options_gets_none() -> None:
    model, options = ModelInfo(id="m-1", sampling=False), ModelOptions(temperature=0.5, top_p=0.5, seed=1)
    body = build_body(LAB, model, ModelRequest(messages=[user("hi")], options=options))
    assert not {"temperature", "top_p"} & set(body)
    assert body["seed"] == 1


def test_quirks_of_the_row() -> None:
    row = ProviderRow(
        name="lab",
        max_tokens_field="max_completion_tokens",
        supports_stream_options=False,
        supports_prompt_cache_key=True,
    )
    request = ModelRequest(messages=[user("hi")], options=ModelOptions(max_tokens=5), cache_key="s-1")
    body = build_body(row, MODEL, request)
    assert (body["max_completion_tokens"], body["prompt_cache_key"]) == (5, "s-1")
    assert not {"max_tokens", "stream_options"} & set(body)
    assert "prompt_cache_key" not in build_body(row, MODEL, ModelRequest(messages=[user("hi")]))
    assert "prompt_cache_key" not in build_body(LAB, MODEL, request)


@pytest.mark.parametrize(
    ("field", "level", "sent"),
    [
        ("reasoning_effort", "high", {"reasoning_effort": "high"}),
        ("reasoning_effort", "xhigh", {"reasoning_effort": "high"}),
        ("reasoning_effort", "off", {}),
        ("reasoning", "minimal", {"reasoning": {"effort": "minimal"}}),
        ("reasoning", "off", {"reasoning": {"enabled": False}}),
        ("thinking", "low", {"thinking": {"type": "enabled"}}),
        ("thinking", "off", {"thinking": {"type": "disabled"}}),
        ("reasoning_enabled", "low", {"reasoning": {"enabled": True}}),
        ("reasoning_enabled", "off", {"reasoning": {"enabled": False}}),
        ("thinking_effort", "high", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("thinking_effort", "off", {"thinking": {"type": "disabled"}}),
        ("enable_thinking", "low", {"enable_thinking": True}),
        ("enable_thinking", "off", {"enable_thinking": False}),
        ("", "high", {}),
    ],
)
def test_thinking_in_the_words_of_each_vendor(field: Any, level: ThinkingLevel, sent: dict[str, Any]) -> None:
    row = ProviderRow(name="lab", thinking_field=field)
    request = ModelRequest(messages=[user("hi")], options=ModelOptions(thinking=level))
    fields = {"reasoning_effort", "reasoning", "thinking", "enable_thinking"}
    assert {key: value for key, value in build_body(row, MODEL, request).items() if key in fields} == sent


def test_a_model_may_be_told_in_another_field_than_its_row_says() -> None:
    request = ModelRequest(messages=[user("hi")], options=ModelOptions(thinking="high"))
    body = build_body(LAB, ModelInfo(id="m-1", thinking_field="enable_thinking"), request)
    assert body["enable_thinking"] and "reasoning_effort" not in body
    assert build_body(LAB, ModelInfo(id="m-1", thinking_field=""), request) == build_body(
        LAB, MODEL, ModelRequest(messages=[user("hi")])
    )


@pytest.mark.parametrize(
    ("field", "levels", "level", "sent"),
    [
        ("reasoning_effort", ("off", "low", "high"), "off", {"reasoning_effort": "none"}),
        ("reasoning_effort", ("off", "low", "high"), "medium", {"reasoning_effort": "low"}),
        ("reasoning_effort", ("low", "xhigh"), "high", {"reasoning_effort": "xhigh"}),
        ("reasoning", ("low", "high"), "off", {}),
        ("enable_thinking", ("low",), "off", {}),
        ("enable_thinking", ("off", "high"), "off", {"enable_thinking": False}),
    ],
)
def test_a_model_may_know_other_levels_than_its_row(
    field: Any, levels: tuple[ThinkingLevel, ...], level: ThinkingLevel, sent: dict[str, Any]
) -> None:
    row, model = ProviderRow(name="lab", thinking_field=field), ModelInfo(id="m-1", thinking_levels=levels)
    body = build_body(row, model, ModelRequest(messages=[user("hi")], options=ModelOptions(thinking=level)))
    plain = build_body(row, model, ModelRequest(messages=[user("hi")]))
    assert body == {**plain, **sent}


@pytest.mark.parametrize(
    ("asked", "limit", "sent"), [(None, None, None), (5, None, 5), (None, 9, 9), (5, 9, 5), (20, 9, 9)]
)
def test_an_answer_is_never_longer_than_the_model_can_write(
    asked: int | None, limit: int | None, sent: int | None
) -> None:
    """BA-084."""
    model = ModelInfo(id="m-1", max_output_tokens=limit)
    request = ModelRequest(messages=[user("hi")], options=ModelOptions(max_tokens=asked))
    assert build_body(ProviderRow(name="lab"), model, request).get("max_tokens") == sent


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        (
            [user("a", "b")],
            [{"role": "user", "content": "a\n\nb"}],
        ),
        (
            [UserMessage([TextBlock("what?"), ImageBlock("image/png", "AAAA")], 1)],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what?"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    ],
                }
            ],
        ),
        (
            [assistant(ThinkingBlock("hm"), TextBlock("a"), TextBlock("b"))],
            [{"role": "assistant", "content": "ab"}],
        ),
        ([user("a"), assistant(ThinkingBlock("hm"))], [{"role": "user", "content": "a"}]),
    ],
)
def test_messages_on_the_wire(messages: list[Message], sent: list[Any]) -> None:
    assert wire(*messages) == sent


def test_what_is_true_only_now_comes_last() -> None:
    """BA-083."""
    request = ModelRequest(
        messages=[user("a"), assistant(TextBlock("b")), user("c")], system=("t1", "t2"), volatile="it is late"
    )
    assert wire_messages(LAB, MODEL, request) == [
        {"role": "system", "content": "t1\n\nt2"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c\n\nit is late"},
    ]


def test_cache_marks_end_the_tiers() -> None:
    row = ProviderRow(name="lab", cache_marks=True)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert wire(user("a"), row=row, system=("t1", "t2", "now"))[0]["content"] == [
        {"type": "text", "text": "t1", **mark},
        {"type": "text", "text": "t2", **mark},
        {"type": "text", "text": "now"},
    ]
    assert wire(user("a"), row=row, system=("t1", "", "now"))[0]["content"] == [
        {"type": "text", "text": "t1", **mark},
        {"type": "text", "text": "now"},
    ]


def call(identity: str, signature: str = "") -> ToolCallBlock:
    return ToolCallBlock(identity, "exec", {"command": "ls é"}, signature)


def wire_call(identity: str) -> dict[str, Any]:
    function = {"name": "exec", "arguments": '{"command":"ls é"}'}
    return {"id": identity, "type": "function", "function": function}


def test_tool_calls_and_their_results() -> None:
    messages = [
        assistant(TextBlock("look"), call("c1"), call("c2"), stop_reason="toolUse"),
        result("c1", TextBlock("a b")),
        result("c2", ImageBlock("image/png", "AAAA")),
        assistant(call("c3"), stop_reason="toolUse"),
        result("c3"),
    ]
    assert wire(*messages) == [
        {"role": "assistant", "content": "look", "tool_calls": [wire_call("c1"), wire_call("c2")]},
        {"role": "tool", "tool_call_id": "c1", "content": "a b"},
        {"role": "tool", "tool_call_id": "c2", "content": "(see the image)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Images of the tool results:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [wire_call("c3")]},
        {"role": "tool", "tool_call_id": "c3", "content": "(no output)"},
    ]


def test_calls_and_results_are_made_to_match() -> None:
    messages = [
        result("cut off", TextBlock("x")),
        assistant(call("c1"), call("c2"), stop_reason="toolUse"),
        result("c2", TextBlock("ok")),
        user("next"),
        assistant(TextBlock("part"), call("c3"), stop_reason="aborted"),
        assistant(call("c4"), stop_reason="error"),
        assistant(call("c5"), stop_reason="toolUse"),
    ]
    assert wire(*messages) == [
        {"role": "assistant", "content": None, "tool_calls": [wire_call("c1"), wire_call("c2")]},
        {"role": "tool", "tool_call_id": "c1", "content": MISSING_RESULT},
        {"role": "tool", "tool_call_id": "c2", "content": "ok"},
        {"role": "user", "content": "next"},
        {"role": "assistant", "content": "part"},
        {"role": "assistant", "content": None, "tool_calls": [wire_call("c5")]},
        {"role": "tool", "tool_call_id": "c5", "content": MISSING_RESULT},
    ]


def test_ids_of_nine() -> None:
    row = ProviderRow(name="lab", tool_call_ids="nine")
    sent = wire(assistant(call("call_0"), call("abcDEF123"), stop_reason="toolUse"), result("call_0"), row=row)
    ids = [each["id"] for each in sent[0]["tool_calls"]]
    assert ids[1] == "abcDEF123"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()
    assert [each["tool_call_id"] for each in sent[1:]] == ids


@pytest.mark.parametrize(("wanted", "sent"), [(True, {"reasoning_content": "hm so"}), (False, {})])
def test_thinking_goes_back_within_a_turn_to_who_wants_it(wanted: bool, sent: dict[str, str]) -> None:
    row = ProviderRow(name="lab", wants_thinking_back=wanted)
    earlier = assistant(ThinkingBlock("old"), TextBlock("x"))
    round_ = assistant(ThinkingBlock("hm "), ThinkingBlock("so"), call("c1"), stop_reason="toolUse")
    messages = [user("a"), earlier, user("b"), round_, result("c1", TextBlock("ok"))]
    assistants = [each for each in wire(*messages, row=row) if each["role"] == "assistant"]
    assert assistants == [
        {"role": "assistant", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [wire_call("c1")], **sent},
    ]


def test_signatures_of_thoughts_go_back_with_their_calls() -> None:
    """Gemini refuses calls of the current turn that come back without them."""
    (entry, _) = wire(assistant(call("c1", "sig"), stop_reason="toolUse"), result("c1"))
    assert entry["tool_calls"] == [
        {**wire_call("c1"), "extra_content": {"google": {"thought_signature": "sig"}}},
    ]


# The reader


def new_reader(*secrets: bytes) -> AnswerReader[SseEvent]:
    return reader(Source("lab", secrets))


def read(*pieces: bytes) -> tuple[list[Part], ProviderError | None]:
    """What a whole stream gives, neighbouring texts joined, and its failure."""
    it = new_reader()
    parts = [part for piece in pieces for part in it.feed(piece)] + it.close()
    assert it.ended
    assert (it.failure is None) == (bool(parts) and isinstance(parts[-1], Ended))
    return parts, it.failure


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **fields: Any) -> bytes:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": reason}]
    return (
        b"data: " + orjson.dumps({"id": "1", "object": "chat.completion.chunk", "choices": choices, **fields}) + b"\n\n"
    )


def text(content: str) -> bytes:
    return chunk({"content": content})


STOP = chunk(reason="stop")
DONE = b"data: [DONE]\n\n"
ENDED = Ended("stop", None)


def usage_chunk(**usage: Any) -> bytes:
    return chunk(usage=usage).replace(b'"choices":[{"index":0,"delta":{},"finish_reason":null}]', b'"choices":[]')


def test_text_thinking_and_usage() -> None:
    usage = usage_chunk(prompt_tokens=100, completion_tokens=7, prompt_tokens_details={"cached_tokens": 60})
    parts, failure = read(
        chunk({"role": "assistant", "content": "", "tool_calls": None}),
        chunk({"reasoning_content": "hm"}),
        chunk({"reasoning": " so"}),
        text("a"),
        text(" b"),
        chunk({"refusal": "no"}),
        STOP,
        usage,
        DONE,
        text("ignored"),
    )
    assert failure is None
    assert parts == [
        ThinkingDelta("hm"),
        ThinkingDelta(" so"),
        TextDelta("a"),
        TextDelta(" b"),
        TextDelta("no"),
        Ended("stop", Usage(40, 7, 60, 0, 107)),
    ]


@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(10, 2, 0, 0, 12)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}, Usage(6, 2, 4, 0, 12)),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}},
            Usage(3, 0, 4, 3, 10),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 99}}, Usage(0, 0, 10, 0, 10)),
        ({"prompt_tokens": 10, "prompt_tokens_details": None, "queue_time": 1.5}, Usage(10, 0, 0, 0, 10)),
        ({"prompt_tokens": 2**64 - 1, "completion_tokens": -5}, Usage(MOST_TOKENS, 0, 0, 0, MOST_TOKENS)),
    ],
)
def test_usage(sent: dict[str, Any], usage: Usage) -> None:
    assert read(STOP, usage_chunk(**sent), DONE)[0] == [Ended("stop", usage)]


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x" * 1_000_000},
        {"reasoning_content": "x" * 1_000_000},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "x" * 1_000_000}}]},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ["x" * 1_000_000]}}]},
    ],
)
def test_an_answer_without_end_is_cut(delta: dict[str, Any]) -> None:
    it, piece = new_reader(), chunk(delta)
    shown = 0
    while not it.ended:
        shown += len(it.feed(piece))
        assert shown * 1_000_000 < MOST_CHARACTERS + 2_000_000
    assert isinstance(it.failure, StreamCut)
    assert "longer than" in str(it.failure)


@pytest.mark.parametrize(
    "sent", [b'data: {"error":{"message":"bad key sk-12345"}}', b"data: <sk-12345>", b'event: error\ndata: "sk-12345"']
)
def test_no_failure_shows_the_key(sent: bytes) -> None:
    it = new_reader(b"sk-12345")
    assert [*it.feed(sent + b"\n\n"), *it.close()] == []
    assert "***" in str(it.failure) and "sk-12345" not in str(it.failure)


def test_an_answer_may_hold_what_is_the_key_of_a_local_server() -> None:
    assert new_reader(b"x").feed(text("x marks the spot") + STOP + DONE) == [TextDelta("x marks the spot"), ENDED]


def test_the_last_usage_counts() -> None:
    first, last = ({"prompt_tokens": 5, "completion_tokens": n} for n in (1, 2))
    assert read(chunk(usage=first), chunk(reason="stop", usage=last), DONE)[0] == [Ended("stop", Usage(5, 2, 0, 0, 7))]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "toolUse"),
        ("function_call", "toolUse"),
        ("eos", "stop"),
    ],
)
def test_finish_reasons(reason: str, stop: StopReason) -> None:
    assert read(text("a"), chunk(reason=reason), DONE)[0] == [TextDelta("a"), Ended(stop, None)]


@pytest.mark.parametrize(("reason", "kind"), [("content_filter", BadRequest), ("error", Overloaded)])
def test_finish_reasons_that_are_failures(reason: str, kind: type[ProviderError]) -> None:
    parts, failure = read(text("a"), chunk(reason=reason), DONE)
    assert parts == [TextDelta("a")]
    assert type(failure) is kind


@pytest.mark.parametrize("end", [(STOP,), (STOP[:-1],), (STOP[:-2],), (DONE,), (DONE[:-2],)])
def test_ends_that_count(end: tuple[bytes, ...]) -> None:
    assert read(text("a"), *end) == ([TextDelta("a"), ENDED], None)


@pytest.mark.parametrize("stream", [(), (text("a"),), (text("a"), text("b")[:-20])])
def test_no_end(stream: tuple[bytes, ...]) -> None:
    assert isinstance(read(*stream)[1], StreamCut)


def tool(index: int | None, identity: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    made = {"index": index, "id": identity, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in made.items() if value is not None}


def test_parallel_tool_calls() -> None:
    parts, _ = read(
        chunk({"tool_calls": [tool(0, "c1", "exec", ""), tool(1, "c2", "read", "")]}),
        chunk({"tool_calls": [tool(0, None, None, '{"a"')]}),
        chunk({"tool_calls": [tool(1, None, None, "{}"), tool(0, "c1", None, ":1}")]}),
        chunk(reason="tool_calls"),
        DONE,
    )
    assert parts == [
        ToolCallDelta(0, "c1", "exec", ""),
        ToolCallDelta(1, "c2", "read", ""),
        ToolCallDelta(0, "", "", '{"a"'),
        ToolCallDelta(1, "", "", "{}"),
        ToolCallDelta(0, "", "", ":1}"),
        Ended("toolUse", None),
    ]


@pytest.mark.parametrize(
    "deltas",
    [
        [tool(None, "c1", "exec", "{}"), tool(None, "c2", "read", "{}")],  # no index at all
        [tool(0, "c1", "exec", "{}"), tool(0, "c2", "read", "{}")],  # the same index for all
        [tool(0, "c1", "exec", {}), tool(1, "c2", "read", {})],  # arguments as an object
        [tool(3, "c1", "exec", "{}"), tool(7, "c2", "read", "{}")],  # holes
    ],
)
def test_tool_calls_of_imitators(deltas: list[dict[str, Any]]) -> None:
    parts, _ = read(*[chunk({"tool_calls": [delta]}) for delta in deltas], STOP, DONE)
    assert parts == [ToolCallDelta(0, "c1", "exec", "{}"), ToolCallDelta(1, "c2", "read", "{}"), Ended("toolUse", None)]


def test_a_tool_call_without_id_gets_one() -> None:
    parts, _ = read(
        chunk({"tool_calls": [tool(None, None, "exec", "{")]}), chunk({"tool_calls": [tool(None, None, None, "}")]})
    )
    assert parts == [ToolCallDelta(0, "call_0", "exec", "{"), ToolCallDelta(0, "", "", "}")]


def test_a_call_may_come_with_the_signature_of_a_thought() -> None:
    signed = {**tool(0, "c1", "exec", "{}"), "extra_content": {"google": {"thought_signature": "sig"}}}
    odd = {**tool(1, "c2", "exec", "{}"), "extra_content": {"google": [1]}}
    parts, _ = read(chunk({"tool_calls": [signed, odd]}), STOP, DONE)
    assert parts[:2] == [ToolCallDelta(0, "c1", "exec", "{}", "sig"), ToolCallDelta(1, "c2", "exec", "{}")]


def test_thinking_may_be_among_the_parts_of_the_content() -> None:
    """Mistral's way."""
    parts, failure = read(
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}]}),
        chunk({"content": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]}),
        text("b"),
        STOP,
        DONE,
    )
    assert failure is None
    assert parts == [ThinkingDelta("hm"), TextDelta("a"), TextDelta("b"), ENDED]


def test_other_choices_are_ignored() -> None:
    other = b'data: {"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"length"}]}\n\n'
    assert read(other, text("a"), STOP, DONE) == ([TextDelta("a"), ENDED], None)


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b'data: {"error":{"message":"slow","code":429}}\n\n', RateLimited),
        (b'data: {"error":{"message":"boom"},"choices":[]}\n\n', Overloaded),
        (b'data: {"error":"boom"}\n\n', Overloaded),
        (b'event: error\ndata: {"message":"who?","error":{"type":"authentication_error"}}\n\n', AuthFailed),
        (b'data: {"object":"error","message":"boom"}\n\n', Overloaded),
        (b"data: not json\n\n", StreamCut),
        (b'data: {"choices":\n\n', StreamCut),
        (b'data: {"choices":7}\n\n', StreamCut),
        (b"data: []\n\n", StreamCut),
        (b"data: 1" + b"0" * 5000 + b"\n\n", StreamCut),
        (b'data: {"error":' + b"[" * 100_000 + b"\n\n", StreamCut),
        (b'data: {"x":' + b"[" * 100_000 + b"\n\n", StreamCut),
    ],
)
def test_failures_in_the_stream_keep_what_came_before(sent: bytes, kind: type[ProviderError]) -> None:
    parts, failure = read(text("a") + sent + text("b"))
    assert parts == [TextDelta("a")]
    assert type(failure) is kind
    assert str(failure).startswith("lab: ")


@pytest.mark.parametrize(
    ("deltas", "said"),
    [
        ([r'{"content":"\ud83d"}', r'{"content":"\ude00!"}'], "😀!"),
        ([r'{"content":"a\ud83d"}', r'{"content":"b"}'], "a\ufffdb"),
        ([r'{"content":"\ude00b"}'], "\ufffdb"),
        ([r'{"content":"\ud83d\ude00"}'], "😀"),
        ([r'{"content":"\u0000é"}'], "\0é"),
    ],
)
def test_odd_unicode(deltas: list[str], said: str) -> None:
    parts, failure = read(*[b'data: {"choices":[{"delta":%b}]}\n\n' % delta.encode() for delta in deltas], STOP, DONE)
    assert failure is None
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == said


def test_broken_utf_8_is_replaced() -> None:
    parts, failure = read(b'data: {"choices":[{"delta":{"content":"a\xff"}}]}\n\n', STOP)
    assert (parts[0], failure) == (TextDelta("a\ufffd"), None)


contents = st.text(max_size=8)
valid_chunks = st.one_of(
    st.builds(lambda s: text(s), contents),
    st.builds(lambda s: chunk({"reasoning_content": s}), contents),
    st.builds(
        lambda s: b"data: " + json.dumps({"choices": [{"delta": {"content": s}}]}).encode() + b"\r\n\r\n", contents
    ),
    st.builds(lambda i, s: chunk({"tool_calls": [tool(i, f"c{i}", "exec", s)]}), st.integers(0, 3), contents),
    st.just(b": keep-alive\n\n"),
    st.just(usage_chunk(prompt_tokens=3, completion_tokens=2)),
    st.just(STOP),
)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(valid_chunks, max_size=10), st.booleans(), st.lists(st.integers(0, 1500), max_size=20))
def test_any_split_of_a_valid_stream_gives_the_same_parts(chunks: list[bytes], done: bool, cuts: list[int]) -> None:
    stream = b"".join([*chunks, STOP, DONE if done else b""])
    whole = read(stream)
    assert whole[1] is None
    assert read(*pieces_of(stream, cuts)) == whole


KEYS = (
    *("choices", "delta", "content", "tool_calls", "function", "arguments", "name", "id", "index", "usage", "error"),
    *("message", "type", "text", "thinking", "extra_content", "code", "finish_reason", "prompt_tokens"),
    *("prompt_tokens_details", "cached_tokens"),
)
hostile = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=60).map(lambda data: b"data: " + data + b"\n\n"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        max_leaves=20,
    ).map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
)


@given(st.lists(st.one_of(hostile, valid_chunks), max_size=6), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_parts_and_at_most_one_failure(chunks: list[bytes], cuts: list[int]) -> None:
    parts, failure = read(*pieces_of(b"".join(chunks), cuts))
    assert failure is None or isinstance(failure, ProviderError)
    for part in parts:
        if not isinstance(part, Ended):
            orjson.dumps(part)  # every text can be encoded
