"""Programs that are given code: interpreters, editors, awk, sed, make, tar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import UNKNOWN
from skynet_terminal.policy.wrappers.parts import Code, Line, Start, behind_options


def editor(command: Command) -> Iterator[Start]:
    for index, word in enumerate(command.arguments):
        text = word.text
        if text in ("-c", "--cmd") and index + 1 < len(command.arguments):
            text = command.arguments[index + 1].text
        elif text.startswith("+"):
            text = text[1:]
        else:
            continue
        for part in re.split(r"[|\n]", text):
            part = part.strip().lstrip(":%")
            part = re.sub(r"^(silent!?|sil!?|execute|exe)\s+", "", part)
            if part.startswith("!"):
                yield Line(part[1:])
            elif part.startswith(("r !", "r!", "read !", "w !", "w!", "write !")):
                yield Line(part.partition("!")[2])
            elif match := re.search(r"(?:system|systemlist)\((['\"])(.*)\1\)", part):
                yield Line(match[2])
            elif re.match(r"(py|python|py3|python3|perl|ruby|lua)\b", part):
                yield Code(part.partition(" ")[2])


def tar(command: Command) -> Iterator[Start]:
    names = (
        "checkpoint-action",
        "to-command",
        "use-compress-program",
        "rsh-command",
        "info-script",
        "new-volume-script",
    )
    options = Options(command.arguments, "fIFC", (*names, "file", "directory"))
    for value in options.value(*names, "I", "F"):
        yield Line(value.text.removeprefix("exec=").split(";")[0] if value.text.startswith("exec=") else value.text)


def rsync(command: Command) -> Iterator[Start]:
    for value in Options(command.arguments, "e", ("rsh", "rsync-path")).value("e", "rsh", "rsync-path"):
        yield Line(value.text)


def awk(command: Command) -> Iterator[Start]:
    options = Options(command.arguments, "fFvei", ("file", "source", "field-separator", "assign"))
    for value in options.value("e", "source"):
        yield Code(value.text)
    if not options.value("f", "file", "e", "source") and options.operands:
        yield Code(options.operands[0].text)


def interpreter(letters: str, *names: str) -> Callable[[Command], Iterator[Start]]:
    """Of one that takes code behind a letter, and from what it reads if it is given nothing."""

    def code(command: Command) -> Iterator[Start]:
        rest = command.arguments
        given = False
        for index, word in enumerate(rest):
            text = word.text
            if text in names and index + 1 < len(rest):
                yield Code(rest[index + 1].text)
                given = True
            elif text.startswith("--") and text.partition("=")[0] in names and "=" in text:
                yield Code(text.partition("=")[2])
                given = True
            elif text.startswith("-") and not text.startswith("--"):
                at = next((at for at, letter in enumerate(text[1:], 1) if letter in letters), 0)
                if at:
                    given = True
                    if at < len(text) - 1:
                        yield Code(text[at + 1 :])
                    elif index + 1 < len(rest):
                        yield Code(rest[index + 1].text)
                elif text == "-m":
                    given = True
                    break
            elif not text.startswith("-"):
                given = given or text not in ("/dev/stdin",)
                if text != "/dev/stdin":
                    stored = command.files.get(text) or command.files.get(f"{command.cwd}/{text.removeprefix('./')}")
                    if stored is not None and not stored.startswith(UNKNOWN):
                        yield Code(stored)
                break
        if not given and command.stdin.text is not None:
            yield Code(command.stdin.text)

    return code


def make(command: Command) -> Iterator[Start]:
    named = Options(command.arguments, "fCIjloW", ("file", "makefile", "directory")).value("f", "file", "makefile")
    for name in [word.text for word in named] or ["Makefile", "makefile", "GNUmakefile"]:
        held = command.files.get(name) or command.files.get(f"{command.cwd}/{name}")
        if held is not None and not held.startswith(UNKNOWN):
            for line in held.split("\n")[:200]:
                recipe = line if line.startswith("\t") else line.partition(":")[2].partition(";")[2]
                yield Line(recipe.strip().lstrip("@-+"), guess=True)
    for word in command.arguments:
        if word.text.startswith("--eval="):
            yield Line(word.text[7:].partition("$(shell")[2].rpartition(")")[0] or word.text[7:])
        elif match := re.fullmatch(r"SHELL=(.*)", word.text):
            yield Line(match[1])


def openers(command: Command) -> Iterator[Start]:
    """``socat EXEC:...``, ``nc -e ...``."""
    for word in command.arguments:
        kind, _, rest = word.text.partition(":")
        if kind.upper() in ("EXEC", "SYSTEM", "SHELL"):
            yield Line(rest.split(",")[0])
    for value in Options(command.arguments, "ecpsw", ("exec", "sh-exec")).value("e", "c", "exec", "sh-exec"):
        yield Line(value.text)


def sed(command: Command) -> Iterator[Start]:
    options = Options(command.arguments, "efl", ("expression", "file"))
    scripts = options.value("e", "expression") or options.operands[:1]
    for script in scripts:
        for match in re.finditer(r"(?:^|[;\n{}\d$/,])\s*e\s+([^\n]+)", script.text):
            yield Line(match[1])
        if replaced := re.match(r"s(.)(.*?)\1(.*?)\1[gipm0-9]*e", script.text):
            yield Line(replaced[3])


LOOSE = frozenset({
    "tmux", "screen", "xterm", "gnome-terminal", "konsole", "kitty", "alacritty", "wezterm", "dtach", "abduco",
    "man", "less", "more", "most", "sqlite3", "psql", "mysql", "ed", "red", "ex", "zip", "complete", "bind",
    "tclsh", "wish", "expect", "make", "gmake", "ftp", "lftp", "gdb", "lldb", "octave", "bc", "dc", "zellij",
    "dvtm", "entr", "inotifywait", "fswatch", "nodemon", "concurrently", "foreman", "overmind", "just",
    "ansible", "salt", "fab", "pdsh", "mosh", "cvs", "svn", "hg",
})  # fmt: skip


def loose(command: Command) -> Iterator[Start]:
    """Of programs that run what stands in some of their arguments or in the lines they read: any may be a command."""
    rest = command.arguments
    at = behind_options(rest, "ScLfntT", ())
    if at < len(rest):
        yield Line(" ".join(word.text for word in rest[at:]), guess=True)
    lines = [word.text for word in rest if len(word.text) > 3]
    lines += (command.stdin.text or "").split("\n")[:200]
    for line in lines:
        line = re.sub(r"^[\s+:!.\\]+(?:shell|system|exec|spawn|!)?|^(?:exec|spawn|send)\s", "", line.strip())
        if " " in line:
            yield Line(line, guess=True)
            if ": " in line:
                yield Line(line.partition(": ")[2], guess=True)
