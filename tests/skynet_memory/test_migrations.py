import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from skynet_memory.database import Database, Transaction
from skynet_memory.errors import DatabaseChanged, DatabaseRefused, DatabaseTooNew
from skynet_memory.migrations import Component, Migration, copy_path, migrate


async def m001_people(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE people (name TEXT NOT NULL) STRICT")


async def m002_age(tx: Transaction) -> None:
    await tx.execute("ALTER TABLE people ADD COLUMN age INTEGER NOT NULL DEFAULT 0")
    await tx.execute("UPDATE people SET age = 1")


async def m003_broken(tx: Transaction) -> None:
    await tx.execute("ALTER TABLE people ADD COLUMN half TEXT")
    await tx.execute("this is not SQL")


async def m001_pets(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE pets (name TEXT NOT NULL) STRICT")


def users(*migrations: Migration) -> Component:
    return Component("users", migrations)


async def recorded(db: Database) -> Sequence[tuple[str, int, str]]:
    rows = await db.fetchall("SELECT component, number, name FROM migrations ORDER BY component, number")
    return [tuple(row) for row in rows]


async def test_a_new_file(empty: Database) -> None:
    components = [users(m001_people, m002_age), Component("pets", [m001_pets])]
    assert await migrate(empty, components) == 3
    assert await recorded(empty) == [("pets", 1, "m001_pets"), ("users", 1, "m001_people"), ("users", 2, "m002_age")]
    assert not list(empty.path.parent.glob("*.before-*"))
    assert await migrate(empty, components) == 0


async def test_an_upgrade_keeps_rows_and_makes_a_copy_first(empty: Database) -> None:
    await migrate(empty, [users(m001_people)])
    await empty.write(lambda tx: tx.execute("INSERT INTO people VALUES ('Ada')"))
    assert await migrate(empty, [users(m001_people, m002_age)]) == 1
    assert [tuple(row) for row in await empty.fetchall("SELECT * FROM people")] == [("Ada", 1)]

    path = copy_path(empty.path, "users", 2)
    assert path.name == "skynet.db.before-users-2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    copy = sqlite3.connect(path)
    assert copy.execute("SELECT * FROM people").fetchall() == [("Ada",)]
    assert copy.execute("SELECT count(*) FROM migrations").fetchone() == (1,)
    copy.close()


async def test_a_failing_migration_leaves_no_trace_and_can_be_tried_again(empty: Database) -> None:
    await migrate(empty, [users(m001_people)])
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="syntax error"):
            await migrate(empty, [users(m001_people, m002_age, m003_broken)])
        assert len(await recorded(empty)) == 2
        columns = await empty.fetchall("SELECT name FROM pragma_table_info('people')")
        assert [row["name"] for row in columns] == ["name", "age"]


async def test_a_newer_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "skynet.db"
    async with Database(path) as db:
        await migrate(db, [users(m001_people, m002_age)])
    before = path.read_bytes()
    async with Database(path) as db:
        with pytest.raises(DatabaseTooNew) as caught:
            await migrate(db, [users(m001_people), Component("pets", [m001_pets])])
    assert (caught.value.component, caught.value.found, caught.value.known) == ("users", 2, 1)
    assert "users is at schema 2, this version knows schema 1" in str(caught.value)
    assert path.read_bytes() == before


async def test_an_unknown_component_is_a_newer_file(empty: Database) -> None:
    await migrate(empty, [users(m001_people), Component("pets", [m001_pets])])
    with pytest.raises(DatabaseTooNew, match="pets is at schema 1, this version knows schema 0"):
        await migrate(empty, [users(m001_people)])


async def test_a_replaced_migration_is_refused(empty: Database) -> None:
    await migrate(empty, [users(m001_people)])
    with pytest.raises(DatabaseChanged, match="users migration 1 was 'm001_people', this version has 'm001_pets'"):
        await migrate(empty, [users(m001_pets)])
    assert issubclass(DatabaseChanged, DatabaseRefused)
