"""Shells and what gives them a text: sh -c, eval, source, trap, su, ssh."""

from __future__ import annotations

from collections.abc import Iterator

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import UNKNOWN, Word
from skynet_terminal.policy.wrappers.parts import Argv, Line, Start, behind_options


def shell(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = 0
    code = stdin = False
    while at < len(rest):
        text = rest[at].text
        if text == "--":
            at += 1
            break
        if text in ("--rcfile", "--init-file") and at + 1 < len(rest):
            yield from _file(command, rest[at + 1])
        if text in ("--rcfile", "--init-file", "-O", "+O", "-o", "+o"):
            at += 2
        elif text.lower() in ("--command", "-command"):
            code, at = True, at + 1
        elif text.startswith("--"):
            at += 1
        elif text.startswith(("-", "+")) and text != "-":
            code = code or "c" in text
            stdin = stdin or "s" in text
            at += 2 if text.endswith(("o", "O")) and len(text) > 1 else 1
        else:
            break
    if code:
        if at < len(rest):
            yield Line(rest[at].text, rest[at + 1 :])
    elif stdin or at >= len(rest) or rest[at].text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        if command.stdin.text is not None:
            yield Line(command.stdin.text)
    else:
        yield from _file(command, rest[at])


def _file(command: Command, word: Word) -> Iterator[Start]:
    text = command.files.get(word.text) or command.files.get(f"{command.cwd}/{word.text.removeprefix('./')}")
    if text is not None and not text.startswith(UNKNOWN):
        yield Line(text)


def source(command: Command) -> Iterator[Start]:
    if command.arguments:
        first = command.arguments[0]
        if first.text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0") and command.stdin.text is not None:
            yield Line(command.stdin.text, same_shell=True)
        else:
            yield from _file(command, first)


def evaluated(command: Command) -> Iterator[Start]:
    words = command.arguments
    if words and words[0].text == "--":
        words = words[1:]
    if words:
        yield Line(" ".join(word.text for word in words), same_shell=True)


def trap(command: Command) -> Iterator[Start]:
    options = Options(command.arguments)
    if len(options.operands) > 1 and options.operands[0].text not in ("-", ""):
        yield Line(options.operands[0].text, same_shell=True)


def switched_user(command: Command) -> Iterator[Start]:
    options = Options(command.arguments, "cgGsTu", ("command", "shell", "group", "user", "session-command"))
    for value in options.value("c", "command", "session-command"):
        yield Line(value.text)
    if command.program == "runuser" and options.value("u", "user") and options.operands:
        at = command.words.index(options.operands[0])
        yield Argv(command.words[at:])


def ssh(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = behind_options(rest, "BbcDEeFIiJLlmOopQRSWw", ())
    options = Options(rest[:at], "BbcDEeFIiJLlmOopQRSWw")
    for value in options.value("o"):
        name, _, text = value.text.replace(" ", "=", 1).partition("=")
        if name.lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            yield Line(text)
    if at + 1 < len(rest):
        yield Line(" ".join(word.text for word in rest[at + 1 :]))


def watched(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = behind_options(rest, "nq", ("interval", "equexit"))
    if at < len(rest):
        yield Line(" ".join(word.text for word in rest[at:]))


def recorded(command: Command) -> Iterator[Start]:
    for value in Options(command.arguments, "cIOBTmEo", ("command",)).value("c", "command"):
        yield Line(value.text)


def lines_read(command: Command) -> Iterator[Start]:
    """``at``, ``batch``: they read commands."""
    if command.stdin.text is not None:
        yield Line(command.stdin.text)


def mapfile(command: Command) -> Iterator[Start]:
    for value in Options(command.arguments, "CcdnOsu").value("C"):
        yield Line(value.text, same_shell=True)
