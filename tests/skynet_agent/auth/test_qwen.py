"""Qwen: the access token that is refreshed before its end and when it was refused, and what is stored of it."""

import asyncio
import logging
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skynet_agent.auth.device_flow import Granted, log_in
from skynet_agent.auth.qwen import QWEN, device_service, models_url, tokens_of
from skynet_agent.auth.tokens import StoredTokens, TokenStore
from skynet_agent.errors import AuthFailed, ConnectFailed, Overloaded, ProviderError, RateLimited
from skynet_agent.events import Finished
from skynet_agent.http_client import HttpClient
from skynet_agent.messages import text_of
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from skynet_memory.secrets import Secret
from tests.skynet_agent.lab import ask
from tests.support.device_server import DeviceServer, in_a_thread
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.model_server import ModelServer

ROW = ProviderRow(name="qwen", base_url="https://portal.qwen.ai/v1", auth="qwen", models=(ModelInfo(id="coder-model"),))

MakeRouter = Callable[..., Router]


class Clock:
    def __init__(self) -> None:
        self.now_s = datetime.now(UTC).timestamp()

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.now_s, UTC)


@pytest.fixture
async def qwen(server: ModelServer) -> AsyncIterator[DeviceServer]:
    async with DeviceServer(server) as qwen:
        yield qwen


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(qwen: DeviceServer, clock: Clock, tmp_path: Path) -> TokenStore:
    """The tokens of a login that was made just now."""
    store, http = TokenStore(tmp_path / "credentials"), HttpClient()
    steps = [step async for step in log_in(device_service(qwen.origin), http, ROW)]
    assert isinstance(steps[-1], Granted)
    store.write("qwen", tokens_of(steps[-1], qwen.origin, clock()))
    await http.aclose()
    return store


@pytest.fixture
def router(make_router: MakeRouter, store: TokenStore, clock: Clock) -> Router:
    return make_router(ROW, tokens=store, clock=clock)


async def said(router: Router, request: ModelRequest) -> str:
    last = [event async for event in router.stream(request)][-1]
    assert isinstance(last, Finished)
    return text_of(last.message)


def stored(store: TokenStore) -> tuple[str, str]:
    tokens = store.read("qwen")
    assert tokens is not None
    return tokens.access.reveal(), tokens.refresh.reveal()


async def test_a_chat_with_the_token_of_the_login(router: Router, server: ModelServer, qwen: DeviceServer) -> None:
    """SK-063."""
    assert await said(router, ask("say=hello there")) == "hello there"
    chat = server.requests[0]
    assert chat.path == "/v1/chat/completions"  # the resource_url of the login
    assert chat.headers["authorization"] == f"Bearer {qwen.qwen.access[0]}"
    assert qwen.refreshes == 0


async def test_refreshed_before_its_end(router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock) -> None:
    """SK-068."""
    for later_s, refreshes in [(1700, 0), (50, 1), (1700, 1), (50, 2)]:  # they last 1800 s, had anew at 1740
        clock.now_s += later_s
        assert await said(router, ask("say=hi")) == "hi"
        assert qwen.refreshes == refreshes
        assert stored(store) == (qwen.qwen.access[-1], qwen.qwen.given[-1])


async def test_refreshed_when_it_was_refused(router: Router, server: ModelServer, qwen: DeviceServer) -> None:
    """SK-063."""
    server.dialect(OpenAICompletions).key = "another, so that the token is refused"
    qwen.qwen.delay_s = 0.05
    assert await asyncio.gather(*[said(router, ask("say=again")) for _ in range(20)]) == ["again"] * 20
    assert qwen.refreshes == 1


async def test_one_refresh_for_many_requests(router: Router, qwen: DeviceServer, clock: Clock) -> None:
    clock.now_s += 7200
    qwen.qwen.delay_s = 0.05
    assert await asyncio.gather(*[said(router, ask("say=hi")) for _ in range(20)]) == ["hi"] * 20
    assert qwen.refreshes == 1


async def test_a_refresh_that_gives_no_other_refresh_token(
    router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock
) -> None:
    before = stored(store)
    qwen.qwen.changes = {"refresh_token": None, "resource_url": None, "expires_in": None}
    clock.now_s += 7200
    assert await said(router, ask("say=hi")) == "hi"
    tokens = store.read("qwen")
    assert tokens is not None
    assert (tokens.access.reveal(), tokens.refresh.reveal()) == (qwen.qwen.access[-1], before[1])
    assert tokens.expires_at_ms is None
    assert tokens.base_url.startswith("http://127.0.0.1")
    clock.now_s += 10**6
    assert await said(router, ask("say=hi")) == "hi"
    assert qwen.refreshes == 1


