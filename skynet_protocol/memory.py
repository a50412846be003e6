"""Skynet's own ``memory.*``: what the assistant remembers about a person.

``userId`` names whose memory it is, if not the caller's own: another person's, for those who may reach everybody's, or
that of a group the caller is in.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, PositiveInt, Result

Category = Literal["instruction", "preference", "fact", "context"]
Kind = Literal["preference", "invariant", "pattern", "guard", "note"]
Source = Literal["user_said", "inferred", "admin_set"]
Outcome = Literal["added", "updated", "unchanged", "kept"]

OwnerId = Annotated[str, Meta(min_length=1, max_length=64)]
QueryText = Annotated[str, Meta(min_length=1, max_length=4000, pattern=r"\S")]
KeyText = Annotated[str, Meta(min_length=1, max_length=200)]
ValueText = Annotated[str, Meta(min_length=1, max_length=2000)]
Tags = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=50)], ...], Meta(max_length=20)]

DEFAULT_FOUND = 10
MAX_FOUND = 50
DEFAULT_LISTED = 50
MAX_LISTED = 200
MAX_IMPORTED = 1000
DEFAULT_CONFIDENCE = 0.8
DEFAULT_IMPORTANCE = 0.5


class MemoryEntry(Result, kw_only=True):
    """One memory. ``key`` is its name, which no other memory of the same person has."""

    id: str
    category: Category
    key: str
    value: str
    kind: Kind
    confidence: float
    source: Source
    importance: float
    tags: tuple[str, ...]
    created_at: NonNegativeInt
    updated_at: NonNegativeInt
    expires_at: NonNegativeInt | UnsetType = UNSET


class FoundMemory(MemoryEntry, kw_only=True):
    """``score`` compares within one answer only; the greatest is first."""

    score: float


class MemorySearchParams(Params, frozen=True):
    """A greater ``limit`` than 50 counts as 50."""

    query: QueryText
    limit: PositiveInt = DEFAULT_FOUND
    category: Category | UnsetType = UNSET
    user_id: OwnerId | UnsetType = UNSET


class MemorySearchResult(Result, kw_only=True):
    memories: list[FoundMemory]


class MemoryListParams(Params, frozen=True):
    """``after`` is the ``next`` of the answer before."""

    category: Category | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED)] = DEFAULT_LISTED
    after: OwnerId | UnsetType = UNSET
    user_id: OwnerId | UnsetType = UNSET


class MemoryListResult(Result, kw_only=True):
    """``total`` counts all of them, whatever the category; ``next`` is absent on the last page."""

    memories: list[MemoryEntry]
    total: NonNegativeInt
    next: str | UnsetType = UNSET


class NewMemoryParams(Params, frozen=True):
    """What is to be remembered. ``confidence`` and ``importance`` outside of 0 to 1 count as the nearest of the two."""

    category: Category
    key: KeyText
    value: ValueText
    kind: Kind = "note"
    confidence: float = DEFAULT_CONFIDENCE
    importance: float = DEFAULT_IMPORTANCE
    tags: Tags = ()
    expires_at: NonNegativeInt | UnsetType = UNSET


class MemoryLearnParams(NewMemoryParams, frozen=True):
    user_id: OwnerId | UnsetType = UNSET


class MemoryLearnResult(Result, kw_only=True):
    """``memory`` is what is remembered now: with ``kept`` the earlier one, of which the assistant is more certain."""

    outcome: Outcome
    memory: MemoryEntry
    reason: str | UnsetType = UNSET


class MemoryUpdateParams(Params, frozen=True):
    """What is left out stays as it is; ``expiresAt: null`` removes the end."""

    id: OwnerId
    category: Category | UnsetType = UNSET
    key: KeyText | UnsetType = UNSET
    value: ValueText | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    confidence: float | UnsetType = UNSET
    importance: float | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    expires_at: NonNegativeInt | UnsetType | None = UNSET
    user_id: OwnerId | UnsetType = UNSET


class MemoryUpdateResult(Result, kw_only=True):
    memory: MemoryEntry


class MemoryForgetParams(Params, frozen=True):
    """Exactly one of ``id``, ``key`` and ``all``."""

    id: OwnerId | UnsetType = UNSET
    key: KeyText | UnsetType = UNSET
    all: Literal[True] | UnsetType = UNSET
    user_id: OwnerId | UnsetType = UNSET


class MemoryForgetResult(Result, kw_only=True):
    ok: bool
    forgotten: NonNegativeInt


class MemoryExportParams(Params, frozen=True):
    """``after`` is the ``next`` of the answer before."""

    after: OwnerId | UnsetType = UNSET
    user_id: OwnerId | UnsetType = UNSET


class MemoryExportResult(Result, kw_only=True):
    """A page of everything; ``next`` is absent on the last one. ``memory.import`` takes the memories as they are."""

    memories: list[MemoryEntry]
    next: str | UnsetType = UNSET


class ImportedMemory(NewMemoryParams, frozen=True):
    """As ``memory.export`` gives it. ``id`` means nothing: a memory is known by its key."""

    source: Source = "user_said"
    id: str = ""
    created_at: NonNegativeInt | UnsetType = UNSET
    updated_at: NonNegativeInt | UnsetType = UNSET


class MemoryImportParams(Params, frozen=True):
    """All of them are learned, or none if one is refused."""

    memories: Annotated[list[ImportedMemory], Meta(max_length=MAX_IMPORTED)]
    user_id: OwnerId | UnsetType = UNSET


class MemoryImportResult(Result, kw_only=True):
    added: NonNegativeInt
    updated: NonNegativeInt
    unchanged: NonNegativeInt
    kept: NonNegativeInt


class MemoryShowParams(Params, frozen=True):
    user_id: OwnerId | UnsetType = UNSET


class MemoryShowResult(Result, kw_only=True):
    """``text`` is, letter for letter, what the next prompt holds of the person's memory; empty for nothing."""

    text: str


class MemoryReadEvent(Result, kw_only=True):
    """``memory.read``: somebody else saw, changed or erased what is remembered about the person who gets this."""

    ts: NonNegativeInt
    action: Literal["read", "changed", "erased"]
    method: str
    by: str
    by_name: str
