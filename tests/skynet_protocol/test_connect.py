"""The connect request: strict at every level, refused in the order of OPENCLAW-V3 2.3; and hello-ok."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from skynet_protocol.connect import (
    ClientInfo,
    ConnectAuth,
    ConnectParams,
    Features,
    HelloAuth,
    HelloOk,
    Policy,
    ServerInfo,
    SessionDefaults,
    Snapshot,
    UpdateAvailable,
    client_kind,
    is_cli,
    is_control_ui,
    is_webchat,
    read_connect,
    refuse_frame,
)
from skynet_protocol.errors import Refusal
from skynet_protocol.frames import Request, StateVersion, Violation, parse_request

CLIENT = {"id": "cli", "version": "dev", "platform": "linux", "mode": "cli"}
MINIMAL: dict[str, Any] = {"minProtocol": 3, "maxProtocol": 3, "client": CLIENT}
DEVICE = {"id": "d", "publicKey": "k", "signature": "s", "signedAt": 1, "nonce": "n"}


def connect(params: object, method: str = "connect") -> ConnectParams:
    return read_connect(Request("1", method, Raw(json.dumps(params).encode())))


def refusal(params: object, method: str = "connect") -> Refusal:
    with pytest.raises(Refusal) as caught:
        connect(params, method)
    return caught.value


def test_the_least_that_connects_has_nothing_implied():
    params = connect(MINIMAL)
    assert params.role == "operator"
    assert params.scopes == params.caps == params.commands == ()
    assert params.device is UNSET
    assert params.auth == ConnectAuth()
    assert (params.client.device_family, params.client.instance_id) == ("", "")


def test_everything_there_is():
    params = connect(
        {
            "minProtocol": 1,
            "maxProtocol": 9,
            "client": {
                **CLIENT,
                "displayName": "d",
                "deviceFamily": "f",
                "modelIdentifier": "m",
                "instanceId": "i",
            },
            "role": "node",
            "scopes": ["operator.read", "x"],
            "caps": ["system"],
            "commands": ["system.run"],
            "permissions": {"camera": True},
            "pathEnv": "/bin",
            "device": DEVICE,
            "auth": {"token": "t", "deviceToken": "d", "password": "p", "mode": "token"},
            "locale": "en",
            "userAgent": "u",
        }
    )
    assert params.client.model_identifier == "m"
    assert params.scopes == ("operator.read", "x")
    assert params.permissions == {"camera": True}
    assert params.device is not UNSET
    assert params.device.public_key == "k"
    assert (params.auth.token, params.auth.device_token, params.auth.password) == ("t", "d", "p")


def test_our_own_client_writes_what_the_gateway_reads():
    params = ConnectParams(
        min_protocol=3,
        max_protocol=3,
        client=ClientInfo(id="cli", version="1", platform="linux", mode="cli"),
        scopes=("operator.read",),
        auth=ConnectAuth(token="t"),
    )
    encoded = msgspec.json.encode(params)
    assert json.loads(encoded) == {
        **MINIMAL,
        "client": {**CLIENT, "version": "1"},
        "scopes": ["operator.read"],
        "auth": {"token": "t"},
    }
    assert read_connect(Request("1", "connect", Raw(encoded))) == params


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"foo": 1}, "at root: unexpected property 'foo'"),
        ({"client": {**CLIENT, "foo": 1}}, "at /client: unexpected property 'foo'"),
        ({"device": {**DEVICE, "foo": 1}}, "at /device: unexpected property 'foo'"),
        ({"auth": {"foo": 1}}, "at /auth: unexpected property 'foo'"),
        (
            {"client": {**CLIENT, "id": "z"}},
            "at /client/id: must be equal to constant; at /client/id: must match a schema in anyOf",
        ),
        (
            {"client": {**CLIENT, "mode": "z"}},
            "at /client/mode: must be equal to constant; at /client/mode: must match a schema in anyOf",
        ),
        ({"client": {**CLIENT, "version": ""}}, "at /client/version: must NOT have fewer than 1 characters"),
        ({"client": {**CLIENT, "displayName": ""}}, "at /client/displayName: must NOT have fewer than 1 characters"),
        ({"client": []}, "at /client: must be object"),
        ({"minProtocol": 0}, "at /minProtocol: must be >= 1"),
        ({"maxProtocol": 3.5}, "at /maxProtocol: must be integer"),
        ({"scopes": ["a", ""]}, "at /scopes/1: must NOT have fewer than 1 characters"),
        ({"scopes": "operator.read"}, "at /scopes: must be array"),
        ({"role": ""}, "at /role: must NOT have fewer than 1 characters"),
        ({"device": None}, "at /device: must be object"),
        ({"device": {}}, "at /device: must have required property 'id'"),
        ({"device": {**DEVICE, "signedAt": "1"}}, "at /device/signedAt: must be integer"),
        ({"auth": None}, "at /auth: must be object"),
        ({"auth": {"token": 5}}, "at /auth/token: must be string"),
        ({"permissions": {"a": 1}}, "at /permissions/*: must be boolean"),
        ({"locale": None}, "at /locale: must be string"),
    ],
)
def test_bad_params(change, problem):
    refused = refusal(MINIMAL | change)
    message = f"invalid connect params: {problem}"
    assert refused.error is not None
    assert (refused.error.code, refused.error.message) == ("INVALID_REQUEST", message)
    assert (refused.close_code, refused.close_reason) == (1008, message[:120])


def test_no_params_at_all():
    with pytest.raises(Refusal, match="invalid connect params: must have required property 'minProtocol'"):
        read_connect(Request("1", "connect"))


@pytest.mark.parametrize(("least", "most"), [(4, 4), (1, 2), (99, 99), (4, 3)])
def test_no_common_protocol(least, most):
    refused = refusal(MINIMAL | {"minProtocol": least, "maxProtocol": most, "role": "guest"})
    assert (refused.close_code, refused.close_reason) == (1002, "protocol mismatch")


def test_no_such_role():
    assert refusal(MINIMAL | {"role": "guest"}).close_reason == "invalid role"
    assert connect(MINIMAL | {"role": "node"}).role == "node"


def test_another_method_comes_before_its_params():
    refused = refusal({"bad": 1}, method="health")
    assert refused.close_reason == "invalid handshake: first request must be connect"


@pytest.mark.parametrize(
    ("data", "close"),
    [
        (b"hello", (1000, "")),
        (b"\xff", (1000, "")),
        (b"[]", (1008, "invalid request frame")),
        (b'{"type":"event"}', (1008, "invalid request frame")),
    ],
)
def test_first_frames_that_are_no_request(data, close):
    violation = parse_request(data)
    assert isinstance(violation, Violation)
    refused = refuse_frame(violation)
    assert refused.error is None
    assert (refused.close_code, refused.close_reason) == close


@pytest.mark.parametrize(
    ("client_id", "mode", "webchat", "cli", "kind"),
    [
        ("cli", "cli", False, True, "cli"),
        ("gateway-client", "ui", False, False, "other"),
        ("openclaw-control-ui", "webchat", True, False, "browser"),
        ("openclaw-control-ui", "ui", False, False, "browser"),
        ("webchat-ui", "ui", True, False, "browser"),
        ("webchat", "webchat", True, False, "browser"),
        ("cli", "probe", False, False, "other"),
        ("node-host", "node", False, False, "other"),
    ],
)
def test_kinds_of_clients(client_id, mode, webchat, cli, kind):
    client = connect(MINIMAL | {"client": {**CLIENT, "id": client_id, "mode": mode}}).client
    assert (is_webchat(client), is_cli(client), client_kind(client)) == (webchat, cli, kind)
    assert is_control_ui(client) == (client_id == "openclaw-control-ui")


def test_secrets_are_not_in_representations():
    params = connect(MINIMAL | {"auth": {"token": "s3cret", "deviceToken": "s3cret", "password": "s3cret"}})
    assert "s3cret" not in repr(params)
    assert repr(params.auth) == "ConnectAuth(token=***, device_token=***, password=***)"
    assert "s3cret" not in repr(HelloAuth(device_token="s3cret", role="operator", scopes=[]))


def test_the_least_hello():
    hello = HelloOk(
        protocol=3,
        server=ServerInfo(version="1", conn_id="c"),
        features=Features(methods=("health",), events=("tick",)),
        snapshot=Snapshot(presence=[], health={}, state_version=StateVersion(presence=1, health=1), uptime_ms=5),
        policy=Policy(max_payload=1, max_buffered_bytes=2, tick_interval_ms=3),
    )
    assert json.loads(msgspec.json.encode(hello)) == {
        "type": "hello-ok",
        "protocol": 3,
        "server": {"version": "1", "connId": "c"},
        "features": {"methods": ["health"], "events": ["tick"]},
        "snapshot": {"presence": [], "health": {}, "stateVersion": {"presence": 1, "health": 1}, "uptimeMs": 5},
        "policy": {"maxPayload": 1, "maxBufferedBytes": 2, "tickIntervalMs": 3},
    }


def test_a_full_hello():
    hello = HelloOk(
        protocol=3,
        server=ServerInfo(version="1", conn_id="c"),
        features=Features(methods=(), events=()),
        snapshot=Snapshot(
            presence=Raw(b'[{"ts":1}]'),
            health=Raw(b'{"ok":true}'),
            state_version=StateVersion(presence=1, health=1),
            uptime_ms=5,
            config_path="/c",
            state_dir="/s",
            session_defaults=SessionDefaults(
                default_agent_id="main", main_key="main", main_session_key="agent:main:main", scope="per-sender"
            ),
            auth_mode="token",
            update_available=UpdateAvailable(current_version="1", latest_version="2", channel="latest"),
        ),
        policy=Policy(max_payload=1, max_buffered_bytes=2, tick_interval_ms=3),
        canvas_host_url="http://127.0.0.1:1",
        auth=HelloAuth(device_token="t", role="operator", scopes=("operator.read",), issued_at_ms=9),
    )
    encoded = json.loads(msgspec.json.encode(hello))
    assert encoded["auth"] == {"deviceToken": "t", "role": "operator", "scopes": ["operator.read"], "issuedAtMs": 9}
    assert encoded["canvasHostUrl"] == "http://127.0.0.1:1"
    assert encoded["snapshot"] == {
        "presence": [{"ts": 1}],
        "health": {"ok": True},
        "stateVersion": {"presence": 1, "health": 1},
        "uptimeMs": 5,
        "configPath": "/c",
        "stateDir": "/s",
        "sessionDefaults": {
            "defaultAgentId": "main",
            "mainKey": "main",
            "mainSessionKey": "agent:main:main",
            "scope": "per-sender",
        },
        "authMode": "token",
        "updateAvailable": {"currentVersion": "1", "latestVersion": "2", "channel": "latest"},
    }
