import asyncio
import sqlite3

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_users.credentials import CredentialStore
from skynet_users.errors import GroupInactive, InvalidProfile, UnknownGroup, UnknownUser
from skynet_users.groups import Group, GroupStore, Member
from skynet_users.identities import IdentityStore
from skynet_users.people import User, UserChanges, UserStore
from skynet_users.resolver import UserResolver

T0 = 1_795_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = T0

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


@pytest.fixture
def groups(store: Database) -> GroupStore:
    return GroupStore(store, clock=Clock())


async def test_a_channels_room_becomes_one_group(groups: GroupStore, store: Database, ben: User) -> None:
    """BA-272"""
    made = await asyncio.gather(*[groups.ensure("slack", "C1", f"home {n}", ben.id) for n in range(20)])
    [group] = {each.id: each for each in made}.values()
    assert group.name.startswith("home ")
    assert (group.channel, group.external_id, group.active, group.history, group.created_by) == (
        "slack",
        "C1",
        True,
        "from_join",
        ben.id,
    )
    assert await groups.ensure("slack", "C1", "another name", None) == group
    assert await groups.by_channel("slack", "C1") == group
    other = await groups.ensure("discord", "C1", "\n", None)
    assert (other.name, other.created_by) == ("discord C1", None)
    assert await groups.list() == [group, other]
    assert await groups.by_channel("slack", "C2") is None
    with pytest.raises(InvalidProfile):
        await groups.ensure("", "", "x", ben.id)


async def test_rooms_of_ones_own(groups: GroupStore, store: Database, ada: User, ben: User) -> None:
    """BA-273"""
    room, same_name = await groups.create("Kitchen", ada.id), await groups.create("Kitchen", ada.id)
    assert room.id != same_name.id
    assert await groups.by_channel("", "") is None
    assert await groups.get(room.id) == room
    assert await groups.join(room.id, ben.id)
    assert not await groups.join(room.id, ben.id)
    assert await groups.join(room.id, ada.id)
    assert await groups.list(ben.id) == [room]
    [first, second] = await groups.members(room.id)
    assert (first.user_id, second.user_id) == (ben.id, ada.id)
    assert T0 < first.joined_at_ms < second.joined_at_ms
    assert await groups.is_member(room.id, ben.id)
    assert not await groups.is_member(same_name.id, ben.id)
    assert await groups.get(room.id, member=ben.id) == room
    for wrong in (same_name.id, UserId("nothing"), ben.id):
        with pytest.raises(UnknownGroup):
            await groups.get(wrong, member=ben.id)
    assert await groups.leave(room.id, ben.id)
    assert not await groups.leave(room.id, ben.id)
    assert await groups.list(ben.id) == []
    assert await groups.members(room.id) == (second,)
    with pytest.raises(InvalidProfile, match="display_name"):
        await groups.create("\n", ada.id)
    with pytest.raises(sqlite3.IntegrityError):
        await groups.create("Kitchen", UserId("nobody"))
    assert len(await groups.list()) == 2


async def test_what_a_member_may_read(groups: GroupStore, store: Database, ada: User, ben: User) -> None:
    """BA-273"""
    since, everything = await groups.create("Kitchen", ada.id), await groups.create("Hall", ada.id, history="all")
    for group in (since, everything):
        assert await groups.visible_from_ms(group.id, ben.id) is None
        await groups.join(group.id, ben.id)
    [member] = await groups.members(since.id)
    assert await groups.visible_from_ms(since.id, ben.id) == member.joined_at_ms
    assert await groups.visible_from_ms(everything.id, ben.id) == 0
    await groups.leave(since.id, ben.id)
    await groups.join(since.id, ben.id)
    again = await groups.visible_from_ms(since.id, ben.id)
    assert again is not None
    assert again > member.joined_at_ms
    await UserStore(store).set(ben.id, UserChanges(disabled=True))
    assert await groups.visible_from_ms(everything.id, ben.id) is None
    assert not await groups.is_member(everything.id, ben.id)


async def test_an_inactive_group_takes_no_messages(groups: GroupStore, ada: User, ben: User) -> None:
    """BA-274"""
    room = await groups.create("Kitchen", ada.id)
    await groups.join(room.id, ben.id)
    assert await groups.require_active(room.id, member=ben.id) == room
    assert not (await groups.set_active(room.id, False)).active
    with pytest.raises(GroupInactive, match="Kitchen"):
        await groups.require_active(room.id, member=ben.id)
    with pytest.raises(UnknownGroup):
        await groups.require_active(room.id, member=ada.id)
    assert await groups.is_member(room.id, ben.id)
    assert await groups.set_active(room.id, True) == room
    assert await groups.require_active(room.id) == room
    with pytest.raises(UnknownGroup):
        await groups.set_active(ben.id, True)


