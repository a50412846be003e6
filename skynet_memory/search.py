"""Search over a person's own transcripts.

The index follows on demand: a search first takes in what its owner's transcripts have that it has not, so that writing
a turn costs nothing. Only what people and models said is taken in; results of tools are not.

Each word of a query is looked up by itself among its owner's entries, and the newest ``CANDIDATES`` of a word count:
however common a word is and however much was said, a search touches no more than that. How rare a word is, which the
scores are made of, is counted in the owner's own entries only, so that they say nothing of other people's.
"""

import asyncio
import logging
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

from skynet_memory.database import Database, Row, Statements
from skynet_memory.errors import StorageUnavailable
from skynet_memory.fulltext import is_prefix, quoted, segmented
from skynet_memory.ids import EntryId, RunId, SessionId, SessionKey, UserId
from skynet_memory.memory_search import WordReader
from skynet_memory.previews import role_and_text
from skynet_memory.sessions import topic

log = logging.getLogger(__name__)

DEFAULT_HITS: Final = 10
MAX_HITS: Final = 50
CANDIDATES: Final = 1000
"""Entries that one word of a query may bring in, the newest ones."""
RANKED: Final = 300
"""Of all that was found, those whose length and age are looked at."""
QUERY_CHARS: Final = 1000
MAX_TERMS: Final = 32
"""What is looked for of a query: its beginning."""
TEXT_CHARS: Final = 8000
"""What is searched and shown of one entry: its beginning."""
BATCH: Final = 100
"""Entries that are taken in by one transaction: some 10 ms of the writer."""
MAX_ENTRIES: Final = (1 << 32) - 1
"""Of one person; see ``search_schema``."""
WALK: Final = 1000
"""Entries without words that may lie between two that have some."""

# BM25, in which a word counts once an entry: what is said in a chat is short
_LENGTH: Final = 0.3
_SATURATION: Final = 1.2
_RECENT: Final = 0.1
_RECENT_MS: Final = 30 * 24 * 3600 * 1000

_WORD: Final = re.compile(r"\w+")

_ASKING_WORDS: Final = """
about any anything discuss discussed ever mention mentioned remember said say saying says something talk talked tell
told erzählt gesagt gesprochen über dit parlé
"""
_ASKING: Final = frozenset(_ASKING_WORDS.split())
"""What a question about a conversation is made of, besides what it is about."""

SpokenRole: TypeAlias = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """An entry of a transcript that has words; ``text`` is the beginning of it, on one line."""

    id: EntryId
    role: SpokenRole
    text: str
    at_ms: int
    matched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """What was found, with what was said around it, in the order of the conversation.

    ``entry_id`` is the entry that matched best; others in the window may match too. Scores are positive, the greatest
    first, and compare only within one answer.
    """

    key: SessionKey
    session_id: SessionId
    entry_id: EntryId
    entries: tuple[Spoken, ...]
    score: float


class _Found(NamedTuple):
    id: int
    score: float


class _New(NamedTuple):
    row: int
    entry_id: EntryId
    session_id: SessionId
    parent_id: EntryId | None
    role: str
    """Empty for an entry that is only passed over."""
    text: str
    at_ms: int


