"""What a model call costs."""

from __future__ import annotations

import msgspec

from skynet_agent.messages import Usage
from skynet_agent.providers import Price

MILLION = 1_000_000


def cost_microusd(usage: Usage, price: Price | None) -> int | None:
    """``usage`` at ``price`` in whole micro-dollars, halves rounded up; None when the price is unknown."""
    if price is None:
        return None
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    total = (
        usage.input * price.input
        + usage.output * price.output
        + usage.cache_read * cache_read
        + usage.cache_write * cache_write
    )
    return (total + MILLION // 2) // MILLION


def with_cost(usage: Usage, price: Price | None) -> Usage:
    """``usage`` with its ``cost_microusd``."""
    return msgspec.structs.replace(usage, cost_microusd=cost_microusd(usage, price))
