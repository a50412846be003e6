"""Canonical session keys: ``user:{uid}:agent:{aid}:{name}``, and ``group:{gid}:agent:{aid}:{name}`` for a room's.

A session belongs to a person or to a room, not to a channel, so its owner is part of the key. The name may contain
colons (``discord:direct:42``); the owner's id may not.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from skynet_memory.ids import AgentId, SessionKey, UserId

MAX_KEY_LENGTH: Final = 512

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# C0 and C1 controls, the line and paragraph separators, and lone surrogates (SQLite text has to be UTF-8)
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class InvalidSessionKey(ValueError):  # noqa: N818
    """The text is not a session key; ``str()`` says what is wrong with it."""


OwnerKind: TypeAlias = Literal["user", "group"]


@dataclass(frozen=True, slots=True)
class ParsedKey:
    user: UserId
    """Whose session it is: a person, or a room."""
    agent: AgentId
    name: str
    kind: OwnerKind = "user"


def build_key(user: UserId, agent: AgentId, name: str, kind: OwnerKind = "user") -> SessionKey:
    """Join the parts; ``parse_key`` gives exactly these parts back.

    Raises:
        InvalidSessionKey: a part is empty or holds a control character, the user id holds a colon, the agent id is not
            ``[a-z0-9][a-z0-9_-]{0,63}``, or the key would be longer than 512 characters.
    """
    _check(user, agent, name)
    key = f"{kind}:{user}:agent:{agent}:{name}"
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidSessionKey(f"session key is {len(key)} characters, limit is {MAX_KEY_LENGTH}")
    return SessionKey(key)


def parse_key(key: str) -> ParsedKey:
    """Take a key apart.

    Raises:
        InvalidSessionKey: not a key that ``build_key`` can make.
    """
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidSessionKey(f"session key is {len(key)} characters, limit is {MAX_KEY_LENGTH}")
    parts = key.split(":", 4)
    if len(parts) != 5 or parts[0] not in ("user", "group") or parts[2] != "agent":
        raise InvalidSessionKey(f"session key {key!r} is not user:<id>:agent:<id>:<name>")
    kind, user, _, agent, name = parts
    _check(user, agent, name)
    return ParsedKey(UserId(user), AgentId(agent), name, "group" if kind == "group" else "user")


def _check(user: str, agent: str, name: str) -> None:
    if not user or not name:
        raise InvalidSessionKey(f"session key has an empty {'name' if user else 'user id'}")
    if ":" in user:
        raise InvalidSessionKey(f"user id {user!r} holds a colon")
    if _AGENT_ID.fullmatch(agent) is None:
        raise InvalidSessionKey(f"agent id {agent!r} is not [a-z0-9][a-z0-9_-]{{0,63}}")
    if _FORBIDDEN.search(user) or _FORBIDDEN.search(name):
        raise InvalidSessionKey("session key holds a control character")
