"""``anthropic-messages``: the body that is sent with its cache marks, and the reader of what comes back (SK-059)."""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.anthropic import build_body, reader
from skynet_agent.claude import CAUTIOUS_TOKENS, LOOKBACK_BLOCKS
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamCut,
)
from skynet_agent.events import Ended, Finished, Part, TextDelta, ThinkingDelta, ToolCallDelta
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
    text_of,
)
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.reading import MOST_CHARACTERS, MOST_TOKENS, Source
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.router import Router
from skynet_agent.thinking import BUDGET_TOKENS
from skynet_agent.writing import EARLIER, NO_OUTPUT
from skynet_memory.secrets import Secret
from tests.support.dialects.anthropic_messages import AnthropicMessages, encode_stream
from tests.support.model_server import ModelServer
from tests.support.script import Seen, parse_script

ROW = ProviderRow(name="lab", api="anthropic-messages", auth="anthropic")
MODEL = ModelInfo(id="claude-1", input=("text", "image"))
THINKER = ModelInfo(id="claude-1", reasoning=True, max_output_tokens=64_000)
EFFORT = ModelInfo(id="claude-2", reasoning=True, thinking_form="effort", max_output_tokens=64_000, sampling=False)
EXEC = ToolDefinition(name="exec", description="Run.", parameters={"type": "object", "properties": {}})
READ = ToolDefinition(name="read", parameters={"properties": {"path": {"type": "string"}}})
MARK = {"cache_control": {"type": "ephemeral"}}

MakeRouter = Callable[..., Router]


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts], 1)


def assistant(*blocks: Any, stop_reason: StopReason = "stop", model: str = "claude-1") -> AssistantMessage:
    return AssistantMessage(list(blocks), "anthropic-messages", "lab", model, stop_reason, 2)


def call(identity: str, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(identity, "exec", arguments)


def result(identity: str, *blocks: Any, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(identity, "exec", list(blocks), is_error, 3)


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


def body_of(*messages: Message, model: ModelInfo = MODEL, volatile: str = "", **options: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages or [user("hi")], volatile=volatile, options=ModelOptions(**options))
    return build_body(ROW, model, request)


# The body


def test_a_plain_body() -> None:
    assert body_of() == {
        "max_tokens": CAUTIOUS_TOKENS,
        "messages": [{"role": "user", "content": [text("hi", **MARK)]}],
    }


def test_the_ends_of_both_tiers_are_marked_and_nothing_else_of_the_system_prompt() -> None:
    """SK-085, BA-083."""
    request = ModelRequest(system=("tier 1", "tier 2", "more", "most"), messages=[user("hi")], volatile="ten o'clock")
    body = build_body(ROW, MODEL, request)
    assert body["system"] == [text("tier 1", **MARK), text("tier 2", **MARK), text("more"), text("most")]
    assert body["messages"] == [{"role": "user", "content": [text("hi", **MARK), text("ten o'clock")]}]


def test_texts_that_are_empty_are_left_out_and_no_other_is_marked_for_them() -> None:
    request = ModelRequest(system=("", "tier 2", "more"), messages=[user("hi")])
    assert build_body(ROW, MODEL, request)["system"] == [text("tier 2", **MARK), text("more")]
    assert "system" not in build_body(ROW, MODEL, ModelRequest(system=("", " \n"), messages=[user("hi")]))


def test_two_people_share_the_bytes_of_tier_1() -> None:
    """SK-086."""
    one, other = (
        orjson.dumps(build_body(ROW, MODEL, ModelRequest(system=("tier 1", whose), messages=[user(whose)])))
        for whose in ("hers", "his")
    )
    start = one.index(b'"system"')
    shared = one[: one.index(b"hers", start)]
    assert b"tier 1" in shared
    assert other.startswith(shared)


def test_options() -> None:
    body = body_of(
        max_tokens=100,
        temperature=0.5,
        stop=["\n\n", "END", " "],
        seed=7,
        user="u" * 300,
        tools=[EXEC, READ],
        tool_choice=OneTool("exec"),
        parallel_tool_calls=False,
        extra={"logit_bias": {}},
    )
    body.pop("messages")
    assert body == {
        "max_tokens": 100,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u" * 256},
        "tools": [
            {"name": "exec", "description": "Run.", "input_schema": {"type": "object", "properties": {}}},
            {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}},
        ],
        "tool_choice": {"type": "tool", "name": "exec", "disable_parallel_tool_use": True},
    }


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"temperature": 1.7}, {"temperature": 1.0}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"temperature": 0.0, "top_p": 0.5}, {"temperature": 0.0}),
    ],
)
def test_sampling(options: dict[str, Any], sent: dict[str, Any]) -> None:
    body = body_of(**options)
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sent
    assert not {"temperature", "top_p"} & set(body_of(model=replace(MODEL, sampling=False), **options))


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        (OneTool("exec"), True, {"type": "tool", "name": "exec"}),
    ],
)
def test_the_choice_of_a_tool(choice: Any, parallel: bool | None, sent: Any) -> None:
    options = {"tool_choice": choice, "parallel_tool_calls": parallel}
    assert body_of(tools=[EXEC], **options).get("tool_choice") == sent
    assert "tool_choice" not in body_of(**options)


