"""Wire compatibility: frames of real OpenClaw clients and gateways, read and written as they were seen (SK-030)."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from skynet_protocol import agent, chat, connect, events, methods
from skynet_protocol.device import verify_device
from skynet_protocol.errors import ErrorShape, Refusal, RequestError
from skynet_protocol.frames import EncodedEvent, Request, encode_error, encode_response, parse_request
from skynet_protocol.params import decode_params

# the first frame of `openclaw health`, with a device key made for the recording
HEALTH_CONNECT = rb"""{"type":"req","id":"56463951-d3cf-4b95-8984-2496a4f90cb2","method":"connect","params":{
"minProtocol":3,"maxProtocol":3,"client":{"id":"gateway-client","version":"dev","platform":"linux","mode":"backend",
"instanceId":"ac5cca72-0174-4db6-808a-800787f16482"},"caps":[],"auth":{"token":"tok"},"role":"operator",
"scopes":["operator.read"],"device":{
"id":"b4155522bf7ebf5b2d1f943ab4f7c844776574952247386d797939e3ab020fe4",
"publicKey":"c68LtLEbA_3XGxmCg5R3LKH47e37WWdZz01-7WpEk6g",
"signature":"YgMFvAjPe1I82c7suA926CQiPBoR99s8Yv908_a8GFDGbPdMqQ6-6hhBadhX62Rb_zfMvmoTwc2uNs_-OcxaAw",
"signedAt":1795223978455,"nonce":"f9ce1005-63c4-44a1-978b-b7667b0b8c70"}}}"""

# the terminal client of 2026.2.26
TUI_CONNECT = rb"""{"type":"req","id":"d9e0bd4c-027a-48e7-b003-38563d9a9029","method":"connect","params":{
"minProtocol":3,"maxProtocol":3,"client":{"id":"gateway-client","displayName":"openclaw-tui","version":"2026.2.26",
"platform":"linux","mode":"ui","instanceId":"3b1a42b8-69bf-48b2-ab11-46d3ce672728"},"caps":["tool-events"],
"auth":{"token":"tok"},"role":"operator","scopes":["operator.admin"],"device":{
"id":"b4155522bf7ebf5b2d1f943ab4f7c844776574952247386d797939e3ab020fe4",
"publicKey":"c68LtLEbA_3XGxmCg5R3LKH47e37WWdZz01-7WpEk6g",
"signature":"WnVONyhRFYot50anHYYQztDuvZ1p_MW7so289v0cYqur8D_daD_oTbk1XYXvHqXw_TVq2cBHmwcQChjXfu_eDg",
"signedAt":1795224056227,"nonce":"0c11d5d3-8cfe-4720-a2bf-4e6acb3bd2d4"}}}"""

# the node host
NODE_CONNECT = rb"""{"type":"req","id":"a1ae4f01-3d00-4cbc-a5f6-29cd39b0374a","method":"connect","params":{
"minProtocol":3,"maxProtocol":3,"client":{"id":"node-host","displayName":"vm","version":"2026.2.26",
"platform":"linux","mode":"node","instanceId":"71dfd984-b2bb-4a9f-90a4-9770387a57cb"},"caps":["system","browser"],
"commands":["system.run.prepare","system.run","system.which","system.execApprovals.get","system.execApprovals.set",
"browser.proxy"],"pathEnv":"/usr/bin:/bin","auth":{"token":"tok"},"role":"node","scopes":[],"device":{
"id":"b4155522bf7ebf5b2d1f943ab4f7c844776574952247386d797939e3ab020fe4",
"publicKey":"c68LtLEbA_3XGxmCg5R3LKH47e37WWdZz01-7WpEk6g",
"signature":"O3qoc2LSlncoILX6HN7xIrD9fYzSiOimUHqLS2TVQsnJpqyjjwqJ7URlP6IIPBAM_AyErLhG-qaykCpKvzofAA",
"signedAt":1795224973771,"nonce":"189792f5-a251-4e47-9b2c-ed744b5d2f5b"}}}"""

# a client of another implementation that asked for a protocol to come
FUTURE_CONNECT = rb"""{"type":"req","id":"1795225027621-ejbcqa","method":"connect","params":{"minProtocol":4,
"maxProtocol":4,"client":{"id":"gateway-client","version":"0.3.0","platform":"linux","mode":"backend"},
"role":"operator","scopes":["operator.read","operator.write"],"caps":[],"commands":[],"permissions":{},
"auth":{"token":"tok"},"locale":"en-US","userAgent":"openclaw-node/0.2.1"}}"""


def request(data: bytes) -> Request:
    parsed = parse_request(data)
    assert isinstance(parsed, Request), parsed
    return parsed


def read(data: bytes, params: type[Any]) -> Any:
    parsed = request(data)
    return decode_params(parsed.params, msgspec.json.Decoder(params), parsed.method)


def plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("frame", [HEALTH_CONNECT, TUI_CONNECT, NODE_CONNECT], ids=["cli", "tui", "node"])
def test_wire_connect_of_real_clients_proves_its_device(frame):
    params = connect.read_connect(request(frame))
    assert params.device is not UNSET
    verified = verify_device(params, nonce=params.device.nonce, now_ms=params.device.signed_at + 20)
    assert verified.payload_version == 3
    assert verified.device_id == "b4155522bf7ebf5b2d1f943ab4f7c844776574952247386d797939e3ab020fe4"
    assert connect.client_kind(params.client) == "other"
    defaults = {"role": "operator", "scopes": [], "caps": []}
    assert defaults | plain(params) == defaults | json.loads(frame)["params"]


def test_wire_connect_with_one_changed_byte_does_not_verify():
    params = connect.read_connect(request(HEALTH_CONNECT.replace(b'"operator.read"', b'"operator.admin"')))
    assert params.device is not UNSET
    with pytest.raises(Refusal, match="device signature invalid"):
        verify_device(params, nonce=params.device.nonce, now_ms=params.device.signed_at)


def test_wire_protocol_mismatch_is_answered_as_openclaw_does():
    parsed = request(FUTURE_CONNECT)
    with pytest.raises(Refusal) as caught:
        connect.read_connect(parsed)
    assert caught.value.error is not None
    assert json.loads(encode_error(parsed.id, caught.value.error)) == {
        "type": "res",
        "id": "1795225027621-ejbcqa",
        "ok": False,
        "error": {
            "code": "INVALID_REQUEST",
            "message": "protocol mismatch",
            "details": {"expectedProtocol": 3},
        },
    }
    assert (caught.value.close_code, caught.value.close_reason) == (1002, "protocol mismatch")


def test_wire_pairing_required_is_answered_as_openclaw_does():
    refusal = Refusal.pairing_required("59d0c301-8f71-45b8-8d6b-64ef1f1bbe11", "role-upgrade")
    assert refusal.error is not None
    assert encode_error("a1ae4f01", refusal.error) == (
        b'{"type":"res","id":"a1ae4f01","ok":false,"error":{"code":"NOT_PAIRED","message":"pairing required",'
        b'"details":{"code":"PAIRING_REQUIRED","requestId":"59d0c301-8f71-45b8-8d6b-64ef1f1bbe11",'
        b'"reason":"role-upgrade"}}}'
    )


def test_wire_challenge_has_no_seq():
    payload = events.ConnectChallenge(nonce="f9ce1005-63c4-44a1-978b-b7667b0b8c70", ts=1795223978452)
    assert EncodedEvent("connect.challenge", payload).with_seq(None) == (
        b'{"type":"event","event":"connect.challenge","payload":'
        b'{"nonce":"f9ce1005-63c4-44a1-978b-b7667b0b8c70","ts":1795223978452}}'
    )


def test_wire_hello_has_every_key_that_clients_read():
    hello = connect.HelloOk(
        protocol=3,
        server=connect.ServerInfo(version="1", conn_id="8e3f83f5"),
        features=connect.Features(methods=methods.LISTED_METHODS, events=events.EVENTS),
        snapshot=connect.Snapshot(
            presence=(), health=Raw(b"{}"), state_version=connect.StateVersion(presence=2, health=2), uptime_ms=1
        ),
        policy=connect.Policy(max_payload=26214400, max_buffered_bytes=8388608, tick_interval_ms=30000),
        auth=connect.HelloAuth(device_token="t", role="operator", scopes=("operator.read",), issued_at_ms=5),
    )
    frame = json.loads(encode_response("56463951", hello))
    assert set(frame) == {"type", "id", "ok", "payload"}
    payload = frame["payload"]
    assert payload["type"] == "hello-ok"
    assert payload["features"]["methods"][:3] == ["health", "doctor.memory.status", "logs.tail"]
    assert payload["features"]["events"][:3] == ["connect.challenge", "agent", "chat"]
    assert payload["policy"] == {"maxPayload": 26214400, "maxBufferedBytes": 8388608, "tickIntervalMs": 30000}
    assert payload["auth"]["issuedAtMs"] == 5


def test_wire_health_without_params():
    parsed = request(b'{"type":"req","id":"f848d847-8378-4fd8-ac89-2638a4a23e2d","method":"health"}')
    assert (parsed.method, parsed.params) == ("health", None)


def test_wire_null_payload_is_there():
    assert encode_response("0f772684", None) == b'{"type":"res","id":"0f772684","ok":true,"payload":null}'


def test_wire_chat_send_of_the_terminal_client():
    params = read(
        b'{"type":"req","id":"cae419b9","method":"chat.send","params":{"sessionKey":"agent:main:main",'
        b'"message":"tokens=8 gap=50","deliver":false,"idempotencyKey":"715b7ab2-e15e-4028-81f7-a8a6fc3f12c2"}}',
        chat.ChatSendParams,
    )
    assert (params.session_key, params.message) == ("agent:main:main", "tokens=8 gap=50")
    result = chat.ChatSendResult(run_id=params.idempotency_key, status="started")
    assert encode_response("cae419b9", result) == (
        b'{"type":"res","id":"cae419b9","ok":true,"payload":'
        b'{"runId":"715b7ab2-e15e-4028-81f7-a8a6fc3f12c2","status":"started"}}'
    )


def test_wire_agent_call_and_its_two_answers():
    params = read(
        b'{"type":"req","id":"ff063359","method":"agent","params":{"message":"tokens=5","agentId":"main",'
        b'"sessionKey":"agent:main:main","deliver":false,"timeout":600,'
        b'"idempotencyKey":"db08f359-97eb-40d0-9263-686b4e7fcb97"}}',
        agent.AgentParams,
    )
    assert (params.timeout, params.agent_id) == (600, "main")
    accepted = agent.AgentAccepted(run_id=params.idempotency_key, accepted_at=1795224008481, status="accepted")
    assert json.loads(encode_response("ff063359", accepted))["payload"] == {
        "runId": "db08f359-97eb-40d0-9263-686b4e7fcb97",
        "status": "accepted",
        "acceptedAt": 1795224008481,
    }


RUN = "db08f359-97eb-40d0-9263-686b4e7fcb97"
KEY = "agent:main:main"


@pytest.mark.parametrize(
    ("seen", "ours"),
    [
        (
            {
                "type": "event",
                "event": "agent",
                "payload": {
                    "runId": RUN,
                    "stream": "lifecycle",
                    "data": {"phase": "start", "startedAt": 1795224008640},
                    "sessionKey": KEY,
                    "seq": 1,
                    "ts": 1795224008640,
                },
                "seq": 30,
            },
            events.AgentEvent(
                run_id=RUN,
                seq=1,
                stream="lifecycle",
                ts=1795224008640,
                data=events.LifecycleStart(started_at=1795224008640),
                session_key=KEY,
            ),
        ),
        (
            {
                "type": "event",
                "event": "agent",
                "payload": {
                    "runId": RUN,
                    "stream": "assistant",
                    "data": {"text": "w0", "delta": "w0"},
                    "seq": 2,
                    "ts": 1795224008661,
                },
                "seq": 31,
            },
            events.AgentEvent(
                run_id=RUN,
                seq=2,
                stream="assistant",
                ts=1795224008661,
                data=events.AssistantData(text="w0", delta="w0"),
            ),
        ),
        (
            {
                "type": "event",
                "event": "chat",
                "payload": {
                    "runId": RUN,
                    "sessionKey": KEY,
                    "seq": 2,
                    "state": "delta",
                    "message": {
                        "role": "assistant",
                        "content": [{"type": "text", "text": "w0"}],
                        "timestamp": 1795224008661,
                    },
                },
                "seq": 32,
            },
            events.ChatEvent(
                run_id=RUN,
                session_key=KEY,
                seq=2,
                state="delta",
                message=events.assistant_message("w0", 1795224008661),
            ),
        ),
        (
            {
                "type": "event",
                "event": "chat",
                "payload": {
                    "runId": RUN,
                    "sessionKey": KEY,
                    "seq": 40,
                    "state": "aborted",
                    "stopReason": "rpc",
                },
                "seq": 140,
            },
            events.ChatEvent(run_id=RUN, session_key=KEY, seq=40, state="aborted", stop_reason="rpc"),
        ),
        (
            {"type": "event", "event": "tick", "payload": {"ts": 1795224083788}, "seq": 141},
            events.TickEvent(ts=1795224083788),
        ),
    ],
    ids=["lifecycle", "assistant", "delta", "aborted", "tick"],
)
def test_wire_events_as_seen(seen, ours):
    encoded = EncodedEvent(seen["event"], ours).with_seq(seen["seq"])
    assert json.loads(encoded) == seen
    assert b" " not in encoded


def test_wire_abort():
    params = read(
        b'{"type":"req","id":"34ac2646","method":"chat.abort","params":{"sessionKey":"agent:main:main",'
        b'"runId":"22c6ab7f-58e6-4184-adfa-e9887eef858d"}}',
        chat.ChatAbortParams,
    )
    result = chat.ChatAbortResult(ok=True, aborted=True, run_ids=(params.run_id,))
    assert json.loads(encode_response("34ac2646", result))["payload"] == {
        "ok": True,
        "aborted": True,
        "runIds": ["22c6ab7f-58e6-4184-adfa-e9887eef858d"],
    }


def test_wire_history_of_a_session_that_is_not_there_yet():
    params = read(
        b'{"type":"req","id":"5a499876","method":"chat.history","params":{"sessionKey":"main"}}',
        chat.ChatHistoryParams,
    )
    result = chat.ChatHistoryResult(session_key=params.session_key, messages=(), thinking_level="off")
    assert encode_response("5a499876", result) == (
        b'{"type":"res","id":"5a499876","ok":true,"payload":{"sessionKey":"main","messages":[],"thinkingLevel":"off"}}'
    )


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b'{"type":"req","id":"c5c46b34","method":"nosuch.method","params":{}}', "unknown method: nosuch.method"),
        (
            b'{"type":"req","id":"b135b9bf","method":"agents.list","params":{"foo":1}}',
            "invalid agents.list params: at root: unexpected property 'foo'",
        ),
    ],
)
def test_wire_errors_have_openclaws_texts(frame, message):
    parsed = request(frame)
    with pytest.raises(RequestError) as caught:
        methods.authorize(parsed.method, "operator", ("operator.admin",))
        decode_params(parsed.params, msgspec.json.Decoder(agent.AgentsListParams), parsed.method)
    answer = json.loads(encode_error(parsed.id, caught.value.shape()))
    assert (answer["ok"], answer["error"]["code"], answer["error"]["message"]) == (False, "INVALID_REQUEST", message)


def test_wire_response_has_exactly_the_allowed_keys():
    assert set(json.loads(encode_response("1", {}))) == {"type", "id", "ok", "payload"}
    error = ErrorShape(code="UNAVAILABLE", message="draining", retryable=True, retry_after_ms=5)
    answer = json.loads(encode_error("1", error))
    assert set(answer) == {"type", "id", "ok", "error"}
    assert set(answer["error"]) == {"code", "message", "retryable", "retryAfterMs"}
