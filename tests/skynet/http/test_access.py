"""Who gets in, and what the others are told."""

from pathlib import Path

import pytest

from skynet.config.schema import AuthConfig, LimitsConfig
from skynet_memory.ids import Role
from skynet_memory.secrets import Secret
from tests.skynet.http.conftest import TOKEN, Surface, open_surface

WRONG = {"authorization": "Bearer wrong"}


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer wrong", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe4"],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
async def test_a_missing_or_wrong_secret(surface: Surface, authorization: str, path: str) -> None:
    method = "POST" if path.endswith("completions") else "GET"
    answer = await surface.http.request(method, path, headers={"authorization": authorization.encode("latin-1")})
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["cache-control"] == "no-store"


async def test_two_authorization_headers_are_none(surface: Surface) -> None:
    headers = [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer x")]
    surface.http.headers.clear()
    assert (await surface.http.get("/v1/models", headers=headers)).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_gateway_token(surface: Surface, scheme: str) -> None:
    answer = await surface.http.get("/v1/models", headers={"authorization": f"{scheme} {TOKEN}"})
    assert answer.status_code == 200


async def test_the_password(tmp_path: Path) -> None:
    async with open_surface(tmp_path, auth=AuthConfig(mode="password", password=Secret("open sesame"))) as surface:
        for password, status in [("open sesame", 200), ("wrong", 401), (TOKEN, 401)]:
            answer = await surface.http.get("/v1/models", headers={"authorization": f"Bearer {password}"})
            assert answer.status_code == status


async def test_a_personal_token_is_its_person(surface: Surface) -> None:
    ann, headers = await surface.person("Ann", Role.USER)
    assert (await surface.chat(user="x", headers=headers)).status_code == 200
    assert await surface.transcript(f"user:{ann}:agent:main:openai-user:x", ann)
    assert await surface.sessions.count(surface.owner.id) == 0
    wrong = {"authorization": headers["authorization"] + "x"}
    assert (await surface.chat(headers=wrong)).status_code == 401


async def test_too_many_wrong_secrets(tmp_path: Path) -> None:
    limits = LimitsConfig(auth_attempts=3)
    async with open_surface(tmp_path, limits=limits) as surface:
        page = {"origin": "http://localhost:3000"}  # loopback is exempt from the lockout, except for pages
        for _ in range(3):
            assert (await surface.chat(headers={**WRONG, **page})).status_code == 401
        answer = await surface.chat(headers=page)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 300
        assert answer.json()["error"]["type"] == "rate_limited"


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "key", "PASSWORD", "api-key"])
async def test_secrets_in_the_url_are_refused(surface: Surface, name: str) -> None:
    for headers in ({}, {"authorization": ""}):
        answer = await surface.http.get("/v1/models", params={"x": "1", name: TOKEN}, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "secret_in_url"
        assert TOKEN not in answer.text


async def test_other_queries_do_not_matter(surface: Surface) -> None:
    assert (await surface.http.get("/v1/models?api-version=2024-06-01&beta=true")).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://[", ""])
async def test_pages_of_other_sites_are_refused(surface: Surface, origin: str) -> None:
    answer = await surface.chat(headers={"origin": origin, "content-type": "text/plain"})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"
    assert surface.models.served == 0


async def test_a_page_that_rebinds_its_name_is_refused(surface: Surface) -> None:
    answer = await surface.chat(headers={"origin": "http://evil.example", "host": "evil.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("origin", ["https://app.example", "http://localhost:3000", "http://127.0.0.1"])
async def test_listed_and_local_pages_get_in(surface: Surface, origin: str) -> None:
    answer = await surface.chat(headers={"origin": origin})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_without_authentication_only_this_machine_gets_in(tmp_path: Path) -> None:
    async with open_surface(tmp_path, auth=AuthConfig(mode="none")) as surface:
        assert (await surface.chat(headers={"authorization": ""})).status_code == 200
        for headers in ({"host": "evil.example"}, {"x-forwarded-for": "1.2.3.4"}):
            assert (await surface.http.get("/v1/models", headers=headers)).status_code == 401
