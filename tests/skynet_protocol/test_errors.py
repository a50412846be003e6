"""Every row of OPENCLAW-V3 2.4 and 2.5, and the shapes of errors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_protocol.errors import (
    AUTH_FAILURES,
    DetailCode,
    ErrorCode,
    Refusal,
    RequestError,
    UnauthorizedRole,
    cut_reason,
    shorten,
)

ORIGIN = (
    "origin not allowed (open the Control UI from the gateway host or allow it in gateway.controlUi.allowedOrigins)"
)
CONTROL_UI = "control ui requires device identity (use HTTPS or localhost secure context)"
BAD_PARAMS = "invalid connect params: at /client/id: must be equal to constant; at /client/id: " + "x" * 60


@pytest.mark.parametrize(
    ("refusal", "code", "message", "details", "close_code", "close_reason"),
    [
        (Refusal.handshake_timeout(), None, None, None, 1000, ""),
        (Refusal.not_json(), None, None, None, 1000, ""),
        (Refusal.not_a_request(), None, None, None, 1008, "invalid request frame"),
        (
            Refusal.not_connect(),
            "INVALID_REQUEST",
            "invalid handshake: first request must be connect",
            {"code": "PROTOCOL_ERROR"},
            1008,
            "invalid handshake: first request must be connect",
        ),
        (
            Refusal.invalid_params(RequestError(BAD_PARAMS)),
            "INVALID_REQUEST",
            BAD_PARAMS,
            None,
            1008,
            BAD_PARAMS[:120],
        ),
        (
            Refusal.protocol_mismatch(),
            "INVALID_REQUEST",
            "protocol mismatch",
            {"expectedProtocol": 3},
            1002,
            "protocol mismatch",
        ),
        (Refusal.invalid_role(), "INVALID_REQUEST", "invalid role", None, 1008, "invalid role"),
        (Refusal.origin_not_allowed(), "INVALID_REQUEST", ORIGIN, None, 1008, ORIGIN[:120]),
        (
            Refusal.control_ui_device_required(),
            "INVALID_REQUEST",
            CONTROL_UI,
            {"code": "CONTROL_UI_DEVICE_IDENTITY_REQUIRED"},
            1008,
            CONTROL_UI,
        ),
        (
            Refusal.device_required(),
            "NOT_PAIRED",
            "device identity required",
            {"code": "DEVICE_IDENTITY_REQUIRED"},
            1008,
            "device identity required",
        ),
        (
            Refusal.pairing_required("r-1", "scope-upgrade"),
            "NOT_PAIRED",
            "pairing required",
            {"code": "PAIRING_REQUIRED", "requestId": "r-1", "reason": "scope-upgrade"},
            1008,
            "pairing required",
        ),
    ],
)
def test_refusals(refusal, code, message, details, close_code, close_reason):
    assert (refusal.close_code, refusal.close_reason) == (close_code, close_reason)
    if code is None:
        assert refusal.error is None
        return
    encoded = msgspec.to_builtins(refusal.error)
    expected = {"code": code, "message": message} | ({} if details is None else {"details": details})
    assert encoded == expected


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("device-id-mismatch", "device identity mismatch"),
        ("device-signature-stale", "device signature expired"),
        ("device-nonce-missing", "device nonce required"),
        ("device-nonce-mismatch", "device nonce mismatch"),
        ("device-signature", "device signature invalid"),
        ("device-public-key", "device public key invalid"),
    ],
)
def test_device_proof_refusals(reason, message):
    refusal = Refusal.device_auth_invalid(reason)
    assert msgspec.to_builtins(refusal.error) == {
        "code": "INVALID_REQUEST",
        "message": message,
        "details": {"code": "DEVICE_AUTH_INVALID", "reason": reason},
    }
    assert (refusal.close_code, refusal.close_reason) == (1008, message)


TOKEN_HINTS = {
    "cli": "set gateway.remote.token to match gateway.auth.token",
    "browser": "open the dashboard URL and paste the token in Control UI settings",
    "other": "provide gateway auth token",
}
PASSWORD_HINTS = {
    "cli": "set gateway.remote.password to match gateway.auth.password",
    "browser": "enter the password in Control UI settings",
    "other": "provide gateway auth password",
}


@pytest.mark.parametrize("client", ["cli", "browser", "other"])
@pytest.mark.parametrize(
    ("reason", "detail_code", "words", "hints"),
    [
        ("token_missing", "AUTH_TOKEN_MISSING", "gateway token missing", TOKEN_HINTS),
        ("token_mismatch", "AUTH_TOKEN_MISMATCH", "gateway token mismatch", TOKEN_HINTS),
        ("password_missing", "AUTH_PASSWORD_MISSING", "gateway password missing", PASSWORD_HINTS),
        ("password_mismatch", "AUTH_PASSWORD_MISMATCH", "gateway password mismatch", PASSWORD_HINTS),
    ],
)
def test_secret_refusals_with_a_hint(client, reason, detail_code, words, hints):
    refusal = Refusal.unauthorized(reason, client=client)
    message = f"unauthorized: {words} ({hints[client]})"
    assert msgspec.to_builtins(refusal.error) == {
        "code": "INVALID_REQUEST",
        "message": message,
        "details": {"code": detail_code, "authReason": reason},
    }
    assert (refusal.close_code, refusal.close_reason) == (1008, message[:120])


@pytest.mark.parametrize(
    ("reason", "detail_code", "message"),
    [
        (
            "token_missing_config",
            "AUTH_TOKEN_NOT_CONFIGURED",
            "unauthorized: gateway token not configured on gateway (set gateway.auth.token)",
        ),
        (
            "password_missing_config",
            "AUTH_PASSWORD_NOT_CONFIGURED",
            "unauthorized: gateway password not configured on gateway (set gateway.auth.password)",
        ),
        (
            "tailscale_user_missing",
            "AUTH_TAILSCALE_IDENTITY_MISSING",
            "unauthorized: tailscale identity missing (use Tailscale Serve auth or gateway token/password)",
        ),
        (
            "tailscale_proxy_missing",
            "AUTH_TAILSCALE_PROXY_MISSING",
            "unauthorized: tailscale proxy headers missing (use Tailscale Serve or gateway token/password)",
        ),
        (
            "tailscale_whois_failed",
            "AUTH_TAILSCALE_WHOIS_FAILED",
            "unauthorized: tailscale identity check failed (use Tailscale Serve auth or gateway token/password)",
        ),
        (
            "tailscale_user_mismatch",
            "AUTH_TAILSCALE_IDENTITY_MISMATCH",
            "unauthorized: tailscale identity mismatch (use Tailscale Serve auth or gateway token/password)",
        ),
        (
            "rate_limited",
            "AUTH_RATE_LIMITED",
            "unauthorized: too many failed authentication attempts (retry later)",
        ),
        (
            "device_token_mismatch",
            "AUTH_DEVICE_TOKEN_MISMATCH",
            "unauthorized: device token mismatch (rotate/reissue device token)",
        ),
        ("trusted_proxy_user_missing", "AUTH_UNAUTHORIZED", "unauthorized"),
        (None, "AUTH_REQUIRED", "unauthorized"),
    ],
)
def test_secret_refusals(reason, detail_code, message):
    refusal = Refusal.unauthorized(reason)
    details = {"code": detail_code} | ({} if reason is None else {"authReason": reason})
    assert msgspec.to_builtins(refusal.error) == {"code": "INVALID_REQUEST", "message": message, "details": details}
    assert (refusal.close_code, refusal.close_reason) == (1008, message)


@pytest.mark.parametrize(
    ("mode", "offered", "message"),
    [
        ("token", "none", "unauthorized: gateway token missing (provide gateway auth token)"),
        (
            "token",
            "device-token",
            "unauthorized: device token rejected (pair/repair this device, or provide gateway token)",
        ),
        ("password", "none", "unauthorized: gateway password missing (provide gateway auth password)"),
        ("password", "device-token", "unauthorized"),
        ("trusted-proxy", "none", "unauthorized"),
        ("token", "token", "unauthorized"),
    ],
)
def test_words_of_a_reason_that_has_none(mode, offered, message):
    refusal = Refusal.unauthorized(None, mode=mode, offered=offered)
    assert refusal.error is not None
    assert refusal.error.message == message
    assert refusal.error.details == {"code": "AUTH_REQUIRED"}


def test_the_text_that_makes_clients_forget_their_token_survives_the_cut():
    assert "device token mismatch" in Refusal.unauthorized("device_token_mismatch").close_reason
    assert all(text.startswith("unauthorized") for _, text in AUTH_FAILURES.values())


@given(st.text(max_size=300), st.integers(0, 200))
def test_a_close_reason_is_the_longest_whole_prefix_that_fits(text, limit):
    cut = cut_reason(text, limit)
    assert len(cut.encode()) <= limit
    assert text.startswith(cut)
    if cut != text:
        assert len(text[: len(cut) + 1].encode()) > limit


def test_a_close_reason_is_never_cut_inside_a_character():
    assert cut_reason("a" * 119 + "é") == "a" * 119
    assert cut_reason("é" * 100) == "é" * 60
    assert cut_reason("a" * 118 + "🦞") == "a" * 118


def test_a_request_error_as_the_client_sees_it():
    error = RequestError(
        "rate limit exceeded for config.patch; retry after 42s",
        code=ErrorCode.UNAVAILABLE,
        details={"method": "config.patch", "limit": "3 per 60s"},
        retryable=True,
        retry_after_ms=42_000,
    )
    assert str(error) == "rate limit exceeded for config.patch; retry after 42s"
    assert msgspec.json.decode(msgspec.json.encode(error.shape())) == {
        "code": "UNAVAILABLE",
        "message": "rate limit exceeded for config.patch; retry after 42s",
        "details": {"method": "config.patch", "limit": "3 per 60s"},
        "retryable": True,
        "retryAfterMs": 42_000,
    }


def test_absent_parts_of_an_error_are_left_out():
    assert msgspec.to_builtins(RequestError("no").shape()) == {"code": "INVALID_REQUEST", "message": "no"}


def test_an_error_message_is_never_empty():
    assert RequestError("", code=ErrorCode.UNAVAILABLE).shape().message == "UNAVAILABLE"


def test_a_refused_role_can_be_told_from_other_errors():
    error = UnauthorizedRole("node")
    assert isinstance(error, RequestError)
    assert msgspec.to_builtins(error.shape()) == {
        "code": "INVALID_REQUEST",
        "message": "unauthorized role: node",
        "details": {"code": "FORBIDDEN"},
    }


def test_codes_are_closed_sets():
    assert set(ErrorCode) == {"NOT_LINKED", "NOT_PAIRED", "AGENT_TIMEOUT", "INVALID_REQUEST", "UNAVAILABLE"}
    assert {
        "METHOD_NOT_FOUND",
        "FORBIDDEN",
        "BUDGET_EXCEEDED",
        "COMMAND_BLOCKED",
        "INVALID_PARAMS",
        "NOT_FOUND",
        "INTERNAL_ERROR",
        "LLM_ERROR",
        "TIMEOUT",
        "SPAWN_ERROR",
        "IO_ERROR",
    } <= set(DetailCode)


def test_repeated_text_is_short():
    assert shorten("x" * 200) == "x" * 200
    assert shorten("x" * 201) == "x" * 199 + "…"
