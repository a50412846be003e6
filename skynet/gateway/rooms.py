"""Rooms as the methods and the channels ask about them: who is in one, whether it takes messages, what one may read."""

from skynet.gateway.keys import room_of
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import SessionKey, UserId
from skynet_users.errors import UnknownGroup
from skynet_users.groups import Group, GroupStore


class Rooms:
    """What somebody who is not in a room asks about it reads as if there were no such session."""

    def __init__(self, groups: GroupStore) -> None:
        self._groups = groups

    def is_member(self, group: UserId, user: UserId) -> bool:
        """Known without a query, so that events and keys can ask."""
        return self._groups.memberships.is_member(group, user)

    def of(self, user: UserId) -> list[UserId]:
        """The rooms that somebody is in."""
        return self._groups.memberships.of(user)

    async def of_channel(self, channel: str, external_id: str) -> Group | None:
        return await self._groups.by_channel(channel, external_id)

    async def ensure(self, channel: str, external_id: str, name: str, created_by: UserId) -> Group:
        """The group of a channel's room, made when it is first heard of; raises ``InvalidProfile`` if it is none."""
        return await self._groups.ensure(channel, external_id, name, created_by)

    async def join(self, group: UserId, user: UserId) -> bool:
        """Whether they were not in it before."""
        return await self._groups.join(group, user)

    async def leave(self, group: UserId, user: UserId) -> bool:
        """Whether they were in it."""
        return await self._groups.leave(group, user)

    async def admit(self, user: UserId, key: SessionKey) -> Group | None:
        """The room whose session gets a message of ``user``; None for a session of a person.

        Raises:
            SessionNotFound: they are not in it.
            GroupInactive: it takes no messages.
        """
        room = room_of(key)
        if room is None:
            return None
        try:
            return await self._groups.require_active(room, member=user)
        except UnknownGroup as exc:
            raise SessionNotFound(key) from exc

    async def visible_from_ms(self, user: UserId, key: SessionKey) -> int:
        """From when on ``user`` may read what is said in the session: 0, or when they came into the room.

        Raises:
            SessionNotFound: they are not in it.
        """
        room = room_of(key)
        if room is None:
            return 0
        from_ms = await self._groups.visible_from_ms(room, user)
        if from_ms is None:
            raise SessionNotFound(key)
        return from_ms