class TranscriptSearch:
    """Every method sees only the transcripts of ``owner``."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._reader = WordReader()
        self._versions: dict[UserId, int] = {}
        self._locks: WeakValueDictionary[UserId, asyncio.Lock] = WeakValueDictionary()

    async def search(
        self,
        owner: UserId,
        query: str,
        *,
        limit: int = DEFAULT_HITS,
        window: int = 2,
        now_ms: int,
        asked_by: RunId | None = None,
    ) -> list[Hit]:
        """What of the owner's conversations has words of ``query``, best first; any text is a query.

        Entries that lie in the window of a better hit are part of that one, so nothing is shown twice.

        Args:
            limit: at most so many, 1 to ``MAX_HITS``.
            window: so many entries before and after.
            asked_by: a run that asks for itself: its question, and what follows that, is not searched.
        """
        words = words_in(query)
        if not words:
            return []
        try:
            await self.index(owner)
        except StorageUnavailable as exc:
            log.warning("the search does not know what was said lately: %s", exc)
        limit = max(1, min(limit, MAX_HITS))

        def work(tx: Statements) -> list[Hit]:
            return _search(tx, owner, self._terms(words), limit, window, now_ms, asked_by)

        async with self._locks.setdefault(owner, asyncio.Lock()):  # many at once would keep others from reading
            return await self._db.read(work)

    def _terms(self, words: Sequence[str]) -> list[str]:
        """The words as FTS5 wants them, without those that say nothing, unless there are no others."""
        stop_words = self._reader.stop_words()
        telling = [
            word
            for word in words
            if word.casefold() not in _ASKING and not stop_words.issuperset(self._reader.terms(word))
        ] or words
        return [quoted(word) + (" *" if is_prefix(word) else "") for word in telling[:MAX_TERMS]]

    async def index(self, owner: UserId) -> int:
        """Take in what is new in the owner's transcripts, in small transactions; returns how many entries were read."""
        lock = self._locks.setdefault(owner, asyncio.Lock())
        async with lock:
            version = self._db.version(topic(owner))
            if self._versions.get(owner) == version:
                return 0
            pending = await self._db.read(lambda tx: _pending(tx, owner))
            for start in range(0, len(pending), BATCH):
                rows = pending[start : start + BATCH]
                entries = await self._db.read(lambda tx, rows=rows: _read(tx, owner, rows))  # type: ignore[misc]
                await self._db.write(lambda tx, entries=entries: _take_in(tx, owner, entries))  # type: ignore[misc]
            self._versions[owner] = version
            return len(pending)

    async def tidy(self) -> bool:
        """Let go of the words of what was erased, in small transactions; False if there were none.

        Until then they lie in the index, where no search finds them, but who reads the file could.
        """
        row = await self._db.fetchone("SELECT words FROM search_leftovers")
        if row is None or not row["words"]:
            return False
        await self._db.write(lambda tx: tx.execute("UPDATE search_leftovers SET words = 0"))
        pages = -_MERGED_PAGES  # the sign begins a merge of everything, which the later ones go on with
        while await self._db.write(lambda tx, pages=pages: _merge(tx, pages)):  # type: ignore[misc]
            pages = _MERGED_PAGES
        await self._db.erase_traces()
        return True


_MERGED_PAGES: Final = 200


def _merge(tx: Statements, pages: int) -> bool:
    """Whether it found something to do (SQLite, fts5.html 6.8)."""
    before = _total_changes(tx)
    tx.execute("INSERT INTO search_words (search_words, rank) VALUES ('merge', ?)", (pages,))
    return _total_changes(tx) - before >= 2


def _total_changes(tx: Statements) -> int:
    row = tx.fetchone("SELECT total_changes()")
    assert row is not None
    return cast(int, row[0])


def words_in(query: str) -> list[str]:
    """The words of any text, each once; of scripts without spaces, pairs of characters."""
    words = _WORD.findall(segmented(unicodedata.normalize("NFC", query[:QUERY_CHARS]), query=True))
    return list(dict.fromkeys(words))


# Taking in

# From one transcript to the next in the index of entries, two steps each, however long they are
_UNREAD: Final = """
    WITH RECURSIVE ids(session_id) AS (
        SELECT min(session_id) FROM entries WHERE owner = :owner
        UNION ALL
        SELECT (SELECT min(session_id) FROM entries WHERE owner = :owner AND session_id > ids.session_id)
            FROM ids WHERE ids.session_id IS NOT NULL
    )
    SELECT ids.session_id, coalesce(marks.upto, 0) AS upto
        FROM ids LEFT JOIN search_marks marks ON marks.owner = :owner AND marks.session_id = ids.session_id
        WHERE ids.session_id IS NOT NULL AND coalesce(marks.upto, 0) <
            (SELECT max(rowid) FROM entries WHERE owner = :owner AND session_id = ids.session_id)
"""


def _pending(tx: Statements, owner: UserId) -> list[int]:
    """The row numbers of what was not read yet, in the order in which it was written."""
    rows = []
    for session in tx.fetchall(_UNREAD, {"owner": owner}):
        rows += tx.fetchall(
            "SELECT rowid FROM entries WHERE owner = ? AND session_id = ? AND rowid > ?",
            (owner, session["session_id"], session["upto"]),
        )
    return sorted(row[0] for row in rows)


def _read(tx: Statements, owner: UserId, rows: Iterable[int]) -> list[_New]:
    """One after the other, for a single entry may hold images of 25 MiB."""
    entries = []
    for number in rows:
        row = tx.fetchone("SELECT * FROM entries WHERE rowid = ? AND owner = ?", (number, owner))
        if row is None:
            continue
        role, text = role_and_text(row["payload"]) if row["kind"] == "message" else ("", "")
        if role not in ("user", "assistant") or not text:
            role = text = ""
        entries.append(
            _New(
                row=number,
                entry_id=row["id"],
                session_id=row["session_id"],
                parent_id=row["parent_id"],
                role=role,
                text=text[:TEXT_CHARS],
                at_ms=row["created_at_ms"],
            )
        )
    return entries


