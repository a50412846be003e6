"""Session keys at the edge: what a client writes, what is stored, and what the client is shown."""

import hashlib
from functools import lru_cache
from typing import Protocol

from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import AgentId, SessionKey, UserId
from skynet_memory.keys import build_key, parse_key
from skynet_protocol.session_keys import FullKey, parse_wire_key
from skynet_users.caller import Caller


class Rooms(Protocol):
    """Who is in which room."""

    def is_member(self, group: UserId, user: UserId) -> bool: ...


def resolve_key(caller: Caller, wire_key: str, rooms: Rooms | None = None) -> SessionKey:
    """The session that ``wire_key`` means: the caller's own (DESIGN 4), or one of a room that the caller is in.

    ``main``, ``agent:main:main`` and bare names mean a session of the caller; a full key (``user:…``) has to be the
    caller's own, and a room's (``group:…``) of a room in ``rooms``. Without ``rooms`` there are none.

    Raises:
        RequestError: a malformed key.
        SessionNotFound: somebody else's key. It reads as if there were no such session, so that keys cannot be probed.
    """
    parsed = parse_wire_key(wire_key)
    if not isinstance(parsed, FullKey):
        return build_key(caller.user_id, AgentId(parsed.agent_id), parsed.rest)
    owner = UserId(parsed.user)
    if parsed.kind == "group":
        is_reached = rooms is not None and rooms.is_member(owner, caller.user_id)
    else:
        is_reached = owner == caller.user_id
    if not is_reached:
        raise SessionNotFound(wire_key)
    return build_key(owner, AgentId(parsed.agent_id), parsed.rest, parsed.kind)


@lru_cache(maxsize=4096)
def owner_of(key: SessionKey) -> UserId:
    """Whose session it is: a person's, or a room's."""
    return parse_key(key).user


@lru_cache(maxsize=4096)
def room_of(key: SessionKey) -> UserId | None:
    """The room whose session it is; None for a person's."""
    parsed = parse_key(key)
    return parsed.user if parsed.kind == "group" else None


def key_part(text: str) -> str:
    """A word that a client chose, as part of a session's name.

    Keys are lower case and stripped when they are read; ``Bob`` must still not be shown what ``bob`` said.
    """
    canonical = text.strip().lower()
    if text == canonical:
        return text
    return f"{canonical}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@lru_cache(maxsize=4096)
def render_key(key: SessionKey) -> str:
    """The form that OpenClaw clients know: ``agent:{agent}:{name}``. A room's session has only its full key."""
    parsed = parse_key(key)
    return key if parsed.kind == "group" else f"agent:{parsed.agent}:{parsed.name}"
