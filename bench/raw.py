"""Requests as bytes: what a client sends, taken down, and the same sent again with nothing in between."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import cast

FIRST = b'"w0"'
"""What every wire format makes of the first token of ``tokens=N``."""
END = b"\r\n0\r\n\r\n"

_length = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


async def recorded(port: int, send: Callable[[str], Awaitable[object]]) -> bytes:
    """The last request that ``send`` makes at the origin that it is given, which passes everything on to ``port``.

    ``send`` has to close its connections.
    """
    seen: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer, request = await asyncio.open_connection("127.0.0.1", port)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _length.search(head)
        seen.append(head + await reader.readexactly(int(length[1]) if length else 0))
        request.write(seen[-1])
        while not (data := await answer.read(65536)).endswith(END) and data:
            writer.write(data)
        writer.write(data)
        await writer.drain()
        for each in (writer, request):
            each.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    async with server:
        await send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    return seen[-1]


class RawConnection(asyncio.Protocol):
    """One keep-alive connection, and streamed answers as they come."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._first_at = 0.0
        self._answer: asyncio.Future[None] | None = None

    async def ask(self, port: int, request: bytes) -> float:
        """Seconds from the request to the first token. The answer is read to its end.

        Raises:
            ConnectionError: there is no token in it, or no end.
        """
        loop = asyncio.get_running_loop()
        if self._transport is None:
            await loop.create_connection(lambda: self, "127.0.0.1", port)
        assert self._transport is not None
        self._data.clear()
        self._first_at = 0.0
        self._answer = loop.create_future()
        started = time.perf_counter()
        self._transport.write(request)
        await self._answer
        if not self._first_at:
            raise ConnectionError(f"an answer without a token: {bytes(self._data[:300])!r}")
        return self._first_at - started

    def chunks(self) -> list[bytes]:
        """The body of the last answer, in the chunks that it was sent in."""
        data, chunks = bytes(self._data), list[bytes]()
        at = data.index(b"\r\n\r\n") + 4
        while size := int(data[at : (end := data.index(b"\r\n", at))], 16):
            chunks.append(data[end + 2 : end + 2 + size])
            at = end + 2 + size + 2
        return chunks

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._first_at and FIRST in data:
            self._first_at = time.perf_counter()
        is_error = not self._data.startswith(b"HTTP/1.1 200")
        if (is_error or self._data.endswith(END)) and self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection was closed inside an answer"))
