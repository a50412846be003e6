"""The models that an Ollama server has."""

from collections.abc import AsyncIterator

import pytest

from skynet_agent.auth import auth_of
from skynet_agent.endpoint import Endpoint
from skynet_agent.http_client import HttpClient
from skynet_agent.ollama_models import list_models
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.router import local_now
from tests.support.dialects.ollama import SHOWN, Ollama
from tests.support.model_server import ModelServer


@pytest.fixture
async def endpoint(server: ModelServer) -> AsyncIterator[Endpoint]:
    http, row = HttpClient(), ProviderRow(name="lab", api="ollama", base_url=server.origin)
    yield Endpoint(row, auth_of(row, http, local_now, None), http, local_now)
    await http.aclose()


async def test_list_models(server: ModelServer, endpoint: Endpoint) -> None:
    server.dialect(Ollama).shown = {
        "big:latest": {**SHOWN, "parameters": 'stop "<end>"\nnum_ctx    4096'},
        "gpt-oss:20b": {**SHOWN, "capabilities": ["completion", "thinking"], "details": {"family": "gptoss"}},
        "embed": {**SHOWN, "capabilities": ["embedding"]},
        "old": {"model_info": {"llama.context_length": 2048, "x": "y"}},
        "odd": {"capabilities": "all"},
        "bare": {"capabilities": ["completion"], "model_info": {}, "details": None},
        "vast": {**SHOWN, "parameters": "num_ctx 1" + "0" * 5000, "model_info": {"x.context_length": 10**15}},
    }
    assert await list_models(endpoint) == (
        ModelInfo(id="big:latest", context_window=4096, reasoning=True, input=("text", "image")),
        ModelInfo(id="gpt-oss:20b", context_window=8192, tools=False, reasoning=True, thinking_form="effort"),
        ModelInfo(id="old", context_window=2048),
        ModelInfo(id="odd"),
        ModelInfo(id="bare", tools=False),
        ModelInfo(id="vast", reasoning=True, input=("text", "image")),
    )


async def test_many_models_are_listed_without_asking_about_each(server: ModelServer, endpoint: Endpoint) -> None:
    server.dialect(Ollama).shown = {f"m{number}": SHOWN for number in range(70)}
    listed = await list_models(endpoint)
    assert [info.id for info in listed] == [f"m{number}" for number in range(70)]
    assert server.served == 65
