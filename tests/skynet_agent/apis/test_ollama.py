"""``ollama``: the body that is sent, and the reader of what comes back (SK-061)."""

import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import msgspec
import ollama
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.apis.ollama import build_body, reader, wire_messages
from skynet_agent.errors import AuthFailed, BadRequest, ContextOverflow, Overloaded, ProviderError, StreamCut
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
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import MOST_CHARACTERS, MOST_TOKENS, Source
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.router import Router
from skynet_memory.secrets import Secret
from tests.skynet_agent.lab import ask
from tests.support.dialects.ollama import SHOWN, Ollama
from tests.support.model_server import ModelServer

ROW = ProviderRow(name="lab", api="ollama", local=True)
MODEL = ModelInfo(id="m-1", input=("text", "image"))
EXEC = ToolDefinition(name="exec", description="Run.", parameters={"type": "object", "properties": {}})
READ = ToolDefinition(name="read")

MakeRouter = Callable[..., Router]


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts], 1)


def assistant(*blocks: Any, stop_reason: StopReason = "stop") -> AssistantMessage:
    return AssistantMessage(list(blocks), "ollama", "lab", "m-1", stop_reason, 2)


def result(call: str, *blocks: Any) -> ToolResultMessage:
    return ToolResultMessage(call, "exec", list(blocks), False, 3)


# The body


def body_of(model: ModelInfo = MODEL, **options: Any) -> dict[str, Any]:
    return build_body(ROW, model, ModelRequest(messages=[user("hi")], options=ModelOptions(**options)))


def test_a_plain_body() -> None:
    """BA-083."""
    request = ModelRequest(system=("tier 1", "", "tier 2"), messages=[user("hi")], volatile="It is ten.")
    assert build_body(ROW, MODEL, request) == {
        "model": "m-1",
        "messages": [
            {"role": "system", "content": "tier 1\n\ntier 2"},
            {"role": "user", "content": "hi\n\nIt is ten."},
        ],
        "stream": True,
        "truncate": False,
        "shift": False,
    }


def test_options() -> None:
    model = replace(MODEL, context_window=16384, max_output_tokens=50)
    body = body_of(
        model,
        max_tokens=100,
        temperature=0.0,
        top_p=0.5,
        stop=["\n"],
        seed=7,
        user="u",
        tools=[EXEC],
        parallel_tool_calls=False,
        extra={"logit_bias": {}},
    )
    assert body.pop("messages")
    assert body == {
        "model": "m-1",
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {
            "num_ctx": 16384,
            "num_predict": 50,
            "temperature": 0.0,
            "top_p": 0.5,
            "stop": ["\n"],
            "seed": 7,
        },
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "exec",
                    "description": "Run.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


def test_a_model_that_takes_no_sampling_options_gets_none() -> None:
    assert "options" not in body_of(replace(MODEL, sampling=False), temperature=1.0, top_p=0.5)


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        (None, ["exec", "read"]),
        ("auto", ["exec", "read"]),
        ("required", ["exec", "read"]),
        (OneTool("read"), ["read"]),
        ("none", []),
    ],
)
def test_the_choice_of_tools(choice: Any, offered: list[str]) -> None:
    tools = body_of(tools=[EXEC, READ], tool_choice=choice).get("tools", [])
    assert [tool["function"]["name"] for tool in tools] == offered


WORDS = replace(MODEL, thinking_form="effort")


@pytest.mark.parametrize(
    ("model", "level", "sent"),
    [
        (MODEL, "off", False),
        (MODEL, "minimal", True),
        (MODEL, "xhigh", True),
        (WORDS, "off", False),
        (WORDS, "minimal", "low"),
        (WORDS, "medium", "medium"),
        (WORDS, "xhigh", "high"),
        (replace(WORDS, thinking_levels=("off", "low", "xhigh")), "xhigh", "max"),
        (replace(WORDS, thinking_levels=("off", "low", "xhigh")), "medium", "low"),
        (replace(WORDS, thinking_levels=("off", "minimal")), "minimal", None),
    ],
)
def test_thinking(model: ModelInfo, level: ThinkingLevel, sent: bool | str | None) -> None:
    assert body_of(model, thinking=level).get("think") == sent


