"""``sessions.*``: what a client may do with its person's conversations (OPENCLAW-V3 6.4)."""

import asyncio
import math
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from skynet.gateway.dispatch import method
from skynet.gateway.keys import owner_of, render_key, resolve_key, room_of
from skynet.gateway.rooms import Rooms
from skynet.gateway.run_hooks import SessionEnd, not_told
from skynet.gateway.session_levels import normalise
from skynet.gateway.session_view import ModelRef, entry, list_row, model_of
from skynet.gateway.transcript import MAX_PREVIEW_ITEMS, preview_items
from skynet_agent.errors import UnknownModel
from skynet_agent.router import Router
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import DEFAULT_AGENT, AgentId, SessionId, SessionKey, UserId, now_ms
from skynet_memory.keys import InvalidSessionKey, parse_key
from skynet_memory.sessions import Json, Session, SessionChanges, SessionQuery, SessionRow, SessionStore
from skynet_memory.transcripts import Entry, TranscriptStore
from skynet_protocol.errors import DetailCode, ErrorCode, RequestError, shorten
from skynet_protocol.sessions import (
    ResolvedModelRef,
    SessionModelDefaults,
    SessionPreview,
    SessionsCompactParams,
    SessionsCompactResult,
    SessionsDeleteParams,
    SessionsDeleteResult,
    SessionsListParams,
    SessionsListResult,
    SessionsPatchParams,
    SessionsPatchResult,
    SessionsPreviewParams,
    SessionsPreviewResult,
    SessionsResetParams,
    SessionsResetResult,
    SessionsResolveParams,
    SessionsResolveResult,
)
from skynet_users.caller import Caller

AbortSession: TypeAlias = Callable[[UserId, SessionKey], Awaitable[object]]
"""Stops the active runs of a session and returns when their end is stored."""

Archived: TypeAlias = Callable[[UserId, SessionKey, SessionId], object]
"""Is told of a transcript that a reset put away; returns at once."""

ABORT_TIMEOUT_S = 15.0
"""How long a reset or delete waits for an active run to end."""
MAX_PREVIEWED = 64
MAIN_NAME = "main"
CACHED_PAGES = 512
CACHED_BYTES = 16 * 1024 * 1024
_LIST_HEAD = b'{"ts":0'


