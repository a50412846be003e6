"""What goes wrong on the wire: error shapes, their codes, refused requests and refused handshakes.

OpenClaw has a closed set of five codes and its clients match on texts, so the texts here are exact (OPENCLAW-V3 2.4,
2.5, 6.1). The finer code that Skynet's own clients switch on is ``details.code``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self

from msgspec import UNSET, Struct, UnsetType

PROTOCOL_VERSION = 3
CLOSE_REASON_MAX_BYTES = 120

CLOSE_NORMAL = 1000
CLOSE_PROTOCOL_MISMATCH = 1002
CLOSE_POLICY = 1008
CLOSE_INTERNAL_ERROR = 1011
CLOSE_SERVICE_RESTART = 1012


class ErrorCode(StrEnum):
    """``error.code``: the closed set that v3 clients know."""

    NOT_LINKED = "NOT_LINKED"
    NOT_PAIRED = "NOT_PAIRED"
    AGENT_TIMEOUT = "AGENT_TIMEOUT"
    INVALID_REQUEST = "INVALID_REQUEST"
    UNAVAILABLE = "UNAVAILABLE"


class DetailCode(StrEnum):
    """``error.details.code`` of refused requests: stable, for clients that want more than OpenClaw's five codes."""

    PROTOCOL_ERROR = "PROTOCOL_ERROR"
    METHOD_NOT_FOUND = "METHOD_NOT_FOUND"
    INVALID_PARAMS = "INVALID_PARAMS"
    NOT_FOUND = "NOT_FOUND"
    FORBIDDEN = "FORBIDDEN"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    COMMAND_BLOCKED = "COMMAND_BLOCKED"
    LIMIT_REACHED = "LIMIT_REACHED"
    LLM_ERROR = "LLM_ERROR"
    TIMEOUT = "TIMEOUT"
    SPAWN_ERROR = "SPAWN_ERROR"
    IO_ERROR = "IO_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"


