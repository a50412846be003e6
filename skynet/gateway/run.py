"""A message on its way in, and the run that it becomes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from skynet.gateway.run_answer import RunResult
from skynet_agent.draft import Draft
from skynet_agent.events import Attempt, Finished, TurnEvent
from skynet_agent.messages import ImageBlock, Message, TextBlock
from skynet_agent.requests import ModelOptions
from skynet_agent.turn import Turn
from skynet_memory.ids import ConnId, RunId, SessionId, SessionKey, UserId
from skynet_memory.turns import TurnBegun
from skynet_users.caller import Caller

log = logging.getLogger(__name__)

RunKind: TypeAlias = Literal["chat", "agent", "http", "channel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A message on its way in.

    ``run_id`` is the client's idempotency key. ``history`` replaces the stored transcript as the conversation so far,
    for HTTP clients that send it themselves; with an empty ``content`` it is the whole conversation, which ends in a
    tool's result, and nothing is appended. ``reply`` answers in place of the model (a command); such a message is not
    stored, only its answer. ``wire_key`` is the session key as the client wrote it; "" for a run that
    is known by its session id alone, which has no ``chat`` events. ``answer`` is what the gateway says in the
    model's place to a message that is stored all the same. ``group`` is the room whose session it is, if it is
    not the person's own: the permissions, the budget and the tools are the person's all the same. ``room_name`` is
    what the room is called.
    """

    caller: Caller
    key: SessionKey
    run_id: RunId
    kind: RunKind
    content: tuple[TextBlock | ImageBlock, ...]
    model: str = ""
    system: str = ""
    history: tuple[Message, ...] | None = None
    options: ModelOptions = field(default_factory=ModelOptions)
    thinking: str = ""
    reply: Callable[[], Awaitable[str]] | None = None
    beside: bool = False
    """The reply does not wait for the session's runs: one of them may wait for what it does."""
    timeout_s: float | None = None
    origin: Mapping[str, str] = field(default_factory=dict)
    wire_key: str = ""
    session_id: SessionId | None = None
    answer: str = ""
    group: UserId | None = None
    room_name: str = ""

    @property
    def owner(self) -> UserId:
        """Whose session it is: the room's, or the person's own."""
        return self.group or self.caller.user_id

    @property
    def text(self) -> str:
        """The message without its images."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


@dataclass(frozen=True, slots=True)
class Repeat:
    """The idempotency key was used before: nothing ran. ``run`` is there while the first one still runs."""

    status: str
    response: bytes | None
    started_at_ms: int
    run: "Run | None" = None


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event that a run's listeners get."""

    result: RunResult


Listener: TypeAlias = Callable[[TurnEvent | RunEnded], None]


class Run:
    """A message that was accepted, until its answer is stored."""

    def __init__(
        self,
        inbound: Inbound,
        begun: TurnBegun,
        draft: Draft,
        accepted_at_ms: int,
        stopped: "Callable[[Run], None]",
    ) -> None:
        self.inbound = inbound
        self.session = begun.session
        self.entry_id = begun.entry_id
        self.accepted_at_ms = accepted_at_ms
        self.started_at_ms = 0
        self.waited = False
        self.stop_reason = ""
        self.draft = draft
        self.turn: Turn | None = None
        self.watchers: set[ConnId] = set() if inbound.caller.conn_id is None else {inbound.caller.conn_id}
        self.stored = 0
        self.is_announced = False
        self.is_welcome = False
        self.asked: str | None = None
        self.tried: tuple[Attempt, ...] = ()
        self._stopped = stopped
        self._task: asyncio.Task[Finished] | None = None
        self._listeners: list[Listener] = []
        self._result: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()

    @property
    def run_id(self) -> RunId:
        return self.inbound.run_id

    @property
    def key(self) -> SessionKey:
        return self.inbound.key

    @property
    def owner(self) -> UserId:
        """Whose session it is."""
        return self.inbound.owner

    @property
    def person(self) -> UserId:
        """Who asked: whose budget, permissions and files they are."""
        return self.inbound.caller.user_id

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every event from now on, in order, on the loop; returns the unsubscriber."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    @property
    def ended(self) -> RunResult | None:
        """The end, once it is told."""
        return self._result.result() if self._result.done() else None

    async def wait(self) -> RunResult:
        """The result; a model's failure is in it, not raised. Cancelling the wait does not touch the run."""
        return await asyncio.shield(self._result)

    def abort(self, stop_reason: str) -> None:
        """Stop the run, queued or running; its partial answer is kept. The first reason given stands."""
        if not self.stop_reason and not self._result.done():
            self.stop_reason = stop_reason
            if self._task is not None:
                self._task.cancel()
            else:
                self._stopped(self)

    def emit(self, event: TurnEvent | RunEnded) -> None:
        """Tell the listeners; what one of them raises is no concern of the run, nor of the others."""
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a listener of run %s failed", self.run_id)

    def begin(self, task: asyncio.Task[Finished]) -> None:
        """The turn is carried out by ``task``."""
        self._task = task

    def end(self, result: RunResult) -> None:
        """The end is told."""
        self._result.set_result(result)
        self.emit(RunEnded(result))
