"""Logging in on another device: the code of RFC 8628, with PKCE (RFC 7636) where the service wants it.

``DeviceFlow`` knows what is asked and what the answers mean; ``log_in`` does the asking.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from skynet_agent.auth.oauth import Reply, is_loopback, post_form
from skynet_agent.auth.tokens import is_token
from skynet_agent.errors import ProviderError
from skynet_agent.failures import SHOWN_CHARACTERS
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import ProviderRow
from skynet_agent.reading import Source
from skynet_memory.secrets import Secret

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
USUAL_EXPIRY_S = 900.0
LONGEST_EXPIRY_S = 3600.0
USUAL_INTERVAL_S = 5.0
LONGEST_INTERVAL_S = 60.0
SLOWER_BY_S = 5.0
"""What ``slow_down`` means (RFC 8628 3.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceService:
    """Where one logs in, and as which application. ``client_id`` is public: such a flow has no secret of its own."""

    device_url: str
    token_url: str
    client_id: str
    scope: str
    pkce: bool = False
    interval_s: float = USUAL_INTERVAL_S
    """Between two questions, if the service does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """What a person needs: the code, and where it is to be entered. ``complete_url`` already holds it, or is empty."""

    user_code: str
    url: str
    complete_url: str
    expires_in_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """The person has not agreed yet; so many seconds are left."""

    remaining_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The person has agreed. ``extra`` is what the answer had beside tokens."""

    access: Secret
    refresh: Secret
    expires_in_s: float | None
    extra: Mapping[str, Any]


LoginStep: TypeAlias = DeviceCode | Waiting | Granted


class LoginFailed(Exception):  # noqa: N818 - reads as what happened
    """There will be no tokens: the code ``expired``, the person ``denied``, or the service ``refused`` or failed."""

    def __init__(self, reason: Literal["expired", "denied", "refused"], message: str) -> None:
        super().__init__(message)
        self.reason = reason


class DeviceFlow:
    """One login. ``now_s`` is any clock that only goes forward."""

    def __init__(self, service: DeviceService) -> None:
        self._service = service
        self._verifier = secrets.token_urlsafe(32)
        self._device_code = ""
        self._deadline_s = 0.0
        self.interval_s = service.interval_s
        """How long to wait before the next question."""

    def opening(self) -> dict[str, str]:
        """The form that asks for a code."""
        form = {"client_id": self._service.client_id, "scope": self._service.scope}
        if self._service.pkce:
            form |= {"code_challenge": challenge_of(self._verifier), "code_challenge_method": "S256"}
        return form

    def read_code(self, reply: Reply, now_s: float) -> DeviceCode:
        """The answer to it.

        Raises:
            LoginFailed: the service gave no code.
        """
        fields = reply.fields()
        code, url, device_code = (
            fields.get("user_code"),
            _page(fields.get("verification_uri")),
            fields.get("device_code"),
        )
        if not (200 <= reply.status < 300 and is_token(code) and url and is_token(device_code)):
            raise LoginFailed("refused", f"no code was given: {self._words(reply)}")
        self._device_code = str(device_code)
        self.interval_s = _seconds(fields.get("interval"), self._service.interval_s, LONGEST_INTERVAL_S)
        expires_in_s = _seconds(fields.get("expires_in"), USUAL_EXPIRY_S, LONGEST_EXPIRY_S)
        self._deadline_s = now_s + expires_in_s
        complete = _page(fields.get("verification_uri_complete"))
        return DeviceCode(user_code=str(code), url=url, complete_url=complete, expires_in_s=expires_in_s)

    def remaining_s(self, now_s: float) -> float:
        """How long the code is good for.

        Raises:
            LoginFailed: no longer.
        """
        if now_s >= self._deadline_s:
            raise _expired()
        return self._deadline_s - now_s

    def question(self) -> dict[str, str]:
        """The form that asks whether the person has agreed."""
        form = {"grant_type": GRANT_TYPE, "client_id": self._service.client_id, "device_code": self._device_code}
        return {**form, "code_verifier": self._verifier} if self._service.pkce else form

    def read_answer(self, reply: Reply) -> Granted | None:
        """The answer to it; None for not yet. GitHub answers 200 whatever it says, others 400.

        Raises:
            LoginFailed: there is nothing to wait for any more.
        """
        fields = reply.fields()
        access, refresh = fields.get("access_token"), fields.get("refresh_token")
        if 200 <= reply.status < 300 and is_token(access):
            return Granted(
                access=Secret(str(access)),
                refresh=Secret(str(refresh) if is_token(refresh) else ""),
                expires_in_s=lifetime_s(fields.get("expires_in")),
                extra={name: value for name, value in fields.items() if not name.endswith("_token")},
            )
        match fields.get("error"):
            case "authorization_pending":
                return None
            case "slow_down":
                self.slow_down(fields.get("interval"))
                return None
            case "expired_token":
                raise _expired()
            case "access_denied":
                raise LoginFailed("denied", "the request was denied")
            case None if reply.status == 429 or reply.status >= 500:
                self.slow_down()
                return None
            case _:
                raise LoginFailed("refused", f"the login was refused: {self._words(reply)}")

    def slow_down(self, interval_s: object = None) -> None:
        """Ask less often: as often as the service says, else by five seconds less."""
        slower = min(self.interval_s + SLOWER_BY_S, LONGEST_INTERVAL_S)
        self.interval_s = _seconds(interval_s, slower, LONGEST_INTERVAL_S)

    def _words(self, reply: Reply) -> str:
        """What the service said, without what it was told in confidence."""
        fields = reply.fields()
        said = fields.get("error_description") or fields.get("error") or fields.get("message") or "no reason given"
        hidden = Source("", (self._device_code.encode(), self._verifier.encode()))
        shown = hidden.redact(" ".join(str(said).split()).encode("utf-8", "replace")).decode()
        return f"{shown[:SHOWN_CHARACTERS]} (HTTP {reply.status})"


async def log_in(
    service: DeviceService,
    http: HttpClient,
    row: ProviderRow,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[LoginStep, None]:
    """Log in. Yields the code to show, then ``Waiting`` before each wait, and at last what was granted.

    A service that cannot be reached while the person is busy is asked again, less often.

    Raises:
        LoginFailed: it came to nothing.
        ProviderError: the service cannot be reached at all.
    """
    flow = DeviceFlow(service)
    yield flow.read_code(await post_form(http, row, service.device_url, flow.opening()), monotonic())
    while True:
        remaining_s = flow.remaining_s(monotonic())
        yield Waiting(remaining_s)
        await sleep(min(flow.interval_s, remaining_s))
        flow.remaining_s(monotonic())
        try:
            reply = await post_form(http, row, service.token_url, flow.question())
        except ProviderError:
            flow.slow_down()
            continue
        if (granted := flow.read_answer(reply)) is not None:
            yield granted
            return


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a PKCE verifier (RFC 7636 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode()


def lifetime_s(value: object) -> float | None:
    """``expires_in`` of a token, None if there is none."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None


def _expired() -> LoginFailed:
    return LoginFailed("expired", "the code expired before anybody entered it")


def _seconds(value: object, usual: float, most: float) -> float:
    return float(min(value, most)) if isinstance(value, int | float) and 0 < value < float("inf") else usual


def _page(value: object) -> str:
    """An address that a person may open, else ""."""
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return ""
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
    except ValueError:
        return ""
    return value if host and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))) else ""
