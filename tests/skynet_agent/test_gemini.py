"""Gemini's format: the body that is sent, and the reader of what comes back."""

import itertools
import json
import random
from typing import Any
from unittest.mock import ANY

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from skynet_agent.failures import retry_delay
from skynet_agent.gemini import MOST_SCHEMA_NODES, UNSIGNED, build_body, generation, reader, wire_schema
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
from skynet_agent.reading import MOST_CHARACTERS, MOST_TOKENS, Source
from skynet_agent.requests import THINKING_LEVELS, ModelOptions, ModelRequest, OneTool, ToolDefinition
from skynet_agent.router import local_now
from skynet_agent.writing import EARLIER, IMAGES, NO_OUTPUT, SEE_IMAGES
from tests.support.dialects.gemini import Check, encode_stream
from tests.support.script import parse_script

ROW = ProviderRow(name="lab", api="vertex", auth="google")
OLD = ModelInfo(id="gemini-2.5-flash", input=("text", "image"))
NEW = ModelInfo(id="gemini-3.1-pro-preview", input=("text", "image"))
EXEC = ToolDefinition(
    name="exec",
    description="Run.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
NOW = ToolDefinition(name="now")
SIGNED = "c2lnbmVk"
PNG = ImageBlock("image/png", "iVBORw0K")
GIF = ImageBlock("image/gif", "R0lGODdh")


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts], 1)


def assistant(*blocks: Any, stop_reason: StopReason = "stop", model: ModelInfo = OLD) -> AssistantMessage:
    return AssistantMessage(list(blocks), "vertex", "lab", model.id, stop_reason, 2)


def call(identity: str, signature: str = "", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(identity, "exec", arguments, signature)


def result(identity: str, *blocks: Any, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(identity, "exec", list(blocks), is_error, 3)


def body_of(*messages: Message, model: ModelInfo = OLD, **options: Any) -> dict[str, Any]:
    """A body that the service takes."""
    request = ModelRequest(messages=messages or [user("hi")], options=ModelOptions(**options))
    body = orjson.loads(orjson.dumps(build_body(ROW, model, request)))
    signed = {b"signed": {"name": "exec", "args": {}}, b"thought": None}
    Check(model.id, signed, knows_ids=False).body(body)
    return dict(body)


def config_of(model: ModelInfo = OLD, **options: Any) -> Any:
    return body_of(model=model, **options).get("generationConfig")


def wire_call(signature: str = "", **arguments: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": "exec", "args": arguments}}
    return {**part, "thoughtSignature": signature} if signature else part


def wire_result(text: str, key: str = "output", **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": "exec", "response": {key: text}, **fields}}


def inline(image: ImageBlock) -> dict[str, Any]:
    return {"inlineData": {"mimeType": image.mime_type, "data": image.data}}


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


# The body


def test_a_plain_body() -> None:
    assert body_of() == {"contents": [content("user", "hi")]}


def test_the_system_prompt_has_a_place_of_its_own() -> None:
    """BA-083."""
    request = ModelRequest(system=("tier 1", "", "tier 2"), messages=[user("hi")], volatile="ten o'clock")
    assert build_body(ROW, OLD, request) == {
        "contents": [content("user", "hi", "ten o'clock")],
        "systemInstruction": {"parts": [{"text": "tier 1"}, {"text": "tier 2"}]},
    }


def test_two_people_share_the_bytes_of_tier_1() -> None:
    """Gemini caches what begins as an earlier request did; tools come before the system prompt there."""
    for whose in ("hers", "his"):
        request = ModelRequest(system=("tier 1", whose), messages=[user(whose)])
        system = build_body(ROW, OLD, request)["systemInstruction"]
        assert orjson.dumps(system).startswith(b'{"parts":[{"text":"tier 1"},{"text":"' + whose.encode())


def test_options() -> None:
    config = config_of(
        temperature=0.5, top_p=0.9, stop=["END", ""], seed=2**40 + 7, max_tokens=100, user="u", extra={"x": 1}
    )
    assert config == {
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["END"],
        "seed": 7,
        "maxOutputTokens": 100,
    }
    assert config_of(ModelInfo(id="gemini-3.8-flash", sampling=False), temperature=0.5, top_p=0.9) is None


@pytest.mark.parametrize(
    ("asked", "told", "limit", "sent"),
    [
        (None, None, None, None),
        (None, None, 9, None),
        (None, 8, 9, 8),
        (5, None, None, 5),
        (5, None, 9, 5),
        (1_000_000, None, 9, 9),
        (1_000_000, 8, 9, 8),
    ],
)
def test_an_answer_is_never_longer_than_the_model_can_write(
    asked: int | None, told: int | None, limit: int | None, sent: int | None
) -> None:
    """BA-084."""
    model = ModelInfo(id="gemini-2.5-flash", max_output_tokens=told, output_limit=limit)
    assert (config_of(model, max_tokens=asked) or {}).get("maxOutputTokens") == sent


def test_tools() -> None:
    body = body_of(tools=[EXEC, NOW], tool_choice=OneTool("exec"))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "exec", "description": "Run.", "parametersJsonSchema": EXEC.parameters},
                {"name": "now"},
            ]
        }
    ]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["exec"]}}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
