"""Access tokens of Google Cloud, from whatever makes them.

A credentials file is read by google-auth, which also gets the tokens: of a service account for an RS256-signed JWT, of
a person for a refresh token, of other clouds by exchange. It is imported, reads and computes in a thread, at the first
request (50 ms, 4 MB); what it sends goes through the gateway's own HTTP client, so that it needs no other. Its code for
the metadata server of Google's machines wants ``requests``, so that server is asked here. Reference:
https://google.aip.dev/auth/4110, https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from skynet_agent.auth.oauth import secure_url
from skynet_agent.errors import AuthFailed, Overloaded, ProviderError
from skynet_agent.failures import failure, read_error, retry_after
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from skynet_agent.reading import Source

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
LONGEST_REQUEST_S = 10.0
LONGEST_METADATA_S = 3.0
MOST_BYTES = 1024 * 1024
"""Of a credentials file, and of what a token endpoint answers."""
SHOWN_CHARACTERS = 300
"""Of what google-auth says."""


@dataclass(frozen=True, slots=True)
class Token:
    """An access token, and until when it counts, in seconds since 1970."""

    text: str = field(repr=False)
    expires: float


class TokenSource(Protocol):
    """Where tokens come from."""

    @property
    def project(self) -> str:
        """The credentials' own project; empty if they have none."""

    @property
    def quota_project(self) -> str:
        """The project that is charged, where it is not the one that is asked."""

    async def fetch(self) -> Token:
        """A new token.

        Raises:
            ProviderError: there is none.
        """


# Files


def default_file() -> str:
    """The file of the application default credentials; empty if there is none."""
    if named := os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""):
        return named
    home = os.environ.get("CLOUDSDK_CONFIG", "")
    directory = Path(home) if home else Path("~/.config/gcloud").expanduser()
    if os.name == "nt" and not home:
        directory = Path(os.environ.get("APPDATA", "C:/")) / "gcloud"
    file = directory / "application_default_credentials.json"
    return str(file) if file.is_file() else ""


