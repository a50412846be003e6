"""Providers: which wire API each speaks, where, and how it differs from the others.

A vendor is a row. What a vendor does differently is a named field of its row, so that no wire API ever asks for a
provider's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skynet_memory.secrets import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Micro-dollars per million tokens: 3 dollars per million are ``3_000_000``.

    Where a cache price is None, those tokens are charged as input.
    """

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model as its provider offers it; None and empty mean unknown.

    ``max_output_tokens`` is told to the provider with every request, which some count against a quota: a vendor's row
    leaves it to the vendor.
    """

    id: str
    name: str = ""
    context_window: int | None = None
    max_output_tokens: int | None = None
    reasoning: bool = False
    input: tuple[Literal["text", "image"], ...] = ("text",)
    price: Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProviderRow:
    """One provider.

    ``priority``: the highest is asked first; equal ones in the order they are listed. ``models``: the first is the one
    used when only the provider is meant. ``env_key`` names the variable that holds the key of a known vendor.
    """

    name: str
    base_url: str = ""
    api: str = "openai-completions"
    api_key: Secret = field(default_factory=lambda: Secret(""))
    priority: int = 0
    models: tuple[ModelInfo, ...] = ()
    env_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    unlisted_models: bool = False
    """``provider/model`` is passed on although ``models`` does not have it; always so while ``models`` is empty."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 120.0
    """The longest silence: before the answer begins and between two reads of it."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    supports_stream_options: bool = True
    """Whether ``stream_options.include_usage`` may be sent; without it most vendors report no usage."""


OFFLINE = ProviderRow(
    name="offline",
    api="offline",
    models=(ModelInfo(id="assistant", name="Offline assistant", price=Price(input=0, output=0)),),
)

KNOWN_PROVIDERS: tuple[ProviderRow, ...] = (
    ProviderRow(
        name="openai",
        base_url="https://api.openai.com/v1",
        env_key="OPENAI_API_KEY",
        models=(
            ModelInfo(
                id="gpt-5.1",
                name="GPT-5.1",
                context_window=400_000,
                reasoning=True,
                input=("text", "image"),
                price=Price(input=1_250_000, output=10_000_000, cache_read=125_000),
            ),
        ),
        unlisted_models=True,
        max_tokens_field="max_completion_tokens",
    ),
    ProviderRow(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        env_key="OPENROUTER_API_KEY",
        models=(ModelInfo(id="openrouter/auto"),),
        unlisted_models=True,
    ),
    ProviderRow(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        env_key="GROQ_API_KEY",
        models=(ModelInfo(id="llama-3.3-70b-versatile", context_window=131_072),),
        unlisted_models=True,
        max_tokens_field="max_completion_tokens",
    ),
    ProviderRow(
        name="deepseek",
        base_url="https://api.deepseek.com/v1",
        env_key="DEEPSEEK_API_KEY",
        models=(ModelInfo(id="deepseek-chat", context_window=128_000),),
        unlisted_models=True,
    ),
    ProviderRow(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        env_key="MISTRAL_API_KEY",
        models=(ModelInfo(id="mistral-large-latest", context_window=128_000),),
        unlisted_models=True,
        supports_stream_options=False,  # refuses unknown fields; sends usage anyway
    ),
    ProviderRow(
        name="xai",
        base_url="https://api.x.ai/v1",
        env_key="XAI_API_KEY",
        models=(ModelInfo(id="grok-4", context_window=256_000, reasoning=True, input=("text", "image")),),
        unlisted_models=True,
    ),
    ProviderRow(name="ollama", base_url="http://127.0.0.1:11434/v1"),
    ProviderRow(name="lmstudio", base_url="http://127.0.0.1:1234/v1"),
)


def known_provider(name: str) -> ProviderRow | None:
    """The row of a vendor by its registry name; what the configuration says is put over it with ``replace``."""
    for row in (*KNOWN_PROVIDERS, OFFLINE):
        if row.name == name:
            return row
    return None
