"""Work that blocks, in a thread, and stops when nobody waits for it any more."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 - nobody is left who would take it for an error
    """Nobody waits for this work any more; whoever works lets it through."""


class Stop:
    """What work looks at now and then, to end early."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """
        Raises:
            Stopped: the work is not wanted any more.
        """
        if self._event.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], T]) -> T:
    """The result of ``work`` in a thread of the loop's own.

    Cancelling it returns at once and tells the thread, which ends at its next check.
    """
    stop = Stop()
    try:
        return await asyncio.to_thread(work, stop)
    except asyncio.CancelledError:
        stop.set()
        raise