async def test_a_login_that_has_ended(router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock) -> None:
    qwen.qwen.given.append("the refresh token of somebody else")
    clock.now_s += 7200
    before = stored(store)
    with pytest.raises(AuthFailed, match=r"^qwen: the login has ended; run: skynet providers login qwen$"):
        await said(router, ask("say=hi"))
    assert stored(store) == before


async def test_a_login_without_a_refresh_token(router: Router, store: TokenStore, server: ModelServer) -> None:
    store.write("qwen", StoredTokens(access=Secret("refused"), issuer=server.origin, base_url=server.url))
    server.dialect(OpenAICompletions).key = "another"
    with pytest.raises(AuthFailed, match="the login has ended"):
        await said(router, ask("say=hi"))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, RateLimited), (500, Overloaded), (403, AuthFailed), (0, ConnectFailed), (401, AuthFailed)],
)
async def test_refreshes_that_fail(
    router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock, status: int, kind: type[ProviderError]
) -> None:
    clock.now_s += 7200
    before = stored(store)
    qwen.qwen.faults.extend([status] * 9)
    with pytest.raises(ProviderError) as caught:
        await said(router, ask("say=hi"))
    assert caught.type is kind
    assert stored(store) == before
    qwen.qwen.faults.clear()
    assert await said(router, ask("say=hi")) == "hi"


async def test_a_token_that_still_is_good_bridges_an_outage(router: Router, qwen: DeviceServer, clock: Clock) -> None:
    clock.now_s += 1750
    qwen.qwen.faults.append(503)
    assert await said(router, ask("say=hi")) == "hi"
    assert qwen.refreshes == 1


@pytest.mark.parametrize("changes", [{"access_token": None}, {"access_token": "a b"}, {"access_token": ["x"]}])
async def test_a_refresh_that_makes_no_sense(
    router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock, changes: dict[str, Any]
) -> None:
    clock.now_s += 7200
    before = stored(store)
    qwen.qwen.changes = changes
    with pytest.raises(Overloaded, match="makes no sense"):
        await said(router, ask("say=hi"))
    assert stored(store) == before


async def test_a_cancelled_request_loses_no_refresh_token(
    router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock
) -> None:
    """The old one ends as soon as the service has answered: whoever asked for a new one has to store it."""
    clock.now_s += 7200
    qwen.qwen.delay_s = 0.1
    asked = asyncio.create_task(said(router, ask("say=hi")))
    async with asyncio.timeout(40):
        while not qwen.refreshes:  # noqa: ASYNC110 - a real server announces nothing
            await asyncio.sleep(0.001)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert stored(store) == (qwen.qwen.access[-1], qwen.qwen.given[-1])
    assert len(qwen.qwen.given) == 2
    assert await said(router, ask("say=hi")) == "hi"
    assert qwen.refreshes == 1


