import pytest

from skynet_memory.database import Database
from skynet_users.errors import IdentityTaken
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
    await UserStore(store).remove(ada.id)
    assert await identities.find("discord", "1") is None
