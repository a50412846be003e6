"""Migrations: numbered functions beside the store that owns the tables, appended and never edited.

Each runs in one transaction with its own record in ``migrations``, so a start that was cut short goes on where it was.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from skynet_memory.database import Database, Transaction
from skynet_memory.errors import DatabaseChanged, DatabaseTooNew
from skynet_memory.ids import now_ms

log = logging.getLogger(__name__)

Migration: TypeAlias = Callable[[Transaction], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Component:
    """A set of tables with a history of its own. Migration 1 is ``migrations[0]``."""

    name: str
    migrations: Sequence[Migration]


async def migrate(db: Database, components: Sequence[Component]) -> int:
    """Bring the file up to date, component after component; returns how many migrations ran (0 at most starts).

    Before the first one that changes an existing file, a copy is made: ``<db>.before-<component>-<number>``.

    Raises:
        DatabaseTooNew: a newer version has been here. Nothing was changed.
        DatabaseChanged: a recorded migration is not the one this version has. Nothing was changed.
    """
    recorded = await _recorded(db)
    pending = _pending(db, components, recorded)
    if not pending:
        return 0
    if recorded:
        component, number, _ = pending[0]
        await db.backup(copy_path(db.path, component, number))
    for component, number, migration in pending:
        async with db.transaction() as tx:
            await tx.execute(
                "CREATE TABLE IF NOT EXISTS migrations ("
                " component TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, applied_at_ms INTEGER NOT NULL,"
                " PRIMARY KEY (component, number)) STRICT, WITHOUT ROWID"
            )
            await migration(tx)
            await tx.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)", (component, number, _name(migration), now_ms())
            )
        log.debug("migrated %s to schema %d (%s)", component, number, _name(migration))
    schema = ", ".join(f"{component.name} {len(component.migrations)}" for component in components)
    log.info("%s %s: schema %s", "upgraded" if recorded else "created", db.path, schema)
    return len(pending)


def copy_path(path: Path, component: str, number: int) -> Path:
    """Where the file is copied to before this migration. Trying the same upgrade again replaces the copy."""
    return path.with_name(f"{path.name}.before-{component}-{number}")


async def _recorded(db: Database) -> dict[tuple[str, int], str]:
    if await db.fetchone("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'") is None:
        return {}
    rows = await db.fetchall("SELECT component, number, name FROM migrations")
    return {(component, number): name for component, number, name in rows}


def _pending(
    db: Database, components: Sequence[Component], recorded: dict[tuple[str, int], str]
) -> list[tuple[str, int, Migration]]:
    known = {component.name: component.migrations for component in components}
    for (name, number), recorded_name in sorted(recorded.items()):
        migrations = known.get(name, ())
        if number > len(migrations):
            found = max(other for component, other in recorded if component == name)
            raise DatabaseTooNew(db.path, name, found, len(migrations))
        if _name(migrations[number - 1]) != recorded_name:
            raise DatabaseChanged(db.path, name, number, recorded_name, _name(migrations[number - 1]))
    return [
        (component.name, number, migration)
        for component in components
        for number, migration in enumerate(component.migrations, start=1)
        if (component.name, number) not in recorded
    ]


def _name(migration: Migration) -> str:
    return getattr(migration, "__name__", type(migration).__name__)
