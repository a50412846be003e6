"""``openai-responses``: the body that is sent, and the reader of what comes back (SK-060)."""

import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.apis.openai_responses import build_body, reader, wire_items
from skynet_agent.draft import Draft
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamCut,
)
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
from skynet_agent.reading import AnswerReader, Source
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.router import local_now
from skynet_agent.sse import SseEvent

LAB = ProviderRow(name="lab", api="openai-responses")
MODEL = ModelInfo(id="m-1", reasoning=True, input=("text", "image"))
SEALED = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}'
OTHER_SEALED = SEALED.replace("rs_1", "rs_2")


def user(*blocks: Any) -> UserMessage:
    return UserMessage([TextBlock(block) if isinstance(block, str) else block for block in blocks], 1)


def assistant(*blocks: Any, stop: StopReason = "stop") -> AssistantMessage:
    content = [TextBlock(block) if isinstance(block, str) else block for block in blocks]
    return AssistantMessage(content, "openai-responses", "lab", "m-1", stop, 2)


def call(identity: str) -> ToolCallBlock:
    return ToolCallBlock(identity, "exec", {"command": "ls é"})


def result(identity: str, *blocks: Any) -> ToolResultMessage:
    content = [TextBlock(block) if isinstance(block, str) else block for block in blocks]
    return ToolResultMessage(identity, "exec", content, False, 3)


def body(*, row: ProviderRow = LAB, model: ModelInfo = MODEL, **options: Any) -> dict[str, Any]:
    return build_body(row, model, ModelRequest(messages=[user("hi")], options=ModelOptions(**options)))


def items(*messages: Message) -> list[dict[str, Any]]:
    return wire_items(LAB, MODEL, ModelRequest(messages=messages))


# The body

PLAIN = {
    "model": "m-1",
    "input": [{"type": "message", "role": "user", "content": "hi"}],
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "stream_options": {"include_obfuscation": False},
}


def test_a_plain_body() -> None:
    assert body() == PLAIN


def test_system_texts_are_instructions() -> None:
    """BA-083."""
    request = ModelRequest(system=("tier 1", "", "tier 2"), messages=[user("hi")], volatile="it is late")
    sent = build_body(LAB, MODEL, request)
    assert sent["instructions"] == "tier 1\n\ntier 2"
    assert sent["input"] == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}, {"type": "input_text", "text": "it is late"}],
        }
    ]


def test_options() -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    assert body(
        max_tokens=100,
        temperature=0.0,
        top_p=0.5,
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
        extra={"logit_bias": {"1": 2}},
    ) == {
        **PLAIN,
        "max_output_tokens": 100,
        "temperature": 0.0,
        "top_p": 0.5,
        "user": "u",
        "tools": [
            {
                "type": "function",
                "name": "exec",
                "description": "Run a command.",
                "parameters": schema,
                "strict": True,
            },
            {
                "type": "function",
                "name": "now",
                "description": "",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            },
        ],
        "tool_choice": {"type": "function", "name": "exec"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_object"}},
        "reasoning": {"effort": "low", "summary": "auto"},
    }


def test_without_tools_nothing_is_said_about_them() -> None:
    assert body(tool_choice="required", parallel_tool_calls=True) == PLAIN


def test_a_model_that_does_not_think_is_not_asked_for_its_thoughts() -> None:
    assert "include" not in body(model=ModelInfo(id="m-1"))


def test_a_model_that_takes_no_sampling_options_gets_none() -> None:
    model = ModelInfo(id="m-1", reasoning=True, sampling=False)
    assert body(model=model, temperature=0.5, top_p=0.5) == PLAIN


def test_quirks_of_the_row() -> None:
    row = ProviderRow(name="lab", supports_stream_options=False, supports_prompt_cache_key=True)
    request = ModelRequest(messages=[user("hi")], cache_key="s-1")
    sent = build_body(row, MODEL, request)
    assert sent["prompt_cache_key"] == "s-1"
    assert "stream_options" not in sent
    assert "prompt_cache_key" not in build_body(LAB, MODEL, request)


@pytest.mark.parametrize(
    ("asked", "limit", "sent"),
    [(None, None, None), (50, None, 50), (None, 90, 90), (50, 90, 50), (200, 90, 90), (5, None, 16), (5, 9, 16)],
)
def test_the_length_of_an_answer(asked: int | None, limit: int | None, sent: int | None) -> None:
    """BA-084."""
    model = ModelInfo(id="m-1", max_output_tokens=limit)
    assert body(model=model, max_tokens=asked).get("max_output_tokens") == sent


@pytest.mark.parametrize(
    ("level", "levels", "sent"),
    [
        ("high", (), {"effort": "high", "summary": "auto"}),
        ("xhigh", (), {"effort": "high", "summary": "auto"}),
        ("xhigh", ("low", "xhigh"), {"effort": "xhigh", "summary": "auto"}),
        ("off", (), None),
        ("off", ("off", "low"), {"effort": "none"}),
    ],
)
def test_thinking(level: ThinkingLevel, levels: tuple[ThinkingLevel, ...], sent: Any) -> None:
    model = ModelInfo(id="m-1", reasoning=True, thinking_levels=levels)
    assert body(model=model, thinking=level).get("reasoning") == sent


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True, "y": 1}},
            {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True},
        ),
    ],
)
def test_formats(wanted: Any, sent: Any) -> None:
    assert body(response_format=wanted).get("text", {}).get("format") == sent


