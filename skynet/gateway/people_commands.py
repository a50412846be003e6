"""The commands about people: what waits for a decision, linking accounts, budgets, and who one is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

from skynet.gateway.approvals import SHOWN_ENDING, Approvals, Newcomer, Record, ending
from skynet.gateway.exec_approvals import Asked, ExecApprovals
from skynet_memory.ids import Role, UserId, now_ms
from skynet_protocol.errors import RequestError
from skynet_protocol.exec_approvals import DECISIONS, ExecApprovalSummary
from skynet_protocol.scopes import Scope, satisfies
from skynet_users.approvals import Approval
from skynet_users.budgets import Ledger, PeriodStatus
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden, LinkRefused, NotPending, OwnRequest, UnknownApproval
from skynet_users.links import LinkCodes
from skynet_users.money import dollars
from skynet_users.periods import when
from skynet_users.permissions import Permission

MOST_SHOWN = 20
MOST_OF_COMMAND = 1000
"""Characters."""
WEBSOCKET = "websocket"
"""What a code that was made over a connection says it is from."""
NEWCOMERS: Mapping[str, Literal[Role.USER, Role.CHILD]] = {"user": Role.USER, "child": Role.CHILD}
"""Roles that somebody can be let in with; whoever is to be an admin becomes it later."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The account that a message came from, as its channel proved it."""

    channel: str
    external_id: str


