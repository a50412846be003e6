"""``skynet users``: people, their tokens and budgets."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from skynet.cli.client import RequestFailed, open_client
from skynet.cli.errors import CliError
from skynet.cli.output import clock, is_terminal, print_fields, print_json, print_notice, print_table
from skynet.cli.people import (
    WhoOrMe,
    dollars_limit,
    find_person,
    identity,
    tokens_limit,
    usage,
    user_params,
)
from skynet.cli.target import NO_OPTIONS, Options, find_target
from skynet.cli.tokens import print_token
from skynet_users.money import dollars

Role = Literal["admin", "user", "child"]
Filter = Literal["off", "moderate", "strict"]
Who = Annotated[str, Parameter(help="A display name, an id, or the beginning of one (8 characters).")]


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What can be said of a person; what is left out stays as it is."""

    language: Annotated[str | None, Parameter(help="Language the assistant answers in.")] = None
    tone: Annotated[str | None, Parameter(help="How the assistant talks.")] = None
    interest: Annotated[
        tuple[str, ...] | None, Parameter(help="An interest; once for each.", negative=(), consume_multiple=False)
    ] = None
    age: Annotated[int | None, Parameter(help="Age in years.")] = None
    time_zone: Annotated[str | None, Parameter(help="Time zone, as Europe/Berlin.")] = None
    filter: Annotated[Filter | None, Parameter(help="Content filter.")] = None
    requires_approval: Annotated[bool | None, Parameter(help="Whether risky tool calls wait for somebody's yes.")] = (
        None
    )
    allow: Annotated[
        tuple[str, ...], Parameter(help="Give a permission; once for each.", negative=(), show_default=False)
    ] = ()
    forbid: Annotated[
        tuple[str, ...], Parameter(help="Take a permission; once for each.", negative=(), show_default=False)
    ] = ()
    quiet_hours: Annotated[str | None, Parameter(help="When nothing unasked is sent, as 22:00-07:00.")] = None
    allowed_hours: Annotated[
        str | None,
        Parameter(help="When a child may talk with the assistant, as 'mo-fr 14:00-19:00, sa,su 09:00-20:00'."),
    ] = None
    daily_tokens: Annotated[str | None, Parameter(help="Tokens a day; role: as the role has.")] = None
    monthly_tokens: Annotated[str | None, Parameter(help="Tokens a month; role: as the role has.")] = None
    daily_dollars: Annotated[str | None, Parameter(help="Dollars a day; role: as the role has.")] = None
    monthly_dollars: Annotated[str | None, Parameter(help="Dollars a month; role: as the role has.")] = None

    def params(self) -> dict[str, Any]:
        """The fields that were given, as the wire has them."""
        given: dict[str, Any] = {
            "language": self.language,
            "tone": self.tone,
            "interests": None if self.interest is None else [text for text in self.interest if text],
            "age": self.age,
            "timeZone": self.time_zone,
            "contentFilter": self.filter,
            "requiresApproval": self.requires_approval,
            "quietHours": self.quiet_hours,
            "allowedHours": self.allowed_hours,
        }
        params = {name: value for name, value in given.items() if value is not None}
        flags = {**dict.fromkeys(self.allow, True), **dict.fromkeys(self.forbid, False)}
        if both := set(self.allow) & set(self.forbid):
            raise usage(f"allow: {', '.join(sorted(both))} is also under --forbid", "choose one of them")
        if flags:
            params["flags"] = flags
        for name, option, text, read in (
            ("dailyTokens", "daily-tokens", self.daily_tokens, tokens_limit),
            ("monthlyTokens", "monthly-tokens", self.monthly_tokens, tokens_limit),
            ("dailyMicrousd", "daily-dollars", self.daily_dollars, dollars_limit),
            ("monthlyMicrousd", "monthly-dollars", self.monthly_dollars, dollars_limit),
        ):
            if text is not None:
                params[name] = read(option, text)
        return params


Profile = Annotated[ProfileOptions, Parameter(name="*")]
NO_PROFILE = ProfileOptions()

