"""Server-sent events, as bytes in and events out (WHATWG HTML 9.2.6).

``id`` and ``retry`` fields are for reconnecting clients and are ignored.
"""

from __future__ import annotations

from typing import NamedTuple

LIMIT_BYTES = 32 * 1024 * 1024


class SseEvent(NamedTuple):
    data: bytes
    name: str = ""
    """The ``event`` field; empty when there was none."""


class SseDecoder:
    """Feed it the stream in pieces of any size; a piece may end inside a line, a CRLF or a character."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []  # of the line that has no end yet
        self._data: list[bytes] = []  # of the event that has no end yet
        self._name = ""
        self._line_size = 0
        self._data_size = 0  # a line counts one more than it holds: empty ones take memory too
        self._skip_lf = False
        self._at_start = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that ``data`` completes.

        Raises:
            ValueError: what was fed before left an unfinished event that is larger than the limit.
        """
        if self._skip_lf and data:
            self._skip_lf = False
            if data[0] == 0x0A:
                data = data[1:]
        if self._line_size + self._data_size > self._limit:
            raise ValueError(f"an event is larger than {self._limit} bytes")
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            if data:
                self._pieces.append(data)
                self._line_size += len(data)
            return []
        lines = (b"".join([*self._pieces, data[:end]]) if self._pieces else data[:end]).splitlines()
        self._skip_lf = data[-1] == 0x0D
        self._pieces = [data[end:]] if end < len(data) else []
        self._line_size = len(data) - end
        return self._read(lines)

    def close(self) -> list[SseEvent]:
        """The stream has ended. An event without its closing blank line counts: servers do forget it."""
        lines = [b"".join(self._pieces), b""] if self._pieces else [b""]
        self._pieces = []
        return self._read(lines)

    def _read(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        for line in lines:
            if not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(SseEvent(data, self._name))
                    self._data = []
                    self._data_size = 0
                self._name = ""
            elif line.startswith(b"data: "):
                self._add(line[6:])
            elif line.startswith(b"data:"):
                self._add(line[5:])
            elif line == b"data":
                self._add(b"")
            elif line.startswith(b"event:"):
                self._name = line[6:].decode("utf-8", "replace").removeprefix(" ")
        return events

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._data_size += len(data) + 1
