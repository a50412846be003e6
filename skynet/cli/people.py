"""What the commands about people share: whom a name means, and how amounts are read and shown."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import GatewayClient
from skynet.cli.errors import CliError, Exit

WhoOrMe = Annotated[str, Parameter(help="A display name or an id; yourself if left out.", show_default=False)]

LEAST_PREFIX = 8
"""Characters of an id's beginning that may stand for it."""
MICRO = 1_000_000
MOST_DOLLARS = 1_000_000_000
ROLE_DEFAULT = "role"
"""What stands for the limit of the role, instead of one's own."""


async def find_person(client: GatewayClient, who: str) -> dict[str, Any]:
    """The person with this id, beginning of an id, or display name, among those the gateway shows to us.

    Raises:
        CliError: nobody, or several.
    """
    people = (await client.request("users.list"))["users"]
    wanted = who.strip()
    exact = [person for person in people if person["id"] == wanted.lower()]
    named = [person for person in people if person["displayName"].casefold() == wanted.casefold()]
    prefixed = [person for person in people if len(wanted) >= LEAST_PREFIX and person["id"].startswith(wanted.lower())]
    found = exact or prefixed or named
    if not found:
        raise CliError(f"nobody is called {who!r}", code="NOT_FOUND", hint="see: skynet users list")
    if len(found) > 1:
        ids = ", ".join(person["id"] for person in found)
        raise CliError(f"{who!r} means several people: {ids}", code="AMBIGUOUS", hint="use the whole id")
    return dict(found[0])


async def user_params(client: GatewayClient, who: str) -> dict[str, Any]:
    """``userId`` for somebody who is named; nothing for the person the commands run as."""
    return {"userId": (await find_person(client, who))["id"]} if who else {}


def identity(text: str) -> dict[str, str]:
    """``discord:1234`` as the wire has it.

    Raises:
        CliError: it is none.
    """
    channel, colon, external_id = text.partition(":")
    if not colon or not channel.strip() or not external_id.strip():
        raise usage(f"link: {text!r} is no identity", "write CHANNEL:ID, for example discord:1234")
    return {"channel": channel.strip().lower(), "externalId": external_id.strip()}


def tokens_limit(field: str, text: str) -> int | None:
    """A number of tokens; None for the role's.

    Raises:
        CliError: it is none.
    """
    if text == ROLE_DEFAULT:
        return None
    try:
        value = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        value = -1
    if value < 0:
        raise usage(f"{field}: {text!r} is no number of tokens", f"write a number, or {ROLE_DEFAULT} for the role's")
    return value


def dollars_limit(field: str, text: str) -> int | None:
    """Dollars as micro-dollars; None for the role's.

    Raises:
        CliError: it is none.
    """
    from decimal import Decimal

    if text == ROLE_DEFAULT:
        return None
    try:
        value = Decimal(text.removeprefix("$"))
        micro = int(value * MICRO) if 0 <= value <= MOST_DOLLARS else -1
    except ArithmeticError:  # no number, or not a number
        micro = -1
    if micro < 0:
        raise usage(f"{field}: {text!r} is no amount", f"write dollars, as 1.50, or {ROLE_DEFAULT} for the role's")
    return micro


def usage(message: str, hint: str) -> CliError:
    return CliError(message, exit_code=Exit.USAGE, code="usage", hint=hint)
