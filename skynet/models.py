"""The configured providers and models, as the router knows them: what the configuration says, over the registry and
the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from skynet.config import Config, ModelConfig, PriceConfig, ProviderConfig
from skynet.config.loopback import is_loopback
from skynet_agent.catalogue import model_info
from skynet_agent.providers import AuthKind, ModelInfo, Price, ProviderRow
from skynet_agent.registry import known_provider

_OVERRIDES = (
    *("connect_timeout_s", "read_timeout_s", "requests_per_minute", "unlisted_models"),
    *("max_tokens_field", "supports_stream_options", "supports_prompt_cache_key", "thinking_field", "thinking_levels"),
    *("tool_call_ids", "wants_thinking_back"),
)
"""Keys of a provider that are fields of a row of the same name; one that is not set leaves the row as it is."""


def provider_rows(config: Config) -> Sequence[ProviderRow]:
    """The enabled providers in the order they are asked, with all that is known of the models they list."""
    return [provider_row(name, provider) for name, provider in config.enabled_providers.items()]


def provider_row(name: str, provider: ProviderConfig) -> ProviderRow:
    """A provider of the registry keeps its ways, wherever it is. Catalogue prices are those of the vendor's address."""
    said: dict[str, Any] = {key: getattr(provider, key) for key in _OVERRIDES}
    own = _own_row(name, provider)
    row = replace(
        own,
        **{key: value for key, value in said.items() if value is not None},
        api=provider.api,
        base_url=provider.base_url,
        api_key=provider.api_key,
        priority=provider.priority,
        headers={**own.headers, **{header: value.reveal() for header, value in provider.headers.items()}},
        region=provider.region,
        project=provider.project,
        profile=provider.profile,
        credentials_file="" if provider.credentials_file == Path() else str(provider.credentials_file),
    )
    return replace(row, models=tuple(_model(row, model) for model in provider.models))


def unprotected(rows: Sequence[ProviderRow]) -> list[str]:
    """Providers whose credentials anybody on the way can read, in words for the log at start."""
    found = []
    for row in rows:
        proves_who_asks = row.api_key or row.headers or row.auth in ("aws", "copilot", "google", "qwen")
        parts = urlsplit(row.base_url)
        if proves_who_asks and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            found.append(f"provider {row.name}: what proves who asks goes unencrypted to {row.base_url}; use https")
    return found


def _own_row(name: str, provider: ProviderConfig) -> ProviderRow:
    """What the row is before the configuration speaks."""
    known = known_provider(name)
    if known is None:
        return ProviderRow(name=name, auth=_auth(provider.api))
    row = known.row
    if not known.own_address and provider.base_url != row.base_url:
        row = replace(row, list_prices=False)
    if provider.api == row.api:
        return row
    return ProviderRow(  # another API of the same vendor: nothing is known of its ways
        name=name,
        title=row.title,
        auth=_auth(provider.api) if "anthropic-messages" in (row.api, provider.api) else row.auth,
        local=row.local,
        unlisted_models=row.unlisted_models,
        catalogue=row.catalogue,
        list_prices=row.list_prices,
        read_timeout_s=row.read_timeout_s,
    )


def _auth(api: str) -> AuthKind:
    match api:
        case "anthropic-messages":
            return "anthropic"
        case "bedrock":
            return "aws"
        case "vertex":
            return "google"
        case _:
            return "bearer"


def _model(row: ProviderRow, model: ModelConfig) -> ModelInfo:
    """What is known of a model, and over it what was said of it."""
    known = model_info(row, model.id)
    said: dict[str, Any] = {
        "name": model.name or None,
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
        "output_limit": model.max_output_tokens,  # who says it knows better than the catalogue
        "reasoning": model.reasoning,
        "thinking_form": model.thinking_form,
        "thinking_levels": model.thinking_levels,
        "tools": model.tools,
        "input": model.input,
        "price": None if model.price is None else _price(model.price),
    }
    return replace(known, **{key: value for key, value in said.items() if value is not None})


def _price(price: PriceConfig) -> Price:
    return Price(
        input=_micro(price.input),
        output=_micro(price.output),
        cache_read=None if price.cache_read is None else _micro(price.cache_read),
        cache_write=None if price.cache_write is None else _micro(price.cache_write),
    )


def _micro(dollars: float) -> int:
    """Micro-dollars."""
    return round(dollars * 1_000_000)
