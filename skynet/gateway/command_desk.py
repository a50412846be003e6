"""Where everything that runs a command for somebody comes together: gate, sandbox, and what is started.

The assistant's tools, ``terminal.*`` and the command line all come here; nothing else starts a person's commands.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from skynet.gateway.command_gate import CommandGate, Host, Stance
from skynet.gateway.command_turns import CommandTurns
from skynet.gateway.nodes import NodeRunResult, Nodes
from skynet.places import Places
from skynet_agent.tools import ToolContext, ToolFailed
from skynet_memory.ids import DEFAULT_AGENT, Role, RunId, SessionKey, UserId
from skynet_memory.keys import build_key
from skynet_memory.secrets import Secret
from skynet_memory.sessions import Session
from skynet_terminal import shells
from skynet_terminal.capture import NOTHING, Captured
from skynet_terminal.commands import CommandResult, OnOutput, run_command
from skynet_terminal.errors import BadDirectory, CommandBlocked
from skynet_terminal.jobs import Job, Jobs
from skynet_terminal.pty import Terminal
from skynet_terminal.sandbox import HOME_INSIDE, Launch, Limits, Mount, Profile, Sandbox
from skynet_terminal.sandbox.unconfined import Unconfined
from skynet_terminal.shells import Shells
from skynet_terminal.terminals import Terminals
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.permissions import Permission

log = logging.getLogger(__name__)

SHELL = "bash"
STARTING_NOTHING = ("--noprofile", "--norc")
"""For a bash outside of the sandbox: its home is the folder in which commands inside write as they like."""
NODE = "node"
"""What the outcome of a command on a node says it ran in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the household lets commands see and have."""

    mounts: Callable[[UserId, Role], Sequence[Mount]] = lambda user_id, role: ()
    hosts: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    env: Mapping[str, Secret] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 30.0
    longest_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A command to run to its end.

    ``cwd`` is relative to the person's folder, or as commands see it: below ``/files`` or a mount. ``host`` None and
    ``node`` empty: as the conversation has it. ``timeout_s`` None: the configured one.
    """

    command: str
    cwd: str = ""
    timeout_s: float | None = None
    host: Host | None = None
    node: str = ""
    by_hand: bool = False
    """The person gives it, not the assistant."""
    on_output: OnOutput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOutcome:
    """What became of it. ``sandbox`` is what it ran in: ``bubblewrap``, …, ``none``, or ``node``."""

    result: CommandResult
    sandbox: str


def context_of(caller: Caller, session_key: SessionKey | None = None) -> ToolContext:
    """The caller as somebody who uses tools."""
    return ToolContext(
        user_id=caller.user_id,
        role=caller.role,
        session_key=session_key or build_key(caller.user_id, DEFAULT_AGENT, "main"),
        run_id=RunId(""),
        permissions=frozenset(permission for permission in Permission if caller.may(permission)),
    )


