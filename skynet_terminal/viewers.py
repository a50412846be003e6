"""Those who look at a terminal: each is given what it writes at its own pace, out of what is kept of it."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

from skynet_terminal.modes import RESET
from skynet_terminal.replay import Ring

PIECE_BYTES = 32_768
"""The most that a viewer is given at once."""
_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What a terminal wrote between two positions."""

    text: str
    """What is no UTF-8 is replaced. Never ends inside a character."""
    cursor: int
    """The position after it."""
    dropped: int
    """So many bytes before it were written and are kept no more."""
    ended: bool
    """Nothing comes after it."""


class Watched(Protocol):
    """What a viewer looks at."""

    @property
    def ring(self) -> Ring: ...

    @property
    def running(self) -> bool:
        """Whether it may still write."""

    async def changed(self) -> None:
        """Return when it has written or ended."""

    async def repaint(self) -> None:
        """Have the program draw what a replay would lack."""

    def viewer_moved(self) -> None:
        """A viewer has taken what it was given."""

    def detach(self, viewer: Viewer) -> None: ...


def chunk_of(ring: Ring, cursor: int, most_bytes: int, *, ended: bool) -> Chunk:
    """At most ``most_bytes`` from ``cursor`` on, with empty text if nothing whole is there."""
    data, _end, dropped = ring.since(cursor)
    begin = cursor + dropped
    most_bytes = max(most_bytes, _CHARACTER_BYTES)
    all_of_it = ended and len(data) <= most_bytes
    text, consumed = codecs.utf_8_decode(data[:most_bytes], "replace", all_of_it)
    return Chunk(text=text, cursor=begin + consumed, dropped=dropped, ended=all_of_it)


def prefixed(chunk: Chunk, prefix: bytes) -> Chunk:
    """The chunk with a text that begins with control sequences which the terminal did not write there."""
    return replace(chunk, text=prefix.decode("utf-8", "replace") + chunk.text) if prefix else chunk


class Viewer:
    """An async iterator over the chunks of one terminal: what is kept of it, what it writes, and its end.

    The program is held back while a viewer is behind, which it is until it asks for what comes after a chunk. One that
    is behind for too long is held no more: what it misses is ``dropped`` of its next chunk, whose text then begins
    with what makes its screen new.
    """

    def __init__(self, watched: Watched, cursor: int | None) -> None:
        self.patient = True
        """Whether the program waits for it."""
        self._watched = watched
        self._prefix = b""
        # None until the replay begins.
        self._cursor = self._taken = cursor
        self._attached = True

    @property
    def behind_bytes(self) -> int:
        return 0 if self._taken is None else self._watched.ring.end - self._taken

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()

    def detach(self) -> None:
        """It looks no more: the iteration ends. Idempotent."""
        if self._attached:
            self._attached = False
            self._watched.detach(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._cursor is None:
            await self._watched.repaint()
            self._watched.ring.begin_at_a_position()
            self._cursor = self._taken = self._watched.ring.start
            self._prefix = self._watched.ring.prefix()
        if self._taken != self._cursor:
            self._taken = self._cursor
            self._watched.viewer_moved()
        while self._attached:
            chunk = chunk_of(self._watched.ring, self._cursor, PIECE_BYTES, ended=not self._watched.running)
            if chunk.text or chunk.dropped or chunk.ended:
                return self._given(chunk)
            await self._watched.changed()
        raise StopAsyncIteration

    def _given(self, chunk: Chunk) -> Chunk:
        self._cursor = chunk.cursor
        if chunk.dropped:
            self._prefix = RESET + self._watched.ring.prefix()
        chunk, self._prefix = prefixed(chunk, self._prefix), b""
        if chunk.ended:
            self.detach()
        return chunk
