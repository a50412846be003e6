"""``skynet users …`` against a real gateway: as its owner, and as people with tokens of their own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skynet.cli.errors import CliError, Exit
from skynet.cli.people import dollars_limit, identity, tokens_limit
from tests.skynet.cli.conftest import Outcome, RunningGateway, Skynet

As = Callable[..., Outcome]


@pytest.fixture
def name() -> str:
    """Of somebody new: the gateway is the same for all tests."""
    return f"Mia {uuid.uuid4().hex[:8]}"


@pytest.fixture
def as_person(
    skynet: Skynet, gateway: RunningGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], As]:
    """Commands as the person with this token, from a machine of their own."""

    def of(token: str) -> As:
        def run(*arguments: str) -> Outcome:
            with monkeypatch.context() as patch:
                patch.setenv("SKYNET_HOME", str(tmp_path / token[-8:]))
                return skynet(*arguments, "--url", gateway.url, "--token", token)

        return run

    return of


def added(skynet: Skynet, name: str, *options: str) -> dict[str, Any]:
    outcome = skynet("users", "add", name, *options, "--json")
    assert outcome.code == Exit.OK, outcome.out
    result: dict[str, Any] = json.loads(outcome.out)
    return result


def listed(skynet: Skynet, name: str) -> dict[str, Any]:
    (user,) = [
        user for user in json.loads(skynet("users", "list", "--json").out)["users"] if user["displayName"] == name
    ]
    return dict(user)


class TestAdd:
    def test_a_child_in_one_go(self, skynet: Skynet, name: str) -> None:
        account = f"discord:{uuid.uuid4().int}"
        options = ["--role", "child", "--age", "9", "--language", "de", "--interest", "horses", "--interest", "space"]
        outcome = skynet(
            "users", "add", name, *options, "--monthly-dollars", "2.50", "--link", account, "--new-token", "phone",
            "--allow", "files.read", "--guardian", "owner", "--daily-tokens", "20_000",
            "--allowed-hours", "mo-fr 14:00-19:00",
        )  # fmt: skip
        assert outcome.code == Exit.OK
        first, token = outcome.out.splitlines()
        user = listed(skynet, name)
        assert first == f"added {name} (child), id {user['id']}"
        assert token.startswith("sk-sky-")
        assert "shown only now" in outcome.err
        shown = dict(line.split("\t") for line in skynet("users", "show", name.upper()).out.splitlines())
        assert (shown["accounts"], shown["guardians"], shown["age"]) == (account, "Owner", "9")
        assert (shown["interests"], shown["content filter"]) == ("horses, space", "strict")
        assert shown["limits"] == "20,000 tokens a day, $2.50 a month"
        assert "files.read" in shown["may"] and "commands.run" in shown["may not"]

    def test_json_has_the_token_too(self, skynet: Skynet, name: str) -> None:
        result = added(skynet, name, "--new-token", "phone")
        assert result["user"]["role"] == "user"
        assert result["token"]["token"].startswith("sk-sky-")
        assert result["token"]["userId"] == result["user"]["id"]

    def test_nobody_is_added_when_the_account_is_somebodys(self, skynet: Skynet, name: str) -> None:
        account = f"discord:{uuid.uuid4().int}"
        added(skynet, name, "--link", account)
        outcome = skynet("users", "add", f"{name} two", "--link", account)
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert f"identities: {account} belongs to another person" in outcome.err
        assert f"{name} two" not in skynet("users", "list").out

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--link", "1234"], "link: '1234' is no identity"),
            (["--daily-tokens", "many"], "daily-tokens: 'many' is no number of tokens"),
            (["--daily-dollars", "-1"], "daily-dollars: '-1' is no amount"),
            (["--daily-dollars", "nan"], "daily-dollars: 'nan' is no amount"),
            (["--guardian", "owner"], "guardian: only children have guardians"),
            (["--allow", "files.read", "--forbid", "files.read"], "allow: files.read is also under --forbid"),
            (["--role", "owner"], "role"),
            (["--age", "nine"], "age"),
        ],
    )
    def test_a_wrong_command_line_tries_nothing(
        self, skynet: Skynet, name: str, options: list[str], words: str
    ) -> None:
        outcome = skynet("users", "add", name, *options)
        assert (outcome.code, outcome.out) == (Exit.USAGE, "")
        assert words in outcome.err.lower() or words in outcome.err
        assert name not in skynet("users", "list").out

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--time-zone", "Mars"], "timeZone: must be an IANA name"),
            (["--quiet-hours", "late"], "quietHours: "),
            (["--allow", "fly"], "flags: there is no permission 'fly'"),
            (["--age", "200"], "age: must be"),
        ],
    )
    def test_what_the_gateway_refuses_names_the_field(
        self, skynet: Skynet, name: str, options: list[str], words: str
    ) -> None:
        outcome = skynet("users", "add", name, *options)
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert words in outcome.err

    def test_what_was_done_is_told_when_the_rest_fails(self, skynet: Skynet, name: str) -> None:
        outcome = skynet("users", "add", name, "--new-token", "x" * 100)
        assert outcome.code == Exit.FAILED
        assert f"{name} was added nevertheless, with the id {listed(skynet, name)['id']}" in outcome.err


class TestNames:
    def test_an_id_or_the_beginning_of_one(self, skynet: Skynet, name: str) -> None:
        user = added(skynet, name)["user"]
        for who in (user["id"], user["id"][:30], name, f" {name.upper()} "):
            assert json.loads(skynet("users", "show", who, "--json").out)["user"]["id"] == user["id"]

    def test_nobody_and_several(self, skynet: Skynet, name: str) -> None:
        outcome = skynet("users", "show", name)
        assert (outcome.code, outcome.out) == (Exit.FAILED, "")
        assert f"nobody is called '{name}'" in outcome.err
        ids = [added(skynet, name)["user"]["id"] for _ in range(2)]
        outcome = skynet("users", "add", name)
        assert outcome.code == Exit.OK and "3 people are called" in outcome.err
        outcome = skynet("users", "remove", name, "--yes")
        assert outcome.code == Exit.FAILED
        assert "means several people" in outcome.err and all(user_id in outcome.err for user_id in ids)


class TestSet:
    def test_fields_limits_and_permissions(self, skynet: Skynet, name: str) -> None:
        added(skynet, name, "--daily-tokens", "10", "--allow", "browser.use", "--age", "40")
        outcome = skynet(
            "users", "set", name, "--tone", "dry", "--daily-tokens", "role", "--monthly-dollars", "0.001",
            "--unset", "browser.use", "--unset", "age", "--forbid", "commands.run", "--requires-approval",
        )  # fmt: skip
        assert outcome.code == Exit.OK
        assert outcome.out == (
            f"changed {name}: tone dry, risky tools need an approval, commands.run forbidden, "
            "browser.use as the role has it, tokens a day as the role has them, $0.001 a month, age taken back\n"
        )
        user = listed(skynet, name)
        assert (user["tone"], user["monthlyMicrousd"], user["flags"]) == ("dry", 1000, {"commands.run": False})
        assert "dailyTokens" not in user and "age" not in user and user["requiresApproval"]
        skynet("users", "set", name, "--tone", "", "--no-requires-approval")
        user = listed(skynet, name)
        assert "tone" not in user and not user["requiresApproval"]

    def test_nothing_to_change(self, skynet: Skynet, name: str) -> None:
        assert skynet("users", "set", name).code == Exit.USAGE

    def test_the_last_admin_stays(self, skynet: Skynet) -> None:
        for options in (["--role", "user"], ["--disabled"]):
            outcome = skynet("users", "set", "owner", *options)
            assert outcome.code == Exit.FAILED
            assert "the last enabled admin" in outcome.err

    def test_a_disabled_person_is_out_and_comes_back(
        self, skynet: Skynet, name: str, as_person: Callable[[str], As]
    ) -> None:
        person = as_person(added(skynet, name, "--new-token", "t")["token"]["token"])
        assert person("users", "show").code == Exit.OK
        assert skynet("users", "set", name, "--disabled").out == f"changed {name}: disabled\n"
        assert listed(skynet, name)["disabled"]
        assert person("users", "show").code == Exit.NOT_ALLOWED
        assert skynet("users", "set", name, "--no-disabled").out == f"changed {name}: not disabled any more\n"
        assert person("users", "show").code == Exit.OK


class TestRemove:
    def test_it_wants_to_be_sure(self, skynet: Skynet, name: str) -> None:
        added(skynet, name)
        outcome = skynet("users", "remove", name)
        assert (outcome.code, outcome.out) == (Exit.USAGE, "")
        assert "add --yes" in outcome.err
        assert skynet("users", "remove", name, "--yes").out == f"removed {name}\n"
        assert name not in skynet("users", "list").out


class TestAccounts:
    def test_link_move_and_unlink(self, skynet: Skynet, name: str) -> None:
        account, other = f"discord:{uuid.uuid4().int}", f"{name} two"
        added(skynet, name), added(skynet, other)
        assert skynet("users", "link", name, account).out == f"{account} is {name}\n"
        outcome = skynet("users", "link", other, account)
        assert outcome.code == Exit.FAILED and "--move takes it from them" in outcome.err
        assert skynet("users", "link", other, account, "--move").code == Exit.OK
        assert f"accounts\t{account}" in skynet("users", "show", other).out
        assert skynet("users", "unlink", other, account).code == Exit.OK
        assert skynet("users", "unlink", other, account).code == Exit.FAILED

    def test_a_code(self, skynet: Skynet) -> None:
        result = json.loads(skynet("users", "code", "--json").out)
        assert result["say"] == f"/link {result['code']}"
        assert "/link " in skynet("users", "code").out


class TestTokens:
    def test_made_listed_used_and_revoked(self, skynet: Skynet, name: str, as_person: Callable[[str], As]) -> None:
        added(skynet, name)
        made = skynet("users", "token", "create", "phone", "--user", name, "--scope", "read", "--days", "30")
        token = made.out.strip()
        assert token.startswith("sk-sky-")
        (row,) = skynet("users", "token", "list", name).out.splitlines()
        assert row.split("\t")[:2] == ["phone", "operator.read"]
        assert token not in row
        person = as_person(token)
        assert f"name\t{name}" in person("users", "show").out
        refused = person("users", "set", name, "--tone", "dry").err
        assert "missing scope: operator.write" in refused and "skynet users show" in refused
        assert skynet("users", "token", "revoke", "phone", "--user", name).code == Exit.OK
        assert person("users", "show").code == Exit.NOT_ALLOWED
        outcome = skynet("users", "token", "revoke", "phone", "--user", name)
        assert outcome.code == Exit.FAILED and "no token is called 'phone'" in outcome.err


class TestAsAPerson:
    def test_a_user_sees_and_changes_what_is_theirs(
        self, skynet: Skynet, name: str, as_person: Callable[[str], As]
    ) -> None:
        person = as_person(added(skynet, name, "--new-token", "t")["token"]["token"])
        assert [line.split("\t")[0] for line in person("users", "list").out.splitlines()] == [name]
        assert person("users", "set", name, "--language", "fr").code == Exit.OK
        for command in (
            ["set", name, "--role", "admin"],
            ["set", name, "--allow", "users.manage"],
            ["add", "Somebody"],
            ["link", name, "discord:1"],
            ["remove", name, "--yes"],
        ):
            outcome = person("users", *command)
            assert (outcome.code, outcome.out) == (Exit.FAILED, ""), command
            assert "users.manage" in outcome.err or "missing scope" in outcome.err
        assert "nobody is called 'owner'" in person("users", "show", "owner").err

    def test_the_budget(self, skynet: Skynet, name: str, as_person: Callable[[str], As]) -> None:
        token = added(skynet, name, "--new-token", "t", "--daily-tokens", "1000")["token"]["token"]
        day, month = person_rows = [line.split("\t") for line in as_person(token)("users", "budget").out.splitlines()]
        assert len(person_rows) == 2
        assert (day[0], day[1], day[2]) == (f"{name}, day", "0 of 1,000", "$0.00")
        assert month[0] == f"{name}, month"
        assert len(skynet("users", "budget", name).out.splitlines()) == 4


class TestApprovals:
    def test_a_childs_question_is_decided(
        self, skynet: Skynet, name: str, gateway: RunningGateway, tmp_path: Path
    ) -> None:
        """SK-131."""
        token = added(skynet, name, "--role", "child", "--new-token", "t")["token"]["token"]
        for text in ("ice cream", "a dragon"):
            request(gateway, token, tmp_path / "child", text)
        rows = [line.split("\t") for line in skynet("users", "approvals").out.splitlines() if name in line]
        assert [(row[1], row[2], row[4]) for row in rows] == [
            ("request", "a dragon", "you may decide"),
            ("request", "ice cream", "you may decide"),
        ]
        assert skynet("users", "approve", rows[1][0], "--reason", "one").out == "approved: ice cream\n"
        assert skynet("users", "deny", rows[0][0]).out == "denied: a dragon\n"
        assert name not in skynet("users", "approvals").out
        assert name in skynet("users", "approvals", "--all").out
        outcome = skynet("users", "approve", "ffffffff")
        assert outcome.code == Exit.FAILED and "see: skynet users approvals" in outcome.err


class TestGuardians:
    def test_given_and_taken(self, skynet: Skynet, name: str) -> None:
        added(skynet, name, "--role", "child")
        adult = f"{name} senior"
        added(skynet, adult)
        outcome = skynet("users", "guardian", name, adult, "--reads-transcripts")
        assert outcome.out == f"guardians of {name}: {adult} (reads transcripts)\n"
        outcome = skynet("users", "guardian", name, adult, "--remove")
        assert outcome.out == f"guardians of {name}: every admin\n"
        assert "is no child" in skynet("users", "guardian", adult, adult).err


class TestGroups:
    def test_a_room_from_beginning_to_end(self, skynet: Skynet, name: str) -> None:
        """BA-273, BA-274."""
        room = f"Room of {name}"
        added(skynet, name)
        assert skynet("users", "groups", "create", room, "--history", "all").out.startswith(f"made {room}, id ")
        assert skynet("users", "groups", "add", room.upper(), name).out == f"{name} is in {room}\n"
        assert skynet("users", "groups", "close", room).out == f"{room} is closed\n"
        (row,) = [line.split("\t") for line in skynet("users", "groups", "list").out.splitlines() if room in line]
        assert row[:4] == [room, "closed", "here", f"Owner, {name}"]
        assert skynet("users", "groups", "open", row[4]).out == f"{room} is open\n"
        assert skynet("users", "groups", "remove", room, name).out == f"{name} is no more in {room}\n"
        assert skynet("users", "groups", "remove", room, name).code == Exit.FAILED
        assert "no room is called 'nowhere'" in skynet("users", "groups", "close", "nowhere").err
        listed_groups = json.loads(skynet("users", "groups", "list", "--json").out)["groups"]
        assert [group["active"] for group in listed_groups if group["name"] == room] == [True]
        assert "2 rooms are called" in skynet("users", "groups", "create", room).err


def request(gateway: RunningGateway, token: str, home: Path, text: str) -> None:
    """What an app of a child sends."""
    import asyncio

    from skynet.cli.client import open_client
    from skynet.cli.target import Target
    from skynet_memory.secrets import Secret

    async def send() -> None:
        target = Target(url=gateway.url, token=Secret(token), password=Secret(""), home=home, is_local=False)
        async with open_client(target) as client:
            await client.request("approvals.request", {"summary": text})

    asyncio.run(send())


class TestReading:
    @pytest.mark.parametrize(("text", "limit"), [("0", 0), ("20_000", 20_000), ("20,000", 20_000), ("role", None)])
    def test_tokens(self, text: str, limit: int | None) -> None:
        assert tokens_limit("x", text) == limit

    @pytest.mark.parametrize(
        ("text", "limit"), [("0", 0), ("1.50", 1_500_000), ("$3", 3_000_000), ("0.000001", 1), ("role", None)]
    )
    def test_dollars(self, text: str, limit: int | None) -> None:
        assert dollars_limit("x", text) == limit

    @pytest.mark.parametrize("text", ["", "x", "-1", "inf", "1e999999", "1.5.5"])
    def test_no_amount(self, text: str) -> None:
        for read in (tokens_limit, dollars_limit):
            with pytest.raises(CliError, match="x: "):
                read("x", text)

    @pytest.mark.parametrize("text", ["", "discord", "discord:", ":1", " : "])
    def test_no_account(self, text: str) -> None:
        with pytest.raises(CliError, match="link: "):
            identity(text)

    def test_accounts(self) -> None:
        assert identity("Discord:12:34") == {"channel": "discord", "externalId": "12:34"}
