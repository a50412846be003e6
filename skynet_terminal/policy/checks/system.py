"""What changes the machine: rights, services, packages, mounts, engines."""

from __future__ import annotations

import re

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import Word


def sets_id(command: Command) -> str | None:
    """chmod u+s, 4755; install -m 4755."""
    options = Options(command.arguments, "m" if command.program == "install" else "", ("mode",))
    modes = options.value("m", "mode") if command.program == "install" else [Word(text) for text in command.texts[1:]]
    for mode in modes:
        text = mode.text
        if re.fullmatch(
            r"[ugoa]*[+=][rwxXt]*s[rwxXst]*(,.*)?|.*,[ugoa]*[+=][rwxXt]*s.*|0*[2-7][0-7]{3}|0*[2-7]\d{3}", text
        ):
            return f"{command.program} {text}"
    return None


def crontab_changes(command: Command) -> str | None:
    return None if Options(command.arguments, "u").has("l") else str(command)


def service_changes(command: Command) -> str | None:
    harmless = {"status", "list-units", "list-unit-files", "is-active", "is-enabled", "is-failed", "show", "cat",
                "list-timers", "get-default", "--version", "--help", "help", "list-sockets", "list-jobs",
                "is-system-running"}  # fmt: skip
    operands = [word.text for word in Options(command.arguments, "tpnHM").operands]
    if not operands or operands[0] in harmless or (command.program == "service" and operands[-1] == "status"):
        return None
    return str(command)


def system_packages(command: Command) -> str | None:
    verbs = {
        "install", "remove", "purge", "upgrade", "update", "dist-upgrade", "full-upgrade", "autoremove", "add", "del",
        "erase",
        "localinstall", "reinstall", "uninstall", "refresh", "--install", "--remove", "--purge",
        "tap", "cask", "rm",
        "up", "in",
    }  # fmt: skip
    texts = command.texts[1:]
    short = command.program in ("dpkg", "rpm", "pacman", "yay") and any(
        re.match(r"-[A-Za-z]*[irPeUSRF]", text) for text in texts
    )
    return str(command) if short or verbs.intersection(texts) else None


def global_packages(command: Command) -> str | None:
    texts = command.texts[1:]
    if command.program in ("npm", "pnpm", "yarn", "bun"):
        adds = {"install", "i", "add", "global", "uninstall", "update"}.intersection(texts)
        return str(command) if adds and ({"-g", "--global", "global"}.intersection(texts)) else None
    return (
        str(command)
        if "--break-system-packages" in texts or (command.program == "gem" and texts[:1] == ["install"])
        else None
    )


def mounts(command: Command) -> str | None:
    return str(command) if command.arguments and not command.texts[1].startswith(("-h", "--help", "-V")) else None


def engine_used(command: Command) -> str | None:
    texts = command.texts[1:]
    return None if texts[:1] in (["--version"], ["version"], ["--help"], ["-v"], ["help"]) else str(command)


_SETTINGS: dict[str, frozenset[str]] = {
    "ip": frozenset({"add", "del", "delete", "set", "flush", "change", "replace", "append"}),
    "route": frozenset({"add", "del", "delete", "flush", "change"}),
    "nmcli": frozenset({"off", "on", "add", "up", "down", "delete", "modify", "edit", "disconnect", "connect"}),
    "hwclock": frozenset({"-w", "-s", "--systohc", "--hctosys", "--set"}),
}


def machine_settings(command: Command) -> str | None:
    texts = command.texts[1:]
    match command.program:
        case "ifconfig":
            changes = len(texts) > 1 and not texts[0].startswith("-")
        case "date":
            changes = Options(command.arguments, "dfrIs", ("date", "file", "reference", "set")).has("s", "set")
        case "hostnamectl" | "timedatectl" | "localectl":
            changes = any(text.startswith("set-") or text == "hostname" for text in texts)
        case program:
            changes = bool(_SETTINGS[program].intersection(texts))
    return str(command) if changes else None


def extends_shell(command: Command) -> str | None:
    return str(command) if Options(command.arguments, "f").has("f") else None