def test_the_choice_of_tools(choice: Any, mode: str) -> None:
    assert body_of(tools=[EXEC], tool_choice=choice)["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert not {"tools", "toolConfig"} & set(body_of(tool_choice=choice))
    assert "toolConfig" not in body_of(tools=[EXEC])


def test_forms_of_answers() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert config_of(response_format={"type": "text"}) is None
    assert config_of(response_format={"type": "json_object"}) == {"responseMimeType": "application/json"}
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": schema}}
    assert config_of(response_format=wanted) == {"responseMimeType": "application/json", "responseJsonSchema": schema}
    for odd in ({"type": "grammar"}, {"type": "json_schema"}, {}):
        with pytest.raises(BadRequest, match=r"lab: response_format .* is not supported; allowed: text, json_object"):
            config_of(response_format=odd)


# Thinking


@pytest.mark.parametrize(
    ("model", "budgets"),
    [
        ("gemini-2.5-flash", [0, 1024, 4096, 8192, 16384, 24576]),
        ("gemini-2.5-pro", [128, 1024, 4096, 8192, 16384, 32768]),
        ("gemini-3.1-flash-lite-preview", [128, 1024, 4096, 8192, 16384, 24576]),
    ],
)
def test_budgets(model: str, budgets: list[int]) -> None:
    """SK-082."""
    sent = [
        config_of(ModelInfo(id=model, reasoning=True), thinking=level)["thinkingConfig"] for level in THINKING_LEVELS
    ]
    assert [config.pop("thinkingBudget") for config in sent] == budgets
    assert sent == [{}, *[{"includeThoughts": True}] * 5]


@pytest.mark.parametrize(
    ("model", "levels", "words"),
    [
        ("gemini-4-argon", (), ["LOW", "LOW", "LOW", "MEDIUM", "HIGH", "HIGH"]),
        (
            "gemini-3.5-flash",
            ("minimal", "low", "medium", "high"),
            ["MINIMAL", "MINIMAL", "LOW", "MEDIUM", "HIGH", "HIGH"],
        ),
        ("gemini-3-pro-preview", ("low", "high"), ["LOW", "LOW", "LOW", "LOW", "HIGH", "HIGH"]),
        ("gemini-3.8-flash", ("off", "xhigh"), ["LOW", "LOW", "LOW", "MEDIUM", "HIGH", "HIGH"]),
    ],
)
def test_words(model: str, levels: Any, words: list[str]) -> None:
    info = ModelInfo(id=model, reasoning=True, thinking_form="effort", thinking_levels=levels)
    sent = [config_of(info, thinking=level)["thinkingConfig"] for level in THINKING_LEVELS]
    assert [config.pop("thinkingLevel") for config in sent] == words
    assert sent == [{}, *[{"includeThoughts": True}] * 5]


def test_what_is_thought_comes_on_top_of_what_was_asked_for() -> None:
    model = ModelInfo(id="gemini-2.5-flash", reasoning=True, output_limit=10_000)
    assert config_of(model, thinking="low", max_tokens=100)["maxOutputTokens"] == 4196
    assert config_of(model, thinking="high", max_tokens=100)["maxOutputTokens"] == 10_000
    assert "maxOutputTokens" not in config_of(model, thinking="high")
    assert config_of(ModelInfo(id="gemini-2.5-flash"), thinking="high", max_tokens=60_000)["maxOutputTokens"] == 65_536


def test_generations() -> None:
    names = ("gemini-2.5-pro", "gemini-3.8-flash", "gemini-4-argon", "gemini-10-x", "gemini-flash-latest", "mine")
    assert [generation(name) for name in names] == [2, 3, 4, 10, 3, 3]


# Schemas


@pytest.mark.parametrize(
    ("schema", "wire"),
    [
        ({"$schema": "https://json-schema.org/", "type": "object"}, {"type": "object"}),
        (
            {"properties": {"$schema": {"type": "string"}, "$defs": {"type": "string"}}},
            {"properties": {"$schema": {"type": "string"}, "$defs": {"type": "string"}}},
        ),
        (
            {
                "$defs": {
                    "City": {"type": "object", "properties": {"zip": {"$ref": "#/$defs/Zip"}}},
                    "Zip": {"type": "string"},
                },
                "properties": {"city": {"$ref": "#/$defs/City", "description": "where"}},
            },
            {
                "properties": {
                    "city": {"type": "object", "properties": {"zip": {"type": "string"}}, "description": "where"}
                }
            },
        ),
        (
            {"definitions": {"a/b": {"enum": [1]}}, "properties": {"x": {"anyOf": [{"$ref": "#/definitions/a~1b"}]}}},
            {"properties": {"x": {"anyOf": [{"enum": [1]}]}}},
        ),
        (
            {
                "$ref": "#/$defs/Node",
                "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            },
            {"type": "object", "properties": {"next": {"type": "object"}}},
        ),
        (
            {"properties": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": "https://example.com/x"}, "c": {"$ref": "#"}}},
            {
                "properties": {
                    "a": {"type": "object"},
                    "b": {"type": "object"},
                    "c": {"properties": {"a": {"type": "object"}, "b": {"type": "object"}, "c": {"type": "object"}}},
                }
            },
        ),
        (
            {"items": [{"$ref": "#/items/1"}, {"const": 1}, {"$ref": "#/items/9"}], "additionalProperties": True},
            {"items": [{"const": 1}, {"const": 1}, {"type": "object"}], "additionalProperties": True},
        ),
        ({"items": [{"$ref": f"#/items/{'9' * 5000}"}, {"const": 1}]}, {"items": [{"type": "object"}, {"const": 1}]}),
    ],
)
def test_schemas(schema: dict[str, Any], wire: dict[str, Any]) -> None:
    before = json.dumps(schema)
    assert wire_schema(schema) == wire
    assert json.dumps(schema) == before


def test_a_schema_does_not_grow_without_end() -> None:
    definitions = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(40)
    }
    made = wire_schema({"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/d0"}}})
    assert len(json.dumps(made)) < 100 * MOST_SCHEMA_NODES


