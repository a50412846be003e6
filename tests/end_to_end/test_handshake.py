"""The handshake over a real socket: every refusal with its error and its close frame, in order (OPENCLAW-V3 2, 3)."""

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from argon2 import PasswordHasher

from skynet_memory.database import Database
from skynet_memory.ids import Role
from skynet_protocol.connect import ConnectParams
from skynet_protocol.device import DeviceIdentity, connect_payload
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserStore
from tests.support.client import CLI_SCOPES, Refused, WireClient, connect_params, open_socket
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.raw_socket import frame, open_raw, open_tcp, request, upgrade_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORIGIN_TEXT = (
    "origin not allowed (open the Control UI from the gateway host or allow it in gateway.controlUi.allowedOrigins)"
)
FOREIGN = {"Origin": "https://evil.example"}
LOOPBACK_PAGE = {"Origin": "http://localhost:5173"}
CONTROL_UI = {"client_id": "openclaw-control-ui", "mode": "webchat"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    toml = '[gateway]\norigins = ["https://Home.example"]\n'
    async with running_gateway(tmp_path_factory.mktemp("gateway"), toml=toml) as running:
        yield running


async def refused(
    client: WireClient, params: Any, *, method: str = "connect"
) -> tuple[dict[str, Any] | None, int, str]:
    """What a refused handshake sends: the error of its response, if there is one, and then the close frame."""
    await client.send_frame(method, params, request_id="handshake")
    code, reason = await client.closed()
    answers = [received for received in client.frames if received["type"] == "res"]
    assert [received["event"] for received in client.events] == ["connect.challenge"]
    assert code is not None
    assert reason is not None
    if not answers:
        return None, code, reason
    (answer,) = answers
    assert client.frames[-1] is answer
    assert answer["id"] == "handshake"
    assert answer["ok"] is False
    return answer["error"], code, reason


@asynccontextmanager
async def challenged(gateway: RunningGateway, headers: Any = None) -> AsyncIterator[tuple[WireClient, str]]:
    """A connection that knows its nonce."""
    async with open_socket(gateway.url, additional_headers=headers) as client:
        challenge = await client.event(lambda event: event["event"] == "connect.challenge")
        yield client, challenge["payload"]["nonce"]


async def person(gateway: RunningGateway, role: Role) -> tuple[str, str]:
    """Somebody's id, and a personal token."""
    database: Database = gateway.app.database
    user = await UserStore(database).add(role.value, role)
    return user.id, (await CredentialStore(database).create_token(user.id, "test")).token.reveal()


# The challenge and hello-ok.


async def test_the_challenge_comes_first_and_is_new_each_time(gateway: RunningGateway) -> None:
    nonces = set()
    for _ in range(5):
        async with open_raw(gateway.url) as raw:
            challenge = (await raw.read_frame()).json()
            assert set(challenge) == {"type", "event", "payload"}
            assert set(challenge["payload"]) == {"nonce", "ts"}
            assert abs(challenge["payload"]["ts"] - time.time() * 1000) < 60_000
            nonces.add(challenge["payload"]["nonce"])
    assert len(nonces) == 5


async def test_hello_ok_is_the_next_frame_and_events_follow(gateway: RunningGateway) -> None:
    async with gateway.client(device=DeviceIdentity.generate()) as busy:  # whose events must not come first
        for _ in range(20):
            await busy.send_frame("health", {"probe": True})
            async with gateway.client(mode="ui", client_id="gateway-client") as client:
                await client.call("health", {"probe": True})
                kinds = [received.get("event", received["type"]) for received in client.frames]
                assert kinds[:2] == ["connect.challenge", "res"]


async def test_hello_ok_says_what_clients_need(gateway: RunningGateway) -> None:
    device = DeviceIdentity.generate()
    async with gateway.client(device=device, scopes=["operator.read"]) as client:
        hello = client.hello
    assert (hello["type"], hello["protocol"]) == ("hello-ok", 3)
    assert hello["policy"] == {"maxPayload": 26_214_400, "maxBufferedBytes": 8_388_608, "tickIntervalMs": 30_000}
    assert hello["auth"]["role"] == "operator"
    assert hello["auth"]["scopes"] == ["operator.read"]
    assert hello["auth"]["deviceToken"]
    assert "health" in hello["features"]["methods"]
    assert hello["features"]["events"][0] == "connect.challenge"
    snapshot = hello["snapshot"]
    assert snapshot["authMode"] == "token"
    assert snapshot["sessionDefaults"]["mainSessionKey"] == "agent:main:main"
    assert set(snapshot["stateVersion"]) == {"presence", "health"}
    assert isinstance(snapshot["presence"], list)
    assert isinstance(snapshot["health"], dict)
    assert gateway.token not in json.dumps(hello)


async def test_without_a_device_there_is_no_token(gateway: RunningGateway) -> None:
    async with gateway.client(scopes=["operator.read"]) as client:
        assert "auth" not in client.hello
        assert await client.call("sessions.list", {})


async def test_requests_sent_before_hello_ok_are_answered_after_it(gateway: RunningGateway) -> None:
    async with open_raw(gateway.url) as raw:
        await raw.read_frame()
        frames = [frame(request("connect", connect_params(token=gateway.token), id="c"))]
        frames += [frame(request("health", id=f"h{number}")) for number in range(20)]
        raw.write(b"".join(frames[:11]))
        for piece in frames[11:]:
            raw.write(piece)
        ids = []
        while len(ids) < 21:
            received = (await raw.read_frame()).json()
            if received["type"] == "res":
                assert received["ok"]
                ids.append(received["id"])
        assert ids == ["c", *(f"h{number}" for number in range(20))]


async def test_a_second_connect_is_refused_and_harmless(gateway: RunningGateway) -> None:
    async with gateway.client() as client:
        with pytest.raises(Refused, match=r"^connect is only valid as the first request$") as caught:
            await client.call("connect", connect_params(token=gateway.token))
        assert caught.value.error["code"] == "INVALID_REQUEST"
        assert (await client.call("health"))["ok"]


async def test_a_second_connect_while_the_first_is_checked(gateway: RunningGateway) -> None:
    async with open_raw(gateway.url) as raw:
        await raw.read_frame()
        params = connect_params(token=gateway.token)
        raw.write(frame(request("connect", params, id="1")) + frame(request("connect", params, id="2")))
        assert (await raw.read_response("1"))["ok"]
        assert (await raw.read_response("2"))["error"]["message"] == "connect is only valid as the first request"


# Refusals.


@pytest.mark.parametrize("text", ["hello", "", "{", '{"type":NaN}', "[" * 10_000 + "]" * 10_000])
async def test_a_first_frame_that_is_not_json(gateway: RunningGateway, text: str) -> None:
    async with challenged(gateway) as (client, _):
        await client.socket.send(text)
        assert await client.closed() == (1000, "")
        assert len(client.frames) == 1


@pytest.mark.parametrize(
    "text", ["{}", "[]", "7", '{"type":"req","id":"a","method":"connect","x":1}', '{"type":"event"}']
)
async def test_a_first_frame_that_is_no_request(gateway: RunningGateway, text: str) -> None:
    async with challenged(gateway) as (client, _):
        await client.socket.send(text)
        assert await client.closed() == (1008, "invalid request frame")
        assert len(client.frames) == 1


async def test_a_first_request_that_is_not_connect(gateway: RunningGateway) -> None:
    async with challenged(gateway) as (client, _):
        error, code, reason = await refused(client, None, method="health")
    message = "invalid handshake: first request must be connect"
    assert error is not None
    assert (error["code"], error["message"]) == ("INVALID_REQUEST", message)
    assert (code, reason) == (1008, message)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"client": {"id": "nobody", "version": "1", "platform": "p", "mode": "cli"}}, "at /client/id: "),
        ({"client": {"id": "cli", "version": "", "platform": "p", "mode": "cli"}}, "at /client/version: "),
        ({"client": {"id": "cli", "version": "1", "platform": "p", "mode": "cli", "x": 1}}, "at /client: unexpected"),
        ({"minProtocol": 0}, "at /minProtocol: "),
        ({"minProtocol": "3"}, "at /minProtocol: must be integer"),
        ({"maxProtocol": None}, "at /maxProtocol: must be integer"),
        ({"scopes": "operator.read"}, "at /scopes: must be array"),
        ({"scopes": [""]}, "at /scopes/0: "),
        ({"auth": {"secret": "x"}}, "at /auth: unexpected property 'secret'"),
        ({"device": {"id": "x"}}, "at /device: must have required property"),
        ({"ключ": "é" * 200}, "at root: unexpected property 'ключ'"),
        ({"x" * 300: 1}, "at root: unexpected property 'xxx"),
    ],
)
async def test_bad_connect_params_name_the_field(gateway: RunningGateway, change: Any, problem: str) -> None:
    async with challenged(gateway) as (client, _):
        error, code, reason = await refused(client, connect_params(token=gateway.token) | change)
    assert error is not None
    assert error["code"] == "INVALID_REQUEST"
    assert error["message"].startswith(f"invalid connect params: {problem}")
    assert code == 1008
    assert len(reason.encode()) <= 120
    assert error["message"].startswith(reason)
    assert len(reason.encode()) > 110 or reason == error["message"]