class CommandDesk:
    """
    Args:
        folder_of: a person's own folder, or in a room the room's.
        sandbox: what confines commands; made and tried when it is first needed.
        sessions: a conversation, whose settings say how its commands are handled.
    """

    def __init__(
        self,
        gate: CommandGate,
        places: Places,
        *,
        folder_of: Callable[[ToolContext], Path],
        sandbox: Callable[[], Awaitable[Sandbox]],
        surroundings: Surroundings,
        sessions: Callable[[UserId, SessionKey], Awaitable[Session | None]],
        jobs: Jobs,
        terminals: Terminals,
        shell_keeper: Shells,
        nodes: Nodes,
    ) -> None:
        self.jobs = jobs
        self.terminals = terminals
        self._gate = gate
        self._places = places
        self._folder_of = folder_of
        self._confining = sandbox
        self._surroundings = surroundings
        self._sessions = sessions
        self._shells = shell_keeper
        self._nodes = nodes
        self._unconfined = Unconfined()
        self._turns = CommandTurns()
        self._stops: dict[UserId, int] = {}
        """How often everything of a person was ended."""

    async def execute(self, context: ToolContext, request: ExecRequest) -> ExecOutcome:
        """Run a command in a shell of its own, to its end or until its time is up.

        Raises:
            CommandBlocked, Forbidden: it may not be run.
            BadDirectory: ``cwd`` is none.
            SandboxUnavailable, StartFailed: it cannot be run.
            TooMany: so many of this person's are under way.
            ValueError: ``timeout_s`` is more than can be given.
        """
        with self._turns.under_way(context.user_id):
            return await self._execute(context, request, self._time(request.timeout_s))

    async def _execute(self, context: ToolContext, request: ExecRequest, timeout_s: float) -> ExecOutcome:
        stops = self._stops_of(context)
        stance = await self._stance(context, request.host, request.node)
        if stance.host == NODE:
            return await self._execute_on_node(context, request, stance, timeout_s)
        sandbox = await self._sandbox(stance)
        cwd = await self._directory(context, request.cwd, stance)
        await self._admit(context, request.command, stance, sandbox, cwd=str(cwd), by_hand=request.by_hand)
        async with self._turns.running(context.user_id):
            launch = await sandbox.prepare(await self._profile(context), [SHELL, "-c", request.command], cwd=cwd)
            await self._check_unstopped(context, stops, launch)
            result = await run_command(launch, timeout_s=timeout_s, on_output=request.on_output)
        return ExecOutcome(result=result, sandbox=sandbox.name)

    async def shell(
        self, context: ToolContext, command: str, *, timeout_s: float, on_output: OnOutput | None = None
    ) -> ExecOutcome:
        """Run a command in the shell of this person in this session, which keeps its directory and variables.

        Raises:
            CommandBlocked, Forbidden: it may not be run.
            SandboxUnavailable, StartFailed: it cannot be run.
        """
        with self._turns.under_way(context.user_id):
            return await self._shell(context, command, timeout_s, on_output)

    async def _shell(
        self, context: ToolContext, command: str, timeout_s: float, on_output: OnOutput | None
    ) -> ExecOutcome:
        stops = self._stops_of(context)
        stance = await self._stance(context, None, "")
        if stance.host == NODE:
            raise CommandBlocked("node.shell", "a node keeps no shell: run single commands there")
        sandbox = await self._sandbox(stance)
        await self._admit(context, command, stance, sandbox, cwd="", by_hand=False)

        async def launch() -> Launch:
            prepared = await sandbox.prepare(await self._profile(context), shells.ARGV)
            await self._check_unstopped(context, stops, prepared)
            return prepared

        # Another sandbox is another shell: what one outside of it has set is not carried inside
        session = f"{context.session_key} {sandbox.name}"
        result = await self._shells.run(
            context.user_id, session, launch, command, timeout_s=timeout_s, on_output=on_output
        )
        if stops != self._stops_of(context):
            await self._shells.close(context.user_id, session)
        return ExecOutcome(result=result, sandbox=sandbox.name)

    async def start_job(
        self, context: ToolContext, command: str, *, cwd: str = "", title: str = "", timeout_s: float | None = None
    ) -> Job:
        """Begin a command in the background.

        Raises:
            CommandBlocked, Forbidden, BadDirectory, SandboxUnavailable, StartFailed: as :meth:`execute`.
            TooMany: the person has as many jobs as there may be.
        """
        with self._turns.under_way(context.user_id):
            return await self._start_job(context, command, cwd, title, timeout_s)

    async def _start_job(
        self, context: ToolContext, command: str, cwd: str, title: str, timeout_s: float | None
    ) -> Job:
        stops = self._stops_of(context)
        stance = await self._stance(context, None, "")
        if stance.host == NODE:
            raise CommandBlocked("node.job", "a node has no background jobs: run single commands there")
        sandbox = await self._sandbox(stance)
        directory = await self._directory(context, cwd, stance)
        await self._admit(context, command, stance, sandbox, cwd=str(directory), by_hand=True)
        launch = await sandbox.prepare(await self._profile(context), [SHELL, "-c", command], cwd=directory)
        await self._check_unstopped(context, stops, launch)
        return await self.jobs.start(
            context.user_id,
            launch,
            command=command,
            title=title,
            cwd=str(directory),
            timeout_s=timeout_s,
            sandbox=sandbox.name,
        )

    async def open_terminal(
        self,
        context: ToolContext,
        *,
        shell: str = SHELL,
        command: str = "",
        cols: int = 220,
        rows: int = 50,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        title: str = "",
    ) -> Terminal:
        """Open a terminal.

        Raises:
            CommandBlocked, Forbidden, BadDirectory, SandboxUnavailable, StartFailed: as :meth:`execute`.
            TooMany: the person has as many terminals as there may be.
        """
        with self._turns.under_way(context.user_id):
            return await self._open_terminal(context, shell, command, cols, rows, cwd, env or {}, title)

    async def _open_terminal(
        self,
        context: ToolContext,
        shell: str,
        command: str,
        cols: int,
        rows: int,
        cwd: str,
        env: Mapping[str, str],
        title: str,
    ) -> Terminal:
        stops = self._stops_of(context)
        stance = await self._stance(context, None, "")
        if stance.host == NODE:
            raise CommandBlocked("node.terminal", "a node has no terminals: run single commands there")
        sandbox = await self._sandbox(stance)
        directory = await self._directory(context, cwd, stance)
        argv = [shell, "-c", command] if command else [shell]
        if stance.host == "gateway" and not command and PurePosixPath(shell).name == SHELL:
            argv += STARTING_NOTHING
            env = {**env, "INPUTRC": "/dev/null"}  # what keys do
        await self._gate.admit_terminal(
            context,
            shlex.join(argv),
            stance,
            cwd=str(directory),
            is_confined=sandbox.name != self._unconfined.name,
        )
        # What is run in it must be no other way to run what may not be run
        await self._admit(context, command or shlex.quote(shell), stance, sandbox, cwd=str(directory), by_hand=False)
        profile = await self._profile(context, env)
        launch = await sandbox.prepare(profile, argv, cwd=directory, tty=True)
        await self._check_unstopped(context, stops, launch)
        return await self.terminals.create(
            context.user_id, launch, shell=shell, cols=cols, rows=rows, title=title, sandbox=sandbox.name
        )

    async def stop_person(self, user_id: UserId) -> None:
        """End all that a person runs, and what is about to."""
        self._stops[user_id] = self._stops.get(user_id, 0) + 1
        ended = await asyncio.gather(
            *(each.close_person(user_id) for each in (self.terminals, self._shells, self.jobs)), return_exceptions=True
        )
        for error in ended:
            if error is not None:  # what cannot be ended keeps nothing else from its end
                log.error("not all that %s runs could be ended", user_id, exc_info=error)

    # What happens inside

    def _stops_of(self, context: ToolContext) -> int:
        return self._stops.get(context.user_id, 0)

    async def _check_unstopped(self, context: ToolContext, stops: int, launch: Launch) -> None:
        """What began before a person's rights were withdrawn does not start after all was ended. Nothing is awaited
        between this and the start.

        Raises:
            Forbidden: all that the person runs has been ended meanwhile.
        """
        if stops != self._stops_of(context):
            await launch.release()
            raise Forbidden(Permission.COMMANDS_RUN)

    async def _execute_on_node(
        self, context: ToolContext, request: ExecRequest, stance: Stance, timeout_s: float
    ) -> ExecOutcome:
        if not stance.node:
            raise CommandBlocked("node.none", "no node is named")
        if context.group is not None:
            raise CommandBlocked("node.room", "somebody's own machine is not used from a room")
        person = await self._gate.person(context)
        if person.requires_approval and not (request.by_hand or request.node):
            # What was approved are the arguments of a call, not how its conversation is set
            raise CommandBlocked("node.unnamed", "the call has to name the node, for whoever approves it")
        node = await self._nodes.find(context.user_id, stance.node)
        stance = replace(stance, node=node.node_id)
        decision = await self._gate.admit(
            context, request.command, stance, cwd=request.cwd, is_confined=False, by_hand=request.by_hand
        )
        begun_s = time.monotonic()
        ended = await self._nodes.run(
            context.user_id,
            node.node_id,
            request.command,
            cwd=request.cwd,
            timeout_s=timeout_s,
            approved=None if decision == "deny" else decision,
        )
        return ExecOutcome(result=_from_node(ended, time.monotonic() - begun_s), sandbox=NODE)

    async def _admit(
        self, context: ToolContext, command: str, stance: Stance, sandbox: Sandbox, *, cwd: str, by_hand: bool
    ) -> None:
        is_confined = sandbox.name != self._unconfined.name
        await self._gate.admit(context, command, stance, cwd=cwd, is_confined=is_confined, by_hand=by_hand)

    def _time(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self._surroundings.timeout_s
        if not 0 < timeout_s <= self._surroundings.longest_s:
            raise ValueError(f"timeout: {timeout_s:g} seconds, at most {self._surroundings.longest_s:g} can be given")
        return timeout_s

    async def _stance(self, context: ToolContext, host: Host | None, node: str) -> Stance:
        """How the conversation has commands handled, and this one in particular.

        Raises:
            CommandBlocked: this person may not have it so.
        """
        session = await self._sessions(context.owner, context.session_key)
        settings: Mapping[str, object] = {} if session is None else session.settings
        elevated = str(settings.get("elevatedLevel") or "off")
        is_admin = context.role is Role.ADMIN
        chosen = host or (NODE if node else str(settings.get("execHost") or ""))
        if not chosen:
            chosen = "gateway" if is_admin and elevated != "off" else "sandbox"
        if chosen == "gateway" and not is_admin:
            raise CommandBlocked("sandbox.outside", "only admins run commands outside of the sandbox")
        return Stance(
            host=chosen,  # type: ignore[arg-type]  # the settings hold no other words
            node=node or str(settings.get("execNode") or ""),
            security=settings.get("execSecurity") or "full",  # type: ignore[arg-type]
            ask=settings.get("execAsk") or "on-miss",  # type: ignore[arg-type]
            trusts_all=is_admin and elevated == "full",
        )

    async def _sandbox(self, stance: Stance) -> Sandbox:
        return self._unconfined if stance.host == "gateway" else await self._confining()

    async def _profile(self, context: ToolContext, env: Mapping[str, str] | None = None) -> Profile:
        around = self._surroundings
        folder = self._folder_of(context)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
        return Profile(
            folder=folder,
            mounts=tuple(around.mounts(context.owner, context.role)),
            env={name: value.reveal() for name, value in around.env.items()} | dict(env or {}),
            hosts=tuple(around.hosts.get(context.role, ())),
            limits=around.limits,
        )

    async def _directory(self, context: ToolContext, cwd: str, stance: Stance) -> PurePosixPath:
        """The directory as commands see it.

        Raises:
            BadDirectory: it leads outside, or to no directory.
        """
        path = PurePosixPath(cwd)
        if path.is_absolute():
            if ".." in path.parts:
                raise BadDirectory(cwd, "give it without ..")
            if stance.host == "gateway":
                return path
            mounts = self._surroundings.mounts(context.owner, context.role)
            if any(path.is_relative_to(mount.target) for mount in mounts):
                return path
            if not path.is_relative_to(HOME_INSIDE):
                raise BadDirectory(cwd, f"commands see {HOME_INSIDE}, the person's folder, and what is mounted")
            path = path.relative_to(HOME_INSIDE)
        try:
            real = await asyncio.to_thread(self._places.directory, context, str(path) if path.parts else "")
        except ToolFailed as exc:
            raise BadDirectory(cwd, str(exc)) from exc
        with suppress(ValueError):
            return HOME_INSIDE / real.relative_to(self._folder_of(context))
        raise BadDirectory(cwd, "it leads out of the person's folder")


def _from_node(ended: NodeRunResult, duration_s: float) -> CommandResult:
    stdout, stderr = _captured(ended.stdout), _captured(ended.stderr or ended.error)
    return CommandResult(
        stdout=stdout,
        stderr=stderr,
        output=Captured(stdout.head + stderr.head, b"", 0, 0),
        exit_code=ended.exit_code,
        signal="",
        timed_out=ended.timed_out,
        overrun="",
        duration_ms=round(duration_s * 1000),
    )


def _captured(text: str) -> Captured:
    return Captured(text.encode("utf-8", "replace"), b"", 0, 0) if text else NOTHING
