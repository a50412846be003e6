"""The part of the composition root that runs commands: what confines them, who may run which, and what goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from skynet.app_settings import command_policy, limits, own_folder, surroundings
from skynet.config import Config
from skynet.gateway.auth import Note
from skynet.gateway.command_desk import CommandDesk
from skynet.gateway.command_gate import Approver, ByHand, CommandGate
from skynet.gateway.nodes import Nodes
from skynet.places import Places
from skynet.plugins.running import PluginRunner
from skynet.supervisor import Supervisor
from skynet_memory.database import Database
from skynet_memory.ids import SessionKey, UserId
from skynet_memory.sessions import Session
from skynet_terminal.jobs import Job, Jobs
from skynet_terminal.sandbox import Sandbox
from skynet_terminal.shells import Shells
from skynet_terminal.terminals import Terminals
from skynet_users.people import User

if TYPE_CHECKING:
    from skynet_terminal.sandbox.egress import EgressProxy

log = logging.getLogger(__name__)


@runtime_checkable
class Closing(Protocol):
    """A sandbox that keeps something open."""

    def close(self) -> None: ...


class Confinement:
    """The sandbox, tried when the first command needs it and then kept.

    An async context manager: leaving it, once nothing runs any more, gives back what the sandbox keeps open.

    Args:
        hidden: what commands never see, whatever is mounted: the gateway's own.
    """

    def __init__(self, config: Config, tasks: Supervisor, hidden: Sequence[Path]) -> None:
        self._config = config
        self._tasks = tasks
        self._hidden = hidden
        self._choosing = asyncio.Lock()
        self._sandbox: Sandbox | None = None
        self._egress: EgressProxy | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._egress is not None:
            await self._egress.close()
        if isinstance(self._sandbox, Closing):
            self._sandbox.close()

    async def sandbox(self) -> Sandbox:
        """
        Raises:
            SandboxUnavailable: none works; the next command tries again.
        """
        async with self._choosing:
            if self._sandbox is None:
                self._sandbox = await self._chosen()
                log.info("commands run in the sandbox %s", self._sandbox.name)
            return self._sandbox

    async def _chosen(self) -> Sandbox:
        from skynet_terminal.sandbox.choose import choose
        from skynet_terminal.sandbox.egress import EgressProxy
        from skynet_terminal.sandbox.warden import Warden

        directory = self._config.home / "sandbox"
        if self._egress is None:
            self._egress = EgressProxy(self._tasks, directory=directory / "egress")
        return await choose(
            self._config.terminal.sandbox,
            directory=directory,
            image=self._config.terminal.image,
            warden=Warden(self._tasks),
            egress=self._egress,
            hidden=self._hidden,
        )


@asynccontextmanager
async def open_commands(
    config: Config,
    db: Database,
    tasks: Supervisor,
    *,
    places: Places,
    confinement: Confinement,
    sessions: Callable[[UserId, SessionKey], Awaitable[Session | None]],
    nodes: Nodes,
    approver: Approver,
    people: Callable[[UserId], Awaitable[User | None]],
    by_hand: ByHand,
    note: Note,
    job_ended: Callable[[Job], None],
) -> AsyncIterator[CommandDesk]:
    """The desk where commands are run; leaving ends all that was started there."""
    terminal = config.terminal
    gate = CommandGate(cache(lambda: command_policy(config)), approver, people=people, by_hand=by_hand, note=note)
    async with (
        Jobs(
            db,
            config.home / "jobs",
            tasks,
            most_per_person=terminal.max_jobs,
            log_bytes=terminal.job_log_bytes,
            on_end=job_ended,
        ) as jobs,
        Terminals(tasks, most=terminal.max_terminals, idle_s=terminal.idle_s) as terminals,
        Shells(tasks, idle_s=terminal.idle_s) as shells,
    ):
        yield CommandDesk(
            gate,
            places,
            folder_of=partial(own_folder, config),
            sandbox=confinement.sandbox,
            surroundings=surroundings(config),
            sessions=sessions,
            jobs=jobs,
            terminals=terminals,
            shell_keeper=shells,
            nodes=nodes,
        )


def plugin_runner(config: Config, confinement: Confinement) -> PluginRunner:
    """Runs plugins in the sandbox of commands."""
    nothing = config.home / "sandbox" / "nothing"
    return PluginRunner(confinement.sandbox, nothing=nothing, limits=limits(config.terminal))
