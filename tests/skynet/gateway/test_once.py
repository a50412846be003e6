"""What is asked for twice is done once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from skynet.gateway.once import KEPT_EACH, KEPT_S, Once
from skynet.supervisor import Supervisor
from skynet_memory.ids import UserId
from tests.support.polling import until

ADA, BEN = UserId("ada"), UserId("ben")


class Counter:
    """Counts how often it was begun, and ends when it is let."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        mine = self.begun
        await self.go_on.wait()
        if mine == 13:
            raise LookupError("thirteen")
        return mine


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    async with Supervisor() as tasks:
        yield tasks


async def test_the_same_key_gets_the_same_answer(tasks: Supervisor) -> None:
    once, count = Once[int](tasks), Counter()
    first = [asyncio.ensure_future(once.answer(ADA, "k", count)) for _ in range(3)]
    await until(lambda: count.begun)
    count.go_on.set()
    assert await asyncio.gather(*first) == [1, 1, 1]
    assert await once.answer(ADA, "k", count) == 1
    assert await once.answer(ADA, "l", count) == 2
    assert await once.answer(BEN, "k", count) == 3


async def test_what_was_begun_goes_on_without_who_asked(tasks: Supervisor) -> None:
    once, count = Once[int](tasks), Counter()
    gone = asyncio.ensure_future(once.answer(ADA, "k", count))
    await until(lambda: count.begun)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    count.go_on.set()
    assert await once.answer(ADA, "k", count) == 1
    assert count.begun == 1


async def test_an_error_is_an_answer_too(tasks: Supervisor) -> None:
    once, count = Once[int](tasks), Counter()
    count.go_on.set()
    count.begun = 12
    for _ in range(2):
        with pytest.raises(LookupError, match="thirteen"):
            await once.answer(ADA, "k", count)
    assert count.begun == 13


async def test_answers_are_forgotten_in_time_and_when_there_are_many(tasks: Supervisor) -> None:
    now = 0.0
    once, count = Once[int](tasks, clock=lambda: now), Counter()
    count.go_on.set()
    assert await once.answer(ADA, "k", count) == 1
    now = KEPT_S + 1
    assert await once.answer(ADA, "k", count) == 2
    for number in range(KEPT_EACH):
        await once.answer(ADA, f"other {number}", count)
    before = count.begun
    assert await once.answer(ADA, "k", count) == before + 1
    assert await once.answer(ADA, f"other {KEPT_EACH - 1}", count) == before


async def test_what_is_under_way_is_not_forgotten(tasks: Supervisor) -> None:
    now = 0.0
    once, count = Once[int](tasks, clock=lambda: now), Counter()
    waiting = [asyncio.ensure_future(once.answer(ADA, f"{number}", count)) for number in range(KEPT_EACH + 3)]
    await until(lambda: count.begun == KEPT_EACH + 3)
    now = KEPT_S + 1
    again = asyncio.ensure_future(once.answer(ADA, "0", count))
    await asyncio.sleep(0)
    count.go_on.set()
    assert await again == 1
    await asyncio.gather(*waiting)


async def test_who_is_put_out_has_nothing_under_way(tasks: Supervisor) -> None:
    once, count = Once[int](tasks), Counter()
    waiting = [asyncio.ensure_future(once.answer(owner, "k", count)) for owner in (ADA, BEN)]
    await until(lambda: count.begun == 2)
    await once.stop_person(ADA)
    await once.stop_person(UserId("nobody"))
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    count.go_on.set()
    assert await waiting[1] == 2
    assert await once.answer(ADA, "k", count) == 3
