"""What every wire API has to get right, against a scripted server over real HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
)
from skynet_agent.events import Finished, ModelEvent, Started, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    text_of,
)
from skynet_agent.providers import ProviderRow
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from tests.skynet_agent.lab import ask, row_of, until
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.parametrize("api", ["openai-completions"])

MakeRouter = Callable[..., Router]
TOOLS = [{"type": "function", "function": {"name": "exec", "parameters": {"type": "object"}}}]


async def collect(router: Router, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in router.stream(request)]


async def answer(router: Router, request: ModelRequest) -> AssistantMessage:
    events = await collect(router, request)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    return events[-1].message


@pytest.fixture
def row(api: str, server: ModelServer) -> ProviderRow:
    return row_of(server, api=api)


@pytest.fixture
def router(row: ProviderRow, make_router: MakeRouter) -> Router:
    return make_router(row)


async def test_text(router: Router, server: ModelServer) -> None:
    events = await collect(router, ask("tokens=100"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["w0"] + [
        f" w{n}" for n in range(1, 100)
    ]
    message = events[-1].message if isinstance(events[-1], Finished) else None
    assert message is not None
    assert message.usage == Usage(100, 100, 0, 0, 200, cost_microusd=1100)
    assert server.requests[0].headers["authorization"] == "Bearer key-of-lab"
    assert server.requests[0].headers["user-agent"] == "skynet-gateway"


async def test_an_empty_answer(router: Router) -> None:
    message = await answer(router, ask("tokens=0 finish=stop tool=x:{}"))
    assert [type(block) for block in message.content] == [ToolCallBlock]


async def test_no_usage(router: Router) -> None:
    assert (await answer(router, ask("tokens=1 usage=none"))).usage is None


async def test_thinking(router: Router) -> None:
    events = await collect(router, ask("think=let me see say=four"))
    assert [type(event) for event in events] == [
        Started,
        ThinkingDelta,
        ThinkingDelta,
        ThinkingDelta,
        TextDelta,
        Finished,
    ]


async def test_length(router: Router) -> None:
    assert (await answer(router, ask("tokens=2 finish=length"))).stop_reason == "length"


async def test_a_tool_round(router: Router, server: ModelServer) -> None:
    script = 'tool=exec:{"command":"ls -l"} tool=read:{"path":"é"}'
    events = await collect(router, ask(script, tools=TOOLS))
    assert {event.index for event in events if isinstance(event, ToolCallDelta)} == {0, 1}
    assert isinstance(events[-1], Finished)
    message = events[-1].message
    assert message.stop_reason == "toolUse"
    assert message.content == [
        ToolCallBlock("call_0", "exec", {"command": "ls -l"}),
        ToolCallBlock("call_1", "read", {"path": "é"}),
    ]
    results = [ToolResultMessage(f"call_{n}", "exec", [TextBlock(f"out {n}")], False, 1) for n in (0, 1)]
    request = ModelRequest(messages=[UserMessage([TextBlock(script)], 1), message, *results])
    assert text_of(await answer(router, request)) == "tool said: out 1"


@pytest.mark.parametrize(
    "said",
    [
        "héllo wörld",
        "日本語 テスト",
        "👩‍👩‍👧‍👦 🇦🇶",
        "e\u0301 \u202eabc\u202c",
        "a\u2028b\u2029c",
        "nul\u0001 \u007f",
        "\ufeffbom",
        "😀" * 50,
    ],
)
@pytest.mark.parametrize("split", [0, 1, 7])
async def test_odd_unicode(router: Router, said: str, split: int) -> None:
    script = f"say={said}" + (f" split={split}" if split else "")
    assert text_of(await answer(router, ask(script))) == said


async def test_a_big_token(router: Router) -> None:
    assert len(text_of(await answer(router, ask("big=3000000")))) == 3_000_000


@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        ("fail=context", ContextOverflow, 400),
        ("fail=400", BadRequest, 400),
        ("fail=401", AuthFailed, 401),
        ("fail=403", AuthFailed, 403),
        ("fail=404", BadRequest, 404),
        ("fail=408", ProviderTimeout, 408),
        ("fail=429", RateLimited, 429),
        ("fail=500", Overloaded, 500),
        ("fail=503", Overloaded, 503),
        ("fail=529", Overloaded, 529),
    ],
)
async def test_failures(router: Router, script: str, kind: type[ProviderError], status: int) -> None:
    with pytest.raises(ProviderError) as caught:
        await collect(router, ask(script))
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.provider) == (status, "lab")
    assert text_of(await answer(router, ask("say=fine"))) == "fine"


@pytest.mark.parametrize(("script", "seconds"), [("fail=429:7", 7.0), ("fail=429:0.5", 0.5), ("fail=429", None)])
async def test_rate_limits_say_when(router: Router, script: str, seconds: float | None) -> None:
    with pytest.raises(RateLimited) as caught:
        await collect(router, ask(script))
    assert caught.value.retry_after_s == seconds


async def test_a_failure_that_passes(router: Router) -> None:
    with pytest.raises(Overloaded):
        await collect(router, ask("fail-once=503 say=fine"))
    assert text_of(await answer(router, ask("fail-once=503 say=fine"))) == "fine"


@pytest.mark.parametrize("script", ["tokens=9 cut=4", "tokens=4 error-in-stream", "tokens=9 cut=4 delay=5"])
async def test_a_dropped_stream(router: Router, script: str) -> None:
    draft = router.draft()
    with pytest.raises(StreamCut):
        async for _ in router.stream(ask(script), draft=draft):
            pass
    assert text_of(draft.message("error")) == "w0 w1 w2 w3"


async def test_a_stream_dropped_before_the_first_token(router: Router) -> None:
    with pytest.raises(StreamCut):
        await collect(router, ask("cut=0"))


@pytest.mark.parametrize("script", ["hang", "tokens=2 hang", "tokens=1000 delay=20", "first=60000"])
async def test_cancelling_reaches_the_provider_at_once(router: Router, server: ModelServer, script: str) -> None:
    task = asyncio.create_task(collect(router, ask(script)))
    await until(lambda: server.served == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.disconnects == 1)


async def test_closing_the_events_reaches_the_provider_at_once(router: Router, server: ModelServer) -> None:
    async with aclosing(router.stream(ask("tokens=2 hang"))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    await until(lambda: server.disconnects == 1)


async def test_slow_is_not_dead(row: ProviderRow, server: ModelServer, make_router: MakeRouter) -> None:
    """The limit is for the silence between two reads, not for the whole answer."""
    router = make_router(row_of(server, api=row.api, read_timeout_s=0.3))
    assert text_of(await answer(router, ask("tokens=8 first=60 delay=60"))).endswith("w7")


@pytest.mark.parametrize(("script", "kind"), [("hang", ProviderTimeout), ("tokens=2 hang", StreamCut)])
async def test_silence_is(
    row: ProviderRow, server: ModelServer, make_router: MakeRouter, script: str, kind: type[ProviderError]
) -> None:
    router = make_router(row_of(server, api=row.api, read_timeout_s=0.1))
    with pytest.raises(kind, match=r"lab: silent for 0\.1 s"):
        await collect(router, ask(script))
    await until(lambda: server.disconnects == 1)


async def test_connect_refused(row: ProviderRow, make_router: MakeRouter, api: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    router = make_router(ProviderRow(name="lab", api=api, base_url=f"http://127.0.0.1:{port}/v1", models=row.models))
    with pytest.raises(ConnectFailed, match=rf"^lab: no connection to http://127\.0\.0\.1:{port}: Connection refused$"):
        await collect(router, ask("hi"))


async def test_connect_timeout(row: ProviderRow, make_router: MakeRouter, api: str) -> None:
    """A server whose backlog is full does not answer the handshake."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            url = f"http://127.0.0.1:{port}/v1"
            router = make_router(
                ProviderRow(
                    name="lab", api=api, base_url=url, models=row.models, connect_timeout_s=0.1, read_timeout_s=5
                )
            )
            with pytest.raises(ProviderTimeout, match=r"no connection to .* within 0\.1 s"):
                await collect(router, ask("hi"))
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize("url", ["http://no-such-host.invalid/v1", "not a url", "ftp://127.0.0.1/v1", ""])
async def test_no_such_place(row: ProviderRow, make_router: MakeRouter, api: str, url: str) -> None:
    router = make_router(ProviderRow(name="lab", api=api, base_url=url, models=row.models))
    with pytest.raises(ConnectFailed):
        await collect(router, ask("hi"))


