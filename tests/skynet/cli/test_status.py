"""What ``skynet status`` says of a budget."""

from __future__ import annotations

from typing import Any

import pytest

from skynet.cli.output import clock
from skynet.cli.status import _budget

NOON = 1_795_262_400_000


@pytest.mark.parametrize(
    ("tokens", "money", "words"),
    [
        ({}, {}, ""),
        ({"limit": 200_000}, {}, "1,204 of 200,000 tokens"),
        ({}, {"limit": 2_000_000}, "$0.50 of $2.00"),
        ({"limit": 5}, {"limit": 0}, "1,204 of 5 tokens, $0.50 of $0.00"),
    ],
)
def test_what_is_limited_is_told(tokens: dict[str, Any], money: dict[str, Any], words: str) -> None:
    period = {
        "tokens": {"used": 1204, "reserved": 0, **tokens},
        "microusd": {"used": 500_000, "reserved": 0, **money},
        "resetsAt": NOON,
    }
    assert _budget(period) == (f"{words} (starts again {clock(NOON)})" if words else "")


def test_a_gateway_that_keeps_no_budgets() -> None:
    assert _budget(None) == ""
