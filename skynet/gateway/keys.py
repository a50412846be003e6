"""Session keys at the edge: what a client writes, what is stored, and what the client is shown."""

import hashlib
from functools import lru_cache

from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import AgentId, SessionKey, UserId
from skynet_memory.keys import build_key, parse_key
from skynet_protocol.session_keys import FullKey, parse_wire_key
from skynet_users.caller import Caller


def resolve_key(caller: Caller, wire_key: str) -> SessionKey:
    """The caller's own session that ``wire_key`` means (DESIGN 4).

    ``main``, ``agent:main:main`` and bare names mean a session of the caller; a full key (``user:…``) has to be the
    caller's own.

    Raises:
        RequestError: a malformed key.
        SessionNotFound: somebody else's key. It reads as if there were no such session, so that keys cannot be probed.
    """
    parsed = parse_wire_key(wire_key)
    if isinstance(parsed, FullKey):
        if parsed.user != caller.user_id:
            raise SessionNotFound(wire_key)
        return build_key(UserId(parsed.user), AgentId(parsed.agent_id), parsed.rest)
    return build_key(caller.user_id, AgentId(parsed.agent_id), parsed.rest)


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
    """The form that OpenClaw clients know: ``agent:{agent}:{name}``."""
    parsed = parse_key(key)
    return f"agent:{parsed.agent}:{parsed.name}"