@pytest.mark.parametrize("params", [None, [], "x", 3])
async def test_connect_params_that_are_no_object(gateway: RunningGateway, params: Any) -> None:
    async with challenged(gateway) as (client, _):
        error, code, reason = await refused(client, params)
    assert error is not None
    assert error["message"].startswith("invalid connect params: ")
    assert (code, reason) == (1008, error["message"])


@pytest.mark.parametrize(("least", "greatest"), [(1, 2), (4, 9), (4, 1)])
async def test_no_common_protocol(gateway: RunningGateway, least: int, greatest: int) -> None:
    async with challenged(gateway) as (client, _):
        params = connect_params(token="wrong") | {"minProtocol": least, "maxProtocol": greatest, "role": "nobody"}
        error, code, reason = await refused(client, params)
    assert error == {
        "code": "INVALID_REQUEST",
        "message": "protocol mismatch",
        "details": {"expectedProtocol": 3},
    }
    assert (code, reason) == (1002, "protocol mismatch")


async def test_a_wider_range_of_protocols_is_fine(gateway: RunningGateway) -> None:
    async with gateway.client(minProtocol=1, maxProtocol=99) as client:
        assert client.hello["protocol"] == 3


async def test_an_unknown_role(gateway: RunningGateway) -> None:
    async with challenged(gateway, FOREIGN) as (client, _):
        error, code, reason = await refused(client, connect_params(token="wrong", role="superuser"))
    assert error is not None
    assert (error["code"], error["message"]) == ("INVALID_REQUEST", "invalid role")
    assert (code, reason) == (1008, "invalid role")


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        (FOREIGN, {}),
        ({"Origin": "null"}, {}),
        ({"Origin": "http://home.example"}, {}),
        ({"Origin": "https://home.example:8443"}, {}),
        (None, CONTROL_UI),
        (None, {"client_id": "webchat-ui", "mode": "ui"}),
        (None, {"client_id": "cli", "mode": "webchat"}),
        (FOREIGN | {"X-Forwarded-For": "192.0.2.1"}, CONTROL_UI),
    ],
)
async def test_origins_that_are_refused(gateway: RunningGateway, headers: Any, options: dict[str, Any]) -> None:
    async with challenged(gateway, headers) as (client, _):
        error, code, reason = await refused(client, connect_params(token=gateway.token, **options))
    assert error is not None
    assert (error["code"], error["message"]) == ("INVALID_REQUEST", ORIGIN_TEXT)
    assert (code, reason) == (1008, ORIGIN_TEXT[:120])


