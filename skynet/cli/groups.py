"""``skynet users groups``: rooms that several people share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from skynet.cli.client import GatewayClient, open_client
from skynet.cli.errors import CliError
from skynet.cli.output import print_json, print_notice, print_table
from skynet.cli.people import find_person
from skynet.cli.target import NO_OPTIONS, GatewayOptions, Options, find_target

Room = Annotated[str, Parameter(help="The room's name or id, as `users groups list` shows it.")]


async def list_groups(*, options: Options = NO_OPTIONS) -> None:
    """List your rooms; all of them, if you manage rooms."""
    async with open_client(find_target(options)) as client:
        result = await client.request("groups.list")
        names = {} if options.json else await _members(client, result["groups"])
    if options.json:
        print_json(result)
        return
    print_table(
        ("name", "state", "where", "members", "id"),
        [
            (
                group["name"],
                "open" if group["active"] else "closed",
                f"{group['channel']}:{group['externalId']}" if "channel" in group else "here",
                names[group["id"]],
                group["id"],
            )
            for group in result["groups"]
        ],
    )


async def create(
    name: Annotated[str, Parameter(help="What the room is called.")],
    /,
    *,
    history: Annotated[
        Literal["from_join", "all"], Parameter(help="What members see: all, or what was said since they came.")
    ] = "from_join",
    options: Options = NO_OPTIONS,
) -> None:
    """Make a room, with you in it."""
    async with open_client(find_target(options)) as client:
        result = await client.request("groups.create", {"name": name, "history": history})
        rooms = (await client.request("groups.list"))["groups"]
        alike = sum(each["name"].casefold() == result["group"]["name"].casefold() for each in rooms)
    if options.json:
        print_json(result)
        return
    print(f"made {result['group']['name']}, id {result['group']['id']}")
    if alike > 1:
        print_notice(f"{alike} rooms are called {result['group']['name']} now: name them by their ids")


async def add(
    room: Room, who: Annotated[str, Parameter(help="Who is to be in it.")], /, *, options: Options = NO_OPTIONS
) -> None:
    """Let somebody into a room."""
    await _change("groups.join", room, who, options, "is in")


async def remove(
    room: Room, who: Annotated[str, Parameter(help="Who is to leave it.")], /, *, options: Options = NO_OPTIONS
) -> None:
    """Take somebody out of a room."""
    await _change("groups.leave", room, who, options, "is no more in")


async def close(room: Room, /, *, options: Options = NO_OPTIONS) -> None:
    """Close a room: it keeps what it has and takes no messages."""
    await _set(room, False, options)


async def open_room(room: Room, /, *, options: Options = NO_OPTIONS) -> None:
    """Open a room again."""
    await _set(room, True, options)


async def _change(method: str, room: str, who: str, options: GatewayOptions, done: str) -> None:
    async with open_client(find_target(options)) as client:
        group, person = await _find(client, room), await find_person(client, who)
        result = await client.request(method, {"groupId": group["id"], "userId": person["id"]})
    if options.json:
        print_json(result)
        return
    print(f"{person['displayName']} {done} {group['name']}")


async def _set(room: str, active: bool, options: GatewayOptions) -> None:
    async with open_client(find_target(options)) as client:
        group = await _find(client, room)
        result = await client.request("groups.set", {"groupId": group["id"], "active": active})
    if options.json:
        print_json(result)
        return
    print(f"{group['name']} is {'open' if active else 'closed'}")


async def _find(client: GatewayClient, room: str) -> dict[str, Any]:
    groups = (await client.request("groups.list"))["groups"]
    found = [group for group in groups if group["id"] == room.lower()]
    found = found or [group for group in groups if group["name"].casefold() == room.strip().casefold()]
    if not found:
        raise CliError(f"no room is called {room!r}", code="NOT_FOUND", hint="see: skynet users groups list")
    if len(found) > 1:
        ids = ", ".join(group["id"] for group in found)
        raise CliError(f"{room!r} means several rooms: {ids}", code="AMBIGUOUS", hint="use the id")
    return dict(found[0])


async def _members(client: GatewayClient, groups: list[dict[str, Any]]) -> dict[str, str]:
    """Who is in each, in words."""
    names = {}
    for group in groups:
        members = (await client.request("groups.members", {"groupId": group["id"]}))["members"]
        names[group["id"]] = ", ".join(member["displayName"] for member in members)
    return names
