"""What starts itself again and again: functions that call themselves, loops without end."""

from __future__ import annotations

from collections.abc import Iterator

from skynet_terminal.policy.grammar import (
    Function,
    Group,
    Loop,
    Phrase,
    Process,
    Script,
    Simple,
    Substitution,
    Text,
)


def is_endless(group: Group) -> bool:
    if group.kind == "for":
        text = "".join(plain(phrase) for phrase in group.words)
        return text.count(";") == 2 and not text.split(";")[1].strip()
    condition = group.bodies[0]
    if len(condition) != 1 or len(condition[0].stages) != 1:
        return False
    stage = condition[0].stages[0]
    if isinstance(stage, Group):
        return stage.kind == "calculation" or stage.kind == "test"
    if not isinstance(stage, Simple) or not stage.words:
        return False
    first = plain(stage.words[0])
    return first in (("false",) if group.kind == "until" else ("true", ":", "[", "test", "/bin/true"))


_WAITING = frozenset({"sleep", "wait", "read", "break", "exit"})


def starts_in_background(script: Script) -> bool:
    """Without ever waiting."""
    background = False
    for pipeline in script:
        for stage in pipeline.stages:
            waits = isinstance(stage, Simple) and stage.words and not pipeline.background
            if isinstance(stage, Simple) and waits and plain(stage.words[0]) in _WAITING:
                return False
            if isinstance(stage, Group) and stage.kind in ("group", "subshell"):
                background = background or any(starts_in_background(body) for body in stage.bodies)
        background = background or pipeline.background
    return background


def plain(phrase: Phrase) -> str:
    return "".join(part.value for part in phrase if isinstance(part, Text))


def calls(script: Script, spawns: bool) -> Iterator[tuple[str, bool]]:
    """Every name that is called, and whether as one more process beside."""
    for pipeline in script:
        apart = spawns or pipeline.background or len(pipeline.stages) > 1
        for stage in pipeline.stages:
            match stage:
                case Simple():
                    if stage.words:
                        yield plain(stage.words[0]), apart
                        if len(stage.words) > 1 and plain(stage.words[0]) in (
                            "eval",
                            "command",
                            "exec",
                            "time",
                            "nohup",
                        ):
                            yield plain(stage.words[1]), apart
                    for phrase in stage.words:
                        for part in phrase:
                            if isinstance(part, (Substitution, Process)):
                                yield from calls(part.script, True)
                case Group():
                    for body in stage.bodies:
                        yield from calls(body, apart)
                case Loop():
                    yield from calls(stage.body, apart)
                case Function():
                    yield from calls(stage.body, apart)
