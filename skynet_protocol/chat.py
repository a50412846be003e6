"""``chat.*``: params and results, and what becomes of a message before a run sees it (OPENCLAW-V3 6.5, 7.6, 7.8)."""

from __future__ import annotations

import binascii
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.errors import DetailCode, RequestError, shorten
from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result, RunIdText

MAX_ATTACHMENT_BYTES = 5_000_000
"""Of one attachment, decoded."""
MAX_NAMED = 20
"""Dropped attachments whose names are kept: a frame has room for a million."""


class ChatHistoryParams(Params, frozen=True):
    session_key: NonEmptyStr
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class ChatHistoryResult(Result):
    """The last messages, oldest first. ``session_key`` is as the client sent it; no ``session_id``: no such session."""

    session_key: str
    messages: Sequence[Any]
    session_id: str | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET
    verbose_level: str | UnsetType = UNSET


class ChatSendParams(Params, frozen=True):
    """``attachments`` go to ``decode_attachments``; ``timeout_ms`` 0 is none, absent the gateway's default."""

    session_key: NonEmptyStr
    message: str
    idempotency_key: RunIdText
    thinking: str = ""
    deliver: bool = False
    attachments: tuple[Any, ...] = ()
    timeout_ms: NonNegativeInt | UnsetType = UNSET


class ChatSendResult(Result):
    """The one answer to ``chat.send``. Never ``accepted``, which clients take for a first answer of two (7.3)."""

    run_id: str
    status: Literal["started", "in_flight", "ok"]


class ChatAbortParams(Params, frozen=True):
    session_key: NonEmptyStr
    run_id: RunIdText | UnsetType = UNSET


class ChatAbortResult(Result):
    """Also the answer to a ``chat.send`` whose message is a stop word."""

    ok: bool
    aborted: bool
    run_ids: Sequence[str]


class ChatInjectParams(Params, frozen=True):
    session_key: NonEmptyStr
    message: NonEmptyStr
    label: Annotated[str, Meta(max_length=100)] = ""


class ChatInjectResult(Result):
    ok: bool
    message_id: str


def normalize_message(text: str) -> str:
    """``text`` composed (NFC) and without control characters except tab, newline and carriage return.

    Raises:
        RequestError: it holds NUL, which is never typed.
    """
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    if "\0" in composed:
        raise _invalid("message must not contain null bytes")
    return composed if composed.isprintable() else composed.translate(_CONTROL_CHARACTERS)


_CONTROL_CHARACTERS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAttachment:
    """An image, as a transcript keeps it: ``data`` is plain base64, ``size_bytes`` its decoded length."""

    mime_type: str
    data: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachments:
    """``dropped`` names what was no image, for the log; of many only the first."""

    images: tuple[ImageAttachment, ...] = ()
    dropped: tuple[str, ...] = ()


def decode_attachments(items: Iterable[Any]) -> Attachments:
    """The images among ``{type?, mimeType?, fileName?, content}``; their type is what the bytes say, not the client.

    Items without content are ignored, as in OpenClaw.

    Raises:
        RequestError: ``attachment X: …``, no base64 or larger than 5,000,000 bytes.
    """
    images: list[ImageAttachment] = []
    dropped: list[str] = []
    for number, item in enumerate(items, start=1):
        content = item.get("content") if isinstance(item, dict) else None
        if not isinstance(content, str) or not content:
            continue
        label = _label(item, number)
        data = _DATA_URL.sub("", content.strip(), count=1)
        decoded = _decode_attachment(label, data)
        mime_type = sniff_image(decoded)
        if mime_type is None:
            if len(dropped) < MAX_NAMED:
                dropped.append(label)
        else:
            images.append(ImageAttachment(mime_type=mime_type, data=data, size_bytes=len(decoded)))
    return Attachments(images=tuple(images), dropped=tuple(dropped))


def sniff_image(data: bytes) -> str | None:
    """The MIME type of a PNG, JPEG, GIF or WebP image by its first bytes; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def require_content(message: str, attachments: Attachments) -> None:
    """Refuse what has neither text nor image."""
    if not attachments.images and not message.strip():
        raise _invalid("message or attachment required")


_DATA_URL = re.compile(r"\Adata:[^,]{0,200};base64,")


def _label(item: dict[Any, Any], number: int) -> str:
    named = (item.get("fileName"), item.get("type"))
    return shorten(next((name for name in named if isinstance(name, str) and name), f"attachment-{number}"))


def _decode_attachment(label: str, data: str) -> bytes:
    size = len(data) * 3 // 4 - data[-2:].count("=")
    if size > MAX_ATTACHMENT_BYTES:
        raise _invalid(f"attachment {label}: exceeds size limit ({size} > {MAX_ATTACHMENT_BYTES} bytes)")
    try:
        decoded = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        decoded = b""
    if not decoded or len(data) % 4:  # strict as it is, it lets surplus padding pass
        raise _invalid(f"attachment {label}: invalid base64 content")
    return decoded


def is_stop_word(text: str) -> bool:
    """Whether the whole message asks to stop the run: case and trailing punctuation do not matter."""
    if len(text) > _LONGEST_STOP_MESSAGE:
        return False
    words = " ".join(text.lower().translate(_APOSTROPHES).split())
    return words.rstrip(_TRAILING_PUNCTUATION).rstrip() in _STOP_WORDS


_LONGEST_STOP_MESSAGE = 200
_APOSTROPHES = str.maketrans("’`", "''")
_TRAILING_PUNCTUATION = ".!?…,，。;；:：'\"’”)]}"
_STOP_WORDS = frozenset(
    (
        "/stop",
        "stop",
        "esc",
        "abort",
        "wait",
        "exit",
        "interrupt",
        "halt",
        "please stop",
        "stop please",
        "do not do that",
        "stop run",
        "stop current run",
        "stop agent",
        "stop the agent",
        "stop action",
        "stop current action",
        "stop openclaw",
        "openclaw stop",
        "stop skynet",
        "skynet stop",
        "stop doing anything",
        "stop don't do anything",
        "stop dont do anything",
        "stop do not do anything",
        "detente",
        "deten",
        "detén",
        "arrete",
        "arrête",
        "停止",
        "やめて",
        "止めて",
        "रुको",
        "توقف",
        "стоп",
        "остановись",
        "останови",
        "остановить",
        "прекрати",
        "anhalten",
        "aufhören",
        "hoer auf",
        "stopp",
        "pare",
    )
)


def add_time_prefix(text: str, now: datetime) -> str:
    """``text`` as the model sees it: ``[Sat 2026-11-21 01:20 UTC] text``. ``now`` is aware, in the person's time zone.

    A blank text, one that begins with a time in brackets, and one that tells the time itself stay as they are.
    """
    if not text.strip() or _HAS_TIME.match(text) or "Current time: " in text:
        return text
    zone = (now.tzname() or "UTC").replace("]", "")
    minute = now.replace(tzinfo=None).isoformat(" ", "minutes")
    return f"[{_WEEKDAYS[now.weekday()]} {minute} {zone}] {text}"


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HAS_TIME = re.compile(r"\[.*[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}")


def _invalid(message: str) -> RequestError:
    return RequestError(message, details={"code": DetailCode.INVALID_PARAMS})