@pytest.mark.parametrize(
    "headers",
    [LOOPBACK_PAGE, {"Origin": "https://home.example"}, FOREIGN | {"X-Forwarded-For": "192.0.2.1"}],
    ids=["loopback page", "listed", "not a browser's client behind a proxy"],
)
async def test_origins_that_are_let_in(gateway: RunningGateway, headers: Any) -> None:
    async with gateway.client(headers=headers) as client:
        assert client.hello["type"] == "hello-ok"


async def test_the_control_ui_needs_a_device(gateway: RunningGateway) -> None:
    async with challenged(gateway, LOOPBACK_PAGE) as (client, _):
        error, code, reason = await refused(client, connect_params(token=gateway.token, **CONTROL_UI))
    message = "control ui requires device identity (use HTTPS or localhost secure context)"
    assert error == {
        "code": "INVALID_REQUEST",
        "message": message,
        "details": {"code": "CONTROL_UI_DEVICE_IDENTITY_REQUIRED"},
    }
    assert (code, reason) == (1008, message)
    async with gateway.client(headers=LOOPBACK_PAGE, device=DeviceIdentity.generate(), **CONTROL_UI) as client:
        assert client.hello["auth"]["role"] == "operator"


@pytest.mark.parametrize(
    ("options", "with_token"),
    [({}, False), ({"role": "node", "client_id": "node-host", "mode": "node"}, True)],
    ids=["operator without a secret", "node with the secret"],
)
async def test_who_needs_a_device(gateway: RunningGateway, options: dict[str, Any], with_token: bool) -> None:
    async with challenged(gateway) as (client, _):
        params = connect_params(token=gateway.token if with_token else "", **options)
        error, code, reason = await refused(client, params)
    assert error == {
        "code": "NOT_PAIRED",
        "message": "device identity required",
        "details": {"code": "DEVICE_IDENTITY_REQUIRED"},
    }
    assert (code, reason) == (1008, "device identity required")


