"""A connection: challenge, connect, ready, closed; and no way back (OPENCLAW-V3 2)."""

import asyncio
import logging
import secrets
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from skynet.config import LimitsConfig
from skynet.gateway.auth import Admission, Authenticator
from skynet.gateway.authorize import authorize_method
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.dispatch import Dispatcher
from skynet.gateway.errors import error_shape
from skynet.gateway.keys import render_key
from skynet.gateway.peer import PeerInfo
from skynet.gateway.presence import PresenceTable
from skynet.supervisor import Supervisor
from skynet_memory.ids import ConnId, SessionKey, now_ms
from skynet_protocol.connect import ConnectParams, HelloOk, read_connect, refuse_frame
from skynet_protocol.errors import (
    CLOSE_INTERNAL_ERROR,
    CLOSE_POLICY,
    CLOSE_SERVICE_RESTART,
    Refusal,
    RequestError,
    UnauthorizedRole,
)
from skynet_protocol.events import ConnectChallenge, ShutdownEvent
from skynet_protocol.frames import (
    EncodedEvent,
    Violation,
    ViolationKind,
    encode_error,
    encode_response,
    parse_request,
)
from skynet_protocol.methods import authorize
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden

log = logging.getLogger(__name__)

MAX_ROLE_REFUSALS = 10
"""Consecutive calls refused with ``unauthorized role`` before the connection is closed (OPENCLAW-V3 1.6)."""
MAX_IN_FLIGHT = 256
"""Requests of one connection that may be unanswered; beyond it the connection is not read until some are."""
READ_TIMEOUT_S = 0.2
"""How long events wait at most for a client to have read an answer."""
MAX_HELD_KEYS = 256
"""Session keys whose own spelling is remembered for one connection."""


