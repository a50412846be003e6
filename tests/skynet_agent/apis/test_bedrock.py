"""``bedrock``: the body that is sent, and the reader of what comes back.

Every body that is built here is one that the scripted Bedrock takes, which holds it to the shapes of the real service.
"""

import asyncio
import itertools
import json
import struct
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, EventStreamError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.apis.bedrock import build_body, reader, wire_name, wire_names
from skynet_agent.claude import CAUTIOUS_TOKENS, LOOKBACK_BLOCKS
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
)
from skynet_agent.events import Ended, Finished, Part, TextDelta, ThinkingDelta, ToolCallDelta
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
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import MOST_CHARACTERS, MOST_TOKENS, Source
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.router import Router
from skynet_agent.thinking import BUDGET_TOKENS
from skynet_agent.writing import EARLIER, NO_OUTPUT
from skynet_memory.secrets import Secret
from tests.support.dialects.bedrock import (
    AwsKey,
    Bedrock,
    check_body,
    encode_event,
    encode_exception,
    encode_message,
    encode_stream,
)
from tests.support.model_server import ModelServer
from tests.support.script import Refused, parse_script

ROW = ProviderRow(name="lab", api="bedrock", auth="aws")
CLAUDE_ID = "us.anthropic.claude-sonnet-4-20250514-v1:0"
CLAUDE = ModelInfo(id=CLAUDE_ID, input=("text", "image"))
THINKER = ModelInfo(id=CLAUDE_ID, reasoning=True, max_output_tokens=64_000)
EFFORT = ModelInfo(id="anthropic.claude-opus-4-6-v1", reasoning=True, thinking_form="effort", sampling=False)
NOVA = ModelInfo(id="amazon.nova-lite-v1:0", input=("text", "image"))
NOVA_2 = ModelInfo(id="global.amazon.nova-2-lite-v1:0", reasoning=True)
LLAMA = ModelInfo(id="meta.llama3-1-70b-instruct-v1:0")
GPT_OSS = ModelInfo(id="openai.gpt-oss-120b-1:0", reasoning=True)
EXEC = ToolDefinition(name="exec", description="Run.", parameters={"type": "object", "properties": {}})
READ = ToolDefinition(name="read", parameters={"properties": {"path": {"type": "string"}}})
POINT = {"cachePoint": {"type": "default"}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

MakeRouter = Callable[..., Router]


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts], 1)


def assistant(*blocks: Any, stop_reason: StopReason = "stop", model: str = CLAUDE_ID) -> AssistantMessage:
    return AssistantMessage(list(blocks), "bedrock", "lab", model, stop_reason, 2)


