"""The models that an Ollama server has: ``GET /api/tags``, and ``POST /api/show`` for what each can do."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from skynet_agent.endpoint import Endpoint
from skynet_agent.errors import ProviderError
from skynet_agent.providers import ModelInfo

MOST_SHOWN = 64
"""So many models are asked about; of others only the name is known."""
MOST_DIGITS = 12
"""Of a number of tokens. Python refuses to read those of thousands of digits."""

_encoder = msgspec.json.Encoder()


class _Tag(msgspec.Struct):
    model: str = ""
    name: str = ""


class _Tags(msgspec.Struct):
    models: list[_Tag] | None = None


class _Details(msgspec.Struct):
    family: str | None = None


class _Shown(msgspec.Struct):
    capabilities: list[str] | None = None
    model_info: dict[str, Any] | None = None
    parameters: str | None = None
    details: _Details | None = None


_tags = msgspec.json.Decoder(_Tags)
_shown = msgspec.json.Decoder(_Shown)


async def list_models(endpoint: Endpoint) -> tuple[ModelInfo, ...]:
    """The models that were pulled, without those that only embed.

    ``context_window`` is the ``num_ctx`` of the model's own file, else what the model was trained for: what a server
    gives it without being asked is less.

    Raises:
        ProviderError: there is no list to be had.
    """
    tags = endpoint.source.decode(_tags, await endpoint.fetch("/api/tags")).models or []
    names = list(dict.fromkeys(tag.model or tag.name for tag in tags if tag.model or tag.name))
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_show(endpoint, name)) for name in names[:MOST_SHOWN]]
    infos = [task.result() for task in asked]
    return (*(info for info in infos if info is not None), *(ModelInfo(id=name) for name in names[MOST_SHOWN:]))


async def _show(endpoint: Endpoint, name: str) -> ModelInfo | None:
    """What is known of a model; None for one that does not answer."""
    try:
        shown = endpoint.source.decode(
            _shown, await endpoint.fetch("/api/show", _encoder.encode({"model": name}), method="POST")
        )
    except ProviderError:
        return ModelInfo(id=name)
    abilities = shown.capabilities
    if abilities is None:  # a server from before they were told
        return ModelInfo(id=name, context_window=_window(shown))
    if "completion" not in abilities:
        return None
    family = shown.details.family if shown.details else ""
    return ModelInfo(
        id=name,
        context_window=_window(shown),
        tools="tools" in abilities,
        reasoning="thinking" in abilities,
        thinking_form="effort" if family in ("gptoss", "gpt-oss") else "budget",
        input=("text", "image") if "vision" in abilities else ("text",),
    )


def _window(shown: _Shown) -> int | None:
    for line in (shown.parameters or "").splitlines():
        match line.split():
            case ["num_ctx", number] if number.isdecimal() and len(number) <= MOST_DIGITS:
                return int(number)
    for key, value in (shown.model_info or {}).items():
        if key.endswith(".context_length") and isinstance(value, int) and 0 < value < 10**MOST_DIGITS:
            return value
    return None