@pytest.mark.parametrize(
    ("asked", "limit", "sent"),
    [
        (None, None, CAUTIOUS_TOKENS),
        (5, None, 5),
        (None, 9, 9),
        (5, 9, 5),
        (1_000_000, 64_000, 64_000),
    ],
)
def test_an_answer_is_never_longer_than_the_model_can_write(asked: int | None, limit: int | None, sent: int) -> None:
    """BA-084."""
    assert body_of(model=ModelInfo(id="m", max_output_tokens=limit), max_tokens=asked)["max_tokens"] == sent


def test_a_schema_for_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    assert body_of(response_format=wanted)["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert "output_config" not in body_of(response_format={"type": "text"})
    both = body_of(model=EFFORT, response_format=wanted, thinking="low")["output_config"]
    assert both == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


@pytest.mark.parametrize("wanted", [{"type": "json_object"}, {"type": "json_schema"}, {"type": "grammar"}, {"a": 1}])
def test_a_form_of_answer_that_cannot_be_had_is_refused(wanted: Any) -> None:
    with pytest.raises(BadRequest, match="lab: response_format"):
        body_of(response_format=wanted)


# Thinking


@pytest.mark.parametrize(
    ("level", "asked", "limit", "budget", "most"),
    [
        ("off", None, None, None, CAUTIOUS_TOKENS),
        ("minimal", None, None, 1024, CAUTIOUS_TOKENS + 1024),
        ("low", 100, None, 4096, 4196),
        ("medium", 8192, 64_000, 8192, 16_384),
        ("high", None, 64_000, 16_384, 64_000),
        ("xhigh", None, 32_000, 30_976, 32_000),  # as much as leaves room for an answer
        ("xhigh", 100, 32_000, 31_900, 32_000),
        ("low", None, 2048, 1024, 2048),
        ("low", None, 2047, None, 2047),  # no room for both
    ],
)
def test_a_budget_for_thinking(
    level: ThinkingLevel, asked: int | None, limit: int | None, budget: int | None, most: int
) -> None:
    """SK-082."""
    body = body_of(model=replace(THINKER, max_output_tokens=limit), thinking=level, max_tokens=asked)
    assert body.get("thinking") == (None if budget is None else {"type": "enabled", "budget_tokens": budget})
    assert body["max_tokens"] == most
    assert budget is None or budget == min(BUDGET_TOKENS[level], budget) < most


LOW = {"effort": "low"}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("level", "levels", "thinking", "config"),
    [
        (None, (), None, None),
        ("minimal", (), ADAPTIVE, LOW),
        ("low", (), ADAPTIVE, LOW),
        ("medium", (), ADAPTIVE, {"effort": "medium"}),
        ("high", (), ADAPTIVE, {"effort": "high"}),
        ("xhigh", (), ADAPTIVE, {"effort": "high"}),  # of the levels that every row has
        ("xhigh", ("low", "medium", "high", "xhigh"), ADAPTIVE, {"effort": "xhigh"}),
        ("off", ("off", "low"), {"type": "disabled"}, None),
        ("off", ("low", "high"), None, LOW),  # it always thinks
        ("low", ("minimal",), ADAPTIVE, None),
    ],
)
def test_an_effort_for_thinking(
    level: ThinkingLevel | None, levels: tuple[ThinkingLevel, ...], thinking: Any, config: Any
) -> None:
    body = body_of(model=replace(EFFORT, thinking_levels=levels), thinking=level)
    assert body.get("thinking") == thinking
    assert body.get("output_config") == config


def test_an_effort_leaves_the_answer_its_room() -> None:
    assert body_of(model=EFFORT, thinking="low", max_tokens=100)["max_tokens"] == 4196
    assert body_of(model=EFFORT, thinking="xhigh")["max_tokens"] == 64_000
    assert body_of(model=EFFORT, thinking="off", max_tokens=100)["max_tokens"] == 100


