"""Many terminals opened, flooded, detached and killed: everything is where it was."""

import asyncio
import gc
import threading
from pathlib import Path

import psutil
import uvloop

from tests.support.polling import until
from tests.support.terminals import Place, Watcher, place

TERMINALS = 200
BATCH = 10
MEMORY_BYTES = 24 * 1024 * 1024
FLOOD = ["sh", "-c", "yes 'flood of words' & exec yes"]


async def one(there: Place, number: int) -> None:
    """Flooded, looked at by two who go in the middle of it, and ended in one of the ways that there are."""
    terminal = await there.open(FLOOD, owner=f"person {number}")
    first, second = Watcher(terminal.attach()), terminal.attach()
    await anext(second)
    await until(lambda: len(first.text) > 20_000)
    await first.close()
    second.detach()
    terminal.write(b"typed\n")
    await until(lambda: terminal.ring.end > 200_000)
    if number % 4 == 0:
        terminal.kill()
    elif number % 4 == 1:
        terminal.send_signal("INT")
    elif number % 4 == 2:
        await terminal.close(0.2)
    else:
        await there.terminals.close_person(terminal.owner)
    await terminal.ended.wait()
    await there.terminals.close_person(terminal.owner)


def counts() -> tuple[int, int, int, int]:
    process = psutil.Process()
    return process.num_fds(), len(process.children(recursive=True)), threading.active_count(), len(asyncio.all_tasks())


async def soak(folder: Path) -> None:
    async with place(folder) as there:

        async def batch(first: int) -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(first, first + BATCH):
                    group.create_task(one(there, number))

        await batch(0)
        await until(lambda: counts()[1] == 0)
        gc.collect()
        before, memory = counts(), psutil.Process().memory_info().rss
        for first in range(0, TERMINALS, BATCH):
            await batch(first)
        await until(lambda: counts() == before, f"descriptors, children, threads and tasks are {before} again")
        gc.collect()
        grown = psutil.Process().memory_info().rss - memory
        assert grown < MEMORY_BYTES, f"{grown} bytes more than before"
    await until(lambda: counts()[1] == 0)


def test_two_hundred_terminals_leave_nothing(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(soak(tmp_path / "files"))
