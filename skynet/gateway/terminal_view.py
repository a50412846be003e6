"""Commands, jobs and terminals as clients see them."""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET

from skynet.gateway.command_desk import ExecOutcome
from skynet_protocol import terminal as wire
from skynet_terminal.capture import LONGEST_TEXT, Captured
from skynet_terminal.jobs import Job, JobOutput
from skynet_terminal.pty import Terminal
from skynet_terminal.viewers import Chunk

_CUT: Final = re.compile(r"\n\[… (\d+) characters left out …\]\n")


def exec_result(outcome: ExecOutcome, *, raw: bool = False) -> wire.TerminalExecResult:
    """How a command ended. Takes some ms for much output."""
    result = outcome.result
    output = result.output.text()
    omitted = _omitted(result.output, output)
    cut_apart = any(_omitted(each, each.text()) for each in (result.stdout, result.stderr))
    return wire.TerminalExecResult(
        stdout=result.stdout.text(),
        stderr=result.stderr.text(),
        output=output,
        exit_code=result.exit_code,
        signal=result.signal or UNSET,
        timed_out=result.timed_out,
        overrun=result.overrun or UNSET,
        duration_ms=result.duration_ms,
        truncated=bool(omitted) or cut_apart,
        omitted_chars=omitted,
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


def _omitted(captured: Captured, text: str) -> int:
    """How many characters of it ``text`` leaves out, which says so in its middle."""
    found = _CUT.search(text) if captured.omitted_bytes else _CUT.match(text, LONGEST_TEXT * 7 // 10)
    return 0 if found is None else int(found[1])
