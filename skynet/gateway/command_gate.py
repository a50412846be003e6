"""Whether a person may run a command, here and now: permission, policy, and whoever has to say yes."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

from skynet.gateway.approvals import ToolDecision
from skynet.gateway.auth import Note
from skynet_agent.messages import Json
from skynet_agent.tools import ToolContext
from skynet_memory.ids import Role, SessionKey, UserId
from skynet_terminal.errors import CommandBlocked
from skynet_terminal.policy.base import Level, Verdict
from skynet_terminal.sandbox import HOME_INSIDE
from skynet_users.errors import Forbidden
from skynet_users.people import User
from skynet_users.permissions import Permission

log = logging.getLogger(__name__)

Host: TypeAlias = Literal["sandbox", "gateway", "node"]
"""Where a command runs: held by the sandbox, on the gateway's machine with nothing that holds it, or on a node."""
ExecDecision: TypeAlias = Literal["allow-once", "allow-always", "deny"] | None

READ_AT_ONCE = 2000
"""Characters of a command that is judged in the loop, in a millisecond or a few."""
NO_SANDBOX = ("sandbox.none", "without a sandbox only admins run commands")
LEVELS: Mapping[Role, Level] = {Role.ADMIN: Level.TRUSTED, Role.USER: Level.STANDARD, Role.CHILD: Level.STRICT}


ByHand: TypeAlias = Callable[[User, str, Mapping[str, Json], str], Awaitable[ToolDecision]]
"""Asks whether a person who needs an approval may do something by hand: what, with which arguments, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecQuestion:
    """A command that somebody has to allow."""

    command: str
    """As it was given, for people."""
    commands: tuple[tuple[str, ...], ...] = ()
    """The simple commands in it, as far as they are known: what "always" would allow."""
    cwd: str = ""
    host: Host = "sandbox"
    node_id: str = ""
    session_key: SessionKey | None = None
    run_id: str = ""
    room: UserId | None = None
    """In whose folder it runs, if not in the person's own."""
    rule: str = ""
    reason: str = ""
    update: Callable[[str], None] = lambda text: None
    """Told that somebody is being asked."""


class Policy(Protocol):
    """What the rules say of a command line."""

    def judge(self, command: str, level: Level) -> Verdict: ...


class House(Protocol):
    """What the house says of commands, whoever's they are; "" where it says nothing."""

    @property
    def security(self) -> str: ...

    @property
    def ask(self) -> str: ...


class Approver(Protocol):
    """Who is asked where the rules do not decide, and what was allowed for good."""

    async def house(self) -> House: ...

    async def forbids(self) -> str: ...

    async def ask(self, user: User, question: ExecQuestion) -> ExecDecision: ...

    async def allows(
        self, user_id: UserId, commands: Sequence[Sequence[str]], *, host: Host = "sandbox", node_id: str = ""
    ) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stance:
    """How commands of a session are handled (OPENCLAW-V3 6.4), as far as the person may set that."""

    host: Host = "sandbox"
    node: str = ""
    security: Literal["deny", "allowlist", "full"] = "full"
    """``deny``: no commands. ``allowlist``: those alone that were allowed for good; the rest is asked about."""
    ask: Literal["off", "on-miss", "always"] = "on-miss"
    """``off``: nobody is asked; what would need a yes is refused. ``always``: every command is asked about."""
    trusts_all: bool = False
    """Nothing is asked; what the policy refuses is still refused. Admins' alone (``/elevated full``)."""


