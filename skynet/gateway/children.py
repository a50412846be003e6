# ruff: noqa: N818 - the names say why a message is not answered, as "except NotNow" should read
"""What protects children: when they may talk, what they may be shown, what is remembered, and who is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.heartbeat import SystemEvents
from skynet_agent.filters import (
    MODEL,
    SELF_HARM,
    UNCHECKED,
    ContentFilter,
    FilterLevel,
    ModelCheck,
    StreamFilter,
    Verdict,
    checked_by_model,
)
from skynet_agent.messages import Json, ToolCallBlock
from skynet_memory.ids import Role, UserId
from skynet_protocol.children import GuardianAlert
from skynet_users.guardians import Guardian
from skynet_users.people import User

log = logging.getLogger(__name__)

ALERT_EVERY_MS: Final = 3_600_000
"""A guardian hears of a child's category once in this time at most."""
MAX_ALERT_CHARS: Final = 2_000
MAX_WAIT_CHARS: Final = 20_000
"""A longer text is checked in a thread, so that nobody else waits for it."""
LANGUAGES: Final[Mapping[str, Sequence[str]]] = {
    "de": ("german", "deutsch", "ger", "deu", "allemand", "alemán"),
    "fr": ("french", "français", "francais", "fre", "fra", "französisch", "francés"),
    "es": ("spanish", "español", "espanol", "spa", "castellano", "spanisch", "espagnol"),
}
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "closed": "It is not our time to talk right now. We can talk again {day} at {time}. See you then!",
        "unknown": "It is not our time to talk right now. Please ask a grown-up when we can talk again.",
        "days": "on Monday|on Tuesday|on Wednesday|on Thursday|on Friday|on Saturday|on Sunday|today|tomorrow",
    },
    "de": {
        "closed": "Gerade ist nicht unsere Zeit zum Reden. Wir können {day} um {time} Uhr wieder reden. Bis dann!",
        "unknown": "Gerade ist nicht unsere Zeit zum Reden. Frag bitte einen Erwachsenen, wann es wieder geht.",
        "days": "am Montag|am Dienstag|am Mittwoch|am Donnerstag|am Freitag|am Samstag|am Sonntag|heute|morgen",
    },
    "fr": {
        "closed": "Ce n'est pas notre moment pour parler. On pourra reparler {day} à {time}. À bientôt !",
        "unknown": "Ce n'est pas notre moment pour parler. Demande à un adulte quand on pourra reparler.",
        "days": "lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|aujourd'hui|demain",
    },
    "es": {
        "closed": "Ahora no es nuestro momento de hablar. Podremos hablar {day} a las {time}. ¡Hasta luego!",
        "unknown": "Ahora no es nuestro momento de hablar. Pregunta a un adulto cuándo podremos hablar.",
        "days": "el lunes|el martes|el miércoles|el jueves|el viernes|el sábado|el domingo|hoy|mañana",
    },
}


class Record(Protocol):
    """The audit log's ``record``."""

    async def __call__(
        self, action: str, *, actor: UserId, subject: str, details: Mapping[str, str], now_ms: int
    ) -> None: ...


class Withheld(Exception):
    """A message that no model is asked: ``reply`` is the whole answer. ``stored`` is kept in the transcript in place
    of the message; None: nothing of it is kept. ``str()`` is the reply."""

    def __init__(self, reply: str, stored: str | None = None) -> None:
        super().__init__(reply)
        self.reply = reply
        self.stored = stored


class NotNow(Withheld):
    """Outside the hours in which this person may talk; ``opens_at`` is in the person's zone, None if unknown."""

    def __init__(self, reply: str, opens_at: datetime | None) -> None:
        super().__init__(reply)
        self.opens_at = opens_at


class Filtered(Withheld):
    """What a child wrote met the content filter. Its transcript, which the model reads with the next message, holds
    only that something was left out."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.replacement, f"[left out by the content filter: {verdict.category}]")
        self.category = verdict.category


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What is configured for every child."""

    rules: tuple[Path, ...] = ()
    never_remember: frozenset[str] = frozenset()
    zone: str = "UTC"
    """Of those who have no time zone of their own."""


