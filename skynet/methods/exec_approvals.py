"""``exec.approvals.*``: the file that says which commands run without asking. ``exec.approval.*``: the questions
(OPENCLAW-V3 6.12)."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from skynet.gateway.approvals import Record
from skynet.gateway.dispatch import TwoPhase, Waiting, method
from skynet.gateway.exec_approvals import ExecApprovals
from skynet.gateway.exec_file import ExecFile, check_file
from skynet_memory.ids import UserId
from skynet_protocol.errors import ErrorCode, RequestError
from skynet_protocol.exec_approvals import (
    ExecApprovalAnswer,
    ExecApprovalGrant,
    ExecApprovalGrantsParams,
    ExecApprovalGrantsRemoveParams,
    ExecApprovalGrantsRemoveResult,
    ExecApprovalGrantsResult,
    ExecApprovalListParams,
    ExecApprovalListResult,
    ExecApprovalRequestParams,
    ExecApprovalResolveParams,
    ExecApprovalResolveResult,
    ExecApprovalsFileParams,
    ExecApprovalsGetParams,
    ExecApprovalsNodeGetParams,
    ExecApprovalsNodeSetParams,
    ExecApprovalsSetParams,
    ExecApprovalsSnapshot,
    ExecApprovalWaitParams,
    NodeFile,
)
from skynet_users.caller import Caller
from skynet_users.command_grants import CommandGrant
from skynet_users.permissions import Permission

Json: TypeAlias = Any


class Invoke(Protocol):
    """How a node of a person's is asked something."""

    async def __call__(self, owner: UserId, node_id: str, command: str, params: Mapping[str, Json], /) -> Json: ...


async def _no_nodes(owner: UserId, node_id: str, command: str, params: Mapping[str, Json], /) -> Json:
    raise RequestError("node not connected", code=ErrorCode.UNAVAILABLE, details={"code": "NOT_CONNECTED"})


class ExecApprovalMethods:
    """The house's file, and those of the caller's nodes, which are passed on as they come."""

    def __init__(self, file: ExecFile, record: Record, invoke: Invoke = _no_nodes) -> None:
        self._file = file
        self._record = record
        self._invoke = invoke

    @method("exec.approvals.get")
    async def get(self, caller: Caller, params: ExecApprovalsGetParams) -> ExecApprovalsSnapshot:
        """The file as it is; an empty one when it is missing or makes no sense. Secrets in it are not shown."""
        return await self._file.snapshot()

    @method("exec.approvals.set")
    async def set(self, caller: Caller, params: ExecApprovalsSetParams) -> ExecApprovalsSnapshot:
        """Replace the file.

        Raises:
            RequestError: it was changed since it was read, or a field makes no sense.
        """
        check_file(params.file, "exec.approvals.set")

        async def record() -> None:
            await self._record(
                "config.changed", actor=caller.user_id, subject=self._file.path.name, details=_told(params.file)
            )

        base_hash = None if isinstance(params.base_hash, UnsetType) else params.base_hash
        return await self._file.replace(params.file, base_hash, before=record)

    @method("exec.approvals.node.get")
    async def node_get(self, caller: Caller, params: ExecApprovalsNodeGetParams) -> NodeFile:
        """What a node of the caller's says of its own file."""
        return await self._invoke(caller.user_id, params.node_id, "system.execApprovals.get", {})

    @method("exec.approvals.node.set")
    async def node_set(self, caller: Caller, params: ExecApprovalsNodeSetParams) -> NodeFile:
        """Have a node of the caller's replace its own file."""
        await self._record(
            "config.changed",
            actor=caller.user_id,
            subject=f"{self._file.path.name} of {params.node_id}",
            details=_told(params.file),
        )
        sent: dict[str, Json] = {"file": msgspec.to_builtins(params.file)}
        if params.base_hash is not UNSET:
            sent["baseHash"] = params.base_hash
        return await self._invoke(caller.user_id, params.node_id, "system.execApprovals.set", sent)


