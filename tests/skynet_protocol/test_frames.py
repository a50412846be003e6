"""Any bytes are a request or a violation; whatever goes out is valid JSON."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from skynet_protocol.errors import ErrorShape
from skynet_protocol.frames import (
    MAX_DEPTH,
    EncodedEvent,
    Request,
    StateVersion,
    Violation,
    ViolationKind,
    encode_error,
    encode_response,
    parse_request,
)


def violation(data: bytes) -> Violation:
    result = parse_request(data)
    assert isinstance(result, Violation), result
    return result


def request(data: bytes) -> Request:
    result = parse_request(data)
    assert isinstance(result, Request), result
    return result


def test_a_request():
    parsed = request(b'{"type":"req","id":"7","method":"health","params":{"probe":true}}')
    assert (parsed.id, parsed.method) == ("7", "health")
    assert parsed.params is not None
    assert bytes(parsed.params) == b'{"probe":true}'


def test_params_may_be_absent_or_anything():
    assert request(b'{"type":"req","id":"7","method":"health"}').params is None
    for value in (b"null", b"[]", b'"x"', b"5", b'{"a":{"b":[1]}}'):
        parsed = request(b'{"type":"req","id":"7","method":"x","params":' + value + b"}")
        assert parsed.params is not None
        assert bytes(parsed.params) == value


def test_key_order_and_white_space_do_not_matter():
    assert request(b' {\n "params" : { } , "method":"m","id":"\\u0061", "type":"req" }\r\n').id == "a"


def test_of_duplicate_keys_the_last_counts_as_in_javascript():
    assert request(b'{"type":"res","type":"req","id":"1","id":"2","method":"a","method":"b"}') == Request("2", "b")


def test_brackets_in_text_are_no_nesting():
    deep = json.dumps({"type": "req", "id": "1", "method": "m", "params": '"[{' * 1000 + '\\"'}).encode()
    assert request(deep).method == "m"


def test_text_with_many_escapes_and_brackets_behind_it():
    text = b'{"type":"req","id":"1","method":"m","params":["' + b'\\n\\"[' * 200_000 + b'",' + b"[]," * 300 + b"0]}"
    request(text)


def test_nesting_is_limited_exactly():
    def frame(levels: int) -> bytes:
        return b'{"type":"req","id":"1","method":"m","params":' + b"[" * levels + b"]" * levels + b"}"

    request(frame(MAX_DEPTH - 1))
    for levels in (MAX_DEPTH, 900, 10_000, 1_000_000):
        assert violation(frame(levels)).kind is ViolationKind.NOT_JSON
    wide = b'{"type":"req","id":"1","method":"m","params":[' + b"[]," * 10_000 + b"[]]}"
    request(wide)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"hello",
        b"{",
        b'{"type":"req"',
        b'{"type":"req","id":"1","method":"m"} x',
        b"{'type':'req'}",
        b'{"type":"req","id":"1","method":"m",}',
        b'{"type":"req","id":"1","method":"m","params":NaN}',
        b'{"type":"req","id":"1","method":"m","params":[Infinity]}',
        b'{"type":"req","id":"1","method":"m","params":-Infinity}',
        b'{"type":"req","id":"1","method":"m","params":01}',
        b'{"type":"req","id":"1","method":"m","params":"\xff"}',
        b'{"type":"req","id":"\xed\xa0\x80","method":"m"}',
        b'{"type":"req","id":"1","method":"m","params":"\\ud800"}',
        b'{"type":"req","id":"\\udc00x","method":"m"}',
        b'{"type":"req","id":"1","method":"m","params":"\x01"}',
        b"\xef\xbb\xbf{}",
        b"\x00",
        b"\x81\xa1a\x01",
        b"[" * 10_000,
        b'{"a":' * 10_000,
    ],
)
def test_what_is_no_json(data):
    found = violation(data)
    assert found.kind is ViolationKind.NOT_JSON
    assert found.id == "invalid"
    assert found.message


@pytest.mark.parametrize("data", [b"[]", b"5", b'"req"', b"null", b"true", b"-1.5e3", b"[{}]"])
def test_what_is_no_object(data):
    found = violation(data)
    assert (found.kind, found.id) == (ViolationKind.NOT_OBJECT, "invalid")
    assert found.message == "invalid request frame: must be object"


TYPE, ID, METHOD = (f"must have required property '{name}'" for name in ("type", "id", "method"))


@pytest.mark.parametrize(
    ("frame", "frame_id", "problems"),
    [
        ({}, "invalid", f"{TYPE}; {ID}; {METHOD}"),
        ({"type": "req", "id": "1"}, "1", METHOD),
        ({"type": "req", "method": "m"}, "invalid", ID),
        ({"id": "1", "method": "m"}, "1", TYPE),
        ({"type": "res", "id": "1", "method": "m"}, "1", "at /type: must be equal to constant"),
        (
            {"type": 5, "id": "1", "method": "m"},
            "1",
            "at /type: must be string; at /type: must be equal to constant",
        ),
        ({"type": "req", "id": 5, "method": "m"}, "invalid", "at /id: must be string"),
        ({"type": "req", "id": None, "method": "m"}, "invalid", "at /id: must be string"),
        ({"type": "req", "id": "", "method": "m"}, "invalid", "at /id: must NOT have fewer than 1 characters"),
        ({"type": "req", "id": "1", "method": ""}, "1", "at /method: must NOT have fewer than 1 characters"),
        ({"type": "req", "id": "1", "method": ["m"]}, "1", "at /method: must be string"),
        ({"type": "req", "id": "1", "method": "m", "extra": 1}, "1", "at root: unexpected property 'extra'"),
        ({"type": "req", "id": "1", "method": "m", "seq": 1}, "1", "at root: unexpected property 'seq'"),
        (
            {"type": "res", "id": "", "x": 1},
            "invalid",
            f"{METHOD}; at root: unexpected property 'x'; at /type: must be equal to constant;"
            " at /id: must NOT have fewer than 1 characters",
        ),
    ],
)
def test_objects_that_are_no_request(frame, frame_id, problems):
    found = violation(json.dumps(frame).encode())
    assert found == Violation(ViolationKind.INVALID_FRAME, frame_id, f"invalid request frame: {problems}")


def test_a_violations_message_does_not_grow_with_the_frame():
    many = {f"{number}" + "x" * 1000: 1 for number in range(1000)}
    assert len(violation(json.dumps(many).encode()).message) < 3000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(), children, max_size=5),
    max_leaves=20,
)
keys = st.sampled_from(["type", "id", "method", "params", "ok", "payload", "seq"]) | st.text(max_size=4)
values = st.sampled_from(["req", "res", "1", "health", "", None, 1e999]) | json_values


def check(data: bytes) -> None:
    result = parse_request(data)
    if isinstance(result, Request):
        parsed = json.loads(data)
        assert set(parsed) <= {"type", "id", "method", "params"}
        assert (parsed["type"], parsed["id"], parsed["method"]) == ("req", result.id, result.method)
        assert result.id
        assert result.method
        assert (result.params is None) == ("params" not in parsed)
    else:
        assert result.id
        assert result.message
        assert not result.message.endswith(": ")


@given(st.binary())
def test_any_bytes_are_a_request_or_a_violation(data):
    check(data)


@given(json_values)
def test_any_json_is_a_request_or_a_violation(value):
    check(json.dumps(value).encode())


@given(st.dictionaries(keys, values), st.booleans())
def test_any_object_is_a_request_or_a_violation(frame, ascii_only):
    check(json.dumps(frame, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))


VALID = (
    '{"type":"req","id":"7é","method":"chat.send","params":{"message":"hi [1] \\"x\\" 🦞","n":[1,2.5,null]}}'.encode()
)


@given(
    st.lists(st.tuples(st.integers(0, len(VALID)), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=4)
)
def test_a_mutated_frame_is_a_request_or_a_violation(edits):
    data = VALID
    for position, removed, inserted in edits:
        data = data[:position] + inserted + data[position + removed :]
    check(data)


@pytest.mark.parametrize(
    ("payload", "encoded"),
    [
        (None, "null"),
        ({}, "{}"),
        ([1, "é"], '[1,"é"]'),
        (Raw(b'{"ok":true}'), '{"ok":true}'),
        (StateVersion(presence=1, health=2), '{"presence":1,"health":2}'),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_responses(payload, encoded):
    assert encode_response("7", payload).decode() == f'{{"type":"res","id":"7","ok":true,"payload":{encoded}}}'


def test_errors_carry_no_payload_unless_given_one():
    error = ErrorShape(code="UNAVAILABLE", message="Error: x")
    assert (
        encode_error("7", error) == b'{"type":"res","id":"7","ok":false,"error":'
        b'{"code":"UNAVAILABLE","message":"Error: x"}}'
    )
    assert json.loads(encode_error("7", error, {"runId": "r", "status": "error"})) == {
        "type": "res",
        "id": "7",
        "ok": False,
        "payload": {"runId": "r", "status": "error"},
        "error": {"code": "UNAVAILABLE", "message": "Error: x"},
    }
    assert json.loads(encode_error("7", error, Raw(b"[1]")))["payload"] == [1]
    assert json.loads(encode_error("7", error, None))["payload"] is None


def test_an_event_differs_between_connections_in_its_seq_alone():
    event = EncodedEvent("tick", {"ts": 5})
    assert event.event == "tick"
    assert event.with_seq(1) == b'{"type":"event","event":"tick","payload":{"ts":5},"seq":1}'
    assert event.with_seq(12345) == b'{"type":"event","event":"tick","payload":{"ts":5},"seq":12345}'
    assert event.with_seq(None) == b'{"type":"event","event":"tick","payload":{"ts":5}}'


def test_an_event_with_a_state_version():
    event = EncodedEvent("health", Raw(b"{}"), state_version=StateVersion(presence=3, health=9))
    assert json.loads(event.with_seq(4)) == {
        "type": "event",
        "event": "health",
        "payload": {},
        "seq": 4,
        "stateVersion": {"presence": 3, "health": 9},
    }
    assert "seq" not in json.loads(event.with_seq(None))


def test_an_event_with_null_and_without_a_payload():
    assert EncodedEvent("x", None).with_seq(None) == b'{"type":"event","event":"x","payload":null}'
    assert EncodedEvent("x", UNSET).with_seq(1) == b'{"type":"event","event":"x","seq":1}'


def test_lone_surrogates_become_replacement_characters():
    class Part(msgspec.Struct):
        text: str
        raw: Raw

    payload = {"a\ud800": ["x\udfffy", ("z",), 1], "pair": "\ud83e\udd9e", "part": Part("\udc00", Raw(b'{"n":1}'))}
    assert json.loads(encode_response("i\ud800", payload)) == {
        "type": "res",
        "id": "i\ufffd",
        "ok": True,
        "payload": {"a\ufffd": ["x\ufffdy", ["z"], 1], "pair": "🦞", "part": {"text": "\ufffd", "raw": {"n": 1}}},
    }


def test_what_cannot_be_encoded_is_a_bug_and_raises():
    with pytest.raises(TypeError):
        encode_response("1", object())
    with pytest.raises(TypeError, match="cannot encode object"):
        encode_response("1", ["\ud800", object()])


any_text = st.text(st.characters(exclude_categories=[]))


@given(
    any_text, st.recursive(st.none() | st.integers() | any_text, lambda c: st.dictionaries(any_text, c) | st.lists(c))
)
def test_whatever_goes_out_is_valid_json(text, payload):
    def decode(data: bytes) -> Any:
        return json.loads(data.decode("utf-8"))

    def clean(value: str) -> bool:
        return not any("\ud800" <= character <= "\udfff" for character in value)

    response = decode(encode_response(text, payload))
    assert set(response) == {"type", "id", "ok", "payload"}
    error = decode(encode_error(text, ErrorShape(code="X", message=text, details=payload)))
    assert set(error) == {"type", "id", "ok", "error"}
    event = decode(EncodedEvent(text, payload).with_seq(7))
    assert set(event) == {"type", "event", "payload", "seq"}
    if clean(text):
        assert response["id"] == error["error"]["message"] == event["event"] == text
    else:
        assert clean(response["id"])
