"""Frames over a real socket: what is a message, what is answered, what is ignored, what ends the connection."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.client import connect_params
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.polling import until
from tests.support.raw_socket import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    RawSocket,
    close_frame,
    frame,
    header,
    open_raw,
    open_ready,
    open_tcp,
    request,
    upgrade_request,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRAME_LIMIT = 1_000_000
PREAUTH_LIMIT = 65_536
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    toml = f"[gateway.limits]\nframe_bytes = {FRAME_LIMIT}\n"
    async with running_gateway(tmp_path_factory.mktemp("gateway"), toml=toml) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def ready(gateway: RunningGateway) -> AsyncIterator[RawSocket]:
    """A connection past its handshake."""
    async with open_ready(gateway.url, connect_params(token=gateway.token)) as raw:
        yield raw


async def still_answers(raw: RawSocket) -> bool:
    await raw.send(frame(request("health", id="still")))
    return bool((await raw.read_response("still"))["ok"])


async def serves_others(gateway: RunningGateway) -> bool:
    async with gateway.client() as client:
        return bool((await client.call("health"))["ok"])


# The upgrade.


@pytest.mark.parametrize("path", ["/", "/ws", "/x?y=1", "/?token=abc", "/__openclaw__/ws/x", "/v1/chat/completions"])
async def test_any_path_and_query_upgrades(gateway: RunningGateway, path: str) -> None:
    async with open_raw(gateway.url, path) as raw:
        assert (await raw.read_frame()).json()["event"] == "connect.challenge"


@pytest.mark.parametrize("path", ["/__openclaw__/ws", "/__openclaw__/ws?cap=1"])
async def test_the_canvas_socket_is_not_there(gateway: RunningGateway, path: str) -> None:
    async with open_tcp(gateway.url) as raw:
        await raw.send(upgrade_request(gateway.url, path))
        assert (await raw.read_to_end()).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/" + "x" * 9000, {}, b"414"),
        ("/", {"X-Long": "x" * 9000}, b"431"),
        ("/", {f"X-{number}": "y" for number in range(200)}, b"431"),
        ("/", {"Sec-WebSocket-Version": "12"}, b"400"),
        ("/", {"Sec-WebSocket-Key": "short"}, b"400"),
        ("/", {"Content-Length": "5"}, None),
    ],
    ids=["long path", "long header", "many headers", "version", "key", "body"],
)
async def test_a_bad_upgrade_is_answered_and_closed(
    gateway: RunningGateway, path: str, headers: dict[str, str], status: bytes | None
) -> None:
    async with open_tcp(gateway.url) as raw:
        await raw.send(upgrade_request(gateway.url, path, headers))
        answer = await raw.read_to_end(timeout=3)
    assert answer[9:12] == (status or b"")
    await until(lambda: not gateway.server.server_state.connections, "the socket is forgotten")


@pytest.mark.parametrize("endless", [b"X-Long: " + b"x" * 200_000, b"X: y\r\n" * 30_000], ids=["one header", "many"])
async def test_endless_headers_are_refused(gateway: RunningGateway, endless: bytes) -> None:
    async with open_tcp(gateway.url) as raw:
        raw.write(upgrade_request(gateway.url)[:-2])
        raw.write(endless)
        await raw.read_to_end(timeout=3)
    await until(lambda: not gateway.server.server_state.connections, "the socket is forgotten")


async def test_a_request_after_another_is_served(gateway: RunningGateway) -> None:
    async with open_tcp(gateway.url) as raw:
        for _ in range(3):
            raw.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await raw.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await raw.reader.readexactly(int(length.partition(b":")[2]))
        await raw.send(upgrade_request(gateway.url))
        assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert (await raw.read_frame()).json()["event"] == "connect.challenge"


async def test_compression_is_not_negotiated(gateway: RunningGateway) -> None:
    async with open_tcp(gateway.url) as raw:
        offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
        await raw.send(upgrade_request(gateway.url, headers=offer))
        head = await raw.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"sec-websocket-extensions" not in head.lower()


# Messages.


async def test_binary_frames_are_text(ready: RawSocket) -> None:
    await ready.send(frame(request("health", id="b"), opcode=BINARY))
    assert (await ready.read_response("b"))["ok"]


@pytest.mark.parametrize("first", ["text", "binary"])
async def test_a_message_in_many_pieces(ready: RawSocket, first: str) -> None:
    text = request("health", id="pieces-é-🦀").encode()
    pieces = [text[at : at + 1] for at in range(len(text))]  # characters are cut as well
    for number, piece in enumerate(pieces):
        opcode = CONT if number else (BINARY if first == "binary" else 1)
        ready.write(frame(piece, opcode=opcode, fin=number == len(pieces) - 1))
        ready.write(frame(b"", opcode=CONT, fin=False) if number < len(pieces) - 1 else b"")
    assert (await ready.read_response("pieces-é-🦀"))["ok"]


async def test_control_frames_between_pieces(ready: RawSocket) -> None:
    text = request("health", id="p").encode()
    ready.write(frame(text[:5], fin=False))
    ready.write(frame(b"between", opcode=PING))
    ready.write(frame(text[5:], opcode=CONT))
    pong = await ready.read_frame()
    while pong.opcode != PONG:
        pong = await ready.read_frame()
    assert pong.data == b"between"
    assert (await ready.read_response("p"))["ok"]


@pytest.mark.parametrize("payload", [b"", b"x" * 125])
async def test_pings_are_answered_in_both_phases(gateway: RunningGateway, ready: RawSocket, payload: bytes) -> None:
    async with open_raw(gateway.url) as before:
        await before.read_frame()
        await before.send(frame(payload, opcode=PING))
        pong = await before.read_frame()
        assert (pong.opcode, pong.data) == (PONG, payload)
    await ready.send(frame(payload, opcode=PING))
    pong = await ready.read_frame()
    while pong.opcode != PONG:
        pong = await ready.read_frame()
    assert pong.data == payload


async def test_a_frame_byte_by_byte(ready: RawSocket) -> None:
    for byte in frame(request("health", id="slow")):
        ready.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await ready.read_response("slow"))["ok"]


async def test_many_frames_in_one_write_are_all_answered(ready: RawSocket) -> None:
    ready.write(b"".join(frame(request("health", id=str(number))) for number in range(500)))
    answered = [(await ready.read_response(str(number)))["id"] for number in range(500)]
    assert answered == [str(number) for number in range(500)]


# After the handshake.

NOT_JSON = {
    "text": b"hello",
    "empty": b"",
    "blank": b" \n",
    "cut": b'{"type":"req"',
    "trailing": request("health", id="t").encode() + b"x",
    "nan": b'{"type":"req","id":"n","method":"health","params":{"x":NaN}}',
    "infinity": b'{"type":"req","id":"n","method":"health","params":-Infinity}',
    "single quotes": b"{'type':'req'}",
    "invalid utf-8": b'{"type":"req","id":"\xff","method":"health"}',
    "overlong utf-8": b'{"type":"req","id":"\xc0\xaf","method":"health"}',
    "utf-8 surrogate": b'{"type":"req","id":"\xed\xa0\x80","method":"health"}',
    "escaped lone surrogate": b'{"type":"req","id":"\\ud800","method":"health"}',
    "byte order mark": b"\xef\xbb\xbf" + request("health").encode(),
    "deep array": b"[" * 10_000 + b"]" * 10_000,
    "deep params": b'{"type":"req","id":"d","method":"health","params":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep object": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "never closed": b"[" * 100_000,
}


@pytest.mark.parametrize("name", NOT_JSON)
async def test_what_is_not_json_is_ignored(ready: RawSocket, name: str) -> None:
    await ready.send(frame(NOT_JSON[name]))
    await ready.send(frame(request("health", id="next")))
    received = (await ready.read_frame()).json()
    while received["type"] == "event":
        received = (await ready.read_frame()).json()
    assert received["id"] == "next"


@pytest.mark.parametrize(
    ("text", "frame_id", "message"),
    [
        ("[]", "invalid", "must be object"),
        ("null", "invalid", "must be object"),
        ('"x"', "invalid", "must be object"),
        ("{}", "invalid", "must have required property 'type'"),
        ('{"type":"req","id":"a"}', "a", "must have required property 'method'"),
        ('{"type":"req","id":"a","method":""}', "a", "at /method: must NOT have fewer than 1 characters"),
        ('{"type":"req","id":"","method":"health"}', "invalid", "at /id: must NOT have fewer than 1 characters"),
        ('{"type":"req","id":7,"method":"health"}', "invalid", "at /id: must be string"),
        ('{"type":"res","id":"a","method":"health"}', "a", "at /type: must be equal to constant"),
        ('{"type":"req","id":"a","method":"health","x":1}', "a", "at root: unexpected property 'x'"),
    ],
)
async def test_json_that_is_no_request_is_answered(
    ready: RawSocket, text: str, frame_id: str, message: str | None
) -> None:
    await ready.send(frame(text))
    answer = await ready.read_response(frame_id)
    assert answer["ok"] is False
    assert answer["error"]["code"] == "INVALID_REQUEST"
    assert answer["error"]["message"].startswith("invalid request frame: ")
    assert message is None or message in answer["error"]["message"]
    assert set(answer) == {"type", "id", "ok", "error"}
    assert await still_answers(ready)


async def test_of_duplicate_keys_the_last_counts(ready: RawSocket) -> None:
    await ready.send(frame('{"type":"req","id":"first","id":"last","method":"nope","method":"health"}'))
    assert (await ready.read_response("last"))["ok"]


async def test_ids_come_back_as_they_went(ready: RawSocket) -> None:
    for frame_id in ('"', "\\", "\n", "\u2028", "é🦀", "x" * 5000, "\x7f", "\0"):
        await ready.send(frame(request("health", id=frame_id)))
        assert (await ready.read_response(frame_id))["ok"]


# The end of a connection.


@pytest.mark.parametrize(
    "sent", [close_frame(1000), close_frame(1001, "bye"), close_frame(4000, "x"), frame(opcode=CLOSE)]
)
async def test_a_close_is_answered_with_the_same(gateway: RunningGateway, ready: RawSocket, sent: bytes) -> None:
    await ready.send(sent)
    answered = await ready.read_close()
    expected = int.from_bytes(sent[6:8], "big") ^ 0x1122 if len(sent) > 6 else None
    assert answered[0] == expected
    assert await ready.read_to_end() == b""


@pytest.mark.parametrize(
    ("name", "sent", "code"),
    [
        ("unmasked", b"\x81\x02hi", 1002),
        ("reserved bit", b"\xc1\x80" + b"\0" * 4, 1002),
        ("reserved opcode", b"\x83\x80" + b"\0" * 4, 1002),
        ("long ping", b"\x89\xfe\x00\x80" + b"\0" * 132, 1002),
        ("fragmented ping", b"\x09\x80" + b"\0" * 4, 1002),
        ("continuation of nothing", frame("x", opcode=CONT), 1002),
        ("new message in a message", frame("x", fin=False) + frame("y"), 1002),
        ("close code", frame(b"\x00\x01", opcode=CLOSE), 1002),
    ],
)
async def test_who_breaks_the_websocket_protocol_is_told_and_closed(
    gateway: RunningGateway, ready: RawSocket, name: str, sent: bytes, code: int
) -> None:
    await ready.send(sent)
    assert (await ready.read_close())[0] == code
    assert await ready.read_to_end() == b""
    await until(lambda: len(gateway.app.gateway.broadcaster) == 0, "the connection is forgotten")
    assert await serves_others(gateway)


@pytest.mark.parametrize("ahead", [0, 200_000, 5_000_000], ids=lambda n: f"{n} bytes sent at once")
async def test_too_big_before_the_handshake(gateway: RunningGateway, ahead: int) -> None:
    async with open_raw(gateway.url) as raw, open_raw(gateway.url) as other:
        await raw.read_frame()
        await other.read_frame()
        size = PREAUTH_LIMIT + 1 + ahead
        raw.write(header(size) + b"x" * ahead)
        assert await raw.read_close() == (1009, "")
        assert await raw.read_to_end() == b""
        await other.send(frame(request("connect", connect_params(token=gateway.token), id="c")))
        assert (await other.read_response("c"))["ok"]


async def test_exactly_the_limit_before_the_handshake(gateway: RunningGateway) -> None:
    async with open_raw(gateway.url) as raw:
        await raw.read_frame()
        text = request("connect", connect_params(token=gateway.token), id="c")
        await raw.send(frame(text + " " * (PREAUTH_LIMIT - len(text))))
        assert (await raw.read_response("c"))["ok"]


@pytest.mark.parametrize("ahead", [0, FRAME_LIMIT], ids=lambda n: f"{n} bytes sent at once")
async def test_too_big_after_the_handshake(gateway: RunningGateway, ready: RawSocket, ahead: int) -> None:
    text = request("health", id="big")
    await ready.send(frame(text + " " * (FRAME_LIMIT - len(text))))
    assert (await ready.read_response("big"))["ok"]
    ready.write(header(FRAME_LIMIT + 1) + b"x" * ahead)
    assert await ready.read_close() == (1009, "")
    assert await ready.read_to_end() == b""
    assert await serves_others(gateway)


@pytest.mark.parametrize("piece", [50, 1000, FRAME_LIMIT // 2])
async def test_too_big_in_pieces(ready: RawSocket, piece: int) -> None:
    data = frame(b" " * piece, opcode=CONT, fin=False)
    ready.write(frame(b" " * piece, fin=False))
    await ready.send(data * (FRAME_LIMIT // piece - 1))
    assert await still_there(ready)  # exactly the limit so far
    ready.write(frame(b" ", opcode=CONT, fin=False))
    assert await ready.read_close() == (1009, "")


async def still_there(raw: RawSocket) -> bool:
    await raw.send(frame(opcode=PING))
    received = await raw.read_frame()
    while received.opcode != PONG:
        assert received.opcode != CLOSE, received.close
        received = await raw.read_frame()
    return True


async def test_empty_pieces_take_no_memory(gateway: RunningGateway, ready: RawSocket) -> None:
    ready.write(frame("", fin=False))
    pieces = frame("", opcode=CONT, fin=False) * 20_000
    for _ in range(10):
        await ready.send(pieces)
    assert await still_there(ready)
    held = [socket._fragments for socket in gateway.server.server_state.connections]  # type: ignore[union-attr]
    assert max(map(len, held)) == 0


# Nothing that comes in kills the server.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
near_requests = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["req", "res", "event", ""]) | json_values,
        "id": st.text(max_size=10) | json_values,
        "method": st.sampled_from(["connect", "health", "sessions.list", "chat.send", "ping", "nope"]) | json_values,
        "params": json_values,
    },
)
json_frames = (json_values | near_requests).map(lambda value: _encode(value))
frames = st.lists(
    st.one_of(
        json_frames.map(frame),
        st.binary(max_size=200).map(lambda data: frame(data, opcode=BINARY)),
        st.binary(max_size=200).map(frame),
        st.builds(
            lambda data, opcode, fin: frame(data, opcode=opcode, fin=fin),
            st.binary(max_size=30),
            st.integers(0, 15),
            st.booleans(),
        ),
        st.binary(max_size=300),
    ),
    max_size=6,
).map(b"".join)


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("phase", ["challenged", "ready"])
@FUZZ
@given(sent=frames)
async def test_any_bytes_leave_the_server_alive(gateway: RunningGateway, phase: str, sent: bytes) -> None:
    params = connect_params(token=gateway.token)
    opened = open_raw(gateway.url) if phase == "challenged" else open_ready(gateway.url, params)
    async with opened as raw:
        raw.write(sent + close_frame())
        raw.writer.write_eof()  # the close may have become a part of an unfinished frame
        await raw.read_to_end()
    async with open_ready(gateway.url, params) as other:
        assert await still_answers(other)


@FUZZ
@given(sent=st.binary(max_size=500))
async def test_any_bytes_before_the_upgrade_leave_the_server_alive(gateway: RunningGateway, sent: bytes) -> None:
    async with open_tcp(gateway.url) as raw:
        raw.write(sent)
        raw.writer.write_eof()
        await raw.read_to_end()
    async with open_raw(gateway.url) as other:
        assert (await other.read_frame()).json()["event"] == "connect.challenge"
