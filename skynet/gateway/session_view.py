"""Stored sessions by OpenClaw's names: rows of lists, and the entry that ``sessions.patch`` and ``reset`` show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from skynet.gateway.keys import render_key
from skynet_agent.errors import UnknownModel
from skynet_agent.router import Router
from skynet_memory.sessions import Session, SessionRow
from skynet_protocol.health import SessionKind
from skynet_protocol.sessions import DeliveryContext, SessionEntry, SessionListRow

_LISTED = {
    "thinkingLevel": "thinking_level",
    "verboseLevel": "verbose_level",
    "reasoningLevel": "reasoning_level",
    "elevatedLevel": "elevated_level",
    "sendPolicy": "send_policy",
    "responseUsage": "response_usage",
}
_STORED = _LISTED | {
    "groupActivation": "group_activation",
    "execHost": "exec_host",
    "execSecurity": "exec_security",
    "execAsk": "exec_ask",
    "execNode": "exec_node",
    "spawnedBy": "spawned_by",
}
"""Settings of a session, which are stored by their wire name, and the fields that show them."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """The model that a session's next message goes to first."""

    provider: str
    model: str
    context_window: int | None


def model_of(name: str, router: Router) -> ModelRef:
    """What a session's own model name stands for, "" being the default.

    A name that leads nowhere any more is shown as it is stored.
    """
    if not name:
        default = router.default()
        return ModelRef(default.provider, default.model, default.context_window)
    try:
        resolved = router.resolve(name)
    except UnknownModel:
        provider, _, model = name.partition("/")
        return ModelRef(provider, model, None) if model else ModelRef("", name, None)
    return ModelRef(resolved.provider, resolved.model, resolved.context_window)


def kind_of(session: Session) -> SessionKind:
    """Whether it is one person's conversation or a room's (OPENCLAW-V3 8.1)."""
    if session.origin.get("chatType") in ("group", "channel"):
        return "group"
    key = f":{session.name}"
    return "group" if ":group:" in key or ":channel:" in key else "direct"


def setting(session: Session, name: str) -> str | UnsetType:
    """A setting by its wire name; unset when it is not set, or is no text."""
    return _text(session.settings, name)


def list_row(session: SessionRow, model: ModelRef) -> SessionListRow:
    """A row of ``sessions.list``; ``model`` is what ``model_of`` says of the session's."""
    # The context's size is known from the first answer until the conversation is cut.
    fresh = session.total_tokens > 0
    return SessionListRow(
        key=render_key(session.key),
        kind=kind_of(session),
        updated_at=session.updated_at_ms,
        session_id=session.session_id,
        system_sent=session.system_sent,
        aborted_last_run=session.aborted_last_run,
        total_tokens_fresh=fresh,
        label=session.label or UNSET,
        display_name=session.display_name or session.label or _text(session.origin, "label"),
        input_tokens=session.input_tokens,
        output_tokens=session.output_tokens,
        total_tokens=session.total_tokens if fresh else UNSET,
        model_provider=model.provider or UNSET,
        model=model.model or UNSET,
        context_tokens=model.context_window or session.context_tokens or UNSET,
        derived_title=session.derived_title or UNSET,
        last_message_preview=session.last_message or UNSET,
        **_settings(session, _LISTED),
        **_route(session),
    )


def entry(session: Session, router: Router) -> SessionEntry:
    """The stored entry (OPENCLAW-V3 8.2)."""
    override = model_of(session.model, router) if session.model else None
    return SessionEntry(
        session_id=session.session_id,
        updated_at=session.updated_at_ms,
        system_sent=session.system_sent,
        aborted_last_run=session.aborted_last_run,
        provider_override=override.provider if override is not None else UNSET,
        model_override=override.model if override is not None else UNSET,
        model_provider=session.last_provider or UNSET,
        model=session.last_model or UNSET,
        context_tokens=session.context_tokens or UNSET,
        input_tokens=session.input_tokens,
        output_tokens=session.output_tokens,
        total_tokens=session.total_tokens,
        total_tokens_fresh=session.total_tokens > 0 or not session.system_sent,
        cache_read=session.cache_read,
        cache_write=session.cache_write,
        compaction_count=session.compaction_count,
        label=session.label or UNSET,
        display_name=session.display_name or UNSET,
        spawn_depth=depth if isinstance(depth := session.settings.get("spawnDepth"), int) else UNSET,
        **_settings(session, _STORED),
        **_route(session),
    )


def _settings(session: Session, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        field: value
        for name, value in session.settings.items()
        if (field := names.get(name)) is not None and isinstance(value, str) and value
    }


def _route(session: Session) -> dict[str, Any]:
    """Where the last message came from, which is where an answer that is to be delivered goes."""
    origin = session.origin
    if not origin:
        return {}
    fields: dict[str, Any] = {"origin": origin, "chat_type": _text(origin, "chatType")}
    channel = _text(origin, "surface") or _text(origin, "provider")
    to = _text(origin, "to")
    if channel or to:
        account = _text(origin, "accountId")
        context = DeliveryContext(channel=channel, to=to, account_id=account)
        fields |= {"delivery_context": context, "last_channel": channel, "last_to": to, "last_account_id": account}
    return fields


def _text(values: Mapping[str, object], name: str) -> str | UnsetType:
    value = values.get(name)
    return value if isinstance(value, str) and value else UNSET
