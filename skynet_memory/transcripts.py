"""Transcripts: what was said, as a tree of entries that only grows.

Each entry names its parent; a session names the leaf of its current branch. Truncating or compacting
(``skynet_memory.compactions``) marks older entries of the branch as covered and removes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from skynet_memory.database import Database, Row, Statements
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import EntryId, SessionId, SessionKey, UserId, new_id, now_ms
from skynet_memory.previews import LAST_MESSAGE_CHARS, TITLE_CHARS, role_and_text, shorten
from skynet_memory.sessions import topic

HISTORY_BYTES: Final = 64 * 1024 * 1024
"""Payload of one answer. An entry may hold images of 25 MiB, and whoever reads decodes all that it gets."""

EntryKind: TypeAlias = Literal["message", "tool_call", "tool_result", "compaction", "model_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    id: EntryId
    session_id: SessionId
    parent_id: EntryId | None
    kind: EntryKind
    payload: bytes
    """JSON of a transcript message (OPENCLAW-V3 8.4)."""
    created_at_ms: int
    covered_by: EntryId | None
    """What a reader of the current branch gets in place of this and older ones: a compaction, or the first entry that a
    truncated view begins with."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    kind: EntryKind
    payload: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    kept: int
    covered: int
    """Newly covered ones: 0 if the transcript was short enough."""


class TranscriptStore:
    """Every method sees only the transcripts of ``owner``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def history(
        self,
        owner: UserId,
        session_id: SessionId,
        *,
        limit: int,
        before: EntryId | None = None,
        include_covered: bool = False,
        max_bytes: int = HISTORY_BYTES,
    ) -> list[Entry]:
        """The last ``limit`` entries of the current branch (or of the branch that leads to ``before``), oldest first.

        Fewer if they hold more than ``max_bytes`` together, but at least one. Empty if there is no such transcript.
        Transcripts of before a reset are found by their own session id. Compactions are among them only with
        ``include_covered``: they are no part of what was said.
        """
        return await self._db.read(
            lambda tx: branch_of(tx, owner, session_id, limit, before, include_covered, max_bytes)
        )

    async def append(
        self,
        owner: UserId,
        key: SessionKey,
        payload: bytes,
        *,
        kind: EntryKind = "message",
        at_ms: int | None = None,
    ) -> Entry:
        """Add an entry at the leaf, outside of a turn.

        Raises:
            SessionNotFound: no such session of this person.
        """
        at_ms = now_ms() if at_ms is None else at_ms
        chain = Chain([NewEntry(kind, payload)])

        def work(tx: Statements) -> Entry:
            row = _leaf(tx, owner, key)
            entries = chain.insert(tx, owner, row["session_id"], row["leaf_entry"], at_ms)
            tx.execute(
                "UPDATE sessions SET leaf_entry = :leaf, title = iif(title = '', :title, title),"
                " last_message = iif(:last_message = '', last_message, :last_message),"
                " updated_at_ms = max(:at_ms, updated_at_ms + 1) WHERE owner = :owner AND key = :key",
                {**chain.session_values(), "at_ms": at_ms, "owner": owner, "key": key},
            )
            tx.changed(topic(owner))
            return entries[-1]

        return await self._db.write(work)

    async def tail(self, owner: UserId, keys: Sequence[SessionKey], limit: int) -> dict[SessionKey, list[Entry]]:
        """The last ``limit`` entries of several sessions, oldest first; a key without a session is left out.

        All together hold no more than ``HISTORY_BYTES``, save that each has its last entry.
        """

        def work(tx: Statements) -> dict[SessionKey, list[Entry]]:
            tails: dict[SessionKey, list[Entry]] = {}
            left = HISTORY_BYTES
            for key in keys:
                row = tx.fetchone("SELECT session_id FROM sessions WHERE owner = ? AND key = ?", (owner, key))
                if row is not None:
                    tails[key] = branch_of(tx, owner, row["session_id"], limit, None, False, left)
                    left -= sum(len(entry.payload) for entry in tails[key])
            return tails

        return await self._db.read(work)

    async def truncate_view(self, owner: UserId, key: SessionKey, keep: int, *, at_ms: int | None = None) -> Truncated:
        """Cover all but the last ``keep`` entries, and with them the summaries of what was covered before.

        The view never begins with a tool result whose call is covered.

        Raises:
            SessionNotFound: no such session of this person.
        """
        at_ms = now_ms() if at_ms is None else at_ms

        def work(tx: Statements) -> Truncated:
            row = _leaf(tx, owner, key)
            branch = tx.fetchall(LIVE, {"owner": owner, "session_id": row["session_id"], "leaf": row["leaf_entry"]})
            kept = min(max(keep, 1), len(branch))
            if kept == len(branch):
                return Truncated(kept, 0)
            while kept > 1 and branch[kept - 1]["kind"] == "tool_result":
                kept -= 1
            first = branch[kept - 1]["id"]
            tx.executemany(
                "UPDATE entries SET covered_by = ? WHERE owner = ? AND id = ?",
                [(first, owner, entry["id"]) for entry in branch[kept:]],
            )
            # what compactions told of older ones, and the first message, which they keep
            tx.execute(
                "UPDATE entries SET covered_by = ? WHERE owner = ? AND session_id = ? AND covered_by IS NULL"
                " AND (kind = 'compaction' OR parent_id IS NULL)",
                (first, owner, row["session_id"]),
            )
            tx.execute(
                "UPDATE sessions SET total_tokens = 0, compaction_count = compaction_count + 1,"
                " updated_at_ms = max(?, updated_at_ms + 1) WHERE owner = ? AND key = ?",
                (at_ms, owner, key),
            )
            tx.changed(topic(owner))
            return Truncated(kept, len(branch) - kept)

        return await self._db.write(work)


class Chain:
    """New entries, each the parent of the next, with their ids given before they reach the writer."""

    __slots__ = ("_entries", "ids")

    def __init__(self, entries: Sequence[NewEntry]) -> None:
        self._entries = entries
        self.ids = [EntryId(new_id()) for _ in entries]

    def insert(
        self, tx: Statements, owner: UserId, session_id: SessionId, leaf: EntryId | None, at_ms: int
    ) -> list[Entry]:
        parents = [leaf, *self.ids[:-1]]
        tx.executemany(
            "INSERT INTO entries (id, owner, session_id, parent_id, kind, payload, created_at_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (entry_id, owner, session_id, parent, entry.kind, entry.payload, at_ms)
                for entry_id, parent, entry in zip(self.ids, parents, self._entries, strict=True)
            ],
        )
        return [
            Entry(
                id=entry_id,
                session_id=session_id,
                parent_id=parent,
                kind=entry.kind,
                payload=entry.payload,
                created_at_ms=at_ms,
                covered_by=None,
            )
            for entry_id, parent, entry in zip(self.ids, parents, self._entries, strict=True)
        ]

    def session_values(self) -> dict[str, str | None]:
        """``leaf``, ``title`` and ``last_message`` of a session that ends in this chain; empty texts change nothing."""
        title = last_message = ""
        for entry in self._entries:
            if entry.kind == "message":
                role, text = role_and_text(entry.payload)
                if role == "user" and not title:
                    title = shorten(text, TITLE_CHARS)
                if role in ("user", "assistant") and text:
                    last_message = shorten(text, LAST_MESSAGE_CHARS)
        return {"leaf": self.ids[-1] if self.ids else None, "title": title, "last_message": last_message}


def _leaf(tx: Statements, owner: UserId, key: SessionKey) -> Row:
    row = tx.fetchone("SELECT session_id, leaf_entry FROM sessions WHERE owner = ? AND key = ?", (owner, key))
    if row is None:
        raise SessionNotFound(key)
    return row


_FIND_LEAF: Final = """
    SELECT leaf_entry FROM sessions WHERE owner = :owner AND session_id = :session_id
    UNION ALL
    SELECT leaf_entry FROM archived_transcripts WHERE owner = :owner AND session_id = :session_id