def test_thinking_takes_the_place_of_sampling() -> None:
    body = body_of(model=THINKER, thinking="low", temperature=0.5, top_p=0.9)
    assert not {"temperature", "top_p"} & set(body)
    assert body_of(model=THINKER, thinking="off", temperature=0.5)["temperature"] == 0.5


@pytest.mark.parametrize("choice", ["required", OneTool("exec")])
def test_a_forced_call_is_not_thought_about(choice: Any) -> None:
    forced = {"tools": [EXEC], "tool_choice": choice}
    body = body_of(model=THINKER, thinking="high", max_tokens=100, **forced)
    assert "thinking" not in body
    assert body["max_tokens"] == 100
    always = replace(EFFORT, thinking_levels=("low", "high"))
    assert "thinking" not in body_of(model=always, thinking="high", **forced)
    # without thinking only if it is told: some think by themselves
    assert body_of(model=replace(EFFORT, thinking_levels=("off", "low")), **forced)["thinking"] == {"type": "disabled"}


def test_a_turn_that_began_without_thinking_goes_on_without() -> None:
    foreign = AssistantMessage([ThinkingBlock("hm"), call("c1")], "openai-completions", "other", "m", "toolUse", 2)
    body = body_of(user("a"), foreign, result("c1"), model=THINKER, thinking="low")
    assert "thinking" not in body
    assert body["messages"][1]["content"][0] == text("<thinking>\nhm\n</thinking>\n\n")
    own = assistant(ThinkingBlock("hm", "sig"), call("c1"))
    for later in (assistant(call("c2")), foreign):
        assert "thinking" in body_of(user("a"), own, result("c1"), later, result("c2"), model=THINKER, thinking="low")
    assert "thinking" not in body_of(user("a"), foreign, result("c1"), user("b"), model=THINKER, thinking="low")
    assert "thinking" in body_of(user("a"), foreign, result("c1"), model=EFFORT, thinking="low")
    unsigned = assistant(ThinkingBlock("hm"), call("c1"))
    assert "thinking" not in body_of(user("a"), unsigned, result("c1"), model=THINKER, thinking="low")


# Messages


@pytest.mark.parametrize(
    ("messages", "wire"),
    [
        (
            [UserMessage([TextBlock("what?"), ImageBlock("image/png", "AAAA")], 1)],
            [
                (
                    "user",
                    [
                        text("what?"),
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                            **MARK,
                        },
                    ],
                )
            ],
        ),
        (
            [UserMessage([ImageBlock("image/bmp", "AAAA")], 1)],
            [("user", [text("[image/bmp: an image of a kind that this model cannot see]", **MARK)])],
        ),
        (
            [user("a"), user(" ", ""), assistant(TextBlock("")), user("b")],
            [("user", [text("a"), text("(no text)", **MARK), text("b", **MARK)])],
        ),
        (
            [assistant(TextBlock("hi")), user("a")],
            [("user", [text(EARLIER)]), ("assistant", [text("hi")]), ("user", [text("a", **MARK)])],
        ),
        (
            [user("a"), assistant(TextBlock("b")), assistant(TextBlock("c"))],
            [("user", [text("a", **MARK)]), ("assistant", [text("b"), text("c")])],
        ),
        (
            [user("a"), assistant(TextBlock("so"), call("c1", x=1), call("c2")), result("c2"), user("stop")],
            [
                ("user", [text("a", **MARK)]),
                (
                    "assistant",
                    [
                        text("so"),
                        {"type": "tool_use", "id": "c1", "name": "exec", "input": {"x": 1}},
                        {"type": "tool_use", "id": "c2", "name": "exec", "input": {}},
                    ],
                ),
                (
                    "user",
                    [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": [text(MISSING_RESULT)],
                            "is_error": True,
                        },
                        {"type": "tool_result", "tool_use_id": "c2", "content": [text(NO_OUTPUT)]},
                        text("stop", **MARK),
                    ],
                ),
            ],
        ),
        (
            [user("a"), assistant(call("c1")), result("c1", TextBlock("out"), ImageBlock("image/gif", "AA=="))],
            [
                ("user", [text("a", **MARK)]),
                ("assistant", [{"type": "tool_use", "id": "c1", "name": "exec", "input": {}}]),
                (
                    "user",
                    [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": [
                                text("out"),
                                {
                                    "type": "image",
                                    "source": {"type": "base64", "media_type": "image/gif", "data": "AA=="},
                                },
                            ],
                            **MARK,
                        }
                    ],
                ),
            ],
        ),
    ],
)
def test_messages_on_the_wire(messages: list[Message], wire: list[Any]) -> None:
    expected = [{"role": role, "content": content} for role, content in wire]
    assert body_of(*messages)["messages"] == expected


