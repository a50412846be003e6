"""Who is asked before something happens, and who is told of it afterwards.

Gates are asked one after the other in the request's path, and whatever goes wrong there stops the action. Observers
run in tasks of their own, and nothing that goes wrong there is noticed but in the log.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Final, Self, TypeVar

from skynet.hooks.calls import Call, Handler, Observer, TooSlow, answer_of, log_extra
from skynet.hooks.events import Event, Gate, Hook
from skynet.supervisor import Supervisor

log = logging.getLogger(__name__)

GATE_TIMEOUT_S = 5.0
OBSERVER_TIMEOUT_S = 30.0
QUEUED_EVENTS = 256
CLOSE_S = 5.0
"""So long observers may finish what they have when the gateway stops."""
LONGEST_REASON = 1000
FAILED = "this was stopped, because a check that has to come first did not succeed; the gateway's log says why"
"""What the person is told of a gate that failed."""

H = TypeVar("H", bound=Handler)
G = TypeVar("G", bound=Gate)

_MARK: Final = "__skynet_hooks__"


@dataclass(frozen=True, slots=True)
class Block:
    """What a gate's handler returns to stop the action. ``reason`` is told to the person, or to the model where it is
    a tool call that is stopped; at most 1000 characters of it."""

    reason: str


class Stopped(Exception):  # noqa: N818 - nothing went wrong: somebody was asked, and said no
    """A gate stopped the action.

    ``reason`` is for the person, ``event`` what had become of the event until then. ``is_failure``: nobody said no,
    but a handler failed or took too long.
    """

    def __init__(self, reason: str, event: Gate, *, is_failure: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.event = event
        self.is_failure = is_failure


@dataclass(frozen=True, slots=True)
class Wish:
    """What a decorated function is to be called for."""

    event_type: type[Event]
    priority: int


def on(*event_types: type[Event], priority: int = 0) -> Callable[[H], H]:
    """Call the decorated function, which takes the event, for these events.

    Args:
        priority: the highest is called first; of equals the one that was loaded first.

    Raises:
        TypeError: something else than an event is given, or the function cannot take one.
    """

    def mark(handler: H) -> H:
        for event_type in event_types:
            _check(event_type, handler, priority)
        setattr(handler, _MARK, (*wishes(handler), *(Wish(each, priority) for each in event_types)))
        return handler

    if not event_types:
        raise TypeError("on() needs an event: on(BeforeMessage)")
    return mark


def wishes(value: object) -> Sequence[Wish]:
    """What ``on`` was told of a function; nothing for any other object."""
    found = getattr(value, _MARK, ())
    return found if isinstance(found, tuple) and all(isinstance(wish, Wish) for wish in found) else ()


class HookBus:
    """The handlers of one gateway. An async context manager: leaving it lets observers finish, for ``close_s`` at most.

    Args:
        tasks: owns what runs; it is left after the bus.
        gate_timeout_s: for each handler of a gate; one that takes longer stops the action.
        observer_timeout_s: for each call of an observer.
        queued_events: so many may wait for one observer; then the oldest is dropped.
    """

    def __init__(
        self,
        tasks: Supervisor,
        *,
        gate_timeout_s: float = GATE_TIMEOUT_S,
        observer_timeout_s: float = OBSERVER_TIMEOUT_S,
        queued_events: int = QUEUED_EVENTS,
        close_s: float = CLOSE_S,
    ) -> None:
        self._tasks = tasks
        self._gate_timeout_s = gate_timeout_s
        self._observer_timeout_s = observer_timeout_s
        self._queued_events = queued_events
        self._registered: dict[type[Event], tuple[_Registered, ...]] = {}
        self._observers: dict[int, Observer] = {}
        self._close_s = close_s
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def register(self, event_type: type[Event], handler: Handler, priority: int = 0, *, name: str = "") -> None:
        """Call ``handler`` with each event of this type.

        A coroutine function runs on the loop and must not block it; any other function runs in a thread of its own. An
        observer that is registered for several events is told of them in the order in which they happened.

        Args:
            priority: the highest is called first, of equals the one that was registered first.
            name: of the handler in the log.

        Raises:
            TypeError: this is no event, or no function that takes one.
        """
        _check(event_type, handler, priority)
        call = Call(handler, name or _name_of(handler))
        observer = None
        if issubclass(event_type, Hook):
            observer = self._observers.get(id(handler))
            if observer is None:
                observer = Observer(call, self._tasks, self._observer_timeout_s, self._queued_events)
                self._observers[id(handler)] = observer
        before = self._registered.get(event_type, ())
        together = [*before, _Registered(call, priority, observer)]
        self._registered[event_type] = tuple(sorted(together, key=lambda each: -each.priority))

    def has(self, event_type: type[Event]) -> bool:
        """Whether anybody wants to know: if not, the event need not be made."""
        return event_type in self._registered

    async def ask(self, gate: G) -> G:
        """Ask all handlers, each with what those before it made of the event.

        Returns the last one's; ``gate`` itself if nobody changed anything.

        Raises:
            Stopped: a handler said no, failed, or took too long. Those after it are not asked.
        """
        for registered in self._registered.get(type(gate), ()):
            gate = await self._ask_one(registered.call, gate)
        return gate

    def announce(self, hook: Hook) -> None:
        """Tell all observers, soon. Returns at once and never fails; nobody is told after the bus was closed."""
        for registered in self._registered.get(type(hook), ()):
            if registered.observer is not None and not self._closed:
                registered.observer.tell(hook)

    async def aclose(self) -> None:
        """Let observers finish what they have, for ``close_s`` at most. Idempotent."""
        self._closed = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._close_s):
                    while busy := [each.task for each in self._observers.values() if each.task is not None]:
                        await asyncio.wait(busy)
        finally:
            for observer in self._observers.values():
                observer.stop()

    async def _ask_one(self, call: Call, gate: G) -> G:
        extra = log_extra(gate)
        try:
            answer = await answer_of(call, gate, self._tasks, self._gate_timeout_s)
            if answer is None or answer is gate:
                return gate
            if not isinstance(answer, Block):
                return _accepted(gate, answer)
            reason = _reason(answer)
        except TooSlow as exc:
            log.error(
                "stopped %s: the hook %s took longer than %g s", gate.NAME, call.name, self._gate_timeout_s, extra=extra
            )
            raise Stopped(FAILED, gate, is_failure=True) from exc
        except (Exception, SystemExit) as exc:
            log.error("stopped %s: the hook %s failed", gate.NAME, call.name, exc_info=exc, extra=extra)
            raise Stopped(FAILED, gate, is_failure=True) from exc
        log.info("stopped %s: the hook %s said so", gate.NAME, call.name, extra=extra)
        raise Stopped(reason, gate)


@dataclass(frozen=True, slots=True)
class _Registered:
    call: Call
    priority: int
    observer: Observer | None


def _accepted(before: G, after: object) -> G:
    """What a handler made of an event.

    Raises:
        TypeError, ValueError: it is none, or not one that it may be.
    """
    if type(after) is not type(before):
        words = f"None, Block or a changed copy of {type(before).__name__}"
        raise TypeError(f"the answer is {type(after).__name__}, and has to be {words}")
    assert isinstance(after, type(before))
    for each in fields(before):
        old, new = getattr(before, each.name), getattr(after, each.name)
        if each.name in before.CHANGEABLE:
            if isinstance(old, str):
                _check_text(each.name, old, new)
        elif new is not old and new != old:
            raise ValueError(
                f"{each.name} was changed, which nobody may; what may be is {', '.join(before.CHANGEABLE)}"
            )
    return after


def _check_text(name: str, old: str, new: object) -> None:
    if not isinstance(new, str):
        raise TypeError(f"{name} is {type(new).__name__}, and has to be str")
    if old.strip() and not new.strip():
        raise ValueError(f"{name} was emptied; return Block to stop")
    new.encode()  # half a character (a lone surrogate) can be neither stored nor sent


def _check(event_type: object, handler: object, priority: object) -> None:
    if not (isinstance(event_type, type) and issubclass(event_type, Gate | Hook) and "NAME" in vars(event_type)):
        raise TypeError(f"{event_type!r} is no event")
    if not isinstance(priority, int):
        raise TypeError(f"the priority of a hook is a whole number, and not {priority!r}")
    if not callable(handler):
        raise TypeError(f"{handler!r} cannot be called")
    inner = handler if inspect.isroutine(handler) else type(handler).__call__
    if isinstance(handler, type) or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{_name_of(handler)} is no function that returns an answer")
    try:
        inspect.signature(handler).bind(None)
    except TypeError as exc:
        raise TypeError(f"{_name_of(handler)} cannot be called with an event: {exc}") from exc
    except ValueError:  # one written in C that does not say
        pass


def _name_of(handler: object) -> str:
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', '')}.{name}"


def _reason(block: Block) -> str:
    words = str(block.reason).strip()[:LONGEST_REASON].encode("utf-8", "replace").decode()
    return words or "a hook of this gateway stopped it"
