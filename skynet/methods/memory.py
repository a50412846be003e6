"""``memory.*``: what the assistant remembers, to see, to change and to erase."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import UNSET

from skynet.gateway.dispatch import method
from skynet.gateway.memory_access import MemoryAccess
from skynet_memory.errors import MemoriesRefused, MemoryNotFound, MemoryRefused
from skynet_memory.ids import Role, UserId, now_ms
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_types import Memory, MemoryChanges, NewMemory
from skynet_protocol.errors import DetailCode, RequestError, shorten
from skynet_protocol.memory import (
    MAX_FOUND,
    MAX_LISTED,
    FoundMemory,
    ImportedMemory,
    MemoryEntry,
    MemoryExportParams,
    MemoryExportResult,
    MemoryForgetParams,
    MemoryForgetResult,
    MemoryImportParams,
    MemoryImportResult,
    MemoryLearnParams,
    MemoryLearnResult,
    MemoryListParams,
    MemoryListResult,
    MemorySearchParams,
    MemorySearchResult,
    MemoryShowParams,
    MemoryShowResult,
    MemoryUpdateParams,
    MemoryUpdateResult,
    NewMemoryParams,
    Source,
)
from skynet_protocol.params import invalid_params
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.permissions import Permission

EVERYTHING = 1_000_000


class MemoryMethods:
    """The caller's own memory, a group's for its members, anybody's for those who may reach everybody's.

    Args:
        prompt_text: what a prompt holds of a person's memory: the very function that prompts are made with.
    """

    def __init__(
        self,
        memories: MemoryStore,
        access: MemoryAccess,
        *,
        prompt_text: Callable[[UserId], Awaitable[str]],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._memories = memories
        self._prompt_text = prompt_text
        self._access = access
        self._clock = clock

    @method("memory.search")
    async def search(self, caller: Caller, params: MemorySearchParams) -> MemorySearchResult:
        """Find memories by their words, best first."""
        owner = await self._access.reads(caller, params.user_id, "memory.search")
        found = await self._memories.search(
            owner,
            params.query,
            limit=min(params.limit, MAX_FOUND),
            category=None if params.category is UNSET else params.category,
            now_ms=self._clock(),
        )
        return MemorySearchResult(
            memories=[FoundMemory(**_fields(hit.memory), score=round(hit.score, 4)) for hit in found]
        )

    @method("memory.list")
    async def list_memories(self, caller: Caller, params: MemoryListParams) -> MemoryListResult:
        """A page of them, newest first; those that have expired and were not swept yet are among them."""
        owner = await self._access.reads(caller, params.user_id, "memory.list")
        memories = await self._memories.list(
            owner,
            category=None if params.category is UNSET else params.category,
            limit=params.limit,
            after="" if params.after is UNSET else params.after,
        )
        return MemoryListResult(
            memories=[MemoryEntry(**_fields(memory)) for memory in memories],
            total=await self._memories.count(owner),
            next=memories[-1].id if len(memories) == params.limit else UNSET,
        )

    @method("memory.learn")
    async def learn(self, caller: Caller, params: MemoryLearnParams) -> MemoryLearnResult:
        """Remember something. What the write gate refuses is an error that says why, and does not repeat it."""
        owner = await self._access.changes(caller, params.user_id, "memory.learn")
        source: Source = "user_said" if await self._access.is_own(caller, owner) else "admin_set"
        learned = await self._memories.learn(owner, _new(params, source), now_ms=self._clock())
        if learned.memory is None or learned.outcome == "refused":
            raise invalid_params("memory.learn", f"not remembered: {learned.reason}")
        return MemoryLearnResult(
            outcome=learned.outcome, memory=MemoryEntry(**_fields(learned.memory)), reason=learned.reason or UNSET
        )

    @method("memory.update")
    async def update(self, caller: Caller, params: MemoryUpdateParams) -> MemoryUpdateResult:
        """Change one memory; the text it had is erased."""
        owner = await self._access.changes(caller, params.user_id, "memory.update")
        old = await self._memories.get(owner, params.id)
        if old is not None and old.source == "admin_set" and not caller.may(Permission.MEMORY_WRITE, EVERYBODY):
            raise invalid_params("memory.update", "an admin has set it")  # as memory.learn keeps it
        changes = MemoryChanges(
            category=params.category,
            key=params.key,
            value=params.value,
            kind=params.kind,
            confidence=params.confidence,
            source=UNSET if await self._access.is_own(caller, owner) else "admin_set",
            importance=params.importance,
            tags=params.tags,
            expires_at_ms=params.expires_at,
        )
        try:
            memory = await self._memories.update(owner, params.id, changes, now_ms=self._clock())
        except MemoryNotFound as exc:
            raise not_found(exc) from exc
        except MemoryRefused as exc:
            raise invalid_params("memory.update", str(exc)) from exc
        return MemoryUpdateResult(memory=MemoryEntry(**_fields(memory)))

    @method("memory.forget")
    async def forget(self, caller: Caller, params: MemoryForgetParams) -> MemoryForgetResult:
        """Erase one memory, or all of them, for good. What is not there is an error (SK-051)."""
        given = [name for name in (params.id, params.key, params.all) if name is not UNSET]
        if len(given) != 1:
            raise invalid_params("memory.forget", "must have exactly one of 'id', 'key' and 'all'")
        everything = params.all is True
        if caller.role is Role.CHILD:
            await self._spare_what_was_set(caller, params, everything)
        owner = await self._access.erases(caller, params.user_id, "memory.forget", everything=everything)
        if everything:
            count = await self._memories.count(owner)
            await self._memories.forget_all(owner)
            return MemoryForgetResult(ok=True, forgotten=count)
        name = str(given[0])
        if not await (
            self._memories.forget(owner, key=name) if params.id is UNSET else self._memories.forget(owner, name)
        ):
            raise not_found(MemoryNotFound(shorten(name)))
        return MemoryForgetResult(ok=True, forgotten=1)

    async def _spare_what_was_set(self, caller: Caller, params: MemoryForgetParams, everything: bool) -> None:
        """A child does not make room for something else in the place of what an admin set.

        Raises:
            Forbidden: it is that, or all is to be forgotten and that is among it.
        """
        spared: Sequence[Memory | None]
        if everything:
            spared = await self._memories.most_important(caller.user_id, EVERYTHING, self._clock())
        elif params.id is not UNSET:
            spared = [await self._memories.get(caller.user_id, params.id)]
        else:
            spared = [await self._memories.by_key(caller.user_id, str(params.key))]
        if any(memory is not None and memory.source == "admin_set" for memory in spared):
            raise Forbidden(Permission.MEMORY_WRITE)

    @method("memory.export")
    async def export(self, caller: Caller, params: MemoryExportParams) -> MemoryExportResult:
        """Everything, a page at a time, in the form that ``memory.import`` takes."""
        owner = await self._access.reads(caller, params.user_id, "memory.export")
        after = "" if params.after is UNSET else params.after
        memories = await self._memories.list(owner, limit=MAX_LISTED, after=after)
        return MemoryExportResult(
            memories=[MemoryEntry(**_fields(memory)) for memory in memories],
            next=memories[-1].id if len(memories) == MAX_LISTED else UNSET,
        )

    @method("memory.import")
    async def import_memories(self, caller: Caller, params: MemoryImportParams) -> MemoryImportResult:
        """Learn each of them, by the same rules, all in one transaction.

        What an admin set stays so only if it is an admin who imports it.
        """
        owner = await self._access.changes(caller, params.user_id, "memory.import")
        trusted = caller.may(Permission.MEMORY_WRITE, EVERYBODY)
        items = [_imported(item, trusted) for item in params.memories]
        try:
            learned = await self._memories.import_(owner, items, self._clock())
        except MemoriesRefused as exc:
            raise invalid_params("memory.import", str(exc)) from exc
        counts = Counter(item.outcome for item in learned)
        return MemoryImportResult(
            added=counts["added"], updated=counts["updated"], unchanged=counts["unchanged"], kept=counts["kept"]
        )

    @method("memory.show")
    async def show(self, caller: Caller, params: MemoryShowParams) -> MemoryShowResult:
        """What of the memory stands in the person's prompt, letter for letter (SQ-048)."""
        owner = await self._access.reads(caller, params.user_id, "memory.show")
        return MemoryShowResult(text=await self._prompt_text(owner))


