"""What is kept of a terminal's output: how much, where it begins, and which modes are in force there."""

import random
from collections.abc import Iterable

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skynet_terminal.modes import Modes
from skynet_terminal.replay import RING_BYTES, SMALLEST_BYTES, Ring


def fed(pieces: Iterable[bytes], most_bytes: int = RING_BYTES) -> Ring:
    ring = Ring(most_bytes)
    for piece in pieces:
        ring.feed(piece)
        assert len(ring) <= most_bytes
    return ring


def places(data: bytes) -> list[bool]:
    """For each position whether it is between sequences and characters: one byte at a time, as a terminal reads."""
    between, state, controls, wanted = [True], "text", 0, 0
    for byte in data:
        char = bytes([byte])
        between[-1] |= wanted > 0 and not 0x80 <= byte < 0xC0  # a character that is not finished is none
        if state == "end of string" and char != b"\\":
            state, between[-2] = "escape", True  # it was the beginning of a sequence, not the end of a string
        if byte == 0x1B:
            between[-1] |= state not in ("]", "P")
            # ESC and "\\" end a string; the "\\" is its last byte
            state = "end of string" if state in ("]", "P") else "escape"
            controls = 0
        elif state == "end of string" and char == b"\\":
            state = "text"
        else:
            between[-1] |= byte >= 0x80 and state in ("[", " ", "escape")
            between[-1] |= controls == 8 and (byte < 0x20 or byte == 0x7F)
            state, controls = after(state, byte, controls)
        # Between characters, too: UTF-8 counts in text only.
        if state == "text" and byte >= 0xC0:
            wanted = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        elif state == "text" and 0x80 <= byte < 0xC0 and wanted:
            wanted -= 1
        else:
            wanted = 0
        between.append(state == "text" and not wanted)
    return between


def after(state: str, byte: int, controls: int) -> tuple[str, int]:
    char = bytes([byte])
    if state == "text" or byte in (0x18, 0x1A):
        return "text", 0
    if state == "escape":
        if byte < 0x20 or byte == 0x7F:
            return ("text", 0) if controls == 8 else ("escape", controls + 1)
        if char in b"[]":
            return chr(byte), 0
        if char in b"PX^_":
            return "P", 0
        return (" ", 0) if byte < 0x30 else ("text", 0)
    if state == "[":
        return ("text" if 0x40 <= byte < 0x7F or byte >= 0x80 else state), 0
    if state == " ":
        return ("text" if 0x30 <= byte < 0x7F or byte >= 0x80 else state), 0
    return ("text" if state == "]" and byte == 0x07 else state), 0


PIECE = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.binary(max_size=30).map(lambda data: bytes(b"\x1b[]P(;0m\\\x07\x18\n\x9c\xe2A"[byte % 15] for byte in data)),
    st.sampled_from(
        [
            b"\x1b[38;2;1;2;3m",
            b"\x1b]0;title\x07",
            b"\x1b]8;;http://x/\x1b\\",
            b"\x1bP1$r0m\x1b\\",
            b"\x1b_apc\x1b\\",
            b"\x1b(0",
            b"\x1b7",
            b"\x1b[?1049h",
            "größe 漢字 🙂".encode(),
            b"\x1b]52;c;" + b"QUJD" * 40,
            b"\x1bPq" + b"#0~-" * 40,
            b"\x1b\\",
        ]
    ),
)


@given(st.lists(PIECE, max_size=60), st.integers(SMALLEST_BYTES, 200))
@settings(max_examples=500)
def test_it_never_begins_inside_a_character_or_a_sequence(pieces: list[bytes], most_bytes: int) -> None:
    """SK-174. Whatever is written in whatever pieces: what remains begins between two of them."""
    ring = Ring(most_bytes)
    written = b""
    for piece in pieces:
        written += piece
        ring.feed(piece)
        assert len(ring) <= most_bytes
        assert ring.start == len(written) or places(written)[ring.start]
        assert ring.start >= len(written) - most_bytes