# The proof of a device.


def proved(nonce: str, change: Any = None, *, token: str = "", version: Any = 3, **options: Any) -> dict[str, Any]:
    """Params with a proof of a new device, signed after ``change`` to its fields."""
    device = DeviceIdentity.generate()
    params = msgspec.convert(connect_params(token=token, **options), ConnectParams)
    proof = device.prove(params, nonce=nonce, signed_at=int(time.time() * 1000))
    if change is not None:
        proof = msgspec.structs.replace(proof, **change)
    proof = msgspec.structs.replace(proof, signature=device.sign(connect_payload(version, params, proof)))
    encoded: dict[str, Any] = json.loads(msgspec.json.encode(msgspec.structs.replace(params, device=proof)))
    return encoded


PROOFS: list[tuple[str, str, Any]] = [
    ("device-id-mismatch", "device identity mismatch", lambda p: p["device"].update(id="0" * 64)),
    (
        "device-id-mismatch",
        "device identity mismatch",
        lambda p: p["device"].update(publicKey=DeviceIdentity.generate().public_key),
    ),
    ("device-signature-stale", "device signature expired", lambda p: p["device"].update(signedAt=1)),
    (
        "device-signature-stale",
        "device signature expired",
        lambda p: p["device"].update(signedAt=p["device"]["signedAt"] + 200_000),
    ),
    ("device-nonce-missing", "device nonce required", lambda p: p["device"].update(nonce="  ")),
    ("device-nonce-mismatch", "device nonce mismatch", lambda p: p["device"].update(nonce="another")),
    ("device-signature", "device signature invalid", lambda p: p["device"].update(signature="AAAA")),
    ("device-signature", "device signature invalid", lambda p: p["device"].update(signature="not base64!")),
    (
        "device-signature",
        "device signature invalid",
        lambda p: p["device"].update(signedAt=p["device"]["signedAt"] + 1),
    ),
    ("device-signature", "device signature invalid", lambda p: p.update(scopes=["operator.admin"])),
    ("device-signature", "device signature invalid", lambda p: p["scopes"].reverse()),
    ("device-signature", "device signature invalid", lambda p: p["client"].update(platform="darwin")),
    ("device-signature", "device signature invalid", lambda p: p["client"].update(deviceFamily="Mac")),
    ("device-signature", "device signature invalid", lambda p: p.update(auth={"token": "other"})),
]


