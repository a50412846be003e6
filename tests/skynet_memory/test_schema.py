import pytest

from skynet_memory.database import Database
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT
from skynet_users.schema import COMPONENT as USER_TABLES

SHARED = {"migrations", "users"}


async def tables(store: Database) -> list[str]:
    rows = await store.fetchall("SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    assert [row["name"] for row in rows if not row["strict"]] == ["sqlite_schema"]
    return [row["name"] for row in rows if row["strict"]]


async def test_every_table_is_strict_and_every_row_has_an_owner(store: Database) -> None:
    names = await tables(store)
    assert len(names) >= 14
    for name in set(names) - SHARED:
        columns = {row["name"]: row for row in await store.fetchall(f"PRAGMA table_info({name})")}
        assert columns["owner"]["notnull"], name
        if name == "erasing":  # empty outside of a transaction
            continue
        keys = [tuple(row)[2:7] for row in await store.fetchall(f"PRAGMA foreign_key_list({name})")]
        assert ("users", "owner", "id", "NO ACTION", "CASCADE") in keys, name


async def test_starting_again_changes_nothing(store: Database) -> None:
    before = [tuple(row) for row in await store.fetchall("SELECT * FROM sqlite_schema")]
    assert await migrate(store, [USER_TABLES, COMPONENT]) == 0
    assert [tuple(row) for row in await store.fetchall("SELECT * FROM sqlite_schema")] == before


@pytest.mark.parametrize("component", [USER_TABLES, COMPONENT], ids=lambda component: component.name)
def test_migrations_are_numbered_in_order(component: object) -> None:
    numbers = [migration.__name__.split("_")[0] for migration in component.migrations]  # type: ignore[attr-defined]
    assert numbers == [f"m{number:03}" for number in range(1, len(numbers) + 1)]
    assert all(migration.__doc__ for migration in component.migrations)  # type: ignore[attr-defined]
