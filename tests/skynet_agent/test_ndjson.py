"""Lines of JSON: the same ones however the bytes are split, and none without end."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.ndjson import LineDecoder


def decode(*pieces: bytes) -> list[bytes]:
    decoder = LineDecoder()
    return [line for piece in pieces for line in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b"{}\n", [b"{}"]),
        (b"{}", [b"{}"]),
        (b"{}\n[]\n", [b"{}", b"[]"]),
        (b"\n\n {}\n \n", [b" {}"]),
        (b"{}\r\n[]", [b"{}\r", b"[]"]),
        ('"é😀"\n"\u2028"\n'.encode(), ['"é😀"'.encode(), '"\u2028"'.encode()]),
    ],
)
def test_lines(stream: bytes, lines: list[bytes]) -> None:
    assert decode(stream) == lines
    assert decode(*[bytes([byte]) for byte in stream]) == lines


@given(
    st.lists(st.sampled_from([b"{}", b'{"a":1}', b"\xc3\xa9", b" ", b"\r", b"\n", b"\n"])).map(b"".join)
    | st.binary(max_size=200),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_any_split_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    lines = decode(*[stream[a:b] for a, b in itertools.pairwise(edges)])
    assert lines == decode(stream) == [line for line in stream.split(b"\n") if line.strip()]


def test_a_line_without_end_is_bounded() -> None:
    decoder = LineDecoder(limit_bytes=100)
    assert decoder.feed(b"x" * 90 + b"\n") == [b"x" * 90]
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        for _ in range(100):
            decoder.feed(b"xx")


def test_a_line_of_many_pieces_costs_as_much_as_its_length() -> None:
    """Looking at all that waits for each new piece would take minutes for these."""
    decoder = LineDecoder()
    for _ in range(200_000):
        assert decoder.feed(b"x") == []
    assert decoder.feed(b"\ny\n") == [b"x" * 200_000, b"y"]
