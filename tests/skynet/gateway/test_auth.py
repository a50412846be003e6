"""The ways in, over real stores: which secret is whose, what is locked out when, and what a caller may do."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from argon2 import PasswordHasher

from skynet.config import GatewayConfig
from skynet.config.schema import AuthConfig, LimitsConfig
from skynet.gateway.auth import (
    MAX_TRACKED_ADDRESSES,
    SHARED_SECRET,
    Admission,
    AttemptLimiter,
    Authenticator,
    AuthFailed,
    PasswordCheck,
)
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.peer import PeerInfo
from skynet_memory.database import Database
from skynet_memory.ids import ConnId, Role
from skynet_memory.migrations import migrate
from skynet_memory.secrets import Secret
from skynet_protocol.connect import ConnectParams, HelloAuth
from skynet_protocol.device import DeviceIdentity
from skynet_protocol.errors import Refusal
from skynet_users.credentials import CredentialStore
from skynet_users.devices import DeviceStore
from skynet_users.people import User, UserStore
from skynet_users.schema import COMPONENT
from tests.support.client import CLI_SCOPES, connect_params

NOW_MS = 1_800_000_000_000
NONCE = "nonce"


class Clock:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def peer(address: str = "192.0.2.1", **headers: str) -> PeerInfo:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PeerInfo(address=address, port=50000, headers={"host": "127.0.0.1:18789", **named})


LOCAL = peer("127.0.0.1")
BROWSER = peer("127.0.0.1", origin="http://localhost:5173")


# Counting failures.


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> AttemptLimiter:
    return AttemptLimiter(attempts=3, window_s=60, lockout_s=300, clock=clock)


def fail(limiter: AttemptLimiter, subject: PeerInfo, times: int, kind: str = SHARED_SECRET) -> None:
    for _ in range(times):
        limiter.failed(subject, kind)


def locked(limiter: AttemptLimiter, subject: PeerInfo, kind: str = SHARED_SECRET) -> bool:
    try:
        limiter.check(subject, kind)
    except AuthFailed as failure:
        assert failure.reason == "rate_limited"
        return True
    return False


def test_the_last_attempt_locks_out(limiter: AttemptLimiter) -> None:
    fail(limiter, peer(), 2)
    assert not locked(limiter, peer())
    fail(limiter, peer(), 1)
    assert locked(limiter, peer())
    assert not locked(limiter, peer("192.0.2.2"))
    assert not locked(limiter, peer(), "another kind")


def test_a_lockout_ends_and_says_when(limiter: AttemptLimiter, clock: Clock) -> None:
    fail(limiter, peer(), 3)
    with pytest.raises(AuthFailed) as caught:
        limiter.check(peer(), SHARED_SECRET)
    assert caught.value.retry_after_s == 301
    clock.now_s += 299.5
    assert locked(limiter, peer())
    clock.now_s += 0.5
    assert not locked(limiter, peer())
    fail(limiter, peer(), 2)  # counted from the start again
    assert not locked(limiter, peer())


def test_old_failures_do_not_count(limiter: AttemptLimiter, clock: Clock) -> None:
    fail(limiter, peer(), 2)
    clock.now_s += 61
    fail(limiter, peer(), 2)
    assert not locked(limiter, peer())


def test_a_success_forgets_failures(limiter: AttemptLimiter) -> None:
    fail(limiter, peer(), 2)
    limiter.succeeded(peer(), SHARED_SECRET)
    fail(limiter, peer(), 2)
    assert not locked(limiter, peer())


def test_only_what_is_surely_this_machine_is_exempt(limiter: AttemptLimiter) -> None:
    for subject in (LOCAL, peer("::1"), peer("::ffff:127.0.0.1")):
        fail(limiter, subject, 50)
        assert not locked(limiter, subject)
    for subject in (BROWSER, peer("127.0.0.1", x_forwarded_for="192.0.2.7")):
        fail(limiter, subject, 3)
        assert locked(limiter, subject)


def test_browsers_of_this_machine_share_one_count(limiter: AttemptLimiter) -> None:
    for number in range(3):
        fail(limiter, peer("127.0.0.1", origin=f"http://localhost:{number}"), 1)
    assert locked(limiter, BROWSER)
    assert not locked(limiter, LOCAL)


def test_addresses_are_forgotten_not_collected(limiter: AttemptLimiter) -> None:
    for number in range(MAX_TRACKED_ADDRESSES + 50):
        limiter.failed(peer(f"2001:db8:{number:x}::1"), SHARED_SECRET)
    assert len(limiter._failures) == MAX_TRACKED_ADDRESSES


def test_addresses_of_one_network_count_as_one(limiter: AttemptLimiter) -> None:
    for number in range(3):
        limiter.failed(peer(f"2001:db8::{number:x}"), SHARED_SECRET)
    with pytest.raises(AuthFailed, match="rate_limited"):
        limiter.check(peer("2001:db8::ffff"), SHARED_SECRET)
    limiter.check(peer("2001:db8:1::1"), SHARED_SECRET)
    limiter.check(peer("::ffff:192.0.2.1"), SHARED_SECRET)


def test_ended_lockouts_are_forgotten(limiter: AttemptLimiter, clock: Clock) -> None:
    for number in range(MAX_TRACKED_ADDRESSES):
        fail(limiter, peer(f"2001:db8:{number:x}::1"), 3)
    clock.now_s += 301
    fail(limiter, peer(), 3)
    assert len(limiter._locked_until) == 1


# The password.


@pytest.mark.parametrize(
    "configured",
    ["plain words", PasswordHasher(time_cost=1, memory_cost=64).hash("plain words")],
    ids=["plain", "hashed"],
)
async def test_a_password_may_be_configured_plain_or_hashed(configured: str) -> None:
    check = PasswordCheck(Secret(configured))
    assert not check.known("plain words")
    for _ in range(2):
        assert await check.matches("plain words")
        assert not await check.matches("Plain words")
        assert not await check.matches(configured + "x")
    assert check.known("plain words")
    assert not check.known("Plain words")
    assert not check.known("")


async def test_the_hash_itself_is_no_password() -> None:
    hashed = PasswordHasher(time_cost=1, memory_cost=64).hash("words")
    assert not await PasswordCheck(Secret(hashed)).matches(hashed)


async def test_a_broken_hash_matches_nothing() -> None:
    assert not await PasswordCheck(Secret("$argon2id$broken")).matches("$argon2id$broken")


async def test_any_text_may_be_offered_as_password() -> None:
    check = PasswordCheck(Secret("words"))
    for text in ("", "\ud800", "\0", "é" * 5000):
        assert not check.known(text)
        assert not await check.matches(text)


# The whole.


@dataclass
class World:
    """An authenticator with everything behind it."""

    config: GatewayConfig
    owner: User
    users: UserStore
    credentials: CredentialStore
    devices: DeviceStore

    def authenticator(self, **auth: Any) -> Authenticator:
        config = self.config
        if auth:
            config = msgspec.structs.replace(config, auth=AuthConfig(**auth))
        return self.authenticator_of(config)

    def authenticator_of(self, config: GatewayConfig) -> Authenticator:
        return Authenticator(
            config,
            owner=self.owner,
            users=self.users,
            credentials=self.credentials,
            devices=self.devices,
            broadcaster=Broadcaster(),
            clock=lambda: NOW_MS,
        )

    async def person(self, role: Role) -> tuple[User, str]:
        """Somebody, and a personal token of theirs."""
        user = await self.users.add(role.value, role)
        return user, (await self.credentials.create_token(user.id, "test")).token.reveal()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    limits = LimitsConfig(auth_attempts=3)
    config = GatewayConfig(auth=AuthConfig(token=Secret("gateway-token")), limits=limits)
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [COMPONENT])
        users = UserStore(db)
        yield World(config, await users.ensure_owner(), users, CredentialStore(db), DeviceStore(db))


async def admit(
    authenticator: Authenticator, subject: PeerInfo = LOCAL, *, device: DeviceIdentity | None = None, **options: Any
) -> Admission:
    params = connect_params(device=device, nonce=NONCE, signed_at=NOW_MS, **options)
    decoded = msgspec.convert(params, ConnectParams)
    return await authenticator.admit(decoded, subject, ConnId("c"), nonce=NONCE)


async def refusal(authenticator: Authenticator, subject: PeerInfo = LOCAL, **options: Any) -> dict[str, Any]:
    with pytest.raises(Refusal) as caught:
        await admit(authenticator, subject, **options)
    assert caught.value.error is not None
    details: dict[str, Any] = caught.value.error.details
    return details


def token_of(admission: Admission) -> str:
    assert isinstance(admission.hello, HelloAuth)
    return admission.hello.device_token


async def test_the_gateway_token_is_the_owner(world: World) -> None:
    caller = (await admit(world.authenticator(), token="gateway-token")).caller
    assert (caller.user_id, caller.role) == (world.owner.id, Role.ADMIN)
    assert caller.scopes == set(CLI_SCOPES)
    assert caller.local
    assert (await world.authenticator().bearer("gateway-token", LOCAL)).user_id == world.owner.id


@pytest.mark.parametrize("offered", [None, "", "gateway-toke", "gateway-token ", "Gateway-token", "\ud800"])
async def test_http_refuses_other_tokens(world: World, offered: str | None) -> None:
    with pytest.raises(AuthFailed) as caught:
        await world.authenticator().bearer(offered, LOCAL)
    assert caught.value.reason == ("token_mismatch" if offered else "token_missing")


@pytest.mark.parametrize("mode", ["token", "password", "none"])
@pytest.mark.parametrize("field", ["token", "password"])
async def test_a_personal_token_counts_in_every_mode_and_field(world: World, mode: str, field: str) -> None:
    user, token = await world.person(Role.CHILD)
    authenticator = world.authenticator(mode=mode, token=Secret("t"), password=Secret("p"))
    caller = (await admit(authenticator, device=DeviceIdentity.generate(), **{field: token})).caller
    assert (caller.user_id, caller.role) == (user.id, Role.CHILD)
    assert caller.scopes == {"operator.read", "operator.write"}
    assert (await authenticator.bearer(token, peer())).user_id == user.id


async def test_a_removed_personal_token_is_worth_nothing(world: World) -> None:
    user, token = await world.person(Role.USER)
    (info,) = await world.credentials.tokens(user.id)
    await world.credentials.remove_token(user.id, info.id)
    assert (await refusal(world.authenticator(), token=token))["code"] == "AUTH_TOKEN_MISMATCH"


async def test_requested_scopes_are_cut_never_widened(world: World) -> None:
    _, token = await world.person(Role.USER)
    authenticator = world.authenticator()
    assert (await admit(authenticator, token=token)).caller.scopes == {
        "operator.read",
        "operator.write",
        "operator.approvals",
    }
    assert (await admit(authenticator, token=token, scopes=["operator.read"])).caller.scopes == {"operator.read"}
    assert (await admit(authenticator, token=token, scopes=[])).caller.scopes == frozenset()
    assert (await admit(authenticator, token="gateway-token", scopes=[])).caller.scopes == frozenset()


async def test_a_node_gets_no_operator_scope(world: World) -> None:
    device = DeviceIdentity.generate()
    options: dict[str, Any] = {"token": "gateway-token", "role": "node", "client_id": "node-host", "mode": "node"}
    caller = (await admit(world.authenticator(), device=device, scopes=["operator.admin", "x"], **options)).caller
    assert caller.gateway_role == "node"
    assert caller.scopes == {"x"}


async def test_mode_none_is_for_this_machine(world: World) -> None:
    authenticator = world.authenticator(mode="none")
    assert (await authenticator.bearer(None, LOCAL)).user_id == world.owner.id
    assert (await admit(authenticator, device=DeviceIdentity.generate())).caller.user_id == world.owner.id
    for other in (peer(), peer("127.0.0.1", x_forwarded_for="127.0.0.1"), peer("127.0.0.1", host="evil.example")):
        with pytest.raises(AuthFailed):
            await authenticator.bearer(None, other)
        details = await refusal(authenticator, other, device=DeviceIdentity.generate())
        assert details == {"code": "AUTH_UNAUTHORIZED", "authReason": "not_local"}


async def test_a_lockout_refuses_even_the_right_secret(world: World) -> None:
    authenticator = world.authenticator()
    for _ in range(3):
        assert (await refusal(authenticator, peer(), token="wrong"))["code"] == "AUTH_TOKEN_MISMATCH"
    assert (await refusal(authenticator, peer(), token="gateway-token"))["code"] == "AUTH_RATE_LIMITED"
    with pytest.raises(AuthFailed) as caught:
        await authenticator.bearer("gateway-token", peer())
    assert caught.value.reason == "rate_limited"
    assert caught.value.retry_after_s
    assert (await admit(authenticator, peer("192.0.2.2"), token="gateway-token")).caller.role is Role.ADMIN


async def test_a_missing_secret_is_no_guess(world: World) -> None:
    authenticator = world.authenticator()
    for _ in range(5):
        await refusal(authenticator, peer(), device=DeviceIdentity.generate())
    assert (await admit(authenticator, peer(), token="gateway-token")).caller.role is Role.ADMIN


async def test_a_crowd_of_password_guesses_does_not_outrun_the_limiter(world: World) -> None:
    authenticator = world.authenticator(mode="password", password=Secret("right"))
    guesses = [refusal(authenticator, peer(), password=f"wrong {number}") for number in range(8)]
    codes = [details["code"] for details in await asyncio.gather(*guesses)]
    assert codes.count("AUTH_PASSWORD_MISMATCH") == 3
    assert codes.count("AUTH_RATE_LIMITED") == 5


@pytest.mark.parametrize("via", ["token", "device_token"])
async def test_a_device_token_stands_for_the_person_it_was_issued_to(world: World, via: str) -> None:
    user, token = await world.person(Role.USER)
    authenticator, device = world.authenticator(), DeviceIdentity.generate()
    paired = await admit(authenticator, token=token, device=device)
    again = await admit(authenticator, device=device, **{via: token_of(paired)})
    assert again.caller.user_id == user.id
    assert again.caller.scopes == paired.caller.scopes
    assert token_of(again) == token_of(paired)


async def test_a_device_token_is_bound_to_its_device(world: World) -> None:
    authenticator = world.authenticator()
    token = token_of(await admit(authenticator, token="gateway-token", device=DeviceIdentity.generate()))
    details = await refusal(authenticator, device=DeviceIdentity.generate(), device_token=token)
    assert details == {"code": "AUTH_DEVICE_TOKEN_MISMATCH", "authReason": "device_token_mismatch"}


async def test_a_device_token_does_not_grow(world: World) -> None:
    authenticator, device = world.authenticator(), DeviceIdentity.generate()
    read = ["operator.read"]
    token = token_of(await admit(authenticator, token="gateway-token", device=device, scopes=read))
    more = [*read, "operator.write"]
    details = await refusal(authenticator, device=device, scopes=more, device_token=token)
    assert details["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"
    details = await refusal(authenticator, device=device, scopes=more, token=token)
    assert details["code"] == "AUTH_TOKEN_MISMATCH"
    assert (await admit(authenticator, device=device, scopes=read, token=token)).caller.scopes == set(read)


async def test_device_tokens_of_a_removed_person_are_dead(world: World) -> None:
    user, token = await world.person(Role.USER)
    authenticator, device = world.authenticator(), DeviceIdentity.generate()
    paired = await admit(authenticator, token=token, device=device)
    await world.users.remove(user.id)
    details = await refusal(authenticator, device=device, device_token=token_of(paired))
    assert details["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"


async def test_device_tokens_are_guessed_under_a_limit_too(world: World) -> None:
    authenticator, device = world.authenticator(), DeviceIdentity.generate()
    await admit(authenticator, token="gateway-token", device=device)
    for _ in range(3):
        details = await refusal(authenticator, peer(), device=device, device_token="wrong")
        assert details["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"
    details = await refusal(authenticator, peer(), device=device, device_token="wrong")
    assert details["code"] == "AUTH_RATE_LIMITED"


async def test_http_does_not_take_device_tokens(world: World) -> None:
    authenticator = world.authenticator()
    token = token_of(await admit(authenticator, token="gateway-token", device=DeviceIdentity.generate()))
    with pytest.raises(AuthFailed):
        await authenticator.bearer(token, LOCAL)


async def test_a_client_behind_a_trusted_proxy_is_known_by_its_own_address(world: World) -> None:
    config = msgspec.structs.replace(world.config, trusted_proxies=("127.0.0.1", "10.0.0.0/8"))
    authenticator = world.authenticator_of(config)

    def behind(client: str) -> PeerInfo:
        return peer("127.0.0.1", x_forwarded_for=f"203.0.113.9, {client}, 10.1.2.3")

    assert authenticator.resolve(behind("192.0.2.7")).address == "192.0.2.7"
    for _ in range(3):
        await refusal(authenticator, authenticator.resolve(behind("192.0.2.7")), token="wrong")
    with pytest.raises(AuthFailed) as caught:
        await authenticator.bearer("gateway-token", behind("192.0.2.7"))
    assert caught.value.reason == "rate_limited"
    caller = await authenticator.bearer("gateway-token", behind("192.0.2.8"))
    assert not caller.local
