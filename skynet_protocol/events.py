"""Events: their names, who may see them, which a slow client may miss, and their payloads (OPENCLAW-V3 1.5, 7, 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.params import Result
from skynet_protocol.scopes import Scope

EVENTS: tuple[str, ...] = (
    "connect.challenge",
    "agent",
    "chat",
    "presence",
    "tick",
    "talk.mode",
    "shutdown",
    "health",
    "heartbeat",
    "cron",
    "node.pair.requested",
    "node.pair.resolved",
    "node.invoke.request",
    "device.pair.requested",
    "device.pair.resolved",
    "voicewake.changed",
    "exec.approval.requested",
    "exec.approval.resolved",
    "update.available",
    "budget.warning",
    "approvals.requested",
    "approvals.resolved",
    "guardian.alert",
    "memory.read",
    "terminal.output",
    "terminal.exit",
)
"""What ``features.events`` of hello-ok says, OpenClaw's in its order first."""

EVENT_SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "exec.approval.requested": Scope.APPROVALS.value,
        "exec.approval.resolved": Scope.APPROVALS.value,
        "device.pair.requested": Scope.PAIRING.value,
        "device.pair.resolved": Scope.PAIRING.value,
        "node.pair.requested": Scope.PAIRING.value,
        "node.pair.resolved": Scope.PAIRING.value,
    }
)
"""Events that only an operator connection with this scope receives, whoever they belong to."""

_DROPPABLE = frozenset(
    (
        "tick",
        "presence",
        "cron",
        "heartbeat",
        "talk.mode",
        "voicewake.changed",
        "device.pair.requested",
        "device.pair.resolved",
        "node.pair.requested",
        "node.pair.resolved",
        "exec.approval.requested",
        "exec.approval.resolved",
        "update.available",
        "budget.warning",
        "approvals.requested",
        "approvals.resolved",
        "guardian.alert",
        "memory.read",
    )
)

ChatState = Literal["delta", "final", "aborted", "error"]


def is_droppable(event: str, state: str | None = None) -> bool:
    """Whether a client that does not keep up may miss this event; if not, it is disconnected instead.

    ``state`` is the payload's, which matters for ``chat`` alone: the next delta carries the whole text again.
    """
    return event in _DROPPABLE or (event == "chat" and state == "delta")


class ConnectChallenge(Result):
    nonce: str
    ts: int


class TickEvent(Result):
    ts: int


class ShutdownEvent(Result):
    """The gateway goes down; ``restart_expected_ms`` None (null on the wire) means that it does not come back."""

    reason: str
    restart_expected_ms: int | None


class TextContent(Result, tag_field="type", tag="text"):
    text: str


class ChatMessage(Result):
    """The message of a ``chat`` event. ``timestamp`` is epoch milliseconds."""

    role: Literal["assistant", "user", "system"]
    content: Sequence[TextContent]
    timestamp: int


def assistant_message(text: str, timestamp: int) -> ChatMessage:
    """What a delta, and usually a final, shows: the whole text so far."""
    return ChatMessage(role="assistant", content=(TextContent(text=text),), timestamp=timestamp)


class ChatEvent(Result):
    """``chat``: what clients show of a run. ``message`` is a ``ChatMessage`` or an encoded one (``Raw``).

    ``seq`` counts per run and is shared with ``agent`` events; it is not the frame's (OPENCLAW-V3 7.2, 7.4).
    """

    run_id: str
    session_key: str
    seq: int
    state: ChatState
    message: Any = UNSET
    error_message: str | UnsetType = UNSET
    usage: Any = UNSET
    stop_reason: str | UnsetType = UNSET


class AgentEvent(Result):
    """``agent``: what happens inside a run. ``data`` is a struct of below, a dict or ``Raw`` (OPENCLAW-V3 7.3)."""

    run_id: str
    seq: int
    stream: str
    ts: int
    data: Any
    session_key: str | UnsetType = UNSET


class LifecycleStart(Result, tag_field="phase", tag="start"):
    started_at: int


class LifecycleEnd(Result, tag_field="phase", tag="end"):
    ended_at: int
    aborted: bool | UnsetType = UNSET


class LifecycleError(Result, tag_field="phase", tag="error"):
    error: str
    ended_at: int


class AssistantData(Result):
    """Stream ``assistant`` and ``thinking``: ``text`` is the current message so far, ``delta`` what is new in it."""

    text: str
    delta: str
    media_urls: Sequence[str] | UnsetType = UNSET


class ToolStart(Result, tag_field="phase", tag="start"):
    name: str
    tool_call_id: str
    args: Any


class ToolUpdate(Result, tag_field="phase", tag="update"):
    name: str
    tool_call_id: str
    partial_result: Any = UNSET


class ToolResult(Result, tag_field="phase", tag="result"):
    name: str
    tool_call_id: str
    is_error: bool
    meta: str | UnsetType = UNSET
    result: Any = UNSET


class CompactionStart(Result, tag_field="phase", tag="start"):
    pass


class CompactionEnd(Result, tag_field="phase", tag="end"):
    will_retry: bool


class PresenceEvent(Result):
    """``presence``: every entry, as ``system-presence`` answers them."""

    presence: Any


class HeartbeatEvent(Result):
    """``heartbeat``: a heartbeat run ended. ``preview`` is at most 200 characters."""

    ts: int
    status: Literal["sent", "ok-empty", "ok-token", "skipped", "failed"]
    reason: str | UnsetType = UNSET
    to: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    has_media: bool | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    account_id: str | UnsetType = UNSET
    silent: bool | UnsetType = UNSET
    indicator_type: Literal["ok", "alert", "error"] | UnsetType = UNSET


class CronEvent(Result):
    """``cron``: a job was changed, or a run of it started or finished."""

    job_id: str
    action: Literal["added", "updated", "removed", "started", "finished"]
    run_at_ms: int | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    status: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    delivered: bool | UnsetType = UNSET
    delivery_status: str | UnsetType = UNSET
    delivery_error: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    session_key: str | UnsetType = UNSET
    next_run_at_ms: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    usage: Any = UNSET


class DevicePairRequestedEvent(Result):
    """``device.pair.requested``: a device asks to be let in; ``is_repair`` if it was paired before."""

    request_id: str
    device_id: str
    public_key: str
    ts: int
    display_name: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    device_family: str | UnsetType = UNSET
    client_id: str | UnsetType = UNSET
    client_mode: str | UnsetType = UNSET
    role: str | UnsetType = UNSET
    roles: Sequence[str] | UnsetType = UNSET
    scopes: Sequence[str] | UnsetType = UNSET
    remote_ip: str | UnsetType = UNSET
    silent: bool | UnsetType = UNSET
    is_repair: bool | UnsetType = UNSET


class DevicePairResolvedEvent(Result):
    request_id: str
    device_id: str
    decision: Literal["approved", "rejected"]
    ts: int
