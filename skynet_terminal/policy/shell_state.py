"""What a shell keeps from one command of a line to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skynet_terminal.policy.commands import NO_INPUT, Command, Options, path_of
from skynet_terminal.policy.grammar import Script
from skynet_terminal.policy.printed import printed
from skynet_terminal.policy.words import BETWEEN, HOME, UNKNOWN, Word

_LONGEST_VALUE = 10_000
_KNOWN = {
    "HOME": HOME,
    "PWD": HOME,
    "IFS": " \t\n",
    "SHELL": "/bin/bash",
    "BASH": "/bin/bash",
    "UID": "1000",
    "0": "bash",
    "HISTFILE": f"{HOME}/.bash_history",
    "EUID": "1000",
}
DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly", "integer"})
_SHADOWING = ("PATH", "BASH_ENV", "ENV")
_SETTING = DECLARING | {"read", "unset", "mapfile", "readarray", "getopts"}


class ShellState:
    """``variables`` are those whose values are known; ``cwd`` is None where it is not known."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = dict(_KNOWN)
        self.cwd: str | None = HOME
        self.stdin = NO_INPUT
        self.functions: dict[str, Script] = {}
        self.aliases: dict[str, str] = {}
        self.shadows = False
        """Names of programs may mean others than they say: PATH, aliases, functions, ``hash -p``."""

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is set inside is forgotten: another shell."""
        variables, cwd, stdin = dict(self.variables), self.cwd, self.stdin
        yield
        self.variables, self.cwd, self.stdin = variables, cwd, stdin

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """What is set inside may be set or not: afterwards, what differs is not known."""
        variables, cwd = dict(self.variables), self.cwd
        yield
        for name in [name for name, value in self.variables.items() if variables.get(name) != value]:
            if name in variables:
                del self.variables[name]
        for name in variables.keys() - self.variables.keys():
            self.variables.pop(name, None)
        if cwd != self.cwd and self.cwd is None:
            self.cwd = None

    def positional(self, arguments: Sequence[Word]) -> None:
        for index, word in enumerate(arguments, 1):
            self.variables[str(index)] = word.text
        for index in range(len(arguments) + 1, 10):
            self.variables[str(index)] = ""
        self.variables["@"] = BETWEEN.join(word.text for word in arguments)
        self.variables["*"] = " ".join(word.text for word in arguments)

    def assign(self, name: str, value: str) -> None:
        append = name.endswith("+=")
        name = name.rstrip("+=")
        if append:
            before = self.variables.get(name)
            if before is None:
                self.variables.pop(name, None)
                return
            value = before + value
        if value == UNKNOWN or len(value) > _LONGEST_VALUE:
            self.variables.pop(name, None)
        else:
            self.variables[name] = value

    def note_name(self, name: str) -> None:
        """Of a variable that is set."""
        self.shadows = self.shadows or name in _SHADOWING

    def builtin(self, command: Command) -> None:
        """What changes the shell itself."""
        program, arguments = command.program, command.arguments
        if program in ("alias", "hash", "enable"):
            self.shadows = self.shadows or any("=" in word.text or word.text[:1] == "-" for word in arguments)
        elif program in _SETTING or (program == "printf" and arguments[:1] == (Word("-v"),)):
            named = (word.text.partition("=")[0].rstrip("+") for word in arguments)
            self.shadows = self.shadows or any(name in _SHADOWING or UNKNOWN in name for name in named)
        if program in DECLARING:
            for word in arguments:
                name, equals, value = word.text.partition("=")
                if equals:
                    self.assign(f"{name}=", value)
                if "n" in name and name.startswith("-"):
                    for other in arguments:
                        self.variables.pop(other.text.partition("=")[0], None)
        elif program in ("cd", "chdir", "pushd"):
            operands = Options(arguments).operands
            target = operands[0].text if operands else HOME
            if target in ("-",) or any(word.several or word.glob for word in arguments):
                self.cwd = None
            else:
                path = path_of(target, self.cwd)
                self.cwd = None if path.startswith(UNKNOWN) else path
            if self.cwd is None:
                self.variables.pop("PWD", None)
            else:
                self.variables["PWD"] = self.cwd
        elif program == "popd":
            self.cwd = None
        elif program in ("read", "mapfile", "readarray", "unset", "getopts", "let"):
            for word in arguments:
                self.variables.pop(word.text.partition("=")[0], None)
                if program == "unset":
                    self.functions.pop(word.text, None)
        elif program == "printf" and len(arguments) > 2 and arguments[0].text == "-v":
            text = printed([word.text for word in arguments[2:]])
            self.assign(f"{arguments[1].text}=", UNKNOWN if text is None else text)
        elif program == "set" and any(word.text == "--" for word in arguments):
            at = [word.text for word in arguments].index("--")
            if all(word.known for word in arguments):
                self.positional(arguments[at + 1 :])
        elif program == "shift":
            for key in [key for key in self.variables if key.isdigit() or key in "@*"]:
                del self.variables[key]