def call(identity: str, name: str = "exec", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(identity, name, arguments)


def result(identity: str, *blocks: Any, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(identity, "exec", list(blocks), is_error, 3)


def built(
    *messages: Any,
    model: ModelInfo = CLAUDE,
    row: ProviderRow = ROW,
    system: tuple[str, ...] = (),
    volatile: str = "",
    **options: Any,
) -> dict[str, Any]:
    """The body for ``messages``, which Bedrock takes."""
    request = ModelRequest(
        messages=messages or [user("hi")], system=system, volatile=volatile, options=ModelOptions(**options)
    )
    body: dict[str, Any] = json.loads(json.dumps(build_body(row, model, request)))
    check_body(body, CLAUDE_ID if row.cache_marks else model.id)
    return body


def content(body: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The messages as role and kinds of blocks; texts as they are, cache points as ``|``."""
    short = {"cachePoint": "|", "toolUse": "call", "toolResult": "result", "reasoningContent": "thought"}
    return [
        (
            each["role"][0],
            [block.get("text") or short.get(next(iter(block)), next(iter(block))) for block in each["content"]],
        )
        for each in body["messages"]
    ]


# The body


def test_a_plain_body() -> None:
    """SK-085, BA-083."""
    assert built(user("hi"), system=("tier 1", "tier 2", "", "later"), volatile="Now.") == {
        "system": [{"text": "tier 1"}, POINT, {"text": "tier 2"}, POINT, {"text": "later"}],
        "messages": [{"role": "user", "content": [{"text": "hi"}, POINT, {"text": "Now."}]}],
    }


def test_a_model_that_caches_nothing() -> None:
    assert built(user("hi"), model=LLAMA, system=("tier 1", " ", "tier 3"), volatile="Now.") == {
        "system": [{"text": "tier 1"}, {"text": "tier 3"}],
        "messages": [{"role": "user", "content": [{"text": "hi"}, {"text": "Now."}]}],
    }


def test_options() -> None:
    body = built(
        model=LLAMA,
        max_tokens=100,
        temperature=0.0,
        top_p=0.5,
        stop=["\n", "", "end"],
        seed=7,
        user="u",
        tools=[EXEC, READ],
        tool_choice="auto",
        parallel_tool_calls=False,
        extra={"logit_bias": {}},
    )
    body.pop("messages")
    assert body == {
        "inferenceConfig": {"maxTokens": 100, "temperature": 0.0, "topP": 0.5, "stopSequences": ["\n", "end"]},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "exec",
                        "description": "Run.",
                        "inputSchema": {"json": {"type": "object", "properties": {}}},
                    }
                },
                {
                    "toolSpec": {
                        "name": "read",
                        "inputSchema": {"json": {"type": "object", "properties": {"path": {"type": "string"}}}},
                    }
                },
            ]
        },
    }


def test_options_as_claude_takes_them() -> None:
    config = built(temperature=1.5, top_p=0.5, stop=["\n", "end"])["inferenceConfig"]
    assert config == {"temperature": 1.0, "stopSequences": ["end"]}
    assert built(top_p=0.5)["inferenceConfig"] == {"topP": 0.5}
    assert "inferenceConfig" not in built(model=EFFORT, temperature=0.5, top_p=0.5)


@pytest.mark.parametrize(
    ("asked", "most", "limit", "sent"),
    [
        (None, None, None, None),
        (5, None, None, 5),
        (None, 9, None, 9),
        (20, 9, None, 9),
        (None, None, 9, None),
        (1_000_000, None, 4096, 4096),
        (1_000_000, 8192, 4096, 4096),
    ],
)
def test_an_answer_is_never_longer_than_the_model_can_write(
    asked: int | None, most: int | None, limit: int | None, sent: int | None
) -> None:
    """BA-084."""
    model = replace(CLAUDE, max_output_tokens=most, output_limit=limit)
    assert built(model=model, max_tokens=asked).get("inferenceConfig", {}).get("maxTokens") == sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (None, None),
        ("auto", None),
        ("required", {"any": {}}),
        (OneTool("exec"), {"tool": {"name": "exec"}}),
        (OneTool("odd name!"), {"tool": {"name": wire_name("odd name!")}}),
    ],
)
def test_the_choice_of_tools(choice: Any, sent: Any) -> None:
    tools = [EXEC, ToolDefinition(name="odd name!")]
    assert built(tools=tools, tool_choice=choice)["toolConfig"].get("toolChoice") == sent
    assert "toolConfig" not in built(tool_choice=choice)


def test_a_tool_that_must_not_be_called() -> None:
    """There is no word for that, so it is not mentioned."""
    assert "toolConfig" not in built(tools=[EXEC], tool_choice="none")
    assert "toolConfig" not in built(tools=[EXEC], model=replace(LLAMA, tools=False))


def test_names_of_tools() -> None:
    long = "x" * 65
    tools = [ToolDefinition(name=name) for name in ("fs.read", "fs_read", long, "ümlaut")]
    names = wire_names(tools)
    assert names == {wire_name(tool.name): tool.name for tool in tools}
    assert wire_name("fs_read") == "fs_read"
    assert wire_name("fs.read").startswith("fs_read_")
    assert len(names) == 4
    body = built(user("a"), assistant(call("c", "fs.read")), result("c"), tools=tools)
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == list(names)
    assert body["messages"][1]["content"][0]["toolUse"]["name"] == wire_name("fs.read")


@given(st.text(max_size=80))
def test_any_name_becomes_one_that_bedrock_takes(name: str) -> None:
    fitted = wire_name(name)
    assert wire_name(fitted) == fitted
    assert 0 < len(fitted) <= 64
    assert all(character.isascii() and (character.isalnum() or character in "_-") for character in fitted)


# Messages


def test_a_round_of_tools() -> None:
    messages = [
        user("go"),
        assistant(TextBlock("ok"), call("c|1", a=[1, None]), call("c2"), stop_reason="toolUse"),
        result("c|1", TextBlock("out"), ImageBlock("image/png", PNG)),
        result("c2", is_error=True),
    ]
    body = built(*messages, tools=[EXEC])
    first = body["messages"][1]["content"][1]["toolUse"]["toolUseId"]
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "go"}, POINT]},
        {
            "role": "assistant",
            "content": [
                {"text": "ok"},
                {"toolUse": {"toolUseId": first, "name": "exec", "input": {"a": [1, None]}}},
                {"toolUse": {"toolUseId": "c2", "name": "exec", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": first,
                        "content": [{"text": "out"}, {"image": {"format": "png", "source": {"bytes": PNG}}}],
                    }
                },
                {"toolResult": {"toolUseId": "c2", "content": [{"text": NO_OUTPUT}], "status": "error"}},
                POINT,
            ],
        },
    ]


def test_a_result_that_is_an_error_where_that_cannot_be_said() -> None:
    body = built(
        user("go"), assistant(call("c")), result("c", TextBlock("no"), is_error=True), model=LLAMA, tools=[EXEC]
    )
    assert body["messages"][2]["content"] == [{"toolResult": {"toolUseId": "c", "content": [{"text": "no"}]}}]


@pytest.mark.parametrize("options", [{}, {"tools": [EXEC], "tool_choice": "none"}])
def test_calls_and_results_are_told_as_text_where_no_tool_may_be_called(options: dict[str, Any]) -> None:
    messages = [
        user("go"),
        assistant(TextBlock("ok"), call("c", a="é"), call("d")),
        result("c", TextBlock("out"), ImageBlock("image/png", PNG)),
        result("d"),
    ]
    body = built(*messages, **options)
    assert content(body) == [
        ("u", ["go", "|"]),
        ("a", ["ok", '[called exec with {"a":"é"}]', "[called exec with {}]"]),
        ("u", ["[exec answered:]", "out", "image", "[exec answered:]", NO_OUTPUT, "|"]),
    ]


def test_user_and_assistant_alternate() -> None:
    body = built(user("a"), user("b", " "), assistant(TextBlock("c")), assistant(TextBlock("d")), user(""), model=LLAMA)
    assert content(body) == [("u", ["a", "b"]), ("a", ["c", "d"]), ("u", ["(no text)"])]


def test_a_conversation_whose_beginning_is_gone() -> None:
    assert content(built(assistant(TextBlock("a")), user("b"), model=LLAMA)) == [
        ("u", [EARLIER]),
        ("a", ["a"]),
        ("u", ["b"]),
    ]


@pytest.mark.parametrize(
    ("kind", "form"), [("image/png", "png"), ("image/jpeg", "jpeg"), ("image/gif", "gif"), ("image/webp", "webp")]
)
def test_images(kind: str, form: str) -> None:
    body = built(UserMessage([ImageBlock(kind, PNG), TextBlock("what?")], 1), model=NOVA)
    assert body["messages"][0]["content"][0] == {"image": {"format": form, "source": {"bytes": PNG}}}


def test_an_image_of_another_kind() -> None:
    body = built(UserMessage([ImageBlock("image/bmp", PNG)], 1))
    assert content(body) == [("u", ["[image/bmp: an image of a kind that this model cannot see]", "|"])]


# Cache points


@pytest.mark.parametrize(
    ("model", "points"),
    [
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("eu.anthropic.claude-3-5-haiku-20241022-v1:0", True),
        ("us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("global.anthropic.claude-fable-5-1", True),
        ("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-4-20250514-v1:0", True),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("anthropic.claude-3-haiku-20240307-v1:0", False),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", False),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", False),
        ("anthropic.claude-v2:1", False),
        ("anthropic.claude-instant-v1", False),
        ("amazon.nova-pro-v1:0", True),
        ("apac.amazon.nova-micro-v1:0", True),
        ("amazon.nova-2-lite-v1:0", False),
        ("deepseek.r1-v1:0", False),
        ("mistral.mistral-large-2402-v1:0", False),
        ("notanthropic.claude-4", False),
        ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcdef123456", False),
    ],
)
def test_which_models_get_cache_points(model: str, points: bool) -> None:
    body = built(model=ModelInfo(id=model), system=("tier 1", "tier 2"))
    assert (POINT in body["system"]) is points
    assert (POINT in body["messages"][0]["content"]) is points


def test_an_arn_that_does_not_name_its_model() -> None:
    model = ModelInfo(id="arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcdef123456")
    assert POINT in built(row=replace(ROW, cache_marks=True), model=model, system=("tier 1",))["system"]


def test_points_in_a_conversation() -> None:
    """Where the turn before had its own, and where the next turn goes on: what is volatile is not there any more."""
    first = [user("one")]
    second = [*first, assistant(TextBlock("1")), user("two")]
    third = [*second, assistant(TextBlock("2")), user("three")]
    assert content(built(*first, volatile="now")) == [("u", ["one", "|", "now"])]
    assert content(built(*second, volatile="now")) == [("u", ["one", "|"]), ("a", ["1"]), ("u", ["two", "|", "now"])]
    assert content(built(*third, volatile="now")) == [
        ("u", ["one"]),
        ("a", ["1"]),
        ("u", ["two", "|"]),
        ("a", ["2"]),
        ("u", ["three", "|", "now"]),
    ]


def test_points_in_a_turn() -> None:
    messages: list[Message] = [user("one"), assistant(TextBlock("1")), user("two")]
    messages += [assistant(call("a")), result("a")]
    rounds = [("u", ["one"]), ("a", ["1"]), ("u", ["two", "|", "now"]), ("a", ["call"])]
    assert content(built(*messages, volatile="now", tools=[EXEC])) == [*rounds, ("u", ["result", "|"])]
    messages += [assistant(call("b")), result("b")]
    assert content(built(*messages, volatile="now", tools=[EXEC])) == [
        *rounds,
        ("u", ["result"]),
        ("a", ["call"]),
        ("u", ["result", "|"]),
    ]


def test_a_round_of_more_blocks_than_are_searched() -> None:
    calls = [call(f"c{n}") for n in range(LOOKBACK_BLOCKS)]
    messages = [user("go"), assistant(call("a")), result("a"), assistant(*calls), *[result(each.id) for each in calls]]
    places = [
        [place for place, kind in enumerate(kinds) if kind == "|"]
        for _, kinds in content(built(*messages, tools=[EXEC]))
    ]
    assert places == [[], [], [1], [], [LOOKBACK_BLOCKS]]


def test_points_of_nova_stand_after_texts_alone() -> None:
    messages: list[Message] = [user("one"), assistant(call("a")), result("a"), user("two"), assistant(TextBlock("2"))]
    three = UserMessage([TextBlock("three"), ImageBlock("image/png", PNG)], 1)
    assert content(built(*messages, user("four"), model=NOVA, tools=[EXEC])) == [
        ("u", ["one", "|"]),
        ("a", ["call"]),
        ("u", ["result", "two"]),
        ("a", ["2"]),
        ("u", ["four", "|"]),
    ]
    assert content(built(*messages, three, model=NOVA, tools=[EXEC]))[-1] == ("u", ["three", "image"])


# Thinking


def thinking_of(body: dict[str, Any]) -> tuple[int | None, Any, Any]:
    """``maxTokens``, and what is said of thinking."""
    effort = body.get("outputConfig", {}).get("effort")
    return body.get("inferenceConfig", {}).get("maxTokens"), body.get("additionalModelRequestFields"), effort


@pytest.mark.parametrize(
    ("level", "asked", "most", "whole", "budget"),
    [
        (None, 1000, 64_000, 1000, None),
        ("off", 1000, 64_000, 1000, None),
        ("minimal", 1000, 64_000, 2024, 1024),
        ("high", 1000, 64_000, 17_384, 16_384),
        ("high", None, 64_000, 64_000, 16_384),
        ("xhigh", 60_000, 64_000, 64_000, 32_768),
        ("high", 8192, 8192, 8192, 7168),
        ("high", None, None, CAUTIOUS_TOKENS + 16_384, 16_384),
        ("low", 1500, 1500, 1500, None),
        ("low", 2048, 2048, 2048, 1024),
    ],
)
def test_budgets(
    level: ThinkingLevel | None, asked: int | None, most: int | None, whole: int | None, budget: int | None
) -> None:
    body = built(model=replace(THINKER, max_output_tokens=most), max_tokens=asked, thinking=level, temperature=0.5)
    fields = {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else None
    assert thinking_of(body) == (whole, fields, None)
    assert body["inferenceConfig"].get("temperature") == (None if budget else 0.5)


def test_every_budget_is_one_of_the_table() -> None:
    """SK-082."""
    for level, budget in BUDGET_TOKENS.items():
        fields = built(model=THINKER, max_tokens=1000, thinking=level).get("additionalModelRequestFields")
        assert fields == ({"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else None)


ADAPTIVE = {"thinking": {"type": "adaptive", "display": "summarized"}}


@pytest.mark.parametrize(
    ("levels", "level", "fields", "effort"),
    [
        (("low", "medium", "high", "xhigh"), None, None, None),
        (("low", "medium", "high", "xhigh"), "off", None, "low"),
        (("off", "low", "medium", "high", "xhigh"), "off", {"thinking": {"type": "disabled"}}, None),
        (("low", "medium", "high", "xhigh"), "minimal", ADAPTIVE, "low"),
        (("low", "medium", "high", "xhigh"), "xhigh", ADAPTIVE, "xhigh"),
        (("low", "medium", "high"), "xhigh", ADAPTIVE, "high"),
        ((), "medium", ADAPTIVE, "medium"),
    ],
)
def test_efforts(
    levels: tuple[ThinkingLevel, ...], level: ThinkingLevel | None, fields: Any, effort: str | None
) -> None:
    model = replace(EFFORT, thinking_levels=levels)
    assert thinking_of(built(model=model, thinking=level)) == (None, fields, effort)


def test_thinking_adds_to_what_was_asked_for_the_answer() -> None:
    assert thinking_of(built(model=EFFORT, thinking="high", max_tokens=1000))[0] == 17_384


@pytest.mark.parametrize("choice", ["required", OneTool("exec")])
def test_no_thinking_where_a_tool_has_to_be_called(choice: Any) -> None:
    options: dict[str, Any] = {"tools": [EXEC], "tool_choice": choice, "thinking": "high"}
    assert thinking_of(built(model=THINKER, **options)) == (64_000, None, None)
    assert thinking_of(built(model=EFFORT, **options)) == (None, None, None)
    model = replace(EFFORT, thinking_levels=("off", "low"))
    for level in (None, "high"):
        body = built(model=model, **{**options, "thinking": level})
        assert thinking_of(body) == (None, {"thinking": {"type": "disabled"}}, None)


SIGNED = ThinkingBlock("hm", "sealed")


@pytest.mark.parametrize(
    ("history", "thinks"),
    [
        ([user("a")], True),
        ([user("a"), assistant(SIGNED, call("c")), result("c")], True),
        ([user("a"), assistant(SIGNED, call("c")), result("c"), assistant(call("d")), result("d")], True),
        ([user("a"), assistant(call("c")), result("c")], False),
        ([user("a"), assistant(ThinkingBlock("cut"), call("c")), result("c")], False),
        ([user("a"), assistant(call("c")), result("c"), user("b")], False),
        ([user("a"), assistant(call("c")), result("c"), assistant(TextBlock("b")), user("c")], True),
    ],
)
def test_a_turn_that_began_without_thinking_goes_on_so(history: Sequence[Message], thinks: bool) -> None:
    body = built(*history, model=THINKER, tools=[EXEC], thinking="low")
    assert ("additionalModelRequestFields" in body) is thinks


def test_thinking_goes_back_signed_within_its_turn() -> None:
    answer = assistant(SIGNED, ThinkingBlock("", "c2VjcmV0", redacted=True), ThinkingBlock("cut"), call("c"))
    body = built(user("a"), answer, result("c"), model=THINKER, tools=[EXEC], thinking="low")
    assert body["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sealed"}}},
        {"reasoningContent": {"redactedContent": "c2VjcmV0"}},
        {"toolUse": {"toolUseId": "c", "name": "exec", "input": {}}},
    ]
    body = built(user("a"), assistant(SIGNED, TextBlock("b")), user("c"), model=THINKER, thinking="low")
    assert content(body) == [("u", ["a", "|"]), ("a", ["b"]), ("u", ["c", "|"])]


def test_no_message_ends_with_thinking() -> None:
    body = built(user("a"), assistant(SIGNED, call("c"), SIGNED), result("c"), model=THINKER, tools=[EXEC])
    assert content(body)[1] == ("a", ["thought", "call"])


def test_models_of_others_get_no_thinking_back() -> None:
    answer = assistant(SIGNED, call("c"), model=GPT_OSS.id)
    assert content(built(user("a"), answer, result("c"), model=GPT_OSS, tools=[EXEC]))[1] == ("a", ["call"])


@pytest.mark.parametrize(
    ("level", "word"),
    [("off", None), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high")],
)
def test_thinking_of_other_makers(level: ThinkingLevel, word: str | None) -> None:
    config: dict[str, Any] = {"max_tokens": 1000, "temperature": 0.5, "thinking": level}
    fields: Any = {"reasoning_effort": word} if word else None
    body = built(model=GPT_OSS, **config)
    assert thinking_of(body) == (1000, fields, None)
    assert body["inferenceConfig"]["temperature"] == 0.5
    fields = {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": word}} if word else None
    body = built(model=NOVA_2, **config)
    assert thinking_of(body) == (None if word == "high" else 1000, fields, None)
    assert ("inferenceConfig" in body) is (word != "high")
    assert thinking_of(built(model=LLAMA, **config)) == (1000, None, None)


# The format of answers


def test_a_schema_for_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert built(response_format=wanted)["outputConfig"] == {
        "textFormat": {
            "type": "json_schema",
            "structure": {"jsonSchema": {"schema": json.dumps(schema, separators=(",", ":")), "name": "n"}},
        }
    }
    assert "outputConfig" not in built(response_format={"type": "text"})


@pytest.mark.parametrize("wanted", [{"type": "json_object"}, {"type": "json_schema"}, {"type": "grammar"}, {"odd": 1}])
def test_a_format_that_there_is_no_form_for(wanted: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"^lab: response_format .* is not supported"):
        built(response_format=wanted)


# Anything


BLOCKS = st.one_of(
    st.text(max_size=5).map(TextBlock),
    st.builds(ThinkingBlock, st.text(max_size=5), st.sampled_from(["", "c2ln"]), st.booleans()),
    st.builds(ToolCallBlock, st.text(max_size=70), st.text(max_size=70), st.just({"a": 1})),
)
IMAGES = st.one_of(st.text(max_size=5).map(TextBlock), st.just(ImageBlock("image/png", PNG)))
ANSWERS = st.builds(
    AssistantMessage,
    st.lists(BLOCKS, max_size=4),
    st.just("bedrock"),
    st.sampled_from(["lab", "other"]),
    st.sampled_from([CLAUDE_ID, "another"]),
    st.sampled_from(["stop", "toolUse", "error", "aborted"]),
    st.just(2),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Messages in any order, with results of some calls."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(0, 7))):
        if draw(st.booleans()):
            messages.append(UserMessage(draw(st.lists(IMAGES, max_size=3)), 1))
            continue
        answer = draw(ANSWERS)
        messages.append(answer)
        for block in answer.content:
            if isinstance(block, ToolCallBlock) and draw(st.booleans()):
                shown = draw(st.lists(IMAGES, max_size=2))
                messages.append(ToolResultMessage(block.id, block.name, shown, draw(st.booleans()), 3))
    return [*messages, UserMessage(draw(st.lists(IMAGES, max_size=3)), 1)]


@given(
    histories(),
    st.sampled_from([CLAUDE, THINKER, EFFORT, NOVA, NOVA_2, LLAMA, GPT_OSS]),
    st.sampled_from([(), (EXEC,), (EXEC, ToolDefinition(name="odd name"))]),
    st.sampled_from([None, "none", "required"]),
    st.sampled_from([None, "off", "low", "xhigh"]),
    st.sampled_from(["", "now"]),
)
def test_any_history_makes_a_body_that_bedrock_takes(
    history: list[Message], model: ModelInfo, tools: Any, choice: Any, thinking: Any, volatile: str
) -> None:
    body = built(
        *history, model=model, system=("1", "2"), volatile=volatile, tools=tools, tool_choice=choice, thinking=thinking
    )
    points = [block for each in body["messages"] for block in each["content"] if block == POINT]
    assert len(points) <= 2
    assert body.get("system", []).count(POINT) in (0, 2)


# What the scripted Bedrock refuses, as the real one


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "messages missing"),
        ({"messages": [], "model": "m"}, "unknown field model"),
        ({"messages": []}, "must start with a user message"),
        ({"messages": [{"role": "user", "content": []}]}, "is empty"),
        ({"messages": [{"role": "tool", "content": [{"text": "a"}]}]}, "failed to satisfy constraint"),
        ({"messages": [{"role": "user", "content": [{"text": " "}]}]}, "is blank"),
        ({"messages": [{"role": "user", "content": [{"text": "a", "image": {}}]}]}, "body.messages.0.content.0.image"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}] * 2}, "must alternate"),
        ({"messages": [{"role": "user", "content": [POINT]}]}, "something before it"),
        (
            {
                "messages": [{"role": "user", "content": [{"text": "a"}]}],
                "inferenceConfig": {"maxTokens": 0},
            },
            "not between",
        ),
    ],
)
def test_bodies_that_the_scripted_bedrock_refuses(body: Any, words: str) -> None:
    with pytest.raises(Refused, match=words):
        check_body(body, CLAUDE_ID)


# The stream


def read(*chunks: bytes, names: dict[str, str] | None = None) -> tuple[list[Part], ProviderError | None]:
    """The parts of an answer whose connection ends after ``chunks``."""
    made = reader(Source("lab", (b"secret-token",)), names)
    parts = [part for chunk in chunks for part in made.feed(chunk)]
    return parts + made.close(), made.failure


def delta(index: int, **what: Any) -> bytes:
    return encode_event("contentBlockDelta", {"contentBlockIndex": index, "delta": what})


def start(index: int, identity: str | None, name: str | None) -> bytes:
    call = {"toolUseId": identity, "name": name}
    return encode_event("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": call}})


def stop(index: int) -> bytes:
    return encode_event("contentBlockStop", {"contentBlockIndex": index})


def end(reason: str = "end_turn", **usage: Any) -> bytes:
    told = {"usage": usage} if usage else {}
    return encode_event("messageStop", {"stopReason": reason}) + encode_event("metadata", {**told, "metrics": {}})


BEGIN = encode_event("messageStart", {"role": "assistant"})


def test_an_answer() -> None:
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 100}
    assert read(
        BEGIN,
        delta(0, reasoningContent={"text": "let "}),
        delta(0, reasoningContent={"text": "me"}),
        delta(0, reasoningContent={"signature": "sea"}),
        delta(0, reasoningContent={"signature": "led"}),
        stop(0),
        delta(1, text="Hel"),
        delta(1, text="lo"),
        stop(1),
        start(2, "tooluse_1", "exec"),
        delta(2, toolUse={"input": '{"a"'}),
        delta(2, toolUse={"input": ":1}"}),
        stop(2),
        start(3, "tooluse_2", "read"),
        delta(3, toolUse={"input": ""}),
        stop(3),
        end("tool_use", **usage, cacheWriteInputTokens=20, cacheDetails=[]),
    ) == (
        [
            ThinkingDelta("let "),
            ThinkingDelta("me"),
            ThinkingDelta("", "sealed"),
            TextDelta("Hel"),
            TextDelta("lo"),
            ToolCallDelta(0, "tooluse_1", "exec", ""),
            ToolCallDelta(0, "", "", '{"a"'),
            ToolCallDelta(0, "", "", ":1}"),
            ToolCallDelta(1, "tooluse_2", "read", ""),
            Ended("toolUse", Usage(10, 5, 100, 20, 135)),
        ],
        None,
    )


def test_calls_have_the_names_that_their_tools_have_here() -> None:
    parts, _ = read(BEGIN, start(0, "a", "fs_read_12345678"), end(), names={"fs_read_12345678": "fs.read"})
    assert parts[0] == ToolCallDelta(0, "a", "fs.read", "")


def test_thinking_that_is_not_shown() -> None:
    whole = b64encode(b"ten bytes!").decode()
    halves = [b64encode(half).decode() for half in (b"ten b", b"ytes!")]
    for pieces in ([whole], halves):
        parts, _ = read(
            BEGIN, *[delta(0, reasoningContent={"redactedContent": each}) for each in pieces], stop(0), end()
        )
        assert parts == [ThinkingDelta("", whole, redacted=True), Ended("stop", None)]
    odd = [delta(0, reasoningContent={"redactedContent": each}) for each in ("abc", "d")]
    assert read(BEGIN, *odd, end())[0] == [ThinkingDelta("", "abcd", redacted=True), Ended("stop", None)]


def test_signatures_are_not_lost_with_the_ends_of_their_blocks() -> None:
    parts, _ = read(BEGIN, delta(0, reasoningContent={"text": "a", "signature": "b"}), end())
    assert parts == [ThinkingDelta("a"), ThinkingDelta("", "b"), Ended("stop", None)]


def test_an_empty_answer() -> None:
    assert read(BEGIN, end()) == ([Ended("stop", None)], None)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "toolUse"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("a_new_one", "stop"),
        (None, "stop"),
    ],
)
def test_reasons_for_the_end(reason: Any, told: StopReason) -> None:
    assert read(BEGIN, delta(0, text="a"), end(reason)) == ([TextDelta("a"), Ended(told, None)], None)


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        ("guardrail_intervened", BadRequest, "lab: a guardrail stopped the answer"),
        ("content_filtered", BadRequest, "lab: the content filter stopped the answer"),
        ("malformed_model_output", Overloaded, "lab: the answer ended with 'malformed_model_output'"),
        ("malformed_tool_use", Overloaded, "lab: the answer ended with 'malformed_tool_use'"),
    ],
)
def test_ends_that_are_failures(reason: str, kind: type[ProviderError], words: str) -> None:
    parts, failure = read(BEGIN, delta(0, text="a"), end(reason))
    assert parts == [TextDelta("a")]
    assert (type(failure), str(failure)) == (kind, words)


def test_calls_of_a_model_that_does_not_say_so() -> None:
    assert read(BEGIN, start(0, "a", "exec"), end("end_turn"))[0][-1] == Ended("toolUse", None)


def test_calls_without_ids_or_names() -> None:
    parts, _ = read(BEGIN, start(0, None, None), start(1, "", "exec"), delta(9, toolUse={"input": "{}"}), end())
    assert parts[:-1] == [ToolCallDelta(0, "call_0", "", ""), ToolCallDelta(1, "call_1", "exec", "")]


@pytest.mark.parametrize("tail", [b"", encode_event("metadata", {"metrics": {}})[:-1]])
def test_an_answer_without_its_usage(tail: bytes) -> None:
    """The connection may break after the model has said that it is done."""
    stopped = encode_event("messageStop", {"stopReason": "end_turn"})
    assert read(BEGIN, delta(0, text="a"), stopped, tail) == ([TextDelta("a"), Ended("stop", None)], None)


def test_usage_that_comes_first() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    first = encode_event("metadata", {"usage": usage})
    stopped = encode_event("messageStop", {"stopReason": "end_turn"})
    assert read(first, delta(0, text="a"), stopped)[0][-1] == Ended("stop", Usage(1, 2, 0, 0, 3))


def test_usage_beyond_all_bounds() -> None:
    counts = b'{"usage":{"inputTokens":-5,"outputTokens":1%b,"cacheReadInputTokens":null}}' % (b"0" * 30)
    metadata = encode_message({":event-type": "metadata", ":message-type": "event"}, counts)
    stopped = encode_event("messageStop", {"stopReason": "end_turn"})
    assert read(stopped, metadata)[0] == [Ended("stop", Usage(0, MOST_TOKENS, 0, 0, MOST_TOKENS))]


@pytest.mark.parametrize("chunks", [[], [BEGIN], [BEGIN, delta(0, text="a")], [BEGIN, delta(0, text="a")[:-1]]])
def test_an_answer_that_breaks_off(chunks: list[bytes]) -> None:
    _, failure = read(*chunks)
    assert (type(failure), str(failure)) == (StreamCut, "lab: the stream ended before the answer")


def test_what_comes_after_the_end_is_ignored() -> None:
    assert read(BEGIN, end() + delta(0, text="late") + b"garbage", b"more") == ([Ended("stop", None)], None)


def test_events_and_blocks_of_other_kinds() -> None:
    events = [
        encode_event("initial-response", {}),
        encode_event("somethingNew", {"delta": {"text": "no"}}),
        encode_message({":event-type": "somethingNew", ":message-type": "event"}, b"no JSON"),
        encode_event("contentBlockStart", {"contentBlockIndex": 0, "start": {"image": {"format": "png"}}}),
        encode_event("contentBlockStart", {"contentBlockIndex": 0}),
        delta(0, image={"source": {"bytes": "aaaa"}}),
        delta(0, citation={"title": "a"}),
        encode_event("contentBlockDelta", {"contentBlockIndex": 0}),
        stop(7),
    ]
    assert read(BEGIN, *events, end()) == ([Ended("stop", None)], None)


def test_halves_of_a_character_in_two_deltas() -> None:
    """JSON of some models' servers cuts surrogate pairs."""
    headers = {":event-type": "contentBlockDelta", ":message-type": "event"}
    halves = [encode_message(headers, b'{"delta":{"text":"%b"}}' % half) for half in (b"a\\ud83d", b"\\ude00b")]
    assert read(*halves, end())[0] == [TextDelta("a"), TextDelta("😀b"), Ended("stop", None)]


# Failures in the stream


@pytest.mark.parametrize(
    ("name", "message", "kind", "status"),
    [
        ("throttlingException", "Too many tokens, please wait before trying again.", RateLimited, 429),
        ("validationException", "The model ID is wrong", BadRequest, 400),
        ("validationException", "Input is too long for requested model.", ContextOverflow, 400),
        ("validationException", "prompt is too long: 200049 tokens > 200000 maximum", ContextOverflow, 400),
        ("internalServerException", "The system encountered an unexpected error", Overloaded, 500),
        ("modelStreamErrorException", "An error occurred while streaming", Overloaded, 500),
        ("serviceUnavailableException", "Bedrock is unable to process your request.", Overloaded, 503),
        ("modelTimeoutException", "Model has timed out", ProviderTimeout, 408),
        ("accessDeniedException", "not yours", AuthFailed, 401),
        ("resourceNotFoundException", "no such model", BadRequest, 404),
        ("serviceQuotaExceededException", "too much", RateLimited, 429),
        ("aNewException", "whatever", Overloaded, 500),
    ],
)
def test_exceptions(name: str, message: str, kind: type[ProviderError], status: int) -> None:
    parts, failure = read(BEGIN, delta(0, text="a"), encode_exception(name, {"message": message}))
    assert parts == [TextDelta("a")]
    assert (type(failure), str(failure)) == (kind, f"lab: {message} (HTTP {status})")


def test_exceptions_without_words() -> None:
    _, failure = read(encode_exception("internalServerException", {}))
    assert str(failure) == "lab: internalServerException (HTTP 500)"


def test_an_error_in_headers_alone() -> None:
    """What a service says that fails before it knows of any shape."""
    headers = {":message-type": "error", ":error-code": "ThrottlingException", ":error-message": "slow down"}
    _, failure = read(encode_message(headers, b""))
    assert (type(failure), str(failure)) == (RateLimited, "lab: slow down (HTTP 429)")


def test_no_failure_shows_a_secret() -> None:
    _, failure = read(encode_exception("validationException", {"message": "bad: secret-token"}))
    assert str(failure) == "lab: bad: *** (HTTP 400)"


def test_messages_of_no_type() -> None:
    _, failure = read(encode_message({}, b"{}"))
    assert (type(failure), str(failure)) == (StreamCut, "lab: a message of a type that nobody knows")


@pytest.mark.parametrize(
    "payload", [b"", b"nonsense", b"[]", b'{"delta": 1}', b'{"delta": {"text": {}}}', b"[" * 100_000]
)
def test_events_that_make_no_sense(payload: bytes) -> None:
    headers = {":event-type": "contentBlockDelta", ":message-type": "event"}
    parts, failure = read(BEGIN, delta(0, text="a"), encode_message(headers, payload), end())
    assert parts == [TextDelta("a")]
    assert isinstance(failure, StreamCut)
    assert str(failure).startswith("lab: a chunk that makes no sense: ")


def test_a_page_instead_of_a_stream() -> None:
    parts, failure = read(b"<html><body>Please log in to the hotel's network</body></html>")
    assert not parts
    assert isinstance(failure, StreamCut)
    assert str(failure).startswith("lab: no event stream: the checksum of a prelude is ")


def test_a_damaged_message() -> None:
    whole = bytearray(BEGIN + delta(0, text="hello") + end())
    whole[whole.index(b"hello")] ^= 1
    parts, failure = read(bytes(whole))
    assert not parts
    assert isinstance(failure, StreamCut)
    assert str(failure).startswith("lab: a damaged message")


def test_an_answer_without_end() -> None:
    made = reader(Source("lab"))
    chunk = delta(0, text="x" * 1_000_000)
    parts: list[Part] = []
    for _ in range(20):
        parts += made.feed(chunk)
    assert isinstance(made.failure, StreamCut)
    assert str(made.failure) == f"lab: the answer is longer than {MOST_CHARACTERS} characters"
    assert len(parts) <= 17


# Any bytes


def pieces_of(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return (data[begin:until] for begin, until in itertools.pairwise(places))


def outcome(chunks: Iterator[bytes] | Sequence[bytes]) -> tuple[list[Part], type, str]:
    parts, failure = read(*chunks)
    return parts, type(failure), str(failure)


CUTS = st.lists(st.integers(0, 100_000), max_size=10)
SCRIPTS = st.sampled_from(
    [
        'think=let me see sign=c2ln say=héllo 👩‍👩‍👧‍👦 tool=exec:{"a":[1,2]} tool=read:{}',
        "redact=cmVk tokens=5 error-in-stream",
        "tokens=3 usage=none finish=max_tokens",
        "empty cached=5 written=7",
    ]
)


@given(SCRIPTS, CUTS)
def test_any_split_gives_the_same_parts(script: str, cuts: list[int]) -> None:
    data = b"".join(encode_stream(parse_script(script), True))
    assert outcome(pieces_of(data, cuts)) == outcome([data])


@given(SCRIPTS, st.binary(max_size=50), st.integers(0, 100_000), CUTS)
def test_any_garbage_is_a_named_failure_or_none(script: str, garbage: bytes, place: int, cuts: list[int]) -> None:
    data = b"".join(encode_stream(parse_script(script), True))
    place %= len(data) + 1
    data = data[:place] + garbage + data[place + len(garbage) :]
    parts, failure = read(*pieces_of(data, cuts))
    assert isinstance(failure, ProviderError) != (bool(parts) and isinstance(parts[-1], Ended))
    assert outcome(pieces_of(data, cuts)) == outcome([data])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata", "odd", ""]
)
FIELDS = st.dictionaries(
    st.sampled_from(["contentBlockIndex", "delta", "start", "stopReason", "usage", "role"]),
    JSON
    | st.integers(0, 2)
    | st.dictionaries(st.sampled_from(["text", "toolUse", "reasoningContent", "inputTokens"]), JSON, max_size=2)
    | st.dictionaries(
        st.sampled_from(["toolUse", "reasoningContent"]),
        st.dictionaries(
            st.sampled_from(["input", "name", "toolUseId", "text", "signature", "redactedContent"]),
            st.text(max_size=5) | st.none(),
            max_size=3,
        ),
        max_size=1,
    ),
    max_size=4,
)


@given(st.lists(st.tuples(st.sampled_from(["event", "exception", "error", "odd"]), NAMES, FIELDS), max_size=6), CUTS)
def test_any_events_are_parts_or_a_named_failure(events: list[tuple[str, str, Any]], cuts: list[int]) -> None:
    kinds = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code", "odd": "odd"}
    data = b"".join(
        encode_message({":message-type": kind, kinds[kind]: name}, json.dumps(payload).encode())
        for kind, name, payload in events
    )
    parts, failure = read(data)
    assert isinstance(failure, ProviderError) != (bool(parts) and isinstance(parts[-1], Ended))
    assert outcome(pieces_of(data, cuts)) == outcome([data])


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_are_a_named_failure(data: bytes, cuts: list[int]) -> None:
    parts, failure = read(*pieces_of(data, cuts))
    assert not parts
    assert isinstance(failure, StreamCut)


def test_lengths_that_never_come_true() -> None:
    """A message that promises megabytes is not waited for beyond the limit."""
    prelude = struct.pack("!II", 2**31, 0)
    _, failure = read(prelude + struct.pack("!I", crc32(prelude)))
    assert isinstance(failure, StreamCut)


# Over HTTP

KEYS = {"AWS_ACCESS_KEY_ID": "ASIALAB", "AWS_SECRET_ACCESS_KEY": "s3cret/of+lab", "AWS_SESSION_TOKEN": "t0ken/of+lab=="}


@pytest.fixture
def keys(server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bedrock:
    """Temporary credentials in the environment, which the server knows."""
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    dialect = server.dialect(Bedrock)
    dialect.keys["ASIALAB"] = AwsKey("s3cret/of+lab", "t0ken/of+lab==")
    return dialect


def row_of(server: ModelServer, model: ModelInfo = THINKER) -> ProviderRow:
    return replace(ROW, base_url=server.origin, models=(model,))


async def answer(router: Router, *messages: Message | str, **options: Any) -> AssistantMessage:
    said = [user(each) if isinstance(each, str) else each for each in messages]
    request = ModelRequest(messages=said, system=("You help.",), options=ModelOptions(**options))
    events = [event async for event in router.stream(request)]
    assert isinstance(events[-1], Finished)
    return events[-1].message


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (CLAUDE_ID, "us.anthropic.claude-sonnet-4-20250514-v1%3A0"),
        (
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/eu.anthropic.claude-x-1:0",
            "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Feu.anthropic.claude-x-1%3A0",
        ),
    ],
)
async def test_a_signed_request(
    server: ModelServer, keys: Bedrock, make_router: MakeRouter, model: str, path: str
) -> None:
    """Colons and slashes of ids are encoded once in the path, and once more in what is signed (SK-064)."""
    router = make_router(row_of(server, ModelInfo(id=model)))
    message = await answer(router, "say=hello prompt=100 cached=60 written=30")
    assert (text_of(message), message.usage) == ("hello", Usage(10, 1, 60, 30, 101))
    seen = server.requests[-1]
    assert seen.target == f"/model/{path}/converse-stream"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=ASIALAB/")


async def test_a_bedrock_api_key(server: ModelServer, keys: Bedrock, make_router: MakeRouter) -> None:
    keys.key = "a-bedrock-api-key"
    row = replace(row_of(server), api_key=Secret("a-bedrock-api-key"))
    assert text_of(await answer(make_router(row), "say=hello")) == "hello"


async def test_a_turn_with_thinking_and_tools(server: ModelServer, keys: Bedrock, make_router: MakeRouter) -> None:
    """SK-064."""
    router = make_router(row_of(server))
    odd = wire_name("odd.name")
    script = f'think=hm sign=c2ln redact=cmVk say=wait tool={odd}:{{"a":1}} tool=exec:{{}} next-round say=done'
    options: dict[str, Any] = {"tools": (ToolDefinition(name="odd.name"), EXEC), "thinking": "low"}
    message = await answer(router, user(script), **options)
    assert message.content == [
        ThinkingBlock("", "cmVk", redacted=True),
        ThinkingBlock("hm", "c2ln"),
        TextBlock("wait"),
        ToolCallBlock("call_0", "odd.name", {"a": 1}),
        ToolCallBlock("call_1", "exec", {}),
    ]
    results = [result("call_0", TextBlock("one")), result("call_1", TextBlock("two"))]
    assert text_of(await answer(router, user(script), message, *results, **options)) == "done"


@pytest.fixture
async def expiring(keys: Bedrock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], None]]:
    """Credentials of a file, run out; calling it puts good ones there."""
    for name in KEYS:
        monkeypatch.delenv(name)
    keys.keys["ASIAOLD"] = AwsKey("old", "old-token", expired=True)

    def write(key: str, secret: str, token: str) -> None:
        (tmp_path / "credentials").write_text(
            f"[default]\naws_access_key_id={key}\naws_secret_access_key={secret}\naws_session_token={token}\n"
        )

    write("ASIAOLD", "old", "old-token")
    yield lambda: write("ASIALAB", "s3cret/of+lab", "t0ken/of+lab==")


