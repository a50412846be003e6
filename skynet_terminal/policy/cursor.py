"""A place in a text, and how much may still be read."""

from __future__ import annotations

import re

from skynet_terminal.policy.grammar import Unreadable

MOST_DEPTH = 24
"""Of commands in commands: what people write has three or four."""

META = frozenset(" \t\n;&|<>()")
PLAIN = re.compile(r"[^ \t\n;&|<>()$`'\"\\]+")
CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "]]", "in"})
_RESERVED = CLOSING | {"!", "time", "{", "if", "while", "until", "for", "select", "case", "function", "[[", "coproc"}


class Cursor:
    def __init__(self, text: str, depth: int, budget: list[int]) -> None:
        self.text = text
        self.at = 0
        self.depth = depth
        self.budget = budget  # shared with the cursors of what is inside

    def peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def blank(self) -> None:
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\\" and text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                stop = text.find("\n", self.at)
                self.at = len(text) if stop < 0 else stop
            else:
                return

    def reserved(self) -> str:
        """The word here if it is one of the grammar's, "" otherwise. Nothing is read."""
        match = PLAIN.match(self.text, self.at)
        if match is None or self.text[match.end() : match.end() + 1] in ("$", "`", "'", '"', "\\"):
            return ""
        return match[0] if match[0] in _RESERVED else ""

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Unreadable(f"commands within commands are more than {MOST_DEPTH} deep", too_much=True)

    def spend(self) -> None:
        self.budget[0] -= 1
        if self.budget[0] < 0:
            raise Unreadable("it is too entangled", too_much=True)
