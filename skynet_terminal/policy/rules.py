"""A rule: which commands it is about, what is decided of them on each level, and why."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skynet_terminal.policy.base import Decision, Level
from skynet_terminal.policy.commands import Command, Options
from skynet_terminal.policy.patterns import ANY, REST
from skynet_terminal.policy.words import UNKNOWN

Check: TypeAlias = Callable[[Command], str | None]
"""The part of the command that the rule is about, as a person would read it; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    All that is given has to hold; a rule with nothing but an id is for what no single command shows.

    ``strict``, ``standard`` and ``trusted`` are the decisions. ``catastrophic`` rules cannot be lifted by any other.
    """

    id: str
    reason: str
    """Ends the sentence "<part> is refused, as it …"; of somebody's own "<part> …". Without a full stop."""
    strict: Decision = "deny"
    standard: Decision = "deny"
    trusted: Decision = "ask"
    programs: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    """The first operand is one of these."""
    letters: str = ""
    names: tuple[str, ...] = ()
    """One of these options is given."""
    check: Check | None = None
    words: tuple[str, ...] = ()
    """Of a person's own rule: the program and what follows it; ``*`` is any word, a last ``**`` any rest."""
    levels: frozenset[Level] = frozenset(Level)
    catastrophic: bool = False
    in_argv: bool = True
    """It looks at the words alone: an approval of the same words answers it for always."""
    general: bool = False
    """Said only if nothing more particular is as bad."""
    own: bool = False
    """Somebody's own, by configuration: such come first."""

    def decision(self, level: Level) -> Decision:
        match level:
            case Level.STRICT:
                return self.strict
            case Level.STANDARD:
                return self.standard
            case Level.TRUSTED:
                return self.trusted

    def part(self, command: Command) -> str | None:
        """What of ``command`` it is about, or None."""
        if self.words:
            return str(command) if fits(self.words, command) else None
        if not self.programs and self.check is None:
            return None
        if self.programs and command.program not in self.programs:
            return None
        if self.verbs or self.letters or self.names:
            options = Options(command.arguments)
            if self.verbs and (not options.operands or options.operands[0].text not in self.verbs):
                return None
            if (self.letters or self.names) and not options.has(self.letters, *self.names):
                return None
        return str(command) if self.check is None else self.check(command)


def fits(words: tuple[str, ...], command: Command) -> bool:
    """
    Whether the program and the words after it are ``words``, or may be: a word that is not known may be any. Options
    between them, with or without a value, are passed over, unless the pattern has one in that place.
    """
    if not command.words:
        return False
    program = command.texts[0]
    wanted = words[0]
    same = program == wanted if "/" in wanted else posixpath.basename(program).lower() == wanted.lower()
    if not same:
        return False
    return _follow(words[1:], command.texts[1:])


def _follow(wanted: Sequence[str], given: Sequence[str]) -> bool:
    places = {0}
    for word in wanted:
        if word == REST:
            return True
        reached: set[int] = set()
        for place in places:
            for at in _candidates(given, place, option=word.startswith("-")):
                if word == ANY or given[at] == word or UNKNOWN in given[at]:
                    reached.add(at + 1)
        if not reached:
            return False
        places = reached
    return True


def _candidates(given: Sequence[str], place: int, *, option: bool) -> list[int]:
    """Where the next word may stand: here, or behind options; an option itself anywhere behind."""
    if option:
        return list(range(place, min(len(given), place + 200)))
    found: set[int] = set()
    at = place
    while at < len(given) and at < place + 40:
        found.add(at)
        if not given[at].startswith("-"):
            break
        if at + 2 < len(given) and "=" not in given[at] and not given[at + 1].startswith("-"):
            found.add(at + 2)
        at += 1
    return sorted(found)


def allows(words: tuple[str, ...], command: Command) -> bool:
    """Whether the command certainly begins with ``words``: no option is passed over, nothing unknown is let through."""
    if words[-1] == REST:
        words = words[:-1]
    given = command.words[: len(words)]
    return len(given) == len(words) and all(
        word.known
        and (wanted == ANY or word.text == wanted or (index == 0 and wanted == posixpath.basename(word.text)))
        for index, (wanted, word) in enumerate(zip(words, given, strict=True))
    )


def user_rule(
    decision: Decision,
    program: str,
    args: str | Sequence[str] = (),
    *,
    reason: str = "",
    levels: Sequence[Level | str] = (),
) -> Rule:
    """
    Of the configuration: for ``program`` with ``args`` behind it. Without ``levels`` a permission is for standard and
    trusted alone, everything else for all levels.

    Raises:
        ValueError: the program is empty, or a level is none.
    """
    words = (program, *(shlex.split(args) if isinstance(args, str) else args))
    if not program or program in (ANY, REST):
        raise ValueError("a rule names its program")
    if REST in words[:-1]:
        raise ValueError(f"{REST!r} can only be the last word")
    chosen = frozenset(Level(level) for level in levels) or (
        frozenset({Level.STANDARD, Level.TRUSTED}) if decision == "allow" else frozenset(Level)
    )
    return Rule(
        id=f"own.{decision}.{posixpath.basename(program)}",
        reason=reason
        or {"deny": "is blocked by configuration", "ask": "has to be asked", "allow": "is allowed"}[decision],
        strict=decision,
        standard=decision,
        trusted=decision,
        words=words,
        levels=chosen,
        own=True,
    )


def blocked(text: str) -> Rule:
    """
    A command that nobody may run, by its first words: ``terraform apply``.

    Raises:
        ValueError: there is no word in it, or a quote without an end.
    """
    words = shlex.split(text)
    if not words:
        raise ValueError("a blocked command has at least its program")
    return user_rule("deny", words[0], words[1:])
