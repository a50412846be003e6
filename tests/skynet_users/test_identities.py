import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_users.errors import Forbidden, IdentityTaken, InvalidProfile, UnknownUser
from skynet_users.identities import IdentityStore
from skynet_users.people import User, UserStore


async def test_link_and_find(store: Database, ada: User, ben: User) -> None:
    identities = IdentityStore(store)
    await identities.link(ada.id, "discord", "1", display_name="ada#1")
    await identities.link(ada.id, "telegram", "1")
    await identities.link(ben.id, "discord", "2")
    assert await identities.find("discord", "1") == ada
    assert await identities.find("telegram", "1") == ada
    assert await identities.find("discord", "2") == ben
    assert await identities.find("telegram", "2") is None
    assert {(identity.channel, identity.external_id) for identity in await identities.list(ada.id)} == {
        ("discord", "1"),
        ("telegram", "1"),
    }


async def test_linking_again_refreshes_the_name(store: Database, ada: User) -> None:
    identities = IdentityStore(store)
    for name in ("old", "", "new", ""):
        await identities.link(ada.id, "discord", "1", display_name=name)
    [identity] = await identities.list(ada.id)
    assert identity.display_name == "new"


async def test_another_persons_identity_is_not_taken_over(store: Database, ada: User, ben: User) -> None:
    identities = IdentityStore(store)
    await identities.link(ada.id, "discord", "1")
    with pytest.raises(IdentityTaken):
        await identities.link(ben.id, "discord", "1")
    assert not await identities.unlink(ben.id, "discord", "1")
    assert await identities.find("discord", "1") == ada
    assert await identities.unlink(ada.id, "discord", "1")
    await identities.link(ben.id, "discord", "1")
    assert await identities.find("discord", "1") == ben


async def test_a_removed_person_has_none(store: Database, ada: User) -> None:
    identities = IdentityStore(store)
    await identities.link(ada.id, "discord", "1")
    await UserStore(store).add("Eve", Role.ADMIN)
    await UserStore(store).remove(ada.id)
    assert await identities.find("discord", "1") is None


async def test_who_linked_it(store: Database, ada: User, ben: User) -> None:
    """SK-127"""
    identities = IdentityStore(store)
    await identities.link(ben.id, "discord", "2", verified=False)
    await identities.link(ben.id, "telegram", "2", linked_by=ada.id)
    assert [(each.channel, each.verified, each.linked_by) for each in await identities.list(ben.id)] == [
        ("discord", False, ""),
        ("telegram", True, ada.id),
    ]
    await identities.link(ben.id, "discord", "2", verified=True)
    await identities.link(ben.id, "discord", "2", verified=False)
    assert all(each.verified for each in await identities.list(ben.id))
    await UserStore(store).add("Eve", Role.ADMIN)
    await UserStore(store).remove(ada.id)
    assert [each.linked_by for each in await identities.list(ben.id)] == ["", ""]


async def test_only_an_admin_moves_one(store: Database, ada: User, ben: User) -> None:
    """SK-128"""
    identities = IdentityStore(store)
    eve = await UserStore(store).add("Eve", Role.USER)
    await identities.link(eve.id, "discord", "1")
    for other in (ben.id, eve.id, UserId("nobody")):
        with pytest.raises(Forbidden):
            await identities.relink(ben.id, "discord", "1", linked_by=other)
    assert await identities.find("discord", "1") == eve
    assert await identities.relink(ben.id, "discord", "1", linked_by=ada.id) == eve.id
    assert await identities.find("discord", "1") == ben
    assert await identities.relink(ben.id, "discord", "9", linked_by=ada.id) is None
    with pytest.raises(UnknownUser):
        await identities.relink(UserId("nobody"), "discord", "1", linked_by=ada.id)
    assert await identities.find("discord", "1") == ben


async def test_only_a_person_has_one(store: Database, ada: User) -> None:
    await store.write(lambda tx: tx.execute("UPDATE users SET role = 'user', kind = 'group'"))
    with pytest.raises(UnknownUser):
        await IdentityStore(store).link(ada.id, "discord", "1")


@pytest.mark.parametrize(
    ("channel", "external_id"),
    [("", "1"), ("discord", ""), ("discord", " 1"), ("discord", "1\n"), ("discord", "x" * 257), ("discord", "\udc80")],
)
async def test_what_is_no_identity(store: Database, ada: User, channel: str, external_id: str) -> None:
    with pytest.raises(InvalidProfile):
        await IdentityStore(store).link(ada.id, channel, external_id)
    with pytest.raises(InvalidProfile):
        await IdentityStore(store).relink(ada.id, channel, external_id, linked_by=ada.id)