@pytest.mark.parametrize(("reason", "message", "spoil"), PROOFS)
async def test_a_bad_proof_of_the_device(gateway: RunningGateway, reason: str, message: str, spoil: Any) -> None:
    async with challenged(gateway) as (client, nonce):
        params = proved(nonce, token=gateway.token)
        spoil(params)
        error, code, close_reason = await refused(client, params)
    assert error == {
        "code": "INVALID_REQUEST",
        "message": message,
        "details": {"code": "DEVICE_AUTH_INVALID", "reason": reason},
    }
    assert (code, close_reason) == (1008, message)


async def test_a_key_that_is_none(gateway: RunningGateway) -> None:
    raw = b"x" * 31  # an Ed25519 key has 32
    async with challenged(gateway) as (client, nonce):
        params = proved(nonce, token=gateway.token)
        key = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        params["device"].update(id=hashlib.sha256(raw).hexdigest(), publicKey=key)
        error, code, reason = await refused(client, params)
    assert error is not None
    assert error["details"] == {"code": "DEVICE_AUTH_INVALID", "reason": "device-public-key"}
    assert (error["message"], code, reason) == ("device public key invalid", 1008, "device public key invalid")


async def test_a_proof_is_good_for_one_connection(gateway: RunningGateway) -> None:
    async with challenged(gateway) as (client, nonce):
        params = proved(nonce, token=gateway.token)
        assert (await client.call("connect", params))["type"] == "hello-ok"
    async with challenged(gateway) as (client, _):
        error, _, _ = await refused(client, params)
    assert error is not None
    assert error["details"]["reason"] == "device-nonce-mismatch"


@pytest.mark.parametrize("version", [2, 3])
async def test_both_signed_payloads_are_good(gateway: RunningGateway, version: int) -> None:
    async with challenged(gateway) as (client, nonce):
        hello = await client.call("connect", proved(nonce, token=gateway.token, version=version))
        assert hello["auth"]["scopes"] == sorted(CLI_SCOPES)


@pytest.mark.parametrize("skew_ms", [-110_000, 110_000])
async def test_clocks_may_differ_by_two_minutes(gateway: RunningGateway, skew_ms: int) -> None:
    async with challenged(gateway) as (client, nonce):
        params = proved(nonce, {"signed_at": int(time.time() * 1000) + skew_ms}, token=gateway.token)
        assert (await client.call("connect", params))["type"] == "hello-ok"


# Secrets.

TOKEN_HINTS: list[tuple[dict[str, Any], Any, str]] = [
    ({}, None, "set gateway.remote.token to match gateway.auth.token"),
    (CONTROL_UI, LOOPBACK_PAGE, "open the dashboard URL and paste the token in Control UI settings"),
    ({"client_id": "gateway-client", "mode": "backend"}, None, "provide gateway auth token"),
]
PASSWORD_HINTS: list[tuple[dict[str, Any], Any, str]] = [
    ({}, None, "set gateway.remote.password to match gateway.auth.password"),
    (CONTROL_UI, LOOPBACK_PAGE, "enter the password in Control UI settings"),
    ({"client_id": "gateway-client", "mode": "backend"}, None, "provide gateway auth password"),
]


async def assert_unauthorized(
    gateway: RunningGateway, headers: Any, options: dict[str, Any], reason: str, message: str
) -> None:
    async with challenged(gateway, headers) as (client, nonce):
        device = DeviceIdentity.generate()
        error, code, close_reason = await refused(client, connect_params(device=device, nonce=nonce, **options))
    assert error == {
        "code": "INVALID_REQUEST",
        "message": message,
        "details": {"code": f"AUTH_{reason.upper()}", "authReason": reason},
    }
    assert (code, close_reason) == (1008, message[:120])


@pytest.mark.parametrize(("options", "headers", "hint"), TOKEN_HINTS)
async def test_token_missing_and_mismatch(
    gateway: RunningGateway, options: dict[str, Any], headers: Any, hint: str
) -> None:
    missing = f"unauthorized: gateway token missing ({hint})"
    await assert_unauthorized(gateway, headers, options, "token_missing", missing)
    mismatch = f"unauthorized: gateway token mismatch ({hint})"
    await assert_unauthorized(gateway, headers, {**options, "token": "wrong"}, "token_mismatch", mismatch)
    device = "unauthorized: device token mismatch (rotate/reissue device token)"
    with_device_token = {**options, "token": "wrong", "device_token": "wrong"}
    await assert_unauthorized(gateway, headers, with_device_token, "device_token_mismatch", device)


