"""One connection to a door: HTTP/1.1 as a proxy has it (RFC 9110, RFC 9112), with CONNECT and without.

h11 reads and writes both sides: it is strict about what would let two readers see different requests, bounds what it
holds, and does no I/O. What it parsed is written anew, nothing of a head is copied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

import h11

from skynet_terminal.sandbox.egress_hosts import Destination, Refusal, parse_connect, parse_url

if TYPE_CHECKING:
    from skynet_terminal.sandbox.egress import Door

log = logging.getLogger(__name__)

BUFFER_BYTES = 65_536
LINGER_S = 2.0
"""So long a connection that ends may take to hand over what was written to it."""

_OF_THE_CONNECTION = frozenset(
    {
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"upgrade",
        b"proxy-authorization",
        b"proxy-authenticate",
    }
)
"""Header fields that are for the next one on the way only (RFC 9110, section 7.6.1)."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})

Event: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]
HeaderFields: TypeAlias = list[tuple[bytes, bytes]]


class Connection:
    """What comes from a sandbox by one connection: a tunnel, or requests one after the other."""

    def __init__(self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._door = door
        self._limits = door.limits
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=door.limits.header_bytes)
        self._out_bytes = 0
        self._back_bytes = 0
        self._deadline: asyncio.Timeout

    async def run(self) -> None:
        """Serve it to its end. Nothing is raised but a cancellation."""
        try:
            while await self._serve_one():
                pass
            await self._end()
        except OSError:  # it or the other side has gone, or said nothing for too long
            pass
        finally:
            self._writer.transport.abort()

    async def turn_away(self) -> None:
        """Say that there are too many connections."""
        try:
            await self._refuse(Refusal(503, f"{self._limits.connections} connections are open already"))
        except OSError:
            pass
        finally:
            self._writer.transport.abort()

    async def _serve_one(self) -> bool:
        """Whether there may be another request."""
        try:
            request = await self._request()
            if request is None:
                return False
            if not self._door.count(0):
                raise Refusal(403, f"more than {self._limits.total_bytes} bytes were passed on")
            target = request.target.decode("ascii", "replace")
            to = parse_connect(target) if request.method == b"CONNECT" else parse_url(target)
            self._door.rules.check(to)
            reader, writer = await self._door.dialer.dial(to)
        except Refusal as refusal:
            await self._refuse(refusal)
            return False
        log.info("egress %s: to %s", self._door.id, to)
        self._out_bytes = self._back_bytes = 0
        try:
            if request.method == b"CONNECT":
                await self._tunnel(reader, writer)
                return False
            return await self._forward(request, to, reader, writer)
        finally:
            writer.transport.abort()
            log.info("egress %s: from %s, %d bytes out, %d back", self._door.id, to, self._out_bytes, self._back_bytes)

    async def _request(self) -> h11.Request | None:
        """The next one; None for no more.

        Raises:
            Refusal: it is none, too long or too slow.
        """
        if not self._http.trailing_data[0]:
            async with asyncio.timeout(self._limits.idle_s):
                self._http.receive_data(await self._reader.read(BUFFER_BYTES))
        try:
            async with asyncio.timeout(self._limits.header_s):
                event = await _next_event(self._http, self._reader)
                if isinstance(event, h11.ConnectionClosed):
                    return None
                assert isinstance(event, h11.Request)
                if event.method == b"CONNECT" and not isinstance(self._http.next_event(), h11.EndOfMessage):
                    raise Refusal(400, "CONNECT has no body")
        except TimeoutError as exc:
            raise Refusal(408, f"the request took longer than {self._limits.header_s:g} seconds") from exc
        except h11.RemoteProtocolError as exc:
            raise Refusal(exc.error_status_hint, f"it is no request of HTTP/1.1: {exc}") from exc
        return event

    async def _refuse(self, refusal: Refusal) -> None:
        """Answer that, and close."""
        self._door.log_refusal(str(refusal))
        body = f"{refusal}\n".encode()
        status = HTTPStatus(refusal.status)
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await self._end()

    async def _end(self) -> None:
        """Hand over what was written, and wait a moment for the other side to close: closing with something unread
        would break the connection, and what was written be lost."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(LINGER_S):
                await self._writer.drain()
                self._writer.write_eof()
                while await self._reader.read(BUFFER_BYTES):
                    pass

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        early, _ = self._http.trailing_data
        async with self._watched() as group:
            group.create_task(self._pump(self._reader, writer, early, is_out=True))
            group.create_task(self._pump(reader, self._writer, b"", is_out=False))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, *, is_out: bool
    ) -> None:
        """One direction, to its end, which is passed on too. It reads no faster than it can write."""
        while data or (data := await reader.read(BUFFER_BYTES)):
            await self._write(writer, data, is_out=is_out)
            data = b""
        writer.write_eof()

    async def _forward(
        self, request: h11.Request, to: Destination, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """One request on a connection of its own. Whether there may be another."""
        far = h11.Connection(h11.CLIENT, max_incomplete_event_size=self._limits.header_bytes)
        fields = [(b"Host", _host_field(to)), *_passed_on(request.headers.raw_items()), (b"Connection", b"close")]
        try:
            async with self._watched() as group:
                head = far.send(h11.Request(method=request.method, target=to.path, headers=fields))
                await self._write(writer, head, is_out=True)
                body = group.create_task(self._pass_body(far, writer))
                await self._pass_answer(far, reader)
                body.cancel()  # an answer may come before all of it was read
        except (OSError, h11.ProtocolError) as exc:
            if self._http.our_state is not h11.SEND_RESPONSE:
                return False
            if isinstance(exc, TimeoutError):
                await self._refuse(Refusal(504, f"{to} did not answer within {self._limits.idle_s:g} seconds"))
            else:
                await self._refuse(Refusal(502, f"{to} did not answer as HTTP/1.1 has it"))
            return False
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _pass_body(self, far: h11.Connection, writer: asyncio.StreamWriter) -> None:
        while far.our_state is h11.SEND_BODY:
            event = await _next_event(self._http, self._reader)
            if isinstance(event, h11.Data):
                event = h11.Data(bytes(event.data))
            assert isinstance(event, h11.Data | h11.EndOfMessage)
            await self._write(writer, far.send(event), is_out=True)

    async def _pass_answer(self, far: h11.Connection, reader: asyncio.StreamReader) -> None:
        while self._http.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
            event = await _next_event(far, reader)
            if isinstance(event, h11.InformationalResponse | h11.Response):
                fields = _passed_on(event.headers.raw_items())
                event = type(event)(status_code=event.status_code, headers=fields, reason=event.reason)
            elif isinstance(event, h11.Data):
                event = h11.Data(bytes(event.data))
            elif not isinstance(event, h11.EndOfMessage):
                raise ConnectionResetError
            await self._write(self._writer, self._http.send(event), is_out=False)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes | None, *, is_out: bool) -> None:
        """
        Raises:
            ConnectionError: it cannot be sent, or too many bytes were.
        """
        if not data:
            return
        self._deadline.reschedule(asyncio.get_running_loop().time() + self._limits.idle_s)
        if is_out:
            self._out_bytes += len(data)
        else:
            self._back_bytes += len(data)
        if not self._door.count(len(data)):
            log.info("egress %s: ended after %s bytes", self._door.id, self._limits.total_bytes)
            raise ConnectionAbortedError
        writer.write(data)
        await writer.drain()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Tasks that end together: with the first that fails, or when for too long nothing was written.

        Raises:
            OSError, h11.ProtocolError: what the first of them raised; a TimeoutError is one.
        """
        try:
            async with asyncio.timeout(self._limits.idle_s) as self._deadline, asyncio.TaskGroup() as group:
                yield group
        except BaseExceptionGroup as exc:
            raise exc.exceptions[0] from None


async def _next_event(http: h11.Connection, reader: asyncio.StreamReader) -> Event:
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(BUFFER_BYTES))
    return event


def _passed_on(fields: Iterable[tuple[bytes, bytes]]) -> HeaderFields:
    """Those that are not for this connection alone. Requests get a ``Host`` from their target."""
    fields = list(fields)
    named = {
        name.strip().lower() for key, value in fields if key.lower() == b"connection" for name in value.split(b",")
    }
    left_out = (named - _FRAMING) | _OF_THE_CONNECTION | {b"host"}
    return [(name, value) for name, value in fields if name.lower() not in left_out]


def _host_field(to: Destination) -> bytes:
    host = f"[{to.host}]" if ":" in to.host else to.host
    return (host if to.port == 80 else f"{host}:{to.port}").encode()
