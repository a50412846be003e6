"""Identifier types of the whole product; nothing else invents its own.

Ids are UUIDv7 text, so they sort by the time they were made. Times are epoch milliseconds.
"""

import time
from enum import StrEnum
from typing import NewType

from uuid6 import uuid7

UserId = NewType("UserId", str)
AgentId = NewType("AgentId", str)
SessionKey = NewType("SessionKey", str)
SessionId = NewType("SessionId", str)
EntryId = NewType("EntryId", str)
RunId = NewType("RunId", str)
ConnId = NewType("ConnId", str)
DeviceId = NewType("DeviceId", str)

DEFAULT_AGENT = AgentId("main")


class Role(StrEnum):
    """What a person may do; the greatest scopes of each are in ``skynet_protocol.scopes``."""

    ADMIN = "admin"
    USER = "user"
    CHILD = "child"


def new_id() -> str:
    """A new UUIDv7; two calls in one process never give the same, and the later one sorts after the earlier."""
    return str(uuid7())


def now_ms() -> int:
    return time.time_ns() // 1_000_000
