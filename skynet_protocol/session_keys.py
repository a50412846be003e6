"""Session keys as clients write them (OPENCLAW-V3 8.1): ``main``, a bare name, ``agent:<agent>:<name>``, a full key.

A full key begins with its owner: ``user:<id>:`` or, for the session of a room, ``group:<id>:``.

The canonical form is lower case. ``global`` and ``unknown`` are ordinary names here, because no session is shared by
everybody.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from skynet_protocol.errors import DetailCode, RequestError, shorten

MAX_KEY_LENGTH = 512

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class WireKey:
    """A session of the caller's own."""

    agent_id: str
    rest: str

    @property
    def canonical(self) -> str:
        """What OpenClaw clients hold: ``agent:main:main``."""
        return f"agent:{self.agent_id}:{self.rest}"


@dataclass(frozen=True, slots=True)
class FullKey:
    """A session of a named person, or of a room; who may use it is the gateway's decision."""

    user: str
    agent_id: str
    rest: str
    kind: Literal["user", "group"] = "user"

    @property
    def canonical(self) -> str:
        return f"{self.kind}:{self.user}:agent:{self.agent_id}:{self.rest}"


def parse_wire_key(key: str, *, default_agent: str = "main", main_key: str = "main") -> WireKey | FullKey:
    """The session that ``key`` means. ``main`` is an alias of ``main_key``, alone and as an agent's session.

    Raises:
        RequestError: ``malformed session key "…"``: empty, longer than 512 characters (blanks round it too: clients get
            their keys back as they wrote them), with control characters, or
            with a prefix that promises an agent and does not name one.
    """
    text = key.strip().lower()
    if (
        not text
        or len(key) > MAX_KEY_LENGTH
        or len(text) > MAX_KEY_LENGTH
        or any(_is_forbidden(character) for character in text)
    ):
        raise malformed_key(key)
    parts = text.split(":", 2)
    if parts[0] == "agent":
        return WireKey(*_agent_and_rest(parts[1:], key, main_key))
    if parts[0] in ("user", "group") and len(parts) == 3 and (parts[2] == "agent" or parts[2].startswith("agent:")):
        if not parts[1]:
            raise malformed_key(key)
        agent_id, rest = _agent_and_rest(parts[2].split(":", 2)[1:], key, main_key)
        return FullKey(parts[1], agent_id, rest, "group" if parts[0] == "group" else "user")
    return WireKey(default_agent, _main_or(text, main_key))


def is_agent_id(text: str) -> bool:
    """Whether ``text`` may name an agent."""
    return _AGENT_ID.fullmatch(text) is not None


def malformed_key(key: str) -> RequestError:
    return RequestError(f'malformed session key "{shorten(key)}"', details={"code": DetailCode.INVALID_PARAMS})


def _agent_and_rest(parts: list[str], key: str, main_key: str) -> tuple[str, str]:
    if len(parts) != 2 or not is_agent_id(parts[0]) or not parts[1]:
        raise malformed_key(key)
    return parts[0], _main_or(parts[1], main_key)


def _main_or(rest: str, main_key: str) -> str:
    return main_key if rest == "main" else rest


def _is_forbidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
