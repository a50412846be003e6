"""``skynet devices``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import RequestFailed, open_client
from skynet.cli.output import ago, is_terminal, print_json, print_rows, printable
from skynet.cli.target import NO_OPTIONS, GatewayOptions, Options, find_target
from skynet_memory.ids import now_ms

RequestId = Annotated[str, Parameter(help="The request, as `devices list` names it.")]


async def list_devices(*, options: Options = NO_OPTIONS) -> None:
    """List the devices that ask to be paired, then those that are."""
    async with open_client(find_target(options)) as client:
        result = await client.request("device.pair.list")
    if options.json:
        print_json(result)
        return
    waiting = [_row("waiting", row, row.get("requestId"), row.get("ts")) for row in result["pending"]]
    paired = [_row("paired", row, row.get("deviceId"), row.get("approvedAtMs")) for row in result["paired"]]
    _print(waiting + paired)


async def approve(request_id: RequestId, /, *, options: Options = NO_OPTIONS) -> None:
    """Let a device in that asks for it."""
    await _change("device.pair.approve", {"requestId": request_id}, options, "approved")


async def reject(request_id: RequestId, /, *, options: Options = NO_OPTIONS) -> None:
    """Refuse a device that asks to be let in."""
    await _change("device.pair.reject", {"requestId": request_id}, options, "rejected")


async def remove(
    device_id: Annotated[str, Parameter(help="The device, as `devices list` names it.")],
    /,
    *,
    options: Options = NO_OPTIONS,
) -> None:
    """Forget a paired device; its token is worth nothing from then on."""
    await _change("device.pair.remove", {"deviceId": device_id}, options, "removed")


async def _change(method: str, params: dict[str, str], options: GatewayOptions, done: str) -> None:
    async with open_client(find_target(options)) as client:
        try:
            result = await client.request(method, params)
        except RequestFailed as exc:
            exc.hint = "see: skynet devices list" if exc.code == "NOT_FOUND" else ""
            raise
    if options.json:
        print_json(result)
        return
    device = result.get("device") or result
    print(f"{done} {device.get('deviceId', '')}".strip())


def _print(rows: list[tuple[str, ...]]) -> None:
    """A terminal gets three lines a device: an id has to be in one piece to be copied."""
    if not is_terminal():
        print_rows(rows)
        return
    for state, shown_id, name, client, role, scopes, address, since in rows:
        for start, text in ((state, f"{name} ({client}), {role}, {address}, {since}"), ("", shown_id), ("", scopes)):
            print(printable(f"{start:9}{text}").rstrip())


def _row(state: str, row: dict[str, Any], shown_id: object, since: object) -> tuple[str, ...]:
    scopes = ", ".join(str(scope).removeprefix("operator.") for scope in row.get("scopes") or ())
    return (
        state,
        str(shown_id or ""),
        str(row.get("displayName") or ""),
        str(row.get("clientId") or ""),
        ", ".join(map(str, row.get("roles") or [row.get("role") or ""])),
        scopes,
        str(row.get("remoteIp") or "local"),
        ago(since, now_ms()),
    )