def _take_in(tx: Statements, owner: UserId, entries: Sequence[_New]) -> None:
    last = _last(tx, owner)
    nearest: dict[EntryId, int | None] = {}
    for entry in entries:
        previous = _nearest(tx, nearest, entry.parent_id)
        nearest[entry.entry_id] = previous
        if entry.role:
            row = tx.fetchone(
                "INSERT INTO search_entries"
                " (id, owner, session_id, entry_id, previous, role, text, segments, words, at_ms)"
                " SELECT :id, :owner, :session_id, :entry_id, :previous, :role, :text, :segments, :words, :at_ms"
                " WHERE EXISTS (SELECT 1 FROM entries WHERE id = :entry_id AND owner = :owner)"  # else erased meanwhile
                " ON CONFLICT (entry_id) DO UPDATE SET entry_id = entry_id RETURNING id",
                {
                    "id": last + 1,
                    "owner": owner,
                    "session_id": entry.session_id,
                    "entry_id": entry.entry_id,
                    "previous": previous,
                    "role": entry.role,
                    "text": entry.text,
                    "segments": _segments(entry.text),
                    "words": entry.text.count(" ") + 1,
                    "at_ms": entry.at_ms,
                },
            )
            if row is not None:
                nearest[entry.entry_id] = row["id"]
                last = max(last, row["id"])
    tx.execute("UPDATE search_people SET last = ? WHERE owner = ?", (last & MAX_ENTRIES, owner))
    marks = {entry.session_id: entry.row for entry in entries}
    tx.executemany(
        "INSERT INTO search_marks SELECT owner, session_id, rowid FROM entries WHERE rowid = ? AND owner = ?"
        " AND session_id = ? ON CONFLICT DO UPDATE SET upto = max(upto, excluded.upto)",
        [(row, owner, session_id) for session_id, row in marks.items()],
    )


def _segments(text: str) -> str:
    """What a text without spaces is searched by; empty for one that has them."""
    segments = segmented(text)
    return "" if segments == text else segments


def _last(tx: Statements, owner: UserId) -> int:
    """The id of this person's last entry, or the one before their first."""
    tx.execute("INSERT INTO search_people (owner) SELECT id FROM users WHERE id = ? ON CONFLICT DO NOTHING", (owner,))
    row = tx.fetchone("SELECT number << 32 | last FROM search_people WHERE owner = ?", (owner,))
    return 0 if row is None else cast(int, row[0])  # removed meanwhile: their entries are gone too


def _nearest(tx: Statements, nearest: dict[EntryId, int | None], parent_id: EntryId | None) -> int | None:
    """What was said last up to ``parent_id``."""
    for _ in range(WALK):
        if parent_id is None or parent_id in nearest:
            break
        row = tx.fetchone("SELECT id FROM search_entries WHERE entry_id = ?", (parent_id,))
        if row is not None:
            return cast(int, row["id"])
        row = tx.fetchone("SELECT parent_id FROM entries WHERE id = ?", (parent_id,))
        parent_id = None if row is None else row["parent_id"]
    return None if parent_id is None else nearest.get(parent_id)


# Searching


def _search(
    tx: Statements,
    owner: UserId,
    terms: Sequence[str],
    limit: int,
    window: int,
    now_ms: int,
    asked_by: RunId | None,
) -> list[Hit]:
    person = tx.fetchone("SELECT number, entries, words FROM search_people WHERE owner = ?", (owner,))
    if person is None or not person["entries"]:
        return []
    found = _rank(tx, owner, person, _score(tx, person, terms), now_ms)
    asked = None if asked_by is None else _asked(tx, owner, asked_by)
    scores = dict(found)
    shown: set[int] = set()
    hits: list[Hit] = []
    for number, score in found:
        if number in shown:
            continue
        row = _entry(tx, owner, number)
        if row is None or _is_asked(row, asked):
            continue
        around = [
            entry
            for entry in _window(tx, owner, row, window)
            if entry["id"] not in shown and not _is_asked(entry, asked)
        ]
        shown.update(entry["id"] for entry in around)
        key = _key(tx, owner, row["session_id"])
        if key is None:
            continue
        hits.append(
            Hit(
                key=key,
                session_id=row["session_id"],
                entry_id=row["entry_id"],
                entries=tuple(_spoken(entry, entry["id"] in scores) for entry in around),
                score=score,
            )
        )
        if len(hits) == limit:
            break
    return hits


