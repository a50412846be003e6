"""One's own terminal, given over to a program that runs elsewhere, and back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from skynet.cli.errors import CliError, Exit
from skynet.cli.screen_modes import ScreenModes

READ_BYTES = 65_536
MOST_TYPED_BYTES = 1024 * 1024
"""What is typed or pasted waits in the terminal once so much of it is still to be sent."""


class Tty:
    """Standard input and output while they are raw. Made by :func:`raw_tty`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self.loop.create_future()
        """The exit code, once this side has a reason to leave: a signal, or nobody is there any more."""
        self.news = asyncio.Event()
        """Something was typed, or the size is another."""
        self.resized = False
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._typed = bytearray()
        self._modes = ScreenModes()
        self._reading = False

    def read(self) -> None:
        """Take what is typed from now on."""
        if not self._reading:
            self._reading = True
            self.loop.add_reader(self._input, self._on_input)

    def stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.loop.remove_reader(self._input)

    def take(self) -> bytes:
        """What was typed since the last time."""
        typed = bytes(self._typed)
        self._typed.clear()
        self.read()
        return typed

    def show(self, text: str) -> None:
        """Write what the program has written. Waits for the terminal, and so does everything else meanwhile: the
        gateway sends no more than is read, and the program writes no more than is sent."""
        self._modes.feed(text)
        try:
            left = memoryview(text.encode("utf-8", "replace"))
            while left:
                left = left[os.write(self._output, left) :]
        except OSError:
            self.leave(Exit.FAILED)

    def restore(self) -> None:
        with suppress(OSError):
            os.write(self._output, self._modes.undo().encode())

    def leave(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    def on_resize(self) -> None:
        self.resized = True
        self.news.set()

    def _on_input(self) -> None:
        try:
            data = os.read(self._input, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self.stop_reading()
            self.leave(128 + signal.SIGHUP)
            return
        self._typed += data
        if len(self._typed) >= MOST_TYPED_BYTES:
            self.stop_reading()
        self.news.set()


@contextmanager
def raw_tty() -> Iterator[Tty]:
    """Give every key to whoever reads :class:`Tty`. The terminal is as before when the block is left, however that
    happens; SIGTERM, SIGHUP and SIGINT from elsewhere end the program in order.

    Raises:
        CliError: standard input or output is no terminal.
    """
    require_tty()
    own = Tty()
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    signals: dict[signal.Signals, Callable[[], None]] = {
        number: partial(own.leave, 128 + number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    signals[signal.SIGWINCH] = own.on_resize
    handlers = {number: signal.getsignal(number) for number in signals}
    try:
        for number, act in signals.items():
            own.loop.add_signal_handler(number, act)
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield own
    finally:
        own.stop_reading()
        own.restore()
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            own.loop.remove_signal_handler(number)
            signal.signal(number, handler)


def require_tty() -> None:
    """
    Raises:
        CliError: standard input or output is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CliError(
            "this needs a terminal", exit_code=Exit.USAGE, code="no_terminal", hint="use: skynet exec COMMAND"
        )


def tty_size() -> tuple[int, int]:
    """Columns and rows, of those that a terminal can have."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return max(1, min(1000, size.columns)), max(1, min(1000, size.lines))


def detach_key(text: str) -> bytes:
    """The byte of a key: ``^]`` for Ctrl-], ``none`` for no key.

    Raises:
        CliError: it is neither.
    """
    if text.lower() == "none":
        return b""
    if len(text) == 2 and text[0] == "^" and "@" < text[1].upper() <= "_":
        return bytes([ord(text[1].upper()) & 0x1F])
    raise CliError(
        f"{text!r} is no key to detach with",
        exit_code=Exit.USAGE,
        code="usage",
        hint="for example ^] for Ctrl-], or none",
    )
