"""Programs that the gateway starts and waits for: what they get of it, what is kept of their output, how they end.

Popen and not asyncio's own: that one can be cancelled between the start and the hand-over, and with uvloop it closes
no descriptors and gives sockets for pipes, which scripts cannot open again as ``/dev/stdin`` and ``/dev/stderr``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from skynet_memory.database import to_the_end
from skynet_terminal.errors import StartFailed
from skynet_terminal.sandbox.base import Launch

OUTPUT_BYTES = 1024 * 1024
"""What is kept of stdout, and of stderr; what comes after it is read and forgotten."""
OPEN_FILES = 1024
DRAIN_S = 1.0
"""So long outputs are read after the end, should something that left the program's group hold them open."""
DEATH_S = 2.0
"""So long a program that was killed is waited for."""
POLL_S = 0.02
PACE = 128 * 1024**2
"""Bytes a second that are read of one output: one that floods leaves the loop to others."""
PACE_S = 0.05

_PIECE_BYTES = 65_536
_OFTEN_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# The shell sets the limits, since code between fork and exec is not safe in a process with threads (preexec_fn).
_LIMITED = f'ulimit -c 0; ulimit -n {OPEN_FILES} 2>/dev/null; exec "$@"'


@dataclass(frozen=True, slots=True)
class Output:
    """The first ``OUTPUT_BYTES`` of what a program wrote, and how much it was."""

    data: bytes
    size: int

    def text(self) -> str:
        """As UTF-8, what is none replaced, without line breaks at the end. It says if there was more."""
        text = self.data.decode("utf-8", "replace").rstrip("\r\n")
        if self.size > len(self.data):
            text += f"\n[of {self.size} bytes the first {len(self.data)} were read]"
        return text


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. ``returncode`` is its exit code, or the negative number of the signal that ended it."""

    returncode: int
    stdout: Output
    stderr: Output


async def run_program(
    argv: Sequence[str], *, name: str, cwd: Path, env: Mapping[str, str | bytes], stdin: bytes = b""
) -> Ended:
    """Run ``argv`` to its end.

    It has a session of its own, ``env`` and no other variable, no descriptor but its three, the umask 077, no core
    dumps and at most ``OPEN_FILES`` open files. With its end all that is left of its process group is killed;
    cancelling kills all of it at once.

    Args:
        argv: the program is looked for in the ``PATH`` of ``env`` if it has no ``/``. One that is missing ends with
            127 and one that cannot be run with 126, as in a shell.
        name: what error messages of the shell begin with.
        stdin: what it can read; nothing by default.

    Raises:
        OSError: it cannot be started: ``cwd`` is missing, ``env`` too large, there is no room for processes, …
    """
    stdout, stderr = _Beginning(), _Beginning()
    with _file_of(stdin) as readable:
        program = Program(
            ["/bin/sh", "-c", _LIMITED, name, *argv],
            cwd=cwd,
            env=env,
            stdin=readable,
            on_stdout=stdout.write,
            on_stderr=stderr.write,
        )
    try:
        await program.ended.wait()
        await program.drained()
        return Ended(program.returncode, stdout.output(), stderr.output())
    finally:
        program.kill()
        try:
            await program.gone()
        finally:
            program.close()


@asynccontextmanager
async def running(
    launch: Launch,
    *,
    stdin: bytes | IO[bytes] = b"",
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    env: Mapping[str, str] | None = None,
    bytes_per_s: int = PACE,
) -> AsyncIterator[Program]:
    """Start what was prepared and have it until the end of the block, with which all of it is killed and released.

    The launch is released too if it cannot be started.

    Args:
        stdin: what it can read; nothing by default. A file stays the caller's to close.
        env: variables beyond those of the launch.
        bytes_per_s: how fast its outputs are read; it waits when it writes faster.

    Raises:
        StartFailed: it cannot be started.
    """
    try:
        try:
            with _file_of(stdin) if isinstance(stdin, bytes) else nullcontext(stdin) as readable:
                program = Program(
                    launch.argv,
                    cwd=launch.cwd,
                    env={**launch.env, **(env or {})},
                    stdin=readable,
                    on_stdout=on_stdout,
                    on_stderr=on_stderr,
                    pass_fds=launch.pass_fds,
                    launch=launch,
                    bytes_per_s=bytes_per_s,
                )
        except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument
            raise StartFailed(f"it could not be started: {getattr(exc, 'strerror', None) or exc}") from exc
        try:
            yield program
        finally:
            program.kill()
            try:
                await program.gone()
            finally:
                program.close()
    finally:
        await to_the_end(launch.release())


class Program:
    """A program that was started. Whoever waits or not: its end is noticed by the loop, and nothing of its process
    group, nor of what it was launched in, outlives it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str | bytes],
        stdin: IO[bytes],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
        pass_fds: Sequence[int] = (),
        launch: Launch | None = None,
        bytes_per_s: int = PACE,
    ) -> None:
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._launch = launch
        with ExitStack() as on_failure:
            self.stdout = on_failure.enter_context(closing(Pipe(self._loop, on_stdout, bytes_per_s)))
            self.stderr = on_failure.enter_context(closing(Pipe(self._loop, on_stderr, bytes_per_s)))
            with self.stdout.writer as stdout, self.stderr.writer as stderr:
                self.process = subprocess.Popen(  # noqa: S603 - whom to run is the caller's to decide
                    argv,
                    cwd=cwd,
                    env=env,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=pass_fds,
                    start_new_session=True,
                    umask=0o077,
                )
            on_failure.callback(self._kill_all)
            if launch is not None:
                launch.started(self.process.pid)
            self._watch()
            self.stdout.read()
            self.stderr.read()
            on_failure.pop_all()

    @property
    def returncode(self) -> int:
        """Its exit code once it has ended, or the negative number of the signal that ended it."""
        assert self.process.returncode is not None
        return self.process.returncode

    def kill(self) -> None:
        """Kill what there is of it; nothing once it has ended."""
        if not self.ended.is_set():
            self._kill_all()

    async def drained(self) -> None:
        """When nobody can write to its outputs any more, or after ``DRAIN_S``."""
        self.stdout.hurry()
        self.stderr.hurry()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self.stdout.closed.wait()
                await self.stderr.closed.wait()

    async def gone(self) -> None:
        """When it has ended, which one that was killed does soon; or after ``DEATH_S``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DEATH_S):
                await self.ended.wait()

    def close(self) -> None:
        """Stop reading."""
        self.stdout.close()
        self.stderr.close()

    def _watch(self) -> None:
        try:
            descriptor = os.pidfd_open(self.process.pid)
        except (AttributeError, OSError):  # not Linux, or before 5.3
            self._poll()
        else:
            self._loop.add_reader(descriptor, self._on_end, descriptor)

    def _on_end(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._end()

    def _poll(self) -> None:
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            self._loop.call_later(POLL_S, self._poll)
        else:
            self._end()

    def _end(self) -> None:
        # Before the number of its group is free for others, which it is once the program was waited for.
        self._kill_all()
        self.process.wait()
        self.ended.set()

    def _kill_all(self) -> None:
        if self._launch is not None:
            self._launch.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Pipe:
    """One output, read as it comes and not faster than it may; ``take`` gets each piece."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], None], bytes_per_s: int = PACE) -> None:
        self.closed = asyncio.Event()
        """Everybody has closed the other end, or ``close`` was called."""
        self._loop = loop
        self._take = take
        self._most = max(int(bytes_per_s * PACE_S), 1)
        self._room = self._most
        self._round = loop.time()
        self._pause: asyncio.TimerHandle | None = None
        self._in_a_hurry = False
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.writer = open(writer, "wb", buffering=0)  # noqa: SIM115, PTH123 - closed by the one who hands it on

    def read(self) -> None:
        """Read from now on, until everybody has closed the other end."""
        self._loop.add_reader(self._reader, self._on_data)

    def hurry(self) -> None:
        """Read as fast as it goes from now on: nothing much can come any more."""
        self._in_a_hurry = True
        if self._pause is not None:
            self._pause.cancel()
            self._go_on()

    def take_rest(self, most: int = 2 * _PIECE_BYTES) -> None:
        """Take what was written until now, if it is not more than ``most`` bytes, which no pipe holds by default."""
        while most > 0 and not self.closed.is_set():
            before = most
            most -= self._on_data()
            if most == before:
                return

    def close(self) -> None:
        self.writer.close()
        if not self.closed.is_set():
            if self._pause is not None:
                self._pause.cancel()
                self._pause = None
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self.closed.set()

    def _on_data(self) -> int:
        try:
            piece = os.read(self._reader, _PIECE_BYTES)
        except BlockingIOError:
            return 0
        if not piece:
            self.close()
            return 0
        self._take(piece)
        self._measure(len(piece))
        return len(piece)

    def _measure(self, size: int) -> None:
        self._room -= size
        if self._room > 0 or self._in_a_hurry or self._pause is not None:
            return
        rest = self._round + PACE_S - self._loop.time()
        if rest <= 0:
            self._begin_round()
        else:
            self._loop.remove_reader(self._reader)
            self._pause = self._loop.call_later(rest, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._begin_round()
        if not self.closed.is_set():
            self.read()

    def _begin_round(self) -> None:
        self._room = self._most
        self._round = self._loop.time()


class _Beginning:
    """Keeps the first ``OUTPUT_BYTES``."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._size = 0

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        self._data += piece[: OUTPUT_BYTES - len(self._data)]

    def output(self) -> Output:
        return Output(bytes(self._data), self._size)


@contextmanager
def _file_of(data: bytes) -> Iterator[IO[bytes]]:
    """A file without a name: unlike a pipe it needs nobody who writes while it is read.

    For nothing it is a device, since programs (ripgrep) read a file that they are given instead of the directory. A
    sandbox sees to it that this is not the machine's own where commands could change that.
    """
    if not data:
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            yield nothing
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def hear_signals() -> None:
    """Have what this process starts begin with no signal ignored.

    ``nohup`` and ``&`` of a script have a program ignore some, and what is ignored stays so in all that it starts, up
    to a shell in a terminal, which then cannot be interrupted. What is handled does not stay: so they are handled, by
    doing nothing. For the main thread, at the start.
    """
    for number in _OFTEN_IGNORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass
