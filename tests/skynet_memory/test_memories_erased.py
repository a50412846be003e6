"""What was forgotten is in no byte of the database's files."""

import asyncio
import random
import sqlite3
import string
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import UserId
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.memories import CATEGORIES, Memory, MemoryChanges, MemoryStore, NewMemory
from skynet_memory.memories_schema import COMPONENT
from skynet_memory.migrations import migrate
from skynet_memory.scrub import NotAPage, Tree, scrub
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, COMPONENT])
        await add_person(db, ADA)
        await add_person(db, BEN)
        yield db


def word(source: random.Random) -> str:
    """No word that occurs elsewhere, and none that has a stem or an accent."""
    return "".join(source.choices("bcdfghjkmnpqrtvwxz", k=10))


def left(db: Database, words: list[str]) -> list[str]:
    """Those that are still in the file or its log, as text or as UTF-8 of any case."""
    files = [path for path in db.path.parent.iterdir() if path.name.startswith(db.path.name) and path.suffix != ".lock"]
    data = b"".join(path.read_bytes() for path in files).lower()
    assert len(data) > 4096
    return [text for text in words if text.lower().encode() in data]


async def fill(memories: MemoryStore, source: random.Random, count: int) -> list[tuple[Memory, list[str]]]:
    """Memories of two people by turns, so that rows move between pages while more are stored."""
    stored = []
    for number in range(count):
        words = [word(source) for _ in range(source.randint(2, 40))]
        key, tag = word(source), word(source)
        new = NewMemory(source.choice(CATEGORIES), key, " ".join(words), tags=(tag,), importance=source.random())
        memory = (await memories.learn(source.choice((ADA, BEN)), new, T0 + number)).memory
        assert memory is not None
        stored.append((memory, [*words, key, tag, memory.id]))
    return stored


@pytest.mark.parametrize("seed", range(2))
async def test_forgetting_leaves_nothing(db: Database, seed: int) -> None:
    """Also among a thousand others: in tables, indexes, the words of FTS5, free pages, free parts of pages, the log."""
    source = random.Random(seed)
    memories = MemoryStore(db)
    stored = await fill(memories, source, 1000)
    source.shuffle(stored)
    gone: list[str] = []
    for number, (memory, words) in enumerate(stored[:60]):
        assert left(db, words) == words
        assert await memories.forget(memory.owner, memory.id if number % 2 else memory.key)
        gone += words
        assert left(db, words) == []
    assert left(db, gone) == []
    kept, words = stored[-1]
    assert left(db, words) == words
    assert [hit.memory for hit in await memories.search(kept.owner, words[0], now_ms=T0)] == [kept]
    assert (await db.fetchone("PRAGMA integrity_check"))[0] == "ok"  # type: ignore[index]


async def test_the_old_value_is_gone_after_an_update_and_a_correction(db: Database) -> None:
    memories = MemoryStore(db)
    source = random.Random(7)
    stored = await fill(memories, source, 300)
    for memory, words in stored[:20]:
        await memories.update(memory.owner, memory.id, MemoryChanges(value="new words", key=word(source), tags=()), T0)
        assert left(db, words[:-1]) == []
    for memory, words in stored[20:40]:
        await memories.learn(memory.owner, NewMemory(memory.category, memory.key, f"{words[0]} {word(source)}"), T0)
        assert left(db, words) == [words[0], words[-3], words[-1]]


async def test_a_change_of_case_alone_leaves_nothing(db: Database) -> None:
    memories = MemoryStore(db)
    memory = (await memories.learn(ADA, NewMemory("fact", "k", "Qwrtzp"), T0)).memory
    assert memory is not None
    await memories.update(ADA, memory.id, MemoryChanges(value="QWRTZP"), T0)
    assert b"Qwrtzp" not in db.path.read_bytes() + db.path.with_name("skynet.db-wal").read_bytes()


async def test_long_texts_of_any_script(db: Database) -> None:
    memories = MemoryStore(db)
    text = "".join(chr(0x4E00 + number) for number in range(1900))
    await memories.learn(ADA, NewMemory("fact", "long", text), T0)
    pieces = [text[at : at + 4] for at in range(0, 1900, 50)]
    assert left(db, pieces) == pieces
    await memories.forget(ADA, "long")
    assert left(db, [text[at : at + 2] for at in range(0, 1900, 50)]) == []


async def test_all_of_a_person_and_what_expired(db: Database) -> None:
    """BA-221."""
    memories = MemoryStore(db)
    stored = await fill(memories, random.Random(9), 200)
    mine = [text for memory, words in stored if memory.owner == ADA for text in words]
    others = [text for memory, words in stored if memory.owner == BEN for text in words]
    assert await memories.forget_all(ADA)
    assert left(db, mine) == []
    assert left(db, others) == others
    assert not await memories.forget_all(ADA)
    await db.write(lambda tx: tx.execute("UPDATE memories SET expires_at_ms = ?", (T0,)))
    assert await memories.sweep(T0) == len([memory for memory, _ in stored if memory.owner == BEN])
    assert left(db, others) == []


