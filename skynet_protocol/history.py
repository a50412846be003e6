"""Skynet's own ``history.search``: what was said in the caller's conversations."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from skynet_protocol.memory import DEFAULT_FOUND, QueryText
from skynet_protocol.params import NonNegativeInt, Params, PositiveInt, Result


class HistorySearchParams(Params, frozen=True):
    """``window`` is how many messages come before and after each hit. A greater ``limit`` than 50 counts as 50."""

    query: QueryText
    limit: PositiveInt = DEFAULT_FOUND
    window: Annotated[int, Meta(ge=0, le=10)] = 2


class HistoryEntry(Result, kw_only=True):
    """A message, its text on one line and cut. ``matched``: it has words of the query."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    timestamp: NonNegativeInt
    matched: bool


class HistoryHit(Result, kw_only=True):
    """``entryId`` is the message that matched best; ``score`` compares within one answer only."""

    session_key: str
    session_id: str
    entry_id: str
    score: float
    entries: list[HistoryEntry]


class HistorySearchResult(Result, kw_only=True):
    """Best first. No message is in two hits."""

    hits: list[HistoryHit]