def _score(tx: Statements, person: Row, terms: Sequence[str]) -> dict[int, float]:
    """For each entry the sum of how rare its words of the query are."""
    scores: defaultdict[int, float] = defaultdict(float)
    for term in terms:
        rows = _matches(tx, person["number"], term) or _matches(tx, person["number"], f"{term.removesuffix(' *')} *")
        count = len(rows)
        if count == CANDIDATES:  # there are more: as many a number of entries as among the newest
            among = tx.fetchone(
                "SELECT count(*) FROM (SELECT 1 FROM search_entries WHERE id BETWEEN ? AND ? LIMIT ?)",
                (rows[-1], rows[0], 20 * CANDIDATES),
            )
            assert among is not None
            count = max(count, count * person["entries"] // max(among[0], 1))
        rarity = math.log(1 + (person["entries"] - count + 0.5) / (count + 0.5)) if count <= person["entries"] else 0.0
        for number in rows:
            scores[number] += rarity
    return scores


def _matches(tx: Statements, person: int, term: str) -> list[int]:
    rows = tx.fetchall(
        "SELECT rowid FROM search_words WHERE search_words MATCH ? AND rowid BETWEEN ? AND ?"
        " ORDER BY rowid DESC LIMIT ?",
        (term, person << 32, person << 32 | MAX_ENTRIES, CANDIDATES),
    )
    return [row[0] for row in rows]


def _rank(tx: Statements, owner: UserId, person: Row, scores: dict[int, float], now_ms: int) -> list[_Found]:
    """Best first: those with the most and the rarest words, the short before the long, the new before the old."""
    best = sorted(scores.items(), key=lambda item: (-item[1], -item[0]))[:RANKED]
    average = max(person["words"] / person["entries"], 1.0)
    found = []
    for number, score in best:
        row = tx.fetchone("SELECT words, at_ms FROM search_entries WHERE id = ? AND owner = ?", (number, owner))
        if row is not None:
            length = 1 - _LENGTH + _LENGTH * row["words"] / average
            recent = 1 + _RECENT * math.exp(-max(now_ms - row["at_ms"], 0) / _RECENT_MS)
            found.append(_Found(number, recent * score * (_SATURATION + 1) / (1 + _SATURATION * length)))
    found.sort(key=lambda item: (-item.score, -item.id))
    return found


def _asked(tx: Statements, owner: UserId, run_id: RunId) -> Row | None:
    """Where the question of a run is."""
    return tx.fetchone(
        "SELECT said.id, said.session_id FROM dedupe JOIN search_entries said ON said.entry_id = dedupe.entry_id"
        " WHERE dedupe.owner = ? AND dedupe.run_id = ? AND dedupe.status = 'running' AND said.owner = dedupe.owner",
        (owner, run_id),
    )


def _is_asked(entry: Row, asked: Row | None) -> bool:
    return asked is not None and entry["session_id"] == asked["session_id"] and entry["id"] >= asked["id"]


def _entry(tx: Statements, owner: UserId, number: int) -> Row | None:
    return tx.fetchone("SELECT * FROM search_entries WHERE id = ? AND owner = ?", (number, owner))


def _window(tx: Statements, owner: UserId, row: Row, size: int) -> list[Row]:
    """The entries around ``row`` in its branch; where branches part, what follows is the newest one."""
    window, first, last = [row], row, row
    for _ in range(size):
        if first["previous"] is None or (before := _entry(tx, owner, first["previous"])) is None:
            break
        window.insert(0, before)
        first = before
    for _ in range(size):
        after = tx.fetchone(
            "SELECT * FROM search_entries WHERE previous = ? AND owner = ? ORDER BY id DESC LIMIT 1",
            (last["id"], owner),
        )
        if after is None:
            break
        window.append(after)
        last = after
    return window


def _key(tx: Statements, owner: UserId, session_id: SessionId) -> SessionKey | None:
    row = tx.fetchone(
        "SELECT key FROM sessions WHERE owner = :owner AND session_id = :session_id UNION ALL"
        " SELECT key FROM archived_transcripts WHERE owner = :owner AND session_id = :session_id",
        {"owner": owner, "session_id": session_id},
    )
    return None if row is None else SessionKey(row["key"])


def _spoken(row: Row, matched: bool) -> Spoken:
    return Spoken(id=row["entry_id"], role=row["role"], text=row["text"], at_ms=row["at_ms"], matched=matched)
