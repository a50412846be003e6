"""The decision on a command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from skynet_terminal.policy import characters, paths, strict
from skynet_terminal.policy.base import Decision, Level, Verdict
from skynet_terminal.policy.commands import Command, Redirect
from skynet_terminal.policy.grammar import Unreadable
from skynet_terminal.policy.rules import Rule, allows
from skynet_terminal.policy.table import BY_ID, RULES
from skynet_terminal.policy.walk import Walk
from skynet_terminal.policy.whole import whole_of

LONGEST = 100_000
"""Characters of a command that are looked at."""

_WEIGHT: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}


class _Finding(NamedTuple):
    rule: Rule
    part: str
    decision: Decision
    command: Command | None = None


class CommandPolicy:
    """
    ``rules`` are somebody's own, which come before those of :data:`~skynet_terminal.policy.table.RULES`: their ``deny``
    always holds, their ``ask`` holds over a permission, their ``allow`` lifts what the words of the command are asked
    or refused for, but never what is catastrophic, nor redirections, pipelines and what else is not in the words.

    ``inside`` are folders that are seen by commands and are as much the person's as their own: absolute paths.

    It is pure, takes no time worth mentioning, and never raises.
    """

    def __init__(self, rules: Sequence[Rule] = (), inside: Sequence[str] = ()) -> None:
        self._own = tuple(rules)
        self._mounted = tuple(parts for path in inside if (parts := paths.parts_of(path)))
        self._of_program: dict[str, list[Rule]] = {}
        self._of_all: list[Rule] = []
        for rule in RULES:
            if rule.programs:
                for program in rule.programs:
                    self._of_program.setdefault(program, []).append(rule)
            elif rule.check is not None:
                self._of_all.append(rule)

    def judge(self, command: str, level: Level) -> Verdict:
        """Of a line for bash."""
        if len(command) > LONGEST:
            return _only(
                "text.too-much", f"a command of {len(command)} characters, where the limit is {LONGEST},", level
            )
        seen = characters.seen_in_line(command)
        if seen is not None and BY_ID[seen[0]].decision(level) == "deny":
            return _only(*seen, level)
        walk = Walk()
        try:
            walk.line(command)
        except Unreadable as fault:
            if fault.too_much:
                return _only("text.too-much", f"the command, in which {fault},", level)
            walk.unread.append(str(fault))
        verdict = self._verdict(walk, level, seen)
        return verdict if verdict.decision == "deny" else replace(verdict, whole=whole_of(walk, command))

    def judge_argv(self, argv: Sequence[str], level: Level) -> Verdict:
        """Of a program that is started without a shell."""
        line = "\n".join(argv)
        if len(line) > LONGEST:
            return _only("text.too-much", f"a command of {len(line)} characters, where the limit is {LONGEST},", level)
        if not argv or not argv[0]:
            return _only("text.unreadable", "a command without a program", level)
        seen = characters.seen_in_line(line)
        if seen is not None and BY_ID[seen[0]].decision(level) == "deny":
            return _only(*seen, level)
        walk = Walk()
        try:
            walk.argv(argv)
        except Unreadable as fault:
            return _only("text.too-much", f"the command, in which {fault},", level)
        return self._verdict(walk, level, seen)

    def _verdict(self, walk: Walk, level: Level, seen: tuple[str, str] | None) -> Verdict:
        findings: list[_Finding] = []
        if seen is not None:
            findings.append(_finding(*seen, level))
        findings += [_finding("text.unreadable", f"the line ({fault})", level) for fault in walk.unread]
        findings += [_finding(sign.rule, sign.what, level) for sign in walk.signs]
        for command in walk.commands:
            command.mounted = self._mounted
            findings += self._of_command(command, level)
        plain = tuple(
            tuple(command.texts)
            for command in walk.commands
            if command.words
            and command.outer is None
            and not command.guess
            and all(word.known for word in command.words)
        )
        worst = max(findings, key=_weight, default=None)
        if worst is None or worst.decision == "allow":
            rule = worst.rule.id if worst is not None else ""
            return Verdict(decision="allow", rule=rule, commands=() if walk.shadows else plain)
        asked = [finding for finding in findings if finding.decision != "allow"]
        storable = not walk.shadows and all(
            finding.rule.in_argv and finding.command is not None and _outermost(finding.command) is not None
            for finding in asked
        )
        commands: tuple[tuple[str, ...], ...] = ()
        if storable and worst.decision == "ask":
            argvs = [_outermost(finding.command) for finding in asked if finding.command is not None]
            commands = tuple(dict.fromkeys(argv for argv in argvs if argv is not None))
        reason = f"{worst.part} {worst.rule.reason}" if worst.rule.own else _reason(worst)
        return Verdict(decision=worst.decision, rule=worst.rule.id, reason=reason, commands=commands)

    def _of_command(self, command: Command, level: Level) -> Iterator[_Finding]:
        own = [rule for rule in self._own if level in rule.levels]
        lifted = not command.guess and any(
            rule.decision(level) == "allow" and allows(rule.words, command) for rule in own if rule.words
        )
        for rule in own:
            decision = rule.decision(level)
            if decision != "allow" and (part := rule.part(command)) is not None:
                if not all(word.known for word in command.words) and decision == "deny" and not _certain(rule, command):
                    decision = "ask"
                if not command.guess or decision == "deny":
                    yield _Finding(rule, part, decision, command)
        for rule in (*self._of_program.get(command.program, ()), *self._of_all):
            decision = rule.decision(level)
            if decision == "allow" or (command.guess and decision != "deny" and level is not Level.TRUSTED):
                continue
            if lifted and rule.in_argv and not rule.catastrophic:
                continue
            if command.guess and rule.standard != "deny":
                continue
            if (part := rule.part(command)) is not None:
                yield _Finding(rule, part, decision, command)
        strange = characters.seen_in_program(command.texts[0]) if command.words and not command.guess else None
        if strange is not None:
            yield _finding(*strange, level)
        if level is Level.STRICT and not command.guess and not lifted and (part := strict.refused(command)) is not None:
            yield _finding("strict.not-listed", part, level)


def _certain(rule: Rule, command: Command) -> bool:
    return allows(rule.words, command)


def _weight(finding: _Finding) -> tuple[int, bool, bool, bool]:
    """The hardest first; of equal ones somebody's own, and the one that says most."""
    return _WEIGHT[finding.decision], finding.rule.own, finding.rule.catastrophic, not finding.rule.general


def _finding(rule_id: str, part: str, level: Level) -> _Finding:
    rule = BY_ID[rule_id]
    return _Finding(rule, part, rule.decision(level))


def _only(rule_id: str, part: str, level: Level) -> Verdict:
    finding = _finding(rule_id, part, level)
    return Verdict(decision=finding.decision, rule=rule_id, reason=_reason(finding))


def _reason(finding: _Finding) -> str:
    verb = "is refused" if finding.decision == "deny" else "needs a yes"
    return f"{finding.part} {verb}, as it {finding.rule.reason}"


def _outermost(command: Command) -> tuple[str, ...] | None:
    """The words as they were given, if all of them are known and nothing beside them says what is done."""
    while command.outer is not None:
        command = command.outer
    if command.guess or any(redirect.writes and not _is_nowhere(redirect) for redirect in command.redirects):
        return None
    return tuple(command.texts) if all(word.known and not word.glob for word in command.words) else None


def _is_nowhere(redirect: Redirect) -> bool:
    return redirect.target.text == "/dev/null" or (redirect.operator == ">&" and redirect.target.text.isdecimal())