async def test_credentials_that_ran_out_are_read_anew(
    server: ModelServer, expiring: Callable[[], None], make_router: MakeRouter
) -> None:
    router = make_router(row_of(server))
    with pytest.raises(AuthFailed, match="The security token included in the request is expired"):
        await answer(router, "say=hello")
    assert server.served == 1
    expiring()
    assert text_of(await answer(router, "say=hello")) == "hello"
    assert server.served == 3
    assert text_of(await answer(router, "say=hello")) == "hello"
    assert server.served == 4


async def test_requests_that_meet_their_end_together(
    server: ModelServer, expiring: Callable[[], None], make_router: MakeRouter
) -> None:
    router = make_router(row_of(server))
    with pytest.raises(AuthFailed):
        await answer(router, "say=hello")
    expiring()
    answers = await asyncio.gather(*[answer(router, "say=hello") for _ in range(8)])
    assert [text_of(each) for each in answers] == ["hello"] * 8


async def test_what_is_not_allowed_is_not_asked_again(
    server: ModelServer, keys: Bedrock, make_router: MakeRouter
) -> None:
    with pytest.raises(AuthFailed, match="scripted failure 403") as caught:
        await answer(make_router(row_of(server)), "fail=403")
    assert caught.value.status == 403
    assert server.served == 1


