"""The way to providers: one pool of connections, streamed answers, failures as ``ProviderError``.

aiohttp, and not a vendor's SDK, because of what the hot path may cost. Measured against a scripted server that writes
100 SSE events one by one, 20 conversations at once, events decoded alike (one core, Python 3.11, uvloop):

========================================  =============  =========  ==========  ===================
client                                    CPU of a turn  import     memory      first turn, CPU
========================================  =============  =========  ==========  ===================
openai 3.52, raw streaming response       4.5 ms         0.84 s     33 MB       98-105 ms
openai 3.52 over aiohttp                  2.3 ms         0.77 s     33 MB       41 ms
httpx2 2.16                               3.5 ms         0.15 s     5 MB        39-57 ms
aiohttp 3.14                              1.1 ms         0.2 s      9 MB        2-5 ms
========================================  =============  =========  ==========  ===================

The whole gateway has 6 ms for such a turn and 70 MB in all. What an SDK does beyond that is little for this wire API:
the body is the request's own JSON, the signature a bearer header; retries belong to the router and the classes of
failures to ``failures.py``. aiohttp is imported when the first request needs it, or before that by ``warm_up``.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skynet_agent.errors import ConnectFailed, ProviderError, ProviderTimeout, StreamCut
from skynet_agent.providers import ProviderRow

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

ERROR_BODY_BYTES = 64 * 1024
ERROR_S = 10.0
"""So long an error's words are waited for: somebody else may be asked meanwhile."""
DRAIN_S = 0.05
LARGE_BODY_BYTES = 1024 * 1024
IDLE_S = 60.0
"""A conversation goes on within such a time, and then need not wait for TCP and TLS again. Less than what providers and
the routers of households wait before they drop a connection; one that was dropped is replaced."""


class Answer:
    """A provider's answer whose head has come."""

    def __init__(self, response: ClientResponse, row: ProviderRow) -> None:
        from aiohttp import ClientError

        self._response = response
        self._content = response.content
        self._client_error = ClientError  # an import statement in read() would cost 3 µs each time
        self._row = row
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Found in any case."""

    async def read(self) -> bytes:
        """What has arrived since the last call, at least a byte; empty at the end.

        Raises:
            StreamCut: the connection broke before the end.
            ProviderTimeout: nothing came for ``read_timeout_s``.
        """
        try:
            return await self._content.readany()
        except TimeoutError as exc:
            raise _silent(self._row) from exc
        except self._client_error as exc:
            raise StreamCut(f"{self._row.name}: the answer broke off", provider=self._row.name) from exc

    async def read_error(self, within_s: float = ERROR_S) -> bytes:
        """The first 64 KiB of an error's body, or what came of it in so many seconds."""
        body = b""
        try:
            async with asyncio.timeout(within_s):
                while len(body) < ERROR_BODY_BYTES and (data := await self.read()):
                    body += data
        except (TimeoutError, ProviderError):
            pass  # the status says enough
        return body[:ERROR_BODY_BYTES]

    async def drain(self) -> None:
        """Read the end of a complete answer, which lets the connection serve the next request."""
        if self._content.at_eof():
            return
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self._content.at_eof():
                    await self.read()
        except (TimeoutError, ProviderError):
            pass  # closing the connection is the other way


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request, whole. ``url`` is sent as it is: its path and query are percent-encoded already.

    Headers prove who asks, and the body is what somebody said: neither shows in a ``repr``.
    """

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


class HttpClient:
    """Opens streams. Cheap to make; connections are kept until ``aclose``, or until nobody used them for ``idle_s``."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._session: ClientSession | None = None

    @asynccontextmanager
    async def send(self, row: ProviderRow, request: HttpRequest) -> AsyncIterator[Answer]:
        """Send ``request`` on behalf of the row; leaving closes the stream, upstream too.

        A connection that the provider closed while it was idle is replaced once: nothing was answered on it.

        Raises:
            ConnectFailed: no connection, or it was closed without an answer.
            ProviderTimeout: no connection in ``connect_timeout_s``, or no head in ``read_timeout_s``.
        """
        try:
            response = await self._send(row, request)
        except _Stale:
            try:
                response = await self._send(row, request)
            except _Stale as exc:
                text = f"{row.name}: {_place(request.url)} closed the connection without an answer"
                raise ConnectFailed(text, provider=row.name) from exc.__cause__
        try:
            yield Answer(response, row)
        finally:
            response.close()

    async def _send(self, row: ProviderRow, request: HttpRequest) -> ClientResponse:
        import aiohttp
        from yarl import URL

        # without limits of its own, the pool never makes a request wait, so "connect" is the time to connect
        timeout = aiohttp.ClientTimeout(total=None, connect=row.connect_timeout_s, sock_read=row.read_timeout_s)
        url, body = request.url, request.body
        try:
            return await self._open_session().request(
                request.method,
                URL(url, encoded=True),  # as it was signed
                # a large body as bytes makes aiohttp warn; as a file it is sent in pieces
                data=(body or None) if len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
                headers={"Accept-Encoding": "identity", **request.headers},
                timeout=timeout,
                allow_redirects=False,
            )
        except aiohttp.ConnectionTimeoutError as exc:
            text = f"{row.name}: no connection to {_place(url)} within {row.connect_timeout_s:g} s"
            raise ProviderTimeout(text, provider=row.name) from exc
        except aiohttp.ClientSSLError as exc:
            raise ConnectFailed(f"{row.name}: no connection to {_place(url)}: {exc}", provider=row.name) from exc
        except aiohttp.ClientConnectorError as exc:
            text = f"{row.name}: no connection to {_place(url)}: {_reason(exc)}"
            raise ConnectFailed(text, provider=row.name) from exc
        except TimeoutError as exc:
            raise _silent(row) from exc
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as exc:
            raise _Stale from exc
        except aiohttp.InvalidURL as exc:
            raise ConnectFailed(f"{row.name}: base_url is no HTTP address", provider=row.name) from exc
        except (aiohttp.ClientError, ValueError) as exc:
            text = f"{row.name}: {_place(url)} does not answer as an HTTP server does ({type(exc).__name__})"
            raise ConnectFailed(text, provider=row.name) from exc

    def _open_session(self) -> ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=self._idle_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "skynet-gateway"},
            )
        return self._session

    async def warm_up(self) -> None:
        """Import in a thread what the first request would otherwise wait for."""
        await asyncio.to_thread(__import__, "aiohttp")

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Stale(Exception):  # noqa: N818 - a signal between two functions, never seen outside
    """The connection ended before the answer began."""


def _place(url: str) -> str:
    """Scheme, host and port of ``url``: the rest may hold credentials."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _reason(error: OSError) -> str:
    """``Connection refused`` and the like: aiohttp's own words repeat the address, in its own terms."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def _silent(row: ProviderRow) -> ProviderTimeout:
    return ProviderTimeout(f"{row.name}: silent for {row.read_timeout_s:g} s", provider=row.name)
