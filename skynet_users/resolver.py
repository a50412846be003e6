"""Who a message is from: a person for every channel identity, remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from skynet_memory.database import Database, Statements
from skynet_memory.ids import Role, UserId
from skynet_memory.ids import now_ms as wall_clock
from skynet_users.approvals import ask
from skynet_users.errors import InvalidProfile, TooManyPending
from skynet_users.identities import FIND, check_identity, link_identity
from skynet_users.people import PEOPLE, User, insert_user, new_person, read_user, topic_of
from skynet_users.profiles import clean_name

CACHED: Final = 256
"""Identities, and as many people, that are found without asking the database."""

Unknown: TypeAlias = Literal["approve", "create", "refuse"]


@dataclass(frozen=True, slots=True)
class Known:
    user: User


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stranger, about whom somebody has to decide."""

    approval_id: str
    is_new: bool
    """Nobody was asked before: tell those who decide, and the stranger."""


@dataclass(frozen=True, slots=True)
class RefusedSender:
    """Not answered, and not told why."""

    reason: Literal["unknown", "denied", "disabled", "too_many_waiting", "not_an_identity"]


Resolved: TypeAlias = Known | Waiting | RefusedSender


class UserResolver:
    """Only people are remembered, never a refusal or a stranger; and nobody longer than until the next change of them.

    Args:
        unknown: what to do about strangers: ask those who decide, make them people, or nothing.
        new_role: the role of people made so.
    """

    def __init__(
        self,
        db: Database,
        *,
        unknown: Unknown = "approve",
        new_role: Literal[Role.USER, Role.CHILD, "user", "child"] = Role.USER,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self._db = db
        self._unknown = unknown
        self._new_role = Role(new_role)
        if self._new_role is Role.ADMIN:
            raise ValueError("nobody becomes an admin by writing")
        self._clock = clock
        self._identities: _Cache[tuple[str, str]] = _Cache(db)
        self._people: _Cache[UserId] = _Cache(db)

    async def resolve(self, channel: str, external_id: str, *, display_name: str = "") -> Resolved:
        """Who this identity is; strangers are treated as configured.

        Args:
            display_name: as the channel says; a name for a new person.
        """
        user = self._identities.get((channel, external_id))
        if user is not None:
            return Known(user)
        try:
            check_identity(channel, external_id)
        except InvalidProfile:
            return RefusedSender("not_an_identity")
        found = await self._find(channel, external_id)
        if found is None:
            met = await self._meet(channel, external_id, display_name)
            if met is not None:
                return met
            found = await self._find(channel, external_id)
            if found is None:  # removed at once
                return RefusedSender("unknown")
        return RefusedSender("disabled") if found.disabled else Known(found)

    async def known(self, channel: str, external_id: str) -> User | None:
        """Whose this identity is, if it is somebody's who is not disabled; nobody is made or asked."""
        found = self._identities.get((channel, external_id)) or await self._find(channel, external_id)
        return None if found is None or found.disabled else found

    async def user(self, user_id: UserId) -> User | None:
        """A person or a group; None for nobody, and for somebody who is disabled."""
        user = self._people.get(user_id)
        if user is not None:
            return user
        mark = self._people.mark()
        row = await self._db.fetchone("SELECT * FROM users WHERE id = ? AND NOT disabled", (user_id,))
        if row is None:
            return None
        user = read_user(row)
        self._people.put(user_id, user, mark)
        return user

    def forget(self, user_id: UserId | None = None) -> None:
        """Ask the database the next time: about this person, or about everybody.

        The stores of people, identities, approvals and link codes need no telling: what they change is forgotten.
        """
        self._identities.forget(user_id)
        self._people.forget(user_id)

    async def _find(self, channel: str, external_id: str) -> User | None:
        mark = self._identities.mark()
        row = await self._db.fetchone(FIND, (channel, external_id))
        if row is None:
            return None
        user = read_user(row)
        if not user.disabled:
            self._identities.put((channel, external_id), user, mark)
        return user

    async def _meet(self, channel: str, external_id: str, display_name: str) -> Waiting | RefusedSender | None:
        """Treat a stranger; None if it is a person now."""
        if self._unknown == "refuse":
            return RefusedSender("unknown")
        row = await self._db.fetchone(_LAST_REGISTRATION, (channel, external_id))
        if row is not None and row["status"] == "denied":
            return RefusedSender("denied")
        at_ms = self._clock()
        is_waiting = row is not None and row["status"] == "pending" and row["expires_at_ms"] > at_ms
        if self._unknown == "approve" and row is not None and is_waiting:
            return Waiting(row["id"], False)  # without a write for everything that a stranger says
        name = clean_name(display_name, clean_name(f"{channel} {external_id}", channel))

        def work(tx: Statements) -> Waiting | None:
            if tx.fetchone(FIND, (channel, external_id)) is not None:
                return None
            if self._unknown == "create":
                columns = new_person(name, self._new_role, auto_created=True, now_ms=at_ms)
                user = insert_user(tx, columns)
                link_identity(tx, user.id, channel, external_id, display_name, True, "", at_ms)
                return None
            subject = {"channel": channel, "external_id": external_id, "display_name": display_name}
            summary = f"{name} ({channel}:{external_id}) wants to talk with the assistant"
            approval, is_new = ask(tx, "registration", None, summary, subject, None, at_ms)
            return Waiting(approval.id, is_new)

        try:
            return await self._db.write(work)
        except TooManyPending:
            return RefusedSender("too_many_waiting")


_LAST_REGISTRATION: Final = (
    "SELECT id, status, expires_at_ms FROM approvals WHERE kind = 'registration' AND channel = ? AND external_id = ?"
    " ORDER BY id DESC LIMIT 1"
)

K = TypeVar("K")


class _Cache(Generic[K]):
    """The last used people, each as long as nothing about them has changed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._entries: OrderedDict[K, tuple[User, int]] = OrderedDict()
        self._times_forgotten = 0

    def get(self, key: K) -> User | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        user, version = entry
        if self._db.version(topic_of(user.id)) != version:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return user

    def mark(self) -> tuple[int, int]:
        """To be taken before the query whose answer is put."""
        return self._db.version(PEOPLE), self._times_forgotten

    def put(self, key: K, user: User, mark: tuple[int, int]) -> None:
        """Remember, unless anybody changed or was forgotten since ``mark``."""
        if self.mark() != mark:
            return
        self._entries[key] = (user, self._db.version(topic_of(user.id)))
        self._entries.move_to_end(key)
        if len(self._entries) > CACHED:
            self._entries.popitem(last=False)

    def forget(self, user_id: UserId | None) -> None:
        self._times_forgotten += 1
        for key in [key for key, (user, _) in self._entries.items() if user_id is None or user.id == user_id]:
            del self._entries[key]
