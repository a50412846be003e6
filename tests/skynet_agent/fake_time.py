"""Time that passes when a test says so."""

import asyncio
import heapq
from itertools import count


class FakeTime:
    """Seconds that only grow, by ``advance`` or, if it ``runs``, by whoever sleeps.

    ``pauses`` is what was slept for, in order.
    """

    def __init__(self, *, runs: bool = True) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []
        self._runs = runs
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self._runs:
            self.now_s += seconds
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + seconds, next(self._number), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass; who wakes up meanwhile runs at the time it wanted to."""
        until_s = self.now_s + seconds
        while self._sleepers and self._sleepers[0][0] <= until_s:
            self.now_s, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self.now_s = until_s
        await settle()


async def settle() -> None:
    """Let everything run that waits for nothing but its turn."""
    for _ in range(20):
        await asyncio.sleep(0)