@given(st.lists(PIECE, max_size=60), st.integers(SMALLEST_BYTES, 200), st.randoms(use_true_random=False))
def test_since_neither_loses_nor_repeats(pieces: list[bytes], most_bytes: int, dice: random.Random) -> None:
    """What a reader got and what it was told that it lost is what was written."""
    ring, written, cursor = Ring(most_bytes), b"", 0
    for piece in pieces:
        written += piece
        ring.feed(piece)
        if dice.random() < 0.5:
            data, position, dropped = ring.since(cursor)
            assert position == ring.end == len(written)
            assert data == written[cursor + dropped :]
            assert not dropped or cursor < len(written) - most_bytes
            cursor = position


@given(st.binary(max_size=2000), st.integers(1, 300))
def test_pieces_make_no_difference(data: bytes, size: int) -> None:
    """A sequence that comes in two parts is one."""
    whole = fed([data], SMALLEST_BYTES)
    parts = fed([data[i : i + size] for i in range(0, len(data), size)], SMALLEST_BYTES)
    assert (whole.start, whole.replay(), whole.screen_lost) == (parts.start, parts.replay(), parts.screen_lost)


def test_the_oldest_goes() -> None:
    """SK-174."""
    ring = fed([b"%07d\n" % number for number in range(100_000)])
    data, cursor, dropped = ring.since(0)
    assert (len(data), cursor, dropped) == (RING_BYTES, 800_000, 800_000 - RING_BYTES)
    assert data.endswith(b"0099999\n")
    assert ring.since(799_992) == (b"0099999\n", 800_000, 0)
    assert ring.since(800_000) == (b"", 800_000, 0)


def test_a_position_that_was_not_written_yet_is_refused() -> None:
    ring = fed([b"abc"])
    with pytest.raises(ValueError, match="cursor is 4, 3 bytes were written"):
        ring.since(4)
    with pytest.raises(ValueError, match="cursor is -1"):
        ring.since(-1)


def test_a_sequence_larger_than_the_ring_is_left_out_of_replays_but_not_of_reading_on() -> None:
    """A picture for instance. Who was there at its beginning gets all of it."""
    ring = fed([b"before\x1bPq" + b"~" * 100])
    cursor = ring.end
    small = fed([b"before\x1bPq" + b"~" * 500], SMALLEST_BYTES)
    assert small.start == small.end
    assert small.replay() == b""
    small.feed(b"~~")
    assert small.since(509) == (b"~~", 511, 0)
    small.feed(b"~\x1b")
    assert small.start == small.end
    small.feed(b"\\after")
    assert small.replay() == b"after"
    ring.feed(b"~" * 10)
    assert ring.since(cursor) == (b"~" * 10, cursor + 10, 0)


FILLING = b"text \r\n" * 60
MODES = [
    (b"\x1b[?1049h", b"\x1b[?1049h"),
    (b"\x1b[?1049h\x1b[?1049l", b""),
    (b"\x1b[?47h", b"\x1b[?47h"),
    (b"\x1b[?25l", b"\x1b[?25l"),
    (b"\x1b[?25l\x1b[?25h", b""),
    (b"\x1b[?2004h", b"\x1b[?2004h"),
    (b"\x1b[?1;2004h\x1b[?1l", b"\x1b[?2004h"),
    (b"\x1b[?1h\x1b=", b"\x1b[?1h\x1b="),
    (b"\x1b[?7l\x1b[?6h", b"\x1b[?7l\x1b[?6h"),
    (b"\x1b[4h", b"\x1b[4h"),
    (b"\x1b[?1000h\x1b[?1006h\x1b[?1002h", b"\x1b[?1006h\x1b[?1002h"),
    (b"\x1b[?1000h\x1b[?1000l", b""),
    (b"\x1b[2;20r", b"\x1b[2;20r"),
    (b"\x1b[2;20r\x1b[r", b""),
    (b"\x1b[1m\x1b[31m\x1b[1m", b"\x1b[31m\x1b[1m"),
    (b"\x1b[1m\x1b[0;32m", b"\x1b[0;32m"),
    (b"\x1b[1m\x1b[m", b""),
    (b"\x1b[38;5;1m\x1b[38;2;1;2;3m", b"\x1b[38;2;1;2;3m"),
    (b"\x1b(0", b"\x1b(0"),
    (b"\x1b(0\x1b(B", b""),
    (b"\x1b)0\x0e", b"\x1b)0\x0e"),
    (b"\x1b)0\x0e\x0f", b"\x1b)0"),
    (b"\x1b[4 q", b"\x1b[4 q"),
    (b"\x1b[>4;2m", b"\x1b[>4;2m"),
    (b"\x1b[>4;2m\x1b[>4m", b""),
    (b"\x1b[?25l\x1b[1m\x1bc", b""),
    (b"\x1b[?1049h\x1b[?25l\x1b[!p", b"\x1b[?1049h"),
    (b"\x1b[?9999h\x1b]0;title\x07\x1b7", b""),
]