@pytest.mark.parametrize(
    "options",
    [
        {"stop": ["END"]},
        {"response_format": {"type": "grammar"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        {"response_format": {}},
    ],
)
def test_what_the_api_has_no_form_for_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"^lab: "):
        body(**options)


def wire_call(identity: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": identity, "name": "exec", "arguments": '{"command":"ls é"}'}


def output(identity: str, value: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": identity, "output": value}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def test_a_conversation() -> None:
    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}
    assert items(
        user("what?", ImageBlock("image/png", "AAAA")),
        assistant("look", call("c1"), call("c2"), call("c3"), stop="toolUse"),
        result("c1", "a b"),
        result("c2", ImageBlock("image/png", "AAAA")),
        result("c3"),
        assistant("a", "b"),
    ) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "what?"}, image]},
        said("look"),
        wire_call("c1"),
        wire_call("c2"),
        wire_call("c3"),
        output("c1", "a b"),
        output("c2", [image]),
        output("c3", "(no output)"),
        said("a"),
        said("b"),
    ]


def test_reasoning_goes_back_within_a_turn_before_what_it_led_to() -> None:
    earlier = assistant(ThinkingBlock("old", SEALED), "x")
    round_ = assistant(
        ThinkingBlock("hm", SEALED),
        ThinkingBlock("", OTHER_SEALED, redacted=True),
        call("c1"),
        ThinkingBlock("and", SEALED),
        stop="toolUse",
    )
    assert items(user("a"), earlier, user("b"), round_, result("c1", "ok"))[1:] == [
        said("x"),
        {"type": "message", "role": "user", "content": "b"},
        json.loads(SEALED),
        json.loads(OTHER_SEALED),
        wire_call("c1"),
        output("c1", "ok"),
    ]


@pytest.mark.parametrize("signature", ["", "x", "{}", "[]", "null", '{"type":"message"}', "[" * 100_000, '"\\ud800"'])
def test_thinking_without_an_item_is_left_out(signature: str) -> None:
    assert items(user("a"), assistant(ThinkingBlock("hm", signature), "x"))[1:] == [said("x")]


# The reader


def new_reader(*secrets: bytes) -> AnswerReader[SseEvent]:
    return reader(Source("lab", secrets))


def read(*pieces: bytes) -> tuple[list[Part], ProviderError | None]:
    it = new_reader()
    parts = [part for piece in pieces for part in it.feed(piece)] + it.close()
    assert it.ended
    assert (it.failure is None) == (bool(parts) and isinstance(parts[-1], Ended))
    return parts, it.failure


def event(kind: str, **fields: Any) -> bytes:
    kind = kind if kind in ("error", "keepalive") else f"response.{kind}"
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, "sequence_number": 1, **fields}))


def text(delta: str, index: int = 0) -> bytes:
    return event("output_text.delta", output_index=index, item_id="msg_1", content_index=0, delta=delta, logprobs=[])


def added(index: int, **item: Any) -> bytes:
    return event("output_item.added", output_index=index, item=item)


def done(index: int, **item: Any) -> bytes:
    return event("output_item.done", output_index=index, item=item)


