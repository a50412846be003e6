"""Commands that a person was allowed for good, each for one place where commands run."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from skynet_memory.database import Database, Row, Statements
from skynet_memory.ids import UserId, new_id

Host: TypeAlias = Literal["sandbox", "gateway", "node"]

MOST: Final = 500
"""Of one person; of more the one goes that was used longest ago."""
MAX_PATTERN: Final = 16_384
"""Characters of a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGrant:
    id: str
    owner: UserId
    host: Host
    node_id: str
    """"" for everything that is no node."""
    pattern: str
    """The command's words, as a JSON array; what they match is not known here."""
    decided_by: UserId
    created_at_ms: int
    last_used_at_ms: int | None
    uses: int


class CommandGrantStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(
        self,
        owner: UserId,
        patterns: Sequence[str],
        *,
        host: Host,
        node_id: str = "",
        decided_by: UserId,
        now_ms: int,
    ) -> list[CommandGrant]:
        """Allow commands for good, all of them or none. One that was allowed already is now ``decided_by``'s.

        Raises:
            ValueError: a pattern is too long, or the place is none.
            sqlite3.IntegrityError: there is no such person, or a pattern is no JSON array.
        """
        if (host == "node") != bool(node_id):
            raise ValueError("a node, and nothing else, has an id")
        if too_long := [pattern for pattern in patterns if len(pattern) > MAX_PATTERN]:
            raise ValueError(f"a pattern is {len(too_long[0])} characters, the limit is {MAX_PATTERN}")

        def work(tx: Statements) -> list[Row]:
            rows = [
                tx.fetchone(
                    "INSERT INTO command_grants (id, owner, host, node_id, pattern, decided_by, created_at_ms)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, host, node_id, pattern)"
                    " DO UPDATE SET decided_by = excluded.decided_by, created_at_ms = excluded.created_at_ms"
                    " RETURNING *",
                    (new_id(), owner, host, node_id, pattern, decided_by, now_ms),
                )
                for pattern in dict.fromkeys(patterns)
            ]
            tx.execute(
                "DELETE FROM command_grants WHERE owner = ? AND id IN (SELECT id FROM command_grants WHERE owner = ?"
                " ORDER BY max(created_at_ms, ifnull(last_used_at_ms, 0)) DESC, id DESC LIMIT -1 OFFSET ?)",
                (owner, owner, MOST),
            )
            return [row for row in rows if row is not None]

        return [_read(row) for row in await self._db.write(work)]

    async def of(self, owner: UserId) -> list[CommandGrant]:
        """Newest first."""
        rows = await self._db.fetchall(
            "SELECT * FROM command_grants WHERE owner = ? ORDER BY created_at_ms DESC, id DESC", (owner,)
        )
        return [_read(row) for row in rows]

    async def find(self, owner: UserId, patterns: Collection[str], host: Host, node_id: str = "") -> list[CommandGrant]:
        """Those of exactly these patterns that hold in one place."""
        rows = await self._db.fetchall(
            "SELECT * FROM command_grants WHERE owner = ? AND host = ? AND node_id = ?"
            " AND pattern IN (SELECT value FROM json_each(?))",
            (owner, host, node_id, json.dumps([*patterns])),
        )
        return [_read(row) for row in rows]

    async def used(self, owner: UserId, grants: Collection[str], now_ms: int) -> None:
        """Commands ran because of these, by their ids."""
        await self._db.write(
            lambda tx: tx.executemany(
                "UPDATE command_grants SET uses = uses + 1, last_used_at_ms = ? WHERE owner = ? AND id = ?",
                [(now_ms, owner, grant) for grant in grants],
            )
        )

    async def remove(self, owner: UserId, grant_id: str) -> bool:
        """False if this person has none with this id."""
        return bool(
            await self._db.write(
                lambda tx: tx.execute("DELETE FROM command_grants WHERE owner = ? AND id = ?", (owner, grant_id))
            )
        )


def _read(row: Row) -> CommandGrant:
    return CommandGrant(**{name: row[name] for name in CommandGrant.__slots__})
