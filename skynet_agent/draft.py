"""An assistant message while it is being written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import cast

import msgspec

from skynet_agent.events import Delta, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import (
    AssistantBlock,
    AssistantMessage,
    Json,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)

DEEPEST_ARGUMENTS = 100


class _Call:
    __slots__ = ("fragments", "id", "name", "signature")

    def __init__(self) -> None:
        self.signature = ""
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []


class Draft:
    """Collects deltas; ``message()`` gives what there is, at any time.

    Whoever may cancel a turn passes its own draft to ``Turn`` and has the partial answer afterwards. It always holds
    the message that is being written now: a new attempt begins it anew.
    """

    __slots__ = ("_blocks", "_calls", "_clock", "_kind", "_pieces", "api", "model", "provider", "usage")

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.begin("", "", "")

    def begin(self, provider: str, model: str, api: str) -> None:
        """Start an empty message of this model."""
        self.provider, self.model, self.api = provider, model, api
        self.usage: Usage | None = None
        """What the call used, once it is over."""
        # text and thinking blocks are (kind, pieces), so that a delta costs one append
        self._blocks: list[tuple[type[TextDelta | ThinkingDelta], list[str]] | ThinkingBlock | _Call] = []
        self._calls: dict[int, _Call] = {}
        self._kind: type[Delta] | None = None
        self._pieces: list[str] = []

    def add(self, delta: Delta) -> None:
        if isinstance(delta, ToolCallDelta):
            self._kind = ToolCallDelta
            self._add_call(delta)
            return
        if isinstance(delta, ThinkingDelta) and delta.redacted:  # a whole block, whatever came before it
            self._kind = None
            self._blocks.append(ThinkingBlock(delta.text, delta.signature, redacted=True))
            return
        kind = type(delta)
        if kind is not self._kind:
            self._kind, self._pieces = kind, []
            self._blocks.append((kind, self._pieces))
        self._pieces.append(delta.text)
        if isinstance(delta, ThinkingDelta) and delta.signature:  # what was collected is whole; more begins another
            self._blocks[-1] = ThinkingBlock("".join(self._pieces), delta.signature)
            self._kind = None

    def _add_call(self, delta: ToolCallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._calls[delta.index] = _Call()
            self._blocks.append(call)
        call.id = delta.id or call.id
        call.name = delta.name or call.name
        call.signature = delta.signature or call.signature
        call.fragments.append(delta.arguments)

    def message(self, stop_reason: StopReason, *, error_message: str | None = None) -> AssistantMessage:
        """The message as far as it came, with the time of now."""
        content = [_finish(block) for block in self._blocks]
        return AssistantMessage(
            content=content,
            api=self.api,
            provider=self.provider,
            model=self.model,
            stop_reason=stop_reason,
            timestamp=round(self._clock().timestamp() * 1000),
            error_message=error_message,
            usage=self.usage,
        )


def _finish(block: tuple[type[TextDelta | ThinkingDelta], list[str]] | ThinkingBlock | _Call) -> AssistantBlock:
    if isinstance(block, ThinkingBlock):
        return block
    if isinstance(block, _Call):
        return ToolCallBlock(block.id, block.name, _arguments("".join(block.fragments)), block.signature)
    kind, pieces = block
    text = "".join(pieces)
    return TextBlock(text) if kind is TextDelta else ThinkingBlock(text)


def _arguments(text: str) -> dict[str, Json]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return cast("dict[str, Json]", value) if isinstance(value, dict) and _is_shallow(value) else {}


def _is_shallow(arguments: Json) -> bool:
    """Whether a message that holds them can be read again, by whoever and from however deep a call."""
    level = [arguments]
    for _ in range(DEEPEST_ARGUMENTS):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False
