"""Which models a provider offers at this moment, as it says itself.

Lists tell more or less: everybody names models, some tell what these hold and can do. What a list does not tell stays
as ``ModelInfo`` has it for unknown models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from skynet_agent import ollama_models
from skynet_agent.anthropic import VERSION as ANTHROPIC_VERSION
from skynet_agent.endpoint import Endpoint
from skynet_agent.providers import ModelInfo
from skynet_agent.requests import THINKING_LEVELS, ThinkingLevel

MOST_MODELS = 5000
LONGEST_ID = 200

Fields: TypeAlias = Mapping[str, Any]

_WINDOWS = (
    ("context_length",),  # OpenRouter, Together, Fireworks, Moonshot
    ("context_window",),  # Groq, Vercel
    ("max_model_len",),  # vLLM
    ("max_context_length",),  # Mistral
    ("capabilities", "limits", "max_context_window_tokens"),  # GitHub Copilot
    ("limits", "max_input_tokens"),  # GitHub Models
    ("meta", "n_ctx"),  # llama.cpp
    ("top_provider", "context_length"),
)
_OUTPUTS = (
    ("max_completion_tokens",),
    ("max_output_tokens",),
    ("top_provider", "max_completion_tokens"),
    ("capabilities", "limits", "max_output_tokens"),
    ("limits", "max_output_tokens"),
)
_OTHER_KINDS = (
    *("audio", "embedding", "embeddings", "image", "moderation", "rerank", "speech", "transcribe", "video"),
    *("text-to-image", "text-to-speech", "speech-to-text", "text-to-video"),
)
"""Of models that nobody can talk with, where a list says of what kind they are."""


async def discover(endpoint: Endpoint) -> tuple[ModelInfo, ...]:
    """The models of ``endpoint``; those of its row where the vendor has no list that a key alone may see.

    Raises:
        ProviderError: as any request; ``StreamCut`` for a list that makes no sense.
    """
    match endpoint.row.api:
        case "ollama":
            return await ollama_models.list_models(endpoint)
        case "anthropic-messages":
            body = await endpoint.fetch("/v1/models?limit=1000", headers={"anthropic-version": ANTHROPIC_VERSION})
            return _listed(endpoint, body, _anthropic_model)
        case "openai-completions" | "openai-responses":
            return await list_models(endpoint)
        case _:
            return endpoint.row.models


async def list_models(endpoint: Endpoint) -> tuple[ModelInfo, ...]:
    """The models of an endpoint that has OpenAI's list, ``GET {base_url}/models``.

    Raises:
        ProviderError: as ``discover``.
    """
    return _listed(endpoint, await endpoint.fetch("/models"), _openai_model)


def _listed(endpoint: Endpoint, data: bytes, read: Callable[[str, Fields], ModelInfo | None]) -> tuple[ModelInfo, ...]:
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError) as exc:
        raise endpoint.source.cut("the list of models makes no sense") from exc
    entries = value.get("data", value.get("models")) if isinstance(value, dict) else value  # Together: the bare list
    if not isinstance(entries, list):
        raise endpoint.source.cut("the list of models makes no sense")
    found: dict[str, ModelInfo] = {}
    for entry in entries[:MOST_MODELS]:
        if not isinstance(entry, dict):
            continue
        identity = entry.get("id") or entry.get("name")
        if not isinstance(identity, str) or not 0 < len(identity) <= LONGEST_ID or not identity.isprintable():
            continue
        identity = identity.removeprefix("models/")  # Gemini's endpoint
        info = read(identity, entry)
        if info is not None:
            found.setdefault(identity, info)
    return tuple(found.values())


def _openai_model(identity: str, entry: Fields) -> ModelInfo | None:
    if not _talks(entry):
        return None
    tools = _tools(entry)
    return ModelInfo(
        id=identity,
        name=_text(entry.get("display_name")) or _text(entry.get("name")),
        context_window=_first(entry, _WINDOWS),
        output_limit=_first(entry, _OUTPUTS),
        tools=True if tools is None else tools,
        reasoning=_thinks(entry),
        thinking_levels=_levels(_at(entry, "capabilities", "supports", "reasoning_effort")),
        input=("text", "image") if _sees(entry) else ("text",),
    )


def _anthropic_model(identity: str, entry: Fields) -> ModelInfo | None:
    if entry.get("lifecycle") == "retired":
        return None
    efforts = _at(entry, "capabilities", "effort")
    thinks = _at(entry, "capabilities", "thinking", "supported") is True
    has_efforts = isinstance(efforts, dict) and efforts.get("supported") is True
    return ModelInfo(
        id=identity,
        name=_text(entry.get("display_name")),
        context_window=_count(entry.get("max_input_tokens")),
        output_limit=_count(entry.get("max_tokens")),
        reasoning=thinks,
        # some take both forms, and a number of tokens is what all levels have
        thinking_form="effort" if has_efforts and not _takes_budgets(entry) else "budget",
        input=("text", "image") if _at(entry, "capabilities", "image_input", "supported") is True else ("text",),
    )


def _takes_budgets(entry: Fields) -> bool:
    return _at(entry, "capabilities", "thinking", "types", "enabled", "supported") is True


def _talks(entry: Fields) -> bool:
    """Whether it is a model to talk with, as far as the list tells."""
    abilities = entry.get("capabilities")
    kind = abilities.get("type") if isinstance(abilities, dict) else None
    if kind is not None and kind != "chat":  # GitHub Copilot
        return False
    if _at(entry, "policy", "state") == "disabled" or entry.get("active") is False:
        return False
    if isinstance(abilities, dict) and abilities.get("completion_chat") is False:  # Mistral
        return False
    outputs = _at(entry, "architecture", "output_modalities")
    if isinstance(outputs, list) and "text" not in outputs:
        return False
    return not any(entry.get(field) in _OTHER_KINDS for field in ("type", "task", "model_type"))


def _tools(entry: Fields) -> bool | None:
    for path in (
        ("capabilities", "supports", "tool_calls"),
        ("capabilities", "function_calling"),
        ("supports_tools",),
    ):
        if isinstance(said := _at(entry, *path), bool):
            return said
    parameters = entry.get("supported_parameters")
    return "tools" in parameters if isinstance(parameters, list) and parameters else None


def _thinks(entry: Fields) -> bool:
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list) and ("reasoning" in parameters or "reasoning_effort" in parameters):
        return True
    if _levels(_at(entry, "capabilities", "supports", "reasoning_effort")):
        return True
    return _at(entry, "capabilities", "reasoning") is True or entry.get("supports_reasoning") is True


def _sees(entry: Fields) -> bool:
    for path in (("architecture", "input_modalities"), ("input_modalities",), ("supported_input_modalities",)):
        said = _at(entry, *path)
        if isinstance(said, list):
            return "image" in said
    ways = (("capabilities", "supports", "vision"), ("capabilities", "vision"), ("supports_image_in",))
    return any(_at(entry, *path) is True for path in ways)


def _levels(said: Any) -> tuple[ThinkingLevel, ...]:
    words = said if isinstance(said, list) else ()
    return tuple(level for level in THINKING_LEVELS if level in words or (level == "off" and "none" in words))


def _at(entry: Any, *path: str) -> Any:
    """What is at ``path``; None if nothing is."""
    for step in path:
        entry = entry.get(step) if isinstance(entry, dict) else None
    return entry


def _first(entry: Fields, paths: Sequence[tuple[str, ...]]) -> int | None:
    for path in paths:
        if (count := _count(_at(entry, *path))) is not None:
            return count
    return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_ID and value.isprintable() else ""
