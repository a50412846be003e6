"""The way to a provider: who asks is proved, a refused proof renewed once, and no failure shows it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from skynet_agent.apis import openai_completions
from skynet_agent.auth.keys import KeyAuth
from skynet_agent.endpoint import MOST_BYTES, Auth, Endpoint, ask, read_parts
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
)
from skynet_agent.events import Ended, TextDelta
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from skynet_memory.secrets import Secret
from tests.skynet_agent.lab import LAB
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.model_server import ModelServer

NOW = datetime(2026, 11, 21, 1, 20, tzinfo=UTC)
MODEL = LAB.models[0]

Open = Callable[..., Endpoint]


@dataclass
class Tokens:
    """Signs with the first of its tokens; renewing takes the next one."""

    tokens: list[str]
    renewals: int = 0
    signed: list[tuple[str, str]] = field(default_factory=list)

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        self.signed.append((base_url, path))
        if not self.tokens:
            raise AuthFailed("lab: log in first", provider="lab")
        return replace(request, headers={**request.headers, "Authorization": f"Bearer {self.tokens[0]}"})

    async def renew(self) -> bool:
        self.renewals += 1
        self.tokens = self.tokens[1:]
        return bool(self.tokens)

    def secrets(self) -> tuple[bytes, ...]:
        return tuple(token.encode() for token in self.tokens)


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


@pytest.fixture
def open_(server: ModelServer, http: HttpClient) -> Open:
    """An endpoint at the server."""

    def make(auth: Auth | None = None, **fields: object) -> Endpoint:
        row: ProviderRow = replace(LAB, **{"base_url": server.url, **fields})  # type: ignore[arg-type]
        return Endpoint(row, auth or KeyAuth(row), http, lambda: NOW)

    return make


def body_of(text: str) -> bytes:
    return b'{"model":"m","stream":true,"messages":[{"role":"user","content":"%b"}]}' % text.encode()


async def answer(endpoint: Endpoint, text: str) -> list[object]:
    it = ask(endpoint, "/chat/completions", body_of(text), openai_completions.reader(endpoint.source))
    return [part async for part in it]


async def test_a_call(open_: Open, server: ModelServer) -> None:
    parts = await answer(open_(), "say=a b")
    assert parts == [TextDelta("a"), TextDelta(" b"), Ended("stop", None)]
    (seen,) = server.requests
    assert (seen.method, seen.target, seen.raw) == ("POST", "/v1/chat/completions", body_of("say=a b"))
    assert seen.headers["authorization"] == "Bearer key-of-lab"
    assert seen.headers["content-type"] == "application/json"


async def test_headers_of_the_row_come_last(open_: Open, server: ModelServer) -> None:
    endpoint = open_(headers={"Content-Type": "application/x", "X-Title": "home"})
    async with endpoint.send("/chat/completions", body_of("hi"), headers={"X-Title": "api", "X-Api": "1"}):
        pass
    headers = server.requests[0].headers
    assert (headers["content-type"], headers["x-title"], headers["x-api"]) == ("application/x", "home", "1")


async def test_a_base_url_may_end_in_a_slash(open_: Open, server: ModelServer) -> None:
    await answer(open_(base_url=server.url + "/"), "hi")
    assert server.requests[0].path == "/v1/chat/completions"


async def test_a_request_without_body_says_nothing_of_one(open_: Open, server: ModelServer) -> None:
    assert b"mock-1" in await open_().fetch("/models")
    assert server.requests[0].method == "GET"
    assert "content-type" not in server.requests[0].headers


async def test_a_refused_token_is_renewed_once(open_: Open, server: ModelServer) -> None:
    server.dialect(OpenAICompletions).key = "new"
    auth = Tokens(["old", "new"])
    assert len(await answer(open_(auth), "hello")) == 3
    assert auth.renewals == 1
    assert [seen.headers["authorization"] for seen in server.requests] == ["Bearer old", "Bearer new"]
    assert auth.signed == [(server.url, "/chat/completions")] * 2
    assert server.requests[0].raw == server.requests[1].raw


@pytest.mark.parametrize(("tokens", "asked"), [(["old"], 1), (["old", "older", "new"], 2)])
async def test_one_that_stays_refused_is_not(open_: Open, server: ModelServer, tokens: list[str], asked: int) -> None:
    server.dialect(OpenAICompletions).key = "new"
    auth = Tokens(tokens)
    with pytest.raises(AuthFailed):
        await answer(open_(auth), "hello")
    assert (auth.renewals, server.served) == (1, asked)


@pytest.mark.parametrize("script", ["fail=403", "fail=400", "fail=500", "fail=429"])
async def test_only_a_401_asks_for_other_credentials(open_: Open, script: str) -> None:
    auth = Tokens(["old", "new"])
    with pytest.raises(ProviderError):
        await answer(open_(auth), script)
    assert auth.renewals == 0


async def test_without_credentials_nothing_is_sent(open_: Open, server: ModelServer) -> None:
    with pytest.raises(AuthFailed, match="lab: log in first"):
        await answer(open_(Tokens([])), "hello")
    assert server.served == 0


@pytest.mark.parametrize(
    ("script", "kind", "seconds"),
    [
        ("fail=429:Sat, 21 Nov 2026 01:20:30 GMT", RateLimited, 30.0),
        ("fail=503", Overloaded, None),
        ("fail=404", BadRequest, None),
        ("fail=504", ProviderTimeout, None),
    ],
)
async def test_failures_are_of_their_kind(
    open_: Open, script: str, kind: type[ProviderError], seconds: float | None
) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer(open_(), script)
    assert type(caught.value) is kind
    assert getattr(caught.value, "retry_after_s", None) == seconds


@pytest.mark.parametrize("script", ["fail=401 say=no such key: key-of-lab", "fail=500 say=key-of-lab is odd"])
async def test_no_failure_shows_the_key(open_: Open, script: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer(open_(), script)
    assert "***" in str(caught.value)
    assert "key-of-lab" not in str(caught.value)


@pytest.mark.parametrize("script", ["fail=500 say=Basic cGFzc3dvcmQ= is odd", "fail=400 say=what is cGFzc3dvcmQ="])
async def test_no_failure_shows_a_header_of_the_row(open_: Open, script: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer(open_(headers={"X-Proxy-Authorization": "Basic cGFzc3dvcmQ="}), script)
    assert "***" in str(caught.value)
    assert "cGFzc3dvcmQ" not in str(caught.value)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_no_failure_shows_a_key_that_json_writes_another_way(http: HttpClient, is_stream: bool) -> None:
    r"""PHP writes ``/`` as ``\/``."""
    body = b'{"error":{"message":"no such key: a\\/key+of\\u002flab"}}'

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if is_stream:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: " + body + b"\n\n")
        else:
            writer.write(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        row = replace(LAB, base_url=f"http://127.0.0.1:{port}", api_key=Secret("a/key+of/lab"))
        with pytest.raises(ProviderError) as caught:
            await answer(Endpoint(row, KeyAuth(row), http, lambda: NOW), "hi")
    assert "no such key: ***" in str(caught.value)


async def test_no_failure_in_a_stream_shows_a_token_that_was_renewed_for_it(open_: Open, server: ModelServer) -> None:
    server.dialect(OpenAICompletions).key = "new-token"
    endpoint = open_(Tokens(["old-token", "new-token"]))
    reader = openai_completions.reader(endpoint.source)
    async with endpoint.send("/chat/completions", body_of("hi")):
        pass
    assert reader.feed(b'data: {"error":"new-token is odd"}\n\n') == []
    assert str(reader.failure) == "lab: *** is odd (HTTP 500)"


async def test_the_whole_of_an_answer_is_bounded(open_: Open) -> None:
    short = b'{"messages":[{"role":"user","content":"big=1000000"}]}'
    assert len(await open_().fetch("/chat/completions", short, method="POST")) > 1_000_000
    long = b'{"messages":[{"role":"user","content":"big=%d"}]}' % MOST_BYTES
    with pytest.raises(StreamCut, match=f"longer than {MOST_BYTES} bytes"):
        await open_().fetch("/chat/completions", long, method="POST")


async def test_leaving_closes_the_stream(open_: Open, server: ModelServer) -> None:
    endpoint = open_()
    async with endpoint.send("/chat/completions", body_of("tokens=2 hang")) as reply:
        parts = read_parts(reply, openai_completions.reader(endpoint.source))
        assert await anext(parts) == TextDelta("w0")
        await parts.aclose()
    assert server.served == 1


async def test_an_answer_that_is_complete_may_lack_its_end(open_: Open) -> None:
    """Only usage is missing when the connection breaks after the model has said that it is done."""
    endpoint, size = open_(), 400
    async with endpoint.send("/chat/completions", body_of(f"say=a split={size} cut=1")) as reply:
        parts = [part async for part in read_parts(reply, openai_completions.reader(endpoint.source))]
    assert parts == [TextDelta("a"), Ended("stop", None)]