def test_a_schema_may_be_deep() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(600):
        schema = {"type": "array", "items": schema}
    assert json.dumps(wire_schema(schema)).count("items") == 100


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.sampled_from(["#/$defs/a", "#", "#/b/0", "#/"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$ref", "$defs", "a", "b", "properties", "items", "anyOf", "$schema"]), inner, max_size=4
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["$ref", "$defs", "properties", "items", "a", "b"]), json_values, max_size=5))
def test_any_schema_loses_its_references(schema: dict[str, Any]) -> None:
    made = wire_schema(schema)

    def references(node: Any) -> int:
        if isinstance(node, list):
            return sum(map(references, node))
        if not isinstance(node, dict):
            return 0
        return isinstance(node.get("$ref"), str) + sum(map(references, node.values()))

    assert references(made) == 0


# Messages


def test_a_conversation() -> None:
    body = body_of(user("a", "b"), assistant(TextBlock("c"), TextBlock("d")), UserMessage([TextBlock("e"), PNG], 3))
    assert body["contents"] == [
        content("user", "a", "b"),
        content("model", "c", "d"),
        content("user", "e", inline(PNG)),
    ]


def test_messages_of_one_side_become_one_content() -> None:
    body = body_of(user("a"), user("b"), assistant(TextBlock("c")), assistant(TextBlock("d")), user("e"))
    assert body["contents"] == [content("user", "a", "b"), content("model", "c", "d"), content("user", "e")]


def test_a_conversation_that_begins_with_an_answer() -> None:
    body = body_of(assistant(call("c1")), result("c1", TextBlock("x")), user("go on"))
    assert body["contents"][:2] == [content("user", EARLIER), content("model", wire_call())]


