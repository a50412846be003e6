"""Forgets what is over, every hour."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from skynet.gateway.approvals import Approvals
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import now_ms
from skynet_memory.memories import MemoryStore
from skynet_memory.search import TranscriptSearch
from skynet_memory.turns import TurnStore

log = logging.getLogger(__name__)

INTERVAL_S = 3600.0


class Sweep:
    """Idempotency keys that are older than a day, questions that nobody decided, memories that have expired, and the
    words of conversations that were erased."""

    def __init__(
        self,
        turns: TurnStore,
        approvals: Approvals,
        memories: MemoryStore,
        search: TranscriptSearch,
        *,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._parts: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: turns.sweep(clock()),
            approvals.expire,
            lambda: memories.sweep(clock()),
            search.tidy,
        )

    async def keep_on(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.once()

    async def once(self) -> None:
        """What the storage refuses waits for the next time."""
        for part in self._parts:
            try:
                await part()
            except StorageUnavailable as exc:
                log.warning("not everything that is over could be forgotten: %s", exc)
