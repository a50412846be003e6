"""GitHub Copilot: a login at GitHub, exchanged again and again for a token of the models' API that lasts minutes.

GitHub documents the login (https://docs.github.com/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps, device
flow), not the exchange and the API behind it, which editors use: ``GET copilot_internal/v2/token`` gives ``token``,
``expires_at`` (epoch seconds), ``refresh_in`` (seconds) and ``endpoints.api``, where this account's models are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from skynet_agent.auth.device_flow import DeviceService
from skynet_agent.auth.oauth import Once, Reply, call, is_loopback, own_url, secure_url
from skynet_agent.auth.tokens import TokenStore, is_token
from skynet_agent.errors import AuthFailed, Overloaded, ProviderError
from skynet_agent.failures import failure_of_answer
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from skynet_agent.reading import Source
from skynet_memory.secrets import Secret

LOGIN = "copilot"
"""The name of its tokens in the store: one login serves all rows of this kind."""
GITHUB = "https://github.com"
CLIENT_ID = "Iv1.b507a08c87ecfe98"
"""The application that editors without one of their own log in as: the exchange takes tokens of few applications."""
SCOPE = "read:user"
ENVIRONMENT = ("COPILOT_GITHUB_TOKEN", "GITHUB_COPILOT_TOKEN")
"""Where a GitHub token may stand in place of a login."""

EDITOR = "skynet/1"
INTEGRATION = "vscode-chat"
EDITOR_HEADERS: Mapping[str, str] = {
    # The API refuses requests that name no editor, but takes any name: ours.
    "Editor-Version": EDITOR,
    "Editor-Plugin-Version": EDITOR,
    # This one has to be on GitHub's list, and nobody else can be put on it; editors that are not Microsoft's (Zed,
    # CopilotChat.nvim) send the same. A row's own headers win.
    "Copilot-Integration-Id": INTEGRATION,
}

DOMAINS = ("githubcopilot.com",)
"""Where GitHub has the models, besides its own domain and those of enterprises."""

EARLIER_S = 60.0
"""So long before its end a token is had anew, where the exchange does not say when."""
IMAGE_MARKS = (b'"type":"image_url"', b'"type":"input_image"', b'"type":"image"')
"""In a body as we encode it. Within a text its quotation marks would have backslashes before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopilotPlaces:
    """Where GitHub is: the addresses of the login and of the exchange."""

    issuer: str
    device_url: str
    token_url: str
    exchange_url: str

    @classmethod
    def of(cls, issuer: str) -> CopilotPlaces:
        """Those of github.com, of an enterprise's own (``https://NAME.ghe.com``), or of a server on this machine."""
        parts = urlsplit(issuer)
        api = issuer if is_loopback(parts.hostname or "") else f"{parts.scheme}://api.{parts.netloc}"
        return cls(
            issuer=issuer,
            device_url=f"{issuer}/login/device/code",
            token_url=f"{issuer}/login/oauth/access_token",
            exchange_url=f"{api}/copilot_internal/v2/token",
        )


def device_service(issuer: str) -> DeviceService:
    """The login there."""
    places = CopilotPlaces.of(issuer)
    return DeviceService(device_url=places.device_url, token_url=places.token_url, client_id=CLIENT_ID, scope=SCOPE)


@dataclass(frozen=True, slots=True)
class Lease:
    """A token of the models' API. ``github`` is what it was given for; times are epoch seconds."""

    token: Secret
    github: Secret
    base_url: str
    renew_at_s: float
    expires_at_s: float


