from dataclasses import replace

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import RunId, SessionId, UserId
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY_TABLES
from skynet_memory.turns import TurnStore
from skynet_memory.usage import NOTHING_USED, DailyUsage, ModelUsage, UsageRecord, UsageStore, UsageTotals
from skynet_memory.usage_schema import COMPONENT as USAGE_INDEXES
from skynet_users.schema import COMPONENT as USER_TABLES
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


async def test_spent(usage: UsageStore, ada: UserId, ben: UserId) -> None:
    """SK-124: what budgets begin with."""
    assert await usage.spent(ada, 0) == (54, 150)
    assert await usage.spent(ada, NOON + 1) == (36, 50)
    assert await usage.spent(ben, NOON) == (18, 1_000_000)
    assert await usage.spent(ben, NOON + 1) == (0, 0)
    assert await usage.spent(None, NOON) == (72, 1_000_150)


async def test_sums_are_read_from_an_index_alone(usage: UsageStore, store: Database, ada: UserId) -> None:
    """A budget is read before the first call of a day; a year of calls must not delay it."""
    tables = [USER_TABLES, MEMORY_TABLES, USAGE_INDEXES]
    await migrate(store, tables)
    assert await migrate(store, tables) == 0
    asked: list[tuple[str, object]] = []
    fetchone = store.fetchone

    async def note(sql: str, params: object = ()) -> object:
        asked.append((sql, params))
        return await fetchone(sql, params)  # type: ignore[arg-type]

    store.fetchone = note  # type: ignore[assignment, method-assign]
    await usage.spent(ada, 0)
    await usage.spent(None, 0)
    for sql, params in asked:
        (plan,) = await store.fetchall(f"EXPLAIN QUERY PLAN {sql}", params)  # type: ignore[arg-type]
        assert plan["detail"].startswith("SEARCH usage USING COVERING INDEX"), plan["detail"]
    assert len(asked) == 2
    assert await usage.daily(ada, 0, NOON + 1) == [DailyUsage(date="2024-10-04", totals=totals(1, 100))]


async def test_calls_outside_a_turn_count(store: Database, ada: UserId) -> None:
    usage = UsageStore(store)
    await usage.add(ada, key(ada, "a"), SessionId("s"), RunId(""), [record(NOON, 5), record(NOON, None)])
    await usage.add(ada, key(ada, "a"), SessionId("s"), RunId(""), [])
    assert await usage.totals(ada, 0, NOON + 1, key=key(ada, "a")) == totals(2, 5, unpriced=1)


async def test_by_person(usage: UsageStore, ada: UserId, ben: UserId) -> None:
    """SK-139, BA-070, SP-061: sums by person, by day and by model."""
    first, second = await usage.by_person(0, NOON + 2 * DAY_MS)
    assert (first.owner, first.totals, second.owner, second.totals) == (
        ben, totals(1, 1_000_000), ada, totals(3, 150, unpriced=1),
    )  # fmt: skip
    assert second.daily == tuple(await usage.daily(ada, 0, NOON + 2 * DAY_MS))
    assert second.models == (
        ModelUsage(provider="lab", model="m-1", totals=totals(2, 100, unpriced=1)),
        ModelUsage(provider="lab", model="m-2", totals=totals(1, 50)),
    )
    assert list(second.models) == await usage.models(ada, 0, NOON + 2 * DAY_MS)
    assert second.display_name == await usage.name_of(ada)
    assert await usage.name_of(UserId("nobody")) is None
    assert first.totals + second.totals == totals(4, 1_000_150, unpriced=1)
    assert NOTHING_USED + second.totals == second.totals
    assert [(person.owner, len(person.daily)) for person in await usage.by_person(NOON + 1, NOON + 2 * DAY_MS)] == [
        (ada, 1)
    ]
    (_, shifted) = await usage.by_person(0, NOON + 2 * DAY_MS, utc_offset_minutes=14 * 60)
    assert [day.date for day in shifted.daily] == ["2024-10-05", "2024-10-06"]
    assert await usage.by_person(0, 1) == []
