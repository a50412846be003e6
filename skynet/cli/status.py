"""``skynet status``."""

from __future__ import annotations

from typing import Any

from skynet.cli.client import open_client
from skynet.cli.output import ago, print_fields, print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_memory.ids import now_ms


async def status(*, options: Options = NO_OPTIONS) -> None:
    """Show whether the gateway runs, which model answers, and the latest conversations."""
    async with open_client(find_target(options)) as client:
        health = await client.request("health")
        state = await client.request("status")
        hello = client.hello
        snapshot = hello.get("snapshot") or {}
        if options.json:
            facts = {"url": client.target.url, "server": hello["server"], "uptimeMs": snapshot.get("uptimeMs")}
            facts |= {"authMode": snapshot.get("authMode"), "health": health, "status": state}
            print_json(facts)
            return
    sessions = state.get("sessions") or {}
    print_fields(
        [
            ("gateway", f"{client.target.url} (running)"),
            ("version", str(hello["server"].get("version", ""))),
            ("up", _duration(snapshot.get("uptimeMs"))),
            ("auth", str(snapshot.get("authMode") or "")),
            ("model", str((sessions.get("defaults") or {}).get("model") or "")),
            ("state", str(snapshot.get("stateDir") or "")),
            ("channels", ", ".join(map(str, state.get("channelSummary") or ()))),
            ("sessions", str(sessions.get("count", ""))),
        ]
    )
    print_table(("session", "model", "tokens", "last"), [_row(row) for row in sessions.get("recent") or ()])


def _row(row: dict[str, Any]) -> tuple[str, str, str, str]:
    tokens = row.get("totalTokens")
    updated = ago(row.get("updatedAt"), now_ms())
    return str(row.get("key", "")), str(row.get("model") or ""), "" if tokens is None else str(tokens), updated


def _duration(duration_ms: object) -> str:
    if not isinstance(duration_ms, int | float):
        return ""
    minutes, seconds = divmod(int(duration_ms // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{value}{unit}" for value, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")) if value]
    return " ".join(parts[:2]) or "0s"
