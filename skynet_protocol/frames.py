"""Frames of the wire: requests in, responses and events out (OPENCLAW-V3 1.3).

*Any bytes are a request or a violation*: ``parse_request`` never raises. Where JSON leaves a choice it does as
``JSON.parse``: of duplicate keys the last one counts.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from skynet_protocol.errors import ErrorShape, shorten
from skynet_protocol.params import NonEmptyStr, Result

MAX_DEPTH = 200
"""How deep a frame may be nested: far beyond any real one, and safe for whatever decodes it again."""

_MAX_PROBLEMS = 8


class Request(msgspec.Struct, frozen=True):
    """A request. ``params`` is well-formed JSON that shares the frame's memory, or None if the frame has none."""

    id: str
    method: str
    params: Raw | None = None


class ViolationKind(StrEnum):
    NOT_JSON = "not_json"
    """Not UTF-8, not JSON (NaN and Infinity are not), a lone surrogate, or nested deeper than ``MAX_DEPTH``."""
    NOT_OBJECT = "not_object"
    """JSON, but no object."""
    INVALID_FRAME = "invalid_frame"
    """An object, but no request frame."""


class Violation(msgspec.Struct, frozen=True):
    """What is wrong with a frame. ``id`` is the frame's own if it has a usable one, else ``invalid``."""

    kind: ViolationKind
    id: str
    message: str


_PREFIX = "invalid request frame: "
_NOT_JSON = Violation(ViolationKind.NOT_JSON, "invalid", "frame is not JSON")
_TOO_DEEP = Violation(ViolationKind.NOT_JSON, "invalid", f"frame is nested deeper than {MAX_DEPTH} levels")
_NOT_OBJECT = Violation(ViolationKind.NOT_OBJECT, "invalid", _PREFIX + "must be object")


class _RequestFrame(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["req"]
    id: NonEmptyStr
    method: NonEmptyStr
    params: Raw = Raw(b"")


_frame_decoder = msgspec.json.Decoder(_RequestFrame)
_json_decoder = msgspec.json.Decoder()
_encode_json = msgspec.json.Encoder().encode


def parse_request(data: bytes) -> Request | Violation:
    """The request that these bytes are, or what is wrong with them. Never raises."""
    try:
        if not data.isascii():
            data.decode()
        frame = _frame_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _look_again(data)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        return _TOO_DEEP
    return Request(frame.id, frame.method, frame.params if frame.params else None)


def _look_again(data: bytes) -> Request | Violation:
    """Look without haste at a frame that did not decode."""
    try:
        frame: Any = _json_decoder.decode(data.decode())
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _NOT_JSON
    if not isinstance(frame, dict):
        return _NOT_OBJECT
    frame_id = frame.get("id")
    usable_id = frame_id if isinstance(frame_id, str) and frame_id else "invalid"
    problems = _problems(frame)
    if not problems:  # an earlier duplicate of a key was wrong; now it is gone
        return parse_request(_encode_json(frame))
    return Violation(ViolationKind.INVALID_FRAME, usable_id, _PREFIX + "; ".join(problems))


def _problems(frame: dict[str, Any]) -> list[str]:
    """What is wrong with a request frame, in the words and the order of OpenClaw's validator."""
    problems = [f"must have required property '{name}'" for name in ("type", "id", "method") if name not in frame]
    unknown = (name for name in frame if name not in ("type", "id", "method", "params"))
    problems += [f"at root: unexpected property '{shorten(name)}'" for name in unknown]
    if "type" in frame and frame["type"] != "req":
        if not isinstance(frame["type"], str):
            problems.append("at /type: must be string")
        problems.append("at /type: must be equal to constant")
    for name in ("id", "method"):
        value = frame.get(name, "-")
        if not isinstance(value, str):
            problems.append(f"at /{name}: must be string")
        elif not value:
            problems.append(f"at /{name}: must NOT have fewer than 1 characters")
    return problems[:_MAX_PROBLEMS]


# possessive: a long text with many escapes would otherwise cost 50 times its size in memory
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEP = bytes.maketrans(b"[{]}", b"\x02\x02\x00\x00")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")


def _depth(data: bytes) -> int:
    """How deep well-formed JSON is nested."""
    brackets = _STRING.sub(b"", data).translate(_STEP, _NOT_BRACKETS)
    return max(accumulate(step - 1 for step in brackets), default=0)


def encode_response(id: str, payload: object) -> bytes:  # noqa: A002
    """A successful response. ``payload`` is anything msgspec encodes; ``Raw`` is taken as it is; None is ``null``."""
    return b"".join((b'{"type":"res","id":', _encode(id), b',"ok":true,"payload":', _payload(payload), b"}"))


def encode_error(id: str, error: ErrorShape, payload: object = UNSET) -> bytes:  # noqa: A002
    """A failed response; the few that carry a payload besides (``agent``) pass it."""
    head = b'{"type":"res","id":%b,"ok":false,' % _encode(id)
    if payload is not UNSET:
        head += b'"payload":%b,' % bytes(_payload(payload))
    return b'%b"error":%b}' % (head, _encode(error))


class StateVersion(Result):
    """The counters that ride on ``presence`` and ``health`` events; both start at 1."""

    presence: int
    health: int


class EncodedEvent:
    """An event, encoded once for all connections; only ``seq`` differs between them.

    ``payload`` as in ``encode_response``; ``UNSET`` leaves it out.
    """

    __slots__ = ("_head", "_tail", "event")

    def __init__(self, event: str, payload: object, *, state_version: StateVersion | None = None) -> None:
        self.event = event
        head = b'{"type":"event","event":' + _encode(event)
        if payload is not UNSET:
            head = b"".join((head, b',"payload":', _payload(payload)))
        self._head = head
        self._tail = b"}" if state_version is None else b',"stateVersion":%b}' % _encode(state_version)

    def with_seq(self, seq: int | None) -> bytes:
        """The frame with this connection's ``seq``; None for the events that have none (OPENCLAW-V3 1.5)."""
        if seq is None:
            return self._head + self._tail
        return b'%b,"seq":%d%b' % (self._head, seq, self._tail)


def _payload(payload: object) -> bytes | Raw:
    return payload if type(payload) is Raw else _encode(payload)


def _encode(value: object) -> bytes:
    try:
        return _encode_json(value)
    except UnicodeEncodeError:
        return _encode_json(_without_surrogates(msgspec.to_builtins(value, enc_hook=_embedded)))


def _embedded(value: object) -> Any:
    if isinstance(value, Raw):
        return _json_decoder.decode(value)
    raise TypeError(f"cannot encode {type(value).__name__}")


def _without_surrogates(value: Any) -> Any:
    """A copy in which lone surrogates, which a model's or a file's text may hold, are U+FFFD, and pairs are joined."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value
