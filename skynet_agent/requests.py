"""What a model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from skynet_agent.messages import Json, Message

Purpose: TypeAlias = Literal["chat", "agent", "http", "channel", "job"]
ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)

CACHED_TIERS = 2
"""So many of the system texts are the same from turn to turn: a provider's cache is told to keep them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as a model is told of it. ``parameters`` is a JSON schema of type object.

    ``strict`` asks for arguments that keep to the schema, of providers that can promise it; None leaves it to them.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class OneTool:
    """The choice that leaves the model one tool, which it has to call."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How to answer. None means: leave it to the provider.

    ``tools_optional``: of those that may answer, who cannot call tools answers without them, and is not passed over.
    ``max_tokens`` is cut to the ``max_output_tokens`` of a model that has them; they also stand in for None.
    ``response_format`` has the shape of OpenAI's chat completions; a wire API that has no form for it refuses the
    request. ``thinking`` is for models that think; others are not told. ``extra`` is added to the body of OpenAI's chat
    completions as it is, and to no other; a key this class has a field for is ignored there.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: Sequence[str] | None = None
    seed: int | None = None
    user: str | None = None
    tools: Sequence[ToolDefinition] = ()
    tools_optional: bool = False
    tool_choice: Literal["auto", "none", "required"] | OneTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Json] | None = None
    thinking: ThinkingLevel | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    ``model`` is ``provider/model``, an alias, a pool, a model id or a provider's name; empty means the default.

    The prompt is ordered from what changes least to what changes most, so that a provider's cache keeps the longest
    prefix: tools, then ``system`` (the first ``CACHED_TIERS`` texts are the same from turn to turn), then ``messages``,
    and ``volatile``: what is true only now and is not stored, at the end of the last user's message.
    ``cache_key`` is the same for requests that share a prefix, a conversation's own; empty for none.
    """

    messages: Sequence[Message]
    model: str = ""
    system: tuple[str, ...] = ()
    volatile: str = ""
    cache_key: str = ""
    options: ModelOptions = field(default_factory=ModelOptions)
    purpose: Purpose = "chat"
