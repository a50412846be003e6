"""``skynet devices``."""

from __future__ import annotations

import time
from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import open_client
from skynet.cli.output import ago, print_json, print_table
from skynet.cli.target import GatewayOptions, find_target

NO_OPTIONS = GatewayOptions()
Options = Annotated[GatewayOptions, Parameter(name="*")]
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
    print_table(("state", "id", "name", "client", "role", "scopes", "address", "since"), waiting + paired)


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
        result = await client.request(method, params)
    if options.json:
        print_json(result)
        return
    device = result.get("device") or result
    print(f"{done} {device.get('deviceId', '')}".strip())


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
        ago(since, time.time_ns() // 1_000_000),
    )
