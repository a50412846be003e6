"""Qwen: a login at chat.qwen.ai with PKCE, whose access token lasts hours and is had anew with a refresh token.

As Qwen Code does it (``packages/core/src/qwen`` of https://github.com/QwenLM/qwen-code). Each refresh may give another
refresh token, which ends the one before: what was given is stored before anything else happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from skynet_agent.auth.device_flow import DeviceService, Granted, lifetime_s
from skynet_agent.auth.oauth import Once, Reply, own_url, post_form, secure_url, to_its_end
from skynet_agent.auth.tokens import StoredTokens, TokenStore, is_token
from skynet_agent.errors import AuthFailed, Overloaded, ProviderError
from skynet_agent.failures import failure_of_answer
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from skynet_agent.reading import Source
from skynet_memory.secrets import Secret

log = logging.getLogger(__name__)

LOGIN = "qwen"
"""The name of its tokens in the store: one login serves all rows of this kind."""
QWEN = "https://chat.qwen.ai"
CLIENT_ID = "f0304373b74a44d2b584a3fb70ca9e56"
"""That of Qwen Code. There is no way to register another application."""
SCOPE = "openid profile email model.completion"
DOMAINS = ("qwen.ai", "aliyuncs.com")
"""Where Qwen and Alibaba Cloud have the models."""
INTERVAL_S = 2.0
EARLIER_S = 60.0
"""So long before its end a token is had anew."""


def device_service(issuer: str) -> DeviceService:
    """The login there."""
    return DeviceService(
        device_url=f"{issuer}/api/v1/oauth2/device/code",
        token_url=token_url(issuer),
        client_id=CLIENT_ID,
        scope=SCOPE,
        pkce=True,
        interval_s=INTERVAL_S,
    )


def token_url(issuer: str) -> str:
    """Where tokens are had, the first ones and later ones."""
    return f"{issuer}/api/v1/oauth2/token"


def models_url(resource_url: object, issuer: str) -> str:
    """The base URL of this account's models: ``portal.qwen.ai`` stands for ``https://portal.qwen.ai/v1``.

    "" for what is no address that a token of ``issuer`` may be sent to.
    """
    if not isinstance(resource_url, str) or not resource_url:
        return ""
    url = own_url(resource_url if "://" in resource_url else f"https://{resource_url}", issuer, DOMAINS)
    return url if not url or url.endswith("/v1") else f"{url}/v1"


def tokens_of(granted: Granted, issuer: str, now: datetime) -> StoredTokens:
    """What is to be stored of a login."""
    return StoredTokens(
        access=granted.access,
        refresh=granted.refresh,
        expires_at_ms=_end_ms(granted.expires_in_s, now),
        issuer=issuer,
        base_url=models_url(granted.extra.get("resource_url"), issuer),
    )


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """Tokens that could not be stored, and those that they replace."""

    old: StoredTokens
    new: StoredTokens


class QwenAuth:
    """The access token of the login that is in the store."""

    def __init__(
        self,
        row: ProviderRow,
        http: HttpClient,
        clock: Callable[[], datetime],
        tokens: TokenStore | None,
        *,
        issuer: str = QWEN,
    ) -> None:
        """``issuer``: where to refresh tokens that do not say where they are from."""
        self._row = row
        self._http = http
        self._clock = clock
        self._tokens = tokens
        self._issuer = issuer
        self._seen: StoredTokens | None = None
        self._unwritten: _Unwritten | None = None
        self._once = Once[StoredTokens]()
        self._signed: WeakKeyDictionary[asyncio.Task[Any], StoredTokens] = WeakKeyDictionary()

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        tokens = await self._current(None)
        task = asyncio.current_task()
        assert task is not None, "signing is done by a task"
        self._signed[task] = tokens
        headers = {**request.headers, "Authorization": f"Bearer {tokens.access.reveal()}"}
        base_url = models_url(tokens.base_url, self._issuer_of(tokens)) or base_url
        return replace(request, url=base_url + path, headers=headers)

    async def renew(self) -> bool:
        """See ``Auth``.

        Raises:
            ProviderError: there was no other token, and why.
        """
        task = asyncio.current_task()
        refused = self._signed.get(task) if task is not None else None
        await self._current(None if refused is None else refused.access)
        return True

    def secrets(self) -> tuple[bytes, ...]:
        seen = self._seen
        known = [] if seen is None else [seen.access, seen.refresh]
        return tuple(secret.reveal().encode() for secret in known if secret)

    async def _current(self, refused: Secret | None) -> StoredTokens:
        def known() -> StoredTokens | None:
            tokens = self._read()
            is_stale = tokens.access == refused or self._is_over(tokens, EARLIER_S)
            return None if is_stale else tokens

        return await self._once.run(known, lambda: self._refreshed(refused, known))

    async def _refreshed(self, refused: Secret | None, known: Callable[[], StoredTokens | None]) -> StoredTokens:
        """New tokens; the old ones, should there be none to be had now and they still be good."""
        store = self._tokens
        assert store is not None, "there are tokens to refresh"
        try:
            async with store.lock(LOGIN):
                if (tokens := known()) is not None:  # another process was faster
                    return tokens
                return await to_its_end(self._refresh(store, self._read()))
        except OSError as exc:
            raise AuthFailed(f"{self._row.name}: {exc}", provider=self._row.name) from exc
        except ProviderError as exc:
            tokens = self._read()
            if tokens.access == refused or not exc.retriable or self._is_over(tokens, 0):
                raise
            return tokens

    async def _refresh(self, store: TokenStore, old: StoredTokens) -> StoredTokens:
        name = self._row.name
        if not old.refresh:
            raise _ended(name)
        form = {"grant_type": "refresh_token", "refresh_token": old.refresh.reveal(), "client_id": CLIENT_ID}
        issuer = self._issuer_of(old)
        reply = await post_form(self._http, self._row, token_url(issuer), form)
        fields = reply.fields()
        access, refresh = fields.get("access_token"), fields.get("refresh_token")
        if not 200 <= reply.status < 300 or not is_token(access):
            raise self._refusal(reply, old)
        new = StoredTokens(
            access=Secret(str(access)),
            refresh=Secret(str(refresh)) if is_token(refresh) else old.refresh,
            expires_at_ms=_end_ms(lifetime_s(fields.get("expires_in")), self._clock()),
            issuer=old.issuer,
            base_url=models_url(fields.get("resource_url"), issuer) or old.base_url,
        )
        self._store(store, old, new)
        return new

    def _store(self, store: TokenStore, old: StoredTokens, new: StoredTokens) -> None:
        try:
            store.write(LOGIN, new)
        except OSError as exc:
            # the old ones are worth nothing any more; until a write succeeds, this process alone has the new ones
            log.error("%s: the new tokens cannot be stored: %s", self._row.name, exc)
            on_file = self._unwritten.old if self._unwritten is not None else old
            self._unwritten = _Unwritten(on_file, new)
        else:
            self._unwritten = None
        self._seen = new

    def _issuer_of(self, tokens: StoredTokens) -> str:
        return secure_url(tokens.issuer) or self._issuer

    def _read(self) -> StoredTokens:
        name = self._row.name
        try:
            tokens = self._tokens.read(LOGIN) if self._tokens is not None else None
        except (OSError, ValueError) as exc:
            raise AuthFailed(f"{name}: {exc}", provider=name) from exc
        if tokens is None:
            raise AuthFailed(f"{name}: nobody has logged in; run: skynet providers login qwen", provider=name)
        if self._unwritten is not None and tokens == self._unwritten.old:
            tokens = self._unwritten.new
        self._seen = tokens
        return tokens

    def _is_over(self, tokens: StoredTokens, earlier_s: float) -> bool:
        end_ms = tokens.expires_at_ms
        return end_ms is not None and self._clock().timestamp() * 1000 >= end_ms - earlier_s * 1000

    def _refusal(self, reply: Reply, old: StoredTokens) -> ProviderError:
        name = self._row.name
        if reply.status in (400, 401):
            return _ended(name)
        if 200 <= reply.status < 300:
            return Overloaded(f"{name}: the answer to the refresh of the token makes no sense", provider=name)
        source = Source(name, (old.refresh.reveal().encode(), old.access.reveal().encode()))
        said = source.redact(reply.body)
        return source.hide(failure_of_answer(name, reply.status, reply.headers, said, self._clock()))


def _ended(name: str) -> AuthFailed:
    return AuthFailed(f"{name}: the login has ended; run: skynet providers login qwen", provider=name, status=401)


def _end_ms(lifetime: float | None, now: datetime) -> int | None:
    return None if lifetime is None else int((now.timestamp() + lifetime) * 1000)