async def test_a_wrong_token_without_a_device(gateway: RunningGateway) -> None:
    async with challenged(gateway) as (client, _):
        error, code, _ = await refused(client, connect_params(token="wrong"))
    assert error is not None
    assert error["details"] == {"code": "AUTH_TOKEN_MISMATCH", "authReason": "token_mismatch"}
    assert code == 1008


async def test_an_empty_secret_is_none(gateway: RunningGateway) -> None:
    async with challenged(gateway) as (client, _):
        params = connect_params() | {"auth": {"token": "", "password": "", "deviceToken": ""}}
        error, _, _ = await refused(client, params)
    assert error is not None
    assert error["details"] == {"code": "DEVICE_IDENTITY_REQUIRED"}


@pytest.mark.parametrize("hashed", [False, True], ids=["plain", "argon2id"])
async def test_password_mode(tmp_path: Path, hashed: bool) -> None:
    secret = "correct horse battery"
    configured = PasswordHasher(time_cost=1, memory_cost=1024).hash(secret) if hashed else secret
    toml = f"[gateway.auth]\nmode = 'password'\npassword = '{configured}'\n"
    async with running_gateway(tmp_path / "home", toml=toml) as gateway:
        async with gateway.client(token="", password=secret) as client:
            assert client.hello["snapshot"]["authMode"] == "password"
        async with gateway.client(token="", password=secret, device=DeviceIdentity.generate()) as client:
            assert client.hello["auth"]["deviceToken"]
        for options, headers, hint in PASSWORD_HINTS:
            missing = f"unauthorized: gateway password missing ({hint})"
            await assert_unauthorized(gateway, headers, options, "password_missing", missing)
            mismatch = f"unauthorized: gateway password mismatch ({hint})"
            wrong = {**options, "password": configured if hashed else "wrong"}
            await assert_unauthorized(gateway, headers, wrong, "password_mismatch", mismatch)
        the_token = {"token": gateway.token}  # is not what this mode wants
        hint = PASSWORD_HINTS[0][2]
        missing = f"unauthorized: gateway password missing ({hint})"
        await assert_unauthorized(gateway, None, the_token, "password_missing", missing)


