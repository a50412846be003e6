"""Days and months where people live."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skynet_users.periods import PERIODS, Period, PeriodName, period_of, when

ZONES = sorted(available_timezones())
HOUR = 3_600_000


def at(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


@pytest.mark.parametrize(
    ("name", "now", "zone", "starts", "ends"),
    [
        ("day", "2026-11-21T12:00", "UTC", "2026-11-21T00:00", "2026-11-22T00:00"),
        ("day", "2026-11-21T00:00", "UTC", "2026-11-21T00:00", "2026-11-22T00:00"),
        ("day", "2026-11-21T23:59:59", "Europe/Zurich", "2026-11-21T00:00", "2026-11-22T00:00"),
        ("month", "2026-11-30T23:59:59", "Asia/Tokyo", "2026-11-01T00:00", "2026-12-01T00:00"),
        ("month", "2026-12-31T12:00", "America/New_York", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "2028-02-29T12:00", "UTC", "2028-02-01T00:00", "2028-03-01T00:00"),
    ],
)
def test_periods(name: PeriodName, now: str, zone: str, starts: str, ends: str) -> None:
    assert period_of(name, at(now, zone), ZoneInfo(zone)) == Period(at(starts, zone), at(ends, zone))


@pytest.mark.parametrize(
    ("zone", "noon", "hours"),
    [
        ("Europe/Zurich", "2026-03-29T12:00", 23),
        ("Europe/Zurich", "2026-10-25T12:00", 25),
        ("America/Sao_Paulo", "2018-11-04T12:00", 23),  # there was no midnight: it went from 00:00 to 01:00
        ("America/Havana", "2026-11-01T12:00", 25),  # midnight comes twice
        ("Pacific/Apia", "2011-12-29T12:00", 24),  # the 30th never came
    ],
)
def test_days_on_which_clocks_are_changed(zone: str, noon: str, hours: int) -> None:
    day = period_of("day", at(noon, zone), ZoneInfo(zone))
    assert day.ends_ms - day.starts_ms == hours * HOUR
    assert period_of("day", day.ends_ms, ZoneInfo(zone)).starts_ms == day.ends_ms


@given(
    name=st.sampled_from(PERIODS),
    zone=st.sampled_from(ZONES),
    now_s=st.integers(0, 4_000_000_000),
)
@example(name="day", zone="America/St_Johns", now_s=1162697500)  # 2006-11-05, 00:01 was 23:01 again
def test_now_is_always_in_its_period_and_the_next_one_follows(name: PeriodName, zone: str, now_s: int) -> None:
    """SK-124: whatever a zone does to its clocks, nobody has two budgets at once, or none."""
    info = ZoneInfo(zone)
    period = period_of(name, now_s * 1000, info)
    assert now_s * 1000 in period
    following = period_of(name, period.ends_ms, info)
    assert following.starts_ms <= period.ends_ms < following.ends_ms
    longest = 26 * HOUR if name == "day" else 32 * 24 * HOUR
    assert period.ends_ms - period.starts_ms <= max(longest, 48 * HOUR)


def test_words() -> None:
    assert when(at("2026-11-22T00:00"), UTC) == "Sun 22 Nov, 00:00"
    assert when(at("2026-11-22T00:00"), ZoneInfo("Asia/Kolkata")) == "Sun 22 Nov, 05:30"
