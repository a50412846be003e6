"""``health`` and ``status`` (OPENCLAW-V3 6.3).

The command line iterates over the containers without checks, so all of them are there, empty or not.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.heartbeat import HeartbeatSummary
from skynet_protocol.params import LenientParams, NonNegativeInt, Result

SessionKind = Literal["direct", "group", "global", "unknown"]


class HealthParams(LenientParams, frozen=True):
    """``probe: true`` wants a fresh snapshot; whatever else is there counts as false, as in OpenClaw."""

    probe: object = False


class HealthSession(Result):
    key: str
    updated_at: NonNegativeInt | None
    age: NonNegativeInt | None


class HealthSessions(Result):
    """``recent``: at most 5, newest first."""

    path: str
    count: NonNegativeInt
    recent: list[HealthSession]


class HealthAgent(Result):
    agent_id: str
    is_default: bool
    heartbeat: HeartbeatSummary
    sessions: HealthSessions
    name: str | UnsetType = UNSET


class HealthSnapshot(Result):
    """Result of ``health`` and payload of the ``health`` event."""

    ok: bool
    ts: NonNegativeInt
    duration_ms: NonNegativeInt
    channels: dict[str, Any]
    channel_order: list[str]
    channel_labels: dict[str, str]
    heartbeat_seconds: NonNegativeInt
    default_agent_id: str
    agents: list[HealthAgent]
    sessions: HealthSessions


class StatusParams(LenientParams, frozen=True):
    pass


class StatusHeartbeatAgent(Result):
    agent_id: str
    enabled: bool
    every: str
    every_ms: NonNegativeInt | None


class StatusHeartbeat(Result):
    default_agent_id: str
    agents: list[StatusHeartbeatAgent]


class StatusDefaults(Result):
    model: str | None
    context_tokens: NonNegativeInt | None


class StatusSession(Result):
    agent_id: str
    key: str
    kind: SessionKind
    session_id: str
    updated_at: NonNegativeInt | None
    age: NonNegativeInt | None
    system_sent: bool
    aborted_last_run: bool
    total_tokens: NonNegativeInt | None
    total_tokens_fresh: bool
    remaining_tokens: NonNegativeInt | None
    percent_used: NonNegativeInt | None
    model: str | None
    context_tokens: NonNegativeInt | None
    flags: list[str]
    thinking_level: str | UnsetType = UNSET
    verbose_level: str | UnsetType = UNSET
    reasoning_level: str | UnsetType = UNSET
    elevated_level: str | UnsetType = UNSET
    input_tokens: NonNegativeInt | UnsetType = UNSET
    output_tokens: NonNegativeInt | UnsetType = UNSET
    cache_read: NonNegativeInt | UnsetType = UNSET
    cache_write: NonNegativeInt | UnsetType = UNSET


class StatusAgentSessions(Result):
    agent_id: str
    path: str
    count: NonNegativeInt
    recent: list[StatusSession]


class StatusSessions(Result):
    """``recent``: at most 10, newest first."""

    paths: list[str]
    count: NonNegativeInt
    defaults: StatusDefaults
    recent: list[StatusSession]
    by_agent: list[StatusAgentSessions]


class StatusLinkChannel(Result):
    id: str
    label: str
    linked: bool
    auth_age_ms: NonNegativeInt | None


class StatusResult(Result):
    heartbeat: StatusHeartbeat
    channel_summary: list[str]
    queued_system_events: list[str]
    sessions: StatusSessions
    link_channel: StatusLinkChannel | UnsetType = UNSET
