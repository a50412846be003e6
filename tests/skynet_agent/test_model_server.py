"""The scripted model server does what its docstring says."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest
from yarl import URL

from tests.skynet_agent.lab import until
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.dialects.openai_responses import OpenAIResponses
from tests.support.model_server import ModelServer, PromptCache
from tests.support.script import Turn, parse_script, script_of, words

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def ask(message: str, **extra: object) -> dict[str, Any]:
    return {"model": "mock-1", "messages": [{"role": "user", "content": message}], **extra}


async def stream(http: aiohttp.ClientSession, server: ModelServer, message: str, **extra: object) -> list[dict]:
    """The chunks of a streamed answer; ``[DONE]`` has to be the last line."""
    body = ask(message, stream=True, stream_options={"include_usage": True}, **extra)
    async with http.post(server.url + "/chat/completions", json=body) as response:
        assert response.status == 200
        lines = [line[6:] for line in (await response.text()).split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def texts(chunks: list[dict], key: str = "content") -> list[str]:
    return [c["choices"][0]["delta"][key] for c in chunks if c["choices"] and key in c["choices"][0]["delta"]]


@pytest.mark.parametrize("text", ["a b", " a  b\n", "a", "", "  ", "é 😀\tz"])
def test_words_join_to_the_text(text: str) -> None:
    assert "".join(words(text)) == text


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("tokens=3", ["w0", " w1", " w2"]),
        ("say=a b tokens=1", ["a", " b", "w0"]),
        ("hello", ["echo:", " hello"]),
        ("hang on a second", ["echo:", " hang", " on", " a", " second"]),
        ("tokens=three", ["echo:", " tokens=three"]),
        ("first=10 prompt=5", ["echo:", " first=10", " prompt=5"]),
        ("", ["echo: "]),
    ],
)
def test_a_message_is_a_script_or_echoed(message: str, tokens: list[str]) -> None:
    assert parse_script(message).tokens == tokens


def test_script_words_combine() -> None:
    script = parse_script("first=5 delay=2 think=let me see say=the answer is 4 cut=2 usage=none finish=length")
    assert (script.first_ms, script.delay_ms, script.cut, script.usage, script.finish) == (5, 2, 2, False, "length")
    assert script.thinking == ["let", " me", " see"]
    assert script.tokens == ["the", " answer", " is", " 4"]


def test_rounds_of_tools() -> None:
    script = "say=look tool=a:{} next-round tool=b:{} tool=c:{} next-round say=done"
    turns = [Turn("user", script)]
    names = []
    for _ in range(4):
        _, now = script_of(turns)
        names.append([name for name, _ in now.tools] or now.tokens)
        turns += [Turn("assistant", ""), *[Turn("tool", "ok") for _ in now.tools]]
    assert names == [["a"], ["b", "c"], ["done"], ["done"]]
    assert [parse_script(script).call_id(0), parse_script(script).rounds[0].call_id(1)] == ["call_0", "call_1_1"]


def test_every_round_asks_again_with_other_ids() -> None:
    turns = [Turn("user", "tool=a:{} every-round")]
    ids = []
    for _ in range(3):
        _, now = script_of(turns)
        ids.append(now.call_id(0))
        turns += [Turn("assistant", ""), Turn("tool", "ok")]
    assert ids == ["call_0", "call_1_0", "call_2_0"]


def test_signatures_and_flags() -> None:
    script = parse_script("think=a b sign=c2ln redact=aGlk say=x empty drop written=4")
    assert (script.signature, script.redacted, script.tokens) == ("c2ln", "aGlk", ["x"])
    assert (script.empty, script.drop, script.written_tokens) == (True, True, 4)
    assert parse_script("empty").tokens == parse_script("drop").tokens == []


def test_retry_after_may_be_a_date() -> None:
    script = parse_script("fail=429:Sat, 21 Nov 2026 01:20:07 GMT")
    assert script.failure is not None
    assert script.failure.retry_after == "Sat, 21 Nov 2026 01:20:07 GMT"


@pytest.mark.parametrize(
    "content",
    [
        "[Sat 2026-11-21 01:20 UTC] tokens=2",
        "System: [2026-11-21 01:19:00 UTC] Node\n\n[Sat 2026-11-21 01:20 GMT+1] tokens=2\n[message_id: 1-2]",
        "tokens=2",
    ],
)
def test_prefixes_are_ignored(content: str) -> None:
    text, script = script_of([Turn("user", content), Turn("assistant", "tokens=9")])
    assert (text, script.tokens) == ("tokens=2", ["w0", " w1"])


async def test_a_stream_has_a_chunk_a_token_and_usage(http: aiohttp.ClientSession, server: ModelServer) -> None:
    chunks = await stream(http, server, "tokens=3 prompt=7 cached=4")
    assert texts(chunks) == ["w0", " w1", " w2"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert server.bodies[0]["messages"][0]["content"] == "tokens=3 prompt=7 cached=4"
    assert server.requests[0].headers["content-type"] == "application/json"


async def test_usage_can_be_missing(http: aiohttp.ClientSession, server: ModelServer) -> None:
    assert all("usage" not in chunk for chunk in await stream(http, server, "tokens=1 usage=none"))


async def test_parallel_tools_then_their_results(http: aiohttp.ClientSession, server: ModelServer) -> None:
    message = 'tool=exec:{"command":"ls -l"} tool=read:{"path":"a b"}'
    chunks = await stream(http, server, message)
    fragments = [delta for deltas in texts(chunks, "tool_calls") for delta in deltas]
    for index, (name, arguments) in enumerate([("exec", {"command": "ls -l"}), ("read", {"path": "a b"})]):
        mine = [each for each in fragments if each["index"] == index]
        assert (mine[0]["id"], mine[0]["function"]["name"]) == (f"call_{index}", name)
        assert orjson.loads("".join(each["function"]["arguments"] for each in mine)) == arguments
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    body = ask(message)
    calls = [{"id": f"call_{n}", "type": "function", "function": {"name": "exec", "arguments": "{}"}} for n in range(2)]
    body["messages"].append({"role": "assistant", "content": None, "tool_calls": calls})
    body["messages"] += [{"role": "tool", "tool_call_id": f"call_{n}", "content": "a b"} for n in range(2)]
    async with http.post(server.url + "/chat/completions", json=body) as response:
        assert (await response.json())["choices"][0]["message"]["content"] == "tool said: a b"


async def test_a_whole_answer(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.post(server.url + "/chat/completions", json=ask("think=hm say=four")) as response:
        answer = await response.json()
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "four",
        "reasoning_content": "hm",
        "refusal": None,
    }
    assert answer["usage"]["completion_tokens"] == 2


async def test_failures(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.post(server.url + "/chat/completions", json=ask("fail=429:7")) as response:
        assert (response.status, response.headers["retry-after"]) == (429, "7")
        assert (await response.json())["error"]["code"] == "rate_limit_exceeded"
    for expected in (503, 200, 200):
        async with http.post(server.url + "/chat/completions", json=ask("fail-once=503 tokens=1")) as response:
            assert response.status == expected
    async with http.post(server.url + "/chat/completions", data=b"{") as response:
        assert response.status == 400
    async with http.get(server.url + "/nothing") as response:
        assert response.status == 404
    assert server.disconnects == 0


async def test_drop_answers_nothing(http: aiohttp.ClientSession, server: ModelServer) -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await http.post(server.url + "/chat/completions", json=ask("drop"))
    assert server.disconnects == 0


async def test_cut_drops_the_connection(http: aiohttp.ClientSession, server: ModelServer) -> None:
    body = ask("tokens=5 cut=2", stream=True)
    async with http.post(server.url + "/chat/completions", json=body) as response:
        got = b""
        with pytest.raises(aiohttp.ClientPayloadError):
            async for data in response.content.iter_any():
                got += data
    assert got.count(b"data: ") == 2
    assert server.disconnects == 0


@pytest.mark.parametrize("message", ["hang", "tokens=2 hang", "tokens=1000 delay=20", "first=60000"])
async def test_a_client_that_goes_is_counted(http: aiohttp.ClientSession, server: ModelServer, message: str) -> None:
    async def post() -> None:
        async with http.post(server.url + "/chat/completions", json=ask(message, stream=True)) as response:
            await response.read()

    task = asyncio.create_task(post())
    await until(lambda: server.served == 1)
    assert server.disconnects == 0
    task.cancel()
    await until(lambda: server.disconnects == 1)


async def test_split_sends_the_same_bytes(http: aiohttp.ClientSession, server: ModelServer) -> None:
    assert texts(await stream(http, server, "say=é 😀 ok split=3")) == ["é", " 😀", " ok"]


async def test_an_error_inside_the_stream(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.post(server.url + "/chat/completions", json=ask("tokens=1 error-in-stream", stream=True)) as r:
        lines = (await r.text()).strip().split("\n\n")
    assert "scripted failure in the stream" in lines[-1]
    assert len(lines) == 2


async def test_keys_are_checked_where_a_test_sets_one(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.dialect(OpenAICompletions).key = "right"
    for key, status in (("right", 200), ("wrong", 401)):
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post(server.url + "/chat/completions", json=ask("hi"), headers=headers) as response:
            assert response.status == status
    assert (server.served, server.asked) == (2, 1)


async def test_what_was_sent_is_kept(http: aiohttp.ClientSession, server: ModelServer) -> None:
    body = b'{ "model":"m", "messages":[{"role":"user","content":"hi"}] }'
    url = URL(server.url + "/chat/completions?a=%2F&b", encoded=True)
    async with http.post(url, data=body) as response:
        await response.read()
    (seen,) = server.requests
    assert (seen.target, seen.path, seen.raw) == ("/v1/chat/completions?a=%2F&b", "/v1/chat/completions", body)


# Caches


def test_a_prefix_is_read_in_steps() -> None:
    cache, prompt = PromptCache(), [("a" * 8000, False), ("b" * 4000, False)]
    assert cache.bill("k", prompt, marks=False) == (3000, 0, None)
    assert cache.bill("k", prompt, marks=False) == (3000, 2944, None)
    assert cache.bill("k", [*prompt[:1], ("c" * 400, False)], marks=False) == (2100, 1920, None)
    assert cache.bill("k", [("x", False), *prompt], marks=False) == (3000, 0, None)
    assert cache.bill("other", prompt, marks=False) == (3000, 0, None)


def test_a_short_prompt_is_not_cached() -> None:
    cache, prompt = PromptCache(), [("a" * 4000, True)]
    for marks, written in ((False, None), (True, 0)):
        assert [cache.bill("k", prompt, marks=marks) for _ in range(2)] == [(1000, 0, written)] * 2


def test_marks_are_what_is_written_and_read() -> None:
    cache = PromptCache()
    tools, system, first, second = ("t" * 8000, False), ("s" * 4000, True), ("1" * 400, True), ("2" * 400, True)
    assert cache.bill("k", [tools, system, first], marks=True) == (3100, 0, 3100)
    assert cache.bill("k", [tools, system, first, second], marks=True) == (3200, 3100, 100)
    assert cache.bill("k", [tools, system, ("x" * 400, False)], marks=True) == (3100, 3000, 0)
    assert cache.bill("k", [tools, ("S" * 4000, True)], marks=True) == (3000, 0, 3000)
    assert cache.bill("k", [tools, (system[0], False), first], marks=True) == (3100, 3100, 0)


def test_a_mark_looks_back_twenty_blocks() -> None:
    cache, start = PromptCache(), ("s" * 8000, True)
    assert cache.bill("k", [start], marks=True)[1:] == (0, 2000)
    near, far = ([start, *[("x" * 4, False)] * n, ("x" * 4, True)] for n in (19, 20))
    assert cache.bill("k", near, marks=True) == (2020, 2000, 20)
    assert PromptCache().bill("k", far, marks=True)[1] == 0
    fresh = PromptCache()
    fresh.bill("k", [start], marks=True)
    assert fresh.bill("k", [(start[0], False), *far[1:]], marks=True) == (2021, 0, 2021)


async def test_a_server_bills_what_was_cached(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.cache = True
    system = {"role": "system", "content": "s" * 8000}
    read = []
    for key in ("ada", "ada", "grace"):
        body = {**ask("say=ok prompt=5 cached=3"), "prompt_cache_key": key}
        body["messages"].insert(0, system)
        async with http.post(server.url + "/chat/completions", json=body) as response:
            usage = (await response.json())["usage"]
        assert usage["prompt_tokens"] > 2000
        read.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert read == [0, 1920, 0]


# Chance


async def test_chaos_is_the_same_for_the_same_seed(http: aiohttp.ClientSession) -> None:
    runs = []
    for seed in (1, 1, 2):
        async with ModelServer() as server:
            chaos = server.chaos(0.5, ["fail=503", "fail=429:1", "error-in-stream"], seed)
            statuses = []
            for _ in range(40):
                async with http.post(server.url + "/chat/completions", json=ask("say=fine")) as response:
                    statuses.append(response.status)
            assert chaos.failed == sum(status != 200 for status in statuses)
            assert set(statuses) == {200, 429, 500, 503}
            runs.append(statuses)
    assert runs[0] == runs[1] != runs[2]


async def test_chaos_may_cut_and_slow_down_what_is_asked_for(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.chaos(1.0, ["cut=2"])
    async with http.post(server.url + "/chat/completions", json=ask("tokens=5", stream=True)) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    server.chaos(1.0, ["drop"])
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await http.post(server.url + "/chat/completions", json=ask("tokens=5"))
    server.chaos(0.0, ["drop"])
    assert texts(await stream(http, server, "tokens=2")) == ["w0", " w1"]


# With OpenAI's own client

EXEC = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator["AsyncOpenAI"]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=server.url, api_key="key-of-lab", max_retries=0) as client:
        yield client


def messages(*said: Any) -> Any:
    return list(said)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def test_chat_completions(client: "AsyncOpenAI", server: ModelServer) -> None:
    server.dialect(OpenAICompletions).key = "key-of-lab"
    tools: Any = [{"type": "function", "function": {"name": "exec", "parameters": EXEC}}]
    script = 'think=hm say=look here tool=exec:{"command":"ls"} tool=exec:{"command":"pwd"} prompt=9 cached=4'
    answer = await client.chat.completions.create(model="m", messages=messages(user(script)), tools=tools)
    message = answer.choices[0].message
    assert message.content == "look here"
    assert [call.function.arguments for call in message.tool_calls or () if call.type == "function"] == [
        '{"command":"ls"}',
        '{"command":"pwd"}',
    ]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert (answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (9, 4)
    async with client.chat.completions.stream(
        model="m", messages=messages(user(script)), tools=tools, stream_options={"include_usage": True}
    ) as events:
        final = await events.get_final_completion()
    assert final.choices[0].message.content == "look here"
    assert final.choices[0].message.tool_calls is not None
    assert [call.id for call in final.choices[0].message.tool_calls] == ["call_0", "call_1"]
    assert final.usage == answer.usage
    results = [{"role": "tool", "tool_call_id": f"call_{n}", "content": f"out {n}"} for n in range(2)]
    more = await client.chat.completions.create(
        model="m", messages=messages(user("tool=exec:{}"), message.model_dump(), *results), tools=tools
    )
    assert more.choices[0].message.content == "tool said: out 1"
    assert [model.id async for model in client.models.list()] == ["mock-1", "mock-2"]


def call(identity: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "exec", "arguments": "{}"}}


@pytest.mark.parametrize(
    "said",
    [
        [],
        [{"role": "robot", "content": "x"}],
        [{"role": "tool", "tool_call_id": "c", "content": "x"}],
        [user("x"), {"role": "assistant", "content": None}],
        [user("x"), {"role": "assistant", "content": None, "tool_calls": [call("c")]}],
        [user("x"), {"role": "assistant", "content": None, "tool_calls": [call("c")]}, user("y")],
        [user("x"), {"role": "assistant", "content": None, "tool_calls": []}],
        [user("x"), {"role": "assistant", "content": None, "tool_calls": [call("c" * 41)]}],
        [{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}],
        [user([{"type": "image_url", "image_url": {"url": "AAAA"}}])],
        [user([{"type": "input_text", "text": "x"}])],
        [user([])],
        [user(None)],
    ],
)
async def test_chat_completions_that_are_refused(client: "AsyncOpenAI", said: list[Any]) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError):
        await client.chat.completions.create(model="m", messages=messages(*said))


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": [{"type": "function", "name": "exec", "parameters": EXEC}]},
        {"tool_choice": "auto"},
        {"parallel_tool_calls": True},
    ],
)
async def test_fields_of_chat_completions_that_are_refused(client: "AsyncOpenAI", fields: dict[str, Any]) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError):
        await client.chat.completions.create(model="m", messages=messages(user("hi")), **fields)


async def test_failures_of_openai(client: "AsyncOpenAI", server: ModelServer) -> None:
    from openai import APIConnectionError, APIError, AuthenticationError, BadRequestError, RateLimitError

    with pytest.raises(RateLimitError) as slow:
        await client.chat.completions.create(model="m", messages=messages(user("fail=429:7")))
    assert (slow.value.code, slow.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "7")
    with pytest.raises(BadRequestError) as long:
        await client.responses.create(model="m", input="fail=context")
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(APIConnectionError):
        await client.responses.create(model="m", input="drop")
    with pytest.raises(APIError, match="scripted failure in the stream"):
        async for _ in await client.chat.completions.create(
            model="m", messages=messages(user("tokens=1 error-in-stream")), stream=True
        ):
            pass
    server.dialect(OpenAIResponses).key = "another"
    with pytest.raises(AuthenticationError):
        await client.responses.create(model="m", input="hi")


async def test_responses(client: "AsyncOpenAI", server: ModelServer) -> None:
    server.dialect(OpenAIResponses).key = "key-of-lab"
    tools: Any = [{"type": "function", "name": "exec", "parameters": EXEC, "strict": False}]
    script = (
        'think=let me see sign=c2ln redact=aGlk say=look here tool=exec:{"command":"ls"} prompt=9 cached=4 written=2'
    )
    asked: Any = {
        "model": "m",
        "input": messages(user(script)),
        "tools": tools,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
    }
    answer = await client.responses.create(**asked)
    assert answer.output_text == "look here"
    assert answer.usage is not None
    details = answer.usage.input_tokens_details
    assert (answer.usage.input_tokens, details.cached_tokens, details.cache_write_tokens) == (9, 4, 2)
    async with client.responses.stream(**asked) as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.reasoning_summary_text.delta") == 3
    assert final.output_text == "look here"
    assert [item.type for item in final.output] == [item.type for item in answer.output]
    kinds_of_items = [item.type for item in answer.output]
    assert kinds_of_items == ["reasoning", "reasoning", "message", "function_call"]
    result = {"type": "function_call_output", "call_id": "call_0", "output": "out"}
    again = [user("tool=exec:{}"), *[item.to_dict() for item in answer.output], result]
    more = await client.responses.create(**{**asked, "input": again})
    assert more.output_text == "tool said: out"


async def test_responses_that_end_otherwise(client: "AsyncOpenAI") -> None:
    answer = await client.responses.create(model="m", input="say=so far finish=length")
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    stream = await client.responses.create(model="m", input="say=so error-in-stream", stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.message == "scripted failure in the stream"


SEALED = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "sealed"}
CALL = {"type": "function_call", "call_id": "c", "name": "exec", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{"role": "robot", "content": "x"}],
        [{"type": "unheard_of"}],
        [user([{"type": "output_text", "text": "x"}])],
        [user([{"type": "input_image", "image_url": "AAAA"}])],
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        [user("x"), CALL],
        [user("x"), RESULT],
        [user("x"), RESULT, CALL],
        [user("x"), SEALED],
        [user("x"), SEALED, user("y")],
        [user("x"), CALL, SEALED, RESULT],
        [user("x"), {**SEALED, "encrypted_content": "forged"}, CALL, RESULT],
        [user("x"), {"type": "reasoning", "id": "rs_0", "summary": []}, CALL, RESULT],
    ],
)
async def test_input_of_responses_that_is_refused(client: "AsyncOpenAI", items: list[Any]) -> None:
    from openai import BadRequestError

    include: Any = ["reasoning.encrypted_content"]
    await client.responses.create(model="m", input="think=hm say=x", include=include)  # seals what SEALED has
    with pytest.raises(BadRequestError):
        await client.responses.create(model="m", input=messages(*items))


@pytest.mark.parametrize(
    "fields",
    [
        {"max_output_tokens": 15},
        {"tools": [{"type": "function", "function": {"name": "exec", "parameters": EXEC}}]},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "name": "exec"}},
        {"reasoning": {"effort": "huge"}},
        {"text": {"format": {"type": "json_schema", "json_schema": {}}}},
        {"extra_body": {"stop": ["x"]}},
        {"extra_body": {"messages": []}},
    ],
)
async def test_fields_of_responses_that_are_refused(client: "AsyncOpenAI", fields: dict[str, Any]) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError):
        await client.responses.create(model="m", input="hi", **fields)


async def test_models(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.get(server.url + "/models") as response:
        assert [model["id"] for model in (await response.json())["data"]] == ["mock-1", "mock-2"]


async def test_runs_as_a_program(http: aiohttp.ClientSession) -> None:
    program = [sys.executable, "-m", "tests.support.model_server", "--port", "0", "--port", "0"]
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(*program, cwd=root, stdout=asyncio.subprocess.PIPE)
    try:
        assert child.stdout is not None
        async with asyncio.timeout(40):
            lines = [(await child.stdout.readline()).decode() for _ in range(2)]
        assert all(line.startswith("listening on http://127.0.0.1:") and line.endswith("/v1\n") for line in lines)
        for line in lines:
            url = line.split()[-1] + "/chat/completions"
            async with http.post(url, json=ask("tokens=2", stream=True)) as response:
                assert b'"content":" w1"' in await response.read()
    finally:
        child.terminate()
        await child.wait()
    assert child.returncode == 0