def test_results_answer_the_calls_in_their_order_and_stand_alone() -> None:
    body = body_of(
        user("go"),
        assistant(TextBlock("look"), call("c1", command="ls é"), call("c2"), call("c3"), stop_reason="toolUse"),
        result("c2", TextBlock("two"), is_error=True),
        result("c1", TextBlock("one"), TextBlock("!")),
        user("and now?"),
    )
    assert body["contents"][1:] == [
        content("model", "look", wire_call(command="ls é"), wire_call(), wire_call()),
        content("user", wire_result("one!"), wire_result("two", "error"), wire_result(MISSING_RESULT, "error")),
        content("user", "and now?"),
    ]


def test_a_result_may_be_empty() -> None:
    body = body_of(user("go"), assistant(call("c1"), stop_reason="toolUse"), result("c1"))
    assert body["contents"][-1] == content("user", wire_result(NO_OUTPUT))


def test_images_of_results_of_a_model_that_takes_them_there() -> None:
    body = body_of(
        user("go"),
        assistant(call("c1", SIGNED), call("c2"), stop_reason="toolUse", model=NEW),
        result("c1", TextBlock("seen"), PNG, GIF),
        result("c2", PNG),
        model=NEW,
    )
    unseen = "seen\n[image/gif: an image of a kind that this model cannot see]"
    assert body["contents"][2:] == [
        content("user", wire_result(unseen, parts=[inline(PNG)]), wire_result(SEE_IMAGES, parts=[inline(PNG)]))
    ]


def test_images_of_results_of_an_older_model_follow_them() -> None:
    body = body_of(
        user("go"),
        assistant(call("c1"), call("c2"), stop_reason="toolUse"),
        result("c1", PNG),
        result("c2", TextBlock("seen"), PNG, GIF),
        user("well?"),
    )
    unseen = "seen\n[image/gif: an image of a kind that this model cannot see]"
    assert body["contents"][2:] == [
        content("user", wire_result(SEE_IMAGES), wire_result(unseen)),
        content("user", IMAGES, inline(PNG), inline(PNG), "well?"),
    ]


def test_images_that_cannot_be_seen() -> None:
    body = body_of(UserMessage([GIF], 1))
    assert body["contents"] == [content("user", "[image/gif: an image of a kind that this model cannot see]")]
    body = body_of(UserMessage([PNG], 1), model=ModelInfo(id="gemini-2.5-flash"))
    assert body["contents"] == [content("user", "[image/png, 1 KiB: an image that this model cannot see]")]


# Signatures


def test_signatures_go_back_where_they_came_from() -> None:
    body = body_of(
        user("go"),
        assistant(ThinkingBlock("hm"), call("c1", SIGNED), call("c2"), stop_reason="toolUse", model=NEW),
        result("c1"),
        result("c2"),
        assistant(
            TextBlock("so"), ThinkingBlock("", "dGhvdWdodA=="), call("c3", SIGNED), stop_reason="toolUse", model=NEW
        ),
        result("c3"),
        model=NEW,
    )
    assert body["contents"][1] == content("model", wire_call(SIGNED), wire_call())
    assert body["contents"][3] == content(
        "model", {"text": "so", "thoughtSignature": "dGhvdWdodA=="}, wire_call(SIGNED)
    )


@pytest.mark.parametrize(
    ("blocks", "parts"),
    [
        ([ThinkingBlock("hm"), TextBlock("a")], ["a"]),
        ([ThinkingBlock("hm", "no base64!"), TextBlock("a")], ["a"]),
        (
            [ThinkingBlock("hm", SIGNED), TextBlock("a")],
            [{"text": "hm", "thought": True, "thoughtSignature": SIGNED}, "a"],
        ),
        ([ThinkingBlock("", SIGNED), TextBlock("a")], [{"text": "a", "thoughtSignature": SIGNED}]),
        ([ThinkingBlock("", SIGNED), call("c")], [wire_call(SIGNED)]),
        (
            [TextBlock("a"), ThinkingBlock("", SIGNED), TextBlock("b"), ThinkingBlock("", "Yg==")],
            [{"text": "a", "thoughtSignature": SIGNED}, {"text": "b", "thoughtSignature": "Yg=="}],
        ),
        ([call("c", "no base64!")], [wire_call()]),
    ],
)
def test_where_a_signature_belongs(blocks: list[Any], parts: list[Any]) -> None:
    calls = [block for block in blocks if isinstance(block, ToolCallBlock)]
    messages: list[Message] = [user("go"), assistant(*blocks), *[result(each.id) for each in calls], user("next")]
    request = ModelRequest(messages=messages[: -1 if calls else None])
    sent = build_body(ROW, OLD, request)["contents"]
    if calls:
        assert sent[1] == content("model", *parts)
    else:  # the turn is over: nothing but what was said
        assert sent[1] == content("model", *[block.text for block in blocks if isinstance(block, TextBlock)])
        unfinished = build_body(ROW, OLD, ModelRequest(messages=messages[:2]))["contents"]
        assert unfinished[1] == content("model", *parts)