def test_thinking_of_this_turn_goes_back_as_it_came() -> None:
    thought = [ThinkingBlock("hm", "sig1"), ThinkingBlock("", "secret", redacted=True), ThinkingBlock("", "sig2")]
    wire = body_of(
        user("a"),
        assistant(ThinkingBlock("old", "sig0"), TextBlock("b")),
        user("c"),
        assistant(*thought, call("c1")),
        result("c1"),
        model=THINKER,
        thinking="low",
    )["messages"]
    assert wire[1]["content"] == [text("b")]
    assert wire[3]["content"][:3] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig1"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "thinking", "thinking": "", "signature": "sig2"},
    ]


def test_thinking_that_was_cut_is_left_out() -> None:
    cut = assistant(TextBlock("so"), ThinkingBlock("hm", "sig"), ThinkingBlock("and"), stop_reason="aborted")
    assert body_of(user("a"), cut)["messages"][1]["content"] == [text("so")]


def test_tools_that_were_called_are_named_even_when_none_is_offered() -> None:
    body = body_of(user("a"), assistant(call("c1"), call("c2")), result("c1"), user("b"))
    assert body["tools"] == [{"name": "exec", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    again = body_of(user("a"), assistant(call("c1")), result("c1"), user("b"), tools=[READ])
    assert [tool["name"] for tool in again["tools"]] == ["read"]


# Cache marks in the messages


def marked(*messages: Message, volatile: str = "now") -> list[str]:
    """The blocks that carry a mark, shortly."""
    blocks = [block for message in body_of(*messages, volatile=volatile)["messages"] for block in message["content"]]
    assert sum(block.get("text") == volatile for block in blocks) == 1
    return [block.get("text") or block["tool_use_id"] for block in blocks if "cache_control" in block]


def answers(*calls: str) -> list[Message]:
    """A round: calls, and their results."""
    return [assistant(*[call(each) for each in calls], stop_reason="toolUse"), *[result(each) for each in calls]]


def test_marks_over_turns() -> None:
    history: list[Message] = [user("one")]
    assert marked(*history) == ["one"]
    history += answers("1a", "1b")
    assert marked(*history) == ["one", "1b"]
    history += answers("1c")
    assert marked(*history) == ["one", "1c"]
    history += [assistant(TextBlock("done")), user("two", "and this")]
    assert marked(*history) == ["one", "and this"]
    history += answers("2a")
    assert marked(*history) == ["and this", "2a"]
    history += [assistant(TextBlock("done")), user("three")]
    assert marked(*history) == ["and this", "three"]


def test_a_round_of_many_calls_is_marked_at_both_its_ends() -> None:
    few, many = LOOKBACK_BLOCKS // 2 - 1, LOOKBACK_BLOCKS // 2
    first = [user("one"), *answers("a")]
    assert marked(*first, *answers(*[f"b{n}" for n in range(few)])) == ["one", f"b{few - 1}"]
    assert marked(*first, *answers(*[f"b{n}" for n in range(many)])) == ["a", f"b{many - 1}"]
    # the first round follows the user's message, which is marked anyway
    assert marked(user("one"), *answers(*[f"b{n}" for n in range(30)])) == ["one", "b29"]


def test_what_is_true_only_now_comes_behind_the_mark_in_the_last_message_of_the_user() -> None:
    history = [user("one"), assistant(TextBlock("done")), user("two"), *answers("a")]
    wire = body_of(*history, volatile="now")["messages"]
    assert wire[2]["content"] == [text("two", **MARK), text("now")]
    assert body_of(*history, volatile=" ")["messages"][2]["content"] == [text("two", **MARK)]
    assert "now" not in json.dumps(body_of(assistant(TextBlock("hi")), volatile="now"))


MESSAGE = st.one_of(
    st.builds(user, st.text(max_size=3)),
    st.builds(
        lambda blocks, stop: assistant(*blocks, stop_reason=stop),
        st.lists(
            st.one_of(
                st.builds(TextBlock, st.text(max_size=3)),
                st.builds(ThinkingBlock, st.text(max_size=2), st.sampled_from(["", "sig"]), st.booleans()),
                st.builds(call, st.sampled_from(["a", "b", "x y"])),
            ),
            max_size=4,
        ),
        st.sampled_from(["stop", "toolUse", "aborted", "error"]),
    ),
    st.builds(result, st.sampled_from(["a", "b", "x y"]), is_error=st.booleans()),
)


@given(st.lists(MESSAGE, min_size=1, max_size=12), st.booleans())
def test_whatever_the_transcript_is_the_api_takes_it(history: list[Message], thinks: bool) -> None:
    request = ModelRequest(
        messages=[*history, user("last")],
        system=("tier 1", "tier 2"),
        volatile="now",
        options=ModelOptions(thinking="low" if thinks else None),
    )
    dialect = AnthropicMessages()
    dialect.signatures.check = lambda messages: None  # type: ignore[method-assign]
    body = orjson.loads(orjson.dumps({"model": "m", "stream": True, **build_body(ROW, THINKER, request)}))
    headers = {"x-api-key": "key", "anthropic-version": "2023-06-01"}
    dialect.ask(Seen("POST", "/v1/messages", headers, body))
    roles = [message["role"] for message in body["messages"]]
    assert roles == [("user", "assistant")[n % 2] for n in range(len(roles))]


# The reader


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


def start(**usage: Any) -> bytes:
    return event("message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": usage})


def begin(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def end(reason: str = "end_turn", **fields: Any) -> bytes:
    usage = fields.pop("usage", {"output_tokens": 7})
    return event("message_delta", delta={"stop_reason": reason, **fields}, usage=usage) + event("message_stop")


def read(*data: bytes) -> tuple[list[Part], ProviderError | None]:
    answer = reader(Source("lab", (b"key-of-lab",)))
    parts = [part for each in data for part in answer.feed(each)]
    return parts + answer.close(), answer.failure


def read_well(*data: bytes) -> list[Part]:
    parts, failure = read(*data)
    assert failure is None
    return parts


def test_text() -> None:
    parts = read_well(
        start(input_tokens=10, cache_read_input_tokens=200, cache_creation_input_tokens=30, output_tokens=1),
        begin(0, "text", text=""),
        event("ping"),
        delta(0, "text_delta", text="Hé"),
        delta(0, "text_delta", text="llo"),
        stop(0),
        end(),
    )
    assert parts == [TextDelta("Hé"), TextDelta("llo"), Ended("stop", Usage(10, 7, 200, 30, 247))]


def test_thinking_is_signed_at_the_end_of_its_block() -> None:
    parts = read_well(
        start(),
        begin(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="let me "),
        delta(0, "thinking_delta", thinking="see"),
        delta(0, "signature_delta", signature="ab"),
        delta(0, "signature_delta", signature="c=="),
        stop(0),
        begin(1, "redacted_thinking", data="secret"),
        stop(1),
        begin(2, "thinking", thinking="whole", signature="d=="),
        stop(2),
        begin(3, "thinking", thinking=""),
        delta(3, "signature_delta", signature="e=="),  # of thinking that is not shown
        stop(3),
        begin(4, "text", text="four"),
        stop(4),
        end(),
    )
    assert parts[:-1] == [
        ThinkingDelta("let me "),
        ThinkingDelta("see"),
        ThinkingDelta("", "abc=="),
        ThinkingDelta("", "secret", redacted=True),
        ThinkingDelta("whole"),
        ThinkingDelta("", "d=="),
        ThinkingDelta("", "e=="),
        TextDelta("four"),
    ]


def test_tool_calls_by_index() -> None:
    parts = read_well(
        start(),
        begin(1, "tool_use", id="toolu_1", name="exec", input={}),
        begin(2, "tool_use", id="toolu_2", name="read", input={}),
        delta(1, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"b":'),
        delta(1, "input_json_delta", partial_json='{"a":1}'),
        delta(2, "input_json_delta", partial_json="2}"),
        stop(1),
        stop(2),
        end("tool_use"),
    )
    assert parts[:-1] == [
        ToolCallDelta(0, "toolu_1", "exec", ""),
        ToolCallDelta(1, "toolu_2", "read", ""),
        ToolCallDelta(1, "", "", '{"b":'),
        ToolCallDelta(0, "", "", '{"a":1}'),
        ToolCallDelta(1, "", "", "2}"),
    ]
    assert isinstance(parts[-1], Ended)
    assert parts[-1].stop_reason == "toolUse"


@pytest.mark.parametrize("ends", [(stop(0),), ()])
def test_arguments_that_come_whole_with_the_beginning(ends: Sequence[bytes]) -> None:
    parts = read_well(start(), begin(0, "tool_use", id="t", name="exec", input={"é": [1]}), *ends, end("end_turn"))
    assert parts[:2] == [ToolCallDelta(0, "t", "exec", ""), ToolCallDelta(0, "", "", '{"\\u00e9": [1]}')]
    assert isinstance(parts[2], Ended)
    assert parts[2].stop_reason == "toolUse"
    streamed = [begin(0, "tool_use", id="t", name="x", input={"a": 1}), delta(0, "input_json_delta", partial_json="{}")]
    assert read_well(*streamed, stop(0), end())[1] == ToolCallDelta(0, "", "", "{}")


def test_what_is_not_ours_is_passed_over() -> None:
    parts = read_well(
        start(),
        begin(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":1}'),
        stop(0),
        begin(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"type": "web_search_result"}]),
        stop(1),
        begin(2, "hologram", data="x"),
        delta(2, "hologram_delta", text=["not", "ours"][0]),
        delta(2, "citations_delta", citation={"type": "page"}),
        stop(2),
        event("message_weather", delta=None),
        event("content_block_delta", index=9),
        event("content_block_start", index=9),
        end(),
    )
    assert [type(part) for part in parts] == [Ended]


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("a_new_one", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "toolUse"),
    ],
)
def test_why_it_stopped(reason: str, ours: StopReason) -> None:
    assert read_well(start(), end(reason))[-1] == Ended(ours, Usage(0, 7, 0, 0, 7))