class SessionMethods:
    """Everything here is about the caller's own sessions; another person's do not exist for it. Of a room's there are
    previews, for who is in it."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        transcripts: TranscriptStore,
        router: Router,
        abort_session: AbortSession,
        ended: SessionEnd = not_told,
        store_path: str,
        archived: Archived | None = None,
        rooms: Rooms | None = None,
        abort_timeout_s: float = ABORT_TIMEOUT_S,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._sessions = sessions
        self._transcripts = transcripts
        self._router = router
        self._abort_session = abort_session
        self._ended = ended
        self._store_path = store_path
        self._archived = archived
        self._rooms = rooms
        self._abort_timeout_s = abort_timeout_s
        self._clock = clock
        self._pages = _Pages()

    @method("sessions.list")
    def list_sessions(self, caller: Caller, params: SessionsListParams) -> msgspec.Raw | Awaitable[msgspec.Raw]:
        """A page of sessions, newest first, at most 1000.

        Clients ask for this after every message, so an answer is kept encoded until the person's sessions change; only
        ``ts`` differs between two.
        """
        version = self._sessions.version(caller.user_id)
        now = self._clock()
        body = self._pages.get((caller.user_id, params), version, now)
        if body is None:
            return self._list(caller.user_id, params, version, now)
        return msgspec.Raw(b'{"ts":%d%b' % (now, body))

    async def _list(self, owner: UserId, params: SessionsListParams, version: int, now: int) -> msgspec.Raw:
        active_ms = params.active_minutes * 60_000 if params.active_minutes else None
        rows = await self._sessions.list(
            owner,
            SessionQuery(
                limit=params.limit or None,
                active_since_ms=max(0, now - active_ms) if active_ms is not None else None,
                search=params.search.strip(),
                label=params.label.strip() if params.label else "",
                agent_id=AgentId(params.agent_id.strip().lower()) if params.agent_id else None,
                spawned_by=params.spawned_by or "",
                with_titles=params.include_derived_titles,
                with_last_message=params.include_last_message,
            ),
        )
        result = self._page([row for row in rows if not _is_cron_run(row)])
        encoded = msgspec.json.encode(result)
        assert encoded.startswith(_LIST_HEAD)
        body = encoded[len(_LIST_HEAD) :]
        valid_until = (
            math.inf if active_ms is None else min((row.updated_at_ms + active_ms for row in rows), default=now)
        )
        self._pages.put((owner, params), _Page(version, valid_until, body))
        return msgspec.Raw(b'{"ts":%d%b' % (now, body))

    def _page(self, rows: list[SessionRow]) -> SessionsListResult:
        models: dict[str, ModelRef] = {}
        for name in {"", *(row.model for row in rows)}:
            models[name] = model_of(name, self._router)
        default = models[""]
        return SessionsListResult(
            ts=0,
            path=self._store_path,
            count=len(rows),
            defaults=SessionModelDefaults(
                model_provider=default.provider or None,
                model=default.model or None,
                context_tokens=default.context_window,
            ),
            sessions=[list_row(row, models[row.model]) for row in rows],
        )

    @method("sessions.preview")
    async def preview(self, caller: Caller, params: SessionsPreviewParams) -> SessionsPreviewResult:
        """The last lines of up to 64 conversations, for a list of them."""
        asked = [text for key in params.keys if (text := key.strip())][:MAX_PREVIEWED]
        keys: dict[str, SessionKey | None] = {}
        failed: set[str] = set()
        for text in asked:
            try:
                keys[text] = resolve_key(caller, text, self._rooms)
            except SessionNotFound:
                keys[text] = None
            except (RequestError, InvalidSessionKey):
                failed.add(text)
        wanted = list({key for key in keys.values() if key is not None})
        tails = await self._tails(caller, wanted, min(params.limit, MAX_PREVIEW_ITEMS))
        previews = []
        for text in asked:
            entries = tails.get(key) if (key := keys.get(text)) is not None else None
            if text in failed:
                previews.append(SessionPreview(key=text, status="error", items=[]))
            elif entries is None:
                previews.append(SessionPreview(key=text, status="missing", items=[]))
            else:
                items = preview_items(entries, limit=params.limit, max_chars=params.max_chars)
                previews.append(SessionPreview(key=text, status="ok" if items else "empty", items=items))
        return SessionsPreviewResult(ts=self._clock(), previews=previews)

    async def _tails(
        self, caller: Caller, keys: Sequence[SessionKey], limit: int
    ) -> Mapping[SessionKey, Sequence[Entry]]:
        """The last entries of the caller's own sessions, and of rooms those that the caller may read."""
        tails: dict[SessionKey, Sequence[Entry]] = {}
        tails |= await self._transcripts.tail(caller.user_id, [key for key in keys if room_of(key) is None], limit)
        for key in keys:
            if self._rooms is None or room_of(key) is None:
                continue
            with suppress(SessionNotFound):
                from_ms = await self._rooms.visible_from_ms(caller.user_id, key)
                for found, entries in (await self._transcripts.tail(owner_of(key), [key], limit)).items():
                    tails[found] = [entry for entry in entries if entry.created_at_ms >= from_ms]
        return tails

    @method("sessions.resolve")
    async def resolve(self, caller: Caller, params: SessionsResolveParams) -> SessionsResolveResult:
        """The key of the session with this key, session id or label.

        Raises:
            RequestError: none or several of them are given, or no session has it.
        """
        asked = {
            name: text for name in ("key", "session_id", "label") if (text := (getattr(params, name) or "").strip())
        }
        if len(asked) > 1:
            raise _invalid("Provide either key, sessionId, or label (not multiple)")
        if not asked:
            raise _invalid("Either key, sessionId, or label is required")
        (name, text), *_ = asked.items()
        found = [session for session in await self._find(caller, name, text) if _matches(session, params)]
        if not found:
            with_label = " with label" if name == "label" else ""
            raise RequestError(f"No session found{with_label}: {shorten(text)}", details={"code": DetailCode.NOT_FOUND})
        return SessionsResolveResult(ok=True, key=render_key(found[0].key))

    async def _find(self, caller: Caller, name: str, text: str) -> list[Session]:
        if name == "label":
            return await self._sessions.by_label(caller.user_id, text)
        if name == "session_id":
            session = await self._sessions.by_session_id(caller.user_id, SessionId(text))
        else:
            try:
                session = await self._sessions.get(caller.user_id, resolve_key(caller, text))
            except SessionNotFound:
                session = None
        return [] if session is None else [session]

    @method("sessions.patch")
    async def patch(self, caller: Caller, params: SessionsPatchParams) -> SessionsPatchResult:
        """Change a session's label, model and levels; makes the session if there is none. No event is sent.

        Raises:
            RequestError: a value that is not allowed, or a webchat client asks.
            LabelInUse: another of the caller's sessions has the label.
            UnknownModel: a model that is neither configured nor of the form ``provider/model``.
        """
        key = _own_key(caller, params.key)
        _refuse_webchat(caller, "patch")
        before = await self._sessions.get(caller.user_id, key)
        settings: dict[str, Json] = {}
        for name, value in msgspec.to_builtins(params).items():
            if name not in ("key", "label", "model"):
                settings[name] = normalise(name, value)
        _check_spawn(key, settings, before.settings if before is not None else {})
        session = await self._sessions.patch(
            caller.user_id,
            key,
            SessionChanges(label=_label(params.label), model=self._model(params.model), settings=settings),
        )
        model = model_of(session.model, self._router)
        return SessionsPatchResult(
            ok=True,
            path=self._store_path,
            key=render_key(key),
            entry=entry(session, self._router),
            resolved=ResolvedModelRef(model_provider=model.provider, model=model.model),
        )

    def _model(self, name: str | UnsetType | None) -> str | None:
        """The name to store: "" for the default, ``None`` to leave it as it is.

        An alias or a pool is stored by its name, so that a pool keeps its other members to fall back on.
        """
        if name is UNSET:
            return None
        if name is None:
            return ""
        name = name.strip()
        if not name:
            raise _invalid("invalid model: empty")
        try:
            resolved = self._router.resolve(name)
        except UnknownModel:
            provider, slash, model = name.partition("/")
            if provider and slash and model:
                return name
            raise
        is_default = name == self._router.default_name or (name == resolved.name == self._router.default().name)
        return "" if is_default else name

    @method("sessions.reset")
    async def reset(self, caller: Caller, params: SessionsResetParams) -> SessionsResetResult:
        """Begin the conversation anew under the same key; makes the session if there is none.

        Raises:
            RequestError: a run of the session did not end in time (``UNAVAILABLE``).
        """
        key = _own_key(caller, params.key)
        await self._stop_runs(caller.user_id, key, params.key)
        before = await self._sessions.get(caller.user_id, key)
        session = await self._sessions.reset(caller.user_id, key)
        self._ended(caller, key, was_reset=True)
        if before is not None and self._archived is not None:
            self._archived(caller.user_id, key, before.session_id)
        return SessionsResetResult(ok=True, key=render_key(key), entry=entry(session, self._router))

    @method("sessions.delete")
    async def delete(self, caller: Caller, params: SessionsDeleteParams) -> SessionsDeleteResult:
        """Remove a session and, unless told otherwise, what was said in it.

        Raises:
            RequestError: it is the main session, a webchat client asks, or a run of it did not end in time.
        """
        key = _own_key(caller, params.key)
        _refuse_webchat(caller, "delete")
        parsed = parse_key(key)
        if (parsed.agent, parsed.name) == (DEFAULT_AGENT, MAIN_NAME):
            raise _invalid(f"Cannot delete the main session ({render_key(key)}).")
        await self._stop_runs(caller.user_id, key, params.key)
        deleted = await self._sessions.delete(caller.user_id, key, keep_transcript=not params.delete_transcript)
        if deleted:
            self._ended(caller, key, was_reset=False)
        return SessionsDeleteResult(ok=True, key=render_key(key), deleted=deleted, archived=[])

    @method("sessions.compact")
    async def compact(self, caller: Caller, params: SessionsCompactParams) -> SessionsCompactResult:
        """Let the conversation begin with its last ``maxLines`` entries; the older ones stay stored.

        No model is asked: what summaries told of the older ones is no longer told either (OPENCLAW-V3 6.4).
        """
        key = _own_key(caller, params.key)
        rendered = render_key(key)
        try:
            truncated = await self._transcripts.truncate_view(caller.user_id, key, params.max_lines)
        except SessionNotFound:
            return SessionsCompactResult(ok=True, key=rendered, compacted=False, reason="no sessionId")
        if truncated.kept == 0:
            return SessionsCompactResult(ok=True, key=rendered, compacted=False, reason="no transcript")
        return SessionsCompactResult(ok=True, key=rendered, compacted=truncated.covered > 0, kept=truncated.kept)

    async def _stop_runs(self, owner: UserId, key: SessionKey, shown: str) -> None:
        try:
            async with asyncio.timeout(self._abort_timeout_s):
                await self._abort_session(owner, key)
        except TimeoutError as exc:
            raise RequestError(
                f"Session {shorten(shown)} is still active; try again in a moment.",
                code=ErrorCode.UNAVAILABLE,
                details={"code": DetailCode.TIMEOUT},
                retryable=True,
            ) from exc


