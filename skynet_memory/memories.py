"""What is remembered about a person: typed, with a key each, searched by words, and forgotten without a trace.

A key has one value. What is learned under a known key replaces it or is ignored, by who said it and how sure it is.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar, cast

from skynet_memory.database import Database, Row, Rows, Statements
from skynet_memory.errors import MemoriesRefused, MemoryNotFound, MemoryRefused
from skynet_memory.fulltext import folded
from skynet_memory.ids import UserId
from skynet_memory.memory_gate import Check, WriteGate, clean, length_problem, one_line
from skynet_memory.memory_rules import Prepared, learn, rows_of, rows_of_memories, store_anew, write_erasing
from skynet_memory.memory_search import Index, WordReader, search
from skynet_memory.memory_transfer import Json, from_json, to_json
from skynet_memory.memory_types import (
    CATEGORIES,
    KINDS,
    SOURCES,
    Category,
    Found,
    Kind,
    Learned,
    Memory,
    MemoryChanges,
    NewMemory,
    Outcome,
    Source,
    as_new,
    digest_of_key,
    read_memory,
    topic,
)

__all__ = [
    "CATEGORIES",
    "KINDS",
    "SOURCES",
    "Category",
    "Found",
    "Kind",
    "Learned",
    "Memory",
    "MemoryChanges",
    "MemoryStore",
    "NewMemory",
    "Outcome",
    "Source",
]

T = TypeVar("T")

MAX_FOUND: Final = 50
MAX_LISTED: Final = 200
MAX_LEARNED: Final = 10
"""Memories in one call of ``learn_many``."""
SWEPT: Final = 500


class MemoryStore:
    """Every method sees only the memories of ``owner``; others do not exist for it."""

    def __init__(self, db: Database, gate: WriteGate | None = None) -> None:
        self._db = db
        self._gate = gate or WriteGate()
        self._reader = WordReader()

    def version(self, owner: UserId) -> int:
        """Grows with each committed change of this person's memories, before the change returns."""
        return self._db.version(topic(owner))

    async def learn(self, owner: UserId, new: NewMemory, now_ms: int) -> Learned:
        """Remember it, unless the write gate refuses it or something surer is known under its key.

        Of the same key (case, spaces and punctuation aside), what an admin set stays until an admin sets it anew; what
        the person says replaces what was inferred; else a lower confidence is ignored, and an equal or higher replaces.
        An expired memory gives way to anything. What says nothing beyond a memory under another key is not stored:
        the same value of ``MIN_TELLING`` words, or all of its words in a memory that has few others.
        """
        return (await self.learn_many(owner, [new], now_ms=now_ms))[0]

    async def learn_many(self, owner: UserId, news: Sequence[NewMemory], now_ms: int) -> list[Learned]:
        """The first ``MAX_LEARNED`` of them, in one transaction; those beyond are refused."""
        check = await self._gate.check_for(owner)
        prepared = [self.prepare(new, check) for new in news[:MAX_LEARNED]]

        def work(tx: Statements) -> Sequence[Learned]:
            learned = [
                Learned(memory=None, outcome="refused", reason=item)
                if isinstance(item, str)
                else learn(tx, owner, item, self._reader, now_ms)
                for item in prepared
            ]
            if any(item.outcome in ("added", "updated") for item in learned):
                tx.changed(topic(owner))
            return learned

        learned = list(await self._write(owner, work))
        rest = Learned(memory=None, outcome="refused", reason=f"{MAX_LEARNED} memories at a time are the most")
        return learned + [rest] * (len(news) - len(learned))

    async def update(self, owner: UserId, memory_id: str, changes: MemoryChanges, now_ms: int) -> Memory:
        """Change what is given; the old text is erased. The conflict rule has no part in it.

        Raises:
            MemoryNotFound: no such memory of this person.
            MemoryRefused: by the write gate, or another memory has the key.
        """
        check = await self._gate.check_for(owner)
        old = await self.get(owner, memory_id)
        if old is None:
            raise MemoryNotFound(memory_id)
        prepared = self.prepare(changes.applied_to(as_new(old)), check)
        if isinstance(prepared, str):
            raise MemoryRefused(prepared)

        def work(tx: Statements) -> Memory:
            row = tx.fetchone("SELECT row FROM memories WHERE owner = ? AND id = ?", (owner, old.id))
            if row is None:
                raise MemoryNotFound(memory_id)
            other = tx.fetchone(
                "SELECT key FROM memories WHERE owner = ? AND key_digest = ? AND id <> ?",
                (owner, prepared.key_digest, old.id),
            )
            if other is not None:
                raise MemoryRefused(f"another memory has the key {other['key']!r}")
            tx.changed(topic(owner))
            return store_anew(tx, owner, row["row"], prepared, now_ms)

        return await self._write(owner, work)

    async def forget(self, owner: UserId, name: str = "", *, key: str = "") -> bool:
        """Erase the memory whose id or key is ``name``, or whose key is ``key``; False if there is none.

        Its text is then in no table, index, free page, nor in the write-ahead log. Backups are not reached.
        """

        def work(tx: Statements) -> bool:
            found = tx.execute("DELETE FROM memories WHERE owner = ? AND id = ?", (owner, name)) or tx.execute(
                "DELETE FROM memories WHERE owner = ? AND key_digest = ?", (owner, digest_of_key(key or name))
            )
            if found:
                tx.changed(topic(owner))
            return bool(found)

        return await self._write(owner, work)

    async def forget_all(self, owner: UserId) -> bool:
        """Erase everything; False if there was nothing. Call it before a person is removed: that alone leaves words."""

        def work(tx: Statements) -> bool:
            found = tx.execute("DELETE FROM memories WHERE owner = ?", (owner,))
            if found:
                tx.changed(topic(owner))
            return bool(found)

        return await self._write(owner, work)

    async def sweep(self, now_ms: int) -> int:
        """Erase everybody's expired memories, and words that a removed person left; returns how many memories."""
        swept = 0
        while True:

            def work(tx: Statements) -> int:
                rows = tx.fetchall("SELECT row, owner FROM memories WHERE expires_at_ms <= ? LIMIT ?", (now_ms, SWEPT))
                tx.executemany("DELETE FROM memories WHERE row = ?", [(row["row"],) for row in rows])
                for owner in {row["owner"] for row in rows}:
                    tx.changed(topic(owner))
                return len(rows)

            count = await write_erasing(self._db, work, lambda _: [Rows("memories", with_indexes=False)])
            swept += count
            if count < SWEPT:
                return swept

    async def export(self, owner: UserId) -> Sequence[dict[str, Json]]:
        """Everything, oldest first, in the form that ``import_`` reads."""
        rows = await self._db.fetchall("SELECT * FROM memories WHERE owner = ? ORDER BY row", (owner,))
        return [to_json(read_memory(row)) for row in rows]

    async def import_(self, owner: UserId, items: object, now_ms: int) -> Sequence[Learned]:
        """Learn what ``export`` gave, all of it or nothing, by the rules of ``learn`` except the look for similar ones.

        At most ``MAX_IMPORTED``. Ids are made anew; the times at which they were first learned are kept.

        Raises:
            MemoriesRefused: names each bad item by index and field.
        """
        check = await self._gate.check_for(owner)

        def prepare() -> list[tuple[Prepared, int]]:
            news = from_json(items, now_ms)
            prepared = [(self.prepare(new, check), at_ms) for new, at_ms in news]
            problems = [(index, "value", item) for index, (item, _) in enumerate(prepared) if isinstance(item, str)]
            if problems:
                raise MemoriesRefused(tuple(problems))
            return [(item, at_ms) for item, at_ms in prepared if not isinstance(item, str)]

        prepared = await asyncio.to_thread(prepare)

        def work(tx: Statements) -> Sequence[Learned]:
            tx.changed(topic(owner))
            return [learn(tx, owner, item, self._reader, now_ms, imported_at_ms=at_ms) for item, at_ms in prepared]

        return await self._write(owner, work)

    async def get(self, owner: UserId, memory_id: str) -> Memory | None:
        row = await self._db.fetchone("SELECT * FROM memories WHERE owner = ? AND id = ?", (owner, memory_id))
        return None if row is None else read_memory(row)

    async def by_key(self, owner: UserId, key: str) -> Memory | None:
        row = await self._db.fetchone(
            "SELECT * FROM memories WHERE owner = ? AND key_digest = ?", (owner, digest_of_key(key))
        )
        return None if row is None else read_memory(row)

    async def most_important(self, owner: UserId, limit: int, now_ms: int) -> Sequence[Memory]:
        """At most ``limit`` of each category, in the order of ``CATEGORIES``, of equal ones the newest first."""

        def work(tx: Statements) -> Sequence[Memory]:
            return [
                read_memory(row)
                for category in CATEGORIES
                for row in tx.fetchall(
                    "SELECT * FROM memories WHERE owner = ? AND category = ?"
                    " AND (expires_at_ms IS NULL OR expires_at_ms > ?)"
                    " ORDER BY importance DESC, updated_at_ms DESC, row DESC LIMIT ?",
                    (owner, category, now_ms, limit),
                )
            ]

        return await self._db.read(work)

    async def count(self, owner: UserId) -> int:
        row = await self._db.fetchone("SELECT count(*) FROM memories WHERE owner = ?", (owner,))
        return 0 if row is None else cast(int, row[0])

    async def search(
        self, owner: UserId, query: str, *, limit: int = 10, category: Category | None = None, now_ms: int
    ) -> list[Found]:
        """The best first, at most ``limit`` (up to ``MAX_FOUND``). Any text is a query; without words it finds nothing.

        All words count, the last one also as the beginning of one. See ``memory_search`` for what is looked at.
        """
        words = self._reader.words(query[:1000])
        limit = max(0, min(limit, MAX_FOUND))

        def work(tx: Statements) -> list[Found]:
            index = Index.of_memories(tx, owner)
            if index is None:
                return []
            scored = search(
                tx,
                owner,
                index,
                words,
                facet=category or "",
                condition="(expires_at_ms IS NULL OR expires_at_ms > ?)",
                params=(now_ms,),
            )
            best = scored[: 2 * limit + 10]
            rows = {row["row"]: row for row in rows_of(tx, owner, [row for row, _ in best])}
            found = [Found(memory=read_memory(rows[row]), score=score * _weight(rows[row])) for row, score in best]
            found.sort(key=lambda item: item.score, reverse=True)
            return found[:limit]

        return await self._db.read(work) if words.terms else []

    async def _write(self, owner: UserId, work: Callable[[Statements], T]) -> T:
        return await write_erasing(self._db, work, lambda tx: rows_of_memories(tx, owner))

    def prepare(self, new: NewMemory, check: Check) -> Prepared | str:
        """The form in which it is stored, or why it must not be."""
        tags = tuple(dict.fromkeys(name for tag in new.tags if (name := one_line(tag))))
        if problem := length_problem(new.key, new.value, tags):
            return f"the {problem[0]} {problem[1]}"
        if new.category not in CATEGORIES or new.kind not in KINDS or new.source not in SOURCES:
            return f"category, kind and source are one of {', '.join((*CATEGORIES, *KINDS, *SOURCES))}"
        if refusal := check(new.key, new.value, tags):
            return refusal
        stored = replace(
            new,
            key=one_line(new.key),
            value=clean(new.value),
            tags=tags,
            confidence=_clamped(new.confidence),
            importance=_clamped(new.importance),
        )
        named, said = self._reader.terms(stored.key), self._reader.terms(stored.value)
        plain = " ".join(re.findall(r"\w+", folded(stored.value))) or stored.value
        return Prepared(
            stored,
            digest_of_key(stored.key),
            " ".join((*named, *said, *self._reader.terms("\n".join(tags)))),
            said,
            named,
            hashlib.blake2b(plain.encode(), digest_size=16).digest(),
        )

    async def list(
        self, owner: UserId, *, category: Category | None = None, limit: int = 50, after: str = ""
    ) -> list[Memory]:
        """Newest first, at most ``limit`` (up to ``MAX_LISTED``), expired ones included.

        ``after`` is the id of the last memory of the page before; one that is gone ends the list.
        """
        rows = await self._db.fetchall(
            "SELECT * FROM memories WHERE owner = :owner AND (:category IS NULL OR category = :category)"
            " AND (:after = '' OR row < (SELECT row FROM memories WHERE owner = :owner AND id = :after))"
            " ORDER BY row DESC LIMIT :limit",
            {"owner": owner, "category": category, "after": after, "limit": max(0, min(limit, MAX_LISTED))},
        )
        return [read_memory(row) for row in rows]


def _weight(row: Row) -> float:
    """What importance and confidence do to the rank: at most as much as a word that half of the memories have."""
    return (0.8 + 0.4 * cast(float, row["importance"])) * (0.9 + 0.2 * cast(float, row["confidence"]))


def _clamped(value: float) -> float:
    """0 to 1; what is no number is 0."""
    return min(max(float(value), 0.0), 1.0) if value == value else 0.0
