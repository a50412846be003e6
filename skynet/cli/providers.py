"""``skynet providers list`` and ``skynet providers test``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import open_client
from skynet.cli.errors import Exit
from skynet.cli.output import ago, print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_agent.registry import known_provider
from skynet_memory.ids import now_ms

TEST_TIMEOUT_S = 60.0


async def list_providers(*, options: Options = NO_OPTIONS) -> None:
    """List the providers, those in use first in the order they are asked, then those that could be."""
    async with open_client(find_target(options)) as client:
        result = await client.request("providers.list", {"all": True})
    if options.json:
        print_json(result)
        return
    rows = [_row(provider) for provider in result["providers"]]
    rows += [_known_row(provider) for provider in result.get("known") or ()]
    print_table(("provider", "state", "auth", "models", "first token", "last answer"), rows)


async def test(
    provider: Annotated[str, Parameter(help="One provider; all of them if left out.", show_default=False)] = "",
    /,
    *,
    model: Annotated[str, Parameter(help="One of its models; its first if left out.", show_default=False)] = "",
    options: Options = NO_OPTIONS,
) -> int:
    """Ask providers for a few tokens each. The exit code is 1 when one does not answer."""
    params = {key: value for key, value in (("provider", provider), ("model", model)) if value}
    async with open_client(find_target(options)) as client:
        result = await client.request("providers.test", params, timeout_s=TEST_TIMEOUT_S)
    if options.json:
        print_json(result)
    else:
        print_table(("provider", "state", "first token", "error"), [_test_row(row) for row in result["results"]])
    return Exit.OK if all(row["ok"] for row in result["results"]) else Exit.FAILED


def _row(provider: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(provider["name"]),
        _state(provider),
        _auth(provider),
        str(len(provider["models"])) if provider["models"] else "any",
        _seconds(provider.get("latencyMs")),
        ago(provider.get("lastSuccessAt"), now_ms()),
    )


def _state(provider: dict[str, Any]) -> str:
    """In a word, and why."""
    error = provider.get("lastError") or ""
    if provider["circuit"] == "open":
        wait_s = round(provider.get("openForMs", 0) / 1000)
        return f"open for {wait_s} s: {error}".rstrip(": ")
    if provider["healthy"] and "lastSuccessAt" in provider:
        return "ok"
    if provider["healthy"] and not error:
        return "not asked yet"
    return f"failing: {error}".rstrip(": ")


def _auth(provider: dict[str, Any]) -> str:
    """The credentials in words; why they were refused stands in the state, if that is what went wrong last."""
    auth, error = str(provider["auth"]), provider.get("lastError")
    return "refused" if error and auth == f"refused: {error}" else auth


def _known_row(provider: dict[str, Any]) -> tuple[str, ...]:
    """One that could be used, and how."""
    name, variable = str(provider["name"]), provider.get("keyVariable")
    known = known_provider(name)
    if known is not None and known.has_login:
        how = f"run skynet providers login {name}"
    else:
        how = f"set {variable}" if variable else f"add [providers.{name}]"
    return name, "not configured", how, "", "", ""


def _test_row(row: dict[str, Any]) -> tuple[str, ...]:
    return str(row["provider"]), "ok" if row["ok"] else "failed", _seconds(row.get("latencyMs")), row.get("error") or ""


def _seconds(duration_ms: object) -> str:
    return f"{duration_ms / 1000:.2f} s" if isinstance(duration_ms, int | float) else ""
