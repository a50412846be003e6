"""What a turn writes: one transaction when it begins, one when it ends, each a single trip to the writer.

Between the two the run is recorded as running, so a process that was killed leaves a mark that the next start closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from skynet_memory.database import Database, Row, Statements
from skynet_memory.errors import RunNotOpen, SessionNotFound
from skynet_memory.ids import EntryId, RunId, SessionId, SessionKey, UserId
from skynet_memory.ids import now_ms as current_ms
from skynet_memory.sessions import Json, Session, is_transcript, new_session, read_session, topic, upsert
from skynet_memory.transcripts import Chain, NewEntry
from skynet_memory.usage import UsageRecord, insert_usage

FinalStatus: TypeAlias = Literal["ok", "error", "aborted", "timeout"]
RunStatus: TypeAlias = Literal["running", "ok", "error", "aborted", "timeout", "interrupted"]

DEDUPE_MS: Final = 24 * 60 * 60 * 1000
"""For so long a repeated idempotency key gets the first answer."""

INTERRUPTED: Final = "interrupted: the gateway was stopped before the answer was complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegun:
    session: Session
    entry_id: EntryId | None
    """The person's entry; None if the turn has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRepeated:
    """The key was used before: nothing was written."""

    status: RunStatus
    response: bytes | None
    """What ``finish`` was given. None while it runs, if it was interrupted, or if the session was deleted since."""
    started_at_ms: int
    ended_at_ms: int | None
    session_key: SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    owner: UserId
    key: SessionKey
    run_id: RunId
    kind: str


class _Repeated(Exception):  # noqa: N818
    """Undoes the transaction of a turn that was begun before."""

    def __init__(self, row: Row) -> None:
        self.row = row


class TurnStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def begin(
        self,
        *,
        owner: UserId,
        key: SessionKey,
        run_id: RunId,
        kind: str,
        payload: bytes | None,
        origin: Mapping[str, Json] | None = None,
        display_name: str = "",
        session_id: SessionId | None = None,
        now_ms: int,
    ) -> TurnBegun | TurnRepeated:
        """Get or create the session, claim the run and add the person's entry (``payload``, if any). Durable on return.

        ``session_id`` is the id that a new session gets, for clients that choose it; an id that names a transcript of
        this person already is not used a second time.

        Raises:
            InvalidSessionKey: not a key.
            SessionNotFound: another person's key.
        """
        fresh = new_session(owner, key, now_ms, origin=origin, display_name=display_name)
        chain = Chain([] if payload is None else [NewEntry("message", payload)])
        entry_id = chain.ids[0] if chain.ids else None
        values = {**chain.session_values(), "owner": owner, "key": key}

        def work(tx: Statements) -> Row:
            if session_id is not None and not is_transcript(tx, owner, session_id):
                fresh["session_id"] = session_id
            session = upsert(tx, fresh)
            claim = {
                "owner": owner,
                "kind": kind,
                "run_id": run_id,
                "key": key,
                "session_id": session["session_id"],
                "entry_id": entry_id,
                "now_ms": now_ms,
                "expired_ms": now_ms - DEDUPE_MS,
            }
            if tx.fetchone(_CLAIM, claim) is None:
                earlier = tx.fetchone(
                    "SELECT status, response, started_at_ms, ended_at_ms, key FROM dedupe"
                    " WHERE owner = ? AND kind = ? AND run_id = ?",
                    (owner, kind, run_id),
                )
                assert earlier is not None, "something kept the claim from being made"
                raise _Repeated(earlier)
            if entry_id is not None:
                chain.insert(tx, owner, session["session_id"], session["leaf_entry"], now_ms)
                tx.execute(_ADVANCE, values)
            tx.changed(topic(owner))
            return session

        try:
            return TurnBegun(session=read_session(await self._db.write(work)), entry_id=entry_id)
        except _Repeated as repeated:
            return _read_repeated(repeated.row)

    async def lookup(self, owner: UserId, kind: str, run_id: RunId) -> TurnRepeated | None:
        """What ``begin`` would say of a key that was used in the last 24 hours; writes nothing."""
        row = await self._db.fetchone(
            "SELECT status, response, started_at_ms, ended_at_ms, key FROM dedupe"
            " WHERE owner = ? AND kind = ? AND run_id = ? AND started_at_ms > ?",
            (owner, kind, run_id, current_ms() - DEDUPE_MS),
        )
        return None if row is None else _read_repeated(row)

    async def add(
        self,
        *,
        owner: UserId,
        spender: UserId | None = None,
        kind: str,
        run_id: RunId,
        entries: Sequence[NewEntry],
        usage: Sequence[UsageRecord],
        now_ms: int,
    ) -> None:
        """Add entries and usage of a run that goes on. Durable on return. ``spender`` is who used it, if not the owner.

        Raises:
            RunNotOpen: not begun, or closed already; nothing was written.
        """
        chain = Chain(entries)
        counters = _counters(usage)

        def work(tx: Statements) -> None:
            run = tx.fetchone(
                "SELECT key, session_id FROM dedupe WHERE owner = ? AND kind = ? AND run_id = ? AND status = 'running'",
                (owner, kind, run_id),
            )
            if run is None:
                raise RunNotOpen(run_id)
            key, session_id = run["key"], run["session_id"]
            insert_usage(tx, spender or owner, key, session_id, run_id, usage)
            tx.changed(topic(owner))
            if _extend(tx, owner, key, session_id, chain, now_ms):
                values = {**chain.session_values(), **counters, "owner": owner, "key": key, "session_id": session_id}
                tx.execute(_GO_ON, {**values, "now_ms": now_ms})

        await self._db.write(work)

    async def finish(
        self,
        *,
        owner: UserId,
        spender: UserId | None = None,
        kind: str,
        run_id: RunId,
        entries: Sequence[NewEntry],
        usage: Sequence[UsageRecord],
        status: FinalStatus,
        response: bytes,
        model: str = "",
        provider: str = "",
        context_tokens: int | None = None,
        now_ms: int,
    ) -> Session:
        """Add the assistant's entries and the usage, and close the run. Durable on return.

        A session that was reset meanwhile keeps its new, empty transcript: the entries go to the one the run began in.

        Raises:
            RunNotOpen: not begun, or closed already; nothing was written.
            SessionNotFound: the session was deleted meanwhile; the run is closed and its usage kept all the same.
        """
        chain = Chain(entries)
        values = {
            **chain.session_values(),
            **_counters(usage),
            "provider": provider,
            "model": model,
            "context_tokens": context_tokens,
            "aborted": status == "aborted",
            "now_ms": now_ms,
            "owner": owner,
        }

        def work(tx: Statements) -> Row | SessionKey:
            run = _close(tx, owner, kind, run_id, status, response, now_ms)
            key, session_id = run["key"], run["session_id"]
            insert_usage(tx, spender or owner, key, session_id, run_id, usage)
            tx.changed(topic(owner))
            if not _extend(tx, owner, key, session_id, chain, now_ms):
                session = tx.fetchone("SELECT * FROM sessions WHERE owner = ? AND key = ?", (owner, key))
            else:
                session = tx.fetchone(_FINISH, {**values, "key": key, "session_id": session_id})
            return SessionKey(key) if session is None else session

        result = await self._db.write(work)
        if isinstance(result, str):
            raise SessionNotFound(result)
        return read_session(result)

    async def close_unfinished(self, now_ms: int) -> list[Interrupted]:
        """To be called once at the start: closes the runs that a killed process left running, whoever's they are.

        A run that had an entry of the person gets an assistant entry that says what happened.
        """
        chain_payload = NewEntry("message", _interrupted_message(now_ms))

        def work(tx: Statements) -> list[Interrupted]:
            runs = tx.fetchall("SELECT * FROM dedupe WHERE status = 'running' ORDER BY started_at_ms, run_id")
            for run in runs:
                owner = UserId(run["owner"])
                _close(tx, owner, run["kind"], run["run_id"], "interrupted", None, now_ms)
                chain = Chain([chain_payload] if run["entry_id"] is not None else [])
                if _extend(tx, owner, run["key"], run["session_id"], chain, now_ms):
                    values = {**chain.session_values(), "now_ms": now_ms, "owner": owner, "key": run["key"]}
                    tx.execute(_INTERRUPT, values)
                tx.changed(topic(owner))
            return [
                Interrupted(owner=run["owner"], key=run["key"], run_id=run["run_id"], kind=run["kind"]) for run in runs
            ]

        return await self._db.write(work)

    async def sweep(self, now_ms: int) -> int:
        """Forget the closed runs that began more than 24 hours ago; returns how many."""
        return await self._db.write(
            lambda tx: tx.execute(
                "DELETE FROM dedupe WHERE started_at_ms <= ? AND status <> 'running'", (now_ms - DEDUPE_MS,)
            )
        )


_CLAIM: Final = """
    INSERT INTO dedupe (owner, kind, run_id, key, session_id, entry_id, status, started_at_ms)
    VALUES (:owner, :kind, :run_id, :key, :session_id, :entry_id, 'running', :now_ms)
    ON CONFLICT (owner, kind, run_id) DO UPDATE SET
        key = excluded.key, session_id = excluded.session_id, entry_id = excluded.entry_id, status = 'running',
        response = NULL, started_at_ms = excluded.started_at_ms, ended_at_ms = NULL
        WHERE started_at_ms <= :expired_ms AND status <> 'running'
    RETURNING run_id
"""

