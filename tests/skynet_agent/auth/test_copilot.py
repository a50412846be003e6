"""GitHub Copilot: the exchange of the login for short-lived tokens, and what requests say."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.auth.copilot import DOMAINS, GITHUB, CopilotAuth, CopilotPlaces, _facts, device_service
from skynet_agent.auth.oauth import own_url
from skynet_agent.auth.tokens import StoredTokens, TokenStore
from skynet_agent.errors import AuthFailed, BadRequest, ConnectFailed, Overloaded, ProviderError, RateLimited
from skynet_agent.events import Finished
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.messages import ImageBlock, Message, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage, text_of
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest, ToolDefinition
from skynet_agent.router import Router
from skynet_memory.secrets import Secret
from tests.skynet_agent.lab import ask
from tests.support.device_server import DeviceServer
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.model_server import ModelServer

GITHUB_TOKEN = "gho-of-the-login-secret"
ROW = ProviderRow(
    name="copilot",
    base_url="https://api.githubcopilot.com",
    auth="copilot",
    models=(ModelInfo(id="gpt-x", input=("text", "image")),),
)

MakeRouter = Callable[..., Router]


class Clock:
    def __init__(self) -> None:
        self.now_s = datetime.now(UTC).timestamp()

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.now_s, UTC)


@pytest.fixture
async def github(server: ModelServer) -> AsyncIterator[DeviceServer]:
    async with DeviceServer(server) as github:
        github.github.given.append(GITHUB_TOKEN)
        yield github


@pytest.fixture
def store(github: DeviceServer, tmp_path: Path) -> TokenStore:
    store = TokenStore(tmp_path / "credentials")
    store.write("copilot", StoredTokens(access=Secret(GITHUB_TOKEN), issuer=github.origin))
    return store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def router(make_router: MakeRouter, store: TokenStore, clock: Clock) -> Router:
    return make_router(ROW, tokens=store, clock=clock)


@pytest.fixture(autouse=True)
def no_token_of_whoever_runs_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COPILOT_GITHUB_TOKEN", "GITHUB_COPILOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)


async def said(router: Router, request: ModelRequest) -> str:
    last = [event async for event in router.stream(request)][-1]
    assert isinstance(last, Finished)
    return text_of(last.message)


# The exchange


async def test_a_chat(router: Router, server: ModelServer, github: DeviceServer) -> None:
    """SK-062."""
    assert await said(router, ask("say=hello there")) == "hello there"
    exchange = github.requests[0]
    assert exchange.headers["authorization"] == f"token {GITHUB_TOKEN}"
    chat = server.requests[0]
    assert chat.path == "/chat/completions"
    shown = ("authorization", "editor-version", "editor-plugin-version", "copilot-integration-id", "x-initiator")
    assert {name: chat.headers[name] for name in shown} == {
        "authorization": f"Bearer {github.github.access[0]}",
        "editor-version": "skynet/1",
        "editor-plugin-version": "skynet/1",
        "copilot-integration-id": "vscode-chat",
        "x-initiator": "user",
    }
    assert "copilot-vision-request" not in chat.headers
    assert chat.headers["user-agent"] == "skynet-gateway"


async def test_one_exchange_for_many_requests(router: Router, github: DeviceServer, clock: Clock) -> None:
    """SK-069."""
    github.github.delay_s = 0.05
    for _ in range(2):
        assert await asyncio.gather(*[said(router, ask("say=hi")) for _ in range(20)]) == ["hi"] * 20
    assert github.exchanges == 1


async def test_a_new_exchange_before_the_token_ends(router: Router, github: DeviceServer, clock: Clock) -> None:
    """SK-062, SK-069."""
    for later_s, exchanges in [(0, 1), (1400, 1), (200, 2), (1400, 2), (200, 3)]:  # they last 1800 s, had anew at 1500
        clock.now_s += later_s
        assert await said(router, ask("say=hi")) == "hi"
        assert github.exchanges == exchanges


async def test_an_exchange_that_does_not_say_when(
    make_router: MakeRouter, store: TokenStore, github: DeviceServer
) -> None:
    clock = Clock()
    github.github.changes = {"refresh_in": None}
    router = make_router(ROW, tokens=store, clock=clock)
    await said(router, ask("say=hi"))
    clock.now_s += 1800 - 70
    await said(router, ask("say=hi"))
    assert github.exchanges == 1
    clock.now_s += 20
    await said(router, ask("say=hi"))
    assert github.exchanges == 2


async def test_a_clock_that_is_wrong(make_router: MakeRouter, store: TokenStore, github: DeviceServer) -> None:
    clock = Clock()
    clock.now_s += 86400
    router = make_router(ROW, tokens=store, clock=clock)
    for _ in range(3):
        await said(router, ask("say=hi"))
    assert github.exchanges == 1


async def test_refused_requests_share_one_exchange(router: Router, server: ModelServer, github: DeviceServer) -> None:
    """SK-069."""
    await said(router, ask("say=hi"))
    server.dialect(OpenAICompletions).key = "another, so that the token is refused"
    github.github.delay_s = 0.05
    assert await asyncio.gather(*[said(router, ask("say=again")) for _ in range(20)]) == ["again"] * 20
    assert github.exchanges == 2


async def test_a_token_that_is_refused_again_and_again(
    router: Router, server: ModelServer, github: DeviceServer
) -> None:
    """The exchange gives the same token, or one that is refused too: nobody asks for ever."""
    github.models = None
    github.github.changes = {"endpoints": {"api": server.origin}}
    server.dialect(OpenAICompletions).key = "a token that is never given"
    with pytest.raises(AuthFailed, match="Incorrect API key"):
        await said(router, ask("say=hi"))
    assert github.exchanges == 2
    github.github.changes["token"] = "always-the-same-secret"
    with pytest.raises(AuthFailed, match="Incorrect API key"):
        await said(router, ask("say=hi"))
    assert github.exchanges == 3


async def test_a_failure_is_shared_too(router: Router, github: DeviceServer) -> None:
    github.github.faults.extend([503] * 3)
    failures = await asyncio.gather(*[said(router, ask("say=hi")) for _ in range(10)], return_exceptions=True)
    assert {type(failure) for failure in failures} == {Overloaded}
    assert github.exchanges < 3
    github.github.faults.clear()
    assert await said(router, ask("say=hi")) == "hi"


async def test_whoever_is_cancelled_while_exchanging_holds_nobody_up(router: Router, github: DeviceServer) -> None:
    github.github.delay_s = 0.05
    first = asyncio.create_task(said(router, ask("say=hi")))
    async with asyncio.timeout(40):
        while not github.exchanges:  # noqa: ASYNC110 - a real server announces nothing
            await asyncio.sleep(0.001)
    others = [asyncio.create_task(said(router, ask("say=hi"))) for _ in range(3)]
    first.cancel()
    assert await asyncio.gather(*others) == ["hi"] * 3
    assert github.exchanges == 2


async def test_a_token_that_still_is_good_bridges_an_outage(router: Router, github: DeviceServer, clock: Clock) -> None:
    await said(router, ask("say=hi"))
    clock.now_s += 26 * 60
    github.github.faults.extend([503, 0, 0, 0, 0])
    assert await said(router, ask("say=hi")) == "hi"
    assert await said(router, ask("say=hi")) == "hi"  # not asked again for a minute
    assert github.exchanges == 2
    clock.now_s += 5 * 60
    with pytest.raises(ConnectFailed):
        await said(router, ask("say=hi"))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, AuthFailed, "copilot: GitHub no longer accepts the login; run: skynet providers login copilot$"),
        (403, AuthFailed, r"copilot: scripted 403 \(HTTP 403\); Copilot has to be enabled for this GitHub account"),
        (404, AuthFailed, "personal access tokens do not do"),
        (429, RateLimited, "scripted 429"),
        (500, Overloaded, "scripted 500"),
        (302, BadRequest, "HTTP 302"),
        (0, ConnectFailed, "closed the connection without an answer"),
    ],
)
async def test_exchanges_that_fail(
    router: Router, github: DeviceServer, status: int, kind: type[ProviderError], words: str
) -> None:
    github.github.faults.extend([status] * 9)
    with pytest.raises(ProviderError, match=words) as caught:
        await said(router, ask("say=hi"))
    assert caught.type is kind


@pytest.mark.parametrize(
    "changes",
    [
        {"token": None},
        {"token": "a b"},
        {"token": 7},
        {"endpoints": {"api": "http://example.org"}},
        {"endpoints": {"api": ["https://example.org"]}},
        {"endpoints": {"api": "https://example.org"}},
        {"endpoints": {"api": "https://githubcopilot.com.example.org"}},
        {"endpoints": {"api": "https://169.254.169.254"}},
    ],
)
async def test_exchanges_that_make_no_sense(router: Router, github: DeviceServer, changes: dict[str, Any]) -> None:
    github.github.changes = changes
    with pytest.raises(Overloaded, match="the exchange of the token makes no sense"):
        await said(router, ask("say=hi"))


async def test_without_an_address_of_its_own_the_rows_is_used(
    make_router: MakeRouter, store: TokenStore, server: ModelServer, github: DeviceServer
) -> None:
    github.github.changes = {"endpoints": None}
    router = make_router(replace(ROW, base_url=f"{server.origin}/here"), tokens=store)
    await said(router, ask("say=hi"))
    assert server.requests[0].path == "/here/chat/completions"


# The login


async def test_nobody_has_logged_in(make_router: MakeRouter, tmp_path: Path, github: DeviceServer) -> None:
    words = "copilot: nobody has logged in; run: skynet providers login copilot$"
    store = TokenStore(tmp_path / "empty")
    router = make_router(ROW, tokens=store)
    for each in (router, make_router(ROW)):
        with pytest.raises(AuthFailed, match=words):
            await said(each, ask("say=hi"))
    store.write("copilot", StoredTokens(access=Secret(GITHUB_TOKEN), issuer=github.origin))
    assert await said(router, ask("say=hi")) == "hi"  # without a restart


async def test_another_login_is_used_at_once(router: Router, store: TokenStore, github: DeviceServer) -> None:
    await said(router, ask("say=hi"))
    github.github.given.append("gho-of-another-secret")
    store.write("copilot", StoredTokens(access=Secret("gho-of-another-secret"), issuer=github.origin))
    await said(router, ask("say=hi"))
    assert [request.headers["authorization"] for request in github.requests] == [
        f"token {GITHUB_TOKEN}",
        "token gho-of-another-secret",
    ]


async def test_a_damaged_login(router: Router, store: TokenStore) -> None:
    store.path("copilot").write_text("{")
    with pytest.raises(AuthFailed, match=r"copilot\.json holds no tokens; log in again with"):
        await said(router, ask("say=hi"))


@pytest.mark.parametrize("name", ["COPILOT_GITHUB_TOKEN", "GITHUB_COPILOT_TOKEN", "configured"])
async def test_a_token_of_the_environment_or_the_configuration(github: DeviceServer, name: str) -> None:
    http, request = HttpClient(), HttpRequest(url="", body=b"{}")
    row = replace(ROW, api_key=Secret(GITHUB_TOKEN if name == "configured" else ""))
    auth = CopilotAuth(row, http, Clock(), None, places=CopilotPlaces.of(github.origin), env={name: GITHUB_TOKEN})
    signed = await auth.sign("https://x", "/chat/completions", request)
    assert signed.headers["Authorization"] == f"Bearer {github.github.access[0]}"
    await http.aclose()


async def test_a_token_that_is_none(make_router: MakeRouter) -> None:
    router = make_router(replace(ROW, api_key=Secret("secret\nvalue")))
    with pytest.raises(AuthFailed, match="the GitHub token has characters that no token has") as caught:
        await said(router, ask("say=hi"))
    assert "value" not in str(caught.value)


@pytest.mark.parametrize(
    ("issuer", "api", "is_own"),
    [
        (GITHUB, "https://api.githubcopilot.com", True),
        (GITHUB, "https://api.business.githubcopilot.com", True),
        ("https://company.ghe.com", "https://copilot-api.company.ghe.com", True),
        ("https://company.ghe.com", "https://copilot-api.other.ghe.com", False),
        (GITHUB, "https://evilgithubcopilot.com", False),
        (GITHUB, "http://api.githubcopilot.com", False),
        (GITHUB, "http://127.0.0.1:8080", False),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8080", True),
    ],
)
def test_tokens_go_only_to_where_github_has_models(issuer: str, api: str, is_own: bool) -> None:
    assert own_url(api, issuer, DOMAINS) == (api if is_own else "")


def test_places() -> None:
    public, company = CopilotPlaces.of(GITHUB), CopilotPlaces.of("https://company.ghe.com")
    assert public.device_url == "https://github.com/login/device/code"
    assert public.token_url == "https://github.com/login/oauth/access_token"
    assert public.exchange_url == "https://api.github.com/copilot_internal/v2/token"
    assert company.device_url == "https://company.ghe.com/login/device/code"
    assert company.exchange_url == "https://api.company.ghe.com/copilot_internal/v2/token"
    assert CopilotPlaces.of("http://127.0.0.1:8000").exchange_url == "http://127.0.0.1:8000/copilot_internal/v2/token"
    assert device_service(GITHUB).token_url == public.token_url


# What requests say


async def test_images_and_rounds_of_tools(router: Router, server: ModelServer) -> None:
    asked = UserMessage([TextBlock('tool=exec:{"type":"image_url"}')], 1)
    options = ModelOptions(tools=[ToolDefinition(name="exec")])
    events = [event async for event in router.stream(ModelRequest(messages=[asked], options=options))]
    assert isinstance(events[-1], Finished)
    message = events[-1].message
    assert isinstance(message.content[0], ToolCallBlock)
    result = ToolResultMessage("call_0", "exec", [TextBlock('{"type":"image_url"}')], False, 1)
    history: list[Message] = [asked, message, result]
    await said(router, ModelRequest(messages=history, options=options))
    seeing = UserMessage([TextBlock("say=a cat"), ImageBlock("image/png", "AAAA")], 1)
    await said(router, ModelRequest(messages=[seeing]))
    facts = [(each.headers["x-initiator"], each.headers.get("copilot-vision-request")) for each in server.requests]
    assert facts == [("user", None), ("agent", None), ("user", "true")]


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        (b"", {}),
        (b"not json", {}),
        (b"{}", {"X-Initiator": "user"}),
        (b'{"messages":[]}', {"X-Initiator": "user"}),
        (b'{"messages":[{"role":"user"},{"role":"assistant"}]}', {"X-Initiator": "agent"}),
        (b'{"input":"hi"}', {"X-Initiator": "user"}),
        (b'{"input":[{"role":"user","content":[]}]}', {"X-Initiator": "user"}),
        (b'{"input":[{"type":"function_call_output"}]}', {"X-Initiator": "agent"}),
        (
            b'{"input":[{"role":"user","content":[{"type":"input_image"}]}]}',
            {"X-Initiator": "user", "Copilot-Vision-Request": "true"},
        ),
    ],
)
def test_what_a_body_says(body: bytes, facts: dict[str, str]) -> None:
    assert _facts(body) == facts


@given(st.text())
def test_no_text_looks_like_an_image(text: str) -> None:
    body = {"messages": [{"role": "user", "content": f'{{"type":"image_url"}}{text}"type":"image"'}]}
    try:
        encoded = msgspec.json.encode(body)
    except UnicodeEncodeError:
        return
    assert _facts(encoded) == {"X-Initiator": "user"}


@given(st.binary(max_size=100))
def test_any_body_can_be_signed(data: bytes) -> None:
    _facts(data)


async def test_the_rows_own_headers_win(
    make_router: MakeRouter, store: TokenStore, server: ModelServer, github: DeviceServer
) -> None:
    row = replace(ROW, headers={"Copilot-Integration-Id": "copilot-developer-cli", "Editor-Version": "mine/2"})
    await said(make_router(row, tokens=store), ask("say=hi"))
    assert github.requests[0].headers["editor-version"] == "mine/2"
    assert server.requests[0].headers["copilot-integration-id"] == "copilot-developer-cli"


# Secrets


async def test_no_secret_in_any_failure_or_log(
    router: Router, server: ModelServer, github: DeviceServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await said(router, ask("say=hi"))
    words = []
    for script in (f"fail=400 say=no {github.github.access[0]} or {GITHUB_TOKEN}", "fail=500"):
        with pytest.raises(ProviderError) as caught:
            await said(router, ask(script))
        words.append(str(caught.value))
    server.dialect(OpenAICompletions).key = "another"
    github.github.faults.append(403)
    with pytest.raises(ProviderError) as caught:
        await said(router, ask("say=hi"))
    words.append(str(caught.value))
    assert "no *** or ***" in words[0]
    for text in (*words, caplog.text, repr(router), str(vars(router))):
        assert "secret" not in text
