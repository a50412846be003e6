"""What an entry of the allowlist matches: the path of a program, or a command word by word. Never its text."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from skynet_terminal.policy.patterns import ArgvPattern

SEARCHED: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a program is that is named without a directory, whatever the gateway's own ``PATH`` is."""


class InvalidPattern(ValueError):  # noqa: N818
    """``str()`` says what is allowed."""


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A glob over the whole path of the program: ``*`` within a directory, ``**`` across them, ``?`` one character.

    Without a directory it is about programs that are where programs are (:data:`SEARCHED`).
    """

    glob: str

    def matches(self, argv: Sequence[str], resolve: Callable[[str], str]) -> str | None:
        path = resolve(argv[0])
        return path if path and _expression(self.glob).fullmatch(path) else None


@dataclass(frozen=True, slots=True)
class WordsPattern:
    """A command's words."""

    words: ArgvPattern

    def matches(self, argv: Sequence[str], resolve: Callable[[str], str]) -> str | None:
        return "" if self.words.matches(argv) else None


Pattern: TypeAlias = PathPattern | WordsPattern
"""``matches`` gives the path that matched, "" if it was not about one, None if nothing matches."""


@lru_cache(maxsize=1024)
def parse_pattern(text: str) -> Pattern:
    """
    Raises:
        InvalidPattern: it is neither a path nor a JSON array of words.
    """
    text = text.strip()
    if text.startswith("["):
        from skynet_terminal.policy.patterns import ArgvPattern  # what only commands need is not loaded at start

        try:
            return WordsPattern(ArgvPattern.parse(text))
        except ValueError as exc:
            raise InvalidPattern(f"must be a JSON array of words: {exc}") from exc
    if not text:
        raise InvalidPattern("must NOT have fewer than 1 characters")
    return PathPattern(text)


def resolve_program(name: str, *, searched: str = SEARCHED) -> str:
    """Where the program is that a command names; "" if there is none, or that depends on where the command runs."""
    if not name or "\0" in name or (not name.startswith("/") and "/" in name):
        return ""
    found = shutil.which(name, path=searched)
    return "" if found is None else os.path.normpath(found)


@lru_cache(maxsize=1024)
def _expression(glob: str) -> re.Pattern[str]:
    if glob == "~" or glob.startswith("~/"):
        try:
            glob = f"{Path.home()}{glob[1:]}"
        except RuntimeError:  # a container's user that nobody knows
            return re.compile(r"(?!)")
    parts = [] if "/" in glob else [f"(?:{'|'.join(map(re.escape, SEARCHED.split(':')))})/"]
    glob = re.sub(r"\*{3,}", "**", re.sub(r"(?:\*\*/)+", "**/", glob))  # more of them say nothing more, and take long
    for part in re.findall(r"\*\*/|\*+|\?|[^*?]+", glob):
        match part:
            case "**/":
                parts.append("(?:[^/]*/)*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _ if part.startswith("*"):
                parts.append(".*")
            case _:
                parts.append(re.escape(part))
    return re.compile("".join(parts), re.DOTALL)