def completed(status: str = "completed", **fields: Any) -> bytes:
    return event(status, response={"id": "resp_1", "status": status, "output": [], **fields})


FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "exec"}
ENDED = Ended("stop", None)


def test_text_thinking_and_usage() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 107,
    }
    reasoning = {"type": "reasoning", "id": "rs_1"}
    summary = [{"type": "summary_text", "text": "hm so"}, {"type": "summary_text", "text": "yes"}]
    message = {"type": "message", "id": "msg_1", "role": "assistant"}
    parts, failure = read(
        event("created", response={"status": "in_progress"}),
        event("in_progress", response={"status": "in_progress"}),
        added(0, **reasoning, summary=[]),
        event("reasoning_summary_part.added", output_index=0, item_id="rs_1", summary_index=0, part={"text": ""}),
        event("reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=0, delta="hm"),
        event("reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=0, delta=" so"),
        event("reasoning_summary_text.done", output_index=0, item_id="rs_1", summary_index=0, text="hm so"),
        event("reasoning_summary_part.added", output_index=0, item_id="rs_1", summary_index=1, part={"text": ""}),
        event("reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=1, delta="yes"),
        done(0, **reasoning, summary=summary, encrypted_content="gAAA", status="completed"),
        added(1, **message, content=[]),
        event("content_part.added", output_index=1, part={"type": "output_text", "text": ""}),
        text("a", 1),
        event("keepalive"),
        text(" b", 1),
        event("output_text.done", output_index=1, text="a b"),
        event("content_part.done", output_index=1, part={"type": "output_text", "text": "a b"}),
        done(1, **message, content=[{"type": "output_text", "text": "a b"}]),
        completed(usage=usage),
        text("ignored"),
    )
    assert failure is None
    sealed = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA"}
    assert parts == [
        ThinkingDelta("hm"),
        ThinkingDelta(" so"),
        ThinkingDelta("\n\n"),
        ThinkingDelta("yes"),
        ThinkingDelta("", orjson.dumps(sealed).decode()),
        TextDelta("a"),
        TextDelta(" b"),
        Ended("stop", Usage(30, 7, 60, 10, 107)),
    ]


def test_what_was_reasoned_can_be_sent_again_as_it_was() -> None:
    draft = Draft(local_now)
    draft.begin("lab", "m-1", "openai-responses")
    summary = [{"type": "summary_text", "text": "hé\ud83d"}]
    sealed = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA+/="}
    hidden = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gBBB"}
    for part in read(done(0, **{**sealed, "summary": [{"text": "hé"}]}), done(1, **hidden), text("a", 2), completed())[
        0
    ]:
        if not isinstance(part, Ended):
            draft.add(part)
    message = draft.message("toolUse")
    assert [type(block) for block in message.content] == [ThinkingBlock, ThinkingBlock, TextBlock]
    first, second = message.content[:2]
    assert isinstance(first, ThinkingBlock)
    assert isinstance(second, ThinkingBlock)
    assert (first.thinking, first.redacted, second.thinking, second.redacted) == ("hé", False, "", True)
    assert items(user("q"), message)[1:3] == [
        {**sealed, "summary": [{"type": "summary_text", "text": "hé"}]},
        hidden,
    ]


def test_reasoning_that_is_not_sealed_is_only_shown() -> None:
    raw = event("reasoning_text.delta", output_index=0, item_id="rs_1", content_index=0, delta="hm")
    parts, _ = read(raw, done(0, type="reasoning", id="rs_1", summary=[], encrypted_content=None), completed())
    assert parts == [ThinkingDelta("hm"), ENDED]


def test_a_refusal_is_text() -> None:
    parts, _ = read(
        event("refusal.delta", output_index=0, delta="no"), event("refusal.done", refusal="no"), completed()
    )
    assert parts == [TextDelta("no"), ENDED]


def arguments(delta: str, index: int | None = None, item_id: str | None = None) -> bytes:
    fields = {"output_index": index, "item_id": item_id, "delta": delta}
    return event("function_call_arguments.delta", **{key: value for key, value in fields.items() if value is not None})


def test_parallel_tool_calls() -> None:
    second = {**FUNCTION, "id": "fc_2", "call_id": "c2", "name": "read"}
    parts, _ = read(
        added(0, **FUNCTION, arguments=""),
        arguments('{"a"', 0),
        added(1, **second, arguments=""),
        arguments("{}", 1),
        arguments(":1}", 0),
        event("function_call_arguments.done", output_index=0, arguments='{"a":1}'),
        done(0, **FUNCTION, arguments='{"a":1}'),
        done(1, **second, arguments="{}"),
        completed(),
    )
    assert parts == [
        ToolCallDelta(0, "c1", "exec", ""),
        ToolCallDelta(0, "", "", '{"a"'),
        ToolCallDelta(1, "c2", "read", ""),
        ToolCallDelta(1, "", "", "{}"),
        ToolCallDelta(0, "", "", ":1}"),
        Ended("toolUse", None),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [done(0, **FUNCTION, arguments="{}")],  # only the end
        [added(0, **FUNCTION, arguments="{}"), done(0, **FUNCTION, arguments="{}")],  # whole at once
        [added(0, **FUNCTION), event("function_call_arguments.done", output_index=0, arguments="{}")],  # no deltas
        [added(0, **FUNCTION), done(0, **FUNCTION, arguments="{}")],
        [  # no indexes
            event("output_item.added", item=FUNCTION),
            arguments("{}", item_id="fc_1"),
            event("output_item.done", item={**FUNCTION, "arguments": "{}"}),
        ],
    ],
)
def test_tool_calls_of_imitators(events: list[bytes]) -> None:
    draft = Draft(local_now)
    for part in read(*events, completed())[0]:
        if not isinstance(part, Ended):
            draft.add(part)
    assert draft.message("toolUse").content == [ToolCallBlock("c1", "exec", {})]
    assert "".join(part.arguments for part in read(*events, completed())[0] if isinstance(part, ToolCallDelta)) == "{}"


def test_an_item_that_only_ends_is_told_then() -> None:
    content = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}, 7, {"type": "x"}]
    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    parts, _ = read(
        done(0, type="reasoning", id="rs_1", summary=summary), done(1, type="message", content=content), completed()
    )
    assert parts == [ThinkingDelta("one\n\ntwo"), TextDelta("ab"), ENDED]


