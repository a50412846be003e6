"""What an HTTP error answer means, for every wire API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
)

SHOWN_CHARACTERS = 500
_status = re.compile(r"[45][0-9]{2}")

_overflow = re.compile(
    r"context_length_exceeded|maximum context length|context (?:length|window|size)|(?:prompt|input) is too long"
    r"|too many (?:input )?tokens|exceeds? the (?:maximum|limit|available).{0,40}(?:tokens|context)"
    r"|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)


def failure(
    provider: str, status: int, *, message: str, code: str = "", retry_after_s: float | None = None
) -> ProviderError:
    """The kind of failure that ``status`` and the provider's own words describe."""
    said = " ".join(message.split())
    words = f"{provider}: {said[:SHOWN_CHARACTERS] or 'no reason given'} (HTTP {status})"
    if status == 429:
        return RateLimited(words, provider=provider, status=status, retry_after_s=retry_after_s)
    if status in (401, 402, 403):
        return AuthFailed(words, provider=provider, status=status)
    if status in (408, 504):
        return ProviderTimeout(words, provider=provider, status=status)
    if status == 409 or status >= 500:
        return Overloaded(words, provider=provider, status=status)
    kind = ContextOverflow if _overflow.search(f"{code} {message}") else BadRequest
    return kind(words, provider=provider, status=status)


def failure_of_answer(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> ProviderError:
    """The failure in an answer that is not 2xx. ``headers`` finds names in any case."""
    message, code = read_error(body)
    return failure(provider, status, message=message, code=code, retry_after_s=retry_after(headers, now))


def failure_of_object(provider: str, error: object) -> ProviderError:
    """The failure in an error object inside a stream that began with 200."""
    message, code, kind = _facts(error)
    text = f"{code} {kind}".lower()
    if _status.fullmatch(code):
        status = int(code)
    elif "rate_limit" in text or "quota" in text:
        status = 429
    elif "authentication" in text or "permission" in text or "api_key" in text:
        status = 401
    elif "invalid_request" in text or "bad_request" in text or _overflow.search(f"{code} {message}"):
        status = 400
    else:
        status = 500
    return failure(provider, status, message=message, code=code)


def read_error(body: bytes) -> tuple[str, str]:
    """Message and code of an error body; what is not JSON is shown as it is, markup (a proxy's page) is not."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        text = body.decode("utf-8", "replace").strip()
        return ("" if text.startswith("<") else text), ""
    if isinstance(value, list) and value:  # Google's way
        value = value[0]
    if isinstance(value, dict):
        value = value.get("error") or value
    message, code, kind = _facts(value)
    return message, code or kind


def _facts(error: object) -> tuple[str, str, str]:
    """Message, code and type of an error object, or of an error that is a mere text."""
    if not isinstance(error, dict):
        return ("" if error is None else str(error)), "", ""
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    return str(message), str(error.get("code") or ""), str(error.get("type") or "")


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds of ``retry-after-ms`` or ``Retry-After`` (seconds or an HTTP date); None if there is neither."""
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "").strip()) * factor
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp())
