"""The ledger: no limit is passed by more than one reservation, whatever runs at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skynet_memory.ids import UserId
from skynet_users.budgets import BudgetExceeded, BudgetWarning, Ledger, Limits, PersonLimits, Reservation, Spent
from tests.support.polling import until

ADA, BEN = UserId("ada"), UserId("ben")
NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1000
HOUR = 3_600_000
DAY = 24 * HOUR
NO_LIMITS = Limits()


@dataclass
class Desk:
    """A ledger with what it needs: a clock that stands still, and rows of usage in place of the table."""

    limits: dict[UserId, Limits] = field(default_factory=dict)
    house: Limits = NO_LIMITS
    zones: dict[UserId, tzinfo] = field(default_factory=dict)
    house_zone: tzinfo = UTC
    now_ms: int = NOON
    rows: list[tuple[UserId, int, Spent]] = field(default_factory=list)
    loads: list[tuple[UserId | None, int]] = field(default_factory=list)
    warnings: list[BudgetWarning] = field(default_factory=list)
    reading: asyncio.Event | None = None
    failures: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.load, self.person, self.house, self.house_zone, self.warnings.append, self.clock)

    def clock(self) -> int:
        return self.now_ms

    async def load(self, owner: UserId | None, since_ms: int) -> Spent:
        self.loads.append((owner, since_ms))
        if self.reading is not None:
            await self.reading.wait()
        if self.failures:
            self.failures -= 1
            raise OSError("cannot be read")
        used = Spent()
        for who, at_ms, spent in self.rows:
            if owner in (None, who) and at_ms >= since_ms:
                used += spent
        return used

    async def person(self, owner: UserId) -> PersonLimits:
        return PersonLimits(self.limits.get(owner, NO_LIMITS), self.zones.get(owner, UTC))

    async def spend(self, owner: UserId, tokens: int, microusd: int | None = 0) -> None:
        reservation = await self.ledger.reserve(owner, tokens, microusd)
        reservation.settle(tokens, microusd)


async def test_the_call_that_crosses_the_limit_is_the_last() -> None:
    """SK-124, BA-292: a cap of 1,000 tokens; the refusal says used, limit and when; the next day it goes on."""
    desk = Desk({ADA: Limits(daily_tokens=1000)})
    await desk.spend(ADA, 999)
    await desk.spend(ADA, 205)
    with pytest.raises(BudgetExceeded) as refusal:
        await desk.ledger.reserve(ADA, 1, 0)
    assert str(refusal.value) == (
        "You have used 1,204 of 1,000 tokens for today; it starts again on Sun 22 Nov, 00:00."
    )
    error = refusal.value
    assert (error.whose, error.period, error.unit, error.used, error.reserved, error.limit, error.resets_at_ms) == (
        "you", "day", "tokens", 1204, 0, 1000, NOON + DAY // 2,
    )  # fmt: skip
    await desk.spend(BEN, 5000)
    desk.now_ms = NOON + DAY // 2 - 1
    with pytest.raises(BudgetExceeded):
        await desk.ledger.check(ADA)
    desk.now_ms += 1
    await desk.spend(ADA, 1)


async def test_100_turns_at_once_overshoot_by_at_most_one_reservation() -> None:
    """SK-124, BA-292."""
    desk = Desk({ADA: Limits(daily_tokens=1000)})
    gate = asyncio.Event()
    granted: list[Reservation] = []
    refused: list[BudgetExceeded] = []

    async def turn() -> None:
        try:
            reservation = await desk.ledger.reserve(ADA, 90, 0)
        except BudgetExceeded as exc:
            refused.append(exc)
            return
        granted.append(reservation)
        await gate.wait()
        reservation.settle(90, 0)

    async with asyncio.TaskGroup() as turns:
        for _ in range(100):
            turns.create_task(turn())
        await until(lambda: len(granted) + len(refused) == 100)
        gate.set()
    assert (len(granted), len(refused)) == (12, 88)
    assert (await desk.ledger.status(ADA)).day.used.tokens == 1080  # < 1000 + 90
    assert str(refused[0]) == (
        "You have used 0 of 1,000 tokens for today, and answers under way need the rest;"
        " it starts again on Sun 22 Nov, 00:00."
    )
    assert [load for load in desk.loads if load[0] == ADA] == [
        (ADA, NOON - DAY // 2),
        (ADA, NOON - 20 * DAY - DAY // 2),
    ]


async def test_one_persons_turns_do_not_take_the_house_further_than_its_limit() -> None:
    desk = Desk(house=Limits(daily_tokens=1000))
    reservations = [await desk.ledger.reserve(owner, 500, 0) for owner in (ADA, BEN)]
    with pytest.raises(BudgetExceeded, match="All people of this house together have used 0 of 1,000") as refusal:
        await desk.ledger.reserve(ADA, 1, 0)
    assert refusal.value.whose == "house"
    reservations[0].release()
    await desk.ledger.check(ADA)


@pytest.mark.parametrize(
    ("limits", "spent", "words"),
    [
        (Limits(monthly_tokens=10), (10, 0), "10 of 10 tokens for this month; it starts again on Tue 1 Dec, 00:00."),
        (Limits(daily_microusd=1_000_000), (1, 1_204_000), r"\$1\.20 of \$1\.00 for today; .* Sun 22 Nov, 00:00"),
        (Limits(monthly_microusd=900), (1, 1050), r"\$0\.00105 of \$0\.0009 for this month"),
        (Limits(daily_tokens=5, monthly_tokens=10), (10, 0), "for this month"),  # tomorrow it would not go on
        (Limits(daily_tokens=0), (0, 0), "0 of 0 tokens for today"),
    ],
)
async def test_every_limit(limits: Limits, spent: tuple[int, int], words: str) -> None:
    desk = Desk({ADA: limits})
    if spent != (0, 0):
        await desk.spend(ADA, *spent)
    with pytest.raises(BudgetExceeded, match=words):
        await desk.ledger.reserve(ADA, 1, 0)


async def test_what_is_really_used_replaces_the_estimate_once() -> None:
    desk = Desk()
    reservation = await desk.ledger.reserve(ADA, 100, 50)
    status = await desk.ledger.status(ADA)
    assert (status.day.used, status.day.reserved) == (Spent(), Spent(100, 50))
    reservation.settle(7, 3)
    reservation.settle(7, 3)
    reservation.release()
    status = await desk.ledger.status(ADA)
    for period in (status.day, status.month, status.house_day, status.house_month):
        assert (period.used, period.reserved) == (Spent(7, 3), Spent())
    other = await desk.ledger.reserve(ADA, 100, 50)
    other.release()
    other.settle(1000, 1000)
    assert (await desk.ledger.status(ADA)).day.used == Spent(7, 3)


async def test_an_estimate_is_not_negative() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        await Desk().ledger.reserve(ADA, -1, 0)
    with pytest.raises(ValueError, match="at least 0"):
        await Desk().ledger.reserve(ADA, 1, -1)


async def test_a_call_without_a_price_counts_tokens_and_no_money() -> None:
    desk = Desk({ADA: Limits(daily_microusd=10)})
    await desk.spend(ADA, 500, None)
    await desk.spend(BEN, 500, None)
    assert desk.ledger.unpriced == 1
    assert (await desk.ledger.status(ADA)).day.used == Spent(500, 0)
    house = Desk(house=Limits(monthly_microusd=10))
    await house.spend(ADA, 500, None)
    assert house.ledger.unpriced == 1


class TestReset:
    """Each begins in the time zone of its own."""

    async def test_day_and_month_begin_where_the_person_lives_the_houses_where_the_gateway_is(self) -> None:
        desk = Desk(zones={ADA: ZoneInfo("Asia/Tokyo")}, house_zone=ZoneInfo("America/New_York"))
        status = await desk.ledger.status(ADA)
        assert status.day.resets_at_ms == NOON + 3 * HOUR
        assert status.house_day.resets_at_ms == NOON + 17 * HOUR
        assert status.month.resets_at_ms == int(datetime(2026, 11, 30, 15, tzinfo=UTC).timestamp()) * 1000
        assert status.zone == ZoneInfo("Asia/Tokyo")

    async def test_the_houses_reset_is_told_in_the_persons_zone(self) -> None:
        desk = Desk(zones={ADA: ZoneInfo("Asia/Tokyo")}, house=Limits(daily_tokens=0))
        with pytest.raises(BudgetExceeded, match=r"Sun 22 Nov, 09:00\.$"):
            await desk.ledger.check(ADA)

    async def test_a_reservation_over_midnight_settles_into_the_new_day(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)})
        await desk.spend(ADA, 60)
        reservation = await desk.ledger.reserve(ADA, 100, 0)
        desk.now_ms += DAY
        with pytest.raises(BudgetExceeded, match="answers under way"):
            await desk.ledger.check(ADA)
        reservation.settle(30, 0)
        status = await desk.ledger.status(ADA)
        assert (status.day.used, status.day.reserved) == (Spent(30), Spent())
        assert status.month.used == Spent(90)

    async def test_what_is_settled_first_thing_in_a_day_is_not_lost_when_the_day_is_read(self) -> None:
        desk = Desk()
        reservation = await desk.ledger.reserve(ADA, 100, 0)
        desk.now_ms += DAY
        reservation.settle(30, 0)
        assert (await desk.ledger.status(ADA)).day.used == Spent(30)
        desk.now_ms += DAY
        desk.rows = [(ADA, desk.now_ms, Spent(500))]  # the clock was wrong when these were stored by another process
        assert (await desk.ledger.status(ADA)).day.used == Spent(500)

    async def test_a_clock_that_is_set_back_a_little_changes_nothing_and_a_lot_is_read_again(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)}, now_ms=NOON - DAY // 2)
        await desk.spend(ADA, 60)
        desk.now_ms -= HOUR
        assert (await desk.ledger.status(ADA)).day.used == Spent(60)
        desk.rows = [(ADA, NOON - 10 * DAY, Spent(80))]
        desk.now_ms = NOON - 10 * DAY
        status = await desk.ledger.status(ADA)
        assert (status.day.used, status.day.resets_at_ms) == (Spent(80), NOON - 10 * DAY + DAY // 2)

    async def test_moving_gives_nobody_a_second_day(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)})
        await desk.spend(ADA, 100)
        desk.zones[ADA] = ZoneInfo("Pacific/Kiritimati")  # where it is tomorrow already
        desk.ledger.forget(ADA)
        with pytest.raises(BudgetExceeded, match=r"Sun 22 Nov, 14:00\.$"):
            await desk.ledger.check(ADA)
        desk.now_ms += DAY // 2
        status = await desk.ledger.status(ADA)  # until the midnight after the next one, which is 10 hours away
        assert (status.day.used, status.day.resets_at_ms) == (Spent(), desk.now_ms + 34 * HOUR)
        desk.now_ms += 34 * HOUR
        assert (await desk.ledger.status(ADA)).day.resets_at_ms == desk.now_ms + DAY

    async def test_moving_every_hour_makes_hardly_more_days_than_staying(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)})
        granted = 0
        for hour in range(24 * 20):
            desk.now_ms = NOON + hour * HOUR
            hours = desk.now_ms // HOUR
            ahead = min(range(-14, 13), key=lambda zone: -(hours - zone) % 24 or 24)  # where midnight comes next
            desk.zones[ADA] = ZoneInfo(f"Etc/GMT{ahead:+}")
            desk.ledger.forget(ADA)
            try:
                await desk.spend(ADA, 100)
            except BudgetExceeded:
                continue
            granted += 1
        assert granted <= 24

    async def test_a_short_move_leaves_a_day_that_is_nearly_whole(self) -> None:
        desk = Desk(zones={ADA: ZoneInfo("Europe/London")})
        assert (await desk.ledger.status(ADA)).day.resets_at_ms == NOON + 12 * HOUR
        desk.zones[ADA] = ZoneInfo("Europe/Zurich")
        desk.ledger.forget(ADA)
        desk.now_ms += 12 * HOUR
        status = await desk.ledger.status(ADA)
        assert (status.day.starts_at_ms, status.day.resets_at_ms) == (desk.now_ms, desk.now_ms + 23 * HOUR)

    async def test_new_limits_hold_at_once_and_what_was_used_stays(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)})
        reservation = await desk.ledger.reserve(ADA, 100, 0)
        desk.limits[ADA] = Limits(daily_tokens=200)
        with pytest.raises(BudgetExceeded):
            await desk.ledger.check(ADA)
        desk.ledger.forget(ADA)
        await desk.ledger.check(ADA)
        reservation.settle(100, 0)
        desk.limits[ADA] = Limits(daily_tokens=50)
        desk.ledger.forget(ADA)
        with pytest.raises(BudgetExceeded, match="100 of 50"):
            await desk.ledger.check(ADA)
        assert len(desk.loads) == 4


class TestWarnings:
    """80 %, once for each limit and period."""

    async def test_once_and_again_the_next_day(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=1000)})
        await desk.spend(ADA, 799)
        assert desk.warnings == []
        await desk.spend(ADA, 1)
        await desk.spend(ADA, 100)
        (warning,) = desk.warnings
        assert warning == BudgetWarning(
            owner=ADA, period="day", unit="tokens", used=800, limit=1000, resets_at_ms=NOON + DAY // 2
        )
        assert warning.words(UTC) == (
            "You have used 800 of 1,000 tokens for today; it starts again on Sun 22 Nov, 00:00."
        )
        desk.now_ms += DAY
        await desk.spend(ADA, 5000)  # past 80 and 100 at once
        assert [(item.used, item.limit) for item in desk.warnings] == [(800, 1000), (5000, 1000)]

    async def test_for_each_limit_and_for_the_house(self) -> None:
        everything = Limits(daily_tokens=10, monthly_tokens=11, daily_microusd=10, monthly_microusd=12)
        desk = Desk({ADA: everything}, house=replace(everything, daily_tokens=None))
        await desk.spend(ADA, 9, 10)
        assert [(item.whose, item.period, item.unit) for item in desk.warnings] == [
            ("you", "day", "tokens"),
            ("you", "day", "money"),
            ("you", "month", "tokens"),
            ("you", "month", "money"),
            ("house", "day", "money"),
            ("house", "month", "tokens"),
            ("house", "month", "money"),
        ]
        assert desk.warnings[-1].owner is None
        assert desk.warnings[-1].words(UTC).startswith("All people of this house together have used $0.00001 of $0")

    async def test_not_again_after_a_restart_but_for_a_new_limit(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)}, rows=[(ADA, NOON, Spent(85))])
        await desk.spend(ADA, 1)
        assert desk.warnings == []
        desk.limits[ADA] = Limits(daily_tokens=90)
        desk.ledger.forget(ADA)
        await desk.spend(ADA, 1)
        assert [item.limit for item in desk.warnings] == [90]

    async def test_a_limit_of_nothing_warns_of_nothing(self) -> None:
        desk = Desk()
        reservation = await desk.ledger.reserve(ADA, 10, 0)
        desk.limits[ADA] = Limits(daily_tokens=0)
        desk.ledger.forget(ADA)
        with pytest.raises(BudgetExceeded):
            await desk.ledger.check(ADA)
        reservation.settle(10, 0)
        assert desk.warnings == []


class TestLoading:
    """What was used is read before anything is granted, once."""

    async def test_two_first_reservations_read_once(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)}, rows=[(ADA, NOON, Spent(90))], reading=asyncio.Event())
        assert desk.reading is not None
        async with asyncio.TaskGroup() as group:
            first, second = (group.create_task(desk.ledger.reserve(ADA, 5, 0)) for _ in range(2))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not first.done() and not second.done()
            desk.reading.set()
        assert len(desk.loads) == 4  # day and month, of the person and of the house
        assert (await desk.ledger.status(ADA)).day.reserved == Spent(10)

    async def test_what_was_used_before_the_start_counts(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)}, rows=[(ADA, NOON - DAY, Spent(10)), (ADA, NOON, Spent(100))])
        with pytest.raises(BudgetExceeded, match="100 of 100"):
            await desk.ledger.reserve(ADA, 1, 0)
        assert (await desk.ledger.status(ADA)).month.used == Spent(110)

    async def test_when_the_first_is_cancelled_or_fails_the_second_reads(self) -> None:
        desk = Desk(reading=asyncio.Event())
        assert desk.reading is not None
        async with asyncio.TaskGroup() as group:
            first, second = (group.create_task(desk.ledger.reserve(ADA, 5, 0)) for _ in range(2))
            for _ in range(5):
                await asyncio.sleep(0)
            first.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            desk.reading.set()
        assert first.cancelled()
        assert second.result().owner == ADA
        failing = Desk(failures=1)
        results = await asyncio.gather(*(failing.ledger.reserve(ADA, 5, 0) for _ in range(2)), return_exceptions=True)
        assert [type(result) for result in results] == [OSError, Reservation]

    async def test_a_change_while_limits_are_read_is_not_missed(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)}, reading=asyncio.Event())
        assert desk.reading is not None
        async with asyncio.TaskGroup() as group:
            check = group.create_task(desk.ledger.status(ADA))
            for _ in range(5):
                await asyncio.sleep(0)
            desk.limits[ADA] = Limits(daily_tokens=0)
            desk.ledger.forget(ADA)
            desk.reading.set()
        assert check.result().day.limit_tokens == 0

    async def test_limits_that_cannot_be_read_are_read_again(self) -> None:
        desk = Desk({ADA: Limits(daily_tokens=100)})
        await desk.spend(ADA, 100)
        working, desk.ledger._limits = desk.ledger._limits, _nobody
        desk.ledger.forget(ADA)
        for _ in range(2):
            with pytest.raises(LookupError):
                await desk.ledger.check(ADA)
        desk.ledger._limits = working
        with pytest.raises(BudgetExceeded):
            await desk.ledger.check(ADA)


async def _nobody(owner: UserId) -> PersonLimits:
    raise LookupError(owner)


AMOUNT = st.integers(0, 120)
STEP = st.one_of(
    st.tuples(st.just("reserve"), st.sampled_from((ADA, BEN)), AMOUNT, AMOUNT),
    st.tuples(st.just("settle"), st.integers(0, 5), AMOUNT, AMOUNT),
    st.tuples(st.just("release"), st.integers(0, 5), st.just(0), st.just(0)),
    st.tuples(st.just("clock"), st.integers(1, 40), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0), st.just(0)),
)
LIMIT = st.none() | st.integers(0, 400)
LIMITS = st.builds(Limits, daily_tokens=LIMIT, monthly_tokens=LIMIT, daily_microusd=LIMIT, monthly_microusd=LIMIT)


@settings(max_examples=150)
@given(steps=st.lists(STEP, max_size=60), ada=LIMITS, house=LIMITS, zone=st.sampled_from(["UTC", "Asia/Tokyo"]))
def test_against_a_simple_model(
    steps: list[tuple[str, UserId | int, int, int]], ada: Limits, house: Limits, zone: str
) -> None:
    """SK-124: a call is granted exactly while a sum over all that happened since midnight is below every limit."""
    asyncio.run(_play(steps, ada, house, ZoneInfo(zone)))


async def _play(steps: list[tuple[str, UserId | int, int, int]], ada: Limits, house: Limits, zone: tzinfo) -> None:
    desk = Desk({ADA: ada}, house, {ADA: zone})
    opened: list[tuple[Reservation, Spent]] = []

    def exceeds() -> bool:
        for owner, limits, where in (
            (who, ada if who == ADA else NO_LIMITS, zone if who == ADA else UTC),
            (None, house, UTC),
        ):
            local = datetime.fromtimestamp(desk.now_ms / 1000, where)
            midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
            for first, tokens, microusd in (
                (midnight, limits.daily_tokens, limits.daily_microusd),
                (midnight.replace(day=1), limits.monthly_tokens, limits.monthly_microusd),
            ):
                since = first.timestamp() * 1000
                parts = [spent for user, at_ms, spent in desk.rows if owner in (None, user) and at_ms >= since]
                parts += [estimate for item, estimate in opened if owner in (None, item.owner)]
                total: dict[str, int] = defaultdict(int)
                for part in parts:
                    total["tokens"] += part.tokens
                    total["microusd"] += part.microusd
                if tokens is not None and total["tokens"] >= tokens:
                    return True
                if microusd is not None and total["microusd"] >= microusd:
                    return True
        return False

    for word, number, tokens, microusd in steps:
        if word == "reserve":
            who = UserId(str(number))
            try:
                opened.append((await desk.ledger.reserve(who, tokens, microusd), Spent(tokens, microusd)))
            except BudgetExceeded:
                assert exceeds()
            else:
                estimate = opened.pop()
                assert not exceeds()
                opened.append(estimate)
        elif word == "clock":
            desk.now_ms += int(number) * HOUR
        elif word == "restart" and not opened:
            desk = replace(desk, loads=[], warnings=[])
        elif word in ("settle", "release") and int(number) < len(opened):
            reservation, _ = opened.pop(int(number))
            if word == "settle":
                desk.rows.append((reservation.owner, desk.now_ms, Spent(tokens, microusd)))
                reservation.settle(tokens, microusd)
            else:
                reservation.release()
    told = [(item.owner, item.period, item.unit, item.resets_at_ms) for item in desk.warnings]
    assert len(told) == len(set(told))