@pytest.mark.parametrize(("written", "prefix"), MODES)
def test_modes_that_were_set_in_what_is_gone(written: bytes, prefix: bytes) -> None:
    ring = fed([written + FILLING], 128)
    data = ring.replay()
    assert data.startswith(prefix + data[len(prefix) :][:1])
    assert data[len(prefix) :] == ring.since(ring.start)[0]
    assert b"\x1b" not in data[len(prefix) :]


@given(st.lists(st.sampled_from([b"1", b"31", b"44", b"7", b"22", b"38;5;9", b"0", b"", b"0;4", b"39", b"27"])))
def test_the_rendition_is_that_of_a_terminal(values: list[bytes]) -> None:
    modes, written = Modes(), b""
    for value in values:
        written += b"\x1b[%bm" % value
        modes.apply(b"\x1b[%bm" % value)
    assert character(modes.prefix()) == character(written)


def character(data: bytes) -> pyte.screens.Char:
    screen = pyte.Screen(10, 2)
    pyte.ByteStream(screen).feed(data + b"x")
    return screen.buffer[0][0]


@given(st.lists(st.binary(max_size=20).map(lambda data: b"\x1b[" + data + b"m"), max_size=300))
def test_modes_stay_small(sequences: list[bytes]) -> None:
    """Whoever writes: no program makes the gateway remember more and more."""
    modes = Modes()
    for number, sequence in enumerate(sequences):
        modes.apply(sequence)
        modes.apply(b"\x1b[38;2;%d;1m" % number)
    assert len(modes.prefix()) < 8192


@pytest.mark.parametrize(
    ("written", "lost"),
    [
        (b"\x1b[?1049h", False),
        (b"\x1b[?1049h" + b"\x1b[5;5Hdraws" * 50, True),
        (b"\x1b[?1049h" + b"\x1b[5;5Hdraws" * 50 + b"\x1b[H\x1b[2J", False),
        (b"\x1b[?1049h" + b"\x1b[5;5Hdraws" * 50 + b"\x1b[H\x1b[J", False),
        (b"\x1b[?1049h" + b"\x1b[5;5Hdraws" * 50 + b"\x1b[?1049l", False),
        (b"\x1b[H\x1b[2J" + b"\x1b[5;5Hdraws" * 50, True),
        (FILLING, False),
        (b"\x1b[31mcolour\x1b[m\r\n" * 50, False),
    ],
)
def test_whether_the_screen_can_be_made_of_what_is_left(written: bytes, lost: bool) -> None:
    assert fed([written], 128).screen_lost is lost


def test_what_a_drawing_program_wrote_without_a_position_is_left_out() -> None:
    ring = fed([b"\x1b[?1049h" + b"\x1b[5;5Hdraws\x1b[1m\x1b[6;6Hmore" * 20], 130)
    assert not ring.replay().startswith(b"\x1b[?1049h\x1b[6;6H")
    ring.begin_at_a_position()
    assert ring.replay().startswith((b"\x1b[?1049h\x1b[1m\x1b[6;6Hmore", b"\x1b[?1049h\x1b[1m\x1b[5;5Hdraws"))
    once = ring.replay()
    ring.begin_at_a_position()
    assert ring.replay() == once
    text = fed([b"\x1b[5;5Hdraws" * 20], 130)
    start = text.start
    text.begin_at_a_position()
    assert text.start == start
