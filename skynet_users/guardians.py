"""Who looks after which child: who sets limits, is told when something is wrong, and decides about requests."""

from __future__ import annotations

from dataclasses import dataclass

from skynet_memory.database import Database, Statements
from skynet_memory.ids import UserId
from skynet_users.errors import InvalidProfile, UnknownUser


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardian:
    child: UserId
    guardian: UserId
    reads_transcripts: bool = False
    """Set by an admin for this guardian and child; never so by default."""
    by_default: bool = False
    """An admin, because the child has no guardian of its own."""


_OF_CHILD = (
    "SELECT links.owner AS child, links.guardian, links.reads_transcripts, 0 AS by_default FROM guardians AS links"
    " JOIN users AS child ON child.id = links.owner AND child.role = 'child'"
    " JOIN users AS adult ON adult.id = links.guardian AND adult.role <> 'child' AND NOT adult.disabled"
)
_BY_DEFAULT = (
    "SELECT child.id AS child, adult.id AS guardian, 0 AS reads_transcripts, 1 AS by_default"  # noqa: S608 - constants
    " FROM users AS child JOIN users AS adult ON adult.role = 'admin' AND NOT adult.disabled"
    f" WHERE child.role = 'child' AND NOT EXISTS ({_OF_CHILD} WHERE links.owner = child.id)"
)
_ALL = f"SELECT * FROM ({_OF_CHILD} UNION ALL {_BY_DEFAULT})"  # noqa: S608 - constants


class GuardianStore:
    """A guardian who is disabled, or a child who is none any more, counts for nothing as long as that is so."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def set(self, child: UserId, guardian: UserId, *, reads_transcripts: bool = False) -> None:
        """Make somebody a guardian, or change what this guardian may read.

        Raises:
            UnknownUser: one of them is nobody.
            InvalidProfile: ``child`` is no child, or ``guardian`` is one, or the same.
        """

        def work(tx: Statements) -> None:
            roles = {}
            for user_id in (child, guardian):
                row = tx.fetchone("SELECT role FROM users WHERE id = ? AND kind = 'person'", (user_id,))
                if row is None:
                    raise UnknownUser(user_id)
                roles[user_id] = row["role"]
            if roles[child] != "child":
                raise InvalidProfile("child", "must be a person whose role is child")
            if roles[guardian] == "child":
                raise InvalidProfile("guardian", "must be a person whose role is not child")
            tx.execute(
                "INSERT INTO guardians (owner, guardian, reads_transcripts) VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET reads_transcripts = excluded.reads_transcripts",
                (child, guardian, reads_transcripts),
            )

        await self._db.write(work)

    async def remove(self, child: UserId, guardian: UserId) -> bool:
        return bool(
            await self._db.write(
                lambda tx: tx.execute("DELETE FROM guardians WHERE owner = ? AND guardian = ?", (child, guardian))
            )
        )

    async def of(self, child: UserId) -> tuple[Guardian, ...]:
        """The guardians of a child; every admin, if it has none of its own. Of anybody else none."""
        return await self._fetch("WHERE child = ?", (child,))

    async def children(self, guardian: UserId) -> tuple[Guardian, ...]:
        """Whom this person looks after, with the children whose guardian they are as an admin."""
        return await self._fetch("WHERE guardian = ?", (guardian,))

    async def find(self, child: UserId, guardian: UserId) -> Guardian | None:
        """How this person is a guardian of this child."""
        found = await self._fetch("WHERE child = ? AND guardian = ?", (child, guardian))
        return found[0] if found else None

    async def _fetch(self, condition: str, params: tuple[str, ...]) -> tuple[Guardian, ...]:
        rows = await self._db.fetchall(f"{_ALL} {condition} ORDER BY child, guardian", params)
        return tuple(
            Guardian(
                child=row["child"],
                guardian=row["guardian"],
                reads_transcripts=bool(row["reads_transcripts"]),
                by_default=bool(row["by_default"]),
            )
            for row in rows
        )
