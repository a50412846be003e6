"""What proves to a provider who asks, one module a kind. The kinds are those of ``ProviderRow.auth``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from skynet_agent.auth.keys import KeyAuth
from skynet_agent.auth.tokens import TokenStore
from skynet_agent.endpoint import Auth
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import ProviderRow


def auth_of(row: ProviderRow, http: HttpClient, clock: Callable[[], datetime], tokens: TokenStore | None) -> Auth:
    """The credentials of ``row``; nothing is read or asked before the first request.

    A kind that needs more than a key is imported here, by those alone who have such a provider.

    Args:
        http: for the kinds that ask somebody for tokens.
        tokens: what people who logged in left behind; None where nobody could.
    """
    match row.auth:
        case "copilot":
            from skynet_agent.auth.copilot import CopilotAuth

            return CopilotAuth(row, http, clock, tokens)
        case "qwen":
            from skynet_agent.auth.qwen import QwenAuth

            return QwenAuth(row, http, clock, tokens)
        case "aws":
            from skynet_agent.auth.aws import AwsAuth

            return AwsAuth(row)
        case "google":
            from skynet_agent.auth.google import GoogleAuth

            return GoogleAuth(row, http)
        case _:
            return KeyAuth(row)
