"""Who is calling: every way in ends in one :class:`Caller` (DESIGN 5, OPENCLAW-V3 2.3, 3, 5)."""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_address
from time import monotonic
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from skynet.config import GatewayConfig, is_loopback
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.peer import PeerInfo, networks, origin_allowed
from skynet_memory.ids import ConnId, DeviceId, Role, UserId, new_id, now_ms
from skynet_memory.secrets import Secret
from skynet_protocol.connect import ClientInfo, ConnectParams, HelloAuth, client_kind, is_control_ui, is_webchat
from skynet_protocol.device import VerifiedDevice, verify_device
from skynet_protocol.errors import OfferedCredential, Refusal
from skynet_protocol.events import DevicePairRequestedEvent, DevicePairResolvedEvent
from skynet_protocol.scopes import ALL_OPERATOR_SCOPES, covers, greatest_scopes, limit_scopes
from skynet_users.caller import Caller
from skynet_users.credentials import PERSONAL_TOKEN_PREFIX, Authenticated, CredentialStore
from skynet_users.devices import ConnectingDevice, DeviceStore, PairingRequired, PendingPairing
from skynet_users.people import User, UserStore
from skynet_users.permissions import DEFAULT_POLICY, PermissionPolicy

log = logging.getLogger(__name__)

SHARED_SECRET, DEVICE_TOKEN = "shared secret", "device token"
RATE_LIMITED = "rate_limited"
MAX_TRACKED_ADDRESSES = 10_000

Note: TypeAlias = Callable[[str, str, str, Mapping[str, str]], None]
"""Puts down an action, who did it ("" if that is not known), with what, and how. Returns at once and never raises."""


def _note_nothing(action: str, actor: str, subject: str, details: Mapping[str, str]) -> None:
    pass


