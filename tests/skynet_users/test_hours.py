"""Hours by the wall clock, with clocks that are put forward and back."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_users.hours import WEEKDAYS, Hours, InvalidHours, UnknownZone, hours_of, zone_of

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = 13  # of July 2026


def at(day: int, time: str, zone: ZoneInfo = BERLIN) -> datetime:
    hour, minute = time.split(":")
    return datetime(2026, 7, day, int(hour), int(minute), tzinfo=zone)


@pytest.mark.parametrize(
    ("text", "day", "time", "allowed"),
    [
        ("", MONDAY, "03:00", True),
        ("07:00-20:00", MONDAY, "07:00", True),
        ("07:00-20:00", MONDAY, "06:59", False),
        ("07:00-20:00", MONDAY, "19:59", True),
        ("07:00-20:00", MONDAY, "20:00", False),
        ("7:00 - 20:00", MONDAY, "08:00", True),
        ("mo-fr 07:00-20:00, sa,su 08:00-21:00", MONDAY, "07:30", True),
        ("mo-fr 07:00-20:00, sa,su 08:00-21:00", MONDAY + 5, "07:30", False),
        ("mo-fr 07:00-20:00, sa,su 08:00-21:00", MONDAY + 6, "20:30", True),
        ("MO-FR 07:00-20:00", MONDAY + 4, "20:00", False),
        ("mo we fr 07:00-20:00", MONDAY + 1, "12:00", False),
        ("mo we fr 07:00-20:00", MONDAY + 2, "12:00", True),
        ("sa-mo 10:00-11:00", MONDAY, "10:30", True),
        ("sa-mo 10:00-11:00", MONDAY + 1, "10:30", False),
        ("mo 07:00-12:00, 14:00-18:00", MONDAY, "13:00", False),
        ("mo 07:00-12:00, 14:00-18:00", MONDAY, "14:00", True),
        ("mo 07:00-12:00, 14:00-18:00", MONDAY + 1, "15:00", False),
        ("22:00-07:00", MONDAY, "23:00", True),
        ("22:00-07:00", MONDAY, "06:59", True),
        ("22:00-07:00", MONDAY, "07:00", False),
        ("mo 22:00-02:00", MONDAY + 1, "01:59", True),
        ("mo 22:00-02:00", MONDAY, "01:59", False),
        ("su 22:00-02:00", MONDAY, "01:59", True),
        ("00:00-24:00", MONDAY, "23:59", True),
        ("mo 18:00-24:00", MONDAY + 1, "00:00", False),
        ("mo 18:00-00:00", MONDAY, "23:59", True),
        ("mo 10:00-09:00", MONDAY + 1, "08:59", True),
    ],
)
def test_a_time_is_within_hours_or_not(text: str, day: int, time: str, allowed: bool) -> None:
    assert Hours.parse(text).allows(at(day, time)) is allowed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mo", "no times after 'mo'"),
        ("mo-fr 07:00-20:00, sa", "no times after 'sa'"),
        ("funday 07:00-20:00", "unknown day or time 'funday'"),
        ("mo-xx 07:00-20:00", "unknown day or time 'xx'"),
        ("mo- 07:00-20:00", "unknown day or time ''"),
        ("07:00", "unknown day or time '07:00'"),
        ("07:00-25:00", "no such time of day: 25:00"),
        ("07:60-08:00", "no such time of day: 7:60"),
        ("24:01-08:00", "no such time of day: 24:01"),
        ("07:00-07:00", "whole day is 00:00-24:00"),
        ("24:00-07:00", "whole day is 00:00-24:00"),
        ("07:00-08:00 mo", "unexpected 'mo' after '07:00-08:00'"),
        ("07:00-08:00,,mo 09:00-10:00", "nothing between two commas"),
        (",", "nothing between two commas"),
        ("mo 07:00-08:00 " * 100, "limit is 400"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(InvalidHours, match=said):
        Hours.parse(text)


@pytest.mark.parametrize(
    ("text", "day", "time", "opens"),
    [
        ("07:00-20:00", MONDAY, "12:00", at(MONDAY, "12:00")),
        ("07:00-20:00", MONDAY, "05:10", at(MONDAY, "07:00")),
        ("07:00-20:00", MONDAY, "20:00", at(MONDAY + 1, "07:00")),
        ("mo 07:03-07:04", MONDAY, "07:04", at(MONDAY + 7, "07:03")),
        ("sa,su 08:00-21:00", MONDAY, "12:00", at(MONDAY + 5, "08:00")),
        ("22:00-07:00", MONDAY, "07:00", at(MONDAY, "22:00")),
    ],
)
def test_the_next_opening(text: str, day: int, time: str, opens: datetime) -> None:
    assert Hours.parse(text).next_open(at(day, time)) == opens


def test_hours_that_do_not_exist_open_when_the_clock_is_put_forward() -> None:
    """29 March 2026: 02:00 is 03:00."""
    hours = Hours.parse("02:30-05:00")
    opens = hours.next_open(datetime(2026, 3, 29, 1, 50, tzinfo=BERLIN))
    assert opens.replace(tzinfo=None) == datetime(2026, 3, 29, 3, 0)  # noqa: DTZ001
    weekly = Hours.parse("su 02:15-02:45")
    opens = weekly.next_open(datetime(2026, 3, 22, 2, 45, tzinfo=BERLIN))
    assert opens.replace(tzinfo=None) == datetime(2026, 4, 5, 2, 15)  # noqa: DTZ001
    skipped = Hours.parse("02:15-02:45")
    opens = skipped.next_open(datetime(2026, 3, 29, 1, 50, tzinfo=BERLIN))
    assert opens.replace(tzinfo=None) == datetime(2026, 3, 30, 2, 15)  # noqa: DTZ001


def test_the_hour_that_comes_twice_is_allowed_twice() -> None:
    """25 October 2026: 03:00 is 02:00 again."""
    hours = Hours.parse("00:00-02:30")
    opens = hours.next_open(datetime(2026, 10, 25, 2, 45, tzinfo=BERLIN))
    assert opens.astimezone(UTC) == datetime(2026, 10, 25, 1, 0, tzinfo=UTC)
    assert (opens.hour, opens.fold) == (2, 1)


def test_the_next_opening_needs_a_zone() -> None:
    with pytest.raises(ValueError, match="zone"):
        Hours.parse("07:00-08:00").next_open(datetime(2026, 7, 13, 12, 0))  # noqa: DTZ001


@given(st.text(alphabet="motuwehfrsa0123456789:-,; \n٣é", max_size=60))
def test_any_text_is_hours_or_refused(text: str) -> None:
    try:
        hours = hours_of(text)
    except InvalidHours as refused:
        assert str(refused)
    else:
        assert hours.allows(hours.next_open(at(MONDAY, "12:34")))


spans = st.builds(
    lambda day, start, end: f"{WEEKDAYS[day]} {start // 60}:{start % 60:02}-{end // 60}:{end % 60:02}",
    st.integers(0, 6),
    st.integers(0, 1439),
    st.integers(0, 1439),
).filter(lambda text: text.split()[1].split("-")[0] != text.split("-")[1])


@given(
    st.lists(spans, min_size=1, max_size=3),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu"]),
)
def test_the_next_opening_is_open_and_nothing_before_it_is(texts: list[str], moment: datetime, zone: str) -> None:
    hours = Hours.parse(", ".join(texts))
    now = moment.replace(tzinfo=UTC, second=0, microsecond=0).astimezone(ZoneInfo(zone))
    opens = hours.next_open(now)
    assert opens >= now
    assert hours.allows(opens)
    if opens.astimezone(UTC) != now.astimezone(UTC):
        for minutes in (1, 2, 14, 59, 61):
            before = opens.astimezone(UTC) - timedelta(minutes=minutes)
            assert before < now.astimezone(UTC) or not hours.allows(before.astimezone(ZoneInfo(zone)))


def test_a_zone_is_named_or_the_default() -> None:
    assert zone_of("Europe/Berlin", "UTC").key == "Europe/Berlin"
    assert zone_of("", "America/New_York").key == "America/New_York"
    assert zone_of("").key == "UTC"


@pytest.mark.parametrize("name", ["Mars/Base", "Europe", "../../etc/passwd", "/etc/passwd", "x" * 300, "a\0b", " "])
def test_an_unknown_zone_is_named(name: str) -> None:
    with pytest.raises(UnknownZone, match="unknown time zone"):
        zone_of(name)
