"""Devices that were paired by their Ed25519 key, and the tokens they hold (OPENCLAW-V3 3.2, 5, 6.14).

A device belongs to the person who was authenticated when it was paired. Its id is the hash of its key, so there is one
record however many people use it: when another person pairs it, it moves to them, but only by an explicit approval,
never silently, and with the move every token it had is dead.
"""

import enum
import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from skynet_memory.database import Database, Row, Statements, Value
from skynet_memory.ids import DeviceId, UserId, new_id
from skynet_memory.ids import now_ms as current_ms
from skynet_memory.secrets import Secret, random_token
from skynet_users.errors import BeyondOwnScopes, UnknownDevice, UnknownDeviceRole, UnknownPairingRequest
from skynet_users.scopes import covers

PENDING_MS: Final = 5 * 60 * 1000
"""How long a pairing request waits after the last attempt of its device."""


class Everyone(enum.Enum):
    EVERYONE = enum.auto()


EVERYONE: Final = Everyone.EVERYONE
"""Instead of an owner: all people's devices. Only for callers that may administer the devices of others."""

Whose: TypeAlias = UserId | Everyone


class PairingReason(enum.StrEnum):
    """Why a device may not connect yet; the values are on the wire."""

    NOT_PAIRED = "not-paired"
    METADATA_UPGRADE = "metadata-upgrade"
    ROLE_UPGRADE = "role-upgrade"
    SCOPE_UPGRADE = "scope-upgrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectingDevice:
    """A device that proved its key, and what it asks for."""

    device_id: DeviceId
    public_key: str
    """base64url, as the client sent it."""
    role: str
    scopes: frozenset[str]
    display_name: str = ""
    platform: str = ""
    device_family: str = ""
    client_id: str = ""
    client_mode: str = ""
    remote_ip: str = ""
    """Empty for local clients."""
    local: bool = False
    """Its address is loopback, so is the Host it used, and nothing forwarded it (OPENCLAW-V3 5.1)."""
    foreign_browser: bool = False
    """It has an Origin and is not the Control UI or webchat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToken:
    role: str
    token: Secret
    scopes: tuple[str, ...]
    """Sorted. Can be more than a connection asked for."""
    created_at_ms: int
    rotated_at_ms: int | None = None
    revoked_at_ms: int | None = None
    last_used_at_ms: int | None = None

    @property
    def issued_at_ms(self) -> int:
        return self.created_at_ms if self.rotated_at_ms is None else self.rotated_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDevice:
    device_id: DeviceId
    owner: UserId
    public_key: str
    display_name: str
    platform: str
    device_family: str
    client_id: str
    client_mode: str
    role: str
    """The one approved last."""
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    """All that were ever approved, sorted."""
    remote_ip: str
    created_at_ms: int
    approved_at_ms: int
    tokens: tuple[DeviceToken, ...] = ()
    """By role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPairing:
    request_id: str
    owner: UserId
    device_id: DeviceId
    public_key: str
    display_name: str
    platform: str
    device_family: str
    client_id: str
    client_mode: str
    role: str
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    remote_ip: str
    silent: bool
    """Every attempt so far could have been approved silently."""
    is_repair: bool
    """The device was paired before."""
    requested_at_ms: int


