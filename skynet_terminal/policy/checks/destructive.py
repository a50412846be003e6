"""What removes, overwrites or stops more than its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from skynet_terminal.policy import paths
from skynet_terminal.policy.commands import Command, Options, path_of
from skynet_terminal.policy.rules import Check
from skynet_terminal.policy.words import Word, shown
from skynet_terminal.policy.wrappers.finders import found

_REMOVERS = frozenset(
    {"rm", "unlink", "rmdir", "srm", "shred", "grm", "trash", "trash-put", "gio", "del", "rd", "remove-item"}
)


def _doomed(command: Command) -> Iterator[tuple[Word, bool]]:
    """What is removed, and whether with everything beneath."""
    program = command.program
    if program in _REMOVERS:
        options = Options(command.arguments, "ns" if program == "shred" else "")
        recursive = options.has("rR", "recursive") or program in (
            "rd",
            "gio",
            "trash",
            "trash-put",
            "remove-item",
            "srm",
        )
        for word in options.operands:
            yield word, recursive
    elif program in ("find", "gfind") and "-delete" in command.texts:
        for word in found(command):
            yield word, True
    elif program in ("mv", "gmv"):
        options = Options(command.arguments, "tS", ("target-directory", "suffix"))
        sources = options.operands if options.has("t", "target-directory") else options.operands[:-1]
        for word in sources:
            yield word, True
    elif program == "git" and "clean" in command.texts:
        options = Options(command.arguments, "Cce")
        yield from ((word, True) for word in options.value("C"))
    elif program == "rsync" and any(text.startswith("--del") for text in command.texts):
        for word in Options(command.arguments, "e").operands[-1:]:
            yield word, True


def _removal(command: Command) -> tuple[str, str] | None:
    """How bad (everything, system, here, unknown) and the word."""
    seen: dict[str, str] = {}
    for word, recursive in _doomed(command):
        zone, everything = paths.zone(word, command.cwd, command.mounted)
        moved = command.program in ("mv", "gmv")
        if zone == "unknown":
            if (recursive and not moved) or (word.several and command.program in ("rm", "grm")):
                seen.setdefault("unknown", shown(word.text))
        elif zone in ("root", "top") or (zone == "home" and (recursive or everything)):
            if zone == "home" and everything and not recursive:
                seen.setdefault("here", shown(word.text))
            else:
                seen.setdefault("everything", shown(word.text))
        elif zone == "system":
            seen.setdefault("system", shown(word.text))
        elif (zone == "inside" and everything and recursive and not word.text.rpartition("/")[0]) or (
            zone == "temporary" and everything and path_of(word.text, command.cwd).count("/") <= 2
        ):
            seen.setdefault("here", shown(word.text))
    for kind in ("everything", "system", "unknown", "here"):
        if kind in seen:
            return kind, seen[kind]
    return None


def removes(kind: str) -> Check:
    def check(command: Command) -> str | None:
        removal = _removal(command)
        return f"{command.program} of {removal[1]}" if removal is not None and removal[0] == kind else None

    return check


def no_preserve_root(command: Command) -> str | None:
    return next((text for text in command.texts if text.startswith("--no-pres")), None)


def cleans_folder(command: Command) -> str | None:
    texts = command.texts
    if "clean" not in texts[1:3] and "clean" not in texts[3:4]:
        return None
    return "git clean" if Options(command.arguments, "Cce").has("f", "force") else None


def changes_everything(command: Command) -> str | None:
    """chmod, chown, chgrp, setfacl of the system or of everything."""
    options = Options(command.arguments)
    recursive = options.has("R", "recursive")
    for word in options.operands[1:] if not options.has("", "reference") else options.operands:
        zone, _ = paths.zone(word, command.cwd, command.mounted)
        if zone in ("root", "top") or (zone == "system" and recursive):
            return f"{command.program} of {word}"
    return None


def locks_out(command: Command) -> str | None:
    """``chmod -R a-rwx ~``: the owner loses what is theirs."""
    options = Options(command.arguments)
    mode = next((text for text in command.texts[1:] if _TAKES_RIGHTS.fullmatch(text)), None)
    if mode is None or not options.has("R", "recursive"):
        return None
    for word in command.arguments:
        zone, everything = paths.zone(word, command.cwd, command.mounted)
        if zone == "home" or (zone == "inside" and everything and "/" not in word.text):
            return f"{command.program} {mode} of {word}"
    return None


_TAKES_RIGHTS = re.compile(
    r"0*[0-3]?[0-3][0-7]{2}|0+|(?:[ugoa]*[ua][ugoa]*)?-[rwxX]*[rw][rwxX]*|(?:[ugoa]*[ua][ugoa]*)?=[xX]*"
)


def kills_all(command: Command) -> str | None:
    program, texts = command.program, command.texts[1:]
    if program == "kill":
        targets = [text for text in texts if re.fullmatch(r"-?\d+", text)]
        signals = len(targets) > 1 or any(text in ("-s", "-n") or re.fullmatch(r"-[A-Z]+\d?", text) for text in texts)
        if (
            "-1" in targets
            and (signals or "--" in texts)
            and (targets[0] != "-1" or "--" in texts or len(targets) == 1)
        ):
            return "kill of all processes"
        if "1" in targets and "-1" not in targets:
            return "kill of the first process"
        return None
    if program in ("pkill", "killall"):
        options = Options(command.arguments, "sugtGPU", ("signal", "user"))
        if options.has("u", "user", "euid") or any(
            word.text in (".", ".*", "", "*", "systemd", "init") for word in options.operands
        ):
            return str(command)
        return None
    return str(command) if program == "killall5" else None


def stops_machine(command: Command) -> str | None:
    program, texts = command.program, command.texts[1:]
    if program in ("init", "telinit"):
        return str(command) if any(text in ("0", "6", "1", "s", "S") for text in texts) else None
    if program in ("systemctl", "loginctl"):
        verbs = {
            "poweroff",
            "reboot",
            "halt",
            "kexec",
            "suspend",
            "hibernate",
            "rescue",
            "emergency",
            "exit",
            "soft-reboot",
        }
        return str(command) if verbs.intersection(texts) else None
    return None


def deletes_volumes(command: Command) -> str | None:
    return str(command) if {"destroy", "labelclear", "erasedisk", "eraseDisk", "eraseVolume", "format", "secureErase",
                            "zeroDisk",
                            "partitionDisk", "reformat"}.intersection(command.texts) else None  # fmt: skip


def windows_delete(command: Command) -> str | None:
    flags = {text.lower() for text in command.texts[1:]}
    wanted = {
        "del": {"/f", "/s", "/q"},
        "erase": {"/f", "/s", "/q"},
        "rd": {"/s"},
        "rmdir": {"/s", "/q"},
        "format": {"c:", "d:", "/q"},
    }
    return str(command) if wanted[command.program] & flags else None
