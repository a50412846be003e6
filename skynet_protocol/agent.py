"""``agent``, ``agent.wait``, ``agent.identity.get``, ``agents.list``: params and results (OPENCLAW-V3 6.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result, RunIdText

DEFAULT_WAIT_MS = 30_000


class InputProvenance(Params, frozen=True):
    """Where the message of a run came from."""

    kind: Literal["external_user", "inter_session", "internal_system"]
    source_session_key: str = ""
    source_channel: str = ""
    source_tool: str = ""


class AgentParams(Params, frozen=True):
    """One turn of an agent. ``timeout`` is in seconds, 0 is none; ``idempotency_key`` becomes the run's id."""

    message: NonEmptyStr
    idempotency_key: RunIdText
    agent_id: NonEmptyStr = ""
    to: str = ""
    reply_to: str = ""
    session_id: str = ""
    session_key: str = ""
    thinking: str = ""
    deliver: bool = False
    attachments: tuple[Any, ...] = ()
    channel: str = ""
    reply_channel: str = ""
    account_id: str = ""
    reply_account_id: str = ""
    thread_id: str = ""
    group_id: str = ""
    group_channel: str = ""
    group_space: str = ""
    timeout: NonNegativeInt | UnsetType = UNSET
    best_effort_deliver: bool = False
    lane: str = ""
    extra_system_prompt: str = ""
    input_provenance: InputProvenance | UnsetType = UNSET
    label: Annotated[str, Meta(min_length=1, max_length=64)] = ""
    spawned_by: str = ""


class AgentAccepted(Result):
    """The first of the two answers to ``agent``; its status alone tells clients to wait for the other."""

    run_id: str
    accepted_at: int
    status: Literal["accepted"]


class AgentPayload(Result):
    """A part of the answer; ``media_url`` None is null on the wire."""

    text: str
    media_url: str | None


class AgentUsage(Result):
    """Tokens. The cache's are left out where they were not told."""

    input: int
    output: int
    total: int
    cache_read: int | UnsetType = UNSET
    cache_write: int | UnsetType = UNSET


class AgentAttempt(Result):
    """A model that was asked and failed, and why; Skynet's own."""

    provider: str
    model: str
    error: str


class AgentRunMeta(Result):
    """Which session and model answered, and which failed before; ``last_call_usage`` is of the last model call of
    several."""

    session_id: str
    provider: str
    model: str
    usage: AgentUsage | UnsetType = UNSET
    last_call_usage: AgentUsage | UnsetType = UNSET
    prompt_tokens: int | UnsetType = UNSET
    tried: Sequence[AgentAttempt] | UnsetType = UNSET


class AgentToolCall(Result):
    """A call that the model asks its client for; ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


class AgentError(Result):
    """Why a model did not answer; ``kind`` is the failure's class."""

    kind: str
    message: str


class AgentMeta(Result):
    """``stop_reason`` is the answer's own (OPENCLAW-V3 8.4)."""

    duration_ms: int
    agent_meta: AgentRunMeta
    aborted: bool
    stop_reason: str | UnsetType = UNSET
    pending_tool_calls: Sequence[AgentToolCall] | UnsetType = UNSET
    error: AgentError | UnsetType = UNSET


class AgentOutcome(Result):
    payloads: Sequence[AgentPayload]
    meta: AgentMeta


class AgentResult(Result):
    """The second answer. A model's failure is ``ok`` too, with its text as the payload and ``meta.error`` beside it."""

    run_id: str
    status: Literal["ok"]
    summary: str
    result: AgentOutcome


class AgentWaitParams(Params, frozen=True):
    run_id: RunIdText
    timeout_ms: NonNegativeInt = DEFAULT_WAIT_MS


class AgentWaitResult(Result):
    """How a run ended; an unknown or an aborted one answers ``timeout``."""

    run_id: str
    status: Literal["ok", "error", "timeout"]
    started_at: int | UnsetType = UNSET
    ended_at: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class AgentIdentityParams(Params, frozen=True):
    agent_id: NonEmptyStr = ""
    session_key: str = ""


class AgentIdentityResult(Result):
    """``avatar`` is a URL, a data URL, a letter or an emoji."""

    agent_id: str
    name: str | UnsetType = UNSET
    avatar: str | UnsetType = UNSET
    emoji: str | UnsetType = UNSET


class AgentsListParams(Params, frozen=True):
    pass


class AgentIdentity(Result):
    name: str | UnsetType = UNSET
    theme: str | UnsetType = UNSET
    emoji: str | UnsetType = UNSET
    avatar: str | UnsetType = UNSET
    avatar_url: str | UnsetType = UNSET


class AgentSummary(Result):
    id: str
    name: str | UnsetType = UNSET
    identity: AgentIdentity | UnsetType = UNSET


class AgentsListResult(Result):
    default_id: str
    main_key: str
    scope: Literal["per-sender", "global"]
    agents: Sequence[AgentSummary]
