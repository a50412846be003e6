"""Compactions: entries that stand for older ones of their transcript, which stay stored.

Each covers messages that follow each other, the next one goes on where it ended, and a rolled-up one takes the place of
several. So what is covered has no gap, and each entry says by ``covered_by`` which compaction tells of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from skynet_memory.database import Database, Row, Statements
from skynet_memory.ids import EntryId, SessionId, UserId
from skynet_memory.sessions import topic
from skynet_memory.transcripts import HISTORY_BYTES, LIVE, Chain, Entry, NewEntry, branch_of, read_entry


class Compaction(
    msgspec.Struct, tag_field="role", tag="system", rename="camel", omit_defaults=True, frozen=True, kw_only=True
):
    """The payload of an entry of the kind ``compaction``.

    ``summary`` is empty where the messages were left out unread. ``before`` is how many were covered before them, and
    ``kept`` the first message of the transcript, if it stays in the window. ``model`` wrote the summary.
    """

    summary: str
    first: EntryId
    last: EntryId
    covered: int
    before: int = 0
    kept: EntryId | None = None
    model: str = ""
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """A compaction that is part of the window."""

    id: EntryId
    compaction: Compaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A conversation as it goes on: what is not covered, and what is told of the rest."""

    first: Entry | None
    """The message that the conversation began with, if what came after it is covered."""
    told: tuple[Told, ...]
    """Oldest first."""
    entries: list[Entry]
    """What came after all that is covered, oldest first."""
    is_cut: bool
    """Whether there is more between ``told`` and ``entries`` than was asked for."""


class CompactionStore:
    """Every method sees only the transcripts of ``owner``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def window(
        self, owner: UserId, session_id: SessionId, *, limit: int, max_bytes: int = HISTORY_BYTES
    ) -> Window:
        """The window of a transcript with its last ``limit`` entries at most, all of one moment."""

        def work(tx: Statements) -> Window:
            told = _told(tx, owner, session_id)
            entries = branch_of(tx, owner, session_id, limit, None, False, max_bytes)
            first = None
            if told and told[0].compaction.kept is not None:
                first = tx.fetchone(
                    "SELECT * FROM entries WHERE id = ? AND owner = ? AND session_id = ? AND covered_by IS NULL",
                    (told[0].compaction.kept, owner, session_id),
                )
            return Window(
                first=None if first is None else read_entry(first),
                told=tuple(told),
                entries=entries,
                is_cut=bool(entries) and _has_older(tx, owner, entries[0]),
            )

        return await self._db.read(work)

    async def size(self, owner: UserId, session_id: SessionId) -> tuple[int, int]:
        """How many messages nothing covers, and the bytes of their payloads."""
        row = await self._db.fetchone(_SIZE, {"owner": owner, "session_id": session_id})
        return (0, 0) if row is None else (row[0], row[1])

    async def live(self, owner: UserId, session_id: SessionId) -> list[EntryId]:
        """All messages that nothing covers, oldest first."""

        def work(tx: Statements) -> list[EntryId]:
            session = _session(tx, owner, session_id)
            if session is None:
                return []
            return [EntryId(entry["id"]) for entry in _live(tx, owner, session_id, session["leaf_entry"])]

        return await self._db.read(work)

    async def cover(
        self,
        owner: UserId,
        session_id: SessionId,
        ids: Sequence[EntryId],
        *,
        summary: str = "",
        model: str = "",
        now_ms: int,
    ) -> EntryId | None:
        """Cover entries by a new compaction, all of them or none; its id.

        They are the oldest of the window, or those after the very first message, which is then kept. None, and nothing
        is written, if they are not (any more): the session was reset, deleted, truncated or compacted meanwhile.
        """

        def work(tx: Statements) -> EntryId | None:
            session = _session(tx, owner, session_id)
            if session is None or not ids:
                return None
            live = _live(tx, owner, session_id, session["leaf_entry"])
            told = _told(tx, owner, session_id)
            begin = 0 if live and live[0]["id"] == ids[0] else 1
            if [entry["id"] for entry in live[begin : begin + len(ids)]] != list(ids):
                return None
            if begin and (told or live[0]["parent_id"] is not None):
                return None
            after = live[begin + len(ids) :]
            if after and after[0]["kind"] == "tool_result":
                raise ValueError("a compaction would separate a tool's result from its call")
            kept = EntryId(live[0]["id"]) if begin else told[0].compaction.kept if told else None
            last = told[-1].compaction if told else None
            compaction = Compaction(
                summary=summary,
                first=ids[0],
                last=ids[-1],
                covered=len(ids),
                before=0 if last is None else last.before + last.covered,
                kept=kept,
                model=model,
                timestamp=now_ms,
            )
            return _insert(tx, owner, session, session_id, ids, compaction)

        return await self._db.write(work)

    async def roll_up(
        self,
        owner: UserId,
        session_id: SessionId,
        ids: Sequence[EntryId],
        *,
        summary: str = "",
        model: str = "",
        now_ms: int,
    ) -> EntryId | None:
        """Let one compaction stand for the oldest ones of the window, ``ids``; its id. None as in :meth:`cover`."""

        def work(tx: Statements) -> EntryId | None:
            session = _session(tx, owner, session_id)
            told = _told(tx, owner, session_id)[: len(ids)]
            if session is None or len(ids) < 2 or [each.id for each in told] != list(ids):
                return None
            first, last = told[0].compaction, told[-1].compaction
            compaction = Compaction(
                summary=summary,
                first=first.first,
                last=last.last,
                covered=sum(each.compaction.covered for each in told),
                before=first.before,
                kept=first.kept,
                model=model,
                timestamp=now_ms,
            )
            return _insert(tx, owner, session, session_id, ids, compaction)

        return await self._db.write(work)


_decoder = msgspec.json.Decoder(Compaction)

_SIZE: Final = """
    WITH RECURSIVE branch(id, parent_id, kind, size) AS (
        SELECT e.id, e.parent_id, e.kind, length(e.payload) FROM sessions s JOIN entries e ON e.id = s.leaf_entry
            WHERE s.owner = :owner AND s.session_id = :session_id AND e.owner = :owner
                AND (e.covered_by IS NULL OR e.kind = 'compaction')
        UNION ALL
        SELECT e.id, e.parent_id, e.kind, length(e.payload) FROM branch JOIN entries e ON e.id = branch.parent_id
            WHERE e.owner = :owner AND (e.covered_by IS NULL OR e.kind = 'compaction')
    )
    SELECT count(*), coalesce(sum(size), 0) FROM branch WHERE kind <> 'compaction'