@contextmanager
def no_room() -> Iterator[None]:
    """This process can write no file, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_tokens_that_cannot_be_stored_are_used_all_the_same(
    router: Router, store: TokenStore, qwen: DeviceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    before = stored(store)
    with no_room():
        for later_s, refreshes in [(1750, 1), (60, 1), (1750, 2)]:
            clock.now_s += later_s
            assert await said(router, ask("say=hi")) == "hi"
            assert qwen.refreshes == refreshes
    assert stored(store) == before
    assert "the new tokens cannot be stored" in caplog.text
    clock.now_s += 7200
    assert await said(router, ask("say=hi")) == "hi"
    assert stored(store) == (qwen.qwen.access[-1], qwen.qwen.given[-1]) != before


async def test_a_login_elsewhere_is_used_at_once(
    router: Router, store: TokenStore, server: ModelServer, qwen: DeviceServer
) -> None:
    await said(router, ask("say=hi"))
    newer = StoredTokens(access=Secret("newer-access"), issuer=qwen.origin, base_url=server.url)
    TokenStore(store.directory).write("qwen", newer)
    server.dialect(OpenAICompletions).key = "newer-access"
    assert await said(router, ask("say=hi")) == "hi"
    assert qwen.refreshes == 0


async def test_nobody_has_logged_in(make_router: MakeRouter, tmp_path: Path) -> None:
    for tokens in (None, TokenStore(tmp_path / "empty")):
        with pytest.raises(AuthFailed, match=r"qwen: nobody has logged in; run: skynet providers login qwen$"):
            await said(make_router(ROW, tokens=tokens), ask("say=hi"))


async def test_a_damaged_login(router: Router, store: TokenStore) -> None:
    store.path("qwen").write_text("{")
    with pytest.raises(AuthFailed, match=r"qwen\.json holds no tokens; log in again with"):
        await said(router, ask("say=hi"))


async def test_without_an_address_of_its_own_the_rows_is_used(
    make_router: MakeRouter, store: TokenStore, server: ModelServer, qwen: DeviceServer
) -> None:
    store.write("qwen", replace(store.read("qwen") or StoredTokens(access=Secret("x")), base_url="http://example.org"))
    router = make_router(replace(ROW, base_url=f"{server.origin}/here"), tokens=store)
    await said(router, ask("say=hi"))
    assert server.requests[0].path == "/here/chat/completions"


@pytest.mark.parametrize(
    ("resource_url", "url"),
    [
        ("portal.qwen.ai", "https://portal.qwen.ai/v1"),
        ("https://portal.qwen.ai/", "https://portal.qwen.ai/v1"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "https://dashscope.aliyuncs.com/compatible-mode/v1"),
        ("PORTAL.qwen.ai", "https://PORTAL.qwen.ai/v1"),
        ("http://portal.qwen.ai", ""),
        ("user@portal.qwen.ai", ""),
        ("example.org", ""),
        ("evilqwen.ai", ""),
        ("qwen.ai.example.org", ""),
        ("example.org/.qwen.ai", ""),
        ("https://example.org#.qwen.ai", ""),
        ("https://example.org\\.qwen.ai", ""),
        ("http://127.0.0.1:8080", ""),
        ("http://localhost:8080", ""),
        ("https://169.254.169.254", ""),
        ("https://[::1]", ""),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_where_the_models_are(resource_url: object, url: str) -> None:
    assert models_url(resource_url, QWEN) == url


def test_a_service_of_this_machine_may_name_this_machine() -> None:
    assert models_url("http://127.0.0.1:8080", "http://127.0.0.1:9000") == "http://127.0.0.1:8080/v1"


async def test_no_secret_in_any_failure_or_log(
    router: Router, server: ModelServer, qwen: DeviceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await said(router, ask("say=hi"))
    words = []
    with pytest.raises(ProviderError) as caught:
        await said(router, ask(f"fail=400 say=no {qwen.qwen.access[0]} or {qwen.qwen.given[0]}"))
    assert "no *** or ***" in str(caught.value)
    words.append(str(caught.value))
    clock.now_s += 7200
    for status in (403, 500):
        qwen.qwen.faults.append(status)
        with pytest.raises(ProviderError) as caught:
            await said(router, ask("say=hi"))
        words.append(str(caught.value))
    for text in (*words, caplog.text, repr(router), str(vars(router))):
        assert "secret" not in text


REFRESH = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from skynet_agent.auth.qwen import QwenAuth
from skynet_agent.auth.tokens import TokenStore
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow

async def main():
    http = HttpClient()
    auth = QwenAuth(ProviderRow(name="qwen"), http, lambda: datetime.now(UTC), TokenStore(Path(sys.argv[1])))
    await auth.sign("http://x", "", HttpRequest(url=""))
    await http.aclose()

asyncio.run(main())
"""


def test_processes_that_refresh_at_once_share_one_refresh(tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "credentials")
    with in_a_thread(DeviceServer()) as server:
        server.qwen.given.append("refresh-of-the-login")
        server.qwen.delay_s = 0.2
        old = StoredTokens(
            access=Secret("old"), refresh=Secret("refresh-of-the-login"), expires_at_ms=1, issuer=server.origin
        )
        store.write("qwen", old)
        running = [subprocess.Popen([sys.executable, "-c", REFRESH, str(store.directory)]) for _ in range(3)]
        assert [process.wait(60) for process in running] == [0, 0, 0]
        assert server.refreshes == 1
        assert stored(store) == (server.qwen.access[-1], server.qwen.given[-1])
