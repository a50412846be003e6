from dataclasses import replace

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import UserId
from skynet_memory.turns import TurnStore
from skynet_memory.usage import DailyUsage, UsageRecord, UsageStore, UsageTotals
from tests.skynet_memory.support import begin, finish, key

DAY_MS = 86_400_000
NOON = 20_000 * DAY_MS + DAY_MS // 2  # 2024-10-04T12:00Z


def record(at_ms: int, cost: int | None, model: str = "m-1") -> UsageRecord:
    return UsageRecord(
        provider="lab", model=model, input=10, output=5, cache_read=2, cache_write=1, cost_microusd=cost, at_ms=at_ms
    )


@pytest.fixture
async def usage(store: Database, ada: UserId, ben: UserId) -> UsageStore:
    turns = TurnStore(store)
    for owner, name, records in [
        (ada, "a", [record(NOON, 100), record(NOON + DAY_MS, None)]),
        (ada, "b", [record(NOON + DAY_MS, 50, "m-2")]),
        (ben, "a", [record(NOON, 1_000_000)]),
    ]:
        run_id, _ = await begin(turns, owner, name=name)
        await finish(turns, owner, run_id, records=records)
    return UsageStore(store)


def totals(calls: int, cost: int, unpriced: int = 0) -> UsageTotals:
    return UsageTotals(
        input=10 * calls,
        output=5 * calls,
        cache_read=2 * calls,
        cache_write=calls,
        cost_microusd=cost,
        calls=calls,
        unpriced_calls=unpriced,
    )


async def test_daily(usage: UsageStore, ada: UserId) -> None:
    assert await usage.daily(ada, 0, NOON + 2 * DAY_MS) == [
        DailyUsage(date="2024-10-04", totals=totals(1, 100)),
        DailyUsage(date="2024-10-05", totals=totals(2, 50, unpriced=1)),
    ]
    assert await usage.daily(ada, NOON, NOON + DAY_MS) == [DailyUsage(date="2024-10-04", totals=totals(1, 100))]
    assert await usage.daily(ada, 0, NOON) == []


async def test_days_are_those_of_the_asked_offset(usage: UsageStore, ada: UserId) -> None:
    assert [day.date for day in await usage.daily(ada, 0, NOON + 1, utc_offset_minutes=14 * 60)] == ["2024-10-05"]
    assert [day.date for day in await usage.daily(ada, 0, NOON + 1, utc_offset_minutes=-721)] == ["2024-10-03"]


async def test_totals(usage: UsageStore, ada: UserId) -> None:
    """BA-070."""
    everything = await usage.totals(ada, 0, NOON + 2 * DAY_MS)
    assert everything == totals(3, 150, unpriced=1)
    assert everything.total == 3 * 18
    assert await usage.totals(ada, 0, NOON + 2 * DAY_MS, key=key(ada, "b")) == totals(1, 50)
    assert await usage.totals(ada, 0, 1) == totals(0, 0)


async def test_parts_of_the_cost_and_the_share_of_the_cache(store: Database, ada: UserId) -> None:
    turns = TurnStore(store)
    run_id, _ = await begin(turns, ada)
    await finish(turns, ada, run_id, records=[replace(record(NOON, 100), cost_parts=(70, 20, 7, 3)), record(NOON, 1)])
    totals = await UsageStore(store).totals(ada, 0, NOON + 1)
    assert (totals.cost_microusd, totals.cost_parts) == (101, (70, 20, 7, 3))
    assert totals.cache_share == 4 / 26
    assert totals.estimated_calls == 0
    assert (await UsageStore(store).totals(ada, 0, 1)).cache_share == 0


async def test_what_is_estimated_is_known(store: Database, ada: UserId) -> None:
    turns = TurnStore(store)
    run_id, _ = await begin(turns, ada)
    await finish(turns, ada, run_id, records=[replace(record(NOON, 100), estimated=True), record(NOON, 1)])
    totals = await UsageStore(store).totals(ada, 0, NOON + 1)
    assert (totals.calls, totals.estimated_calls) == (2, 1)
