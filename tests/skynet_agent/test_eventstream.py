"""Amazon's event stream: published messages, botocore's decoder as a second opinion, and whatever bytes."""

import struct
from typing import Any
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.eventstream import MOST_HEADER_BYTES, EventStreamDecoder, EventStreamMessage
from tests.support.dialects.bedrock import encode_message

# What Amazon's own decoders are tested with: tests/unit/test_eventstream.py of boto/botocore.

EMPTY = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2H\xeb}\x98\xc8\xff"
PUBLISHED: list[tuple[bytes, dict[str, Any], bytes]] = [
    (EMPTY, {}, b""),
    (b"\x00\x00\x00\x17\x00\x00\x00\x07)\x86\x01X\x04byte\x02\xff\xc2\xf8i\xdc", {"byte": -1}, b""),
    (b"\x00\x00\x00\x19\x00\x00\x00\tq\x0e\x92>\x05short\x03\xff\xff\xb2|\xb6\xcc", {"short": -1}, b""),
    (
        b"\x00\x00\x00\x1d\x00\x00\x00\r\x83\xe3\xf0\xe7\x07integer\x04\xff\xff\xff\xff\x8b\x8e\x12\xeb",
        {"integer": -1},
        b"",
    ),
    (
        b"\x00\x00\x00\x1e\x00\x00\x00\x0e]J\xdb\x8d\x04long\x05\xff\xff\xff\xff\xff\xff\xff\xffK\xc22\xda",
        {"long": -1},
        b"",
    ),
    (b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfdR\x8cZ{'foo':'bar'}\xc3e96", {}, b"{'foo':'bar'}"),
    (
        b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json{'foo':'bar'}"
        b"\x8d\x9c\x08\xb1",
        {"content-type": "application/json"},
        b"{'foo':'bar'}",
    ),
    (
        b"\x00\x00\x00\x62\x00\x00\x00\x52\x03\xb5\xcb\x9c\x010\x00\x011\x01\x012\x02\x02\x013\x03\x00\x03"
        b"\x014\x04\x00\x00\x00\x04\x015\x05\x00\x00\x00\x00\x00\x00\x00\x05\x016\x06\x00\x05bytes\x017\x07\x00\x04utf8"
        b"\x018\x08\x00\x00\x00\x00\x00\x00\x00\x08\x019\x090123456789abcdef\x63\x35\x36\x71",
        {
            "0": True,
            "1": False,
            "2": 2,
            "3": 3,
            "4": 4,
            "5": 5,
            "6": b"bytes",
            "7": "utf8",
            "8": 8,
            "9": b"0123456789abcdef",
        },
        b"",
    ),
    (
        b"\x00\x00\x00\x52\x00\x00\x00\x42\xbf\x23\x63\x7e\x0d:message-type\x07\x00\x05error\x0b:error-code\x07\x00\x04code"
        b"\x0e:error-message\x07\x00\x07message\x6b\x6c\xea\x3d",
        {":message-type": "error", ":error-code": "code", ":error-message": "message"},
        b"",
    ),
]
CORRUPTED = {
    "headers' length": (
        b"\x00\x00\x00=\xff\x00\x01\x02\x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json{'foo':'bar'}"
        b"\x8d\x9c\x08\xb1"
    ),
    "headers": (
        b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent+type\x07\x00\x10application/json{'foo':'bar'}"
        b"\x8d\x9c\x08\xb1"
    ),
    "length": b"\x01\x00\x00\x1d\x00\x00\x00\x00\xfdR\x8cZ{'foo':'bar'}\xc3e96",
    "payload": b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfdR\x8cZ{'foo':'bar'\x8d\xc3e96",
    "a header twice": (
        b"\x00\x00\x00\x24\x00\x00\x00\x14\x4b\xb9\x82\xd0\x04test\x04asdf\x04test\x04asdf\xf3\xf4\x75\x63"
    ),
}


@pytest.mark.parametrize(("data", "headers", "payload"), PUBLISHED, ids=[str(len(case[0])) for case in PUBLISHED])
def test_published_messages(data: bytes, headers: dict[str, Any], payload: bytes) -> None:
    assert EventStreamDecoder().feed(data) == [EventStreamMessage(headers, payload)]


def test_published_messages_in_one_stream() -> None:
    decoder = EventStreamDecoder()
    assert decoder.feed(b"".join(data for data, _, _ in PUBLISHED)) == [each[1:] for each in PUBLISHED]
    assert decoder.close() == []


@pytest.mark.parametrize("data", CORRUPTED.values(), ids=CORRUPTED)
def test_published_corruptions(data: bytes) -> None:
    with pytest.raises(ValueError):
        EventStreamDecoder().feed(data)


def message(header_bytes: bytes, payload: bytes = b"") -> bytes:
    """A message with whatever headers and right checksums."""
    prelude = struct.pack("!II", 16 + len(header_bytes) + len(payload), len(header_bytes))
    whole = prelude + struct.pack("!I", crc32(prelude)) + header_bytes + payload
    return whole + struct.pack("!I", crc32(whole))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n", "no event stream: the checksum of a prelude is 20323030, not "),
        (b"data: {}\n\ndata: {}\n\n", "no event stream"),
        (EMPTY[:-1] + b"\x00", "a damaged message: its checksum is 7d98c800, not 7d98c8ff"),
        (message(b"\x01a\x0a"), "a header of the unknown type 10"),
        (message(b"\x05a"), "headers that make no sense"),
        (message(b"\x01a"), "headers that make no sense"),
        (message(b"\x01a\x05\x00"), "headers that make no sense"),
        (message(b"\x01a\x07\x00"), "headers that make no sense"),
        (message(b"\x01\xff\x00"), "headers that make no sense"),
        (message(b"\x01a\x07\x00\x01\xff"), "headers that make no sense"),
        (message(b"\x01a\x07\xff\xff"), "a header that is longer than the headers"),
        (message(b"\x01a\x09123"), "a header that is longer than the headers"),
        (message(b"\x01a\x00\x01a\x01"), "a header that occurs twice"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        EventStreamDecoder().feed(data)


@pytest.mark.parametrize(
    ("length", "header_length"),
    [(0, 0), (15, 0), (16, 1), (200 * 1024, MOST_HEADER_BYTES + 1), (117, 0), (2**32 - 1, 0)],
)
def test_lengths_beyond_the_limits(length: int, header_length: int) -> None:
    """Said before the message is collected."""
    prelude = struct.pack("!II", length, header_length)
    with pytest.raises(
        ValueError, match=f"^a message of {length} bytes with {header_length} bytes of headers; allowed"
    ):
        EventStreamDecoder(most_payload_bytes=100).feed(prelude + struct.pack("!I", crc32(prelude)))


def test_the_largest_message() -> None:
    whole = message(b"", b"x" * 100)
    assert EventStreamDecoder(most_payload_bytes=100).feed(whole) == [EventStreamMessage({}, b"x" * 100)]


def test_what_came_before_the_damage_is_handed_out_first() -> None:
    decoder = EventStreamDecoder()
    assert decoder.feed(message(b"", b"1") + message(b"", b"2") + b"garbage, garbage") == [({}, b"1"), ({}, b"2")]
    for _ in range(2):
        with pytest.raises(ValueError, match="no event stream"):
            decoder.feed(message(b"", b"3"))
        with pytest.raises(ValueError, match="no event stream"):
            decoder.close()


def test_a_part_of_a_message_at_the_end() -> None:
    decoder = EventStreamDecoder()
    assert decoder.feed(message(b"", b"payload")[:-1]) == []
    assert decoder.close() == []


def test_a_large_message_in_small_pieces_is_joined_once() -> None:
    """A decoder that joins what it has for every piece needs some seconds for this."""
    whole = message(b"", b"x" * 8_000_000)
    decoder = EventStreamDecoder()
    messages = [each for at in range(0, len(whole), 100) for each in decoder.feed(whole[at : at + 100])]
    assert [len(each.payload) for each in messages] == [8_000_000]


def test_headers_cannot_be_changed() -> None:
    """The same ones belong to other messages too."""
    [first] = EventStreamDecoder().feed(message(b"\x01a\x00"))
    with pytest.raises(TypeError):
        first.headers["a"] = False  # type: ignore[index]


def outcome(data: bytes, cuts: list[int]) -> tuple[list[EventStreamMessage], str]:
    """What is decoded, and the error at the end."""
    decoder, messages, start = EventStreamDecoder(), list[EventStreamMessage](), 0
    try:
        for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
            messages += decoder.feed(data[start:cut])
            start = cut
        messages += decoder.close()
    except ValueError as exc:
        return messages, str(exc)
    return messages, ""


HEADERS = st.dictionaries(st.text(max_size=60), st.text(max_size=60), max_size=4)
CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=300)), max_size=6), CUTS)
def test_any_split_gives_the_same_messages(messages: list[tuple[dict[str, str], bytes]], cuts: list[int]) -> None:
    data = b"".join(encode_message(headers, payload) for headers, payload in messages)
    assert outcome(data, cuts) == (messages, "")
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    assert [(each.headers, each.payload) for each in buffer] == messages


@given(st.lists(st.binary(max_size=30).map(message), max_size=4), st.binary(max_size=60), CUTS)
def test_garbage_is_an_error_wherever_it_is_cut(begin: list[bytes], garbage: bytes, cuts: list[int]) -> None:
    data = b"".join(begin) + garbage
    assert outcome(data, cuts) == outcome(data, [])


@given(st.binary(min_size=1, max_size=60), st.binary(max_size=60), st.data())
def test_a_flipped_bit_is_noticed(headers: bytes, payload: bytes, data: st.DataObject) -> None:
    whole = bytearray(message(b"", payload) + message(b"\x01a\x06" + struct.pack("!H", len(headers)) + headers))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    messages, error = outcome(bytes(whole), [])
    assert error
    assert len(messages) < 2
