"""Keeps conversations within their model's window, in the background (SK-102, SK-197, SP-029 … SP-035).

After each turn its session is looked at. When it is too full or too long a model is asked for a summary and for facts,
the facts are learned, and then one transaction puts the summary in the place of the messages. A process that is killed
before that has changed nothing of the conversation, and the next look does it again. No reply ever waits for this.
"""

import asyncio
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, Protocol, TypeAlias, TypeVar

from skynet.gateway.context import opening, readable, told_text
from skynet.logs import log_context
from skynet.supervisor import Supervisor
from skynet_agent.compaction import FULL, TOLD_SHARE, TURNS, cheapest, plan, rolled_up
from skynet_agent.cutting import LEAST_LIMIT, cut_middle
from skynet_agent.errors import UnknownModel
from skynet_agent.messages import AssistantMessage, Message, UserMessage, text_of
from skynet_agent.providers import OFFLINE
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from skynet_agent.routes import ResolvedModel
from skynet_agent.summaries import (
    ANSWER_TOKENS,
    LONGEST_SUMMARY,
    Fact,
    Record,
    read_record,
    read_summary,
    read_tokens_of,
    roll_up_request,
    summary_request,
)
from skynet_agent.tokens import CHARACTERS, message_tokens, text_tokens
from skynet_agent.turn_order import as_told, in_turns
from skynet_memory.compactions import CompactionStore, Told, Window
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import SessionId, SessionKey, UserId, now_ms
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_types import NewMemory
from skynet_memory.sessions import Session, SessionStore

log = logging.getLogger(__name__)
T = TypeVar("T")

Ask: TypeAlias = Callable[[UserId, SessionKey, ModelRequest], Awaitable[AssistantMessage]]
"""Asks a model in a person's name. What it raises means that there is no answer now."""

UNKNOWN_WINDOW_TOKENS: Final = 128_000
UNKNOWN_READER_TOKENS: Final = 32_768
"""Of a model that summarises and of which nobody knows what it holds."""
PROMPT_TOKENS: Final = 1_000
"""What it is told besides the conversation, and how far off our estimate may be."""
MOST_ENTRIES: Final = 2_000
"""So many of the newest are looked at. Older ones, of before there was compaction, are left out unread."""
MOST_SESSIONS: Final = 200
"""Looked at, or waiting for it; one more is looked at after its next turn."""
AT_ONCE: Final = 2
"""So many models are asked at the same time."""
PASSES: Final = 4
"""After so many steps the rest is left for after the next turn."""
TIMEOUT_S: Final = 180.0
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 60_000, 3_600_000
"""How long a session is left alone after a failure, doubled with each."""
SUMMARY_SHARE: Final = 16
"""A summary takes at most one part in so many of the window."""
CONFIDENCE: Final = 0.6
"""In what a model gathered from a conversation: less than in what a person said is to be remembered."""
LEAST_ARCHIVED: Final = 4
"""A conversation of fewer messages has nothing to remember when it is archived."""


@dataclass(slots=True)
class _Pause:
    failures: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class _Summariser:
    name: str
    """As a request names it; empty for the default model and those that stand in for it."""
    read_tokens: int


class _Request(Protocol):
    def __call__(self, *, model: str, at_ms: int) -> ModelRequest: ...


