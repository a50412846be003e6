"""``exec.approvals.*``, the file that says which commands run without asking, and ``exec.approval.*``, the questions
that are asked (OPENCLAW-V3 6.12). ``exec.approval.list``, ``.grants`` and ``.grants.remove`` are Skynet's own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, PositiveInt, Result
from skynet_protocol.users import IdText

Security: TypeAlias = Literal["deny", "allowlist", "full"]
Ask: TypeAlias = Literal["off", "on-miss", "always"]
Decision: TypeAlias = Literal["allow-once", "allow-always", "deny"]

DECISIONS: tuple[Decision, ...] = ("allow-once", "allow-always", "deny")
DEFAULT_TIMEOUT_MS = 120_000

ApprovalIdText = Annotated[str, Meta(min_length=1, max_length=200)]
"""An approval's id, which its client may choose."""
LongText = Annotated[str, Meta(max_length=4096)]
CommandText = Annotated[str, Meta(min_length=1, max_length=16_384)]
"""No longer than what somebody who decides can be shown whole."""
ArgvWords = Annotated[list[str], Meta(max_length=4096)]
PatternText = Annotated[str, Meta(min_length=1, max_length=4096)]


# The file, as it is sent


class ExecApprovalsGetParams(Params, frozen=True):
    pass


class ExecApprovalsSocketParams(Params, frozen=True):
    path: LongText | UnsetType = UNSET
    token: LongText | UnsetType = UNSET


class ExecApprovalsDefaultsParams(Params, frozen=True):
    security: str | UnsetType = UNSET
    ask: str | UnsetType = UNSET
    ask_fallback: str | UnsetType = UNSET
    auto_allow_skills: bool | UnsetType = UNSET


class ExecApprovalsEntryParams(Params, frozen=True):
    pattern: PatternText
    id: NonEmptyStr | UnsetType = UNSET
    last_used_at: NonNegativeInt | UnsetType = UNSET
    last_used_command: LongText | UnsetType = UNSET
    last_resolved_path: LongText | UnsetType = UNSET


class ExecApprovalsAgentParams(ExecApprovalsDefaultsParams, frozen=True):
    allowlist: list[ExecApprovalsEntryParams] | UnsetType = UNSET


class ExecApprovalsFileParams(Params, frozen=True):
    version: Literal[1]
    socket: ExecApprovalsSocketParams | UnsetType = UNSET
    defaults: ExecApprovalsDefaultsParams | UnsetType = UNSET
    agents: dict[str, ExecApprovalsAgentParams] | UnsetType = UNSET


class ExecApprovalsSetParams(Params, frozen=True):
    """``base_hash``: of the file that was changed, needed where there is one."""

    file: ExecApprovalsFileParams
    base_hash: NonEmptyStr | UnsetType = UNSET


class ExecApprovalsNodeGetParams(Params, frozen=True):
    node_id: NonEmptyStr


class ExecApprovalsNodeSetParams(Params, frozen=True):
    node_id: NonEmptyStr
    file: ExecApprovalsFileParams
    base_hash: NonEmptyStr | UnsetType = UNSET


# The file, as it is shown


class ExecApprovalsSocket(Result, kw_only=True):
    """The file also holds the socket's token, which is never shown."""

    path: str | UnsetType = UNSET


class ExecApprovalsDefaults(Result, kw_only=True):
    security: str | UnsetType = UNSET
    ask: str | UnsetType = UNSET
    ask_fallback: str | UnsetType = UNSET
    auto_allow_skills: bool | UnsetType = UNSET


class ExecApprovalsAllowlistEntry(Result, kw_only=True):
    pattern: str
    id: NonEmptyStr | UnsetType = UNSET
    last_used_at: NonNegativeInt | UnsetType = UNSET
    last_used_command: str | UnsetType = UNSET
    last_resolved_path: str | UnsetType = UNSET


class ExecApprovalsAgent(ExecApprovalsDefaults, kw_only=True):
    allowlist: list[ExecApprovalsAllowlistEntry] | UnsetType = UNSET


class ExecApprovalsFile(Result, kw_only=True):
    version: Literal[1]
    socket: ExecApprovalsSocket | UnsetType = UNSET
    defaults: ExecApprovalsDefaults | UnsetType = UNSET
    agents: dict[str, ExecApprovalsAgent] | UnsetType = UNSET


class ExecApprovalsSnapshot(Result, kw_only=True):
    """``hash`` is the SHA-256 of the file's text, hex."""

    path: NonEmptyStr
    exists: bool
    hash: NonEmptyStr
    file: ExecApprovalsFile


# Questions


class SystemRunPlan(Params, frozen=True):
    """What ``system.run`` would do on a node."""

    version: Literal[2]
    argv: ArgvWords
    cwd: LongText | None
    raw_command: CommandText | None
    agent_id: LongText | None
    session_key: LongText | None


