"""Requests wait for their turn (BA-071)."""

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.errors import RateLimited
from skynet_agent.limiter import WINDOW_S, Limiter, Window
from tests.skynet_agent.fake_time import FakeTime, settle


def limiter_of(per_minute: int, time: FakeTime) -> Limiter:
    return Limiter("lab", per_minute, clock=time, sleep=time.sleep)


async def test_the_61st_waits() -> None:
    """BA-071."""
    time = FakeTime(runs=False)
    limiter = limiter_of(60, time)
    for _ in range(60):
        await limiter.turn()
        time.now_s += 0.5
    assert time.pauses == []
    last = asyncio.create_task(limiter.turn())
    await settle()
    assert (last.done(), limiter.waiting, time.pauses) == (False, 1, [30.0])
    await time.advance(29.9)
    assert not last.done()
    await time.advance(0.1)
    assert last.done()
    assert limiter.waiting == 0


async def test_first_come_first_served() -> None:
    time = FakeTime(runs=False)
    limiter = limiter_of(2, time)
    served: list[int] = []

    async def ask(number: int) -> None:
        await limiter.turn()
        served.append(number)

    tasks = [asyncio.create_task(ask(number)) for number in range(4)]
    await settle()
    assert served == [0, 1]
    await time.advance(WINDOW_S)
    assert served == [0, 1, 2, 3]
    await asyncio.gather(*tasks)


async def test_who_is_cancelled_leaves_the_queue() -> None:
    time = FakeTime(runs=False)
    limiter = limiter_of(3, time)
    for _ in range(3):
        await limiter.turn()
    first, second, third = (asyncio.create_task(limiter.turn()) for _ in range(3))
    await settle()
    assert limiter.waiting == 3
    for task in (first, second):  # the one that waits for the time, and one that waits for it
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert limiter.waiting == 1
    await time.advance(WINDOW_S)
    assert third.done()


async def test_a_full_queue_turns_away() -> None:
    time = FakeTime(runs=False)
    limiter = limiter_of(2, time)
    tasks = [asyncio.create_task(limiter.turn()) for _ in range(4)]
    await settle()
    time.now_s += 20
    with pytest.raises(RateLimited, match="lab: 2 requests may begin in a minute, and as many wait already") as caught:
        await limiter.turn()
    assert (caught.value.provider, caught.value.retry_after_s) == ("lab", 40.0)
    await time.advance(40)
    assert all(task.done() for task in tasks)
    await asyncio.gather(*tasks)


def test_at_least_one_has_to_be_allowed() -> None:
    with pytest.raises(ValueError, match="0 requests in 60 s; at least 1"):
        limiter_of(0, FakeTime())


@given(most=st.integers(1, 5), gaps=st.lists(st.floats(0, 90), max_size=40))
def test_no_minute_has_more_than_allowed_and_nobody_waits_without_need(most: int, gaps: list[float]) -> None:
    time = FakeTime()
    window = Window(most, time)
    begun: list[float] = []
    for gap in gaps:
        time.now_s += gap
        waited = 0.0
        while wait_s := window.wait_s():
            time.now_s += wait_s
            waited += wait_s
        if waited:
            assert time.now_s - WINDOW_S == pytest.approx(begun[-most])
        window.begin()
        begun.append(time.now_s)
    recent: deque[float] = deque(maxlen=most + 1)
    for at in begun:
        recent.append(at)
        if len(recent) > most:
            assert recent[-1] >= recent[0] + WINDOW_S


@given(
    per_minute=st.integers(1, 4),
    steps=st.lists(st.sampled_from(["ask", "cancel first", "cancel last", "wait", "wait long"]), max_size=30),
)
def test_whoever_asks_and_leaves_the_order_holds_and_nobody_is_forgotten(per_minute: int, steps: list[str]) -> None:
    async def scenario() -> None:
        time = FakeTime(runs=False)
        limiter = limiter_of(per_minute, time)
        served: list[int] = []
        waiting: dict[int, asyncio.Task[None]] = {}

        async def ask(number: int) -> None:
            await limiter.turn()
            served.append(number)

        async def settled() -> None:
            await settle()
            for number, task in list(waiting.items()):
                if task.done():
                    if not task.cancelled() and (error := task.exception()) is not None:
                        assert isinstance(error, RateLimited)
                        assert len(waiting) >= per_minute
                    del waiting[number]

        for number, step in enumerate(steps):
            match step:
                case "ask":
                    waiting[number] = asyncio.create_task(ask(number))
                case "wait":
                    await time.advance(7)
                case "wait long":
                    await time.advance(WINDOW_S)
                case _ if waiting:
                    waiting[(min if step == "cancel first" else max)(waiting)].cancel()
            await settled()
            assert limiter.waiting == len(waiting) <= per_minute
        await time.advance(2 * WINDOW_S)
        await settled()
        assert not waiting
        assert served == sorted(served)

    asyncio.run(scenario())