class ErrorShape(Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    """The ``error`` of a response. Clients drop a frame with an empty ``message`` (OPENCLAW-V3 1.3)."""

    code: str
    message: str
    details: Any = UNSET
    retryable: bool | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class RequestError(Exception):
    """A request that is answered with ``ok: false``. ``str()`` is the message the client sees."""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_REQUEST,
        details: Mapping[str, Any] | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms

    def shape(self) -> ErrorShape:
        return ErrorShape(
            code=self.code.value,
            message=self.message or self.code.value,
            details=UNSET if self.details is None else self.details,
            retryable=UNSET if self.retryable is None else self.retryable,
            retry_after_ms=UNSET if self.retry_after_ms is None else self.retry_after_ms,
        )


class UnauthorizedRole(RequestError):  # noqa: N818
    """The connection's role may not call this method; ten in a row are answered, the next closes (OPENCLAW-V3 1.6)."""

    def __init__(self, gateway_role: str) -> None:
        super().__init__(f"unauthorized role: {shorten(gateway_role)}", details={"code": DetailCode.FORBIDDEN})


def shorten(text: str, limit: int = 200) -> str:
    """``text`` as an error may repeat it: at most ``limit`` characters, so that no answer grows with its request."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut_reason(text: str, limit: int = CLOSE_REASON_MAX_BYTES) -> str:
    """``text`` cut to ``limit`` UTF-8 bytes, never inside a character: what fits in a close frame."""
    encoded = text.encode("utf-8", "replace")
    return encoded[:limit].decode("utf-8", "ignore")


DeviceReason = Literal[
    "device-id-mismatch",
    "device-signature-stale",
    "device-nonce-missing",
    "device-nonce-mismatch",
    "device-signature",
    "device-public-key",
]

DEVICE_MESSAGES: Mapping[DeviceReason, str] = {
    "device-id-mismatch": "device identity mismatch",
    "device-signature-stale": "device signature expired",
    "device-nonce-missing": "device nonce required",
    "device-nonce-mismatch": "device nonce mismatch",
    "device-signature": "device signature invalid",
    "device-public-key": "device public key invalid",
}
"""``details.reason`` of a bad device proof to its message (OPENCLAW-V3 2.5)."""

ClientKind = Literal["cli", "browser", "other"]
"""Whose words the hint of a refused secret uses: mode ``cli``, the Control UI or a webchat, anybody else."""

TOKEN_HINTS: Mapping[ClientKind, str] = {
    "cli": "set gateway.remote.token to match gateway.auth.token",
    "browser": "open the dashboard URL and paste the token in Control UI settings",
    "other": "provide gateway auth token",
}
PASSWORD_HINTS: Mapping[ClientKind, str] = {
    "cli": "set gateway.remote.password to match gateway.auth.password",
    "browser": "enter the password in Control UI settings",
    "other": "provide gateway auth password",
}

_TAILSCALE_ADVICE = "use Tailscale Serve auth or gateway token/password"

AUTH_FAILURES: Mapping[str, tuple[str, str]] = {
    "token_missing": ("AUTH_TOKEN_MISSING", "unauthorized: gateway token missing ({token_hint})"),
    "token_mismatch": ("AUTH_TOKEN_MISMATCH", "unauthorized: gateway token mismatch ({token_hint})"),
    "token_missing_config": (
        "AUTH_TOKEN_NOT_CONFIGURED",
        "unauthorized: gateway token not configured on gateway (set gateway.auth.token)",
    ),
    "password_missing": ("AUTH_PASSWORD_MISSING", "unauthorized: gateway password missing ({password_hint})"),
    "password_mismatch": ("AUTH_PASSWORD_MISMATCH", "unauthorized: gateway password mismatch ({password_hint})"),
    "password_missing_config": (
        "AUTH_PASSWORD_NOT_CONFIGURED",
        "unauthorized: gateway password not configured on gateway (set gateway.auth.password)",
    ),
    "tailscale_user_missing": (
        "AUTH_TAILSCALE_IDENTITY_MISSING",
        f"unauthorized: tailscale identity missing ({_TAILSCALE_ADVICE})",
    ),
    "tailscale_proxy_missing": (
        "AUTH_TAILSCALE_PROXY_MISSING",
        "unauthorized: tailscale proxy headers missing (use Tailscale Serve or gateway token/password)",
    ),
    "tailscale_whois_failed": (
        "AUTH_TAILSCALE_WHOIS_FAILED",
        f"unauthorized: tailscale identity check failed ({_TAILSCALE_ADVICE})",
    ),
    "tailscale_user_mismatch": (
        "AUTH_TAILSCALE_IDENTITY_MISMATCH",
        f"unauthorized: tailscale identity mismatch ({_TAILSCALE_ADVICE})",
    ),
    "rate_limited": (
        "AUTH_RATE_LIMITED",
        "unauthorized: too many failed authentication attempts (retry later)",
    ),
    "device_token_mismatch": (
        "AUTH_DEVICE_TOKEN_MISMATCH",
        "unauthorized: device token mismatch (rotate/reissue device token)",
    ),
}
"""``details.authReason`` to (``details.code``, message); others are ``AUTH_UNAUTHORIZED`` (OPENCLAW-V3 2.5)."""

OfferedCredential = Literal["none", "token", "device-token", "password"]


class Refusal(Exception):  # noqa: N818
    """A handshake that fails: the error response to send, if any, and the close frame that must follow it at once.

    Clients show the close reason when the server's close frame arrives first, so both carry the same words
    (OPENCLAW-V3 2.1). One constructor a row of OPENCLAW-V3 2.4.
    """

    def __init__(self, error: ErrorShape | None, *, close_code: int = CLOSE_POLICY, close_reason: str) -> None:
        super().__init__(close_reason or "handshake refused")
        self.error = error
        self.close_code = close_code
        self.close_reason = cut_reason(close_reason)

    @classmethod
    def _with_error(
        cls,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_REQUEST,
        details: Mapping[str, Any] | None = None,
        close_code: int = CLOSE_POLICY,
    ) -> Self:
        shape = ErrorShape(code=code.value, message=message, details=UNSET if details is None else details)
        return cls(shape, close_code=close_code, close_reason=message)

    @classmethod
    def handshake_timeout(cls) -> Self:
        """Nothing arrived in time."""
        return cls(None, close_code=CLOSE_NORMAL, close_reason="")

    @classmethod
    def not_json(cls) -> Self:
        """The first frame is not JSON."""
        return cls(None, close_code=CLOSE_NORMAL, close_reason="")

    @classmethod
    def not_a_request(cls) -> Self:
        """The first frame is JSON, but no request frame."""
        return cls(None, close_reason="invalid request frame")

    @classmethod
    def not_connect(cls) -> Self:
        """The first request is another method."""
        return cls._with_error(
            "invalid handshake: first request must be connect", details={"code": DetailCode.PROTOCOL_ERROR}
        )

    @classmethod
    def invalid_params(cls, error: RequestError) -> Self:
        """The params of ``connect`` are wrong; ``error`` is what ``decode_params`` raised."""
        return cls._with_error(error.message, details=error.details)

    @classmethod
    def protocol_mismatch(cls) -> Self:
        return cls._with_error(
            "protocol mismatch",
            details={"expectedProtocol": PROTOCOL_VERSION},
            close_code=CLOSE_PROTOCOL_MISMATCH,
        )

    @classmethod
    def invalid_role(cls) -> Self:
        return cls._with_error("invalid role")

    @classmethod
    def origin_not_allowed(cls) -> Self:
        return cls._with_error(
            "origin not allowed (open the Control UI from the gateway host or allow it in"
            " gateway.controlUi.allowedOrigins)"
        )

    @classmethod
    def control_ui_device_required(cls) -> Self:
        """The Control UI came without a device."""
        return cls._with_error(
            "control ui requires device identity (use HTTPS or localhost secure context)",
            details={"code": "CONTROL_UI_DEVICE_IDENTITY_REQUIRED"},
        )

    @classmethod
    def device_required(cls) -> Self:
        """Another client came without a device and without a valid secret."""
        return cls._with_error(
            "device identity required", code=ErrorCode.NOT_PAIRED, details={"code": "DEVICE_IDENTITY_REQUIRED"}
        )

    @classmethod
    def device_auth_invalid(cls, reason: DeviceReason) -> Self:
        """The device proof does not hold."""
        return cls._with_error(DEVICE_MESSAGES[reason], details={"code": "DEVICE_AUTH_INVALID", "reason": reason})

    @classmethod
    def unauthorized(
        cls,
        reason: str | None,
        *,
        client: ClientKind = "other",
        mode: str = "",
        offered: OfferedCredential = "token",
    ) -> Self:
        """The secret is missing or wrong.

        ``reason`` is the ``authReason``; ``mode`` (the gateway's auth mode) and ``offered`` (what the client brought)
        only choose the words when the reason has none of its own.
        """
        if reason is None:
            detail_code, text = "AUTH_REQUIRED", ""
        else:
            detail_code, text = AUTH_FAILURES.get(reason, ("AUTH_UNAUTHORIZED", ""))
        if not text:
            text = _fallback_text(mode, offered)
        message = text.format(token_hint=TOKEN_HINTS[client], password_hint=PASSWORD_HINTS[client])
        details: dict[str, Any] = {"code": detail_code}
        if reason is not None:
            details["authReason"] = reason
        return cls._with_error(message, details=details)

    @classmethod
    def pairing_required(cls, request_id: str, reason: str) -> Self:
        """The device has to be approved; ``reason`` is not-paired, metadata-upgrade, role-upgrade or scope-upgrade."""
        return cls._with_error(
            "pairing required",
            code=ErrorCode.NOT_PAIRED,
            details={"code": "PAIRING_REQUIRED", "requestId": request_id, "reason": reason},
        )


def _fallback_text(mode: str, offered: OfferedCredential) -> str:
    if mode == "token" and offered == "none":
        return AUTH_FAILURES["token_missing"][1]
    if mode == "token" and offered == "device-token":
        return "unauthorized: device token rejected (pair/repair this device, or provide gateway token)"
    if mode == "password" and offered == "none":
        return AUTH_FAILURES["password_missing"][1]
    return "unauthorized"
