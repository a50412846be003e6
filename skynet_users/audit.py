"""Who did what: rows that are only ever added, each with a hash over itself and the one before.

Never contents of messages, never secrets: ids, names as they were at that time, and what kind of thing was done.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from skynet_memory.database import Database, Row, Statements, Value
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import UserId
from skynet_memory.ids import now_ms as current_ms
from skynet_users.audit_schema import START

log = logging.getLogger(__name__)

Json: TypeAlias = Any
"""What JSON can hold: it is only encoded here."""

BATCH_ROWS: Final = 500
"""Rows that are verified in one trip to a reader's thread, so that others get their turn."""
MAX_TEXT: Final = 500
"""Characters of a text; of a longer one the beginning is kept."""
MAX_DETAILS: Final = 4000
"""Characters of the details as JSON."""
MOST_LISTED: Final = 200
MOST_NOTES: Final = 30
"""Notes of one action and actor in a minute: whoever tries a thousand passwords fills no disk."""
MOST_RECORDS: Final = 300
"""Rows of one person in a minute that ``record`` adds; what would need more has to wait, as nobody does so much."""
_MINUTE_MS: Final = 60_000


class Action(StrEnum):
    """What is recorded. ``list`` also takes the part before the dot."""

    LOGIN = "login"
    LOGIN_FAILED = "login.failed"
    PAIRING_APPROVED = "pairing.approved"
    PAIRING_REJECTED = "pairing.rejected"
    PAIRING_REMOVED = "pairing.removed"
    TOKEN_CREATED = "token.created"  # noqa: S105
    TOKEN_REVOKED = "token.revoked"  # noqa: S105
    PASSWORD_CHANGED = "password.changed"  # noqa: S105
    PERMISSION_REFUSED = "permission.refused"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_USED = "approval.used"
    APPROVAL_REVOKED = "approval.revoked"
    """What was allowed for good is asked about again."""
    USER_ADDED = "user.added"
    USER_CHANGED = "user.changed"
    USER_REMOVED = "user.removed"
    BUDGET_CHANGED = "budget.changed"
    GUARDIAN_CHANGED = "guardian.changed"
    IDENTITY_LINKED = "identity.linked"
    IDENTITY_RELINKED = "identity.relinked"
    IDENTITY_UNLINKED = "identity.unlinked"
    GROUP_CHANGED = "group.changed"
    CONFIG_CHANGED = "config.changed"
    COMMAND_BLOCKED = "command.blocked"
    MEMORY_READ = "memory.read"
    """Of another person."""
    MEMORY_CHANGED = "memory.changed"
    """The same."""
    MEMORY_ERASED = "memory.erased"
    TRANSCRIPT_READ = "transcript.read"
    """Of another person: by a guardian whom a setting allows it, or an admin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    seq: int
    """1 for the first; without gaps."""
    at_ms: int
    action: str
    actor: str
    """A person's id; "" for nobody that is known: the gateway itself, or somebody who did not prove who they are."""
    actor_name: str
    """As it was then; "" if there was no such person."""
    subject: str
    """What or whom it was done to: an id, a key, a method."""
    subject_name: str
    """Of a person."""
    details: Mapping[str, Json] = field(default_factory=dict)
    hash: str