@pytest.mark.parametrize(
    ("asked", "told", "limit", "sent"),
    [(None, None, 9, None), (5, None, 9, 5), (50, None, 9, 9), (None, 50, 9, 9), (None, 5, None, 5), (5, 7, None, 5)],
)
def test_an_answer_is_never_longer_than_the_model_can_write(
    asked: int | None, told: int | None, limit: int | None, sent: int | None
) -> None:
    """BA-084."""
    body = body_of(replace(MODEL, max_output_tokens=told, output_limit=limit), max_tokens=asked)
    assert body.get("options", {}).get("num_predict") == sent


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, "json"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}, {"type": "object"}),
    ],
)
def test_response_formats(wanted: Any, sent: Any) -> None:
    assert body_of(response_format=wanted).get("format") == sent


@pytest.mark.parametrize("wanted", [{"type": "grammar"}, {}, {"type": "json_schema"}])
def test_a_response_format_that_ollama_has_no_form_for(wanted: Any) -> None:
    with pytest.raises(BadRequest, match=r"lab: response_format .* is not supported; allowed: text, json_object"):
        body_of(response_format=wanted)


def call(identity: str, name: str = "exec") -> ToolCallBlock:
    return ToolCallBlock(identity, name, {"command": "ls é"})


def wire_call(identity: str, index: int = 0) -> dict[str, Any]:
    return {"id": identity, "function": {"index": index, "name": "exec", "arguments": {"command": "ls é"}}}


def wire_result(identity: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_name": "exec", "tool_call_id": identity, "content": text}


@pytest.mark.parametrize(
    ("messages", "wire"),
    [
        ([user("a", "b")], [{"role": "user", "content": "a\n\nb"}]),
        (
            [UserMessage([TextBlock("what?"), ImageBlock("image/png", "AAAA"), ImageBlock("image/gif", "BBBB")], 1)],
            [{"role": "user", "content": "what?", "images": ["AAAA", "BBBB"]}],
        ),
        (
            [UserMessage([ImageBlock("image/png", "AAAA")], 1)],
            [{"role": "user", "content": "", "images": ["AAAA"]}],
        ),
        (
            [user("a"), assistant(ThinkingBlock("hm"), call("c1"), stop_reason="toolUse"), result("c1")],
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [wire_call("c1")]},
                wire_result("c1", "(no output)"),
            ],
        ),
        (
            [
                assistant(TextBlock("look"), call("c1"), call("c2"), stop_reason="toolUse"),
                result("c1", ImageBlock("image/png", "AAAA")),
                result("c2", TextBlock("a b"), ImageBlock("image/png", "BBBB")),
                assistant(TextBlock("done")),
            ],
            [
                {"role": "assistant", "content": "look", "tool_calls": [wire_call("c1"), wire_call("c2", 1)]},
                wire_result("c1", "(see the image)"),
                wire_result("c2", "a b"),
                {"role": "user", "content": "Images of the tool results:", "images": ["AAAA", "BBBB"]},
                {"role": "assistant", "content": "done"},
            ],
        ),
        (
            [assistant(call("c1"), stop_reason="toolUse"), result("c1", ImageBlock("image/png", "AAAA"))],
            [
                {"role": "assistant", "content": "", "tool_calls": [wire_call("c1")]},
                wire_result("c1", "(see the image)"),
                {"role": "user", "content": "Images of the tool results:", "images": ["AAAA"]},
            ],
        ),
    ],
)
def test_messages_on_the_wire(messages: list[Message], wire: list[Any]) -> None:
    assert wire_messages(ROW, MODEL, ModelRequest(messages=messages)) == wire


