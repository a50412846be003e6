"""``system-presence`` and ``system-event``."""

from typing import Any

from msgspec import structs

from skynet.gateway.dispatch import method
from skynet.gateway.heartbeat import SystemEvents
from skynet.gateway.presence import PresenceTable, Reported
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.presence import PresenceEntry, SystemEventParams, SystemEventResult, SystemPresenceParams
from skynet_users.caller import Caller

MAX_FIELD_CHARS = 256
MAX_LIST_ITEMS = 32
"""A longer text or list in a report is cut: it is shown to every client of its owner."""
PERIODIC_REASONS = ("periodic", "heartbeat")
"""Reports that come by themselves say nothing new."""


class PresenceMethods:
    """Who is connected, and what devices report of themselves."""

    def __init__(self, presence: PresenceTable, events: SystemEvents) -> None:
        self._presence = presence
        self._events = events

    @method("system-presence")
    def system_presence(self, caller: Caller, params: SystemPresenceParams) -> list[PresenceEntry]:
        """The gateway and the caller's devices, newest first; an admin sees everybody's."""
        return self._presence.entries(caller)

    @method("system-event")
    def system_event(self, caller: Caller, params: SystemEventParams) -> SystemEventResult:
        """Take a report of a device, and queue its text for the caller's main session.

        A text that begins with ``Node:`` is a device's report of itself: it is queued only when it says something new,
        and then as what is new.
        """
        fields = _known_fields(params)
        text = params.text.strip() if isinstance(params.text, str) else ""
        if not text:
            raise RequestError("text required", details={"code": DetailCode.INVALID_PARAMS})
        reported = self._presence.report(caller, fields | {"text": text[:MAX_FIELD_CHARS]})
        if text.startswith("Node:"):
            text = _news(reported)
        if text:
            self._events.add(caller.user_id, text)
        return SystemEventResult(ok=True)


def _known_fields(params: SystemEventParams) -> dict[str, Any]:
    """The fields that have the protocol's type, cut to their limits."""
    fields: dict[str, Any] = {}
    for name, value in structs.asdict(params).items():
        if isinstance(value, str):
            fields[name] = value.strip()[:MAX_FIELD_CHARS]
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            fields[name] = tuple(item.strip()[:MAX_FIELD_CHARS] for item in value[:MAX_LIST_ITEMS] if item.strip())
    texts = {"roles", "scopes", "tags"}
    fields = {name: value for name, value in fields.items() if isinstance(value, tuple) == (name in texts)}
    idle_s = params.last_input_seconds
    if isinstance(idle_s, int | float) and not isinstance(idle_s, bool) and 0 <= idle_s < 2**53:
        fields["last_input_seconds"] = int(idle_s)
    else:
        fields.pop("last_input_seconds", None)
    return fields


def _news(reported: Reported) -> str:
    """``Node: host (ip) · app … · mode … · reason …``, as far as it is new; "" when nothing is."""
    entry, changed = reported.entry, reported.changed
    if (entry.reason or "").lower().startswith(PERIODIC_REASONS):
        changed -= {"reason"}
    if not changed:
        return ""
    parts = [f"Node: {entry.host or 'Unknown'}" + (f" ({entry.ip})" if entry.ip else "")]
    parts += [f"app {entry.version or 'unknown'}"] if "version" in changed else []
    parts += [f"mode {entry.mode or 'unknown'}"] if "mode" in changed else []
    parts += [f"reason {entry.reason or 'event'}"] if "reason" in changed else []
    return " · ".join(parts)
