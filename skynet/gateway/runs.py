"""Runs: the one pipeline from an inbound message to a stored answer (DESIGN 3, OPENCLAW-V3 7).

A channel, an endpoint or a job builds an :class:`Inbound` and hands it to :meth:`Runs.submit`. When that returns the
message is durable and may be acknowledged. Then the run waits in its session's lane, asks the model, and ends exactly
once: stored first, told afterwards.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.children import Filtered, Guard, Withheld
from skynet.gateway.errors import error_shape
from skynet.gateway.keys import owner_of
from skynet.gateway.model_calls import Account, ModelCalls
from skynet.gateway.run import Inbound, Repeat, Run, RunKind
from skynet.gateway.run_answer import RunResult, RunStatus, gateway_message
from skynet.gateway.run_events import RunEvents
from skynet.gateway.run_hooks import RunHooks, hook_user
from skynet.gateway.run_request import RunRequests, own_message, shorter
from skynet.gateway.run_store import RunStore
from skynet.hooks import Stopped
from skynet.logs import log_context
from skynet.supervisor import Supervisor
from skynet_agent.errors import AuthFailed, CallRefused, ProviderError
from skynet_agent.events import (
    Answered,
    Finished,
    Shortened,
    Started,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnEvent,
)
from skynet_agent.filters import UNCHECKED
from skynet_agent.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    encode_message,
    text_of,
)
from skynet_agent.turn import MAX_ROUNDS, Turn
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import RunId, SessionKey, UserId, now_ms
from skynet_memory.sessions import SessionStore
from skynet_memory.turns import TurnBegun, TurnRepeated, TurnStore
from skynet_protocol.errors import ErrorCode, RequestError
from skynet_protocol.events import assistant_message
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.people import User
from skynet_users.permissions import Permission

log = logging.getLogger(__name__)

MAX_QUEUED = 20
"""Messages that may wait in one lane; the next is refused, so that a stuck model does not fill the memory."""
MAX_ACTIVE = 64
"""Runs of one person, queued or running, in all sessions together; each keeps its message and a model busy."""
STORE_AGAIN_S = 1.0
"""How often an end that the storage refused is tried again."""
REMEMBERED_RUNS = 1000
REMEMBERED_MS = 600_000
"""How many ended runs ``agent.wait`` can still answer for, and for how long (OPENCLAW-V3 6.6)."""


People: TypeAlias = Callable[[UserId], Awaitable[User | None]]
"""Who somebody is now."""


class Runs:
    """Accepts messages and runs them, in order within a session and at the same time across sessions.

    Args:
        people: who somebody is now.
        guard: asked of every message before it is stored.
        readers: who reads what is said in a room.
        after: told of each end, once it is stored and told; must not raise.
    """

    def __init__(
        self,
        *,
        turns: TurnStore,
        sessions: SessionStore,
        requests: RunRequests,
        calls: ModelCalls,
        people: People,
        guard: Guard | None = None,
        readers: Callable[[UserId], Awaitable[Sequence[User]]] | None = None,
        broadcaster: Broadcaster,
        tasks: Supervisor,
        timeout_s: float,
        max_rounds: int = MAX_ROUNDS,
        after: Callable[[Run, RunResult], None] | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._turns = turns
        self._sessions = sessions
        self._requests = requests
        self._calls = calls
        self._people = people
        self._guard = guard
        self._readers = readers
        self._hooks = RunHooks(calls.hooks)
        self._broadcaster = broadcaster
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._max_rounds = max_rounds
        self._after = after
        self._clock = clock
        self._store = RunStore(turns, tasks, window=requests.window, clock=clock)
        self._lanes: dict[SessionKey, deque[Run]] = {}
        self._active: dict[tuple[UserId, RunKind, RunId], Run] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._arriving: Counter[SessionKey] = Counter()
        self._ended: OrderedDict[tuple[UserId, RunId], RunResult] = OrderedDict()
        self._waiters: dict[tuple[UserId, RunId], set[asyncio.Future[RunResult]]] = {}
        self.closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop every run; what was shown is stored as interrupted."""
        self.closing = True
        for run in list(self._active.values()):
            run.abort("shutdown")
        if self._working:
            await asyncio.wait(self._working)

    async def submit(self, inbound: Inbound) -> Run | Repeat:
        """Take a message. It is stored when this returns, and its run starts when its lane is free.

        A run id that its owner used within 24 hours runs nothing; what is known of the first is returned.

        Raises:
            RequestError: as :meth:`check_room` says.
            CallRefused: the person's budget, or the house's, is used up.
            StorageUnavailable: the message could not be stored; nothing was.
        """
        if (running := self._active.get(_identity(inbound))) is not None:
            if inbound.caller.conn_id is not None and inbound.caller.user_id == running.person:
                running.watchers.add(inbound.caller.conn_id)
            return Repeat("running", None, running.accepted_at_ms, running)
        if inbound.reply is None:
            inbound = await self._screened(inbound)
        # Last, and nothing is awaited after it: those that arrive together are counted one by one.
        await self.check_room(inbound.caller.user_id, inbound.key, owner=inbound.owner)
        accepting = self._tasks.start(self._store_inbound(inbound), name=f"accept {inbound.run_id}")
        self._arriving[inbound.key] += 1
        try:
            begun = await asyncio.shield(accepting)
        except asyncio.CancelledError:
            # Who goes away now must not leave a message that is stored and has no end.
            accepting.add_done_callback(partial(self._abandon, inbound))
            raise
        finally:
            self._arriving[inbound.key] -= 1
            if not self._arriving[inbound.key]:
                del self._arriving[inbound.key]
        # In the same step as the return: so the acknowledgement leaves before the run's first event.
        return self._enqueue(inbound, begun)

    async def _screened(self, inbound: Inbound) -> Inbound:
        """The message, or one that the gateway answers in the model's place and of which nothing is stored.

        Raises:
            CallRefused: a budget is used up.
        """
        person = inbound.caller.user_id
        if self._guard is not None and (user := await self._people(person)) is not None:
            try:
                await self._guard.admit(user, _all_texts(inbound), self._clock())
            except Withheld as withheld:
                if isinstance(withheld, Filtered) and withheld.category == UNCHECKED:
                    await self._calls.check(person)  # that is why nobody could look at it
                if withheld.stored is None:
                    return replace(inbound, reply=partial(_always, withheld.reply))
                stored = (TextBlock(withheld.stored),)
                return replace(inbound, content=stored, history=None, answer=withheld.reply)
        try:
            await self._calls.check(person)
        except CallRefused as exc:
            # OpenClaw's command line takes an error of ``agent`` for a gateway that is not there, and asks by itself
            if inbound.kind != "agent":
                raise
            return replace(inbound, reply=partial(_always, str(exc)))
        return inbound

    async def check_room(self, person: UserId, key: SessionKey, *, owner: UserId | None = None) -> None:
        """Whether a message of ``person`` for this session, which is ``owner``'s or the own, would be taken now.

        Raises:
            RequestError: the session takes no messages; or (``UNAVAILABLE``, retryable) its lane is full, its person
                has too many runs, or the gateway is shutting down.
        """
        if self.closing:
            raise _busy("the gateway is shutting down", retry_after_ms=2000)
        session = await self._sessions.get(owner or person, key)
        if session is not None and session.settings.get("sendPolicy") == "deny":
            raise RequestError("send blocked by session policy")
        if len(self._lanes.get(key, ())) + self._arriving[key] > MAX_QUEUED:
            raise _busy(f"{MAX_QUEUED} messages are waiting in this session already", retry_after_ms=5000)
        if sum(run.person == person for run in self._active.values()) >= MAX_ACTIVE:
            raise _busy(f"{MAX_ACTIVE} of your messages are being answered already", retry_after_ms=5000)

    def _abandon(self, inbound: Inbound, accepting: "asyncio.Task[TurnBegun | TurnRepeated]") -> None:
        if not accepting.cancelled() and accepting.exception() is None:
            run = self._enqueue(inbound, accepting.result())
            if isinstance(run, Run):
                run.abort("disconnect")

    async def _store_inbound(self, inbound: Inbound) -> TurnBegun | TurnRepeated:
        accepted_at_ms = self._clock()
        return await self._turns.begin(
            owner=inbound.owner,
            key=inbound.key,
            run_id=inbound.run_id,
            kind=inbound.kind,
            payload=None if inbound.reply is not None else encode_message(own_message(inbound, accepted_at_ms)),
            origin=inbound.origin,
            display_name=inbound.origin.get("label", ""),
            session_id=inbound.session_id,
            now_ms=accepted_at_ms,
        )

    def _enqueue(self, inbound: Inbound, begun: TurnBegun | TurnRepeated) -> Run | Repeat:
        identity = _identity(inbound)
        if isinstance(begun, TurnRepeated):
            return Repeat(begun.status, begun.response, begun.started_at_ms, self._active.get(identity))
        run = Run(inbound, begun, self._calls.router.draft(), self._clock(), self._stopped)
        self._active[identity] = run
        if begun.session.updated_at_ms == begun.session.created_at_ms and not begun.session.system_sent:
            self._hooks.session_started(run)
        if inbound.beside and inbound.reply is not None:
            self._own(self._reply_beside(run), f"reply {inbound.run_id}")
            return run
        lane = self._lanes.get(inbound.key)
        if lane is None:
            lane = self._lanes[inbound.key] = deque()
            self._own(self._work(inbound.key, lane), f"lane {inbound.key}")
        run.waited = bool(lane)
        lane.append(run)
        return run

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._tasks.start(work, name=name)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def active(self, owner: UserId, key: SessionKey | None = None) -> list[Run]:
        """A person's runs that are queued or running, in the order they came; of one session if ``key`` is given."""
        return [run for run in self._active.values() if run.owner == owner and key in (None, run.key)]

    def knows(self, owner: UserId, run_id: RunId) -> bool:
        """Whether a run of this id is under way, or its end remembered, in a session of ``owner``."""
        return (owner, run_id) in self._ended or any(run.run_id == run_id for run in self.active(owner))

    async def known(self, owner: UserId, kind: RunKind, run_id: RunId) -> bool:
        """Whether this idempotency key was used in the last 24 hours."""
        return (owner, kind, run_id) in self._active or await self._turns.lookup(owner, kind, run_id) is not None

    async def is_new(self, person: UserId, key: SessionKey, kind: RunKind, run_id: RunId) -> bool:
        """Whether a message would begin a run: a repeated one must not end the conversation that its first use began.

        Raises:
            RequestError: it would not be taken now, as :meth:`check_room` says.
        """
        if await self.known(owner_of(key), kind, run_id):
            return False
        await self.check_room(person, key, owner=owner_of(key))
        return True

    async def abort(
        self, owner: UserId, key: SessionKey, *, stop_reason: str, run_id: str | None = None
    ) -> list[RunId]:
        """Stop the session's runs, or only ``run_id``, and wait until their end is stored and told.

        Returns those that were stopped; one whose answer was complete is not among them.

        Raises:
            RequestError: ``run_id`` runs in another session.
        """
        if run_id is None:
            runs = self.active(owner, key)
        else:
            runs = [run for run in self.active(owner) if run.run_id == run_id]
            if any(run.key != key for run in runs):
                raise RequestError("runId does not match sessionKey")
        for run in runs:
            run.abort(stop_reason)
        results = await asyncio.gather(*(run.wait() for run in runs))
        return [result.run_id for result in results if result.status == "aborted"]

    async def abort_session(self, owner: UserId, key: SessionKey) -> bool:
        """Stop all runs of a session, because it is reset or deleted; whether there were any."""
        return bool(await self.abort(owner, key, stop_reason="rpc"))

    async def stop_person(self, person: UserId) -> None:
        """Stop all that this person asked for, in whichever session, and wait until it is stored and told."""
        runs = [run for run in self._active.values() if run.person == person]
        for run in runs:
            run.abort("rpc")
        await asyncio.gather(*(run.wait() for run in runs))

    async def result(self, owner: UserId, run_id: RunId, *, timeout_s: float) -> RunResult | None:
        """The end of a run, waited for up to ``timeout_s`` even if it has not begun; ``None`` if it did not come."""
        identity = (owner, run_id)
        self._forget_old()
        if (result := self._ended.get(identity)) is not None:
            return result
        waiter: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(identity, set())
        waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            return None
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(identity, None)

    async def _work(self, key: SessionKey, lane: deque[Run]) -> None:
        """Run a lane until it is empty."""
        try:
            while lane:
                run = lane[0]
                try:
                    with log_context(user_id=run.person, run_id=run.run_id):
                        await self._execute(run)
                finally:
                    lane.popleft()
                    self._active.pop(_identity(run.inbound), None)
        finally:
            del self._lanes[key]

    async def _reply_beside(self, run: Run) -> None:
        try:
            with log_context(user_id=run.person, run_id=run.run_id):
                await self._execute(run)
        finally:
            self._active.pop(_identity(run.inbound), None)

    def _stopped(self, run: Run) -> None:
        """A run was stopped before it began. It ends now, not when those before it do; only its entry waits for them.

        If the one that runs was stopped too, it ends first, and soon.
        """
        lane = self._lanes.get(run.key)
        if lane is None or run not in lane or lane[0] is run:
            return
        if lane[0].ended is not None or not lane[0].stop_reason:
            self._end_unanswered(run)

    def _end_unanswered(self, run: Run) -> None:
        run.started_at_ms = self._clock()
        self._end(run, self._events(run), self._unanswered(run))

    async def _execute(self, run: Run) -> None:
        """Bring a run to its one end: asked, stored, told. What goes wrong on the way is an end too."""
        if run.ended is not None:
            await self._store_patiently(run, run.ended)
            return
        events = self._events(run)
        run.started_at_ms = self._clock()
        log.info("run started: %s in %s", run.inbound.kind, run.key)
        result = await self._answer(run, events)
        stored = True
        try:
            await self._store.end(run, result)
        except StorageUnavailable as exc:
            result = self._failed(run, exc)
            stored = False
        except Exception as exc:  # the answer itself cannot be stored; that it failed can
            result = self._lost(run, exc)
            await self._store_patiently(run, result)
        self._end(run, events, result)
        if not stored:
            await self._store_later(run, result)

    def _events(self, run: Run) -> RunEvents:
        return RunEvents(
            self._broadcaster,
            owner=run.owner,
            key=run.key,
            run_id=run.run_id,
            with_session_key=bool(run.inbound.wire_key),
            watchers=run.watchers,
            settings=run.session.settings,
            clock=self._clock,
        )

    def _end(self, run: Run, events: RunEvents, result: RunResult) -> None:
        if run.inbound.reply is not None and result.status == "ok":
            events.answered(assistant_message(text_of(result.message), result.message.timestamp))
        else:
            self._tell(events, result)
        self._remember(run, result)
        run.end(result)
        self._hooks.ended(run, result)
        if self._after is not None:
            self._after(run, result)
        log.info("run ended: %s after %d ms", result.status, result.ended_at_ms - result.started_at_ms)

    async def _answer(self, run: Run, events: RunEvents) -> RunResult:
        """The answer, complete or as far as it came."""
        try:
            if run.inbound.reply is not None:
                return self._result(run, [gateway_message(await run.inbound.reply(), run.started_at_ms)])
            if not run.stop_reason:
                events.started(run.started_at_ms)
                if run.inbound.answer:
                    run.asked = ""
                    return self._result(run, [self._own_answer(run.inbound.answer)])
                if (finished := await self._ask(run, events)) is not None:
                    assert run.turn is not None
                    return self._result(run, run.turn.messages, finished.error)
        except Stopped as stopped:
            run.asked = ""
            return self._result(run, [self._own_answer(stopped.reason)])
        except Exception as exc:
            return self._failed(run, exc)
        return self._unanswered(run)

    def _own_answer(self, text: str) -> AssistantMessage:
        """What the gateway says in the model's place; no model has this answer's name."""
        draft = self._calls.router.draft()
        draft.add(TextDelta(text))
        return draft.message("stop")

    def _unanswered(self, run: Run) -> RunResult:
        """The end of a run that was stopped, with what was shown."""
        return self._result(run, _so_far(run, "aborted", _STOPPED.get(run.stop_reason)))

    def _failed(self, run: Run, error: Exception) -> RunResult:
        """An end for a failure of our own, in the words that a request would get."""
        words = error_shape(error, run.inbound.caller).message
        return self._result(run, _so_far(run, "error", words), error)

    def _lost(self, run: Run, error: Exception) -> RunResult:
        """The end of a run without what cannot be stored, whatever of it that is: no message stays without an end."""
        words = error_shape(error, run.inbound.caller).message
        stored = [] if run.turn is None else run.turn.messages[: run.stored]
        run.draft.begin(run.draft.provider, run.draft.model, run.draft.api)
        return self._result(run, [*stored, run.draft.message("error", error_message=words)], error)

    def _result(self, run: Run, messages: Sequence[Message], error: Exception | None = None) -> RunResult:
        message = messages[-1]
        assert isinstance(message, AssistantMessage), "a turn ends in an answer"
        caller = run.inbound.caller
        if isinstance(error, AuthFailed) and not caller.may(Permission.PROVIDERS_MANAGE):
            message = msgspec.structs.replace(message, error_message=_NO_CREDENTIALS.format(error.provider))
            messages = [*messages[:-1], message]
        return RunResult(
            run_id=run.run_id,
            status=_status(run, message),
            message=message,
            messages=tuple(messages),
            session_id=run.session.session_id,
            started_at_ms=run.started_at_ms,
            ended_at_ms=self._clock(),
            stop_reason=run.stop_reason,
            exception=error,
            tried=tuple(dict.fromkeys((*run.tried, *(error.tried if isinstance(error, ProviderError) else ())))),
        )

    async def _ask(self, run: Run, events: RunEvents) -> Finished | None:
        """Carry out the turn until it is done, aborted or out of time; ``None`` when it was stopped."""
        task = self._tasks.start(self._converse(run, events), name=f"run {run.run_id}")
        run.begin(task)
        timeout_s = run.inbound.timeout_s if run.inbound.timeout_s is not None else self._timeout_s
        try:
            await asyncio.wait({task}, timeout=timeout_s or None)
            if not task.done():
                run.abort("timeout")
                await asyncio.wait({task})
        except asyncio.CancelledError:
            run.abort("shutdown")
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    async def _converse(self, run: Run, events: RunEvents) -> Finished:
        if run.waited:  # the session may have another model by now
            run.session = await self._sessions.get(run.owner, run.key) or run.session
            events.use(run.session.settings)
        waiting = {queued.entry_id for queued in self._lanes[run.key]}
        text = await self._hooks.received(run.inbound)
        if text != run.inbound.text:
            run.asked = text
        user = await self._people(run.person)
        if user is None or user.disabled or user.role is not run.inbound.caller.role:
            raise Forbidden(Permission.MESSAGES_SEND)  # it was accepted in the moment in which they became another
        run.is_welcome = user is not None and user.needs_welcome
        asked = await self._requests.make(run, user, waiting=waiting, text=text)
        self._hooks.started(run)
        account = Account(
            user=hook_user(run.inbound.caller), key=run.key, session_id=run.session.session_id, run_id=run.run_id
        )
        screen = None
        if self._guard is not None and user is not None:
            room = run.inbound.group
            readers = () if room is None or self._readers is None else await self._readers(room)
            screen = self._guard.screen(user, self._clock, readers)
        run.turn = Turn(
            self._calls.of(account, screen),
            asked.request,
            emit=partial(_tell_event, run, events, asked.tools is not None),
            draft=run.draft,
            tools=asked.tools,
            max_rounds=self._max_rounds,
            shorten=shorter,
            after_round=partial(self._store.round, run),
        )
        return await run.turn.run()

    async def _store_patiently(self, run: Run, result: RunResult) -> None:
        """Store an end that is told in any case."""
        try:
            await self._store.end(run, result)
        except StorageUnavailable:
            await self._store_later(run, result)
        except Exception:
            log.exception("the end of run %s cannot be stored", run.run_id)

    async def _store_later(self, run: Run, result: RunResult) -> None:
        """Keep trying to store an end that was told already. Its lane waits: nothing of the session could be stored.

        What is not stored when the gateway stops is closed as interrupted at its next start.
        """
        for waiting in self._lanes.get(run.key, ()):
            if waiting.stop_reason and waiting.ended is None:
                self._end_unanswered(waiting)
        while not self.closing:
            await asyncio.sleep(STORE_AGAIN_S)
            try:
                await self._store.end(run, result)
            except StorageUnavailable:
                continue
            except Exception:  # the lane and what waits in it go on
                log.exception("the end of run %s cannot be stored", run.run_id)
            return

    def _tell(self, events: RunEvents, result: RunResult) -> None:
        message = result.message
        text = text_of(message)
        shown = assistant_message(text, message.timestamp) if text else None
        if result.status == "ok":
            events.ended(result.ended_at_ms, shown)
        elif result.status == "error":
            events.failed(result.ended_at_ms, result.error, shown)
        else:
            events.aborted(result.stop_reason, shown)

    def _remember(self, run: Run, result: RunResult) -> None:
        identity = (run.owner, run.run_id)
        # what tools gave may be megabytes, and an exception holds on to all that its frames knew
        self._ended[identity] = replace(result, messages=(), exception=None)
        self._forget_old()
        for waiter in self._waiters.get(identity, ()):
            if not waiter.done():
                waiter.set_result(result)

    def _forget_old(self) -> None:
        oldest_ms = self._clock() - REMEMBERED_MS
        while self._ended:
            first = next(iter(self._ended.values()))
            if len(self._ended) <= REMEMBERED_RUNS and first.ended_at_ms >= oldest_ms:
                break
            self._ended.popitem(last=False)


