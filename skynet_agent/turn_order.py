"""Which answer belongs to which message.

A transcript has what was said in the order in which it came: what is said while an answer is being written stands
before that answer. A session answers in order and each message once, so the next answer is the oldest open message's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from skynet_agent.messages import AssistantMessage, Message, TextBlock, ToolResultMessage, UserMessage

GATEWAY_MODEL = "gateway-injected"
"""What a message that no model wrote names as its model (OPENCLAW-V3 8.4)."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a conversation, each as the places of its messages; ``unanswered`` are those that are open."""

    all: list[list[int]]
    unanswered: list[list[int]]


def turns_of(messages: Sequence[Message], *, is_cut: bool = False) -> Turns:
    """Each answer with the message that it answers.

    Args:
        is_cut: there is more before ``messages``, and some of the answers may be those of messages there. None of
            ``messages`` waits for its answer.
    """
    turns: list[list[int]] = [[] for _ in range(_answered_before(messages))] if is_cut else []
    unanswered: deque[list[int]] = deque(turns)
    for place, message in enumerate(messages):
        first = unanswered[0] if unanswered else None
        calls = messages[first[-1]] if first else None
        if isinstance(message, UserMessage):
            turns.append([place])
            unanswered.append(turns[-1])
        elif isinstance(message, ToolResultMessage):
            if first is not None and (not first or isinstance(calls, AssistantMessage | ToolResultMessage)):
                first.append(place)
            else:
                turns.append([place])
                unanswered.append(turns[-1])
        elif _answers_nothing(message):
            turns.append([place])
        else:
            if isinstance(calls, AssistantMessage):  # whose results never came
                unanswered.popleft()
            turn = unanswered[0] if unanswered else []
            if not unanswered:
                turns.append(turn)
            turn.append(place)
            if unanswered and message.stop_reason != "toolUse":
                unanswered.popleft()
    return Turns(turns, [*unanswered])


def in_turns(messages: Sequence[Message], *, is_cut: bool = False) -> list[Message]:
    """The conversation with each answer after the message that it answers. ``is_cut`` as for :func:`turns_of`."""
    return [messages[place] for turn in turns_of(messages, is_cut=is_cut).all for place in turn]


def _answered_before(messages: Sequence[Message]) -> int:
    """How many of the answers are those of messages before ``messages``: as many as there are more of them."""
    answers = sum(
        isinstance(message, AssistantMessage) and message.stop_reason != "toolUse" and not _answers_nothing(message)
        for message in messages
    )
    return max(0, answers - sum(isinstance(message, UserMessage) for message in messages))


def _answers_nothing(message: AssistantMessage) -> bool:
    """The gateway's own words: a command's, or what was put into the transcript by hand."""
    return message.model == GATEWAY_MODEL and message.stop_reason != "error"


def as_told(messages: Sequence[Message]) -> list[Message]:
    """A conversation, in its order of turns, as models were told it: answers say what their messages became.

    A message that was withheld from the model is left out with its answer.
    """
    told: list[Message] = []
    for message in messages:
        asked = message.asked if isinstance(message, AssistantMessage) else None
        before = told[-1] if told else None
        if asked is None or not isinstance(before, UserMessage):
            told.append(message)
        elif asked:
            told[-1:] = [reworded(before, asked), message]
        else:
            told.pop()
    return told


def reworded(message: UserMessage, text: str) -> UserMessage:
    """``message`` with another text; its images stay."""
    images = [block for block in message.content if not isinstance(block, TextBlock)]
    return msgspec.structs.replace(message, content=[TextBlock(text), *images])
