"""A second opinion on a line, of tree-sitter-bash: whether it sees a command that the reader here does not."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from skynet_terminal.policy.commands import Command

if TYPE_CHECKING:
    from tree_sitter import Language

LONGEST = 4000
_MOST_PIPES = 40  # its memory grows with the square of them
_MOST_DOCUMENTS = 8  # and its time with that of these


@cache
def _language() -> Language:
    # imported when the first command is judged: starting has no need of it
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def misses(text: str, commands: Sequence[Command]) -> list[str]:
    """What it reads as a program's name and none of ``commands`` has, in words; nothing where it is not sure itself."""
    if (
        len(text) > LONGEST
        or text.count("|") > _MOST_PIPES
        or text.count("<<") > _MOST_DOCUMENTS
        or text.count("(") > 100
    ):
        return []
    from tree_sitter import Parser

    root = Parser(_language()).parse(text.encode("utf-8", "replace")).root_node
    if root.has_error:
        return []
    known = {command.program for command in commands} | {
        posixpath.basename(word) for command in commands for word in command.texts
    }
    waiting = [root]
    found: list[str] = []
    while waiting:
        node = waiting.pop()
        if node.type == "command_name":
            name = (node.text or b"").decode("utf-8", "replace")
            if name.isalnum() and name.lower() not in known and name not in known and name not in _GRAMMAR:
                found.append(f"{name!r} may be a command in it")
        waiting += node.children
    return found


_GRAMMAR = frozenset(
    {"time", "coproc", "function", "select", "until", "in", "do", "done", "then", "fi", "esac", "else"}
)