# The reader


def read(*pieces: bytes, call_ids: str = "call") -> tuple[list[Part], ProviderError | None]:
    """What a whole stream gives, and its failure."""
    answer = reader(Source("lab", (b"sk-12345",)), call_ids)
    parts = [part for piece in pieces for part in answer.feed(piece)] + answer.close()
    assert answer.ended
    assert (answer.failure is None) == (bool(parts) and isinstance(parts[-1], Ended))
    return parts, answer.failure


def line(message: dict[str, Any] | None = None, **fields: Any) -> bytes:
    whole = {"model": "m", "created_at": "2023-11-14T22:13:20Z", "done": False, **fields}
    if message is not None:
        whole["message"] = {"role": "assistant", "content": "", **message}
    return orjson.dumps(whole) + b"\n"


def text(content: str) -> bytes:
    return line({"content": content})


def tools(*calls: dict[str, Any]) -> bytes:
    return line({"tool_calls": list(calls)})


DONE = line({}, done=True, done_reason="stop")
ENDED = Ended("stop", None)


def test_text_thinking_and_usage() -> None:
    parts, failure = read(
        line({"thinking": "hm"}),
        line({"thinking": " so", "content": "a"}),
        text(" b"),
        line({"content": "."}, done=True, done_reason="stop", prompt_eval_count=90, eval_count=7),
        text("ignored"),
    )
    assert failure is None
    assert parts == [
        ThinkingDelta("hm"),
        ThinkingDelta(" so"),
        TextDelta("a"),
        TextDelta(" b"),
        TextDelta("."),
        Ended("stop", Usage(90, 7, 0, 0, 97)),
    ]


@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        ({"eval_count": 2}, Usage(0, 2, 0, 0, 2)),  # the prompt was in the runner's cache: older versions say nothing
        ({"prompt_eval_count": 2**64 - 1, "eval_count": -5}, Usage(MOST_TOKENS, 0, 0, 0, MOST_TOKENS)),
        ({}, None),
    ],
)
def test_usage(sent: dict[str, int], usage: Usage | None) -> None:
    assert read(line({}, done=True, **sent))[0] == [Ended("stop", usage)]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "stop"), ("length", "length"), ("load", "stop"), ("unload", "stop"), ("", "stop"), ("other", "stop")],
)
def test_reasons_for_the_end(reason: str, stop: StopReason) -> None:
    assert read(text("a"), line({}, done=True, done_reason=reason))[0] == [TextDelta("a"), Ended(stop, None)]


def test_tool_calls_come_whole_and_get_ids() -> None:
    first = {"function": {"name": "exec", "arguments": {"command": "ls é", "deep": [{"a": None}]}}}
    second = {"id": "call_x", "function": {"index": 1, "name": "read", "arguments": {}}}
    parts, failure = read(tools(first), tools(second, {"function": {"name": "read"}}), DONE, call_ids="call_ab")
    assert failure is None
    assert parts == [
        ToolCallDelta(0, "call_ab_0", "exec", '{"command": "ls é", "deep": [{"a": null}]}'),
        ToolCallDelta(1, "call_x", "read", "{}"),
        ToolCallDelta(2, "call_ab_2", "read", "{}"),
        Ended("toolUse", None),
    ]


def test_a_call_that_was_cut_short_by_the_limit() -> None:
    assert read(tools({"function": {"name": "x", "arguments": {}}}), line({}, done=True, done_reason="length"))[0][
        -1
    ] == Ended("length", None)


def test_arguments_as_text_and_halves_of_characters() -> None:
    sent = b'{"message":{"tool_calls":[{"function":{"name":"a","arguments":"{\\"x\\":1}"}},'
    sent += b'{"function":{"name":"b\\ud83d","arguments":{"y":"\\ud83d"}}}]},"done":true}\n'
    parts, _ = read(sent)
    assert parts[0] == ToolCallDelta(0, "call_0", "a", '{"x":1}')
    assert parts[1] == ToolCallDelta(1, "call_1", "b\ufffd", '{"y": "\ufffd"}')


