"""How much a model is to think."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skynet_agent.requests import THINKING_LEVELS, ThinkingLevel

BUDGET_TOKENS: Mapping[ThinkingLevel, int] = {
    "off": 0,
    "minimal": 1024,
    "low": 4096,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
"""Tokens for providers that want a number (SK-082)."""


def thinking_level(text: str) -> ThinkingLevel:
    """The level of that name; ``none`` is OpenAI's word for ``off``.

    Raises:
        ValueError: it stands for none.
    """
    word = "off" if text == "none" else text
    for level in THINKING_LEVELS:
        if word == level:
            return level
    raise ValueError(f"unknown thinking level {text[:40]!r}; allowed: {', '.join(THINKING_LEVELS)}")


def nearest_level(level: ThinkingLevel, allowed: Sequence[ThinkingLevel]) -> ThinkingLevel | None:
    """``level`` as a provider that knows only ``allowed`` can be told; of two as near the lower one.

    None if it cannot be told at all: ``off`` has no neighbour.
    """
    if level in allowed:
        return level
    steps = [each for each in allowed if each != "off"]
    if level == "off" or not steps:
        return None
    place = THINKING_LEVELS.index(level)
    return min(steps, key=lambda each: (abs(THINKING_LEVELS.index(each) - place), THINKING_LEVELS.index(each)))
