"""Sessions: a person's conversations, each under a key, newest first."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, cast

import msgspec

from skynet_memory.database import Database, Row, Statements, Value
from skynet_memory.errors import LabelInUse, SessionNotFound
from skynet_memory.ids import AgentId, SessionId, SessionKey, UserId, new_id, now_ms
from skynet_memory.keys import parse_key

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

MAX_LISTED: Final = 1000
"""Sessions in one answer, whatever the query asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation as it was when it was read."""

    key: SessionKey
    session_id: SessionId
    """Names the transcript. A reset gives the key a new one."""
    owner: UserId
    agent_id: AgentId
    name: str
    label: str
    """Chosen by the person, unique among theirs; empty for none."""
    model: str
    """The session's own ``provider/model``; empty for the default."""
    settings: dict[str, Json]
    """Levels and switches by their wire names: thinkingLevel, sendPolicy, spawnedBy …"""
    origin: dict[str, Json]
    """Where the last message came from: label, provider, surface, chatType …"""
    display_name: str
    last_model: str
    last_provider: str
    context_tokens: int | None
    """Size of the last model's context window, if known."""
    input_tokens: int
    output_tokens: int
    cache_read: int
    cache_write: int
    total_tokens: int
    """What the last model call had in its context; the four before are sums since the last reset."""
    system_sent: bool
    aborted_last_run: bool
    compaction_count: int
    created_at_ms: int
    updated_at_ms: int
    """Grows strictly with every message, also when the clock stands or steps back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Session):
    """A session in a list. The texts are empty unless the query asked for them."""

    derived_title: str
    """The first message of the person, at most 60 characters."""
    last_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """All given conditions must hold."""

    limit: int | None = None
    """At most this many, the newest; None for as many as there are, up to ``MAX_LISTED``."""
    active_since_ms: int | None = None
    search: str = ""
    """In display name, label, session id, key and origin label; case does not matter."""
    label: str = ""
    agent_id: AgentId | None = None
    spawned_by: str = ""
    with_titles: bool = False
    with_last_message: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanges:
    """None leaves a field as it is; an empty string clears it."""

    label: str | None = None
    model: str | None = None
    display_name: str | None = None
    settings: Mapping[str, Json] | None = None
    """Laid over the stored ones; a key with None is removed."""


class SessionStore:
    """Every method sees only the sessions of ``owner``; others do not exist for it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def version(self, owner: UserId) -> int:
        """Grows with each committed change of this person's sessions or transcripts, before the change returns."""
        return self._db.version(topic(owner))

    async def get_or_create(
        self,
        owner: UserId,
        key: SessionKey,
        *,
        origin: Mapping[str, Json] | None = None,
        display_name: str = "",
        at_ms: int | None = None,
    ) -> Session:
        """One upsert: an existing session is refreshed (``updated_at_ms``, and origin and display name if given).

        Raises:
            InvalidSessionKey: not a key.
            SessionNotFound: another person's key.
        """
        fresh = new_session(owner, key, now_ms() if at_ms is None else at_ms, origin=origin, display_name=display_name)

        def work(tx: Statements) -> Row:
            tx.changed(topic(owner))
            return upsert(tx, fresh)

        return read_session(await self._db.write(work))

    async def get(self, owner: UserId, key: SessionKey) -> Session | None:
        row = await self._db.fetchone("SELECT * FROM sessions WHERE owner = ? AND key = ?", (owner, key))
        return None if row is None else read_session(row)

    async def by_session_id(self, owner: UserId, session_id: SessionId) -> Session | None:
        row = await self._db.fetchone("SELECT * FROM sessions WHERE owner = ? AND session_id = ?", (owner, session_id))
        return None if row is None else read_session(row)

    async def by_label(self, owner: UserId, label: str) -> list[Session]:
        """At most one; none for the empty label."""
        rows = await self._db.fetchall(
            "SELECT * FROM sessions WHERE owner = ? AND label = ? AND label <> ''", (owner, label)
        )
        return [read_session(row) for row in rows]

    async def list(self, owner: UserId, query: SessionQuery | None = None) -> list[SessionRow]:
        """Newest first. Without ``search`` and ``spawned_by`` the cost depends on the page, not on what is stored."""
        sql, params = list_statement(owner, query or SessionQuery())
        return [_read_row(row) for row in await self._db.fetchall(sql, params)]

    async def count(self, owner: UserId, agent_id: AgentId | None = None) -> int:
        """Kept by triggers in ``session_counts``, one row an agent, so it costs the same however many there are."""
        row = await self._db.fetchone(
            "SELECT coalesce(sum(count), 0) FROM session_counts WHERE owner = ?1 AND (?2 IS NULL OR agent_id = ?2)",
            (owner, agent_id),
        )
        return 0 if row is None else cast(int, row[0])

    async def patch(self, owner: UserId, key: SessionKey, changes: SessionChanges) -> Session:
        """Change what the person chose; creates the session if it is missing. ``updated_at_ms`` stays.

        Raises:
            LabelInUse: another session of this person has the label.
            InvalidSessionKey, SessionNotFound: as ``get_or_create``.
        """
        fresh = new_session(owner, key, now_ms())

        def work(tx: Statements) -> Row:
            tx.changed(topic(owner))
            row = _find(tx, owner, key) or upsert(tx, fresh)
            if changes.label and tx.fetchone(
                "SELECT 1 FROM sessions WHERE owner = ? AND label = ? AND key <> ?", (owner, changes.label, key)
            ):
                raise LabelInUse(changes.label)
            settings = {**_read_json(row["settings"]), **(changes.settings or {})}
            return _one(
                tx.fetchone(
                    "UPDATE sessions SET label = coalesce(?, label), model = coalesce(?, model),"
                    " display_name = coalesce(?, display_name), settings = ? WHERE owner = ? AND key = ? RETURNING *",
                    (
                        changes.label,
                        changes.model,
                        changes.display_name,
                        _write_json({name: value for name, value in settings.items() if value is not None}),
                        owner,
                        key,
                    ),
                )
            )

        return read_session(await self._db.write(work))

    async def reset(self, owner: UserId, key: SessionKey, *, at_ms: int | None = None) -> Session:
        """Start over under a new session id: counters 0, settings, model, label and origin kept; creates if missing.

        The old transcript stays readable under the old id.
        """
        at_ms = now_ms() if at_ms is None else at_ms
        fresh = new_session(owner, key, at_ms)
        session_id = new_id()

        def work(tx: Statements) -> Row:
            tx.changed(topic(owner))
            if not _archive(tx, owner, key, at_ms):
                return upsert(tx, fresh)
            return _one(
                tx.fetchone(
                    "UPDATE sessions SET session_id = ?, leaf_entry = NULL, title = '', last_message = '',"
                    " input_tokens = 0, output_tokens = 0, cache_read = 0, cache_write = 0, total_tokens = 0,"
                    " compaction_count = 0, system_sent = 0, aborted_last_run = 0,"
                    " updated_at_ms = max(?, updated_at_ms + 1) WHERE owner = ? AND key = ? RETURNING *",
                    (session_id, at_ms, owner, key),
                )
            )

        return read_session(await self._db.write(work))

    async def delete(self, owner: UserId, key: SessionKey, *, keep_transcript: bool = False) -> bool:
        """Remove the session; False if there is none.

        Unless ``keep_transcript``, all that was said under this key goes with it, transcripts of earlier session ids
        and stored answers included. What was spent stays in the usage.
        """
        at_ms = now_ms()

        def work(tx: Statements) -> bool:
            if not _archive(tx, owner, key, at_ms):
                return False
            tx.changed(topic(owner))
            tx.execute("DELETE FROM sessions WHERE owner = ? AND key = ?", (owner, key))
            if not keep_transcript:
                _erase_archived(tx, owner, key)
            return True

        return await self._db.write(work)