def test_a_character_in_two_halves() -> None:
    halves = [b'{"message":{"content":"\\ud83d"}}\n', b'{"message":{"content":"\\ude00"}}\n']
    assert read(*halves, DONE)[0] == [TextDelta("😀"), ENDED]


@pytest.mark.parametrize(
    ("sent", "kind", "words"),
    [
        (b'{"error":"llama runner process has terminated"}\n', Overloaded, "llama runner process has terminated"),
        (b'{"error":"the input exceeds the context length"}\n', ContextOverflow, "exceeds the context length"),
        (b'{"error":{"message":"odd"}}\n', Overloaded, "odd"),
        (b'{"error":"bad sk-12345 key"}\n', Overloaded, "bad \\*\\*\\* key"),
        (b"<html>sk-12345</html>\n", StreamCut, "makes no sense: '<html>\\*\\*\\*"),
        (b'{"message":"text"}\n', StreamCut, "makes no sense"),
        (b"[]\n", StreamCut, "makes no sense"),
        (b'{"message":{"content":"a"}}', StreamCut, "ended before the answer"),
        (b"", StreamCut, "ended before the answer"),
    ],
)
def test_failures_in_the_stream(sent: bytes, kind: type[ProviderError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        failure = read(sent)[1]
        assert failure is not None
        raise failure
    assert caught.type is kind
    assert "sk-12345" not in str(caught.value)


def test_the_last_line_may_lack_its_end() -> None:
    assert read(text("a"), DONE[:-1]) == ([TextDelta("a"), ENDED], None)


def test_arguments_that_are_nested_too_deeply() -> None:
    deep = (
        b'{"message":{"tool_calls":[{"function":{"name":"a","arguments":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    )
    assert isinstance(read(deep + b'}}]},"done":true}\n')[1], StreamCut)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "x" * 1_000_000},
        {"thinking": "x" * 1_000_000},
        {"tool_calls": [{"function": {"name": "f", "arguments": {"a": "x" * 1_000_000}}}]},
    ],
)
def test_an_answer_without_end_is_cut(message: dict[str, Any]) -> None:
    answer, piece = reader(Source("lab")), line(message)
    shown = 0
    while not answer.ended:
        shown += len(answer.feed(piece))
        assert shown * 1_000_000 < MOST_CHARACTERS + 2_000_000
    assert "longer than" in str(answer.failure)


WHOLE = b"".join(
    [
        line({"thinking": "let me 😀"}),
        text("日本語"),
        text(" b\r\nc"),
        b"\n",
        tools({"function": {"name": "exec", "arguments": {"é": "\u2028"}}}),
        line({}, done=True, done_reason="stop", prompt_eval_count=3, eval_count=4),
    ]
)


@given(st.lists(st.integers(0, len(WHOLE))))
def test_any_split_gives_the_same_parts(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(WHOLE)]
    assert read(*[WHOLE[start:end] for start, end in itertools.pairwise(places)]) == read(WHOLE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)
functions = st.fixed_dictionaries({}, optional={"name": json_values, "arguments": json_values, "index": json_values})
messages = st.fixed_dictionaries(
    {},
    optional={
        "content": st.text() | json_values,
        "thinking": st.text() | json_values,
        "tool_calls": st.lists(st.fixed_dictionaries({}, optional={"id": json_values, "function": functions})),
    },
)
lines = st.fixed_dictionaries(
    {},
    optional={
        "message": messages | json_values,
        "done": st.booleans() | json_values,
        "done_reason": json_values,
        "prompt_eval_count": json_values,
        "eval_count": json_values,
        "error": json_values,
    },
)


