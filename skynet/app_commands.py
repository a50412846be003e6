"""The part of the composition root that runs commands: what confines them, who may run which, and what goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from skynet.config import Config
from skynet.config.schema import MountConfig, TerminalConfig
from skynet.config.terminal_checks import is_there
from skynet.gateway.auth import Note
from skynet.gateway.command_desk import CommandDesk, Surroundings
from skynet.gateway.command_gate import LEVELS, Approver, ByHand, CommandGate, Policy
from skynet.gateway.nodes import Nodes
from skynet.places import Places
from skynet.supervisor import Supervisor
from skynet_agent.tools import ToolContext
from skynet_memory.database import Database
from skynet_memory.ids import Role, SessionKey, UserId
from skynet_memory.sessions import Session
from skynet_terminal.jobs import Job, Jobs
from skynet_terminal.sandbox import Limits, Mount, Sandbox
from skynet_terminal.shells import Shells
from skynet_terminal.terminals import Terminals
from skynet_users.people import User

log = logging.getLogger(__name__)

MEGABYTE = 1024 * 1024


@runtime_checkable
class Closing(Protocol):
    """A sandbox that keeps something open."""

    def close(self) -> None: ...


class Confinement:
    """The sandbox, tried when the first command needs it and then kept."""

    def __init__(self, config: Config, tasks: Supervisor, hidden: Sequence[Path]) -> None:
        self._config = config
        self._tasks = tasks
        self._hidden = hidden
        self._choosing = asyncio.Lock()
        self._sandbox: Sandbox | None = None

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

    def close(self) -> None:
        """Give back what the sandbox keeps open, once nothing runs in it any more."""
        if isinstance(self._sandbox, Closing):
            self._sandbox.close()

    async def _chosen(self) -> Sandbox:
        from skynet_terminal.sandbox.choose import choose
        from skynet_terminal.sandbox.egress import EgressProxy
        from skynet_terminal.sandbox.warden import Warden

        directory = self._config.home / "sandbox"
        return await choose(
            self._config.terminal.sandbox,
            directory=directory,
            image=self._config.terminal.image,
            warden=Warden(self._tasks),
            egress=EgressProxy(self._tasks, directory=directory / "egress"),
            hidden=self._hidden,
        )


@asynccontextmanager
async def open_commands(
    config: Config,
    db: Database,
    tasks: Supervisor,
    *,
    places: Places,
    folder_of: Callable[[ToolContext], Path],
    confinement: Confinement,
    hidden: Sequence[Path],
    sessions: Callable[[UserId, SessionKey], Awaitable[Session | None]],
    nodes: Nodes,
    approver: Approver,
    people: Callable[[UserId], Awaitable[User | None]],
    by_hand: ByHand,
    note: Note,
    job_ended: Callable[[Job], None],
) -> AsyncIterator[CommandDesk]:
    """The desk where commands are run; leaving ends all that was started there.

    Args:
        hidden: what commands never see, whatever is mounted: the gateway's own.
    """
    terminal = config.terminal
    gate = CommandGate(cache(lambda: _policy(config)), approver, people=people, by_hand=by_hand, note=note)
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
            folder_of=folder_of,
            sandbox=confinement.sandbox,
            surroundings=surroundings(config, hidden),
            sessions=sessions,
            jobs=jobs,
            terminals=terminals,
            shell_keeper=shells,
            nodes=nodes,
        )


def surroundings(config: Config, hidden: Sequence[Path]) -> Surroundings:
    """What commands see and have, as it is configured."""
    terminal = config.terminal
    return Surroundings(
        mounts=_mounts(terminal, hidden),
        hosts={Role.ADMIN: terminal.hosts.admin, Role.USER: terminal.hosts.user},
        env=terminal.env,
        limits=limits(terminal),
        timeout_s=terminal.timeout_s,
        longest_s=terminal.longest_s,
    )


def limits(terminal: TerminalConfig) -> Limits:
    """The limits of one command, in bytes where the configuration has megabytes."""
    configured = terminal.limits
    return Limits(
        cpu_s=configured.cpu_s,
        memory_bytes=configured.memory_mb * MEGABYTE,
        processes=configured.processes,
        file_bytes=configured.file_mb * MEGABYTE,
        disk_bytes=configured.disk_mb * MEGABYTE,
        tmp_bytes=configured.tmp_mb * MEGABYTE,
    )


def _mounts(terminal: TerminalConfig, hidden: Sequence[Path]) -> Callable[[UserId, Role], Sequence[Mount]]:
    if not terminal.mounts:
        return lambda user_id, role: ()
    from skynet_terminal.sandbox.mounts import check_mounts

    there = [mount for mount in terminal.mounts if is_there(mount)]
    seen = list(zip(there, check_mounts(there, hidden=hidden), strict=True))

    def of(user_id: UserId, role: Role) -> Sequence[Mount]:
        return [mount for configured, mount in seen if _sees(configured, user_id, role)]

    return of


def _sees(mount: MountConfig, user_id: UserId, role: Role) -> bool:
    if role is Role.CHILD:
        return False
    return user_id in mount.people or f"role:{role.value}" in mount.people or (role is Role.ADMIN and not mount.people)


def _policy(config: Config) -> Policy:
    """The rules of the household over the built-in ones. Loading them takes some milliseconds."""
    from skynet_terminal.policy.judge import CommandPolicy
    from skynet_terminal.policy.rules import blocked, user_rule

    terminal = config.terminal
    own = (
        user_rule(
            rule.decision,
            rule.program,
            args=rule.args,
            reason=rule.reason,
            levels=[LEVELS[Role(role)] for role in rule.roles],
        )
        for rule in terminal.rules
    )
    return CommandPolicy([*map(blocked, terminal.blocked), *own])
