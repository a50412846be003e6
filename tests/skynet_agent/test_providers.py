"""The registry of providers, and what it costs to have it."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args
from urllib.parse import urlsplit

import pytest

from skynet_agent import catalogue
from skynet_agent.apis import WIRE_APIS
from skynet_agent.providers import FREE, OFFLINE, AuthKind, Price
from skynet_agent.registry import KNOWN_PROVIDERS, REGISTRY, KnownProvider, known_provider
from skynet_agent.requests import THINKING_LEVELS
from skynet_agent.router import Router

NATIVE = {
    "anthropic": ("anthropic-messages", "anthropic"),
    "openai": ("openai-responses", "bearer"),
    "ollama": ("ollama", "bearer"),
    "copilot": ("openai-completions", "copilot"),
    "qwen": ("openai-completions", "qwen"),
    "bedrock": ("bedrock", "aws"),
    "vertex": ("vertex", "google"),
}
OPENAI_LIKE = (
    *(
        "groq",
        "mistral",
        "deepseek",
        "xai",
        "openrouter",
        "together",
        "fireworks",
        "cerebras",
        "perplexity",
        "moonshot",
    ),
    *("zai", "zhipu", "dashscope", "siliconflow", "huggingface", "nvidia", "nebius", "hyperbolic", "novita"),
    *("deepinfra", "sambanova", "cohere", "ai21", "baseten", "chutes", "venice", "featherless", "lambda", "scaleway"),
    *("ovhcloud", "github-models", "azure", "gemini", "vercel", "vllm", "lmstudio", "llamacpp", "litellm"),
)
"""Besides OpenAI itself and the logins; MiniMax has an API of this kind too, but its other one is better."""

every_provider = pytest.mark.parametrize("known", REGISTRY, ids=lambda known: known.name)


class TestRegistry:
    def test_there_are_as_many_as_promised(self) -> None:
        """SK-058, SK-066, BA-064, BA-065."""
        assert {known.name for known in REGISTRY} == {*NATIVE, *OPENAI_LIKE, "minimax"}
        assert len(REGISTRY) >= 43
        alike = [known for known in REGISTRY if known.name in OPENAI_LIKE]
        assert len(alike) >= 36
        assert {known.row.api for known in alike} == {"openai-completions", "openai-responses"}
        assert len({known.row.base_url for known in alike}) == len(alike)

    def test_native_kinds(self) -> None:
        """SK-059 to SK-065."""
        found = {known.name: (known.row.api, known.row.auth) for known in REGISTRY if known.name in NATIVE}
        assert found == NATIVE

    def test_names_and_addresses_are_one_providers_own(self) -> None:
        Router(KNOWN_PROVIDERS)  # no name twice, and every wire API is there
        addresses = [known.row.base_url for known in REGISTRY if known.row.base_url]
        assert len(set(addresses)) == len(addresses)

    def test_no_variable_enables_two(self) -> None:
        enabling = [name for known in REGISTRY for name in (*known.keys, *known.urls, *known.projects)]
        assert len(set(enabling)) == len(enabling)

    def test_what_every_program_has_enables_none(self) -> None:
        common = {"GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION"}
        common |= {"GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS", "SCW_SECRET_KEY"}
        for known in REGISTRY:
            assert not common & {*known.keys, *known.urls, *known.projects}

    def test_vendors_come_after_what_somebody_set_up_himself(self) -> None:
        vendors = [known.row.priority for known in REGISTRY if known.row.priority]
        assert vendors == [-rank for rank in range(1, len(vendors) + 1)]
        assert all(known.own_address for known in REGISTRY if known.row.priority == 0)

    def test_known_providers(self) -> None:
        openai = known_provider("openai")
        assert openai is not None
        assert (openai.row.env_key, openai.row.supports_prompt_cache_key) == ("OPENAI_API_KEY", True)
        assert known_provider("offline") is None
        assert known_provider("nobody") is None


@every_provider
class TestEntries:
    def test_the_address(self, known: KnownProvider) -> None:
        row = known.row
        if row.api in ("bedrock", "vertex"):
            assert row.base_url == ""
            return
        url = urlsplit(re.sub(r"^\{[A-Z_]+\}", "https://somewhere", row.base_url))
        assert url.hostname
        assert url.scheme == ("http" if url.hostname == "127.0.0.1" else "https")
        assert not row.base_url.endswith("/")
        assert not (url.query or url.fragment or url.username)
        assert not row.local or url.hostname == "127.0.0.1"

    def test_how_it_is_enabled(self, known: KnownProvider) -> None:
        row = known.row
        assert re.fullmatch(r"[a-z0-9-]+", known.name)
        assert row.title
        assert row.auth in get_args(AuthKind)
        assert row.api in WIRE_APIS
        assert not row.api_key
        assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", variable) for variable in known.variables)
        assert row.env_key == next(iter(known.keys), "")
        # somehow: a key, a project, a login, or a section of one's own server
        assert known.keys or known.projects or known.has_login or known.own_address
        assert not (known.needs_key and row.local), "SK-072"
        assert re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]+/\S+", known.source)

    def test_its_models_are_in_the_catalogue(self, known: KnownProvider) -> None:
        assert bool(known.models) is (known.row.priority < 0), "a vendor needs one to begin with"
        assert known.row.models == (), "there is one place for facts"
        for model in known.models:
            found = catalogue.model_info(known.row, model)
            exempt = known.name in ("featherless", "github-models")  # which tell of their models themselves
            assert exempt or found.context_window, model
            assert found.tools or known.name == "perplexity"

    def test_thinking(self, known: KnownProvider) -> None:
        levels = known.row.thinking_levels
        assert list(levels) == [level for level in THINKING_LEVELS if level in levels]
        assert set(levels) - {"off"}

    def test_unlisted_models_are_passed_on(self, known: KnownProvider) -> None:
        assert known.row.unlisted_models


class TestPrice:
    STEPS = Price(
        input=1,
        output=2,
        long_prompt_tokens=100,
        long_prompt=Price(input=3, output=4, long_prompt_tokens=200, long_prompt=Price(input=5, output=6)),
    )

    @pytest.mark.parametrize(("tokens", "price"), [(0, 1), (100, 1), (101, 3), (200, 3), (201, 5), (1 << 40, 5)])
    def test_long_prompts(self, tokens: int, price: int) -> None:
        assert self.STEPS.at(tokens).input == price

    def test_one_price_for_all(self) -> None:
        assert FREE.at(1 << 40) is FREE


def test_the_offline_row_is_no_vendor() -> None:
    assert OFFLINE.name not in {known.name for known in REGISTRY}
    assert [model.price for model in OFFLINE.models] == [FREE]


HEAVY = {"aiohttp", "anthropic", "boto3", "botocore", "google.auth", "httpx", "jsonschema", "openai", "pydantic"}


def test_nothing_heavy_is_imported_before_the_first_request() -> None:
    program = (
        "import sys, skynet_agent.turn, skynet_agent.router as router\n"
        "from skynet_agent.registry import KNOWN_PROVIDERS\n"
        "router.Router(KNOWN_PROVIDERS)\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
