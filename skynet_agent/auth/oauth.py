"""What the kinds of credentials that expire have in common."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from skynet_agent.errors import ProviderError, ProviderTimeout
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow

LONGEST_SILENCE_S = 30.0
"""Of a service that gives tokens; models may think for longer."""
LONGEST_CALL_S = 60.0

T = TypeVar("T")

_host = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
"""What every parser of addresses takes for one and the same host."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a service that gives tokens. Not to be shown: it may hold some."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def fields(self) -> dict[str, Any]:
        """The JSON object that it is; empty if it is none."""
        try:
            value = msgspec.json.decode(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


async def call(http: HttpClient, row: ProviderRow, request: HttpRequest) -> Reply:
    """Send ``request`` on behalf of the row; whatever the status, the first 64 KiB of what comes back.

    Raises:
        ProviderError: nothing came back.
    """
    impatient = replace(row, read_timeout_s=min(row.read_timeout_s, LONGEST_SILENCE_S))
    try:
        async with asyncio.timeout(LONGEST_CALL_S), http.send(impatient, request) as answer:
            return Reply(answer.status, answer.headers, await answer.read_error(LONGEST_CALL_S))
    except TimeoutError as exc:
        words = f"{row.name}: no whole answer within {LONGEST_CALL_S:g} s"
        raise ProviderTimeout(words, provider=row.name) from exc


async def post_form(http: HttpClient, row: ProviderRow, url: str, fields: Mapping[str, str]) -> Reply:
    """Send a form, as RFC 6749 and its kin want it, and ask for JSON."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    return await call(http, row, HttpRequest(url=url, headers=headers, body=urlencode(fields).encode()))


def secure_url(text: object) -> str:
    """``text`` without a slash at its end if a token may be sent there, else "": https, or http on this machine."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text:
        return ""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host or not _host.fullmatch(host) or parts.username is not None or parts.query or parts.fragment:
        return ""
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return ""
    return text.rstrip("/")


def own_url(text: object, issuer: str, domains: Collection[str]) -> str:
    """``text`` as ``secure_url`` has it, if ``issuer`` may send our tokens there, else "".

    It may name hosts of its own domain and of ``domains``; this machine only if it is on it: what an answer says must
    not take tokens to whoever listens here, nor to anybody else.
    """
    url = secure_url(text)
    host, own = urlsplit(url).hostname or "", urlsplit(issuer).hostname or ""
    if is_loopback(host):
        return url if is_loopback(own) else ""
    return url if any(host == domain or host.endswith(f".{domain}") for domain in (own, *domains) if domain) else ""


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Once(Generic[T]):
    """One attempt at a time to have something: whoever asks meanwhile waits for it and shares what comes of it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._failure: ProviderError | None = None

    async def run(self, known: Callable[[], T | None], attempt: Callable[[], Awaitable[T]]) -> T:
        """``known()``, or else what an ``attempt`` gives, after which ``known()`` gives it too.

        Raises:
            ProviderError: that of the attempt, also to those who only waited for it.
        """
        if (value := known()) is not None:
            return value
        attempts = self._attempts
        async with self._lock:
            if (value := known()) is not None:
                return value
            if self._attempts != attempts and self._failure is not None:
                raise self._failure
            self._failure = None
            try:
                return await attempt()
            except ProviderError as exc:
                self._failure = exc
                raise
            finally:
                self._attempts += 1


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``, and if the caller is cancelled meanwhile, let it end first: half of it would be lost for good."""
    task = asyncio.get_running_loop().create_task(work)  # owned by this call, which does not end before it
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                pass  # told more than once
        if not task.cancelled():
            task.exception()  # so that it counts as seen
        raise