async def _always(text: str) -> str:
    return text


def _all_texts(inbound: Inbound) -> str:
    """All that a message brings for the model: also what a client adds to the prompt, or tells of earlier."""
    earlier = map(text_of, inbound.history or ())  # whoever it says has said it: the client does
    return "\n\n".join(text for text in (inbound.system, *earlier, inbound.text) if text)


_STOPPED = {"timeout": "the run took longer than allowed", "shutdown": "interrupted: the gateway was stopped"}


def _so_far(run: Run, stop_reason: StopReason, words: str | None) -> list[Message]:
    """What a run that does not end by itself has said and done."""
    if run.turn is None:
        return [run.draft.message(stop_reason, error_message=words)]
    return run.turn.stopped(stop_reason, words)


def _tell_event(run: Run, events: RunEvents, own_tools: bool, event: TurnEvent) -> None:
    """Pass an event of the turn on to the clients, and to who listens to the run."""
    match event:
        case TextDelta():
            events.add_text(event.text)
        case ThinkingDelta():
            events.add_thinking(event.text)
        case ToolCallDelta():
            if own_tools:  # nobody else has to carry it out
                return
        case Started():
            if event.tried:
                run.tried += event.tried
                events.fell_back(_fallback(event, run.inbound.caller))
        case Answered():
            events.next_message()
        case ToolStarted(call):
            events.tool_started(call)
        case ToolUpdated(call, text):
            events.tool_updated(call, text)
        case ToolEnded(call, result):
            events.tool_ended(call, result)
        case Shortened():
            events.shortened()
        case _:
            pass
    run.emit(event)