class CommandGate:
    """
    Args:
        policy: gives the policy, which is made when it is first needed.
        people: who somebody is now; None for nobody.
        by_hand: asked for commands that people with ``requiresApproval`` give themselves. Their assistant's calls were
            asked about before they came here.
        note: told of refused commands, for the audit log.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        approver: Approver,
        *,
        people: Callable[[UserId], Awaitable[User | None]],
        by_hand: ByHand,
        note: Note,
    ) -> None:
        self._policy = policy
        self._approver = approver
        self._people = people
        self._by_hand = by_hand
        self._note = note
        self._reading: WeakValueDictionary[UserId, asyncio.Lock] = WeakValueDictionary()

    async def person(self, context: ToolContext) -> User:
        """Who asks, as the person is now.

        Raises:
            Forbidden: the person may not run commands, or not any more.
        """
        user = await self._people(context.user_id)
        if user is None or user.disabled or Permission.COMMANDS_RUN not in context.permissions:
            raise Forbidden(Permission.COMMANDS_RUN)
        return user

    async def admit(
        self, context: ToolContext, command: str, stance: Stance, *, cwd: str, is_confined: bool, by_hand: bool
    ) -> ExecDecision:
        """Let the command pass, or not. May wait for somebody's yes.

        Args:
            is_confined: a sandbox holds what the command does.

        Returns:
            By which answer it passes, if somebody was asked, now or earlier.

        Raises:
            CommandBlocked: with the rule and the reason.
            Forbidden: the person may not run commands at all.
        """
        user = await self.person(context)
        try:
            decision = await self._pass(user, context, command, stance, cwd=cwd, is_confined=is_confined)
            if by_hand and user.requires_approval:
                await self._pass_by_hand(user, "command", command, stance, cwd)
        except CommandBlocked as blocked:
            self._tell(user, blocked)
            raise
        return decision

    async def admit_terminal(
        self, context: ToolContext, program: str, stance: Stance, *, cwd: str, is_confined: bool
    ) -> None:
        """As :meth:`admit`, for a terminal, in which anything can be typed.

        Raises:
            CommandBlocked, Forbidden: see there.
        """
        user = await self.person(context)
        try:
            if LEVELS[context.role] is Level.STRICT:
                raise CommandBlocked(
                    "terminal.strict", "a terminal is not for this person: what is typed is not judged"
                )
            if not is_confined and context.role is not Role.ADMIN:
                raise CommandBlocked(*NO_SANDBOX)
            if user.requires_approval:
                await self._pass_by_hand(user, "program", program, stance, cwd)
        except CommandBlocked as blocked:
            self._tell(user, blocked)
            raise

    async def _pass(
        self, user: User, context: ToolContext, command: str, stance: Stance, *, cwd: str, is_confined: bool
    ) -> ExecDecision:
        if not is_confined and stance.host != "node" and context.role is not Role.ADMIN:
            raise CommandBlocked(*NO_SANDBOX)
        verdict = await self._judge(user, command, cwd, LEVELS[context.role])
        if verdict.decision == "deny":
            raise CommandBlocked(verdict.rule, verdict.reason)
        if reason := await self._approver.forbids():
            raise CommandBlocked("house.deny", reason)
        if stance.security == "deny":
            raise CommandBlocked("session.deny", "commands are switched off in this conversation")
        house = await self._approver.house()
        rule, reason = await self._question(user, command, cwd, stance, verdict, house)
        if not rule or (stance.trusts_all and not rule.startswith("house.")):
            return None
        # Where nothing holds what runs, or nothing runs that is not listed, it is not enough that what the rules ask
        # about was allowed: all that stands beside it would run as well
        is_all_asked = stance.host != "sandbox" or "allowlist" in (house.security, stance.security)
        commands = verdict.whole if is_all_asked else verdict.commands
        if not rule.endswith(".always") and await self._approver.allows(
            user.id, commands, host=stance.host, node_id=stance.node
        ):
            return "allow-always"
        if stance.ask == "off":
            raise CommandBlocked(rule, f"{reason}; nobody is asked in this conversation")
        decision = await self._approver.ask(
            user,
            ExecQuestion(
                command=command,
                commands=commands,
                cwd=cwd,
                host=stance.host,
                node_id=stance.node,
                session_key=context.session_key,
                run_id=context.run_id,
                room=context.group,
                rule=rule,
                reason=reason,
                update=context.update,
            ),
        )
        if decision is None:
            raise CommandBlocked(rule, f"{reason}; it was asked for and has not come")
        if decision == "deny":
            raise CommandBlocked(rule, f"{reason}; it was not allowed")
        # Whoever waited may have lost the right meanwhile
        await self.person(context)
        return decision

    async def _question(
        self, user: User, command: str, cwd: str, stance: Stance, verdict: Verdict, house: House
    ) -> tuple[str, str]:
        """The rule by which somebody has to be asked, and why; "" if nobody has to."""
        if house.ask == "always":
            return "house.always", "every command needs a yes here"
        if stance.ask == "always":
            return "session.always", "every command of this conversation needs a yes"
        if house.security == "allowlist":
            return "house.allowlist", "it is not among the commands that the house lets run, and needs a yes"
        if verdict.decision == "ask":
            return verdict.rule, verdict.reason
        if stance.security == "allowlist":
            return "session.allowlist", "it is not among the commands that were allowed for good, and needs a yes"
        if stance.host != "sandbox" and (await self._judge(user, command, cwd, Level.STRICT)).decision != "allow":
            return "sandbox.outside", "it runs outside of the sandbox, which needs a yes"
        return "", ""

    async def _judge(self, user: User, command: str, cwd: str, level: Level) -> Verdict:
        """What is long takes a while to read: it keeps the same person's other commands waiting, and nobody else's."""
        if len(command) <= READ_AT_ONCE:
            return self._judge_at_once(command, cwd, level)
        async with self._reading.setdefault(user.id, asyncio.Lock()):
            return await asyncio.to_thread(self._judge_at_once, command, cwd, level)

    def _judge_at_once(self, command: str, cwd: str, level: Level) -> Verdict:
        """Of the command where it is run: ``rm -rf x`` is another thing in another place."""
        if cwd in ("", str(HOME_INSIDE)):
            return self._policy().judge(command, level)
        verdict = self._policy().judge(f"cd {shlex.quote(cwd)} && {command}", level)
        commands = tuple(argv for argv in verdict.commands if argv != ("cd", cwd))
        whole = tuple(argv for argv in verdict.whole if argv != ("cd", cwd))
        return replace(verdict, commands=commands, whole=whole)

    def _tell(self, user: User, blocked: CommandBlocked) -> None:
        log.warning("blocked a command of %s by rule %s", user.id, blocked.rule, extra={"user_id": user.id})
        self._note("command.blocked", user.id, blocked.rule, {})

    async def _pass_by_hand(
        self, user: User, what: Literal["command", "program"], text: str, stance: Stance, cwd: str
    ) -> None:
        """
        Args:
            what: a ``program`` is one that stays open, for anything to be typed into.
        """
        arguments = {what: text, "cwd": cwd}
        where = ""
        if stance.host != "sandbox":
            arguments |= {"host": stance.host, "node": stance.node}
            where = f" on {stance.node or stance.host}"
        decision = await self._by_hand(user, "terminal", arguments, f"terminal{where}: {text}"[:300])
        if decision.outcome != "approved":
            raise CommandBlocked("person.approval", f"not run: {decision}")