class ExecRequestMethods:
    """Questions whether a command may run, of the caller and for the caller; others' do not exist for them."""

    def __init__(self, approvals: ExecApprovals) -> None:
        self._approvals = approvals

    @method("exec.approval.request")
    def request(self, caller: Caller, params: ExecApprovalRequestParams) -> "Waiting | Awaitable[TwoPhase]":
        """Ask the caller, or who decides for the caller, whether a command may run; answered once that is decided.

        With ``twoPhase`` the question stays when the connection closes, until it expires.

        Raises:
            Forbidden: the caller may not run commands.
            RequestError: a field is missing, the id is taken, or too many questions of the caller are open.
        """
        return self._in_two(caller, params) if params.two_phase else Waiting(self._in_one(caller, params))

    async def _in_one(self, caller: Caller, params: ExecApprovalRequestParams) -> ExecApprovalAnswer:
        return await self._approvals.answer(await self._approvals.request(caller, params), is_bound=True)

    async def _in_two(self, caller: Caller, params: ExecApprovalRequestParams) -> TwoPhase:
        asked = await self._approvals.request(caller, params)
        return TwoPhase(asked.accepted(), self._approvals.answer(asked))

    @method("exec.approval.waitDecision")
    def wait_decision(self, caller: Caller, params: ExecApprovalWaitParams) -> Waiting:
        """The answer to a question, once there is one.

        Raises:
            RequestError: there is no such question, or it ended a while ago.
        """
        return Waiting(self._approvals.wait_decision(caller, params.id))

    @method("exec.approval.resolve")
    async def resolve(self, caller: Caller, params: ExecApprovalResolveParams) -> ExecApprovalResolveResult:
        """Decide a question.

        Raises:
            RequestError: there is no such open question, somebody else has to decide it, or that is no decision.
        """
        await self._approvals.resolve(caller, params.id, params.decision)
        return ExecApprovalResolveResult(ok=True)

    @method("exec.approval.list")
    async def list_open(self, caller: Caller, params: ExecApprovalListParams) -> ExecApprovalListResult:
        """What is open: what the caller may decide and what the caller asked for, oldest first."""
        return ExecApprovalListResult(approvals=await self._approvals.pending(caller))

    @method("exec.approval.grants")
    async def grants(self, caller: Caller, params: ExecApprovalGrantsParams) -> ExecApprovalGrantsResult:
        """The commands that a person was allowed for good, newest first.

        Raises:
            Forbidden: they are another person's, and the caller does not decide everything.
        """
        found = await self._approvals.grants(_owner(caller, params.user_id))
        return ExecApprovalGrantsResult(grants=[_grant(each) for each in found])

    @method("exec.approval.grants.remove")
    async def remove_grant(
        self, caller: Caller, params: ExecApprovalGrantsRemoveParams
    ) -> ExecApprovalGrantsRemoveResult:
        """Ask about such a command again from now on. ``removed``: false if there is no such grant.

        Raises:
            Forbidden: it is another person's, and the caller does not decide everything.
        """
        owner = _owner(caller, params.user_id)
        return ExecApprovalGrantsRemoveResult(removed=await self._approvals.remove_grant(caller, owner, params.id))


def _owner(caller: Caller, user_id: str | UnsetType) -> UserId:
    if isinstance(user_id, UnsetType):
        return caller.user_id
    caller.require(Permission.APPROVALS_DECIDE, UserId(user_id))
    return UserId(user_id)


def _grant(grant: CommandGrant) -> ExecApprovalGrant:
    return ExecApprovalGrant(
        id=grant.id,
        pattern=grant.pattern,
        host=grant.host,
        node_id=grant.node_id or None,
        created_at=grant.created_at_ms,
        last_used_at=grant.last_used_at_ms,
        uses=grant.uses,
        decided_by=grant.decided_by,
    )


def _told(file: ExecApprovalsFileParams) -> dict[str, Json]:
    """What the audit log tells of a file: how strict it is, and how much it lists."""
    defaults, agents = file.defaults or None, file.agents or {}
    return {
        "security": "" if defaults is None else defaults.security or "",
        "ask": "" if defaults is None else defaults.ask or "",
        "agents": len(agents),
        "patterns": sum(len(agent.allowlist or ()) for agent in agents.values()),
    }
