"""What becomes of a new memory beside those that are known, inside a transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from skynet_memory.database import Database, Row, Rows, Statements, to_the_end
from skynet_memory.fulltext import quoted
from skynet_memory.ids import UserId, new_id
from skynet_memory.memory_search import Index, WordReader
from skynet_memory.memory_types import Learned, Memory, NewMemory, as_new, read_memory

T = TypeVar("T")

MIN_TELLING: Final = 4
"""Words a value has to have before the same words under another key are a duplicate."""
SIMILAR: Final = 0.8
_NEGATIONS: Final = frozenset(
    "not no never without cannot don doesn didn isn won nicht kein nie niemal ohn ne pas jamai san".split()  # noqa: SIM905
)
"""Stems that turn round what the others say."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new memory in the form in which it is stored."""

    memory: NewMemory
    key_digest: bytes
    terms: str
    said: tuple[str, ...]
    """The terms of the value alone."""
    named: tuple[str, ...]
    """The terms of the key alone."""
    digest: bytes


def learn(
    tx: Statements, owner: UserId, item: Prepared, reader: WordReader, now_ms: int, *, imported_at_ms: int | None = None
) -> Learned:
    """Store it, or not, by the rules that ``MemoryStore.learn`` tells.

    What is imported is not looked for among similar ones: each look costs a segment of the index to be written.
    """
    new = item.memory
    row = tx.fetchone("SELECT * FROM memories WHERE owner = ? AND key_digest = ?", (owner, item.key_digest))
    if row is None:
        if known := _known_as(tx, owner, item, reader, now_ms, imported_at_ms is None):
            return Learned(memory=known, outcome="unchanged", reason=f"it is known as {known.key!r}")
        return Learned(memory=insert(tx, owner, item, now_ms, imported_at_ms), outcome="added")
    old = read_memory(row)
    is_expired = old.expires_at_ms is not None and old.expires_at_ms <= now_ms
    if not is_expired and (reason := _stays(old, new)):
        return Learned(memory=old, outcome="kept", reason=reason)
    if not is_expired and as_new(old) == replace(new, tags=tuple(new.tags)):
        return Learned(memory=old, outcome="unchanged", reason="it is known already")
    return Learned(memory=store_anew(tx, owner, row["row"], item, now_ms), outcome="updated")


def insert(tx: Statements, owner: UserId, item: Prepared, now_ms: int, created_at_ms: int | None) -> Memory:
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
            item.key_digest,
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


def erase_words(tx: Statements) -> tuple[Rows, ...]:
    """Rewrite the indexes that hold removed words; returns what ``Database.erase_traces`` has to be told of them.

    It takes 1 ms for each 1,500 rows of such an index.
    """
    names = [row["name"] for row in tx.fetchall("SELECT name FROM memory_unerased")]
    for name in names:
        tx.execute(f"INSERT INTO {name}({name}) VALUES ('optimize')")  # noqa: S608 - names of our own tables
        tx.execute("DELETE FROM memory_unerased WHERE name = ?", (name,))
    return tuple(Rows(f"{name}_{part}") for name in names for part in ("data", "idx"))


async def write_erasing(
    db: Database, work: Callable[[Statements], T], where: Callable[[Statements], Sequence[Rows]]
) -> T:
    """``Database.write`` that returns when nothing is left of what ``work`` removed. ``where`` its rows were.

    Whoever is cancelled meanwhile, is so when that is done.
    """

    def both(tx: Statements) -> tuple[T, tuple[Rows, ...]]:
        value = work(tx)
        words = erase_words(tx)
        return value, (*words, *where(tx)) if words else ()

    async def write_and_erase() -> T:
        value, traces = await db.write(both)
        if traces:
            await db.erase_traces(*traces)
        return value

    return await to_the_end(write_and_erase())


def rows_of_memories(tx: Statements, owner: UserId) -> tuple[Rows, ...]:
    """Where this person's memories are."""
    row = tx.fetchone("SELECT number FROM memory_owners WHERE owner = ?", (owner,))
    return (
        ()
        if row is None
        else (Rows("memories", row["number"] << 32, (row["number"] + 1 << 32) - 1, with_indexes=False),)
    )


def _stays(old: Memory, new: NewMemory) -> str:
    """Why what is known is not replaced; empty if it is."""
    if old.source == "admin_set" and new.source != "admin_set":
        return "an admin has set it"
    if new.source == "admin_set" and old.source != "admin_set":
        return ""
    if old.source == "inferred" and new.source == "user_said":
        return ""
    return "what is known is surer" if new.confidence < old.confidence else ""


def _known_as(
    tx: Statements, owner: UserId, item: Prepared, reader: WordReader, now_ms: int, with_similar: bool
) -> Memory | None:
    """A memory under another key that says all that ``item`` does, and is about the same.

    It is, if all words of its key are in the other; where the values are the same, it may be the other way round as
    well. So the birthdays of a wife and of a son are two, though they be the same.
    """
    new = item.memory
    said, named = reader.telling(item.said), reader.telling(item.named)
    if len(said) < MIN_TELLING:
        return None
    candidates = tx.fetchall(
        "SELECT * FROM memories WHERE owner = ? AND digest = ? AND category = ? LIMIT 20",
        (owner, item.digest, new.category),
    )
    index = Index.of_memories(tx, owner) if with_similar else None
    if index is not None:
        longest = sorted(said, key=len, reverse=True)[:4]  # the longer, the rarer
        query = " AND ".join(quoted(term) for term in longest)
        candidates += rows_of(tx, owner, index.newest(tx, f"terms : ({query}) AND facet : {quoted(new.category)}", 10))
    for row in candidates:
        old = read_memory(row)
        old_said = reader.telling(reader.indexed(old.value).split(" "))
        old_named = reader.telling(reader.indexed(old.key).split(" "))
        beyond = old_said - said
        if (
            (old.expires_at_ms is None or old.expires_at_ms > now_ms)
            and said <= old_said
            and len(said) >= SIMILAR * len(old_said)
            and not any(term in _NEGATIONS or any(map(str.isdigit, term)) for term in beyond)
            and (named <= old_named | old_said or (row["digest"] == item.digest and old_named <= named | said))
        ):
            return old
    return None


def store_anew(tx: Statements, owner: UserId, row: int, item: Prepared, now_ms: int) -> Memory:
    new = item.memory
    stored = tx.fetchone(
        "UPDATE memories SET category = ?, key = ?, key_digest = ?, value = ?, kind = ?, confidence = ?, source = ?,"
        " importance = ?, tags = ?, terms = ?, digest = ?, updated_at_ms = ?, expires_at_ms = ?"
        " WHERE row = ? AND owner = ? RETURNING *",
        (
            new.category,
            new.key,
            item.key_digest,
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


def rows_of(tx: Statements, owner: UserId, rows: Sequence[int]) -> list[Row]:
    return tx.fetchall(
        "SELECT * FROM memories WHERE row IN (SELECT value FROM json_each(?)) AND +owner = ?",
        (msgspec.json.encode(rows).decode(), owner),
    )


def _tags(new: NewMemory) -> str:
    return msgspec.json.encode(list(new.tags)).decode()
