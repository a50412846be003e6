"""Channel identities: which person ``discord:1234`` is. One person may have many."""

from dataclasses import dataclass

from skynet_memory.database import Database, Statements
from skynet_memory.ids import UserId, now_ms
from skynet_users.errors import IdentityTaken
from skynet_users.people import User, read_user


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    owner: UserId
    channel: str
    external_id: str
    display_name: str
    linked_at_ms: int


class IdentityStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def link(self, owner: UserId, channel: str, external_id: str, *, display_name: str = "") -> None:
        """Say that this identity is this person; a newer display name replaces the stored one.

        Raises:
            IdentityTaken: it is another person already.
        """
        linked_at_ms = now_ms()

        def work(tx: Statements) -> None:
            row = tx.fetchone(
                "INSERT INTO identities (channel, external_id, owner, display_name, linked_at_ms)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT (channel, external_id) DO UPDATE SET"
                " display_name = iif(excluded.display_name = '', display_name, excluded.display_name)"
                " WHERE owner = excluded.owner RETURNING owner",
                (channel, external_id, owner, display_name, linked_at_ms),
            )
            if row is None:
                raise IdentityTaken(channel, external_id)

        await self._db.write(work)

    async def find(self, channel: str, external_id: str) -> User | None:
        row = await self._db.fetchone(
            "SELECT users.* FROM identities JOIN users ON users.id = identities.owner"
            " WHERE channel = ? AND external_id = ?",
            (channel, external_id),
        )
        return None if row is None else read_user(row)

    async def list(self, owner: UserId) -> list[Identity]:
        rows = await self._db.fetchall(
            "SELECT * FROM identities WHERE owner = ? ORDER BY linked_at_ms, channel, external_id", (owner,)
        )
        return [Identity(**{name: row[name] for name in row.keys()}) for row in rows]  # noqa: SIM118 - a Row is no dict

    async def unlink(self, owner: UserId, channel: str, external_id: str) -> bool:
        return bool(
            await self._db.write(
                lambda tx: tx.execute(
                    "DELETE FROM identities WHERE owner = ? AND channel = ? AND external_id = ?",
                    (owner, channel, external_id),
                )
            )
        )
