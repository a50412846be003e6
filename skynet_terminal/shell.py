"""One bash, in which a person's commands run one after the other.

How a command is told apart from what comes after it: bash reads a line that evaluates the command as one quoted word,
and then a line that reports its exit status after a random mark. Reports have a descriptor of their own (bash's
standard error, which is the output only while a command runs), so nothing that a command writes is taken for one; its
input is ``/dev/null``, and whatever it does to its three descriptors is undone with its end. A command that means to
can still break its own shell, with builtins that act on bash's saved descriptors: then that shell ends, at the latest
when the time is up, and the next command begins a new one. It is nobody else's.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
import time
from contextlib import suppress
from typing import IO, Final, NamedTuple

from skynet_terminal.capture import Capture, Captured
from skynet_terminal.commands import Live, OnOutput, how_ended
from skynet_terminal.errors import StartFailed
from skynet_terminal.processes import Program, running
from skynet_terminal.sandbox.base import Launch
from skynet_terminal.sandbox.process_tree import children_of

INTERRUPT_S: Final = 2.0
"""So long a command has to end after it was interrupted; then its shell is killed."""
PACE: Final = 16 * 1024**2
"""Bytes a second that are read of a shell, in which programs may write for ever."""
EARLIER_BYTES: Final = 32 * 1024
"""Of what was written between two commands: half of the beginning, half of the end."""

_AGAIN_S: Final = 0.25
_REPORT_BYTES: Final = 64 * 1024


class Ran(NamedTuple):
    output: Captured
    earlier: Captured
    status: int
    """The exit status, or the negative number of a signal that ended the shell."""
    cwd: str
    timed_out: bool
    duration_ms: int


class Shell:
    """``live`` is to be run as a task; a command can be run once ``started`` is there, one at a time."""

    def __init__(self, launch: Launch) -> None:
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.gone = asyncio.Event()
        """Nothing of it is left."""
        self.is_over = False
        """It has ended or is about to: no command is run in it any more."""
        self.overrun = ""
        self._launch = launch
        self._why = ""
        self._program: Program | None = None
        self._lines: _Lines | None = None
        self._wake = asyncio.Event()
        """It has reported, or ended."""
        self._mark = b""
        self._reports = bytearray()
        self._report: tuple[int, str] | None = None
        self._capture = _between()
        self._live: Live | None = None

    async def live(self) -> None:
        """Its whole life."""
        readable, writable = _pipe()
        self._lines = _Lines(writable)
        try:
            async with running(
                self._launch,
                stdin=readable,
                on_stdout=self._on_output,
                on_stderr=self._on_report,
                bytes_per_s=PACE,
            ) as program:
                readable.close()
                self._program = program
                if self.is_over:
                    program.kill()
                self.started.set_result(None)
                await program.ended.wait()
                self.is_over = True
                await program.drained()
                self.overrun = self._launch.overrun
        except StartFailed as exc:
            self.started.set_exception(exc)
        finally:
            readable.close()
            self._lines.close()

    def on_task_end(self, _task: asyncio.Task[None]) -> None:
        if not self.started.done():
            self.started.set_exception(StartFailed("the gateway was stopped"))
        self.is_over = True
        self.gone.set()
        self._wake.set()

    def kill(self, why: str) -> None:
        self._why = self._why or why
        self.is_over = True
        if self._program is not None:
            self._program.kill()

    def why_over(self) -> str:
        if self._why:
            return self._why
        code, signal_name = how_ended(self._returncode())
        how = f"by {signal_name}" if code is None else f"with exit code {code}"
        return f"the one before ended {how}" + (f" ({self.overrun})" if self.overrun else "")

    async def run(self, command: str, timeout_s: float, on_output: OnOutput | None) -> Ran:
        """Run one command, the only one at a time. Raises nothing of its own."""
        assert self._program is not None
        assert self._lines is not None
        self._program.stdout.take_rest()
        earlier, self._capture = self._capture.captured(), Capture()
        self._live = Live(on_output) if on_output is not None else None
        self._mark, self._report = secrets.token_hex(16).encode(), None
        if not self.is_over:
            self._wake.clear()
        older = _descendants(self._program.process.pid)
        begun = time.monotonic()
        timed_out = False
        try:
            self._lines.write(_lines(command, self._mark))
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                timed_out = True
                await self._interrupt(older)
            duration_ms = round((time.monotonic() - begun) * 1000)
            if self._report is None:
                await self.gone.wait()
                status, cwd = self._returncode(), ""
            else:
                self._program.stdout.take_rest()
                status, cwd = self._report
            return Ran(self._capture.captured(), earlier, status, cwd, timed_out, duration_ms)
        finally:
            self._capture = _between()
            if self._live is not None:
                self._live.close()
                self._live = None

    async def _interrupt(self, older: set[int]) -> None:
        """End what the command has started: by SIGINT, so that the shell stays, or else with the shell."""
        assert self._program is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(INTERRUPT_S):
                while not self._wake.is_set():
                    _signal(self._program.process.pid, older, signal.SIGINT)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_AGAIN_S):
                            await self._wake.wait()
        if self._report is None:
            self.kill("the one before was ended with its command, which ran out of time")
        else:
            _signal(self._program.process.pid, older, signal.SIGKILL)

    def _returncode(self) -> int:
        returncode = None if self._program is None else self._program.process.returncode
        return -signal.SIGKILL if returncode is None else returncode

    def _on_output(self, data: bytes) -> None:
        self._capture.write(data)
        if self._live is not None:
            self._live.write("stdout", data)

    def _on_report(self, data: bytes) -> None:
        """Whatever else bash writes there (traces, what it has read) says nothing."""
        self._reports += data
        if self._mark and self._report is None:
            _, mark, rest = bytes(self._reports).partition(self._mark + b"\0")
            status, first, rest = rest.partition(b"\0")
            cwd, second, _ = rest.partition(b"\0")
            if mark and first and second:
                self._report = (int(status) if status.isdigit() else 1, cwd.decode("utf-8", "replace"))
                self._reports.clear()
                self._wake.set()
        del self._reports[:-_REPORT_BYTES]


class _Lines:
    """What bash reads. It may be long, and is read byte by byte."""

    def __init__(self, writer: int) -> None:
        self._writer: int | None = writer
        os.set_blocking(writer, False)
        self._loop = asyncio.get_running_loop()
        self._left = b""

    def write(self, data: bytes) -> None:
        self._left += data
        self._go_on()

    def close(self) -> None:
        if self._writer is not None:
            self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = None

    def _go_on(self) -> None:
        if self._writer is None:
            return
        try:
            self._left = self._left[os.write(self._writer, self._left) :]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads it any more
            self._left = b""
        if self._left:
            self._loop.add_writer(self._writer, self._go_on)
        else:
            self._loop.remove_writer(self._writer)


def _pipe() -> tuple[IO[bytes], int]:
    reader, writer = os.pipe()
    return open(reader, "rb", buffering=0), writer  # noqa: PTH123 - closed by the one who hands it on


def _lines(command: str, mark: bytes) -> bytes:
    word = shlex.quote(command).encode("utf-8", "replace")
    # The group has the output as its standard error, the command inside also as its standard output
    run = b"{ \\builtin eval %b 1>&2; } </dev/null 2>&1\n" % word
    return run + b'\\builtin printf "%%s\\0" %b "$?" "$PWD" >&2\n' % mark


def _between() -> Capture:
    return Capture(EARLIER_BYTES // 2, EARLIER_BYTES // 2)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = [child for child in children_of(waiting.pop()) if child not in found]
        found.update(new)
        waiting += new
    return found


def _signal(pid: int, older: set[int], number: signal.Signals) -> None:
    """Send it to what runs below ``pid`` and is not one of ``older``. Numbers are used again, descriptors are not."""
    descriptors = {}
    for each in _descendants(pid) - older:
        with suppress(OSError):
            descriptors[each] = os.pidfd_open(each)
    still = _descendants(pid)
    for each, descriptor in descriptors.items():
        with suppress(OSError):
            if each in still:
                signal.pidfd_send_signal(descriptor, number)
        os.close(descriptor)