LIMITS: Mapping[str, tuple[str, str]] = {
    "dailyTokens": ("tokens", "day"),
    "monthlyTokens": ("tokens", "month"),
    "dailyMicrousd": ("", "day"),
    "monthlyMicrousd": ("", "month"),
}
"""Limits of a person's own: the unit, "" for dollars, and the period."""
WORDS: Mapping[str, str] = {
    "displayName": "name",
    "timeZone": "time zone",
    "contentFilter": "content filter",
    "quietHours": "quiet hours",
    "allowedHours": "allowed hours",
}
"""Fields whose names on the wire are not what they are called here."""


async def list_users(*, options: Options = NO_OPTIONS) -> None:
    """List the people of this gateway; yourself alone, if you do not manage them."""
    async with open_client(find_target(options)) as client:
        result = await client.request("users.list")
    if options.json:
        print_json(result)
        return
    print_table(("name", "role", "state", "language", "age", "limits", "id"), [_row(user) for user in result["users"]])


async def add(
    name: Annotated[str, Parameter(help="What the person is called.")],
    /,
    *,
    role: Annotated[Role, Parameter(help="What the person may do.")] = "user",
    link: Annotated[
        tuple[str, ...],
        Parameter(
            help="An account that is this person, as discord:1234; once for each.", negative=(), show_default=False
        ),
    ] = (),
    new_token: Annotated[
        str, Parameter(name="--new-token", help="Make a personal token of this name, and print it.", show_default=False)
    ] = "",
    guardian: Annotated[
        tuple[str, ...], Parameter(help="Who looks after this child; once for each.", negative=(), show_default=False)
    ] = (),
    profile: Profile = NO_PROFILE,
    options: Options = NO_OPTIONS,
) -> None:
    """Add a person, with everything that makes them at home."""
    params = {"displayName": name, "role": role, **_without_nothing(profile.params())}
    if link:
        params["identities"] = [identity(text) for text in link]
    if guardian and role != "child":
        raise usage("guardian: only children have guardians", "add --role child")
    async with open_client(find_target(options)) as client:
        guardians = [await find_person(client, text) for text in guardian]
        user = (await client.request("users.add", params))["user"]
        alike = [each["id"] for each in (await client.request("users.list"))["users"] if _is_called(each, user)]
        result: dict[str, Any] = {"user": user}
        try:
            for each in guardians:
                params = {"userId": user["id"], "guardianId": each["id"]}
                result["guardians"] = (await client.request("users.guardians.set", params))["guardians"]
            if new_token:
                result["token"] = await client.request("users.tokens.create", {"userId": user["id"], "name": new_token})
        except RequestFailed as exc:
            exc.hint = f"{name} was added nevertheless, with the id {user['id']}"
            raise
    if options.json:
        print_json(result)
        return
    print(f"added {user['displayName']} ({user['role']}), id {user['id']}")
    if len(alike) > 1:
        print_notice(f"{len(alike)} people are called {user['displayName']} now: name them by their ids")
    if new_token:
        print_token(result["token"])


async def show(who: WhoOrMe = "", /, *, options: Options = NO_OPTIONS) -> None:
    """Show a person: profile, accounts, guardians, and what they may do."""
    async with open_client(find_target(options)) as client:
        result = await client.request("users.get", await user_params(client, who))
    if options.json:
        print_json(result)
        return
    user, permissions = result["user"], result["permissions"]
    print_fields(
        [
            ("name", user["displayName"]),
            ("id", user["id"]),
            ("role", user["role"]),
            ("state", _state(user)),
            ("language", user.get("language", "")),
            ("tone", user.get("tone", "")),
            ("interests", ", ".join(user.get("interests", ()))),
            ("age", str(user.get("age", ""))),
            ("time zone", user.get("timeZone", "")),
            ("content filter", user["contentFilter"]),
            ("risky tools", "need an approval" if user["requiresApproval"] else ""),
            ("quiet hours", user.get("quietHours", "")),
            ("allowed hours", user.get("allowedHours", "")),
            ("limits", _limits(user)),
            ("accounts", ", ".join(f"{each['channel']}:{each['externalId']}" for each in result["identities"])),
            ("guardians", _names(result["guardians"])),
            ("guardian of", _names(result["children"])),
            ("may", ", ".join(name for name, reach in permissions.items() if reach == "own")),
            ("may for all", ", ".join(name for name, reach in permissions.items() if reach == "all")),
            ("may not", ", ".join(name for name, reach in permissions.items() if reach == "none")),
        ]
    )