class ExecApprovalRequestParams(Params, frozen=True):
    """``timeout_ms``: how long it waits for a decision. ``two_phase``: answer at once too, that it waits."""

    command: CommandText
    id: ApprovalIdText | UnsetType = UNSET
    command_argv: ArgvWords | UnsetType = UNSET
    system_run_plan_v2: SystemRunPlan | UnsetType = msgspec.field(default=UNSET, name="systemRunPlanV2")
    env: dict[str, str] | UnsetType = UNSET
    cwd: LongText | UnsetType | None = UNSET
    node_id: Annotated[str, Meta(min_length=1, max_length=4096)] | UnsetType | None = UNSET
    host: LongText | UnsetType | None = UNSET
    security: LongText | UnsetType | None = UNSET
    ask: LongText | UnsetType | None = UNSET
    agent_id: LongText | UnsetType | None = UNSET
    resolved_path: LongText | UnsetType | None = UNSET
    session_key: LongText | UnsetType | None = UNSET
    turn_source_channel: LongText | UnsetType | None = UNSET
    turn_source_to: LongText | UnsetType | None = UNSET
    turn_source_account_id: LongText | UnsetType | None = UNSET
    turn_source_thread_id: LongText | float | UnsetType | None = UNSET
    timeout_ms: PositiveInt = DEFAULT_TIMEOUT_MS
    two_phase: bool = False


class SystemRunBinding(Result, kw_only=True):
    """What a decision holds for. ``env_hash``: of the variables that the command gets besides; null for none."""

    version: Literal[1]
    argv: list[str]
    cwd: str | None
    agent_id: str | None
    session_key: str | None
    env_hash: str | None


class ExecApprovalRequest(Result, kw_only=True):
    """What is asked. ``command`` is what is shown to people: with an argv, that one as a shell would be given it.

    ``rule``, ``reason``: of the command policy, if it was that which asked. ``asked_by``: who, where somebody else
    decides.
    """

    command: str
    command_argv: list[str] | UnsetType = UNSET
    system_run_binding_v1: SystemRunBinding | UnsetType = msgspec.field(default=UNSET, name="systemRunBindingV1")
    system_run_plan_v2: SystemRunPlan | UnsetType = msgspec.field(default=UNSET, name="systemRunPlanV2")
    env_keys: list[str] | UnsetType = UNSET
    cwd: str | None
    node_id: str | None
    host: str | None
    security: str | None
    ask: str | None
    agent_id: str | None
    resolved_path: str | None
    session_key: str | None
    turn_source_channel: str | None
    turn_source_to: str | None
    turn_source_account_id: str | None
    turn_source_thread_id: str | float | None
    rule: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    asked_by: str | UnsetType = UNSET


class ExecApprovalAccepted(Result, kw_only=True):
    status: Literal["accepted"]
    id: str
    created_at_ms: NonNegativeInt
    expires_at_ms: NonNegativeInt


class ExecApprovalAnswer(Result, kw_only=True):
    """``decision``: null once it has expired."""

    id: str
    decision: Decision | None
    created_at_ms: NonNegativeInt
    expires_at_ms: NonNegativeInt


class ExecApprovalWaitParams(Params, frozen=True):
    id: ApprovalIdText


class ExecApprovalResolveParams(Params, frozen=True):
    id: ApprovalIdText
    decision: NonEmptyStr


class ExecApprovalResolveResult(Result, kw_only=True):
    ok: bool


class ExecApprovalListParams(Params, frozen=True):
    pass


class ExecApprovalSummary(Result, kw_only=True):
    """An open question. ``mine``: the caller asked. ``decidable``: the caller may decide it."""

    id: str
    request: ExecApprovalRequest
    created_at_ms: NonNegativeInt
    expires_at_ms: NonNegativeInt
    mine: bool
    decidable: bool


class ExecApprovalListResult(Result, kw_only=True):
    """What the caller may decide and what the caller asked for, oldest first."""

    approvals: list[ExecApprovalSummary]


class ExecApprovalGrantsParams(Params, frozen=True):
    """``user_id``: another person's, for who decides everything."""

    user_id: IdText | UnsetType = UNSET


class ExecApprovalGrant(Result, kw_only=True):
    """A command that was allowed for good. ``pattern``: its words, a JSON array. ``last_used_at``: null for never."""

    id: str
    pattern: str
    host: str
    node_id: str | None
    created_at: NonNegativeInt
    last_used_at: NonNegativeInt | None
    uses: NonNegativeInt
    decided_by: str


class ExecApprovalGrantsResult(Result, kw_only=True):
    """Newest first."""

    grants: list[ExecApprovalGrant]


class ExecApprovalGrantsRemoveParams(Params, frozen=True):
    id: IdText
    user_id: IdText | UnsetType = UNSET


class ExecApprovalGrantsRemoveResult(Result, kw_only=True):
    removed: bool


# Events


class ExecApprovalRequestedEvent(Result, kw_only=True):
    """``exec.approval.requested``, to each who may decide it."""

    id: str
    request: ExecApprovalRequest
    created_at_ms: NonNegativeInt
    expires_at_ms: NonNegativeInt


class ExecApprovalResolvedEvent(Result, kw_only=True):
    """``exec.approval.resolved``, to those who could decide it and to who asked. ``resolved_by``: null where nobody
    decided: who asked is gone, or may run no commands any more."""

    id: str
    decision: Decision
    resolved_by: str | None
    ts: NonNegativeInt
    request: ExecApprovalRequest


NodeFile: TypeAlias = Any
"""What a node answers; it is passed on as it came."""
