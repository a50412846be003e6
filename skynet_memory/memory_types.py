"""The shapes of what is remembered about a person."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from skynet_memory.database import Row
from skynet_memory.fulltext import folded
from skynet_memory.ids import UserId
from skynet_memory.memory_gate import one_line

Category: TypeAlias = Literal["instruction", "preference", "fact", "context"]
Source: TypeAlias = Literal["user_said", "inferred", "admin_set"]
Kind: TypeAlias = Literal["preference", "invariant", "pattern", "guard", "note"]
Outcome: TypeAlias = Literal["added", "updated", "unchanged", "kept", "refused"]

CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    id: str
    owner: UserId
    category: Category
    key: str
    value: str
    kind: Kind
    confidence: float
    """0 to 1."""
    source: Source
    importance: float
    """0 to 1; the more important is shown and found first."""
    tags: tuple[str, ...]
    created_at_ms: int
    updated_at_ms: int
    expires_at_ms: int | None
    """From then on it is neither found nor shown, and soon erased."""


@dataclass(frozen=True, slots=True)
class NewMemory:
    """``confidence`` and ``importance`` beyond 0 to 1 are clamped."""

    category: Category
    key: str
    value: str
    kind: Kind = "note"
    confidence: float = 0.8
    source: Source = "user_said"
    importance: float = 0.5
    tags: Sequence[str] = ()
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChanges:
    """UNSET leaves a field as it is."""

    category: Category | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: str | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    confidence: float | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    importance: float | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    expires_at_ms: int | UnsetType | None = UNSET

    def applied_to(self, memory: NewMemory) -> NewMemory:
        given = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not UNSET}
        return replace(memory, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    memory: Memory | None
    """As it is stored now; None if it was refused."""
    outcome: Outcome
    """``unchanged``: it was known already, under this key or another. ``kept``: what was known is surer, and stays."""
    reason: str = ""
    """Why, if it was not added or updated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    memory: Memory
    score: float
    """Comparable within one answer only."""


def topic(owner: UserId) -> str:
    """Of ``Database.version``: this person's memories."""
    return f"memories:{owner}"


def form_of_key(key: str) -> str:
    """The form in which keys are compared: ``Favourite Colour`` is ``favourite.colour``."""
    return ".".join(re.findall(r"[^\W_]+", folded(key))) or one_line(folded(key))


def digest_of_key(key: str) -> bytes:
    return hashlib.blake2b(form_of_key(key).encode(), digest_size=16).digest()


def read_memory(row: Row) -> Memory:
    return Memory(
        id=row["id"],
        owner=row["owner"],
        category=row["category"],
        key=row["key"],
        value=row["value"],
        kind=row["kind"],
        confidence=row["confidence"],
        source=row["source"],
        importance=row["importance"],
        tags=tuple(msgspec.json.decode(row["tags"], type=list[str])) if row["tags"] != "[]" else (),
        created_at_ms=row["created_at_ms"],
        updated_at_ms=row["updated_at_ms"],
        expires_at_ms=row["expires_at_ms"],
    )


def as_new(memory: Memory) -> NewMemory:
    return NewMemory(
        memory.category,
        memory.key,
        memory.value,
        memory.kind,
        memory.confidence,
        memory.source,
        memory.importance,
        memory.tags,
        memory.expires_at_ms,
    )
