"""Questions that wait for a person: who may decide one, who is told, and what a decision sets in motion."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec import UNSET

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.heartbeat import SystemEvents
from skynet_memory.ids import Role, UserId, now_ms
from skynet_protocol.approvals import ApprovalRequestedEvent, ApprovalResolvedEvent, ApprovalSummary
from skynet_users.approvals import Approval, ApprovalStatus, ApprovalStore, Json
from skynet_users.caller import Caller
from skynet_users.errors import NotPending, OwnRequest, TooManyPending, UnknownApproval
from skynet_users.guardians import GuardianStore
from skynet_users.people import User, UserStore
from skynet_users.permissions import Permission, PermissionPolicy, permits

log = logging.getLogger(__name__)

LEAST_ENDING = 4
"""Characters of an id's end that name an approval, as a person types them."""
SHOWN_ENDING = 8
SHOWN_ARGUMENT = 4000
"""Characters of a tool's argument that are shown to who decides."""


class Record(Protocol):
    """Where it is written down who did what."""

    async def __call__(
        self, action: str, *, actor: UserId | Literal[""], subject: str, details: Mapping[str, Json]
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """Whom an approved registration makes: a new person, or somebody who is known."""

    role: Literal[Role.USER, Role.CHILD] = Role.USER
    display_name: str = ""
    """Empty: as the channel calls them."""
    user_id: UserId | None = None
    """Whose account it is; None for a new person."""


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """What became of a question whether a tool may run; ``approval`` is used up where it was ``approved``, and None
    where the question was not even put."""

    outcome: Literal["approved", "denied", "pending"]
    approval: Approval | None
    refusal: str = ""
    """Why it was not put."""

    def __str__(self) -> str:
        """For the model, which tells the person."""
        if self.approval is None:
            return f"denied: {self.refusal}"
        if self.outcome == "approved":
            return "approved"
        if self.outcome == "denied":
            return f"denied: {self.approval.reason}" if self.approval.reason else "denied"
        return (
            f"this needs an approval, which was asked for and is still open (…{ending(self.approval)}); "
            "the same call with the same arguments works once it is given"
        )


class Approvals:
    """The approval queue with the people around it.

    Args:
        wait_s: how long a tool call waits for a decision before it is told that there is none yet.
        registered: called when a registration was approved, with the person it made or was linked to.
        decided: called after every decision, and for what has expired.
    """

    def __init__(
        self,
        store: ApprovalStore,
        *,
        users: UserStore,
        guardians: GuardianStore,
        policy: PermissionPolicy,
        broadcaster: Broadcaster,
        events: SystemEvents,
        record: Record,
        registered: Callable[[Approval, User], Awaitable[None]],
        decided: Callable[[Approval], None] = lambda approval: None,
        wait_s: float = 60.0,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._store = store
        self._users = users
        self._guardians = guardians
        self._policy = policy
        self._broadcaster = broadcaster
        self._events = events
        self._record = record
        self._registered = registered
        self._decided = decided
        self._wait_s = wait_s
        self._clock = clock
        self._deciding = asyncio.Lock()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    # Asking

    async def ask_for_tool(self, user: User, tool: str, arguments: Mapping[str, Json], summary: str) -> ToolDecision:
        """Whether ``user`` may run ``tool`` with exactly these arguments, this once.

        Waits for the decision, at most ``wait_s``. An approval that was given earlier and not used yet is used. Who has
        too many questions open already is denied.
        """
        earlier = await self._store.consume(user.id, tool, arguments, self._clock())
        if earlier is not None:
            await self._note_use(earlier)
            return ToolDecision("approved", earlier)
        subject: dict[str, Json] = {"tool": tool, "arguments": _shown(arguments)}
        try:
            approval, _ = await self._request("tool_call", user, summary, subject, arguments)
        except TooManyPending as exc:
            return ToolDecision("denied", None, str(exc))
        approval = await self._wait(approval)
        if approval.status == "approved":
            used = await self._store.consume(user.id, tool, arguments, self._clock())
            if used is not None:
                await self._note_use(used)
                return ToolDecision("approved", used)
        if approval.status in ("approved", "used"):
            return ToolDecision("denied", None, "it was approved for one run, which another call has used")
        return ToolDecision("pending" if approval.status == "pending" else "denied", approval)

    async def ask(self, user: User, summary: str) -> tuple[Approval, bool]:
        """Put a person's own question to those who may decide for them; False if it was open already.

        Raises:
            TooManyPending: of this person's questions too many are open.
        """
        return await self._request("request", user, summary, {"text": summary}, None)

    async def announce(self, approval: Approval) -> None:
        """Tell everybody who may decide it that there is something to decide."""
        await self._record(
            "approval.requested",
            actor=approval.requester or "",
            subject=approval.id,
            details={"kind": approval.kind},
        )
        requester = await self._name_of(approval.requester)
        for user in await self.deciders(approval):
            event = ApprovalRequestedEvent(
                approval=_summary(approval, requester=requester, mine=False, decidable=True), ts=self._clock()
            )
            self._broadcaster.publish("approvals.requested", event, owner=user)
            # In the gateway's own words: what somebody asks for is not for the decider's assistant to act on
            self._events.add(user, f"A question waits for this person's decision (…{ending(approval)}): /approvals")

    # Deciding

    async def may_decide(self, caller: Caller, approval: Approval) -> bool:
        """Nobody decides what they asked for; else those who decide everything, and the requester's guardians."""
        requester = approval.requester
        if requester == caller.user_id:
            return False
        if caller.may(Permission.APPROVALS_DECIDE, requester or UserId("")):
            return True
        if requester is None or not caller.may(Permission.APPROVALS_DECIDE):
            return False
        return await self._guardians.find(requester, caller.user_id) is not None

    async def deciders(self, approval: Approval) -> set[UserId]:
        """Who may decide it."""
        requester = approval.requester
        guardians = set() if requester is None else {each.guardian for each in await self._guardians.of(requester)}
        found = set()
        for user in await self._users.list():
            grants = self._policy.grants(user.role, user.flags)
            own = user.id in guardians
            if not user.disabled and user.id != requester and permits(grants, Permission.APPROVALS_DECIDE, own=own):
                found.add(user.id)
        return found

    async def decide(
        self,
        caller: Caller,
        approval_id: str,
        *,
        approve: bool,
        reason: str = "",
        newcomer: Newcomer | None = None,
    ) -> tuple[Approval, User | None]:
        """Approve or deny; an approved registration makes ``newcomer`` the person behind the account.

        Args:
            approval_id: an id, or the end of one that is open and of which there is only one.

        Raises:
            UnknownApproval: there is none, or none that the caller may know of.
            OwnRequest: the caller asked for it.
            NotPending: it was decided, or has expired.
            UnknownUser: nobody has the newcomer's ``user_id``.
        """
        # One at a time: else who comes too late would be recorded as having decided.
        async with self._deciding:
            approval = await self.find(caller, approval_id)
            if approval.requester == caller.user_id:
                raise OwnRequest
            if approval.status != "pending":
                raise NotPending(approval.status)
            newcomer = newcomer or Newcomer()
            if newcomer.user_id is not None:
                await self._users.get(newcomer.user_id)
            await self._record(
                "approval.decided",
                actor=caller.user_id,
                subject=approval.id,
                details={"kind": approval.kind, "approved": approve},
            )
            approval = await self._store.decide(
                approval.id,
                by=caller.user_id,
                approve=approve,
                reason=reason,
                role=newcomer.role,
                display_name=newcomer.display_name,
                user_id=newcomer.user_id,
                now_ms=self._clock(),
            )
        log.info("approval %s %s", approval.id, approval.status, extra={"user_id": caller.user_id})
        user = await self._let_in(caller, approval, newcomer) if approve and approval.kind == "registration" else None
        await self._resolved(approval)
        if user is not None:
            await self._registered(approval, user)
        return approval, user

    async def expire(self) -> None:
        """End what nobody decided in time; to be called now and then."""
        for approval in await self._store.expire(self._clock()):
            await self._resolved(approval)

    # Looking

    async def find(self, caller: Caller, text: str) -> Approval:
        """The one with this id, or the only open one whose id ends so, among those that the caller may know of.

        Raises:
            UnknownApproval: there is none, or more than one.
        """
        text = text.strip().removeprefix("…").lower()
        approval = await self._store.get(text)
        if approval is None and len(text) >= LEAST_ENDING:
            found = [each for each in await self.list(caller, "pending", limit=200) if each.id.endswith(text)]
            approval = found[0] if len(found) == 1 else None
        if approval is None or not (approval.requester == caller.user_id or await self.may_decide(caller, approval)):
            raise UnknownApproval(text)
        return approval

    async def list(self, caller: Caller, status: ApprovalStatus | None = None, *, limit: int = 50) -> list[Approval]:
        """What the caller asked for and what the caller may decide, newest first."""
        if caller.may(Permission.APPROVALS_DECIDE, UserId("")):
            return await self._store.list(status=status, limit=limit)
        whose = [caller.user_id]
        if caller.may(Permission.APPROVALS_DECIDE):
            whose += [each.child for each in await self._guardians.children(caller.user_id)]
        found = {}
        for user in whose:
            for approval in await self._store.list(status=status, requester=user, limit=limit):
                found[approval.id] = approval
        return sorted(found.values(), key=lambda each: (each.created_at_ms, each.id), reverse=True)[:limit]

    async def summary(self, caller: Caller, approval: Approval) -> ApprovalSummary:
        """As it is shown to the caller, who may know of it."""
        decidable = approval.status == "pending" and await self.may_decide(caller, approval)
        return _summary(
            approval,
            requester=await self._name_of(approval.requester),
            mine=approval.requester == caller.user_id,
            decidable=decidable,
        )

    # What happens inside

    async def _request(
        self,
        kind: Literal["tool_call", "request"],
        user: User,
        summary: str,
        subject: Mapping[str, Json],
        arguments: Mapping[str, Json] | None,
    ) -> tuple[Approval, bool]:
        approval, is_new = await self._store.request(kind, user.id, summary, subject, arguments, self._clock())
        if is_new:
            await self.announce(approval)
        return approval, is_new

    async def _wait(self, approval: Approval) -> Approval:
        """The approval as it is once it was decided, or after ``wait_s``."""
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(approval.id, set())
        waiting.add(decided)
        try:
            current = await self._store.get(approval.id)  # it may have been decided while it was announced
            if current is not None and current.status == "pending":
                await asyncio.wait([decided], timeout=self._wait_s)
                current = await self._store.get(approval.id)
        finally:
            waiting.discard(decided)
            if not waiting:
                self._waiting.pop(approval.id, None)
        return current or approval

    async def _let_in(self, caller: Caller, approval: Approval, newcomer: Newcomer) -> User:
        """The person whom the store has let in with the decision."""
        assert approval.requester is not None
        user = await self._users.get(approval.requester)
        if newcomer.user_id is None:
            await self._record("user.added", actor=caller.user_id, subject=user.id, details={"role": user.role.value})
        await self._record(
            "identity.linked",
            actor=caller.user_id,
            subject=user.id,
            details={"channel": str(approval.subject["channel"])},
        )
        return user

    async def _resolved(self, approval: Approval) -> None:
        """Wake who waits; tell those who could decide it and who asked."""
        waiting = self._waiting.get(approval.id, set())
        for future in waiting:
            if not future.done():
                future.set_result(None)
        if approval.kind != "registration" and approval.requester is not None and not waiting:
            self._events.add(approval.requester, _news(approval))
        event = ApprovalResolvedEvent(
            id=approval.id,
            kind=approval.kind,
            status=approval.status,
            decided_by=approval.decided_by or UNSET,
            reason=approval.reason or UNSET,
            ts=self._clock(),
        )
        listeners = await self.deciders(approval)
        for user in listeners | ({approval.requester} if approval.requester is not None else set()):
            self._broadcaster.publish("approvals.resolved", event, owner=user)
        self._decided(approval)

    async def _note_use(self, approval: Approval) -> None:
        await self._record(
            "approval.used", actor=approval.requester or "", subject=approval.id, details={"kind": approval.kind}
        )

    async def _name_of(self, user_id: UserId | None) -> str:
        user = None if user_id is None else await self._users.by_id(user_id)
        return "" if user is None else user.display_name


def ending(approval: Approval) -> str:
    """The end of its id, which tells it from others: the beginning is a time."""
    return approval.id[-SHOWN_ENDING:]


def _shown(arguments: Mapping[str, Json]) -> dict[str, Json]:
    """What somebody who decides sees of a call's arguments; what is bound to the approval is the whole of them."""
    return {
        name: f"{value[:SHOWN_ARGUMENT]}… [{len(value):,} characters]"
        if isinstance(value, str) and len(value) > SHOWN_ARGUMENT
        else value
        for name, value in arguments.items()
    }


def _news(approval: Approval) -> str:
    """What the requester's main session is told."""
    why = f" ({approval.reason})" if approval.reason else ""
    if approval.status == "approved" and approval.kind == "tool_call":
        return f"Approved: {approval.summary}{why}. The same tool call with the same arguments now works once."
    return f"{approval.status.capitalize()}: {approval.summary}{why}."


def _summary(approval: Approval, *, requester: str, mine: bool, decidable: bool) -> ApprovalSummary:
    return ApprovalSummary(
        id=approval.id,
        kind=approval.kind,
        status=approval.status,
        summary=approval.summary,
        # What a stranger wrote is for the assistant, and for the person this becomes
        subject={name: value for name, value in approval.subject.items() if name != "messages"},
        created_at=approval.created_at_ms,
        expires_at=approval.expires_at_ms,
        requester=approval.requester or UNSET,
        requester_name=requester or UNSET,
        decided_by=approval.decided_by or UNSET,
        decided_at=UNSET if approval.decided_at_ms is None else approval.decided_at_ms,
        used_at=UNSET if approval.used_at_ms is None else approval.used_at_ms,
        reason=approval.reason or UNSET,
        mine=mine,
        decidable=decidable,
    )
