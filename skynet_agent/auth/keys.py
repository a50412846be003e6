"""Keys that are sent as they are, in one header or another."""

from __future__ import annotations

from dataclasses import replace

from skynet_agent.http_client import HttpRequest
from skynet_agent.providers import ProviderRow

ANTHROPIC_SUBSCRIPTION = "sk-ant-oat01-"
"""How a token of an Anthropic subscription begins: it is sent as a bearer token, with a beta header (SK-073)."""
ANTHROPIC_SUBSCRIPTION_BETA = "oauth-2025-04-20"
BETA = "anthropic-beta"
"""A header that lists what it turns on; another list that a request has already is added to."""


class KeyAuth:
    """The row's ``api_key``, under the header that its ``auth`` names. An empty key sends nothing.

    A header that the request has already, from the row's ``headers``, is left as it is: there is never a second one.
    """

    def __init__(self, row: ProviderRow) -> None:
        key = row.api_key.reveal()
        self._secrets = (key.encode(),) if key else ()
        self._headers = _headers(row.auth, key) if key else {}

    async def sign(self, base_url: str, path: str, request: HttpRequest) -> HttpRequest:
        headers = dict(request.headers)
        names = {name.lower(): name for name in headers}
        for name, value in self._headers.items():
            taken = names.get(name.lower())
            if taken is None:
                headers[name] = value
            elif name == BETA:
                headers[taken] = _joined(headers[taken], value)
        return replace(request, headers=headers)

    async def renew(self) -> bool:
        return False

    def secrets(self) -> tuple[bytes, ...]:
        return self._secrets


def _headers(kind: str, key: str) -> dict[str, str]:
    if kind == "anthropic":
        if key.startswith(ANTHROPIC_SUBSCRIPTION):
            return {"Authorization": f"Bearer {key}", BETA: ANTHROPIC_SUBSCRIPTION_BETA}
        kind = "x-api-key"
    return {"Authorization": f"Bearer {key}"} if kind == "bearer" else {kind: key}


def _joined(listed: str, name: str) -> str:
    names = [each.strip() for each in listed.split(",") if each.strip()]
    return ",".join(names if name in names else [*names, name])
