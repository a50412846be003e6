"""Whose memory a request is about, and that nobody's is touched by another without their knowing."""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import UNSET, UnsetType

from skynet.gateway.approvals import Record
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.heartbeat import SystemEvents
from skynet_memory.ids import Role, UserId, now_ms
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.memory import MemoryReadEvent
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden, UnknownUser
from skynet_users.people import User
from skynet_users.permissions import Permission

log = logging.getLogger(__name__)


class MemoryAccess:
    """One's own memory is one's own; a group's is its members'. For that of others a permission that reaches everybody
    is needed, and then it is recorded, and told to the person: to their connections, and with their next message.

    Args:
        person: the person or group with this id; raises ``UnknownUser``.
        is_member: whether somebody (the second) is in the group.
        record: where it is written down who did what.
    """

    def __init__(
        self,
        *,
        person: Callable[[UserId], Awaitable[User]],
        is_member: Callable[[UserId, UserId], Awaitable[bool]],
        record: Record,
        broadcaster: Broadcaster,
        system_events: SystemEvents,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._person = person
        self._is_member = is_member
        self._record = record
        self._broadcaster = broadcaster
        self._system_events = system_events
        self._clock = clock

    async def reads(self, caller: Caller, user_id: str | UnsetType, method: str) -> UserId:
        """Whose memory is going to be read.

        Raises:
            Forbidden: another's, and the caller may not. It reads the same whether or not there is such a person.
            RequestError: nobody's.
        """
        return await self._reach(caller, user_id, method, "read")

    async def changes(self, caller: Caller, user_id: str | UnsetType, method: str) -> UserId:
        """Whose memory is going to be added to or changed; raises like ``reads``."""
        return await self._reach(caller, user_id, method, "changed")

    async def erases(
        self, caller: Caller, user_id: str | UnsetType, method: str, *, everything: bool = False
    ) -> UserId:
        """Whose memory something is going to be erased of, which is recorded of one's own too."""
        return await self._reach(caller, user_id, method, "erased", everything=everything)

    async def is_own(self, caller: Caller, owner: UserId) -> bool:
        """Whether it is the caller's memory, or that of a group the caller is in."""
        return owner == caller.user_id or await self._is_member(owner, caller.user_id)

    async def _reach(
        self,
        caller: Caller,
        user_id: str | UnsetType,
        method: str,
        action: Literal["read", "changed", "erased"],
        *,
        everything: bool = False,
    ) -> UserId:
        owner = caller.user_id if user_id is UNSET else UserId(user_id)
        permission = Permission.MEMORY_READ if action == "read" else Permission.MEMORY_WRITE
        is_own = await self.is_own(caller, owner)
        caller.require(permission, None if is_own else owner)
        if action != "read" and owner != caller.user_id and caller.role is Role.CHILD:
            raise Forbidden(permission)  # a room's memory stands in the prompts of the grown-ups in it
        if not is_own:
            await self._exists(owner)
        if not is_own or action == "erased":
            details = {"method": method} | ({"everything": True} if everything else {})
            await self._record(f"memory.{action}", actor=caller.user_id, subject=owner, details=details)
        if not is_own:
            log.info("%s of %s by %s", method, owner, caller.user_id)
            self._tell(owner, caller, method, action)
        return owner

    async def _exists(self, owner: UserId) -> None:
        try:
            await self._person(owner)
        except UnknownUser as exc:
            raise RequestError(str(exc), details={"code": DetailCode.NOT_FOUND}) from exc

    def _tell(self, owner: UserId, caller: Caller, method: str, action: Literal["read", "changed", "erased"]) -> None:
        name = caller.display_name or "An administrator"
        event = MemoryReadEvent(ts=self._clock(), action=action, method=method, by=caller.user_id, by_name=name)
        self._broadcaster.publish("memory.read", event, owner=owner)
        did = {"read": "read", "changed": "changed", "erased": "erased some of"}[action]
        self._system_events.add(owner, f"Memory: {name} {did} what is remembered about you ({method}).")
