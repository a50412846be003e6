"""``skynet jobs``: commands in the background."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli.client import open_client
from skynet.cli.exec import exit_code
from skynet.cli.output import ago, clock, is_terminal, print_fields, print_json, print_notice, print_table, printable
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_memory.ids import now_ms

JobId = Annotated[str, Parameter(help="The job, as `jobs list` names it.")]
Status = Literal["running", "completed", "failed", "timed_out", "killed", "lost"]

WAIT_MS = 20_000
PIECE_BYTES = 262_144


async def list_jobs(
    *,
    limit: Annotated[int, Parameter(help="How many, newest first.", validator=Number(gte=1, lte=200))] = 50,
    status: Annotated[Status | None, Parameter(help="Only these.")] = None,
    options: Options = NO_OPTIONS,
) -> None:
    """List your jobs, newest first."""
    params: dict[str, Any] = {"limit": limit} | ({} if status is None else {"status": status})
    async with open_client(find_target(options)) as client:
        result = await client.request("terminal.job_list", params)
    if options.json:
        print_json(result)
        return
    print_table(("job", "status", "exit", "started", "command"), [_row(job) for job in result["jobs"]])


async def show(job_id: JobId, /, *, options: Options = NO_OPTIONS) -> None:
    """Show how a job is."""
    async with open_client(find_target(options)) as client:
        result = await client.request("terminal.job_status", {"jobId": job_id})
    if options.json:
        print_json(result)
        return
    job = result["job"]
    print_fields(
        [
            ("job", str(job["jobId"])),
            ("title", str(job.get("title") or "")),
            ("command", str(job["command"])),
            ("status", str(job["status"])),
            ("exit", _end(job)),
            ("started", clock(job["startedAt"])),
            ("ended", clock(job.get("endedAt"))),
            ("note", str(job.get("note") or "")),
            ("ran in", f"{job['sandbox']}, {job['cwd']}"),
            ("output", f"{job['outputBytes']} bytes"),
        ]
    )


async def output(
    job_id: JobId,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Go on until it ends, and end as it does.", negative=())
    ] = False,
    options: Options = NO_OPTIONS,
) -> int:
    """Print what a job has written."""
    cursor, pieces = 0, []
    async with open_client(find_target(options)) as client:
        while True:
            params = {
                "jobId": job_id,
                "cursor": cursor,
                "maxBytes": PIECE_BYTES,
                "waitMs": WAIT_MS if follow else 0,
            }
            piece = await client.request("terminal.job_output", params, timeout_s=WAIT_MS / 1000 + 30)
            if piece["dropped"] and not options.json:
                print_notice(f"[{piece['dropped']} bytes are kept no more]")
            if options.json:
                pieces.append(piece)
            else:
                sys.stdout.write(printable(piece["data"]) if is_terminal() else piece["data"])
                sys.stdout.flush()
            if piece["ended"] or (not follow and piece["cursor"] == cursor):
                break
            cursor = piece["cursor"]
    if options.json:
        text = "".join(piece["data"] for piece in pieces)
        dropped = sum(piece["dropped"] for piece in pieces)
        print_json({**pieces[-1], "data": text, "dropped": dropped})
    return exit_code(piece) if follow else 0


async def kill(job_id: JobId, /, *, options: Options = NO_OPTIONS) -> None:
    """End a job with all that it has started."""
    async with open_client(find_target(options)) as client:
        result = await client.request("terminal.job_kill", {"jobId": job_id})
    if options.json:
        print_json(result)
    else:
        print(f"{result['job']['status']}: {printable(result['job']['command'])}")


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(job["jobId"]),
        str(job["status"]),
        _end(job),
        ago(job["startedAt"], now_ms()),
        str(job.get("title") or job["command"]),
    )


def _end(job: dict[str, Any]) -> str:
    return str(job.get("signal") or job.get("exitCode", ""))
