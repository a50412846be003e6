"""``skynet users approvals``, ``approve`` and ``deny``: what waits for somebody's decision."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from skynet.cli.client import RequestFailed, open_client
from skynet.cli.output import ago, print_json, print_table
from skynet.cli.people import find_person
from skynet.cli.target import NO_OPTIONS, GatewayOptions, Options, find_target
from skynet_memory.ids import now_ms

SHOWN_ENDING = 8
"""Characters of an id's end, which name it: the beginning is a time."""

ApprovalId = Annotated[str, Parameter(help="Its id, or the end of it, as `users approvals` shows it.")]


async def list_approvals(
    *,
    all: Annotated[  # noqa: A002 - the flag's name
        bool, Parameter(help="Also what was decided or has expired.", negative=(), show_default=False)
    ] = False,
    options: Options = NO_OPTIONS,
) -> None:
    """List what waits for a decision: what you may decide, and what you asked for."""
    async with open_client(find_target(options)) as client:
        result = await client.request("approvals.list", {} if all else {"status": "pending"})
    if options.json:
        print_json(result)
        return
    print_table(("id", "kind", "what", "asked by", "state", "asked"), [_row(each) for each in result["approvals"]])


async def approve(
    approval_id: ApprovalId,
    /,
    *,
    role: Annotated[Literal["user", "child"] | None, Parameter(help="Role of the new person (user).")] = None,
    name: Annotated[str, Parameter(help="What the new person is called.", show_default=False)] = "",
    person: Annotated[str, Parameter(help="Whose account it is, instead of a new person's.", show_default=False)] = "",
    reason: Annotated[str, Parameter(help="What the person is told.", show_default=False)] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Approve a request; somebody who writes for the first time becomes a person."""
    params: dict[str, Any] = {}
    if role is not None:
        params["role"] = role
    if name:
        params["displayName"] = name
    await _decide(approval_id, True, reason, params, person, options)


async def deny(
    approval_id: ApprovalId,
    /,
    *,
    reason: Annotated[str, Parameter(help="What the person is told.", show_default=False)] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """Deny a request."""
    await _decide(approval_id, False, reason, {}, "", options)


async def _decide(
    approval_id: str, approve: bool, reason: str, params: dict[str, Any], person: str, options: GatewayOptions
) -> None:
    async with open_client(find_target(options)) as client:
        if person:
            params["userId"] = (await find_person(client, person))["id"]
        params |= {"id": approval_id, "approve": approve, "reason": reason}
        try:
            result = await client.request("approvals.decide", params)
        except RequestFailed as exc:
            exc.hint = "see: skynet users approvals" if exc.code == "NOT_FOUND" else exc.hint
            raise
    if options.json:
        print_json(result)
        return
    who = f"; {result['user']['displayName']} is let in as {result['user']['role']}" if "user" in result else ""
    print(f"{result['approval']['status']}: {result['approval']['summary']}{who}")


def _row(approval: dict[str, Any]) -> tuple[str, ...]:
    state = approval["status"]
    if state == "pending":
        state = "you may decide" if approval["decidable"] else "waits for somebody else"
    return (
        approval["id"][-SHOWN_ENDING:],
        approval["kind"].replace("_", " "),
        approval["summary"],
        approval.get("requesterName", ""),
        state,
        ago(approval["createdAt"], now_ms()),
    )
