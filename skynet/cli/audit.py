"""``skynet audit``."""

from __future__ import annotations

import re
from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import GatewayClient, open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.output import clock, is_terminal, print_fields, print_json, print_table
from skynet.cli.people import find_person, usage
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


_HEAD = re.compile(r"[0-9]{1,18}:[0-9a-fA-F]{64}")
_LONG_ID = re.compile(r"[0-9a-f]{64}")
SHOWN_OF_ID = 12
"""Characters of a device's id that a person is shown."""


async def list_entries(
    *,
    limit: Annotated[int, Parameter(help="Entries to print, the newest.")] = 50,
    actor: Annotated[str, Parameter(help="Only what this person did: a display name or an id.")] = "",
    subject: Annotated[str, Parameter(help="Only what was done to this person, or the thing of this id.")] = "",
    action: Annotated[str, Parameter(help="Only this action: login, or user for all that begin with it.")] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Print who did what, newest first."""
    filters = {"action": action} if action else {}
    entries: list[dict[str, Any]] = []
    wanted = max(1, min(limit, MOST))
    async with open_client(find_target(options)) as client:
        for name, who in (("actor", actor), ("subject", subject)):
            if who:
                filters[name] = await _id(client, who)
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
    head = head.strip()
    if head and not _HEAD.fullmatch(head):
        raise usage(f"head: {head!r} is none", "give what `skynet audit verify` printed as head")
    async with open_client(find_target(options)) as client:
        result = await client.request("audit.verify", {"head": head} if head else {})
    if options.json:
        print_json(result)
    else:
        problem = PROBLEMS.get(str(result.get("problem", "")), "the log is broken at row {seq}")
        state = "whole" if result["ok"] else "BROKEN: " + problem.format(seq=result.get("firstBadSeq"))
        print_fields([("audit log", state), ("right rows", str(result["rows"])), ("head", str(result["head"]))])
    return Exit.OK if result["ok"] else Exit.FAILED


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    details = ", ".join(f"{name}={_detail(value)}" for name, value in (entry.get("details") or {}).items())
    return (
        str(entry["seq"]),
        clock(entry.get("at")),
        str(entry["action"]),
        str(entry.get("actorName") or entry.get("actor") or "nobody"),
        str(entry.get("subjectName") or entry.get("subject") or ""),
        details,
    )


async def _id(client: GatewayClient, who: str) -> str:
    """The id of the person of this name; anything else, as the id of somebody who was removed, is one already."""
    try:
        return str((await find_person(client, who))["id"])
    except CliError as exc:
        if exc.code == "NOT_FOUND" and len(who) >= len("00000000-0000-0000-0000-000000000000"):
            return who
        raise


def _detail(value: object) -> str:
    if isinstance(value, list):
        return "+".join(map(_detail, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return text[:SHOWN_OF_ID] + "…" if is_terminal() and _LONG_ID.fullmatch(text) else text
