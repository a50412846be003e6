"""Days and months as people count them: from midnight to midnight where they live, whatever their clocks do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal

PeriodName = Literal["day", "month"]
PERIODS: tuple[PeriodName, ...] = ("day", "month")

_SHORTEST_MS: dict[PeriodName, int] = {"day": 20 * 3_600_000, "month": 27 * 86_400_000}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Period:
    """``starts_ms`` is in it, ``ends_ms`` is the start of the next."""

    starts_ms: int
    ends_ms: int

    def __contains__(self, at_ms: int) -> bool:
        return self.starts_ms <= at_ms < self.ends_ms


def period_of(name: PeriodName, at_ms: int, zone: tzinfo) -> Period:
    """The day or month that ``at_ms`` is in. A day has 23 or 25 hours where the clocks are changed."""
    today = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone).date()
    first = today if name == "day" else today.replace(day=1)
    starts_ms, ends_ms = _midnight(first, zone), _midnight(_after(name, first), zone)
    if ends_ms <= at_ms:  # clocks put back over midnight: the day that had begun goes on
        first = _after(name, first)
        starts_ms, ends_ms = ends_ms, _midnight(_after(name, first), zone)
    return Period(starts_ms, ends_ms)


def following(name: PeriodName, last: Period, at_ms: int, zone: tzinfo) -> Period:
    """The period that ``at_ms`` is in, after ``last``, which was perhaps one of another zone.

    Where the two overlap, because somebody has moved, it begins where ``last`` ended; what is left of it is then
    joined to the next one, if it is much shorter than usual: moving makes no more days than staying.
    """
    period = period_of(name, at_ms, zone)
    if period.starts_ms >= last.ends_ms:
        return period
    ends_ms = period.ends_ms
    if ends_ms - last.ends_ms < _SHORTEST_MS[name]:
        ends_ms = period_of(name, ends_ms, zone).ends_ms
    return Period(last.ends_ms, ends_ms)


def when(at_ms: int, zone: tzinfo) -> str:
    """A time in words: ``Sun 22 Nov, 00:00``. Never in the words of the process's locale."""
    local = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone)
    return f"{_DAYS[local.weekday()]} {local.day} {_MONTHS[local.month - 1]}, {local:%H:%M}"


def _after(name: PeriodName, first: date) -> date:
    if name == "day":
        return first + timedelta(days=1)
    return (first + timedelta(days=31)).replace(day=1)


def _midnight(day: date, zone: tzinfo) -> int:
    """The first one, where the clocks are put back over it; where they are put forward, the moment of that."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1000