_ADVANCE: Final = """
    UPDATE sessions SET leaf_entry = :leaf, title = iif(title = '', :title, title),
        last_message = iif(:last_message = '', last_message, :last_message)
    WHERE owner = :owner AND key = :key
"""

_FINISH: Final = """
    UPDATE sessions SET
        leaf_entry = coalesce(:leaf, leaf_entry),
        title = iif(title = '', :title, title),
        last_message = iif(:last_message = '', last_message, :last_message),
        input_tokens = input_tokens + :input,
        output_tokens = output_tokens + :output,
        cache_read = cache_read + :cache_read,
        cache_write = cache_write + :cache_write,
        total_tokens = coalesce(:total, total_tokens),
        context_tokens = coalesce(:context_tokens, context_tokens),
        last_model = iif(:model = '', last_model, :model),
        last_provider = iif(:provider = '', last_provider, :provider),
        system_sent = 1,
        aborted_last_run = :aborted,
        updated_at_ms = max(:now_ms, updated_at_ms + 1)
    WHERE owner = :owner AND key = :key AND session_id = :session_id
    RETURNING *
"""

_GO_ON: Final = """
    UPDATE sessions SET leaf_entry = coalesce(:leaf, leaf_entry),
        title = iif(title = '', :title, title),
        last_message = iif(:last_message = '', last_message, :last_message),
        input_tokens = input_tokens + :input,
        output_tokens = output_tokens + :output,
        cache_read = cache_read + :cache_read,
        cache_write = cache_write + :cache_write,
        total_tokens = coalesce(:total, total_tokens),
        updated_at_ms = max(:now_ms, updated_at_ms + 1)
    WHERE owner = :owner AND key = :key AND session_id = :session_id
"""

_INTERRUPT: Final = """
    UPDATE sessions SET leaf_entry = coalesce(:leaf, leaf_entry), aborted_last_run = 1,
        updated_at_ms = max(:now_ms, updated_at_ms + 1)
    WHERE owner = :owner AND key = :key
"""


def _read_repeated(row: Row) -> TurnRepeated:
    return TurnRepeated(
        status=row["status"],
        response=row["response"],
        started_at_ms=row["started_at_ms"],
        ended_at_ms=row["ended_at_ms"],
        session_key=row["key"],
    )


def _close(
    tx: Statements, owner: UserId, kind: str, run_id: RunId, status: RunStatus, response: bytes | None, now_ms: int
) -> Row:
    row = tx.fetchone(
        "UPDATE dedupe SET status = ?, response = ?, ended_at_ms = ?"
        " WHERE owner = ? AND kind = ? AND run_id = ? AND status = 'running' RETURNING key, session_id",
        (status, response, now_ms, owner, kind, run_id),
    )
    if row is None:
        raise RunNotOpen(run_id)
    return row


def _extend(tx: Statements, owner: UserId, key: SessionKey, session_id: SessionId, chain: Chain, now_ms: int) -> bool:
    """Add the entries to the transcript the run began in; True if that is still the session's own."""
    row = tx.fetchone(
        "SELECT leaf_entry FROM sessions WHERE owner = ? AND key = ? AND session_id = ?", (owner, key, session_id)
    )
    if row is not None:
        if chain.ids:
            chain.insert(tx, owner, session_id, row["leaf_entry"], now_ms)
        return True
    archived = tx.fetchone(
        "SELECT leaf_entry FROM archived_transcripts WHERE owner = ? AND session_id = ?", (owner, session_id)
    )
    if archived is not None and chain.ids:
        chain.insert(tx, owner, session_id, archived["leaf_entry"], now_ms)
        tx.execute(
            "UPDATE archived_transcripts SET leaf_entry = ? WHERE owner = ? AND session_id = ?",
            (chain.ids[-1], owner, session_id),
        )
    return False


def _counters(usage: Sequence[UsageRecord]) -> dict[str, int | None]:
    last = usage[-1] if usage else None
    return {
        "input": sum(u.input for u in usage),
        "output": sum(u.output for u in usage),
        "cache_read": sum(u.cache_read for u in usage),
        "cache_write": sum(u.cache_write for u in usage),
        "total": None if last is None else last.input + last.cache_read + last.cache_write,
    }


def _interrupted_message(now_ms: int) -> bytes:
    """A gateway-made assistant message (OPENCLAW-V3 8.4)."""
    return msgspec.json.encode(
        {
            "role": "assistant",
            "content": [],
            "api": "openai-responses",
            "provider": "openclaw",
            "model": "gateway-injected",
            "stopReason": "error",
            "errorMessage": INTERRUPTED,
            "timestamp": now_ms,
        }
    )
