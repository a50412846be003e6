"""Groups: rooms of a channel, or of one's own, that several people share.

A group is a row of ``users`` too, so that it owns its sessions, memories and usage. It has no way in: no token, no
identity, no role beyond user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from skynet_memory.database import Database, Row, Statements, Value
from skynet_memory.ids import Role, UserId, new_id
from skynet_memory.ids import now_ms as wall_clock
from skynet_users.errors import GroupInactive, UnknownGroup, UnknownUser
from skynet_users.identities import check_identity
from skynet_users.memberships import Memberships
from skynet_users.people import user_changed
from skynet_users.profiles import checked_profile, clean_name

History: TypeAlias = Literal["from_join", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    id: UserId
    """Of the group's own row among the users."""
    channel: str
    """"" for a room of one's own, and ``external_id`` too."""
    external_id: str
    name: str
    active: bool
    """An inactive group keeps all it has and takes no messages."""
    history: History
    """What a member sees: all, or what was said since joining."""
    created_by: UserId | None
    """None if nobody did, or somebody who was removed since."""
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    user_id: UserId
    joined_at_ms: int


class GroupStore:
    """
    Args:
        memberships: who is in which group, kept as it is in the database once :meth:`load` has been called.
    """

    def __init__(
        self, db: Database, clock: Callable[[], int] = wall_clock, *, memberships: Memberships | None = None
    ) -> None:
        self._db = db
        self._clock = clock
        self.memberships = Memberships() if memberships is None else memberships

    async def load(self, user_id: UserId | None = None) -> None:
        """Learn who is in which group: everybody, or this person, who was disabled, enabled or removed."""
        while True:
            changes = self.memberships.changes
            rows = await self._db.fetchall(
                "SELECT group_id, group_members.owner FROM group_members"
                " JOIN users ON users.id = group_members.owner AND NOT disabled"
                " WHERE :user IS NULL OR group_members.owner = :user",
                {"user": user_id},
            )
            if self.memberships.changes == changes:  # nobody came or went meanwhile
                break
        self.memberships.replace(((row["group_id"], row["owner"]) for row in rows), user_id)

    async def ensure(
        self,
        channel: str,
        external_id: str,
        name: str,
        created_by: UserId | None = None,
        *,
        history: History = "from_join",
    ) -> Group:
        """The group of a channel's room, made when it is first heard of. The name and all else stay as they were then.

        Raises:
            InvalidProfile: ``channel`` or ``external_id`` is none.
        """
        check_identity(channel, external_id)
        shown = clean_name(name, clean_name(f"{channel} {external_id}", channel))
        found = await self.by_channel(channel, external_id)  # nearly always, and without a write
        return found or await self._add(channel, external_id, shown, created_by, history)

    async def create(self, name: str, created_by: UserId, *, history: History = "from_join") -> Group:
        """A room of one's own, with nobody in it.

        Raises:
            InvalidProfile: ``name`` is none.
        """
        return await self._add(
            "", "", str(checked_profile({"display_name": name})["display_name"]), created_by, history
        )

    async def get(self, group_id: UserId, *, member: UserId | None = None) -> Group:
        """
        Raises:
            UnknownGroup: there is none, or ``member`` is given and is none.
        """
        rows = await self._fetch(
            "WHERE groups.owner = :group AND (:member IS NULL OR EXISTS"
            " (SELECT 1 FROM group_members WHERE group_id = :group AND owner = :member))",
            {"group": group_id, "member": member},
        )
        if not rows:
            raise UnknownGroup(group_id)
        return rows[0]

    async def require_active(self, group_id: UserId, *, member: UserId | None = None) -> Group:
        """The group, to which a message may go.

        Raises:
            UnknownGroup: as :meth:`get`.
            GroupInactive: it takes no messages.
        """
        group = await self.get(group_id, member=member)
        if not group.active:
            raise GroupInactive(group.name)
        return group

    async def by_channel(self, channel: str, external_id: str) -> Group | None:
        rows = await self._fetch(
            "WHERE groups.channel = :channel AND groups.channel <> '' AND groups.external_id = :external_id",
            {"channel": channel, "external_id": external_id},
        )
        return rows[0] if rows else None

    async def set_active(self, group_id: UserId, active: bool) -> Group:
        """
        Raises:
            UnknownGroup: there is none.
        """

        def work(tx: Statements) -> None:
            if not tx.execute("UPDATE groups SET active = ? WHERE owner = ?", (active, group_id)):
                raise UnknownGroup(group_id)
            user_changed(tx, group_id)

        await self._db.write(work)
        return await self.get(group_id)

    async def join(self, group_id: UserId, user_id: UserId, *, by: UserId | None = None) -> bool:
        """Whether this made a difference; who is in it already joined when they did.

        Args:
            by: who says so; None for the channel whose room it is.

        Raises:
            UnknownGroup: there is none; or somebody comes by themselves whom others took out.
            UnknownUser: there is no such person.
        """
        at_ms = self._clock()

        def work(tx: Statements) -> tuple[bool, bool]:
            if tx.fetchone("SELECT 1 FROM groups WHERE owner = ?", (group_id,)) is None:
                raise UnknownGroup(group_id)
            person = tx.fetchone("SELECT disabled FROM users WHERE id = ? AND kind = 'person'", (user_id,))
            if person is None:
                raise UnknownUser(user_id)
            excluded = (group_id, user_id)
            if by == user_id:
                if tx.fetchone("SELECT 1 FROM group_exclusions WHERE group_id = ? AND owner = ?", excluded):
                    raise UnknownGroup(group_id)
            elif by is not None:
                tx.execute("DELETE FROM group_exclusions WHERE group_id = ? AND owner = ?", excluded)
            is_new = tx.execute(
                "INSERT INTO group_members (group_id, owner, joined_at_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (group_id, user_id, at_ms),
            )
            return bool(is_new), not person["disabled"]

        is_new, counts = await self._db.write(work)
        if counts:
            self.memberships.joined(group_id, user_id)
        return is_new

    async def leave(self, group_id: UserId, user_id: UserId, *, by: UserId | None = None) -> bool:
        """Whether they were in it. Whom another (``by``) takes out does not come back in by themselves."""
        was_member = self.memberships.is_member(group_id, user_id)
        self.memberships.left(group_id, user_id)
        try:
            left = await self._db.write(partial(_take_out, group_id, user_id, by not in (None, user_id)))
        except Exception:
            if was_member:
                self.memberships.joined(group_id, user_id)
            raise
        self.memberships.left(group_id, user_id)  # whoever loaded meanwhile found them still there
        return bool(left)

    async def members(self, group_id: UserId) -> tuple[Member, ...]:
        """In the order they joined."""
        rows = await self._db.fetchall(
            "SELECT owner, joined_at_ms FROM group_members WHERE group_id = ? ORDER BY joined_at_ms, owner", (group_id,)
        )
        return tuple(Member(user_id=row["owner"], joined_at_ms=row["joined_at_ms"]) for row in rows)

    async def is_member(self, group_id: UserId, user_id: UserId) -> bool:
        """A disabled person is a member of nothing, as long as that is so."""
        return await self.visible_from_ms(group_id, user_id) is not None

    async def visible_from_ms(self, group_id: UserId, user_id: UserId) -> int | None:
        """From when on this person may read what is said in the group; 0 from the beginning, None nothing."""
        row = await self._db.fetchone(
            "SELECT iif(history = 'all', 0, joined_at_ms) FROM group_members"
            " JOIN groups ON groups.owner = group_id JOIN users ON users.id = group_members.owner AND NOT disabled"
            " WHERE group_id = ? AND group_members.owner = ?",
            (group_id, user_id),
        )
        return None if row is None else row[0]

    async def _fetch(self, condition: str, params: dict[str, Value]) -> list[Group]:
        rows = await self._db.fetchall(f"{_SELECT} {condition} ORDER BY users.created_at_ms, users.id", params)
        return [_read(row) for row in rows]

    async def _add(
        self, channel: str, external_id: str, name: str, created_by: UserId | None, history: History
    ) -> Group:
        values: dict[str, Value] = {
            "id": new_id(),
            "name": name,
            "role": Role.USER.value,
            "now": self._clock(),
            "channel": channel,
            "external_id": external_id,
            "history": history,
            "created_by": created_by,
        }

        def work(tx: Statements) -> Row | None:
            row = tx.fetchone(f"{_SELECT} WHERE channel = :channel AND external_id = :external_id", values)
            if row is None or not channel:
                tx.execute(
                    "INSERT INTO users (id, display_name, role, created_at_ms, kind)"
                    " VALUES (:id, :name, :role, :now, 'group')",
                    values,
                )
                tx.execute(
                    "INSERT INTO groups (owner, channel, external_id, history, created_by)"
                    " VALUES (:id, :channel, :external_id, :history, :created_by)",
                    values,
                )
                row = tx.fetchone(f"{_SELECT} WHERE groups.owner = :id", values)
            return row

        row = await self._db.write(work)
        assert row is not None
        return _read(row)

    async def list(self, member: UserId | None = None) -> list[Group]:
        """All groups, or those of one person, in the order they were made."""
        return await self._fetch(
            "WHERE :member IS NULL OR EXISTS"
            " (SELECT 1 FROM group_members WHERE group_id = groups.owner AND owner = :member)",
            {"member": member},
        )


_SELECT: Final = "SELECT groups.*, display_name, created_at_ms FROM groups JOIN users ON users.id = groups.owner"


def _read(row: Row) -> Group:
    return Group(
        id=row["owner"],
        channel=row["channel"],
        external_id=row["external_id"],
        name=row["display_name"],
        active=bool(row["active"]),
        history=row["history"],
        created_by=row["created_by"],
        created_at_ms=row["created_at_ms"],
    )


def _take_out(group_id: UserId, user_id: UserId, is_excluded: bool, tx: Statements) -> int:
    left = tx.execute("DELETE FROM group_members WHERE group_id = ? AND owner = ?", (group_id, user_id))
    if left and is_excluded:
        tx.execute("INSERT INTO group_exclusions VALUES (?, ?) ON CONFLICT DO NOTHING", (group_id, user_id))
    return left
