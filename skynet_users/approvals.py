"""Questions that wait for somebody's yes: strangers who want in, risky tool calls, and what people ask for.

A tool call is approved for one run with exactly the arguments that were shown. Nobody decides about the own question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from skynet_memory.database import Database, Row, Statements, Value
from skynet_memory.ids import Role, UserId, new_id
from skynet_memory.ids import now_ms as wall_clock
from skynet_users.errors import NotPending, OwnRequest, TooManyPending, UnknownApproval, UnknownUser
from skynet_users.identities import check_identity, link_identity
from skynet_users.people import insert_user, new_person
from skynet_users.profiles import clean_name

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
ApprovalKind: TypeAlias = Literal["registration", "tool_call", "request"]
ApprovalStatus: TypeAlias = Literal["pending", "approved", "denied", "expired", "used"]

EXPIRY_MS: Final = 24 * 3_600_000
"""A question waits so long for its answer, and an approved tool call so long to be run."""
KEPT_MS: Final = 90 * 24 * 3_600_000
"""What is no longer open is kept so long after it was asked; so long a denied stranger does not ask again."""
MAX_PENDING: Final = 20
"""Open questions of one person."""
MAX_REGISTRATIONS: Final = 100
"""Open registrations of all strangers together."""
MAX_MESSAGES: Final = 10
"""First messages that are kept of a stranger who waits."""
MESSAGE_CHARS: Final = 4000

_SHOWN: Final = (
    "CASE WHEN expires_at_ms <= :now AND (status = 'pending' OR (status = 'approved' AND kind = 'tool_call'))"
    " THEN 'expired' ELSE status END"
)
_WITHOUT_MESSAGES: Final = "iif(kind = 'registration', json_remove(subject, '$.messages'), subject)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    id: str
    kind: ApprovalKind
    requester: UserId | None
    """Who asks. Of a registration None, and the person that it made or linked once it was approved."""
    subject: Mapping[str, Json]
    """What it is about. Of a registration: ``channel``, ``external_id``, ``display_name`` and ``messages``, a list of
    ``text``, ``at_ms`` and what the channel says besides, which is dropped when the stranger is not let in."""
    arguments_hash: str
    summary: str
    status: ApprovalStatus
    created_at_ms: int
    expires_at_ms: int
    """A pending question ends then; of an approved tool call, when it can no longer be used."""
    decided_by: UserId | None
    decided_at_ms: int | None
    used_at_ms: int | None
    reason: str


class ApprovalStore:
    def __init__(self, db: Database, clock: Callable[[], int] = wall_clock) -> None:
        self._db = db
        self._clock = clock

    async def request(
        self,
        kind: ApprovalKind,
        requester: UserId | None,
        summary: str,
        subject: Mapping[str, Json],
        arguments: Mapping[str, Json] | None = None,
        now_ms: int | None = None,
    ) -> tuple[Approval, bool]:
        """Put a question, or find the same one still open (False).

        Args:
            requester: None for a registration, whose subject names ``channel`` and ``external_id``.
            subject: of a tool call with the name as ``tool``.
            arguments: what a tool call is bound to; None binds the subject.

        Raises:
            TooManyPending: so many are open already.
            InvalidProfile: the subject names no channel identity.
        """
        at_ms = self._now(now_ms)
        return await self._db.write(lambda tx: ask(tx, kind, requester, summary, subject, arguments, at_ms))

    async def decide(
        self,
        approval_id: str,
        *,
        by: UserId,
        approve: bool,
        reason: str = "",
        role: Literal[Role.USER, Role.CHILD, "user", "child"] | None = None,
        display_name: str = "",
        user_id: UserId | None = None,
        now_ms: int | None = None,
    ) -> Approval:
        """Answer a question. Whether ``by`` may is the caller's to check, but for this: it is not the own question.

        Args:
            role: makes the person of an approved registration, in the same transaction.
            display_name: the name of that person, if not the channel's.
            user_id: links the identity of an approved registration to this person instead of making one. With neither
                role nor user_id the caller does either.

        Raises:
            UnknownApproval: there is none.
            OwnRequest: ``by`` asked for it.
            NotPending: it has been decided, or has expired.
            UnknownUser: ``by`` is nobody who can decide, or ``user_id`` nobody.
            InvalidProfile: ``display_name`` is no name.
        """
        at_ms = self._now(now_ms)
        newcomer = None if role is None else Role(role)
        if newcomer is Role.ADMIN:
            raise ValueError("a registration makes no admin")

        def work(tx: Statements) -> Approval:
            approval = _decide(tx, approval_id, by, approve, _storable(reason), at_ms)
            if not approve or approval.kind != "registration" or (newcomer is None and user_id is None):
                return approval
            return _let_in(tx, approval, newcomer or Role.USER, display_name, user_id, at_ms)

        return await self._db.write(work)

    async def consume(
        self, requester: UserId, tool: str, arguments: Mapping[str, Json], now_ms: int | None = None
    ) -> Approval | None:
        """Use up the oldest approval for exactly this call, if there is one: it serves once, whoever else asks."""
        at_ms = self._now(now_ms)
        values: dict[str, Value] = {
            "owner": requester,
            "hash": arguments_hash(requester, tool, arguments),
            "now": at_ms,
        }
        row = await self._db.write(
            lambda tx: tx.fetchone(
                "UPDATE approvals SET status = 'used', used_at_ms = :now WHERE status = 'approved' AND id = ("
                " SELECT id FROM approvals WHERE owner = :owner AND kind = 'tool_call' AND arguments_hash = :hash"
                " AND status = 'approved' AND expires_at_ms > :now ORDER BY decided_at_ms, id LIMIT 1)"
                " RETURNING *, status AS shown",
                values,
            )
        )
        return None if row is None else _read(row)

    async def get(
        self, approval_id: str, *, requester: UserId | None = None, now_ms: int | None = None
    ) -> Approval | None:
        """With ``requester`` only if it is that person's."""
        row = await self._db.fetchone(
            f"SELECT *, {_SHOWN} AS shown FROM approvals WHERE id = :id"  # noqa: S608 - a constant
            " AND (:requester IS NULL OR owner = :requester)",
            {"id": _storable(approval_id), "requester": requester, "now": self._now(now_ms)},
        )
        return None if row is None else _read(row)

    async def expire(self, now_ms: int | None = None) -> list[Approval]:
        """End what has waited too long, oldest first, and forget what ended long ago. Each is returned once."""
        at_ms = self._now(now_ms)

        def work(tx: Statements) -> list[Row]:
            tx.execute(
                "DELETE FROM approvals WHERE created_at_ms <= ? AND status IN ('approved', 'denied', 'expired', 'used')"
                " AND expires_at_ms <= ?",
                (at_ms - KEPT_MS, at_ms),
            )
            return tx.fetchall(
                f"UPDATE approvals SET status = 'expired', subject = {_WITHOUT_MESSAGES}"  # noqa: S608 - constants
                f" WHERE {_SHOWN} = 'expired' AND status <> 'expired' RETURNING *, status AS shown",
                {"now": at_ms},
            )

        rows = await self._db.write(work)
        return sorted((_read(row) for row in rows), key=lambda each: (each.created_at_ms, each.id))

    async def add_message(
        self,
        approval_id: str,
        text: str,
        at_ms: int,
        *,
        message_id: str = "",
        room: tuple[str, str] | None = None,
    ) -> bool:
        """Keep what a stranger said while waiting, to be answered later; what is too long is cut.

        Args:
            message_id: the channel's; one that is kept already is not kept again.
            room: where it was said, id and name, if not to the assistant alone.

        False if it is not kept: there are so many already, or nothing waits.
        """
        message: dict[str, Json] = {"text": text[:MESSAGE_CHARS], "at_ms": at_ms}
        if message_id:
            message["id"] = message_id
        if room is not None:
            message["room"] = [*room]

        def work(tx: Statements) -> bool:
            row = tx.fetchone(
                "SELECT subject FROM approvals WHERE id = ? AND kind = 'registration' AND status = 'pending'"
                " AND expires_at_ms > ?",
                (approval_id, at_ms),
            )
            if row is None:
                return False
            subject = json.loads(row["subject"])
            messages = subject.setdefault("messages", [])
            if len(messages) >= MAX_MESSAGES:
                return False
            if message_id and any(
                (each.get("id"), each.get("room")) == (message_id, message.get("room")) for each in messages
            ):
                return False
            messages.append(message)
            return bool(tx.execute("UPDATE approvals SET subject = ? WHERE id = ?", (_canonical(subject), approval_id)))

        return await self._db.write(work)

    async def list(
        self,
        status: ApprovalStatus | None = None,
        requester: UserId | None = None,
        limit: int = 50,
        *,
        now_ms: int | None = None,
    ) -> list[Approval]:
        """Newest first. What waited too long is ``expired``, also before :meth:`expire` found it."""
        rows = await self._db.fetchall(
            f"SELECT *, {_SHOWN} AS shown FROM approvals"  # noqa: S608 - a constant
            " WHERE (:status IS NULL OR shown = :status) AND (:requester IS NULL OR owner = :requester)"
            " ORDER BY created_at_ms DESC, id DESC LIMIT :limit",
            {"status": status, "requester": requester, "limit": limit, "now": self._now(now_ms)},
        )
        return [_read(row) for row in rows]

    def _now(self, now_ms: int | None) -> int:
        return self._clock() if now_ms is None else now_ms