Problem: TypeAlias = Literal["changed", "missing", "cut", "added", "head", "unlike"]
"""``changed``: a row is not what was recorded, or not where. ``missing``: the one of this number. ``cut``: the newest
ones are missing. ``added``: rows that were not recorded by the gateway follow the last. ``head``: the record of the
last row is missing, or does not fit it. ``unlike``: not the log that the known head is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """``ok`` means: from the first row to the last everything is as it was recorded, as far as the file can tell."""

    ok: bool
    rows: int
    """Those that were found right."""
    head: str
    """``<seq>:<hash>`` of the last right row. Kept elsewhere, it shows later whether all was written anew."""
    first_bad_seq: int | None = None
    problem: Problem | None = None


@dataclass(slots=True)
class _Minute:
    """How much one actor did of one thing."""

    began_ms: int
    noted: int = 0
    left_out: int = 0

    def is_over(self, at_ms: int) -> bool:
        return abs(at_ms - self.began_ms) >= _MINUTE_MS


class AuditLog:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._minutes: dict[tuple[str, str], _Minute] = {}

    async def record(
        self,
        action: str,
        *,
        actor: UserId | Literal[""],
        subject: str = "",
        details: Mapping[str, Json] | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Add a row; it is durable when this returns. Call it before what it records: what cannot be recorded must not
        be done, and a person that is removed is still there to be named.

        Raises:
            StorageUnavailable: nothing was recorded, so the action has to fail. Also beyond :data:`MOST_RECORDS`.
        """
        at_ms = current_ms() if now_ms is None else now_ms
        minute = self._minute("", actor, at_ms)
        if actor and minute.noted >= MOST_RECORDS:
            raise StorageUnavailable(f"{MOST_RECORDS} records a minute of one person are the most", retry_after_ms=5000)
        minute.noted += 1
        await self._append(action, actor, subject, details, at_ms)

    async def _append(
        self, action: str, actor: str, subject: str, details: Mapping[str, Json] | None, at_ms: int
    ) -> None:
        await self._db.write(lambda tx: append(tx, action, actor=actor, subject=subject, details=details, now_ms=at_ms))

    async def note(
        self,
        action: str,
        *,
        actor: UserId | Literal[""],
        subject: str = "",
        details: Mapping[str, Json] | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Like ``record``, for what happens anyway (a login, a refusal): what cannot be stored is in the log file.

        Beyond :data:`MOST_NOTES` of the same action and actor in a minute they are counted only; the next row says how
        many were left out (``leftOut``).
        """
        at_ms = current_ms() if now_ms is None else now_ms
        minute = self._minute(action, actor, at_ms)
        if minute.noted >= MOST_NOTES:
            minute.left_out += 1
            return
        minute.noted += 1
        if minute.left_out:
            details = {**(details or {}), "leftOut": minute.left_out}
            minute.left_out = 0
        try:
            await self._append(action, actor, subject, details, at_ms)
        except (StorageUnavailable, LookupError, sqlite3.Error) as exc:
            log.error("not in the audit log: %s by %s on %s: %s", action, actor or "nobody", subject or "nothing", exc)

    def _minute(self, action: str, actor: str, at_ms: int) -> _Minute:
        minute = self._minutes.get((action, actor))
        if minute is None:
            if len(self._minutes) >= 1000:  # those who left nothing out need not be remembered
                over = [key for key, other in self._minutes.items() if other.is_over(at_ms) and not other.left_out]
                for key in over:
                    del self._minutes[key]
            minute = self._minutes[action, actor] = _Minute(at_ms)
        elif minute.is_over(at_ms):
            minute.began_ms, minute.noted = at_ms, 0
        return minute

    async def list(
        self,
        limit: int = 50,
        before: int | None = None,
        *,
        actor: str | None = None,
        subject: str | None = None,
        action: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[AuditEntry]:
        """Newest first; at most :data:`MOST_LISTED`.

        Args:
            before: only rows with a lower ``seq``: where the page before ended.
            action: an action, or the part before its dot: ``user`` for all that was done to people.
            until_ms: not included.
        """
        conditions: dict[str, Value] = {
            "seq < :before": before,
            "actor = :actor": actor,
            "subject = :subject": subject,
            "(action = :action OR (action > :action || '.' AND action < :action || '/'))": action,
            "at_ms >= :since_ms": since_ms,
            "at_ms < :until_ms": until_ms,
        }
        where = " AND ".join(text for text, value in conditions.items() if value is not None) or "1"
        rows = await self._db.fetchall(
            f"SELECT {_COLUMNS} FROM audit WHERE {where} ORDER BY seq DESC LIMIT :limit",  # noqa: S608 - fixed texts
            {
                "before": before,
                "actor": actor,
                "subject": subject,
                "action": action,
                "since_ms": since_ms,
                "until_ms": until_ms,
                "limit": max(1, min(limit, MOST_LISTED)),
            },
        )
        return [_entry(row) for row in rows]

    async def head(self) -> str:
        """``<seq>:<hash>`` of the newest row; "" if its record is gone."""
        row = await self._db.fetchone("SELECT count, hash FROM audit_head WHERE id = 1")
        return "" if row is None else f"{row['count']}:{row['hash']}"

    async def verify(self, known_head: str = "") -> VerifyResult:
        """Compute the chain anew, from the first row to what is the newest now.

        Args:
            known_head: a ``head`` of earlier, to be found on the way.

        Raises:
            ValueError: ``known_head`` is none.
        """
        known = parse_head(known_head) if known_head else (0, START)
        ends = await self._db.read(_read_ends)
        seq, last, problem = 0, START, None
        while problem is None and seq < ends.chained:
            seq, last, problem = await self._db.read(partial(_check_batch, seq, last, ends.chained, known))
        bad_seq = seq + 1
        if problem is None:
            bad_seq, problem = ends.problem(last, known[0])
        return VerifyResult(
            ok=problem is None,
            rows=seq,
            head=f"{seq}:{last}",
            first_bad_seq=None if problem is None else bad_seq,
            problem=problem,
        )


def append(
    tx: Statements,
    action: str,
    *,
    actor: str,
    subject: str = "",
    details: Mapping[str, Json] | None = None,
    now_ms: int,
) -> None:
    """Add a row as part of a write, so that what is done and its record are stored together or not at all."""
    head = tx.fetchone("SELECT count, hash FROM audit_head WHERE id = 1")
    if head is None:
        raise LookupError("the audit log has lost the record of its last row; see: skynet audit verify")
    seq = head["count"] + 1
    action, actor, subject = (_clean(text, MAX_TEXT) for text in (action, actor, subject))
    actor_name, subject_name = (_clean(_name_of(tx, text), MAX_TEXT) for text in (actor, subject))
    row = (seq, now_ms, action, actor, actor_name, subject, subject_name, _encode_details(details or {}))
    digest = chain(head["hash"], row)
    tx.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, digest))
    tx.execute("UPDATE audit_head SET count = ?, hash = ? WHERE id = 1", (seq, digest))


def chain(previous: str, row: Sequence[Value]) -> str:
    """The hash of a row: SHA-256 over the hash before and the row's other columns as JSON, in hexadecimal.

    The JSON is an array in the order of the columns, without spaces, with everything beyond ASCII escaped; ``details``
    is in it as the text that is stored.
    """
    return sha256((previous + json.dumps(list(row), separators=(",", ":"))).encode()).hexdigest()


def parse_head(text: str) -> tuple[int, str]:
    """``<seq>:<hash>`` in its parts.

    Raises:
        ValueError: it is none.
    """
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:100]!r} is not the head of an audit log: <number>:<64 hexadecimal digits>")
    return int(match[1]), match[2].lower()


_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-fA-F]{64})")

# Whatever somebody wrote into the file is read, so that it can be told
_COLUMNS = (
    "seq, at_ms, CAST(action AS BLOB), CAST(actor AS BLOB), CAST(actor_name AS BLOB), CAST(subject AS BLOB),"
    " CAST(subject_name AS BLOB), CAST(details AS BLOB), CAST(hash AS BLOB)"
)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the log begins and ends, by its rows and by the record of the last; 0 for rows of which there are none."""

    first: int
    newest: int
    count: int
    hash: str | None

    @property
    def chained(self) -> int:
        """The last row to look at: one beyond the record is not part of the chain."""
        return self.newest if self.hash is None else min(self.newest, self.count)

    def problem(self, last: str, known_seq: int) -> tuple[int, Problem | None]:
        """What is wrong at the ends, with every row of the chain being right; and where."""
        if self.first < 0 or (self.first == 0 and self.newest):
            return self.first, "added"
        if self.hash is None:
            return self.chained, "head"
        if self.newest < max(self.count, known_seq):
            return self.newest + 1, "cut"
        if self.newest > self.count:
            return self.count + 1, "added"
        return self.count, None if last == self.hash else "head"


def _read_ends(tx: Statements) -> _Ends:
    head = tx.fetchone("SELECT count, CAST(hash AS BLOB) FROM audit_head WHERE id = 1")
    row = tx.fetchone("SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM audit")
    assert row is not None, "an aggregate has a row"
    return _Ends(row[0], row[1], 0 if head is None else head[0], None if head is None else _text(head[1]))


def _check_batch(
    seq: int, last: str, end: int, known: tuple[int, str], tx: Statements
) -> tuple[int, str, Problem | None]:
    """Go on after row ``seq`` with the hash ``last``: the number and hash of the last right row, and what is wrong
    with the one after it."""
    rows = tx.fetchall(
        f"SELECT {_COLUMNS} FROM audit WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",  # noqa: S608 - fixed text
        (seq, end, BATCH_ROWS),
    )
    if not rows:
        return seq, last, "missing"
    for row in rows:
        if row[0] != seq + 1:
            return seq, last, "missing"
        columns: list[Value] = [row[0], row[1], *map(_text, row[2:-1])]
        digest = chain(last, columns)
        if digest != _text(row[-1]):
            return seq, last, "changed"
        if seq + 1 == known[0] and digest != known[1]:
            return seq, last, "unlike"
        seq, last = seq + 1, digest
    return seq, last, None


def _text(value: Any) -> str:
    """Bytes that are no UTF-8 stay different from all that are."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _name_of(tx: Statements, user_id: str) -> str:
    row = tx.fetchone("SELECT display_name FROM users WHERE id = ?", (user_id,)) if user_id else None
    return "" if row is None else row[0]


def _clean(text: str, longest: int) -> str:
    """As it can be stored: not too long, and without halves of surrogate pairs."""
    short = text if len(text) <= longest else text[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return short.encode(errors="replace").decode()


def _encode_details(details: Mapping[str, Json]) -> str:
    """Canonical: keys sorted, no spaces. Long texts are shortened; if it is still too long, it is one short text."""
    text = _dump(_shortened(dict(details)))
    return text if len(text) <= MAX_DETAILS else _dump({"shortened": _clean(text, MAX_DETAILS // 2)})


def _dump(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode(errors="replace").decode()


def _shortened(value: Json) -> Json:
    match value:
        case str():
            return _clean(value, MAX_TEXT)
        case dict():
            return {_clean(str(key), MAX_TEXT): _shortened(item) for key, item in value.items()}
        case list() | tuple():
            return [_shortened(item) for item in value]
    return value


def _entry(row: Row) -> AuditEntry:
    action, actor, actor_name, subject, subject_name, details, digest = (
        _text(value).encode(errors="replace").decode() for value in row[2:]
    )
    return AuditEntry(
        seq=row[0],
        at_ms=row[1],
        action=action,
        actor=actor,
        actor_name=actor_name,
        subject=subject,
        subject_name=subject_name,
        details=_decode_details(details),
        hash=digest,
    )


def _decode_details(text: str) -> Mapping[str, Json]:
    try:
        details = json.loads(text)
    except (ValueError, RecursionError):  # somebody has been at the file
        return {"unreadable": text}
    return details if isinstance(details, dict) else {"unreadable": text}