@dataclass(frozen=True, slots=True)
class _Page:
    """An encoded answer without its ``ts``: right for this version of the person's sessions, until ``valid_until``."""

    version: int
    valid_until_ms: float
    body: bytes


class _Pages:
    """Encoded answers by person and params; the least recently used go when they are too many or too large."""

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[UserId, SessionsListParams], _Page] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[UserId, SessionsListParams], version: int, now: int) -> bytes | None:
        page = self._pages.get(key)
        if page is None or page.version != version or page.valid_until_ms < now:
            return None
        self._pages.move_to_end(key)
        return page.body

    def put(self, key: tuple[UserId, SessionsListParams], page: _Page) -> None:
        old = self._pages.pop(key, None)
        self._bytes += _size(key[1], page) - (_size(key[1], old) if old is not None else 0)
        self._pages[key] = page
        while len(self._pages) > CACHED_PAGES or self._bytes > CACHED_BYTES:
            (_, params), oldest = self._pages.popitem(last=False)
            self._bytes -= _size(params, oldest)


def _size(params: SessionsListParams, page: _Page) -> int:
    """What an answer keeps in memory: the question is part of it, and may be as long as a frame."""
    texts = (params.search, params.label, params.spawned_by, params.agent_id)
    return len(page.body) + sum(sys.getsizeof(text) for text in texts)


