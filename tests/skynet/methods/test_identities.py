"""``identities.*``: only an admin says whose an account is; everybody else has it prove itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role
from skynet_users.caller import Caller
from skynet_users.resolver import Known, UserResolver
from tests.skynet.methods.people import People, open_people
from tests.skynet.methods.world import RefusedError

DISCORD = {"channel": "discord", "externalId": "1234"}
TEN_MINUTES_MS = 600_000


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with open_people(tmp_path) as opened:
        yield opened


async def refused(people: People, caller: Caller, method: str, params: Any) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        await people.call(caller, method, params)
    return caught.value.error["details"]["code"], str(caught.value)


async def owner_of(people: People, channel: str, external_id: str) -> str:
    found = await people.identities.find(channel, external_id)
    return "" if found is None else found.id


async def test_an_admin_links_and_unlinks(people: People) -> None:
    """SK-127."""
    admin, bo = people.world.admin, people.world.user.user_id
    linked = await people.call(admin, "identities.link", {"userId": bo, **DISCORD, "displayName": "bo#1"})
    assert linked == {"userId": bo, **DISCORD}
    await people.call(admin, "identities.link", {"userId": bo, "channel": "telegram", "externalId": "9"})
    listed = (await people.call(people.world.user, "identities.list"))["identities"]
    assert [(each["channel"], each["verified"], each["linkedBy"]) for each in listed] == [
        ("discord", True, admin.user_id),
        ("telegram", True, admin.user_id),
    ]
    assert listed[0]["displayName"] == "bo#1"
    await people.call(people.world.user, "identities.unlink", DISCORD)
    assert await owner_of(people, "discord", "1234") == ""
    assert (await refused(people, people.world.user, "identities.unlink", DISCORD))[0] == "NOT_FOUND"
    assert [action for action, *_ in await people.actions()] == [
        "identity.linked",
        "identity.linked",
        "identity.unlinked",
    ]


async def test_only_an_admin_takes_an_account_from_somebody(people: People) -> None:
    """SK-128."""
    admin, bo = people.world.admin, people.world.user.user_id
    await people.identities.link(people.guardian.user_id, "discord", "1234")
    params = {"userId": bo, **DISCORD}
    assert await refused(people, admin, "identities.link", params) == (
        "FORBIDDEN",
        "discord:1234 belongs to another person",
    )
    for caller in (people.world.user, people.world.child):
        for move in (False, True):
            code, words = await refused(people, caller, "identities.link", {**params, "move": move})
            assert (code, words) == ("FORBIDDEN", "not permitted: users.manage")
    moved = await people.call(admin, "identities.link", {**params, "move": True})
    assert moved["movedFrom"] == people.guardian.user_id
    assert await owner_of(people, "discord", "1234") == bo
    assert ("identity.relinked", admin.user_id, bo) in await people.actions()
    resolved = await people.resolver.resolve("discord", "1234")
    assert isinstance(resolved, Known) and resolved.user.id == bo


async def test_a_child_does_not_leave_its_account(people: People) -> None:
    """As a stranger it would be without its rules."""
    await people.identities.link(people.world.child.user_id, "discord", "1234")
    assert (await refused(people, people.world.child, "identities.unlink", DISCORD))[0] == "FORBIDDEN"
    params = {"userId": people.world.child.user_id, **DISCORD}
    assert (await refused(people, people.world.user, "identities.unlink", params))[0] == "FORBIDDEN"
    await people.call(people.world.admin, "identities.unlink", params)
    assert await owner_of(people, "discord", "1234") == ""


class TestCodes:
    async def test_one_links_the_account_that_sends_it(self, people: People) -> None:
        """SK-128: made over a connection of the person, sent from the account on the channel."""
        made = await people.call(people.world.user, "identities.code")
        assert made["say"] == f"/link {made['code']}"
        assert made["expiresAt"] == people.clock.now_ms + TEN_MINUTES_MS
        params = {"code": made["code"].lower(), **DISCORD}
        claimed = await people.call(people.world.admin, "identities.claim", params)
        assert claimed == {"userId": people.world.user.user_id, **DISCORD}
        assert await owner_of(people, "discord", "1234") == people.world.user.user_id
        assert (await refused(people, people.world.admin, "identities.claim", params))[0] == "FORBIDDEN"

    async def test_nobody_vouches_for_the_own_account(self, people: People) -> None:
        """The attack: a forged channel id. Only the channel says from whom a code came."""
        made = await people.call(people.world.user, "identities.code")
        params = {"code": made["code"], **DISCORD}
        for caller in (people.world.user, people.world.child):
            code, words = await refused(people, caller, "identities.claim", params)
            assert (code, words) == ("FORBIDDEN", "not permitted: users.manage")
        assert await owner_of(people, "discord", "1234") == ""

    async def test_it_moves_who_came_by_themselves_and_nobody_else(self, people: People) -> None:
        resolver = UserResolver(people.world.db, unknown="create", new_role=Role.USER)
        auto = await resolver.resolve("discord", "1234", display_name="bo")
        assert isinstance(auto, Known)
        made = await people.call(people.world.user, "identities.code")
        await people.call(people.world.admin, "identities.claim", {"code": made["code"], **DISCORD})
        assert await owner_of(people, "discord", "1234") == people.world.user.user_id

        await people.identities.link(people.guardian.user_id, "telegram", "5")
        made = await people.call(people.world.user, "identities.code")
        params = {"code": made["code"], "channel": "telegram", "externalId": "5"}
        code, words = await refused(people, people.world.admin, "identities.claim", params)
        assert code == "FORBIDDEN" and "belongs to somebody" in words
        assert await owner_of(people, "telegram", "5") == people.guardian.user_id

    async def test_after_ten_minutes_it_is_worth_nothing(self, people: People) -> None:
        made = await people.call(people.world.user, "identities.code")
        people.clock.now_ms += TEN_MINUTES_MS
        params = {"code": made["code"], **DISCORD}
        assert "wrong or has expired" in (await refused(people, people.world.admin, "identities.claim", params))[1]

    async def test_nobody_guesses_one(self, people: People) -> None:
        made = await people.call(people.world.user, "identities.code")
        for number in range(5):
            await refused(people, people.world.admin, "identities.claim", {"code": f"AAAA-AAA{number}", **DISCORD})
        params = {"code": made["code"], **DISCORD}
        assert "Too many wrong codes" in (await refused(people, people.world.admin, "identities.claim", params))[1]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"channel": "", "externalId": "1"}, "/channel"),
        ({"channel": "Discord", "externalId": "1"}, "/channel"),
        ({"channel": "discord", "externalId": ""}, "/externalId"),
        ({"channel": "discord", "externalId": "1\n"}, "externalId"),
        ({"channel": "discord", "externalId": "x" * 300}, "/externalId"),
    ],
)
async def test_an_account_is_one(people: People, params: dict[str, str], field: str) -> None:
    code, words = await refused(
        people, people.world.admin, "identities.link", {"userId": people.world.user.user_id, **params}
    )
    assert code == "INVALID_PARAMS" and field in words