async def test_a_group_is_nobody(groups: GroupStore, store: Database, ada: User, ben: User) -> None:
    room = await groups.create("Kitchen", ada.id)
    users = UserStore(store)
    row = await users.get(room.id)
    assert (row.kind, row.role, row.display_name) == ("group", Role.USER, "Kitchen")
    assert await users.list() == [ada, ben]
    for name in (room.id, "Kitchen"):
        with pytest.raises(UnknownUser):
            await users.by_name(name)
    with pytest.raises(UnknownUser):
        await CredentialStore(store).create_token(room.id, "laptop")
    with pytest.raises(UnknownUser):
        await IdentityStore(store).link(room.id, "discord", "1")
    with pytest.raises(UnknownUser):
        await groups.join(room.id, room.id)
    with pytest.raises(UnknownGroup):
        await groups.join(ben.id, ada.id)
    for role in Role:
        with pytest.raises(UnknownUser):
            await users.set(room.id, UserChanges(role=role))
    resolver = UserResolver(store)
    assert await resolver.user(room.id) == row
    limited = await users.set(room.id, UserChanges(daily_tokens=1000, display_name="Hall"))
    assert await resolver.user(room.id) == limited
    assert (await groups.get(room.id)).name == "Hall"


async def test_what_is_left_of_those_who_are_removed(groups: GroupStore, store: Database, ada: User, ben: User) -> None:
    room = await groups.create("Kitchen", ben.id)
    for user in (ada, ben):
        await groups.join(room.id, user.id)
    await UserStore(store).remove(ben.id)
    left = await groups.get(room.id)
    assert left == Group(
        id=room.id,
        channel="",
        external_id="",
        name="Kitchen",
        active=True,
        history="from_join",
        created_by=None,
        created_at_ms=room.created_at_ms,
    )
    assert [type(each) for each in await groups.members(room.id)] == [Member]
    assert await UserStore(store).remove(room.id)
    for table in ("groups", "group_members"):
        assert await store.fetchall(f"SELECT * FROM {table}") == []


async def test_memberships_are_known_without_asking(groups: GroupStore, store: Database, ada: User, ben: User) -> None:
    """Whoever is disabled is in no room, until enabled again."""
    kitchen, attic = await groups.create("Kitchen", ada.id), await groups.create("Attic", ada.id)
    known = groups.memberships
    for group, user in ((kitchen, ada), (kitchen, ben), (attic, ben)):
        await groups.join(group.id, user.id)
    assert set(known.members(kitchen.id)) == {ada.id, ben.id} and set(known.of(ben.id)) == {kitchen.id, attic.id}
    assert await groups.leave(kitchen.id, ben.id)
    assert not known.is_member(kitchen.id, ben.id) and known.is_member(attic.id, ben.id)
    assert not known.is_member(UserId("nothing"), ben.id) and known.members(UserId("nothing")) == ()

    again = GroupStore(store)
    await again.load()
    assert again.memberships.of(ben.id) == [attic.id] and list(again.memberships.members(kitchen.id)) == [ada.id]

    users = UserStore(store)
    await users.set(ben.id, UserChanges(disabled=True))
    await groups.load(ben.id)
    assert known.of(ben.id) == [] and known.is_member(kitchen.id, ada.id)
    await groups.join(kitchen.id, ben.id)
    assert known.of(ben.id) == []
    await users.set(ben.id, UserChanges(disabled=False))
    await groups.load(ben.id)
    assert set(known.of(ben.id)) == {kitchen.id, attic.id}


async def test_a_cancelled_change_leaves_out_rather_than_in(groups: GroupStore, store: Database, ada: User) -> None:
    room = await groups.create("Kitchen", ada.id)
    for steps in range(12):
        for change in (groups.join, groups.leave):
            task = asyncio.create_task(change(room.id, ada.id))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await store.write(lambda tx: None)
            if groups.memberships.is_member(room.id, ada.id):
                assert await groups.is_member(room.id, ada.id)
            await groups.load()
            assert groups.memberships.is_member(room.id, ada.id) == await groups.is_member(room.id, ada.id)
