"""Programs that start what follows their own options: env, nice, timeout, sudo and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import Word
from skynet_terminal.policy.wrappers.parts import Argv, Line, Start, behind_options

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


# options that take the next word: letters, long names; and how many operands stand before the command
PREFIXES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "nice": ("n", ("adjustment",), 0),
    "nohup": ("", (), 0),
    "timeout": ("ks", ("kill-after", "signal"), 1),
    "gtimeout": ("ks", ("kill-after", "signal"), 1),
    "time": ("of", ("output", "format"), 0),
    "stdbuf": ("ioe", ("input", "output", "error"), 0),
    "setsid": ("", (), 0),
    "ionice": ("cnpPu", ("class", "classdata", "pid"), 0),
    "chrt": ("pTPD", (), 1),
    "taskset": ("", (), 1),
    "command": ("", (), 0),
    "builtin": ("", (), 0),
    "exec": ("a", (), 0),
    "noglob": ("", (), 0),
    "nocorrect": ("", (), 0),
    "sudo": ("ugCcDhpRrTtU", ("user", "group", "chdir", "host", "prompt", "chroot", "role", "type"), 0),
    "doas": ("uCa", (), 0),
    "pkexec": ("", ("user",), 0),
    "run0": ("uD", ("user", "chdir"), 0),
    "chroot": ("", ("userspec", "groups"), 1),
    "unshare": ("SGRw", ("setuid", "setgid", "root", "wd", "map-user", "map-group"), 0),
    "nsenter": ("tSGw", ("target", "setuid", "setgid"), 0),
    "setpriv": ("", ("reuid", "regid", "groups"), 0),
    "strace": ("eopsuEPaIbOSUX", (), 0),
    "ltrace": ("eopsuaLln", (), 0),
    "gdb": ("x", ("command",), 0),
    "valgrind": ("", (), 0),
    "fakeroot": ("lfsib", (), 0),
    "proot": ("rbwqk", (), 0),
    "bwrap": ("", (), 0),
    "firejail": ("", (), 0),
    "caffeinate": ("tw", (), 0),
    "systemd-run": ("puGEMHdt", ("unit", "property", "uid", "setenv", "on-calendar", "on-active"), 0),
    "systemd-inhibit": ("", ("what", "who", "why", "mode"), 0),
    "dbus-run-session": ("", ("config-file",), 0),
    "xvfb-run": ("neps", (), 0),
    "flock": ("wEc", ("timeout", "conflict-exit-code", "command"), 1),
    "busybox": ("", (), 0),
    "toybox": ("", (), 0),
    "doexec": ("", (), 0),
    "cpulimit": ("lpe", ("limit", "pid", "exe"), 0),
    "proxychains": ("f", (), 0),
    "proxychains4": ("f", (), 0),
    "torsocks": ("", (), 0),
    "rlwrap": ("", (), 0),
    "unbuffer": ("", (), 0),
    "aa-exec": ("p", ("profile",), 0),
    "hyperfine": ("wrmMpcsn", ("warmup", "runs", "prepare", "cleanup"), 0),
    "npx": ("pc", ("package", "call"), 0),
    "bunx": ("", (), 0),
    "uvx": ("", (), 0),
    "entr": ("", (), 0),
    "ts": ("", (), 0),
    "dotenv": ("fe", (), 0),
    "direnv": ("", (), 0),
    "prlimit": ("", (), 0),
    "cgexec": ("g", (), 0),
    "start-stop-daemon": ("xapn", ("exec", "startas", "pidfile", "name"), 0),
}


def prefixed(command: Command, valued: str, long_valued: tuple[str, ...], operands: int) -> Iterator[Start]:
    rest = command.arguments
    at = behind_options(rest, valued, long_valued) + operands
    if command.program in ("command",) and any(word.text in ("-v", "-V") for word in rest[:at]):
        return
    assignments: list[tuple[str, str]] = []
    while at < len(rest) and (match := _ASSIGNMENT.fullmatch(rest[at].text)):
        assignments.append((match[1], match[2]))
        at += 1
    if command.program == "flock" and at < len(rest) - 1 and rest[at].text in ("-c", "--command"):
        yield Line(rest[at + 1].text)
    elif at < len(rest):
        yield Argv(rest[at:], tuple(assignments))
    for value in (
        Options(rest[:at], valued, long_valued).value("c", "command", "call") if command.program != "sudo" else ()
    ):
        yield Line(value.text)


# what stands before a command, and how many words are between
VERBS: dict[str, dict[str, int]] = {
    "npm": {"exec": 0, "x": 0},
    "pnpm": {"exec": 0, "dlx": 0},
    "yarn": {"exec": 0, "dlx": 0},
    "bun": {"x": 0},
    **{name: {"run": 0} for name in ("poetry", "pipenv", "pdm", "rye", "hatch", "conda", "mamba", "op", "doppler")},
    "uv": {"run": 0, "x": 0},
    "bundle": {"exec": 0},
    "mise": {"exec": 0, "x": 0},
    "asdf": {"exec": 0},
    "direnv": {"exec": 1},
    "dotenv": {"run": 0},
    "rustup": {"run": 1},
    "aws-vault": {"exec": 1},
    "nix": {"develop": 0, "shell": 0},
    "rbenv": {"exec": 0},
    "pyenv": {"exec": 0},
    "opam": {"exec": 0},
    "stack": {"exec": 0},
    "cabal": {"exec": 0},
    "tox": {"exec": 0},
    "xcrun": {"": 0},
    "chronic": {"": 0},
    "catchsegv": {"": 0},
    "faketime": {"": 1},
    "eatmydata": {"": 0},
    "softlimit": {"": 0},
    "numactl": {"": 0},
    "schedtool": {"": 0},
    "sem": {"": 0},
    "daemonize": {"": 0},
    "nix-shell": {},
}


def behind_a_verb(command: Command) -> Iterator[Start]:
    """``npm exec -- ls``, ``uv run ls``; ``nix-shell --run 'ls'``."""
    rest = command.arguments
    verbs = VERBS[command.program]
    valued = (
        "package",
        "call",
        "name",
        "env",
        "command",
        "run",
        "project",
        "profile",
        "with",
        "python",
        "cwd",
        "prefix",
    )
    for value in Options(rest, "c", valued).value("c", "call", "command", "run"):
        yield Line(value.text, guess=True)
    at = 0
    if "" not in verbs:
        at = behind_options(rest, "CpnwFe", valued)
        if at >= len(rest) or rest[at].text not in verbs:
            return
        between = verbs[rest[at].text]
        at += 1
    else:
        between = verbs[""]
    at += behind_options(rest[at:], "pnwFec", valued) + between
    if at < len(rest) and rest[at].text == "--":
        at += 1
    if at < len(rest):
        yield Argv(rest[at:])


def env(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = 0
    assignments: list[tuple[str, str]] = []
    while at < len(rest):
        text = rest[at].text
        split = text[2:] if text.startswith("-S") else text[15:] if text.startswith("--split-string=") else None
        if text in ("-S", "--split-string", "-vS") and at + 1 < len(rest):
            split, at = rest[at + 1].text, at + 1
        if split is not None:
            words = tuple(Word(part) for part in re.split(r"[ \t\n\f\r\v]+|\\_", split.strip()) if part)
            yield Argv((Word("env"), *words, *rest[at + 1 :]))
            return
        if text in ("-u", "-C", "--unset", "--chdir", "-P"):
            at += 2
        elif match := _ASSIGNMENT.fullmatch(text):
            assignments.append((match[1], match[2]))
            at += 1
        elif text.startswith("-"):
            at += 1
        else:
            yield Argv(rest[at:], tuple(assignments))
            return


def containers(command: Command) -> Iterator[Start]:
    texts = command.texts
    for verb in ("exec", "run"):
        if verb in texts[1:]:
            at = texts.index(verb, 1)
            valued = "vewuplhnc"
            rest = command.words[at + 1 :]
            first = behind_options(rest, valued, ("volume", "env", "workdir", "user", "name", "network", "entrypoint"))
            if first + 1 < len(rest):
                yield Argv(rest[first + 1 :], reads=False)
            return
