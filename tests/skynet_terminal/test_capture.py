"""Captures: the beginning and the end of an output, and how much is missing between them."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.capture import HEAD_BYTES, LONGEST_TEXT, TAIL_BYTES, Capture, Captured, unfinished


def captured(pieces: list[bytes], head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> Captured:
    capture = Capture(head_bytes, tail_bytes)
    for piece in pieces:
        capture.write(piece)
    return capture.captured()


def test_100_000_emoji() -> None:
    """SK-180: valid text, beginning and end kept, the number of those left out right."""
    text = "🦊" + "😀" * 99_998 + "🐘"
    shown = captured([text.encode()[at : at + 4093] for at in range(0, 400_000, 4093)]).text()
    assert len(shown) <= LONGEST_TEXT
    assert shown.encode().decode() == shown
    head, marker, tail = shown.split("\n")
    assert (head[0], tail[-1], len(head), len(tail)) == ("🦊", "🐘", 21_000, 6_000)
    assert marker == "[… 73000 characters left out …]"


@pytest.mark.parametrize("count", [600_000, 1_000_000])
def test_emoji_that_were_not_kept_are_counted_too(count: int) -> None:
    """SK-180: more than is held in memory."""
    data = ("🦊" + "😀" * (count - 2) + "🐘").encode()
    kept = captured([data[at : at + 65_521] for at in range(0, len(data), 65_521)])
    assert kept.omitted_bytes == kept.omitted_characters * 4
    head, marker, tail = kept.text().split("\n")
    assert marker == f"[… {count - len(head) - len(tail)} characters left out …]"
    assert (head[0], tail[-1]) == ("🦊", "🐘")


def test_what_fits_is_whole() -> None:
    kept = captured([b"a" * 20_000, b"b" * 10_000])
    assert kept.text() == "a" * 20_000 + "b" * 10_000
    assert (kept.omitted_bytes, kept.size) == (0, 30_000)


def test_colours_do_not_count() -> None:
    """SK-180 and SK-181: for models without escape sequences, for people as it was."""
    kept = captured([b"\x1b[31mred\x1b[0m\n" * 1000])
    assert kept.text() == "red\n" * 1000
    assert kept.text(plain=False).startswith("\x1b[31mred\x1b[0m\n")


def test_an_escape_sequence_is_not_cut_in_two() -> None:
    kept = captured([b"\x1b[38;5;123mword\x1b[0m\n" * 10_000], 1000, 1000)
    shown = kept.text(1000)
    assert "\x1b" not in shown
    head, tail = shown.split("\n[…")[0], shown.split("…]\n")[1]
    assert set(head.split("\n")[:-1]) == {"word"}
    assert set(tail.split("\n")) <= {"word", ""}


def test_nothing_but_its_limits_is_held() -> None:
    capture = Capture()
    piece = bytes(65_536)
    tracemalloc.start()
    try:
        for _ in range(2000):
            capture.write(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < HEAD_BYTES + 8 * TAIL_BYTES
    assert capture.captured().size == 2000 * len(piece)


@given(st.text(), st.integers(1, 12), st.integers(0, 30), st.integers(1, 30))
def test_text_in_any_pieces(text: str, step: int, head: int, tail: int) -> None:
    """SK-180: what is kept is text again, and nothing is lost without being counted."""
    data = text.encode()
    kept = captured([data[at : at + step] for at in range(0, len(data), step)], head, tail)
    assert kept.size == len(data)
    assert data.startswith(kept.head)
    assert data.endswith(kept.tail)
    if kept.omitted_bytes:
        assert len(kept.head.decode()) + kept.omitted_characters + len(kept.tail.decode()) == len(text)
        assert len(kept.head) > head - 4
        assert len(kept.tail) > tail - 4
    else:
        assert kept.data == data


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30), st.integers(1, 30))
def test_any_bytes(pieces: list[bytes], head: int, tail: int) -> None:
    data = b"".join(pieces)
    kept = captured(pieces, head, tail)
    assert kept.size == len(data)
    assert (data.startswith(kept.head), data.endswith(kept.tail)) == (True, True)
    assert len(kept.text(500)) <= 500


@given(st.text(max_size=6), st.integers(0, 30))
def test_how_much_of_a_character_is_there(text: str, end: int) -> None:
    data = text.encode()[:end]
    whole = data[: len(data) - unfinished(data)]
    assert whole.decode() == text[: len(whole.decode())]
