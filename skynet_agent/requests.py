"""What a model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from skynet_agent.messages import Json, Message

Purpose: TypeAlias = Literal["chat", "agent", "http", "job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How to answer. None means: leave it to the provider.

    ``max_tokens`` is cut to the ``max_output_tokens`` of a model that has them; they also stand in for None. ``tools``,
    ``tool_choice`` and ``response_format`` have the shape of OpenAI's chat completions. ``extra`` is added to the
    request body as it is; a key this class has a field for is ignored there.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: Sequence[str] | None = None
    seed: int | None = None
    user: str | None = None
    tools: Sequence[Mapping[str, Json]] | None = None
    tool_choice: str | Mapping[str, Json] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Json] | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    ``model`` is ``provider/model``, an alias, a pool, a model id or a provider's name; empty means the default.
    ``system`` holds the prompt's tiers, most stable first, so that a provider's prompt cache keeps the longest prefix.
    """

    messages: Sequence[Message]
    model: str = ""
    system: tuple[str, ...] = ()
    options: ModelOptions = field(default_factory=ModelOptions)
    purpose: Purpose = "chat"
