"""A desk where commands are really run, for tests that have no gateway around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from skynet.app_commands import Confinement, open_commands
from skynet.app_settings import hidden_from_commands, own_folder
from skynet.config import Config
from skynet.gateway.approvals import ToolDecision
from skynet.gateway.command_desk import CommandDesk
from skynet.gateway.command_gate import ExecDecision, ExecQuestion, Host
from skynet.gateway.exec_file import HouseRules
from skynet.gateway.nodes import Nodes
from skynet.places import Places
from skynet.supervisor import Supervisor
from skynet_agent.tools import ToolContext
from skynet_memory.database import Database
from skynet_memory.ids import DEFAULT_AGENT, Role, RunId, SessionKey, UserId
from skynet_memory.keys import build_key
from skynet_memory.sessions import SessionStore
from skynet_users.devices import DeviceStore
from skynet_users.nodes import NodeStore
from skynet_users.people import User, UserStore
from skynet_users.permissions import DEFAULT_POLICY


@dataclass(slots=True)
class Answers:
    """Somebody who is asked about commands and gives these answers, one after the other; then none."""

    answers: list[ExecDecision] = field(default_factory=list)
    allowed: set[tuple[str, ...]] = field(default_factory=set)
    """What was allowed for good."""
    rules: HouseRules = field(default_factory=HouseRules)
    forbidden: str = ""
    asked: list[ExecQuestion] = field(default_factory=list)

    async def house(self) -> HouseRules:
        return self.rules

    async def forbids(self) -> str:
        return self.forbidden

    async def ask(self, user: User, question: ExecQuestion) -> ExecDecision:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else None

    async def allows(
        self, user_id: UserId, commands: Sequence[Sequence[str]], *, host: Host = "sandbox", node_id: str = ""
    ) -> bool:
        return bool(commands) and all(tuple(argv) in self.allowed for argv in commands)


@dataclass(slots=True)
class DeskWorld:
    """A desk, and people who come to it."""

    desk: CommandDesk
    home: Path
    users: UserStore
    sessions: SessionStore
    answers: Answers
    noted: list[tuple[str, str, str]]
    """What was noted for the audit log: action, person, subject."""

    async def person(self, name: str, role: Role = Role.USER) -> ToolContext:
        """A new person, in their main session."""
        return context_for(await self.users.add(name, role))

    def folder(self, context: ToolContext) -> Path:
        """Of this person, which the first call makes."""
        directory = self.home / "users" / context.owner / "files"
        directory.mkdir(parents=True, exist_ok=True)
        return directory


def context_for(user: User) -> ToolContext:
    return ToolContext(
        user_id=user.id,
        role=user.role,
        session_key=SessionKey(build_key(user.id, DEFAULT_AGENT, "main")),
        run_id=RunId(""),
        permissions=frozenset(DEFAULT_POLICY.grants(user.role)),
    )


@asynccontextmanager
async def open_desk(
    home: Path,
    database: Database,
    config: Config,
    *,
    by_hand: Callable[[User], ToolDecision] | None = None,
) -> AsyncIterator[DeskWorld]:
    """A desk in ``home`` as ``config`` has it. The database has all tables."""
    users, answers, noted = UserStore(database), Answers(), list[tuple[str, str, str]]()

    async def decided(user: User, tool: str, arguments: object, summary: str) -> ToolDecision:
        return ToolDecision("denied", None, "nobody") if by_hand is None else by_hand(user)

    sessions = SessionStore(database)
    async with (
        Supervisor() as tasks,
        Confinement(config, tasks, hidden_from_commands(config)) as confinement,
        open_commands(
            config,
            database,
            tasks,
            places=Places(partial(own_folder, config), sealed=[home]),
            confinement=confinement,
            sessions=sessions.get,
            nodes=Nodes(DeviceStore(database), NodeStore(database)),
            approver=answers,
            people=users.by_id,
            by_hand=decided,
            note=lambda action, actor, subject, details: noted.append((action, actor, subject)),
            job_ended=lambda job: None,
        ) as desk,
    ):
        yield DeskWorld(desk, home, users, sessions, answers, noted)