def arguments_hash(requester: UserId | None, tool: str, arguments: Mapping[str, Json]) -> str:
    """SHA-256 over who calls which tool with what. The order of keys does not matter, anything else does."""
    return hashlib.sha256(_canonical([requester, tool, dict(arguments)]).encode()).hexdigest()


def ask(
    tx: Statements,
    kind: ApprovalKind,
    requester: UserId | None,
    summary: str,
    subject: Mapping[str, Json],
    arguments: Mapping[str, Json] | None,
    at_ms: int,
) -> tuple[Approval, bool]:
    """As :meth:`ApprovalStore.request`."""
    if (requester is None) != (kind == "registration"):
        raise ValueError("a registration has no requester, everything else has one")
    subject, channel, external_id = dict(subject), None, None
    if kind == "registration":
        channel, external_id = str(subject.get("channel", "")), str(subject.get("external_id", ""))
        check_identity(channel, external_id)
        subject["display_name"] = clean_name(str(subject.get("display_name", "")), "")
        subject.setdefault("messages", [])
        digest = arguments_hash(None, "", {"channel": channel, "external_id": external_id})
        whose, longest = "kind = 'registration'", MAX_REGISTRATIONS
        same = "channel = :channel AND external_id = :external_id"
    else:
        digest = arguments_hash(requester, str(subject.get("tool", "")), subject if arguments is None else arguments)
        whose, longest = "owner = :owner AND kind <> 'registration'", MAX_PENDING
        same = "kind = :kind AND arguments_hash = :hash"
    values: dict[str, Value] = {
        "id": new_id(),
        "kind": kind,
        "owner": requester,
        "channel": channel,
        "external_id": external_id,
        "subject": _canonical(subject),
        "hash": digest,
        "summary": _storable(summary),
        "now": at_ms,
        "expires": at_ms + EXPIRY_MS,
    }
    row = tx.fetchone(
        f"SELECT *, status AS shown FROM approvals WHERE status = 'pending' AND {whose} AND {same}",  # noqa: S608
        values,
    )
    if row is not None and row["expires_at_ms"] > at_ms:
        return _read(row), False
    if row is not None:
        tx.execute(
            f"UPDATE approvals SET status = 'expired', subject = {_WITHOUT_MESSAGES} WHERE id = ?",  # noqa: S608
            (row["id"],),
        )
    open_ones = tx.fetchone(
        f"SELECT count(*) FROM approvals WHERE status = 'pending' AND expires_at_ms > :now AND {whose}",  # noqa: S608
        values,
    )
    assert open_ones is not None
    if open_ones[0] >= longest:
        raise TooManyPending(longest)
    row = tx.fetchone(
        "INSERT INTO approvals (id, kind, owner, channel, external_id, subject, arguments_hash, summary, status,"
        " created_at_ms, expires_at_ms) VALUES (:id, :kind, :owner, :channel, :external_id, :subject, :hash, :summary,"
        " 'pending', :now, :expires) RETURNING *, status AS shown",
        values,
    )
    assert row is not None
    return _read(row), True


