"""Programs that start others for every file or word they meet: find, xargs, parallel."""

from __future__ import annotations

import re
from collections.abc import Iterator

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import BENEATH, UNKNOWN, Word
from skynet_terminal.policy.wrappers.parts import Argv, Line, Start, behind_options


def found(command: Command) -> list[Word]:
    """The files that find meets, as words."""
    points: list[Word] = []
    for word in command.arguments:
        if word.text in ("-H", "-L", "-P") or word.text.startswith(("-O", "-D")):
            continue
        if word.text.startswith(("-", "(", "!")) or word.text in (")", ","):
            break
        points.append(word)
    narrow = False
    texts = command.texts
    for index, text in enumerate(texts[:-1]):
        if text in _NARROWING:
            pattern = texts[index + 1]
            narrow = narrow or bool(re.sub(r"\[[^\]]*\]|[*?.]", "", pattern))
        narrow = narrow or text == "-empty"
    if "-o" in texts or "-or" in texts or "!" in texts or "-not" in texts:
        # one side may meet everything: narrow only if each side is
        sides = " ".join(texts).replace(" -or ", " -o ").split(" -o ")
        narrow = narrow and all(any(f"{test} " in side for test in _NARROWING) for side in sides)
        narrow = narrow and "!" not in texts and "-not" not in texts
    narrow = narrow or texts[-1:] == ["-empty"] or "-empty" in texts
    points = points or [Word(".")]
    if narrow:
        return [Word(f"{point.text}/{BENEATH}", point.glob) for point in points]
    return points


_NARROWING = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-mtime",
        "-mmin",
        "-newer",
        "-newermt",
        "-atime",
        "-ctime",
        "-size",
        "-perm",
        "-inum",
        "-samefile",
        "-lname",
        "-cmin",
        "-amin",
        "-user",
    ]
)


def find(command: Command) -> Iterator[Start]:
    words = command.words
    names = found(command)
    for index, word in enumerate(words):
        if word.text not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        inner: list[Word] = []
        for argument in words[index + 1 :]:
            if argument.text == ";" or (argument.text == "+" and inner and inner[-1] in names):
                break
            if argument.text == "{}":
                inner += names
            elif "{}" in argument.text:
                inner.append(Word(argument.text.replace("{}", names[0].text)))
            else:
                inner.append(argument)
        if inner:
            yield Argv(tuple(inner), reads=False)


def met(command: Command) -> list[Word]:
    """The files that fd meets, as words."""
    words = command.arguments
    end = next((index for index, word in enumerate(words) if word.text in _FD_STARTS), len(words))
    options = Options(words[:end], "tedEcjSo", ("type", "extension", "max-depth", "exclude", "base-directory"))
    points = [*options.operands[1:], *options.value("base-directory", "search-path")] or [Word(".")]
    pattern = options.operands[0].text if options.operands else ""
    narrow = bool(re.sub(r"[.*^$?+]", "", pattern)) or options.has("teSd", "type", "extension", "size", "max-depth")
    return [Word(f"{point.text}/{BENEATH}", point.glob) for point in points] if narrow else points


_FD_STARTS = ("-x", "-X", "--exec", "--exec-batch")


def fd(command: Command) -> Iterator[Start]:
    words = command.arguments
    names = met(command)
    for index, word in enumerate(words):
        if word.text not in _FD_STARTS:
            continue
        inner: list[Word] = []
        for argument in words[index + 1 :]:
            if argument.text == ";":
                break
            inner += names if argument.text in ("{}", "{.}", "{//}") else [argument]
        if inner:
            placed = any(argument.text.startswith("{") for argument in words[index + 1 :])
            yield Argv(tuple(inner) if placed else (*inner, *names), reads=False)


_LISTERS = frozenset({"grep", "egrep", "rg", "ag", "git", "fd", "fdfind", "locate", "cat", "sort", "head", "tail"})


def xargs(command: Command) -> Iterator[Start]:
    rest = command.arguments
    long_valued = ("arg-file", "delimiter", "max-lines", "max-args", "max-procs", "max-chars")
    at = behind_options(rest, "adEILnPs", long_valued)
    options = Options(rest[:at], "adEILnPs", long_valued)
    marks = [word.text for word in options.value("I", "replace")] or (["{}"] if options.has("i", "replace") else [])
    items = _items(command, lines=bool(marks))
    inner: list[Word] = []
    for word in rest[at:]:
        if marks and marks[0] and marks[0] in word.text:
            inner += [
                word._replace(text=word.text.replace(marks[0], item.text), glob=word.glob or item.glob)
                for item in items
            ]
        else:
            inner.append(word)
    if not inner:
        inner = [Word("echo")]
    yield Argv(tuple(inner) if marks else (*inner, *items), reads=False)


def _items(command: Command, *, lines: bool = False) -> list[Word]:
    """The words (or whole lines) that are read: from a text that is known, or from what lists files."""
    text = command.stdin.text
    if text is not None and UNKNOWN not in text:
        return [Word(part) for part in (text.strip("\n").split("\n") if lines else text.split())[:200]]
    for source in command.upstream():
        if source.program == "find":
            return found(source)
        if source.program in ("fd", "fdfind"):
            return met(source)
        if source.program == "ls":
            return [Word(word.text + "/*", True) for word in Options(source.arguments).operands] or [Word("*", True)]
    upstream = command.upstream()
    if upstream and all(source.program in _LISTERS for source in upstream):
        first = upstream[-1]
        operands = [] if first.program in ("git", "fd", "fdfind") else Options(first.arguments, "ef").operands[1:]
        if first.program in ("grep", "egrep", "rg", "ag", "git", "fd", "fdfind"):
            return [Word(f"{word.text}/{BENEATH}") for word in operands] or [Word(f"./{BENEATH}")]
    return [Word(UNKNOWN, several=True)]


def parallel(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = behind_options(rest, "jPnNLISaCd", ("jobs", "arg-file", "colsep", "delay", "joblog", "timeout", "sshlogin"))
    words: list[str] = []
    items: list[str] = []
    for index, word in enumerate(rest[at:]):
        if word.text in (":::", ":::+", "::::"):
            items = [each.text for each in rest[at + index + 1 :]]
            break
        words.append(word.text)
    line = " ".join(words)
    if not items:
        items = [word.text for word in _items(command)]
    for item in items[:50]:
        if not line:
            yield Line(item)
        else:
            yield Line(line.replace("{}", item) if "{}" in line else f"{line} {item}")