def _own_key(caller: Caller, text: str) -> SessionKey:
    if not text.strip():
        raise _invalid("key required")
    return resolve_key(caller, text)


def _refuse_webchat(caller: Caller, action: str) -> None:
    """Browser chats change a session through what they send (OPENCLAW-V3 6.4)."""
    if caller.client_mode == "webchat" or caller.client_id == "webchat-ui":
        raise RequestError(
            f"webchat clients cannot {action} sessions; use chat.send for session-scoped updates",
            details={"code": DetailCode.FORBIDDEN},
        )


def _label(label: str | UnsetType | None) -> str | None:
    """The label to store: "" to clear it, ``None`` to leave it as it is."""
    if label is UNSET:
        return None
    if label is not None and not label.strip():
        raise _invalid("invalid label: empty")
    return (label or "").strip()


def _check_spawn(key: SessionKey, settings: dict[str, Json], stored: dict[str, Json]) -> None:
    """``spawnedBy`` and ``spawnDepth`` belong to sub-agents and are set once."""
    for name in ("spawnedBy", "spawnDepth"):
        if name not in settings:
            continue
        value, old = settings[name], stored.get(name)
        if value is None and old is not None:
            raise _invalid(f"{name} cannot be cleared once set")
        if value is not None and not parse_key(key).name.startswith("subagent:"):
            raise _invalid(f"{name} is only supported for subagent:* sessions")
        if value is not None and old not in (None, value):
            raise _invalid(f"{name} cannot be changed once set")


def _matches(session: Session, params: SessionsResolveParams) -> bool:
    if params.agent_id and session.agent_id != params.agent_id.strip().lower():
        return False
    return not params.spawned_by or session.settings.get("spawnedBy") == params.spawned_by


def _is_cron_run(session: Session) -> bool:
    """One run of a job; lists show only the job's own session."""
    return session.name.startswith("cron:") and ":run:" in session.name


def _invalid(message: str) -> RequestError:
    return RequestError(message, details={"code": DetailCode.INVALID_PARAMS})
