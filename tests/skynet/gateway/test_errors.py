"""Every class that a handler may raise, and what a client is told of it."""

import logging
from collections.abc import Iterator

import msgspec
import pytest

from skynet.gateway.errors import WIRE_ERRORS, error_shape
from skynet_agent import errors as agent_errors
from skynet_agent.errors import CallRefused, ProviderError, RateLimited, UnknownModel
from skynet_memory.errors import LabelInUse, RunNotOpen, SessionNotFound, StorageUnavailable
from skynet_memory.ids import Role, RunId, UserId
from skynet_memory.keys import InvalidSessionKey
from skynet_protocol.errors import DetailCode, ErrorCode, RequestError, UnauthorizedRole
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

CALLER = Caller(user_id=UserId("ada"), role=Role.USER, scopes=frozenset(), correlation_id="corr-1")

CASES: list[tuple[Exception, dict[str, object]]] = [
    (
        RequestError("no", code=ErrorCode.UNAVAILABLE, details={"a": 1}, retryable=True, retry_after_ms=7),
        {"code": "UNAVAILABLE", "message": "no", "details": {"a": 1}, "retryable": True, "retryAfterMs": 7},
    ),
    (
        SessionNotFound("agent:main:x"),
        {"code": "INVALID_REQUEST", "message": "no session found: agent:main:x", "details": {"code": "NOT_FOUND"}},
    ),
    (
        UnknownUser("nobody"),
        {"code": "INVALID_REQUEST", "message": "unknown user: nobody", "details": {"code": "NOT_FOUND"}},
    ),
    (
        LabelInUse("work"),
        {"code": "INVALID_REQUEST", "message": "label already in use: work", "details": {"code": "INVALID_PARAMS"}},
    ),
    (
        InvalidSessionKey("too long"),
        {"code": "INVALID_REQUEST", "message": "too long", "details": {"code": "INVALID_PARAMS"}},
    ),
    (
        UnknownModel("x", ["mock/mock-1"]),
        {
            "code": "INVALID_REQUEST",
            "message": "unknown model 'x'; available: mock/mock-1",
            "details": {"code": "NOT_FOUND"},
        },
    ),
    (
        StorageUnavailable("the disk is full", retry_after_ms=1500),
        {
            "code": "UNAVAILABLE",
            "message": "storage unavailable: the disk is full",
            "details": {"code": "IO_ERROR"},
            "retryable": True,
            "retryAfterMs": 1500,
        },
    ),
    (
        ProviderError("mock: refused", provider="mock", status=400),
        {"code": "UNAVAILABLE", "message": "mock: refused", "details": {"code": "LLM_ERROR", "provider": "mock"}},
    ),
    (
        CallRefused("used up", code="BUDGET_EXCEEDED", details={"used": 3, "limit": 2}, retry_after_ms=9),
        {
            "code": "UNAVAILABLE",
            "message": "used up",
            "details": {"code": "BUDGET_EXCEEDED", "used": 3, "limit": 2},
            "retryable": False,
            "retryAfterMs": 9,
        },
    ),
    (
        Forbidden("users.manage"),
        {
            "code": "INVALID_REQUEST",
            "message": "not permitted: users.manage",
            "details": {"code": "FORBIDDEN", "permission": "users.manage"},
        },
    ),
    (
        GroupInactive("Kitchen"),
        {
            "code": "INVALID_REQUEST",
            "message": "the group Kitchen is not active",
            "details": {"code": "FORBIDDEN"},
        },
    ),
    (
        TimeoutError(),
        {"code": "UNAVAILABLE", "message": "timed out", "details": {"code": "TIMEOUT"}, "retryable": True},
    ),
    (
        CommandBlocked("privilege.sudo", "sudo is not for commands here"),
        {
            "code": "INVALID_REQUEST",
            "message": "sudo is not for commands here (rule privilege.sudo)",
            "details": {
                "code": "COMMAND_BLOCKED",
                "rule": "privilege.sudo",
                "reason": "sudo is not for commands here",
            },
        },
    ),
    *(
        (error, {"code": code, "message": str(error), "details": {"code": detail}})
        for error, code, detail in (
            (BadDirectory("x", "it is none"), "INVALID_REQUEST", "INVALID_PARAMS"),
            (UnknownTerminal("t"), "INVALID_REQUEST", "NOT_FOUND"),
            (UnknownJob("j"), "INVALID_REQUEST", "NOT_FOUND"),
            (TerminalEnded("it has ended"), "INVALID_REQUEST", "NOT_FOUND"),
            (TooMany("jobs", 8), "UNAVAILABLE", "LIMIT_REACHED"),
            (InputRefused(9, 8), "UNAVAILABLE", "TIMEOUT"),
            (SandboxUnavailable("there is none"), "UNAVAILABLE", "SPAWN_ERROR"),
            (StartFailed("no room"), "UNAVAILABLE", "SPAWN_ERROR"),
        )
    ),
]


@pytest.mark.parametrize(("error", "expected"), CASES, ids=lambda value: type(value).__name__)
def test_the_wire_form(error: Exception, expected: dict[str, object]) -> None:
    assert msgspec.to_builtins(error_shape(error)) == expected


def test_every_class_of_the_table_has_a_case() -> None:
    assert {type(error) for error, _ in CASES} == set(WIRE_ERRORS)


def provider_errors(kind: type[ProviderError] = ProviderError) -> Iterator[type[ProviderError]]:
    for sub in kind.__subclasses__():
        if sub.__module__ == agent_errors.__name__:
            yield sub
            yield from provider_errors(sub)


@pytest.mark.parametrize("kind", list(provider_errors()))
def test_a_class_is_told_as_its_base_is(kind: type[ProviderError]) -> None:
    assert error_shape(kind("words", provider="mock")) == error_shape(ProviderError("words", provider="mock"))


def test_the_nearest_base_counts() -> None:
    class Full(StorageUnavailable):
        pass

    assert error_shape(Full("x")).code == "UNAVAILABLE"
    assert error_shape(UnauthorizedRole("node")).message == "unauthorized role: node"
    assert error_shape(RateLimited("slow down", provider="mock", retry_after_s=3)).details["provider"] == "mock"


@pytest.mark.parametrize(
    "error", [*(error for error, _ in CASES), RequestError(""), ProviderError("", provider="mock"), ValueError()]
)
def test_there_is_always_a_message(error: Exception) -> None:
    """Clients drop a frame whose error has an empty one (OPENCLAW-V3 1.3)."""
    shape = error_shape(error, CALLER)
    assert shape.message
    assert shape.code in list(ErrorCode)
    if isinstance(shape.details, dict) and "code" in shape.details:
        assert shape.details["code"] in list(DetailCode)


@pytest.mark.parametrize(
    "error", [ValueError("pass" + "word=hunter2"), KeyError("secret"), RunNotOpen(RunId("secret"))]
)
def test_a_failure_of_our_own_says_nothing_but_how_to_find_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        shape = error_shape(error, CALLER)
    assert msgspec.to_builtins(shape) == {
        "code": "UNAVAILABLE",
        "message": "internal error",
        "details": {"code": "INTERNAL_ERROR", "correlationId": "corr-1"},
    }
    (record,) = caplog.records
    assert "corr-1" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_an_expected_failure_is_not_logged_as_ours(caplog: pytest.LogCaptureFixture) -> None:
    for error, _ in CASES:
        error_shape(error, CALLER)
    assert not caplog.records


def test_without_a_caller_there_is_no_correlation_id() -> None:
    assert error_shape(ValueError("x")).details == {"code": "INTERNAL_ERROR", "correlationId": ""}
