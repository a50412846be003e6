"""Everybody's terminals: who has which, how many, and when one goes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from skynet_terminal.errors import TooMany, UnknownTerminal
from skynet_terminal.pty import DEFAULT_COLS, DEFAULT_ROWS, HANGUP_S, LoopShare, Terminal
from skynet_terminal.sandbox.base import Launch

log = logging.getLogger(__name__)

MOST_TERMINALS = 8
IDLE_S = 1800.0
ENDED_S = 600.0
"""So long the last output of one that has ended can be read."""
MOST_ENDED = 8
SWEEP_S = 30.0


class TaskOwner(Protocol):
    """Who owns what goes on after a call."""

    def start(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


class Terminals:
    """The terminals of all people; each sees their own alone.

    An async context manager: leaving it ends all of them.

    Args:
        most: how many a person may have at a time.
        idle_s: one that nobody looks at, types into or reads, and that writes nothing, is ended after this time.
        ended_s: one that has ended is kept for this time, though no more than ``MOST_ENDED`` a person.
        now_s: a clock that never goes back.
    """

    def __init__(
        self,
        tasks: TaskOwner,
        *,
        most: int = MOST_TERMINALS,
        idle_s: float = IDLE_S,
        ended_s: float = ENDED_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks = tasks
        self._most = most
        self._idle_s = idle_s
        self._ended_s = ended_s
        self._now_s = now_s
        self._share = LoopShare()
        self._terminals: dict[str, Terminal] = {}
        self._attending: dict[str, asyncio.Task[None]] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._sweeper = self._tasks.start(self._sweep(), name="terminals: end idle ones")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        await self._end(list(self._terminals.values()))
        self._terminals.clear()

    def check_room(self, owner: str) -> None:
        """
        Raises:
            TooMany: the person has as many as are allowed.
        """
        if sum(terminal.running for terminal in self.list(owner)) >= self._most:
            raise TooMany("terminals", self._most)

    async def create(
        self,
        owner: str,
        launch: Launch,
        *,
        shell: str = "",
        title: str = "",
        sandbox: str = "",
        cols: int = DEFAULT_COLS,
        rows: int = DEFAULT_ROWS,
    ) -> Terminal:
        """Start ``launch`` under a terminal. It is released with the end of it, or at once if that fails.

        Args:
            shell, sandbox: what it is and runs in, for people.

        Raises:
            StartFailed: the program cannot be started.
            TooMany: the person has as many as are allowed.
            ValueError: ``cols`` or ``rows`` is no size of a terminal.
        """
        try:
            if self._closed:
                raise RuntimeError("cannot start a terminal: shutting down")
            self.check_room(owner)
            terminal = Terminal(
                owner,
                launch,
                shell=shell,
                title=title,
                sandbox=sandbox,
                cols=cols,
                rows=rows,
                share=self._share,
                now_s=self._now_s,
            )
        except BaseException:
            await self._released(launch)
            raise
        self._terminals[terminal.id] = terminal
        try:
            attending = self._tasks.start(self._attend(terminal, launch), name=f"terminal {terminal.id}")
        except BaseException:
            del self._terminals[terminal.id]
            await terminal.close(0)
            await self._released(launch)
            raise
        self._attending[terminal.id] = attending
        attending.add_done_callback(lambda _task: self._attending.pop(terminal.id, None))
        log.info("terminal %s of %s starts: process %d", terminal.id, owner, terminal.pid)
        return terminal

    def get(self, owner: str, terminal_id: str) -> Terminal:
        """
        Raises:
            UnknownTerminal: there is none of this id, or it is not this person's.
        """
        terminal = self._terminals.get(terminal_id)
        if terminal is None or terminal.owner != owner:
            raise UnknownTerminal(terminal_id)
        return terminal

    def list(self, owner: str) -> list[Terminal]:
        """The person's terminals, the oldest first, with those that have ended a short while ago."""
        return [terminal for terminal in self._terminals.values() if terminal.owner == owner]

    async def close_person(self, owner: str) -> None:
        """End and forget all terminals of somebody who may have none any more."""
        terminals = self.list(owner)
        for terminal in terminals:
            del self._terminals[terminal.id]
        await self._end(terminals)

    async def expire(self) -> None:
        """End those that are idle, and forget those that ended long ago."""
        now = self._now_s()
        idle = [terminal for terminal in self._terminals.values() if self._is_idle(terminal, now)]
        for terminal in idle:
            log.info("terminal %s of %s is ended: idle for %d s", terminal.id, terminal.owner, self._idle_s)
        await self._end(idle)
        for terminal in list(self._terminals.values()):
            if terminal.ended_at_s is not None and now - terminal.ended_at_s >= self._ended_s:
                self._forget(terminal)

    def _is_idle(self, terminal: Terminal, now: float) -> bool:
        return terminal.running and not terminal.viewers and now - terminal.used_at_s >= self._idle_s

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.expire()

    async def _attend(self, terminal: Terminal, launch: Launch) -> None:
        """Be there for its end."""
        try:
            await terminal.ended.wait()
        finally:
            try:
                await terminal.close(0)
            finally:
                await launch.release()
        log.info("terminal %s of %s has ended: %s", terminal.id, terminal.owner, terminal.signal or terminal.exit_code)
        ended = [other for other in self.list(terminal.owner) if not other.running]
        for other in sorted(ended, key=lambda each: each.ended_at_s or 0.0)[:-MOST_ENDED]:
            self._forget(other)

    def _forget(self, terminal: Terminal) -> None:
        self._terminals.pop(terminal.id, None)

    async def _end(self, terminals: Sequence[Terminal]) -> None:
        """End them together. Nothing is left of them if that is cancelled."""
        if not terminals:
            return
        async with asyncio.TaskGroup() as group:
            for terminal in terminals:
                group.create_task(terminal.close(HANGUP_S))
        attending = [task for terminal in terminals if (task := self._attending.get(terminal.id)) is not None]
        if attending:
            await asyncio.wait(attending)

    async def _released(self, launch: Launch) -> None:
        """Release it to the end, even if whoever waits for it is cancelled."""
        try:
            releasing = self._tasks.start(launch.release(), name="release of what was not started")
        except RuntimeError:  # shutting down
            await launch.release()
        else:
            await asyncio.shield(releasing)
