"""People, and how they want to be answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypedDict, Unpack

from msgspec import UNSET, UnsetType

from skynet_memory.database import Database, Row, Statements, Value
from skynet_memory.ids import Role, UserId, new_id, now_ms
from skynet_users.errors import AmbiguousUser, Forbidden, LastAdmin, UnknownUser
from skynet_users.permissions import Permission
from skynet_users.profiles import checked_profile

ContentFilter = Literal["off", "moderate", "strict"]

MIN_ID_PREFIX: Final = 8
"""So many characters of an id may stand for the whole of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    id: UserId
    display_name: str
    role: Role
    created_at_ms: int
    language: str = ""
    tone: str = ""
    interests: tuple[str, ...] = ()
    age: int | None = None
    time_zone: str = ""
    """IANA name; "" is the gateway's."""
    content_filter: ContentFilter = "moderate"
    requires_approval: bool = False
    """Risky tool calls of this person wait for somebody's yes."""
    flags: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """Permissions given to or taken from this person, beside those of the role."""
    quiet_hours: str = ""
    """When nothing unasked is sent."""
    allowed_hours: str = ""
    """When a child may talk with the assistant; "" is always."""
    needs_welcome: bool = False
    """New here: cleared after the first answered turn."""
    disabled: bool = False
    """Nobody, until enabled again: no way in, no identity; all that is theirs stays."""
    daily_tokens: int | None = None
    """None in this and the other limits: the role's default."""
    monthly_tokens: int | None = None
    daily_microusd: int | None = None
    monthly_microusd: int | None = None
    kind: Literal["person", "group"] = "person"


class Profile(TypedDict, total=False):
    """What can be said of a person from the start."""

    language: str
    tone: str
    interests: Sequence[str]
    age: int | None
    time_zone: str
    content_filter: ContentFilter
    requires_approval: bool
    flags: Mapping[str, bool]
    quiet_hours: str
    allowed_hours: str
    needs_welcome: bool
    disabled: bool
    daily_tokens: int | None
    monthly_tokens: int | None
    daily_microusd: int | None
    monthly_microusd: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChanges:
    """What is not given stays as it is."""

    display_name: str | UnsetType = UNSET
    role: Role | UnsetType = UNSET
    language: str | UnsetType = UNSET
    tone: str | UnsetType = UNSET
    interests: Sequence[str] | UnsetType = UNSET
    age: int | UnsetType | None = UNSET
    time_zone: str | UnsetType = UNSET
    content_filter: ContentFilter | UnsetType = UNSET
    requires_approval: bool | UnsetType = UNSET
    flags: Mapping[str, bool] | UnsetType = UNSET
    quiet_hours: str | UnsetType = UNSET
    allowed_hours: str | UnsetType = UNSET
    needs_welcome: bool | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    daily_tokens: int | UnsetType | None = UNSET
    monthly_tokens: int | UnsetType | None = UNSET
    daily_microusd: int | UnsetType | None = UNSET
    monthly_microusd: int | UnsetType | None = UNSET


class UserStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def ensure_owner(self, display_name: str = "Owner") -> User:
        """The first enabled admin, who is made with this name if there is none yet. Idempotent.

        The gateway's own token and password stand for this person.
        """
        columns = _new(display_name, Role.ADMIN, {})

        def work(tx: Statements) -> User:
            row = tx.fetchone(
                "SELECT * FROM users WHERE role = 'admin' AND NOT disabled ORDER BY created_at_ms, id LIMIT 1"
            )
            return insert_user(tx, columns) if row is None else read_user(row)

        return await self._db.write(work)

    async def add(self, display_name: str, role: Role, **profile: Unpack[Profile]) -> User:
        """A child's content filter is ``strict`` unless it is given.

        Raises:
            InvalidProfile: naming the field.
        """
        columns = _new(display_name, role, profile)
        return await self._db.write(lambda tx: insert_user(tx, columns))

    async def by_id(self, user_id: UserId) -> User | None:
        """Also somebody who is disabled, and also a group."""
        row = await self._db.fetchone("SELECT * FROM users WHERE id = ?", (user_id,))
        return None if row is None else read_user(row)

    async def get(self, user_id: UserId) -> User:
        """
        Raises:
            UnknownUser: nobody has this id.
        """
        user = await self.by_id(user_id)
        if user is None:
            raise UnknownUser(user_id)
        return user

    async def by_name(self, text: str) -> User:
        """Who is meant: an id, the beginning of one id (8 characters or more), or a display name in any case.

        Raises:
            UnknownUser: nobody.
            AmbiguousUser: several people.
        """
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise UnknownUser(ascii(text)) from exc

        def work(tx: Statements) -> list[Row]:
            rows = tx.fetchall("SELECT * FROM users WHERE kind = 'person' AND id = ?", (text,))
            if not rows and len(text) >= MIN_ID_PREFIX:
                rows = tx.fetchall(
                    "SELECT * FROM users WHERE kind = 'person' AND substr(id, 1, length(?1)) = ?1 LIMIT 2",
                    (text.lower(),),
                )
            return rows or tx.fetchall(
                "SELECT * FROM users WHERE kind = 'person' AND casefold(display_name) = ? LIMIT 2",
                (text.strip().casefold(),),
            )

        rows = await self._db.read(work)
        if not rows:
            raise UnknownUser(text)
        if len(rows) > 1:
            raise AmbiguousUser(text)
        return read_user(rows[0])

    async def list(self) -> list[User]:
        """Every person, also those who are disabled, in the order they were added."""
        rows = await self._db.fetchall("SELECT * FROM users WHERE kind = 'person' ORDER BY created_at_ms, id")
        return [read_user(row) for row in rows]

    async def set(self, user_id: UserId, changes: UserChanges, *, by: tuple[UserId, Role] | None = None) -> User:
        """Who becomes a child is filtered strictly, unless the same change says otherwise.

        Args:
            by: who changes another person, and the role that lets them. It is looked at once more with the change: who
                has just lost it does not give it back to themselves.

        Raises:
            Forbidden: ``by`` is somebody else by now.
            InvalidProfile: naming the field.
            UnknownUser: nobody has this id.
            LastAdmin: nobody could administer the gateway any more.
        """
        given = {item.name: getattr(changes, item.name) for item in fields(changes)}
        columns = checked_profile({name: value for name, value in given.items() if value is not UNSET})
        if columns.get("role") == Role.CHILD:
            columns.setdefault("content_filter", "strict")

        def work(tx: Statements) -> User:
            if by is not None and not tx.fetchone(_IS_STILL, by):
                raise Forbidden(Permission.USERS_MANAGE)
            if not columns:
                row = tx.fetchone("SELECT * FROM users WHERE id = ?", (user_id,))
            else:
                if columns.get("role", Role.ADMIN) != Role.ADMIN or columns.get("disabled"):
                    _keep_an_admin(tx, user_id)
                assignments = ", ".join(f"{name} = :{name}" for name in columns)
                row = tx.fetchone(
                    # A role that somebody chose makes a person of one who came by themselves; a group has no role
                    f"UPDATE users SET {assignments}, auto_created = auto_created AND NOT :decided"  # noqa: S608
                    " WHERE id = :user_id AND (kind = 'person' OR NOT :decided) RETURNING *",
                    columns | {"user_id": user_id, "decided": "role" in columns},
                )
            if row is None:
                raise UnknownUser(user_id)
            user_changed(tx, user_id)
            return read_user(row)

        return await self._db.write(work)

    async def remove(self, user_id: UserId) -> bool:
        """Remove a person with all that is theirs, whichever table it is in.

        Raises:
            LastAdmin: nobody could administer the gateway any more.
        """

        def work(tx: Statements) -> bool:
            _keep_an_admin(tx, user_id)
            user_changed(tx, user_id)
            return bool(tx.execute("DELETE FROM users WHERE id = ?", (user_id,)))

        return await self._db.write(work)


_IS_STILL: Final = "SELECT 1 FROM users WHERE id = ? AND role = ? AND NOT disabled"

PEOPLE: Final = "people"
"""The topic of ``Database.version`` that grows with every change of a person, an identity or a token's owner."""


def topic_of(user_id: UserId) -> str:
    """The topic of one person."""
    return f"people:{user_id}"


def user_changed(tx: Statements, user_id: UserId) -> None:
    """What anybody remembers of this person, or of the identities that are or were theirs, is no longer true."""
    tx.changed(PEOPLE)
    tx.changed(topic_of(user_id))


def read_user(row: Row) -> User:
    return User(
        id=row["id"],
        display_name=row["display_name"],
        role=Role(row["role"]),
        created_at_ms=row["created_at_ms"],
        language=row["language"],
        tone=row["tone"],
        interests=tuple(json.loads(row["interests"])),
        age=row["age"],
        time_zone=row["time_zone"],
        content_filter=row["content_filter"],
        requires_approval=bool(row["requires_approval"]),
        flags=json.loads(row["flags"]),
        quiet_hours=row["quiet_hours"],
        allowed_hours=row["allowed_hours"],
        needs_welcome=bool(row["needs_welcome"]),
        disabled=bool(row["disabled"]),
        daily_tokens=row["daily_tokens"],
        monthly_tokens=row["monthly_tokens"],
        daily_microusd=row["daily_microusd"],
        monthly_microusd=row["monthly_microusd"],
        kind=row["kind"],
    )


def new_person(display_name: str, role: Role, *, auto_created: bool = False, now_ms: int) -> dict[str, Value]:
    """The columns of somebody who came by a channel, for :func:`insert_user`. They are to be welcomed."""
    columns = _new(display_name, role, {"needs_welcome": True})
    return columns | {"auto_created": auto_created, "created_at_ms": now_ms}


def insert_user(tx: Statements, columns: Mapping[str, Value]) -> User:
    names, places = ", ".join(columns), ", ".join(f":{name}" for name in columns)
    row = tx.fetchone(f"INSERT INTO users ({names}) VALUES ({places}) RETURNING *", columns)  # noqa: S608 - own names
    assert row is not None
    return read_user(row)


def _new(display_name: str, role: Role, profile: Profile) -> dict[str, Value]:
    columns = checked_profile({"display_name": display_name, "role": role, **profile})
    if role == Role.CHILD:
        columns.setdefault("content_filter", "strict")
    return columns | {"id": new_id(), "created_at_ms": now_ms()}


def _keep_an_admin(tx: Statements, user_id: UserId) -> None:
    """Refuse to lose this person as an admin if there is no other who can administer."""
    admins = tx.fetchall("SELECT id FROM users WHERE role = 'admin' AND NOT disabled LIMIT 2")
    if [row["id"] for row in admins] == [user_id]:
        raise LastAdmin
