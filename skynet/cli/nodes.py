"""``skynet nodes``: a person's own machines, as the assistant sees and uses them."""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from skynet.cli.client import GatewayClient, RequestFailed, open_client
from skynet.cli.errors import CliError, Exit
from skynet.cli.exec import execute
from skynet.cli.output import ago, print_fields, print_json, print_table
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_memory.ids import now_ms

LEAST_PREFIX = 6
"""Characters of an id's beginning that name a node."""
SHOWN_PREFIX = 12

Node = Annotated[str, Parameter(help="The node: its name, or its id or the beginning of either.")]


async def list_nodes(*, options: Options = NO_OPTIONS) -> None:
    """List your nodes, connected ones first."""
    async with open_client(find_target(options)) as client:
        result = await client.request("node.list")
    if options.json:
        print_json(result)
        return
    print_table(("id", "name", "state", "platform", "since"), [_row(node) for node in result["nodes"]])


async def describe(node: Node, /, *, options: Options = NO_OPTIONS) -> None:
    """Show a node, and what it can be asked for."""
    async with open_client(find_target(options)) as client:
        found = await _find(client, node)
        result = await client.request("node.describe", {"nodeId": found["nodeId"]})
    if options.json:
        print_json(result)
        return
    shown = (
        ("id", result["nodeId"]),
        ("name", _name(result)),
        ("state", _state(result)),
        ("platform", result.get("platform", "")),
        ("version", result.get("version", "")),
        ("address", result.get("remoteIp", "") or "local"),
        ("can", ", ".join(result["commands"])),
    )
    print_fields((name, str(value)) for name, value in shown if value)


async def invoke(
    node: Node,
    command: Annotated[str, Parameter(help="What it is asked for, `system.which` for example.")],
    params: Annotated[str, Parameter(help="What the command takes, as a JSON object.")] = "{}",
    /,
    *,
    timeout: Annotated[float, Parameter(help="Seconds until it is given up.", validator=Number(gt=0, lte=600))] = 30.0,
    options: Options = NO_OPTIONS,
) -> None:
    """Have a node carry out one of its commands, and print its answer as JSON."""
    try:
        given = json.loads(params)
    except ValueError as exc:
        raise CliError(f"params are no JSON: {exc}", exit_code=Exit.USAGE, code="usage") from exc
    async with open_client(find_target(options)) as client:
        found = await _find(client, node)
        result = await client.request(
            "node.invoke",
            {
                "nodeId": found["nodeId"],
                "command": command,
                "params": given,
                "timeoutMs": round(timeout * 1000),
                "idempotencyKey": str(uuid.uuid4()),
            },
            timeout_s=timeout + 10,
        )
    print_json(result if options.json else result["payload"])


async def run(
    node: Node,
    /,
    *command: Annotated[
        str,
        Parameter(
            help="One word is a line for the node's shell; several are a program and its arguments, after -- if they"
            " are options of this command too.",
            allow_leading_hyphen=True,
        ),
    ],
    cwd: Annotated[str, Parameter(help="Directory on the node.", show_default=False)] = "",
    timeout: Annotated[
        float | None, Parameter(help="Seconds until it is killed.", validator=Number(gt=0, lte=300))
    ] = None,
    options: Options = NO_OPTIONS,
) -> int:
    """Run a command on a node and end as it does: the same as `skynet exec --node`."""
    return await execute(*command, cwd=cwd, timeout=timeout, node=node, options=options)


async def rename(
    node: Node,
    name: Annotated[str, Parameter(help="What it is called from now on, whatever it calls itself.")],
    /,
    *,
    options: Options = NO_OPTIONS,
) -> None:
    """Give a node another name."""
    async with open_client(find_target(options)) as client:
        found = await _find(client, node)
        result = await client.request("node.rename", {"nodeId": found["nodeId"], "displayName": name})
    if options.json:
        print_json(result)
        return
    print(f"{found['nodeId'][:SHOWN_PREFIX]} is now {result['displayName']}")


async def _find(client: GatewayClient, wanted: str) -> dict[str, Any]:
    """The one of the caller's nodes that is meant.

    Raises:
        CliError: none, or several.
    """
    nodes, said = (await client.request("node.list"))["nodes"], wanted.strip().casefold()
    by_id = [node for node in nodes if node["nodeId"] == said]
    named = [node for node in nodes if said and _name(node).casefold() == said]
    begun = [node for node in nodes if said and _name(node).casefold().startswith(said)]
    prefixed = [node for node in nodes if len(said) >= LEAST_PREFIX and node["nodeId"].startswith(said)]
    found = by_id or named or begun or prefixed
    if len(found) == 1:
        return dict(found[0])
    if found:
        shown = ", ".join(f"{_name(node)} ({node['nodeId'][:SHOWN_PREFIX]})" for node in found)
        raise CliError(f"{wanted!r} means several nodes: {shown}", code="AMBIGUOUS", hint="use the id")
    raise RequestFailed(f"no node is called {wanted!r}", code="NOT_FOUND", hint="see: skynet nodes list")


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    return (
        node["nodeId"][:SHOWN_PREFIX],
        _name(node),
        _state(node),
        str(node.get("platform") or ""),
        ago(node.get("connectedAtMs"), now_ms()),
    )


def _name(node: dict[str, Any]) -> str:
    return str(node.get("displayName") or node["nodeId"])


def _state(node: dict[str, Any]) -> str:
    return "connected" if node["connected"] else "offline"