@dataclass(frozen=True, slots=True)
class Decision:
    reason: PairingReason | None
    """None: it may connect."""
    silent: bool = False
    """It may be approved without asking anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    device: PairedDevice
    token: DeviceToken
    """To be returned in hello-ok."""
    approved_request_id: str | None
    """Set if it was approved silently just now: ``device.pair.resolved`` is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingRequired:
    reason: PairingReason
    request: PendingPairing
    created: bool
    """``device.pair.requested`` is due; otherwise the attempt was merged into the same request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """Whose device proved itself by its token."""

    owner: UserId
    scopes: tuple[str, ...]


def pairing_decision(record: PairedDevice | None, request: ConnectingDevice, *, taken: bool = False) -> Decision:
    """The decision at connect (OPENCLAW-V3 5.1).

    Args:
        record: the person's own record of this device.
        taken: another person has it paired; then it is never approved silently.
    """
    reason = _reason(record, request)
    silent = (
        reason in (PairingReason.NOT_PAIRED, PairingReason.SCOPE_UPGRADE)
        and request.local
        and not request.foreign_browser
        and not taken
    )
    return Decision(reason, silent)


def _reason(record: PairedDevice | None, request: ConnectingDevice) -> PairingReason | None:
    if record is None or record.public_key != request.public_key:
        return PairingReason.NOT_PAIRED
    if _differs(record.platform, request.platform) or _differs(record.device_family, request.device_family):
        return PairingReason.METADATA_UPGRADE
    if request.role not in record.roles:
        return PairingReason.ROLE_UPGRADE
    if not covers(record.scopes, request.scopes, role=request.role):
        return PairingReason.SCOPE_UPGRADE
    return None


def _differs(pinned: str, claimed: str) -> bool:
    return bool(pinned.strip()) and pinned.strip().casefold() != claimed.strip().casefold()


class DeviceStore:
    """``now_ms`` is the time to act at; without it, the current one."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # At connect

    async def admit(
        self, owner: UserId, request: ConnectingDevice, *, now_ms: int | None = None
    ) -> Admitted | PairingRequired:
        """All that a connect does with an authenticated person's device, as one transaction: decide, and then either
        refresh the record (or approve silently) and ensure a token, or leave a pending request."""
        at_ms = _at(now_ms)
        new_request_id, token = new_id(), _new_token()

        def work(tx: Statements) -> Admitted | PairingRequired:
            decision, request_id = _decide(tx, owner, request), None
            if decision.reason is None:
                _refresh(tx, owner, request)
            else:
                pending, created = _merge_pending(tx, owner, request, new_request_id, decision.silent, at_ms)
                if not pending.silent:
                    return PairingRequired(reason=decision.reason, request=pending, created=created)
                _approve(tx, pending, token, at_ms)
                request_id = pending.request_id
            ensured = _ensure_token(tx, owner, request.device_id, request.role, request.scopes, token, at_ms)
            device = _existing(tx, owner, request.device_id)
            return Admitted(device=device, token=ensured, approved_request_id=request_id)

        return await self._db.write(work)

    async def verify_token(
        self,
        device_id: DeviceId,
        role: str,
        token: str,
        scopes: frozenset[str],
        *,
        now_ms: int | None = None,
    ) -> VerifiedToken | None:
        """Whose device this is, if the token is the current one for the role and covers the scopes.

        The caller must have checked the device's signature. Compares in constant time; notes the use.
        """
        at_ms = _at(now_ms)
        row = await self._db.fetchone(
            "SELECT owner, token, scopes FROM device_tokens WHERE device_id = ? AND role = ? AND revoked_at_ms IS NULL",
            (device_id, role),
        )
        expected = "" if row is None else row["token"]
        same = hmac.compare_digest(expected.encode(), token.encode("utf-8", "surrogatepass"))
        if row is None or not same or not covers(_read(row["scopes"]), scopes, role=role):
            return None
        used = await self._db.write(
            lambda tx: tx.execute(
                "UPDATE device_tokens SET last_used_at_ms = ?"
                " WHERE device_id = ? AND role = ? AND token = ? AND revoked_at_ms IS NULL",
                (at_ms, device_id, role, expected),
            )
        )
        if not used:  # rotated or revoked in between
            return None
        return VerifiedToken(owner=row["owner"], scopes=_read(row["scopes"]))

    async def decide(self, owner: UserId, request: ConnectingDevice) -> Decision:
        """``pairing_decision`` on what is stored."""
        return await self._db.read(lambda tx: _decide(tx, owner, request))

    async def request_pairing(
        self, owner: UserId, request: ConnectingDevice, *, silent: bool = False, now_ms: int | None = None
    ) -> tuple[PendingPairing, bool]:
        """A pending request with this attempt merged in, and whether it is new."""
        at_ms, request_id = _at(now_ms), new_id()
        return await self._db.write(lambda tx: _merge_pending(tx, owner, request, request_id, silent, at_ms))

    async def ensure_token(
        self,
        owner: UserId,
        device_id: DeviceId,
        role: str,
        requested_scopes: Iterable[str],
        *,
        now_ms: int | None = None,
    ) -> DeviceToken:
        """The token there is, if it is not revoked and covers the scopes; else a new one for exactly these.

        Raises:
            UnknownDeviceRole: not paired for that role.
        """
        at_ms, token, scopes = _at(now_ms), _new_token(), frozenset(requested_scopes)
        return await self._db.write(lambda tx: _ensure_token(tx, owner, device_id, role, scopes, token, at_ms))

    # By an operator

    async def get(self, whose: Whose, device_id: DeviceId) -> PairedDevice | None:
        return await self._db.read(lambda tx: _find(tx, whose, device_id))

    async def paired(self, whose: Whose) -> list[PairedDevice]:
        """The one approved last first."""

        def work(tx: Statements) -> list[PairedDevice]:
            devices = tx.fetchall(
                "SELECT * FROM devices WHERE (:owner IS NULL OR owner = :owner) ORDER BY approved_at_ms DESC, id DESC",
                {"owner": _owner(whose)},
            )
            return [_read_device(tx, row) for row in devices]

        return await self._db.read(work)

    async def pending(self, whose: Whose, *, now_ms: int | None = None) -> list[PendingPairing]:
        """The newest first, without those that are too old."""
        rows = await self._db.fetchall(
            "SELECT * FROM device_pairing_requests WHERE (:owner IS NULL OR owner = :owner)"
            " AND requested_at_ms > :expired_ms ORDER BY requested_at_ms DESC, id DESC",
            {"owner": _owner(whose), "expired_ms": _at(now_ms) - PENDING_MS},
        )
        return [_read_pending(row) for row in rows]

    async def approve(
        self, whose: Whose, request_id: str, *, within: Collection[str] | None = None, now_ms: int | None = None
    ) -> PairedDevice:
        """Pair the device: its roles and scopes grow by the requested ones, and the role gets a new token.

        Args:
            within: the scopes of who approves, which may give no others; None for no such limit.

        Raises:
            UnknownPairingRequest: none, or too old.
            BeyondOwnScopes: it asks for more than ``within``. The request goes on waiting.
        """
        at_ms, token = _at(now_ms), _new_token()

        def work(tx: Statements) -> PairedDevice:
            pending = _take_pending(tx, whose, request_id, at_ms)
            _check_within(within, pending.scopes)
            return _approve(tx, pending, token, at_ms)

        return await self._db.write(work)

    async def reject(self, whose: Whose, request_id: str, *, now_ms: int | None = None) -> PendingPairing:
        """Drop the request, and return it.

        Raises:
            UnknownPairingRequest: none, or too old.
        """
        at_ms = _at(now_ms)
        return await self._db.write(lambda tx: _take_pending(tx, whose, request_id, at_ms))

    async def remove(self, whose: Whose, device_id: DeviceId) -> None:
        """Unpair the device; its tokens die with it.

        Raises:
            UnknownDevice: not paired.
        """

        def work(tx: Statements) -> None:
            if not tx.execute(
                "DELETE FROM devices WHERE id = :id AND (:owner IS NULL OR owner = :owner)",
                {"id": device_id, "owner": _owner(whose)},
            ):
                raise UnknownDevice

        await self._db.write(work)

    async def rotate(
        self,
        whose: Whose,
        device_id: DeviceId,
        role: str,
        scopes: Iterable[str] | None = None,
        *,
        within: Collection[str] | None = None,
        now_ms: int | None = None,
    ) -> DeviceToken:
        """Replace the token of a role, by default with the same scopes.

        Args:
            within: as in ``approve``.

        Raises:
            UnknownDeviceRole: not paired for that role, or the scopes go beyond the approved ones.
            BeyondOwnScopes: the scopes go beyond ``within``.
        """
        at_ms, token = _at(now_ms), _new_token()
        wanted = None if scopes is None else frozenset(scopes)

        def work(tx: Statements) -> DeviceToken:
            device = _find(tx, whose, device_id)
            if device is None or role not in device.roles:
                raise UnknownDeviceRole
            old = _token(tx, device.owner, device_id, role)
            chosen = wanted if wanted is not None else frozenset(device.scopes if old is None else old.scopes)
            if not covers(device.scopes, chosen, role=role):
                raise UnknownDeviceRole
            _check_within(within, chosen)
            return _put_token(tx, device.owner, device_id, role, chosen, token, at_ms)

        return await self._db.write(work)

    async def revoke(self, whose: Whose, device_id: DeviceId, role: str, *, now_ms: int | None = None) -> DeviceToken:
        """End the token of a role; connecting with the shared secret gets the device a new one.

        Raises:
            UnknownDeviceRole: no token for that role.
        """
        at_ms = _at(now_ms)

        def work(tx: Statements) -> DeviceToken:
            row = tx.fetchone(
                "UPDATE device_tokens SET revoked_at_ms = coalesce(revoked_at_ms, :at_ms)"
                " WHERE device_id = :id AND role = :role AND (:owner IS NULL OR owner = :owner) RETURNING *",
                {"at_ms": at_ms, "id": device_id, "role": role, "owner": _owner(whose)},
            )
            if row is None:
                raise UnknownDeviceRole
            return _read_token(row)

        return await self._db.write(work)