# Shared with the turns, whose transactions touch sessions too


def topic(owner: UserId) -> str:
    return f"sessions:{owner}"


def new_session(
    owner: UserId,
    key: SessionKey,
    at_ms: int,
    *,
    origin: Mapping[str, Json] | None = None,
    display_name: str = "",
) -> dict[str, Value]:
    """The values of ``upsert`` for a session that may not exist yet."""
    parsed = parse_key(key)
    if parsed.user != owner:
        raise SessionNotFound(key)
    return {
        "owner": owner,
        "key": key,
        "session_id": new_id(),
        "agent_id": parsed.agent,
        "name": parsed.name,
        "origin": _write_json(origin or {}),
        "display_name": display_name,
        "at_ms": at_ms,
    }


def upsert(tx: Statements, fresh: Mapping[str, Value]) -> Row:
    return _one(tx.fetchone(_UPSERT, fresh))


def is_transcript(tx: Statements, owner: UserId, session_id: SessionId) -> bool:
    """Whether this id names a transcript of this person already, a session's own or an archived one."""
    row = tx.fetchone(
        "SELECT 1 FROM sessions WHERE owner = :owner AND session_id = :session_id UNION ALL"
        " SELECT 1 FROM archived_transcripts WHERE owner = :owner AND session_id = :session_id",
        {"owner": owner, "session_id": session_id},
    )
    return row is not None


