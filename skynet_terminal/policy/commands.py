"""Simple commands as they would be started: what the rules look at."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from skynet_terminal.policy.words import HOME, UNKNOWN, Word


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Word

    @property
    def writes(self) -> bool:
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class Input:
    """What a command reads: a text that is known, or what other commands write."""

    text: str | None = None
    sources: tuple[Command, ...] = ()
    """The commands before it in its pipeline, or in the ``<(...)`` that it reads."""


NO_INPUT = Input()
_ROOT_AGAIN = re.compile(r"/proc/(?:self|thread-self|\d+|\*|\?)(?:/task/[^/]+)?/root(?=/|$)")
DOWNLOAD = "\0download"
DECODED = "\0decoded"
PROGRAM = "\0program "


@dataclass(slots=True, kw_only=True, eq=False)
class Command:
    words: tuple[Word, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    stdin: Input = NO_INPUT
    cwd: str | None = HOME
    """The folder it is started in, None if that is not known."""
    outer: Command | None = None
    """The command that starts it, if it is one of those that start others."""
    files: dict[str, str] = field(default_factory=dict)
    """What the same line has written to files before, by path: :data:`DOWNLOAD`, or the text."""
    inside: tuple[Command, ...] = ()
    """The commands of its ``$(...)`` and ``<(...)``."""
    mounted: tuple[tuple[str, ...], ...] = ()
    """Folders of the machine that are as near as the person's own: the parts of their paths."""
    guess: bool = False
    """Taken from a text that may be none: only what is certainly dangerous counts."""
    program: str = ""
    """The name without folders, in small letters; "" where it is not known."""

    def __post_init__(self) -> None:
        if self.words and self.words[0].known and not self.words[0].glob:
            self.program = posixpath.basename(self.words[0].text).lower()

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]

    def upstream(self) -> list[Command]:
        """What writes into it, nearest first, and what writes into that."""
        found: list[Command] = []
        waiting = list(self.stdin.sources)
        while waiting and len(found) < 100:
            command = waiting.pop()
            found.append(command)
            waiting += command.stdin.sources
        return found

    def __str__(self) -> str:
        line = " ".join(str(word) for word in self.words)
        return line if len(line) <= 160 else line[:159] + "…"


def path_of(text: str, cwd: str | None) -> str:
    """Absolute and without ``..``, by components; begins with :data:`UNKNOWN` if it is not known where it is."""
    if text.startswith(UNKNOWN):
        return text
    if not text.startswith("/"):
        if cwd is None:
            return UNKNOWN
        text = f"{cwd}/{text}"
    head, unknown, _ = text.partition(UNKNOWN)
    if unknown:
        # what is behind may lead anywhere
        return UNKNOWN
    path = "/" + posixpath.normpath(head).lstrip("/")
    # the kernel's other names of the root
    while (match := _ROOT_AGAIN.match(path)) is not None:
        path = "/" + path[match.end() :].lstrip("/")
    return path


class Options:
    """
    A program's arguments taken apart as getopt does. ``valued`` are the letters, and ``long_valued`` the names, that
    take the word after them. Long names may be shortened, as GNU programs allow.
    """

    def __init__(self, words: Sequence[Word], valued: str = "", long_valued: Sequence[str] = ()) -> None:
        self.letters: set[str] = set()
        self.names: set[str] = set()
        self.values: dict[str, list[Word]] = {}
        self.operands: list[Word] = []
        self.uncertain = False
        """An unknown word may be an option, or several."""
        rest = iter(words)
        for word in rest:
            text = word.text
            if word.several:
                self.uncertain = True
            if text == "--":
                self.operands += rest
            elif text.startswith("--"):
                name, equals, value = text[2:].partition("=")
                self.names.add(name)
                if equals:
                    self.values.setdefault(name, []).append(Word(value, word.glob, word.several))
                elif len(name) > 2 and any(each.startswith(name) for each in long_valued):
                    following = next(rest, None)
                    if following is not None:
                        self.values.setdefault(name, []).append(following)
            elif text.startswith("-") and len(text) > 1:
                for index, letter in enumerate(text[1:], 1):
                    self.letters.add(letter)
                    if letter in valued:
                        value = text[index + 1 :]
                        given = Word(value, word.glob, word.several) if value else next(rest, None)
                        if given is not None:
                            self.values.setdefault(letter, []).append(given)
                        break
            else:
                self.operands.append(word)

    def has(self, letters: str, *names: str) -> bool:
        """One of the letters, or one of the names or a beginning of it."""
        return bool(self.letters.intersection(letters)) or any(
            name == given or (given != "" and name.startswith(given)) for name in names for given in self.names
        )

    def value(self, *names: str) -> list[Word]:
        """Of the letters and names, in the order of ``names``; a name may be shortened."""
        given = [
            each
            for name in names
            for each in self.values
            if each == name or (len(each) > 2 and name.startswith(each) and each not in names)
        ]
        return [word for name in dict.fromkeys(given) for word in self.values[name]]
