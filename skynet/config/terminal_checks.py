"""What commands are given and what holds them can be made: a sandbox, mounts, hosts, rules."""

from __future__ import annotations

import os
import re
from pathlib import Path

from skynet.config.problems import KeyPath, ProblemKind, Report, quoted
from skynet.config.schema import Config, MountConfig, TerminalConfig

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ROLES = ("role:admin", "role:user")


def check_terminal(config: Config, report: Report) -> None:
    """Loads what it checks with only if something is configured."""
    terminal = config.terminal
    if terminal.sandbox == "none":
        report.warnings.append('terminal.sandbox is "none": commands of admins run with nothing that holds them')
    if terminal.sandbox in ("podman", "docker") and not terminal.image:
        message = f'is required because terminal.sandbox is "{terminal.sandbox}"'
        report.add(ProblemKind.MISSING_VALUE, message, path=("terminal", "image"), allowed="the name of an image")
    if terminal.timeout_s > terminal.longest_s:
        report.bad_value(
            ("terminal", "timeout_s"), f"{terminal.timeout_s:g}", f"at most terminal.longest_s, {terminal.longest_s:g}"
        )
    for name in terminal.env:
        if not _VARIABLE.fullmatch(name):
            report.bad_value(("terminal", "env", name), quoted(name), "the name of a variable")
    if terminal.hosts.admin or terminal.hosts.user:
        _check_hosts(terminal, report)
    if terminal.mounts:
        _check_mounts(config, report)
    for index, rule in enumerate(terminal.rules):
        if "/" in rule.program or rule.program != rule.program.strip():
            report.bad_value(("terminal", "rules", index, "program"), quoted(rule.program), "a name without a path")
    for index, words in enumerate(terminal.blocked):
        if not words.strip():
            report.bad_value(("terminal", "blocked", index), quoted(words), "the first words of a command")


def is_there(mount: MountConfig) -> bool:
    """Whether there is something to mount, or no name for it. A disk that is not plugged in stops nothing."""
    source = Path(mount.source)
    return not source.is_absolute() or os.path.lexists(source)


def _check_hosts(terminal: TerminalConfig, report: Report) -> None:
    from skynet_terminal.sandbox.egress_hosts import HostRules

    for role, hosts in (("admin", terminal.hosts.admin), ("user", terminal.hosts.user)):
        for index, host in enumerate(hosts):
            try:
                HostRules([host], frozenset())
            except ValueError:
                allowed = "a host's name, *.name for those below it, or * for every public one"
                report.bad_value(("terminal", "hosts", role, index), quoted(host), allowed)


def _check_mounts(config: Config, report: Report) -> None:
    from skynet_terminal.sandbox.mounts import MountRefused, check_mounts

    mounts = config.terminal.mounts
    for index, mount in enumerate(mounts):
        path: KeyPath = ("terminal", "mounts", index)
        for place, word in enumerate(mount.people):
            if word.startswith("role:") and word not in _ROLES:
                report.bad_value((*path, "people", place), quoted(word), f"the id of a person, or {', '.join(_ROLES)}")
        if not is_there(mount):
            report.warnings.append(f"terminal.mounts[{index}].source: {mount.source} is not there, and is left out")
    there = [index for index, mount in enumerate(mounts) if is_there(mount)]
    try:
        check_mounts([mounts[index] for index in there], hidden=[config.home])
    except MountRefused as exc:
        key, _, reason = str(exc).partition(": ")
        found = re.fullmatch(r"terminal\.mounts\[(\d+)\]\.(\w+)", key)
        path = ("terminal", "mounts", there[int(found[1])], found[2]) if found else ("terminal", "mounts")
        report.add(ProblemKind.BAD_VALUE, f"cannot be used: {reason}", path=path, allowed="see docs/sandbox.md")
