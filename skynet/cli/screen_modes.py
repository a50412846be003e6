"""Which of a terminal's modes a program has switched, so that they can be switched back when it is left."""

from __future__ import annotations

import re

_MODE = re.compile(r"\x1b\[\?([\d;]+)([hl])")
_UNFINISHED = re.compile(r"\x1b(?:\[(?:\?[\d;]*)?)?\Z")
_RESTORED = frozenset({1, 9, 25, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004})
"""Cursor keys, mouse reports, the cursor itself, the other screen, focus reports, bracketed paste."""
_ON_AT_FIRST = frozenset({25})
_LONGEST_UNFINISHED = 64


class ScreenModes:
    """Looks at the output of a program as it comes, in pieces of any size."""

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        for found in _MODE.finditer(text):
            for number in {int(part) for part in found[1].split(";") if part and len(part) < 6} & _RESTORED:
                if (found[2] == "h") == (number in _ON_AT_FIRST):
                    self._changed.discard(number)
                else:
                    self._changed.add(number)
        unfinished = _UNFINISHED.search(text[-_LONGEST_UNFINISHED:])
        self._rest = "" if unfinished is None else unfinished[0]

    def undo(self) -> str:
        """What puts the terminal back, leaving the other screen last."""
        modes = sorted(self._changed, key=lambda number: (number in (47, 1047, 1049), number))
        back = "".join(f"\x1b[?{number}{'h' if number in _ON_AT_FIRST else 'l'}" for number in modes)
        return f"{back}\x1b>\x1b[0m"  # keypad and colours as at first