def _at(now_ms: int | None) -> int:
    return current_ms() if now_ms is None else now_ms


def _new_token() -> str:
    return random_token(32)


def _owner(whose: Whose) -> str | None:
    return None if isinstance(whose, Everyone) else whose


def _check_within(within: Collection[str] | None, scopes: Iterable[str]) -> None:
    """Nobody gives away more of an operator's scopes than the own ones."""
    for scope in sorted(scopes):
        if within is not None and scope.startswith("operator.") and not covers(within, (scope,), role="operator"):
            raise BeyondOwnScopes(scope)


def _decide(tx: Statements, owner: UserId, request: ConnectingDevice) -> Decision:
    taken = tx.fetchone("SELECT 1 FROM devices WHERE id = ? AND owner <> ?", (request.device_id, owner))
    return pairing_decision(_find(tx, owner, request.device_id), request, taken=taken is not None)


def _find(tx: Statements, whose: Whose, device_id: DeviceId) -> PairedDevice | None:
    row = tx.fetchone(
        "SELECT * FROM devices WHERE id = :id AND (:owner IS NULL OR owner = :owner)",
        {"id": device_id, "owner": _owner(whose)},
    )
    return None if row is None else _read_device(tx, row)


def _existing(tx: Statements, owner: UserId, device_id: DeviceId) -> PairedDevice:
    device = _find(tx, owner, device_id)
    assert device is not None, "it was found or written in this transaction"
    return device


