"""One-shot commands: run to their end, or to their time limit, with what they wrote."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from skynet_terminal.capture import Capture, Captured
from skynet_terminal.processes import running
from skynet_terminal.sandbox.base import Launch

log = logging.getLogger(__name__)

LIVE_S: Final = 0.1
"""Between two live updates."""
LIVE_BYTES: Final = 16 * 1024
"""Of one stream in one live update, the newest; that some are missing is said there."""

Stream: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[Stream, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended."""

    stdout: Captured
    stderr: Captured
    output: Captured
    """Both, in the order in which they were read: what a person would have seen. Writes to different streams within
    less than a millisecond may change places."""
    exit_code: int | None
    """None if a signal ended it."""
    signal: str
    """``SIGKILL``, …; "" for none."""
    timed_out: bool
    """It was ended at its time limit."""
    overrun: str
    """The limit of the sandbox that it was ended for; "" for none."""
    duration_ms: int

    @property
    def omitted_stdout(self) -> int:
        """Bytes."""
        return self.stdout.omitted_bytes

    @property
    def omitted_stderr(self) -> int:
        return self.stderr.omitted_bytes


async def run_command(
    launch: Launch, *, timeout_s: float, stdin: bytes = b"", on_output: OnOutput | None = None
) -> CommandResult:
    """Run what was prepared to its end. All of it is killed then, at the time limit, and when the call is cancelled.

    Takes the launch over: it is released in the end, whatever happened.

    Args:
        stdin: what it can read; nothing by default.
        on_output: is called with what was written, for each stream at most every ``LIVE_S`` with ``LIVE_BYTES``; in the
            loop, so it does not block. With the end everything was told. Should it raise it is not called again.

    Raises:
        StartFailed: it cannot be started.
    """
    stdout, stderr, both = Capture(), Capture(), Capture()
    live = Live(on_output) if on_output is not None else None

    def take(stream: Stream, capture: Capture, data: bytes) -> None:
        capture.write(data)
        both.write(data)
        if live is not None:
            live.write(stream, data)

    begun = time.monotonic()
    timed_out = False
    try:
        async with running(
            launch,
            stdin=stdin,
            on_stdout=lambda data: take("stdout", stdout, data),
            on_stderr=lambda data: take("stderr", stderr, data),
        ) as program:
            try:
                async with asyncio.timeout(timeout_s):
                    await program.ended.wait()
            except TimeoutError:
                timed_out = True
                program.kill()
                await program.gone()
            duration_s = time.monotonic() - begun
            await program.drained()
            returncode = program.process.returncode
            exit_code, signal_name = how_ended(-signal.SIGKILL if returncode is None else returncode)
            overrun = launch.overrun
    finally:
        if live is not None:
            live.close()
    return CommandResult(
        stdout=stdout.captured(),
        stderr=stderr.captured(),
        output=both.captured(),
        exit_code=exit_code,
        signal=signal_name,
        timed_out=timed_out,
        overrun=overrun,
        duration_ms=round(duration_s * 1000),
    )


def how_ended(returncode: int) -> tuple[int | None, str]:
    """The exit code, or None and the name of the signal.

    Shells and bubblewrap say 128 + n when a signal ended what they ran, which becomes that signal. But for 129: with
    that more programs say that they were called wrongly (git, for one) than are ended by SIGHUP.
    """
    number = -returncode if returncode < 0 else returncode - 128
    if returncode == 128 + signal.SIGHUP or not 0 < number < signal.NSIG:
        return returncode, ""
    with suppress(ValueError):
        return None, signal.Signals(number).name
    return (None, f"signal {number}") if returncode < 0 else (returncode, "")


class Live:
    """Hands on what is written, bundled; see ``run_command``. ``close`` hands on the rest."""

    def __init__(self, on_output: OnOutput) -> None:
        self._on_output: OnOutput | None = on_output
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Stream, Capture] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._last = self._loop.time() - LIVE_S

    def write(self, stream: Stream, data: bytes) -> None:
        if self._on_output is None:
            return
        if stream not in self._waiting:
            self._waiting[stream] = Capture(0, LIVE_BYTES)
        self._waiting[stream].write(data)
        if self._timer is None:
            self._timer = self._loop.call_at(max(self._last + LIVE_S, self._loop.time()), self._tell)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        self._last = self._loop.time()
        waiting, self._waiting = self._waiting, {}
        for stream, capture in waiting.items():
            new = capture.captured()
            mark = f"\n[… {new.omitted_bytes} bytes left out …]\n".encode() if new.omitted_bytes else b""
            if self._on_output is None:
                return
            try:
                self._on_output(stream, mark + new.tail)
            except Exception:
                log.exception("output could not be told")
                self._on_output = None
