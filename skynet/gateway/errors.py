"""What an exception looks like on the wire: one table, looked up by the exception's class and its bases."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from skynet_agent.errors import CallRefused, ProviderError, UnknownModel
from skynet_memory.errors import LabelInUse, SessionNotFound, StorageUnavailable
from skynet_memory.keys import InvalidSessionKey
from skynet_protocol.errors import ErrorCode, ErrorShape, RequestError
from skynet_terminal.errors import (
    BadDirectory,
    CommandBlocked,
    InputRefused,
    SandboxUnavailable,
    StartFailed,
    TerminalEnded,
    TooMany,
    UnknownJob,
    UnknownTerminal,
)
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden, GroupInactive, UnknownUser

log = logging.getLogger(__name__)


def _invalid(code: str) -> Callable[[Any], ErrorShape]:
    return lambda exc: ErrorShape(code=ErrorCode.INVALID_REQUEST, message=str(exc), details={"code": code})


def _unavailable(code: str) -> Callable[[Any], ErrorShape]:
    return lambda exc: ErrorShape(code=ErrorCode.UNAVAILABLE, message=str(exc), details={"code": code})


WIRE_ERRORS: Mapping[type[Exception], Callable[[Any], ErrorShape]] = {
    RequestError: lambda exc: exc.shape(),
    Forbidden: lambda exc: ErrorShape(
        code=ErrorCode.INVALID_REQUEST, message=str(exc), details={"code": "FORBIDDEN", "permission": exc.permission}
    ),
    SessionNotFound: _invalid("NOT_FOUND"),
    GroupInactive: _invalid("FORBIDDEN"),
    UnknownUser: _invalid("NOT_FOUND"),
    LabelInUse: _invalid("INVALID_PARAMS"),
    InvalidSessionKey: _invalid("INVALID_PARAMS"),
    UnknownModel: _invalid("NOT_FOUND"),
    CommandBlocked: lambda exc: ErrorShape(
        code=ErrorCode.INVALID_REQUEST,
        message=str(exc),
        details={"code": "COMMAND_BLOCKED", "rule": exc.rule, "reason": exc.reason},
    ),
    BadDirectory: _invalid("INVALID_PARAMS"),
    UnknownTerminal: _invalid("NOT_FOUND"),
    UnknownJob: _invalid("NOT_FOUND"),
    TerminalEnded: _invalid("NOT_FOUND"),
    TooMany: _unavailable("LIMIT_REACHED"),
    InputRefused: _unavailable("TIMEOUT"),
    SandboxUnavailable: _unavailable("SPAWN_ERROR"),
    StartFailed: _unavailable("SPAWN_ERROR"),
    StorageUnavailable: lambda exc: ErrorShape(
        code=ErrorCode.UNAVAILABLE,
        message=str(exc),
        details={"code": "IO_ERROR"},
        retryable=True,
        retry_after_ms=exc.retry_after_ms,
    ),
    CallRefused: lambda exc: ErrorShape(
        code=ErrorCode.UNAVAILABLE,
        message=str(exc),
        details={"code": exc.code, **exc.details},
        retryable=False,
        retry_after_ms=exc.retry_after_ms,
    ),
    # An upstream's failure is never passed on as if it were the gateway's.
    ProviderError: lambda exc: ErrorShape(
        code=ErrorCode.UNAVAILABLE,
        message=str(exc) or "the model failed",
        details={"code": "LLM_ERROR", "provider": exc.provider},
    ),
    TimeoutError: lambda exc: ErrorShape(
        code=ErrorCode.UNAVAILABLE, message=str(exc) or "timed out", details={"code": "TIMEOUT"}, retryable=True
    ),
}


def error_shape(exc: Exception, caller: Caller | None = None) -> ErrorShape:
    """The wire form of ``exc``; one that is not in the table is logged and told as ``internal error``."""
    for kind in type(exc).__mro__:
        if (shape := WIRE_ERRORS.get(kind)) is not None:
            return shape(exc)
    correlation_id = caller.correlation_id if caller is not None else ""
    log.error("internal error (correlation id %s)", correlation_id, exc_info=exc)
    return ErrorShape(
        code=ErrorCode.UNAVAILABLE,
        message="internal error",
        details={"code": "INTERNAL_ERROR", "correlationId": correlation_id},
    )
