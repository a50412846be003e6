"""Costs are whole micro-dollars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.cost import cost_parts, with_cost
from skynet_agent.messages import Usage
from skynet_agent.providers import Price

PRICE = Price(input=3_000_000, output=15_000_000, cache_read=300_000, cache_write=3_750_000)


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        (Usage(1_000_000, 0, 0, 0, 1_000_000), PRICE, 3_000_000),
        (Usage(1000, 100, 2000, 400, 3500), PRICE, 3000 + 1500 + 600 + 1500),
        (Usage(0, 0, 1000, 1000, 2000), Price(input=1_000_000, output=2_000_000), 2000),
        (Usage(1, 0, 0, 0, 1), Price(input=500_000, output=0), 1),
        (Usage(1, 0, 0, 0, 1), Price(input=499_999, output=0), 0),
        (Usage(100, 100, 0, 0, 200), Price(input=0, output=0), 0),
        (Usage(100, 100, 0, 0, 200), None, None),
    ],
)
def test_cost(usage: Usage, price: Price | None, cost: int | None) -> None:
    assert with_cost(usage, price).cost_microusd == cost
    assert with_cost(usage, price).total == usage.total


def test_a_long_prompt_has_its_own_price() -> None:
    price = Price(input=1_000_000, output=0, long_prompt_tokens=1000, long_prompt=Price(input=2_000_000, output=0))
    assert with_cost(Usage(1000, 0, 0, 0, 1000), price).cost_microusd == 1000
    assert with_cost(Usage(500, 0, 501, 0, 1001), price).cost_microusd == 2002


counts = st.integers(0, 10_000_000)


@given(st.tuples(counts, counts, counts, counts), st.tuples(counts, counts, counts, counts))
def test_the_parts_are_the_whole(tokens: tuple[int, int, int, int], prices: tuple[int, int, int, int]) -> None:
    usage = Usage(*tokens, sum(tokens))
    price = Price(input=prices[0], output=prices[1], cache_read=prices[2], cache_write=prices[3])
    parts = cost_parts(usage, price)
    assert parts is not None
    exact = [each * cost for each, cost in zip(tokens, prices, strict=True)]
    assert sum(parts) == (sum(exact) + 500_000) // 1_000_000
    assert all(abs(part * 1_000_000 - each) <= 1_000_000 for part, each in zip(parts, exact, strict=True))
