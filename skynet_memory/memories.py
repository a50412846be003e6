"""What is remembered about a person: typed, with a key each, searched by words, and forgotten without a trace.

A key has one value. What is learned under a known key replaces it or is ignored, by who said it and how sure it is.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET, UnsetType

from skynet_memory.database import Database, Row, Statements
from skynet_memory.errors import MemoryNotFound, MemoryRefused
from skynet_memory.fulltext import folded
from skynet_memory.ids import UserId, new_id
from skynet_memory.memory_gate import Check, WriteGate, clean, length_problem, one_line
from skynet_memory.memory_search import Index, WordReader, search

Category: TypeAlias = Literal["instruction", "preference", "fact", "context"]
Source: TypeAlias = Literal["user_said", "inferred", "admin_set"]
Kind: TypeAlias = Literal["preference", "invariant", "pattern", "guard", "note"]
Outcome: TypeAlias = Literal["added", "updated", "unchanged", "kept", "refused"]

CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MAX_FOUND: Final = 50
MAX_LISTED: Final = 200
MAX_LEARNED: Final = 10
"""Memories in one call of ``learn_many``."""
MIN_TELLING: Final = 4
"""Words a value has to have before the same words under another key are a duplicate."""
SIMILAR: Final = 0.8
SWEPT: Final = 500

_NEGATIONS: Final = frozenset(
    "not no never without cannot don doesn didn isn won nicht kein nie niemal ohn ne pas jamai san".split()  # noqa: SIM905
)
"""Stems that turn round what the others say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    id: str
    owner: UserId
    category: Category
    key: str
    value: str
    kind: Kind
    confidence: float
    """0 to 1."""
    source: Source
    importance: float
    """0 to 1; the more important is shown and found first."""
    tags: tuple[str, ...]
    created_at_ms: int
    updated_at_ms: int
    expires_at_ms: int | None
    """From then on it is neither found nor shown, and soon erased."""