async def test_words_of_a_removed_person_go_with_the_next_sweep(db: Database) -> None:
    memories = MemoryStore(db)
    stored = await fill(memories, random.Random(10), 100)
    await db.write(lambda tx: tx.execute("DELETE FROM users WHERE id = ?", (ADA,)))
    assert await memories.sweep(T0) == 0
    assert left(db, [text for memory, words in stored if memory.owner == ADA for text in words]) == []


async def test_topics(db: Database) -> None:
    """SK-103: rewriting replaces, and erases."""
    knowledge = KnowledgeStore(db)
    source = random.Random(11)
    stored = []
    for _ in range(200):
        words = [word(source) for _ in range(30)]
        stored.append((word(source), words))
        await knowledge.write(source.choice((ADA, BEN)), stored[-1][0], " ".join(words), [word(source)])
    for topic, words in stored[:30]:
        for owner in (ADA, BEN):
            await knowledge.forget(owner, topic)
        assert left(db, [topic, *words]) == []
    for topic, words in stored[30:40]:
        owner = ADA if await knowledge.get(ADA, topic) else BEN
        await knowledge.write(owner, topic, "other")
        assert left(db, words) == []


async def test_a_read_that_goes_on_holds_nobody_up_for_ever(db: Database, tmp_path: Path) -> None:
    """The log is emptied as soon as no read needs it; until then others read and write."""
    memories = MemoryStore(db)
    await memories.learn(ADA, NewMemory("fact", "k", "qwrtzp"), T0)
    with sqlite3.connect(db.path) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM memories").fetchall()
        await memories.learn(ADA, NewMemory("fact", "l", "another"), T0)
        async with asyncio.TaskGroup() as tasks:
            forgetting = tasks.create_task(memories.forget(ADA, "k"))
            await memories.learn(BEN, NewMemory("fact", "m", "meanwhile"), T0)
            assert await memories.get(ADA, "nothing") is None
            other.rollback()
        assert forgetting.result()
    other.close()
    assert left(db, ["qwrtzp"]) == []


async def test_only_unallocated_space_is_touched(db: Database, tmp_path: Path) -> None:
    memories = MemoryStore(db)
    await fill(memories, random.Random(12), 200)
    dump = [tuple(row) for row in await db.fetchall("SELECT * FROM memories ORDER BY row")]
    await db.erase_traces()
    with db.path.open("r+b", buffering=0) as file:
        roots = [row[0] for row in await db.fetchall("SELECT rootpage FROM sqlite_schema WHERE rootpage > 0")]
        assert scrub(file.fileno(), [Tree(root) for root in [1, *roots]]) > 0
        assert scrub(file.fileno(), [Tree(root) for root in [1, *roots]]) == 0
        with pytest.raises(NotAPage):
            scrub(file.fileno(), [Tree(10**6)])
    async with Database(tmp_path / "copy.db") as copy:
        assert copy.path.exists()
    assert [tuple(row) for row in await db.fetchall("SELECT * FROM memories ORDER BY row")] == dump
    assert (await db.fetchone("PRAGMA integrity_check"))[0] == "ok"  # type: ignore[index]


def test_words_of_these_tests_are_no_others() -> None:
    assert set(word(random.Random(1))) <= set(string.ascii_lowercase)
    assert UserId(ADA) != BEN


async def test_erasing_for_many_at_once(db: Database) -> None:
    memories = MemoryStore(db)
    stored = await fill(memories, random.Random(13), 40)
    async with asyncio.TaskGroup() as tasks:
        for memory, _ in stored[:30]:
            tasks.create_task(memories.forget(memory.owner, memory.id))
    assert left(db, [text for _, words in stored[:30] for text in words]) == []
    assert await memories.count(ADA) + await memories.count(BEN) == 10


@pytest.mark.parametrize("steps", range(0, 12, 2))
async def test_whoever_is_cancelled_while_forgetting_leaves_the_store_usable(db: Database, steps: int) -> None:
    memories = MemoryStore(db)
    stored = await fill(memories, random.Random(14), 5)
    task = asyncio.get_running_loop().create_task(memories.forget(stored[0][0].owner, stored[0][0].id))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    memory, words = stored[0]
    assert left(db, words) == ([] if await memories.get(memory.owner, memory.id) is None else words)
    for memory, words in stored[1:]:
        assert await memories.forget(memory.owner, memory.id)
        assert left(db, words) == []
    assert await memories.sweep(T0) == 0


async def test_a_file_that_is_closed_is_not_erased(tmp_path: Path) -> None:
    async with Database(tmp_path / "skynet.db") as db:
        assert await db.erase_traces()
        erasing = asyncio.get_running_loop().create_task(db.erase_traces())
        await asyncio.sleep(0)
    assert await erasing
    with pytest.raises(RuntimeError, match="not open"):
        await db.erase_traces()