_UPSERT: Final = """
    INSERT INTO sessions (owner, key, session_id, agent_id, name, label, model, settings, origin, display_name,
        last_model, last_provider, input_tokens, output_tokens, cache_read, cache_write, total_tokens,
        system_sent, aborted_last_run, compaction_count, created_at_ms, updated_at_ms, title, last_message)
    VALUES (:owner, :key, :session_id, :agent_id, :name, '', '', '{}', :origin, :display_name,
        '', '', 0, 0, 0, 0, 0, 0, 0, 0, :at_ms, :at_ms, '', '')
    ON CONFLICT (owner, key) DO UPDATE SET
        updated_at_ms = max(excluded.updated_at_ms, updated_at_ms + 1),
        origin = iif(excluded.origin = '{}', origin, excluded.origin),
        display_name = iif(excluded.display_name = '', display_name, excluded.display_name)
    RETURNING *
"""


def list_statement(owner: UserId, query: SessionQuery) -> tuple[str, dict[str, Value]]:
    """The SQL of ``list`` and its parameters."""
    conditions = ["owner = :owner"]
    params: dict[str, Value] = {
        "owner": owner,
        "limit": MAX_LISTED if query.limit is None else max(0, min(query.limit, MAX_LISTED)),
    }
    if query.agent_id is not None:
        conditions.append("agent_id = :agent_id")
        params["agent_id"] = query.agent_id
    if query.active_since_ms is not None:
        conditions.append("updated_at_ms >= :active_since_ms")
        params["active_since_ms"] = query.active_since_ms
    if query.label:
        # "label <> ''" lets the partial index serve
        conditions.append("label = :label AND label <> ''")
        params["label"] = query.label
    if query.spawned_by:
        conditions.append("json_extract(settings, '$.spawnedBy') = :spawned_by")
        params["spawned_by"] = query.spawned_by
    if query.search:
        conditions.append(
            "instr(casefold(display_name || char(10) || label || char(10) || session_id || char(10) || key"
            " || char(10) || coalesce(json_extract(origin, '$.label'), '')), :search)"
        )
        params["search"] = query.search.casefold()
    title = "title" if query.with_titles else "''"
    last_message = "last_message" if query.with_last_message else "''"
    sql = (
        f"SELECT {_SESSION_COLUMNS}, {title} AS derived_title, {last_message} AS last_message"  # noqa: S608 - fixed texts
        f" FROM sessions WHERE {' AND '.join(conditions)} ORDER BY updated_at_ms DESC, key DESC LIMIT :limit"
    )
    return sql, params


_SESSION_FIELDS: Final = tuple(field.name for field in fields(Session))
_SESSION_COLUMNS: Final = ", ".join(_SESSION_FIELDS)


def read_session(row: Row) -> Session:
    return Session(**_session_fields(row))


def _read_row(row: Row) -> SessionRow:
    return SessionRow(**_session_fields(row), derived_title=row["derived_title"], last_message=row["last_message"])


def _session_fields(row: Row) -> dict[str, Any]:
    values: dict[str, Any] = {name: row[name] for name in _SESSION_FIELDS}
    values["settings"] = _read_json(values["settings"])
    values["origin"] = _read_json(values["origin"])
    values["system_sent"] = bool(values["system_sent"])
    values["aborted_last_run"] = bool(values["aborted_last_run"])
    return values


def _find(tx: Statements, owner: UserId, key: SessionKey) -> Row | None:
    return tx.fetchone("SELECT * FROM sessions WHERE owner = ? AND key = ?", (owner, key))


def _archive(tx: Statements, owner: UserId, key: SessionKey, at_ms: int) -> bool:
    """Keep the transcript findable by its session id; False if there is no such session."""
    return bool(
        tx.execute(
            "INSERT INTO archived_transcripts (session_id, owner, key, leaf_entry, archived_at_ms)"
            " SELECT session_id, owner, key, leaf_entry, ? FROM sessions WHERE owner = ? AND key = ?",
            (at_ms, owner, key),
        )
    )


def _erase_archived(tx: Statements, owner: UserId, key: SessionKey) -> None:
    tx.execute(
        "INSERT INTO erasing SELECT owner, session_id FROM archived_transcripts WHERE owner = ? AND key = ?",
        (owner, key),
    )
    tx.execute("DELETE FROM entries WHERE owner = ? AND session_id IN (SELECT session_id FROM erasing)", (owner,))
    tx.execute("DELETE FROM erasing")
    tx.execute("DELETE FROM archived_transcripts WHERE owner = ? AND key = ?", (owner, key))
    tx.execute("UPDATE dedupe SET response = NULL WHERE owner = ? AND key = ?", (owner, key))


def _one(row: Row | None) -> Row:
    assert row is not None, "the statement returns the row it wrote"
    return row


def _read_json(text: str) -> dict[str, Json]:
    return {} if text == "{}" else cast("dict[str, Json]", msgspec.json.decode(text))


def _write_json(value: Mapping[str, Json]) -> str:
    return msgspec.json.encode(value).decode() if value else "{}"
