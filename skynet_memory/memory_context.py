"""What is remembered about a person, as a text for the model's prompt."""

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from skynet_memory.ids import UserId
from skynet_memory.memories import Memory, MemoryStore
from skynet_memory.memory_gate import one_line

MAX_CHARACTERS: Final = 6_000
CACHED_MS: Final = 5 * 60 * 1000
MAX_PEOPLE: Final = 256
"""Whose texts are kept; the longest unused is dropped."""
_READ: Final = 300
"""Memories of a category that are read; so many of the shortest that occur fill the text."""

_HEADINGS: Final = {
    "instruction": "Instructions:",
    "preference": "Preferences:",
    "fact": "Facts:",
    "context": "Context:",
}
_BRACKETS: Final = str.maketrans("<>", "‹›")


@dataclass(frozen=True, slots=True)
class _Cached:
    text: str
    version: int
    until_ms: float


class ContextCache:
    """The texts of the people that were last asked for, each for five minutes, or until something changes."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._cached: OrderedDict[UserId, _Cached] = OrderedDict()

    async def render(self, owner: UserId, now_ms: int) -> str:
        """At most ``MAX_CHARACTERS``; empty if nothing is known. The same memories always give the same text.

        Instructions come first, then preferences, facts and context; in each the most important first, of equal ones
        the newest. One memory is one line of printable characters without angle brackets, and is there whole or not at
        all: one that does not fit is left out, and shorter ones after it may still be in. Expired ones are not in.
        """
        version = self._store.version(owner)
        cached = self._cached.get(owner)
        if cached is not None and cached.version == version and now_ms < cached.until_ms:
            self._cached.move_to_end(owner)
            return cached.text
        memories = await self._store.most_important(owner, _READ, now_ms)
        until_ms = min((memory.expires_at_ms or math.inf for memory in memories), default=math.inf)
        text = render(memories)
        # What changed while it was read has another version, and is read again by whoever asks next
        self._cached[owner] = _Cached(text, version, min(until_ms, now_ms + CACHED_MS))
        self._cached.move_to_end(owner)
        if len(self._cached) > MAX_PEOPLE:
            self._cached.popitem(last=False)
        return text

    def forget(self, owner: UserId) -> None:
        """Drop a removed person's text now."""
        self._cached.pop(owner, None)


def render(memories: Iterable[Memory]) -> str:
    """The text of ``memories``, which come in the order in which they are wanted."""
    lines: list[str] = []
    room, heading = MAX_CHARACTERS, ""
    for memory in memories:
        line = f"- {one_line(memory.key)}: {one_line(memory.value)}".translate(_BRACKETS)
        added = [line] if memory.category == heading else [_HEADINGS[memory.category], line]
        needed = sum(len(text) + 1 for text in added)
        if needed <= room + 1:  # the last line has no end
            lines += added
            room -= needed
            heading = memory.category
    return "\n".join(lines)