async def test_credentials_in_an_address_are_not_shown(row: ProviderRow, make_router: MakeRouter, api: str) -> None:
    url = "http://someone:hunter2@127.0.0.1:9/v1?key=hunter2"
    with pytest.raises(ConnectFailed, match=r"no connection to http://127\.0\.0\.1:9:") as caught:
        await collect(make_router(ProviderRow(name="lab", api=api, base_url=url, models=row.models)), ask("hi"))
    assert "hunter2" not in str(caught.value)


@asynccontextmanager
async def raw_server(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers the n-th request with the n-th bytes; empty closes the connection instead, as does the last one's end."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                requests.append(head)
                reply = answers[len(requests) - 1] if len(requests) <= len(answers) else b""
                writer.write(reply)
                if not reply or b"connection: close" in reply:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1", requests


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


async def test_answers_that_are_none(row: ProviderRow, make_router: MakeRouter, api: str) -> None:
    body = b'{"choices":[]}'
    cases: list[tuple[bytes, type[ProviderError]]] = [
        (b"SSH-2.0-OpenSSH_9.6\r\n", ConnectFailed),
        (HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, StreamCut),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n", BadRequest),
        (HEAD + b"content-length: 0\r\n\r\n", StreamCut),
        (b"HTTP/1.1 503 No\r\ncontent-length: 100\r\nconnection: close\r\n\r\nhalf", Overloaded),
    ]
    for reply, kind in cases:
        async with raw_server(reply) as (url, requests):
            router = make_router(ProviderRow(name="lab", api=api, base_url=url, models=row.models, read_timeout_s=2))
            with pytest.raises(ProviderError) as caught:
                await collect(router, ask("hi"))
            assert type(caught.value) is kind, reply
            assert len(requests) == 1


async def test_a_connection_that_closes_unanswered_is_tried_once_more(
    row: ProviderRow, make_router: MakeRouter, api: str
) -> None:
    async with raw_server(b"", b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno") as (url, requests):
        router = make_router(ProviderRow(name="lab", api=api, base_url=url, models=row.models))
        with pytest.raises(Overloaded):
            await collect(router, ask("hi"))
        assert len(requests) == 2
    async with raw_server(b"", b"") as (url, requests):
        router = make_router(ProviderRow(name="lab", api=api, base_url=url, models=row.models))
        with pytest.raises(ConnectFailed, match="closed the connection without an answer"):
            await collect(router, ask("hi"))
        assert len(requests) == 2


async def test_connections_are_kept(router: Router, server: ModelServer) -> None:
    for script in ("tokens=20", "tokens=3 split=7", "fail=429", "tokens=1 delay=5", "hello"):
        with suppress(RateLimited):
            await collect(router, ask(script))
    assert (server.served, server.connected) == (5, 1)


async def test_many_at_once(router: Router, server: ModelServer) -> None:
    messages = await asyncio.gather(*[answer(router, ask(f"tokens={n} delay=1")) for n in range(1, 31)])
    assert [text_of(message).split()[-1] for message in messages] == [f"w{n}" for n in range(30)]
    assert server.disconnects == 0
