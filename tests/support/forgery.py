"""Params for every method, made from its struct: each text in turn is something else.

A method that is added later is asked the same way, without a line about it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from skynet.gateway.dispatch import MethodTable

Candidates: TypeAlias = Callable[[str], Sequence[str]]
"""What is tried in a field of this (wire) name."""

PATTERNED = ("discord", "x", "2026-01-01", "zebra")
"""Texts of which one fits whatever pattern a field has."""


def forged(params: type, candidates: Candidates) -> Iterator[dict[str, Any]]:
    """Params of the type, each with one candidate in one text field; what else is required is plausible."""
    yield from _values(inspect.type_info(params), "", candidates)


def text_fields(table: MethodTable) -> dict[str, set[str]]:
    """The names of the text fields of every method."""
    found: dict[str, set[str]] = {}
    for name, bound in table.items():
        asked: set[str] = set()
        for _ in forged(bound.decoder.type, lambda field, asked=asked: asked.add(field) or ()):  # type: ignore[misc]
            pass
        found[name] = asked
    return found


def plausible(kind: inspect.Type) -> Any:
    """A value that the type accepts."""
    match kind:
        case inspect.Metadata(type=inner):
            return plausible(inner)
        case inspect.StrType(pattern=pattern, min_length=least):
            return next(text for text in PATTERNED if _fits(kind, text)) if pattern else "x" * (least or 1)
        case inspect.IntType() | inspect.FloatType():
            return max(kind.ge or 0, (kind.gt or 0) + 1 if kind.gt is not None else 0)
        case inspect.BoolType():
            return False
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StructType(fields=fields):
            return {field.encode_name: plausible(field.type) for field in fields if field.required}
        case (
            inspect.ListType(item_type=item, min_length=least) | inspect.VarTupleType(item_type=item, min_length=least)
        ):
            return [plausible(item)] * (least or 0)
        case inspect.UnionType(types=types):
            return plausible(types[0])
        case inspect.DictType():
            return {}
        case _:
            return None


def _fits(kind: inspect.StrType, text: str) -> bool:
    meta = msgspec.Meta(pattern=kind.pattern, min_length=kind.min_length, max_length=kind.max_length)
    from typing import Annotated

    try:
        msgspec.convert(text, Annotated[str, meta])
    except msgspec.ValidationError:
        return False
    return True


def _values(kind: inspect.Type, name: str, candidates: Candidates) -> Iterator[Any]:
    match kind:
        case inspect.Metadata(type=inner):
            yield from _values(inner, name, candidates)
        case inspect.StrType() | inspect.AnyType():
            yield from candidates(name)
        case inspect.StructType(fields=fields):
            base = plausible(kind)
            for field in fields:
                for value in _values(field.type, field.encode_name, candidates):
                    yield base | {field.encode_name: value}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            for value in _values(item, name, candidates):
                yield [value]
        case inspect.UnionType(types=types):
            for each in types:
                yield from _values(each, name, candidates)
        case inspect.DictType(value_type=value_type):
            for key in candidates(name):
                yield {key: plausible(value_type)}
        case _:
            pass
