"""``memory_learn``, ``memory_search`` and ``memory_forget``: what is remembered of the person who is served."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from skynet.gateway.approvals import Record
from skynet_agent.messages import Json
from skynet_agent.tools import Tool, ToolContext, ToolFailed
from skynet_memory.ids import Role, now_ms
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_types import Memory, NewMemory

CATEGORIES: Final = ("instruction", "preference", "fact", "context")
DEFAULT_FOUND: Final = 8
MAX_FOUND: Final = 20
VALUE_CHARS: Final = 400
"""What a model is shown of one memory that was found."""
DAY_MS: Final = 86_400_000


class MemoryTools:
    """The tools.

    Args:
        record: where it is written down that something was erased.
    """

    def __init__(self, memories: MemoryStore, *, record: Record, clock: Callable[[], int] = now_ms) -> None:
        self._memories = memories
        self._record = record
        self._clock = clock

    def tools(self) -> Sequence[Tool]:
        category: Json = {"enum": list(CATEGORIES)}
        key: Json = {"type": "string", "minLength": 1, "maxLength": 200}
        return (
            Tool(
                name="memory_learn",
                description=(
                    "Remember something about this person for all later conversations. The same key replaces what it "
                    "held. Secrets are refused."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "category": category
                        | {
                            "description": "instruction: how to behave; preference; fact; "
                            "context: what is going on now."
                        },
                        "key": key | {"description": "A short name of it, such as: favourite colour."},
                        "value": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 2000,
                            "description": "What to remember, to be understood by itself.",
                        },
                        "inferred": {"type": "boolean", "description": "True if the person did not say it."},
                        "confidence": {
                            "type": "number",
                            "minimum": 0,
                            "maximum": 1,
                            "description": "Default 0.8, inferred 0.5. The more certain of two wins.",
                        },
                        "days": {
                            "type": "number",
                            "exclusiveMinimum": 0,
                            "maximum": 36500,
                            "description": "Forget it after so many days.",
                        },
                    },
                    "required": ["category", "key", "value"],
                    "additionalProperties": False,
                },
                permission="memory.write",
                run=self.learn,
            ),
            Tool(
                name="memory_search",
                description=(
                    "Search what you remember about this person, beyond what your instructions already hold of it."
                ),
                parameters={
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "maxLength": 1000,
                            "description": "Words to look for. Without any: what matters most.",
                        },
                        "category": category | {"description": "Only these."},
                        "limit": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": MAX_FOUND,
                            "description": f"Default {DEFAULT_FOUND}.",
                        },
                    },
                    "additionalProperties": False,
                },
                permission="memory.read",
                run=self.search,
            ),
            Tool(
                name="memory_forget",
                description="Erase one memory of this person for good, when they ask for it.",
                parameters={
                    "type": "object",
                    "properties": {"key": key | {"description": "Its key, as memory_search shows it."}},
                    "required": ["key"],
                    "additionalProperties": False,
                },
                permission="memory.write",
                run=self.forget,
            ),
        )

    async def learn(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        now = self._clock()
        inferred = bool(arguments.get("inferred", False))
        days = arguments.get("days")
        new = NewMemory(
            category=arguments["category"],
            key=arguments["key"],
            value=arguments["value"],
            confidence=float(arguments.get("confidence", 0.5 if inferred else 0.8)),
            source="inferred" if inferred else "user_said",
            expires_at_ms=None if days is None else now + int(days * DAY_MS),
        )
        learned = await self._memories.learn(context.owner, new, now_ms=now)
        if learned.outcome == "refused" or learned.memory is None:
            raise ToolFailed(f"not remembered: {learned.reason}")
        shown = _line(learned.memory)
        match learned.outcome:
            case "added":
                return f"remembered: {shown}"
            case "updated":
                return f"updated: {shown}"
            case "unchanged":
                return f"already remembered: {shown}"
            case _:
                return f"kept as it was, {learned.reason or 'it is more certain'}: {shown}"

    async def search(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        query, limit = arguments.get("query", "").strip(), arguments.get("limit", DEFAULT_FOUND)
        category = arguments.get("category")
        if query:
            found = await self._memories.search(
                context.owner, query, limit=limit, category=category, now_ms=self._clock()
            )
            memories = [hit.memory for hit in found]
        else:
            every = await self._memories.most_important(context.owner, limit, self._clock())
            memories = [memory for memory in every if category in (None, memory.category)][:limit]
        if not memories:
            return f"nothing is remembered about {query}" if query else "nothing is remembered"
        return "\n".join(f"- {_line(memory)}" for memory in memories)

    async def forget(self, context: ToolContext, arguments: Mapping[str, Json]) -> str:
        key = arguments["key"]
        known = await self._memories.by_key(context.owner, key) if context.role is Role.CHILD else None
        if known is not None and known.source == "admin_set":
            raise ToolFailed(f'"{key}" was set by a grown-up, and stays')
        if not await self._memories.forget(context.owner, key=key):
            alike = await self._memories.search(context.owner, key, limit=3, now_ms=self._clock())
            keys = ", ".join(f'"{hit.memory.key}"' for hit in alike)
            raise ToolFailed(f'nothing is remembered as "{key}"' + (f"; there is: {keys}" if keys else ""))
        await self._record(
            "memory.erased", actor=context.user_id, subject=context.owner, details={"method": "memory_forget"}
        )
        return f'forgotten: "{key}"'


def _line(memory: Memory) -> str:
    """One memory on one line, for a model."""
    value = " ".join(memory.value.split())
    value = value if len(value) <= VALUE_CHARS else value[: VALUE_CHARS - 1] + "…"
    notes = [memory.category, f"confidence {memory.confidence:.2g}"]
    if memory.source == "inferred":
        notes.append("inferred")
    if memory.expires_at_ms is not None:
        notes.append(f"until {datetime.fromtimestamp(memory.expires_at_ms / 1000, UTC):%Y-%m-%d}")
    return f"{memory.key}: {value} ({', '.join(notes)})"
