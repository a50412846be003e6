"""``sessions.*`` (OPENCLAW-V3 6.4): params, rows of a list, and the entry that ``patch`` and ``reset`` show (8.2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.health import SessionKind
from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, PositiveInt, Result

MAX_LABEL_LENGTH = 64

Label = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_LENGTH)]


class SessionsListParams(Params, frozen=True):
    limit: PositiveInt | UnsetType = UNSET
    active_minutes: PositiveInt | UnsetType = UNSET
    include_global: bool = False
    include_unknown: bool = False
    include_derived_titles: bool = False
    include_last_message: bool = False
    label: Label | UnsetType = UNSET
    spawned_by: NonEmptyStr | UnsetType = UNSET
    agent_id: NonEmptyStr | UnsetType = UNSET
    search: str = ""


class SessionModelDefaults(Result):
    """What a session without a model of its own uses."""

    model_provider: str | None
    model: str | None
    context_tokens: NonNegativeInt | None


class DeliveryContext(Result):
    """Where an answer that is to be delivered would go."""

    channel: str | UnsetType = UNSET
    to: str | UnsetType = UNSET
    account_id: str | UnsetType = UNSET
    thread_id: str | UnsetType = UNSET


class SessionListRow(Result):
    key: str
    kind: SessionKind
    updated_at: NonNegativeInt | None
    session_id: str
    system_sent: bool
    aborted_last_run: bool
    total_tokens_fresh: bool
    label: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    group_channel: str | UnsetType = UNSET
    space: str | UnsetType = UNSET
    chat_type: str | UnsetType = UNSET
    origin: dict[str, Any] | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET
    verbose_level: str | UnsetType = UNSET
    reasoning_level: str | UnsetType = UNSET
    elevated_level: str | UnsetType = UNSET
    send_policy: str | UnsetType = UNSET
    response_usage: str | UnsetType = UNSET
    input_tokens: NonNegativeInt | UnsetType = UNSET
    output_tokens: NonNegativeInt | UnsetType = UNSET
    total_tokens: NonNegativeInt | UnsetType = UNSET
    model_provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    context_tokens: NonNegativeInt | UnsetType = UNSET
    delivery_context: DeliveryContext | UnsetType = UNSET
    last_channel: str | UnsetType = UNSET
    last_to: str | UnsetType = UNSET
    last_account_id: str | UnsetType = UNSET
    derived_title: str | UnsetType = UNSET
    last_message_preview: str | UnsetType = UNSET


class SessionsListResult(Result):
    """``count`` is the number of rows here; ``path`` is the store's path, or ``(multiple)``."""

    ts: NonNegativeInt
    path: str
    count: NonNegativeInt
    defaults: SessionModelDefaults
    sessions: list[SessionListRow]


class SessionsPreviewParams(Params, frozen=True):
    keys: Annotated[tuple[NonEmptyStr, ...], Meta(min_length=1)]
    limit: PositiveInt = 12
    max_chars: Annotated[int, Meta(ge=20, le=2**53 - 1)] = 240


class PreviewItem(Result):
    role: Literal["user", "assistant", "tool", "system", "other"]
    text: str


class SessionPreview(Result):
    key: str
    status: Literal["ok", "empty", "missing", "error"]
    items: list[PreviewItem]


class SessionsPreviewResult(Result):
    ts: NonNegativeInt
    previews: list[SessionPreview]


class SessionsResolveParams(Params, frozen=True):
    """Exactly one of ``key``, ``session_id`` and ``label``."""

    key: NonEmptyStr | UnsetType = UNSET
    session_id: NonEmptyStr | UnsetType = UNSET
    label: Label | UnsetType = UNSET
    agent_id: NonEmptyStr | UnsetType = UNSET
    spawned_by: NonEmptyStr | UnsetType = UNSET
    include_global: bool = False
    include_unknown: bool = False


class SessionsResolveResult(Result):
    ok: bool
    key: str


