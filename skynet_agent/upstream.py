"""A provider as the router uses it: the way to it, its circuit breaker, its queue, and how it has been."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType

from skynet_agent.breaker import Breaker, CircuitState, Permit
from skynet_agent.endpoint import Endpoint
from skynet_agent.errors import AuthFailed, ProviderError, RateLimited
from skynet_agent.limiter import Limiter
from skynet_agent.providers import ModelInfo, ProviderRow

log = logging.getLogger(__name__)

NEWEST_SHARE = 0.2
"""Of the newest answer in the average time to the first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderHealth:
    """How a provider is, as far as the requests since the gateway's start tell. Times are epoch milliseconds."""

    name: str
    title: str
    api: str
    priority: int
    local: bool
    state: CircuitState
    """Of its circuit: an ``open`` provider is asked only when nobody else can answer."""
    failures: int
    """In a row, up to now."""
    opened_for_s: float
    """Seconds until it is tried again; 0 unless ``open``."""
    last_error: str | None
    last_error_ms: int | None
    last_success_ms: int | None
    first_token_s: float | None
    """From the request to the first token, an average that follows the newest answers."""
    auth: str
    """The state of its credentials in words; see ``refused``."""
    refused: bool
    """It refused the credentials the last time."""
    waiting: int
    """Requests that wait for their turn."""
    models: tuple[ModelInfo, ...]

    @property
    def healthy(self) -> bool:
        """Nothing is known against it."""
        return self.state == "closed" and self.failures == 0 and not self.refused


class CircuitOpen(Exception):  # noqa: N818 - a signal to the router, never seen outside
    """The breaker was opened while the request waited for its turn."""


class Upstream:
    """One provider.

    Args:
        endpoint: the way to it.
        breaker: what opens when it fails.
        clock: for time stamps.
        monotonic: seconds that only grow.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        breaker: Breaker,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        row = endpoint.row
        self.endpoint = endpoint
        self.breaker = breaker
        self._limiter = (
            None
            if row.requests_per_minute is None
            else Limiter(row.name, row.requests_per_minute, clock=monotonic, sleep=sleep)
        )
        self._clock = clock
        self.monotonic = monotonic
        self._last_error: str | None = None
        self._last_error_ms: int | None = None
        self._last_success_ms: int | None = None
        self._first_token_s: float | None = None
        self._refusal = ""

    def call(self, *, last_resort: bool = False) -> Call:
        """A request that is about to be made; enter it around the request."""
        return Call(self, last_resort)

    async def enter(self, last_resort: bool) -> Permit:
        """Wait for a turn and for the breaker's leave.

        Raises:
            CircuitOpen: it has opened, and this is no last resort.
            RateLimited: too many wait already.
        """
        if self._limiter is not None:
            await self._limiter.turn()
        permit = self.breaker.force() if last_resort else self.breaker.enter()
        if permit is None:
            raise CircuitOpen
        return permit

    def answered(self, permit: Permit, after_s: float) -> None:
        """The first part of an answer came."""
        was = self.breaker.state
        self.breaker.answered(permit)
        if was != "closed" and self.breaker.state == "closed":
            log.info("%s answers again", self.endpoint.row.name)
        average = self._first_token_s
        self._first_token_s = after_s if average is None else average + NEWEST_SHARE * (after_s - average)
        self._last_success_ms = self._now_ms()
        self._refusal = ""

    def failed(self, permit: Permit, failure: ProviderError) -> None:
        """The provider failed, which counts, or it refused, which shows that it is there."""
        self._last_error, self._last_error_ms = str(failure), self._now_ms()
        if isinstance(failure, AuthFailed):
            self._refusal = str(failure)
        if not failure.retriable:
            if failure.status is None:  # it was not even asked: no credentials, no form for the request
                self.breaker.abandoned(permit)
            else:
                self.breaker.succeeded(permit)
            return
        was = self.breaker.state
        self.breaker.failed(permit, failure.retry_after_s if isinstance(failure, RateLimited) else None)
        if was != "open" and self.breaker.state == "open":
            log.warning(
                "%s is left alone for %.0f s, failures in a row: %d",
                self.endpoint.row.name,
                self.breaker.open_for_s,
                self.breaker.failures,
            )

    def health(self) -> ProviderHealth:
        row, breaker = self.endpoint.row, self.breaker
        return ProviderHealth(
            name=row.name,
            title=row.title or row.name,
            api=row.api,
            priority=row.priority,
            local=row.local,
            state=breaker.state,
            failures=breaker.failures,
            opened_for_s=breaker.open_for_s,
            last_error=self._last_error,
            last_error_ms=self._last_error_ms,
            last_success_ms=self._last_success_ms,
            first_token_s=self._first_token_s,
            auth=f"refused: {self._refusal}" if self._refusal else _credentials(row),
            refused=bool(self._refusal),
            waiting=0 if self._limiter is None else self._limiter.waiting,
            models=row.models,
        )

    def _now_ms(self) -> int:
        return round(self._clock().timestamp() * 1000)


class Call:
    """One request, as the breaker and the record see it: however it ends, they are told.

    Entering raises what ``Upstream.enter`` does.
    """

    __slots__ = ("_begun_s", "_is_answered", "_last_resort", "_permit", "_upstream")

    def __init__(self, upstream: Upstream, last_resort: bool) -> None:
        self._upstream = upstream
        self._last_resort = last_resort
        self._is_answered = False

    async def __aenter__(self) -> Call:
        self._permit = await self._upstream.enter(self._last_resort)
        self._begun_s = self._upstream.monotonic()
        return self

    def answered(self) -> None:
        """The first part has come."""
        self._is_answered = True
        self._upstream.answered(self._permit, self._upstream.monotonic() - self._begun_s)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(exc, ProviderError):
            self._upstream.failed(self._permit, exc)
        elif self._is_answered:  # whole, or good enough for as long as somebody listened
            self._upstream.breaker.succeeded(self._permit)
        else:
            self._upstream.breaker.abandoned(self._permit)


def _credentials(row: ProviderRow) -> str:
    """What the row says about them; only a request tells whether they are good."""
    match row.auth:
        case "aws":
            return "AWS credentials"
        case "google":
            return "Google credentials"
        case "copilot" | "qwen":
            return "login"
        case _:
            if row.api_key.reveal():
                return "key set"
            return "no key needed" if row.local or row.api == "offline" else "no key"