def _busy(message: str, *, retry_after_ms: int) -> RequestError:
    return RequestError(message, code=ErrorCode.UNAVAILABLE, retryable=True, retry_after_ms=retry_after_ms)


def _identity(inbound: Inbound) -> tuple[UserId, RunKind, RunId]:
    """What a repeated message has in common with the first."""
    return (inbound.owner, inbound.kind, inbound.run_id)


def _status(run: Run, message: AssistantMessage) -> RunStatus:
    if run.stop_reason == "timeout":
        return "timeout"
    if run.stop_reason == "shutdown":
        return "error"
    if run.stop_reason:
        return "aborted"
    return "error" if message.stop_reason == "error" else "ok"


_NO_CREDENTIALS = "the model provider {} refused the gateway's credentials"
"""What those are told who cannot mend it: a provider's own words may quote a key, or name files of the machine."""


def _fallback(started: Started, caller: Caller) -> dict[str, Any]:
    is_told_all = caller.may(Permission.PROVIDERS_MANAGE)
    return {
        "provider": started.provider,
        "model": started.model,
        "tried": [
            {
                "provider": attempt.provider,
                "model": attempt.model,
                "error": attempt.message
                if is_told_all or attempt.kind != AuthFailed.__name__
                else _NO_CREDENTIALS.format(attempt.provider),
            }
            for attempt in started.tried
        ],
    }
