"""``skynet audit``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import open_client
from skynet.cli.errors import Exit
from skynet.cli.output import clock, print_fields, print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target

PAGE = 200
"""Entries of one request at most."""
MOST = 10_000

PROBLEMS = {
    "changed": "row {seq} is not what was recorded, or not where it was",
    "missing": "row {seq} is missing",
    "cut": "the newest rows are missing, from {seq} on",
    "added": "row {seq} was not recorded by the gateway",
    "head": "the record of the last row is missing or does not fit row {seq}",
    "unlike": "row {seq} is not the one of the head that was given: the log was written anew",
}


async def list_entries(
    *,
    limit: Annotated[int, Parameter(help="Entries to print, the newest.")] = 50,
    actor: Annotated[str, Parameter(help="Only what this person did (an id).")] = "",
    subject: Annotated[str, Parameter(help="Only what was done to this person or thing (an id).")] = "",
    action: Annotated[str, Parameter(help="Only this action: login, or user for all that begin with it.")] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Print who did what, newest first."""
    filters = {name: value for name, value in (("actor", actor), ("subject", subject), ("action", action)) if value}
    entries: list[dict[str, Any]] = []
    wanted = max(1, min(limit, MOST))
    async with open_client(find_target(options)) as client:
        page: dict[str, Any] = {"nextBefore": None}
        while len(entries) < wanted and "nextBefore" in page:
            before = {"before": page["nextBefore"]} if page["nextBefore"] else {}
            params = {**filters, **before, "limit": min(PAGE, wanted - len(entries))}
            page = await client.request("audit.list", params)
            entries += page["entries"]
    if options.json:
        print_json({"entries": entries})
        return
    print_table(("seq", "time", "action", "who", "what", "details"), [_row(entry) for entry in entries])


async def verify(
    *,
    head: Annotated[str, Parameter(help="A head that was printed earlier and kept elsewhere.")] = "",
    options: Options = NO_OPTIONS,
) -> int:
    """Compute the chain of hashes anew; exit code 1 when the log is not what was recorded."""
    async with open_client(find_target(options)) as client:
        result = await client.request("audit.verify", {"head": head.strip()} if head else {})
    if options.json:
        print_json(result)
    else:
        problem = PROBLEMS.get(str(result.get("problem", "")), "the log is broken at row {seq}")
        state = "whole" if result["ok"] else "BROKEN: " + problem.format(seq=result.get("firstBadSeq"))
        print_fields([("audit log", state), ("right rows", str(result["rows"])), ("head", str(result["head"]))])
    return Exit.OK if result["ok"] else Exit.FAILED


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    details = ", ".join(f"{name}={value}" for name, value in (entry.get("details") or {}).items())
    return (
        str(entry["seq"]),
        clock(entry.get("at")),
        str(entry["action"]),
        str(entry.get("actorName") or entry.get("actor") or "nobody"),
        str(entry.get("subjectName") or entry.get("subject") or ""),
        details,
    )
