"""``skynet approvals``: commands that wait for a yes, and those that were allowed for good."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import GatewayClient, open_client
from skynet.cli.errors import CliError
from skynet.cli.output import ago, print_json, print_table
from skynet.cli.people import find_person
from skynet.cli.questions import SHOWN_ENDING, one_line, place
from skynet.cli.target import NO_OPTIONS, GatewayOptions, Options, find_target
from skynet_memory.ids import now_ms

LEAST_ENDING = 4
"""Characters of an id's end that name it: the beginning is a time."""

CommandId = Annotated[str, Parameter(help="Its id, or the end of it, as `approvals list` shows it.")]
GrantId = Annotated[str, Parameter(help="Its id, or the end of it, as `approvals grants list` shows it.")]
Person = Annotated[str, Parameter(help="Of somebody else, for admins.", show_default=False)]


async def list_open(*, options: Options = NO_OPTIONS) -> None:
    """List commands that wait for a yes: what you may decide, and what you asked for."""
    async with open_client(find_target(options)) as client:
        result = await client.request("exec.approval.list")
    if options.json:
        print_json(result)
        return
    columns = ("id", "command", "where", "why", "asked by", "state", "ends")
    print_table(columns, [_row(each) for each in result["approvals"]])


async def allow(
    approval_id: CommandId,
    /,
    *,
    always: Annotated[
        bool, Parameter(help="Do not ask about this command again.", negative=(), show_default=False)
    ] = False,
    options: Options = NO_OPTIONS,
) -> None:
    """Let a command run that waits for a yes."""
    await _resolve(approval_id, "allow-always" if always else "allow-once", options)


async def deny(approval_id: CommandId, /, *, options: Options = NO_OPTIONS) -> None:
    """Refuse a command that waits for a yes."""
    await _resolve(approval_id, "deny", options)


async def list_grants(*, person: Person = "", options: Options = NO_OPTIONS) -> None:
    """List the commands that were allowed for good."""
    async with open_client(find_target(options)) as client:
        result = await client.request("exec.approval.grants", await _whose(client, person))
    if options.json:
        print_json(result)
        return
    columns = ("id", "command", "where", "allowed", "last used", "uses")
    print_table(columns, [_grant_row(each) for each in result["grants"]])


async def remove_grant(grant_id: GrantId, /, *, person: Person = "", options: Options = NO_OPTIONS) -> None:
    """Ask about such a command again."""
    async with open_client(find_target(options)) as client:
        whose = await _whose(client, person)
        grants = (await client.request("exec.approval.grants", whose))["grants"]
        found = _named(grants, grant_id, "see: skynet approvals grants list")
        result = await client.request("exec.approval.grants.remove", {"id": found["id"], **whose})
    if options.json:
        print_json(result)
        return
    print(f"asked about again: {_pattern(found['pattern'])}")


async def _resolve(approval_id: str, decision: str, options: GatewayOptions) -> None:
    async with open_client(find_target(options)) as client:
        waiting = (await client.request("exec.approval.list"))["approvals"]
        found = _named(waiting, approval_id, "see: skynet approvals list")
        result = await client.request("exec.approval.resolve", {"id": found["id"], "decision": decision})
    if options.json:
        print_json(result)
        return
    print(f"{decision}: {one_line(found['request']['command'])}")


async def _whose(client: GatewayClient, person: str) -> dict[str, Any]:
    return {"userId": (await find_person(client, person))["id"]} if person else {}


def _named(found: list[dict[str, Any]], text: str, hint: str) -> dict[str, Any]:
    """
    Raises:
        CliError: none has this id, or several end so.
    """
    ending = text.strip().removeprefix("…")
    exact = [each for each in found if each["id"] == ending]
    named = exact or [each for each in found if len(ending) >= LEAST_ENDING and each["id"].endswith(ending)]
    if len(named) != 1:
        raise CliError(f"{len(named) or 'no'} ids end in {text!r}", code="NOT_FOUND", hint=hint)
    return named[0]


def _pattern(text: str) -> str:
    """The command that a grant is of; in patterns a backslash comes before what would stand for any word."""
    return one_line(shlex.join(word.removeprefix("\\") for word in json.loads(text)))


def _row(waiting: dict[str, Any]) -> tuple[str, ...]:
    request = waiting["request"]
    minutes, seconds = divmod(max(0, waiting["expiresAtMs"] - now_ms()) // 1000, 60)
    return (
        waiting["id"][-SHOWN_ENDING:],
        one_line(request["command"]),
        place(request),
        one_line(request.get("reason", "")),
        request.get("askedBy", ""),
        "you may decide" if waiting["decidable"] else "waits for somebody else",
        f"in {minutes}:{seconds:02}",
    )


def _grant_row(grant: dict[str, Any]) -> tuple[str, ...]:
    at_ms = now_ms()
    return (
        grant["id"][-SHOWN_ENDING:],
        _pattern(grant["pattern"]),
        place(grant),
        ago(grant["createdAt"], at_ms),
        ago(grant["lastUsedAt"], at_ms) if grant["lastUsedAt"] else "never",
        str(grant["uses"]),
    )
