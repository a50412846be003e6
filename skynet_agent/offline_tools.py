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
    (
        r"(?:what do you (?:know|remember)|tell me what you (?:know|remember))(?: about (?:me|(?P<query>.+?)))?[?.! ]*",
        "memory_search",
    ),
    (r"what did (?:i|we) (?:say|write|tell you|talk) about (?P<query>.+?)[?.! ]*", "history_search"),
    (r"forget (?!(?:it|me|that|this|all|everything)\b[.! ]*$)(?:that )?(?:my )?(?P<key>[^?]+?)[.! ]*", "memory_forget"),
)
_patterns = tuple((re.compile(rf"(?:please )?(?:{form})", re.IGNORECASE | re.DOTALL), tool) for form, tool in _FORMS)

_LESSON: Final = re.compile(
    r"(?:please )?(?:remember|keep in mind|note)(?::| that|,)* (?P<what>.+)", re.IGNORECASE | re.DOTALL
)
_NAMED: Final = re.compile(
    r"(?:my |the |our )?(?P<key>(?:[^\s.,:;?!]+ ){0,4}?[^\s.,:;?!]+) (?:is|are|=) (?P<value>.+)",
    re.IGNORECASE | re.DOTALL,
)
_LIKED: Final = re.compile(
    r"i (?:do not |don't )?(?:like|love|prefer|hate|dislike|want|enjoy)\b|.*\bfavou?rite\b", re.IGNORECASE
)
_ORDERED: Final = re.compile(r"(?:always|never|call me|answer|speak|write|be|do not|don't)\b", re.IGNORECASE)
_KEY_CHARS: Final = 80

HELP: Final[Mapping[str, str]] = {
    "list_files": "list your files",
    "read_file": "read one (read notes.txt)",
    "search_files": "search them (search for milk)",
    "write_file": "write one (write buy milk to notes.txt)",
    "execute_command": "run a command (run ls -l)",
    "memory_learn": "remember something (remember that my bike is blue)",
    "memory_search": "tell what I remember (what do you know about my bike?)",
    "memory_forget": "forget it (forget my bike)",
    "history_search": "find what was said (what did I say about bikes?)",
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
    lesson = _LESSON.fullmatch(text)
    if lesson is not None and "memory_learn" in tools:
        return Wish("memory_learn", _lesson(lesson["what"].strip()))
    return None


def _lesson(what: str) -> dict[str, Json]:
    """What to remember: ``my bike is blue`` has a name, anything else is its own."""
    what = what.removesuffix(".")
    category = "instruction" if _ORDERED.match(what) else "preference" if _LIKED.match(what) else "fact"
    named = _NAMED.fullmatch(what) if category != "instruction" else None
    if named is not None and named["key"].lower() not in ("i", "we", "it", "he", "she", "they", "you", "there"):
        return {"category": category, "key": named["key"], "value": named["value"]}
    return {"category": category, "key": what[:_KEY_CHARS].strip(), "value": what}
