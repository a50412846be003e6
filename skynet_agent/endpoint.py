"""A provider as its wire API reaches it: signed requests out, a checked answer back, read part by part."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any, Protocol

from skynet_agent.errors import ProviderError, StreamCut
from skynet_agent.events import Ended, Part
from skynet_agent.failures import failure_of_answer
from skynet_agent.http_client import Answer, HttpClient, HttpRequest
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import AnswerReader, Source
from skynet_agent.requests import ModelRequest

MOST_BYTES = 8 * 1024 * 1024
"""Of an answer that is read whole."""


class Auth(Protocol):
    """What proves to a provider who asks."""

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        """``request`` to ``base_url + path`` with what proves who asks; may be sent elsewhere than to ``base_url``.

        Raises:
            AuthFailed: there are no credentials, and why.
            ProviderError: they could not be had now.
        """

    async def renew(self) -> bool:
        """The provider answered 401: whether there are other credentials now, and asking again makes sense."""

    def secrets(self) -> tuple[bytes, ...]:
        """What no failure may show."""


class Endpoint:
    """One provider: its row, its credentials, and the way to it."""

    def __init__(self, row: ProviderRow, auth: Auth, http: HttpClient, clock: Callable[[], datetime]) -> None:
        self.row = row
        self.auth = auth
        self.clock = clock
        self._http = http

    @property
    def source(self) -> Source:
        """For readers of this provider's answers."""
        return Source(self.row.name, self._secrets)

    @asynccontextmanager
    async def send(
        self, path: str, body: bytes = b"", *, method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Answer]:
        """Send JSON to ``base_url + path``; leaving closes the stream, upstream too. The answer is a 2xx.

        Credentials that are refused (401) are renewed once, where they can be.

        Raises:
            ProviderError: of the kind that the provider's answer, or its absence, stands for.
        """
        row = self.row
        fields = {**({"Content-Type": "application/json"} if body else {}), **(headers or {}), **row.headers}
        plain = HttpRequest(url=row.base_url.rstrip("/") + path, method=method, headers=fields, body=body)
        request = await self.auth.sign(row.base_url.rstrip("/"), path, plain)
        async with self._http.send(row, request) as answer:
            if 200 <= answer.status < 300:
                yield answer
                return
            failure = await self._failure(answer)
        if failure.status != 401 or not await self.auth.renew():
            raise failure
        request = await self.auth.sign(row.base_url.rstrip("/"), path, plain)
        async with self._http.send(row, request) as answer:
            if not 200 <= answer.status < 300:
                raise await self._failure(answer)
            yield answer

    async def _failure(self, answer: Answer) -> ProviderError:
        source, body = self.source, await answer.read_error()
        said = source.redact(body)
        return source.hide(failure_of_answer(self.row.name, answer.status, answer.headers, said, self.clock()))

    def _secrets(self) -> tuple[bytes, ...]:
        """What the credentials hide, and the row's own headers: any of them may prove who asks."""
        values = [word for value in self.row.headers.values() for word in (value, value.rpartition(" ")[2])]
        return tuple(sorted({*self.auth.secrets(), *map(str.encode, values)}, key=len, reverse=True))

    async def fetch(
        self, path: str, body: bytes = b"", *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The whole answer, at most 8 MiB.

        Raises:
            ProviderError: as ``send``; ``StreamCut`` for an answer that is longer.
        """
        async with self.send(path, body, method=method, headers=headers) as answer:
            whole = b""
            while data := await answer.read():
                whole += data
                if len(whole) > MOST_BYTES:
                    raise self.source.cut(f"the answer is longer than {MOST_BYTES} bytes")
            return whole


async def read_parts(answer: Answer, reader: AnswerReader[Any]) -> AsyncGenerator[Part, None]:
    """Read ``answer`` to its end.

    Raises:
        ProviderError: it is none, or no whole one.
    """
    while not reader.ended:
        try:
            data = await answer.read()
        except StreamCut:
            if not reader.complete:
                raise
            data = b""
        for part in reader.feed(data) if data else reader.close():
            if isinstance(part, Ended):
                await answer.drain()  # now: who has the end may leave
            yield part
    if reader.failure is not None:
        raise reader.failure


class StreamFunction(Protocol):
    """One model call. Yields deltas and at last ``Ended``, or raises a ``ProviderError``.

    Closing the generator closes the connection to the provider.
    """

    def __call__(
        self, endpoint: Endpoint, model: ModelInfo, request: ModelRequest, /
    ) -> AsyncGenerator[Part, None]: ...


async def ask(
    endpoint: Endpoint, path: str, body: bytes, reader: AnswerReader[Any], headers: Mapping[str, str] | None = None
) -> AsyncGenerator[Part, None]:
    """Send ``body`` and read the streamed answer: all there is to a model call but its two forms."""
    async with endpoint.send(path, body, headers=headers) as answer, aclosing(read_parts(answer, reader)) as parts:
        async for part in parts:
            yield part