async def set_user(
    who: Who,
    /,
    *,
    name: Annotated[str | None, Parameter(help="A new display name.")] = None,
    role: Annotated[Role | None, Parameter(help="A new role; ends what the person has open.")] = None,
    disabled: Annotated[bool | None, Parameter(help="Nobody from now on, or somebody again; all stays.")] = None,
    unset: Annotated[
        tuple[str, ...],
        Parameter(help="Take back a permission's --allow or --forbid, or age.", negative=(), show_default=False),
    ] = (),
    profile: Profile = NO_PROFILE,
    options: Options = NO_OPTIONS,
) -> None:
    """Change a person."""
    params = profile.params()
    for field, value in (("displayName", name), ("role", role), ("disabled", disabled)):
        if value is not None:
            params[field] = value
    for text in unset:
        if text == "age":
            params["age"] = None
        else:
            params.setdefault("flags", {})[text] = None
    if not params:
        raise usage("nothing to change", "see: skynet users set --help")
    async with open_client(find_target(options)) as client:
        person = await find_person(client, who)
        result = await client.request("users.set", {"userId": person["id"], **params})
    if options.json:
        print_json(result)
        return
    print(f"changed {result['user']['displayName']}: {', '.join(_changes(params))}")


async def remove(
    who: Who,
    /,
    *,
    yes: Annotated[bool, Parameter(help="Do not ask.", negative=(), show_default=False)] = False,
    options: Options = NO_OPTIONS,
) -> None:
    """Remove a person with all that is theirs: conversations, memories, files' owner, devices, tokens."""
    async with open_client(find_target(options)) as client:
        person = await find_person(client, who)
        if not yes:
            _confirm(f"Remove {person['displayName']} ({person['role']}) and everything that is theirs?")
        result = await client.request("users.remove", {"userId": person["id"]})
    if options.json:
        print_json(result)
        return
    print(f"removed {person['displayName']}")


async def link(
    who: Who,
    account: Annotated[str, Parameter(help="The account, as discord:1234.")],
    /,
    *,
    move: Annotated[
        bool, Parameter(help="Also take it from the person it belongs to.", negative=(), show_default=False)
    ] = False,
    options: Options = NO_OPTIONS,
) -> None:
    """Say that an account on a channel is this person."""
    params: dict[str, Any] = {**identity(account), "move": move}
    async with open_client(find_target(options)) as client:
        person = await find_person(client, who)
        params["userId"] = person["id"]
        try:
            result = await client.request("identities.link", params)
        except RequestFailed as exc:
            exc.hint = "--move takes it from them" if "belongs to another person" in str(exc) else exc.hint
            raise
    if options.json:
        print_json(result)
        return
    print(f"{result['channel']}:{result['externalId']} is {person['displayName']}")


async def unlink(
    who: Who,
    account: Annotated[str, Parameter(help="The account, as discord:1234.")],
    /,
    *,
    options: Options = NO_OPTIONS,
) -> None:
    """Say that an account on a channel is this person no more."""
    async with open_client(find_target(options)) as client:
        person = await find_person(client, who)
        result = await client.request("identities.unlink", {"userId": person["id"], **identity(account)})
    if options.json:
        print_json(result)
        return
    print(f"{result['channel']}:{result['externalId']} is {person['displayName']} no more")


async def code(*, options: Options = NO_OPTIONS) -> None:
    """Make a code that links an account of your own: send it from there within ten minutes."""
    async with open_client(find_target(options)) as client:
        result = await client.request("identities.code")
    if options.json:
        print_json(result)
        return
    print(f"send this from the account that you want to link: {result['say']}")
    print_notice(f"valid until {clock(result['expiresAt'])}")


async def guardian(
    child: Annotated[str, Parameter(help="The child.")],
    who: Annotated[str, Parameter(help="The guardian.")],
    /,
    *,
    reads_transcripts: Annotated[bool, Parameter(help="May read what the child wrote.")] = False,
    remove: Annotated[bool, Parameter(help="No guardian any more.", negative=(), show_default=False)] = False,
    options: Options = NO_OPTIONS,
) -> None:
    """Give a child a guardian, or take one away. Children without one are looked after by every admin."""
    async with open_client(find_target(options)) as client:
        params: dict[str, Any] = {
            "userId": (await find_person(client, child))["id"],
            "guardianId": (await find_person(client, who))["id"],
        }
        if remove:
            result = await client.request("users.guardians.remove", params)
        else:
            result = await client.request("users.guardians.set", params | {"readsTranscripts": reads_transcripts})
    if options.json:
        print_json(result)
        return
    print(f"guardians of {child}: {_names(result['guardians']) or 'every admin'}")


