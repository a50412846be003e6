"""Which files a command reads or writes, and what rules ask of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from skynet_terminal.policy import paths
from skynet_terminal.policy.checks.written import written
from skynet_terminal.policy.commands import Command, Options, path_of
from skynet_terminal.policy.rules import Check
from skynet_terminal.policy.words import UNKNOWN, Word


def writes_device(command: Command) -> str | None:
    for word in written(command):
        path = path_of(word.text, command.cwd)
        if paths.block_device(path):
            return f"{command.program or 'a redirection'} to {word}"
    if command.program in ("shred", "wipefs", "badblocks", "hdparm", "blkdiscard", "sg_format"):
        for word in command.arguments:
            if paths.block_device(word.text):
                return f"{command.program} of {word}"
    return None


def reads_device(command: Command) -> str | None:
    for word in _paths(command):
        if paths.block_device(path_of(word.text, command.cwd)) and word.text.startswith("/"):
            return str(word)
    return None


def writes_system(command: Command) -> str | None:
    for given in written(command):
        word = given
        if UNKNOWN in word.text and word.text.startswith("/") and not word.text.startswith("/" + UNKNOWN):
            # below a folder that is known
            word = Word(re.sub(r"\0", "x", word.text), word.glob)
        path = path_of(word.text, command.cwd)
        if paths.harmless_device(path):
            continue
        zone, _ = paths.zone(word, command.cwd, command.mounted)
        if zone in ("root", "top", "system"):
            return f"{command.program or 'a redirection'} to {word}"
    return None


def writes_unknown(command: Command) -> str | None:
    """A redirection whose file begins with something unknown, which may be any."""
    for redirect in command.redirects:
        if redirect.writes and redirect.target.text.startswith(UNKNOWN + "/"):
            return f"a redirection to {redirect.target}"
    return None


_NOT_PATHS = frozenset(
    [
        "echo",
        "printf",
        ":",
        "true",
        "false",
        "test",
        "[",
        "alias",
        "unalias",
        "export",
        "declare",
        "local",
        "unset",
        "kill",
        "sleep",
        "which",
        "type",
        "set",
    ]
)


_SPLIT = re.compile(r"[=@:,]")


def _paths(command: Command) -> Iterator[Word]:
    """Every word that a program may take for a file, and the parts of words like ``-f=x``, ``@x`` and ``a:b``."""
    for redirect in command.redirects:
        yield redirect.target
    if command.program in _NOT_PATHS:
        return
    skip = 1 if command.program in ("grep", "egrep", "fgrep", "rg", "ag", "sed", "awk", "gawk", "jq", "git") else 0
    for word in command.words:
        text = word.text
        if not text or len(text) > 4096 or text.startswith(("http://", "https://")):
            continue
        if skip and word is not command.words[0] and not text.startswith("-"):
            skip -= 1
            if "/" not in text and "~" not in text:
                continue
        yield word
        if text.startswith("file://"):
            yield Word(text[7:], word.glob)
        elif _SPLIT.search(text):
            for part in _SPLIT.split(text):
                if part and part != text:
                    yield Word(part.lstrip("<"), word.glob)
        elif len(text) > 2 and text[0] == "-" and text[1] != "-":
            yield Word(text[2:], word.glob)


def touches(test: Callable[[Word, str | None], bool]) -> Check:
    """A file of this kind is named."""

    def check(command: Command) -> str | None:
        return next((str(word) for word in _paths(command) if test(word, command.cwd)), None)

    return check


def writes(test: Callable[[Word, str | None], bool]) -> Check:
    def check(command: Command) -> str | None:
        return next(
            (f"{command.program or 'a redirection'} to {word}" for word in written(command) if test(word, command.cwd)),
            None,
        )

    return check


def own_secret_read(command: Command) -> str | None:
    if command.program in (
        "ls",
        "touch",
        "git",
        "rm",
        "mkdir",
        "find",
        "stat",
        "chmod",
        "gitignore",
        "openssl",
        "ssh-keygen",
    ):
        return None
    put = {id(redirect.target) for redirect in command.redirects if redirect.writes and redirect.operator != "<>"}
    if command.program in ("cp", "mv", "install", "tee"):
        operands = Options(command.arguments).operands
        put |= {id(word) for word in (operands if command.program == "tee" else operands[-1:])}
    found = (word for word in _paths(command) if id(word) not in put and paths.own_secret(word, command.cwd))
    return next(map(str, found), None)
