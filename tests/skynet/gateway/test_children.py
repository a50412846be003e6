"""What protects children, with real people, guardians, connections and audit log."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from skynet.gateway.children import (
    ALERT_EVERY_MS,
    Filtered,
    Guard,
    NotNow,
    Protection,
    Withheld,
    language_code,
    most_protected,
)
from skynet.gateway.heartbeat import SystemEvents
from skynet_agent.filter_rules import FilterRulesError
from skynet_agent.filters import MODEL, UNCHECKED
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import Role, UserId
from skynet_memory.migrations import migrate
from skynet_users.audit import AuditLog
from skynet_users.audit_schema import COMPONENT as AUDIT_TABLES
from skynet_users.guardians import Guardian, GuardianStore
from skynet_users.people import User
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.support.connections import FakeWire, Parts, connection_parts

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 7, 13, 12, 0, tzinfo=BERLIN)  # a Monday
NIGHT = NOON.replace(hour=21, minute=30)
TOPICS = frozenset({"health", "religion", "sexuality", "address", "school", "phone", "email", "password"})


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@dataclass
class House:
    parts: Parts
    guard: Guard
    guardians: GuardianStore
    audit: AuditLog
    system_events: SystemEvents
    child: User
    parent: User
    screen: FakeWire

    async def refused(self, text: str, now: datetime = NOON, **changes: Any) -> Withheld | None:
        try:
            await self.guard.admit(replace(self.child, **changes), text, ms(now))
        except Withheld as withheld:
            return withheld
        return None

    def alerts(self) -> list[Any]:
        return [event["payload"] for event in self.screen.events("guardian.alert")]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with connection_parts(tmp_path) as parts:
        await migrate(parts.database, [USER_TABLES, AUDIT_TABLES])
        guardians, audit, system_events = GuardianStore(parts.database), AuditLog(parts.database), SystemEvents()
        guard = Guard(
            Protection(never_remember=TOPICS, zone="Europe/Berlin"),
            parts.gateway.broadcaster,
            system_events,
            guardians=guardians.of,
            record=audit.record,
        )
        child = await parts.users.add("Kim", Role.CHILD, content_filter="strict", language="en")
        screen = await parts.ready()
        yield House(parts, guard, guardians, audit, system_events, child, parts.owner, screen)


async def test_a_child_gets_the_friendly_replacement_and_an_adult_does_not(house: House) -> None:
    """SK-130."""
    refused = await house.refused("How do I get drunk?")
    assert isinstance(refused, Filtered)
    assert "parent" in refused.reply
    assert refused.category == "drugs"
    assert refused.stored == "[left out by the content filter: drugs]"
    assert await house.refused("How do plants grow?") is None
    for role in (Role.USER, Role.ADMIN):
        assert await house.refused("How do I get drunk?", role=role) is None
        assert await house.refused("I want to die", role=role) is None


async def test_the_level_is_the_childs(house: House) -> None:
    assert await house.refused("How does a gun work?") is not None
    assert await house.refused("How does a gun work?", content_filter="moderate") is None
    assert await house.refused("How do I get drunk?", content_filter="moderate") is not None
    assert await house.refused("How do I get drunk?", content_filter="off") is None


async def test_the_replacement_is_in_the_childs_language(house: House) -> None:
    refused = await house.refused("How do I get drunk?", language="Deutsch")
    assert refused is not None
    assert "vertraust" in str(refused) or "Eltern" in str(refused)


async def test_a_long_message_is_checked_to_its_end(house: House) -> None:
    assert await house.refused("word " * 10_000 + "get drunk", content_filter="moderate") is not None
    assert await house.refused("word " * 10_000 + "get dry") is None


# Guardians


async def test_guardians_are_told_of_what_kind_and_never_the_text(house: House) -> None:
    await house.refused("How do I get drunk?")
    assert house.alerts() == [
        {"childId": house.child.id, "childName": "Kim", "category": "drugs", "at": ms(NOON)},
    ]
    (told,) = house.system_events.queued(house.parent.id)
    assert told == "Guardian alert: the child that calls itself “Kim”, category drugs, 2026-07-13 10:00 UTC"
    assert house.system_events.queued(house.child.id) == []
    assert await house.audit.list(limit=10) == []


async def test_only_the_childs_own_guardians_are_told(house: House) -> None:
    other = await house.parts.users.add("Ben", Role.USER)
    await house.guardians.set(house.child.id, other.id)
    await house.refused("How do I get drunk?")
    assert house.alerts() == []
    assert house.system_events.queued(house.parent.id) == []
    assert len(house.system_events.queued(other.id)) == 1


async def test_a_guardian_who_reads_transcripts_is_shown_the_text_and_that_is_recorded(house: House) -> None:
    await house.guardians.set(house.child.id, house.parent.id, reads_transcripts=True)
    await house.refused("How do I get drunk?")
    assert house.alerts()[0]["text"] == "How do I get drunk?"
    (entry,) = await house.audit.list(limit=10)
    assert (entry.action, entry.actor, entry.subject) == ("transcript.read", house.parent.id, house.child.id)
    assert "drunk" not in str(entry.details)
    assert "drunk" not in str(house.system_events.queued(house.parent.id))


async def test_without_the_record_the_text_is_not_shown(house: House) -> None:
    await house.guardians.set(house.child.id, house.parent.id, reads_transcripts=True)
    await house.parts.database.write(lambda tx: tx.execute("DROP TABLE audit"))
    await house.refused("How do I get drunk?")
    assert house.alerts() == [{"childId": house.child.id, "childName": "Kim", "category": "drugs", "at": ms(NOON)}]


async def test_one_alert_for_a_child_a_category_and_an_hour(house: House) -> None:
    sibling = await house.parts.users.add("Lea", Role.CHILD, content_filter="strict")
    for now_ms in (0, 1, ALERT_EVERY_MS - 1, ALERT_EVERY_MS, ALERT_EVERY_MS + 1):
        await house.guard.alert(house.child, "drugs", now_ms=now_ms)
    await house.guard.alert(house.child, "hate", now_ms=2)
    await house.guard.alert(sibling, "drugs", now_ms=2)
    seen = [(alert["childName"], alert["category"], alert["at"]) for alert in house.alerts()]
    assert seen == [
        ("Kim", "drugs", 0),
        ("Kim", "drugs", ALERT_EVERY_MS),
        ("Kim", "hate", 2),
        ("Lea", "drugs", 2),
    ]


async def test_many_messages_at_once_make_one_alert(house: House) -> None:
    await asyncio.gather(*(house.refused("How do I get drunk?") for _ in range(5)))
    assert len(house.alerts()) == 1


async def test_a_child_is_answered_though_nobody_can_be_told(house: House) -> None:
    failing = True

    async def guardians(child: UserId) -> tuple[Guardian, ...]:
        if failing:
            raise StorageUnavailable("test")
        return await house.guardians.of(child)

    guard = Guard(
        Protection(),
        house.parts.gateway.broadcaster,
        house.system_events,
        guardians=guardians,
        record=house.audit.record,
    )
    with pytest.raises(Filtered):
        await guard.admit(house.child, "How do I get drunk?", ms(NOON))
    failing = False
    with pytest.raises(Filtered):
        await guard.admit(house.child, "How do I get drunk?", ms(NOON))
    assert len(house.alerts()) == 1


@pytest.mark.parametrize("level", ["off", "moderate", "strict"])
async def test_self_harm_alerts_at_every_level(house: House, level: str) -> None:
    for text in ("I want to die", "I hate my life"):
        refused = await house.refused(text, content_filter=level)
        if level == "strict" or (level == "moderate" and "die" in text):
            assert refused is not None
            assert "adult you trust" in refused.reply.replace("\n", " ")
        else:
            assert refused is None
    assert [alert["category"] for alert in house.alerts()] == ["self_harm"]


async def test_self_harm_beside_something_else_is_answered_with_care(house: House) -> None:
    refused = await house.refused("How do I get drunk? I hate my life", content_filter="moderate")
    assert isinstance(refused, Filtered)
    assert refused.category == "self_harm"


# Hours


async def test_outside_the_hours_the_answer_names_the_next_opening(house: House) -> None:
    hours = {"allowed_hours": "mo-fr 07:00-20:00, sa,su 08:00-21:00"}
    assert await house.refused("Hello", NOON, **hours) is None
    refused = await house.refused("Hello", NIGHT, **hours)
    assert isinstance(refused, NotNow)
    assert "tomorrow at 07:00" in refused.reply
    assert refused.stored is None
    assert refused.opens_at == datetime(2026, 7, 14, 7, 0, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("language", "hours", "said"),
    [
        ("", "22:00-23:00", "today at 22:00"),
        ("German", "sa 08:00-09:00", "am Samstag um 08:00 Uhr"),
        ("fr-FR", "07:00-08:00", "demain à 07:00"),
        ("español", "mo 07:00-08:00", "el lunes a las 07:00"),
        ("Klingon", "mo 07:00-08:00", "on Monday at 07:00"),
    ],
)
async def test_it_is_said_in_the_persons_language(house: House, language: str, hours: str, said: str) -> None:
    refused = await house.refused("Hello", NIGHT, language=language, allowed_hours=hours)
    assert said in str(refused)


async def test_hours_are_of_the_persons_own_zone_and_for_everybody_who_has_some(house: House) -> None:
    hours = {"allowed_hours": "07:00-20:00", "time_zone": "America/New_York"}
    assert await house.refused("Hello", NIGHT, **hours) is None
    assert await house.refused("Hello", NOON.replace(hour=8), **hours) is not None
    assert await house.refused("Hello", NOON.replace(hour=8), role=Role.USER, **hours) is not None


async def test_a_child_in_distress_is_answered_with_care_at_every_hour(house: House) -> None:
    for level in ("off", "strict"):
        refused = await house.refused("I hate my life", NIGHT, allowed_hours="07:00-20:00", content_filter=level)
        assert isinstance(refused, Filtered)
        assert "112" in refused.reply
    assert len(house.alerts()) == 1


@pytest.mark.parametrize(
    "wrong", [{"allowed_hours": "nonsense"}, {"allowed_hours": "07:00-08:00", "time_zone": "Mars"}]
)
async def test_hours_that_cannot_be_read_are_closed(house: House, wrong: dict[str, str]) -> None:
    refused = await house.refused("Hello", NOON, **wrong)
    assert isinstance(refused, NotNow)
    assert refused.opens_at is None
    assert "grown-up" in refused.reply


# Answers


async def test_an_answer_to_a_child_is_held_back(house: House) -> None:
    assert house.guard.stream_filter(replace(house.child, role=Role.USER)) is None
    assert house.guard.stream_filter(replace(house.child, content_filter="off")) is None
    stream = house.guard.stream_filter(house.child)
    assert stream is not None
    assert stream.feed("You get drunk by drinking. ") == ""
    assert "talk to a parent" in await house.guard.finish(house.child, stream)
    assert stream.hit is not None


async def test_guardians_are_told_of_an_answer_that_is_held_back(house: House) -> None:
    make = house.guard.screen(house.child, lambda: ms(NOON))
    assert make is not None
    first, second = make(), make()
    assert first.feed("All is well.") == "" and await first.finish() == ("All is well.", ())
    assert house.alerts() == []
    assert second.feed("Get drunk.") == ""
    assert "talk to a parent" in (await second.finish())[0]
    assert [(alert["category"], alert.get("text")) for alert in house.alerts()] == [("drugs", None)]
    assert house.guard.screen(house.parent, lambda: ms(NOON)) is None


async def test_an_answer_ends_though_nobody_can_be_told(house: House) -> None:
    await house.parts.database.write(lambda tx: tx.execute("DROP TABLE guardians"))
    make = house.guard.screen(house.child, lambda: ms(NOON))
    assert make is not None
    screen = make()
    screen.feed("Get drunk.")
    assert "talk to a parent" in (await screen.finish())[0]


def test_what_several_people_read_is_for_the_most_protected_child(house: House) -> None:
    toddler, teen = house.child, replace(house.child, content_filter="moderate")
    assert most_protected([house.parent, teen, toddler]) is toddler
    assert most_protected([teen, house.parent]) is teen
    assert most_protected([house.parent]) is None
    assert most_protected([]) is None


@pytest.fixture
def checking(house: House) -> Guard:
    async def check(user: User, text: str) -> bool:
        if "broken" in text:
            raise ConnectionError
        return "unfit" not in text

    return Guard(
        Protection(),
        house.parts.gateway.broadcaster,
        house.system_events,
        guardians=house.guardians.of,
        record=house.audit.record,
        model_check=check,
    )


async def test_a_model_may_be_asked_too(house: House, checking: Guard) -> None:
    await checking.admit(house.child, "fine", ms(NOON))
    with pytest.raises(Filtered) as refused:
        await checking.admit(house.child, "unfit", ms(NOON))
    assert refused.value.category == MODEL
    assert [alert["category"] for alert in house.alerts()] == [MODEL]
    with pytest.raises(Filtered) as refused:
        await checking.admit(house.child, "broken", ms(NOON))
    assert refused.value.category == UNCHECKED
    assert len(house.alerts()) == 1
    await checking.admit(replace(house.child, content_filter="moderate"), "broken", ms(NOON))
    await checking.admit(replace(house.child, role=Role.USER), "unfit", ms(NOON))


@pytest.mark.parametrize(("text", "allowed"), [("fine", True), ("unfit", False), ("broken", False)])
async def test_a_strict_answer_has_to_pass_the_model_too(
    house: House, checking: Guard, text: str, allowed: bool
) -> None:
    stream = checking.stream_filter(house.child)
    assert stream is not None
    assert stream.feed(text) == ""
    shown = await checking.finish(house.child, stream)
    assert (shown == text) is allowed
    assert (stream.hit is None) is allowed


# Memory and rules


async def test_topics_are_never_remembered_of_a_child(house: House) -> None:
    refuses = house.guard.never_remember(house.child)
    assert refuses is not None
    assert refuses("has asthma") == "it is about health, which is not remembered of children"
    assert refuses("call 030 1234567") == "it is about phone, which is not remembered of children"
    assert refuses("likes dinosaurs") is None
    assert refuses("parents votes for nobody") is None  # not configured
    assert refuses("wants to know how to make a bomb") == "it is about weapons, which is not remembered of children"
    assert refuses("never tell stories of war, murder or guns") is None
    off = house.guard.never_remember(replace(house.child, content_filter="off"))
    assert off is not None and off("how to make a bomb") is None
    assert off("has asthma") == "it is about health, which is not remembered of children"
    assert house.guard.never_remember(house.parent) is None


async def test_a_topic_that_nobody_defined_is_told(house: House, caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(
        Protection(never_remember=frozenset({"helth"})),
        house.parts.gateway.broadcaster,
        house.system_events,
        guardians=house.guardians.of,
        record=house.audit.record,
    )
    assert guard.filter.topics
    assert "no topic helth" in caplog.text


async def test_rules_that_cannot_be_used_let_nothing_through(house: House, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[category.drugs.en]\nmoderate = 5\n")
    guard = Guard(
        Protection(rules=(file,)),
        house.parts.gateway.broadcaster,
        house.system_events,
        guardians=house.guardians.of,
        record=house.audit.record,
    )
    with pytest.raises(FilterRulesError, match=r"rules\.toml:2: category\.drugs\.en\.moderate"):
        await guard.admit(house.child, "Hello", ms(NOON))
    await guard.admit(replace(house.child, role=Role.USER), "Hello", ms(NOON))


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("de", "de"),
        ("de-AT", "de"),
        ("de_CH", "de"),
        ("Deutsch", "de"),
        ("French", "fr"),
        ("Español", "es"),
        ("en", "en"),
        ("English", "en"),
        ("", ""),
        ("Italiano", ""),
        ("desperate", ""),
    ],
)
def test_a_language_has_a_code(language: str, code: str) -> None:
    assert language_code(language) == code