@dataclass(frozen=True, slots=True)
class NewMemory:
    """``confidence`` and ``importance`` beyond 0 to 1 are clamped."""

    category: Category
    key: str
    value: str
    kind: Kind = "note"
    confidence: float = 0.8
    source: Source = "user_said"
    importance: float = 0.5
    tags: Sequence[str] = ()
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChanges:
    """UNSET leaves a field as it is."""

    category: Category | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: str | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    confidence: float | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    importance: float | UnsetType = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    expires_at_ms: int | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    memory: Memory | None
    """As it is stored now; None if it was refused."""
    outcome: Outcome
    """``unchanged``: it was known already, under this key or another. ``kept``: what was known is surer, and stays."""
    reason: str = ""
    """Why, if it was not added or updated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    memory: Memory
    score: float
    """Comparable within one answer only."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new memory in the form in which it is stored."""

    memory: NewMemory
    key_form: str
    terms: str
    digest: bytes


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

        def work(tx: Statements) -> tuple[list[Learned], bool]:
            learned = [
                Learned(memory=None, outcome="refused", reason=item)
                if isinstance(item, str)
                else learn(tx, owner, item, self._reader, now_ms)
                for item in prepared
            ]
            if any(item.outcome in ("added", "updated") for item in learned):
                tx.changed(topic(owner))
            return learned, erase_words(tx)

        learned, has_traces = await self._db.write(work)
        if has_traces:
            await self._db.erase_traces()
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
        given = {name: value for name, value in _fields(changes).items() if value is not UNSET}
        prepared = self.prepare(replace(_as_new(old), **given), check)
        if isinstance(prepared, str):
            raise MemoryRefused(prepared)

        def work(tx: Statements) -> tuple[Memory, bool]:
            row = tx.fetchone("SELECT row FROM memories WHERE owner = ? AND id = ?", (owner, old.id))
            if row is None:
                raise MemoryNotFound(memory_id)
            other = tx.fetchone(
                "SELECT key FROM memories WHERE owner = ? AND key_form = ? AND id <> ?",
                (owner, prepared.key_form, old.id),
            )
            if other is not None:
                raise MemoryRefused(f"another memory has the key {other['key']!r}")
            tx.changed(topic(owner))
            return _replace(tx, owner, row["row"], prepared, now_ms), erase_words(tx)

        memory, has_traces = await self._db.write(work)
        if has_traces:
            await self._db.erase_traces()
        return memory

    async def forget(self, owner: UserId, name: str) -> bool:
        """Erase the memory with this id, or this key; False if there is none.

        Its text is then in no table, index, free page, nor in the write-ahead log. Backups are not reached.
        """

        def work(tx: Statements) -> tuple[bool, bool]:
            found = tx.execute("DELETE FROM memories WHERE owner = ? AND id = ?", (owner, name)) or tx.execute(
                "DELETE FROM memories WHERE owner = ? AND key_form = ?", (owner, form_of_key(name))
            )
            if found:
                tx.changed(topic(owner))
            return bool(found), erase_words(tx)

        return await self._erase(work)

    async def forget_all(self, owner: UserId) -> bool:
        """Erase everything; False if there was nothing. Call it before a person is removed: that alone leaves words."""

        def work(tx: Statements) -> tuple[bool, bool]:
            found = tx.execute("DELETE FROM memories WHERE owner = ?", (owner,))
            if found:
                tx.changed(topic(owner))
            return bool(found), erase_words(tx)

        return await self._erase(work)

    async def sweep(self, now_ms: int) -> int:
        """Erase everybody's expired memories, and words that a removed person left; returns how many memories."""
        swept = 0
        while True:

            def work(tx: Statements) -> tuple[int, bool]:
                rows = tx.fetchall("SELECT row, owner FROM memories WHERE expires_at_ms <= ? LIMIT ?", (now_ms, SWEPT))
                tx.executemany("DELETE FROM memories WHERE row = ?", [(row["row"],) for row in rows])
                for owner in {row["owner"] for row in rows}:
                    tx.changed(topic(owner))
                return len(rows), len(rows) < SWEPT and erase_words(tx)

            count, has_traces = await self._db.write(work)
            swept += count
            if has_traces:
                await self._db.erase_traces()
            if count < SWEPT:
                return swept

    async def get(self, owner: UserId, memory_id: str) -> Memory | None:
        row = await self._db.fetchone("SELECT * FROM memories WHERE owner = ? AND id = ?", (owner, memory_id))
        return None if row is None else read_memory(row)

    async def by_key(self, owner: UserId, key: str) -> Memory | None:
        row = await self._db.fetchone(
            "SELECT * FROM memories WHERE owner = ? AND key_form = ?", (owner, form_of_key(key))
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
            best = scored[: 3 * MAX_FOUND]
            rows = {row["row"]: row for row in _rows(tx, owner, [row for row, _ in best])}
            found = [Found(memory=read_memory(rows[row]), score=score * _weight(rows[row])) for row, score in best]
            found.sort(key=lambda item: item.score, reverse=True)
            return found[: max(0, min(limit, MAX_FOUND))]

        return await self._db.read(work) if words.terms else []

    async def _erase(self, work: Callable[[Statements], tuple[bool, bool]]) -> bool:
        found, has_traces = await self._db.write(work)
        if has_traces:
            await self._db.erase_traces()
        return found

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
        plain = " ".join(re.findall(r"\w+", folded(stored.value))) or stored.value
        return Prepared(
            stored,
            form_of_key(stored.key),
            self._reader.indexed(stored.key, stored.value, *tags),
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


def topic(owner: UserId) -> str:
    """Of ``Database.version``: this person's memories."""
    return f"memories:{owner}"


def form_of_key(key: str) -> str:
    """The form in which keys are compared: ``Favourite Colour`` is ``favourite.colour``."""
    return ".".join(re.findall(r"[^\W_]+", folded(key))) or one_line(folded(key))


def read_memory(row: Row) -> Memory:
    return Memory(
        id=row["id"],
        owner=row["owner"],
        category=row["category"],
        key=row["key"],
        value=row["value"],
        kind=row["kind"],
        confidence=row["confidence"],
        source=row["source"],
        importance=row["importance"],
        tags=tuple(msgspec.json.decode(row["tags"], type=list[str])) if row["tags"] != "[]" else (),
        created_at_ms=row["created_at_ms"],
        updated_at_ms=row["updated_at_ms"],
        expires_at_ms=row["expires_at_ms"],
    )


# Inside a transaction


def learn(tx: Statements, owner: UserId, item: Prepared, reader: WordReader, now_ms: int) -> Learned:
    new = item.memory
    row = tx.fetchone("SELECT * FROM memories WHERE owner = ? AND key_form = ?", (owner, item.key_form))
    if row is None:
        if known := _known_as(tx, owner, item, reader, now_ms):
            return Learned(memory=known, outcome="unchanged", reason=f"it is known as {known.key!r}")
        return Learned(memory=insert(tx, owner, item, now_ms), outcome="added")
    old = read_memory(row)
    is_expired = old.expires_at_ms is not None and old.expires_at_ms <= now_ms
    if not is_expired and (reason := _stays(old, new)):
        return Learned(memory=old, outcome="kept", reason=reason)
    if not is_expired and _as_new(old) == replace(new, tags=tuple(new.tags)):
        return Learned(memory=old, outcome="unchanged", reason="it is known already")
    return Learned(memory=_replace(tx, owner, row["row"], item, now_ms), outcome="updated")


def insert(tx: Statements, owner: UserId, item: Prepared, now_ms: int, *, created_at_ms: int | None = None) -> Memory:
    new = item.memory
    number = tx.fetchone(
        "INSERT INTO memory_owners (owner, last_memory) VALUES (?, 1)"
        " ON CONFLICT (owner) DO UPDATE SET last_memory = last_memory + 1 RETURNING number << 32 | last_memory",
        (owner,),
    )
    assert number is not None, "an upsert returns its row"
    row = tx.fetchone(
        "INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (
            number[0],
            new_id(),
            owner,
            new.category,
            new.key,
            item.key_form,
            new.value,
            new.kind,
            new.confidence,
            new.source,
            new.importance,
            _tags(new),
            item.terms,
            item.digest,
            now_ms if created_at_ms is None else created_at_ms,
            now_ms,
            new.expires_at_ms,
        ),
    )
    assert row is not None, "an insert returns its row"
    return read_memory(row)


def erase_words(tx: Statements) -> bool:
    """Rewrite the indexes that hold removed words. True if there were any: ``Database.erase_traces`` has to follow.

    It takes 1 ms for each 1,500 rows of such an index.
    """
    names = [row["name"] for row in tx.fetchall("SELECT name FROM memory_unerased")]
    for name in names:
        tx.execute(f"INSERT INTO {name}({name}) VALUES ('optimize')")  # noqa: S608 - names of our own tables
        tx.execute("DELETE FROM memory_unerased WHERE name = ?", (name,))
    return bool(names)


def _stays(old: Memory, new: NewMemory) -> str:
    """Why what is known is not replaced; empty if it is."""
    if old.source == "admin_set" and new.source != "admin_set":
        return "an admin has set it"
    if new.source == "admin_set" and old.source != "admin_set":
        return ""
    if old.source == "inferred" and new.source == "user_said":
        return ""
    return "what is known is surer" if new.confidence < old.confidence else ""


def _known_as(tx: Statements, owner: UserId, item: Prepared, reader: WordReader, now_ms: int) -> Memory | None:
    """A memory under another key that says all that ``item`` does."""
    new = item.memory
    telling = reader.telling(item.terms.split(" "))
    if len(telling) < MIN_TELLING:
        return None
    alive = "(expires_at_ms IS NULL OR expires_at_ms > ?)"
    same = tx.fetchone(
        f"SELECT * FROM memories WHERE owner = ? AND digest = ? AND category = ? AND {alive}",  # noqa: S608 - fixed text
        (owner, item.digest, new.category, now_ms),
    )
    if same is not None and len(reader.telling(reader.indexed(new.value).split(" "))) >= MIN_TELLING:
        return read_memory(same)
    index = Index.of_memories(tx, owner)
    if index is None:
        return None
    rarest = sorted(telling, key=len, reverse=True)[:16]
    query = " AND ".join(f'"{term}"' for term in rarest)
    for row in _rows(tx, owner, index.newest(tx, f'terms : ({query}) AND facet : "{new.category}"', 20)):
        other = reader.telling(row["terms"].split(" "))
        beyond = other - telling
        if (
            telling <= other
            and len(telling) >= SIMILAR * len(other)
            and not any(term in _NEGATIONS or any(map(str.isdigit, term)) for term in beyond)
            and (row["expires_at_ms"] is None or row["expires_at_ms"] > now_ms)
        ):
            return read_memory(row)
    return None


def _replace(tx: Statements, owner: UserId, row: int, item: Prepared, now_ms: int) -> Memory:
    new = item.memory
    stored = tx.fetchone(
        "UPDATE memories SET category = ?, key = ?, key_form = ?, value = ?, kind = ?, confidence = ?, source = ?,"
        " importance = ?, tags = ?, terms = ?, digest = ?, updated_at_ms = ?, expires_at_ms = ?"
        " WHERE row = ? AND owner = ? RETURNING *",
        (
            new.category,
            new.key,
            item.key_form,
            new.value,
            new.kind,
            new.confidence,
            new.source,
            new.importance,
            _tags(new),
            item.terms,
            item.digest,
            now_ms,
            new.expires_at_ms,
            row,
            owner,
        ),
    )
    assert stored is not None, "the row was just read"
    return read_memory(stored)


def _rows(tx: Statements, owner: UserId, rows: Sequence[int]) -> list[Row]:
    return tx.fetchall(
        "SELECT * FROM memories WHERE row IN (SELECT value FROM json_each(?)) AND owner = ?",
        (msgspec.json.encode(rows).decode(), owner),
    )


def _weight(row: Row) -> float:
    """What importance and confidence do to the rank: at most as much as a word that half of the memories have."""
    return (0.8 + 0.4 * cast(float, row["importance"])) * (0.9 + 0.2 * cast(float, row["confidence"]))


def _as_new(memory: Memory) -> NewMemory:
    return NewMemory(
        memory.category,
        memory.key,
        memory.value,
        memory.kind,
        memory.confidence,
        memory.source,
        memory.importance,
        memory.tags,
        memory.expires_at_ms,
    )


def _fields(changes: MemoryChanges) -> Mapping[str, Any]:
    return {name: getattr(changes, name) for name in MemoryChanges.__slots__}


def _tags(new: NewMemory) -> str:
    return msgspec.json.encode(list(new.tags)).decode()


def _clamped(value: float) -> float:
    """0 to 1; what is no number is 0."""
    return min(max(float(value), 0.0), 1.0) if value == value else 0.0
