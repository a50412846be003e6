"""Follows a line as a shell would run it, and notes every simple command that it may come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from skynet_terminal.policy import code
from skynet_terminal.policy.commands import (
    DOWNLOAD,
    NO_INPUT,
    PROGRAM,
    Command,
    Input,
    Options,
    Redirect,
    path_of,
)
from skynet_terminal.policy.grammar import (
    Function,
    Group,
    Loop,
    Phrase,
    Pipeline,
    Redirection,
    Script,
    Simple,
    Stage,
    Text,
    Unreadable,
    Variable,
)
from skynet_terminal.policy.held import is_fetched, note_files
from skynet_terminal.policy.multiplying import calls, is_endless, starts_in_background
from skynet_terminal.policy.printed import output_of
from skynet_terminal.policy.reader import read
from skynet_terminal.policy.shell_state import DECLARING, ShellState
from skynet_terminal.policy.words import UNKNOWN, Expander, Word
from skynet_terminal.policy.wrappers.parts import Argv, Code, Line
from skynet_terminal.policy.wrappers.starts import starts

MOST_COMMANDS = 600


MOST_STARTS = 12
"""Of programs that start programs that start programs."""


_MOST_TURNS = 8


_MOST_CALLS = 10


_MOST_TEXT = 300_000
"""Characters of all the texts that are run as lines inside the line."""


COMMAND_VARIABLES = frozenset({
    "PROMPT_COMMAND", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "PAGER", "MANPAGER",
    "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS",
    "LESSOPEN", "LESSCLOSE", "PS0", "PS1", "PS2", "PS4", "BROWSER", "FCEDIT", "RSYNC_RSH", "CVS_RSH", "SHELL",
    "GIT_PROXY_COMMAND",
})  # fmt: skip


class Sign(NamedTuple):
    """Something that no single command shows: the rule, and what was seen."""

    rule: str
    what: str


class Walk:
    """One line. ``commands`` and ``signs`` are what was met; ``unread`` what could not be read."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.signs: list[Sign] = []
        self.unread: list[str] = []
        self._shell = ShellState()
        self._files: dict[str, str] = {}
        self._active: list[Script] = []
        self._starts = 0
        self._guess = False
        self._texts = 0
        self._origins: dict[str, tuple[Command, ...]] = {}  # of a variable: the commands whose output it holds
        self._inside: list[Command] = []
        self._outputs: list[Command] = []
        self._calls: dict[str, set[tuple[str, bool]]] = {}

    @property
    def shadows(self) -> bool:
        """Names of programs may mean others than they say."""
        return self._shell.shadows

    def line(self, text: str) -> None:
        """
        Raises:
            Unreadable: it is not understood to the end, or there is too much of it.
        """
        self._script(read(text))

    def argv(self, argv: Sequence[str]) -> None:
        """A program that is started without a shell."""
        self._emit(Command(words=tuple(Word(word) for word in argv)))

    # --- what is run in which order

    def _script(self, script: Script) -> None:
        for pipeline in script:
            if pipeline.conditional:
                with self._shell.perhaps():
                    self._pipeline(pipeline)
            else:
                self._pipeline(pipeline)

    def _pipeline(self, pipeline: Pipeline) -> None:
        if len(pipeline.stages) == 1 and not pipeline.background:
            self._stage(pipeline.stages[0])
            return
        before = self._shell.stdin
        for stage in pipeline.stages:
            start = len(self.commands)
            with self._shell.apart():
                self._stage(stage)
            met = tuple(self.commands[start:])
            self._shell.stdin = Input(output_of(met), met)
        self._shell.stdin = before

    def _stage(self, stage: Stage) -> None:
        match stage:
            case Simple():
                self._simple(stage)
            case Function():
                self._define(stage)
            case Loop():
                with self._reading(stage.redirections):
                    self._loop(stage)
            case Group():
                with self._reading(stage.redirections):
                    self._group(stage)

    def _group(self, group: Group) -> None:
        for phrase in group.words:
            self._scripts_in_quotes(phrase)
            self._expand(phrase)
        match group.kind:
            case "subshell":
                with self._shell.apart():
                    self._script(group.bodies[0])
            case "group":
                self._script(group.bodies[0])
            case "calculation":
                before, self._guess = self._guess, True
                with self._shell.apart():
                    for body in group.bodies:
                        self._script(body)
                self._guess = before
            case "while" | "until" | "for":
                if is_endless(group) and starts_in_background(group.bodies[-1]):
                    self._sign("destructive.fork-bomb", "a loop without end starts commands in the background")
                # what the first turn sets, the second one finds
                for _ in range(2):
                    with self._shell.perhaps():
                        for body in group.bodies:
                            self._script(body)
            case _:
                for body in group.bodies:
                    with self._shell.perhaps():
                        self._script(body)

    def _loop(self, loop: Loop) -> None:
        values = [word for phrase in loop.words for word in self._expand(phrase)] if loop.words is not None else []
        known = loop.words is not None and all(word.known for word in values) and len(values) <= _MOST_TURNS
        turns = [word.text for word in values] if known else [UNKNOWN]
        for turn in turns:
            with self._shell.perhaps():
                self._shell.note_name(loop.name)
                if turn == UNKNOWN:
                    self._shell.variables.pop(loop.name, None)
                else:
                    self._shell.variables[loop.name] = turn
                self._script(loop.body)

    def _define(self, function: Function) -> None:
        self._shell.shadows = True
        self._shell.functions[function.name] = function.body
        self._calls[function.name] = set(calls(function.body, False))
        if self._multiplies(function.name):
            self._sign("destructive.fork-bomb", f"the function {function.name} starts itself again and again")
        # it may be called later, with anything
        with self._shell.apart():
            for name in set(self._shell.variables) - {"HOME", "IFS"}:
                del self._shell.variables[name]
            self._shell.cwd = None
            self._call(function.body, None)

    def _multiplies(self, name: str) -> bool:
        seen: set[tuple[str, bool]] = set()
        waiting = [(name, False)]
        while waiting:
            current, spawned = waiting.pop()
            for called, spawns in self._calls.get(current, ()):
                step = called, spawned or spawns
                if step == (name, True):
                    return True
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return False

    def _call(self, body: Script, arguments: tuple[Word, ...] | None) -> None:
        if any(body is active for active in self._active):
            return
        if len(self._active) >= _MOST_CALLS:
            raise Unreadable(f"functions call functions more than {_MOST_CALLS} deep", too_much=True)
        self._active.append(body)
        before = {key: value for key, value in self._shell.variables.items() if key.isdigit() or key in "@*#"}
        for key in before:
            del self._shell.variables[key]
        if arguments is not None and not any(word.several for word in arguments):
            self._shell.positional(arguments)
        self._script(body)
        for key in [key for key in self._shell.variables if key.isdigit() or key in "@*#"]:
            del self._shell.variables[key]
        self._shell.variables |= before
        self._active.pop()

    # --- scopes

    @contextmanager
    def _reading(self, redirections: Iterable[Redirection]) -> Iterator[None]:
        """The redirections of a whole group."""
        listed = tuple(redirections)
        if not listed:
            yield
            return
        before = self._shell.stdin
        simple = Simple((), (), listed)
        start = len(self.commands)
        self._simple(simple)
        if len(self.commands) > start and self.commands[-1].stdin is not NO_INPUT:
            self._shell.stdin = self.commands[-1].stdin
        first = len(self.commands)
        outputs = [command for command in self._outputs if command.stdin is NO_INPUT]
        yield
        self._shell.stdin = before
        met = tuple(self.commands[first:])
        for command in outputs:
            command.stdin = Input(output_of(met), met)

    # --- simple commands

    def _expander(self) -> Expander:
        return Expander(self._shell.variables, self._shell.cwd, self._substitute, self._process)

    def _expand(self, phrase: Phrase) -> list[Word]:
        return self._expander().words(phrase)

    def _substitute(self, script: Script) -> str | None:
        start = len(self.commands)
        with self._shell.apart():
            self._script(script)
        met = tuple(self.commands[start:])
        self._inside += met
        if len(script) == 1 and len(met) >= 1 and not any(command.outer for command in met):
            return output_of(met)
        return None

    def _process(self, script: Script, output: bool) -> str:
        start = len(self.commands)
        with self._shell.apart():
            self._shell.stdin = NO_INPUT
            self._script(script)
        met = self.commands[start:]
        self._inside += met
        if output:
            self._outputs += met
            return "/dev/fd/output"
        text = output_of(tuple(met))
        name = f"/dev/fd/{len(self.commands) + 100}"
        self._files[name] = text if text is not None else DOWNLOAD if is_fetched(met) else UNKNOWN
        return name

    def _simple(self, simple: Simple) -> None:
        inside, outputs = self._inside, self._outputs
        self._inside, self._outputs = [], []
        expander = self._expander()
        words: list[Word] = []
        for phrase in simple.words:
            self._scripts_in_quotes(phrase)
            for part in phrase:
                if isinstance(part, Variable):
                    self._inside += self._origins.get(part.name, ())
            words += expander.words(phrase)
        if words and words[0].text in self._shell.aliases:
            self._alias(words)
        assignments: list[tuple[str, str]] = []
        for name, value in simple.assignments:
            self._scripts_in_quotes(value)
            first = len(self._inside)
            assignments.append((name, expander.text(value)))
            self._shell.note_name(name.rstrip("+="))
            self._origins[name.rstrip("+=")] = tuple(self._inside[first:])
        redirects: list[Redirect] = []
        stdin = self._shell.stdin
        for redirection in simple.redirections:
            target = expander.text(redirection.target)
            if redirection.operator in ("<<", "<<<"):
                stdin = Input(target if UNKNOWN not in target else None, tuple(self._inside))
                if UNKNOWN in target:
                    stdin = Input(None, (*self._inside, Command(words=(Word("cat"),), stdin=Input(target))))
                continue
            redirects.append(Redirect(redirection.operator, Word(target)))
            if redirection.operator in ("<", "<>") and redirection.descriptor in ("", "0"):
                text = self._files.get(target) or self._files.get(path_of(target, self._shell.cwd))
                sources = tuple(self._inside) if target.startswith("/dev/fd/") else (_reads(target, self._shell.cwd),)
                stdin = Input(text if text not in (None, DOWNLOAD) and UNKNOWN not in text else None, sources)
                if text == DOWNLOAD and not target.startswith("/dev/fd/"):
                    stdin = Input(None, (Command(words=(Word("curl"), Word(target))),))
        command = Command(
            words=tuple(words),
            assignments=tuple((name.rstrip("+="), value) for name, value in assignments),
            redirects=tuple(redirects),
            stdin=stdin,
            cwd=self._shell.cwd,
            files=self._files,
            inside=tuple(self._inside),
            guess=self._guess,
        )
        if words or redirects or assignments:
            self._emit(command)
            for name, text in assignments:
                self._taken_over(name, text)
            if command.program in DECLARING:
                for word in command.arguments:
                    self._taken_over(*word.text.partition("=")[::2])
        for writer in self._outputs:
            if writer.stdin is NO_INPUT:
                writer.stdin = Input(output_of((command,)), (command, *command.stdin.sources))
        if words:
            note_files(command, self._shell.cwd, self._files)
            self._builtin(command)
        else:
            for name, text in assignments:
                self._shell.assign(name, text)
        self._inside = inside + self._inside
        self._outputs = outputs + self._outputs

    def _taken_over(self, name: str, value: str) -> None:
        """Variables that hold commands, for others to run."""
        if name.rstrip("+=") in COMMAND_VARIABLES and value:
            with self._shell.apart():
                self._text(value, guess=True)

    def _scripts_in_quotes(self, phrase: Phrase) -> None:
        """``'a[$(...)]'`` is run where it is taken for a number."""
        for part in phrase:
            if isinstance(part, Text) and part.quoted and ("[$(" in part.value or "[`" in part.value):
                inner = part.value[part.value.find("[") + 1 :].rpartition("]")[0]
                with self._shell.apart():
                    self._text(f": {inner}", guess=True)

    def _alias(self, words: list[Word]) -> None:
        expanded = self._shell.aliases[words[0].text]
        rest = " ".join("'" + word.text.replace("'", "'\\''") + "'" for word in words[1:])
        name = words[0].text
        value = self._shell.aliases.pop(name)
        with self._shell.apart():
            self._text(f"{expanded} {rest}")
        self._shell.aliases[name] = value

    def _builtin(self, command: Command) -> None:
        """What changes the shell itself."""
        self._shell.builtin(command)
        program, arguments = command.program, command.arguments
        if program == "alias":
            for word in arguments:
                name, equals, value = word.text.partition("=")
                if equals and name:
                    self._shell.aliases[name] = value
                    with self._shell.apart():
                        self._text(value)
        elif program in self._shell.functions:
            self._call(self._shell.functions.get(command.words[0].text, ()), arguments)
        elif program == "hash" and any(word.text == "-p" for word in arguments):
            options = Options(arguments, "p")
            for place in options.value("p"):
                for called in options.operands:
                    self._shell.aliases[called.text] = place.text

    # --- programs that start programs

    def _emit(self, command: Command) -> None:
        command.guess = command.guess or self._guess
        self.commands.append(command)
        if len(self.commands) > MOST_COMMANDS:
            raise Unreadable(f"there are more than {MOST_COMMANDS} commands in it", too_much=True)
        if not command.words:
            return
        if command.program == "" and UNKNOWN in command.words[0].text:
            self._without_unknown(command)
        held = self._files.get(path_of(command.words[0].text, command.cwd), "") if self._files else ""
        if held.startswith(PROGRAM):
            # a program under another name
            other = Word(held.removeprefix(PROGRAM))
            self._emit(Command(words=(other, *command.arguments), stdin=command.stdin, cwd=command.cwd, outer=command))
        elif held and "/" in command.words[0].text and not held.startswith(UNKNOWN):
            self._started_line(command, Line(held, command.words))
        self._starts += 1
        if self._starts > MOST_STARTS:
            raise Unreadable(f"programs that start programs are more than {MOST_STARTS} deep", too_much=True)
        for start in starts(command):
            match start:
                case Argv():
                    self._emit(
                        Command(
                            words=start.words,
                            assignments=start.assignments,
                            stdin=command.stdin if start.reads else NO_INPUT,
                            cwd=None if command.program in ("chroot", "ssh") else command.cwd,
                            outer=command,
                            files=command.files,
                            inside=command.inside,
                            guess=command.guess,
                        )
                    )
                case Line():
                    self._started_line(command, start)
                case Code():
                    self._code(start.text)
        self._starts -= 1

    def _without_unknown(self, command: Command) -> None:
        """``r$@m`` and ``$nothing rm`` are rm if what is not known is nothing."""
        first = command.words[0]._replace(text=command.words[0].text.replace(UNKNOWN, ""), several=False)
        words = (first, *command.arguments) if first.text else command.arguments
        if words and words[0].known:
            guess = Command(
                words=words,
                redirects=(),
                stdin=command.stdin,
                cwd=command.cwd,
                outer=command,
                files=command.files,
                inside=command.inside,
                guess=True,
            )
            self._emit(guess)

    def _started_line(self, command: Command, start: Line) -> None:
        if UNKNOWN in start.text and not start.text.strip(UNKNOWN + " \t\n;"):
            return  # nothing of it is known: a rule says so of the command itself
        before, self._shell.stdin = self._shell.stdin, command.stdin if command.stdin.text != start.text else NO_INPUT
        if start.guess:
            with self._shell.apart():
                self._text(start.text, guess=True)
        elif start.same_shell:
            self._text(start.text)
        else:
            with self._shell.apart():
                if start.arguments and all(word.known for word in start.arguments):
                    self._shell.variables["0"] = start.arguments[0].text
                    self._shell.positional(start.arguments[1:])
                elif start.arguments:
                    for key in [key for key in self._shell.variables if key.isdigit() or key in "@*"]:
                        del self._shell.variables[key]
                self._text(start.text)
        self._shell.stdin = before

    def _text(self, text: str, *, guess: bool = False) -> None:
        """A text that is run as a line, inside another."""
        before, self._guess = self._guess, self._guess or guess
        self._texts += len(text)
        if self._texts > _MOST_TEXT:
            raise Unreadable(f"more than {_MOST_TEXT} characters are run as lines inside it", too_much=True)
        try:
            # what is not known is not there for the reader: it becomes a variable without a value
            self._script(read(text.replace(UNKNOWN, "${_unknown}")))
        except Unreadable as fault:
            if fault.too_much:
                raise
            if not self._guess:
                self.unread.append(str(fault))
        finally:
            self._guess = before

    def _code(self, text: str) -> None:
        for seen in code.look(text):
            match seen:
                case code.Sign():
                    self._sign(seen.rule, seen.what)
                case code.Text():
                    with self._shell.apart():
                        self._shell.stdin = NO_INPUT
                        self._text(seen.text, guess=True)
                case code.Call():
                    before, self._guess = self._guess, True
                    self._emit(Command(words=seen.words, cwd=self._shell.cwd))
                    self._guess = before

    def _sign(self, rule: str, what: str) -> None:
        self.signs.append(Sign(rule, what))


def _reads(target: str, cwd: str | None) -> Command:
    return Command(words=(Word("cat"), Word(target)), cwd=cwd)
