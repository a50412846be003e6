"""Programs that the gateway starts and waits for: what they get of it, what is kept of their output, how they end.

Popen and not asyncio's own: that one can be cancelled between the start and the hand-over, and with uvloop it closes
no descriptors and gives sockets for pipes, which scripts cannot open again as ``/dev/stdin`` and ``/dev/stderr``.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OUTPUT_BYTES = 1024 * 1024
"""What is kept of stdout, and of stderr; what comes after it is read and forgotten."""
OPEN_FILES = 1024
DRAIN_S = 1.0
"""So long outputs are read after the end, should something that left the program's group hold them open."""
DEATH_S = 2.0
"""So long a program that was killed is waited for."""
POLL_S = 0.02

_PIECE_BYTES = 65_536
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
    program = _Program(["/bin/sh", "-c", _LIMITED, name, *argv], cwd, env, stdin)
    try:
        await program.ended.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await program.stdout.closed.wait()
                await program.stderr.closed.wait()
        assert program.process.returncode is not None
        return Ended(program.process.returncode, program.stdout.output(), program.stderr.output())
    finally:
        program.kill()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(DEATH_S):
                    await program.ended.wait()
        finally:
            program.close()


class _Program:
    """A program that was started. Whoever waits or not: its end is noticed by the loop, and nothing outlives it."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str | bytes], stdin: bytes) -> None:
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        with ExitStack() as on_failure:
            self.stdout = on_failure.enter_context(closing(_Pipe(self._loop)))
            self.stderr = on_failure.enter_context(closing(_Pipe(self._loop)))
            self.process = self._started(argv, cwd, env, stdin)
            on_failure.callback(self._kill_group)
            self._watch()
            self.stdout.read()
            self.stderr.read()
            on_failure.pop_all()

    def kill(self) -> None:
        """Kill what there is of its group; nothing once it has ended."""
        if not self.ended.is_set():
            self._kill_group()

    def close(self) -> None:
        """Stop reading."""
        self.stdout.close()
        self.stderr.close()

    def _started(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str | bytes], stdin: bytes
    ) -> subprocess.Popen[bytes]:
        with self.stdout.writer as stdout, self.stderr.writer as stderr, _file_of(stdin) as readable:
            return subprocess.Popen(  # noqa: S603 - whom to run is the caller's to decide
                argv,
                cwd=cwd,
                env=env,
                stdin=readable,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                umask=0o077,
            )

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
        # Before the number of its group is free for others, which it is once the program was waited for.
        self._kill_group()
        self.process.wait()
        self.ended.set()

    def _poll(self) -> None:
        if self.process.poll() is None:
            self._loop.call_later(POLL_S, self._poll)
        else:
            self._kill_group()
            self.ended.set()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class _Pipe:
    """One output, read as it comes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = asyncio.Event()
        self._loop = loop
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.writer = open(writer, "wb", buffering=0)  # noqa: SIM115, PTH123 - closed by the one who hands it on
        self._data = bytearray()
        self._size = 0

    def read(self) -> None:
        """Read from now on, until everybody has closed the other end."""
        self._loop.add_reader(self._reader, self._on_data)

    def output(self) -> Output:
        return Output(bytes(self._data), self._size)

    def close(self) -> None:
        self.writer.close()
        if not self.closed.is_set():
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self.closed.set()

    def _on_data(self) -> None:
        try:
            piece = os.read(self._reader, _PIECE_BYTES)
        except BlockingIOError:
            return
        self._size += len(piece)
        self._data += piece[: OUTPUT_BYTES - len(self._data)]
        if not piece:
            self.close()


@contextmanager
def _file_of(data: bytes) -> Iterator[IO[bytes]]:
    """A file without a name: unlike a pipe it needs nobody who writes while it is read."""
    if not data:
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            yield nothing
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file
