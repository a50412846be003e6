"""``skynet logs``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli.client import GatewayClient, open_client
from skynet.cli.output import print_notice, printable
from skynet.cli.target import NO_OPTIONS, Options, find_target

POLL_INTERVAL_S = 1.0


async def logs(
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Go on with what is written.", negative=())
    ] = False,
    limit: Annotated[int, Parameter(help="How many lines.", validator=Number(gte=1, lte=5000))] = 200,
    options: Options = NO_OPTIONS,
) -> None:
    """Print the gateway's log; with --json its lines as they are, one JSON object each."""
    async with open_client(find_target(options)) as client:
        cursor = await _tail(client, {"limit": limit}, as_json=options.json)
        while follow:
            await asyncio.sleep(POLL_INTERVAL_S)
            cursor = await _tail(client, {"cursor": cursor, "limit": 5000}, as_json=options.json)


async def _tail(client: GatewayClient, params: dict[str, int], *, as_json: bool) -> int:
    result = await client.request("logs.tail", params)
    if result.get("reset"):
        print_notice("-- the log was rotated --")
    elif result.get("truncated") and "cursor" in params:
        print_notice("-- some lines were skipped --")
    _print(result["lines"], as_json=as_json)
    return int(result["cursor"])


def _print(lines: Iterable[str], *, as_json: bool) -> None:
    for line in lines:
        print(line if as_json else printable(log_text(line)), flush=True)


def log_text(line: str) -> str:
    """A line of the log for a person: time, level, subsystem, message. What is no log line stays as it is."""
    try:
        record: Any = msgspec.json.decode(line)
        meta = record["_meta"]
        name = str(meta.get("name") or "")
        subsystem = msgspec.json.decode(name)["subsystem"] if name.startswith("{") else name
        words = [str(record[key]) for key in sorted((key for key in record if key.isdigit()), key=int)]
        message = " ".join(word for word in words if word != name)
        return f"{record['time']} {meta['logLevelName']:5} {subsystem}: {message}"
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return line
