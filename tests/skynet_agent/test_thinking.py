"""How much a model is to think, in words and in tokens."""

import pytest

from skynet_agent.requests import THINKING_LEVELS, ThinkingLevel
from skynet_agent.thinking import BUDGET_TOKENS, nearest_level, thinking_level


def test_budgets() -> None:
    """The numbers of SK-082."""
    assert BUDGET_TOKENS == {
        "off": 0,
        "minimal": 1024,
        "low": 4096,
        "medium": 8192,
        "high": 16384,
        "xhigh": 32768,
    }
    assert tuple(BUDGET_TOKENS) == THINKING_LEVELS


def test_levels_by_name() -> None:
    assert [thinking_level(level) for level in THINKING_LEVELS] == list(THINKING_LEVELS)
    assert thinking_level("none") == "off"


@pytest.mark.parametrize("text", ["", "High", "ultra", " low", "0", "4096"])
def test_unknown_levels_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown thinking level .*; allowed: off, minimal, low, medium, high, xhigh"):
        thinking_level(text)


OPENAI: tuple[ThinkingLevel, ...] = ("minimal", "low", "medium", "high")


@pytest.mark.parametrize(
    ("level", "allowed", "told"),
    [
        ("low", OPENAI, "low"),
        ("xhigh", OPENAI, "high"),
        ("off", OPENAI, None),
        ("off", ("off", "high"), "off"),
        ("minimal", ("off", "high"), "high"),
        ("medium", ("low", "high"), "low"),
        ("medium", ("high", "low"), "low"),
        ("minimal", ("low", "medium", "high"), "low"),
        ("low", ("off",), None),
        ("low", (), None),
    ],
)
def test_the_nearest_level(
    level: ThinkingLevel, allowed: tuple[ThinkingLevel, ...], told: ThinkingLevel | None
) -> None:
    assert nearest_level(level, allowed) == told