class Guard:
    """Asked before anybody's message runs, while it is answered, and before something is remembered.

    The filter is for children alone, hours are for everybody who has some. All of it is decided here, outside of any
    model.
    """

    def __init__(
        self,
        protection: Protection,
        broadcast: Broadcaster,
        system_events: SystemEvents,
        *,
        guardians: Callable[[UserId], Awaitable[Sequence[Guardian]]],
        record: Record,
        model_check: Callable[[User, str], Awaitable[bool]] | None = None,
    ) -> None:
        """
        Args:
            guardians: those of a child; the admins, if it has none of its own.
            model_check: asks the model of ``filter.model``, as the child, whether a text is fit for it.
        """
        self._protection = protection
        self._broadcast = broadcast
        self._system_events = system_events
        self._guardians = guardians
        self._record = record
        self.model_check = model_check
        """May be set later: what asks a model is built after what protects from it."""
        self._alerted: dict[tuple[UserId, str, bool], int] = {}

    @cached_property
    def filter(self) -> ContentFilter:
        """The rules, read when they are first needed.

        Raises:
            FilterRulesError: the household's file cannot be used.
        """
        content_filter = ContentFilter.load(self._protection.rules)
        unknown = self._protection.never_remember - content_filter.topics
        if unknown:
            known = ", ".join(sorted(content_filter.topics))
            log.warning("children.never_remember: no topic %s; there are %s", ", ".join(sorted(unknown)), known)
        return content_filter

    async def admit(self, user: User, text: str, now_ms: int) -> None:
        """Let a message through to the model, or say why not. Guardians are told of what is filtered.

        A child that writes of self-harm is answered with care at every hour, and its guardians are told at every
        level of the filter.

        Raises:
            Filtered: it is not for a child; the reply is the friendly replacement.
            NotNow: outside of the allowed hours.
        """
        verdict = await self._checked(user, text, now_ms) if user.role is Role.CHILD else None
        closed = self._closed(user, now_ms)
        if verdict is not None and (closed is not None or not verdict.allowed):
            raise Filtered(verdict)
        if closed is not None:
            raise closed
        if user.role is Role.CHILD and self.model_check is not None:
            category = await checked_by_model(self._check_for(user), text, user.content_filter)
            if category is not None:
                if category == MODEL:
                    await self.try_alert(user, MODEL, text=text, now_ms=now_ms)
                raise Filtered(self.filter.verdict(category, language_code(user.language)))

    def stream_filter(self, user: User) -> StreamFilter | None:
        """What an answer to this person has to pass on its way; None if nothing holds it back."""
        if user.role is not Role.CHILD or user.content_filter == "off":
            return None
        return StreamFilter(self.filter, user.content_filter, language_code(user.language))

    async def finish(self, user: User, stream: StreamFilter, called: str = "") -> str:
        """The rest of an answer, as :meth:`StreamFilter.finish`; at ``strict``, where all of it was held back, the
        model check has to agree too.

        Args:
            called: what the answer's tool calls say. Programs show it, so it has to pass as well.
        """
        rest = stream.finish()
        if stream.hit is None and called:
            rest += stream.refuse(called)
        if stream.hit is None and self.model_check is not None and user.content_filter == "strict":
            category = await checked_by_model(self._check_for(user), f"{rest}\n{called}".strip(), "strict")
            if category is not None:
                stream.hit = self.filter.verdict(category, language_code(user.language))
                return stream.hit.replacement
        return rest

    def screen(
        self, user: User, clock: Callable[[], int], readers: Sequence[User] = ()
    ) -> Callable[[], AnswerScreen] | None:
        """Makes what each message of an answer to this person has to pass; None if nothing holds it back.

        Args:
            readers: who else reads it, in a room. It is held back for the child among all of them whose filter is the
                strictest; guardians are told only of a child that was answered itself.
        """
        reader = most_protected((user, *readers)) or user
        if self.stream_filter(reader) is None:
            return None

        def make() -> AnswerScreen:
            stream = self.stream_filter(reader)
            assert stream is not None, "a person has the same filter in all of one answer"
            return AnswerScreen(self, reader, stream, clock, is_alerting=reader.id == user.id)

        return make

    def never_remember(self, user: User) -> Callable[[str], str | None] | None:
        """Says what forbids to remember a text of this person, if anything does: a topic, or a category of the filter,
        which what is remembered would get past: at ``moderate``, for parents too write down what is not to be talked
        about. None for those of whom everything may be remembered."""
        if user.role is not Role.CHILD:
            return None
        topics, language = self._protection.never_remember, language_code(user.language)
        level: FilterLevel = "off" if user.content_filter == "off" else "moderate"

        def refused(text: str) -> str | None:
            about = self.filter.topic_of(text, topics) or self.filter.check(text, level, language).category
            return f"it is about {about}, which is not remembered of children" if about else None

        return refused

    async def alert(self, child: User, category: str, *, text: str = "", now_ms: int) -> None:
        """Tell a child's guardians, once for each category and hour: who, what kind and when. What the child wrote and
        what it was answered count apart: an answer silences no message.

        The text goes only to guardians who may read the child's transcripts, after that is in the audit log, and only
        to their screens: never into a system event, which their own assistant would read and act on.
        """
        about = (child.id, category, bool(text))
        if now_ms - self._alerted.get(about, -ALERT_EVERY_MS) < ALERT_EVERY_MS:
            return
        self._alerted = {key: at for key, at in self._alerted.items() if now_ms - at < ALERT_EVERY_MS}
        self._alerted[about] = now_ms
        try:
            guardians = await self._guardians(child.id)
        except BaseException:
            del self._alerted[about]
            raise
        at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        for each in guardians:
            if each.guardian == child.id:
                continue
            shown = text[:MAX_ALERT_CHARS] if each.reads_transcripts else ""
            if shown and not await self._is_recorded(each.guardian, child, category, now_ms):
                shown = ""
            payload = GuardianAlert(
                child_id=child.id, child_name=child.display_name, category=category, at=now_ms, text=shown
            )
            self._broadcast.publish("guardian.alert", payload, owner=each.guardian)
            name = " ".join(child.display_name.split())
            self._system_events.add(
                each.guardian, f"Guardian alert: the child that calls itself “{name}”, category {category}, {at}"
            )

    async def try_alert(self, child: User, category: str, *, text: str = "", now_ms: int) -> None:
        """As :meth:`alert`, but the child gets its answer whether or not a guardian can be told."""
        try:
            await self.alert(child, category, text=text, now_ms=now_ms)
        except Exception:
            log.exception("cannot tell the guardians of user %s", child.id)

    async def _checked(self, child: User, text: str, now_ms: int) -> Verdict | None:
        """What the rules say; None if nothing was found. An allowed verdict is about self-harm below the level."""
        if len(text) > MAX_WAIT_CHARS:
            verdict, care = await asyncio.to_thread(self._judge, child, text)
        else:
            verdict, care = self._judge(child, text)
        if not care.allowed:
            verdict = Verdict(verdict.allowed, care.category, care.replacement)
        elif verdict.allowed:
            return None
        await self.try_alert(child, verdict.category, text=text, now_ms=now_ms)
        return verdict

    def _judge(self, child: User, text: str) -> tuple[Verdict, Verdict]:
        """What the rules say at the child's level, and of self-harm."""
        language = language_code(child.language)
        verdict = self.filter.check(text, child.content_filter, language)
        return verdict, self.filter.check(text, "strict", language, categories={SELF_HARM})

    async def _is_recorded(self, guardian: UserId, child: User, category: str, now_ms: int) -> bool:
        details = {"by": "guardian.alert", "category": category}
        try:
            await self._record("transcript.read", actor=guardian, subject=child.id, details=details, now_ms=now_ms)
        # Without the record there is no reading.
        except Exception:
            log.exception("cannot record that a guardian is shown a message of user %s", child.id)
            return False
        return True

    def _closed(self, user: User, now_ms: int) -> NotNow | None:
        if not user.allowed_hours:
            return None
        from skynet_users.hours import InvalidHours, UnknownZone, hours_of, zone_of  # which needs zoneinfo

        words = _WORDS.get(language_code(user.language), _WORDS["en"])
        try:
            zone = zone_of(user.time_zone, self._protection.zone)
            hours = hours_of(user.allowed_hours)
        except (InvalidHours, UnknownZone):
            log.exception("cannot read the hours of user %s", user.id)
            return NotNow(words["unknown"], None)
        now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone)
        if hours.allows(now):
            return None
        opens_at = hours.next_open(now)
        days = words["days"].split("|")
        ahead = (opens_at.date() - now.date()).days
        day = days[7 + ahead] if ahead < 2 else days[opens_at.weekday()]
        return NotNow(words["closed"].format(day=day, time=opens_at.strftime("%H:%M")), opens_at)

    def _check_for(self, user: User) -> ModelCheck:
        check = self.model_check
        assert check is not None
        return lambda text: check(user, text)


