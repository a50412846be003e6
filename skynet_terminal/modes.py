"""Which modes a program has put its terminal into: what a screen needs before the part of its output that is left."""

from __future__ import annotations

import re

CLEARED = re.compile(rb"\x1b\[[23]J|\x1bc|\x1b\[\?(?:1049|1047|47)h|\x1b\[(?:1;1)?H\x1b\[0?J")
"""What leaves nothing of the screen before it."""
POSITIONED = re.compile(rb"\x1b\[[\x30-\x3b]*[Hfd]")
"""What writes somewhere else than where text goes on: only programs that draw do it."""
MAIN_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)l")
RESET = (
    b"\x18\x1b[?1049l\x1b[!p\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b(B\x1b)B\x0f\x1b[m\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l"
    b"\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[H\x1b[2J"
)
"""What makes a terminal like new in the middle of anything, and keeps what has scrolled away."""

_CONTROL = re.compile(rb"\x1b\[([\x3c-\x3f]?)([\x30-\x3b]*)([\x20-\x2f]*)([\x40-\x7e])")
_SCREENS = frozenset({b"47", b"1047", b"1049"})
_SET_AT_FIRST = frozenset({b"?7", b"?25"})  # auto-wrap, visible cursor
_KEPT = (
    frozenset({b"4", b"20"})  # insert, newline
    | {b"?" + mode for mode in (b"1", b"5", b"6", b"7", b"12", b"25", b"45", b"66", b"2004")}
    | {b"?" + mode for mode in (b"9", b"1000", b"1002", b"1003", b"1004", b"1005", b"1006", b"1007", b"1015", b"1016")}
)
_MOUSE = frozenset({b"?9", b"?1000", b"?1002", b"?1003"})  # setting one ends the others
_COLOUR = re.compile(rb"([345]8)[;:](?:5[;:]\d*|2[;:][\d:]*(?:;\d*;\d*)?)")
_RENDITIONS = 64
_LONGEST = 64
"""Longer sequences are no modes that anybody uses."""


class Modes:
    """The modes after the sequences that it was given. Pure; its size is bounded."""

    def __init__(self) -> None:
        self._alternate = b""
        self._modes: dict[bytes, bool] = {}
        self._renditions: dict[bytes, bytes] = {}
        self._charsets: dict[bytes, bytes] = {}
        self._shifted = False
        self._region = b""
        self._others: dict[bytes, bytes] = {}

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program has the screen to itself."""
        return bool(self._alternate)

    def apply(self, sequence: bytes) -> None:
        """A whole escape sequence, SO or SI was written."""
        if len(sequence) > _LONGEST:
            return
        if sequence[1:2] == b"[" and sequence[-1] not in b"mhlrqp":
            return  # most are: they move or write
        if sequence in (b"\x1b[m", b"\x1b[0m"):
            self._renditions.clear()
        elif control := _CONTROL.fullmatch(sequence):
            self._control(*control.groups())
        elif sequence in (b"\x0e", b"\x0f"):
            self._shifted = sequence == b"\x0e"
        elif sequence[1:2] in (b"(", b")") and len(sequence) > 2:
            self._keep(self._charsets, sequence[1:2], sequence, first=sequence[2:] == b"B")
        elif sequence in (b"\x1b=", b"\x1b>"):
            self._keep(self._others, b"keypad", sequence, first=sequence == b"\x1b>")
        elif sequence == b"\x1bc":
            self.__init__()  # type: ignore[misc]

    def prefix(self) -> bytes:
        """What puts a new terminal into these modes. Where the cursor is, is not among them."""
        parts = []
        if self._alternate:
            parts.append(b"\x1b[?%bh" % self._alternate)
        parts.append(self._region)
        for mode, on in self._modes.items():
            parts.append(b"\x1b[%b%b" % (mode, b"h" if on else b"l"))
        parts += self._charsets.values()
        if self._shifted:
            parts.append(b"\x0e")
        parts += self._others.values()
        parts += (b"\x1b[%bm" % rendition for rendition in self._renditions.values())
        return b"".join(parts)

    def _control(self, private: bytes, values: bytes, between: bytes, final: bytes) -> None:
        if final == b"m" and not between:
            if not private:
                self._rendition(values)
            elif private == b">":  # which keys are told apart
                self._keep(self._others, b">" + values[:1], b"\x1b[>%bm" % values, first=b";" not in values)
        elif final in b"hl" and not between and private in (b"", b"?"):
            for value in values.split(b";"):
                self._mode(private, value, on=final == b"h")
        elif final == b"r" and not private and not between:
            self._region = b"\x1b[%br" % values if values.strip(b"0;") else b""
        elif final == b"q" and between == b" ":
            self._keep(self._others, b"cursor", b"\x1b[%b q" % values, first=values in (b"", b"0"))
        elif final == b"p" and between == b"!":
            alternate = self._alternate
            self.__init__()  # type: ignore[misc]
            self._alternate = alternate

    def _mode(self, private: bytes, value: bytes, *, on: bool) -> None:
        if private and value in _SCREENS:
            self._alternate = value if on else b""
            return
        mode = private + value
        if mode not in _KEPT:
            return
        if mode in _MOUSE:
            for other in _MOUSE:
                self._modes.pop(other, None)
        self._modes.pop(mode, None)
        if on != (mode in _SET_AT_FIRST):
            self._modes[mode] = on

    def _rendition(self, values: bytes) -> None:
        if values.startswith(b"0;"):
            self._renditions.clear()
        if not values.strip(b"0"):
            self._renditions.clear()
            return
        # What is set again counts from then on: of all that were set before, only the order matters.
        colour = _COLOUR.fullmatch(values)
        self._keep(self._renditions, colour[1] if colour else values, values, first=False)
        if len(self._renditions) > _RENDITIONS:
            del self._renditions[next(iter(self._renditions))]

    @staticmethod
    def _keep(kept: dict[bytes, bytes], key: bytes, sequence: bytes, *, first: bool) -> None:
        """``first``: this is how a terminal is at first."""
        kept.pop(key, None)
        if not first:
            kept[key] = sequence
