"""Health snapshots: answered at once, refreshed in the background, published when they change.

``health`` is the most frequent request there is (every client polls it), so a snapshot is kept encoded and handed out
as bytes. It is one person's: nobody sees how many sessions another has, or which.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.heartbeat import Heartbeats
from skynet.gateway.keys import render_key
from skynet.gateway.presence import StateVersions
from skynet.supervisor import Supervisor
from skynet_memory.ids import DEFAULT_AGENT, UserId, now_ms
from skynet_memory.sessions import Session, SessionQuery, SessionStore
from skynet_protocol.health import HealthAgent, HealthSession, HealthSessions, HealthSnapshot
from skynet_protocol.scopes import Scope, satisfies
from skynet_users.caller import Caller

MAX_AGE_S = 60.0
"""An older snapshot is not answered any more; as often, connected clients are sent a new one."""
MIN_REFRESH_S = 1.0
"""At least this long between two background refreshes of one person's snapshot."""
MAX_PEOPLE = 1024
"""Snapshots that are kept; the one that was not refreshed for longest goes first."""
RECENT = 5

EMPTY = msgspec.Raw(b"{}")
HIDDEN_PATH = "[redacted]"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a snapshot is made of, besides the time."""

    count: int
    recent: tuple[Session, ...]
    heartbeat_every_ms: int | None


@dataclass(slots=True)
class _Snapshot:
    """``full`` is for connections that may read; ``bare`` is without session keys, for nodes and the scopeless."""

    full: msgspec.Raw
    bare: msgspec.Raw
    facts: _Facts
    sessions_version: int
    taken_at_s: float
    published_at_s: float = -math.inf


class HealthBoard:
    """One snapshot a person, at most ``max_people`` of them.

    Args:
        clock: seconds, for ages.
        now: epoch milliseconds, for what clients see.
    """

    def __init__(
        self,
        *,
        sessions: SessionStore,
        heartbeats: Heartbeats,
        broadcaster: Broadcaster,
        versions: StateVersions,
        tasks: Supervisor,
        store_path: str,
        agent_name: str,
        max_people: int = MAX_PEOPLE,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self._sessions = sessions
        self._heartbeats = heartbeats
        self._broadcaster = broadcaster
        self._versions = versions
        self._tasks = tasks
        self._store_path = store_path
        self._agent_name = agent_name
        self._max_people = max_people
        self._clock = clock
        self._now = now
        self._snapshots: OrderedDict[UserId, _Snapshot] = OrderedDict()
        self._refreshing: dict[UserId, asyncio.Task[_Snapshot]] = {}

    def current(self, caller: Caller) -> msgspec.Raw | Awaitable[msgspec.Raw]:
        """The caller's snapshot: at once if there is one younger than :data:`MAX_AGE_S`, else when it is made.

        Starts a refresh unless one is running or the last is less than :data:`MIN_REFRESH_S` ago.
        """
        snapshot = self._snapshots.get(caller.user_id)
        if snapshot is None:
            return self.fresh(caller)
        age_s = self._clock() - snapshot.taken_at_s
        if age_s >= MIN_REFRESH_S:
            if age_s >= MAX_AGE_S:
                return self.fresh(caller)
            self._refresh(caller.user_id)
        return snapshot.full if _may_read(caller) else snapshot.bare

    async def fresh(self, caller: Caller) -> msgspec.Raw:
        """A snapshot that is made now; those who ask while it is being made share it."""
        snapshot = await asyncio.shield(self._refresh(caller.user_id))
        return snapshot.full if _may_read(caller) else snapshot.bare

    def latest(self, caller: Caller) -> msgspec.Raw:
        """What is known without waiting, for hello-ok: ``{}`` before the first snapshot."""
        snapshot = self._snapshots.get(caller.user_id)
        if snapshot is None:
            return EMPTY
        return snapshot.full if _may_read(caller) else snapshot.bare

    def client_connected(self, caller: Caller) -> None:
        """A client is ready: make its person's snapshot anew, which reaches all their clients if it differs."""
        self._refresh(caller.user_id)

    async def keep_fresh(self, interval_s: float = MAX_AGE_S) -> None:
        """Each ``interval_s``, send everybody connected a new snapshot, changed or not. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            since_s = self._clock()
            owners = {connection.caller.user_id for connection in self._broadcaster.all()}
            tasks = {owner: self._refresh(owner) for owner in owners}
            if tasks:
                await asyncio.wait(tasks.values())
            for owner, task in tasks.items():
                if not task.cancelled() and task.exception() is None and task.result().published_at_s < since_s:
                    self._publish(owner, task.result())

    def _refresh(self, owner: UserId) -> asyncio.Task[_Snapshot]:
        """The running refresh of this person's snapshot, started if there is none."""
        task = self._refreshing.get(owner)
        if task is None:
            task = self._refreshing[owner] = self._tasks.start(self._take(owner), name="health refresh")
            task.add_done_callback(lambda _: self._refreshing.pop(owner, None))
        return task

    async def _take(self, owner: UserId) -> _Snapshot:
        started_s = self._clock()
        before = self._snapshots.get(owner)
        version = self._sessions.version(owner)
        if before is not None and before.sessions_version == version:
            facts = replace(before.facts, heartbeat_every_ms=self._heartbeats.every_ms)
        else:
            facts = _Facts(
                count=await self._sessions.count(owner),
                recent=tuple(await self._sessions.list(owner, SessionQuery(limit=RECENT))),
                heartbeat_every_ms=self._heartbeats.every_ms,
            )
        duration_ms = round((self._clock() - started_s) * 1000)
        snapshot = _Snapshot(
            full=self._encode(facts, self._store_path, facts.recent, duration_ms),
            bare=self._encode(facts, HIDDEN_PATH, (), duration_ms),
            facts=facts,
            sessions_version=version,
            taken_at_s=self._clock(),
        )
        if before is None or before.facts != facts:
            self._publish(owner, snapshot)
        else:
            snapshot.published_at_s = before.published_at_s
        self._snapshots[owner] = snapshot
        self._snapshots.move_to_end(owner)
        if len(self._snapshots) > self._max_people:
            self._snapshots.popitem(last=False)
        return snapshot

    def _publish(self, owner: UserId, snapshot: _Snapshot) -> None:
        snapshot.published_at_s = self._clock()
        self._versions.health += 1
        self._broadcaster.publish("health", snapshot.full, owner=owner, state_version=self._versions.wire())

    def _encode(self, facts: _Facts, path: str, recent: Sequence[Session], duration_ms: int) -> msgspec.Raw:
        now = self._now()
        sessions = HealthSessions(
            path=path,
            count=facts.count,
            recent=[
                HealthSession(
                    key=render_key(session.key),
                    updated_at=session.updated_at_ms,
                    age=max(0, now - session.updated_at_ms),
                )
                for session in recent
            ],
        )
        agent = HealthAgent(
            agent_id=DEFAULT_AGENT,
            name=self._agent_name,
            is_default=True,
            heartbeat=self._heartbeats.summary(),
            sessions=sessions,
        )
        snapshot = HealthSnapshot(
            ok=True,
            ts=now,
            duration_ms=duration_ms,
            channels={},
            channel_order=[],
            channel_labels={},
            heartbeat_seconds=(facts.heartbeat_every_ms or 0) // 1000,
            default_agent_id=DEFAULT_AGENT,
            agents=[agent],
            sessions=sessions,
        )
        return msgspec.Raw(msgspec.json.encode(snapshot))


def _may_read(caller: Caller) -> bool:
    return caller.gateway_role == "operator" and satisfies(caller.scopes, Scope.READ)
