"""Events to connections: who gets one, under which number, and what happens to those that do not read."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from skynet_memory.ids import ConnId, SessionKey, UserId
from skynet_protocol.events import EVENT_SCOPES, is_droppable
from skynet_protocol.frames import EncodedEvent, StateVersion
from skynet_protocol.scopes import Scope, satisfies
from skynet_users.caller import Caller

if TYPE_CHECKING:
    from skynet.gateway.connection import Connection

TOOL_EVENTS = "tool-events"
"""The capability of a client that shows what tools do."""
PUBLIC_EVENTS = frozenset({"tick", "shutdown"})
"""Events that say nothing about anybody."""
COPIED_EVENTS = frozenset({"agent", "chat"})
"""What a node gets of a session to which it subscribed."""
MAX_SUBSCRIPTIONS = 64
"""Sessions of which one node gets copies."""


class Broadcaster:
    """The ready connections, by person, and the only way an event gets to them.

    An event has an owner, and only that person's connections get it; ``owner=None`` is for what concerns nobody in
    particular (tick, shutdown) and must carry no person's data. Frames are numbered contiguously per connection:
    clients compare a ``seq`` only with the one they saw last (OPENCLAW-V3 1.5).

    Args:
        members: who is in a room now; nobody, if the owner is a person. What is a room's, its members get.
    """

    def __init__(self, members: Callable[[UserId], Collection[UserId]] = lambda owner: ()) -> None:
        self._members = members
        self._connections: dict[ConnId, Connection] = {}
        self._by_owner: dict[UserId, dict[ConnId, Connection]] = {}
        self._subscribers: dict[SessionKey, dict[ConnId, Connection]] = {}
        self._subscribed: dict[ConnId, set[SessionKey]] = {}
        self.withdrawals = 0
        """How often somebody lost rights. Who was let in with what was true before has to be looked at anew."""

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: "Connection") -> None:
        """Register a connection that is ready; it gets every event from the next one on."""
        self._connections[connection.conn_id] = connection
        self._by_owner.setdefault(connection.caller.user_id, {})[connection.conn_id] = connection

    def remove(self, connection: "Connection") -> None:
        """Forget a connection. Idempotent."""
        if self._connections.pop(connection.conn_id, None) is None:
            return
        for key in self._subscribed.get(connection.conn_id, set()).copy():
            self.unsubscribe(connection, key)
        owner = connection.caller.user_id
        siblings = self._by_owner[owner]
        del siblings[connection.conn_id]
        if not siblings:
            del self._by_owner[owner]

    def subscribe(self, connection: "Connection", key: SessionKey) -> bool:
        """Send a node, which may read nothing, what its person's clients are told of one of that person's sessions.

        Returns False if it has :data:`MAX_SUBSCRIPTIONS` already. It ends with the connection.
        """
        keys = self._subscribed.get(connection.conn_id, set())
        if connection.conn_id not in self._connections or (key not in keys and len(keys) >= MAX_SUBSCRIPTIONS):
            return False
        self._subscribed.setdefault(connection.conn_id, set()).add(key)
        self._subscribers.setdefault(key, {})[connection.conn_id] = connection
        return True

    def unsubscribe(self, connection: "Connection", key: SessionKey) -> None:
        """End that. Idempotent."""
        if (keys := self._subscribed.get(connection.conn_id)) is None or key not in keys:
            return
        keys.discard(key)
        if not keys:
            del self._subscribed[connection.conn_id]
        del self._subscribers[key][connection.conn_id]
        if not self._subscribers[key]:
            del self._subscribers[key]

    def get(self, conn_id: ConnId | None) -> "Connection | None":
        """The connection, if it is still there."""
        return None if conn_id is None else self._connections.get(conn_id)

    def of(self, owner: UserId) -> "list[Connection]":
        """The ready connections of a person, or of all who are in a room."""
        people = (owner, *self._members(owner))
        return [connection for each in people for connection in self._by_owner.get(each, {}).values()]

    def all(self) -> "list[Connection]":
        """Every ready connection."""
        return list(self._connections.values())

    def publish(
        self,
        event: str,
        payload: object,
        *,
        owner: UserId | None,
        state_version: StateVersion | None = None,
    ) -> None:
        """Send ``event`` to the owner's connections that may see it. Encoded once for all of them."""
        targets = self.all() if owner is None else self.of(owner)
        if targets:
            encoded = EncodedEvent(event, payload, state_version=state_version)
            self._send(targets, event, encoded, droppable=is_droppable(event))

    def publish_to_session(
        self,
        event: str,
        key: SessionKey,
        payload: Callable[[str], object],
        *,
        owner: UserId,
        droppable: bool = False,
    ) -> None:
        """Send an event about a session, to each connection with the key in the form that its client holds.

        Args:
            payload: makes the payload for one form of the key; called once for each form in use, most often one.
        """
        forms: dict[str, list[Connection]] = {}
        for connection in self.of(owner):
            forms.setdefault(connection.form_of(key), []).append(connection)
        for form, targets in forms.items():
            self._send(targets, event, EncodedEvent(event, payload(form)), droppable=droppable)
        if event in COPIED_EVENTS and (subscribers := self._subscribers.get(key)):
            for connection in [each for each in subscribers.values() if each.caller.user_id == owner]:
                frame = EncodedEvent(event, payload(connection.form_of(key))).with_seq(None)
                connection.send_event(partial(_always, frame), droppable=droppable, numbered=False)

    def publish_to_watchers(
        self,
        event: str,
        key: SessionKey,
        payload: Callable[[str], object],
        *,
        owner: UserId,
        watchers: Collection[ConnId],
    ) -> None:
        """Send what a run's tools do to those of the owner's connections that started or joined it and can show it.

        Such an event has no number: the others of the connection do not see that they missed it (OPENCLAW-V3 7.3).
        """
        scope = required_scope(event)
        for connection in [connection for connection in self.of(owner) if connection.conn_id in watchers]:
            if TOOL_EVENTS in connection.caps and _may_see(connection.caller, scope):
                frame = EncodedEvent(event, payload(connection.form_of(key))).with_seq(None)
                connection.send_event(partial(_always, frame), droppable=True, numbered=False)

    def _send(self, targets: Iterable["Connection"], event: str, encoded: EncodedEvent, *, droppable: bool) -> None:
        scope = required_scope(event)
        for connection in targets:
            if _may_see(connection.caller, scope):
                connection.send_event(encoded.with_seq, droppable=droppable)


def _always(frame: bytes, seq: int) -> bytes:
    return frame


def _may_see(caller: Caller, scope: str | None) -> bool:
    return scope is None or (caller.gateway_role == "operator" and satisfies(caller.scopes, scope))


def required_scope(event: str) -> str | None:
    """The scope a connection needs to get ``event``; ``None`` for what everybody connected gets, nodes too."""
    return None if event in PUBLIC_EVENTS else EVENT_SCOPES.get(event, Scope.READ.value)
