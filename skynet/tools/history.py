"""``history_search``: what was said in this person's conversations, all of them (SQ-086)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext
from skynet_memory.ids import now_ms
from skynet_memory.keys import parse_key
from skynet_memory.search import Hit, Spoken, TranscriptSearch

DEFAULT_FOUND: Final = 5
MAX_FOUND: Final = 50
MATCH_CHARS: Final = 600
AROUND_CHARS: Final = 200
"""What a model is shown of a message that matched, and of one beside it."""
ALL_CHARS: Final = 12_000


class HistoryTools:
    """The tool. A question is not found by the search that it leads to."""

    def __init__(self, search: TranscriptSearch, *, clock: Callable[[], int] = now_ms) -> None:
        self._search = search
        self._clock = clock

    def tools(self) -> Sequence[Tool]:
        return (
            Tool(
                name="history_search",
                description=(
                    "Search everything that this person and you said to each other in earlier conversations, and "
                    "longer ago in this one. Gives the messages with two before and after each."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 1000,
                            "description": "Words that were said; rare ones count most.",
                        },
                        "limit": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": MAX_FOUND,
                            "description": f"Places to show. Default {DEFAULT_FOUND}.",
                        },
                    },
                    "required": ["query"],
                    "additionalProperties": False,
                },
                permission="sessions.read",
                run=self.search,
            ),
        )

    async def search(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        query, limit = arguments["query"], arguments.get("limit", DEFAULT_FOUND)
        hits = await self._search.search(
            context.owner, query, limit=limit, now_ms=self._clock(), asked_by=context.run_id
        )
        if not hits:
            return f"nothing was said about {query}"
        told: list[str] = []
        left = ALL_CHARS
        for hit in hits:
            text = _told(hit, context)
            if len(text) > left:
                told.append(f"[{len(hits) - len(told)} more places were found: search for rarer words]")
                break
            told.append(text)
            left -= len(text) + 2
        return "\n\n".join(told)


def _told(hit: Hit, context: ToolContext) -> str:
    first = datetime.fromtimestamp(hit.entries[0].at_ms / 1000, UTC)
    where = "this conversation" if hit.key == context.session_key else f"conversation {parse_key(hit.key).name}"
    return "\n".join((f"[{where}, {first:%Y-%m-%d %H:%M} UTC]", *map(_line, hit.entries)))


def _line(entry: Spoken) -> str:
    limit = MATCH_CHARS if entry.matched else AROUND_CHARS
    text = entry.text if len(entry.text) <= limit else entry.text[: limit - 1] + "…"
    return f"{'person' if entry.role == 'user' else 'you'}: {text}"
