"""Memories as JSON, for export and import."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from skynet_memory.errors import MemoriesRefused
from skynet_memory.memory_gate import length_problem
from skynet_memory.memory_types import CATEGORIES, KINDS, SOURCES, Memory, NewMemory

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

MAX_IMPORTED: Final = 10_000
"""Memories in one import; they are one transaction, which others wait for."""


def to_json(memory: Memory) -> dict[str, Json]:
    return {
        "category": memory.category,
        "key": memory.key,
        "value": memory.value,
        "kind": memory.kind,
        "confidence": memory.confidence,
        "source": memory.source,
        "importance": memory.importance,
        "tags": list(memory.tags),
        "createdAt": memory.created_at_ms,
        "updatedAt": memory.updated_at_ms,
        "expiresAt": memory.expires_at_ms,
    }


def from_json(items: object, now_ms: int) -> list[tuple[NewMemory, int]]:
    """New memories with the times they were first learned at (``now_ms`` if that is missing).

    Needed are ``category``, ``key`` and ``value``. Ids, owners and ``updatedAt`` are passed over; any other unknown
    field is a mistake.

    Raises:
        MemoriesRefused: names each bad item by index and field.
    """
    if not isinstance(items, list):
        raise MemoriesRefused(((0, "items", "have to be a list"),))
    if len(items) > MAX_IMPORTED:
        raise MemoriesRefused(((MAX_IMPORTED, "items", f"are {len(items):,}, {MAX_IMPORTED:,} at a time are allowed"),))
    problems = [(index, *problem) for index, item in enumerate(items) for problem in _problems(item)]
    if problems:
        raise MemoriesRefused(tuple(problems))
    return [(_read(item), item.get("createdAt") or now_ms) for item in cast(list[Mapping[str, Any]], items)]


def _problems(item: object) -> list[tuple[str, str]]:
    if not isinstance(item, dict):
        return [("item", "has to be an object")]
    missing = [(name, "is missing") for name in ("category", "key", "value") if name not in item]
    unknown = [(str(name), "is not known") for name in item if name not in _FIELDS and name not in _PASSED_OVER]
    wrong = [(name, _FIELDS[name][1]) for name in item if name in _FIELDS and not _FIELDS[name][0](item[name])]
    if missing or unknown or wrong:
        return missing + unknown + wrong
    problem = length_problem(item["key"], item["value"], item.get("tags", ()))
    return [] if problem is None else [problem]


def _read(item: Mapping[str, Any]) -> NewMemory:
    given = {name: item[name] for name in ("kind", "confidence", "source", "importance", "tags") if name in item}
    return NewMemory(item["category"], item["key"], item["value"], expires_at_ms=item.get("expiresAt"), **given)


def _one_of(words: tuple[str, ...]) -> tuple[Callable[[object], bool], str]:
    return lambda value: value in words if isinstance(value, str) else False, f"has to be one of {', '.join(words)}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_time(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53)


_TEXT: Final = (lambda value: isinstance(value, str), "has to be a text")
_NUMBER: Final = (_is_number, "has to be a number")
_TIME: Final = (_is_time, "has to be a time in milliseconds since 1970, or null")
_FIELDS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "category": _one_of(CATEGORIES),
    "key": _TEXT,
    "value": _TEXT,
    "kind": _one_of(KINDS),
    "confidence": _NUMBER,
    "source": _one_of(SOURCES),
    "importance": _NUMBER,
    "tags": (lambda value: isinstance(value, list) and all(isinstance(tag, str) for tag in value), "have to be texts"),
    "createdAt": _TIME,
    "expiresAt": _TIME,
}
_PASSED_OVER: Final = frozenset({"id", "owner", "updatedAt"})
