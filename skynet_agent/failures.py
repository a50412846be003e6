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
    r"context_length_exceeded|maximum context length|context (?:length|window|size|limit)|(?:prompt|input) is too long"
    r"|too many (?:input )?tokens|exceeds? the (?:maximum|limit|available).{0,40}(?:tokens|context)"
    r"|reduce the length of the (?:messages|prompt)|request_too_large|input tokens exceeded"
    r"|tokens exceeds? (?:the )?maximum",
    re.IGNORECASE,
)
_refused = re.compile(r"api key not valid|credit balance is too low", re.IGNORECASE)
"""How some say with a 400 that it is not the request that is wrong, but who asks (Google, Anthropic)."""


def failure(
    provider: str, status: int, *, message: str, code: str = "", retry_after_s: float | None = None
) -> ProviderError:
    """The kind of failure that ``status`` and the provider's own words describe."""
    said = " ".join(message.split())
    words = f"{provider}: {said[:SHOWN_CHARACTERS] or 'no reason given'} (HTTP {status})"
    if status == 429:
        return RateLimited(words, provider=provider, status=status, retry_after_s=retry_after_s)
    if status in (401, 402, 403) or (status == 400 and _refused.search(message)):
        return AuthFailed(words, provider=provider, status=status)
    if status in (408, 504):
        return ProviderTimeout(words, provider=provider, status=status)
    if status in (409, 424) or status >= 500:
        return Overloaded(words, provider=provider, status=status)
    kind = ContextOverflow if _overflow.search(f"{code} {message}") else BadRequest
    return kind(words, provider=provider, status=status)


def failure_of_answer(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> ProviderError:
    """The failure in an answer that is not 2xx. ``headers`` finds names in any case."""
    message, code = read_error(body)
    wait_s = retry_after(headers, now)
    wait_s = retry_delay(body) if wait_s is None else wait_s
    return failure(provider, status, message=message, code=code, retry_after_s=wait_s)


def failure_of_facts(provider: str, message: str, code: str, kind: str) -> ProviderError:
    """The failure in an error object inside a stream that began with 200."""
    status = int(code) if _status.fullmatch(code) else _status_of_words(re.sub(r"[^a-z]", "", f"{code} {kind}".lower()))
    if status == 500 and _overflow.search(f"{code} {message}"):
        status = 400
    return failure(provider, status, message=message, code=code)


_words: tuple[tuple[int, tuple[str, ...]], ...] = (
    (503, ("overloaded", "unavailable")),
    (429, ("ratelimit", "quota", "throttl", "exhausted", "toomanyrequests")),
    (401, ("authenticat", "permission", "apikey", "accessdenied", "unauthorized")),
    (408, ("timeout", "deadline")),
    (404, ("notfound",)),
    (400, ("invalid", "badrequest", "validation", "unprocessable", "policy")),
)
"""What codes and types of errors have in common, without their blanks and underscores; the first that fits counts."""


def _status_of_words(text: str) -> int:
    return next((status for status, words in _words if any(word in text for word in words)), 500)


def read_error(body: bytes) -> tuple[str, str]:
    """Message and code of an error body; what is not JSON is shown as it is, markup (a proxy's page) is not."""
    message, code, kind = error_facts(body)
    return message, code or kind


def error_facts(body: bytes) -> tuple[str, str, str]:
    """Message, code and type of an error body or event.

    They stand in the object itself, under ``error`` or, where OpenAI's responses fail, under ``response.error``; the
    code may be a ``status`` (Google), the type ``__type`` (Amazon), and the whole may be a list of one (Google) or a
    mere text (Ollama).
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        text = body.decode("utf-8", "replace").strip()
        return ("" if text.startswith("<") else text), "", ""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        response = value.get("response")
        value = value.get("error") or (response.get("error") if isinstance(response, dict) else None) or value
    if not isinstance(value, dict):
        return ("" if value is None else str(value)), "", ""
    message = value.get("message") or value.get("Message") or value.get("detail") or value.get("error") or ""
    return (
        str(message),
        str(value.get("code") or ""),
        str(value.get("type") or value.get("status") or value.get("__type") or ""),
    )


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
    except (ValueError, OverflowError):  # "99999999999999999999 Jan"
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp())


def retry_delay(body: bytes) -> float | None:
    """Seconds of the ``google.rpc.RetryInfo`` in an error of Google's, which has no ``Retry-After``; None without."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    match value[0] if isinstance(value, list) and value else value:
        case {"error": {"details": [*details]}}:
            for detail in details:
                match detail:
                    case {"retryDelay": str(delay)} if re.fullmatch(r"\d{1,9}(\.\d{1,9})?s", delay):
                        return float(delay[:-1])
    return None