async def test_mode_none_needs_a_device_and_no_secret(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", toml="[gateway.auth]\nmode = 'none'\n") as gateway:
        async with gateway.client(token="", device=DeviceIdentity.generate()) as client:
            assert client.hello["snapshot"]["authMode"] == "none"
            assert (await client.call("sessions.list", {}))["count"] == 0
        async with challenged(gateway) as (client, _):
            error, _, _ = await refused(client, connect_params())
        assert error is not None
        assert error["details"] == {"code": "DEVICE_IDENTITY_REQUIRED"}
        async with challenged(gateway, {"X-Forwarded-For": "127.0.0.1"}) as (client, nonce):
            params = connect_params(device=DeviceIdentity.generate(), nonce=nonce)
            error, _, reason = await refused(client, params)
        assert error is not None
        assert error["details"]["code"] == "AUTH_UNAUTHORIZED"
        assert reason == "unauthorized"


@pytest.mark.parametrize("field", ["token", "password"])
@pytest.mark.parametrize(
    ("role", "greatest"),
    [
        (Role.ADMIN, set(CLI_SCOPES)),
        (Role.USER, {"operator.read", "operator.write", "operator.approvals"}),
        (Role.CHILD, {"operator.read", "operator.write"}),
    ],
)
async def test_a_personal_token_is_that_person(
    gateway: RunningGateway, field: str, role: Role, greatest: set[str]
) -> None:
    _, token = await person(gateway, role)
    options: dict[str, Any] = {"token": "", field: token}
    async with gateway.client(**options, device=DeviceIdentity.generate()) as client:
        assert set(client.hello["auth"]["scopes"]) == greatest
        await client.call("sessions.list", {})
        if role is not Role.ADMIN:
            with pytest.raises(Refused, match=r"^missing scope: operator.admin$"):
                await client.call("system-event", {"text": "x"})


async def test_browsers_are_limited_even_here(tmp_path: Path) -> None:
    toml = "[gateway.limits]\nauth_attempts = 3\n"
    async with running_gateway(tmp_path / "home", toml=toml) as gateway:
        for _ in range(20):  # not a browser: never locked out on this machine
            async with challenged(gateway) as (client, _):
                error, _, _ = await refused(client, connect_params(token="wrong"))
                assert error is not None
                assert error["details"]["code"] == "AUTH_TOKEN_MISMATCH"
        codes = []
        for token in ["wrong"] * 3 + [gateway.token]:
            async with challenged(gateway, LOOPBACK_PAGE) as (client, _):
                error, _, reason = await refused(client, connect_params(token=token))
                assert error is not None
                codes.append(error["details"]["code"])
        assert codes == ["AUTH_TOKEN_MISMATCH"] * 3 + ["AUTH_RATE_LIMITED"]
        assert reason == "unauthorized: too many failed authentication attempts (retry later)"
        async with gateway.client() as client:
            assert client.hello


# Time.


async def test_who_says_nothing_is_closed(tmp_path: Path) -> None:
    toml = "[gateway.limits]\nhandshake_timeout_s = 0.2\n"
    async with (
        running_gateway(tmp_path / "home", toml=toml) as gateway,
        gateway.client() as ready,
        challenged(gateway) as (silent, _),
        open_raw(gateway.url) as half,
        open_tcp(gateway.url) as mute,
        open_tcp(gateway.url) as dripping,
    ):
        dripping.write(upgrade_request(gateway.url)[:-2])
        await half.send(frame(request("connect"))[:10])
        assert await silent.closed() == (1000, "")
        assert len(silent.frames) == 1
        assert await half.read_close() == (1000, "")
        assert await mute.read_to_end() == await dripping.read_to_end() == b""
        assert (await ready.call("health"))["ok"]  # the deadline is the handshake's alone


# Scopes and methods.


async def test_health_needs_no_scope(gateway: RunningGateway) -> None:
    async with gateway.client(scopes=[]) as client:
        assert (await client.call("health"))["ok"]
        with pytest.raises(Refused, match=r"^missing scope: operator.read$"):
            await client.call("sessions.list", {})


async def test_unknown_methods(gateway: RunningGateway) -> None:
    async with gateway.client() as admin, gateway.client(scopes=["operator.write"]) as writer:
        with pytest.raises(Refused, match=r"^unknown method: nope$") as caught:
            await admin.call("nope", {"any": "thing"})
        assert caught.value.error["code"] == "INVALID_REQUEST"
        with pytest.raises(Refused, match=r"^missing scope: operator.admin$"):
            await writer.call("nope")


async def test_the_eleventh_unauthorized_role_closes(gateway: RunningGateway) -> None:
    async with gateway.client() as client:
        for _ in range(10):
            with pytest.raises(Refused, match=r"^unauthorized role: operator$"):
                await client.call("skills.bins", {})
        await client.send_frame("skills.bins", {}, request_id="last")
        assert (await client.response("last"))["error"]["message"] == "unauthorized role: operator"
        assert await client.closed() == (1008, "repeated unauthorized calls")


@pytest.mark.parametrize("between", ["health", "nope"])
async def test_only_consecutive_refusals_count(gateway: RunningGateway, between: str) -> None:
    async with gateway.client() as client:
        for number in range(25):
            method = between if number % 10 == 9 else "skills.bins"
            await client.response(await client.send_frame(method, {}))
        assert (await client.call("health"))["ok"]


async def test_nodes_may_call_little(gateway: RunningGateway) -> None:
    options: dict[str, Any] = {"role": "node", "client_id": "node-host", "mode": "node", "scopes": []}
    async with gateway.client(device=DeviceIdentity.generate(), **options) as node:
        assert (await node.call("health"))["ok"]
        for method in ("sessions.list", "chat.send", "nope"):
            with pytest.raises(Refused, match=r"^unauthorized role: node$"):
                await node.call(method, {})
