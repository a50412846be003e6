"""WebSocket I/O: bytes to and from the network; what they mean is :mod:`skynet.gateway.connection`'s business.

uvicorn hands a connection over at the upgrade request. The WebSocket state machine is websockets' sans-I/O
``ServerProtocol``. There is no task and no queue for a connection: a frame is handled in the loop step in which it
arrives, and the transport's own buffer is the outbound queue, so its size is what the slow-consumer rule looks at
(OPENCLAW-V3 1.5). Through the ASGI interface each message would cost two queue hops and the buffer would be unseen.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as UpgradeRequest
from websockets.protocol import Event, State
from websockets.server import ServerProtocol

from skynet.gateway.connection import Connection, Gateway
from skynet.gateway.peer import PeerInfo, joined_headers

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""How long a peer may take to answer a close frame, or to read what is still buffered, before it is cut off."""

CORK_BYTES = 65_536
"""Answers of one loop step leave together, but never more than this: what the kernel does not take pauses reading."""

_CANVAS_SOCKET = "/__openclaw__/ws"


class GatewaySocket(asyncio.Protocol):
    """One WebSocket connection, constructed by uvicorn in place of its own WebSocket protocol.

    Any path and query is accepted, as OpenClaw does, except the canvas live-reload socket, which carries no protocol.
    Text and binary frames are treated alike (OPENCLAW-V3 1.1). permessage-deflate is not offered.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: Mapping[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        gateway: Gateway,
    ) -> None:
        self._gateway = gateway
        self._sockets = cast("set[GatewaySocket]", server_state.connections)
        self._loop = _loop or asyncio.get_running_loop()
        self._protocol = ServerProtocol(
            max_size=self._gateway.limits.preauth_frame_bytes, logger=logging.getLogger("websockets.server")
        )
        self._transport: asyncio.Transport
        self._connection: Connection | None = None
        self._events: deque[Event] = deque()
        self._fragments = bytearray()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._handling = False
        self._close_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._failing = False
        self._paused_by: set[str] = set()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sockets.add(self)

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._events.extend(self._protocol.events_received())
        self._handle_events()
        if self._protocol.parser_exc is not None:
            self._failed()
        elif self._connection is None and self._protocol.handshake_exc is not None:
            self._write_protocol_output()
            self._end()

    def eof_received(self) -> None:
        # Nothing is left to read; returning None lets the transport close itself.
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.discard(self)
        self._left()
        if self._close_timer is not None:
            self._close_timer.cancel()

    def pause_writing(self) -> None:
        # Who does not read its answers gets no more of them: its requests wait in the kernel, not in our memory.
        self._pause("writing")

    def resume_writing(self) -> None:
        self._resume("writing")

    # What uvicorn calls at shutdown.

    def shutdown(self) -> None:
        if self._connection is not None:
            self._connection.shut_down()
        else:
            self._transport.close()

    # What the connection calls.

    def send_text(self, data: bytes) -> None:
        """Send one text frame. Encoded here by hand: an event for many connections is framed once a connection."""
        if self._closing:
            return
        length = len(data)
        if length < 126:
            head = b"\x81" + length.to_bytes(1, "big")
        elif length < 65536:
            head = b"\x81\x7e" + length.to_bytes(2, "big")
        else:
            head = b"\x81\x7f" + length.to_bytes(8, "big")
        self._write(head + data)

    def buffered_bytes(self) -> int:
        """Bytes handed over that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() + self._out_bytes

    def allow_frames_of(self, limit_bytes: int) -> None:
        """Change the greatest message that is accepted from here on."""
        self._protocol.max_message_size = limit_bytes

    def pause_reading(self, why: str) -> None:
        self._pause(why)

    def resume_reading(self, why: str) -> None:
        self._resume(why)

    def close(self, code: int, reason: str) -> None:
        """Send the close frame after all that was sent before; cut the peer off when it does not react in time."""
        if self._closing:
            return
        self._protocol.send_close(code, reason)
        self._write(b"".join(self._protocol.data_to_send()))
        self._closing = True
        self._paused_by.clear()
        self._loop.call_soon(self._go_on)
        self._cut_off_later()

    def ping(self) -> None:
        """Ask the peer for a pong, which it sends once it has read what was sent before."""
        if not self._closing and self._protocol.state is State.OPEN:  # a close may have come that is not handled yet
            self._protocol.send_ping(b"")
            self._write_protocol_output()

    # Inside.

    def _handle_events(self) -> None:
        """Handle what was parsed until something pauses this connection; what is left then, at most one read, waits."""
        self._handling = True
        try:
            while self._events and not self._paused_by:
                event = self._events.popleft()
                if isinstance(event, Frame):
                    self._handle_frame(event)
                elif isinstance(event, UpgradeRequest):
                    self._handle_upgrade(event)
        finally:
            self._handling = False
            self._flush()

    def _handle_upgrade(self, request: UpgradeRequest) -> None:
        if request.path.partition("?")[0] == _CANVAS_SOCKET:
            response = self._protocol.reject(404, "there is no canvas here\n")
        else:
            response = self._protocol.accept(request)
        self._protocol.send_response(response)
        self._write_protocol_output()
        if response.status_code != 101:
            self._end()
            return
        host, port = (self._transport.get_extra_info("peername") or ("", 0))[:2]
        peer = PeerInfo(address=str(host), port=int(port), headers=joined_headers(request.headers.raw_items()))
        self._connection = Connection(self, self._gateway.authenticator.resolve(peer), self._gateway)
        self._connection.opened()

    def _handle_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
            if frame.fin:
                self._received(bytes(frame.data))
            else:
                self._fragments = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT:
            self._fragments += frame.data
            if frame.fin:
                whole, self._fragments = bytes(self._fragments), bytearray()
                self._received(whole)
        else:
            self._write_protocol_output()
            if frame.opcode is Opcode.PONG and self._connection is not None:
                self._connection.pong()
            elif frame.opcode is Opcode.CLOSE:
                # Either side began it: both frames are exchanged now, and the server ends the TCP connection.
                self._end()

    def _received(self, data: bytes) -> None:
        if self._connection is not None and not self._closing:
            self._connection.received(data)

    def _failed(self) -> None:
        """The peer broke the WebSocket protocol or sent too big a message: the close frame says so."""
        if self._failing:
            return
        self._failing = True
        log.info(
            "connection failed: %s",
            self._protocol.parser_exc,
            extra={"conn_id": self._connection.conn_id if self._connection else ""},
        )
        sent = self._protocol.close_sent
        output = b"".join(self._protocol.data_to_send())
        if sent is not None and sent.code == CloseCode.MESSAGE_TOO_BIG:
            output = b"\x88\x02" + struct.pack("!H", sent.code)  # OpenClaw gives no reason (OPENCLAW-V3 1.6)
        if not self._closing:
            self._write(output)
        self._left()
        # What the peer is still sending is read and dropped: a socket closed on unread bytes resets the connection, and
        # the peer would lose the close frame.
        self._flush()
        if not self._transport.is_closing():
            self._transport.write_eof()
        self._go_on()
        self._cut_off_later()

    def _end(self) -> None:
        """Nothing more is to be said: close the TCP connection when the peer has read the rest, or soon anyway."""
        self._flush()
        self._left()
        self._transport.close()
        self._cut_off_later()

    def _left(self) -> None:
        """No frame goes out or counts from here on. Idempotent."""
        self._closing = True
        self._events.clear()
        self._paused_by.clear()
        if self._connection is not None:
            self._connection.closed()

    def _cut_off_later(self) -> None:
        if self._close_timer is None:
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def _write_protocol_output(self) -> None:
        if output := self._protocol.data_to_send():
            self._write(b"".join(output))

    def _write(self, data: bytes) -> None:
        """Send soon: what is written in one loop step goes out in one write, because each is a system call."""
        if not self._out and not self._handling:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > CORK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            if not self._transport.is_closing():
                self._transport.write(data)

    def _pause(self, why: str) -> None:
        if self._closing:
            return
        if not self._paused_by and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_by.add(why)

    def _resume(self, why: str) -> None:
        if why in self._paused_by:
            self._paused_by.discard(why)
            # Not at once: this may be the end of a request, far down the stack.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle what waited and read on, unless something has paused this connection again."""
        self._handle_events()
        if not self._paused_by and not self._transport.is_closing():
            self._transport.resume_reading()
