"""How much of a conversation goes to the model."""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from zlib import crc32

from skynet_agent.messages import (
    AssistantMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from skynet_agent.requests import ToolDefinition
from skynet_agent.tokens import message_tokens, text_tokens, tools_tokens

GATEWAY_MODEL = "gateway-injected"
"""What a message that no model wrote names as its model (OPENCLAW-V3 8.4)."""
ANSWER_SHARE = 4
"""One part in so many of the window is left for the answer."""


def in_turns(messages: Sequence[Message], *, is_cut: bool = False) -> list[Message]:
    """The conversation with each answer after the message that it answers.

    A transcript has them in the order in which they came: what is said while an answer is being written stands before
    that answer. A session answers in order and each message once, so the next answer is the oldest open message's.

    Args:
        is_cut: there is more before ``messages``, and some of the answers may be those of messages there. None of
            ``messages`` waits for its answer.
    """
    turns: list[list[Message]] = [[] for _ in range(_answered_before(messages))] if is_cut else []
    unanswered: deque[list[Message]] = deque(turns)
    for message in messages:
        first = unanswered[0] if unanswered else None
        calls = first[-1] if first else None
        if isinstance(message, UserMessage):
            turns.append([message])
            unanswered.append(turns[-1])
        elif isinstance(message, ToolResultMessage):
            if first is not None and (not first or isinstance(calls, AssistantMessage | ToolResultMessage)):
                first.append(message)
            else:
                turns.append([message])
                unanswered.append(turns[-1])
        elif _answers_nothing(message):
            turns.append([message])
        else:
            if isinstance(calls, AssistantMessage):  # whose results never came
                unanswered.popleft()
            turn = unanswered[0] if unanswered else []
            if not unanswered:
                turns.append(turn)
            turn.append(message)
            if unanswered and message.stop_reason != "toolUse":
                unanswered.popleft()
    return [message for turn in turns for message in turn]


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


def within_window(
    messages: Sequence[Message],
    *,
    system: Sequence[str],
    tools: Sequence[ToolDefinition] = (),
    window_tokens: int,
    is_cut: bool = False,
) -> list[Message]:
    """The newest turns of ``messages`` that fit the model's window beside what is told it before them, and room for
    the answer.

    Turns are kept whole: a person's message and all that came of it. The last one is always kept: if it alone is too
    long, the provider's own error says so. Of the one before it the message and the newest rounds are kept when it is
    too long, so that what was done just now is never unknown.

    A conversation that cannot be told from its beginning is told from the same message for many turns: what providers
    keep in their caches, and local models in their memory, is of no use behind a beginning that moves.

    Args:
        is_cut: ``messages`` are the newest of more, and the next time later ones.
    """
    budget = window_tokens - window_tokens // ANSWER_SHARE - sum(map(text_tokens, system)) - tools_tokens(tools)
    begins = [number for number, message in enumerate(messages) if isinstance(message, UserMessage)]
    first = last = begins.pop() if begins else 0
    if last and begins[:1] != [0]:
        begins.insert(0, 0)  # the rest of a turn whose beginning is not there
    budget -= _tokens(messages[last:])
    for begin in reversed(begins):
        turn = messages[begin:first]
        room, budget = budget, budget - _tokens(turn)
        if budget < 0 and first == last:
            return [*_newest_rounds(turn, room), *messages[last:]]
        if budget < 0:
            is_cut = True
            break
        first = begin
    return [*messages[_steady_begin(messages, first, last) if is_cut else first :]]


def _steady_begin(messages: Sequence[Message], first: int, last: int) -> int:
    """Where to begin in the older half of what is there from ``first`` on.

    Of the persons' messages there it is the one with the smallest checksum. That is the same one until it is too old,
    or one comes into the older half whose checksum is smaller still, which is seldom.
    """
    sizes = [*accumulate(map(message_tokens, reversed(messages)))][::-1]  # each with all that follows it
    chosen = [
        (crc32(f"{message.timestamp} {text_of(message)[:200]}".encode("utf-8", "replace")), number)
        for number, message in enumerate(messages[:last])
        if number >= first and isinstance(message, UserMessage) and 2 * sizes[number] >= sizes[first]
    ]
    return min(chosen)[1] if chosen else first


def _newest_rounds(turn: Sequence[Message], budget: int) -> Sequence[Message]:
    """A turn without its older rounds; empty if not even the newest fits."""
    asked = turn[:1] if isinstance(turn[0], UserMessage) else ()
    budget -= _tokens(asked)
    end = first = len(turn)
    for begin in range(len(turn) - 1, -1, -1):
        if isinstance(turn[begin], AssistantMessage):
            budget -= _tokens(turn[begin:end])
            if budget < 0:
                break
            end = first = begin
    return () if first == len(turn) else [*asked, *turn[first:]]


def _tokens(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))
