"""A job while it runs, and until its end is recorded."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from skynet_terminal.commands import how_ended
from skynet_terminal.errors import StartFailed
from skynet_terminal.job_log import JobLog
from skynet_terminal.job_records import Job, JobStatus
from skynet_terminal.processes import Program
from skynet_terminal.sandbox.base import Launch

GATEWAY_STOPPED: Final = "the gateway was stopped"

LogName: TypeAlias = Literal["output", "stdout", "stderr"]
SUFFIXES: Final[dict[LogName, str]] = {"output": ".log", "stdout": ".stdout.log", "stderr": ".stderr.log"}
"""Of a job's logs."""


class LiveJob:
    """Made before it is started. Its owner calls ``begin``, ``to_its_end`` and ``end``, once each."""

    def __init__(self, job: Job, folder: Path, log_bytes: int) -> None:
        self.job = job
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started.add_done_callback(_look_at)
        self.ended = asyncio.Event()
        self.news = asyncio.Event()
        """Is set, and replaced, with whatever is written and with the end."""
        self.task: asyncio.Task[None] | None = None
        self._program: Program | None = None
        self._stopped: tuple[JobStatus, str] | None = None
        self._launch: Launch | None = None
        self._both, self._stdout, self._stderr = (
            JobLog(folder / f"{job.id}{SUFFIXES[name]}", log_bytes // (2 if name == "output" else 4))
            for name in SUFFIXES
        )

    def write_stdout(self, data: bytes) -> None:
        self._stdout.write(data)
        self._both.write(data)
        self._tell()

    def write_stderr(self, data: bytes) -> None:
        self._stderr.write(data)
        self._both.write(data)
        self._tell()

    def begin(self, program: Program, launch: Launch) -> None:
        self._program, self._launch = program, launch
        if self._stopped is not None:
            program.kill()
        self.started.set_result(None)

    async def to_its_end(self, program: Program) -> None:
        try:
            async with asyncio.timeout(None if self.job.timeout_ms is None else self.job.timeout_ms / 1000):
                await program.ended.wait()
        except TimeoutError:
            self.stop("timed_out", "")
            await program.gone()
        except asyncio.CancelledError:
            self.stop("killed", GATEWAY_STOPPED)
            raise
        await program.drained()

    def stop(self, status: JobStatus, note: str) -> None:
        """Kill it, which is then its end; the first reason stays."""
        if self._program is not None and self._program.ended.is_set():
            return
        if self._stopped is None:
            self._stopped = (status, note)
        if self._program is not None:
            self._program.kill()

    def end(self, at_ms: int) -> None:
        assert self._program is not None
        assert self._launch is not None
        returncode = self._program.process.returncode
        exit_code, signal_name = how_ended(-signal.SIGKILL if returncode is None else returncode)
        status: JobStatus = "completed" if exit_code == 0 else "failed"
        notes = [f"ended for its limit: {self._launch.overrun}"] if self._launch.overrun else []
        if self._stopped is not None:
            status, note = self._stopped
            notes.append(note)
        fault = self._both.fault or self._stdout.fault or self._stderr.fault
        if fault:
            notes.append(f"its log is not complete: {fault}")
        for each in (self._both, self._stdout, self._stderr):
            each.close()
        self.job = replace(
            self.now(),
            status=status,
            exit_code=exit_code,
            signal=signal_name,
            note="; ".join(note for note in notes if note),
            ended_at_ms=max(at_ms, self.job.started_at_ms),
        )
        self.ended.set()
        self._tell()

    def now(self) -> Job:
        return replace(
            self.job,
            stdout_bytes=self._stdout.size + self._stdout.unwritten,
            stderr_bytes=self._stderr.size + self._stderr.unwritten,
        )

    def on_task_end(self, _task: asyncio.Task[None]) -> None:
        """Nobody waits for what will not come, should the task have ended before it began."""
        if not self.started.done():
            self.started.set_exception(StartFailed(GATEWAY_STOPPED))
        self.ended.set()
        self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


def _look_at(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
