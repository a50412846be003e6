"""Commands, jobs and terminals as clients see them."""

from __future__ import annotations

from msgspec import UNSET

from skynet.gateway.command_desk import ExecOutcome
from skynet_protocol import terminal as wire
from skynet_terminal.jobs import Job, JobOutput
from skynet_terminal.pty import Terminal
from skynet_terminal.viewers import Chunk


def exec_result(outcome: ExecOutcome, *, raw: bool = False) -> wire.TerminalExecResult:
    """How a command ended. Takes some ms for much output."""
    result = outcome.result
    stdout, stderr, output = (each.shown() for each in (result.stdout, result.stderr, result.output))
    return wire.TerminalExecResult(
        stdout=stdout.text,
        stderr=stderr.text,
        output=output.text,
        exit_code=result.exit_code,
        signal=result.signal or UNSET,
        timed_out=result.timed_out,
        overrun=result.overrun or UNSET,
        duration_ms=result.duration_ms,
        truncated=any(each.omitted for each in (stdout, stderr, output)),
        omitted_chars=output.omitted,
        sandbox=outcome.sandbox,
        raw=wire.RawOutput(stdout=result.stdout.text(plain=False), stderr=result.stderr.text(plain=False))
        if raw
        else UNSET,
    )


def job_of(job: Job) -> wire.Job:
    return wire.Job(
        job_id=job.id,
        command=job.command,
        title=job.title or UNSET,
        cwd=job.cwd,
        status=job.status,
        started_at=job.started_at_ms,
        ended_at=UNSET if job.ended_at_ms is None else job.ended_at_ms,
        exit_code=UNSET if job.exit_code is None else job.exit_code,
        signal=job.signal or UNSET,
        note=job.note or UNSET,
        sandbox=job.sandbox,
        output_bytes=job.output_bytes,
    )


def summary_of(terminal: Terminal) -> wire.TerminalSummary:
    return wire.TerminalSummary(
        terminal_id=terminal.id,
        shell=terminal.shell,
        title=terminal.title or UNSET,
        cols=terminal.cols,
        rows=terminal.rows,
        created_at=terminal.created_at_ms,
        running=terminal.running,
        exit_code=UNSET if terminal.exit_code is None else terminal.exit_code,
        signal=terminal.signal or UNSET,
        sandbox=terminal.sandbox,
    )


def output_of(chunk: Chunk | JobOutput, ended: Terminal | Job | None) -> wire.TerminalOutput:
    """A piece of output; ``ended`` is what wrote it, if that has ended."""
    return wire.TerminalOutput(
        data=chunk.text,
        cursor=chunk.cursor,
        dropped=chunk.dropped,
        ended=chunk.ended,
        exit_code=UNSET if ended is None or ended.exit_code is None else ended.exit_code,
        signal=UNSET if ended is None else ended.signal or UNSET,
    )
