"""The list of models."""

import pytest

from tests.skynet.http.conftest import Surface


async def test_the_list(surface: Surface) -> None:
    answer = (await surface.http.get("/v1/models")).json()
    assert answer["object"] == "list"
    assert [(model["id"], model["owned_by"]) for model in answer["data"]] == [
        ("skynet", "skynet"),
        ("mock/mock-1", "mock"),
        ("mock/mock-2", "mock"),
    ]
    assert all(model["object"] == "model" and model["created"] > 0 for model in answer["data"])


@pytest.mark.parametrize(
    ("model", "owner"),
    [
        ("skynet", "skynet"),
        ("openclaw:main", "skynet"),
        ("mock/mock-1", "mock"),
        ("mock%2Fmock-1", "mock"),
        ("fast", "mock"),
        ("any", "mock"),
        ("mock-2", "mock"),
    ],
)
async def test_one_model(surface: Surface, model: str, owner: str) -> None:
    answer = await surface.http.get(f"/v1/models/{model}")
    assert answer.status_code == 200
    assert answer.json()["id"] == model.replace("%2F", "/")
    assert answer.json()["owned_by"] == owner


@pytest.mark.parametrize("model", ["", "gpt-5.1", "other/mock-1", "%00", "%ff"])
async def test_an_unknown_model(surface: Surface, model: str) -> None:
    answer = await surface.http.get(f"/v1/models/{model}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