def test_thinking_of_earlier_turns_is_left_out_and_signatures_of_calls_stay() -> None:
    body = body_of(
        user("go"),
        assistant(ThinkingBlock("hm", "dGhvdWdodA=="), call("c1", SIGNED), stop_reason="toolUse", model=NEW),
        result("c1"),
        assistant(TextBlock("done"), model=NEW),
        user("next"),
        model=NEW,
    )
    assert body["contents"][1] == content("model", wire_call(SIGNED))


def test_calls_of_another_model_are_marked_as_such() -> None:
    """Gemini 3 refuses the first call of a round without a signature; the others of the round have none."""
    other = AssistantMessage([call("c1", "AAAA"), call("c2")], "openai-completions", "other", "m", "toolUse", 2)
    body = body_of(user("go"), other, result("c1"), result("c2"), model=NEW)
    assert body["contents"][1] == content("model", wire_call(UNSIGNED), wire_call())
    body = body_of(user("go"), other, result("c1"), result("c2"), model=OLD)
    assert body["contents"][1] == content("model", wire_call(), wire_call())


said_blocks = st.one_of(
    st.builds(TextBlock, st.sampled_from(["", " ", "a", "é"])), st.sampled_from([PNG, GIF]), st.just(TextBlock("b"))
)
answer_blocks = st.one_of(
    st.builds(TextBlock, st.sampled_from(["", " ", "a"])),
    st.builds(ThinkingBlock, st.sampled_from(["", "hm"]), st.sampled_from(["", SIGNED, "no base64!"])),
    st.builds(lambda n, signature: call(f"c{n}", signature, n=n), st.integers(0, 3), st.sampled_from(["", SIGNED])),
)
any_messages = st.one_of(
    st.builds(lambda blocks: UserMessage(blocks, 1), st.lists(said_blocks, max_size=3)),
    st.builds(
        lambda blocks, stop, model: assistant(*blocks, stop_reason=stop, model=model),
        st.lists(answer_blocks, max_size=4),
        st.sampled_from(["stop", "toolUse", "error", "aborted"]),
        st.sampled_from([OLD, NEW]),
    ),
    st.builds(lambda n, blocks: result(f"c{n}", *blocks), st.integers(0, 3), st.lists(said_blocks, max_size=2)),
)