async def password(
    who: WhoOrMe = "",
    /,
    *,
    options: Options = NO_OPTIONS,
) -> None:
    """Set a password. It is asked for, or read from standard input: the new one, then the one before where there is
    one."""
    async with open_client(find_target(options)) as client:
        params = await user_params(client, who)
        params["password"] = _secret("New password: ")
        if not who:
            params["current"] = _secret("Password before (empty if there is none): ")
        result = await client.request("users.password", params)
    if options.json:
        print_json(result)
        return
    print("password set")


async def budget(who: WhoOrMe = "", /, *, options: Options = NO_OPTIONS) -> None:
    """Show what was used of a person's budget, and when it starts again."""
    async with open_client(find_target(options)) as client:
        result = await client.request("users.budget", await user_params(client, who))
    if options.json:
        print_json(result)
        return
    rows = [
        (title, *_used(result[field]), clock(result[field]["resetsAt"]))
        for title, field in (
            (f"{result['displayName']}, day", "day"),
            (f"{result['displayName']}, month", "month"),
            ("house, day", "houseDay"),
            ("house, month", "houseMonth"),
        )
        if field in result
    ]
    print_table(("whose", "tokens", "money", "starts again"), rows)


def _without_nothing(params: dict[str, Any]) -> dict[str, Any]:
    """A new person has the role's limits anyway."""
    return {name: value for name, value in params.items() if value is not None}


def _is_called(other: dict[str, Any], user: dict[str, Any]) -> bool:
    return str(other["displayName"]).casefold() == str(user["displayName"]).casefold()


def _changes(params: dict[str, Any]) -> Iterator[str]:
    """What was changed, in a person's words."""
    for field, value in params.items():
        if field == "flags":
            words = {True: "allowed", False: "forbidden", None: "as the role has it"}
            yield from (f"{permission} {words[given]}" for permission, given in value.items())
        elif field == "disabled":
            yield "disabled" if value else "not disabled any more"
        elif field == "requiresApproval":
            yield "risky tools need an approval" if value else "risky tools need no approval"
        elif field in LIMITS:
            unit, period = LIMITS[field]
            yield f"{unit or 'dollars'} a {period} as the role has them" if value is None else _limit(field, value)
        else:
            text = ", ".join(value) if isinstance(value, list) else str(value or "")
            yield f"{WORDS.get(field, field)} {text or 'taken back'}"


def _confirm(question: str) -> None:
    if not (is_terminal() and sys.stdin.isatty()):
        raise usage("not confirmed: nobody is there to ask", "add --yes")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise CliError("nothing was removed", code="cancelled")


def _secret(prompt: str) -> str:
    return getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")


def _row(user: dict[str, Any]) -> Sequence[str]:
    return (
        user["displayName"],
        user["role"],
        _state(user),
        user.get("language", ""),
        str(user.get("age", "")),
        _limits(user),
        user["id"],
    )


def _state(user: dict[str, Any]) -> str:
    if user["disabled"]:
        return "disabled"
    return "new" if user["needsWelcome"] else "active"


def _limits(user: dict[str, Any]) -> str:
    """The person's own; nothing where the role's apply."""
    return ", ".join(_limit(field, user[field]) for field in LIMITS if field in user)


def _limit(field: str, value: int) -> str:
    unit, period = LIMITS[field]
    return f"{value:,} {unit} a {period}" if unit else f"{dollars(value)} a {period}"


def _names(people: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        each["displayName"] + (" (reads transcripts)" if each.get("readsTranscripts") else "") for each in people
    )


def _used(period: dict[str, Any]) -> tuple[str, str]:
    tokens, money = period["tokens"], period["microusd"]
    return (
        f"{tokens['used']:,}" + (f" of {tokens['limit']:,}" if "limit" in tokens else ""),
        dollars(money["used"]) + (f" of {dollars(money['limit'])}" if "limit" in money else ""),
    )
