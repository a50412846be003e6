"""Keys in their headers."""

import pytest

from skynet_agent.auth.keys import KeyAuth
from skynet_agent.http_client import HttpRequest
from skynet_agent.providers import AuthKind, ProviderRow
from skynet_memory.secrets import Secret

SUBSCRIPTION = "sk-ant-oat01-abc"
OAUTH = "oauth-2025-04-20"


async def signed(kind: AuthKind, key: str, **headers: str) -> dict[str, str]:
    auth = KeyAuth(ProviderRow(name="lab", auth=kind, api_key=Secret(key)))
    request = HttpRequest(url="http://lab/v1/messages", headers=headers, body=b"{}")
    sent = await auth.sign("http://lab", "/v1/messages", request)
    assert (sent.url, sent.method, sent.body) == (request.url, "POST", b"{}")
    return dict(sent.headers)


@pytest.mark.parametrize(
    ("kind", "key", "headers"),
    [
        ("bearer", "k", {"Authorization": "Bearer k"}),
        ("x-api-key", "k", {"x-api-key": "k"}),
        ("api-key", "k", {"api-key": "k"}),
        ("anthropic", "sk-ant-api03-abc", {"x-api-key": "sk-ant-api03-abc"}),
        ("anthropic", SUBSCRIPTION, {"Authorization": f"Bearer {SUBSCRIPTION}", "anthropic-beta": OAUTH}),
        ("bearer", SUBSCRIPTION, {"Authorization": f"Bearer {SUBSCRIPTION}"}),
        ("bearer", "", {}),
        ("anthropic", "", {}),
    ],
)
async def test_the_header_of_each_kind(kind: AuthKind, key: str, headers: dict[str, str]) -> None:
    """SK-067, SK-073."""
    assert await signed(kind, key) == headers
    assert await signed(kind, key, accept="x") == {"accept": "x", **headers}


@pytest.mark.parametrize("name", ["anthropic-beta", "Anthropic-Beta"])
@pytest.mark.parametrize(
    ("listed", "sent"),
    [
        ("context-1m", f"context-1m,{OAUTH}"),
        ("context-1m, other", f"context-1m,other,{OAUTH}"),
        (f"{OAUTH},other", f"{OAUTH},other"),
        ("", OAUTH),
    ],
)
async def test_betas_are_listed_in_one_header(name: str, listed: str, sent: str) -> None:
    headers = await signed("anthropic", SUBSCRIPTION, **{name: listed})
    assert headers == {name: sent, "Authorization": f"Bearer {SUBSCRIPTION}"}
    assert await signed("anthropic", "sk-ant-api03-abc", **{name: listed}) == {
        name: listed,
        "x-api-key": "sk-ant-api03-abc",
    }


async def test_a_header_of_the_row_wins_and_is_the_only_one() -> None:
    assert await signed("bearer", "k", authorization="Basic x") == {"authorization": "Basic x"}
    assert await signed("anthropic", "k", **{"X-Api-Key": "other"}) == {"X-Api-Key": "other"}


async def test_a_key_is_a_secret_and_cannot_be_renewed() -> None:
    auth = KeyAuth(ProviderRow(name="lab", auth="anthropic", api_key=Secret("k")))
    assert auth.secrets() == (b"k",)
    assert not await auth.renew()
    assert KeyAuth(ProviderRow(name="lab")).secrets() == ()
