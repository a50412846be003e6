"""Persistent shells: one bash for each person and session, in which directory, variables and functions stay.

How a command is told apart from what comes after it: bash reads a line that evaluates the command as one quoted word,
and then a line that reports its exit status after a random mark. Reports have a descriptor of their own (bash's
standard error, which is the output only while a command runs), so nothing that a command writes is taken for one; its
input is ``/dev/null``, and whatever it does to its three descriptors is undone with its end. A command that means to
can still break its own shell, with builtins that act on bash's saved descriptors: then that shell ends, at the latest
when the time is up, and the next command begins a new one. It is nobody else's.

What a policy cannot know when it is asked about one command: earlier ones may have defined functions and aliases,
changed ``PATH`` or the directory, and set traps. A name in a command is then not the program that it seems to be.
Whatever it is runs in the same sandbox.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Final, NamedTuple, Self, TypeAlias

from skynet_memory.ids import UserId
from skynet_terminal.capture import NOTHING, Capture, Captured
from skynet_terminal.commands import CommandResult, Live, OnOutput, how_ended
from skynet_terminal.errors import StartFailed, TooMany
from skynet_terminal.jobs import TaskOwner
from skynet_terminal.processes import Program, running
from skynet_terminal.sandbox.base import Launch
from skynet_terminal.sandbox.process_tree import children_of

log = logging.getLogger(__name__)

ARGV: Final = ("bash", "--noprofile", "--norc")
"""What ``make_launch`` prepares."""
TIMEOUT_S: Final = 60.0
IDLE_S: Final = 1800.0
INTERRUPT_S: Final = 2.0
"""So long a command has to end after it was interrupted; then its shell is killed."""
PACE: Final = 16 * 1024**2
"""Bytes a second that are read of a shell, in which programs may write for ever."""
EARLIER_BYTES: Final = 32 * 1024
"""Of what was written between two commands: half of the beginning, half of the end."""
FORGOTTEN: Final = 500
"""Sessions without a shell of which is known why they have none."""

_AGAIN_S: Final = 0.25
_REPORT_BYTES: Final = 64 * 1024

MakeLaunch: TypeAlias = Callable[[], Awaitable[Launch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult(CommandResult):
    """How a command in a shell ended. Both streams are one: ``stdout`` and ``output`` are the same, in order."""

    notice: str
    """What happened to the shell, for the model and the person: that it is a new one, that it has ended."""
    cwd: str
    """The directory that the shell is in, as commands see it; "" if it has ended."""
    earlier: Captured
    """What programs in the background wrote since the command before."""


class Shells:
    """Everybody's shells. An async context manager: leaving it ends all of them.

    Args:
        tasks: outlives the shells.
        most_per_person: beyond that the one that was not used for longest goes.
        idle_s: so long one is kept that is not used.
    """

    def __init__(self, tasks: TaskOwner, *, most_per_person: int = 8, idle_s: float = IDLE_S) -> None:
        self._tasks = tasks
        self._most_per_person = most_per_person
        self._idle_s = idle_s
        self._slots: dict[tuple[UserId, str], _Slot] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        await self._end(list(self._slots.values()), "the gateway was stopped")

    def __len__(self) -> int:
        """How many there are."""
        return sum(slot.is_taken for slot in self._slots.values())

    async def run(
        self,
        owner: UserId,
        session: str,
        make_launch: MakeLaunch,
        command: str,
        *,
        timeout_s: float = TIMEOUT_S,
        on_output: OnOutput | None = None,
    ) -> ShellResult:
        """Run ``command`` in the shell of this person and session, after those that were given before it.

        A command that runs out of time is interrupted; if it does not end by that, its shell is killed. Cancelling
        kills the shell. Whether the command may be run has been decided.

        Args:
            make_launch: prepares ``ARGV``; is called if there is no shell yet.
            timeout_s: of the command itself, without what it waits for.
            on_output: as for ``run_command``; everything is ``stdout``.

        Raises:
            TooMany: the person has that many shells, and commands run in all of them.
            StartFailed: there is no shell and none can be started, or the gateway is stopping.
            ValueError: there is a NUL in ``command``.
        """
        if "\0" in command:
            raise ValueError("there is a NUL character in the command")
        slot = self._slots.setdefault((owner, session), _Slot(owner))
        try:
            with slot.used():
                async with slot.lock:
                    return await self._run(slot, make_launch, command, timeout_s, on_output)
        finally:
            self._after(slot)

    async def close_person(self, owner: UserId) -> None:
        """End all shells of a person, also those in which commands run."""
        await self._end([slot for slot in self._slots.values() if slot.owner == owner], "it was closed")

    async def close(self, owner: UserId, session: str) -> None:
        """End the shell of this session, if there is one."""
        slot = self._slots.get((owner, session))
        if slot is not None:
            await self._end([slot], "it was closed")

    async def _run(
        self, slot: _Slot, make_launch: MakeLaunch, command: str, timeout_s: float, on_output: OnOutput | None
    ) -> ShellResult:
        if self._is_closed:
            raise StartFailed("the gateway was stopped")
        notices = []
        if slot.shell is not None and slot.shell.is_over:
            slot.why, slot.shell = slot.shell.why_over(), None
        if slot.shell is None:
            slot.shell = await self._begin(slot, make_launch)
            if slot.why:
                notices.append(
                    f"This is a new shell, since {slot.why}; directory, variables and functions are as at the start."
                )
            slot.why = ""
        shell = slot.shell
        try:
            ran = await shell.run(command, timeout_s, on_output)
        except BaseException:
            shell.kill("the command before this one was stopped")
            raise
        if shell.is_over:
            notices.append("The shell has ended with this command; the next one begins in a new shell.")
        code, signal_name = how_ended(ran.status)
        return ShellResult(
            stdout=ran.output,
            stderr=NOTHING,
            output=ran.output,
            exit_code=code,
            signal=signal_name,
            timed_out=ran.timed_out,
            overrun=shell.overrun if shell.is_over else "",
            duration_ms=ran.duration_ms,
            notice=" ".join(notices),
            cwd=ran.cwd,
            earlier=ran.earlier,
        )

    async def _begin(self, slot: _Slot, make_launch: MakeLaunch) -> _Shell:
        slot.is_beginning = True  # it counts before anything is waited for, so two at once do not both find room
        try:
            await self._make_room(slot.owner)
            launch = await make_launch()
            shell = _Shell(launch)
            try:
                task = self._tasks.start(shell.live(), name=f"shell of {slot.owner}")
            except RuntimeError as exc:
                await launch.release()
                raise StartFailed("the gateway was stopped") from exc
            task.add_done_callback(shell.on_task_end)
            try:
                await asyncio.shield(shell.started)
            except BaseException:
                shell.kill("it was never used")
                await launch.release()
                raise
            if self._is_closed:
                shell.kill("the gateway was stopped")
            return shell
        finally:
            slot.is_beginning = False

    async def _make_room(self, owner: UserId) -> None:
        """End what was not used for longest, until there are no more than there may be, with the one that begins."""
        while True:
            theirs = [slot for slot in self._slots.values() if slot.owner == owner and slot.is_taken]
            if len(theirs) <= self._most_per_person:
                return
            idle = [slot for slot in theirs if not slot.users]
            if not idle:
                raise TooMany("shells", self._most_per_person)
            await self._end([min(idle, key=lambda slot: slot.used_at)], "others were used since")

    async def _end(self, slots: list[_Slot], why: str) -> None:
        ending = []
        for slot in slots:
            slot.stop_timer()
            shell = slot.shell
            if shell is not None:
                ending.append(shell)
                shell.kill(f"the one before was ended: {why}")
                if not slot.users:
                    slot.shell, slot.why = None, shell.why_over()
        for shell in ending:
            await shell.gone.wait()

    def _after(self, slot: _Slot) -> None:
        slot.stop_timer()
        if slot.users:
            return
        if slot.shell is not None and not slot.shell.is_over:
            slot.timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, slot)
        without = [key for key, each in self._slots.items() if not each.is_taken and not each.users]
        for key in without[: max(0, len(without) - FORGOTTEN)]:
            del self._slots[key]

    def _expire(self, slot: _Slot) -> None:
        slot.timer = None
        shell = slot.shell
        if shell is not None and not slot.users:
            shell.kill(f"the one before was not used for {self._idle_s:g} seconds")
            slot.shell, slot.why = None, shell.why_over()


@dataclass(eq=False, slots=True)
class _Slot:
    """The place of a session's shell."""

    owner: UserId
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    shell: _Shell | None = None
    is_beginning: bool = False
    users: int = 0
    """Commands that run or wait."""
    used_at: float = 0.0
    why: str = ""
    """Why there is no shell any more."""
    timer: asyncio.TimerHandle | None = None

    @property
    def is_taken(self) -> bool:
        return self.is_beginning or (self.shell is not None and not self.shell.is_over)

    @contextmanager
    def used(self) -> Iterator[None]:
        self.stop_timer()
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.used_at = time.monotonic()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Ran(NamedTuple):
    output: Captured
    earlier: Captured
    status: int
    """The exit status, or the negative number of a signal that ended the shell."""
    cwd: str
    timed_out: bool
    duration_ms: int


class _Shell:
    """One bash."""

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

    async def run(self, command: str, timeout_s: float, on_output: OnOutput | None) -> _Ran:
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
            return _Ran(self._capture.captured(), earlier, status, cwd, timed_out, duration_ms)
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