class Wire(Protocol):
    """The socket under a connection."""

    def send_text(self, data: bytes) -> None: ...

    def buffered_bytes(self) -> int: ...

    def allow_frames_of(self, limit_bytes: int) -> None: ...

    def pause_reading(self, why: str) -> None:
        """Hand over no message, not even one that has arrived already, before every ``why`` was resumed."""

    def resume_reading(self, why: str) -> None: ...

    def close(self, code: int, reason: str) -> None: ...

    def ping(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Gateway:
    """What every connection shares; built once, in :mod:`skynet.app`."""

    limits: LimitsConfig
    tasks: Supervisor
    authenticator: Authenticator
    dispatcher: Dispatcher
    broadcaster: Broadcaster
    presence: PresenceTable
    greet: Callable[[Admission, ConnId], HelloOk]
    connected: Callable[[Caller], None]
    refused: Callable[[Caller, str, Forbidden], None] = lambda caller, method, refusal: None
    """Told of every call that its person was not permitted."""
    node_connected: Callable[["Connection", ConnectParams], None] = lambda connection, params: None
    """Told of a node's connection that is ready, with what the node says that it can do."""
    node_gone: Callable[["Connection"], None] = lambda connection: None
    """Told when a node's connection ends, or takes nothing more; more than once is no harm."""


class Phase(Enum):
    """Where a connection is on its one-way road."""

    CHALLENGED = auto()
    AUTHENTICATING = auto()
    READY = auto()
    CLOSED = auto()


class Connection:
    """One client. Frames come in by :meth:`received`, in order; everything runs on the loop, nothing blocks."""

    def __init__(self, wire: Wire, peer: PeerInfo, gateway: Gateway) -> None:
        self.conn_id = ConnId(str(uuid.uuid4()))
        self.peer = peer
        self.caller: Caller  # set when the phase becomes READY
        self.caps: frozenset[str] = frozenset()
        self._wire = wire
        self._gateway = gateway
        self._phase = Phase.CHALLENGED
        self._nonce = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
        self._seq = 0
        self._handshake: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._role_refusals = 0
        self._in_flight = 0
        self._waiting: set[asyncio.Task[Any]] = set()
        self._forms: OrderedDict[SessionKey, str] = OrderedDict()
        self._held: list[tuple[Callable[[int], bytes], bool, bool]] | None = None
        self._hold_timer: asyncio.TimerHandle | None = None
        self._unread_pings = 0

    # What the socket calls.

    def opened(self) -> None:
        """The upgrade is done: challenge the client and give it its time."""
        challenge = EncodedEvent("connect.challenge", ConnectChallenge(nonce=self._nonce, ts=now_ms()))
        self._wire.send_text(challenge.with_seq(None))
        self._deadline = asyncio.get_running_loop().call_later(
            self._gateway.limits.handshake_timeout_s, self._handshake_timed_out
        )

    def received(self, data: bytes) -> None:
        """One whole message came."""
        if self._phase is Phase.READY:
            self._handle(data)
        elif self._phase is Phase.CHALLENGED:
            self._first_frame(data)

    def pong(self) -> None:
        """The client has read what was sent before a ping: the oldest that is unanswered."""
        if self._unread_pings:
            self._unread_pings -= 1
            if not self._unread_pings:
                self._release()

    def closed(self) -> None:
        """The socket is gone. Runs that this client started go on."""
        self._leave()
        if self._handshake is not None:
            self._handshake.cancel()

    def shut_down(self) -> None:
        """The gateway ends: say so, then close (OPENCLAW-V3 1.7)."""
        self._release()
        shutdown = EncodedEvent("shutdown", ShutdownEvent(reason="gateway stopping", restart_expected_ms=None))
        self.send_event(shutdown.with_seq, droppable=False)
        self._close(CLOSE_SERVICE_RESTART, "service restart")

    # What the dispatcher and the broadcaster call.

    def send(self, data: bytes) -> None:
        """Send a frame; a connection that is closed swallows it."""
        self._wire.send_text(data)

    def send_event(self, frame: Callable[[int], bytes], *, droppable: bool, numbered: bool = True) -> None:
        """Send an event under this connection's next number, which one that is not ``numbered`` does not use up.

        A client that lets its buffer grow over the limit misses droppable events; for any other it is closed, so that
        it never slows the rest (OPENCLAW-V3 1.5).
        """
        if self._phase is not Phase.READY:
            return
        if self._held is not None:
            self._held.append((frame, droppable, numbered))
            return
        if self._wire.buffered_bytes() > self._gateway.limits.outbound_bytes:
            if not droppable:
                log.warning("closing a slow consumer", extra=self._log_context())
                self._close(CLOSE_POLICY, "slow consumer")
            return
        self._seq += numbered
        self._wire.send_text(frame(self._seq))

    def has_room(self, mark_bytes: int) -> bool:
        """Whether no more than ``mark_bytes`` wait for the client to read them: whoever has much to send waits for it,
        and never has the connection closed for being slow."""
        return self._held is None and self._wire.buffered_bytes() <= mark_bytes

    def request_started(self) -> None:
        """A request is being worked on."""
        self._in_flight += 1
        if self._in_flight == MAX_IN_FLIGHT:
            self._wire.pause_reading("in flight")

    def request_ended(self) -> None:
        """A request was answered."""
        self._in_flight -= 1
        if self._in_flight == MAX_IN_FLIGHT // 2:
            self._wire.resume_reading("in flight")

    async def while_open(self, waiting: Awaitable[object]) -> object:
        """Wait for something in the task of a request; closing the connection cancels that task."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await waiting
        finally:
            self._waiting.discard(task)

    def hold_events(self) -> None:
        """Send no event before the client has read the answer to the request that is being handled.

        OpenClaw's terminal interface says "waiting" once ``chat.send`` is answered, for good if the end of the run
        comes in the same read of its socket. The ping goes out behind the answer, and a pong comes only from a later
        read. A second answer meanwhile has to be read too, but nothing waits longer than for the first.
        """
        if self.caller.client_mode != "ui":
            return
        loop = asyncio.get_running_loop()
        if self._held is None:
            self._held = []
            self._hold_timer = loop.call_later(READ_TIMEOUT_S, self._release)
        self._unread_pings += 1
        loop.call_soon(self._wire.ping)

    def hold(self, key: SessionKey, form: str) -> None:
        """Remember how this client writes a session's key: it drops events whose key is not exactly its own."""
        self._forms.pop(key, None)
        if form and form != render_key(key):
            self._forms[key] = form
            if len(self._forms) > MAX_HELD_KEYS:
                self._forms.popitem(last=False)

    def form_of(self, key: SessionKey) -> str:
        """The session key as this client holds it."""
        return self._forms.get(key) or render_key(key)

    def withdraw(self) -> None:
        """Take no request any more, not even one that has arrived; those that are under way are still answered."""
        self._wire.pause_reading("withdrawn")
        if self._phase is Phase.READY and self.caller.gateway_role == "node":
            self._gateway.node_gone(self)

    def close(self, code: int, reason: str) -> None:
        """End the connection from our side, for example when its credentials were withdrawn."""
        self._close(code, reason)

    def _release(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        self._unread_pings = 0
        held, self._held = self._held, None
        for frame, droppable, numbered in held or ():
            self.send_event(frame, droppable=droppable, numbered=numbered)

    # The handshake.

    def _first_frame(self, data: bytes) -> None:
        request = parse_request(data)
        if isinstance(request, Violation):
            self._refuse(request.id, refuse_frame(request))
            return
        try:
            params = read_connect(request)
        except Refusal as refusal:
            self._refuse(request.id, refusal)
            return
        self._phase = Phase.AUTHENTICATING
        self._wire.pause_reading("handshake")
        self._handshake = self._gateway.tasks.start(self._connect(request.id, params), name="handshake")

    async def _connect(self, request_id: str, params: ConnectParams) -> None:
        try:
            withdrawals, broadcaster = -1, self._gateway.broadcaster
            while withdrawals != broadcaster.withdrawals:  # the person may be another than the one that was read
                withdrawals = broadcaster.withdrawals
                admission = await self._gateway.authenticator.admit(params, self.peer, self.conn_id, nonce=self._nonce)
            if self._phase is Phase.AUTHENTICATING:
                self._ready(request_id, params, admission)
        except Refusal as refusal:
            self._refuse(request_id, refusal)
        except Exception as exc:
            self.send(encode_error(request_id, error_shape(exc)))
            self._close(CLOSE_INTERNAL_ERROR, "internal error")

    def _ready(self, request_id: str, params: ConnectParams, admission: Admission) -> None:
        """One loop step: hello-ok is the first frame after the challenge, and no event is missed after it."""
        self._cancel_deadline()
        self.caller = admission.caller
        self.caps = frozenset(params.caps)
        self._phase = Phase.READY
        self._wire.allow_frames_of(self._gateway.limits.frame_bytes)
        self._gateway.presence.connected(
            self.caller, self.conn_id, params.client, remote_ip="" if self.caller.local else self.peer.address
        )
        self._wire.send_text(encode_response(request_id, self._gateway.greet(admission, self.conn_id)))
        self._gateway.broadcaster.add(self)
        log.info(
            "connection ready: client %s %s, mode %s",
            self.caller.client_id,
            params.client.version,
            self.caller.client_mode,
            extra=self._log_context(),
        )
        self._gateway.connected(self.caller)
        if self.caller.gateway_role == "node":
            self._gateway.node_connected(self, params)
        self._wire.resume_reading("handshake")

    def _refuse(self, request_id: str, refusal: Refusal) -> None:
        """The error response and, right after it, the close frame: clients show whichever they see first."""
        log.info("connection refused: %s", refusal, extra={"conn_id": self.conn_id})
        if refusal.error is not None:
            self.send(encode_error(request_id, refusal.error))
        self._close(refusal.close_code, refusal.close_reason)

    def _handshake_timed_out(self) -> None:
        log.info("handshake timeout", extra={"conn_id": self.conn_id})
        timeout = Refusal.handshake_timeout()
        self._close(timeout.close_code, timeout.close_reason)

    # Requests.

    def _handle(self, data: bytes) -> None:
        request = parse_request(data)
        if isinstance(request, Violation):
            if request.kind is ViolationKind.NOT_JSON:
                log.warning("ignored a frame that is not JSON: %s", request.message, extra=self._log_context())
            else:
                self.send(encode_error(request.id, RequestError(request.message).shape()))
            return
        try:
            authorize(request.method, self.caller.gateway_role, self.caller.scopes)
            authorize_method(self.caller, request.method)
        except RequestError as exc:
            self.send(encode_error(request.id, exc.shape()))
            self._count_role_refusal(exc)
            return
        except Forbidden as exc:
            self.send(encode_error(request.id, error_shape(exc)))
            self._gateway.refused(self.caller, request.method, exc)
            return
        self._role_refusals = 0
        if request.method == "connect":
            message = "connect is only valid as the first request"
            self.send(encode_error(request.id, RequestError(message).shape()))
            return
        self._gateway.dispatcher.dispatch(self, request)

    def _count_role_refusal(self, refusal: RequestError) -> None:
        if not isinstance(refusal, UnauthorizedRole):
            self._role_refusals = 0
            return
        self._role_refusals += 1
        if self._role_refusals > MAX_ROLE_REFUSALS:
            self._close(CLOSE_POLICY, "repeated unauthorized calls")

    # The end.

    def _close(self, code: int, reason: str) -> None:
        self._leave()
        self._wire.close(code, reason)

    def _leave(self) -> None:
        """Stop being a connection; idempotent."""
        was_ready = self._phase is Phase.READY
        self._phase = Phase.CLOSED
        self._cancel_deadline()
        self._release()
        for task in self._waiting:
            task.cancel()
        if was_ready:
            self._gateway.broadcaster.remove(self)
            self._gateway.presence.disconnected(self.caller, self.conn_id)
            if self.caller.gateway_role == "node":
                self._gateway.node_gone(self)
            log.info("connection closed", extra=self._log_context())

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _log_context(self) -> dict[str, str]:
        return {"conn_id": self.conn_id, "user_id": self.caller.user_id}
