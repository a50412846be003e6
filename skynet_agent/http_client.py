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
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skynet_agent.errors import ConnectFailed, ProviderError, ProviderTimeout, StreamCut
from skynet_agent.providers import ProviderRow

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

ERROR_BODY_BYTES = 64 * 1024
DRAIN_S = 0.05
LARGE_BODY_BYTES = 1024 * 1024


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

    async def read_error(self) -> bytes:
        """The first 64 KiB of an error's body, or what came of it."""
        body = b""
        try:
            while len(body) < ERROR_BODY_BYTES and (data := await self.read()):
                body += data
        except ProviderError:
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


class HttpClient:
    """Opens streams. Cheap to make; connections are kept until ``aclose``."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None

    @asynccontextmanager
    async def post(self, row: ProviderRow, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
        """Send ``body`` as JSON to the row's ``base_url`` and ``path``; leaving closes the stream, upstream too.

        A connection that the provider closed while it was idle is replaced once: nothing was answered on it.

        Raises:
            ConnectFailed: no connection, or it was closed without an answer.
            ProviderTimeout: no connection in ``connect_timeout_s``, or no head in ``read_timeout_s``.
        """
        url = row.base_url.rstrip("/") + path
        try:
            response = await self._send(row, url, body, headers)
        except _Stale:
            try:
                response = await self._send(row, url, body, headers)
            except _Stale as exc:
                text = f"{row.name}: {_place(url)} closed the connection without an answer"
                raise ConnectFailed(text, provider=row.name) from exc.__cause__
        try:
            yield Answer(response, row)
        finally:
            response.close()

    async def _send(self, row: ProviderRow, url: str, body: bytes, headers: Mapping[str, str]) -> ClientResponse:
        import aiohttp

        # without limits of its own, the pool never makes a request wait, so "connect" is the time to connect
        timeout = aiohttp.ClientTimeout(total=None, connect=row.connect_timeout_s, sock_read=row.read_timeout_s)
        fields = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers, **row.headers}
        try:
            return await self._open_session().post(
                # a large body as bytes makes aiohttp warn; as a file it is sent in pieces
                url,
                data=body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
                headers=fields,
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
                connector=aiohttp.TCPConnector(limit=0),
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
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _reason(error: OSError) -> str:
    """``Connection refused`` and the like: aiohttp's own words repeat the address, in its own terms."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def _silent(row: ProviderRow) -> ProviderTimeout:
    return ProviderTimeout(f"{row.name}: silent for {row.read_timeout_s:g} s", provider=row.name)
