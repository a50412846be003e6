"""The commands about people: each does what its caller may do, and no more."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.gateway.commands import NO_PEOPLE, Commands, parse_command
from skynet.gateway.people_commands import Sender
from skynet_memory.ids import SessionKey, UserId
from skynet_users.caller import Caller
from skynet_users.permissions import Permission
from tests.skynet.methods.people import People, open_people
from tests.skynet.methods.world import key_of

HERE = Sender("discord", "1234")


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with open_people(tmp_path) as opened:
        yield opened


async def nothing_runs(owner: UserId, key: SessionKey) -> bool:
    return False


def commands_of(people: People) -> Commands:
    world = people.world
    return Commands(sessions=world.sessions, router=world.router, abort_session=nothing_runs, people=people.commands)


async def say(people: People, caller: Caller, text: str, sender: Sender | None = None) -> str:
    command = parse_command(text)
    assert command is not None
    return await commands_of(people).answer(caller, key_of(caller), command, sender)


async def asked(people: People, caller: Caller, summary: str = "may I stay up?") -> str:
    """The end of the id of a request."""
    result = await people.call(caller, "approvals.request", {"summary": summary})
    return str(result["approval"]["id"])[-8:]


class TestWhoami:
    async def test_it_says_what_one_may_not(self, people: People) -> None:
        answer = await say(people, replace(people.world.child, display_name="Cy"), "/whoami")
        assert "Name: Cy\n" in answer and "Role: child\n" in answer
        (denied,) = [line for line in answer.splitlines() if line.startswith("May not: ")]
        assert "commands.run" in denied and "users.manage" in denied
        assert "messages.send" not in denied

    async def test_nothing_is_kept_from_an_admin(self, people: People) -> None:
        assert "May not: nothing is kept from you" in await say(people, people.world.admin, "/whoami")


class TestApprovals:
    async def test_they_are_listed_and_decided(self, people: People) -> None:
        first, second = await asked(people, people.world.child), await asked(people, people.world.child, "and sweets?")
        answer = await say(people, people.guardian, "/approvals")
        assert answer.splitlines() == [f"{second} - Cy: and sweets?", f"{first} - Cy: may I stay up?"]
        assert await say(people, people.world.child, "/approvals") == (
            f"{second} - Cy: and sweets? (yours)\n{first} - Cy: may I stay up? (yours)"
        )
        assert await say(people, people.guardian, f"/approve {first}") == "Approved: may I stay up?"
        assert await say(people, people.guardian, f"/deny …{second} not before dinner") == "Denied: and sweets?"
        (denied,) = await people.store.list("denied")
        assert denied.reason == "not before dinner"
        assert await say(people, people.guardian, "/approvals") == "Nothing waits for a decision."
        assert "not pending" in await say(people, people.guardian, f"/approve {denied.id}")

    async def test_a_stranger_is_let_in_as_what_is_said(self, people: People) -> None:
        """SK-125, SK-131."""
        await people.resolver.resolve("discord", "77", display_name="Zoe")
        (approval,) = await people.store.list("pending")
        shown = approval.id[-8:]
        assert "admin: a new person is one of user, child" in await say(
            people, people.world.admin, f"/approve {shown} admin"
        )
        assert (await say(people, people.world.admin, f"/approve {shown} child")).endswith("Zoe is let in as child.")

    @pytest.mark.parametrize("name", ["/approve", "/deny"])
    async def test_nobody_decides_what_they_may_not(self, people: People, name: str) -> None:
        shown = await asked(people, people.guardian)
        assert await say(people, people.guardian, f"{name} {shown}") == (
            "somebody else has to decide about this request"
        )
        assert await say(people, people.world.user, f"{name} {shown}") == f"unknown approval: {shown}"
        assert await say(people, people.world.child, f"{name} {shown}") == "missing scope: operator.approvals"
        narrow = replace(people.world.admin, scopes=frozenset({"operator.write"}))
        assert await say(people, narrow, f"{name} {shown}") == "missing scope: operator.approvals"
        grants = {**people.policy.grants(people.world.user.role)}
        del grants[Permission.APPROVALS_DECIDE]
        refused = await say(people, replace(people.guardian, grants=grants), f"{name} {shown}")
        assert refused == "not permitted: approvals.decide"
        assert len(await people.store.list("pending")) == 1
        assert "Which one?" in await say(people, people.world.admin, name)


class TestLink:
    async def test_a_code_made_here_and_sent_from_there(self, people: People) -> None:
        """SK-128: a connection of the person, and the account on the channel."""
        code = (await say(people, people.world.user, "/link")).rpartition(" ")[2]
        stranger = people.guardian  # whoever the channel's account is at that moment
        answer = await say(people, stranger, f"/link {code.lower()}", HERE)
        assert answer.startswith("Linked")
        found = await people.identities.find("discord", "1234")
        assert found is not None and found.id == people.world.user.user_id
        assert "wrong or has expired" in await say(people, stranger, f"/link {code}", Sender("discord", "5"))
        assert [action for action, *_ in await people.actions()] == ["identity.linked"]

    async def test_a_connection_is_no_account(self, people: People) -> None:
        code = (await say(people, people.world.user, "/link")).rpartition(" ")[2]
        assert "send it to me from the account" in await say(people, people.guardian, f"/link {code}")
        assert await people.identities.list(people.guardian.user_id) == []

    async def test_not_from_the_account_that_it_was_made_from(self, people: People) -> None:
        code = (await say(people, people.world.user, "/link", HERE)).rpartition(" ")[2]
        assert await say(people, people.world.user, f"/link {code}", HERE) == (
            "Send this code from the account that you want to add."
        )


async def test_the_budget_is_the_own_one(people: People) -> None:
    await people.call(people.world.admin, "users.set", {"userId": people.world.user.user_id, "dailyTokens": 1000})
    await people.world.turn(people.world.user)
    today, month = (await say(people, people.world.user, "/budget")).splitlines()
    assert today.startswith("Today: 120 of 1,000 tokens, $0.0015; starts again on ")
    assert month.startswith("This month: 120 tokens, $0.0015;")
    lines = (await say(people, people.world.admin, "/budget")).splitlines()
    assert lines[0].startswith("Today: 0 tokens") and lines[2].startswith("All together today: 120 of 1,000,000 tokens")


@pytest.mark.parametrize("text", ["/elevated on", "/elevated full", "/elevated ask"])
async def test_only_who_may_run_all_commands_is_elevated(people: People, text: str) -> None:
    for caller in (people.world.user, people.world.child):
        assert await say(people, caller, text) == "You may not do that: it needs the permission commands.run."
        session = await people.world.sessions.get(caller.user_id, key_of(caller))
        assert session is None or "elevatedLevel" not in session.settings
    await people.world.turn(people.world.admin)
    assert (await say(people, people.world.admin, text)).startswith("elevatedLevel: ")


async def test_a_child_changes_no_session(people: People) -> None:
    await people.world.turn(people.world.child)
    for text in ("/model fast", "/think high", "/verbose on"):
        answer = await say(people, people.world.child, text)
        assert answer == "You may not do that: it needs the permission sessions.write."
    assert (await say(people, people.world.child, "/think")) == "thinkingLevel: default"


async def test_without_people_there_are_no_such_commands(people: People) -> None:
    world = people.world
    commands = Commands(sessions=world.sessions, router=world.router, abort_session=nothing_runs)
    command = parse_command("/budget")
    assert command is not None
    assert await commands.answer(world.user, key_of(world.user), command) == NO_PEOPLE


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(["/approve", "/deny", "/link", "/approvals", "/budget", "/whoami"]),
    st.text(max_size=60),
    st.booleans(),
)
async def test_any_argument_is_answered(people: People, name: str, argument: str, from_channel: bool) -> None:
    """Whatever follows a command, it is answered with words, and decides and links nothing."""
    command = parse_command(f"{name} {argument}")
    assert command is not None
    answer = await commands_of(people).answer(
        people.world.admin, key_of(people.world.admin), command, HERE if from_channel else None
    )
    assert answer
    assert await people.store.list() == []
    assert await people.identities.list(people.world.admin.user_id) == []
