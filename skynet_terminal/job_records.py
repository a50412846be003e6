"""What is remembered of a job, as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from skynet_memory.database import Row, Statements
from skynet_memory.ids import UserId

JobStatus: TypeAlias = Literal["running", "completed", "failed", "killed", "timed_out", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, or what is remembered of it."""

    id: str
    owner: UserId
    command: str
    title: str
    cwd: str
    sandbox: str
    timeout_ms: int | None
    status: JobStatus
    """``completed``: with exit code 0. ``failed``: with another, by a signal, or for a limit. ``killed``: by its
    person, or with the gateway. ``lost``: the gateway died, and it with that."""
    exit_code: int | None = None
    signal: str = ""
    note: str = ""
    """What else is to be said of its end: the limit that it was ended for, that its log could not be written."""
    started_at_ms: int
    ended_at_ms: int | None = None
    stdout_bytes: int = 0
    """That it wrote; logs keep less."""
    stderr_bytes: int = 0

    @property
    def output_bytes(self) -> int:
        return self.stdout_bytes + self.stderr_bytes


def insert_job(tx: Statements, job: Job) -> None:
    tx.execute(
        "INSERT INTO jobs (id, owner, command, title, cwd, sandbox, timeout_ms, status, started_at_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            job.id,
            job.owner,
            job.command,
            job.title,
            job.cwd,
            job.sandbox,
            job.timeout_ms,
            job.status,
            job.started_at_ms,
        ),
    )


def record_end(tx: Statements, job: Job) -> None:
    tx.execute(
        "UPDATE jobs SET status = ?, exit_code = ?, signal = ?, note = ?, ended_at_ms = ?, stdout_bytes = ?,"
        " stderr_bytes = ? WHERE id = ? AND owner = ?",
        (
            job.status,
            job.exit_code,
            job.signal,
            job.note,
            job.ended_at_ms,
            job.stdout_bytes,
            job.stderr_bytes,
            job.id,
            job.owner,
        ),
    )


def job_of(row: Row) -> Job:
    return Job(
        id=row["id"],
        owner=UserId(row["owner"]),
        command=row["command"],
        title=row["title"],
        cwd=row["cwd"],
        sandbox=row["sandbox"],
        timeout_ms=row["timeout_ms"],
        status=cast(JobStatus, row["status"]),
        exit_code=row["exit_code"],
        signal=row["signal"],
        note=row["note"],
        started_at_ms=row["started_at_ms"],
        ended_at_ms=row["ended_at_ms"],
        stdout_bytes=row["stdout_bytes"],
        stderr_bytes=row["stderr_bytes"],
    )