def test_a_refusal_is_a_failure_in_words() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "This may be used for harm."}
    for fields, words in (
        ({}, "lab: the model declined to answer"),
        ({"stop_details": details}, ".*: This may be used"),
    ):
        parts, failure = read(start(), begin(0, "text", text="I"), end("refusal", **fields))
        assert parts == [TextDelta("I")]
        assert isinstance(failure, BadRequest)
        assert str(failure).startswith("lab: the model declined to answer")
        assert words.removeprefix(".*") in str(failure)


@pytest.mark.parametrize(
    ("usages", "ours"),
    [
        ([None, None], None),
        ([{}, {}], Usage(0, 0, 0, 0, 0)),
        ([{"input_tokens": 5, "output_tokens": 1}, {"output_tokens": 9}], Usage(5, 9, 0, 0, 14)),
        ([{"input_tokens": 0}, {"input_tokens": 5, "output_tokens": 9}], Usage(5, 9, 0, 0, 14)),
        ([{"input_tokens": 5}, {"input_tokens": 0, "output_tokens": None}], Usage(5, 0, 0, 0, 5)),
        ([{"input_tokens": -5}, {"cache_read_input_tokens": 10**18}], Usage(0, 0, MOST_TOKENS, 0, MOST_TOKENS)),
        ([{"input_tokens": 5, "cache_creation_input_tokens": None}, None], Usage(5, 0, 0, 0, 5)),
    ],
)
def test_usage(usages: list[Any], ours: Usage | None) -> None:
    first = event("message_start", message={} if usages[0] is None else {"usage": usages[0]})
    last = event("message_delta", delta={"stop_reason": "end_turn"}, usage=usages[1]) + event("message_stop")
    assert read_well(first, last) == [Ended("stop", ours)]