class AnswerScreen:
    """One message of an answer on its way to a child; guardians are told of what is held back."""

    def __init__(
        self, guard: Guard, user: User, stream: StreamFilter, clock: Callable[[], int], *, is_alerting: bool = True
    ) -> None:
        self._guard = guard
        self._user = user
        self._is_alerting = is_alerting
        self._stream = stream
        self._clock = clock

    def feed(self, text: str) -> str:
        """The next part; returns what may be shown now."""
        return self._stream.feed(text)

    async def finish(self, calls: Sequence[ToolCallBlock] = ()) -> tuple[str, Sequence[ToolCallBlock]]:
        """The rest, or the replacement; an answer that met the filter calls no tools."""
        said = " ".join(text for call in calls for text in (call.name, *_texts(call.arguments)))
        rest = await self._guard.finish(self._user, self._stream, said)
        if self._is_alerting and self._stream.hit is not None and self._stream.hit.category != UNCHECKED:
            await self._guard.try_alert(self._user, self._stream.hit.category, now_ms=self._clock())
        return rest, calls if self._stream.hit is None else ()


def most_protected(people: Iterable[User]) -> User | None:
    """The child among them whose filter is the strictest, for what all of them read; None without a child."""
    children = [user for user in people if user.role is Role.CHILD]
    return max(children, key=lambda child: ("off", "moderate", "strict").index(child.content_filter), default=None)


def _texts(value: Json) -> Iterable[str]:
    """All texts of a tool's arguments, in their order."""
    match value:
        case str():
            yield value
        case dict():
            for name, inner in value.items():
                yield name
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def language_code(language: str) -> str:
    """``de`` for ``de-AT``, ``German`` and ``Deutsch``; "" for what the rules and words know nothing of."""
    text = language.strip().casefold()
    for code, names in LANGUAGES.items():
        if text in names or text.replace("_", "-").split("-")[0] == code:
            return code
    return "en" if text in ("english", "englisch", "anglais", "inglés") or text.startswith("en") else ""
