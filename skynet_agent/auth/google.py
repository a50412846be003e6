"""Google Cloud: who asks, and the project and the place that a request to Vertex AI names.

Credentials, the first that there are:

1. ``credentials_file`` of the row.
2. ``api_key`` of the row: express mode, which knows no project and only Google's own models.
3. The file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, then the one that ``gcloud auth application-default login``
   leaves behind.
4. ``GOOGLE_API_KEY``, also for express mode; not where a project is named, for then somebody means to have it billed.
5. The metadata server of a machine in Google's cloud.

Reference: https://cloud.google.com/docs/authentication/application-default-credentials,
https://cloud.google.com/vertex-ai/generative-ai/docs/start/express-mode/vertex-ai-express-mode-api-reference.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from urllib.parse import quote

from skynet_agent.auth.google_tokens import MetadataServer, Token, TokenSource, default_file, read_file
from skynet_agent.errors import AuthFailed, BadRequest, Overloaded, ProviderError, ProviderTimeout
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow

API_VERSION = "v1"
ANYWHERE = "global"
"""The location that leaves it to Google where a request is answered."""
MULTI_REGIONS = ("us", "eu")
"""Locations of several regions; their host is named another way."""

RENEWED_BEFORE_S = 225.0
"""So long before its end a token is replaced. The metadata server makes no new ones before the last 300 seconds."""
LONGEST_S = 30.0
"""To get a token, with all that takes."""
ABSENT_S = 60.0
"""So long nobody asks again for a metadata server that was not there."""

HOW_TO = "set credentials_file or GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"

_location = re.compile(r"[a-z0-9-]+")
_version = re.compile(r"/v\d+\w*\Z")
_printable = re.compile(r"[!-~]+")
_sent: ContextVar[str] = ContextVar("sent_google_token", default="")
"""The token that this task signed with last: of many requests that are refused at once, only one replaces it."""


class GoogleAuth:
    """An access token in ``Authorization``, or a key in ``x-goog-api-key``; and the address made complete.

    A wire API asks for a path such as ``/publishers/google/models/…``. What goes before it is put there by ``sign``:
    the host of the location, or the row's ``base_url``, then the version, the project and the location.
    """

    def __init__(self, row: ProviderRow, http: HttpClient, *, now: Callable[[], float] = time.time) -> None:
        self._row = row
        self._http = http
        self._now = now
        self._lock = asyncio.Lock()
        self._source: TokenSource | None = None
        self._token: Token | None = None
        self._failure: ProviderError | None = None
        self._absent_until = -math.inf

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        if self._key:
            if not path.startswith("/publishers/google/"):
                words = f"{self._row.name}: an API key reaches only Google's own models; {HOW_TO}"
                raise AuthFailed(words, provider=self._row.name)
            headers = {"x-goog-api-key": self._key, **request.headers}
            return replace(request, url=_base(base_url, ANYWHERE) + path, headers=headers)
        location = self._location()
        token, source = await self._valid()
        place = f"/projects/{quote(self._project(source), safe=':')}/locations/{location}"
        headers = {"Authorization": f"Bearer {token.text}", **request.headers}
        if source.quota_project:
            headers["x-goog-user-project"] = source.quota_project
        _sent.set(token.text)
        return replace(request, url=_base(base_url, location) + place + path, headers=headers)

    async def renew(self) -> bool:
        if self._key:
            return False
        if self._token is not None and self._token.text == _sent.get():
            self._token = None
        return True

    def secrets(self) -> tuple[bytes, ...]:
        known = (self._key, self._token.text if self._token else "", _sent.get())
        return tuple(dict.fromkeys(text.encode() for text in known if text))

    @cached_property
    def _key(self) -> str:
        """The key of express mode; empty if there are other credentials."""
        row = self._row
        if row.credentials_file:
            return ""
        if key := row.api_key.reveal():
            return key
        if row.project or os.environ.get("GOOGLE_CLOUD_PROJECT") or default_file():
            return ""
        return os.environ.get("GOOGLE_API_KEY", "")

    def _location(self) -> str:
        location = self._row.region or os.environ.get("GOOGLE_CLOUD_LOCATION") or ANYWHERE
        if not _location.fullmatch(location):  # it becomes a part of the host's name
            raise BadRequest(f"{self._row.name}: {location!r} is no location of Google Cloud", provider=self._row.name)
        return location

    def _project(self, source: TokenSource) -> str:
        project = self._row.project or source.project or os.environ.get("GOOGLE_CLOUD_PROJECT") or source.quota_project
        if not project:
            words = "no Google Cloud project: the credentials name none; set project or GOOGLE_CLOUD_PROJECT"
            raise AuthFailed(f"{self._row.name}: {words}", provider=self._row.name)
        return project

    async def _valid(self) -> tuple[Token, TokenSource]:
        """A token that counts a while yet. Requests at once share one call for it, and its failure."""
        last = self._failure
        async with self._lock:
            if self._failure is not None and self._failure is not last:
                raise self._failure
            if self._source is None or self._token is None or self._now() > self._token.expires - RENEWED_BEFORE_S:
                try:
                    self._source, self._token = await self._fetch(self._source)
                except ProviderError as exc:
                    self._failure = exc
                    self._source = None  # the next request reads the file anew: it may have been replaced
                    raise
            return self._token, self._source

    async def _fetch(self, source: TokenSource | None) -> tuple[TokenSource, Token]:
        name = self._row.name
        try:
            async with asyncio.timeout(LONGEST_S):
                source = source or await self._find()
                token = await source.fetch()
        except TimeoutError as exc:
            raise ProviderTimeout(f"{name}: no access token within {LONGEST_S:g} s", provider=name) from exc
        if not _printable.fullmatch(token.text):
            raise Overloaded(f"{name}: what came for an access token is none", provider=name)
        return source, token

    async def _find(self) -> TokenSource:
        row = self._row
        if file := row.credentials_file or default_file():
            return await asyncio.to_thread(read_file, row, self._http, file, asyncio.get_running_loop())
        if self._now() > self._absent_until:
            server = MetadataServer(row, self._http, self._now)
            if await server.is_there():
                return server
            self._absent_until = self._now() + ABSENT_S
        raise AuthFailed(f"{row.name}: no Google credentials; {HOW_TO}", provider=row.name)


def host_of(location: str) -> str:
    """Who answers for Vertex AI there."""
    if location == ANYWHERE:
        return "aiplatform.googleapis.com"
    if location in MULTI_REGIONS:
        return f"aiplatform.{location}.rep.googleapis.com"
    return f"{location}-aiplatform.googleapis.com"


def _base(base_url: str, location: str) -> str:
    base = base_url or f"https://{host_of(location)}"
    return base if _version.search(base) else f"{base}/{API_VERSION}"