"""
_SESSION: Final = "SELECT key, leaf_entry FROM sessions WHERE owner = ? AND session_id = ?"
_TOLD: Final = """
    SELECT id, payload FROM entries
        WHERE owner = ? AND session_id = ? AND kind = 'compaction' AND covered_by IS NULL
"""


def _session(tx: Statements, owner: UserId, session_id: SessionId) -> Row | None:
    """The session that this is the transcript of; None for one that was archived."""
    return tx.fetchone(_SESSION, (owner, session_id))


def _told(tx: Statements, owner: UserId, session_id: SessionId) -> list[Told]:
    rows = tx.fetchall(_TOLD, (owner, session_id))
    told = [Told(EntryId(row["id"]), _decoder.decode(row["payload"])) for row in rows]
    return sorted(told, key=lambda each: each.compaction.before)


def _live(tx: Statements, owner: UserId, session_id: SessionId, leaf: EntryId | None) -> list[Row]:
    """``id``, ``parent_id`` and ``kind`` of the messages that nothing covers, oldest first."""
    return tx.fetchall(LIVE, {"owner": owner, "session_id": session_id, "leaf": leaf})[::-1]


def _has_older(tx: Statements, owner: UserId, entry: Entry) -> bool:
    """Whether a message that nothing covers stands before ``entry``."""
    parent = entry.parent_id
    while parent is not None:
        row = tx.fetchone("SELECT parent_id, kind, covered_by FROM entries WHERE id = ? AND owner = ?", (parent, owner))
        assert row is not None, "an entry's parent is there as long as it is"
        if row["kind"] != "compaction":
            return row["covered_by"] is None
        parent = row["parent_id"]
    return False


def _insert(
    tx: Statements,
    owner: UserId,
    session: Row,
    session_id: SessionId,
    ids: Sequence[EntryId],
    compaction: Compaction,
) -> EntryId:
    chain = Chain([NewEntry("compaction", msgspec.json.encode(compaction))])
    [entry] = chain.insert(tx, owner, session_id, session["leaf_entry"], compaction.timestamp)
    tx.executemany(
        "UPDATE entries SET covered_by = ? WHERE id = ? AND owner = ? AND session_id = ?",
        [(entry.id, each, owner, session_id) for each in ids],
    )
    # what the last call had in its context is not what the next one has
    tx.execute(
        "UPDATE sessions SET leaf_entry = ?, compaction_count = compaction_count + 1, total_tokens = 0"
        " WHERE owner = ? AND session_id = ?",
        (entry.id, owner, session_id),
    )
    tx.changed(topic(owner))
    return entry.id
