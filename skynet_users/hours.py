# ruff: noqa: N818 - the names say what is wrong, as "except UnknownZone" should read
"""When something is allowed: spans of the week by the wall clock, ``"mo-fr 07:00-20:00, sa,su 08:00-21:00"``."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Self
from zoneinfo import ZoneInfo

WEEKDAYS = ("mo", "tu", "we", "th", "fr", "sa", "su")
EVERY_DAY = tuple(range(7))
DAY_MINUTES = 24 * 60
MAX_TEXT_CHARS = 400
ZONE_STEP_MINUTES = 15
"""Clocks are put forward and back by multiples of this, and at such times."""
_TIMES = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})")


class InvalidHours(ValueError):
    """A text that names no hours; ``str()`` says which part is wrong and what was expected."""


class UnknownZone(ValueError):
    """No time zone of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown time zone: {name[:64]!r}; wanted a name such as Europe/Berlin")
        self.name = name


@dataclass(frozen=True, slots=True)
class Span:
    """From ``start`` to before ``end``, minutes since midnight of ``weekday`` (0 is Monday). ``end`` is up to two days'
    minutes: past 1440 it is on the day after."""

    weekday: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hours:
    """Spans of the week. No span means always.

    Everything goes by the wall clock of the given time: where clocks are put forward, hours that do not exist are
    skipped; where they are put back, the hour that comes twice is allowed twice.
    """

    spans: tuple[Span, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"22:00-07:00"``, ``"mo-fr 07:00-12:00, 14:00-20:00; sa,su 08:00-21:00"``.

        Days stand before their times; times without days are for the days named last, or for every day. A span whose
        end is not after its start ends on the next day. ``24:00`` is the end of the day. An empty text means always.

        Raises:
            InvalidHours: anything else.
        """
        if len(text) > MAX_TEXT_CHARS:
            raise InvalidHours(f"hours are {len(text)} characters, limit is {MAX_TEXT_CHARS}")
        if not text.strip():
            return cls()
        spans: list[Span] = []
        days: tuple[int, ...] = EVERY_DAY
        waiting: list[int] = []
        for item in (part.strip().casefold() for part in re.split(r"[,;]", text)):
            if not item:
                raise InvalidHours(f"nothing between two commas in {text!r}")
            times = _TIMES.search(item)
            named = item[: times.start()].strip() if times else item
            if named:
                waiting.extend(_days(named))
            if times is None:
                continue
            if times.end() != len(item):
                raise InvalidHours(f"unexpected {item[times.end() :].strip()!r} after {times.group()!r}")
            days, waiting = (tuple(waiting), []) if waiting else (days, [])
            start, end = _minutes(times)
            spans.extend(Span(day, start, end) for day in days)
        if waiting:
            raise InvalidHours(f"no times after {WEEKDAYS[waiting[-1]]!r}; wanted 'mo-fr 07:00-20:00'")
        return cls(tuple(sorted(set(spans), key=lambda span: (span.weekday, span.start, span.end))))

    def allows(self, now: datetime) -> bool:
        """Whether ``now``, a local time, is within a span."""
        if not self.spans:
            return True
        weekday, minute = now.weekday(), now.hour * 60 + now.minute
        yesterday = (weekday - 1) % 7
        return any(
            span.start <= minute < span.end
            if span.weekday == weekday
            else span.weekday == yesterday and minute < span.end - DAY_MINUTES
            for span in self.spans
        )

    def next_open(self, now: datetime) -> datetime:
        """The first moment that is allowed, in the zone of ``now``: ``now`` itself if it is.

        Raises:
            ValueError: ``now`` has no time zone, so nobody can say when a clock is put forward.
        """
        if now.tzinfo is None:
            raise ValueError("next_open needs a time with a zone")
        if self.allows(now):
            return now
        edges = (edge for span in self.spans for edge in (span.start, span.end))
        step = timedelta(minutes=math.gcd(ZONE_STEP_MINUTES, *edges))
        moment = now.astimezone(UTC)
        moment -= (moment - datetime(1970, 1, 1, tzinfo=UTC)) % step
        for _ in range(timedelta(days=16) // step):
            moment += step
            local = moment.astimezone(now.tzinfo)
            if self.allows(local):
                return local
        # The clock is put forward once in a year: what is skipped this week is there in the next.
        raise AssertionError(f"never open: {self.spans}")


@lru_cache(maxsize=256)
def hours_of(text: str) -> Hours:
    """As :meth:`Hours.parse`; the same text is read once."""
    return Hours.parse(text)


def zone_of(name: str, default: str = "UTC") -> ZoneInfo:
    """The time zone called ``name``; the one called ``default`` if that is empty.

    Raises:
        UnknownZone: there is none of that name.
    """
    wanted = name or default
    try:
        return ZoneInfo(wanted)
    # A name may be a directory of the database, a path out of it, or too long for a file.
    except (LookupError, ValueError, OSError) as exc:
        raise UnknownZone(wanted) from exc


def _days(text: str) -> list[int]:
    days: list[int] = []
    for word in text.split():
        first, dash, last = word.partition("-")
        start, end = _day(first), _day(last) if dash else _day(first)
        days.extend((start + offset) % 7 for offset in range((end - start) % 7 + 1))
    return days


def _day(word: str) -> int:
    if word not in WEEKDAYS:
        raise InvalidHours(f"unknown day or time {word!r}; wanted {', '.join(WEEKDAYS)} or 07:00-20:00")
    return WEEKDAYS.index(word)


def _minutes(times: re.Match[str]) -> tuple[int, int]:
    values = [int(number) for number in times.groups()]
    for hour, minute in (values[:2], values[2:]):
        if minute > 59 or hour * 60 + minute > DAY_MINUTES:
            raise InvalidHours(f"no such time of day: {hour}:{minute:02} in {times.group()!r}")
    start, end = values[0] * 60 + values[1], values[2] * 60 + values[3]
    if start in (end, DAY_MINUTES):
        raise InvalidHours(f"{times.group()!r} is empty; the whole day is 00:00-24:00")
    return start, end if end > start else end + DAY_MINUTES
