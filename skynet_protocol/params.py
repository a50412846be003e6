"""Decoding params: closed structs, and OpenClaw's words for what is wrong with them.

A namespace module declares its params as ``Params`` and its results as ``Result`` subclasses. Optional fields without a
value are absent on the wire, so their default is ``msgspec.UNSET``, or in params simply the value that absence means.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from skynet_protocol.errors import DetailCode, RequestError, shorten

MAX_SAFE_INTEGER = 2**53 - 1
"""The greatest integer that a JavaScript client can hold; also keeps every integer of the wire inside SQLite's."""

NonEmptyStr = Annotated[str, Meta(min_length=1)]
RunIdText = Annotated[str, Meta(min_length=1, max_length=512)]
"""A run's id, which its client chooses: every event of the run carries it, and it is remembered for a day."""
NonNegativeInt = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
PositiveInt = Annotated[int, Meta(ge=1, le=MAX_SAFE_INTEGER)]


class Params(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True, kw_only=True):
    """Params of a method. Closed: an unknown field is an error, as in OpenClaw."""


class LenientParams(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Params of the few methods that ignore unknown fields (``health``, …)."""


class Result(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A result, or a part of one. A field equal to its default is left out: only optional fields may have one."""


T = TypeVar("T")


def decode_params(raw: msgspec.Raw | bytes | None, decoder: msgspec.json.Decoder[T], method: str) -> T:
    """The params of one request; absent and ``null`` count as ``{}``. Of duplicate keys the
    last one counts, but all of them have to be valid.

    Raises:
        RequestError: ``invalid <method> params: …`` naming the first thing that is wrong, by JSON pointer.
    """
    try:
        return decoder.decode(b"{}" if raw is None else raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        if raw is not None and bytes(raw).strip() == b"null":
            return decode_params(None, decoder, method)
        raise invalid_params(method, describe(exc)) from exc


def invalid_params(method: str, problem: str) -> RequestError:
    """For a rule that the schema cannot say: ``invalid <method> params: <problem>``."""
    return RequestError(f"invalid {method} params: {problem}", details={"code": DetailCode.INVALID_PARAMS})


def describe(error: Exception) -> str:
    """What a msgspec error says, in the words of OpenClaw's validator (AJV): ``at /client/id: must be string``."""
    if not isinstance(error, msgspec.ValidationError):
        return "must be valid JSON" if not isinstance(error, RecursionError) else "must not be nested so deeply"
    text = str(error)
    located = _LOCATION.search(text)
    problem, pointer = (text, "") if located is None else (text[: located.start()], _pointer(located[1]))
    unknown = _UNKNOWN_FIELD.fullmatch(problem)
    if unknown:
        where = f"at {pointer}" if pointer else "at root"
        return f"{where}: unexpected property '{shorten(unknown[1])}'"
    where = f"at {pointer}: " if pointer else ""
    return "; ".join(where + part for part in _parts(problem))


_LOCATION = re.compile(r" - at (?:`key` in )?`\$([^`]*)`\Z")
_PATH_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `[^`]+`")
_LENGTH = re.compile(r"Expected `(str|array|object|bytes)` of length (>=|<=|==) (\d+)")
_RANGE = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (-?[\d.e+]+)")
_PATTERN = re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL)

_TYPE_WORDS = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "object": "object",
    "array": "array",
    "null": "null",
}
_LENGTH_WORDS = {"str": "characters", "bytes": "characters", "array": "items", "object": "properties"}
_NO_ALTERNATIVE = "must match a schema in anyOf"


def _pointer(path: str) -> str:
    """``.client.tags[0]`` as ``/client/tags/0``; msgspec does not say which key of a map it was: ``/*``."""
    return "".join(
        "/" + (name or ("*" if index == "..." else index)).replace("~", "~0").replace("/", "~1")
        for name, index in _PATH_STEP.findall(path)
    )


def _parts(problem: str) -> list[str]:
    if match := _MISSING_FIELD.fullmatch(problem):
        return [f"must have required property '{match[1]}'"]
    if match := _WRONG_TYPE.fullmatch(problem):
        kinds = [_TYPE_WORDS.get(kind, kind) for kind in match[1].split(" | ")]
        alternatives = [f"must be {kind}" for kind in kinds]
        return alternatives if len(kinds) == 1 else [*alternatives, _NO_ALTERNATIVE]
    if match := _LENGTH.fullmatch(problem):
        bounds = {">=": ("fewer",), "<=": ("more",), "==": ("fewer", "more")}[match[2]]
        return [f"must NOT have {bound} than {match[3]} {_LENGTH_WORDS[match[1]]}" for bound in bounds]
    if match := _RANGE.fullmatch(problem):
        return [f"must be {match[1]} {match[2]}"]
    if match := _PATTERN.fullmatch(problem):
        return [f'must match pattern "{match[1]}"']
    if problem.startswith(("Invalid enum value", "Invalid value")):
        return ["must be equal to constant", _NO_ALTERNATIVE]
    if problem == "Number out of range":
        return ["must be number"]
    if problem == "Integer value out of range":
        return ["must be integer"]
    return [shorten(problem) or "validation error"]
