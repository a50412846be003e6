"""``skynet users token``: personal tokens, with which a client is somebody."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from skynet.cli.client import GatewayClient, open_client
from skynet.cli.errors import CliError
from skynet.cli.output import ago, clock, print_json, print_notice, print_table
from skynet.cli.people import WhoOrMe, user_params
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet_memory.ids import now_ms


async def create(
    name: Annotated[str, Parameter(help="What the token is for, as phone.")],
    /,
    *,
    user: Annotated[str, Parameter(help="Whose; yourself if left out.", show_default=False)] = "",
    scope: Annotated[
        tuple[str, ...],
        Parameter(help="What it may do at most, as operator.read; once for each.", negative=(), show_default=False),
    ] = (),
    days: Annotated[int | None, Parameter(help="How long it is valid; for ever if left out.")] = None,
    options: Options = NO_OPTIONS,
) -> None:
    """Make a personal token, and print it this once."""
    params: dict[str, Any] = {"name": name}
    if scope:
        params["scopes"] = [text if text.startswith("operator.") else f"operator.{text}" for text in scope]
    if days is not None:
        params["expiresInDays"] = days
    async with open_client(find_target(options)) as client:
        result = await client.request("users.tokens.create", {**params, **await user_params(client, user)})
    if options.json:
        print_json(result)
        return
    print_token(result)


async def list_tokens(who: WhoOrMe = "", /, *, options: Options = NO_OPTIONS) -> None:
    """List personal tokens, without the tokens."""
    async with open_client(find_target(options)) as client:
        result = await client.request("users.tokens.list", await user_params(client, who))
    if options.json:
        print_json(result)
        return
    rows = [
        (
            token["name"],
            ", ".join(token.get("scopes") or ["all of the role"]),
            ago(token["createdAt"], now_ms()),
            ago(token.get("lastUsedAt"), now_ms()) or "never",
            clock(token.get("expiresAt")) or "never",
            token["id"],
        )
        for token in result["tokens"]
    ]
    print_table(("name", "scopes", "made", "used", "ends", "id"), rows)


async def revoke(
    token: Annotated[str, Parameter(help="The token's name or id, as `users token list` shows it.")],
    /,
    *,
    user: Annotated[str, Parameter(help="Whose; yourself if left out.", show_default=False)] = "",
    options: Options = NO_OPTIONS,
) -> None:
    """End a token; what was let in with it is closed at once."""
    async with open_client(find_target(options)) as client:
        params = await user_params(client, user)
        result = await client.request("users.tokens.revoke", {**params, "id": await _token_id(client, params, token)})
    if options.json:
        print_json(result)
        return
    print(f"revoked {token}")


async def _token_id(client: GatewayClient, params: dict[str, Any], text: str) -> str:
    tokens = (await client.request("users.tokens.list", params))["tokens"]
    found = [each["id"] for each in tokens if text in (each["id"], each["name"])]
    if not found:
        raise CliError(f"no token is called {text!r}", code="NOT_FOUND", hint="see: skynet users token list")
    if len(found) > 1:
        raise CliError(f"{text!r} means several tokens: {', '.join(found)}", code="AMBIGUOUS", hint="use the id")
    return str(found[0])


def print_token(token: dict[str, Any]) -> None:
    """The token alone on stdout's line, so that a script can take it."""
    print(token["token"])
    print_notice("this token is shown only now; whoever holds it is this person")
