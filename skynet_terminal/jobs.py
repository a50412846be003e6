"""Background jobs: commands that run on while nobody waits, with records that outlive the gateway and bounded logs."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from skynet_memory.database import Database, Row, Value
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import UserId, new_id, now_ms
from skynet_terminal.errors import StartFailed, TooMany, UnknownJob
from skynet_terminal.job_log import LEAST_READ, log_size, read_log
from skynet_terminal.job_records import Job, JobStatus, insert_job, job_of, record_end
from skynet_terminal.leftovers import JOB_VARIABLE, end_leftovers
from skynet_terminal.live_job import GATEWAY_STOPPED, SUFFIXES, LiveJob, LogName
from skynet_terminal.processes import Program, running
from skynet_terminal.sandbox.base import Launch

__all__ = ["GATEWAY_DIED", "GATEWAY_STOPPED", "Job", "JobOutput", "JobStatus", "Jobs", "LogName", "TaskOwner"]

log = logging.getLogger(__name__)

LOG_BYTES: Final = 4 * 1024**2
"""Of one job on the disk: half of it for its output in order, a quarter for each of its streams."""
KEPT_JOBS: Final = 100
"""Of one person, of those that have ended; older ones are forgotten with their logs."""
KEPT_MS: Final = 7 * 24 * 3600 * 1000
PACE: Final = 16 * 1024**2
"""Bytes a second that are read of each stream of a job, which has all the time it wants."""
LONGEST_S: Final = 24 * 3600.0
"""Of a job for which no time is given: whoever forgets one has it end some time."""
LONGEST_LIST: Final = 200
MOST_READ: Final = 256 * 1024
CLOSING_S: Final = 10.0
"""So long the end of all jobs and their records is waited for."""
LONGEST_RETRY_S: Final = 30.0

GATEWAY_DIED: Final = "the gateway died while it ran"


class TaskOwner(Protocol):
    """Who owns tasks that outlive the call which started them."""

    def start(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutput:
    """A piece of a job's log. The next one begins at ``cursor``."""

    data: bytes
    cursor: int
    dropped: int
    """Bytes between the cursor that was asked for and the data that the log does not keep any more."""
    ended: bool
    """The job has ended and nothing follows."""

    @property
    def text(self) -> str:
        """As it was written; what is no UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


class Jobs:
    """Everybody's jobs. An async context manager: entering it marks as lost what a gateway that died has left, and
    kills it; leaving it ends all jobs and records that.

    Args:
        directory: of their logs, in ``<owner>/<job>.log`` and beside it ``.stdout.log`` and ``.stderr.log``.
        tasks: outlives the jobs.
        most_per_person: that run at once.
        longest_s: how long one runs for which no time is given.
        log_bytes: of one job, see ``LOG_BYTES``.
        on_end: is called in the loop with each job that has ended, after it was recorded.
    """

    def __init__(
        self,
        db: Database,
        directory: Path,
        tasks: TaskOwner,
        *,
        most_per_person: int = 8,
        longest_s: float = LONGEST_S,
        log_bytes: int = LOG_BYTES,
        kept_jobs: int = KEPT_JOBS,
        kept_ms: int = KEPT_MS,
        clock: Callable[[], int] = now_ms,
        on_end: Callable[[Job], None] | None = None,
    ) -> None:
        self._db = db
        self._directory = directory
        self._tasks = tasks
        self._most_per_person = most_per_person
        self._longest_s = longest_s
        self._log_bytes = log_bytes
        self._kept_jobs = kept_jobs
        self._kept_ms = kept_ms
        self._clock = clock
        self._on_end = on_end
        self._live: dict[str, LiveJob] = {}
        """Those that run, and those whose end is not recorded yet."""
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        rows = await self._db.fetchall("SELECT * FROM jobs WHERE status = 'running'")
        if rows:
            jobs = [job_of(row) for row in rows]
            ended = await asyncio.to_thread(end_leftovers, [job.id for job in jobs])
            log.warning("%d jobs were lost when the gateway died; %d processes of them were ended", len(jobs), ended)
            for job in jobs:
                await self._record(await asyncio.to_thread(self._lost, job))
        await self._prune()
        await asyncio.to_thread(self._remove_orphans, await self._db.fetchall("SELECT id, owner FROM jobs"))
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        for live in self._live.values():
            live.stop("killed", GATEWAY_STOPPED)
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_S)

    async def start(
        self,
        owner: UserId,
        launch: Launch,
        *,
        command: str,
        title: str = "",
        cwd: str = "",
        sandbox: str = "",
        timeout_s: float | None = None,
    ) -> Job:
        """Start what was prepared and return at once. Takes the launch over: it is released, whatever happens.

        Args:
            command, title, cwd, sandbox: what the record says; nothing is done with them.
            timeout_s: None is for as long as any may run.

        Raises:
            TooMany: the person has that many jobs already that run.
            StartFailed: it cannot be started, or the gateway is stopping.
            StorageUnavailable: it cannot be recorded, so it was not started.
        """
        job = Job(
            id=new_id(),
            owner=owner,
            command=command,
            title=title,
            cwd=cwd,
            sandbox=sandbox,
            timeout_ms=round((self._longest_s if timeout_s is None else timeout_s) * 1000),
            status="running",
            started_at_ms=self._clock(),
        )
        live = LiveJob(job, self._folder(owner), self._log_bytes)
        try:
            self._check_room(owner)
            if self._closing.is_set():
                raise StartFailed(GATEWAY_STOPPED)
            self._live[job.id] = live
            try:
                live.task = self._tasks.start(self._run(live, launch), name=f"job {job.id}")
                live.task.add_done_callback(live.on_task_end)
            except RuntimeError as exc:
                del self._live[job.id]
                raise StartFailed(GATEWAY_STOPPED) from exc
            await asyncio.shield(live.started)
        except asyncio.CancelledError:  # it goes on: who asked has gone, what was asked for has not
            if live.task is None:
                await launch.release()
            raise
        except BaseException:
            await launch.release()
            raise
        return live.now()

    async def status(self, owner: UserId, job_id: str) -> Job:
        """
        Raises:
            UnknownJob: there is none of this id, or it is another's.
        """
        live = self._live.get(job_id)
        if live is not None:
            if live.job.owner != owner:
                raise UnknownJob(job_id)
            return live.now()
        row = await self._db.fetchone("SELECT * FROM jobs WHERE id = ? AND owner = ?", (job_id, owner))
        if row is None:
            raise UnknownJob(job_id)
        return job_of(row)

    async def list(
        self, owner: UserId, *, limit: int = 50, status: JobStatus | None = None, before: str | None = None
    ) -> Sequence[Job]:
        """A person's jobs, newest first, at most ``LONGEST_LIST``.

        Args:
            status: only those; None for all.
            before: only those older than this job.
        """
        before_reading = dict(self._live)  # their end may be recorded after the rows were read, and they be gone here
        rows = await self._db.fetchall(
            "SELECT * FROM jobs WHERE owner = ? AND (? IS NULL OR id < ?) AND (? IS NULL OR status = ?)"
            " ORDER BY id DESC LIMIT ?",
            (owner, before, before, status, status, max(1, min(limit, LONGEST_LIST))),
        )
        live = before_reading | self._live
        jobs = [live[row["id"]].now() if row["id"] in live else job_of(row) for row in rows]
        return [job for job in jobs if status is None or job.status == status]

    async def kill(self, owner: UserId, job_id: str) -> Job:
        """End all of a job (SIGKILL) and return it as it has ended; one that has ended already stays as it is.

        Raises:
            UnknownJob: there is none of this id, or it is another's.
        """
        job = await self.status(owner, job_id)
        live = self._live.get(job_id)
        if live is None:
            return job
        live.stop("killed", "")
        await live.ended.wait()
        return live.now()

    async def output(
        self,
        owner: UserId,
        job_id: str,
        cursor: int = 0,
        *,
        stream: LogName = "output",
        most_bytes: int = 64 * 1024,
        wait_s: float = 0.0,
    ) -> JobOutput:
        """What a job wrote, from the byte ``cursor`` on; below 0 it counts from the end.

        A character is never split, unless it was dropped in part or the job has ended within it.

        Args:
            stream: one of both, or ``output``, both in the order in which they were read.
            most_bytes: at most ``MOST_READ`` and at least ``LEAST_READ``.
            wait_s: if there is nothing yet, so long it is waited for.

        Raises:
            UnknownJob: there is none of this id, or it is another's.
        """
        most = max(LEAST_READ, min(most_bytes, MOST_READ))
        await self.status(owner, job_id)
        path = self._path(owner, job_id, stream)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while (live := self._live.get(job_id)) is not None and not live.ended.is_set():
                    news = live.news
                    if read_log(path, cursor, most, ended=False).data:
                        break
                    await news.wait()
        live = self._live.get(job_id)
        if live is not None:
            # Here and not in a thread: it is being written here.
            ended = live.ended.is_set()
            piece = read_log(path, cursor, most, ended=ended)
        else:
            ended = True
            piece = await asyncio.to_thread(read_log, path, cursor, most, ended=True)
        return JobOutput(
            data=piece.data,
            cursor=piece.cursor,
            dropped=piece.dropped,
            ended=ended and piece.cursor >= piece.size,
        )

    async def close_person(self, owner: UserId) -> None:
        """End all jobs of a person; what is remembered of them stays."""
        theirs = [live for live in self._live.values() if live.job.owner == owner]
        for live in theirs:
            live.stop("killed", "")
        for live in theirs:
            await live.ended.wait()

    async def remove_person(self, owner: UserId) -> None:
        """End all jobs of a person, and delete their records and logs."""
        await self.close_person(owner)
        await self._db.write(lambda tx: tx.execute("DELETE FROM jobs WHERE owner = ?", (owner,)))
        await asyncio.to_thread(shutil.rmtree, self._folder(owner), ignore_errors=True)

    async def _run(self, live: LiveJob, launch: Launch) -> None:
        """The whole life of a job."""
        try:
            await self._db.write(lambda tx: insert_job(tx, live.job))
            async with self._program(live, launch) as program:
                live.begin(program, launch)
                await live.to_its_end(program)
        except BaseException as exc:
            if live.started.done():
                raise
            await self._forget_unstarted(live, exc)
            if not isinstance(exc, Exception):
                raise
        finally:
            if live.started.done() and not live.started.exception():
                live.end(self._clock())
                await self._store_end(live)

    async def _forget_unstarted(self, live: LiveJob, exc: BaseException) -> None:
        try:
            with suppress(StorageUnavailable):
                await self._db.write(lambda tx: tx.execute("DELETE FROM jobs WHERE id = ?", (live.job.id,)))
        finally:
            del self._live[live.job.id]
            live.started.set_exception(exc if isinstance(exc, Exception) else StartFailed(GATEWAY_STOPPED))
            live.ended.set()

    @asynccontextmanager
    async def _program(self, live: LiveJob, launch: Launch) -> AsyncIterator[Program]:
        try:
            await asyncio.to_thread(_make_private, self._directory, self._folder(live.job.owner))
        except OSError as exc:
            raise StartFailed(f"there is no place for its log: {exc.strerror or exc}") from exc
        async with running(
            launch,
            on_stdout=live.write_stdout,
            on_stderr=live.write_stderr,
            env={JOB_VARIABLE: live.job.id},
            bytes_per_s=PACE,
        ) as program:
            log.info("job %s of %s started as process %d", live.job.id, live.job.owner, program.process.pid)
            yield program

    async def _store_end(self, live: LiveJob) -> None:
        """Record it, however often that takes; with the gateway's end it is tried once more."""
        job = live.now()
        log.info("job %s of %s: %s %s", job.id, job.owner, job.status, job.signal or job.exit_code)
        wait_s = 1.0
        while True:
            is_last = self._closing.is_set()
            try:
                await self._record(job)
                break
            except StorageUnavailable as exc:
                if is_last:
                    log.error("the end of job %s is not recorded: %s", job.id, exc)
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._closing.wait()
                wait_s = min(wait_s * 2, LONGEST_RETRY_S)
        del self._live[job.id]
        if self._on_end is not None:
            self._on_end(job)
        with suppress(StorageUnavailable):
            await self._prune(job.owner)

    async def _record(self, job: Job) -> None:
        await self._db.write(lambda tx: record_end(tx, job))

    async def _prune(self, owner: UserId | None = None) -> None:
        """Forget the oldest that have ended, of one person or of all."""
        values: Sequence[Value] = (owner, owner, self._clock() - self._kept_ms, self._kept_jobs)
        rows = await self._db.fetchall(
            "SELECT id, owner FROM (SELECT id, owner, started_at_ms,"
            " row_number() OVER (PARTITION BY owner ORDER BY id DESC) AS place"
            " FROM jobs WHERE status != 'running' AND (? IS NULL OR owner = ?))"
            " WHERE started_at_ms < ? OR place > ?",
            values,
        )
        if not rows:
            return
        ids = [(row["id"], row["owner"]) for row in rows]
        await self._db.write(lambda tx: tx.executemany("DELETE FROM jobs WHERE id = ? AND owner = ?", ids))
        await asyncio.to_thread(self._remove_logs, rows)

    def _lost(self, job: Job) -> Job:
        return replace(
            job,
            status="lost",
            note=GATEWAY_DIED,
            ended_at_ms=self._clock(),
            stdout_bytes=log_size(self._path(job.owner, job.id, "stdout")),
            stderr_bytes=log_size(self._path(job.owner, job.id, "stderr")),
        )

    def _remove_logs(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name in SUFFIXES:
                self._path(row["owner"], row["id"], name).unlink(missing_ok=True)

    def _remove_orphans(self, rows: Sequence[Row]) -> None:
        """Logs without a record: their person was removed, or the disk was full."""
        known = {(row["owner"], row["id"]) for row in rows}
        for path in self._directory.glob("*/*.log"):
            if (path.parent.name, path.name.partition(".")[0]) not in known:
                path.unlink(missing_ok=True)
        for folder in self._directory.glob("*/"):
            with suppress(OSError):  # it is not empty
                folder.rmdir()

    def _check_room(self, owner: UserId) -> None:
        count = sum(live.job.owner == owner and not live.ended.is_set() for live in self._live.values())
        if count >= self._most_per_person:
            raise TooMany("jobs", self._most_per_person)

    def _folder(self, owner: UserId) -> Path:
        if owner in ("", ".", "..") or "/" in owner or "\0" in owner:
            raise ValueError(f"{owner!r} cannot be the name of a folder")
        return self._directory / owner

    def _path(self, owner: UserId, job_id: str, name: LogName) -> Path:
        return self._folder(owner) / f"{job_id}{SUFFIXES[name]}"


def _make_private(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
