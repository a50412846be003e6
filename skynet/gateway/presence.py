"""Who and what is connected: one entry a device, shown to its owner and to administrators alone."""

import asyncio
import platform
import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import UNSET, UnsetType, structs

from skynet.gateway.broadcast import Broadcaster
from skynet_memory.ids import ConnId, Role, UserId, now_ms
from skynet_protocol.connect import ClientInfo
from skynet_protocol.events import PresenceEvent
from skynet_protocol.frames import StateVersion
from skynet_protocol.presence import PresenceEntry
from skynet_protocol.scopes import Scope, satisfies
from skynet_users.caller import Caller

TTL_MS = 300_000
"""How long an entry without a connection is shown (OPENCLAW-V3 6.3)."""
MAX_ENTRIES = 200
"""Most entries without a connection that are kept, and most of any kind that are shown."""
PUBLISH_INTERVAL_S = 0.2
"""At least this long between two ``presence`` events: a crowd that leaves together is told of once."""
TRACKED = ("host", "ip", "version", "mode", "reason")
"""The fields whose change makes a "Node:" report worth a system event."""

_REPORT = re.compile(
    r"Node:\s*(?P<host>[^ (]+)\s*\((?P<ip>[^)]+)\)\s*·\s*app\s*(?P<version>[^·]+?)\s*·"
    r"\s*last input\s*(?P<idle>[0-9]{1,9})s ago\s*·\s*mode\s*(?P<mode>[^·]+?)\s*·\s*reason\s*(?P<reason>.+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(slots=True)
class StateVersions:
    """Counters that ``health`` and ``presence`` events carry; each grows with every change that clients are told of."""

    presence: int = 1
    health: int = 1

    def wire(self) -> StateVersion:
        return StateVersion(presence=self.presence, health=self.health)


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report about a device changed; ``changed`` names the fields of :data:`TRACKED` that are new."""

    entry: PresenceEntry
    changed: frozenset[str]


class PresenceTable:
    """The entries of every person's devices, in memory. Entries of two people never meet, whatever ids they claim."""

    def __init__(
        self,
        broadcaster: Broadcaster,
        versions: StateVersions,
        *,
        version: str,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._broadcaster = broadcaster
        self._versions = versions
        self._clock = clock
        self._self = _gateway_entry(version, clock())
        # Both are in the order of the last change, so the newest are found at the end and the oldest at the start.
        self._entries: dict[tuple[UserId, str], PresenceEntry] = {}
        self._loose: dict[tuple[UserId, str], None] = {}
        self._connections: dict[ConnId, tuple[UserId, str]] = {}
        self._connected: Counter[tuple[UserId, str]] = Counter()
        self._changed_owners: set[UserId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next_publish = 0.0

    def entries(self, caller: Caller) -> list[PresenceEntry]:
        """What ``caller`` may see, newest first: the gateway itself, and the own devices or, for an admin, all.

        A connection that may not read, as a node's, sees the gateway and its own device.
        """
        visible = self._visible_to(caller.user_id, caller.role)
        if caller.gateway_role == "operator" and satisfies(caller.scopes, Scope.READ):
            return visible
        return [entry for entry in visible if entry.mode == "gateway" or entry.device_id == caller.device_id]

    def connected(self, caller: Caller, conn_id: ConnId, client: ClientInfo, *, remote_ip: str = "") -> None:
        """A client is connected. Nothing is published (OPENCLAW-V3 2.9); a one-shot command line leaves no entry.

        Args:
            remote_ip: the client's address; "" for one on this machine.
        """
        if client.mode == "cli":
            return
        key = (caller.user_id, (caller.device_id or client.instance_id or conn_id).lower())
        self._connections[conn_id] = key
        self._connected[key] += 1
        self._put(
            key,
            {
                "host": client.display_name or client.id,
                "ip": remote_ip,
                "version": client.version,
                "platform": client.platform,
                "device_family": client.device_family,
                "model_identifier": client.model_identifier,
                "mode": client.mode,
                "device_id": caller.device_id or "",
                "roles": (caller.gateway_role,),
                "scopes": tuple(sorted(caller.scopes)),
                "instance_id": caller.device_id or client.instance_id,
                "reason": "connect",
            },
        )
        self._versions.presence += 1

    def disconnected(self, caller: Caller, conn_id: ConnId) -> None:
        """A client is gone; tells those who may know unless the device has another connection."""
        key = self._connections.pop(conn_id, None)
        if key is None:
            return
        self._connected[key] -= 1
        if self._connected[key] > 0:
            return
        del self._connected[key]
        self._put(key, {"reason": "disconnect"})
        self._publish(caller.user_id)

    def report(self, caller: Caller, fields: Mapping[str, object]) -> Reported:
        """A client reports a device (``system-event``); tells those who may know.

        Args:
            fields: of :class:`PresenceEntry`, ``text`` among them; absent or empty ones leave what is known. Fields
                that are missing are read from a text of the form ``Node: host (ip) · app … · reason …``.
        """
        text = str(fields["text"])
        known = _read_report(text) | {name: value for name, value in fields.items() if value not in (None, "", ())}
        name = known.get("device_id") or known.get("instance_id") or known.get("host") or text[:64]
        key = (caller.user_id, str(name).strip().lower())
        before = self._entries.get(key)
        entry = self._put(key, known)
        changed = frozenset(name for name in TRACKED if getattr(before, name, UNSET) != getattr(entry, name))
        self._publish(caller.user_id)
        return Reported(entry, changed)

    def _put(self, key: tuple[UserId, str], fields: Mapping[str, object]) -> PresenceEntry:
        """Merge ``fields`` into the entry; roles and scopes are joined, what is empty leaves the old value."""
        entry = self._entries.pop(key, None) or PresenceEntry(ts=0)
        update = {name: value for name, value in fields.items() if value not in (None, "", ())}
        for name in ("roles", "scopes"):
            if name in update:
                update[name] = _joined(getattr(entry, name), update[name])
        entry = structs.replace(entry, **update, ts=self._clock())
        if not entry.text:
            entry = structs.replace(entry, text=f"Node: {entry.host or 'unknown'} · mode {entry.mode or 'unknown'}")
        self._entries[key] = entry
        self._loose.pop(key, None)
        if key not in self._connected:
            self._loose[key] = None
            self._prune()
        return entry

    def _prune(self) -> None:
        """Forget entries without a connection that are too many or too old, oldest first."""
        oldest_ms = self._clock() - TTL_MS
        while self._loose:
            key = next(iter(self._loose))
            if len(self._loose) <= MAX_ENTRIES and self._entries[key].ts >= oldest_ms:
                return
            del self._loose[key], self._entries[key]

    def _visible_to(self, user: UserId, role: Role) -> list[PresenceEntry]:
        self._prune()
        visible = [entry for key, entry in self._entries.items() if role is Role.ADMIN or key[0] == user]
        newest_first = visible[: -MAX_ENTRIES - 1 : -1]
        return [structs.replace(self._self, ts=self._clock()), *newest_first]

    def _publish(self, owner: UserId) -> None:
        """Tell the owner and the admins: now, or soon if others were told just now."""
        self._versions.presence += 1
        self._changed_owners.add(owner)
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._next_publish - loop.time()
        if wait_s <= 0:
            self._publish_now()
        else:
            self._timer = loop.call_later(wait_s, self._publish_now)

    def _publish_now(self) -> None:
        self._timer = None
        self._next_publish = asyncio.get_running_loop().time() + PUBLISH_INTERVAL_S
        owners, self._changed_owners = self._changed_owners, set()
        audience = {
            connection.caller.user_id: connection.caller.role
            for connection in self._broadcaster.all()
            if connection.caller.role is Role.ADMIN or connection.caller.user_id in owners
        }
        for user, role in audience.items():
            self._broadcaster.publish(
                "presence",
                PresenceEvent(presence=self._visible_to(user, role)),
                owner=user,
                state_version=self._versions.wire(),
            )


def _joined(old: tuple[str, ...] | UnsetType, new: object) -> tuple[str, ...]:
    assert isinstance(new, tuple)
    return tuple(dict.fromkeys((*(old or ()), *new)))


def _read_report(text: str) -> dict[str, object]:
    match = _REPORT.fullmatch(text)
    if match is None:
        return {}
    fields: dict[str, object] = {name: match[name].strip() for name in TRACKED}
    return fields | {"last_input_seconds": int(match["idle"])}


def _gateway_entry(version: str, ts: int) -> PresenceEntry:
    """The gateway's own entry, which the command line's probe looks for by mode and reason, or by its text."""
    host = socket.gethostname() or "localhost"
    ip = _primary_ipv4()
    system = platform.system()
    where = f"{host} ({ip})" if ip else host
    return PresenceEntry(
        ts=ts,
        host=host,
        ip=ip or UNSET,
        version=version,
        platform=f"{'macos' if system == 'Darwin' else system.lower()} {platform.release()}",
        device_family="Mac" if system == "Darwin" else system,
        model_identifier=platform.machine() or UNSET,
        mode="gateway",
        reason="self",
        text=f"Gateway: {where} · app {version} · mode gateway · reason self",
    )


def _primary_ipv4() -> str:
    """The address of the interface that leads out; "" without one. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])
