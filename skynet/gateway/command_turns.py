"""How many commands of one person are under way at a time: nobody's keep those of others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from skynet_memory.ids import UserId
from skynet_terminal.errors import TooMany

MOST_UNDER_WAY = 64
"""Commands of one person that run, wait for a yes, or for their turn."""
MOST_RUNNING = 8
"""Commands of one person that run to their end at the same time; more of them wait for their turn."""


@dataclass(eq=False, slots=True)
class _Person:
    under_way: int = 0
    running: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_RUNNING))


class CommandTurns:
    """What is known of a person is forgotten with the last of their commands."""

    def __init__(self) -> None:
        self._people: dict[UserId, _Person] = {}

    @contextmanager
    def under_way(self, user_id: UserId) -> Iterator[None]:
        """
        Raises:
            TooMany: so many are.
        """
        person = self._people.setdefault(user_id, _Person())
        if person.under_way >= MOST_UNDER_WAY:
            raise TooMany("commands", MOST_UNDER_WAY)
        person.under_way += 1
        try:
            yield
        finally:
            person.under_way -= 1
            if not person.under_way:
                del self._people[user_id]

    @asynccontextmanager
    async def running(self, user_id: UserId) -> AsyncIterator[None]:
        """To be used within :meth:`under_way`."""
        async with self._people[user_id].running:
            yield