@pytest.mark.parametrize(
    ("kind", "said", "failure"),
    [
        ("overloaded_error", "Overloaded", Overloaded),
        ("api_error", "Internal server error", Overloaded),
        ("rate_limit_error", "Slow down", RateLimited),
        ("authentication_error", "invalid x-api-key", AuthFailed),
        ("permission_error", "no", AuthFailed),
        ("invalid_request_error", "messages: what?", BadRequest),
        ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", ContextOverflow),
    ],
)
def test_errors_in_the_stream(kind: str, said: str, failure: type[ProviderError]) -> None:
    error = event("error", error={"type": kind, "message": f"{said} key-of-lab"})
    parts, found = read(start(), begin(0, "text", text="I"), error, end())
    assert parts == [TextDelta("I")]
    assert type(found) is failure
    assert said in str(found)
    assert "key-of-lab" not in str(found)


def test_an_error_of_no_form_is_one() -> None:
    for data in (b'event: error\ndata: {"message": "bad"}\n\n', b'data: {"type": "error", "error": "bad"}\n\n'):
        assert "bad" in str(read(start(), data)[1])


def test_the_end_is_known_before_the_last_event() -> None:
    answer = reader(Source("lab"))
    answer.feed(start() + begin(0, "text", text="a"))
    assert not answer.complete
    answer.feed(end().partition(b"event: message_stop")[0])
    assert answer.complete
    assert answer.close() == [Ended("stop", Usage(0, 7, 0, 0, 7))]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        start(),
        start() + begin(0, "text", text="a"),
        b"data: nonsense\n\n",
        b"data: []\n\n",
        b'data: {"type": "content_block_delta", "index": "x"}\n\n',
        b'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 1}}\n\n',
        b"data: " + b'{"a":' * 5000 + b"\n\n",
    ],
)
def test_what_breaks_off_or_makes_no_sense(data: bytes) -> None:
    failure = read(data)[1]
    assert isinstance(failure, StreamCut)
    assert str(failure).startswith("lab: ")


