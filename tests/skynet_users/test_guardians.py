import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_users.errors import InvalidProfile, UnknownUser
from skynet_users.guardians import Guardian, GuardianStore
from skynet_users.people import User, UserChanges, UserStore


@pytest.fixture
async def kim(store: Database) -> User:
    return await UserStore(store).add("Kim", Role.CHILD)


@pytest.fixture
def guardians(store: Database) -> GuardianStore:
    return GuardianStore(store)


async def test_every_admin_by_default(guardians: GuardianStore, store: Database, ada: User, kim: User) -> None:
    eve = await UserStore(store).add("Eve", Role.ADMIN)
    assert await guardians.of(kim.id) == tuple(
        Guardian(child=kim.id, guardian=admin.id, by_default=True) for admin in (ada, eve)
    )
    assert await guardians.children(ada.id) == (Guardian(child=kim.id, guardian=ada.id, by_default=True),)


async def test_only_the_own_ones_if_there_are_some(guardians: GuardianStore, ada: User, ben: User, kim: User) -> None:
    await guardians.set(kim.id, ben.id)
    assert await guardians.of(kim.id) == (Guardian(child=kim.id, guardian=ben.id),)
    assert await guardians.children(ada.id) == ()
    assert await guardians.children(ben.id) == (Guardian(child=kim.id, guardian=ben.id),)
    await guardians.set(kim.id, ben.id, reads_transcripts=True)
    assert await guardians.find(kim.id, ben.id) == Guardian(child=kim.id, guardian=ben.id, reads_transcripts=True)
    assert await guardians.find(kim.id, ada.id) is None
    await guardians.set(kim.id, ben.id)
    assert await guardians.find(kim.id, ben.id) == Guardian(child=kim.id, guardian=ben.id)
    assert await guardians.remove(kim.id, ben.id)
    assert not await guardians.remove(kim.id, ben.id)
    assert [each.guardian for each in await guardians.of(kim.id)] == [ada.id]


async def test_who_counts_for_nothing(
    guardians: GuardianStore, store: Database, ada: User, ben: User, kim: User
) -> None:
    users = UserStore(store)
    await guardians.set(kim.id, ben.id, reads_transcripts=True)
    for changes, undone in (
        (UserChanges(disabled=True), UserChanges(disabled=False)),
        (UserChanges(role=Role.CHILD), UserChanges(role=Role.USER)),
    ):
        await users.set(ben.id, changes)
        assert await guardians.children(ben.id) == ()
        assert [each.guardian for each in await guardians.of(kim.id)] == [ada.id]
        await users.set(ben.id, undone)
        assert [each.guardian for each in await guardians.of(kim.id)] == [ben.id]
    await users.set(kim.id, UserChanges(role=Role.USER))
    assert await guardians.of(kim.id) == ()
    assert await guardians.children(ben.id) == ()
    assert await guardians.find(kim.id, ben.id) is None


async def test_who_can_be_one(guardians: GuardianStore, store: Database, ada: User, ben: User, kim: User) -> None:
    lee = await UserStore(store).add("Lee", Role.CHILD)
    for child, guardian, field in ((ben, ada, "child"), (kim, lee, "guardian"), (kim, kim, "guardian")):
        with pytest.raises(InvalidProfile) as caught:
            await guardians.set(child.id, guardian.id)
        assert caught.value.field == field
    for child_id, guardian_id in ((kim.id, "nobody"), ("nobody", ada.id)):
        with pytest.raises(UnknownUser, match="nobody"):
            await guardians.set(UserId(child_id), UserId(guardian_id))
    assert await guardians.of(ben.id) == ()
    assert await guardians.of(UserId("nobody")) == ()


async def test_a_removed_person_leaves_no_link(
    guardians: GuardianStore, store: Database, ada: User, ben: User, kim: User
) -> None:
    lee = await UserStore(store).add("Lee", Role.CHILD)
    for child in (kim, lee):
        await guardians.set(child.id, ben.id)
    await UserStore(store).remove(kim.id)
    assert [each.child for each in await guardians.children(ben.id)] == [lee.id]
    await UserStore(store).remove(ben.id)
    assert await store.fetchall("SELECT * FROM guardians") == []
