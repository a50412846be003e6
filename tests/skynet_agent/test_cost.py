"""Costs are whole micro-dollars."""

import pytest

from skynet_agent.cost import cost_microusd, with_cost
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
    assert cost_microusd(usage, price) == cost
    assert with_cost(usage, price).cost_microusd == cost
    assert with_cost(usage, price).total == usage.total
