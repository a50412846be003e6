"""How often a provider may be asked: so many requests in any minute, the others wait their turn (BA-071)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from skynet_agent.errors import RateLimited

WINDOW_S = 60.0


class Window:
    """The beginnings of the last minute. Pure; a sliding window, so that no minute whatever has more than ``most``."""

    def __init__(self, most: int, clock: Callable[[], float], *, window_s: float = WINDOW_S) -> None:
        if most < 1:
            raise ValueError(f"{most} requests in {window_s:g} s; at least 1 has to be allowed")
        self.most = most
        self._clock = clock
        self._window_s = window_s
        self._begun: deque[float] = deque(maxlen=most)

    def wait_s(self) -> float:
        """Seconds until one more may begin; 0 if it may now."""
        if len(self._begun) < self.most:
            return 0.0
        return max(0.0, self._begun[0] + self._window_s - self._clock())

    def begin(self) -> None:
        """One begins now."""
        self._begun.append(self._clock())


class Limiter:
    """The queue in front of a provider, first come, first served. Whoever is cancelled leaves it.

    As many may wait as may begin in a minute, so that nobody waits longer than about that.

    Args:
        provider: its name, for those who are turned away.
        per_minute: so many requests may begin in any minute.
        clock: seconds that only grow.
        sleep: waits for so many seconds.
    """

    def __init__(
        self, provider: str, per_minute: int, *, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._provider = provider
        self._window = Window(per_minute, clock)
        self._sleep = sleep
        self._first = asyncio.Lock()  # held by the first of the queue; asyncio's locks keep the order
        self.waiting = 0
        """Requests in the queue."""

    async def turn(self) -> None:
        """Return when one more request may begin, which it then has.

        Raises:
            RateLimited: the queue is full.
        """
        if self.waiting >= self._window.most:
            raise RateLimited(
                f"{self._provider}: {self._window.most} requests may begin in a minute, and as many wait already",
                provider=self._provider,
                retry_after_s=self._window.wait_s(),
            )
        self.waiting += 1
        try:
            async with self._first:
                while wait_s := self._window.wait_s():
                    await self._sleep(wait_s)
                self._window.begin()
        finally:
            self.waiting -= 1
