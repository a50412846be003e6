"""What is publicly known of models: how much they hold, what they can do, what they cost.

The facts are in ``models.json``, which says how old they are and where they come from; ``scripts/update_catalogue.py``
writes it. The file is read when the first model is looked up, and of it only what is asked for is decoded: one provider
at a time, one model at a time (1 ms for the file, some microseconds for a model).

Prices are those of a plain request: neither batched nor hurried, in no particular region.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from skynet_agent.providers import FREE, ModelInfo, Price, ProviderRow, ThinkingField
from skynet_agent.requests import ThinkingLevel

FILE = Path(__file__).with_name("models.json")

MAKERS = (
    *("anthropic", "openai", "gemini", "xai", "mistral", "deepseek", "moonshot", "zai", "minimax", "cohere"),
    *("ai21", "dashscope"),
)
"""Whose lists tell of a model that somebody else runs, the first that has it."""

_WHOLE = frozenset({"bedrock", "vertex", "azure", "openrouter", "vercel"})
"""Where the makers' own models run with all that they can hold."""

_place = re.compile(r"(?:(?:us|us-gov|eu|apac|au|jp|global)\.)?(?:[a-z0-9]+\.)?(?=[a-z])")
_variant = re.compile(r"(?:-20[0-9]{6}|-20[0-9]{2}-[0-9]{2}-[0-9]{2}|-v[0-9]+|:[a-z0-9]+|@[a-z0-9]+|-latest)+$")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model in the file. Prices: input, output, cache read, cache write; in ``long`` after the number of tokens."""

    name: str = ""
    window: int | None = None
    output: int | None = None
    reasoning: bool = False
    form: Literal["budget", "effort"] = "budget"
    levels: tuple[ThinkingLevel, ...] = ()
    field: ThinkingField | None = None
    sampling: bool = True
    tools: bool = True
    image: bool = False
    price: tuple[int, int, int | None, int | None] | None = None
    long: tuple[tuple[int, int, int, int | None, int | None], ...] = ()
    """From the shortest of the long prompts to the longest."""


class _File(msgspec.Struct, frozen=True):
    date: str
    """The day on which the facts were true, ISO 8601."""
    sources: tuple[str, ...]
    providers: dict[str, msgspec.Raw]


def catalogue_date() -> str:
    """The day on which the facts were true, ISO 8601."""
    return _file().date


def listed(provider: str) -> tuple[str, ...]:
    """The ids of the models that are known of ``provider``."""
    return tuple(_models(provider))


def info(provider: str, model: str) -> ModelInfo | None:
    """What is known of ``model`` as ``provider`` runs it; None if nothing is.

    A model that is only known from its maker has the abilities it has there, and no price: that is the provider's own.
    Such are ``openrouter/anthropic/…``, Bedrock's and Vertex's names, dated ones, deployments named like their model.
    """
    return _info(provider, model)


def model_info(row: ProviderRow, model: str) -> ModelInfo:
    """What is known of a model that ``row`` runs. An unknown one reads text, does not think and can call tools."""
    known = (_info(row.catalogue, model) if row.catalogue else None) or ModelInfo(id=model)
    if row.local:
        return replace(known, price=FREE)
    return known if row.list_prices else replace(known, price=None)


@lru_cache(maxsize=1024)
def _info(provider: str, model: str) -> ModelInfo | None:
    raw = _models(provider).get(model)
    if raw is not None:
        return _decoded(model, raw)
    maker = _of_makers().get(_plain(model))
    if maker is None:
        return None
    found = _decoded(model, _models(maker[0])[maker[1]])
    if provider in _WHOLE or provider == maker[0]:
        return replace(found, price=None, thinking_field=None)
    return replace(found, price=None, thinking_field=None, context_window=None, output_limit=None)


def _decoded(model: str, raw: msgspec.Raw) -> ModelInfo:
    entry = msgspec.json.decode(raw, type=_Entry)
    return ModelInfo(
        id=model,
        name=entry.name,
        context_window=entry.window,
        output_limit=entry.output,
        reasoning=entry.reasoning,
        thinking_form=entry.form,
        thinking_levels=entry.levels,
        thinking_field=entry.field,
        sampling=entry.sampling,
        tools=entry.tools,
        input=("text", "image") if entry.image else ("text",),
        price=_price(entry),
    )


def _price(entry: _Entry) -> Price | None:
    if entry.price is None:
        return None
    steps = ((0, *entry.price), *entry.long)
    price, beyond = None, None
    for tokens, read, written, cache_read, cache_write in reversed(steps):
        price = Price(
            input=read,
            output=written,
            cache_read=cache_read,
            cache_write=cache_write,
            long_prompt_tokens=beyond,
            long_prompt=price,
        )
        beyond = tokens
    return price


@cache
def _of_makers() -> Mapping[str, tuple[str, str]]:
    """Plain name → maker and id there."""
    found: dict[str, tuple[str, str]] = {}
    for maker in MAKERS:
        for model in sorted(_models(maker), key=len):  # what has no date stands for what has one
            found.setdefault(_plain(model), (maker, model))
    return found


def _plain(model: str) -> str:
    """A model's name without what each place adds to it: ``us.anthropic.claude-x-1-20260101-v1:0`` is
    ``claude-x-1``."""
    name = _variant.sub("", model.lower().rpartition("/")[2])
    return _place.sub("", name, count=1).replace(".", "-").replace("_", "-")


@cache
def _models(provider: str) -> Mapping[str, msgspec.Raw]:
    raw = _file().providers.get(provider)
    return {} if raw is None else msgspec.json.decode(raw, type=dict[str, msgspec.Raw])


@cache
def _file() -> _File:
    return msgspec.json.decode(FILE.read_bytes(), type=_File)
