import pytest

from skynet_memory.database import Database
from skynet_memory.ids import UserId
from skynet_memory.migrations import Component, migrate
from skynet_memory.schema import COMPONENT
from skynet_memory.usage import UsageStore
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import add_person

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
        if name != "approvals":  # a registration is of somebody who is nobody yet
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


async def test_what_was_spent_before_more_of_it_was_kept_still_counts(empty: Database) -> None:
    await migrate(empty, [USER_TABLES, Component(COMPONENT.name, COMPONENT.migrations[:4])])
    await add_person(empty, UserId("ada"))
    await empty.write(
        lambda tx: tx.execute(
            "INSERT INTO usage (owner, key, session_id, run_id, provider, model, input, output, cache_read,"
            " cache_write, cost_microusd, at_ms) VALUES ('ada', 'k', 's', 'r', 'lab', 'm-1', 10, 5, 2, 1, 100, 7)"
        )
    )
    assert await migrate(empty, [USER_TABLES, COMPONENT]) == len(COMPONENT.migrations) - 4
    totals = await UsageStore(empty).totals(UserId("ada"), 0, 10)
    assert (totals.cost_microusd, totals.cost_parts, totals.total) == (100, (0, 0, 0, 0), 18)
    assert (totals.calls, totals.estimated_calls) == (1, 0)