async def test_cached_prompts_over_a_conversation(server: ModelServer, keys: Bedrock, make_router: MakeRouter) -> None:
    """SK-088: twenty turns with rounds of tools, billed as Bedrock bills marked prefixes, are cached by nine tenths."""
    server.cache = True
    router = make_router(row_of(server))
    system = ("The rules of the house. " * 400, "Ada likes tea. " * 200)
    history: list[Message] = []
    counts = [0, 0]
    for turn in range(20):
        history.append(user(f"question {turn}"))
        for script in ('tool=exec:{"a":1}', "say=an answer of some words"):
            server.script = script
            request = ModelRequest(
                messages=list(history),
                system=system,
                volatile=f"It is turn {turn}.",
                options=ModelOptions(tools=[EXEC], thinking="low"),
            )
            events = [event async for event in router.stream(request)]
            assert isinstance(events[-1], Finished)
            message = events[-1].message
            assert message.usage is not None
            counts = [counts[0] + message.usage.cache_read, counts[1] + message.usage.total - message.usage.output]
            history.append(message)
            calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
            history += [result(each.id, TextBlock("the output of a command " * 5)) for each in calls]
    assert counts[0] / counts[1] > 0.9


# The scripted server itself, asked by Amazon's SDK


@pytest.fixture
async def sdk(server: ModelServer, keys: Bedrock) -> AsyncIterator[Any]:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=10)
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=server.origin, config=config)
    yield client
    client.close()