def test_an_answer_without_end_is_cut() -> None:
    answer = reader(Source("lab"))
    chunk = delta(0, "text_delta", text="x" * 1024 * 1024)
    for _ in range(MOST_CHARACTERS // (1024 * 1024) + 1):
        answer.feed(chunk)
    assert "longer than" in str(answer.failure)


def test_odd_characters() -> None:
    halves = [b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"%b"}}\n\n' % half for half in
              (b"\\ud83d", b"\\ude00", b"\\ud83d!", b"\xff")]  # fmt: skip
    parts = read_well(*halves, end())
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "😀\ufffd!\ufffd"
    deep = b'{"type":"content_block_start","content_block":{"type":"tool_use","input":%b}}'
    for value in (b'{"a":"\\ud800"}', b"[" * 900 + b"]" * 900):
        assert read(b"data: " + deep % value + b"\n\n", end())[1] is None


SAMPLE = b"".join(
    [
        start(input_tokens=3),
        begin(0, "thinking", thinking=""),
        delta(0, "thinking_delta", thinking="hm é"),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        begin(1, "text", text=""),
        event("ping"),
        delta(1, "text_delta", text="Hello 😀"),
        stop(1),
        begin(2, "tool_use", id="t", name="exec", input={}),
        delta(2, "input_json_delta", partial_json='{"a":'),
        delta(2, "input_json_delta", partial_json="1}"),
        stop(2),
        end("tool_use"),
    ]
).replace(b"\n", b"\r\n")


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=30))
def test_any_split_gives_the_same_parts(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(SAMPLE)]
    assert read_well(*[SAMPLE[a:b] for a, b in itertools.pairwise(places)]) == read_well(SAMPLE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    *("type", "index", "delta", "content_block", "message", "usage", "error", "text", "thinking", "signature", "data"),
    *("input", "partial_json", "stop_reason", "stop_details", "input_tokens", "output_tokens", "id", "name"),
)
KINDS = (
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"),
    *("message_stop", "text_delta", "thinking_delta", "input_json_delta", "signature_delta", "tool_use", "thinking"),
    *("redacted_thinking", "refusal"),
)
EVENT = st.recursive(
    st.sampled_from(KINDS) | JSON,
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=60) | EVENT.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n")))
def test_any_bytes_are_an_answer_or_a_named_failure(data: list[bytes]) -> None:
    parts, failure = read(*data)
    assert (failure is None) == any(isinstance(part, Ended) for part in parts)
    assert failure is None or str(failure).startswith("lab: ")
    for part in parts:
        json.dumps(part.stop_reason if isinstance(part, Ended) else str(part)).encode()


def test_a_script_as_a_stream() -> None:
    script = parse_script(
        'think=hm redact=abc say=so tool=exec:{"a":1} finish=max_tokens prompt=50 cached=20 written=5'
    )
    parts = read_well(*encode_stream(script, "m", "sig"))
    assert parts == [
        ThinkingDelta("hm"),
        ThinkingDelta("", "sig"),
        ThinkingDelta("", "abc", redacted=True),
        TextDelta("so"),
        ToolCallDelta(0, "call_0", "exec", ""),
        ToolCallDelta(0, "", "", '{"a":1'),
        ToolCallDelta(0, "", "", "}"),
        Ended("length", Usage(25, 2, 20, 5, 52)),
    ]


# Over the wire


@pytest.fixture
async def row(server: ModelServer) -> ProviderRow:
    price = Price(input=3_000_000, output=15_000_000, cache_read=300_000, cache_write=3_750_000)
    model = replace(THINKER, input=("text", "image"), price=price)
    return replace(ROW, base_url=server.origin, api_key=Secret("key-of-lab"), models=(model,))


async def finished(router: Router, request: ModelRequest) -> AssistantMessage:
    events = [event async for event in router.stream(request)]
    assert isinstance(events[-1], Finished)
    return events[-1].message


async def test_the_headers_of_a_key(server: ModelServer, row: ProviderRow, make_router: MakeRouter) -> None:
    """SK-067, SK-073."""
    assert text_of(await finished(make_router(row), ModelRequest(messages=[user("say=hi")]))) == "hi"
    headers = server.requests[0].headers
    assert server.requests[0].path == "/v1/messages"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["x-api-key"] == "key-of-lab"
    assert headers["user-agent"] == "skynet-gateway"
    assert not {"authorization", "anthropic-beta"} & set(headers)


