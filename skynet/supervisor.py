"""Who owns background work: every task that outlives a call is started here and ended here."""

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class Supervisor:
    """Owns the tasks that outlive the call which started them.

    An async context manager: leaving it cancels what still runs and waits for it. A task that fails is logged with its
    name and traceback and takes nothing else down.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run ``coro`` as a task of its own.

        Raises:
            RuntimeError: the supervisor is closing; the coroutine is closed unstarted.
        """
        if self._closed:
            coro.close()
            raise RuntimeError(f"cannot start {name}: shutting down")
        task = asyncio.create_task(coro, name=name)  # noqa: TID251  (the one owner)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)
