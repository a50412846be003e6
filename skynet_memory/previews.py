"""The short texts that stand for a conversation in a list."""

import re
from typing import Final

import msgspec

TITLE_CHARS: Final = 60
LAST_MESSAGE_CHARS: Final = 240

# The time that the gateway puts before what a person said (OPENCLAW-V3 7.8) is not part of what was said.
_TIME_PREFIX: Final = re.compile(r"\A\[[A-Z][a-z]{2} [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2} [^\]\n]{1,40}\] ")


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Block] = ""


_decoder = msgspec.json.Decoder(_Message)


def role_and_text(payload: bytes) -> tuple[str, str]:
    """Who speaks in a transcript message, and its text blocks on one line, without the time put before them.

    Empty where there is none.
    """
    try:
        message = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    content = message.content
    if not isinstance(content, str):
        content = " ".join(block.text for block in content if block.type == "text" and block.text)
    if message.role == "user":
        content = _TIME_PREFIX.sub("", content, count=1)
    return message.role, " ".join(content.split())


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters; cut where a word ends, if that is not far, and marked with an ellipsis."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit * 0.6 else cut) + "…"