def ask_sdk(text: str, **fields: Any) -> dict[str, Any]:
    """The arguments of a call."""
    tool = {"toolSpec": {"name": "exec", "inputSchema": {"json": {"type": "object"}}}}
    message = {"role": "user", "content": [{"text": text}, POINT]}
    return {"modelId": CLAUDE_ID, "messages": [message], "toolConfig": {"tools": [tool]}, **fields}


async def test_the_sdk_streams(sdk: Any) -> None:
    script = 'think=let me sign=c2ln redact=cmVk say=hé llo tool=exec:{"a":1} prompt=100 cached=60 written=30'
    events = await asyncio.to_thread(lambda: list(sdk.converse_stream(**ask_sdk(script))["stream"]))
    assert [next(iter(event)) for event in events][-2:] == ["messageStop", "metadata"]
    assert events[0] == {"messageStart": {"role": "assistant"}}
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert deltas == [
        {"reasoningContent": {"redactedContent": b"red"}},
        {"reasoningContent": {"text": "let"}},
        {"reasoningContent": {"text": " me"}},
        {"reasoningContent": {"signature": "c2ln"}},
        {"text": "hé"},
        {"text": " llo"},
        {"toolUse": {"input": '{"a":1'}},
        {"toolUse": {"input": "}"}},
    ]
    usage = events[-1]["metadata"]["usage"]
    assert (usage["inputTokens"], usage["cacheReadInputTokens"], usage["cacheWriteInputTokens"]) == (10, 60, 30)


