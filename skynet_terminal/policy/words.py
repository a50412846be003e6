"""Words as the shell would expand them, as far as that is known without running anything."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Mapping
from typing import NamedTuple

from skynet_terminal.policy.grammar import (
    Calculation,
    Document,
    Elements,
    Part,
    Phrase,
    Process,
    Script,
    Substitution,
    Text,
    Unreadable,
    Variable,
)

UNKNOWN = "\0"
"""Stands in a word for what only the running would show. No word can hold it: no argument of a program can."""
BETWEEN = "\2"
"""Stands between the words of ``"$@"``."""
BENEATH = "\1"
"""Stands for the name of something beneath a folder, which the program itself finds (``{}`` of find)."""

MOST_WORDS = 512
"""Of one brace expansion."""

HOME = "/files"
_IFS = " \t\n"


class Word(NamedTuple):
    text: str
    glob: bool = False
    """There are ``*``, ``?`` or ``[`` in it that the shell expands."""
    several: bool = False
    """It may be no word, or many: an unknown value that is not in quotes."""

    @property
    def known(self) -> bool:
        return UNKNOWN not in self.text

    def __str__(self) -> str:
        return shown(self.text)


def shown(text: str, most: int = 80) -> str:
    """For a person: quoted as a shell would need it, what is not known as an ellipsis, shortened."""
    text = text.replace(UNKNOWN, "…").replace(BENEATH, "…")
    if len(text) > most:
        text = text[: most - 1] + "…"
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    return text if text and all(char.isalnum() or char in "…-_./=:~*@%+,{}?[]!" for char in text) else shlex.quote(text)


class Expander:
    """
    Expands phrases with the variables that are known. ``substitute`` is given the script of every ``$(...)`` that is
    met and answers with its output, or None; ``process`` that of every ``<(...)``, and answers with the word for its
    file.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        cwd: str | None,
        substitute: Callable[[Script], str | None],
        process: Callable[[Script, bool], str],
    ) -> None:
        self._variables = variables
        self._cwd = cwd
        self._substitute = substitute
        self._process = process

    def words(self, phrase: Phrase) -> list[Word]:
        """All expansions, in the shell's order: braces, tilde, variables, splitting. Names are not matched to files."""
        if len(phrase) == 1 and isinstance(phrase[0], Text) and not phrase[0].quoted:
            text = phrase[0].value
            if not _SPECIAL.intersection(text):
                return [Word(text)]
        text, mask, quoted = self._characters(phrase)
        found: list[Word] = []
        for alternative, kinds in _braces(text, mask):
            expanded, marks = self._tilde(alternative, kinds)
            found += self._split(expanded, marks, quoted)
            if len(found) > MOST_WORDS:
                raise Unreadable(f"one word becomes more than {MOST_WORDS}", too_much=True)
        return found

    def text(self, phrase: Phrase) -> str:
        """As one word that is not split: of an assignment, a here document, a redirection."""
        text, mask, _ = self._characters(phrase)
        return self._tilde(text, mask)[0]

    def _characters(self, phrase: Phrase) -> tuple[str, str, bool]:
        """The text; for each character if it is quoted (q), plain (u) or expanded (s); and if there were quotes."""
        texts: list[str] = []
        masks: list[str] = []
        any_quoted = False
        for part in phrase:
            value, kind = self._value(part)
            any_quoted = any_quoted or kind == "q"
            texts.append(value)
            masks.append(kind * len(value))
        return "".join(texts), "".join(masks), any_quoted

    def _value(self, part: Part) -> tuple[str, str]:
        match part:
            case Text():
                return part.value, "q" if part.quoted else "u"
            case Variable():
                return self._variable(part), "q" if part.quoted else "s"
            case Substitution():
                output = self._substitute(part.script)
                return UNKNOWN if output is None else output.rstrip("\n"), "q" if part.quoted else "s"
            case Process():
                return self._process(part.script, part.output), "q"
            case Calculation():
                self.text(part.parts)
                # a number holds no blank and no slash, but which it is is not known
                return UNKNOWN, "q"
            case Elements():
                for word in part.words:
                    self.words(word)
                return UNKNOWN, "q"
            case Document():
                return self.text(tuple(part.parts)), "q"

    def _variable(self, part: Variable) -> str:
        value = self._variables.get(part.name)
        argument = self.text(part.argument) if part.argument else ""
        match part.operator:
            case "":
                return UNKNOWN if value is None else value
            case ":-" | "-" | ":=" | "=":
                if value is None:
                    # the shell may have a value for it; if it has none it is this
                    return argument if part.name not in self._variables and _is_unset(part.name) else UNKNOWN
                return argument if not value and part.operator[0] == ":" else value
            case ":+" | "+":
                return UNKNOWN if value is None else argument if value or part.operator == "+" else ""
            case ":?" | "?":
                return UNKNOWN if value is None else value
            case ":" if value is not None and UNKNOWN not in value:
                start, _, length = argument.strip().partition(":")
                try:
                    first = int(start or "0")
                    rest = value[first:] if first >= -len(value) else ""
                    if not length:
                        return rest
                    count = int(length)
                    return rest[:count]
                except ValueError:
                    return UNKNOWN
            case _:
                return UNKNOWN

    def _tilde(self, text: str, mask: str) -> tuple[str, str]:
        if not text.startswith("~") or mask[0] != "u":
            return text, mask
        name, slash, rest = text.partition("/")
        if "q" in mask[: len(name)]:
            return text, mask
        place = {"~": self._variables.get("HOME", UNKNOWN), "~+": self._cwd or UNKNOWN, "~root": "/root"}.get(name)
        if place is None:
            place = UNKNOWN if name == "~-" else f"/home/{name[1:]}"
        return place + slash + rest, "q" * len(place) + mask[len(name) :]

    def _split(self, text: str, mask: str, quoted: bool) -> list[Word]:
        if "s" not in mask and BETWEEN not in text:
            return [_word(text, mask)] if text or quoted else []
        blanks = self._variables.get("IFS", _IFS)
        found: list[Word] = []
        start = 0
        for index, (char, kind) in enumerate(zip(text, mask, strict=True)):
            if char == BETWEEN or (kind == "s" and char in blanks):
                if index > start:
                    found.append(_word(text[start:index], mask[start:index]))
                start = index + 1
        if start < len(text) or (quoted and not found and not text):
            found.append(_word(text[start:], mask[start:]))
        return found


