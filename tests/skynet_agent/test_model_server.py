"""The scripted model server does what its docstring says."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.skynet_agent.lab import until
from tests.support.model_server import ModelServer, parse_script, script_of, words


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def ask(message: str, **extra: object) -> dict[str, object]:
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


def test_retry_after_may_be_a_date() -> None:
    script = parse_script("fail=429:Sat, 21 Nov 2026 01:20:07 GMT")
    assert script.failure is not None
    assert script.failure.retry_after == "Sat, 21 Nov 2026 01:20:07 GMT"


@pytest.mark.parametrize(
    "content",
    [
        "[Sat 2026-11-21 01:20 UTC] tokens=2",
        "System: [2026-11-21 01:19:00 UTC] Node\n\n[Sat 2026-11-21 01:20 GMT+1] tokens=2\n[message_id: 1-2]",
        [{"type": "text", "text": "tokens=2"}],
    ],
)
def test_prefixes_are_ignored(content: object) -> None:
    text, script = script_of([{"role": "user", "content": content}, {"role": "assistant", "content": "tokens=9"}])
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
    body["messages"] += [{"role": "assistant", "content": None}, {"role": "tool", "content": "a b"}]
    async with http.post(server.url + "/chat/completions", json=body) as response:
        assert (await response.json())["choices"][0]["message"]["content"] == "tool said: a b"


async def test_a_whole_answer(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.post(server.url + "/chat/completions", json=ask("think=hm say=four")) as response:
        answer = await response.json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "four", "reasoning_content": "hm"}
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


async def test_models(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.get(server.url + "/models") as response:
        assert [model["id"] for model in (await response.json())["data"]] == ["mock-1", "mock-2"]


async def test_runs_as_a_program(http: aiohttp.ClientSession) -> None:
    program = [sys.executable, "-m", "tests.support.model_server", "--port", "0", "--port", "0"]
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(*program, cwd=root, stdout=asyncio.subprocess.PIPE)
    try:
        assert child.stdout is not None
        async with asyncio.timeout(20):
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
