"""What happens between a terminal's descriptor and the loop: what is typed, and how much of the loop reading takes."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from skynet_terminal.errors import InputRefused

INPUT_BYTES: Final = 1024 * 1024
"""The most that waits for a program that does not read."""

_WRITE_BYTES: Final = 65_536


class LoopShare:
    """How much of the loop's time reading floods may take, over all terminals."""

    def __init__(self, share: float = 0.25) -> None:
        self._share = share
        self._free_at = 0.0

    def rest_s(self, now: float, spent_s: float) -> float:
        """How long who has spent ``spent_s`` until ``now`` has to leave the loop to others."""
        self._free_at = max(self._free_at, now) + spent_s / self._share
        return self._free_at - now


class Typing:
    """What was typed and the program does not read yet.

    Args:
        master: the terminal's descriptor, which does not block. It stays the owner's to close, after ``close``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, master: int) -> None:
        self._loop = loop
        self._master = master
        self._data = bytearray()
        self._is_waiting = False

    def write(self, data: bytes) -> None:
        """
        Raises:
            InputRefused: more than ``INPUT_BYTES`` would wait. Nothing of it was taken.
        """
        if len(self._data) + len(data) > INPUT_BYTES:
            raise InputRefused(len(self._data), INPUT_BYTES)
        self._data += data
        if not self._is_waiting:
            self._on_writable()

    def close(self) -> None:
        """Forget what waits."""
        self._data.clear()
        if self._is_waiting:
            self._on_writable()

    def _on_writable(self) -> None:
        try:
            while self._data:
                del self._data[: os.write(self._master, bytes(self._data[:_WRITE_BYTES]))]
        except BlockingIOError:
            pass
        except OSError:  # it has ended: whoever writes next is told
            self._data.clear()
        if bool(self._data) != self._is_waiting:
            self._is_waiting = not self._is_waiting
            if self._is_waiting:
                self._loop.add_writer(self._master, self._on_writable)
            else:
                self._loop.remove_writer(self._master)
