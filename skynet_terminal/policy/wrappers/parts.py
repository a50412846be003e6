"""What a program can start."""

from __future__ import annotations

from dataclasses import dataclass

from skynet_terminal.policy.words import Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh", "yash", "pwsh"})


@dataclass(frozen=True, slots=True)
class Argv:
    """A program and its arguments."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    reads: bool = True
    """It reads what its starter reads."""


@dataclass(frozen=True, slots=True)
class Line:
    """A text that a shell is given."""

    text: str
    arguments: tuple[Word, ...] = ()
    """``$0``, ``$1``..."""
    same_shell: bool = False
    guess: bool = False
    """It may be none."""


@dataclass(frozen=True, slots=True)
class Code:
    """A text that an interpreter is given."""

    text: str


Start = Argv | Line | Code


def behind_options(words: tuple[Word, ...], valued: str, long_valued: tuple[str, ...]) -> int:
    """Where the first operand is."""
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            return at + 1
        if not text.startswith("-") or text == "-":
            return at
        if text.startswith("--"):
            at += 2 if text[2:] in long_valued else 1
            continue
        taken = next((index for index, letter in enumerate(text[1:], 1) if letter in valued), 0)
        at += 2 if taken == len(text) - 1 and taken else 1
    return at