@given(st.lists(lines | json_values, max_size=6))
def test_any_lines_are_an_answer_or_a_named_failure(values: list[Any]) -> None:
    parts, _ = read(b"".join(json.dumps(value).encode() + b"\n" for value in values))
    for part in parts:
        msgspec.json.encode(part)  # whole characters only


@given(st.binary(max_size=300))
def test_any_bytes_are_a_named_failure(data: bytes) -> None:
    read(data)
    read(WHOLE[:-40] + data)


# Against the server


@pytest.fixture
def dialect(server: ModelServer) -> Ollama:
    return server.dialect(Ollama)


@pytest.fixture
def row(server: ModelServer) -> ProviderRow:
    return replace(ROW, base_url=server.origin, models=(ModelInfo(id="mock-1"),))


async def answer(router: Router, request: ModelRequest) -> AssistantMessage:
    last = [event async for event in router.stream(request)][-1]
    assert isinstance(last, Finished)
    return last.message


async def test_no_key_is_needed_and_none_is_sent(
    row: ProviderRow, server: ModelServer, make_router: MakeRouter
) -> None:
    """SK-061, SK-072."""
    message = await answer(make_router(row), ask("say=hello there"))
    assert message.content == [TextBlock("hello there")]
    assert "authorization" not in server.requests[0].headers
    assert server.requests[0].path == "/api/chat"


async def test_a_key_that_is_configured_is_sent(
    row: ProviderRow, server: ModelServer, dialect: Ollama, make_router: MakeRouter
) -> None:
    dialect.key = "key-of-a-cloud"
    with pytest.raises(AuthFailed):
        await answer(make_router(row), ask("say=hello"))
    await answer(make_router(replace(row, api_key=Secret("key-of-a-cloud"))), ask("say=hello"))
    assert server.requests[-1].headers["authorization"] == "Bearer key-of-a-cloud"


async def test_a_model_that_was_not_pulled(row: ProviderRow, dialect: Ollama, make_router: MakeRouter) -> None:
    dialect.shown = {"other": SHOWN}
    with pytest.raises(
        BadRequest, match=r"lab: model 'mock-1' not found \(HTTP 404\); get it with: ollama pull mock-1"
    ):
        await answer(make_router(row), ask("say=hello"))


async def test_a_conversation_that_does_not_fit(row: ProviderRow, server: ModelServer, make_router: MakeRouter) -> None:
    with pytest.raises(ContextOverflow):
        await answer(make_router(row), ask("fail=context"))
    assert server.bodies[0]["truncate"] is False


async def test_rounds_of_parallel_calls_without_ids(row: ProviderRow, dialect: Ollama, make_router: MakeRouter) -> None:
    dialect.gives_ids = False
    router = make_router(row)
    history: list[Message] = [user('tool=exec:{"a":1} tool=read:{} next-round tool=exec:{"a":2} next-round say=done')]
    ids: list[str] = []
    while True:
        message = await answer(router, ModelRequest(messages=history, options=ModelOptions(tools=[EXEC, READ])))
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        if not calls:
            break
        assert message.stop_reason == "toolUse"
        ids += [each.id for each in calls]
        results = [ToolResultMessage(each.id, each.name, [TextBlock("out")], False, 1) for each in calls]
        history += [message, *results]
    assert message.content == [TextBlock("done")]
    assert len(set(ids)) == len(ids) == 3


async def test_thinking_goes_back_within_the_turn(
    row: ProviderRow, server: ModelServer, make_router: MakeRouter
) -> None:
    row = replace(row, models=(ModelInfo(id="mock-1", reasoning=True),))
    router, asked = make_router(row), user("think=let me see tool=exec:{}")
    options = ModelOptions(tools=[EXEC], thinking="high")
    first = await answer(router, ModelRequest(messages=[asked], options=options))
    results = [ToolResultMessage("call_0", "exec", [TextBlock("out")], False, 1)]
    await answer(router, ModelRequest(messages=[asked, first, *results], options=options))
    assert [body["think"] for body in server.bodies] == [True, True]
    assert server.bodies[1]["messages"][1]["thinking"] == "let me see"