async def test_the_headers_of_a_subscription(server: ModelServer, row: ProviderRow, make_router: MakeRouter) -> None:
    """SK-073."""
    token = "sk-ant-oat01-abc"
    server.dialect(AnthropicMessages).key = token
    row = replace(row, api_key=Secret(token), headers={"Anthropic-Beta": "context-1m-2025-08-07"})
    assert text_of(await finished(make_router(row), ModelRequest(messages=[user("say=hi")]))) == "hi"
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {token}"
    assert headers["anthropic-beta"] == "context-1m-2025-08-07,oauth-2025-04-20"
    assert "x-api-key" not in headers


async def test_a_wrong_key(server: ModelServer, row: ProviderRow, make_router: MakeRouter) -> None:
    server.dialect(AnthropicMessages).key = "another"
    with pytest.raises(AuthFailed, match="invalid x-api-key"):
        await finished(make_router(row), ModelRequest(messages=[user("say=hi")]))


@pytest.mark.parametrize("script", ["think=let me see sign=abc==", "redact=c2VjcmV0", "think=hm redact=c2VjcmV0"])
async def test_thinking_goes_back_within_the_turn(
    script: str, server: ModelServer, row: ProviderRow, make_router: MakeRouter
) -> None:
    """The scripted server refuses thinking that it did not sign, or that stands in another conversation."""
    router = make_router(row)
    messages: list[Message] = [
        user("think=before say=first"),
        await finished(router, ModelRequest(messages=[user("think=before say=first")])),
        user(f'{script} tool=exec:{{"a":1}} tool=exec:{{"b":2}} next-round {script} tool=exec:{{"c":3}}'),
    ]
    options = ModelOptions(tools=[EXEC], thinking="low")
    for _ in range(2):
        answer = await finished(router, ModelRequest(messages=messages, volatile="", options=options))
        calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
        messages += [answer, *[result(each.id, TextBlock("out")) for each in calls]]
    await finished(router, ModelRequest(messages=messages, options=options))
    wire = server.bodies[-1]["messages"]
    assert [block["type"] for block in wire[1]["content"]] == ["text"]
    for place in (3, 5):
        assert wire[place]["content"][0]["type"] in ("thinking", "redacted_thinking")
    assert all(body["thinking"]["budget_tokens"] == 4096 for body in server.bodies[1:])


@pytest.mark.parametrize(
    ("status", "failure"), [("context", ContextOverflow), ("429", RateLimited), ("529", Overloaded)]
)
async def test_failures(status: str, failure: type[Exception], row: ProviderRow, make_router: MakeRouter) -> None:
    with pytest.raises(failure):
        await finished(make_router(row), ModelRequest(messages=[user(f"fail={status}")]))


@pytest.mark.parametrize("thinking", [None, "low"])
async def test_nine_tenths_of_the_input_are_read_from_the_cache(
    thinking: ThinkingLevel | None, server: ModelServer, row: ProviderRow, make_router: MakeRouter
) -> None:
    """SK-088: twenty turns of two tool rounds each, for two people who share tier 1."""
    server.cache = True
    router = make_router(row)
    tier_1 = "You are the assistant of a household. " * 200
    thought = "think=well, let me see " if thinking else ""
    usages: list[Usage] = []
    for tier_2 in ("Anna prefers metric units. " * 100, "Ben has a cat. " * 200):
        messages: list[Message] = []
        for turn in range(20):
            messages.append(user(f"Question {turn}: " + "what is this about? " * 10))
            for script in ("tool=exec:{} tool=read:{}", "tool=exec:{}", "tokens=60"):
                server.script = thought + script
                request = ModelRequest(
                    messages=messages,
                    system=(tier_1, tier_2),
                    volatile=f"This is turn {turn}; it is {turn} past ten.",
                    options=ModelOptions(tools=[EXEC, READ], thinking=thinking),
                )
                answer = await finished(router, request)
                assert answer.usage is not None
                usages.append(answer.usage)
                calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
                messages += [answer, *[result(each.id, TextBlock("a line of output\n" * 20)) for each in calls]]
    read = sum(usage.cache_read for usage in usages)
    whole = sum(usage.input + usage.cache_read + usage.cache_write for usage in usages)
    assert read / whole >= 0.9
    assert usages[60].cache_read >= len(tier_1) // 4  # what the first person's request has written
    assert all(usage.input < 50 for usage in usages)  # only what is true now is neither read nor written
    for first, second, third, next_turn in zip(usages[::3], usages[1::3], usages[2::3], usages[3::3], strict=False):
        assert first.cache_read < second.cache_read < third.cache_read
        assert next_turn.cache_read > first.cache_read or next_turn is usages[60]
