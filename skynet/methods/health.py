"""``health`` and ``status``."""

from collections.abc import Awaitable

import msgspec

from skynet.gateway.dispatch import method
from skynet.gateway.health import HIDDEN_PATH, HealthBoard
from skynet.gateway.heartbeat import Heartbeats, SystemEvents
from skynet.gateway.keys import render_key
from skynet.gateway.session_view import kind_of, model_of, setting
from skynet_agent.router import Router
from skynet_memory.ids import DEFAULT_AGENT, now_ms
from skynet_memory.sessions import Session, SessionQuery, SessionStore
from skynet_protocol.health import (
    HealthParams,
    StatusAgentSessions,
    StatusDefaults,
    StatusHeartbeat,
    StatusHeartbeatAgent,
    StatusParams,
    StatusResult,
    StatusSession,
    StatusSessions,
)
from skynet_protocol.scopes import Scope, satisfies
from skynet_users.caller import Caller

RECENT = 10


class HealthMethods:
    """How the gateway is, as far as it concerns the caller."""

    def __init__(
        self,
        *,
        board: HealthBoard,
        sessions: SessionStore,
        heartbeats: Heartbeats,
        events: SystemEvents,
        router: Router,
        store_path: str,
    ) -> None:
        self._board = board
        self._sessions = sessions
        self._heartbeats = heartbeats
        self._events = events
        self._router = router
        self._store_path = store_path

    @method("health")
    def health(self, caller: Caller, params: HealthParams) -> msgspec.Raw | Awaitable[msgspec.Raw]:
        """The caller's snapshot, at most a minute old; a new one with ``probe``. Any connection may ask.

        A connection that may not read gets it without session keys.
        """
        if params.probe is True:
            return self._board.fresh(caller)
        return self._board.current(caller)

    @method("status")
    async def status(self, caller: Caller, params: StatusParams) -> StatusResult:
        """A summary for people. Paths, models and sessions are for the admin scope alone (OPENCLAW-V3 6.3)."""
        owner = caller.user_id
        summary = self._heartbeats.summary()
        count = await self._sessions.count(owner)
        admin = satisfies(caller.scopes, Scope.ADMIN)
        recent: list[StatusSession] = []
        defaults = StatusDefaults(model=None, context_tokens=None)
        if admin:
            default = self._router.default()
            defaults = StatusDefaults(model=default.model or None, context_tokens=default.context_window)
            now = now_ms()
            sessions = await self._sessions.list(owner, SessionQuery(limit=RECENT))
            recent = [self._session(session, now) for session in sessions]
        agent = StatusAgentSessions(
            agent_id=DEFAULT_AGENT,
            path=self._store_path if admin else HIDDEN_PATH,
            count=count,
            recent=[session for session in recent if session.agent_id == DEFAULT_AGENT],
        )
        heartbeat = StatusHeartbeatAgent(
            agent_id=DEFAULT_AGENT, enabled=summary.enabled, every=summary.every, every_ms=summary.every_ms
        )
        return StatusResult(
            heartbeat=StatusHeartbeat(default_agent_id=DEFAULT_AGENT, agents=[heartbeat]),
            channel_summary=[],
            queued_system_events=self._events.queued(owner),
            sessions=StatusSessions(
                paths=[self._store_path] if admin else [],
                count=count,
                defaults=defaults,
                recent=recent,
                by_agent=[agent],
            ),
        )

    def _session(self, session: Session, now: int) -> StatusSession:
        model = model_of(session.model, self._router)
        window = model.context_window or session.context_tokens
        total = session.total_tokens or None
        return StatusSession(
            agent_id=session.agent_id,
            key=render_key(session.key),
            kind=kind_of(session),
            session_id=session.session_id,
            updated_at=session.updated_at_ms,
            age=max(0, now - session.updated_at_ms),
            system_sent=session.system_sent,
            aborted_last_run=session.aborted_last_run,
            total_tokens=total,
            total_tokens_fresh=total is not None,
            remaining_tokens=max(0, window - total) if window and total else None,
            percent_used=min(999, round(total * 100 / window)) if window and total else None,
            model=model.model or None,
            context_tokens=window,
            flags=_flags(session),
            thinking_level=setting(session, "thinkingLevel"),
            verbose_level=setting(session, "verboseLevel"),
            reasoning_level=setting(session, "reasoningLevel"),
            elevated_level=setting(session, "elevatedLevel"),
            input_tokens=session.input_tokens,
            output_tokens=session.output_tokens,
            cache_read=session.cache_read,
            cache_write=session.cache_write,
        )


def _flags(session: Session) -> list[str]:
    levels = {
        "think": "thinkingLevel",
        "verbose": "verboseLevel",
        "reasoning": "reasoningLevel",
        "elevated": "elevatedLevel",
    }
    flags = [f"{short}:{level}" for short, name in levels.items() if (level := setting(session, name))]
    if session.system_sent:
        flags.append("system")
    if session.aborted_last_run:
        flags.append("aborted")
    return [*flags, f"id:{session.session_id}"]