class Compactor:
    """One worker a session, at most; a few at a time ask a model.

    Args:
        model: any name; empty for the cheapest of those whose price is known, else the default model.
        turns: how many a conversation may have before the older half of them is summarised.
    """

    def __init__(
        self,
        *,
        sessions: SessionStore,
        compactions: CompactionStore,
        router: Router,
        ask: Ask,
        memories: MemoryStore,
        tasks: Supervisor,
        model: str = "",
        turns: int = TURNS,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._sessions = sessions
        self._compactions = compactions
        self._router = router
        self._ask = ask
        self._memories = memories
        self._tasks = tasks
        self._model = model
        self._turns = turns
        self._clock = clock
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._working: dict[SessionKey, bool] = {}
        self._pauses: OrderedDict[SessionKey, _Pause] = OrderedDict()

    def turn_ended(self, owner: UserId, key: SessionKey) -> None:
        """Look at the session soon; returns at once. While it is being looked at, it is looked at once more."""
        if key in self._working:
            self._working[key] = True
        else:
            self._begin(self._work(owner, key), key)

    def archived(self, owner: UserId, key: SessionKey, session_id: SessionId) -> None:
        """Learn what is worth it of a transcript that was put away, soon; returns at once (BA-019)."""
        slot = SessionKey(f"{key}#{session_id}")
        if slot not in self._working:
            self._begin(self._look_back(owner, key, session_id, slot), slot)

    def _begin(self, work: Coroutine[None, None, None], slot: SessionKey) -> None:
        if len(self._working) >= MOST_SESSIONS:
            work.close()
            log.info("too many conversations are being compacted; one waits for its next turn")
            return
        self._working[slot] = False
        try:
            self._tasks.start(work, name=f"compaction {slot}")
        except RuntimeError:  # shutting down: the next start looks after the next turn
            del self._working[slot]

    async def _work(self, owner: UserId, key: SessionKey) -> None:
        try:
            with log_context(user_id=owner):
                is_new = True
                while is_new:
                    self._working[key] = False
                    await self._look(owner, key)
                    is_new = self._working[key]
        finally:
            del self._working[key]

    async def _look(self, owner: UserId, key: SessionKey) -> None:
        try:
            for number in range(PASSES):
                session = await self._sessions.get(owner, key)
                if session is None or (number == 0 and not await self._is_due(session)):
                    return
                async with self._asking:
                    if not await self._step(session):
                        return
        except StorageUnavailable as exc:
            self._pause(key, exc)
        except Exception as exc:  # or a model would be asked in vain after each turn
            log.exception("%s cannot be compacted", key)
            self._pause(key, exc)

    async def _is_due(self, session: Session) -> bool:
        """Whether a closer look may find something to do; costs one small query."""
        window_tokens = self._window_tokens(session.model)
        count, size = await self._compactions.size(session.owner, session.session_id)
        return (
            count > self._turns
            or session.total_tokens >= FULL * window_tokens
            or size / CHARACTERS >= (FULL - TOLD_SHARE) * window_tokens  # the summaries come to that
        )

    async def _step(self, session: Session) -> bool:
        """Do what is most urgent; whether there may be more to do."""
        owner, key, session_id = session.owner, session.key, session.session_id
        window_tokens = self._window_tokens(session.model)
        window = await self._compactions.window(owner, session_id, limit=MOST_ENTRIES)
        if window.is_cut:
            return await self._leave_out_older(session, window)
        known = [(place, message) for place, entry in enumerate(window.entries) if (message := readable(entry))]
        messages = [message for _, message in known]
        summariser = self._summariser()
        told = opening(window)
        found = plan(
            messages,
            window_tokens=window_tokens,
            counted_tokens=session.total_tokens,
            told_tokens=message_tokens(UserMessage(told, 0)) if told else 0,
            is_whole=not told and bool(known) and known[0][0] == 0 and window.entries[0].parent_id is None,
            summary_tokens=_summary_tokens(window_tokens),
            turns=self._turns,
            read_tokens=None if summariser is None else summariser.read_tokens,
        )
        if found is None:
            return await self._roll_up(session, window.told, window_tokens)
        begin = known[found.begin - 1][0] + 1 if found.begin else 0
        ids = [entry.id for entry in window.entries[begin : known[found.end][0]]]
        summary = model = ""
        if found.is_read:
            part = as_told(in_turns(messages[found.begin : found.end]))
            answered = await self._answered(owner, key, partial(summary_request, part), _read_record)
            if answered is None:
                return False
            record, model = answered
            await self._remember(owner, record.facts)
            summary = _fitting(record.summary, window_tokens)
        made = await self._compactions.cover(owner, session_id, ids, summary=summary, model=model, now_ms=self._clock())
        if made is None:  # reset, deleted or truncated meanwhile
            self._pause(key, LookupError("the conversation has changed"))
            return False
        self._pauses.pop(key, None)
        log.info("%s %d entries of %s (%s)", "summarised" if summary else "left out", len(ids), key, found.reason)
        return True

    async def _leave_out_older(self, session: Session, window: Window) -> bool:
        """Cover what is older than anybody looks at, so that nothing stands between summaries and the rest."""
        begins = [entry.id for entry in window.entries if isinstance(readable(entry), UserMessage)]
        ids = await self._compactions.live(session.owner, session.session_id)
        older = ids[: ids.index(begins[0])] if begins and begins[0] in ids else []
        made = await self._compactions.cover(session.owner, session.session_id, older, now_ms=self._clock())
        if made is not None:
            log.info("left out %d entries of %s, older than is looked at", len(older), session.key)
        return made is not None

    async def _roll_up(self, session: Session, told: Sequence[Told], window_tokens: int) -> bool:
        """Let one summary stand for the older ones, when they are too many or too long."""
        owner, key = session.owner, session.key
        count = rolled_up([text_tokens(told_text(each.compaction)) for each in told], window_tokens=window_tokens)
        if not count:
            return False
        summaries = [each.compaction.summary for each in told[:count] if each.compaction.summary]
        summary, model = "".join(summaries[:1]), ""
        if len(summaries) > 1:
            answered = await self._answered(owner, key, partial(roll_up_request, summaries), _read_summary)
            if answered is None:
                return False
            text, model = answered
            summary = _fitting(text, window_tokens)
        ids = [each.id for each in told[:count]]
        made = await self._compactions.roll_up(
            owner, session.session_id, ids, summary=summary, model=model, now_ms=self._clock()
        )
        if made is not None:
            self._pauses.pop(key, None)
            log.info("rolled up %d summaries of %s", count, key)
        return made is not None

    async def _look_back(self, owner: UserId, key: SessionKey, session_id: SessionId, slot: SessionKey) -> None:
        try:
            with log_context(user_id=owner):
                async with self._asking:
                    window = await self._compactions.window(owner, session_id, limit=MOST_ENTRIES)
                    messages = [message for entry in window.entries if (message := readable(entry))]
                    summariser = self._summariser()
                    if summariser is None or len(messages) < LEAST_ARCHIVED:
                        return
                    part = _newest(messages, summariser.read_tokens)
                    answered = await self._answered(owner, key, partial(summary_request, part), _read_record)
                    if answered is not None:
                        await self._remember(owner, answered[0].facts)
        except StorageUnavailable as exc:
            log.warning("nothing is remembered of an archived conversation: %s", exc)
        finally:
            del self._working[slot]

    async def _answered(
        self, owner: UserId, key: SessionKey, request: _Request, read: Callable[[str], T]
    ) -> tuple[T, str] | None:
        """What a model's answer was read as, and which model it was; None if none can be had now."""
        summariser = self._summariser()
        if summariser is None or self._is_paused(key):
            return None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._ask(owner, key, request(model=summariser.name, at_ms=self._clock()))
            if answer.stop_reason in ("error", "aborted"):
                raise ValueError(answer.error_message or answer.stop_reason)
            return read(text_of(answer)), f"{answer.provider}/{answer.model}"
        except Exception as exc:  # whatever it was, nothing has changed
            self._pause(key, exc)
            return None

    async def _remember(self, owner: UserId, facts: Sequence[Fact]) -> None:
        """Before the messages are covered: a process that is killed in between learns them once more, which changes
        nothing, instead of never."""
        if not facts:
            return
        new = [
            NewMemory(
                fact.category,
                fact.key,
                fact.value,
                confidence=CONFIDENCE,
                source="inferred",
                importance=fact.importance,
            )
            for fact in facts
        ]
        try:
            learned = await self._memories.learn_many(owner, new, now_ms=self._clock())
        except StorageUnavailable:
            raise
        except Exception:  # what is not remembered is no reason to summarise the conversation again
            log.exception("facts cannot be learned")
            return
        count = sum(each.outcome in ("added", "updated") for each in learned)
        log.info("learned %d of %d facts", count, len(facts))

    def _summariser(self) -> _Summariser | None:
        """Who summarises; None where there is no model but the offline assistant."""
        if self._model:
            try:
                return _summariser(self._model, self._router.resolve(self._model))
            except UnknownModel:
                log.warning("configuration: compaction.model %r leads nowhere", self._model)
        models = [model for model in self._router.models() if model.provider != OFFLINE.name]
        if (found := cheapest(models)) is not None:
            return _summariser(found.name, found)
        default = self._router.default()
        return None if default.provider == OFFLINE.name else _summariser("", default)

    def _window_tokens(self, model: str) -> int:
        try:
            return self._router.resolve(model).context_window or UNKNOWN_WINDOW_TOKENS
        except UnknownModel:
            return UNKNOWN_WINDOW_TOKENS

    def _is_paused(self, key: SessionKey) -> bool:
        pause = self._pauses.get(key)
        return pause is not None and self._clock() < pause.until_ms

    def _pause(self, key: SessionKey, error: Exception) -> None:
        """Leave the session alone for a while: nothing of it has changed."""
        failures = self._pauses.pop(key, _Pause(0, 0)).failures + 1
        pause_ms = min(FIRST_PAUSE_MS * 2 ** min(failures - 1, 10), LONGEST_PAUSE_MS)
        self._pauses[key] = _Pause(failures, self._clock() + pause_ms)
        while len(self._pauses) > MOST_SESSIONS:
            self._pauses.popitem(last=False)
        log.warning("%s is not compacted for %d s: %s", key, pause_ms // 1000, type(error).__name__)
        log.debug("compaction failed: %s", error)


def _summariser(name: str, model: ResolvedModel) -> _Summariser:
    window = model.context_window or UNKNOWN_READER_TOKENS
    return _Summariser(name, max(window - ANSWER_TOKENS - PROMPT_TOKENS, window // 3))


def _read_record(answer: str) -> Record:
    record = read_record(answer)
    if not record.summary:
        raise ValueError("the answer holds no summary")
    return record


def _read_summary(answer: str) -> str:
    summary = read_summary(answer)
    if not summary:
        raise ValueError("the answer holds no summary")
    return summary


def _newest(messages: Sequence[Message], read_tokens: int) -> Sequence[Message]:
    """As many of the newest as can be read at once, at least one."""
    sizes = [*accumulate(map(read_tokens_of, reversed(messages)))]
    return messages[-max(1, bisect_right(sizes, read_tokens)) :]


def _summary_tokens(window_tokens: int) -> int:
    return min(LONGEST_SUMMARY // CHARACTERS, max(LEAST_LIMIT // CHARACTERS, window_tokens // SUMMARY_SHARE))


def _fitting(summary: str, window_tokens: int) -> str:
    return cut_middle(summary, _summary_tokens(window_tokens) * CHARACTERS)
