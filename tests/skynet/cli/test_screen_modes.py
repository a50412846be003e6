"""Modes that a program switched are switched back, however its output was cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from skynet.cli.screen_modes import ScreenModes

PLAIN = "\x1b>\x1b[0m"


def undone(*pieces: str) -> str:
    modes = ScreenModes()
    for piece in pieces:
        modes.feed(piece)
    return modes.undo().removesuffix(PLAIN)


def test_a_full_screen_program_that_was_left() -> None:
    assert undone("\x1b[?1049h\x1b[?1h\x1b[?1000;1006h\x1b[?25l\x1b[?2004h text") == (
        "\x1b[?1l\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?1049l"
    )


def test_one_that_ended_leaves_nothing_to_do() -> None:
    assert undone("\x1b[?1049h\x1b[?25l", "…", "\x1b[?25h\x1b[?1049l") == ""
    assert undone("no modes at all \x1b[31mred\x1b[0m") == ""
    assert undone("\x1b[?12h\x1b[?99999999999h\x1b[?7l") == ""  # of no concern


@given(
    st.lists(st.sampled_from(["\x1b[?1049h", "\x1b[?25l", "\x1b[?1000h", "\x1b[?1000l", "x", "\x1b", "[?", "\x1b[?1"]))
)
def test_however_it_is_cut(parts: list[str]) -> None:
    whole = "".join(parts)
    assert undone(whole) == undone(*whole)


@given(st.lists(st.text()))
def test_nothing_grows(pieces: list[str]) -> None:
    modes = ScreenModes()
    for piece in ["\x1b[?" + "1;" * 1000, *pieces]:
        modes.feed(piece)
        assert len(modes._rest) <= 64
