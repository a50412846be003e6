import asyncio
import sqlite3

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_users.errors import UnknownUser
from skynet_users.people import UserStore


async def test_the_owner_is_made_once(store: Database) -> None:
    users = UserStore(store)
    made = await asyncio.gather(*[users.ensure_owner("Ada") for _ in range(10)])
    assert len({user.id for user in made}) == 1
    assert (made[0].display_name, made[0].role) == ("Ada", Role.ADMIN)
    assert await users.ensure_owner("Somebody else") == made[0]
    assert await users.list() == [made[0]]


async def test_the_owner_is_the_first_admin(store: Database) -> None:
    users = UserStore(store)
    child = await users.add("Kim", Role.CHILD)
    admin = await users.add("Ada", Role.ADMIN)
    await users.add("Eve", Role.ADMIN)
    assert await users.ensure_owner() == admin
    assert [user.display_name for user in await users.list()] == ["Kim", "Ada", "Eve"]
    assert await users.by_id(child.id) == child
    assert await users.get(child.id) == child


async def test_unknown_people(store: Database) -> None:
    users = UserStore(store)
    assert await users.by_id(UserId("none")) is None
    with pytest.raises(UnknownUser, match="none"):
        await users.get(UserId("none"))
    assert not await users.remove(UserId("none"))


async def test_roles_are_checked_by_the_table(store: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        await store.write(lambda tx: tx.execute("INSERT INTO users VALUES ('u', 'U', 'root', 0)"))
