"""Who is in which group, in memory: asked for every session key and every event, where nothing can be awaited."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from skynet_memory.ids import UserId


class Memberships:
    """What :class:`skynet_users.groups.GroupStore` says of its members, kept by it.

    It never knows of more than the database: who leaves is out of it before they are out of that, who joins comes in
    afterwards, and what is cancelled in between leaves them out.
    """

    def __init__(self) -> None:
        self._members: dict[UserId, set[UserId]] = {}
        self.changes = 0
        """How often somebody joined or left."""

    def is_member(self, group: UserId, user: UserId) -> bool:
        return user in self._members.get(group, ())

    def members(self, group: UserId) -> Collection[UserId]:
        """Nobody, if it is no group."""
        return self._members.get(group, ())

    def of(self, user: UserId) -> list[UserId]:
        """The groups that somebody is in."""
        return [group for group, members in self._members.items() if user in members]

    def joined(self, group: UserId, user: UserId) -> None:
        self.changes += 1
        self._members.setdefault(group, set()).add(user)

    def left(self, group: UserId, user: UserId) -> None:
        self.changes += 1
        members = self._members.get(group, set())
        members.discard(user)
        if not members:
            self._members.pop(group, None)

    def replace(self, memberships: Iterable[tuple[UserId, UserId]], user: UserId | None = None) -> None:
        """All there are, as (group, member), or all of one person."""
        for group in list(self._members) if user is None else self.of(user):
            for member in list(self._members[group]) if user is None else [user]:
                self.left(group, member)
        for group, member in memberships:
            self.joined(group, member)