def test_a_call_without_id_gets_one() -> None:
    assert read(added(0, type="function_call", name="exec"), completed())[0][0] == ToolCallDelta(
        0, "call_0", "exec", ""
    )


def test_fragments_of_nothing_are_ignored() -> None:
    assert read(arguments("{}", 5), text("a"), completed()) == ([TextDelta("a"), ENDED], None)


def test_the_name_of_the_event_may_be_its_only_type() -> None:
    parts, _ = read(
        b'event: response.output_text.delta\ndata: {"delta":"a"}\n\n',
        b'event: response.completed\ndata: {"response":{"status":"completed"}}\n\n',
    )
    assert parts == [TextDelta("a"), ENDED]


@pytest.mark.parametrize(
    ("end", "stop"),
    [
        (completed(), "stop"),
        (event("completed"), "stop"),
        (completed()[:-2], "stop"),
        (completed("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (completed("incomplete"), "length"),
        (event("incomplete"), "length"),
    ],
)
def test_ends(end: bytes, stop: StopReason) -> None:
    assert read(text("a"), end) == ([TextDelta("a"), Ended(stop, None)], None)


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (completed("failed", error={"code": "server_error", "message": "boom"}), Overloaded),
        (completed("failed", error={"code": "rate_limit_exceeded", "message": "slow"}), RateLimited),
        (completed("failed", error={"code": "invalid_prompt", "message": "no"}), BadRequest),
        (completed("failed", error={"code": "image_content_policy_violation", "message": "no"}), BadRequest),
        (completed("failed", error={"code": "context_length_exceeded", "message": "no"}), ContextOverflow),
        (completed("failed"), Overloaded),
        (event("failed"), Overloaded),
        (event("failed", error={"code": "server_error", "message": "boom"}), Overloaded),
        (event("completed", response={"status": "failed"}), Overloaded),
        (completed("incomplete", incomplete_details={"reason": "content_filter"}), BadRequest),
        (event("error", code="rate_limit_exceeded", message="slow", param=None), RateLimited),
        (event("error", code=None, message="boom"), Overloaded),
        (event("error", error={"type": "authentication_error", "message": "who?"}), AuthFailed),
        (b"data: [DONE]\n\n", StreamCut),
        (b"data: not json\n\n", StreamCut),
        (b"data: []\n\n", StreamCut),
        (b'data: {"type":7}\n\n', StreamCut),
        (b'data: {"x":' + b"[" * 100_000 + b"\n\n", StreamCut),
        (b"", StreamCut),
    ],
)
def test_failures_in_the_stream_keep_what_came_before(sent: bytes, kind: type[ProviderError]) -> None:
    parts, failure = read(text("a") + sent)
    assert parts == [TextDelta("a")]
    assert type(failure) is kind
    assert str(failure).startswith("lab: ")


