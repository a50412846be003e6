"""A v3 WebSocket client for load: picows, the real handshake, frames encoded beforehand and told apart by bytes."""

import asyncio
from collections.abc import Callable

import msgspec
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from bench.jobs import Target

SCOPES = ("operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing")
HANDSHAKE_TIMEOUT_S = 10.0

FrameHandler = Callable[[memoryview], None]
"""Gets one whole frame; the view is valid only during the call."""


def request(frame_id: str, method: str, params: object) -> bytes:
    return msgspec.json.encode({"type": "req", "id": frame_id, "method": method, "params": params})


class RefusedError(Exception):
    """The gateway closed the connection, or answered `connect` with an error; ``str()`` is what it said."""


class Connection(WSListener):
    """One socket. Until ``connected`` is done frames belong to the handshake, then they go to ``on_frame``.

    An operator that knows the gateway's secret may connect without a device, so no key is needed.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._shaken = False
        self._parts = bytearray()
        self.transport: WSTransport
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.on_frame: FrameHandler = lambda _data: None

    def send(self, frame: bytes) -> None:
        self.transport.send(WSMsgType.TEXT, frame)

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind is WSMsgType.TEXT and frame.fin:
            if self._shaken:
                self.on_frame(frame.get_payload_as_memoryview())
            else:
                self._shake(frame.get_payload_as_bytes())
        elif kind in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self._parts += frame.get_payload_as_bytes()
            if frame.fin:
                whole, self._parts = bytes(self._parts), bytearray()
                self.on_frame(memoryview(whole)) if self._shaken else self._shake(whole)
        elif kind is WSMsgType.CLOSE:
            self._end(f"closed by the gateway: {frame.get_close_code()} {frame.get_close_reason()}")
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._end("disconnected by the gateway")

    def _end(self, reason: str) -> None:
        if not self.connected.done():
            self.connected.set_exception(RefusedError(reason))
        if not self.closed.done():
            self.closed.set_result(reason)

    def _shake(self, data: bytes) -> None:
        frame = msgspec.json.decode(data)
        if frame.get("event") == "connect.challenge":
            self.send(request("connect", "connect", self._connect_params()))
        elif frame.get("id") == "connect":
            self._shaken = bool(frame["ok"])
            if self._shaken:
                self.connected.set_result(None)
            elif not self.connected.done():
                self.connected.set_exception(RefusedError(frame["error"]["message"]))

    def _connect_params(self) -> dict[str, object]:
        return {
            "minProtocol": 3,
            "maxProtocol": 3,
            "client": {"id": "cli", "version": "bench", "platform": "linux", "mode": "cli"},
            "role": "operator",
            "scopes": SCOPES,
            "caps": [],
            "auth": {"token": self._token},
        }


async def connect(target: Target) -> Connection:
    """Open a socket and shake hands.

    Raises:
        RefusedError: the gateway did not want this client.
        OSError, TimeoutError: there is nobody, or it does not answer.
    """
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        _, connection = await ws_connect(
            lambda: Connection(target.token),
            f"ws://127.0.0.1:{target.port}/",
            enable_auto_ping=False,
            max_frame_size=32 << 20,
        )
        assert isinstance(connection, Connection)
        await connection.connected
    return connection


async def connect_many(target: Target, count: int) -> list[Connection]:
    """Open ``count`` connections, a few at a time so that no handshake waits long behind the others."""
    connections: list[Connection] = []
    while len(connections) < count:
        batch = min(10, count - len(connections))
        connections += await asyncio.gather(*(connect(target) for _ in range(batch)))
    return connections


async def close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.transport.send_close(WSCloseCode.OK)
        connection.transport.disconnect()
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        await asyncio.gather(*(connection.closed for connection in connections))
