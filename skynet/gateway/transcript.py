"""Stored transcript entries as clients see them: the messages of ``chat.history`` and the lines of a preview.

The stored JSON already has OpenClaw's shapes (OPENCLAW-V3 8.4); what is left is to take out what is not for showing and
to keep every answer within its limits.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from skynet_memory.transcripts import Entry
from skynet_protocol.sessions import PreviewItem

MAX_TEXT_CHARS = 12_000
"""Longer texts, thinking and argument strings are cut."""
MAX_MESSAGE_BYTES = 128 * 1024
"""A message that is larger when encoded is replaced by a note."""
MAX_HISTORY_BYTES = 6 * 1024 * 1024
"""The messages of one answer; the oldest are left out."""
TRUNCATED = "\n...(truncated)..."
OVERSIZED = "[chat.history omitted: message too large]"
MAX_PREVIEW_ITEMS = 50
MAX_PREVIEW_CHARS = 2000

_CUT = ("text", "thinking", "arguments", "partialJson")
_REMOVED = ("details", "usage", "cost")
_SEALS = ("thinkingSignature", "thoughtSignature")
"""Of a model's thoughts and calls, for its provider alone; some have several kilobytes."""
# Possessive: a model's text must not make this try every way to share blanks out.
_DIRECTIVES = re.compile(
    r"\[\[\s*+(?:audio_as_voice|reply_to_current|reply_to\s*+:\s*+[^\[\]\n]*+)\s*+\]\]", re.IGNORECASE
)
_ENVELOPE = re.compile(r"\[([^\]]+)\]\s*")
_ENVELOPE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}Z| \d{2}:\d{2})\b")
_ENVELOPE_CHANNELS = tuple(
    f"{label} "
    for label in (
        "WebChat",
        "WhatsApp",
        "Telegram",
        "Signal",
        "Slack",
        "Discord",
        "Google Chat",
        "iMessage",
        "Teams",
        "Matrix",
        "Zalo",
        "BlueBubbles",
    )
)


def history_messages(entries: Iterable[Entry], *, max_bytes: int = MAX_HISTORY_BYTES) -> list[msgspec.Raw]:
    """The ``messages`` of ``chat.history``, oldest first, encoded; the oldest are dropped to fit ``max_bytes``."""
    encoded = [_bounded(message) for entry in entries if (message := display_message(entry)) is not None]
    kept_bytes = 2
    first = len(encoded)
    while first > 0 and (kept_bytes := kept_bytes + len(encoded[first - 1]) + 1) <= max_bytes:
        first -= 1
    return [msgspec.Raw(message) for message in encoded[first:]]


def display_message(entry: Entry) -> dict[str, Any] | None:
    """One entry as a message for clients, cut to its limits; ``None`` for what is not a message."""
    if entry.kind == "compaction":
        return {
            "role": "system",
            "content": [{"type": "text", "text": "Compaction"}],
            "timestamp": entry.created_at_ms,
            "__openclaw": {"kind": "compaction", "id": entry.id},
        }
    message = _decoded(entry)
    if message is None:
        return None
    for name in _REMOVED:
        message.pop(name, None)
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = _cut(_cleaned(content, message["role"], first=True))
    elif isinstance(content, list):
        message["content"] = [_display_block(block, message["role"], index == 0) for index, block in enumerate(content)]
    return message


def preview_items(entries: Sequence[Entry], *, limit: int, max_chars: int) -> list[PreviewItem]:
    """The last ``limit`` lines of a conversation for a list (``sessions.preview``), oldest first.

    A message that only calls tools reads ``call exec``; one with nothing to read is left out.
    """
    limit, max_chars = min(limit, MAX_PREVIEW_ITEMS), min(max_chars, MAX_PREVIEW_CHARS)
    items: list[PreviewItem] = []
    for entry in reversed(entries):
        if (item := _preview_item(entry, max_chars)) is not None:
            items.append(item)
            if len(items) == limit:
                break
    return items[::-1]


def _decoded(entry: Entry) -> dict[str, Any] | None:
    """The stored message; ``None`` for entries of another kind and for what no longer reads as one."""
    if entry.kind not in ("message", "tool_result"):
        return None
    try:
        message = msgspec.json.decode(entry.payload)
    except msgspec.DecodeError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("role"), str) else None


def _display_block(block: Any, role: str, first: bool) -> Any:
    if not isinstance(block, dict):
        return block
    if isinstance(text := block.get("text"), str):
        block["text"] = _cleaned(text, role, first=first)
    for name in _CUT:
        if isinstance(text := block.get(name), str):
            block[name] = _cut(text)
    for name in _SEALS:
        block.pop(name, None)
    if block.get("type") == "image" and isinstance(data := block.pop("data", None), str):
        block |= {"omitted": True, "bytes": len(data.encode())}
    return block


def _cleaned(text: str, role: str, *, first: bool) -> str:
    """Without what was written for the model or for a channel: delivery tags of the assistant, a person's envelope."""
    if role == "assistant":
        return _DIRECTIVES.sub("", text)
    if role == "user" and first:
        return _without_envelope(text)
    return text


def _without_envelope(text: str) -> str:
    """A person's text without its time prefix (``[Sat 2026-11-21 01:20 UTC] ``) or its channel's header."""
    match = _ENVELOPE.match(text)
    if match is None:
        return text
    header = match[1]
    if _ENVELOPE_TIME.search(header) or header.startswith(_ENVELOPE_CHANNELS):
        return text[match.end() :]
    return text


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + TRUNCATED


def _bounded(message: dict[str, Any]) -> bytes:
    encoded = msgspec.json.encode(message)
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded
    placeholder = {
        "role": message["role"],
        "timestamp": message.get("timestamp", 0),
        "content": [{"type": "text", "text": OVERSIZED}],
        "__openclaw": {"truncated": True, "reason": "oversized"},
    }
    return msgspec.json.encode(placeholder)


def _preview_item(entry: Entry, max_chars: int) -> PreviewItem | None:
    message = _decoded(entry)
    if message is None:
        return None
    role = message["role"]
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blocks = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    calls = [str(block.get("name")) for block in blocks if block.get("type") == "toolCall"]
    text = "\n".join(
        _cleaned(block["text"], role, first=True) for block in blocks if isinstance(block.get("text"), str)
    )
    text = text.strip() or _called(calls) or _media(blocks)
    if not text:
        return None
    if len(text) > max_chars:
        text = text[: max_chars - 3] + "..."
    if calls or role == "toolResult":
        return PreviewItem(role="tool", text=text)
    return PreviewItem(role=role if role in ("user", "assistant", "system") else "other", text=text)


def _called(names: list[str]) -> str:
    if not names:
        return ""
    more = f" +{len(names) - 2}" if len(names) > 2 else ""
    return f"call {', '.join(names[:2])}{more}"


def _media(blocks: list[dict[str, Any]]) -> str:
    """``[image]`` for a message that holds nothing to read; thinking is not shown in lists."""
    return next((f"[{kind}]" for block in blocks if (kind := block.get("type")) in ("image", "audio", "file")), "")