async def test_the_sdk_asks_for_a_whole_answer(sdk: Any) -> None:
    script = 'think=hm redact=cmVk say=hello tool=exec:{"a":1}'
    answer = await asyncio.to_thread(sdk.converse, **ask_sdk(script))
    assert answer["output"]["message"] == {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"redactedContent": b"red"}},
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2lnbmVk"}}},
            {"text": "hello"},
            {"toolUse": {"toolUseId": "call_0", "name": "exec", "input": {"a": 1}}},
        ],
    }
    assert answer["stopReason"] == "tool_use"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("fail=context", "ValidationException"),
        ("fail=403", "AccessDeniedException"),
        ("fail=404", "ResourceNotFoundException"),
        ("fail=429", "ThrottlingException"),
        ("fail=500", "InternalServerException"),
        ("fail=503", "ServiceUnavailableException"),
    ],
)
async def test_the_sdk_is_refused(sdk: Any, script: str, code: str) -> None:
    for method in (sdk.converse, sdk.converse_stream):
        with pytest.raises(ClientError) as caught:
            await asyncio.to_thread(method, **ask_sdk(script))
        assert caught.value.response["Error"]["Code"] == code


async def test_the_sdk_meets_an_exception_in_the_stream(sdk: Any) -> None:
    answer = await asyncio.to_thread(sdk.converse_stream, **ask_sdk("say=x error-in-stream"))
    with pytest.raises(EventStreamError, match=r"modelStreamErrorException.*scripted failure in the stream"):
        await asyncio.to_thread(list, answer["stream"])
    answer["stream"].close()


async def test_the_sdk_sends_images_and_thinking(sdk: Any, server: ModelServer) -> None:
    """As bytes, which it encodes as we do ourselves."""
    image = {"image": {"format": "png", "source": {"bytes": b64decode(PNG)}}}
    thought = {"reasoningContent": {"redactedContent": b"red"}}
    messages = [
        {"role": "user", "content": [{"text": "a"}, image]},
        {"role": "assistant", "content": [thought, {"text": "b"}]},
        {"role": "user", "content": [{"text": "say=ok"}]},
    ]
    await asyncio.to_thread(sdk.converse, modelId=CLAUDE_ID, messages=messages)
    sent = server.bodies[-1]["messages"]
    assert sent[0]["content"][1]["image"]["source"]["bytes"] == PNG
    assert sent[1]["content"][0]["reasoningContent"]["redactedContent"] == "cmVk"


async def test_the_sdk_with_wrong_keys(sdk: Any, keys: Bedrock) -> None:
    keys.keys["ASIALAB"] = AwsKey("another secret", "t0ken/of+lab==")
    with pytest.raises(ClientError, match=r"InvalidSignatureException.*does not match the signature you provided"):
        await asyncio.to_thread(sdk.converse, **ask_sdk("say=x"))
