"""Programs that start other programs: what it is that they start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skynet_terminal.policy.commands import Command
from skynet_terminal.policy.wrappers.finders import fd, find, parallel, xargs
from skynet_terminal.policy.wrappers.git import git
from skynet_terminal.policy.wrappers.interpreters import (
    LOOSE,
    awk,
    editor,
    interpreter,
    loose,
    make,
    openers,
    rsync,
    sed,
    tar,
)
from skynet_terminal.policy.wrappers.parts import SHELLS, Start
from skynet_terminal.policy.wrappers.prefixes import PREFIXES, VERBS, behind_a_verb, containers, env, prefixed
from skynet_terminal.policy.wrappers.shells import (
    evaluated,
    lines_read,
    mapfile,
    recorded,
    shell,
    source,
    ssh,
    switched_user,
    trap,
    watched,
)


def starts(command: Command) -> Iterator[Start]:
    """What ``command`` starts by its arguments and what it reads; nothing for an ordinary program."""
    program = command.program
    if program in PREFIXES:
        yield from prefixed(command, *PREFIXES[program])
    if (special := _SPECIAL.get(program)) is not None:
        yield from special(command)
    elif program in SHELLS:
        yield from shell(command)
    if program in VERBS:
        yield from behind_a_verb(command)
    if program in LOOSE:
        yield from loose(command)
    if program.startswith(("ld-linux", "ld.so", "ld-musl", "ld-2.")):
        yield from prefixed(command, "", ("library-path", "preload", "argv0"), 0)


_SPECIAL: dict[str, Callable[[Command], Iterator[Start]]] = {
    "env": env,
    "genv": env,
    "eval": evaluated,
    "source": source,
    ".": source,
    "trap": trap,
    "su": switched_user,
    "runuser": switched_user,
    "ssh": ssh,
    "autossh": ssh,
    "find": find,
    "gfind": find,
    **dict.fromkeys(("fd", "fdfind"), fd),
    "xargs": xargs,
    "gxargs": xargs,
    "parallel": parallel,
    "watch": watched,
    "script": recorded,
    "git": git,
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "gvim", "rvim"), editor),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), tar),
    "rsync": rsync,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk),
    **dict.fromkeys(("python", "python2", "python3", "pypy", "pypy3", "ipython"), interpreter("c")),
    **{f"python3.{minor}": interpreter("c") for minor in range(6, 20)},
    "python2.7": interpreter("c"),
    "perl": interpreter("eE"),
    "ruby": interpreter("e"),
    **dict.fromkeys(("node", "nodejs", "bun"), interpreter("ep", "--eval", "--print")),
    "deno": interpreter("", "eval"),
    "php": interpreter("rBRE", "--run"),
    **dict.fromkeys(("lua", "luajit", "lua5.4", "lua5.3"), interpreter("e")),
    "rscript": interpreter("e"),
    "osascript": interpreter("e"),
    "julia": interpreter("eE"),
    "emacs": interpreter("", "--eval", "--execute", "-eval"),
    "gdb": interpreter("", "-ex", "--eval-command", "-eval-command"),
    "sqlite3": interpreter("", "-cmd"),
    "sed": sed,
    "gsed": sed,
    **dict.fromkeys(("make", "gmake"), make),
    **dict.fromkeys(("socat", "nc", "ncat", "netcat"), openers),
    **dict.fromkeys(("at", "batch"), lines_read),
    **dict.fromkeys(("mapfile", "readarray"), mapfile),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "lxc"), containers),
}
