"""``usage.*`` and ``doctor.memory.status``."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from skynet.methods.usage import _Period, _period
from skynet_memory.ids import RunId, new_id
from skynet_memory.usage import UsageRecord
from skynet_protocol.usage import UsageCostParams
from skynet_users.caller import Caller
from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World, key_of

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)
MIDNIGHT = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000)
DAY = 86_400_000


async def spend(world: World, caller: Caller, at_ms: int, cost: int | None) -> None:
    run_id = RunId(new_id())
    await world.turns.begin(
        owner=caller.user_id, key=key_of(caller), run_id=run_id, kind="chat", payload=None, now_ms=at_ms
    )
    await world.turns.finish(
        owner=caller.user_id,
        kind="chat",
        run_id=run_id,
        entries=[],
        usage=[
            UsageRecord(
                provider="mock",
                model="mock-1",
                input=10,
                output=5,
                cache_read=3,
                cache_write=2,
                cost_microusd=cost,
                cost_parts=None if cost is None else (1_000_000, 300_000, 150_000, 50_000),
                at_ms=at_ms,
                estimated=cost is None,
            )
        ],
        status="ok",
        response=b"{}",
        now_ms=at_ms,
    )


async def test_cost(world: World) -> None:
    """BA-070."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    stamp = int(today.timestamp() * 1000)
    await spend(world, world.admin, stamp - 40 * DAY, 999)
    await spend(world, world.admin, stamp - DAY, 1_500_000)
    await spend(world, world.admin, stamp, None)
    result = await world.call(world.admin, "usage.cost")
    shapes.check(shapes.USAGE_COST, result)
    assert result["days"] == 30
    assert [day["date"] for day in result["daily"]] == [
        (today - timedelta(days=1)).date().isoformat(),
        today.date().isoformat(),
    ]
    assert result["daily"][0] == {
        "date": result["daily"][0]["date"],
        "input": 10,
        "output": 5,
        "cacheRead": 3,
        "cacheWrite": 2,
        "totalTokens": 20,
        "totalCost": 1.5,
        "inputCost": 1,
        "outputCost": 0.3,
        "cacheReadCost": 0.15,
        "cacheWriteCost": 0.05,
        "missingCostEntries": 0,
        "cacheShare": 0.2,
        "estimatedEntries": 0,
    }
    assert (result["totals"]["totalTokens"], result["totals"]["totalCost"]) == (40, 1.5)
    assert (result["totals"]["missingCostEntries"], result["totals"]["estimatedEntries"]) == (1, 1)
    one = await world.call(world.admin, "usage.cost", {"days": 1})
    assert one["days"] == 1 and len(one["daily"]) == 1
    first = (today - timedelta(days=40)).date().isoformat()
    old = await world.call(world.admin, "usage.cost", {"startDate": first, "endDate": first})
    assert old["days"] == 1 and [day["date"] for day in old["daily"]] == [first]


async def test_cost_of_another_person(world: World) -> None:
    await world.turn(world.admin)
    result = await world.call(world.user, "usage.cost", {"days": 2})
    assert result["daily"] == [] and result["totals"]["totalTokens"] == 0