def _decide(tx: Statements, approval_id: str, by: UserId, approve: bool, reason: str, at_ms: int) -> Approval:
    if tx.fetchone("SELECT 1 FROM users WHERE id = ? AND kind = 'person' AND NOT disabled", (by,)) is None:
        raise UnknownUser(by)
    values: dict[str, Value] = {
        "id": _storable(approval_id),
        "by": by,
        "status": "approved" if approve else "denied",
        "reason": reason,
        "now": at_ms,
        "expires": at_ms + EXPIRY_MS,
    }
    row = tx.fetchone(
        "UPDATE approvals SET status = :status, decided_by = :by, decided_at_ms = :now, reason = :reason,"  # noqa: S608
        " expires_at_ms = iif(:status = 'approved', :expires, expires_at_ms),"
        f" subject = iif(:status = 'approved', subject, {_WITHOUT_MESSAGES})"
        " WHERE id = :id AND status = 'pending' AND expires_at_ms > :now AND owner IS NOT :by"
        " RETURNING *, status AS shown",
        values,
    )
    if row is not None:
        return _read(row)
    row = tx.fetchone(f"SELECT owner, {_SHOWN} AS shown FROM approvals WHERE id = :id", values)  # noqa: S608
    if row is None:
        raise UnknownApproval(approval_id)
    if row["owner"] == by:
        raise OwnRequest
    raise NotPending(row["shown"])


