import asyncio

import pytest

from skynet.supervisor import Supervisor


async def test_leaving_cancels_what_still_runs() -> None:
    cancelled = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with Supervisor() as tasks:
        tasks.start(forever(), name="forever")
        await asyncio.sleep(0)
    assert cancelled.is_set()
    assert len(tasks) == 0


async def test_a_failing_task_is_logged_and_takes_nothing_down(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    async def works() -> str:
        return "fine"

    async with Supervisor() as tasks:
        tasks.start(fails(), name="the failing one")
        assert await tasks.start(works(), name="works") == "fine"
        await asyncio.sleep(0)
    assert "the failing one" in caplog.text
    assert "broken" in caplog.text


async def test_nothing_starts_once_it_closes() -> None:
    async def late() -> None:
        raise AssertionError("must not run")

    tasks = Supervisor()
    async with tasks:
        pass
    with pytest.raises(RuntimeError, match="shutting down"):
        tasks.start(late(), name="late")
