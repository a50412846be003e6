"""Plain text: what a terminal would have shown, without its escape sequences."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.plain import FARTHEST, plain_text

PIECES = st.sampled_from(
    [
        *("\x1b", "[", "]", "P", "_", "^", "X", "\\", "\x07", "\x18", "\x9c", "\x9b", "\x9d", "\x90", "8;;http://x/"),
        *("0", "1", "31", ";", "m", "K", "2K", "G", "C", "D", "\x1b[K", "\x1b[2K", "\x1b[5C", "\x1b[3D", "\x1b[2G"),
        *(
            "\r",
            "\n",
            "\b",
            "\t",
            "\0",
            "\x7f",
            "\x1b(B",
            "\x1bO",
            " ",
            "a",
            "word",
            "ä",
            "日",
            "😀",
            "\ud800",
            "\udc9b",
        ),
    ]
)


@pytest.mark.parametrize(
    ("given_", "plain"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mtrue\x1b[38:5:9mx\x1b[m", "red truex"),
        ("\x1b]8;;https://example.org/\x1b\\link\x1b]8;;\x1b\\ \x1b]8;id=1;file:///a\x07two\x1b]8;;\x07", "link two"),
        ("\x1b]0;title\x07$ \x1b]133;A\x1b\\ls", "$ ls"),
        ("a\x1bPq#0;2;0;0;0\nsixel\x1b\\b\x1b_apc\x1b\\c\x1b^pm\x1b\\d\x1bXsos\x1b\\e", "abcde"),
        ("\x1b(0lqk\x1b(B\x1b)0\x1b%G\x1b#8\x1b*A", "lqk"),
        ("\x1b=\x1b>\x1b7\x1b8\x1bc\x1bM\x1bDx", "x"),
        ("\x1bOA\x1bNxy", "y"),
        ("\x1b[?25l\x1b[?1049h\x1b[2J\x1b[Htop\x1b[?2004h\x1b[>4;1m\x1b[!p\x1b[ q", "top"),
        ("\x9b31mred\x9b0m \x9dtitle\x9cx \x90dcs\x9cy", "red x y"),
        (b"\x9b31mred\x9b0m \x9dtitle\x9cx", "red x"),
        ("1%\r50%\r100%\ndone\n", "100%\ndone\n"),
        ("50%\r", "50%"),
        ("downloading\rdone\n", "doneloading\n"),
        ("downloading\r\x1b[Kdone\n", "done\n"),
        ("downloading\r\x1b[2Kdone\n", "done\n"),
        ("downloading\x1b[2K\x1b[1Gdone\n", "done\n"),
        ("one\r\ntwo\r\r\nthree\r\n", "one\ntwo\nthree\n"),
        ("wait |\b/\b-\b done", "wait  done"),
        ("_\bu_\bn b\bbo\bold", "un bold"),
        ("abc\b \b\b \b", "a"),
        ("\b\babc", "abc"),
        ("a\x1b[3Cb", "a   b"),
        ("abcdef\x1b[4DX", "abXdef"),
        ("abcdef\x1b[3GX", "abXdef"),
        ("a\x1b[99999999999999999999Cb", "a" + " " * FARTHEST + "b"),
        ("a\0b\x01c\x0bd\x0ce\x7ff\x07", "abcdef"),
        ("match\x1b[m\x1b[K\r\n", "match\n"),
        (b"\xff\xc3\xa4\xc3 \xe2\x82", "�ä� �"),
        (b"\xe2\x9b31m \xf0\x9f\x9831m", "�31m �31m"),
        ("half \ud83d", "half �"),
        ("end\x1b", "end"),
        ("end\x1b[31", "end"),
        ("\x1b]never ended\nnext line", "\nnext line"),
        ("\x1b]8;;never ended\x1b[31mred", "red"),
        ("\x1b[31\x1b[32mgreen", "green"),
        ("\x1b[3\n1m", "\n1m"),
        (b"Latin-1: \x9eena", "Latin-1: ena"),
        ("\x1bä", "ä"),
        ("👩‍👩‍👧 日本 e\u0301", "👩‍👩‍👧 日本 e\u0301"),
    ],
)
def test_what_is_left(given_: bytes | str, plain: str) -> None:
    """SK-181."""
    assert plain_text(given_) == plain


def test_a_progress_bar_that_is_colourful() -> None:
    """SK-181."""
    bar = "".join(f"\r\x1b[2K\x1b[32m{'█' * (n // 10):<10}\x1b[0m {n:3}%" for n in range(101))
    assert plain_text(f"\x1b[?25l{bar}\x1b[?25h\r\nbuilt\r\n") == "██████████ 100%\nbuilt\n"


def is_plain(text: str) -> bool:
    return all(char in "\t\n" or unicodedata.category(char) not in ("Cc", "Cs") for char in text)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_whatever_is_written_becomes_plain_and_stays_so(text: str) -> None:
    """SK-181."""
    plain = plain_text(text)
    assert is_plain(plain)
    assert plain_text(plain) == plain
    assert plain.count("\n") <= text.count("\n")


@given(st.binary(max_size=300))
def test_any_bytes_become_plain(data: bytes) -> None:
    assert is_plain(plain_text(data))


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_text_without_controls_is_left_alone(text: str) -> None:
    assert plain_text(text) == text
    assert plain_text(text.encode()) == text


@pytest.mark.parametrize(
    "piece",
    [
        *("\x1b", "\x1b]", "\x1b[", "\x1bP", "\x9d", "\x90", "\x1b]a\n", "\x9da", "\r", "\b", "\r\n", "a\b", "\x1b[2K"),
        *(
            "a\x1b[2K",
            "a\x1b[K\r",
            "\x1b[1",
            "\x1b(",
            "\x1b]8;;\x1b",
            "\x1b[9C\r",
            "\udc9d",
            "x\x1b[1K",
            "\x1b[200D",
            "\udce2",
            "\udce2\udc9b",
        ),
    ],
)
def test_it_takes_linear_time(piece: str) -> None:
    """Four times the text takes some four times as long, not sixteen; what is measured is the best of three."""

    def seconds(text: str) -> float:
        times = []
        for _ in range(3):
            begun = time.process_time()
            plain_text(text)
            times.append(time.process_time() - begun)
        return min(times)

    count = 100_000 // len(piece)
    short = max(seconds(piece * (count // 4)), 0.001)
    assert seconds("x" * 25_000 + piece * count) < 12 * short + 0.1