def _refresh(tx: Statements, owner: UserId, request: ConnectingDevice) -> None:
    """What may change without an approval. Writes nothing when nothing changed."""
    device = _existing(tx, owner, request.device_id)
    changes = {
        "display_name": request.display_name or device.display_name,
        "platform": device.platform or request.platform,
        "device_family": device.device_family or request.device_family,
        "client_id": request.client_id,
        "client_mode": request.client_mode,
        "remote_ip": request.remote_ip,
    }
    if any(getattr(device, name) != value for name, value in changes.items()):
        tx.execute(
            "UPDATE devices SET display_name = :display_name, platform = :platform, device_family = :device_family,"
            " client_id = :client_id, client_mode = :client_mode, remote_ip = :remote_ip"
            " WHERE id = :id AND owner = :owner",
            {**changes, "id": request.device_id, "owner": owner},
        )


def _metadata(request: ConnectingDevice) -> dict[str, Value]:
    return {
        "device_id": request.device_id,
        "public_key": request.public_key,
        "display_name": request.display_name,
        "platform": request.platform,
        "device_family": request.device_family,
        "client_id": request.client_id,
        "client_mode": request.client_mode,
        "remote_ip": request.remote_ip,
    }


def _merge_pending(
    tx: Statements, owner: UserId, request: ConnectingDevice, request_id: str, silent: bool, at_ms: int
) -> tuple[PendingPairing, bool]:
    tx.execute("DELETE FROM device_pairing_requests WHERE requested_at_ms <= ?", (at_ms - PENDING_MS,))
    earlier = tx.fetchone(
        "SELECT * FROM device_pairing_requests WHERE owner = ? AND device_id = ?", (owner, request.device_id)
    )
    roles, scopes = {request.role}, set(request.scopes)
    if earlier is not None:
        roles.update(_read(earlier["roles"]))
        scopes.update(_read(earlier["scopes"]))
        silent = silent and bool(earlier["silent"])
    row = tx.fetchone(
        "INSERT INTO device_pairing_requests (id, owner, device_id, public_key, display_name, platform, device_family,"
        " client_id, client_mode, role, roles, scopes, remote_ip, silent, is_repair, requested_at_ms)"
        " VALUES (:id, :owner, :device_id, :public_key, :display_name, :platform, :device_family,"
        " :client_id, :client_mode, :role, :roles, :scopes, :remote_ip, :silent,"
        " EXISTS (SELECT 1 FROM devices WHERE id = :device_id AND owner = :owner), :at_ms)"
        " ON CONFLICT (owner, device_id) DO UPDATE SET public_key = excluded.public_key,"
        " display_name = excluded.display_name, platform = excluded.platform, device_family = excluded.device_family,"
        " client_id = excluded.client_id, client_mode = excluded.client_mode, role = excluded.role,"
        " roles = excluded.roles, scopes = excluded.scopes, remote_ip = excluded.remote_ip, silent = excluded.silent,"
        " is_repair = excluded.is_repair, requested_at_ms = excluded.requested_at_ms RETURNING *",
        {
            **_metadata(request),
            "id": request_id,
            "owner": owner,
            "role": request.role,
            "roles": _write(roles),
            "scopes": _write(scopes),
            "silent": silent,
            "at_ms": at_ms,
        },
    )
    assert row is not None, "an upsert returns its row"
    return _read_pending(row), earlier is None


