"""Upgrades from each step before, with rows in it."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_memory.migrations import Component, migrate
from skynet_users.credentials import CredentialStore
from skynet_users.identities import IdentityStore
from skynet_users.people import User, UserStore
from skynet_users.schema import COMPONENT, MIGRATIONS

ADA, KIM = UserId("ada"), UserId("kim")


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        yield db


async def at(db: Database, step: int) -> None:
    """The tables as of migration ``step``, with people in them."""
    await migrate(db, [Component("users", MIGRATIONS[:2])])
    people = ((ADA, "Ada", "admin"), (KIM, "Kim", "child"))
    await db.write(
        lambda tx: tx.executemany(
            "INSERT INTO users (id, display_name, role, created_at_ms) VALUES (?, ?, ?, 7)", people
        )
    )
    await db.write(lambda tx: tx.execute("INSERT INTO identities VALUES ('discord', '1', 'ada', 'ada#1', 8)"))
    await db.write(
        lambda tx: tx.execute("INSERT INTO credentials VALUES ('c', 'ada', 'token', 'laptop', 'hash', 9, NULL)")
    )
    await migrate(db, [Component("users", MIGRATIONS[:step])])


@pytest.mark.parametrize("step", range(2, len(MIGRATIONS)))
async def test_an_upgrade_keeps_people_and_how_they_are_known(empty: Database, step: int) -> None:
    """SK-119"""
    await at(empty, step)
    assert await migrate(empty, [COMPONENT]) == len(MIGRATIONS) - step
    assert await UserStore(empty).list() == [
        User(id=ADA, display_name="Ada", role=Role.ADMIN, created_at_ms=7),
        User(id=KIM, display_name="Kim", role=Role.CHILD, created_at_ms=7, content_filter="strict"),
    ]
    [identity] = await IdentityStore(empty).list(ADA)
    assert (identity.display_name, identity.linked_at_ms, identity.verified, identity.linked_by) == (
        "ada#1",
        8,
        True,
        "",
    )
    [token] = await CredentialStore(empty).tokens(ADA)
    assert (token.name, token.created_at_ms, token.scopes, token.expires_at_ms) == ("laptop", 9, None, None)
    assert await empty.fetchall("PRAGMA foreign_key_check") == []


async def test_foreign_keys_are_enforced(store: Database, ada: User) -> None:
    """SK-119"""
    for statement in (
        "INSERT INTO identities VALUES ('discord', '1', 'nobody', '', 0, 1, NULL)",
        "INSERT INTO identities VALUES ('discord', '1', (SELECT id FROM users), '', 0, 1, 'nobody')",
        "INSERT INTO link_codes VALUES ('nobody', 'h', 'c', '', 0)",
        "INSERT INTO guardians VALUES ('nobody', (SELECT id FROM users), 0)",
        "INSERT INTO group_members VALUES ('nobody', (SELECT id FROM users), 0)",
        "INSERT INTO groups VALUES ('nobody', '', '', 1, 'all', NULL)",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            await store.write(lambda tx, statement=statement: tx.execute(statement))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("role", "'root'"),
        ("content_filter", "'none'"),
        ("kind", "'robot'"),
        ("kind", "'group'"),  # of an admin
        ("age", "151"),
        ("daily_tokens", "-1"),
        ("monthly_microusd", "-1"),
        ("disabled", "2"),
        ("interests", "'{}'"),
        ("flags", "'[]'"),
    ],
)
async def test_the_table_refuses_what_no_person_is(store: Database, ada: User, column: str, value: str) -> None:
    """SK-121, SK-129"""
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        await store.write(lambda tx: tx.execute(f"UPDATE users SET {column} = {value}"))


async def test_every_reference_ends_with_the_person_and_is_found_by_index(store: Database) -> None:
    rows = await store.fetchall("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    found = 0
    for table in (row["name"] for row in rows):
        leading = {
            columns[0]["name"]
            for index in await store.fetchall(f"PRAGMA index_list({table})")
            if (columns := await store.fetchall(f"PRAGMA index_info({index['name']})"))
        }
        for key in await store.fetchall(f"PRAGMA foreign_key_list({table})"):
            found += 1
            assert key["on_delete"] in ("CASCADE", "SET NULL"), (table, key["from"])
            assert key["from"] in leading, (table, key["from"])
    assert found >= 14
