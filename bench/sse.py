"""A streamed chat completion over a keep-alive connection: raw bytes, so that the client costs next to nothing."""

import asyncio
import re
import time
from dataclasses import dataclass
from typing import cast

import msgspec

_FIRST_CONTENT = re.compile(rb'"content": ?"[^"]')
_CONTENT = re.compile(rb'"content": ?("(?:[^"\\]|\\.)*")')
_DONE = b"data: [DONE]"


def completion_request(port: int, token: str, model: str, prompt: str) -> bytes:
    """Return the bytes of one whole ``POST /v1/chat/completions`` with ``stream: true``."""
    body = msgspec.json.encode({"model": model, "stream": True, "messages": [{"role": "user", "content": prompt}]})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass(frozen=True, slots=True)
class Streamed:
    """One answer. ``first_s`` is the time from request to the first text, ``chunks`` the number of SSE events."""

    status: int
    text: str
    chunks: int
    first_s: float
    took_s: float


class SseConnection(asyncio.Protocol):
    """One HTTP/1.1 connection; it is opened again when the server closed it after an answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._first_at = 0.0
        self._answer: asyncio.Future[None] | None = None

    async def stream(self, request: bytes) -> Streamed:
        """Send ``request`` and read its answer to the end.

        Raises:
            ConnectionError: the connection ended before the answer did.
        """
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert self._transport is not None
        self._buffer.clear()
        self._first_at = 0.0
        self._answer = loop.create_future()
        started = time.perf_counter()
        self._transport.write(request)
        await self._answer
        took_s = time.perf_counter() - started
        status = int(self._buffer[9:12]) if self._buffer.startswith(b"HTTP/1.") else 0
        text = "".join(msgspec.json.decode(part, type=str) for part in _CONTENT.findall(self._buffer))
        chunks = self._buffer.count(b"data: ")
        return Streamed(status, text, chunks, self._first_at - started, took_s)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._first_at and _FIRST_CONTENT.search(data):
            self._first_at = time.perf_counter()
        if self._answer is not None and self._complete():
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        whole = _DONE in self._buffer[-64:]
        self._finish(None if whole else ConnectionError("the gateway closed the connection inside an answer"))

    def _complete(self) -> bool:
        """Whether the body has ended: by its last chunk, or by its length where the answer is no stream (an error)."""
        if self._buffer.endswith(b"0\r\n\r\n") and _DONE in self._buffer[-64:]:
            return True
        head_end = self._buffer.find(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", self._buffer[:head_end]) if head_end > 0 else None
        return length is not None and len(self._buffer) >= head_end + 4 + int(length[1])

    def _finish(self, error: Exception | None) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)
