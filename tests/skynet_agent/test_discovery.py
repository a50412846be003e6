"""Lists of models, as vendors write them."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.auth import auth_of
from skynet_agent.discovery import _anthropic_model, _listed, _openai_model, discover, list_models
from skynet_agent.endpoint import Endpoint
from skynet_agent.errors import AuthFailed, BadRequest, StreamCut
from skynet_agent.http_client import HttpClient
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.router import local_now
from skynet_memory.secrets import Secret
from tests.support.dialects.ollama import SHOWN, Ollama
from tests.support.dialects.openai_completions import OpenAICompletions
from tests.support.model_server import ModelServer
from tests.support.script import Reply, Seen

MakeEndpoint = Callable[..., Endpoint]


class Lists(OpenAICompletions):
    """Answers every GET with ``said``: JSON, or bytes as they are."""

    cache: Literal["prefix"] = "prefix"

    def __init__(self, said: Any) -> None:
        super().__init__()
        self.said = said

    def accepts(self, seen: Seen) -> bool:
        return seen.method == "GET"

    def ask(self, seen: Seen) -> Reply:
        raise NotImplementedError

    def models(self) -> Any:
        return self.said


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


@pytest.fixture
def endpoint(server: ModelServer, http: HttpClient) -> MakeEndpoint:
    def make(**fields: Any) -> Endpoint:
        row = replace(ProviderRow(name="lab", base_url=server.url, api_key=Secret("key-of-lab")), **fields)
        return Endpoint(row, auth_of(row, http, local_now, None), http, local_now)

    return make


async def listed(server: ModelServer, endpoint: Endpoint, said: Any) -> tuple[ModelInfo, ...]:
    server.dialects = (Lists(said),)
    return await discover(endpoint)


@pytest.mark.parametrize("api", ["openai-completions", "openai-responses"])
async def test_a_list_of_names(server: ModelServer, endpoint: MakeEndpoint, api: str) -> None:
    assert [info.id for info in await discover(endpoint(api=api))] == ["mock-1", "mock-2"]
    assert server.requests[0].target == "/v1/models"
    assert server.requests[0].headers["authorization"] == "Bearer key-of-lab"


OPENROUTER = {
    "id": "maker/model",
    "name": "Maker: Model",
    "context_length": 200_000,
    "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
    "supported_parameters": ["tools", "reasoning"],
    "top_provider": {"context_length": 100_000, "max_completion_tokens": 64_000},
}
COPILOT = {
    "id": "gpt-x",
    "name": "GPT X",
    "model_picker_enabled": True,
    "policy": {"state": "enabled"},
    "capabilities": {
        "type": "chat",
        "limits": {"max_context_window_tokens": 128_000, "max_output_tokens": 16_384, "max_prompt_tokens": 100_000},
        "supports": {"tool_calls": True, "vision": True, "reasoning_effort": ["low", "high", "none", "odd"]},
    },
}


@pytest.mark.parametrize(
    ("entry", "info"),
    [
        ({"id": "gpt-5.1", "object": "model", "created": 1, "owned_by": "x"}, ModelInfo(id="gpt-5.1")),
        (
            OPENROUTER,
            ModelInfo(
                id="maker/model",
                name="Maker: Model",
                context_window=200_000,
                output_limit=64_000,
                reasoning=True,
                input=("text", "image"),
            ),
        ),
        (
            {**OPENROUTER, "supported_parameters": ["temperature"], "architecture": {"input_modalities": ["text"]}},
            ModelInfo(id="maker/model", name="Maker: Model", context_window=200_000, output_limit=64_000, tools=False),
        ),
        (
            COPILOT,
            ModelInfo(
                id="gpt-x",
                name="GPT X",
                context_window=128_000,
                output_limit=16_384,
                reasoning=True,
                thinking_levels=("off", "low", "high"),
                input=("text", "image"),
            ),
        ),
        (
            {"id": "m", "max_context_length": 32, "capabilities": {"completion_chat": True, "function_calling": False}},
            ModelInfo(id="m", context_window=32, tools=False),
        ),
        ({"id": "m", "max_model_len": 4096}, ModelInfo(id="m", context_window=4096)),
        ({"id": "m", "context_window": 8192, "active": True}, ModelInfo(id="m", context_window=8192)),
        ({"id": "m", "meta": {"n_ctx": 2048}}, ModelInfo(id="m", context_window=2048)),
        ({"id": "models/gemini", "display_name": "Gemini"}, ModelInfo(id="gemini", name="Gemini")),
        ({"name": "m"}, ModelInfo(id="m", name="m")),
        ({"id": "m", "context_length": True, "display_name": 7, "capabilities": []}, ModelInfo(id="m")),
        (
            {"id": "m", "capabilities": {"vision": True, "reasoning": True}},
            ModelInfo(id="m", reasoning=True, input=("text", "image")),
        ),
    ],
)
async def test_what_lists_tell(
    server: ModelServer, endpoint: MakeEndpoint, entry: dict[str, Any], info: ModelInfo
) -> None:
    assert await listed(server, endpoint(), {"object": "list", "data": [entry, entry]}) == (info,)
    assert await listed(server, endpoint(), [entry]) == (info,)


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "m", "type": "embedding"},
        {"id": "m", "task": "text-to-image"},
        {"id": "m", "active": False},
        {"id": "m", "capabilities": {"type": "embeddings"}},
        {"id": "m", "capabilities": {"completion_chat": False}},
        {"id": "m", "policy": {"state": "disabled"}},
        {"id": "m", "architecture": {"output_modalities": ["image"]}},
        {"id": ""},
        {"id": "a\x1b[2J"},
        {"id": "x" * 201},
        {"id": ["m"]},
        {},
        "m",
        None,
    ],
)
async def test_entries_that_nobody_can_talk_with(server: ModelServer, endpoint: MakeEndpoint, entry: Any) -> None:
    assert await listed(server, endpoint(), {"data": [entry]}) == ()


@pytest.mark.parametrize(
    "said", [b"", b"<html>", b"[" * 100_000, {"data": None}, {"data": {}}, {}, "x", 7, None, b"\xff"]
)
async def test_lists_that_are_none(server: ModelServer, endpoint: MakeEndpoint, said: Any) -> None:
    said = msgspec.json.encode(said) if not isinstance(said, bytes) else said
    with pytest.raises(StreamCut, match="lab: the list of models makes no sense"):
        await listed(server, endpoint(), said)


async def test_lists_that_are_not_there_for_this_key(server: ModelServer, endpoint: MakeEndpoint) -> None:
    server.dialects = ()
    with pytest.raises(BadRequest, match="HTTP 404"):
        await discover(endpoint())
    with pytest.raises(AuthFailed, match="nobody has logged in"):
        await discover(endpoint(auth="qwen"))


async def test_anthropics_list(server: ModelServer, endpoint: MakeEndpoint) -> None:
    def support(**more: Any) -> dict[str, Any]:
        return {"supported": True, **more}

    old = {
        "type": "model",
        "id": "claude-old",
        "display_name": "Claude Old",
        "max_input_tokens": 200_000,
        "max_tokens": 64_000,
        "capabilities": {
            "image_input": support(),
            "thinking": support(types={"enabled": support()}),
            "effort": support(),
        },
    }
    thinking = support(types={"adaptive": support(), "enabled": {"supported": False}})
    new = {**old, "id": "claude-new", "capabilities": {"thinking": thinking, "effort": support()}}
    gone = {**old, "id": "claude-gone", "lifecycle": "retired"}
    bare = {"type": "model", "id": "claude-bare", "capabilities": None}
    row = {"api": "anthropic-messages", "auth": "anthropic", "base_url": server.origin}
    facts: dict[str, Any] = {"name": "Claude Old", "context_window": 200_000, "output_limit": 64_000, "reasoning": True}
    assert await listed(server, endpoint(**row), {"data": [new, old, gone, bare], "has_more": False}) == (
        ModelInfo(id="claude-new", thinking_form="effort", **facts),
        ModelInfo(id="claude-old", input=("text", "image"), **facts),
        ModelInfo(id="claude-bare"),
    )
    asked = server.requests[-1]
    assert asked.target == "/v1/models?limit=1000"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == ("key-of-lab", "2023-06-01")


async def test_ollamas_list(server: ModelServer, endpoint: MakeEndpoint) -> None:
    server.dialect(Ollama).shown = {"there": SHOWN}
    found = await discover(endpoint(api="ollama", base_url=server.origin))
    assert found == (ModelInfo(id="there", context_window=8192, reasoning=True, input=("text", "image")),)


@pytest.mark.parametrize("api", ["bedrock", "vertex", "offline"])
async def test_without_a_list_the_rows_models_count(server: ModelServer, endpoint: MakeEndpoint, api: str) -> None:
    models = (ModelInfo(id="m"),)
    assert await discover(endpoint(api=api, models=models)) == models
    assert server.served == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=6,
)
names = ["id", "name", "type", "capabilities", "limits", "supports", "architecture", "supported_parameters", "policy"]
names += ["context_length", "top_provider", "reasoning_effort", "thinking", "effort", "lifecycle", "display_name"]
entries = st.dictionaries(
    st.sampled_from(names), json_values | st.dictionaries(st.sampled_from(names), json_values, max_size=3)
)


@given(st.lists(entries | json_values, max_size=4), st.sampled_from(["openai-completions", "anthropic-messages"]))
def test_any_list_is_models_or_a_named_failure(said: list[Any], api: str) -> None:
    row = ProviderRow(name="lab", api=api)
    endpoint = Endpoint(row, auth_of(row, HttpClient(), local_now, None), HttpClient(), local_now)
    try:
        data = msgspec.json.encode({"data": said})
    except UnicodeEncodeError:
        return
    for info in _listed(endpoint, data, _openai_model if api.startswith("openai") else _anthropic_model):
        assert info.id.isprintable()


async def test_openais_list_by_its_own_name(server: ModelServer, endpoint: MakeEndpoint) -> None:
    assert await list_models(endpoint()) == await discover(endpoint())
