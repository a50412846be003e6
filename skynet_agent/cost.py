"""What a model call costs."""

from __future__ import annotations

from itertools import accumulate, pairwise

import msgspec

from skynet_agent.messages import Usage
from skynet_agent.providers import Price

MILLION = 1_000_000


def cost_parts(usage: Usage, price: Price | None) -> tuple[int, int, int, int] | None:
    """What input, output, and tokens read from and written to the cache cost, in whole micro-dollars.

    The sum is the exact cost with halves rounded up; a part may be off by one. None when the price is unknown.
    """
    if price is None:
        return None
    price = price.at(usage.input + usage.cache_read + usage.cache_write)
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    exact = (
        usage.input * price.input,
        usage.output * price.output,
        usage.cache_read * cache_read,
        usage.cache_write * cache_write,
    )
    sums = [(each + MILLION // 2) // MILLION for each in accumulate(exact, initial=0)]
    of_input, of_output, of_reading, of_writing = (after - before for before, after in pairwise(sums))
    return of_input, of_output, of_reading, of_writing


def with_cost(usage: Usage, price: Price | None) -> Usage:
    """``usage`` with its ``cost_microusd`` and its parts."""
    parts = cost_parts(usage, price)
    return msgspec.structs.replace(usage, cost_microusd=None if parts is None else sum(parts), cost_parts=parts)