class Anything(dict[bytes, Any]):
    """Signatures of a service that gave all that there are."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return ANY


@given(st.lists(any_messages, max_size=12), st.sampled_from([OLD, NEW, ModelInfo(id="gemini-4-argon")]))
def test_any_history_is_one_that_the_service_takes(messages: list[Message], model: ModelInfo) -> None:
    request = ModelRequest(messages=[*messages, user("well?")], volatile="now")
    body = orjson.loads(orjson.dumps(build_body(ROW, model, request)))
    Check(model.id, Anything(), knows_ids=False).body(body)


# The reader


def read(*pieces: bytes) -> tuple[list[Part], ProviderError | None]:
    """What a whole stream gives, and its failure."""
    made = reader(Source("lab"), prefix="call_")
    parts = [part for piece in pieces for part in made.feed(piece)] + made.close()
    assert made.ended
    assert (made.failure is None) == (bool(parts) and isinstance(parts[-1], Ended))
    return parts, made.failure


def event(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\r\n\r\n"


def chunk(*parts: Any, reason: str | None = None, usage: Any = None, **fields: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    if reason:
        candidate["finishReason"] = reason
    return event(
        {"candidates": [candidate], **({"usageMetadata": usage} if usage else {}), "responseId": "r", **fields}
    )


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"text": text, **fields}


STOP = chunk(reason="STOP")


def test_text_thinking_and_usage() -> None:
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 5,
        "toolUsePromptTokenCount": 3,
        "totalTokenCount": 115,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}],
    }
    parts, failure = read(
        chunk(said("hm", thought=True), usage={"trafficType": "ON_DEMAND"}),
        chunk(said(" so", thought=True)),
        chunk(said("a"), said(" b")),
        chunk(said(" c"), reason="STOP", usage=counts),
    )
    assert failure is None
    assert parts == [
        ThinkingDelta("hm"),
        ThinkingDelta(" so"),
        TextDelta("a"),
        TextDelta(" b"),
        TextDelta(" c"),
        Ended("stop", Usage(43, 12, 60, 0, 115)),
    ]


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"promptTokenCount": 10}, Usage(10, 0, 0, 0, 10)),
        ({"promptTokenCount": 10, "cachedContentTokenCount": 99}, Usage(0, 0, 10, 0, 10)),
        ({"thoughtsTokenCount": 4}, Usage(0, 4, 0, 0, 4)),
        ({"promptTokenCount": 2**62, "candidatesTokenCount": -5}, Usage(MOST_TOKENS, 0, 0, 0, MOST_TOKENS)),
    ],
)
def test_usage(counts: Any, usage: Usage) -> None:
    assert read(chunk(reason="STOP", usage=counts))[0] == [Ended("stop", usage)]


def test_the_last_usage_counts_and_there_may_be_none() -> None:
    first = chunk(said("a"), usage={"promptTokenCount": 5})
    assert read(first, chunk(reason="STOP", usage={"promptTokenCount": 6}))[0][-1] == Ended(
        "stop", Usage(6, 0, 0, 0, 6)
    )
    assert read(STOP)[0] == [Ended("stop", None)]


def test_calls_come_whole() -> None:
    parts, failure = read(
        chunk({"functionCall": {"name": "exec", "args": {"command": "ls é"}}, "thoughtSignature": SIGNED}),
        chunk({"functionCall": {"name": "now"}}, {"functionCall": {"name": "exec", "args": {}, "id": "own"}}),
        STOP,
    )
    assert failure is None
    assert parts == [
        ToolCallDelta(0, "call_0", "exec", '{"command":"ls é"}', SIGNED),
        ToolCallDelta(1, "call_1", "now", "{}"),
        ToolCallDelta(2, "own", "exec", "{}"),
        Ended("toolUse", None),
    ]


def test_ids_of_calls_are_an_answers_own() -> None:
    one, other = (reader(Source("lab")).feed(chunk({"functionCall": {"name": "now"}}))[0] for _ in range(2))
    assert isinstance(one, ToolCallDelta) and isinstance(other, ToolCallDelta)
    assert one.id != other.id
    assert len(one.id) <= 40


def test_signatures_are_kept_and_go_back() -> None:
    """What comes is, through draft and history, what goes back while the turn lasts."""
    answered = [
        said("hm", thought=True),
        said("look"),
        said("", thoughtSignature="dGV4dA=="),
        {"functionCall": {"name": "exec", "args": {}}, "thoughtSignature": SIGNED},
        {"functionCall": {"name": "exec", "args": {"a": 1}}},
    ]
    parts, _ = read(*[chunk(part) for part in answered], STOP)
    assert parts[2] == ThinkingDelta("", "dGV4dA==")
    draft = Draft(local_now)
    draft.begin("lab", NEW.id, "vertex")
    for part in parts:
        if not isinstance(part, Ended):
            draft.add(part)
    messages: list[Message] = [user("go"), draft.message("toolUse"), result("call_0"), result("call_1")]
    sent = build_body(ROW, NEW, ModelRequest(messages=messages))["contents"][1]
    assert sent == content("model", said("look", thoughtSignature="dGV4dA=="), wire_call(SIGNED), wire_call(a=1))


def test_the_signature_of_a_last_text_is_of_no_use() -> None:
    parts, failure = read(chunk(said("a", thoughtSignature=SIGNED)), chunk(said("", thoughtSignature=SIGNED)), STOP)
    assert (parts, failure) == ([TextDelta("a"), Ended("stop", None)], None)


@pytest.mark.parametrize(("reason", "stop"), [("STOP", "stop"), ("MAX_TOKENS", "length"), ("CONTINUATION", "length")])
def test_ends(reason: str, stop: StopReason) -> None:
    assert read(chunk(said("a"), reason=reason)) == ([TextDelta("a"), Ended(stop, None)], None)


def test_a_call_cut_off_at_the_limit_is_no_round() -> None:
    assert read(chunk({"functionCall": {"name": "now"}}, reason="MAX_TOKENS"))[0][-1] == Ended("length", None)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("SAFETY", BadRequest),
        ("RECITATION", BadRequest),
        ("BLOCKLIST", BadRequest),
        ("PROHIBITED_CONTENT", BadRequest),
        ("SPII", BadRequest),
        ("MODEL_ARMOR", BadRequest),
        ("SOMETHING_NEW", BadRequest),
        ("MALFORMED_FUNCTION_CALL", Overloaded),
        ("UNEXPECTED_TOOL_CALL", Overloaded),
        ("MALFORMED_RESPONSE", Overloaded),
        ("OTHER", Overloaded),
    ],
)
def test_ends_that_are_failures(reason: str, kind: type[ProviderError]) -> None:
    last = event({"candidates": [{"finishReason": reason, "finishMessage": "why so"}]})
    parts, failure = read(chunk(said("a")), last)
    assert parts == [TextDelta("a")]
    assert type(failure) is kind
    assert reason in str(failure) and str(failure).endswith(": why so")


def test_a_refused_prompt() -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "Not that."}
    parts, failure = read(event({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 4}}))
    assert parts == []
    assert type(failure) is BadRequest
    assert str(failure) == "lab: the prompt was refused (PROHIBITED_CONTENT): Not that."


def test_other_candidates_and_other_parts_are_ignored() -> None:
    other = {"candidates": [{"index": 1, "content": {"parts": [said("x")]}, "finishReason": "SAFETY"}]}
    odd = chunk({"inlineData": {"mimeType": "image/png", "data": ""}}, {"executableCode": {"code": "1"}}, {})
    unspecified = chunk(said("a"), reason="FINISH_REASON_UNSPECIFIED", createTime="2026-11-21")
    assert read(event(other), odd, unspecified, event({}), STOP) == ([TextDelta("a"), Ended("stop", None)], None)


@pytest.mark.parametrize("stream", [(), (chunk(said("a")),), (chunk(said("a")), STOP[:-10])])
def test_no_end(stream: tuple[bytes, ...]) -> None:
    assert isinstance(read(*stream)[1], StreamCut)


@pytest.mark.parametrize("end", [STOP, STOP[:-2], STOP[:-4], STOP + chunk(usage={"promptTokenCount": 1})])
def test_ends_that_count(end: bytes) -> None:
    parts, failure = read(chunk(said("a")), end)
    assert failure is None and isinstance(parts[-1], Ended)


def error(code: Any, status: str, message: str = "said", **fields: Any) -> Any:
    return {"error": {"code": code, "message": message, "status": status, **fields}}


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (error(429, "RESOURCE_EXHAUSTED"), RateLimited),
        (error(503, "UNAVAILABLE"), Overloaded),
        (error(500, "INTERNAL"), Overloaded),
        (error(403, "PERMISSION_DENIED"), AuthFailed),
        (error(400, "INVALID_ARGUMENT"), BadRequest),
        (
            error(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            ),
            ContextOverflow,
        ),
        (error(None, "RESOURCE_EXHAUSTED"), RateLimited),
        ({"error": "boom"}, Overloaded),
        ([], StreamCut),
        ({"candidates": 7}, StreamCut),
        ({"candidates": [{"content": {"parts": [{"text": 7}]}}]}, StreamCut),
        ("done", StreamCut),
    ],
)
def test_failures_in_the_stream_keep_what_came_before(sent: Any, kind: type[ProviderError]) -> None:
    parts, failure = read(chunk(said("a")), event(sent), chunk(said("b")))
    assert parts == [TextDelta("a")]
    assert type(failure) is kind
    assert str(failure).startswith("lab: ")


def test_a_rate_limit_says_when() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.Help"}, {"@type": "…RetryInfo", "retryDelay": "17.5s"}]
    failure = read(event(error(429, "RESOURCE_EXHAUSTED", details=details)))[1]
    assert isinstance(failure, RateLimited)
    assert failure.retry_after_s == 17.5


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"error":{"details":[{"retryDelay":"3s"}]}}', 3.0),
        (b'[{"error":{"details":[{},{"retryDelay":"0.25s"}]}}]', 0.25),
        (b'{"error":{"details":[{"retryDelay":"soon"}]}}', None),
        (b'{"error":{"details":[{"retryDelay":3}]}}', None),
        (b'{"error":{"details":[7]}}', None),
        (b'{"error":{"details":{}}}', None),
        (b'{"error":{}}', None),
        (b"[]", None),
        (b"7", None),
        (b"<html>", None),
        (b"[" * 100_000, None),
    ],
)
def test_when_to_ask_again(body: bytes, seconds: float | None) -> None:
    assert retry_delay(body) == seconds


@pytest.mark.parametrize(
    "part",
    [
        said("x" * 1_000_000),
        said("x" * 1_000_000, thought=True),
        {"functionCall": {"name": "f", "args": {"x": "x" * 1_000_000}}},
        said("", thought=True, thoughtSignature="x" * 1_000_000),
    ],
)
def test_an_answer_without_end_is_cut(part: Any) -> None:
    made, piece, shown = reader(Source("lab")), chunk(part), 0
    while not made.ended:
        shown += len(made.feed(piece))
        assert shown * 1_000_000 < MOST_CHARACTERS + 2_000_000
    assert isinstance(made.failure, StreamCut)
    assert "longer than" in str(made.failure)


@pytest.mark.parametrize("sent", [b'data: {"error":{"message":"bad key AQ.12345"}}', b"data: <AQ.12345>"])
def test_no_failure_shows_the_key(sent: bytes) -> None:
    made = reader(Source("lab", (b"AQ.12345",)))
    assert [*made.feed(sent + b"\n\n"), *made.close()] == []
    assert "***" in str(made.failure) and "AQ.12345" not in str(made.failure)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([r'{"text":"\ud83d"}', r'{"text":"\ude00!"}'], "😀!"),
        ([r'{"text":"a\ud83d"}', r'{"text":"b"}'], "a\ufffdb"),
        ([r'{"text":"\u0000é"}'], "\0é"),
    ],
)
def test_odd_unicode(parts: list[str], text: str) -> None:
    stream = [b'data: {"candidates":[{"content":{"parts":[%b]}}]}\n\n' % part.encode() for part in parts]
    found, failure = read(*stream, STOP)
    assert failure is None
    assert "".join(part.text for part in found if isinstance(part, TextDelta)) == text


def test_odd_unicode_in_arguments() -> None:
    sent = rb'{"functionCall":{"name":"f\ud83d","args":{"a\ud83d":"\ud83d\ude00"}}}'
    parts, failure = read(b'data: {"candidates":[{"content":{"parts":[%b]}}]}\n\n' % sent, STOP)
    assert failure is None
    assert isinstance(parts[0], ToolCallDelta)
    assert (parts[0].name, json.loads(parts[0].arguments)) == ("f\ufffd", {"a\ufffd": "😀"})


texts = st.text(max_size=8)
valid_chunks = st.one_of(
    st.builds(lambda text: chunk(said(text)), texts),
    st.builds(lambda text: chunk(said(text, thought=True)), texts),
    st.builds(lambda text: chunk(said(text, thoughtSignature=SIGNED)), texts),
    st.builds(lambda text: chunk({"functionCall": {"name": "exec", "args": {"a": text}}}), texts),
    st.builds(
        lambda text: b"data: " + json.dumps({"candidates": [{"content": {"parts": [said(text)]}}]}).encode() + b"\n\n",
        texts,
    ),
    st.just(b": keep-alive\n\n"),
    st.just(chunk(usage={"promptTokenCount": 3, "candidatesTokenCount": 2})),
    st.just(STOP),
)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(valid_chunks, max_size=10), st.lists(st.integers(0, 1500), max_size=20))
def test_any_split_of_a_valid_stream_gives_the_same_parts(chunks: list[bytes], cuts: list[int]) -> None:
    stream = b"".join([*chunks, STOP])
    whole = read(stream)
    assert whole[1] is None
    assert read(*pieces_of(stream, cuts)) == whole


hostile = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=60).map(lambda data: b"data: " + data + b"\n\n"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
            ["candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "name", "args",
             "id", "index", "finishReason", "finishMessage", "usageMetadata", "promptTokenCount", "error", "message",
             "code", "status", "details", "retryDelay", "promptFeedback", "blockReason"]
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


def test_a_stream_with_a_changed_byte_is_parts_and_at_most_one_failure() -> None:
    stream = b"".join(encode_stream(parse_script('think=hm so say=a b sign=x tool=exec:{"a":"é"}'), NEW.id))
    chosen = random.Random(7)
    for _ in range(2000):
        changed = bytearray(stream)
        changed[chosen.randrange(len(changed))] = chosen.randrange(256)
        read(bytes(changed))
