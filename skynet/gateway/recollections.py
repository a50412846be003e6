"""What the prompt tells of somebody: what is remembered of them, and the topics that their tools are used with."""

from collections import OrderedDict
from collections.abc import Callable

from skynet_memory.ids import UserId, now_ms
from skynet_memory.knowledge import KnowledgeStore, Topic
from skynet_memory.memory_context import ContextCache
from skynet_memory.memory_gate import one_line

TOPIC_CHARS = 800
"""Of one topic in the prompt; the rest is found by ``knowledge_search``."""
MOST_TOPICS = 5
CACHED_MS = 300_000
MAX_PEOPLE = 256
_BRACKETS = str.maketrans("<>", "‹›")
"""What the model could take for a mark of the prompt."""


class Recollections:
    """The text is the same until something of it changes: what providers have cached of a prompt depends on it."""

    def __init__(self, memories: ContextCache, knowledge: KnowledgeStore, *, clock: Callable[[], int] = now_ms) -> None:
        self._memories = memories
        self._knowledge = knowledge
        self._clock = clock
        self._topics: OrderedDict[UserId, tuple[int, int, str]] = OrderedDict()

    async def text(self, owner: UserId) -> str:
        """All that the prompt of this person, or room, is told of them; "" if nothing is known."""
        now = self._clock()
        parts = (await self._memories.render(owner, now), await self._hot(owner, now))
        return "\n\n".join(part for part in parts if part)

    async def _hot(self, owner: UserId, now: int) -> str:
        """Topics that are tagged with the tools this person uses most (SK-104)."""
        version = self._knowledge.version(owner)
        cached = self._topics.get(owner)
        if cached is not None and cached[0] == version and now < cached[1]:
            return cached[2]
        topics = await self._knowledge.hot(owner, limit=MOST_TOPICS)
        text = "\n".join(["## Topics for the tools you use", *map(_line, topics)]) if topics else ""
        self._topics[owner] = (version, now + CACHED_MS, text)
        self._topics.move_to_end(owner)
        if len(self._topics) > MAX_PEOPLE:
            self._topics.popitem(last=False)
        return text


def _line(topic: Topic) -> str:
    content = one_line(topic.content)
    shown = content if len(content) <= TOPIC_CHARS else f"{content[:TOPIC_CHARS]}… (more: knowledge_search)"
    return f"- {one_line(topic.topic)}: {shown}".translate(_BRACKETS)
