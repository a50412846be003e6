"""Programs that start other programs: what it is that they start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.words import BENEATH, UNKNOWN, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh", "yash", "pwsh"})


@dataclass(frozen=True, slots=True)
class Argv:
    """A program and its arguments."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    reads: bool = True
    """It reads what its starter reads."""


@dataclass(frozen=True, slots=True)
class Line:
    """A text that a shell is given."""

    text: str
    arguments: tuple[Word, ...] = ()
    """``$0``, ``$1``..."""
    same_shell: bool = False
    guess: bool = False
    """It may be none."""


@dataclass(frozen=True, slots=True)
class Code:
    """A text that an interpreter is given."""

    text: str


Start = Argv | Line | Code

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)

# options that take the next word: letters, long names; and how many operands stand before the command
_SIMPLE: dict[str, tuple[str, tuple[str, ...], int]] = {
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


def starts(command: Command) -> Iterator[Start]:
    """What ``command`` starts by its arguments and what it reads; nothing for an ordinary program."""
    program = command.program
    if program in _SIMPLE:
        yield from _simple(command, *_SIMPLE[program])
    if (special := _SPECIAL.get(program)) is not None:
        yield from special(command)
    elif program in SHELLS:
        yield from _shell(command)
    if program in _LOOSE:
        yield from _loose(command)
    if program.startswith(("ld-linux", "ld.so", "ld-musl", "ld-2.")):
        yield from _simple(command, "", ("library-path", "preload", "argv0"), 0)


def _behind_options(words: tuple[Word, ...], valued: str, long_valued: tuple[str, ...]) -> int:
    """Where the first operand is."""
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            return at + 1
        if not text.startswith("-") or text == "-":
            return at
        if text.startswith("--"):
            at += 2 if text[2:] in long_valued else 1
            continue
        taken = next((index for index, letter in enumerate(text[1:], 1) if letter in valued), 0)
        at += 2 if taken == len(text) - 1 and taken else 1
    return at


def _simple(command: Command, valued: str, long_valued: tuple[str, ...], operands: int) -> Iterator[Start]:
    rest = command.arguments
    at = _behind_options(rest, valued, long_valued) + operands
    if command.program in ("command",) and any(word.text in ("-v", "-V") for word in rest[:at]):
        return
    assignments: list[tuple[str, str]] = []
    while at < len(rest) and (match := _ASSIGNMENT.fullmatch(rest[at].text)):
        assignments.append((match[1], match[2]))
        at += 1
    if at < len(rest):
        yield Argv(rest[at:], tuple(assignments))
    for value in (
        Options(rest[:at], valued, long_valued).value("c", "command", "call") if command.program != "sudo" else ()
    ):
        yield Line(value.text)


def _env(command: Command) -> Iterator[Start]:
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


def _shell(command: Command) -> Iterator[Start]:
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


def _source(command: Command) -> Iterator[Start]:
    if command.arguments:
        first = command.arguments[0]
        if first.text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0") and command.stdin.text is not None:
            yield Line(command.stdin.text, same_shell=True)
        else:
            yield from _file(command, first)


def _eval(command: Command) -> Iterator[Start]:
    words = command.arguments
    if words and words[0].text == "--":
        words = words[1:]
    if words:
        yield Line(" ".join(word.text for word in words), same_shell=True)


def _trap(command: Command) -> Iterator[Start]:
    options = Options(command.arguments)
    if len(options.operands) > 1 and options.operands[0].text not in ("-", ""):
        yield Line(options.operands[0].text, same_shell=True)


def _su(command: Command) -> Iterator[Start]:
    options = Options(command.arguments, "cgGsTu", ("command", "shell", "group", "user", "session-command"))
    for value in options.value("c", "command", "session-command"):
        yield Line(value.text)
    if command.program == "runuser" and options.value("u", "user") and options.operands:
        at = command.words.index(options.operands[0])
        yield Argv(command.words[at:])


def _ssh(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = _behind_options(rest, "BbcDEeFIiJLlmOopQRSWw", ())
    options = Options(rest[:at], "BbcDEeFIiJLlmOopQRSWw")
    for value in options.value("o"):
        name, _, text = value.text.replace(" ", "=", 1).partition("=")
        if name.lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            yield Line(text)
    if at + 1 < len(rest):
        yield Line(" ".join(word.text for word in rest[at + 1 :]))


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


def _find(command: Command) -> Iterator[Start]:
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


_XARGS_VALUED = "adEeIiLlnPs"
_LISTERS = frozenset({"grep", "egrep", "rg", "ag", "git", "fd", "fdfind", "locate", "cat", "sort", "head", "tail"})


def _xargs(command: Command) -> Iterator[Start]:
    rest = command.arguments
    long_valued = ("arg-file", "delimiter", "max-lines", "max-args", "max-procs", "max-chars")
    at = _behind_options(rest, "adEILnPs", long_valued)
    options = Options(rest[:at], "adEILnPs", long_valued)
    marks = [word.text for word in options.value("I", "replace")] or (["{}"] if options.has("i", "replace") else [])
    items = _items(command)
    inner: list[Word] = []
    for word in rest[at:]:
        if marks and marks[0] and marks[0] in word.text:
            inner += [word._replace(text=word.text.replace(marks[0], item.text)) for item in items]
        else:
            inner.append(word)
    if not inner:
        inner = [Word("echo")]
    yield Argv(tuple(inner) if marks else (*inner, *items), reads=False)


def _items(command: Command) -> list[Word]:
    """The words that are read: from a text that is known, or from what lists files."""
    text = command.stdin.text
    if text is not None and UNKNOWN not in text:
        return [Word(part) for part in text.split()[:200]]
    for source in command.upstream():
        if source.program == "find":
            return found(source)
        if source.program == "ls":
            return [Word(word.text + "/*", True) for word in Options(source.arguments).operands] or [Word("*", True)]
    upstream = command.upstream()
    if upstream and all(source.program in _LISTERS for source in upstream):
        first = upstream[-1]
        operands = [] if first.program in ("git", "fd", "fdfind") else Options(first.arguments, "ef").operands[1:]
        if first.program in ("grep", "egrep", "rg", "ag", "git", "fd", "fdfind"):
            return [Word(f"{word.text}/{BENEATH}") for word in operands] or [Word(f"./{BENEATH}")]
    return [Word(UNKNOWN, several=True)]


def _parallel(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = _behind_options(rest, "jPnNLISaCd", ("jobs", "arg-file", "colsep", "delay", "joblog", "timeout", "sshlogin"))
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


def _watch(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = _behind_options(rest, "nq", ("interval", "equexit"))
    if at < len(rest):
        yield Line(" ".join(word.text for word in rest[at:]))


def _script(command: Command) -> Iterator[Start]:
    for value in Options(command.arguments, "cIOBTmEo", ("command",)).value("c", "command"):
        yield Line(value.text)


def _git(command: Command) -> Iterator[Start]:
    rest = command.arguments
    at = 0
    while at < len(rest) and rest[at].text.startswith("-"):
        text = rest[at].text
        value = ""
        if text == "-c" and at + 1 < len(rest):
            value, at = rest[at + 1].text, at + 1
        elif text.startswith("--config-env="):
            value = text
        elif text in ("-C", "--git-dir", "--work-tree", "--namespace"):
            at += 1
        if value:
            yield from _git_setting(*value.partition("=")[::2])
        at += 1
    following = [word.text for word in rest[at:]]
    if following[:1] == ["config"]:
        operands = [text for text in following[1:] if not text.startswith("-")]
        if len(operands) > 1:
            yield from _git_setting(operands[-2], operands[-1])
    if following[:2] == ["bisect", "run"]:
        yield Argv(rest[at + 2 :])
    if following[:2] == ["submodule", "foreach"]:
        yield Line(" ".join(text for text in following[2:] if text not in ("--recursive", "--quiet")))
    if following[:1] == ["rebase"]:
        for given in Options(rest[at + 1 :], "xs", ("exec",)).value("x", "exec"):
            yield Line(given.text)
    if following[:1] == ["filter-branch"]:
        for index, text in enumerate(following[:-1]):
            if text.endswith("-filter"):
                yield Line(following[index + 1])
    for text in following:
        if text.startswith(("--upload-pack=", "--receive-pack=", "--exec=", "ext::")):
            yield Line(text.partition("=")[2] if "=" in text else text[5:].replace("%S", ""))
    if following[:1] == ["grep"]:
        for text in following:
            if text.startswith(("-O", "--open-files-in-pager=")):
                yield Line(text[2:] if text.startswith("-O") else text.partition("=")[2])


_GIT_COMMANDS = (
    "core.sshcommand", "core.pager", "core.editor", "core.fsmonitor", "sequence.editor", "diff.external",
    "credential.helper", "gpg.program", "core.askpass", "core.gitproxy",
)  # fmt: skip


def _git_setting(name: str, value: str) -> Iterator[Start]:
    name = name.lower()
    if name.startswith("alias."):
        yield Line(value[1:] if value.startswith("!") else f"git {value}")
    elif name in _GIT_COMMANDS or name.endswith(
        (".command", ".cmd", ".textconv", ".clean", ".smudge", ".driver", ".helper")
    ):
        value = value.removeprefix("!")
        if value not in ("true", "false", "store", "cache", "osxkeychain", "manager", ""):
            yield Line(value)
    elif name.startswith("pager.") and value not in ("true", "false"):
        yield Line(value)


def _editor(command: Command) -> Iterator[Start]:
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


def _tar(command: Command) -> Iterator[Start]:
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


def _rsync(command: Command) -> Iterator[Start]:
    for value in Options(command.arguments, "e", ("rsh", "rsync-path")).value("e", "rsh", "rsync-path"):
        yield Line(value.text)


def _awk(command: Command) -> Iterator[Start]:
    options = Options(command.arguments, "fFvei", ("file", "source", "field-separator", "assign"))
    for value in options.value("e", "source"):
        yield Code(value.text)
    if not options.value("f", "file", "e", "source") and options.operands:
        yield Code(options.operands[0].text)


def _interpreter(letters: str, *names: str) -> Callable[[Command], Iterator[Start]]:
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


def _make(command: Command) -> Iterator[Start]:
    for word in command.arguments:
        if word.text.startswith("--eval="):
            yield Line(word.text[7:].partition("$(shell")[2].rpartition(")")[0] or word.text[7:])
        elif match := re.fullmatch(r"SHELL=(.*)", word.text):
            yield Line(match[1])


def _openers(command: Command) -> Iterator[Start]:
    """``socat EXEC:...``, ``nc -e ...``."""
    for word in command.arguments:
        kind, _, rest = word.text.partition(":")
        if kind.upper() in ("EXEC", "SYSTEM", "SHELL"):
            yield Line(rest.split(",")[0])
    for value in Options(command.arguments, "ecpsw", ("exec", "sh-exec")).value("e", "c", "exec", "sh-exec"):
        yield Line(value.text)


def _fish_like_input(command: Command) -> Iterator[Start]:
    """``at``, ``batch``: they read commands."""
    if command.stdin.text is not None:
        yield Line(command.stdin.text)


def _sed(command: Command) -> Iterator[Start]:
    options = Options(command.arguments, "efl", ("expression", "file"))
    scripts = options.value("e", "expression") or options.operands[:1]
    for script in scripts:
        for match in re.finditer(r"(?:^|[;\n{}\d$/,])\s*e\s+([^\n]+)", script.text):
            yield Line(match[1])
        if replaced := re.match(r"s(.)(.*?)\1(.*?)\1[gipm0-9]*e", script.text):
            yield Line(replaced[3])


def _mapfile(command: Command) -> Iterator[Start]:
    for value in Options(command.arguments, "CcdnOsu").value("C"):
        yield Line(value.text, same_shell=True)


def _containers(command: Command) -> Iterator[Start]:
    texts = command.texts
    for verb in ("exec", "run"):
        if verb in texts[1:]:
            at = texts.index(verb, 1)
            valued = "vewuplhnc"
            rest = command.words[at + 1 :]
            first = _behind_options(rest, valued, ("volume", "env", "workdir", "user", "name", "network", "entrypoint"))
            if first + 1 < len(rest):
                yield Argv(rest[first + 1 :], reads=False)
            return


_LOOSE = frozenset({
    "tmux", "screen", "xterm", "gnome-terminal", "konsole", "kitty", "alacritty", "wezterm", "dtach", "abduco",
    "man", "less", "more", "most", "sqlite3", "psql", "mysql", "ed", "red", "ex", "zip", "complete", "bind",
    "tclsh", "wish", "expect", "make", "gmake", "ftp", "lftp", "gdb", "lldb", "octave", "bc", "dc", "zellij",
    "dvtm", "entr", "inotifywait", "fswatch", "nodemon", "concurrently", "foreman", "overmind", "just",
    "ansible", "salt", "fab", "pdsh", "mosh", "cvs", "svn", "hg",
})  # fmt: skip


def _loose(command: Command) -> Iterator[Start]:
    """Of programs that run what stands in some of their arguments or in the lines they read: any may be a command."""
    rest = command.arguments
    at = _behind_options(rest, "ScLfntT", ())
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


_SPECIAL: dict[str, Callable[[Command], Iterator[Start]]] = {
    "env": _env,
    "genv": _env,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "su": _su,
    "runuser": _su,
    "ssh": _ssh,
    "autossh": _ssh,
    "find": _find,
    "gfind": _find,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "watch": _watch,
    "script": _script,
    "git": _git,
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "gvim", "rvim"), _editor),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _tar),
    "rsync": _rsync,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("python", "python2", "python3", "pypy", "pypy3", "ipython"), _interpreter("c")),
    **{f"python3.{minor}": _interpreter("c") for minor in range(6, 20)},
    "python2.7": _interpreter("c"),
    "perl": _interpreter("eE"),
    "ruby": _interpreter("e"),
    **dict.fromkeys(("node", "nodejs", "bun"), _interpreter("ep", "--eval", "--print")),
    "deno": _interpreter("", "eval"),
    "php": _interpreter("rBRE", "--run"),
    **dict.fromkeys(("lua", "luajit", "lua5.4", "lua5.3"), _interpreter("e")),
    "rscript": _interpreter("e"),
    "osascript": _interpreter("e"),
    "julia": _interpreter("eE"),
    "emacs": _interpreter("", "--eval", "--execute", "-eval"),
    "gdb": _interpreter("", "-ex", "--eval-command", "-eval-command"),
    "sqlite3": _interpreter("", "-cmd"),
    "sed": _sed,
    "gsed": _sed,
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(("socat", "nc", "ncat", "netcat"), _openers),
    **dict.fromkeys(("at", "batch"), _fish_like_input),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "lxc"), _containers),
}