def _take_pending(tx: Statements, whose: Whose, request_id: str, at_ms: int) -> PendingPairing:
    row = tx.fetchone(
        "DELETE FROM device_pairing_requests WHERE id = :id AND (:owner IS NULL OR owner = :owner)"
        " AND requested_at_ms > :expired_ms RETURNING *",
        {"id": request_id, "owner": _owner(whose), "expired_ms": at_ms - PENDING_MS},
    )
    if row is None:
        raise UnknownPairingRequest
    return _read_pending(row)


def _approve(tx: Statements, pending: PendingPairing, token: str, at_ms: int) -> PairedDevice:
    owner, device_id = pending.owner, pending.device_id
    tx.execute("DELETE FROM device_pairing_requests WHERE device_id = ?", (device_id,))
    tx.execute(
        "DELETE FROM devices WHERE id = ? AND (owner <> ? OR public_key <> ?)", (device_id, owner, pending.public_key)
    )
    before = _find(tx, owner, device_id)
    roles = {*pending.roles, *(before.roles if before else ())}
    scopes = {*pending.scopes, *(before.scopes if before else ())}
    tx.execute(
        "INSERT INTO devices (id, owner, public_key, display_name, platform, device_family, client_id, client_mode,"
        " role, roles, scopes, remote_ip, created_at_ms, approved_at_ms)"
        " VALUES (:id, :owner, :public_key, :display_name, :platform, :device_family, :client_id, :client_mode,"
        " :role, :roles, :scopes, :remote_ip, :at_ms, :at_ms) ON CONFLICT (id) DO UPDATE SET"
        " display_name = iif(excluded.display_name = '', display_name, excluded.display_name),"
        " platform = excluded.platform, device_family = excluded.device_family, client_id = excluded.client_id,"
        " client_mode = excluded.client_mode, role = excluded.role, roles = excluded.roles, scopes = excluded.scopes,"
        " remote_ip = excluded.remote_ip, approved_at_ms = excluded.approved_at_ms",
        {
            "id": device_id,
            "owner": owner,
            "public_key": pending.public_key,
            "display_name": pending.display_name,
            "platform": pending.platform,
            "device_family": pending.device_family,
            "client_id": pending.client_id,
            "client_mode": pending.client_mode,
            "role": pending.role,
            "roles": _write(roles),
            "scopes": _write(scopes),
            "remote_ip": pending.remote_ip,
            "at_ms": at_ms,
        },
    )
    old = _token(tx, owner, device_id, pending.role)
    # OpenClaw's way: a request without scopes (a node's) gets those of the old token, else all of the record's
    granted = pending.scopes or (old.scopes if old is not None else tuple(scopes))
    _put_token(tx, owner, device_id, pending.role, granted, token, at_ms)
    return _existing(tx, owner, device_id)


