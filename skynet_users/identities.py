"""Channel identities: which person ``discord:1234`` is. One person may have many."""

from dataclasses import dataclass
from typing import Final, Literal

from skynet_memory.database import Database, Row, Statements
from skynet_memory.ids import UserId, now_ms
from skynet_users.errors import Forbidden, IdentityTaken, InvalidProfile, UnknownUser
from skynet_users.people import User, read_user, user_changed
from skynet_users.permissions import Permission
from skynet_users.profiles import clean_name

CHANNEL_CHARS: Final = 64
EXTERNAL_ID_CHARS: Final = 256

FIND: Final = (
    "SELECT users.* FROM identities JOIN users ON users.id = identities.owner WHERE channel = ? AND external_id = ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    owner: UserId
    channel: str
    external_id: str
    display_name: str
    linked_at_ms: int
    verified: bool
    """Whoever linked it knew that it is this person."""
    linked_by: UserId | Literal[""]
    """The admin, or the person by a code; "" if nobody did, or somebody who was removed since."""


class IdentityStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def link(
        self,
        owner: UserId,
        channel: str,
        external_id: str,
        *,
        display_name: str = "",
        verified: bool = True,
        linked_by: UserId | Literal[""] = "",
    ) -> None:
        """Say that this identity is this person; a newer display name replaces the stored one.

        Raises:
            IdentityTaken: it is another person already.
            UnknownUser: there is no such person; a group has no identities.
            InvalidProfile: ``channel`` or ``external_id`` is none.
        """
        check_identity(channel, external_id)
        at_ms = now_ms()

        def work(tx: Statements) -> None:
            link_identity(tx, owner, channel, external_id, display_name, verified, linked_by, at_ms)

        await self._db.write(work)

    async def relink(
        self, owner: UserId, channel: str, external_id: str, *, linked_by: UserId, display_name: str = ""
    ) -> UserId | None:
        """Link an identity to this person, whoever's it was; returns whose.

        Raises:
            Forbidden: ``linked_by`` is no admin.
            UnknownUser, InvalidProfile: as :meth:`link`.
        """
        check_identity(channel, external_id)
        at_ms = now_ms()

        def work(tx: Statements) -> UserId | None:
            admin = tx.fetchone("SELECT 1 FROM users WHERE id = ? AND role = 'admin' AND NOT disabled", (linked_by,))
            if admin is None:
                raise Forbidden(Permission.USERS_MANAGE)
            former = unlink_identity(tx, channel, external_id)
            link_identity(tx, owner, channel, external_id, display_name, True, linked_by, at_ms)
            return former

        return await self._db.write(work)

    async def find(self, channel: str, external_id: str) -> User | None:
        """Also somebody who is disabled."""
        row = await self._db.fetchone(FIND, (channel, external_id))
        return None if row is None else read_user(row)

    async def list(self, owner: UserId) -> list[Identity]:
        rows = await self._db.fetchall(
            "SELECT * FROM identities WHERE owner = ? ORDER BY linked_at_ms, channel, external_id", (owner,)
        )
        return [_read_identity(row) for row in rows]

    async def unlink(self, owner: UserId, channel: str, external_id: str) -> bool:
        def work(tx: Statements) -> bool:
            user_changed(tx, owner)
            return bool(
                tx.execute(
                    "DELETE FROM identities WHERE owner = ? AND channel = ? AND external_id = ?",
                    (owner, channel, external_id),
                )
            )

        return await self._db.write(work)


def check_identity(channel: str, external_id: str) -> None:
    """
    Raises:
        InvalidProfile: one of them is empty, too long, or holds what no channel calls anybody.
    """
    for field, text, longest in (("channel", channel, CHANNEL_CHARS), ("external_id", external_id, EXTERNAL_ID_CHARS)):
        if not text.isprintable() or not 1 <= len(text.strip()) == len(text) <= longest:
            raise InvalidProfile(field, f"must be 1 to {longest} printable characters")


def link_identity(
    tx: Statements,
    owner: UserId,
    channel: str,
    external_id: str,
    display_name: str,
    verified: bool,
    linked_by: UserId | Literal[""],
    at_ms: int,
) -> None:
    """As :meth:`IdentityStore.link`; who waited with this identity to be let in waits no more."""
    if tx.fetchone("SELECT 1 FROM users WHERE id = ? AND kind = 'person'", (owner,)) is None:
        raise UnknownUser(owner)
    row = tx.fetchone(
        "INSERT INTO identities (channel, external_id, owner, display_name, linked_at_ms, verified, linked_by)"
        " VALUES (?, ?, ?, ?, ?, ?, nullif(?, '')) ON CONFLICT (channel, external_id) DO UPDATE SET"
        " display_name = iif(excluded.display_name = '', display_name, excluded.display_name),"
        " verified = max(verified, excluded.verified)"
        " WHERE owner = excluded.owner RETURNING owner",
        (channel, external_id, owner, clean_name(display_name, ""), at_ms, verified, linked_by),
    )
    if row is None:
        raise IdentityTaken(channel, external_id)
    tx.execute(
        "UPDATE approvals SET status = 'expired', subject = json_remove(subject, '$.messages')"
        " WHERE kind = 'registration' AND channel = ? AND external_id = ? AND status = 'pending'",
        (channel, external_id),
    )
    user_changed(tx, owner)


def unlink_identity(tx: Statements, channel: str, external_id: str) -> UserId | None:
    """Make it nobody's; returns whose it was."""
    row = tx.fetchone(
        "DELETE FROM identities WHERE channel = ? AND external_id = ? RETURNING owner", (channel, external_id)
    )
    if row is None:
        return None
    owner: UserId = row["owner"]
    user_changed(tx, owner)
    return owner


def _read_identity(row: Row) -> Identity:
    return Identity(
        owner=row["owner"],
        channel=row["channel"],
        external_id=row["external_id"],
        display_name=row["display_name"],
        linked_at_ms=row["linked_at_ms"],
        verified=bool(row["verified"]),
        linked_by=row["linked_by"] or "",
    )