class AuthFailed(Exception):  # noqa: N818
    """The secret is missing, wrong or locked out. ``reason`` is OpenClaw's ``authReason`` (OPENCLAW-V3 2.5)."""

    def __init__(self, reason: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class AttemptLimiter:
    """Counts failed attempts by address and kind and locks an address out (OPENCLAW-V3 3.3).

    Loopback is exempt unless a browser is asking, because a page must not be able to guess the token of this machine's
    gateway, or a proxy, which may speak for anybody.
    Bounded: the addresses seen least recently are forgotten beyond :data:`MAX_TRACKED_ADDRESSES`.
    """

    def __init__(
        self, *, attempts: int, window_s: float, lockout_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._attempts = attempts
        self._window_s = window_s
        self._lockout_s = lockout_s
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._locked_until: OrderedDict[tuple[str, str], float] = OrderedDict()

    def check(self, peer: PeerInfo, kind: str) -> None:
        """Raise :class:`AuthFailed` ``rate_limited`` while the peer is locked out, even if its secret is right."""
        bucket = _bucket(peer, kind)
        until = self._locked_until.get(bucket) if bucket else None
        if until is None or bucket is None:
            return
        left_s = until - self._clock()
        if left_s > 0:
            raise AuthFailed(RATE_LIMITED, retry_after_s=int(left_s) + 1)
        del self._locked_until[bucket]

    def failed(self, peer: PeerInfo, kind: str) -> None:
        """Count a wrong secret."""
        if (bucket := _bucket(peer, kind)) is None:
            return
        now = self._clock()
        failures = self._failures.setdefault(bucket, deque())
        self._failures.move_to_end(bucket)
        failures.append(now)
        while failures[0] < now - self._window_s:
            failures.popleft()
        if len(failures) >= self._attempts:
            del self._failures[bucket]
            self._locked_until[bucket] = now + self._lockout_s
            log.warning("locked out %s after %d failed attempts (%s)", bucket[0], self._attempts, kind)
        if len(self._failures) > MAX_TRACKED_ADDRESSES:
            self._failures.popitem(last=False)
        # Lockouts are all of one length, so the first to be locked is the first to be let go.
        while self._locked_until:
            oldest = next(iter(self._locked_until.values()))
            if oldest > now and len(self._locked_until) <= MAX_TRACKED_ADDRESSES:
                break
            self._locked_until.popitem(last=False)

    def succeeded(self, peer: PeerInfo, kind: str) -> None:
        """A right secret forgets the wrong ones before it."""
        if (bucket := _bucket(peer, kind)) is not None:
            self._failures.pop(bucket, None)


def _bucket(peer: PeerInfo, kind: str) -> tuple[str, str] | None:
    if not is_loopback(peer.address) or peer.forwarded:
        return (_network(peer.address), kind)
    return ("loopback browsers", kind) if peer.origin is not None else None


def _network(address: str) -> str:
    """The addresses one attacker has: all of an IPv6 /64, a single IPv4 one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((parsed, 64), strict=False))


class PasswordCheck:
    """The gateway password, compared by argon2id so that guessing it is slow.

    The configured value is the password or an argon2id hash of it (``$argon2id$…``); a plain one is hashed at its first
    use. argon2 is imported then, not at start. A password that was right once is recognised at once, by a keyed digest
    that this process alone can make.
    """

    def __init__(self, password: Secret) -> None:
        self._password = password
        self._hash = ""
        self._key = secrets.token_bytes(32)
        self._right = b""

    def known(self, offered: str) -> bool:
        """Whether ``offered`` was right before; at once, and in constant time."""
        return bool(self._right) and hmac.compare_digest(self._digest(offered), self._right)

    async def matches(self, offered: str) -> bool:
        """Whether ``offered`` is the password. Takes some 50 ms and 64 MiB, in a thread."""
        right = await asyncio.to_thread(self._matches, offered)
        if right:
            self._right = self._digest(offered)
        return right

    def _digest(self, offered: str) -> bytes:
        return hashlib.blake2b(offered.encode("utf-8", "surrogatepass"), key=self._key).digest()

    def _matches(self, offered: str) -> bool:
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        hasher = PasswordHasher()
        if not self._hash:
            configured = self._password.reveal()
            self._hash = configured if configured.startswith("$argon2") else hasher.hash(configured)
        try:
            return hasher.verify(self._hash, offered.encode("utf-8", "surrogatepass"))
        except (VerificationError, InvalidHashError):
            return False


@dataclass(frozen=True, slots=True)
class Admission:
    """A handshake that succeeded. ``hello`` is the ``auth`` of hello-ok, only for clients that proved a device."""

    caller: Caller
    hello: HelloAuth | UnsetType = UNSET


class Authenticator:
    """Decides who a connection or an HTTP request is, and what it may do.

    Args:
        policy: which permissions people have.
        person: who somebody is now; a cache may stand before the store.
        note: told of logins that succeed and fail, for the audit.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        owner: User,
        users: UserStore,
        credentials: CredentialStore,
        devices: DeviceStore,
        broadcaster: Broadcaster,
        policy: PermissionPolicy = DEFAULT_POLICY,
        person: Callable[[UserId], Awaitable[User | None]] | None = None,
        note: Note = _note_nothing,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._config = config
        self._auth = config.auth
        self._owner_id = owner.id
        self._users = users
        self._person = person or users.by_id
        self._policy = policy
        self._note = note
        self._credentials = credentials
        self._devices = devices
        self._broadcaster = broadcaster
        self._clock = clock
        self._password = PasswordCheck(config.auth.password)
        self._password_turn = asyncio.Lock()
        self._proxies = networks(config.trusted_proxies)
        limits = config.limits
        self._limiter = AttemptLimiter(
            attempts=limits.auth_attempts, window_s=limits.auth_window_s, lockout_s=limits.auth_lockout_s
        )

    def resolve(self, peer: PeerInfo) -> PeerInfo:
        """The peer with the address of the client behind trusted proxies. Idempotent."""
        return peer.behind(self._proxies)

    async def bearer(self, token: str | None, peer: PeerInfo) -> Caller:
        """The caller of an HTTP request, by its bearer token: the gateway token, the password or a personal token.

        Device tokens are not accepted here, as in OpenClaw (10.1).

        Raises:
            AuthFailed: no token, a wrong one, or too many wrong ones before.
        """
        peer = self.resolve(peer)
        proof = await self._secret_user(token=token or "", password=token or "", peer=peer)
        user = proof.user
        return Caller(
            user_id=user.id,
            role=user.role,
            scopes=_greatest(proof),
            grants=self._policy.grants(user.role, user.flags),
            credential_id=proof.credential_id,
            expires_at_ms=proof.expires_at_ms,
            correlation_id=new_id(),
            display_name=user.display_name,
            client_id="http",
            client_name="http",
            client_mode="http",
            local=peer.local,
        )

    async def admit(self, params: ConnectParams, peer: PeerInfo, conn_id: ConnId, *, nonce: str) -> Admission:
        """Check a ``connect`` in the order of OPENCLAW-V3 2.3, from the origin on.

        Raises:
            Refusal: with the error and the close frame that the client gets.
        """
        self._check_origin(params.client, peer)
        failure: AuthFailed | None = None
        proof: Authenticated | None = None
        try:
            proof = await self._secret_user(token=params.auth.token, password=params.auth.password, peer=peer)
        except AuthFailed as exc:
            failure = exc
        if params.device is UNSET:
            proof = self._without_device(params, proof, failure)
            return self._admission(params, peer, proof, conn_id, self._granted(params, proof))
        device = verify_device(params, nonce=nonce, now_ms=self._clock())
        device_id = DeviceId(device.device_id)
        if proof is None:
            assert failure is not None
            proof = await self._device_token_user(params, peer, device_id, failure)
        user = proof.user
        scopes = self._granted(params, proof)
        if proof.expires_at_ms is not None or proof.scopes is not None:
            # A device would outlive the token, and may be given more than that had
            if params.role == "node":  # which speaks for its person, and gets commands
                raise self._refusal(params, AuthFailed("limited_token"))
            return self._admission(params, peer, proof, conn_id, scopes, device_id)
        outcome = await self._devices.admit(user.id, _connecting(params, peer, device, scopes), now_ms=self._clock())
        if isinstance(outcome, PairingRequired):
            if outcome.created:
                self._announce("device.pair.requested", pending_event(outcome.request), user)
            raise Refusal.pairing_required(outcome.request.request_id, outcome.reason)
        if outcome.approved_request_id is not None:
            self._announce_approval(user, device_id, outcome.approved_request_id)
        token = outcome.token
        hello = HelloAuth(
            device_token=token.token.reveal(),
            role=token.role,
            scopes=token.scopes,
            issued_at_ms=token.issued_at_ms,
        )
        return self._admission(params, peer, proof, conn_id, scopes, device_id, hello)

    # Whose secret it is

    async def _secret_user(self, *, token: str, password: str, peer: PeerInfo) -> Authenticated:
        """The person whose secret was offered; a personal token counts in either field and every mode."""
        self._limiter.check(peer, SHARED_SECRET)
        for offered in (token, password):
            if (
                offered.startswith(PERSONAL_TOKEN_PREFIX)
                and (authenticated := await self._credentials.lookup(offered)) is not None
            ):
                self._limiter.succeeded(peer, SHARED_SECRET)
                return authenticated
        if self._auth.mode == "none":
            # Only this machine, and no page of another site that made its name point here.
            if peer.local:
                return await self._the_owner()
            raise AuthFailed("not_local")
        offered = token if self._auth.mode == "token" else password
        if not offered:
            raise AuthFailed(f"{self._auth.mode}_missing")
        if self._auth.mode == "token":
            right = self._auth.token.equals(offered)
        else:
            right = self._password.known(offered) or await self._guess(offered, peer)
        if not right:
            self._limiter.failed(peer, SHARED_SECRET)
            self._note("login.failed", "", peer.address, {"reason": f"{self._auth.mode}_mismatch"})
            raise AuthFailed(f"{self._auth.mode}_mismatch")
        self._limiter.succeeded(peer, SHARED_SECRET)
        return await self._the_owner()

    async def _the_owner(self) -> Authenticated:
        """The first admin there is now: the one of the start may have become somebody else."""
        owner = await self._person(self._owner_id)
        if owner is None or owner.role is not Role.ADMIN or owner.disabled:
            owner = await self._users.ensure_owner()
            self._owner_id = owner.id
        return Authenticated(user=owner, credential_id="", scopes=None, expires_at_ms=None)

    async def _guess(self, password: str, peer: PeerInfo) -> bool:
        """Check a password that is not known to be right.

        One at a time, so that a crowd of guesses neither outruns the limiter nor fills the memory.
        """
        async with self._password_turn:
            self._limiter.check(peer, SHARED_SECRET)
            return await self._password.matches(password)

    async def _device_token_user(
        self, params: ConnectParams, peer: PeerInfo, device_id: DeviceId, failure: AuthFailed
    ) -> Authenticated:
        """The person of a device that brought its own token in place of the shared secret (OPENCLAW-V3 3.2)."""
        offered = params.auth.device_token or params.auth.token
        if not offered or failure.reason == RATE_LIMITED:
            raise self._refusal(params, failure)
        try:
            self._limiter.check(peer, DEVICE_TOKEN)
        except AuthFailed as exc:
            raise self._refusal(params, exc) from exc
        # Scopes are compared when it is known whose token it is: what that person's role cuts off is not asked for.
        verified = await self._devices.verify_token(device_id, params.role, offered, frozenset(), now_ms=self._clock())
        user = None if verified is None else await self._person(verified.owner)
        proof = None
        if user is not None and not user.disabled:
            proof = Authenticated(user=user, credential_id="", scopes=None, expires_at_ms=None)
        if verified is None or proof is None or not covers(verified.scopes, self._granted(params, proof)):
            self._limiter.failed(peer, DEVICE_TOKEN)
            self._note("login.failed", "" if user is None else user.id, device_id, {"reason": "device_token_mismatch"})
            raise self._refusal(params, AuthFailed("device_token_mismatch") if params.auth.device_token else failure)
        self._limiter.succeeded(peer, DEVICE_TOKEN)
        self._limiter.succeeded(peer, SHARED_SECRET)  # the device token may have come in the other field
        return proof

    def _without_device(
        self, params: ConnectParams, proof: Authenticated | None, failure: AuthFailed | None
    ) -> Authenticated:
        """What a client that proves no device may do (OPENCLAW-V3 2.6): be an operator, with a valid secret."""
        if is_control_ui(params.client):
            raise Refusal.control_ui_device_required()
        if failure is not None and (params.auth.token or params.auth.password):
            raise self._refusal(params, failure)
        if proof is None or params.role != "operator" or self._auth.mode == "none":
            raise Refusal.device_required()
        return proof

    def _refusal(self, params: ConnectParams, failure: AuthFailed) -> Refusal:
        auth = params.auth
        offered: OfferedCredential = "none"
        if auth.password:
            offered = "password"
        elif auth.token:
            offered = "token"
        elif auth.device_token:
            offered = "device-token"
        return Refusal.unauthorized(
            failure.reason, client=client_kind(params.client), mode=self._auth.mode, offered=offered
        )

    # What it may do

    def _check_origin(self, client: ClientInfo, peer: PeerInfo) -> None:
        browser = is_control_ui(client) or is_webchat(client)
        if (browser or (peer.origin is not None and not peer.forwarded)) and not origin_allowed(
            peer, self._config.origins
        ):
            raise Refusal.origin_not_allowed()

    def _granted(self, params: ConnectParams, proof: Authenticated) -> frozenset[str]:
        """The requested scopes, cut to what the role and the token allow; a node has none of an operator's."""
        if params.role == "node":
            return frozenset(params.scopes).difference(ALL_OPERATOR_SCOPES)
        return frozenset(limit_scopes(params.scopes, _greatest(proof)))

    def _admission(
        self,
        params: ConnectParams,
        peer: PeerInfo,
        proof: Authenticated,
        conn_id: ConnId,
        scopes: frozenset[str],
        device_id: DeviceId | None = None,
        hello: HelloAuth | UnsetType = UNSET,
    ) -> Admission:
        user = proof.user
        about = {"client": params.client.id, "mode": params.client.mode, "device": device_id or ""}
        self._note("login", user.id, proof.credential_id, about)
        caller = Caller(
            user_id=user.id,
            role=user.role,
            scopes=scopes,
            correlation_id=conn_id,
            display_name=user.display_name,
            gateway_role="node" if params.role == "node" else "operator",
            conn_id=conn_id,
            client_id=params.client.id,
            client_name=params.client.display_name or params.client.id,
            client_mode=params.client.mode,
            device_id=device_id,
            local=peer.local,
            grants=self._policy.grants(user.role, user.flags),
            credential_id=proof.credential_id,
            expires_at_ms=proof.expires_at_ms,
        )
        return Admission(caller, hello)

    def _announce_approval(self, user: User, device_id: DeviceId, request_id: str) -> None:
        log.info("paired device %s silently: it is on this machine", device_id, extra={"user_id": user.id})
        self._note("pairing.approved", user.id, device_id, {"owner": user.id})
        approved = DevicePairResolvedEvent(
            request_id=request_id, device_id=device_id, decision="approved", ts=self._clock()
        )
        self._announce("device.pair.resolved", approved, user)

    def _announce(self, event: str, payload: object, user: User) -> None:
        """Tell the device's person, and the admins, who may let it in."""
        admins = {peer.caller.user_id for peer in self._broadcaster.all() if peer.caller.role is Role.ADMIN}
        for listener in {user.id} | admins:
            self._broadcaster.publish(event, payload, owner=listener)


def _greatest(proof: Authenticated) -> frozenset[str]:
    """The most that somebody may have who came with this proof."""
    role = greatest_scopes(proof.user.role)
    return role if proof.scopes is None else frozenset(limit_scopes(proof.scopes, role))


def _connecting(
    params: ConnectParams, peer: PeerInfo, device: VerifiedDevice, scopes: frozenset[str]
) -> ConnectingDevice:
    client = params.client
    return ConnectingDevice(
        device_id=DeviceId(device.device_id),
        public_key=device.public_key,
        role=params.role,
        scopes=scopes,
        display_name=client.display_name,
        platform=client.platform,
        device_family=client.device_family,
        client_id=client.id,
        client_mode=client.mode,
        remote_ip="" if peer.local else peer.address,
        local=peer.local,
        foreign_browser=peer.origin is not None and not (is_control_ui(client) or is_webchat(client)),
    )


def pending_event(request: PendingPairing) -> DevicePairRequestedEvent:
    """A pairing request as clients see it; texts that are not known are left out."""
    return DevicePairRequestedEvent(
        request_id=request.request_id,
        device_id=request.device_id,
        public_key=request.public_key,
        ts=request.requested_at_ms,
        display_name=request.display_name or UNSET,
        platform=request.platform or UNSET,
        device_family=request.device_family or UNSET,
        client_id=request.client_id or UNSET,
        client_mode=request.client_mode or UNSET,
        role=request.role,
        roles=request.roles,
        scopes=request.scopes,
        remote_ip=request.remote_ip or UNSET,
        silent=request.silent,
        is_repair=request.is_repair,
    )