class SessionsPatchParams(Params, frozen=True):
    """Absent: unchanged. ``null``: cleared."""

    key: NonEmptyStr
    label: Label | UnsetType | None = UNSET
    thinking_level: NonEmptyStr | UnsetType | None = UNSET
    verbose_level: NonEmptyStr | UnsetType | None = UNSET
    reasoning_level: NonEmptyStr | UnsetType | None = UNSET
    response_usage: Literal["off", "tokens", "full", "on"] | UnsetType | None = UNSET
    elevated_level: NonEmptyStr | UnsetType | None = UNSET
    exec_host: NonEmptyStr | UnsetType | None = UNSET
    exec_security: NonEmptyStr | UnsetType | None = UNSET
    exec_ask: NonEmptyStr | UnsetType | None = UNSET
    exec_node: NonEmptyStr | UnsetType | None = UNSET
    model: NonEmptyStr | UnsetType | None = UNSET
    spawned_by: NonEmptyStr | UnsetType | None = UNSET
    spawn_depth: NonNegativeInt | UnsetType | None = UNSET
    send_policy: Literal["allow", "deny"] | UnsetType | None = UNSET
    group_activation: Literal["mention", "always"] | UnsetType | None = UNSET


class SessionEntry(Result):
    """A session as it is stored, by OpenClaw's names."""

    session_id: str
    updated_at: NonNegativeInt
    system_sent: bool | UnsetType = UNSET
    aborted_last_run: bool | UnsetType = UNSET
    thinking_level: str | UnsetType = UNSET
    verbose_level: str | UnsetType = UNSET
    reasoning_level: str | UnsetType = UNSET
    elevated_level: str | UnsetType = UNSET
    response_usage: str | UnsetType = UNSET
    send_policy: str | UnsetType = UNSET
    group_activation: str | UnsetType = UNSET
    exec_host: str | UnsetType = UNSET
    exec_security: str | UnsetType = UNSET
    exec_ask: str | UnsetType = UNSET
    exec_node: str | UnsetType = UNSET
    provider_override: str | UnsetType = UNSET
    model_override: str | UnsetType = UNSET
    model_provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    context_tokens: NonNegativeInt | UnsetType = UNSET
    input_tokens: NonNegativeInt | UnsetType = UNSET
    output_tokens: NonNegativeInt | UnsetType = UNSET
    total_tokens: NonNegativeInt | UnsetType = UNSET
    total_tokens_fresh: bool | UnsetType = UNSET
    cache_read: NonNegativeInt | UnsetType = UNSET
    cache_write: NonNegativeInt | UnsetType = UNSET
    compaction_count: NonNegativeInt | UnsetType = UNSET
    label: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    chat_type: str | UnsetType = UNSET
    origin: dict[str, Any] | UnsetType = UNSET
    delivery_context: DeliveryContext | UnsetType = UNSET
    last_channel: str | UnsetType = UNSET
    last_to: str | UnsetType = UNSET
    last_account_id: str | UnsetType = UNSET
    spawned_by: str | UnsetType = UNSET
    spawn_depth: NonNegativeInt | UnsetType = UNSET


class ResolvedModelRef(Result):
    model_provider: str
    model: str


class SessionsPatchResult(Result):
    ok: bool
    path: str
    key: str
    entry: SessionEntry
    resolved: ResolvedModelRef


class SessionsResetParams(Params, frozen=True):
    key: NonEmptyStr
    reason: Literal["new", "reset"] = "reset"


class SessionsResetResult(Result):
    ok: bool
    key: str
    entry: SessionEntry


class SessionsDeleteParams(Params, frozen=True):
    key: NonEmptyStr
    delete_transcript: bool = True
    emit_lifecycle_hooks: bool = True


class SessionsDeleteResult(Result):
    """``archived``: paths of kept transcript files; a store without files has none."""

    ok: bool
    key: str
    deleted: bool
    archived: list[str]


class SessionsCompactParams(Params, frozen=True):
    key: NonEmptyStr
    max_lines: PositiveInt = 400


class SessionsCompactResult(Result):
    ok: bool
    key: str
    compacted: bool
    kept: NonNegativeInt | UnsetType = UNSET
    archived: str | UnsetType = UNSET
    reason: Literal["no sessionId", "no transcript"] | UnsetType = UNSET
