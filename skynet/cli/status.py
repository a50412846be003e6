"""``skynet status``."""

from __future__ import annotations

from typing import Any

from skynet.cli.client import open_client
from skynet.cli.output import ago, clock, print_fields, print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_memory.ids import now_ms
from skynet_users.money import dollars

USAGE_DAYS = 30


async def status(*, options: Options = NO_OPTIONS) -> None:
    """Show whether the gateway runs, which model answers, your budget, and the latest conversations."""
    async with open_client(find_target(options)) as client:
        health = await client.request("health")
        state = await client.request("status")
        agent = await client.request("agent.status")
        usage = await client.request("usage.cost", {"days": USAGE_DAYS})
        hello = client.hello
        has_budgets = "users.budget" in (hello.get("features") or {}).get("methods", ())
        budget = await client.request("users.budget") if has_budgets else {}
        snapshot = hello.get("snapshot") or {}
        if options.json:
            facts = {"url": client.target.url, "server": hello["server"], "uptimeMs": snapshot.get("uptimeMs")}
            facts |= {
                "authMode": snapshot.get("authMode"),
                "health": health,
                "status": state,
                "agent": agent,
                "usage": usage["totals"],
                "budget": {name: budget[name] for name in ("day", "month") if name in budget},
            }
            print_json(facts)
            return
    sessions = state.get("sessions") or {}
    print_fields(
        [
            ("gateway", f"{client.target.url} (running)"),
            ("version", str(hello["server"].get("version", ""))),
            ("up", _duration(snapshot.get("uptimeMs"))),
            ("auth", str(snapshot.get("authMode") or "")),
            ("model", str(agent["model"])),
            ("prompt", str(agent["prompt"])),
            ("providers", _providers(agent["providers"])),
            ("state", str(snapshot.get("stateDir") or "")),
            ("channels", ", ".join(map(str, state.get("channelSummary") or ()))),
            ("sessions", str(sessions.get("count", ""))),
            (f"last {USAGE_DAYS} days", _usage(usage["totals"])),
            ("today", _budget(budget.get("day"))),
            ("this month", _budget(budget.get("month"))),
        ]
    )
    if recent := sessions.get("recent"):
        print_table(("session", "model", "tokens", "last"), [_row(row) for row in recent])


def _providers(providers: list[dict[str, Any]]) -> str:
    """How many there are, and which of them are in trouble."""
    ailing = [str(provider["name"]) for provider in providers if not provider["healthy"]]
    return f"{len(providers)}" + (f", failing: {', '.join(ailing)}" if ailing else "")


def _usage(totals: dict[str, Any]) -> str:
    """What the person used: tokens, how much of the input the providers' caches had, dollars."""
    words = f"{totals['totalTokens']} tokens, {totals.get('cacheShare', 0):.0%} of the input cached"
    missing = totals["missingCostEntries"]
    return f"{words}, ${totals['totalCost']:.2f}" + (f" (+ {missing} calls of unknown price)" if missing else "")


def _budget(period: dict[str, Any] | None) -> str:
    """What was used of each limit there is, and when it starts again; "" where nothing is limited."""
    if period is None:
        return ""
    tokens, money = period["tokens"], period["microusd"]
    parts = []
    if "limit" in tokens:
        parts.append(f"{tokens['used']:,} of {tokens['limit']:,} tokens")
    if "limit" in money:
        parts.append(f"{dollars(money['used'])} of {dollars(money['limit'])}")
    return f"{', '.join(parts)} (starts again {clock(period['resetsAt'])})" if parts else ""


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
