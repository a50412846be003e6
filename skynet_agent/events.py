"""What a model call tells while it runs.

Order: one ``Started``, any number of deltas, one ``Finished``. A call that fails before anything was shown has no
``Started``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from skynet_agent.errors import ProviderError, UnknownModel
from skynet_agent.messages import AssistantMessage, StopReason, Usage


@dataclass(frozen=True, slots=True)
class Attempt:
    """A provider that was asked first and failed before it had shown anything."""

    provider: str
    model: str
    kind: str
    """The class name of the failure, ``RateLimited`` for example."""
    message: str


@dataclass(frozen=True, slots=True)
class Started:
    """A provider has begun to answer; comes directly before its first delta."""

    provider: str
    model: str
    api: str
    tried: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A fragment of the tool call number ``index`` (from 0); parallel calls may be interleaved.

    ``id`` and ``name`` are whole, and empty in fragments that only continue; ``arguments`` is a piece of JSON text.
    """

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The whole message, with usage and cost.

    ``error`` is what ended the turn when ``message.stop_reason`` is ``error``; only ``run_turn`` sets it.
    """

    message: AssistantMessage
    error: ProviderError | UnknownModel | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a wire API closes its answer; the router makes ``Finished`` of it. ``usage`` carries no cost yet."""

    stop_reason: StopReason
    usage: Usage | None


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
Part: TypeAlias = Delta | Ended
"""What a wire API yields: deltas, then exactly one ``Ended``."""
ModelEvent: TypeAlias = Started | Delta | Finished
