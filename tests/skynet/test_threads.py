import asyncio
import threading

import pytest

from skynet.threads import Stop, Stopped, in_thread
from tests.support.polling import until


async def test_the_result_comes_from_another_thread() -> None:
    assert await in_thread(lambda stop: threading.get_ident()) != threading.get_ident()


async def test_what_the_work_raises_is_raised() -> None:
    def work(stop: Stop) -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await in_thread(work)


async def test_work_that_nobody_waits_for_stops() -> None:
    began, ended = threading.Event(), threading.Event()

    def work(stop: Stop) -> None:
        began.set()
        try:
            while True:
                stop.check()
        except Stopped:
            ended.set()
            raise

    waiting = asyncio.create_task(in_thread(work))
    await until(began.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(ended.is_set)
