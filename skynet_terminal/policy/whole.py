"""Whether a line is nothing but its simple commands: what an approval of each of them is an approval of."""

from __future__ import annotations

from skynet_terminal.policy.grammar import Phrase, Redirection, Script, Simple, Text
from skynet_terminal.policy.reader import read
from skynet_terminal.policy.walk import Walk

_NOWHERE = "/dev/null"


def whole_of(walk: Walk, line: str) -> tuple[tuple[str, ...], ...]:
    """The words of all simple commands of a line; empty if something else in it says what is done, too: a variable, a
    redirection, a function, a loop, or a word that is only known when it runs."""
    if walk.unread or walk.shadows or any(command.guess for command in walk.commands) or not _is_plain(read(line)):
        return ()
    outermost = [command for command in walk.commands if command.outer is None]
    if not all(word.known and not word.glob for command in outermost for word in command.words):
        return ()
    return tuple(dict.fromkeys(tuple(command.texts) for command in outermost if command.words))


def _is_plain(script: Script) -> bool:
    return all(
        isinstance(stage, Simple)
        and not stage.assignments
        and all(map(_goes_nowhere, stage.redirections))
        and all(map(_is_text, stage.words))
        for pipeline in script
        for stage in pipeline.stages
    )


def _goes_nowhere(redirection: Redirection) -> bool:
    target = "".join(part.value for part in redirection.target if isinstance(part, Text))
    if not _is_text(redirection.target):
        return False
    return (redirection.operator == ">&" and target.isdecimal()) or (
        redirection.operator in (">", ">>", "&>", "<") and target == _NOWHERE
    )


def _is_text(phrase: Phrase) -> bool:
    return all(isinstance(part, Text) for part in phrase)
