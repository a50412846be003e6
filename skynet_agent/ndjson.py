"""Lines of JSON, as bytes in and lines out."""

from __future__ import annotations

LIMIT_BYTES = 32 * 1024 * 1024


class LineDecoder:
    """Feed it the stream in pieces of any size; empty lines are left out."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes.

        Raises:
            ValueError: what was fed before left an unfinished line that is larger than the limit.
        """
        if self._size > self._limit:
            raise ValueError(f"a line is larger than {self._limit} bytes")
        end = data.rfind(b"\n") + 1
        if not end:
            if data:
                self._pieces.append(data)
                self._size += len(data)
            return []
        whole = b"".join([*self._pieces, data[:end]])
        self._pieces = [data[end:]] if end < len(data) else []
        self._size = len(data) - end
        return [line for line in whole.split(b"\n") if line.strip()]

    def close(self) -> list[bytes]:
        """The stream has ended. A last line without its end counts."""
        line = b"".join(self._pieces)
        self._pieces = []
        return [line] if line.strip() else []