class CopilotAuth:
    """The token of the models' API that all requests of a row share, and the headers that the API demands."""

    def __init__(
        self,
        row: ProviderRow,
        http: HttpClient,
        clock: Callable[[], datetime],
        tokens: TokenStore | None,
        *,
        places: CopilotPlaces | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """``places``: where to exchange tokens that do not say where they are from."""
        self._row = row
        self._http = http
        self._clock = clock
        self._tokens = tokens
        self._places = places or CopilotPlaces.of(GITHUB)
        self._env = env
        self._lease: Lease | None = None
        self._once = Once[Lease]()
        # which one a request was signed with is known to its own task: of many that were refused at the same time, the
        # first exchanges and the others find that it was done
        self._signed: WeakKeyDictionary[asyncio.Task[Any], Lease] = WeakKeyDictionary()

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        lease = await self._current(None)
        self._signed[_this_task()] = lease
        headers = {**EDITOR_HEADERS, **_facts(request.body), **request.headers}
        headers["Authorization"] = f"Bearer {lease.token.reveal()}"
        return replace(request, url=(lease.base_url or base_url) + path, headers=headers)

    async def renew(self) -> bool:
        """See ``Auth``.

        Raises:
            ProviderError: there was no other token, and why.
        """
        signed = self._signed.get(_this_task())
        refused = None if signed is None else signed.token
        return (await self._current(refused)).token != refused

    def secrets(self) -> tuple[bytes, ...]:
        lease, key = self._lease, self._row.api_key
        known = [key] if lease is None else [key, lease.token, lease.github]
        return tuple(secret.reveal().encode() for secret in known if secret)

    async def _current(self, refused: Secret | None) -> Lease:
        github, places = self._login()

        def known() -> Lease | None:
            lease = self._lease
            if lease is None or lease.token == refused or lease.github != github:
                return None
            return lease if self._clock().timestamp() < lease.renew_at_s else None

        async def attempt() -> Lease:
            self._lease = await self._renewed(github, places, refused)
            return self._lease

        return await self._once.run(known, attempt)

    async def _renewed(self, github: Secret, places: CopilotPlaces, refused: Secret | None) -> Lease:
        """A new token; the old one for another minute, should there be none to be had now and it still be good."""
        old, now_s = self._lease, self._clock().timestamp()
        try:
            return await exchange(self._http, self._row, places, github, self._clock)
        except ProviderError as exc:
            if old is None or old.token == refused or old.github != github:
                raise
            if not exc.retriable or now_s >= old.expires_at_s:
                raise
            return replace(old, renew_at_s=min(now_s + EARLIER_S, old.expires_at_s))

    def _login(self) -> tuple[Secret, CopilotPlaces]:
        """The GitHub token to use: configured, of the environment, or of the login."""
        name = self._row.name
        given = self._row.api_key.reveal() or next(filter(None, map(self._env.get, ENVIRONMENT)), "")
        if given:
            if not is_token(given):
                raise AuthFailed(f"{name}: the GitHub token has characters that no token has", provider=name)
            return Secret(given), self._places
        try:
            stored = self._tokens.read(LOGIN) if self._tokens is not None else None
        except (OSError, ValueError) as exc:
            raise AuthFailed(f"{name}: {exc}", provider=name) from exc
        if stored is None:
            raise AuthFailed(f"{name}: nobody has logged in; run: skynet providers login copilot", provider=name)
        issuer = secure_url(stored.issuer)
        return stored.access, CopilotPlaces.of(issuer) if issuer else self._places


async def exchange(
    http: HttpClient, row: ProviderRow, places: CopilotPlaces, github: Secret, clock: Callable[[], datetime]
) -> Lease:
    """Have a token of the models' API for a GitHub token.

    Raises:
        AuthFailed: GitHub no longer knows the token, or its owner may not use Copilot.
        ProviderError: it cannot be had now.
    """
    asked = {**EDITOR_HEADERS, "Accept": "application/json", "Authorization": f"token {github.reveal()}"}
    reply = await call(http, row, HttpRequest(url=places.exchange_url, method="GET", headers={**asked, **row.headers}))
    if not 200 <= reply.status < 300:
        raise _refusal(row.name, reply, github, clock())
    fields = reply.fields()
    token, endpoints, now_s = fields.get("token"), fields.get("endpoints"), clock().timestamp()
    api = endpoints.get("api") if isinstance(endpoints, dict) else None
    base_url = own_url(api, places.issuer, DOMAINS)
    if not is_token(token) or (api and not base_url):
        raise Overloaded(f"{row.name}: GitHub's answer to the exchange of the token makes no sense", provider=row.name)
    expires_at_s = _number(fields.get("expires_at"), now_s)
    # what is counted from now on does not depend on how right our clock is
    refresh_in_s = _number(fields.get("refresh_in"), expires_at_s - now_s - EARLIER_S)
    return Lease(Secret(str(token)), github, base_url, now_s + refresh_in_s, expires_at_s)


def _refusal(name: str, reply: Reply, github: Secret, now: datetime) -> ProviderError:
    source = Source(name, (github.reveal().encode(),))
    failure = source.hide(failure_of_answer(name, reply.status, reply.headers, source.redact(reply.body), now))
    if reply.status == 401:
        words = f"{name}: GitHub no longer accepts the login; run: skynet providers login copilot"
        return AuthFailed(words, provider=name, status=401)
    if reply.status in (403, 404):
        words = f"{failure}; Copilot has to be enabled for this GitHub account, and personal access tokens do not do"
        return AuthFailed(words, provider=name, status=reply.status)
    return failure


class _Turn(msgspec.Struct):
    role: str = ""


class _Body(msgspec.Struct):
    messages: list[_Turn] | None = None
    input: Any = None


_body = msgspec.json.Decoder(_Body)


def _facts(body: bytes) -> dict[str, str]:
    """What the API wants to know of a model call beforehand: who began it, and whether there are images.

    A person's own message is charged as a request; what an agent asks after its tools have run is not.
    """
    if not body:
        return {}
    try:
        asked = _body.decode(body)
    except (ValueError, RecursionError):
        return {}
    turns = asked.messages if asked.messages is not None else asked.input
    last = turns[-1] if isinstance(turns, list) and turns else None
    role = last.role if isinstance(last, _Turn) else last.get("role") if isinstance(last, dict) else "user"
    facts = {"X-Initiator": "user" if role == "user" else "agent"}
    if any(mark in body for mark in IMAGE_MARKS):
        facts["Copilot-Vision-Request"] = "true"
    return facts


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e12 else otherwise


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "signing is done by a task"
    return task
