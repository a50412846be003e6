"""What a model call, and a whole turn, tells while it runs.

Of a call: one ``Started``, any number of deltas, one ``Finished``. A call that fails before anything was shown has no
``Started``. Of a turn: the events of its calls; where one asked for tools ``Answered`` stands in place of ``Finished``,
then come the events of the tools, of parallel ones in any order; one ``Finished`` at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from skynet_agent.errors import CallRefused, ProviderError, UnknownModel
from skynet_agent.messages import AssistantMessage, StopReason, ToolCallBlock, ToolResultMessage, Usage


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
    """A piece of what the model thinks. A ``signature`` is whole and ends the block; a ``redacted`` one has no text."""

    text: str
    signature: str = ""
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A fragment of the tool call number ``index`` (from 0); parallel calls may be interleaved.

    ``id`` and ``name`` are whole, and empty in fragments that only continue; ``arguments`` is a piece of JSON text.
    ``signature`` is whole, in whichever fragment it comes.
    """

    index: int
    id: str
    name: str
    arguments: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The whole message, with usage and cost.

    ``error`` is what ended the turn when ``message.stop_reason`` is ``error``; only a ``Turn`` sets it.
    """

    message: AssistantMessage
    error: ProviderError | UnknownModel | CallRefused | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that asks for tools is complete; the turn goes on with them."""

    message: AssistantMessage


@dataclass(frozen=True, slots=True)
class ToolStarted:
    call: ToolCallBlock


@dataclass(frozen=True, slots=True)
class ToolUpdated:
    """``text`` is what there is of the output so far, or the newest piece of it: the tool decides."""

    call: ToolCallBlock
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    call: ToolCallBlock
    result: ToolResultMessage


@dataclass(frozen=True, slots=True)
class Shortened:
    """The conversation was too long for the model, and is asked again with less of it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a wire API closes its answer; the router makes ``Finished`` of it. ``usage`` carries no cost yet."""

    stop_reason: StopReason
    usage: Usage | None


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
Part: TypeAlias = Delta | Ended
"""What a wire API yields: deltas, then exactly one ``Ended``."""
ModelEvent: TypeAlias = Started | Delta | Finished
TurnEvent: TypeAlias = ModelEvent | Answered | ToolStarted | ToolUpdated | ToolEnded | Shortened
