"""Alive and ready, and what is not served."""

from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from skynet.http.health import Ready
from skynet.version import VERSION
from skynet_memory.database import Database
from tests.skynet.http.conftest import Surface, serving


@pytest.mark.parametrize("path", ["/health", "/healthz"])
async def test_health_counts_the_connected_clients(surface: Surface, path: str) -> None:
    surface.counts["connections"] = 3
    answer = await surface.http.get(path, headers={"authorization": "", "origin": "https://evil.example"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers
    assert answer.json() == {"status": "ok", "version": VERSION, "protocol": 3, "ws_clients": 3}


async def test_head_has_no_body(surface: Surface) -> None:
    answer = await surface.http.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_ready(surface: Surface) -> None:
    answer = await surface.http.get("/readyz", headers={"authorization": ""})
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


async def test_not_ready_while_starting_or_stopping(surface: Surface) -> None:
    surface.counts["accepting"] = False
    answer = await surface.http.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert (await surface.http.get("/health")).status_code == 200


async def test_not_ready_when_the_database_cannot_be_read(tmp_path: Path) -> None:
    async with Database(tmp_path / "skynet.db") as db:
        pass
    app = Starlette(routes=[Route("/readyz", Ready(lambda: True, db))])
    async with serving(app) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "reason": "the database cannot be read"}


async def test_unknown_paths(surface: Surface) -> None:
    answer = await surface.http.get("/nothing")
    assert (answer.status_code, answer.text) == (404, "Not Found")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/v1", "/v1/nothing", "/v1/chat/completions/"):
        answer = await surface.http.post(path)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "unknown_path"
        assert answer.json()["error"]["message"] == f"unknown path: {path}"
        assert answer.headers["cache-control"] == "no-store"


async def test_wrong_methods(surface: Surface) -> None:
    answer = await surface.http.get("/v1/chat/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == "method_not_allowed"
    answer = await surface.http.post("/v1/models")
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
    answer = await surface.http.post("/health")
    assert (answer.status_code, answer.text) == (405, "Method Not Allowed")


async def test_no_preflight_succeeds(surface: Surface) -> None:
    answer = await surface.http.options(
        "/v1/chat/completions",
        headers={"origin": "https://app.example", "access-control-request-method": "POST"},
    )
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]