EVERYBODY = UserId("")
"""Somebody else than the caller, whoever it is."""


def not_found(error: MemoryNotFound) -> RequestError:
    return RequestError(str(error), details={"code": DetailCode.NOT_FOUND})


def _new(params: NewMemoryParams, source: Source) -> NewMemory:
    return NewMemory(
        category=params.category,
        key=params.key,
        value=params.value,
        kind=params.kind,
        confidence=params.confidence,
        source=source,
        importance=params.importance,
        tags=params.tags,
        expires_at_ms=None if params.expires_at is UNSET else params.expires_at,
    )


def _imported(item: ImportedMemory, trusted: bool) -> dict[str, Any]:
    return {
        "category": item.category,
        "key": item.key,
        "value": item.value,
        "kind": item.kind,
        "confidence": item.confidence,
        "source": "user_said" if item.source == "admin_set" and not trusted else item.source,
        "importance": item.importance,
        "tags": list(item.tags),
        "createdAt": None if item.created_at is UNSET else item.created_at,
        "expiresAt": None if item.expires_at is UNSET else item.expires_at,
    }


def _fields(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "category": memory.category,
        "key": memory.key,
        "value": memory.value,
        "kind": memory.kind,
        "confidence": memory.confidence,
        "source": memory.source,
        "importance": memory.importance,
        "tags": memory.tags,
        "created_at": memory.created_at_ms,
        "updated_at": memory.updated_at_ms,
        "expires_at": UNSET if memory.expires_at_ms is None else memory.expires_at_ms,
    }