def test_no_failure_shows_the_key() -> None:
    it = new_reader(b"sk-12345")
    assert it.feed(event("error", message="bad key sk-12345")) == []
    assert "***" in str(it.failure)
    assert "sk-12345" not in str(it.failure)


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        ([r'"\ud83d"', r'"\ude00!"'], "😀!"),
        ([r'"a\ud83d"', r'"b"'], "a\ufffdb"),
        ([r'"\u0000é"'], "\0é"),
    ],
)
def test_odd_unicode(deltas: list[str], shown: str) -> None:
    pieces = [b'data: {"type":"response.output_text.delta","delta":%b}\n\n' % delta.encode() for delta in deltas]
    parts, failure = read(*pieces, completed())
    assert failure is None
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == shown


contents = st.text(max_size=8)
calls = st.integers(0, 3)
valid_events = st.one_of(
    st.builds(text, contents, st.integers(4, 6)),
    st.builds(lambda s: event("reasoning_summary_text.delta", output_index=9, summary_index=0, delta=s), contents),
    st.builds(lambda i: added(i, **{**FUNCTION, "call_id": f"c{i}"}, arguments=""), calls),
    st.builds(lambda i, s: arguments(s, i), calls, contents),
    st.builds(lambda i, s: done(i, **FUNCTION, arguments=s), calls, contents),
    st.builds(lambda s: done(8, type="reasoning", id="rs", summary=[{"text": s}], encrypted_content=s), contents),
    st.just(b": keep-alive\n\n"),
    st.just(event("in_progress", response={"status": "in_progress"})),
)
ends = st.sampled_from([completed(), completed("incomplete"), completed(usage={"input_tokens": 3})])


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(valid_events, max_size=10), ends, st.lists(st.integers(0, 2500), max_size=20))
def test_any_split_of_a_valid_stream_gives_the_same_parts(events: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = b"".join([*events, end])
    whole = read(stream)
    assert whole[1] is None
    assert read(*pieces_of(stream, cuts)) == whole


KEYS = (
    *("type", "delta", "arguments", "output_index", "summary_index", "item_id", "item", "response", "error", "status"),
    *("usage", "incomplete_details", "reason", "id", "call_id", "name", "content", "summary", "encrypted_content"),
    *("text", "message", "code", "input_tokens", "input_tokens_details", "cached_tokens", "output_tokens"),
)
KINDS = (
    *("response.output_text.delta", "response.output_item.added", "response.output_item.done", "response.completed"),
    *("response.function_call_arguments.delta", "response.function_call_arguments.done", "response.failed", "error"),
    *("response.reasoning_summary_part.added", "response.incomplete", "function_call", "message", "reasoning"),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
hostile = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=60).map(lambda data: b"data: " + data + b"\n\n"),
    values.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    st.builds(
        lambda kind, fields: b"data: " + json.dumps({**fields, "type": kind}).encode() + b"\n\n",
        st.sampled_from(KINDS),
        st.dictionaries(st.sampled_from(KEYS), values, max_size=5),
    ),
    st.builds(
        lambda kind, item: b"data: " + json.dumps({"type": kind, "item": item, "output_index": 0}).encode() + b"\n\n",
        st.sampled_from(KINDS),
        st.dictionaries(st.sampled_from(KEYS), values, max_size=5),
    ),
)


@given(st.lists(st.one_of(hostile, valid_events), max_size=6), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_parts_and_at_most_one_failure(chunks: list[bytes], cuts: list[int]) -> None:
    parts, failure = read(*pieces_of(b"".join(chunks), cuts))
    assert failure is None or isinstance(failure, ProviderError)
    for part in parts:
        if not isinstance(part, Ended):
            orjson.dumps(part)  # every text can be encoded
