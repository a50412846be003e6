"""``knowledge_write`` and ``knowledge_search``: topics that were worked out once (SK-103)."""

from collections.abc import Mapping, Sequence
from typing import Final

from skynet_agent.cutting import cut_middle
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext, ToolFailed
from skynet_memory.errors import MemoryRefused
from skynet_memory.knowledge import KnowledgeStore

DEFAULT_FOUND: Final = 3
MAX_FOUND: Final = 10
CONTENT_CHARS: Final = 8_000
FOUND_CHARS: Final = 12_000
"""What a model gets of all topics that were found, together."""


class KnowledgeTools:
    """The tools."""

    def __init__(self, knowledge: KnowledgeStore) -> None:
        self._knowledge = knowledge

    def tools(self) -> Sequence[Tool]:
        return (
            Tool(
                name="knowledge_write",
                description=(
                    "Write down what you worked out, under a topic, to be found again: steps, results, explanations. "
                    "The same topic is replaced as a whole."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "topic": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 200,
                            "description": "Its name.",
                        },
                        "content": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": CONTENT_CHARS,
                            "description": "The whole text.",
                        },
                        "tags": {
                            "type": "array",
                            "items": {"type": "string", "minLength": 1, "maxLength": 50},
                            "maxItems": 20,
                            "description": "Words for it; the name of a tool, if it is about using that.",
                        },
                    },
                    "required": ["topic", "content"],
                    "additionalProperties": False,
                },
                permission="memory.write",
                run=self.write,
            ),
            Tool(
                name="knowledge_search",
                description="Search the topics that were written down with knowledge_write. Gives their texts.",
                parameters={
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 1000,
                            "description": "Words of topic, text or tags.",
                        },
                        "limit": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": MAX_FOUND,
                            "description": f"Default {DEFAULT_FOUND}.",
                        },
                    },
                    "required": ["query"],
                    "additionalProperties": False,
                },
                permission="memory.read",
                run=self.search,
            ),
        )

    async def write(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        try:
            topic = await self._knowledge.write(
                context.owner, arguments["topic"], arguments["content"], arguments.get("tags", ())
            )
        except MemoryRefused as exc:
            raise ToolFailed(str(exc)) from exc
        return f'written: "{topic.topic}", {len(topic.content)} characters'

    async def search(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        query = arguments["query"]
        found = await self._knowledge.search(context.owner, query, limit=arguments.get("limit", DEFAULT_FOUND))
        if not found:
            return f"nothing was written down about {query}"
        share = FOUND_CHARS // len(found)
        return "\n\n".join(
            f"## {hit.topic.topic}{_tags(hit.topic.tags)}\n{cut_middle(hit.topic.content, share)}" for hit in found
        )


def _tags(tags: Sequence[str]) -> str:
    return f" ({', '.join(tags)})" if tags else ""
