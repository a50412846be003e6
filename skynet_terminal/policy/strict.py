"""What is known to be harmless: the commands that the level strict allows. Everything else is refused there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from skynet_terminal.policy import paths
from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import Word


@dataclass(frozen=True, slots=True)
class Harmless:
    """With these options; ``operands`` says what stands behind them."""

    letters: str = ""
    names: tuple[str, ...] = ()
    valued: str = ""
    """Of the letters, those that take a word."""
    operands: str = "files"
    """``files``, ``text`` (anything), ``none``, ``pattern`` (one text, then files), ``one`` (one file at most)."""
    check: Callable[[Command], bool] | None = None


_DIGITS = "0123456789"


def _find_only_looks(command: Command) -> bool:
    tests = {
        "-name", "-iname", "-type", "-maxdepth", "-mindepth", "-size", "-mtime", "-mmin", "-newer", "-empty", "-print",
        "-print0", "-o", "-a", "-not", "-path", "-ipath", "-ls", "-prune",
    }  # fmt: skip
    return all(
        text in tests or not text.startswith("-") or re.fullmatch(r"-\d+", text) is not None
        for text in command.texts[1:]
    )


def _tests(command: Command) -> bool:
    return all(word.known for word in command.words)


HARMLESS: dict[str, Harmless] = {
    "ls": Harmless("aAlhrtS1RFdispmgGnCxBk", ("all", "almost-all", "human-readable", "recursive", "reverse", "color")),
    "cat": Harmless("nbsAETvet", ("number", "show-all")),
    "head": Harmless("ncqv" + _DIGITS, ("lines", "bytes", "quiet"), "nc"),
    "tail": Harmless("ncqv" + _DIGITS, ("lines", "bytes", "quiet"), "nc"),
    "wc": Harmless("lwcmL", ("lines", "words", "bytes", "chars")),
    "sort": Harmless("nrufkthbdVMgsc", ("numeric-sort", "reverse", "unique", "key", "field-separator"), "kt"),
    "uniq": Harmless("cduif", ("count", "repeated", "unique", "ignore-case"), "f", "one"),
    "cut": Harmless("dfcbs", ("delimiter", "fields", "characters", "bytes", "output-delimiter"), "dfcb"),
    "tr": Harmless("dscC", ("delete", "squeeze-repeats", "complement"), "", "text"),
    "grep": Harmless("inrRvcowlLEFHhxqsABCm" + _DIGITS, ("ignore-case", "line-number", "color"), "ABCm", "pattern"),
    "egrep": Harmless("inrvcowlLHhxqs", (), "", "pattern"),
    "fgrep": Harmless("inrvcowlLHhxqs", (), "", "pattern"),
    "find": Harmless(check=_find_only_looks),
    "diff": Harmless("uqrswbBiyNa", ("unified", "brief", "side-by-side", "color")),
    "cmp": Harmless("sl", ("silent",)),
    "comm": Harmless("123"),
    "file": Harmless("biL", ("brief", "mime")),
    "stat": Harmless("ct", ("format",), "c"),
    "du": Harmless("shacdm" + _DIGITS, ("max-depth", "summarize", "human-readable", "total"), "d"),
    "df": Harmless("hT", ("human-readable",), "", "none"),
    "basename": Harmless("", (), "", "text"),
    "dirname": Harmless("", (), "", "text"),
    "realpath": Harmless(),
    "seq": Harmless("sw", ("separator", "equal-width"), "s", "text"),
    "expr": Harmless("", (), "", "text"),
    "factor": Harmless("", (), "", "text"),
    "true": Harmless("", (), "", "text"),
    "false": Harmless("", (), "", "text"),
    ":": Harmless("", (), "", "text"),
    "echo": Harmless("neE", (), "", "text", _tests),
    "printf": Harmless("", (), "", "text", _tests),
    "pwd": Harmless("LP", (), "", "none"),
    "date": Harmless("uIR", ("utc", "iso-8601", "rfc-3339"), "", "text",
                     lambda command: all(text.startswith(("+", "-u", "-I", "-R")) for text in command.texts[1:])),
    "cal": Harmless("my13" + _DIGITS, (), "", "text"),
    "sleep": Harmless("", (), "", "text"),
    "whoami": Harmless("", (), "", "none"),
    "id": Harmless("ungG", (), "", "none"),
    "uname": Harmless("amnrsvpo", ("all",), "", "none"),
    "nproc": Harmless("", ("all",), "", "none"),
    "uptime": Harmless("p", ("pretty",), "", "none"),
    "md5sum": Harmless(),
    "sha1sum": Harmless(),
    "sha256sum": Harmless(),
    "sha512sum": Harmless(),
    "cksum": Harmless(),
    "rev": Harmless(),
    "tac": Harmless(),
    "nl": Harmless("ba", (), "b"),
    "fold": Harmless("sw", (), "w"),
    "fmt": Harmless("w", (), "w"),
    "column": Harmless("tsc", (), "sc"),
    "paste": Harmless("ds", (), "d"),
    "join": Harmless("t12jai", (), "t12jai"),
    "strings": Harmless("n", (), "n"),
    "hexdump": Harmless("C"),
    "od": Harmless("cxdAtN", (), "AtN"),
    "tree": Harmless("LadfhsC", (), "L"),
    "cd": Harmless(),
    "mkdir": Harmless("pv", ("parents", "verbose")),
    "touch": Harmless("c"),
    "test": Harmless("efdrwxszn", (), "", "text", _tests),
    "[": Harmless("efdrwxszn", (), "", "text", _tests),
    "exit": Harmless("", (), "", "text"),
}  # fmt: skip


def refused(command: Command) -> str | None:
    """The part that is not known to be harmless; None if all of it is."""
    for name, value in command.assignments:
        if name in ("PATH", "IFS", "HOME") or name.isupper() or not value.isprintable():
            return f"the variable {name}"
    for redirect in command.redirects:
        target = redirect.target
        if target.text in ("/dev/null", "/dev/stdout", "/dev/stderr") or (
            redirect.operator in (">&", "<&") and target.text in "12-"
        ):
            continue
        if not _own_file(target, command) or (redirect.writes and target.text.rpartition("/")[2].startswith(".")):
            return f"a redirection to {target}"
    if not command.words:
        return None
    entry = HARMLESS.get(command.texts[0])
    if entry is None:
        return str(command.words[0]) if command.words[0].known else "a program whose name is not known"
    for word in command.words:
        if not word.known:
            return f"{command.words[0]} with a word that is not known"
    if entry.check is not None and not entry.check(command):
        return str(command)
    if command.program == "find":
        operands = Options(command.arguments).operands
        return next(
            (str(word) for word in operands if word.text.startswith(("/", "~", "..")) and not _own_file(word, command)),
            None,
        )
    options = Options(command.arguments, entry.valued)
    known = options.letters <= set(entry.letters) and options.names <= set(entry.names)
    if not known and entry.operands != "text":
        return f"an option of {command.words[0]}"
    match entry.operands:
        case "files":
            files = options.operands
        case "pattern":
            files = options.operands[1:]
        case "one":
            files = options.operands
            if len(files) > 1:
                return f"{command.words[0]} with a file to write to"
        case "none":
            return f"{command.words[0]} with {options.operands[0]}" if options.operands else None
        case _:
            return None
    return next((f"{command.words[0]} of {word}" for word in files if not _own_file(word, command)), None)


def _own_file(word: Word, command: Command) -> bool:
    zone, _ = paths.zone(word, command.cwd, command.mounted)
    return zone in ("home", "inside", "temporary") and word.known