_SPECIAL = frozenset("{}~*?[")


def _is_unset(name: str) -> bool:
    """A variable of an own, small name: environments hold capitals."""
    return name.islower()


def _word(text: str, mask: str) -> Word:
    glob = several = False
    for char, kind in zip(text, mask, strict=True):
        if char in "*?[" and kind != "q":
            glob = glob or char != "[" or "]" in text
        elif char == UNKNOWN and kind == "s":
            several = True
    return Word(text, glob, several)


def _braces(text: str, mask: str) -> list[tuple[str, str]]:
    """``a{b,c}`` and ``{1..3}``, in plain characters alone."""
    if "{" not in text or "u" not in mask:
        return [(text, mask)]
    done: list[tuple[str, str]] = []
    waiting = [(text, mask, 0)]
    while waiting:
        text, mask, at = waiting.pop()
        opening = text.find("{", at)
        while opening >= 0 and (mask[opening] != "u" or text[opening - 1 : opening] == "$"):
            opening = text.find("{", opening + 1)
        if opening < 0:
            done.append((text, mask))
            if len(done) > MOST_WORDS:
                raise Unreadable(f"one word becomes more than {MOST_WORDS}", too_much=True)
            continue
        depth, cuts, closing = 0, [opening], -1
        for index in range(opening, len(text)):
            if mask[index] != "u":
                continue
            char = text[index]
            if char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if depth == 0:
                    closing = index
                    break
            elif char == "," and depth == 1:
                cuts.append(index)
        if closing < 0:
            done.append((text, mask))
            continue
        cuts.append(closing)
        choices: list[tuple[str, str]] = []
        if len(cuts) > 2:
            choices = [(text[a + 1 : b], mask[a + 1 : b]) for a, b in itertools.pairwise(cuts)]
        else:
            choices = [(value, "q" * len(value)) for value in _sequence(text[opening + 1 : closing])]
        if not choices:
            waiting.append((text, mask, opening + 1))
            continue
        if len(waiting) + len(choices) > MOST_WORDS:
            raise Unreadable(f"one word becomes more than {MOST_WORDS}", too_much=True)
        for value, kinds in reversed(choices):
            waiting.append(
                (text[:opening] + value + text[closing + 1 :], mask[:opening] + kinds + mask[closing + 1 :], opening)
            )
    return done


def _sequence(text: str) -> list[str]:
    """``1..3`` and ``a..c``; many become one that is not known."""
    ends = text.split("..")
    if len(ends) not in (2, 3):
        return []
    try:
        first, last = int(ends[0]), int(ends[1])
        step = abs(int(ends[2])) if len(ends) == 3 else 1
    except ValueError:
        if len(ends) == 2 and all(len(end) == 1 and end.isascii() for end in ends):
            codes = sorted((ord(ends[0]), ord(ends[1])))
            return [chr(code) for code in range(codes[0], codes[1] + 1)]
        return []
    low, high = min(first, last), max(first, last)
    step = step or 1
    if (high - low) // step > 64:
        return [UNKNOWN]
    return [str(number) for number in range(low, high + 1, step)]
