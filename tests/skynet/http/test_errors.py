"""What each failure looks like to an HTTP client: a table, as the code is."""

import json
import logging

import pytest

from skynet.gateway.auth import AuthFailed
from skynet.http.errors import HttpError, http_error, invalid, stored_error
from skynet_agent import errors as agent
from skynet_memory.errors import SessionNotFound, StorageUnavailable
from skynet_memory.keys import InvalidSessionKey
from skynet_protocol.errors import ErrorCode, RequestError

UNAVAILABLE = RequestError("full", code=ErrorCode.UNAVAILABLE, retry_after_ms=1200)
API, REQUEST = "api_error", "invalid_request_error"


@pytest.mark.parametrize(
    ("failure", "status", "kind", "code", "headers"),
    [
        (invalid("x", "y", "z"), 400, REQUEST, "z", {}),
        (AuthFailed("token_missing"), 401, REQUEST, "invalid_api_key", {"www-authenticate": "Bearer"}),
        (
            AuthFailed("rate_limited", retry_after_s=30),
            429,
            "rate_limited",
            "rate_limited",
            {"retry-after": "30", "x-should-retry": "false"},
        ),
        (RequestError("malformed"), 400, REQUEST, None, {}),
        (UNAVAILABLE, 503, API, "unavailable", {"retry-after": "2"}),
        (InvalidSessionKey("bad"), 400, REQUEST, None, {}),
        (SessionNotFound("k"), 404, REQUEST, "session_not_found", {}),
        (StorageUnavailable("locked", retry_after_ms=500), 503, API, "storage_unavailable", {"retry-after": "1"}),
        (agent.UnknownModel("m", ["a/b"]), 404, REQUEST, "model_not_found", {}),
        (agent.RateLimited("slow", provider="p"), 429, "rate_limit_error", "rate_limit_exceeded", {}),
        (
            agent.RateLimited("slow", provider="p", retry_after_s=2.5),
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
            {"retry-after": "3"},
        ),
        (agent.AuthFailed("sk-1", provider="p"), 502, API, "provider_auth_failed", {"x-should-retry": "false"}),
        (agent.ContextOverflow("long", provider="p"), 400, REQUEST, "context_length_exceeded", {}),
        (agent.BadRequest("no", provider="p"), 400, REQUEST, "provider_bad_request", {}),
        (agent.ProviderTimeout("late", provider="p"), 504, API, "provider_timeout", {}),
        (agent.Overloaded("busy", provider="p"), 503, API, "provider_overloaded", {}),
        (agent.ConnectFailed("gone", provider="p"), 503, API, "provider_unreachable", {}),
        (agent.StreamCut("cut", provider="p"), 502, API, "provider_stream_cut", {}),
        (agent.ProviderError("odd", provider="p"), 502, API, "provider_error", {}),
        (RuntimeError("secret detail"), 500, API, "internal_error", {}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_failures(failure: Exception, status: int, kind: str, code: str | None, headers: dict[str, str]) -> None:
    error = http_error(failure, "corr-1")
    assert (error.status, error.kind, error.code, dict(error.headers)) == (status, kind, code, headers)
    body = json.loads(error.body())["error"]
    assert list(body) == ["message", "type", "param", "code"]
    assert body["message"]
    if isinstance(failure, agent.ProviderError) and code != "provider_auth_failed":
        kept = stored_error(type(failure).__name__, str(failure), "p")
        assert (kept.status, kept.kind, kept.code) == (status, kind, code)


def test_what_nobody_expected_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = http_error(RuntimeError("secret detail"), "corr-1")
    assert str(error) == "internal error (correlation id corr-1)"
    assert "secret detail" in caplog.text
    assert "corr-1" in caplog.text


def test_a_providers_words_about_its_key_are_not_passed_on() -> None:
    error = http_error(agent.AuthFailed("Incorrect API key provided: sk-1", provider="p"))
    assert "sk-1" not in str(error)
    assert str(stored_error("AuthFailed", "sk-1", "")) == "the model provider refused the gateway's credentials"


def test_kept_failures() -> None:
    assert stored_error("UnknownModel", "unknown", "").code == "model_not_found"
    assert stored_error("NoneType", "interrupted", "").code == "provider_error"


def test_any_words_are_json() -> None:
    assert json.loads(HttpError(400, "\ud800").body())["error"]["message"] == "?"
