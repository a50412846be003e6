# ruff: noqa: N818 - the names say what happened, as "except RateLimited" should read
"""Why a model did not answer. The words are for the person who asked; the attributes for code that acts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from skynet_agent.events import Attempt


class UnknownModel(LookupError):
    """No provider, alias, pool or model has this name. ``known`` lists names that would have worked."""

    def __init__(self, name: str, known: Sequence[str], reason: str = "") -> None:
        self.name = name
        self.known = tuple(known)
        shown = ", ".join(self.known[:20]) + (", …" if len(self.known) > 20 else "")
        super().__init__(f"unknown model {name!r}{f': {reason}' if reason else ''}; available: {shown or 'none'}")


class CallRefused(Exception):
    """The gateway itself lets no model be asked: a budget is used up, or a hook said no. ``str()`` is for the person.

    ``code`` and ``details`` are for programs; ``retry_after_ms`` is how long it holds, if that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        details: Mapping[str, str | int] = MappingProxyType({}),
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.retry_after_ms = retry_after_ms


class ProviderError(Exception):
    """A provider refused, failed or could not be reached.

    ``status`` is the HTTP status, None when there was no answer. ``retriable`` says whether the same request may
    succeed elsewhere or later; the router fails over only on those, and only before the first token. ``tried`` is
    everything that the router asked for this one request, this failure among it.
    """

    retriable = False
    has_own_words = False
    """Without a status, the words are the gateway's: nothing that a provider answered is among them."""
    tried: tuple[Attempt, ...] = ()

    def __init__(self, message: str, *, provider: str, status: int | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status

    def with_tried(self, tried: tuple[Attempt, ...]) -> Self:
        """The same failure, as that of a request for which these were asked.

        Another object: requests that waited for one login share its failure, and what they tried is not the others'.
        """
        same = type(self).__new__(type(self), *self.args)
        same.__dict__.update(self.__dict__, tried=tried)
        same.__cause__ = self.__cause__
        return same

    @property
    def for_log(self) -> str:
        """The kind, and what may be written down at any level: a provider's words may quote somebody's message."""
        own = str(self) if self.has_own_words else ""
        words = own if self.status is None else f"HTTP {self.status}"
        return f"{type(self).__name__}: {words}" if words else type(self).__name__


class RateLimited(ProviderError):
    """429, or the gateway's own queue for the provider is full.

    ``retry_after_s`` is what the provider asked for, if it said.
    """

    retriable = True
    has_own_words = True

    def __init__(
        self, message: str, *, provider: str, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, provider=provider, status=status)
        self.retry_after_s = retry_after_s


class Overloaded(ProviderError):
    """The provider's own failure: 5xx, 529, 409, or an answer that makes no sense."""

    retriable = True


class ProviderTimeout(ProviderError):
    """Nothing came for longer than the provider's time limit, or it answered 408 or 504."""

    retriable = True
    has_own_words = True


class ConnectFailed(ProviderError):
    """No connection: refused, unknown host, TLS failure, or closed before an answer."""

    retriable = True
    has_own_words = True


class StreamCut(ProviderError):
    """An answer broke off. Raised after the first token whatever the reason was (``__cause__``)."""

    retriable = True


class AuthFailed(ProviderError):
    """401 or 403: the key is missing, wrong or not allowed to use this model."""

    has_own_words = True


class BadRequest(ProviderError):
    """The provider understood the request and refuses it: 400, 404 (no such model), 413, 422 …"""


class ContextOverflow(BadRequest):
    """The conversation is longer than the model's context window."""


class ToolsUnsupported(BadRequest):
    """The request has tools, and no model that it may go to can use any. Nobody was asked."""

    has_own_words = True