async def test_an_admin_sees_everybodys_costs(world: World) -> None:
    """SK-139, BA-070, SP-061: by person and day, and by model."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    stamp = int(today.timestamp() * 1000)
    await spend(world, world.admin, stamp, 1_000_000)
    await spend(world, world.child, stamp - DAY, 500_000)
    await spend(world, world.child, stamp, 2_000_000)
    everybody = await world.call(world.admin, "usage.cost", {"all": True})
    shapes.check(shapes.USAGE_COST, {name: value for name, value in everybody.items() if name != "people"})
    assert (everybody["totals"]["totalTokens"], everybody["totals"]["totalCost"]) == (60, 3.5)
    assert [day["totalCost"] for day in everybody["daily"]] == [0.5, 3]
    child, admin = everybody["people"]
    assert (child["userId"], child["totals"]["totalCost"]) == (world.child.user_id, 2.5)
    assert [day["totalCost"] for day in child["daily"]] == [0.5, 2]
    assert [(model["provider"], model["model"], model["totalCost"]) for model in child["models"]] == [
        ("mock", "mock-1", 2.5)
    ]
    assert (admin["userId"], admin["displayName"]) == (world.admin.user_id, "Owner")
    one = await world.call(world.admin, "usage.cost", {"userId": world.child.user_id})
    assert one["people"] == [child] and one["totals"] == child["totals"] and one["daily"] == child["daily"]
    idle = await world.call(world.admin, "usage.cost", {"userId": world.user.user_id})
    assert idle["totals"]["totalTokens"] == 0 and idle["people"][0]["models"] == []
    with pytest.raises(RefusedError):
        await world.call(world.admin, "usage.cost", {"userId": "nobody"})
    with pytest.raises(RefusedError, match="at /all"):
        await world.call(world.admin, "usage.cost", {"userId": world.user.user_id, "all": True})


@pytest.mark.parametrize("params", [{"all": True}, {"userId": "them"}])
async def test_nobody_else_sees_the_costs_of_others(world: World, params: dict[str, object]) -> None:
    await spend(world, world.admin, NOON, 1_000_000)
    asked = {name: world.admin.user_id if name == "userId" else value for name, value in params.items()}
    for caller in (world.user, world.child):
        with pytest.raises(RefusedError, match=r"not permitted: costs\.view"):
            await world.call(caller, "usage.cost", asked)
        own = await world.call(caller, "usage.cost", {"userId": caller.user_id})
        assert own["people"][0]["userId"] == caller.user_id


@pytest.mark.parametrize(
    ("params", "period"),
    [
        ({}, _Period(MIDNIGHT - 29 * DAY, MIDNIGHT + DAY, 0)),
        ({"days": 1}, _Period(MIDNIGHT, MIDNIGHT + DAY, 0)),
        ({"days": "7"}, _Period(MIDNIGHT - 6 * DAY, MIDNIGHT + DAY, 0)),
        ({"days": 2.9}, _Period(MIDNIGHT - DAY, MIDNIGHT + DAY, 0)),
        ({"days": 0}, _Period(MIDNIGHT, MIDNIGHT + DAY, 0)),
        ({"days": True}, _Period(MIDNIGHT - 29 * DAY, MIDNIGHT + DAY, 0)),
        ({"days": "many"}, _Period(MIDNIGHT - 29 * DAY, MIDNIGHT + DAY, 0)),
        ({"days": "nan"}, _Period(MIDNIGHT - 29 * DAY, MIDNIGHT + DAY, 0)),
        ({"days": 10**400}, _Period(MIDNIGHT - 29 * DAY, MIDNIGHT + DAY, 0)),
        ({"days": 10**9}, _Period(MIDNIGHT - 3659 * DAY, MIDNIGHT + DAY, 0)),
        ({"startDate": "2026-11-20", "endDate": "2026-11-21"}, _Period(MIDNIGHT - DAY, MIDNIGHT + DAY, 0)),
        ({"startDate": "2026-11-20"}, _Period(MIDNIGHT - 29 * DAY, MIDNIGHT + DAY, 0)),
        ({"startDate": "2026-02-30", "endDate": "2026-11-21", "days": 1}, _Period(MIDNIGHT, MIDNIGHT + DAY, 0)),
        ({"startDate": "9999-12-31", "endDate": "9999-12-31"}, _Period(253402214400000, 253402300800000, 0)),
        (
            {"days": 1, "mode": "specific", "utcOffset": "UTC+13"},
            _Period(MIDNIGHT + 11 * 3_600_000, MIDNIGHT + DAY + 11 * 3_600_000, 780),
        ),
        (
            {"days": 1, "mode": "specific", "utcOffset": "UTC-5:30"},
            _Period(MIDNIGHT + 330 * 60_000, MIDNIGHT + DAY + 330 * 60_000, -330),
        ),
        ({"days": 1, "mode": "specific", "utcOffset": "UTC+15"}, _Period(MIDNIGHT, MIDNIGHT + DAY, 0)),
        ({"days": 1, "mode": "specific", "utcOffset": 5}, _Period(MIDNIGHT, MIDNIGHT + DAY, 0)),
    ],
)
def test_period(params: dict[str, Any], period: _Period) -> None:
    names = {
        "days": "days",
        "startDate": "start_date",
        "endDate": "end_date",
        "mode": "mode",
        "utcOffset": "utc_offset",
    }
    asked = UsageCostParams(**{names[name]: value for name, value in params.items()})
    assert _period(asked, NOON) == period


def test_the_machines_own_zone() -> None:
    period = _period(UsageCostParams(days=1, mode="gateway"), NOON)
    offset = datetime.fromtimestamp(NOON / 1000).astimezone().utcoffset()
    assert offset is not None and period.offset_minutes == offset.total_seconds() // 60 and period.days == 1


async def test_status(world: World) -> None:
    result = await world.call(world.user, "usage.status", {"x": 1})
    shapes.check(shapes.USAGE_STATUS, result)
    assert result["providers"] == []


async def test_memory_status(world: World) -> None:
    result = await world.call(world.user, "doctor.memory.status")
    shapes.check(shapes.DOCTOR_MEMORY, result)
    assert result["agentId"] == "main" and result["embedding"]["ok"] is False and result["embedding"]["error"]
