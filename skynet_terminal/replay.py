"""What a terminal wrote last: bytes with positions, from which a viewer that comes late gets its screen.

A position (cursor) is the number of bytes that were written before it. It never goes back.
"""

from __future__ import annotations

import re

from skynet_terminal.modes import CLEARED, MAIN_SCREEN, POSITIONED, Modes

RING_BYTES = 131_072
"""The most that is kept of one terminal (SK-174)."""
SMALLEST_BYTES = 64
_NEAR_BYTES = 4096

# Where text stops: escape sequences, and the two controls that switch the character set.
_SPECIAL_BYTES = b"\x1b\x0e\x0f"
_SPECIAL = re.compile(rb"[\x1b\x0e\x0f]")
# Sequences as ECMA-48 and the VT500 parser have them: CAN and SUB end each of them at once, ESC begins another, other
# controls inside are carried out and end nothing.
_BEGIN = rb"\x1b[\x00-\x17\x19\x1c-\x1f\x7f]{0,8}+"
_STRAY = rb"(?=[\x00-\x17\x19\x1b-\x1f\x7f-\xff])"
_ENDS = {
    b"[": rb"(?:[\x40-\x7e\x18\x1a]|(?=[\x1b\x80-\xff]))",
    b"]": rb"(?:[\x07\x18\x1a]|\x1b\\|(?=\x1b[^\\]))",
    b"P": rb"(?:[\x18\x1a]|\x1b\\|(?=\x1b[^\\]))",
    b" ": rb"(?:[\x30-\x7e\x18\x1a]|(?=[\x1b\x80-\xff]))",
}
_SEQUENCE = re.compile(
    _BEGIN
    + rb"(?:"
    + rb"|".join(
        (
            rb"\[[\x00-\x17\x19\x1c-\x3f\x7f]*+" + _ENDS[b"["],
            rb"\][^\x07\x18\x1a\x1b]*+" + _ENDS[b"]"],
            rb"[PX^_][^\x18\x1a\x1b]*+" + _ENDS[b"P"],
            rb"[\x20-\x2f][\x00-\x17\x19\x1c-\x2f\x7f]*+" + _ENDS[b" "],
            rb"[\x30-\x4f\x51-\x57\x59\x5a\x5c\x60-\x7e\x18\x1a]",
            _STRAY,
        )
    )
    + rb")"
)
_KIND = re.compile(_BEGIN + rb"([\[\]PX^_\x20-\x2f])")
_END_OF = {kind: re.compile(end) for kind, end in _ENDS.items()}


class Ring:
    """The last ``most_bytes`` of what was written, and the modes that were in force before them. Pure."""

    def __init__(self, most_bytes: int = RING_BYTES) -> None:
        if most_bytes < SMALLEST_BYTES:
            raise ValueError(f"most_bytes is {most_bytes}, at least {SMALLEST_BYTES} are needed")
        self._most_bytes = most_bytes
        self._data = bytearray()
        self._start = 0
        self._modes = Modes()
        # Up to here the modes are followed: a place between two characters or sequences at or soon after the start,
        # or inside the sequence of kind _inside, which began before the start.
        self._followed = 0
        self._inside = b""

    def __len__(self) -> int:
        return len(self._data)

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self._start + len(self._data)

    @property
    def start(self) -> int:
        """The position that a replay begins at: never inside a character or an escape sequence."""
        if self._inside:
            end = _END_OF[self._inside].search(self._data, self._followed - self._start)
            return self.end if end is None else self._start + end.end()
        return self._followed

    @property
    def screen_lost(self) -> bool:
        """Whether a screen may need what was dropped: a program has drawn more than is kept since it last cleared."""
        start = self.start
        if not start:
            return False
        kept = bytes(memoryview(self._data)[start - self._start :])
        if CLEARED.search(kept) or MAIN_SCREEN.search(kept):
            return False
        return self._modes.alternate or POSITIONED.search(kept) is not None

    def feed(self, data: bytes) -> None:
        """``data`` was written; the oldest is dropped where it is more than fits."""
        self._data += data
        excess = len(self._data) - self._most_bytes
        if excess > 0:
            self._follow(excess)
            del self._data[:excess]
            self._start += excess

    def since(self, cursor: int) -> tuple[bytes, int, int]:
        """What was written from ``cursor`` on.

        Returns:
            The bytes, the position after them, and how many bytes before them are lost. Where bytes are lost, they
            begin at ``start``.

        Raises:
            ValueError: so much was not written yet.
        """
        if not 0 <= cursor <= self.end:
            raise ValueError(f"cursor is {cursor}, {self.end} bytes were written")
        begin = cursor if cursor >= self._start else self.start
        return bytes(memoryview(self._data)[begin - self._start :]), self.end, begin - cursor

    def begin_at_a_position(self) -> None:
        """Let ``start`` be where a full-screen program next says where it draws: text before that would be anywhere.

        Unless that is far away.
        """
        begin = self.start - self._start
        if self._inside or not self.start or not self._modes.alternate:
            return
        near = bytes(memoryview(self._data)[begin : begin + _NEAR_BYTES])
        found = [match.start() for pattern in (POSITIONED, CLEARED, MAIN_SCREEN) if (match := pattern.search(near))]
        if found:
            self._follow(begin + min(found))

    def prefix(self) -> bytes:
        """What puts a new terminal into the modes in force at ``start``."""
        return self._modes.prefix() if self.start else b""

    def replay(self) -> bytes:
        """What makes a new terminal like the one that got all of it."""
        return self.prefix() + self.since(self.start)[0]

    def _follow(self, goal: int) -> None:
        """Follow the modes up to the index ``goal`` of the data, or as far beyond it as what is there reaches."""
        data = self._data
        at = self._followed - self._start
        if at < goal and self._inside:
            end = _END_OF[self._inside].search(data, at)
            if end is None:
                at = goal
            else:
                at, self._inside = end.end(), b""
        # Floods are plain text mostly, and looking for one byte is ten times as fast as for one of several.
        any_special = any(data.find(byte, at, goal) >= 0 for byte in _SPECIAL_BYTES)
        while at < goal:
            special = _SPECIAL.search(data, at, goal) if any_special else None
            if special is None:
                at = _between_characters(data, at, goal)
                break
            at = special.start()
            if data[at] != 0x1B:
                self._modes.apply(special.group())
                at += 1
                continue
            sequence = _SEQUENCE.match(data, at)
            if sequence is None:
                kind = _KIND.match(data, at)
                assert kind is not None  # since SMALLEST_BYTES follow
                self._inside = b"P" if kind[1] in b"PX^_" else kind[1] if kind[1] in b"[]" else b" "
                at = goal
            else:
                self._modes.apply(sequence.group())
                at = sequence.end()
        self._followed = self._start + at


def _between_characters(data: bytearray, first: int, index: int) -> int:
    """The index, or the one after the UTF-8 character that it is in, which does not begin before ``first``."""
    for back in (1, 2, 3):
        if index - back < first or data[index - back] < 0x80:
            break
        if data[index - back] >= 0xC0:
            length = 2 if data[index - back] < 0xE0 else 3 if data[index - back] < 0xF0 else 4
            while back < length and index < len(data) and 0x80 <= data[index] < 0xC0:
                back, index = back + 1, index + 1
            break
    return index
