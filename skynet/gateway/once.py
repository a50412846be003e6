"""What is asked for twice is done once: requests that carry an idempotency key."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from skynet.supervisor import Supervisor
from skynet_memory.ids import UserId

T = TypeVar("T")

KEPT_S = 600.0
KEPT_EACH = 8
"""Answers that are kept of one person; older ones are forgotten first."""


class Once(Generic[T]):
    """Answers by person and key, for ten minutes, as long as the gateway runs. Whoever asks again while it is still
    under way gets the same answer; what was begun goes on though nobody waits for it any more."""

    def __init__(self, tasks: Supervisor, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = tasks
        self._clock = clock
        self._answers: dict[UserId, OrderedDict[str, tuple[float, asyncio.Task[T | Exception]]]] = {}

    async def answer(self, owner: UserId, key: str, begin: Callable[[], Awaitable[T]]) -> T:
        """What ``begin`` came to, now or the first time. Raises what it raised."""
        self._expire()
        kept = self._answers.setdefault(owner, OrderedDict())
        if key not in kept:
            kept[key] = self._clock(), self._tasks.start(_outcome(begin), name="once")
            self._make_room(kept)
        outcome = await asyncio.shield(kept[key][1])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def stop_person(self, owner: UserId) -> None:
        """End what somebody has under way, and forget all that was answered."""
        for _, task in self._answers.pop(owner, OrderedDict()).values():
            task.cancel()

    def _make_room(self, kept: OrderedDict[str, tuple[float, asyncio.Task[Any]]]) -> None:
        for key in [key for key, (_, task) in kept.items() if task.done()][: max(0, len(kept) - KEPT_EACH)]:
            del kept[key]

    def _expire(self) -> None:
        now = self._clock()
        for owner, kept in list(self._answers.items()):
            for key, (began, task) in list(kept.items()):
                if task.done() and now - began > KEPT_S:
                    del kept[key]
            if not kept:
                del self._answers[owner]


async def _outcome(begin: Callable[[], Awaitable[T]]) -> T | Exception:
    try:
        return await begin()
    except Exception as exc:
        return exc
