"""``groups.*``: who makes a room, who is in it, and who knows of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import UserId
from skynet_users.caller import Caller
from tests.skynet.methods.people import People, open_people
from tests.skynet.methods.world import RefusedError

NOBODY = "01900000-0000-7000-8000-000000000000"


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with open_people(tmp_path) as opened:
        yield opened


async def refused(people: People, caller: Caller, method: str, params: Any) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        await people.call(caller, method, params)
    return caught.value.error["details"]["code"], str(caught.value)


async def make(people: People, name: str = "Family") -> str:
    created = await people.call(people.world.admin, "groups.create", {"name": name, "history": "all"})
    return str(created["group"]["id"])


async def test_an_admin_makes_a_room_and_people_join_it(people: People) -> None:
    """BA-273."""
    group = await make(people)
    (own,) = (await people.call(people.world.admin, "groups.list"))["groups"]
    assert own == {
        "id": group,
        "name": "Family",
        "active": True,
        "history": "all",
        "createdBy": people.world.admin.user_id,
        "member": True,
    }
    bo = people.world.user.user_id
    assert await people.call(people.world.user, "groups.join", {"groupId": group}) == {"groupId": group, "userId": bo}
    (seen,) = (await people.call(people.world.user, "groups.list"))["groups"]
    assert seen["member"]
    members = (await people.call(people.world.user, "groups.members", {"groupId": group}))["members"]
    assert [member["displayName"] for member in members] == ["Owner", "Bo"]
    await people.call(people.world.user, "groups.leave", {"groupId": group})
    assert (await people.call(people.world.user, "groups.list"))["groups"] == []
    code, _ = await refused(people, people.world.admin, "groups.leave", {"groupId": group, "userId": bo})
    assert code == "NOT_FOUND"


async def test_who_is_no_member_cannot_tell_a_group_from_none(people: People) -> None:
    group = await make(people)
    for method in ("groups.members", "groups.leave"):
        code, words = await refused(people, people.world.user, method, {"groupId": group})
        none = await refused(people, people.world.user, method, {"groupId": NOBODY})
        assert (code, words.replace(group, NOBODY)) == none == ("NOT_FOUND", f"unknown group: {NOBODY}")


async def test_a_child_is_added_by_others(people: People) -> None:
    group, child = await make(people), people.world.child.user_id
    assert (await refused(people, people.world.child, "groups.join", {"groupId": group}))[0] == "FORBIDDEN"
    await people.call(people.world.admin, "groups.join", {"groupId": group, "userId": child})
    assert (await people.call(people.world.child, "groups.list"))["groups"][0]["member"]


async def test_a_channels_group_is_joined_by_the_channel(people: People) -> None:
    group = await people.groups.ensure("slack", "C1", "general", people.world.admin.user_id)
    assert (await refused(people, people.world.user, "groups.join", {"groupId": group.id}))[0] == "NOT_FOUND"
    (seen,) = (await people.call(people.world.admin, "groups.list"))["groups"]
    assert (seen["channel"], seen["externalId"], seen["member"]) == ("slack", "C1", False)


async def test_a_group_is_closed_and_opened_again(people: People) -> None:
    """BA-274: what it has stays."""
    group = await make(people)
    for active in (False, True):
        result = await people.call(people.world.admin, "groups.set", {"groupId": group, "active": active})
        assert result["group"]["active"] is active
    assert [action for action, *_ in await people.actions()] == ["group.changed"] * 3


async def test_only_those_who_manage_groups_change_them(people: People) -> None:
    group = await make(people)
    await people.call(people.world.user, "groups.join", {"groupId": group})
    for caller in (people.world.user, people.world.child):
        for method, params in (
            ("groups.create", {"name": "x"}),
            ("groups.set", {"groupId": group, "active": False}),
            ("groups.join", {"groupId": group, "userId": people.guardian.user_id}),
            ("groups.leave", {"groupId": group, "userId": people.world.admin.user_id}),
        ):
            assert (await refused(people, caller, method, params))[0] == "FORBIDDEN"
    assert (await people.groups.get(UserId(group))).active


async def test_a_group_is_no_person(people: People) -> None:
    group = await make(people)
    for method, params in (
        ("users.get", {}),
        ("users.set", {"role": "user"}),
        ("users.remove", {}),
        ("users.tokens.create", {"name": "x"}),
        ("users.password", {"password": "long enough"}),
        ("identities.link", {"channel": "discord", "externalId": "1"}),
    ):
        code, _ = await refused(people, people.world.admin, method, {"userId": group, **params})
        assert code == "NOT_FOUND", method
    assert group not in [user["id"] for user in (await people.call(people.world.admin, "users.list"))["users"]]


@pytest.mark.parametrize("name", ["", "\x00", " ", "x" * 81])
async def test_a_name_is_one(people: People, name: str) -> None:
    code, words = await refused(people, people.world.admin, "groups.create", {"name": name})
    assert code == "INVALID_PARAMS" and "name" in words


async def test_who_was_taken_out_does_not_come_back_by_themselves(people: People) -> None:
    """They know the room's id; that is not enough any more, until somebody who may lets them in again."""
    group, admin, user = await make(people), people.world.admin, people.world.user
    await people.call(user, "groups.join", {"groupId": group})
    await people.call(admin, "groups.leave", {"groupId": group, "userId": user.user_id})
    code, _ = await refused(people, user, "groups.join", {"groupId": group})
    assert code == "NOT_FOUND"
    await people.call(admin, "groups.join", {"groupId": group, "userId": user.user_id})
    await people.call(user, "groups.leave", {"groupId": group})
    await people.call(user, "groups.join", {"groupId": group})  # who left may come again
