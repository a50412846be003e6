"""``knowledge.*``: the topics that were written down."""

from typing import Any

from msgspec import UNSET

from skynet.gateway.dispatch import method
from skynet.gateway.memory_access import MemoryAccess
from skynet_memory.errors import MemoryNotFound, MemoryRefused
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.knowledge import Topic as StoredTopic
from skynet_protocol.errors import DetailCode, RequestError, shorten
from skynet_protocol.knowledge import (
    FoundTopic,
    KnowledgeForgetParams,
    KnowledgeForgetResult,
    KnowledgeListParams,
    KnowledgeListResult,
    KnowledgeSearchParams,
    KnowledgeSearchResult,
    KnowledgeWriteParams,
    KnowledgeWriteResult,
    Topic,
)
from skynet_protocol.memory import MAX_FOUND
from skynet_protocol.params import invalid_params
from skynet_users.caller import Caller


class KnowledgeMethods:
    """The caller's own topics, a group's for its members, anybody's for those who may reach everybody's."""

    def __init__(self, knowledge: KnowledgeStore, access: MemoryAccess) -> None:
        self._knowledge = knowledge
        self._access = access

    @method("knowledge.list")
    async def list_topics(self, caller: Caller, params: KnowledgeListParams) -> KnowledgeListResult:
        """A page of topics, by name."""
        owner = await self._access.reads(caller, params.user_id, "knowledge.list")
        after = "" if params.after is UNSET else params.after
        topics = await self._knowledge.list(owner, limit=params.limit, after=after)
        return KnowledgeListResult(
            topics=[Topic(**_fields(topic)) for topic in topics],
            next=topics[-1].topic if len(topics) == params.limit else UNSET,
        )

    @method("knowledge.search")
    async def search(self, caller: Caller, params: KnowledgeSearchParams) -> KnowledgeSearchResult:
        """Find topics by words of their names, texts and tags, best first."""
        owner = await self._access.reads(caller, params.user_id, "knowledge.search")
        found = await self._knowledge.search(owner, params.query, limit=min(params.limit, MAX_FOUND))
        return KnowledgeSearchResult(
            topics=[FoundTopic(**_fields(hit.topic), score=round(hit.score, 4)) for hit in found]
        )

    @method("knowledge.write")
    async def write(self, caller: Caller, params: KnowledgeWriteParams) -> KnowledgeWriteResult:
        """Write a topic down, or anew. What the write gate refuses is an error that says why."""
        owner = await self._access.changes(caller, params.user_id, "knowledge.write")
        try:
            topic = await self._knowledge.write(owner, params.topic, params.content, params.tags)
        except MemoryRefused as exc:
            raise invalid_params("knowledge.write", str(exc)) from exc
        return KnowledgeWriteResult(topic=Topic(**_fields(topic)))

    @method("knowledge.forget")
    async def forget(self, caller: Caller, params: KnowledgeForgetParams) -> KnowledgeForgetResult:
        """Erase a topic for good. What is not there is an error."""
        owner = await self._access.erases(caller, params.user_id, "knowledge.forget")
        if not await self._knowledge.forget(owner, params.topic):
            error = MemoryNotFound(shorten(params.topic))
            raise RequestError(str(error), details={"code": DetailCode.NOT_FOUND}) from error
        return KnowledgeForgetResult(ok=True)


def _fields(topic: StoredTopic) -> dict[str, Any]:
    return {
        "id": topic.id,
        "topic": topic.topic,
        "content": topic.content,
        "tags": topic.tags,
        "created_at": topic.created_at_ms,
        "updated_at": topic.updated_at_ms,
    }
