"""Messages of a transcript (OPENCLAW-V3 8.4) as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skynet.cli.output import clock, printable


def print_messages(messages: Iterable[dict[str, Any]]) -> None:
    """Each message under a line that says when and who."""
    for message in messages:
        text = message_text(message)
        if text:
            when = clock(message.get("timestamp"))
            print(f"{when}  {speaker(message)}".strip())
            print("\n".join(f"  {line}" for line in printable(text).splitlines()), flush=True)


def speaker(message: dict[str, Any]) -> str:
    """Who says it: ``you``, a model, or a tool."""
    match message.get("role"):
        case "user":
            return "you"
        case "assistant":
            return str(message.get("model") or "assistant")
        case "toolResult":
            return f"tool {message.get('toolName') or ''}".strip()
        case role:
            return str(role)


def message_text(message: dict[str, Any]) -> str:
    """The text of a message; tool calls and images are named, thinking is left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts: list[str] = []
    for block in content if isinstance(content, list) else ():
        match block.get("type") if isinstance(block, dict) else None:
            case "text":
                parts.append(str(block.get("text") or ""))
            case "toolCall":
                parts.append(f"[calls {block.get('name')}]")
            case "image":
                parts.append("[image]")
    if message.get("stopReason") == "error":
        parts.append(f"[failed: {message.get('errorMessage') or 'no reason given'}]")
    elif message.get("stopReason") == "aborted":
        parts.append("[stopped]")
    return "\n".join(part for part in parts if part)
