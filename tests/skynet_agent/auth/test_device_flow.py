"""The device flow against a service that checks it, and its answers one by one."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.auth import copilot, qwen
from skynet_agent.auth.device_flow import (
    DeviceCode,
    DeviceFlow,
    DeviceService,
    Granted,
    LoginFailed,
    LoginStep,
    Waiting,
    challenge_of,
    log_in,
)
from skynet_agent.auth.oauth import Reply, post_form, secure_url
from skynet_agent.errors import ConnectFailed
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import ProviderRow
from tests.support.device_server import DeviceServer

ROW = ProviderRow(name="lab")
SERVICE = DeviceService(device_url="http://127.0.0.1/d", token_url="http://127.0.0.1/t", client_id="c", scope="s")


@pytest.fixture
async def server() -> AsyncIterator[DeviceServer]:
    async with DeviceServer() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


async def steps(service: DeviceService, http: HttpClient, clock: Clock) -> list[LoginStep]:
    return [step async for step in log_in(service, http, ROW, sleep=clock.sleep, monotonic=clock.monotonic)]


# Both services


async def test_github(server: DeviceServer, http: HttpClient) -> None:
    """SK-069."""
    clock = Clock()
    server.github.interval = 5
    server.github.answers.extend(["authorization_pending", "authorization_pending", "granted"])
    code, *waits, granted = await steps(copilot.device_service(server.origin), http, clock)
    assert code == DeviceCode(
        user_code="ABCD-0001", url=f"{server.origin}/login/device", complete_url="", expires_in_s=900
    )
    assert waits == [Waiting(900), Waiting(895), Waiting(890)]
    assert isinstance(granted, Granted)
    assert granted.access.reveal() == server.github.given[-1]
    assert (granted.refresh.reveal(), granted.expires_in_s) == ("", None)
    assert granted.extra == {"token_type": "bearer", "scope": "read:user"}
    opening, question = server.requests[0].form, server.requests[-1].form
    assert opening == {"client_id": copilot.CLIENT_ID, "scope": "read:user"}
    assert set(question) == {"client_id", "device_code", "grant_type"}
    assert server.requests[0].headers["user-agent"] == "skynet-gateway"


async def test_qwen_proves_that_it_began_the_login(server: DeviceServer, http: HttpClient) -> None:
    """SK-068."""
    clock = Clock()
    server.qwen.interval = None  # the service says nothing of it
    server.qwen.answers.extend(["authorization_pending", "granted"])
    code, *waits, granted = await steps(qwen.device_service(server.origin), http, clock)
    assert isinstance(code, DeviceCode)
    assert code.complete_url == f"{server.origin}/authorize?user_code=ABCD-0001&client=x"
    assert waits == [Waiting(900), Waiting(898)]
    assert isinstance(granted, Granted)
    assert (granted.access.reveal(), granted.refresh.reveal()) == (server.qwen.access[-1], server.qwen.given[-1])
    assert (granted.expires_in_s, granted.extra["resource_url"]) == (1800, "portal.qwen.ai")
    opening, question = server.requests[0].form, server.requests[-1].form
    assert opening["code_challenge"] == challenge_of(question["code_verifier"])
    assert 43 <= len(question["code_verifier"]) <= 128
    assert (opening["client_id"], opening["scope"]) == (qwen.CLIENT_ID, "openid profile email model.completion")


async def test_the_server_checks_the_verifier(server: DeviceServer, http: HttpClient) -> None:
    """SK-068."""
    flow = DeviceFlow(qwen.device_service(server.origin))
    url = qwen.token_url(server.origin)
    flow.read_code(await post_form(http, ROW, f"{server.origin}/api/v1/oauth2/device/code", flow.opening()), 0)
    with pytest.raises(LoginFailed, match="the verifier does not match"):
        flow.read_answer(await post_form(http, ROW, url, {**flow.question(), "code_verifier": "x" * 43}))
    assert flow.read_answer(await post_form(http, ROW, url, flow.question())) is not None
    with pytest.raises(LoginFailed):  # a code is good once
        flow.read_answer(await post_form(http, ROW, url, flow.question()))


async def test_slow_down(server: DeviceServer, http: HttpClient) -> None:
    clock = Clock()
    server.github.interval, server.github.slower = 5, None
    server.github.answers.extend(["slow_down", "authorization_pending", "slow_down", "authorization_pending"])
    await steps(copilot.device_service(server.origin), http, clock)
    assert clock.slept == [5, 10, 10, 15, 15]
    clock = Clock()
    server.github.slower = 7  # GitHub says how slow
    server.github.answers.extend(["slow_down", "authorization_pending"])
    await steps(copilot.device_service(server.origin), http, clock)
    assert clock.slept == [5, 7, 7]


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        ("expired_token", "expired", "the code expired before anybody entered it"),
        ("access_denied", "denied", "the request was denied"),
        ("device_flow_disabled", "refused", r"the login was refused: scripted device_flow_disabled \(HTTP"),
    ],
)
@pytest.mark.parametrize("kind", [copilot, qwen])
async def test_logins_that_come_to_nothing(
    server: DeviceServer, http: HttpClient, kind: Any, answer: str, reason: str, words: str
) -> None:
    for service in (server.github, server.qwen):
        service.answers.extend(["authorization_pending", answer])
    with pytest.raises(LoginFailed, match=words) as caught:
        await steps(kind.device_service(server.origin), http, Clock())
    assert caught.value.reason == reason


async def test_nobody_enters_the_code(server: DeviceServer, http: HttpClient) -> None:
    clock = Clock()
    server.github.interval, server.github.expires_in = 5, 12
    server.github.answers.extend(["authorization_pending"] * 9)
    with pytest.raises(LoginFailed) as caught:
        await steps(copilot.device_service(server.origin), http, clock)
    assert caught.value.reason == "expired"
    assert clock.slept == [5, 5, 2]
    assert len(server.requests) == 3


async def test_a_service_that_has_trouble_is_asked_again(server: DeviceServer, http: HttpClient) -> None:
    clock = Clock()
    server.qwen.interval = 5
    server.qwen.answers.extend(["503", "429", "authorization_pending"])
    assert isinstance((await steps(qwen.device_service(server.origin), http, clock))[-1], Granted)
    assert clock.slept == [5, 10, 15, 15]


async def test_a_service_that_cannot_be_reached(server: DeviceServer, http: HttpClient) -> None:
    nowhere = copilot.device_service("http://127.0.0.1:1")
    with pytest.raises(ConnectFailed, match=r"lab: no connection to http://127\.0\.0\.1:1"):
        await steps(nowhere, http, Clock())


async def test_a_connection_that_fails_while_the_person_is_busy(server: DeviceServer, http: HttpClient) -> None:
    clock = Clock()
    there = copilot.device_service(server.origin)
    gone = DeviceService(
        device_url=there.device_url, token_url="http://127.0.0.1:1/t", client_id="c", scope="s", interval_s=1
    )
    server.github.interval, server.github.expires_in = 1, 20
    with pytest.raises(LoginFailed, match="expired"):
        await steps(gone, http, clock)
    assert clock.slept == [1, 6, 11, 2]


# Answers


def reply(value: Any, status: int = 200) -> Reply:
    return Reply(status, {}, value if isinstance(value, bytes) else msgspec.json.encode(value))


CODE = {"device_code": "secret-code", "user_code": "AB-12", "verification_uri": "https://example.org/device"}


@pytest.mark.parametrize(
    "changes",
    [
        {"user_code": ""},
        {"user_code": "\x1b[2J"},
        {"user_code": 7},
        {"device_code": None},
        {"device_code": "a\nb"},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "http://example.org/"},
        {"verification_uri": "https://exa\x1bmple.org/"},
        {"verification_uri": "https://[/"},
        {"verification_uri": ""},
    ],
)
def test_codes_that_are_none(changes: dict[str, Any]) -> None:
    with pytest.raises(LoginFailed, match="no code was given"):
        DeviceFlow(SERVICE).read_code(reply({**CODE, **changes}), 0)


def test_an_error_in_place_of_a_code() -> None:
    with pytest.raises(LoginFailed, match=r"no code was given: The client was not found. \(HTTP 404\)"):
        DeviceFlow(SERVICE).read_code(reply({"error": "x", "error_description": "The  client\nwas not found."}, 404), 0)


@pytest.mark.parametrize(
    ("sent", "interval_s", "expires_in_s"),
    [
        ({}, 5, 900),
        ({"interval": 8, "expires_in": 100}, 8, 100),
        ({"interval": 0, "expires_in": -1}, 5, 900),
        ({"interval": "5", "expires_in": None}, 5, 900),
        ({"interval": 1e9, "expires_in": 1e9}, 60, 3600),
        ({"interval": 10**400, "expires_in": 10**400}, 60, 3600),
    ],
)
def test_intervals_and_expiry(sent: dict[str, Any], interval_s: float, expires_in_s: float) -> None:
    flow = DeviceFlow(SERVICE)
    assert flow.read_code(reply({**CODE, **sent}), 50).expires_in_s == expires_in_s
    assert flow.interval_s == interval_s
    assert flow.remaining_s(50) == expires_in_s


def test_what_was_told_in_confidence_is_not_shown() -> None:
    flow = DeviceFlow(DeviceService(device_url="", token_url="", client_id="c", scope="s", pkce=True))
    flow.read_code(reply(CODE), 0)
    verifier = flow.question()["code_verifier"]
    with pytest.raises(LoginFailed) as caught:
        flow.read_answer(reply({"error": f"bad secret-code with {verifier}"}, 400))
    assert str(caught.value) == "the login was refused: bad *** with *** (HTTP 400)"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=6,
)
names = ["user_code", "device_code", "verification_uri", "verification_uri_complete", "interval", "expires_in", "error"]
names += ["error_description", "access_token", "refresh_token"]
answers = st.dictionaries(st.sampled_from(names), json_values) | json_values


@given(answers, st.sampled_from([200, 302, 400, 404, 429, 500]))
def test_any_answer_is_a_step_or_a_failed_login(value: Any, status: int) -> None:
    try:
        sent = reply(value, status)
    except UnicodeEncodeError:
        return
    flow = DeviceFlow(SERVICE)
    try:
        flow.read_code(sent, 0)
    except LoginFailed as exc:
        str(exc).encode()
    flow.read_code(reply(CODE), 0)
    try:
        flow.read_answer(sent)
    except LoginFailed as exc:
        str(exc).encode()
    assert 0 < flow.interval_s <= 60


@given(st.binary(max_size=100))
def test_any_bytes_are_a_failed_login(data: bytes) -> None:
    with pytest.raises(LoginFailed):
        DeviceFlow(SERVICE).read_code(reply(data), 0)


def test_the_challenge_of_the_standard() -> None:
    """RFC 7636, appendix B."""
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.githubcopilot.com/", "https://api.githubcopilot.com"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://localhost", "http://localhost"),
        ("http://example.org", ""),
        ("https://user@example.org", ""),
        ("https://example.org/?a=b", ""),
        ("https://exam ple.org", ""),
        ("https://example.org:port", ""),
        ("https://", ""),
        ("ftp://example.org", ""),
        ("example.org", ""),
        ("https://[", ""),
        ("https://exämple.org", ""),
        (None, ""),
    ],
)
def test_addresses_that_a_token_may_be_sent_to(text: object, url: str) -> None:
    assert secure_url(text) == url
