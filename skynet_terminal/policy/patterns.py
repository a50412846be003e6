"""What "allow always" is stored as: the words of a program's arguments, never a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

ANY = "*"
"""For exactly one word."""
REST = "**"
"""For any number of words, at the end."""
_LITERAL = "\\"
"""Before a word that is itself one of these, or begins so."""


@dataclass(frozen=True, slots=True)
class ArgvPattern:
    """
    ``words`` in order, each as it is, :data:`ANY`, or last :data:`REST`. Stored words that are themselves stars have a
    backslash before them.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words:
            raise ValueError("a pattern has at least the program's name")
        if self.words[0] in (ANY, REST):
            raise ValueError("a pattern begins with the program's name")
        if REST in self.words[:-1]:
            raise ValueError(f"{REST!r} can only be the last word")
        if any("\0" in word for word in self.words):
            raise ValueError("a word cannot hold a NUL")

    @classmethod
    def for_command(cls, argv: Sequence[str]) -> ArgvPattern:
        """Of exactly this command."""
        return cls(
            tuple(_LITERAL + word if word in (ANY, REST) or word.startswith(_LITERAL) else word for word in argv)
        )

    @classmethod
    def parse(cls, text: str) -> ArgvPattern:
        """
        Of a JSON array of strings.

        Raises:
            ValueError: it is none, or no pattern.
        """
        try:
            words = json.loads(text)
        except RecursionError as exc:
            raise ValueError("a pattern is a JSON array of strings") from exc
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("a pattern is a JSON array of strings")
        return cls(tuple(words))

    def format(self) -> str:
        return json.dumps(list(self.words), ensure_ascii=False, separators=(",", ":"))

    def matches(self, argv: Sequence[str]) -> bool:
        words = self.words
        if words[-1] == REST:
            words = words[:-1]
            argv = argv[: len(words)] if len(argv) >= len(words) else argv
        return len(words) == len(argv) and all(
            pattern == ANY or (pattern[1:] if pattern.startswith(_LITERAL) else pattern) == word
            for pattern, word in zip(words, argv, strict=True)
        )