# The server itself, as the vendor's own client sees it


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=server.origin) as client:
        yield client


async def test_the_vendors_client_understands_the_server(client: ollama.AsyncClient, dialect: Ollama) -> None:
    script = 'think=let me see say=two words tool=exec:{"a":[1]} prompt=12'
    chunks = [
        chunk
        async for chunk in await client.chat("mock-1", [{"role": "user", "content": script}], stream=True, think=True)
    ]
    assert "".join(chunk.message.thinking or "" for chunk in chunks) == "let me see"
    assert "".join(chunk.message.content or "" for chunk in chunks) == "two words"
    calls = [call for chunk in chunks for call in chunk.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls] == [("exec", {"a": [1]})]
    last = chunks[-1]
    assert (last.done, last.done_reason, last.prompt_eval_count, last.eval_count) == (True, "stop", 12, 5)
    whole = await client.chat("mock-1", [{"role": "user", "content": "say=whole"}])
    assert whole.message.content == "whole"
    with pytest.raises(ollama.ResponseError, match="scripted failure in the stream"):
        async for _ in await client.chat("m", [{"role": "user", "content": "tokens=2 error-in-stream"}], stream=True):
            pass
    with pytest.raises(ollama.ResponseError) as caught:
        await client.chat("m", [{"role": "user", "content": "fail=context"}])
    assert caught.value.status_code == 400
    dialect.shown = {"there": SHOWN}
    with pytest.raises(ollama.ResponseError) as caught:
        await client.chat("gone", [{"role": "user", "content": "hi"}])
    assert caught.value.status_code == 404
    assert [model.model for model in (await client.list()).models] == ["there"]
    shown = await client.show("there")
    assert shown.capabilities == ["completion", "tools", "vision", "thinking"]
    assert shown.modelinfo == {"general.architecture": "mock", "mock.context_length": 8192}


async def test_our_bodies_are_the_vendors_own(
    row: ProviderRow, server: ModelServer, client: ollama.AsyncClient, make_router: MakeRouter
) -> None:
    """Against what the vendor's client sends, which knows less: neither ids nor how to refuse what does not fit."""
    history: list[Message] = [
        UserMessage([TextBlock("look"), ImageBlock("image/png", "iVBORw0KGgo=")], 1),
        assistant(TextBlock("so"), call("c1"), stop_reason="toolUse"),
        result("c1", TextBlock("out")),
        user("say=fine"),
    ]
    model = ModelInfo(id="m-1", reasoning=True, input=("text", "image"))
    options = ModelOptions(tools=[EXEC], thinking="off", temperature=0.5)
    request = ModelRequest(messages=history, model="lab/m-1", system=("be brief",), options=options)
    await answer(make_router(replace(row, models=(model,))), request)
    call_of_theirs = {"function": {"name": "exec", "arguments": {"command": "ls é"}}}
    with pytest.raises(ollama.ResponseError, match="invalid tool call"):  # no id
        await client.chat(
            "m-1",
            [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "look", "images": ["iVBORw0KGgo="]},
                {"role": "assistant", "content": "so", "tool_calls": [call_of_theirs]},
                {"role": "tool", "content": "out", "tool_name": "exec"},
                {"role": "user", "content": "say=fine"},
            ],
            tools=[ollama.Tool.model_validate(server.bodies[0]["tools"][0])],
            think=False,
            options={"temperature": 0.5},
        )
    ours, theirs = server.bodies
    for field in ("truncate", "shift"):
        assert ours.pop(field) is False
    called, answered = ours["messages"][2:4]
    assert called["tool_calls"][0].pop("id") == answered.pop("tool_call_id") == "c1"
    assert called["tool_calls"][0]["function"].pop("index") == 0
    assert {**theirs, "stream": True} == ours
