"""The SSE decoder: exact events, and the same ones however the bytes are split."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.sse import SseDecoder, SseEvent


def decode(*pieces: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [(b"a", "")]),
        (b"data: a\r\n\r\n", [(b"a", "")]),
        (b"data: a\r\rdata: b\r\r", [(b"a", ""), (b"b", "")]),
        (b"data:a\n\ndata:  b\n\n", [(b"a", ""), (b" b", "")]),
        (b"data: a\ndata: b\n\n", [(b"a\nb", "")]),
        (b"data\ndata: b\n\n", [(b"\nb", "")]),
        (b": comment\n\ndata: a\n: another\n\n", [(b"a", "")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [(b"a", "error"), (b"b", "")]),
        (b"event: lost\n\ndata: a\n\n", [(b"a", "")]),
        (b"id: 7\nretry: 10\nother: x\ndatax: y\ndata: a\n\n", [(b"a", "")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"a", "")]),
        (b"\n\n\n", []),
        (b"", []),
        (b"data: a\rx\ndata: b", [(b"a\nb", "")]),
        (b"data: a\n\ndata: last", [(b"a", ""), (b"last", "")]),
        (b"data: a\n", [(b"a", "")]),
        ("data: é😀\n\n".encode(), [("é😀".encode(), "")]),
    ],
)
def test_events(stream: bytes, events: list[tuple[bytes, str]]) -> None:
    assert decode(stream) == [SseEvent(*event) for event in events]
    assert decode(*[bytes([byte]) for byte in stream]) == [SseEvent(*event) for event in events]


lines = st.sampled_from([b"data: x", b"data:\xc3\xa9", b"data", b"event: e", b": c", b"", b"", b"junk", b"data: {}"])
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    st.one_of(st.binary(max_size=200), st.lists(st.tuples(lines, ends)).map(lambda ls: b"".join(map(b"".join, ls)))),
    st.lists(st.integers(0, 200), max_size=20),
)
def test_any_split_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    assert decode(*[stream[a:b] for a, b in itertools.pairwise(edges)]) == decode(stream)


def test_an_unfinished_event_is_bounded() -> None:
    decoder = SseDecoder(limit_bytes=100)
    assert decoder.feed(b"data: " + b"x" * 90 + b"\n\n") == [SseEvent(b"x" * 90)]
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        for _ in range(100):
            decoder.feed(b"data: xx\n")


def test_lines_that_hold_nothing_count() -> None:
    decoder = SseDecoder(limit_bytes=100)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        for _ in range(200):
            decoder.feed(b"data:\n")


def test_an_event_of_many_lines_costs_as_much_as_its_length() -> None:
    """Looking at all that waits for each new piece would take minutes for these."""
    decoder, line = SseDecoder(), b"data: x\n"
    for _ in range(200_000):
        assert decoder.feed(line) == []
    assert decoder.feed(b"\n") == [SseEvent(b"\n".join([b"x"] * 200_000))]
    assert decoder.feed(b"data: y\n\n") == [SseEvent(b"y")]


def test_a_line_without_end_is_bounded() -> None:
    decoder = SseDecoder(limit_bytes=100)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        for _ in range(100):
            decoder.feed(b"xx")
