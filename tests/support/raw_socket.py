"""A WebSocket client that is no client: bytes as the test wants them, and no reading unless the test reads."""

import asyncio
import base64
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame as it came."""

    opcode: int
    fin: bool
    data: bytes

    @property
    def close(self) -> tuple[int | None, str]:
        """Code and reason of a close frame."""
        assert self.opcode == CLOSE, self
        return (int.from_bytes(self.data[:2], "big") if self.data else None), self.data[2:].decode()

    def json(self) -> dict[str, Any]:
        """The object in a text frame."""
        assert self.opcode == TEXT, self
        decoded: dict[str, Any] = json.loads(self.data)
        return decoded


def frame(data: bytes | str = b"", *, opcode: int = TEXT, fin: bool = True, mask: bytes = b"\x11\x22\x33\x44") -> bytes:
    """One masked frame."""
    data = data.encode() if isinstance(data, str) else data
    return header(len(data), opcode=opcode, fin=fin, mask=mask) + _masked(data, mask)


def header(length: int, *, opcode: int = TEXT, fin: bool = True, mask: bytes = b"\x11\x22\x33\x44") -> bytes:
    """The start of a masked frame that promises ``length`` bytes."""
    first = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        return first + bytes([0x80 | length]) + mask
    if length < 65536:
        return first + b"\xfe" + length.to_bytes(2, "big") + mask
    return first + b"\xff" + length.to_bytes(8, "big") + mask


def close_frame(code: int = 1000, reason: str = "") -> bytes:
    """A client's close frame."""
    return frame(code.to_bytes(2, "big") + reason.encode(), opcode=CLOSE)


def request(method: str, params: Any = None, *, id: str = "r") -> str:  # noqa: A002
    """The text of a request frame."""
    body: dict[str, Any] = {"type": "req", "id": id, "method": method}
    return json.dumps(body if params is None else {**body, "params": params})


class RawSocket:
    """One TCP connection that speaks WebSocket as far as the test makes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def send(self, data: bytes, *, timeout: float = 40) -> None:
        """Write, and wait until the buffer is nearly empty."""
        self.writer.write(data)
        async with asyncio.timeout(timeout):
            await self.writer.drain()

    async def read_frame(self, *, timeout: float = 40) -> RawFrame:
        """The next frame; raises ``IncompleteReadError`` at the end of the connection."""
        async with asyncio.timeout(timeout):
            first, second = await self.reader.readexactly(2)
            assert not second & 0x80, "a server does not mask"
            length = second & 0x7F
            if length > 125:
                length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8), "big")
            return RawFrame(first & 0x0F, bool(first & 0x80), await self.reader.readexactly(length))

    async def read_response(self, request_id: str) -> dict[str, Any]:
        """The next response with this id; events before it are skipped."""
        while True:
            received = (await self.read_frame()).json()
            if received["type"] == "res" and received["id"] == request_id:
                return received

    async def read_close(self) -> tuple[int | None, str]:
        """Skip what comes before the close frame; its code and reason."""
        while True:
            received = await self.read_frame()
            if received.opcode == CLOSE:
                return received.close

    async def read_to_end(self, *, timeout: float = 40) -> bytes:
        """All that comes until the other side ends the connection, by FIN or by RST."""
        chunks = []
        async with asyncio.timeout(timeout):
            try:
                while chunk := await self.reader.read(65536):
                    chunks.append(chunk)
            except ConnectionError:
                pass
        return b"".join(chunks)

    async def aclose(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


def upgrade_request(url: str, path: str = "/", headers: Mapping[str, str] | None = None) -> bytes:
    """The HTTP request that opens a WebSocket."""
    fields = {
        "Host": urlsplit(url).netloc,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        **(headers or {}),
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


@asynccontextmanager
async def open_tcp(url: str, *, receive_buffer: int | None = None) -> AsyncIterator[RawSocket]:
    """A TCP connection on which nothing was said yet.

    Args:
        receive_buffer: bytes the kernel may hold for the test; small, so that a reader who stops is noticed early.
    """
    target = urlsplit(url)
    assert target.hostname is not None
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (target.hostname, target.port))
    except OSError:
        sock.close()
        raise
    reader, writer = await asyncio.open_connection(sock=sock, limit=receive_buffer or 2**16)
    raw = RawSocket(reader, writer)
    try:
        yield raw
    finally:
        await raw.aclose()


@asynccontextmanager
async def open_raw(
    url: str, path: str = "/", *, headers: Mapping[str, str] | None = None, receive_buffer: int | None = None
) -> AsyncIterator[RawSocket]:
    """A connection past its upgrade; the challenge is the next frame to read."""
    async with open_tcp(url, receive_buffer=receive_buffer) as raw:
        await raw.send(upgrade_request(url, path, headers))
        async with asyncio.timeout(40):
            head = await raw.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield raw


@asynccontextmanager
async def open_ready(
    url: str, params: Mapping[str, Any], *, receive_buffer: int | None = None
) -> AsyncIterator[RawSocket]:
    """A connection past its hello-ok, which was read."""
    async with open_raw(url, receive_buffer=receive_buffer) as raw:
        challenge = (await raw.read_frame()).json()
        assert challenge["event"] == "connect.challenge"
        await raw.send(frame(request("connect", params, id="connect")))
        hello = (await raw.read_frame()).json()
        assert hello["ok"], hello
        yield raw


def _masked(data: bytes, mask: bytes) -> bytes:
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
