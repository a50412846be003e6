"""What a person's assistant wrote down for later: topics with tags, found by words or by the tools they belong to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from skynet_memory import ids
from skynet_memory.database import Database, Row, Rows, Statements
from skynet_memory.errors import MemoryRefused
from skynet_memory.ids import UserId, new_id
from skynet_memory.memory_gate import MAX_KEY, WriteGate, clean, length_problem, one_line
from skynet_memory.memory_rules import write_erasing
from skynet_memory.memory_search import Index, WordReader, search
from skynet_memory.memory_types import form_of_key

MAX_CONTENT: Final = 8_000
MAX_FOUND: Final = 50
MAX_LISTED: Final = 200
OFTEN: Final = 10
"""Calls of a tool from which on its topics are hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: str
    owner: UserId
    topic: str
    content: str
    tags: tuple[str, ...]
    created_at_ms: int
    updated_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    topic: Topic
    score: float
    """Comparable within one answer only."""


class KnowledgeStore:
    """Every method sees only what belongs to ``owner``; the rest does not exist for it."""

    def __init__(self, db: Database, gate: WriteGate | None = None) -> None:
        self._db = db
        self._gate = gate or WriteGate()
        self._reader = WordReader()

    def version(self, owner: UserId) -> int:
        """Grows with each committed change of this person's topics, before the change returns; not with tool use."""
        return self._db.version(_topic(owner))

    async def write(
        self, owner: UserId, topic: str, content: str, tags: Sequence[str] = (), *, now_ms: int | None = None
    ) -> Topic:
        """Write a topic down. What stood under it (case, spaces and punctuation aside) is replaced and erased.

        Raises:
            MemoryRefused: too long (topic 200, content 8,000 characters, 20 tags), or the write gate refused it.
        """
        names = tuple(dict.fromkeys(name for tag in tags if (name := one_line(tag))))
        if problem := length_problem(topic, content, names, most=MAX_CONTENT):
            field, what = problem
            raise MemoryRefused(f"the {({'key': 'topic', 'value': 'content'}).get(field, field)} {what}")
        if refusal := (await self._gate.check_for(owner))(topic, content, names):
            raise MemoryRefused(refusal)
        title, text = one_line(topic), clean(content)
        values = (
            title,
            text,
            msgspec.json.encode(list(names)).decode(),
            self._reader.indexed(title, text, *names),
            ids.now_ms() if now_ms is None else now_ms,
        )

        def work(tx: Statements) -> Row:
            tx.changed(_topic(owner))
            row = tx.fetchone(
                "UPDATE knowledge SET topic = ?, content = ?, tags = ?, terms = ?, updated_at_ms = ?"
                " WHERE owner = ? AND topic_form = ? RETURNING *",
                (*values, owner, form_of_key(topic)),
            )
            if row is None:
                row = _insert(tx, owner, form_of_key(topic), values)
            tx.execute("DELETE FROM knowledge_tags WHERE owner = ? AND row = ?", (owner, row["row"]))
            tx.executemany("INSERT INTO knowledge_tags VALUES (?, ?, ?)", [(owner, tag, row["row"]) for tag in names])
            return row

        return read_topic(await write_erasing(self._db, work, _rows))

    async def get(self, owner: UserId, topic: str) -> Topic | None:
        row = await self._db.fetchone(
            "SELECT * FROM knowledge WHERE owner = ? AND topic_form = ?", (owner, form_of_key(topic))
        )
        return None if row is None else read_topic(row)

    async def forget(self, owner: UserId, topic: str) -> bool:
        """Erase a topic as ``MemoryStore.forget`` does; False if there is none."""

        def work(tx: Statements) -> bool:
            found = tx.execute("DELETE FROM knowledge WHERE owner = ? AND topic_form = ?", (owner, form_of_key(topic)))
            if found:
                tx.changed(_topic(owner))
            return bool(found)

        return await write_erasing(self._db, work, _rows)

    async def search(self, owner: UserId, query: str, *, limit: int = 10) -> list[FoundTopic]:
        """The best first, at most ``limit`` (up to ``MAX_FOUND``). Any text is a query."""
        words = self._reader.words(query[:1000])

        def work(tx: Statements) -> list[FoundTopic]:
            index = Index.of_knowledge(tx, owner)
            if index is None:
                return []
            scored = dict(search(tx, owner, index, words)[: max(0, min(limit, MAX_FOUND))])
            rows = {
                row["row"]: row
                for row in tx.fetchall(
                    "SELECT * FROM knowledge WHERE row IN (SELECT value FROM json_each(?)) AND +owner = ?",
                    (msgspec.json.encode(list(scored)).decode(), owner),
                )
            }
            return [FoundTopic(topic=read_topic(rows[row]), score=score) for row, score in scored.items()]

        return await self._db.read(work) if words.terms else []

    async def count_tool(self, owner: UserId, tool: str) -> int:
        """Note that a tool was called; returns how often it was by now."""

        def work(tx: Statements) -> Row | None:
            row = tx.fetchone(
                "INSERT INTO tool_use VALUES (?, ?, 1)"
                " ON CONFLICT (owner, tool) DO UPDATE SET count = count + 1 RETURNING count",
                (owner, tool[:MAX_KEY]),
            )
            if row is not None and row["count"] == OFTEN:  # topics with this tag are told from now on
                tx.changed(_topic(owner))
            return row

        row = await self._db.write(work)
        assert row is not None, "an upsert returns its row"
        return cast(int, row["count"])

    async def hot(self, owner: UserId, *, limit: int = 5) -> list[Topic]:
        """Topics that have a tool's name among their tags, once the tool was called ``OFTEN`` times.

        Those of the most used tool first, of one tool the newest.
        """
        rows = await self._db.fetchall(
            "SELECT k.*, max(u.count) AS calls FROM tool_use u"
            " JOIN knowledge_tags t ON t.owner = u.owner AND t.tag = u.tool"
            " JOIN knowledge k ON k.row = t.row AND k.owner = u.owner"
            " WHERE u.owner = ? AND u.count >= ? GROUP BY k.row ORDER BY calls DESC, k.updated_at_ms DESC, k.row DESC"
            " LIMIT ?",
            (owner, OFTEN, max(0, min(limit, MAX_LISTED))),
        )
        return [read_topic(row) for row in rows]

    async def list(self, owner: UserId, *, limit: int = 50, after: str = "") -> list[Topic]:
        """By topic, at most ``limit`` (up to ``MAX_LISTED``), those behind the topic ``after``."""
        rows = await self._db.fetchall(
            "SELECT * FROM knowledge WHERE owner = ? AND topic_form > ? ORDER BY topic_form LIMIT ?",
            (owner, form_of_key(after) if after else "", max(0, min(limit, MAX_LISTED))),
        )
        return [read_topic(row) for row in rows]


def _topic(owner: UserId) -> str:
    return f"knowledge:{owner}"


def read_topic(row: Row) -> Topic:
    return Topic(
        id=row["id"],
        owner=row["owner"],
        topic=row["topic"],
        content=row["content"],
        tags=tuple(msgspec.json.decode(row["tags"], type=list[str])),
        created_at_ms=row["created_at_ms"],
        updated_at_ms=row["updated_at_ms"],
    )


def _rows(_: Statements) -> tuple[Rows, ...]:
    return Rows("knowledge"), Rows("knowledge_tags")


def _insert(tx: Statements, owner: UserId, form: str, values: tuple[str, str, str, str, int]) -> Row:
    number = tx.fetchone(
        "INSERT INTO memory_owners (owner, last_topic) VALUES (?, 1)"
        " ON CONFLICT (owner) DO UPDATE SET last_topic = last_topic + 1 RETURNING number << 32 | last_topic",
        (owner,),
    )
    assert number is not None, "an upsert returns its row"
    topic, content, tags, terms, at_ms = values
    row = tx.fetchone(
        "INSERT INTO knowledge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (number[0], new_id(), owner, topic, form, content, tags, terms, at_ms, at_ms),
    )
    assert row is not None, "an insert returns its row"
    return row
