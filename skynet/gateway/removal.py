"""What is left of somebody who was removed, beyond the rows that go with them: words in search indexes, and files."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import UserId, now_ms
from skynet_memory.memories import MemoryStore
from skynet_memory.search import TranscriptSearch

log = logging.getLogger(__name__)


class Removal:
    """
    Args:
        folders: where everybody's folder is, by id.
        jobs: ends somebody's jobs, and removes what they wrote.
    """

    def __init__(
        self,
        memories: MemoryStore,
        search: TranscriptSearch,
        folders: Path,
        *,
        jobs: Callable[[UserId], Awaitable[None]],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._memories = memories
        self._search = search
        self._folders = folders
        self._jobs = jobs
        self._clock = clock

    async def clean_up(self, user_id: UserId) -> None:
        """Erase what a person left. They are gone already, so what cannot be done now is done by the hourly sweep, and
        said in the log.
        """
        try:
            await self._memories.sweep(self._clock())
            await self._search.tidy()
            await self._jobs(user_id)
        except StorageUnavailable as exc:
            log.warning("the words of %s are erased later: %s", user_id, exc)
        folder = self._folders / user_id
        if folder.parent != self._folders:
            raise ValueError(f"{user_id!r} is no id")
        try:
            await asyncio.to_thread(shutil.rmtree, folder)
        except FileNotFoundError:  # they never had one
            pass
        except OSError as exc:
            log.error("the files of %s cannot be removed, remove them by hand: %s", user_id, exc)
