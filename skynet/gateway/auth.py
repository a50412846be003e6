"""Who is calling: every way in ends in one :class:`Caller` (DESIGN 5, OPENCLAW-V3 2.3, 3, 5)."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from uuid import uuid4

from skynet.config import GatewayConfig
from skynet.gateway.peer import PeerInfo, is_loopback, origin_allowed
from skynet_memory.ids import ConnId, DeviceId, UserId, now_ms
from skynet_memory.secrets import Secret
from skynet_protocol.connect import Client, ConnectParams, HelloAuth, client_kind, is_control_ui, is_webchat
from skynet_protocol.device import verify_device
from skynet_protocol.errors import Refusal
from skynet_protocol.scopes import greatest_scopes, limit_scopes
from skynet_users.caller import Caller
from skynet_users.credentials import PERSONAL_TOKEN_PREFIX, CredentialStore
from skynet_users.devices import DeviceStore
from skynet_users.people import User, UserStore

log = logging.getLogger(__name__)

MAX_TRACKED_ADDRESSES = 10_000


class AuthFailed(Exception):  # noqa: N818
    """The secret is missing, wrong or locked out. ``reason`` is OpenClaw's ``authReason`` (OPENCLAW-V3 2.5)."""

    def __init__(self, reason: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class AttemptLimiter:
    """Counts failed attempts by address and kind and locks an address out (OPENCLAW-V3 3.3).

    Loopback is exempt unless a browser is asking: a page must not be able to guess the token of this machine's gateway.
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
        self._locked_until: dict[tuple[str, str], float] = {}

    def check(self, peer: PeerInfo, kind: str) -> None:
        """Raise :class:`AuthFailed` ``rate_limited`` while the peer is locked out, even if its secret is right."""
        bucket = _bucket(peer, kind)
        until = self._locked_until.get(bucket) if bucket else None
        if until is None or bucket is None:
            return
        left_s = until - self._clock()
        if left_s > 0:
            raise AuthFailed("rate_limited", retry_after_s=int(left_s) + 1)
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
        if len(self._locked_until) > MAX_TRACKED_ADDRESSES:
            self._locked_until = {bucket: until for bucket, until in self._locked_until.items() if until > now}

    def succeeded(self, peer: PeerInfo, kind: str) -> None:
        """A right secret forgets the wrong ones before it."""
        if (bucket := _bucket(peer, kind)) is not None:
            self._failures.pop(bucket, None)


def _bucket(peer: PeerInfo, kind: str) -> tuple[str, str] | None:
    if not is_loopback(peer.address):
        return (peer.address, kind)
    return ("loopback browsers", kind) if peer.origin is not None else None


class PasswordCheck:
    """The gateway password, compared by argon2id so that guessing it is slow.

    The configured value is the password or an argon2id hash of it (``$argon2id$…``); a plain one is hashed at its first
    use. argon2 is imported then, not at start.
    """

    def __init__(self, password: Secret) -> None:
        self._password = password
        self._hash = ""

    async def matches(self, offered: str) -> bool:
        """Whether ``offered`` is the password. Takes some 50 ms, in a thread."""
        return await asyncio.to_thread(self._matches, offered)

    def _matches(self, offered: str) -> bool:
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        hasher = PasswordHasher()
        if not self._hash:
            configured = self._password.reveal()
            self._hash = configured if configured.startswith("$argon2") else hasher.hash(configured)
        try:
            return hasher.verify(self._hash, offered)
        except (VerificationError, InvalidHashError):
            return False


@dataclass(frozen=True, slots=True)
class Admission:
    """A handshake that succeeded. ``hello`` is the ``auth`` of hello-ok: only for clients that proved a device."""

    caller: Caller
    hello: HelloAuth | None
    device_paired: DeviceId | None = None
    """A device that this connect paired silently, for the ``device.pair.resolved`` event."""
    request_id: str = ""


class PairingRequired(Refusal):
    """The device has to be approved; ``created`` is the request's wire form when it is a new one."""


class Authenticator:
    """Decides who a connection or an HTTP request is, and what it may do."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        owner: User,
        users: UserStore,
        credentials: CredentialStore,
        devices: DeviceStore,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._config = config
        self._auth = config.auth
        self._owner = owner
        self._users = users
        self._credentials = credentials
        self._devices = devices
        self._clock = clock
        self._password = PasswordCheck(config.auth.password)
        limits = config.limits
        self._limiter = AttemptLimiter(
            attempts=limits.auth_attempts, window_s=limits.auth_window_s, lockout_s=limits.auth_lockout_s
        )

    async def bearer(self, token: str | None, peer: PeerInfo) -> Caller:
        """The caller of an HTTP request, by its bearer token (the gateway token, the password or a personal token).

        Device tokens are not accepted here, as in OpenClaw (10.1).

        Raises:
            AuthFailed: no token, a wrong one, or too many wrong ones before.
        """
        if self._auth.mode == "none":
            user = self._nobody_asked(peer)
        else:
            user = await self._user_of(token or "", token or "", peer)
        scopes = greatest_scopes(user.role)
        return Caller(
            user_id=user.id,
            role=user.role,
            scopes=frozenset(scopes),
            correlation_id=str(uuid4()),
            client_id="http",
            client_mode="http",
            local=peer.local,
        )

    async def admit(self, params: ConnectParams, peer: PeerInfo, *, nonce: str, conn_id: ConnId) -> Admission:
        """Check a ``connect`` in the order of OPENCLAW-V3 2.3, from the origin on.

        Raises:
            Refusal: with the error and the close frame that the client gets.
        """
        client = params.client
        self._check_origin(client, peer)
        user, failure = await self._evaluate_secret(params, peer)
        if params.device is None:
            return self._admit_without_device(params, peer, user, failure, conn_id)
        device = verify_device(params, nonce=nonce, now_ms=self._clock())
        if user is None:
            user = await self._user_of_device_token(params, peer, device.device_id, failure)
        scopes = self._limited(user, params)
        request_id, paired = await self._pair(params, peer, user, device.device_id, device.public_key, scopes)
        token = await self._devices.ensure_token(
            user.id, DeviceId(device.device_id), params.role, scopes, now_ms=self._clock()
        )
        hello = HelloAuth(
            device_token=token.token, role=params.role, scopes=list(token.scopes), issued_at_ms=token.issued_at_ms
        )
        caller = self._caller(params, peer, user, scopes, conn_id, DeviceId(device.device_id))
        return Admission(caller, hello, DeviceId(device.device_id) if paired else None, request_id)
