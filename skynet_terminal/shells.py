"""Persistent shells: one bash for each person and session, in which directory, variables and functions stay.

What a policy cannot know when it is asked about one command: earlier ones may have defined functions and aliases,
changed ``PATH`` or the directory, and set traps. A name in a command is then not the program that it seems to be.
Whatever it is runs in the same sandbox.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeAlias

from skynet_memory.ids import UserId
from skynet_terminal.capture import NOTHING, Captured
from skynet_terminal.commands import CommandResult, OnOutput, how_ended
from skynet_terminal.errors import StartFailed, TooMany
from skynet_terminal.jobs import TaskOwner
from skynet_terminal.sandbox.base import Launch
from skynet_terminal.shell import Shell

log = logging.getLogger(__name__)

ARGV: Final = ("bash", "--noprofile", "--norc")
"""What ``make_launch`` prepares."""
TIMEOUT_S: Final = 60.0
IDLE_S: Final = 1800.0
FORGOTTEN: Final = 500
"""Sessions without a shell of which is known why they have none."""

MakeLaunch: TypeAlias = Callable[[], Awaitable[Launch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult(CommandResult):
    """How a command in a shell ended. Both streams are one: ``stdout`` and ``output`` are the same, in order."""

    notice: str
    """What happened to the shell, for the model and the person: that it is a new one, that it has ended."""
    cwd: str
    """The directory that the shell is in, as commands see it; "" if it has ended."""
    earlier: Captured
    """What programs in the background wrote since the command before."""


class Shells:
    """Everybody's shells. An async context manager: leaving it ends all of them.

    Args:
        tasks: outlives the shells.
        most_per_person: beyond that the one that was not used for longest goes.
        idle_s: so long one is kept that is not used.
    """

    def __init__(self, tasks: TaskOwner, *, most_per_person: int = 8, idle_s: float = IDLE_S) -> None:
        self._tasks = tasks
        self._most_per_person = most_per_person
        self._idle_s = idle_s
        self._slots: dict[tuple[UserId, str], _Slot] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        await self._end(list(self._slots.values()), "the gateway was stopped")

    def __len__(self) -> int:
        """How many there are."""
        return sum(slot.is_taken for slot in self._slots.values())

    async def run(
        self,
        owner: UserId,
        session: str,
        make_launch: MakeLaunch,
        command: str,
        *,
        timeout_s: float = TIMEOUT_S,
        on_output: OnOutput | None = None,
    ) -> ShellResult:
        """Run ``command`` in the shell of this person and session, after those that were given before it.

        A command that runs out of time is interrupted; if it does not end by that, its shell is killed. Cancelling
        kills the shell. Whether the command may be run has been decided.

        Args:
            make_launch: prepares ``ARGV``; is called if there is no shell yet.
            timeout_s: of the command itself, without what it waits for.
            on_output: as for ``run_command``; everything is ``stdout``.

        Raises:
            TooMany: the person has that many shells, and commands run in all of them.
            StartFailed: there is no shell and none can be started, or the gateway is stopping.
            ValueError: there is a NUL in ``command``.
        """
        if "\0" in command:
            raise ValueError("there is a NUL character in the command")
        slot = self._slots.setdefault((owner, session), _Slot(owner))
        try:
            with slot.used():
                async with slot.lock:
                    return await self._run(slot, make_launch, command, timeout_s, on_output)
        finally:
            self._after(slot)

    async def close_person(self, owner: UserId) -> None:
        """End all shells of a person, also those in which commands run."""
        await self._end([slot for slot in self._slots.values() if slot.owner == owner], "it was closed")

    async def close(self, owner: UserId, session: str) -> None:
        """End the shell of this session, if there is one."""
        slot = self._slots.get((owner, session))
        if slot is not None:
            await self._end([slot], "it was closed")

    async def _run(
        self, slot: _Slot, make_launch: MakeLaunch, command: str, timeout_s: float, on_output: OnOutput | None
    ) -> ShellResult:
        if self._is_closed:
            raise StartFailed("the gateway was stopped")
        notices = []
        if slot.shell is not None and slot.shell.is_over:
            slot.why, slot.shell = slot.shell.why_over(), None
        if slot.shell is None:
            slot.shell = await self._begin(slot, make_launch)
            if slot.why:
                notices.append(
                    f"This is a new shell, since {slot.why}; directory, variables and functions are as at the start."
                )
            slot.why = ""
        shell = slot.shell
        try:
            ran = await shell.run(command, timeout_s, on_output)
        except BaseException:
            shell.kill("the command before this one was stopped")
            raise
        if shell.is_over:
            notices.append("The shell has ended with this command; the next one begins in a new shell.")
        code, signal_name = how_ended(ran.status)
        return ShellResult(
            stdout=ran.output,
            stderr=NOTHING,
            output=ran.output,
            exit_code=code,
            signal=signal_name,
            timed_out=ran.timed_out,
            overrun=shell.overrun if shell.is_over else "",
            duration_ms=ran.duration_ms,
            notice=" ".join(notices),
            cwd=ran.cwd,
            earlier=ran.earlier,
        )

    async def _begin(self, slot: _Slot, make_launch: MakeLaunch) -> Shell:
        slot.is_beginning = True  # it counts before anything is waited for, so two at once do not both find room
        try:
            await self._make_room(slot.owner)
            launch = await make_launch()
            shell = Shell(launch)
            try:
                task = self._tasks.start(shell.live(), name=f"shell of {slot.owner}")
            except RuntimeError as exc:
                await launch.release()
                raise StartFailed("the gateway was stopped") from exc
            task.add_done_callback(shell.on_task_end)
            try:
                await asyncio.shield(shell.started)
            except BaseException:
                shell.kill("it was never used")
                await launch.release()
                raise
            if self._is_closed:
                shell.kill("the gateway was stopped")
            return shell
        finally:
            slot.is_beginning = False

    async def _make_room(self, owner: UserId) -> None:
        """End what was not used for longest, until there are no more than there may be, with the one that begins."""
        while True:
            theirs = [slot for slot in self._slots.values() if slot.owner == owner and slot.is_taken]
            if len(theirs) <= self._most_per_person:
                return
            idle = [slot for slot in theirs if not slot.users]
            if not idle:
                raise TooMany("shells", self._most_per_person)
            await self._end([min(idle, key=lambda slot: slot.used_at)], "others were used since")

    async def _end(self, slots: list[_Slot], why: str) -> None:
        ending = []
        for slot in slots:
            slot.stop_timer()
            shell = slot.shell
            if shell is not None:
                ending.append(shell)
                shell.kill(f"the one before was ended: {why}")
                if not slot.users:
                    slot.shell, slot.why = None, shell.why_over()
        for shell in ending:
            await shell.gone.wait()

    def _after(self, slot: _Slot) -> None:
        slot.stop_timer()
        if slot.users:
            return
        if slot.shell is not None and not slot.shell.is_over:
            slot.timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, slot)
        without = [key for key, each in self._slots.items() if not each.is_taken and not each.users]
        for key in without[: max(0, len(without) - FORGOTTEN)]:
            del self._slots[key]

    def _expire(self, slot: _Slot) -> None:
        slot.timer = None
        shell = slot.shell
        if shell is not None and not slot.users:
            shell.kill(f"the one before was not used for {self._idle_s:g} seconds")
            slot.shell, slot.why = None, shell.why_over()


@dataclass(eq=False, slots=True)
class _Slot:
    """The place of a session's shell."""

    owner: UserId
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    shell: Shell | None = None
    is_beginning: bool = False
    users: int = 0
    """Commands that run or wait."""
    used_at: float = 0.0
    why: str = ""
    """Why there is no shell any more."""
    timer: asyncio.TimerHandle | None = None

    @property
    def is_taken(self) -> bool:
        return self.is_beginning or (self.shell is not None and not self.shell.is_over)

    @contextmanager
    def used(self) -> Iterator[None]:
        self.stop_timer()
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.used_at = time.monotonic()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
