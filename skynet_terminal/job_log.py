"""Logs of jobs: files of a bounded size that keep the beginning and the end of an output.

A line with two numbers, the bytes that were written and half of what is kept, then the first half, then a ring with
the newest of what came after it. A place in the output keeps its offset, whatever was dropped before it.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skynet_terminal.capture import unfinished

log = logging.getLogger(__name__)

LEAST_READ: Final = 16
"""Bytes that are asked for at least: the longest character fits in."""
_HEADER: Final = "{:020d} {:012d}\n"
_HEADER_BYTES: Final = len(_HEADER.format(0, 0))


@dataclass(frozen=True, slots=True)
class LogPiece:
    """``data`` begins ``dropped`` bytes after the offset that was asked for and ends before ``cursor``."""

    data: bytes
    cursor: int
    dropped: int
    size: int
    """Of the whole output."""


class JobLog:
    """Writes one. The file is made with the first byte, readable for its owner alone, in a directory that exists.

    Never raises: when the disk is full, or fails, ``fault`` says so and nothing more is written.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.fault = ""
        self.size = 0
        """Bytes that are in the log or were in it."""
        self.unwritten = 0
        """Bytes that came after ``fault``."""
        self._path = path
        self._half = max(most_bytes // 2, 1)
        self._file: int | None = None

    def write(self, data: bytes) -> None:
        if self.fault:
            self.unwritten += len(data)
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._write(self._file, data)
        except OSError as exc:
            self.fault = exc.strerror or str(exc)
            self.unwritten += len(data)
            log.warning("the log %s cannot be written: %s", self._path, exc)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, file: int, data: bytes) -> None:
        size = self.size
        view = memoryview(data)
        if size < self._half:
            begin = view[: self._half - size]
            _pwrite(file, begin, _HEADER_BYTES + size)
            size += len(begin)
            view = view[len(begin) :]
        if len(view) > self._half:  # more than the ring holds
            size += len(view) - self._half
            view = view[-self._half :]
        while view:
            at = (size - self._half) % self._half
            piece = view[: self._half - at]
            _pwrite(file, piece, _HEADER_BYTES + self._half + at)
            size += len(piece)
            view = view[len(piece) :]
        _pwrite(file, _HEADER.format(size, self._half).encode(), 0)
        self.size = size


def log_size(path: Path) -> int:
    """Bytes of the whole output; 0 if there is no log."""
    try:
        with path.open("rb") as file:
            return _header(file.read(_HEADER_BYTES))[0]
    except FileNotFoundError:
        return 0


def read_log(path: Path, cursor: int, most: int, *, ended: bool) -> LogPiece:
    """What there is from the offset ``cursor`` on; below 0 it counts from the end.

    A character that is not complete yet is left for the next time, unless the job has ``ended``.

    Args:
        most: bytes, at least ``LEAST_READ``.
    """
    most = max(most, LEAST_READ)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return LogPiece(b"", 0, 0, 0)
    try:
        size, half = _header(os.pread(file, _HEADER_BYTES, 0))
        asked = max(size + cursor, 0) if cursor < 0 else min(cursor, size)
        ring = max(half, size - half)
        is_gap = ring > half
        start = max(asked, ring) if asked >= half else asked
        end = half if start < half and is_gap else size
        data = _pread(file, half, start, min(end - start, most))
    finally:
        os.close(file)
    skipped = 0
    if start > asked or cursor < 0:  # it may begin within a character
        while skipped < min(3, len(data)) and data[skipped] & 0xC0 == 0x80:
            skipped += 1
    is_last = start + len(data) == end and (ended or end < size)
    cut = 0 if is_last else unfinished(data)
    piece = data[skipped : len(data) - cut]
    return LogPiece(piece, start + len(data) - cut, start + skipped - asked, size)


def _header(line: bytes) -> tuple[int, int]:
    """A file whose first line could not be written is empty."""
    size, _, half = line.rstrip(b"\n").partition(b" ")
    return (int(size), int(half)) if size.isdigit() and half.isdigit() else (0, 1)


def _pread(file: int, half: int, start: int, count: int) -> bytes:
    pieces = []
    while count > 0:
        in_ring = (start - half) % half
        place = start if start < half else half + in_ring
        room = half - start if start < half else half - in_ring
        piece = os.pread(file, min(count, room), _HEADER_BYTES + place)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
        count -= len(piece)
    return b"".join(pieces)


def _pwrite(file: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        at += written
        view = view[written:]
