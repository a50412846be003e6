from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.database import Database, Statements
from skynet_memory.ids import UserId
from skynet_memory.memories import CATEGORIES, Memory, MemoryStore, NewMemory
from skynet_memory.memories_schema import COMPONENT
from skynet_memory.memory_context import CACHED_MS, MAX_CHARACTERS, MAX_PEOPLE, ContextCache, render
from skynet_memory.migrations import migrate
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person

T = TypeVar("T")


class CountingDatabase(Database):
    reads = 0

    async def read(self, work: Callable[[Statements], T]) -> T:
        self.reads += 1
        return await super().read(work)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[CountingDatabase]:
    async with CountingDatabase(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, COMPONENT])
        await add_person(db, ADA)
        await add_person(db, BEN)
        yield db


@pytest.fixture
def memories(db: CountingDatabase) -> MemoryStore:
    return MemoryStore(db)


async def test_order(memories: MemoryStore) -> None:
    """SK-137: by category, then importance, then the newest."""
    for number, category in enumerate(reversed(CATEGORIES)):
        for importance in (0.2, 0.9, 0.2):
            key = f"{category} {importance} {number}"
            await memories.learn(
                ADA, NewMemory(category, f"{key} {await memories.count(ADA)}", "v", importance=importance), T0
            )
    text = await ContextCache(memories).render(ADA, T0)
    lines = text.splitlines()
    assert [line for line in lines if not line.startswith("-")] == [
        "Instructions:",
        "Preferences:",
        "Facts:",
        "Context:",
    ]
    assert lines[1:4] == ["- instruction 0.9 3 10: v", "- instruction 0.2 3 11: v", "- instruction 0.2 3 9: v"]
    assert await ContextCache(memories).render(ADA, T0 + 10**9) == text
    assert await ContextCache(memories).render(BEN, T0) == ""


async def test_two_hundred_memories_are_at_most_6000_characters(memories: MemoryStore) -> None:
    """SK-137: none is cut."""
    stored = set()
    for number in range(200):
        value = f"number {number} " + "x" * (number * 7 % 300)
        await memories.learn(ADA, NewMemory(CATEGORIES[number % 4], f"k{number}", value), T0 + number)
        stored.add(f"- k{number}: {value}".strip())
    text = await ContextCache(memories).render(ADA, T0)
    assert 5_600 < len(text) <= MAX_CHARACTERS
    assert text.startswith("Instructions:\n- k196: ")
    assert {line for line in text.splitlines() if line.startswith("- ")} <= stored


async def test_what_does_not_fit_is_left_out_whole(memories: MemoryStore) -> None:
    for number in range(4):
        await memories.learn(ADA, NewMemory("instruction", f"long {number}", "y" * 1990), T0 + number)
    await memories.learn(ADA, NewMemory("context", "short", "fits"), T0)
    text = await ContextCache(memories).render(ADA, T0)
    assert "long 3" in text and "long 2" in text and "long 1" not in text and "long 0" not in text
    assert text.endswith("Context:\n- short: fits")


async def test_a_second_turn_makes_no_query(db: CountingDatabase, memories: MemoryStore) -> None:
    """SK-138, SR-101."""
    cache = ContextCache(memories)
    await memories.learn(ADA, NewMemory("fact", "cat", "is called Mia"), T0)
    first = await cache.render(ADA, T0)
    reads = db.reads
    assert CACHED_MS == 300_000
    assert await cache.render(ADA, T0 + CACHED_MS - 1) is first
    assert db.reads == reads
    await memories.learn(BEN, NewMemory("fact", "dog", "is called Rex"), T0)
    assert await cache.render(ADA, T0) is first
    await memories.learn(ADA, NewMemory("fact", "cat", "is called Leo"), T0)
    assert await cache.render(ADA, T0) == "Facts:\n- cat: is called Leo"
    reads = db.reads
    assert await cache.render(ADA, T0 + CACHED_MS) == "Facts:\n- cat: is called Leo"
    assert db.reads == reads + 1
    await memories.forget(ADA, "cat")
    assert await cache.render(ADA, T0) == ""
    cache.forget(ADA)


async def test_what_expires_is_out_at_once(memories: MemoryStore) -> None:
    """SK-136: also while the text is cached."""
    cache = ContextCache(memories)
    await memories.learn(ADA, NewMemory("fact", "guest", "is here", expires_at_ms=T0 + 100), T0)
    assert await cache.render(ADA, T0 + 99) == "Facts:\n- guest: is here"
    assert await cache.render(ADA, T0 + 100) == ""


async def test_the_texts_of_many_people_do_not_pile_up(db: CountingDatabase, memories: MemoryStore) -> None:
    cache = ContextCache(memories)
    for number in range(MAX_PEOPLE + 1):
        await cache.render(UserId(f"p{number}"), T0)
    reads = db.reads
    await cache.render(UserId("p1"), T0)
    assert db.reads == reads
    await cache.render(UserId("p0"), T0)
    assert db.reads == reads + 1


@given(st.lists(st.tuples(st.sampled_from(CATEGORIES), st.text(max_size=300), st.text(max_size=3000))))
def test_no_memory_forges_a_line(given_memories: list[tuple[str, str, str]]) -> None:
    rows = [
        Memory(
            id="", owner=ADA, category=category, key=key, value=value, kind="note", confidence=1, source="user_said",  # type: ignore[arg-type]
            importance=1, tags=(), created_at_ms=0, updated_at_ms=0, expires_at_ms=None,
        )
        for category, key, value in given_memories
    ]  # fmt: skip
    text = render(rows)
    assert len(text) <= MAX_CHARACTERS and "<" not in text and ">" not in text
    lines = text.split("\n") if text else []
    assert all(
        line.startswith("- ") or line in ("Instructions:", "Preferences:", "Facts:", "Context:") for line in lines
    )
    assert all(line.isprintable() for line in lines)
