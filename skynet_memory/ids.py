"""Identifier types of the whole product; nothing else invents its own.

Ids are UUIDv7 text, so they sort by the time they were made. Times are epoch milliseconds.
"""

import os
import time
from enum import StrEnum
from typing import NewType

UserId = NewType("UserId", str)
AgentId = NewType("AgentId", str)
SessionKey = NewType("SessionKey", str)
SessionId = NewType("SessionId", str)
EntryId = NewType("EntryId", str)
RunId = NewType("RunId", str)
ConnId = NewType("ConnId", str)
DeviceId = NewType("DeviceId", str)

DEFAULT_AGENT = AgentId("main")

_VARIANT = 0b10 << 62
_RAND_B = (1 << 62) - 1


class Role(StrEnum):
    """What a person may do; the greatest scopes of each are in ``skynet_protocol.scopes``."""

    ADMIN = "admin"
    USER = "user"
    CHILD = "child"


# Written out because importing uuid6 reads the installed packages' metadata: a tenth of the whole start-up budget.
_last_tick = 0


def new_id() -> str:
    """A new UUIDv7 (RFC 9562 5.7, sub-millisecond fraction in rand_a, 6.2 method 3).

    Within one process a later call sorts after an earlier one, even within a tick or when the clock steps back; calls
    from several threads are unique, not ordered.
    """
    global _last_tick
    ns = time.time_ns()
    tick = ns // 1_000_000 << 12 | (ns % 1_000_000 << 12) // 1_000_000  # 48 bits of ms, 12 bits of its fraction
    _last_tick = tick = max(tick, _last_tick + 1)
    text = f"{tick >> 12 << 16 | 0x7000 | tick & 0xFFF:016x}{int.from_bytes(os.urandom(8)) & _RAND_B | _VARIANT:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000
