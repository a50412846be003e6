# ruff: noqa: N818 - the names say what happened, as "except RateLimited" should read
"""Why a model did not answer. The words are for the person who asked; the attributes for code that acts on them."""

from __future__ import annotations

from collections.abc import Sequence


class UnknownModel(LookupError):
    """No provider, alias, pool or model has this name. ``known`` lists names that would have worked."""

    def __init__(self, name: str, known: Sequence[str], reason: str = "") -> None:
        self.name = name
        self.known = tuple(known)
        shown = ", ".join(self.known[:20]) + (", …" if len(self.known) > 20 else "")
        super().__init__(f"unknown model {name!r}{f': {reason}' if reason else ''}; available: {shown or 'none'}")


class ProviderError(Exception):
    """A provider refused, failed or could not be reached.

    ``status`` is the HTTP status, None when there was no answer. ``retriable`` says whether the same request may
    succeed elsewhere or later; the router fails over only on those, and only before the first token.
    """

    retriable = False

    def __init__(self, message: str, *, provider: str, status: int | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status


class RateLimited(ProviderError):
    """429. ``retry_after_s`` is what the provider asked for, if it said."""

    retriable = True

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


class ConnectFailed(ProviderError):
    """No connection: refused, unknown host, TLS failure, or closed before an answer."""

    retriable = True


class StreamCut(ProviderError):
    """An answer broke off. Raised after the first token whatever the reason was (``__cause__``)."""

    retriable = True


class AuthFailed(ProviderError):
    """401 or 403: the key is missing, wrong or not allowed to use this model."""


class BadRequest(ProviderError):
    """The provider understood the request and refuses it: 400, 404 (no such model), 413, 422 …"""


class ContextOverflow(BadRequest):
    """The conversation is longer than the model's context window."""