def read_file(row: ProviderRow, http: HttpClient, file: str, loop: asyncio.AbstractEventLoop) -> TokenSource:
    """The credentials of ``file``. Blocks: it reads, imports and parses a key.

    Raises:
        AuthFailed: there is no such file, or there are no credentials in it.
    """

    def failed(why: str) -> AuthFailed:
        return AuthFailed(f"{row.name}: the credentials file {file} {why}", provider=row.name)

    try:
        with Path(file).expanduser().open("rb") as opened:
            info = json.loads(opened.read(MOST_BYTES))
    except OSError as exc:
        raise failed(f"cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError):
        raise failed("is not JSON") from None  # the cause holds the whole text
    if not isinstance(info, dict):
        raise failed("is not a JSON object")
    try:
        credentials = _credentials(info)
    except Exception as exc:  # google-auth raises what its parts do: ValueError, KeyError, TypeError, its own
        words = str(exc) if type(exc).__name__ == "MalformedError" else type(exc).__name__  # others may show the key
        raise failed(f"holds no {info['type']} credentials: {words}") from None
    if credentials is None:
        raise failed(f"has an unknown type: {str(info.get('type'))[:40]!r}")
    own = info.get("project_id") or getattr(credentials, "project_id", None)
    return LibraryCredentials(row, http, credentials, own if isinstance(own, str) else "", loop)


def _credentials(info: Mapping[str, Any]) -> Any:
    """google-auth's object for a credentials file; None for one of a type that it does not know."""
    scopes: dict[str, Any] = {"scopes": [SCOPE]}
    source = info.get("credential_source")
    match info.get("type"):
        case "service_account":
            kind, make = "google.oauth2.service_account", "from_service_account_info"
        case "authorized_user":  # the person's consent has its scopes
            kind, make, scopes = "google.oauth2.credentials", "from_authorized_user_info", {}
        case "impersonated_service_account":
            kind, make = "google.auth.impersonated_credentials", "from_impersonated_service_account_info"
        case "external_account_authorized_user":
            kind, make, scopes = "google.auth.external_account_authorized_user", "from_info", {}
        case "external_account" if info.get("subject_token_type") == "urn:ietf:params:aws:token-type:aws4_request":
            kind, make = "google.auth.aws", "from_info"
        case "external_account" if isinstance(source, dict) and source.get("executable") is not None:
            kind, make = "google.auth.pluggable", "from_info"
        case "external_account":
            kind, make = "google.auth.identity_pool", "from_info"
        case _:
            return None
    return getattr(import_module(kind).Credentials, make)(dict(info), **scopes)


class LibraryCredentials:
    """Credentials that google-auth knows how to make tokens of."""

    def __init__(
        self, row: ProviderRow, http: HttpClient, credentials: Any, project: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._row = row
        self._http = http
        self._credentials = credentials
        self._loop = loop
        self.project = project
        quota_project = os.environ.get("GOOGLE_CLOUD_QUOTA_PROJECT") or getattr(credentials, "quota_project_id", None)
        self.quota_project = str(quota_project or "")

    async def fetch(self) -> Token:
        transport = Transport(self._row, self._http, self._loop)
        try:
            await asyncio.to_thread(self._refresh, transport)
        finally:
            transport.close()
        expiry: datetime | None = self._credentials.expiry  # of UTC, without saying so
        expires = math.inf if expiry is None else expiry.replace(tzinfo=UTC).timestamp()
        token = self._credentials.token
        return Token(token if isinstance(token, str) else "", expires)

    def _refresh(self, transport: Transport) -> None:
        from google.auth.exceptions import GoogleAuthError, TransportError

        name = self._row.name
        try:
            self._credentials.refresh(transport)
        except TransportError as exc:
            if transport.failure is not None:
                raise transport.failure from None
            raise Overloaded(f"{name}: no access token: {transport.words(exc)}", provider=name) from None
        except GoogleAuthError as exc:
            kind = Overloaded if getattr(exc, "retryable", False) else AuthFailed
            raise kind(f"{name}: no access token: {transport.words(exc)}", provider=name) from None
        except Exception as exc:  # it takes what it is answered for what it should be: TypeError, ValueError …
            raise Overloaded(f"{name}: no access token: {type(exc).__name__}", provider=name) from None


@dataclass(frozen=True, slots=True)
class TransportAnswer:
    """What google-auth wants to know of an answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes = field(repr=False)


class Transport:
    """google-auth's way out, by its ``google.auth.transport.Request``: called in a thread, sends in the event loop.

    After ``close`` nothing is sent any more, and what waits for an answer gets none.
    """

    def __init__(self, row: ProviderRow, http: HttpClient, loop: asyncio.AbstractEventLoop) -> None:
        self._row = _patient(row, LONGEST_REQUEST_S)
        self._http = http
        self._loop = loop
        self._futures: set[Future[TransportAnswer]] = set()
        self._secrets: list[bytes] = []
        self._is_closed = False
        self.failure: ProviderError | None = None
        """Why the last request had no answer, or one that says to ask later."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        **_: object,
    ) -> TransportAnswer:
        data = body.encode() if isinstance(body, str) else body or b""
        if data and not secure_url(url.partition("?")[0]):  # the metadata server and its like are read, without TLS
            words = f"{self._row.name}: the credentials name an address for tokens that is not https"
            self.failure = AuthFailed(words, provider=self._row.name)
            raise _no_answer("not asked")
        self._remember(data, headers or {})
        request = HttpRequest(url=url, method=method, headers=dict(headers or {}), body=data)
        future = asyncio.run_coroutine_threadsafe(self._send(request), self._loop)
        self._futures.add(future)
        if self._is_closed:
            future.cancel()
        try:
            return future.result()
        except ProviderError as exc:
            self.failure = exc
            raise _no_answer("no answer") from exc
        except CancelledError as exc:
            raise _no_answer("given up") from exc

    def close(self) -> None:
        """Give up what is under way. Called in the event loop."""
        self._is_closed = True
        for future in list(self._futures):
            future.cancel()

    def words(self, error: Exception) -> str:
        """What google-auth says of ``error``, without what was sent, at most a line."""
        said = str(error.args[0]) if error.args else type(error).__name__
        shown = Source(self._row.name, tuple(self._secrets)).redact(said.encode("utf-8", "replace"))
        return " ".join(shown.decode().split())[:SHOWN_CHARACTERS]

    def _remember(self, data: bytes, headers: Mapping[str, str]) -> None:
        """No failure may show what proves who asks, should the answer repeat it."""
        form = dict(parse_qsl(data)) if headers.get("Content-Type", "").startswith("application/x-www-form") else {}
        self._secrets += [value for name, value in form.items() if name not in (b"grant_type", b"scope")]
        _, _, token = headers.get("Authorization", "").partition(" ")
        self._secrets += [token.encode()] if token else []

    async def _send(self, request: HttpRequest) -> TransportAnswer:
        async with self._http.send(self._row, request) as answer:
            data = b""
            while len(data) < MOST_BYTES and (more := await answer.read()):
                data += more
        if answer.status in (408, 429) or answer.status >= 500:
            source = Source(self._row.name, tuple(self._secrets))
            message, code = read_error(source.redact(data))
            words = f"{urlsplit(request.url).hostname} gives no access token: {message or 'no reason given'}"
            wait = retry_after(answer.headers, datetime.now(UTC))
            raise source.hide(failure(self._row.name, answer.status, message=words, code=code, retry_after_s=wait))
        return TransportAnswer(answer.status, answer.headers, data)


def _patient(row: ProviderRow, most_s: float) -> ProviderRow:
    """``row``, with no limit longer than ``most_s``."""
    connect_s, read_s = min(row.connect_timeout_s, most_s), min(row.read_timeout_s, most_s)
    return replace(row, connect_timeout_s=connect_s, read_timeout_s=read_s)


def _no_answer(words: str) -> Exception:
    """The exception that google-auth expects."""
    error: type[Exception] = import_module("google.auth.exceptions").TransportError
    return error(words)


# The metadata server


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float


class MetadataServer:
    """Tokens of the service account that a machine in Google's cloud has."""

    quota_project = ""

    def __init__(self, row: ProviderRow, http: HttpClient, now: Callable[[], float]) -> None:
        self._row = _patient(row, LONGEST_METADATA_S)
        self._http = http
        self._now = now
        self.project = ""

    async def is_there(self) -> bool:
        """Whether this is such a machine; if so, ``project`` is its project."""
        if os.environ.get("NO_GCE_CHECK", "").lower() == "true":
            return False
        try:
            status, data = await self._get("project/project-id")
        except ProviderError:
            return False
        self.project = data.decode("ascii", "replace").strip() if status == 200 else ""
        return True

    async def fetch(self) -> Token:
        name = self._row.name
        status, data = await self._get("instance/service-accounts/default/token")
        if status != 200:
            raise failure(name, status, message="the metadata server gives no access token")
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except msgspec.MsgspecError as exc:
            raise Overloaded(f"{name}: the metadata server's answer holds no access token", provider=name) from exc
        return Token(answer.access_token, self._now() + answer.expires_in)

    async def _get(self, key: str) -> tuple[int, bytes]:
        """Status and body; only of an answer that says it is Google's, whoever else may have that address."""
        host = os.environ.get("GCE_METADATA_HOST") or "169.254.169.254"
        url = f"http://{host}/computeMetadata/v1/{key}"
        request = HttpRequest(url=url, method="GET", headers={"Metadata-Flavor": "Google"})
        async with self._http.send(self._row, request) as answer:
            data = await answer.read_error()
        if answer.headers.get("Metadata-Flavor") != "Google":
            raise Overloaded(f"{self._row.name}: {host} is no metadata server", provider=self._row.name)
        return answer.status, data
