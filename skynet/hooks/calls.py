"""How handlers are called: a gate's within its time, an observer's one after the other, none in the loop's way."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from skynet.hooks.events import Event, Gate, Hook
from skynet.supervisor import Supervisor

log = logging.getLogger(__name__)

MOST_THREADS = 8
"""So many calls of one handler that is no coroutine function run at once; the others wait."""

Handler: TypeAlias = Callable[[Any], Any]


class TooSlow(Exception):  # noqa: N818 - says what is wrong with the handler
    """The time of a gate's handler is up."""


class Call:
    """A handler, called where it holds up nobody else."""

    def __init__(self, handler: Handler, name: str) -> None:
        self.name = name
        self._handler = handler
        self._is_coroutine = _is_coroutine(handler)
        self._room = asyncio.Semaphore(MOST_THREADS)

    async def __call__(self, event: Event) -> object:
        answer = self._handler(event) if self._is_coroutine else await self._in_thread(event)
        return await answer if inspect.isawaitable(answer) else answer

    async def _in_thread(self, event: Event) -> object:
        """In a thread that nobody has to wait for: those of the loop's own are, when the gateway stops."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        context = copy_context()
        await self._room.acquire()

        def settle(answer: object, error: Exception | None) -> None:
            self._room.release()
            if future.done():
                return
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        def work() -> None:
            answer, error = None, None
            try:
                answer = context.run(self._handler, event)
            except BaseException as exc:
                error = exc if isinstance(exc, Exception) and not isinstance(exc, StopIteration) else _raised(exc)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, answer, error)

        try:
            threading.Thread(target=work, name=f"hook {self.name}", daemon=True).start()
        except BaseException:
            self._room.release()
            raise
        return await future


async def answer_of(call: Call, gate: Gate, tasks: Supervisor, timeout_s: float) -> object:
    """What a gate's handler says. It runs in a task of its own: one that does not let itself be cancelled holds up
    nobody.

    Raises:
        TooSlow: it has not answered in time.
        BaseException: what the handler raised.
    """
    task = tasks.start(_outcome(call, gate), name=f"hook {call.name}")
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    finally:
        task.cancel()
    if not done:
        raise TooSlow
    if task.cancelled():
        raise RuntimeError("the handler was cancelled")
    answer, error = task.result()
    if error is not None:
        raise error
    return answer


async def _outcome(call: Call, gate: Gate) -> tuple[object, BaseException | None]:
    """Its answer or what it raised, which is for the one who asked and not for the owner of the task."""
    try:
        return await call(gate), None
    except (Exception, SystemExit) as exc:
        return None, exc


def log_extra(event: Event) -> dict[str, str]:
    """Whose it is, for the log's lines."""
    return {"user_id": event.user.id, "run_id": event.run or ""}


class Observer:
    """One observer and what it has not been told yet. ``task`` is the call that is on its way."""

    def __init__(self, call: Call, tasks: Supervisor, timeout_s: float, queued_events: int) -> None:
        self.task: asyncio.Task[None] | None = None
        self._call = call
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._queue: deque[tuple[Hook, Context]] = deque()
        self._queued_events = queued_events
        self._dropped = 0

    def tell(self, hook: Hook) -> None:
        """One after the other. If there are too many the oldest is forgotten."""
        if len(self._queue) == self._queued_events:
            self._queue.popleft()
            self._dropped += 1
            if self._dropped == 1:
                words = "the hook %s is too slow: events are dropped, the oldest of %d first"
                log.warning(words, self._call.name, self._queued_events)
        self._queue.append((hook, copy_context()))
        if self.task is None:
            self._next()

    def stop(self) -> None:
        """Forget what waits and end what runs."""
        left = len(self._queue)
        self._queue.clear()
        self._tell_dropped()
        if self.task is not None:
            self.task.cancel()
            log.warning("the hook %s was stopped; %d events that waited are lost", self._call.name, left)

    def _next(self) -> None:
        """Begin with the oldest, in the context in which it happened."""
        if not self._queue:
            self._tell_dropped()
            return
        hook, context = self._queue.popleft()
        try:
            self.task = context.run(self._start, hook)
        except RuntimeError as exc:  # nothing is started any more
            log.warning("the hook %s is not told of %s: %s", self._call.name, hook.NAME, exc)
            self._queue.clear()
            return
        self.task.add_done_callback(self._ended)

    def _start(self, hook: Hook) -> asyncio.Task[None]:
        return self._tasks.start(self._run(hook), name=f"hook {self._call.name}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.task = None
        self._next()

    async def _run(self, hook: Hook) -> None:
        deadline = asyncio.timeout(self._timeout_s)
        try:
            async with deadline:
                await self._call(hook)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.exception("the hook %s gave up at %s", self._call.name, hook.NAME, extra=log_extra(hook))
        except (Exception, SystemExit) as exc:
            if isinstance(exc, TimeoutError) and deadline.expired():
                words = "the hook %s was ended: it took longer than %g s for %s"
                log.error(words, self._call.name, self._timeout_s, hook.NAME, extra=log_extra(hook))
            else:
                log.error("the hook %s failed at %s", self._call.name, hook.NAME, exc_info=exc, extra=log_extra(hook))

    def _tell_dropped(self) -> None:
        if self._dropped:
            log.warning("the hook %s has missed %d events", self._call.name, self._dropped)
            self._dropped = 0


def _is_coroutine(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _raised(error: BaseException) -> RuntimeError:
    """``error``, which a future cannot hold or the loop would end with, as one that says so."""
    outer = RuntimeError(f"{type(error).__name__} was raised")
    outer.__cause__ = error
    return outer