def _ensure_token(
    tx: Statements,
    owner: UserId,
    device_id: DeviceId,
    role: str,
    scopes: frozenset[str],
    token: str,
    at_ms: int,
) -> DeviceToken:
    device = _find(tx, owner, device_id)
    if device is None or role not in device.roles:
        raise UnknownDeviceRole
    old = _token(tx, owner, device_id, role)
    if old is not None and old.revoked_at_ms is None and covers(old.scopes, scopes, role=role):
        return old
    return _put_token(tx, owner, device_id, role, scopes, token, at_ms)


def _token(tx: Statements, owner: UserId, device_id: DeviceId, role: str) -> DeviceToken | None:
    row = tx.fetchone(
        "SELECT * FROM device_tokens WHERE owner = ? AND device_id = ? AND role = ?", (owner, device_id, role)
    )
    return None if row is None else _read_token(row)


def _put_token(
    tx: Statements,
    owner: UserId,
    device_id: DeviceId,
    role: str,
    scopes: Iterable[str],
    token: str,
    at_ms: int,
) -> DeviceToken:
    row = tx.fetchone(
        "INSERT INTO device_tokens (device_id, role, owner, token, scopes, created_at_ms, rotated_at_ms)"
        " VALUES (:device_id, :role, :owner, :token, :scopes, :at_ms, NULL) ON CONFLICT (device_id, role) DO UPDATE SET"
        " token = excluded.token, scopes = excluded.scopes, rotated_at_ms = :at_ms, revoked_at_ms = NULL RETURNING *",
        {
            "device_id": device_id,
            "role": role,
            "owner": owner,
            "token": token,
            "scopes": _write(scopes),
            "at_ms": at_ms,
        },
    )
    assert row is not None, "an upsert returns its row"
    return _read_token(row)


def _read_device(tx: Statements, row: Row) -> PairedDevice:
    tokens = tx.fetchall(
        "SELECT * FROM device_tokens WHERE owner = ? AND device_id = ? ORDER BY role", (row["owner"], row["id"])
    )
    return PairedDevice(
        **_read_metadata(row),
        device_id=row["id"],
        created_at_ms=row["created_at_ms"],
        approved_at_ms=row["approved_at_ms"],
        tokens=tuple(_read_token(token) for token in tokens),
    )


def _read_pending(row: Row) -> PendingPairing:
    return PendingPairing(
        **_read_metadata(row),
        request_id=row["id"],
        device_id=row["device_id"],
        silent=bool(row["silent"]),
        is_repair=bool(row["is_repair"]),
        requested_at_ms=row["requested_at_ms"],
    )


def _read_metadata(row: Row) -> Mapping[str, Any]:
    return {
        "owner": row["owner"],
        "public_key": row["public_key"],
        "display_name": row["display_name"],
        "platform": row["platform"],
        "device_family": row["device_family"],
        "client_id": row["client_id"],
        "client_mode": row["client_mode"],
        "role": row["role"],
        "roles": _read(row["roles"]),
        "scopes": _read(row["scopes"]),
        "remote_ip": row["remote_ip"],
    }


def _read_token(row: Row) -> DeviceToken:
    return DeviceToken(
        role=row["role"],
        token=Secret(row["token"]),
        scopes=_read(row["scopes"]),
        created_at_ms=row["created_at_ms"],
        rotated_at_ms=row["rotated_at_ms"],
        revoked_at_ms=row["revoked_at_ms"],
        last_used_at_ms=row["last_used_at_ms"],
    )


def _read(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _write(words: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(words)).decode()