def _let_in(
    tx: Statements, approval: Approval, role: Role, display_name: str, user_id: UserId | None, at_ms: int
) -> Approval:
    """Give the stranger's identity to a person: a new one of this role, or the one of ``user_id``."""
    assert approval.decided_by is not None
    channel, external_id = str(approval.subject["channel"]), str(approval.subject["external_id"])
    name = str(approval.subject["display_name"])
    if user_id is None:
        shown = display_name or name or clean_name(f"{channel} {external_id}", channel)
        user_id = insert_user(tx, new_person(shown, role, now_ms=at_ms)).id
    link_identity(tx, user_id, channel, external_id, name, True, approval.decided_by, at_ms)
    row = tx.fetchone(
        "UPDATE approvals SET owner = ? WHERE id = ? RETURNING *, status AS shown", (user_id, approval.id)
    )
    assert row is not None
    return _read(row)


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _storable(text: str) -> str:
    """SQLite holds no half characters."""
    return text.encode("utf-8", "replace").decode()


def _read(row: Row) -> Approval:
    return Approval(
        id=row["id"],
        kind=row["kind"],
        requester=row["owner"],
        subject=json.loads(row["subject"]),
        arguments_hash=row["arguments_hash"],
        summary=row["summary"],
        status=row["shown"],
        created_at_ms=row["created_at_ms"],
        expires_at_ms=row["expires_at_ms"],
        decided_by=row["decided_by"],
        decided_at_ms=row["decided_at_ms"],
        used_at_ms=row["used_at_ms"],
        reason=row["reason"],
    )
