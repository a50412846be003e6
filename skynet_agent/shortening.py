"""What a model is told of the turn it is in, when all of it is more than it holds. What is stored stays whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skynet_agent.cutting import cut_middle
from skynet_agent.messages import AssistantMessage, Message, TextBlock, ThinkingBlock, ToolResultMessage

CUTS = ((4_000, 1_000_000), (500, 1_000_000), (500, 4_000), (500, 500))
"""Characters that are left of each text of a result, step by step: of older rounds, and of the newest."""


def without_thinking(messages: Sequence[Message]) -> list[Message]:
    """Thinking is signed for the conversation it was thought in: once that was shortened, nobody takes it back."""
    return [_without_thinking(message) for message in messages]


def with_shorter_results(messages: Sequence[Message], cuts: int) -> list[Message]:
    """A turn's own messages after so many of ``CUTS``; 0 leaves them as they are."""
    if not cuts:
        return list(messages)
    older, newest = CUTS[cuts - 1]
    answers = [number for number, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    last = answers[-1] if answers else 0
    return [_cut(message, older if number < last else newest) for number, message in enumerate(messages)]


def next_cut(messages: Sequence[Message], cuts: int) -> int:
    """How many of ``CUTS`` it takes to make the results shorter than after ``cuts``; as many if nothing does."""
    size = _size(with_shorter_results(messages, cuts))
    more = range(cuts + 1, len(CUTS) + 1)
    return next((each for each in more if _size(with_shorter_results(messages, each)) < size), cuts)


def _without_thinking(message: Message) -> Message:
    if not isinstance(message, AssistantMessage):
        return message
    kept = [block for block in message.content if not isinstance(block, ThinkingBlock)]
    return msgspec.structs.replace(message, content=kept)


def _cut(message: Message, limit: int) -> Message:
    if not isinstance(message, ToolResultMessage):
        return message
    blocks = [TextBlock(cut_middle(b.text, limit)) if isinstance(b, TextBlock) else b for b in message.content]
    return msgspec.structs.replace(message, content=blocks)


def _size(messages: Sequence[Message]) -> int:
    return sum(
        len(block.text)
        for message in messages
        if isinstance(message, ToolResultMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    )
