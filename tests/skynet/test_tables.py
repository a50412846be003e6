"""All tables together: a file from before there were commands opens, with what is in it."""

import sqlite3
from pathlib import Path

from skynet.tables import TABLES
from skynet_memory.database import Database
from skynet_memory.ids import DEFAULT_AGENT, Role
from skynet_memory.keys import build_key
from skynet_memory.migrations import copy_path, migrate
from skynet_memory.sessions import SessionStore
from skynet_users.people import UserStore

BEFORE_COMMANDS = ("users", "audit", "memory", "usage", "compactions", "search", "memories")


async def contents(db: Database) -> dict[str, list[tuple[object, ...]]]:
    """The rows of every table but the record of migrations."""
    found = {}
    for row in await db.fetchall("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%) STRICT%'"):
        if row["name"] != "migrations":
            found[row["name"]] = [tuple(each) for each in await db.fetchall(f"SELECT * FROM {row['name']}")]
    return found


async def test_a_file_from_before_there_were_commands(tmp_path: Path) -> None:
    """Its rows stay, the tables of nodes, grants and jobs are empty, and a copy was made first."""
    path = tmp_path / "skynet.db"
    async with Database(path) as db:
        earlier = TABLES[: len(BEFORE_COMMANDS)]
        assert tuple(component.name for component in earlier) == BEFORE_COMMANDS
        await migrate(db, earlier)
        ada = await UserStore(db).add("Ada", Role.ADMIN)
        key = build_key(ada.id, DEFAULT_AGENT, "main")
        await SessionStore(db).get_or_create(ada.id, key)
        before = await contents(db)
    assert before["users"] and before["sessions"]
    async with Database(path) as db:
        later = TABLES[len(BEFORE_COMMANDS) :]
        assert await migrate(db, TABLES) == sum(len(component.migrations) for component in later)
        after = await contents(db)
        assert {name: after[name] for name in before} == before
        new = {"node_names", "bridge_requests", "bridge_nodes", "command_grants", "jobs"}
        assert {name: rows for name, rows in after.items() if name not in before} == {name: [] for name in new}
        assert await db.fetchall("PRAGMA foreign_key_check") == []
        assert (await SessionStore(db).get_or_create(ada.id, key)).owner == ada.id
        assert await migrate(db, TABLES) == 0
    copy = sqlite3.connect(copy_path(path, later[0].name, 1))
    assert copy.execute("SELECT display_name FROM users").fetchall() == [("Ada",)]
    assert copy.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('jobs', 'command_grants')").fetchone() == (
        0,
    )
    copy.close()
