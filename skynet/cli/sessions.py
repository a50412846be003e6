"""``skynet sessions``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli.client import open_client
from skynet.cli.errors import CliError
from skynet.cli.output import ago, print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet.cli.transcript import print_messages
from skynet_memory.ids import now_ms


async def list_sessions(
    *,
    limit: Annotated[int, Parameter(help="How many, newest first.", validator=Number(gte=1, lte=1000))] = 50,
    search: Annotated[
        str, Parameter(help="Only those whose name, label or key has this in it.", show_default=False)
    ] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """List your conversations, newest first."""
    params: dict[str, Any] = {"limit": limit, "includeDerivedTitles": True}
    if search:
        params["search"] = search
    async with open_client(find_target(options)) as client:
        result = await client.request("sessions.list", params)
    if options.json:
        print_json(result)
        return
    print_table(("session", "title", "model", "tokens", "last"), [_row(row) for row in result["sessions"]])


async def show(
    key: Annotated[str, Parameter(help="The conversation, as `sessions list` names it.")],
    /,
    *,
    limit: Annotated[int, Parameter(help="How many of the last messages.", validator=Number(gte=1, lte=1000))] = 50,
    options: Options = NO_OPTIONS,
) -> None:
    """Print the last messages of a conversation."""
    async with open_client(find_target(options)) as client:
        result = await client.request("chat.history", {"sessionKey": key, "limit": limit})
    if options.json:
        print_json(result)
        return
    if "sessionId" not in result:
        raise CliError(f"there is no conversation {key}", code="not_found", hint="see: skynet sessions list")
    print_messages(result["messages"])


def _row(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    title = row.get("label") or row.get("derivedTitle") or row.get("displayName") or ""
    tokens = row.get("totalTokens")
    model = "/".join(str(part) for part in (row.get("modelProvider"), row.get("model")) if part)
    updated = ago(row.get("updatedAt"), now_ms())
    return str(row["key"]), str(title), model, "" if tokens is None else str(tokens), updated
