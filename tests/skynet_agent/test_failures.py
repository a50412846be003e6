"""What status, headers and body of an error answer become."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
)
from skynet_agent.failures import error_facts, failure_of_answer, failure_of_facts, retry_after

NOW = datetime(2026, 11, 21, 1, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "kind", "retriable"),
    [
        (400, BadRequest, False),
        (401, AuthFailed, False),
        (402, AuthFailed, False),
        (403, AuthFailed, False),
        (404, BadRequest, False),
        (408, ProviderTimeout, True),
        (409, Overloaded, True),
        (413, BadRequest, False),
        (422, BadRequest, False),
        (429, RateLimited, True),
        (500, Overloaded, True),
        (502, Overloaded, True),
        (503, Overloaded, True),
        (504, ProviderTimeout, True),
        (529, Overloaded, True),
        (301, BadRequest, False),
    ],
)
def test_kinds_by_status(status: int, kind: type[ProviderError], retriable: bool) -> None:
    failure = failure_of_answer("lab", status, {}, b'{"error":{"message":"why"}}', NOW)
    assert type(failure) is kind
    assert failure.retriable is retriable
    assert (failure.provider, failure.status, str(failure)) == ("lab", status, f"lab: why (HTTP {status})")


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"no","code":"context_length_exceeded"}}',
        b'{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, ..."}}',
        b'{"object":"error","message":"the prompt is too long: 9000 tokens > 8192 maximum"}',
        b'{"error":"the request exceeds the available context size, try increasing it"}',
        b'[{"error":{"code":400,"message":"The input token count exceeds the maximum number of tokens allowed"}}]',
        b"Please reduce the length of the messages",
    ],
)
def test_context_overflow(body: bytes) -> None:
    assert type(failure_of_answer("lab", 400, {}, body, NOW)) is ContextOverflow


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no reason given"),
        (b"<html><title>502</title></html>", "no reason given"),
        (b"upstream\n connect  error", "upstream connect error"),
        (b'{"error":"model not found"}', "model not found"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"error":{}}', "no reason given"),
        (b"\xff\xfe", "��"),
        (b"x" * 2000, "x" * 500),
    ],
)
def test_words(body: bytes, said: str) -> None:
    assert str(failure_of_answer("lab", 500, {}, body, NOW)) == f"lab: {said} (HTTP 500)"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Sat, 21 Nov 2026 01:20:30 GMT"}, 30.0),
        ({"retry-after": "Sat, 21 Nov 2026 01:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
    failure = failure_of_answer("lab", 429, headers, b"", NOW)
    assert isinstance(failure, RateLimited)
    assert failure.retry_after_s == seconds


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        (b'{"error":{"message":"no","code":429,"type":"slow"}}', ("no", "429", "slow")),
        (b'{"type":"error","error":{"type":"busy","message":"Overloaded"}}', ("Overloaded", "", "busy")),
        (b'[{"error":{"code":503,"message":"no","status":"UNAVAILABLE"}}]', ("no", "503", "UNAVAILABLE")),
        (b'{"error":"model not found"}', ("model not found", "", "")),
        (b'{"message":"no","__type":"ThrottlingException"}', ("no", "", "ThrottlingException")),
        (b'{"Message":"no"}', ("no", "", "")),
        (b'{"error":["boom"]}', ("['boom']", "", "")),
        (b'"boom"', ("boom", "", "")),
        (b"null", ("", "", "")),
        (b"boom", ("boom", "", "")),
        (b"[" * 100_000, ("[" * 100_000, "", "")),
    ],
)
def test_facts_of_error_bodies(body: bytes, facts: tuple[str, str, str]) -> None:
    assert error_facts(body) == facts


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "slow down", "code": 429}, RateLimited),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimited),
        ({"message": "slow down", "code": "insufficient_quota"}, RateLimited),
        ({"message": "slow down", "code": "TooManyRequestsException"}, RateLimited),
        ({"message": "slow down", "status": "RESOURCE_EXHAUSTED"}, RateLimited),
        ({"message": "no", "code": "502"}, Overloaded),
        ({"message": "no", "code": "9" * 5000}, Overloaded),
        ({"message": "no", "type": "overloaded_error"}, Overloaded),
        ({"message": "no", "status": "UNAVAILABLE"}, Overloaded),
        ({"message": "no", "type": "authentication_error"}, AuthFailed),
        ({"message": "no", "status": "UNAUTHENTICATED"}, AuthFailed),
        ({"message": "no", "status": "PERMISSION_DENIED"}, AuthFailed),
        ({"message": "no", "code": "invalid_api_key"}, AuthFailed),
        ({"message": "no", "__type": "AccessDeniedException"}, AuthFailed),
        ({"message": "no", "status": "DEADLINE_EXCEEDED"}, ProviderTimeout),
        ({"message": "no", "type": "timeout_error"}, ProviderTimeout),
        ({"message": "no", "type": "invalid_request_error"}, BadRequest),
        ({"message": "no", "code": "invalid_prompt"}, BadRequest),
        ({"message": "no", "type": "not_found_error"}, BadRequest),
        ({"message": "no", "__type": "ValidationException"}, BadRequest),
        ({"message": "no", "code": "context_length_exceeded"}, ContextOverflow),
        ({"message": "prompt is too long: 9 tokens > 8 maximum", "type": "invalid_request_error"}, ContextOverflow),
        ({"message": "prompt is too long"}, ContextOverflow),
        ({"message": "boom", "type": "server_error"}, Overloaded),
        ("boom", Overloaded),
        (None, Overloaded),
        (["boom"], Overloaded),
    ],
)
def test_error_objects_in_a_stream(error: object, kind: type[ProviderError]) -> None:
    failure = failure_of_facts("lab", *error_facts(json.dumps({"error": error}).encode()))
    assert type(failure) is kind
    assert failure.provider == "lab"


@pytest.mark.parametrize(
    "header",
    [
        "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT",
        "Mon, 01 Jan 99999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 99999999999999999999:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999",
        "Mon, 01 Jan 2026 00:00:00 +2500",
        "1" * 5000,
    ],
)
def test_a_time_that_is_none_is_passed_over(header: str) -> None:
    failure = failure_of_answer("lab", 429, {"retry-after": header}, b"", NOW)
    assert isinstance(failure, RateLimited) and failure.retry_after_s is None


@given(st.binary(max_size=200), st.integers(300, 599), st.text(max_size=30))
def test_any_answer_is_a_failure(body: bytes, status: int, header: str) -> None:
    failure = failure_of_answer("lab", status, {"retry-after": header, "retry-after-ms": header}, body, NOW)
    assert isinstance(failure, ProviderError)
    assert isinstance(failure_of_facts("lab", *error_facts(body)), ProviderError)
