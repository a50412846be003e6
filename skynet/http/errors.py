"""Failures as HTTP answers in OpenAI's error shape, so that its SDKs raise the exceptions their users know."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from skynet.gateway.auth import AuthFailed
from skynet_agent.errors import AuthFailed as ProviderAuthFailed
from skynet_agent.errors import (
    BadRequest,
    CallRefused,
    ConnectFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
    ToolsUnsupported,
    UnknownModel,
)
from skynet_memory.errors import SessionNotFound, StorageUnavailable
from skynet_memory.keys import InvalidSessionKey
from skynet_protocol.errors import ErrorCode, RequestError
from skynet_users.errors import Forbidden

log = logging.getLogger(__name__)

DO_NOT_RETRY = ("x-should-retry", "false")
"""OpenAI's SDKs repeat every 409 and 5xx by themselves; this header tells them that it is of no use."""


class HttpError(Exception):
    """An answer that is not a success.

    Args:
        kind: the error's ``type``; ``invalid_request_error`` for what the client can mend.
        param: the field of the request that is at fault, as ``messages[0].content``.
        code: what programs look at.
        headers: header names and values to send besides the usual ones.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> bytes:
        """The JSON of the answer; also what a stream carries when it breaks off."""
        message = str(self).encode("utf-8", "replace").decode()
        return orjson.dumps(
            {"error": {"message": message, "type": self.kind, "param": self.param, "code": self.code}},
        )


def invalid(message: str, param: str | None = None, code: str | None = None) -> HttpError:
    """The request is at fault: 400."""
    return HttpError(400, message, param=param, code=code)


def _retry_after(seconds: float | None) -> tuple[tuple[str, str], ...]:
    return () if seconds is None else (("retry-after", str(max(1, math.ceil(seconds)))),)


def _unauthorized(exc: AuthFailed) -> HttpError:
    if exc.reason == "rate_limited":
        return HttpError(
            429,
            "Too many failed authentication attempts. Please try again later.",
            kind="rate_limited",
            code="rate_limited",
            headers=(*_retry_after(exc.retry_after_s), DO_NOT_RETRY),
        )
    return HttpError(
        401,
        "Unauthorized: send the gateway token, the password or a personal token as `Authorization: Bearer …`.",
        code="invalid_api_key",
        headers=(("www-authenticate", "Bearer"),),
    )


def _request_error(exc: RequestError) -> HttpError:
    if exc.code is ErrorCode.UNAVAILABLE:
        seconds = None if exc.retry_after_ms is None else exc.retry_after_ms / 1000
        return HttpError(503, str(exc), kind="api_error", code="unavailable", headers=_retry_after(seconds))
    return invalid(str(exc))


def _upstream(status: int, code: str, *, retry: bool = True) -> Callable[[ProviderError], HttpError]:
    headers = () if retry else (DO_NOT_RETRY,)
    return lambda exc: HttpError(status, str(exc), kind="api_error", code=code, headers=headers)


def _refused(exc: CallRefused) -> HttpError:
    if exc.code == "BUDGET_EXCEEDED":  # as OpenAI says it of an account
        return HttpError(429, str(exc), kind="insufficient_quota", code="budget_exceeded", headers=(DO_NOT_RETRY,))
    return HttpError(403, str(exc), code="blocked")


HTTP_ERRORS: Mapping[type[Exception], Callable[[Any], HttpError]] = {
    HttpError: lambda exc: exc,
    AuthFailed: _unauthorized,
    RequestError: _request_error,
    Forbidden: lambda exc: HttpError(403, str(exc), code="forbidden"),
    InvalidSessionKey: lambda exc: invalid(str(exc)),
    SessionNotFound: lambda exc: HttpError(404, str(exc), code="session_not_found"),
    StorageUnavailable: lambda exc: HttpError(
        503,
        "the gateway cannot store the request now",
        kind="api_error",
        code="storage_unavailable",
        headers=_retry_after(exc.retry_after_ms / 1000),
    ),
    UnknownModel: lambda exc: HttpError(404, str(exc), param="model", code="model_not_found"),
    CallRefused: _refused,
    ToolsUnsupported: lambda exc: invalid(str(exc), "tools", code="tools_unsupported"),
    RateLimited: lambda exc: HttpError(
        429,
        str(exc),
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers=_retry_after(exc.retry_after_s),
    ),
    # The gateway's key, not the client's: never 401, and not in the provider's words, which may quote the key.
    ProviderAuthFailed: lambda exc: HttpError(
        502,
        f"the model provider {exc.provider} refused the gateway's credentials".replace("  ", " "),
        kind="api_error",
        code="provider_auth_failed",
        headers=(DO_NOT_RETRY,),
    ),
    ContextOverflow: lambda exc: invalid(str(exc), "messages", "context_length_exceeded"),
    BadRequest: lambda exc: invalid(str(exc), code="provider_bad_request"),
    ProviderTimeout: _upstream(504, "provider_timeout"),
    Overloaded: _upstream(503, "provider_overloaded"),
    ConnectFailed: _upstream(503, "provider_unreachable"),
    StreamCut: _upstream(502, "provider_stream_cut"),
    ProviderError: _upstream(502, "provider_error"),
}


def http_error(exc: BaseException, correlation_id: str = "") -> HttpError:
    """The answer for ``exc``. What is not in the table is logged with its traceback and told as ``internal error``."""
    for kind in type(exc).__mro__:
        if (answer := HTTP_ERRORS.get(kind)) is not None:
            return answer(exc)
    log.error("internal error (correlation id %s)", correlation_id, exc_info=exc)
    return internal_error(correlation_id)


def internal_error(correlation_id: str) -> HttpError:
    """500, with nothing of what happened but the id to find it in the log."""
    about = f" (correlation id {correlation_id})" if correlation_id else ""
    return HttpError(500, f"internal error{about}", kind="api_error", code="internal_error")


_STORED_KINDS: Mapping[str, type[ProviderError]] = {
    kind.__name__: kind
    for kind in (
        RateLimited,
        ProviderAuthFailed,
        ContextOverflow,
        ToolsUnsupported,
        BadRequest,
        ProviderTimeout,
        Overloaded,
        ConnectFailed,
        StreamCut,
    )
}


def stored_error(kind: str, message: str, provider: str) -> HttpError:
    """The answer for a failure of which only the class name and the words were kept."""
    if kind == UnknownModel.__name__:
        return HttpError(404, message, param="model", code="model_not_found")
    failure = _STORED_KINDS.get(kind, ProviderError)(message, provider=provider)
    return HTTP_ERRORS[type(failure)](failure)
