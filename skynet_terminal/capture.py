"""What is kept of an output, however much it is: its beginning and its end, and how much was between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from skynet_terminal.plain import plain_text

HEAD_BYTES: Final = 256 * 1024
TAIL_BYTES: Final = 256 * 1024
LONGEST_TEXT: Final = 30_000
"""Characters of an output that models and people are given at once (SK-180)."""
LEAST_TEXT: Final = 500
"""The smallest limit that has room for the marker in its tenth."""

_LINE_BYTES: Final = 4096
_CONTINUATION: Final = bytes(range(0x80, 0xC0))


@dataclass(frozen=True, slots=True)
class Captured:
    """``head`` and ``tail`` are one piece if nothing was left out between them. Neither begins or ends within a
    character where something was left out."""

    head: bytes
    tail: bytes
    omitted_bytes: int
    omitted_characters: int

    @property
    def data(self) -> bytes:
        """What was kept, without a mark where something is missing."""
        return self.head + self.tail

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return len(self.head) + self.omitted_bytes + len(self.tail)

    def text(self, most: int = LONGEST_TEXT, *, plain: bool = True) -> str:
        """All of it in at most ``most`` characters (at least ``LEAST_TEXT``): if it is longer, 70 % of them are its
        beginning, 20 % its end, and a marker between tells how many characters are missing.

        Args:
            plain: as :func:`~skynet_terminal.plain.plain_text`, for models; otherwise as it was written, for people.
                Takes some ms for each 100 KB.
        """
        return self.shown(most, plain=plain).text

    def shown(self, most: int = LONGEST_TEXT, *, plain: bool = True) -> Shown:
        """As :meth:`text`, with how many characters are missing."""
        assert most >= LEAST_TEXT
        head_most, tail_most = most * 7 // 10, most // 5
        if not self.omitted_bytes:
            text = _decoded(self.data, plain)
            if len(text) <= most:
                return Shown(text, 0)
            return _joined(text[:head_most], len(text) - head_most - tail_most, text[-tail_most:])
        end, missing = self.tail, self.omitted_characters
        line_end = end.find(b"\n", 0, _LINE_BYTES) + 1
        if plain and line_end:  # it may begin within an escape sequence
            end, missing = end[line_end:], missing + _characters(end[:line_end])
        head, tail = _decoded(self.head, plain), _decoded(end, plain)
        missing += max(len(head) - head_most, 0) + max(len(tail) - tail_most, 0)
        return _joined(head[:head_most], missing, tail[-tail_most:])


class Shown(NamedTuple):
    """A text that may have a hole in its middle; ``omitted`` are the characters that are missing there."""

    text: str
    omitted: int


NOTHING: Final = Captured(b"", b"", 0, 0)


class Capture:
    """Takes an output piece by piece; holds at most ``head_bytes``, twice ``tail_bytes`` and a piece."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._omitted_bytes = 0
        self._omitted_characters = 0

    def write(self, data: bytes) -> None:
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_bytes:
            cut = len(self._tail) - self._tail_bytes
            self._omitted_bytes += cut
            self._omitted_characters += _characters(self._tail[:cut])
            del self._tail[:cut]

    def captured(self) -> Captured:
        """What was kept until now."""
        cut = max(len(self._tail) - self._tail_bytes, 0)
        if not self._omitted_bytes and not cut:
            return Captured(bytes(self._head), bytes(self._tail), 0, 0)
        end = len(self._head) - unfinished(self._head)
        begin = cut
        while begin < min(cut + 3, len(self._tail)) and self._tail[begin] & 0xC0 == 0x80:
            begin += 1
        return Captured(
            bytes(self._head[:end]),
            bytes(self._tail[begin:]),
            self._omitted_bytes + begin + len(self._head) - end,
            self._omitted_characters + _characters(self._tail[:begin]) + _characters(self._head[end:]),
        )


def unfinished(data: bytes | bytearray) -> int:
    """How many bytes at the end of ``data`` are the beginning of a UTF-8 character that goes on: 0 to 3."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if 0xC2 <= byte < 0xE0 else 3 if 0xE0 <= byte < 0xF0 else 4 if 0xF0 <= byte < 0xF5 else 1
        return back if length > back else 0
    return 0


def _characters(data: bytes | bytearray) -> int:
    """Of UTF-8; what is none counts about as much as it becomes."""
    return len(data) if data.isascii() else len(data.translate(None, _CONTINUATION))


def _joined(head: str, missing: int, tail: str) -> Shown:
    return Shown(f"{head}\n[… {missing} characters left out …]\n{tail}", missing)


def _decoded(data: bytes, plain: bool) -> str:
    return plain_text(data) if plain else data.decode("utf-8", "replace")
