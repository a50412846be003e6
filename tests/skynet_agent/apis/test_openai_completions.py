"""``openai-completions``: the body that is sent, and the reader of what comes back."""

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.apis.openai_completions import (
    MISSING_RESULT,
    MOST_CHARACTERS,
    MOST_TOKENS,
    StreamReader,
    build_body,
    wire_messages,
)
from skynet_agent.errors import AuthFailed, BadRequest, Overloaded, ProviderError, RateLimited, StreamCut
from skynet_agent.events import Ended, Part, TextDelta, ThinkingDelta, ToolCallDelta
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
from skynet_agent.requests import ModelOptions, ModelRequest

MODEL = ModelInfo(id="m-1")


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts], 1)


def assistant(*blocks: Any, stop_reason: StopReason = "stop") -> AssistantMessage:
    return AssistantMessage(list(blocks), "openai-completions", "lab", "m-1", stop_reason, 2)


def result(call: str, *blocks: Any) -> ToolResultMessage:
    return ToolResultMessage(call, "exec", list(blocks), False, 3)


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
    tools = [{"type": "function", "function": {"name": "exec", "parameters": {"type": "object"}}}]
    options = ModelOptions(
        max_tokens=100,
        temperature=0.0,
        top_p=0.5,
        stop=["\n"],
        seed=7,
        user="u",
        tools=tools,
        tool_choice={"type": "function", "function": {"name": "exec"}},
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
        reasoning_effort="low",
        extra={"logit_bias": {"1": 2}, "model": "other", "stream": False, "temperature": 9, "user": "v"},
    )
    body = build_body(ProviderRow(name="lab"), MODEL, ModelRequest(messages=[user("hi")], options=options))
    body.pop("messages")
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
        "tools": tools,
        "tool_choice": {"type": "function", "function": {"name": "exec"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "logit_bias": {"1": 2},
    }


def test_quirks_of_the_row() -> None:
    row = ProviderRow(name="lab", max_tokens_field="max_completion_tokens", supports_stream_options=False)
    body = build_body(row, MODEL, ModelRequest(messages=[user("hi")], options=ModelOptions(max_tokens=5)))
    assert body["max_completion_tokens"] == 5
    assert not {"max_tokens", "stream_options"} & set(body)


@pytest.mark.parametrize(
    ("asked", "limit", "sent"), [(None, None, None), (5, None, 5), (None, 9, 9), (5, 9, 5), (20, 9, 9)]
)
def test_an_answer_is_never_longer_than_the_model_can_write(
    asked: int | None, limit: int | None, sent: int | None
) -> None:
    model = ModelInfo(id="m-1", max_output_tokens=limit)
    request = ModelRequest(messages=[user("hi")], options=ModelOptions(max_tokens=asked))
    assert build_body(ProviderRow(name="lab"), model, request).get("max_tokens") == sent


@pytest.mark.parametrize(
    ("messages", "wire"),
    [
        (
            [user("a", "b")],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
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
def test_messages_on_the_wire(messages: list[Message], wire: list[Any]) -> None:
    assert wire_messages((), messages) == wire


def call(identity: str) -> ToolCallBlock:
    return ToolCallBlock(identity, "exec", {"command": "ls é"})


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
    assert wire_messages((), messages) == [
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
    assert wire_messages((), messages) == [
        {"role": "assistant", "content": None, "tool_calls": [wire_call("c1"), wire_call("c2")]},
        {"role": "tool", "tool_call_id": "c2", "content": "ok"},
        {"role": "tool", "tool_call_id": "c1", "content": MISSING_RESULT},
        {"role": "user", "content": "next"},
        {"role": "assistant", "content": "part"},
        {"role": "assistant", "content": None, "tool_calls": [wire_call("c5")]},
        {"role": "tool", "tool_call_id": "c5", "content": MISSING_RESULT},
    ]


# The reader


def read(*pieces: bytes) -> tuple[list[Part], ProviderError | None]:
    """What a whole stream gives, neighbouring texts joined, and its failure."""
    reader = StreamReader("lab")
    parts = [part for piece in pieces for part in reader.feed(piece)] + reader.close()
    assert reader.ended
    assert (reader.failure is None) == (bool(parts) and isinstance(parts[-1], Ended))
    return parts, reader.failure


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
    reader, piece = StreamReader("lab"), chunk(delta)
    shown = 0
    while not reader.ended:
        shown += len(reader.feed(piece))
        assert shown * 1_000_000 < MOST_CHARACTERS + 2_000_000
    assert isinstance(reader.failure, StreamCut)
    assert "longer than" in str(reader.failure)


@pytest.mark.parametrize(
    "sent", [b'data: {"error":{"message":"bad key sk-12345"}}', b"data: <sk-12345>", b'event: error\ndata: "sk-12345"']
)
def test_no_failure_shows_the_key(sent: bytes) -> None:
    reader = StreamReader("lab", secret=b"sk-12345")
    assert [*reader.feed(sent + b"\n\n"), *reader.close()] == []
    assert "***" in str(reader.failure) and "sk-12345" not in str(reader.failure)


def test_an_answer_may_hold_what_is_the_key_of_a_local_server() -> None:
    reader = StreamReader("lab", secret=b"x")
    assert reader.feed(text("x marks the spot") + STOP + DONE) == [TextDelta("x marks the spot"), ENDED]


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


hostile = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=60).map(lambda data: b"data: " + data + b"\n\n"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
            ["choices", "delta", "content", "tool_calls", "function", "arguments", "name", "id", "index", "usage",
             "error", "message", "code", "finish_reason", "prompt_tokens", "prompt_tokens_details", "cached_tokens"]
        ), inner, max_size=4),
        max_leaves=20,
    ).map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
)  # fmt: skip


@given(st.lists(st.one_of(hostile, valid_chunks), max_size=6), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_parts_and_at_most_one_failure(chunks: list[bytes], cuts: list[int]) -> None:
    parts, failure = read(*pieces_of(b"".join(chunks), cuts))
    assert failure is None or isinstance(failure, ProviderError)
    for part in parts:
        if not isinstance(part, Ended):
            orjson.dumps(part)  # every text can be encoded