"""

# A compaction stands where it was made, among what came after the entries that it covers: unless all is asked for it is
# passed over, covered or not, and does not count.
_BRANCH: Final = """
    WITH RECURSIVE branch AS (
        SELECT *, 1 AS step, :include_covered OR kind <> 'compaction' AS depth, length(payload) AS size FROM entries
            WHERE id = :leaf AND owner = :owner AND session_id = :session_id
                AND (:include_covered OR covered_by IS NULL OR kind = 'compaction')
        UNION ALL
        SELECT e.*, step + 1, depth + (:include_covered OR e.kind <> 'compaction'), size + length(e.payload)
            FROM branch JOIN entries e ON e.id = branch.parent_id
            WHERE depth < :limit AND (depth = 0 OR size + length(e.payload) <= :max_bytes)
                AND e.owner = :owner AND (:include_covered OR e.covered_by IS NULL OR e.kind = 'compaction')
    )
    SELECT * FROM branch WHERE :include_covered OR kind <> 'compaction' ORDER BY step DESC
"""

# Newest first, as far as it is not covered
LIVE: Final = """
    WITH RECURSIVE branch(id, parent_id, kind, step) AS (
        SELECT id, parent_id, kind, 1 FROM entries
            WHERE id = :leaf AND owner = :owner AND session_id = :session_id
                AND (covered_by IS NULL OR kind = 'compaction')
        UNION ALL
        SELECT e.id, e.parent_id, e.kind, step + 1 FROM branch JOIN entries e ON e.id = branch.parent_id
            WHERE e.owner = :owner AND (e.covered_by IS NULL OR e.kind = 'compaction')
    )
    SELECT id, parent_id, kind FROM branch WHERE kind <> 'compaction' ORDER BY step
"""


def branch_of(
    tx: Statements,
    owner: UserId,
    session_id: SessionId,
    limit: int,
    before: EntryId | None,
    include_covered: bool,
    max_bytes: int,
) -> list[Entry]:
    if limit < 1:
        return []
    if before is None:
        row = tx.fetchone(_FIND_LEAF, {"owner": owner, "session_id": session_id})
    else:
        row = tx.fetchone(
            "SELECT parent_id FROM entries WHERE id = ? AND owner = ? AND session_id = ?", (before, owner, session_id)
        )
    if row is None or row[0] is None:
        return []
    rows = tx.fetchall(
        _BRANCH,
        {
            "leaf": row[0],
            "owner": owner,
            "session_id": session_id,
            "limit": limit,
            "include_covered": include_covered,
            "max_bytes": max_bytes,
        },
    )
    return [read_entry(row) for row in rows]


def read_entry(row: Row) -> Entry:
    return Entry(
        id=row["id"],
        session_id=row["session_id"],
        parent_id=row["parent_id"],
        kind=cast(EntryKind, row["kind"]),
        payload=row["payload"],
        created_at_ms=row["created_at_ms"],
        covered_by=row["covered_by"],
    )
