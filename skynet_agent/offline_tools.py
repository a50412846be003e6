"""What the offline assistant understands of tools: a few plain requests, each of which is one call."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from skynet_agent.messages import Json

_LONGEST = 2000
"""What is longer is no request of these forms; the patterns need not look at it."""

_NAME = r"[\"'`]?(?P<path>[^\s\"'`](?:[^\n\"'`]*[^\s\"'`])?)[\"'`]?"
_FORMS: Final = (
    (r"(?:list|show)(?: me)?(?: all)?(?: my| the)? (?:files|folder)(?: (?:in|of|under) (?P<path>\S+))?", "list_files"),
    (r"ls(?: (?P<path>\S+))?", "list_files"),
    (rf"(?:read|open|show(?: me)?|cat)(?: the)?(?: file)? {_NAME}", "read_file"),
    (r"(?:search|grep)(?: (?:my|the|all))?(?: files)?(?: for)? [\"'`]?(?P<query>[^\"'`]+?)[\"'`]?", "search_files"),
    (r"(?:write|save|put) (?P<content>.+?) (?:to|into|in)(?: the)?(?: file)? (?P<path>\S+)", "write_file"),
    (r"(?:run|execute)(?: the command)?:? (?P<command>.+)", "execute_command"),
)
_patterns = tuple((re.compile(rf"(?:please )?(?:{form})", re.IGNORECASE | re.DOTALL), tool) for form, tool in _FORMS)

HELP: Final[Mapping[str, str]] = {
    "list_files": "list your files",
    "read_file": "read one (read notes.txt)",
    "search_files": "search them (search for milk)",
    "write_file": "write one (write buy milk to notes.txt)",
    "execute_command": "run a command (run ls -l)",
}
"""What can be asked of each tool, in the words of the help."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A call that a person's words ask for."""

    tool: str
    arguments: dict[str, Json]


def wish_in(text: str, tools: Collection[str]) -> Wish | None:
    """The call that ``text`` asks for; None if it asks for none, or for a tool that is not among ``tools``."""
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    for pattern, tool in _patterns:
        match = pattern.fullmatch(text)
        if match is not None:
            wish = Wish(tool, {name: value.strip() for name, value in match.groupdict().items() if value})
            return wish if tool in tools else None
    return None
