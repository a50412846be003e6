"""The values that a session's settings may have, and the words people use for them (OPENCLAW-V3 6.4, 7.8)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from skynet_memory.sessions import Json
from skynet_protocol.errors import DetailCode, RequestError


def _words(**values: str) -> Mapping[str, str]:
    """``off="off false no"`` as a table from each word to its value."""
    return MappingProxyType(
        {word: value.replace("_", "-") for value, words in values.items() for word in words.split()}
    )


_OFF, _ON = "off false no 0", "on true yes 1"
_SWITCHED_OFF, _SWITCHED_ON = f"{_OFF} disable disabled", f"{_ON} enable enabled"

THINKING = _words(
    off="off",
    minimal="minimal min think",
    low="low on enable enabled thinkhard think-hard think_hard",
    medium="medium med mid harder thinkharder think-harder",
    high="high highest max ultra ultrathink thinkhardest",
    xhigh="xhigh x-high x_high extrahigh extra-high extra_high",
)
VERBOSE = _words(off=_OFF, on=f"{_ON} minimal", full="full all everything")
REASONING = _words(
    off=f"{_SWITCHED_OFF} hide hidden", on=f"{_SWITCHED_ON} show visible", stream="stream streaming draft live"
)
ELEVATED = _words(off=_OFF, on=_ON, ask="ask prompt approval approve", full="full auto auto-approve autoapprove")
RESPONSE_USAGE = _words(off=_SWITCHED_OFF, tokens=f"{_SWITCHED_ON} tokens token tok minimal min", full="full session")
EXEC_HOST = _words(sandbox="sandbox", gateway="gateway", node="node")
EXEC_SECURITY = _words(deny="deny", allowlist="allowlist", full="full")
EXEC_ASK = _words(off="off", on_miss="on-miss", always="always")

_QUOTED = {
    "verboseLevel": (VERBOSE, '"on"|"off"'),
    "reasoningLevel": (REASONING, '"on"|"off"|"stream"'),
    "responseUsage": (RESPONSE_USAGE, '"off"|"tokens"|"full"'),
    "elevatedLevel": (ELEVATED, '"on"|"off"|"ask"|"full"'),
    "execHost": (EXEC_HOST, '"sandbox"|"gateway"|"node"'),
    "execSecurity": (EXEC_SECURITY, '"deny"|"allowlist"|"full"'),
    "execAsk": (EXEC_ASK, '"off"|"on-miss"|"always"'),
}
LEVELS: Mapping[str, tuple[Mapping[str, str], str]] = MappingProxyType(
    {"thinkingLevel": (THINKING, "off|minimal|low|medium|high|xhigh"), **_QUOTED}
)
"""By wire name: the words that are understood, and how the allowed values are told."""


def normalise(name: str, value: Any) -> Json:
    """The value of a setting as it is stored; ``None`` removes it.

    Raises:
        RequestError: ``invalid thinkingLevel (use …)`` and the like.
    """
    if value is None or not isinstance(value, str):
        return value  # a number that its schema has checked
    text = value.strip()
    if name not in LEVELS:
        if not text:
            raise _invalid(f"invalid {name}: empty")
        return text
    words, allowed = LEVELS[name]
    level = words.get(text.lower())
    if level is None:
        raise _invalid(f"invalid {name} (use {allowed})")
    return None if (name, level) == ("responseUsage", "off") else level


def thinking_level(word: str) -> str:
    """The level that a message asks for; "" for none.

    Raises:
        RequestError: ``invalid thinkingLevel (use …)``.
    """
    return str(normalise("thinkingLevel", word)) if word.strip() else ""


def _invalid(message: str) -> RequestError:
    return RequestError(message, details={"code": DetailCode.INVALID_PARAMS})
