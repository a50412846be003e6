"""Whom a request asks next; and a thousand requests to providers that keep failing (SK-076, SK-081)."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from skynet_agent.events import Finished, Started, TextDelta
from skynet_agent.failover import RETRIES, SHORT_WAIT_S, Failover, Step
from skynet_agent.messages import text_of
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.router import Router
from skynet_agent.routes import Target
from tests.skynet_agent.lab import ask
from tests.support.model_server import ModelServer

WINDOWS = {"a": 1000, "b": 2000, "c": None, "d": 1000}


def target(name: str) -> Target:
    return Target(ProviderRow(name=name), ModelInfo(id="m", context_window=WINDOWS[name]))


def failover(*names: str, **settings: bool | int) -> Failover:
    return Failover([target(name) for name in names], **settings)  # type: ignore[arg-type]


def error(kind: type[ProviderError] = Overloaded, **facts: object) -> ProviderError:
    return kind("lab: no", provider="lab", **facts)  # type: ignore[arg-type]


def limited(retry_after_s: float | None = None) -> RateLimited:
    return RateLimited("lab: slowly", provider="lab", status=429, retry_after_s=retry_after_s)


def run(way: Failover, *failures: ProviderError, shut: str = "") -> list[tuple[str, float]]:
    """Who is asked after which pause, when these are the answers and the last one is repeated. ``shut``: open ones."""
    asked: list[tuple[str, float]] = []
    while (step := way.next(lambda target: target.row.name not in shut)) is not None:
        asked.append((step.target.row.name, round(step.pause_s, 3)))
        way.failed(step, failures[min(len(asked), len(failures)) - 1])
        assert len(asked) < 100
    return asked


def test_pauses_grow() -> None:
    """SK-081."""
    assert run(failover("a"), error()) == [("a", 0), ("a", 0.2), ("a", 0.4)]
    assert run(failover("a", retries=4), error())[-2:] == [("a", 0.6), ("a", 0.8)]
    assert run(failover("a", retries=0), error()) == [("a", 0)]


@pytest.mark.parametrize(
    ("failure", "times"),
    [
        (error(Overloaded, status=500), 1 + RETRIES),
        (error(ConnectFailed), 1 + RETRIES),
        (error(ProviderTimeout, status=408), 1 + RETRIES),
        (error(ProviderTimeout), 1),
        (error(StreamCut), 2),
        (limited(), 1),
        (limited(SHORT_WAIT_S + 0.1), 1),
    ],
)
def test_how_often_each_failure_is_asked_again(failure: ProviderError, times: int) -> None:
    """SK-081."""
    assert [name for name, _ in run(failover("a", "b"), failure)] == ["a"] * times + ["b"] * times


@pytest.mark.parametrize("failure", [error(BadRequest, status=400), error(AuthFailed, status=401)])
def test_a_refusal_ends_it(failure: ProviderError) -> None:
    way = failover("a", "b")
    assert run(way, error(), failure) == [("a", 0), ("a", 0.2)]
    assert (type(way.failure), way.failure.status) == (type(failure), failure.status)
    assert [attempt.kind for attempt in way.failure.tried] == ["Overloaded", type(failure).__name__]
    assert run(failover("b", "a", pooled=True), error(BadRequest)) == [("b", 0)]


def test_a_refused_key_in_a_pool() -> None:
    assert run(failover("a", "b", pooled=True), error(AuthFailed)) == [("a", 0), ("b", 0)]


def test_the_last_failure_counts() -> None:
    way, last = failover("a", "b", retries=0), error(ConnectFailed)
    assert run(way, error(), last) == [("a", 0), ("b", 0)]
    assert isinstance(way.failure, ConnectFailed)


def test_open_circuits_come_last_and_are_asked_once() -> None:
    assert run(failover("a", "b", "c", retries=1), error(), shut="ac") == [
        *[("b", 0), ("b", 0.2)],
        *[("a", 0), ("c", 0)],
    ]


def test_a_circuit_that_opens_on_the_way() -> None:
    way = failover("a", "b", retries=2)
    step = way.next(lambda target: True)
    assert step is not None
    way.failed(step, error())
    # the retry is due when the circuit is open already: the other one goes first
    asked = run(way, error(), shut="a")
    assert [name for name, _ in asked] == ["b", "b", "b", "a"]


def test_a_circuit_that_opens_between_the_choice_and_the_request() -> None:
    way = failover("a", "b")
    step = way.next(lambda target: True)
    assert step is not None
    way.put_off(step)
    assert [name for name, _ in run(way, error(BadRequest))] == ["b"]
    way = failover("a")
    step = way.next(lambda target: True)
    assert step is not None
    way.put_off(step)
    assert way.next(lambda target: False) == Step(step.target, last_resort=True)


def test_a_short_limit_is_waited_for_once_when_nobody_is_left() -> None:
    assert run(failover("a"), limited(2)) == [("a", 0), ("a", 2)]
    assert run(failover("a", "b"), limited(2), limited(1)) == [("a", 0), ("b", 0), ("b", 1)]
    assert run(failover("a", "b", retries=0), limited(0), error()) == [("a", 0), ("b", 0), ("a", 0)]
    assert run(failover("a", "b"), limited(2), error(BadRequest)) == [("a", 0), ("b", 0)]


def test_too_long_a_conversation() -> None:
    overflow = error(ContextOverflow, status=400)
    assert run(failover("a", "c", "d", "b"), overflow) == [("a", 0), ("b", 0)]
    assert run(failover("b", "a", "c"), overflow) == [("b", 0)]
    assert run(failover("c", "a", "b"), overflow) == [("c", 0), ("a", 0), ("b", 0)]  # known beats unknown
    way = failover("a", "b", retries=0)
    assert run(way, overflow, error()) == [("a", 0), ("b", 0)]
    assert isinstance(way.failure, ContextOverflow)
    assert [attempt.provider for attempt in way.failure.tried] == ["a", "b"]


FAILURES: list[Callable[[], ProviderError]] = [
    error,
    lambda: error(ConnectFailed),
    lambda: error(ProviderTimeout),
    lambda: error(StreamCut),
    lambda: error(ContextOverflow),
    lambda: error(AuthFailed),
    lambda: error(BadRequest),
    limited,
    lambda: limited(1),
    lambda: limited(100),
]


@given(
    names=st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    pooled=st.booleans(),
    retries=st.integers(0, 3),
    data=st.data(),
)
def test_whatever_happens_it_ends_and_tells_all(
    names: list[str], pooled: bool, retries: int, data: st.DataObject
) -> None:
    """Nobody is asked more often than allowed, and as long as all failures may pass, everybody is asked."""
    way = failover(*names, pooled=pooled, retries=retries)
    asked: list[str] = []
    passing = True
    while (step := way.next(lambda target: data.draw(st.booleans()))) is not None:
        if data.draw(st.integers(0, 9)) == 0 and not step.last_resort:
            way.put_off(step)
            continue
        failure = data.draw(st.sampled_from(FAILURES))()
        passing = passing and failure.retriable
        asked.append(step.target.row.name)
        way.failed(step, failure)
    counts = Counter(asked)
    assert all(count <= 1 + retries + 1 for count in counts.values())  # one more after a short limit
    assert sum(max(0, count - 1 - retries) for count in counts.values()) <= 1
    assert [attempt.provider for attempt in way.failure.tried] == asked
    if passing:
        assert set(asked) == set(names)


def test_a_failure_that_requests_share_does_not_tell_one_what_another_tried() -> None:
    login = AuthFailed("b: nobody has logged in", provider="b")
    anna, ben = failover("a", "b"), failover("c", "b")
    run(anna, error(), error(), error(), login)
    run(ben, error(), error(), error(), login)
    of_anna, of_ben = anna.failure, ben.failure
    assert [attempt.provider for attempt in of_anna.tried] == ["a", "a", "a", "b"]
    assert [attempt.provider for attempt in of_ben.tried] == ["c", "c", "c", "b"]
    assert login.tried == ()
    assert (type(of_anna), str(of_anna), of_anna.provider) == (AuthFailed, str(login), "b")


def test_it_keeps_its_facts() -> None:
    way = failover("a")
    run(way, limited(9.0))
    failure = way.failure
    assert isinstance(failure, RateLimited) and (failure.status, failure.retry_after_s) == (429, 9.0)


# Real providers, real time. One of three is always well; which one changes. The others fail by chance, in every way
# there is before the first token.

REQUESTS = 1000
AT_ONCE = 50
PHASES = 5
KINDS = {
    "RateLimited": ("fail=429", "fail=429:0", "fail=429:1", "fail=429:60"),
    "ProviderTimeout": ("hang", "fail=408"),
    "Overloaded": ("fail=500", "fail=502", "fail=503", "fail=529", "fail=409", "error-in-stream"),
    "ConnectFailed": ("drop",),
    "StreamCut": ("cut=0",),
}
EACH_KIND = [script for scripts in KINDS.values() for script in scripts]
NAMES = ("one", "two", "three")
SILENCE_S = 2.0
"""Far more than a busy machine keeps a provider silent that is well."""
HASTE = 60
"""So much faster runs the time of circuits, so that they open and close while the test runs."""


class Thousand:
    """What became of a thousand requests."""

    def __init__(self) -> None:
        self.served = Counter[str]()
        self.failed = Counter[str]()

    async def run(self, kinds: Sequence[str], *, rate: float, seed: int) -> None:
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(ModelServer(keep=1)) for _ in NAMES]
            chaos = [server.chaos(rate, kinds, seed + number) for number, server in enumerate(servers)]
            rows = [
                ProviderRow(
                    name=name,
                    base_url=server.url,
                    priority=-number,
                    models=(ModelInfo(id="mock-1"),),
                    read_timeout_s=SILENCE_S,
                )
                for number, (name, server) in enumerate(zip(NAMES, servers, strict=True))
            ]
            router = Router(rows, monotonic=lambda: time.monotonic() * HASTE)
            stack.push_async_callback(router.aclose)
            room = asyncio.Semaphore(AT_ONCE)

            async def one(number: int) -> None:
                async with room:
                    await self.ask(router, number)

            for phase in range(PHASES):
                for number, server in enumerate(servers):
                    server.faults = None if number == phase % len(NAMES) else chaos[number]
                async with asyncio.TaskGroup() as group:
                    for number in range(REQUESTS // PHASES):
                        group.create_task(one(phase * REQUESTS + number))

    async def ask(self, router: Router, number: int) -> None:
        """One request, which nobody sees anything of but a whole answer of one provider."""
        text = f"answer {number} of many"
        events = [event async for event in router.stream(ask(f"say={text}"))]
        started, *deltas, finished = events
        assert isinstance(started, Started)
        assert isinstance(finished, Finished)
        assert "".join(event.text for event in deltas if isinstance(event, TextDelta)) == text
        assert text_of(finished.message) == text
        assert finished.message.provider == started.provider
        self.served[started.provider] += 1
        self.failed.update(attempt.kind for attempt in started.tried)
        # in order; once more from the top for those with an open circuit, and again for one with a short limit
        asked = [NAMES.index(name) for name in (*(attempt.provider for attempt in started.tried), started.provider)]
        assert sum(before > after for before, after in pairwise(asked)) <= 2


@pytest.mark.parametrize("kind", ["all of them", *KINDS])
async def test_nobody_sees_a_failure_of_the_others(kind: str) -> None:
    """SK-076, SQ-096."""
    thousand = Thousand()
    await thousand.run(KINDS.get(kind, EACH_KIND), rate=0.3, seed=20261121)
    assert thousand.served.total() == REQUESTS
    assert thousand.served["one"] == max(thousand.served.values())
    assert thousand.failed.keys() == {kind} or (kind == "all of them" and len(thousand.failed) > 1)


async def test_nobody_sees_that_two_of_three_are_down() -> None:
    thousand = Thousand()
    await thousand.run(EACH_KIND, rate=1, seed=7)
    assert thousand.served.total() == REQUESTS
    assert set(thousand.served) == set(NAMES)
