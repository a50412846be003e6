"""Questions whether a command may run: who is asked, how long, and what an answer is good for (OPENCLAW-V3 6.12)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from skynet.gateway.approvals import LEAST_ENDING, SHOWN_ENDING, Record
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.command_gate import ExecDecision, ExecQuestion, Host
from skynet.gateway.exec_file import Entry, ExecFile, HouseRules
from skynet.gateway.exec_patterns import WordsPattern, resolve_program
from skynet.gateway.heartbeat import SystemEvents
from skynet_memory.ids import DEFAULT_AGENT, ConnId, DeviceId, Role, SessionKey, UserId, new_id, now_ms
from skynet_memory.keys import InvalidSessionKey, parse_key
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.exec_approvals import (
    DECISIONS,
    Decision,
    ExecApprovalAccepted,
    ExecApprovalAnswer,
    ExecApprovalRequest,
    ExecApprovalRequestedEvent,
    ExecApprovalRequestParams,
    ExecApprovalResolvedEvent,
    ExecApprovalSummary,
    SystemRunBinding,
)
from skynet_protocol.params import invalid_params
from skynet_protocol.scopes import Scope, satisfies
from skynet_terminal.errors import CommandBlocked
from skynet_users.caller import Caller
from skynet_users.command_grants import MAX_PATTERN, CommandGrant, CommandGrantStore
from skynet_users.errors import OwnRequest, TooManyPending
from skynet_users.guardians import GuardianStore
from skynet_users.people import User, UserStore
from skynet_users.permissions import Permission, PermissionPolicy, permits

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 120_000
"""A question to somebody who is connected waits so long."""
OPEN_MS: Final = 600_000
"""A question to somebody who is not: they may come, or answer on a channel."""
LATE_MS: Final = 600_000
"""An answer for which nobody waited any more is good for the same command so long."""
KEPT_MS: Final = 15_000
"""``exec.approval.waitDecision`` finds an answer so long."""
LONGEST_MS: Final = 3_600_000
"""A client's question waits no longer, whatever it says."""
MOST_OPEN: Final = 20
"""Open questions of one person."""
MOST_KEPT: Final = 100
"""Ended ones of one person that are remembered."""
MOST_SHOWN: Final = 16_384
"""Characters of a command. Nobody has to allow what cannot be shown whole."""

UNKNOWN: Final = "unknown approval id"
NOT_FOUND: Final = "approval expired or not found"

BindingCode: TypeAlias = Literal[
    "MISSING_RUN_ID",
    "UNKNOWN_APPROVAL_ID",
    "APPROVAL_EXPIRED",
    "APPROVAL_NODE_BINDING_MISSING",
    "APPROVAL_NODE_MISMATCH",
    "APPROVAL_DEVICE_MISMATCH",
    "APPROVAL_CLIENT_MISMATCH",
    "APPROVAL_REQUEST_MISMATCH",
    "APPROVAL_REQUIRED",
]
"""``error.details.code`` of a ``system.run`` that says it was approved and was not (OPENCLAW-V3 6.13)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Asked:
    """A question, open or ended."""

    id: str
    owner: UserId
    """Who asks."""
    request: ExecApprovalRequest
    commands: tuple[tuple[str, ...], ...]
    """What "always" allows."""
    host: Host | None
    node_id: str
    key: str
    """Of the same command, in the same place, asked by the same person; unlike any other of a client's question."""
    by_others: bool
    """Whoever asks does not decide it."""
    deciders: Collection[UserId]
    created_at_ms: int
    expires_at_ms: int
    device_id: DeviceId | None = None
    conn_id: ConnId | None = None
    is_client: bool = False
    """A client asked, by ``exec.approval.request``."""
    decision: Decision | None = None
    resolved_by: UserId | None = None
    ended_at_ms: int | None = None
    is_used: bool = False
    waiting: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_open(self) -> bool:
        return self.ended_at_ms is None

    @property
    def ending(self) -> str:
        return self.id[-SHOWN_ENDING:]

    def accepted(self) -> ExecApprovalAccepted:
        return ExecApprovalAccepted(
            status="accepted", id=self.id, created_at_ms=self.created_at_ms, expires_at_ms=self.expires_at_ms
        )

    def answer(self) -> ExecApprovalAnswer:
        return ExecApprovalAnswer(
            id=self.id, decision=self.decision, created_at_ms=self.created_at_ms, expires_at_ms=self.expires_at_ms
        )


