"""Another person's conversation: for a guardian whom a setting lets read a child's, and never without a record."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from skynet.gateway.approvals import Record
from skynet_memory.ids import AgentId, SessionKey, UserId
from skynet_memory.keys import build_key
from skynet_protocol.session_keys import FullKey, parse_wire_key
from skynet_users.caller import Caller


class ReadingGuardian(Protocol):
    """What a guardian may."""

    @property
    def reads_transcripts(self) -> bool: ...


class TranscriptAccess:
    """
    Args:
        guardian: how the second person is a guardian of the first; None if not at all.
        record: where it is written down who read what, before it is read.
    """

    def __init__(self, guardian: Callable[[UserId, UserId], Awaitable[ReadingGuardian | None]], record: Record) -> None:
        self._guardian = guardian
        self._record = record

    async def open(self, caller: Caller, wire_key: str) -> SessionKey | None:
        """The session of another person that the caller may read; None if there is none, or the caller may not.

        Raises:
            StorageUnavailable: it cannot be recorded, so it is not read.
        """
        parsed = parse_wire_key(wire_key)
        if not isinstance(parsed, FullKey) or parsed.kind == "group" or parsed.user == caller.user_id:
            return None
        child = UserId(parsed.user)
        guardian = await self._guardian(child, caller.user_id)
        if guardian is None or not guardian.reads_transcripts:
            return None
        key = build_key(child, AgentId(parsed.agent_id), parsed.rest)
        await self._record("transcript.read", actor=caller.user_id, subject=child, details={"session": key})
        return key
