"""What is known of a provider, whatever became of a request to it."""

import asyncio
from datetime import UTC, datetime

import pytest

from skynet_agent.auth.keys import KeyAuth
from skynet_agent.breaker import COOL_DOWN_S, FAILURES, Breaker
from skynet_agent.endpoint import Endpoint
from skynet_agent.errors import AuthFailed, BadRequest, Overloaded, ProviderError, RateLimited
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import OFFLINE, AuthKind, ProviderRow
from skynet_agent.upstream import CircuitOpen, Upstream
from skynet_memory.secrets import Secret
from tests.skynet_agent.fake_time import FakeTime

NOW = datetime(2026, 11, 21, 1, 20, tzinfo=UTC)
NOW_MS = 1795224000000


def now() -> datetime:
    return NOW


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def upstream_of(row: ProviderRow, time: FakeTime) -> Upstream:
    endpoint = Endpoint(row, KeyAuth(row), HttpClient(), now)
    return Upstream(endpoint, Breaker(time), clock=now, monotonic=time, sleep=time.sleep)


@pytest.fixture
def upstream(time: FakeTime) -> Upstream:
    return upstream_of(ProviderRow(name="lab"), time)


async def fail(upstream: Upstream, error: ProviderError, *, last_resort: bool = False) -> None:
    with pytest.raises(type(error)):
        async with upstream.call(last_resort=last_resort):
            raise error


def failure() -> Overloaded:
    return Overloaded("lab: broken", provider="lab", status=500)


async def open_circuit(upstream: Upstream) -> None:
    for _ in range(FAILURES):
        await fail(upstream, failure())


async def test_a_new_one_is_well(upstream: Upstream) -> None:
    health = upstream.health()
    assert health.healthy
    assert (health.name, health.title, health.state, health.failures) == ("lab", "lab", "closed", 0)
    assert (health.last_error, health.last_error_ms, health.last_success_ms, health.first_token_s) == (None,) * 4


async def test_the_time_to_the_first_token(upstream: Upstream, time: FakeTime) -> None:
    for seconds, average in ((1.0, 1.0), (2.0, 1.2), (1.2, 1.2)):
        async with upstream.call() as call:
            time.now_s += seconds
            call.answered()
            time.now_s += 100  # how long the rest takes is no matter
        assert upstream.health().first_token_s == pytest.approx(average)
    assert upstream.health().last_success_ms == NOW_MS


async def test_failures_open_the_circuit(upstream: Upstream, time: FakeTime) -> None:
    await open_circuit(upstream)
    health = upstream.health()
    assert (health.state, health.opened_for_s, health.healthy) == ("open", COOL_DOWN_S, False)
    assert (health.last_error, health.last_error_ms) == ("lab: broken", NOW_MS)
    with pytest.raises(CircuitOpen):
        async with upstream.call():
            raise AssertionError("not entered")
    async with upstream.call(last_resort=True) as call:
        call.answered()
    assert upstream.health().healthy


async def test_a_limit_that_the_provider_set(upstream: Upstream) -> None:
    await fail(upstream, RateLimited("lab: slowly", provider="lab", status=429, retry_after_s=9))
    assert upstream.health().opened_for_s == 9


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (BadRequest("lab: no", provider="lab", status=400), "closed"),
        (AuthFailed("lab: no", provider="lab", status=401), "closed"),
        (BadRequest("lab: cannot be said", provider="lab"), "half_open"),
        (AuthFailed("lab: nobody has logged in", provider="lab"), "half_open"),
    ],
)
async def test_who_refuses_is_there_and_who_was_not_asked_may_be(
    upstream: Upstream, time: FakeTime, error: ProviderError, state: str
) -> None:
    await open_circuit(upstream)
    time.now_s += COOL_DOWN_S
    await fail(upstream, error)
    assert upstream.health().state == state
    assert upstream.breaker.admits()


async def test_refused_credentials_are_told_until_they_are_taken(upstream: Upstream) -> None:
    await fail(upstream, AuthFailed("lab: wrong key (HTTP 401)", provider="lab", status=401))
    health = upstream.health()
    assert (health.auth, health.refused, health.healthy) == ("refused: lab: wrong key (HTTP 401)", True, False)
    async with upstream.call() as call:
        call.answered()
    assert (upstream.health().auth, upstream.health().refused) == ("no key", False)


@pytest.mark.parametrize("leave", [asyncio.CancelledError, GeneratorExit, RuntimeError])
@pytest.mark.parametrize("is_answered", [True, False])
async def test_leaving_frees_the_probe(
    upstream: Upstream, time: FakeTime, leave: type[BaseException], is_answered: bool
) -> None:
    await open_circuit(upstream)
    time.now_s += COOL_DOWN_S
    with pytest.raises(leave):
        async with upstream.call() as call:
            if is_answered:
                call.answered()
            raise leave
    assert upstream.health().state == ("closed" if is_answered else "half_open")
    assert upstream.breaker.admits()


async def test_who_listened_for_a_while_was_answered(upstream: Upstream) -> None:
    await fail(upstream, failure())
    with pytest.raises(GeneratorExit):
        async with upstream.call() as call:
            call.answered()
            raise GeneratorExit
    assert upstream.health().failures == 0


async def test_turned_away_is_no_failure_of_the_provider(time: FakeTime) -> None:
    waits = FakeTime(runs=False)
    upstream = upstream_of(ProviderRow(name="lab", requests_per_minute=1), waits)
    async with upstream.call() as call:
        call.answered()
    waiting = asyncio.create_task(upstream.enter(False))
    await asyncio.sleep(0)
    assert upstream.health().waiting == 1
    with pytest.raises(RateLimited):
        async with upstream.call():
            raise AssertionError("not entered")
    assert upstream.health().healthy
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert upstream.health().waiting == 0


@pytest.mark.parametrize(
    ("auth", "key", "local", "words"),
    [
        ("bearer", "k", False, "key set"),
        ("anthropic", "", False, "no key"),
        ("bearer", "", True, "no key needed"),
        ("aws", "", False, "AWS credentials"),
        ("google", "", False, "Google credentials"),
        ("copilot", "", False, "login"),
        ("qwen", "", False, "login"),
    ],
)
def test_credentials_in_words(time: FakeTime, auth: AuthKind, key: str, local: bool, words: str) -> None:
    row = ProviderRow(name="lab", auth=auth, api_key=Secret(key), local=local)
    assert upstream_of(row, time).health().auth == words


def test_the_offline_assistant_needs_no_key(time: FakeTime) -> None:
    assert upstream_of(OFFLINE, time).health().auth == "no key needed"
