"""Turns of commands: each person has some of their own, and what is more waits in order."""

import asyncio
from collections.abc import Callable

import pytest

from skynet.gateway.command_turns import MOST_RUNNING, MOST_UNDER_WAY, CommandTurns
from skynet_memory.ids import UserId
from skynet_terminal.errors import TooMany

ADA, BOB = UserId("ada"), UserId("bob")
Tasks = list[asyncio.Task[None]]


class Flood:
    """Commands that run until they are told to end."""

    def __init__(self) -> None:
        self.turns = CommandTurns()
        self.begun: list[int] = []
        self.ends: list[asyncio.Event] = []
        self.tasks: Tasks = []

    async def start(self, owner: UserId, count: int) -> None:
        for _ in range(count):
            self.ends.append(asyncio.Event())
            self.tasks.append(asyncio.create_task(self._run(owner, len(self.tasks))))
        await settled()

    async def _run(self, owner: UserId, number: int) -> None:
        with self.turns.under_way(owner):
            async with self.turns.running(owner):
                self.begun.append(number)
                await self.ends[number].wait()

    async def end(self, *numbers: int) -> None:
        for number in numbers or range(len(self.ends)):
            self.ends[number].set()
        await settled()


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_the_rest_wait_in_order_and_others_do_not() -> None:
    flood = Flood()
    await flood.start(ADA, MOST_RUNNING + 3)
    first = [*range(MOST_RUNNING)]
    assert flood.begun == first
    await flood.start(BOB, 1)
    bobs = len(flood.tasks) - 1
    assert flood.begun == [*first, bobs]
    await flood.end(3)
    await flood.end(0)
    assert flood.begun == [*first, bobs, MOST_RUNNING, MOST_RUNNING + 1]
    await flood.end()
    assert flood.begun[-1] == MOST_RUNNING + 2
    assert all(task.done() and not task.exception() for task in flood.tasks)


@pytest.mark.parametrize(
    "gone",
    [
        lambda tasks: tasks[MOST_RUNNING : MOST_RUNNING + 1],
        lambda tasks: tasks[:1],
        lambda tasks: [tasks[0], tasks[MOST_RUNNING]],
    ],
    ids=["one that waits", "one that runs", "both"],
)
async def test_who_is_cancelled_gives_the_turn_to_the_next(gone: Callable[[Tasks], Tasks]) -> None:
    flood = Flood()
    await flood.start(ADA, MOST_RUNNING + 2)
    cancelled = gone(flood.tasks)
    for task in cancelled:
        task.cancel()
    flood.ends[0].set()
    await flood.end(MOST_RUNNING)
    assert flood.begun[-1] == MOST_RUNNING + 1
    await flood.end()
    assert [task.cancelled() for task in flood.tasks] == [task in cancelled for task in flood.tasks]


async def test_no_more_than_so_many_are_under_way() -> None:
    flood = Flood()
    await flood.start(ADA, MOST_UNDER_WAY)
    with pytest.raises(TooMany), flood.turns.under_way(ADA):
        pass
    with flood.turns.under_way(BOB):
        pass
    await flood.end()
    await asyncio.gather(*flood.tasks)
    with flood.turns.under_way(ADA):
        pass