class PeopleCommands:
    """Answers them. Each does only what its caller may do by a method as well."""

    def __init__(
        self,
        *,
        approvals: Approvals,
        exec_approvals: ExecApprovals,
        links: LinkCodes,
        ledger: Ledger,
        record: Record,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._approvals = approvals
        self._exec_approvals = exec_approvals
        self._links = links
        self._ledger = ledger
        self._record = record
        self._clock = clock

    async def list_approvals(self, caller: Caller) -> str:
        """``/approvals``."""
        caller.require(Permission.PROFILE_READ)
        found = await self._approvals.list(caller, "pending", limit=MOST_SHOWN)
        commands = await self._exec_approvals.pending(caller)
        if not found and not commands:
            return "Nothing waits for a decision."
        return "\n".join([*map(_command_line, commands), *[await self._line(caller, each) for each in found]])

    async def approve(self, caller: Caller, argument: str) -> str:
        """``/approve ID [role]``; of a command ``/approve ID [allow-once, allow-always or deny]``."""
        approval_id, _, role = argument.partition(" ")
        role = role.strip().lower()
        asked = await self._exec_approvals.find(caller, approval_id)
        if asked is not None:
            return await self._decide_command(caller, asked, role or "allow-once")
        if not approval_id:
            return "Which one? /approvals lists them, /approve ID approves one."
        if role in DECISIONS:
            return str(UnknownApproval(approval_id))
        if role and role not in NEWCOMERS:
            return f"{role}: a new person is one of {', '.join(NEWCOMERS)}"
        return await self._decide(caller, approval_id, True, "", NEWCOMERS[role or "user"])

    async def deny(self, caller: Caller, argument: str) -> str:
        """``/deny ID [reason]``."""
        approval_id, _, reason = argument.partition(" ")
        if not approval_id:
            return "Which one? /approvals lists them, /deny ID [reason] denies one."
        asked = await self._exec_approvals.find(caller, approval_id)
        if asked is not None:
            return await self._decide_command(caller, asked, "deny")
        return await self._decide(caller, approval_id, False, reason.strip()[:500], Role.USER)

    async def link(self, caller: Caller, code: str, sender: Sender | None) -> str:
        """``/link``: a code for the caller. ``/link CODE``: the account that this came from is who made the code."""
        if not code:
            caller.require(Permission.DEVICES_MANAGE)
            channel, external_id = (WEBSOCKET, "") if sender is None else (sender.channel, sender.external_id)
            made = await self._links.create(caller.user_id, channel, external_id, now_ms=self._clock())
            return f"Send this from the account that you want to link, within ten minutes:\n/link {made.code.reveal()}"
        if sender is None:
            return (
                "A code links the account that it is sent from, and here you have none: send it to me from the "
                "account that you want to link."
            )
        return await self.claim(code, sender)

    async def claim(self, code: str, sender: Sender) -> str:
        """``/link CODE``, whoever that was until now."""
        try:
            owner = await self._links.claim(code, sender.channel, sender.external_id, now_ms=self._clock())
        except LinkRefused as exc:
            return str(exc)
        await self._record("identity.linked", actor=owner, subject=owner, details={"channel": sender.channel})
        return "Linked: here you are now the person who made the code."

    async def budget(self, caller: Caller) -> str:
        """``/budget``."""
        caller.require(Permission.COSTS_VIEW)
        status = await self._ledger.status(caller.user_id)
        lines = [_budget("Today", status.day, status.zone), _budget("This month", status.month, status.zone)]
        if caller.may(Permission.COSTS_VIEW, UserId("")):
            lines += [
                _budget("All together today", status.house_day, status.zone),
                _budget("All together this month", status.house_month, status.zone),
            ]
        return "\n".join(lines)

    async def _decide(
        self, caller: Caller, approval_id: str, approve: bool, reason: str, role: Literal[Role.USER, Role.CHILD]
    ) -> str:
        if not satisfies(caller.scopes, Scope.APPROVALS):  # as approvals.decide asks it of a connection
            return f"missing scope: {Scope.APPROVALS}"
        try:
            caller.require(Permission.APPROVALS_DECIDE)
            approval, user = await self._approvals.decide(
                caller, approval_id, approve=approve, reason=reason, newcomer=Newcomer(role=role)
            )
        except (UnknownApproval, OwnRequest, NotPending, Forbidden) as exc:
            return str(exc)
        said = f"{approval.status.capitalize()}: {approval.summary}"
        return said if user is None else f"{said}\n{user.display_name} is let in as {user.role}."

    async def _decide_command(self, caller: Caller, asked: Asked, decision: str) -> str:
        if not satisfies(caller.scopes, Scope.APPROVALS):
            return f"missing scope: {Scope.APPROVALS}"
        caller.require(Permission.APPROVALS_DECIDE)
        if decision not in DECISIONS:
            return f"{decision}: the answer is one of {', '.join(DECISIONS)}"
        try:
            await self._exec_approvals.resolve(caller, asked.id, decision)
        except RequestError as exc:
            return str(exc)
        return f"{_SAID[decision]}: {_short(asked.request.command)}"

    async def _line(self, caller: Caller, approval: Approval) -> str:
        summary = await self._approvals.summary(caller, approval)
        whose = "yours" if summary.mine else "" if summary.decidable else "not for you to decide"
        asked = f"{summary.requester_name}: " if summary.requester_name else ""
        return f"{ending(approval)} - {asked}{approval.summary}" + (f" ({whose})" if whose else "")


_SAID: Mapping[str, str] = {
    "allow-once": "Allowed once",
    "allow-always": "Allowed from now on",
    "deny": "Denied",
}


def _command_line(waiting: ExecApprovalSummary) -> str:
    request = waiting.request
    asked = f"{request.asked_by}: " if request.asked_by and not waiting.mine else ""
    where = "" if request.host in (None, "sandbox") else f" on {request.node_id or 'the gateway itself'}"
    whose = "" if waiting.decidable else " (yours)"
    return f"{waiting.id[-SHOWN_ENDING:]} - {asked}run{where}: {_short(request.command)}{whose}"


def _short(command: str) -> str:
    """A command on one line; what is too long for that says so."""
    text = command.replace("\n", "⏎")
    if len(text) <= MOST_OF_COMMAND:
        return text
    return f"{text[:MOST_OF_COMMAND]}… [{len(text):,} characters, which a client shows in full]"


def describe_caller(caller: Caller) -> str:
    """``/whoami``: who, and what not."""
    scopes = ", ".join(sorted(caller.scopes)) or "none"
    denied = [permission.value for permission in Permission if not caller.may(permission)]
    return "\n".join(
        (
            f"Name: {caller.display_name or 'none'}",
            f"Person: {caller.user_id}",
            f"Role: {caller.role}",
            f"May not: {', '.join(denied) or 'nothing is kept from you'}",
            f"Scopes: {scopes}",
            f"Client: {caller.client_id}",
        )
    )


def _budget(title: str, status: PeriodStatus, zone: tzinfo) -> str:
    tokens = f"{status.used.tokens:,}" + ("" if status.limit_tokens is None else f" of {status.limit_tokens:,}")
    money = dollars(status.used.microusd)
    if status.limit_microusd is not None:
        money += f" of {dollars(status.limit_microusd)}"
    return f"{title}: {tokens} tokens, {money}; starts again on {when(status.resets_at_ms, zone)}"