@dataclass(frozen=True, slots=True)
class _Late:
    """An answer for which nobody waited any more."""

    asked: Asked
    until_ms: int


class ExecApprovals:
    """Asks, remembers for a while what was answered, and for good what was allowed for good. Open questions are in
    memory: they do not survive a restart.

    Args:
        people: who somebody is now; None for nobody.
        approver: by role, whether they are asked about their own commands or an admin is. About a child's it is always
            somebody else.
        wait_s: how long a command waits for somebody else who is not connected, before it is told that nobody has
            answered yet.
    """

    def __init__(
        self,
        file: ExecFile,
        grants: CommandGrantStore,
        *,
        people: Callable[[UserId], Awaitable[User | None]],
        users: UserStore,
        guardians: GuardianStore,
        policy: PermissionPolicy,
        broadcaster: Broadcaster,
        events: SystemEvents,
        record: Record,
        approver: Mapping[Role, Literal["self", "admin"]],
        wait_s: float = 60.0,
        timeout_ms: int = TIMEOUT_MS,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._file = file
        self._grants = grants
        self._people = people
        self._users = users
        self._guardians = guardians
        self._policy = policy
        self._broadcaster = broadcaster
        self._events = events
        self._record = record
        self._approver = approver
        self._wait_s = wait_s
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._deciding = asyncio.Lock()
        self._asked: dict[tuple[UserId, str], Asked] = {}
        self._late: dict[tuple[UserId, str], _Late] = {}

    # What runs without a question

    async def forbids(self, agent_id: str = DEFAULT_AGENT) -> str:
        """Why the house lets nobody run any command; "" if it does not forbid them."""
        return _forbidden(await self._file.rules(agent_id))

    async def house(self, agent_id: str = DEFAULT_AGENT) -> HouseRules:
        """What the house says of everybody's commands."""
        return await self._file.rules(agent_id)

    async def allows(
        self,
        user_id: UserId,
        commands: Sequence[Sequence[str]],
        *,
        host: Host = "sandbox",
        node_id: str = "",
        agent_id: str = DEFAULT_AGENT,
    ) -> bool:
        """Whether every one of these simple commands was allowed for good, to this person there or to the house."""
        if not commands or not all(commands):
            return False
        user = await self._people(user_id)
        rules = await self._file.rules(agent_id)
        if user is None or _forbidden(rules) or rules.ask == "always":
            return False
        if _lifts(rules, user):
            return True
        return await self._covered(user, commands, rules, host, node_id)

    async def _covered(
        self, user: User, commands: Sequence[Sequence[str]], rules: HouseRules, host: Host, node_id: str
    ) -> bool:
        by_others = self._by_others(user)
        patterns = {tuple(argv): pattern for argv in commands if (pattern := pattern_of(argv)) is not None}
        granted = {
            grant.pattern: grant
            for grant in await self._grants.find(user.id, patterns.values(), host, node_id)
            if not (by_others and grant.decided_by == user.id)  # allowed when they still decided for themselves
        }
        grants: set[str] = set()
        entries: list[tuple[Entry, Sequence[str], str]] = []
        for argv in commands:
            if (grant := granted.get(patterns.get(tuple(argv), ""))) is not None:
                grants.add(grant.id)
            elif (match := _listed(rules, argv, host)) is not None:
                entries.append((match[0], argv, match[1]))
            else:
                return False
        if grants:
            await self._grants.used(user.id, grants, self._clock())
        for entry, argv, path in entries:
            self._file.used(entry, argv, path, self._clock())
        return True

    # Asking

    async def ask(self, user: User, question: ExecQuestion) -> ExecDecision:
        """Whether ``user`` may run exactly this command, there. Waits for the answer; None if none came in time.

        An answer that came when nobody waited any more is used up first. "allow-once" lets one caller run it once.

        Raises:
            CommandBlocked: the house forbids it, nobody is there who could allow it, or it is still open: then the
                reason says how it is answered, and that the same command works once it is.
        """
        agent_id = _agent_of(question.session_key)
        rules = await self._file.rules(agent_id)
        if reason := _forbidden(rules):
            raise CommandBlocked("house.deny", reason)
        if rules.security == "allowlist" and rules.ask == "off":
            raise CommandBlocked("house.allowlist", "the house lets run only what it has listed, and asks nobody")
        if _lifts(rules, user) and question.rule != "session.always":
            return "allow-once"
        if len(question.command) > MOST_SHOWN:
            raise CommandBlocked(
                "approval.too-long",
                f"it is {len(question.command)} characters, and nobody is asked about more than {MOST_SHOWN}",
            )
        late = await self._late_answer(user, question)
        if late is not None:
            return late
        asked = self._same(user, question) or await self._put(user, question, agent_id)
        if asked.by_others and not asked.deciders:
            self._end(asked, None, None)
            raise CommandBlocked("approval.nobody", "nobody is there who could allow it")
        is_watched = self._is_watched(asked)
        if not is_watched and await self._falls_back(user, question, rules):
            self._end(asked, None, None)
            return "allow-once"
        question.update(f"waits for a yes: /approve {asked.ending} allow-once")
        await self._wait(asked, None if is_watched else self._wait_s if asked.by_others else 0.0)
        if asked.is_open:
            raise CommandBlocked(question.rule or "approval.open", _still_open(asked, question.reason))
        if asked.decision is None:
            return "allow-once" if await self._falls_back(user, question, rules) else None
        return self._take(asked)

    def _take(self, asked: Asked) -> Decision | None:
        """The answer for one of those who waited for it."""
        if asked.decision == "allow-once":
            if asked.is_used:
                raise CommandBlocked("approval.used", "it was allowed once, which another call has used")
            asked.is_used = True
        return asked.decision

    async def _late_answer(self, user: User, question: ExecQuestion) -> Decision | None:
        late = self._late.pop((user.id, _key(question)), None)
        if late is None or late.until_ms <= self._clock():
            return None
        await self._record("approval.used", actor=user.id, subject=late.asked.id, details={"kind": "command"})
        return late.asked.decision

    def _same(self, user: User, question: ExecQuestion) -> Asked | None:
        self._sweep()
        key = _key(question)
        found = (each for each in self._asked.values() if each.is_open and (each.owner, each.key) == (user.id, key))
        return next(found, None)

    async def _put(self, user: User, question: ExecQuestion, agent_id: str) -> Asked:
        argv = question.commands[0] if len(question.commands) == 1 else ()
        by_others = self._by_others(user)
        request = ExecApprovalRequest(
            command=question.command,
            command_argv=list(argv) or UNSET,
            cwd=question.cwd or None,
            node_id=question.node_id or None,
            host=question.host,
            security=None,
            ask=None,
            agent_id=agent_id,
            resolved_path=(resolve_program(argv[0]) or None) if argv and question.host != "node" else None,
            session_key=question.session_key,
            turn_source_channel=None,
            turn_source_to=None,
            turn_source_account_id=None,
            turn_source_thread_id=None,
            rule=question.rule or UNSET,
            reason=question.reason or UNSET,
        )
        deciders = await self._deciders(user, by_others)
        at_ms = self._clock()
        asked = Asked(
            id=new_id(),
            owner=user.id,
            request=request,
            commands=question.commands,
            host=question.host,
            node_id=question.node_id,
            key=_key(question),
            by_others=by_others,
            deciders=deciders,
            created_at_ms=at_ms,
            expires_at_ms=at_ms + self._timeout_ms,
        )
        if not self._is_watched(asked):
            asked.expires_at_ms = at_ms + max(OPEN_MS, self._timeout_ms)
        same = self._same(user, question)  # somebody else may have put it meanwhile
        if same is not None:
            return same
        try:
            await self._announce(user, asked)
        except TooManyPending as exc:
            raise CommandBlocked("approval.too-many", str(exc)) from exc
        return asked

    # Of clients

    async def request(self, caller: Caller, params: ExecApprovalRequestParams) -> Asked:
        """Put a client's question; it has ended already if nobody is connected who could decide it.

        Raises:
            Forbidden: the caller may not run commands.
            RequestError: it makes no sense, its id is taken, or too many are open.
        """
        caller.require(Permission.COMMANDS_RUN)
        user = await self._people(caller.user_id)
        if user is None:
            raise RequestError(UNKNOWN)
        request, argv = _request(params)
        by_others = self._by_others(user)
        deciders = await self._deciders(user, by_others)
        self._sweep()
        approval_id = new_id() if params.id is UNSET else params.id
        if (user.id, approval_id) in self._asked:
            raise RequestError("approval id already pending", details={"code": DetailCode.INVALID_PARAMS})
        host = next((each for each in get_args(Host) if each == request.host), None)
        at_ms = self._clock()
        asked = Asked(
            id=approval_id,
            owner=user.id,
            request=request,
            commands=(tuple(argv),) if argv else (),
            host=host if host == "node" or not request.node_id else None,
            node_id=request.node_id or "",
            key="",
            by_others=by_others,
            deciders=deciders,
            created_at_ms=at_ms,
            expires_at_ms=at_ms + min(params.timeout_ms, LONGEST_MS),
            device_id=caller.device_id,
            conn_id=caller.conn_id,
            is_client=True,
        )
        try:
            await self._announce(user, asked)
        except TooManyPending as exc:
            raise RequestError(str(exc), details={"code": DetailCode.FORBIDDEN}) from exc
        if asked.is_open and not self._is_watched(asked):
            self._end(asked, None, None)
        return asked

    async def answer(self, asked: Asked, *, is_bound: bool = False) -> ExecApprovalAnswer:
        """What it was answered, once it is.

        Args:
            is_bound: it ends when nobody waits for it any more.
        """
        await self._wait(asked, None, is_bound=is_bound)
        return asked.answer()

    async def wait_decision(self, caller: Caller, approval_id: str) -> ExecApprovalAnswer:
        """The answer to a question of the caller's, or one that the caller may decide.

        Raises:
            RequestError: there is none, or it ended more than :data:`KEPT_MS` ago.
        """
        self._sweep()
        since = self._clock() - KEPT_MS
        named = [each for each in self._asked.values() if each.id == approval_id]
        recent = [each for each in named if each.ended_at_ms is None or each.ended_at_ms > since]
        found = [each for each in recent if each.owner == caller.user_id or await self.may_decide(caller, each)]
        if len(found) != 1:
            raise RequestError(NOT_FOUND, details={"code": DetailCode.NOT_FOUND})
        return await self.answer(found[0])

    def check(
        self,
        owner: UserId,
        run_id: str,
        node_id: str,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        agent_id: str | None = None,
        session_key: str | None = None,
        device_id: DeviceId | None = None,
        conn_id: ConnId | None = None,
    ) -> BindingCode | None:
        """Whether a ``system.run`` of ``owner`` was allowed by the question ``run_id``; None if it was, else the
        ``details.code``. What was allowed once is used up by it.

        Args:
            device_id, conn_id: the connection that wants it run: the device that asked, or without one the connection.
        """
        if not run_id:
            return "MISSING_RUN_ID"
        asked = self._asked.get((owner, run_id))
        if asked is None or not asked.is_client:
            return "UNKNOWN_APPROVAL_ID"
        if asked.expires_at_ms <= self._clock():
            return "APPROVAL_EXPIRED"
        if not asked.node_id:
            return "APPROVAL_NODE_BINDING_MISSING"
        if asked.node_id != node_id:
            return "APPROVAL_NODE_MISMATCH"
        if asked.device_id is not None:
            if asked.device_id != device_id:
                return "APPROVAL_DEVICE_MISMATCH"
        elif asked.conn_id != conn_id:
            return "APPROVAL_CLIENT_MISMATCH"
        binding = asked.request.system_run_binding_v1
        if isinstance(binding, UnsetType) or binding != _binding(argv, cwd, agent_id, session_key, env):
            return "APPROVAL_REQUEST_MISMATCH"
        if asked.decision not in ("allow-once", "allow-always") or asked.is_used:
            return "APPROVAL_REQUIRED"
        asked.is_used = asked.decision == "allow-once"
        return None

    # Deciding

    async def may_decide(self, caller: Caller, asked: Asked) -> bool:
        """The person who asks, on a connection with the approvals scope; or, where others decide, those: never the
        person."""
        if caller.gateway_role != "operator" or not satisfies(caller.scopes, Scope.APPROVALS):
            return False
        if not asked.by_others:
            return caller.user_id == asked.owner and caller.may(Permission.APPROVALS_DECIDE)
        if caller.user_id == asked.owner:
            return False
        if caller.may(Permission.APPROVALS_DECIDE, asked.owner):
            return True
        if not caller.may(Permission.APPROVALS_DECIDE):
            return False
        return await self._guardians.find(asked.owner, caller.user_id) is not None

    async def resolve(self, caller: Caller, approval_id: str, decision: str) -> Asked:
        """Decide a question.

        Raises:
            RequestError: there is none that is open, or none that the caller may know of; the caller asked it, and
                somebody else has to decide it; or ``decision`` is none.
        """
        if decision not in DECISIONS:
            raise RequestError("invalid decision", details={"code": DetailCode.INVALID_PARAMS})
        async with self._deciding:
            asked = await self._known(caller, [each for each in self._open() if each.id == approval_id])
            if asked is None:
                raise RequestError(UNKNOWN, details={"code": DetailCode.NOT_FOUND})
            if not await self.may_decide(caller, asked):
                raise RequestError(str(OwnRequest()), details={"code": DetailCode.FORBIDDEN})
            await self._record(
                "approval.decided",
                actor=caller.user_id,
                subject=asked.id,
                details={"kind": "command", "decision": decision, "host": asked.request.host or ""},
            )
            if decision == "allow-always":
                await self._grant(asked, caller.user_id)
            self._sweep()
            if not asked.is_open:
                raise RequestError(UNKNOWN, details={"code": DetailCode.NOT_FOUND})
            self._end(asked, next(each for each in DECISIONS if each == decision), caller.user_id)
        log.info("command approval %s: %s", asked.id, decision, extra={"user_id": caller.user_id})
        return asked

    async def find(self, caller: Caller, text: str) -> Asked | None:
        """The open question with this id, or the only one whose id ends so, that the caller may know of."""
        text = text.strip().removeprefix("…").lower()
        if len(text) < LEAST_ENDING:
            return None
        return await self._known(caller, [each for each in self._open() if each.id.lower().endswith(text)])

    async def pending(self, caller: Caller) -> list[ExecApprovalSummary]:
        """What the caller may decide and what the caller asked for, oldest first."""
        found = []
        for asked in self._open():
            is_mine, is_decidable = asked.owner == caller.user_id, await self.may_decide(caller, asked)
            if is_mine or is_decidable:
                found.append(
                    ExecApprovalSummary(
                        id=asked.id,
                        request=asked.request,
                        created_at_ms=asked.created_at_ms,
                        expires_at_ms=asked.expires_at_ms,
                        mine=is_mine,
                        decidable=is_decidable,
                    )
                )
        return found

    async def grants(self, owner: UserId) -> list[CommandGrant]:
        """What somebody was allowed for good, newest first."""
        return await self._grants.of(owner)

    async def remove_grant(self, caller: Caller, owner: UserId, grant_id: str) -> bool:
        """Ask about it again from now on; False if this person has no such grant."""
        if all(grant.id != grant_id for grant in await self._grants.of(owner)):
            return False
        await self._record("approval.revoked", actor=caller.user_id, subject=grant_id, details={"kind": "command"})
        return await self._grants.remove(owner, grant_id)

    async def person_changed(self, user_id: UserId) -> None:
        """Somebody may do less, or is gone: what they may no longer run is denied, and no answer of before is good."""
        user = await self._people(user_id)
        if user is not None and not user.disabled:
            grants = self._policy.grants(user.role, user.flags)
            if permits(grants, Permission.COMMANDS_RUN):
                by_others = self._by_others(user)
                for asked in [each for each in self._open() if each.owner == user_id and each.by_others != by_others]:
                    self._end(asked, "deny", None)
                return
        for asked in [each for each in self._open() if each.owner == user_id]:
            self._end(asked, "deny", None)
        for key in [key for key in self._asked if key[0] == user_id]:
            del self._asked[key]
        for key in [key for key in self._late if key[0] == user_id]:
            del self._late[key]

    # What happens inside

    def _by_others(self, user: User) -> bool:
        if user.role is Role.CHILD or self._approver.get(user.role, "admin") == "admin":
            return True
        return not permits(self._policy.grants(user.role, user.flags), Permission.APPROVALS_DECIDE)

    async def _deciders(self, user: User, by_others: bool) -> set[UserId]:
        if not by_others:
            return {user.id}
        guardians = {each.guardian for each in await self._guardians.of(user.id)}
        found = set()
        for other in await self._users.list():
            grants = self._policy.grants(other.role, other.flags)
            own = other.id in guardians
            if not other.disabled and other.id != user.id and permits(grants, Permission.APPROVALS_DECIDE, own=own):
                found.add(other.id)
        return found

    def _is_watched(self, asked: Asked) -> bool:
        """Whether a client is connected on which it can be decided."""
        return any(
            peer.caller.gateway_role == "operator" and satisfies(peer.caller.scopes, Scope.APPROVALS)
            for user in asked.deciders
            for peer in self._broadcaster.of(user)
        )

    async def _announce(self, user: User, asked: Asked) -> None:
        """
        Raises:
            TooManyPending: so many of this person are open.
        """
        mine = [each for each in self._asked.values() if each.owner == user.id]
        if sum(each.is_open for each in mine) >= MOST_OPEN:
            raise TooManyPending(MOST_OPEN)
        ended = sorted((each for each in mine if not each.is_open), key=lambda each: each.created_at_ms)
        for each in ended[: max(0, len(ended) - MOST_KEPT)]:
            del self._asked[each.owner, each.id]
        if asked.by_others:
            asked.request.asked_by = user.display_name
        self._asked[user.id, asked.id] = asked
        try:
            await self._record(
                "approval.requested",
                actor=user.id,
                subject=asked.id,
                details={"kind": "command", "host": asked.request.host or "", "rule": asked.request.rule or ""},
            )
        except BaseException:
            self._end(asked, None, None)
            raise
        if not asked.is_open:
            return
        event = ExecApprovalRequestedEvent(
            id=asked.id,
            request=asked.request,
            created_at_ms=asked.created_at_ms,
            expires_at_ms=asked.expires_at_ms,
        )
        for decider in asked.deciders:
            self._broadcaster.publish("exec.approval.requested", event, owner=decider)
            if asked.by_others:
                # In the gateway's own words: what somebody wants to run is not for the decider's assistant to read
                self._events.add(decider, f"A command waits for this person's decision (…{asked.ending}): /approvals")

    async def _wait(self, asked: Asked, wait_s: float | None, *, is_bound: bool = True) -> None:
        """Return when it has ended, or after ``wait_s``. Whoever is cancelled takes the question with them, if they
        were the last who waited for it."""
        asked.waiting += 1
        try:
            left_s = max(0, asked.expires_at_ms - self._clock()) / 1000
            timeout = left_s if wait_s is None else min(wait_s, left_s)
            if asked.is_open and timeout > 0:
                try:
                    async with asyncio.timeout(timeout):
                        await asked.ended.wait()
                except TimeoutError:
                    if asked.is_open and timeout == left_s:
                        self._end(asked, None, None)
        except BaseException:
            if is_bound and asked.waiting == 1 and asked.is_open:
                self._end(asked, "deny", None)
            raise
        finally:
            asked.waiting -= 1
        self._sweep()

    async def _falls_back(self, user: User, question: ExecQuestion, rules: HouseRules) -> bool:
        """Whether it runs without an answer, because the house says so (``askFallback``)."""
        allowed = rules.ask_fallback == "full" or (
            rules.ask_fallback == "allowlist"
            and bool(question.commands)
            and await self._covered(user, question.commands, rules, question.host, question.node_id)
        )
        if allowed and user.role is not Role.CHILD:
            await self._record(
                "approval.used",
                actor=user.id,
                subject="askFallback",
                details={"kind": "command", "rule": question.rule, "fallback": rules.ask_fallback},
            )
            return True
        return False

    async def _grant(self, asked: Asked, by: UserId) -> None:
        patterns = [pattern for argv in asked.commands if (pattern := pattern_of(argv)) is not None]
        if asked.host is None or not patterns or len(patterns) != len(asked.commands):
            return  # what is not known word by word is allowed this once
        await self._grants.add(
            asked.owner, patterns, host=asked.host, node_id=asked.node_id, decided_by=by, now_ms=self._clock()
        )

    def _end(self, asked: Asked, decision: Decision | None, by: UserId | None) -> None:
        """End it, and tell those who could decide it and who asked. Silently if nobody decided in time."""
        if not asked.is_open:
            return
        asked.ended_at_ms, asked.decision, asked.resolved_by = self._clock(), decision, by
        asked.ended.set()
        if decision is None:
            return
        if not asked.is_client and not asked.waiting and by is not None:
            self._late[asked.owner, asked.key] = _Late(asked, asked.ended_at_ms + LATE_MS)
            self._events.add(asked.owner, _news(asked))
        event = ExecApprovalResolvedEvent(
            id=asked.id, decision=decision, resolved_by=by, ts=asked.ended_at_ms, request=asked.request
        )
        for user in {*asked.deciders, asked.owner}:
            self._broadcaster.publish("exec.approval.resolved", event, owner=user)

    def _open(self) -> list[Asked]:
        """Oldest first."""
        self._sweep()
        return sorted((each for each in self._asked.values() if each.is_open), key=lambda each: each.created_at_ms)

    def _sweep(self) -> None:
        """End what has waited too long, and forget what has ended."""
        at_ms = self._clock()
        for asked in [each for each in self._asked.values() if each.is_open and each.expires_at_ms <= at_ms]:
            self._end(asked, None, None)
        for key, asked in list(self._asked.items()):
            if asked.ended_at_ms is not None and max(asked.ended_at_ms, asked.expires_at_ms) + KEPT_MS <= at_ms:
                del self._asked[key]
        for key, late in list(self._late.items()):
            if late.until_ms <= at_ms:
                del self._late[key]

    async def _known(self, caller: Caller, candidates: Sequence[Asked]) -> Asked | None:
        """The only one of them that the caller may know of. Of two that clients gave the same id, none is meant."""
        found = [each for each in candidates if each.owner == caller.user_id or await self.may_decide(caller, each)]
        return found[0] if len(found) == 1 else None


def pattern_of(argv: Sequence[str]) -> str | None:
    """A command as it is kept: the pattern of exactly its words. None for what cannot be kept."""
    from skynet_terminal.policy.patterns import ArgvPattern  # what only commands need is not loaded at start

    try:
        pattern = ArgvPattern.for_command(argv)
    except ValueError:  # a word is not known
        return None
    text = json.dumps(pattern.words, separators=(",", ":"))  # ASCII: a word can be what UTF-8 cannot hold
    return text if len(text) <= MAX_PATTERN else None


def _forbidden(rules: HouseRules) -> str:
    return rules.broken or ("the house lets nobody run commands" if rules.security == "deny" else "")


def _lifts(rules: HouseRules, user: User) -> bool:
    """Whether the house asks nobody about what the policy would ask about."""
    return rules.security == "full" and rules.ask == "off" and user.role is not Role.CHILD


def _listed(rules: HouseRules, argv: Sequence[str], host: Host) -> tuple[Entry, str] | None:
    """The house's entry that ``argv`` matches. Paths are those of the gateway's machine."""
    resolve = cache(resolve_program)
    for entry in rules.allowlist:
        if host == "node" and not isinstance(entry.parsed, WordsPattern):
            continue
        path = entry.parsed.matches(argv, resolve)
        if path is not None:
            return entry, path
    return None


def _agent_of(key: SessionKey | None) -> str:
    try:
        return DEFAULT_AGENT if key is None else parse_key(key).agent
    except InvalidSessionKey:
        return DEFAULT_AGENT


def _key(question: ExecQuestion) -> str:
    """What an answer is bound to: the command as it was given and as it was understood, and where it runs."""
    bound = [question.command, question.commands, question.cwd, question.host, question.node_id, question.room]
    return hashlib.sha256(json.dumps(bound).encode()).hexdigest()


def _request(params: ExecApprovalRequestParams) -> tuple[ExecApprovalRequest, list[str]]:
    """What a client asks, in full, and the command's words.

    Raises:
        RequestError: a field is missing, or two of them do not fit.
    """
    host, node_id = params.host or None, params.node_id or None
    plan = params.system_run_plan_v2 or None
    given = params.command_argv or []
    argv = plan.argv if plan is not None else given
    if host == "node":
        if node_id is None:
            raise RequestError("nodeId is required for host=node", details={"code": DetailCode.INVALID_PARAMS})
        if not given:
            raise RequestError("commandArgv is required for host=node", details={"code": DetailCode.INVALID_PARAMS})
    if plan is not None and given and given != plan.argv:
        raise invalid_params("exec.approval.request", "commandArgv: is not that of systemRunPlanV2")
    cwd = plan.cwd if plan is not None else params.cwd or None
    agent_id = plan.agent_id if plan is not None else params.agent_id or None
    session_key = plan.session_key if plan is not None else params.session_key or None
    env = params.env or None
    # Whoever decides sees what runs, not what the client says of it
    command = shlex.join(argv) if argv else params.command
    if len(command) > MOST_SHOWN:
        raise invalid_params("exec.approval.request", f"commandArgv: must NOT have more than {MOST_SHOWN} characters")
    request = ExecApprovalRequest(
        command=command,
        command_argv=argv or UNSET,
        system_run_binding_v1=_binding(argv, cwd, agent_id, session_key, env) if argv else UNSET,
        system_run_plan_v2=plan or UNSET,
        env_keys=sorted(env) if env else UNSET,
        cwd=cwd,
        node_id=node_id,
        host=host,
        security=params.security or None,
        ask=params.ask or None,
        agent_id=agent_id,
        resolved_path=params.resolved_path or None,
        session_key=session_key,
        turn_source_channel=params.turn_source_channel or None,
        turn_source_to=params.turn_source_to or None,
        turn_source_account_id=params.turn_source_account_id or None,
        turn_source_thread_id=None if params.turn_source_thread_id is UNSET else params.turn_source_thread_id,
    )
    return request, argv


def _binding(
    argv: Sequence[str],
    cwd: str | None,
    agent_id: str | None,
    session_key: str | None,
    env: Mapping[str, str] | None,
) -> SystemRunBinding:
    env_hash = hashlib.sha256(msgspec.json.encode(sorted(env.items()))).hexdigest() if env else None
    return SystemRunBinding(
        version=1,
        argv=[*argv],
        cwd=cwd or None,
        agent_id=agent_id or None,
        session_key=session_key or None,
        env_hash=env_hash,
    )


def _still_open(asked: Asked, reason: str) -> str:
    if asked.by_others:
        return (
            f"{reason}: somebody else has to allow it, was asked and has not answered (…{asked.ending}); "
            "the same command works once they have"
        )
    return (
        f"{reason}: this person has to allow it, with /approve {asked.ending} allow-once or "
        f"/approve {asked.ending} allow-always, or refuse it with /deny {asked.ending}; "
        "the same command works once they have"
    )


def _news(asked: Asked) -> str:
    """What the requester's main session is told."""
    said = "Not allowed" if asked.decision == "deny" else "Allowed"
    then = "" if asked.decision == "deny" else " The same command now works."
    return f"{said}: {asked.request.command[:300]}.{then}"
