"""How much of a conversation goes to the model."""

from collections import deque
from collections.abc import Sequence

from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultMessage,
    UserMessage,
)

CHARS_PER_TOKEN = 4
"""A cautious average over languages and code; the provider's own count is only known afterwards."""
IMAGE_TOKENS = 1500
"""About what providers charge for an image at full detail."""
GATEWAY_MODEL = "gateway-injected"
"""What a message that no model wrote names as its model (OPENCLAW-V3 8.4)."""
ANSWER_SHARE = 4
"""One part in so many of the window is left for the answer."""


def estimate_tokens(message: Message) -> int:
    """A rough token count of ``message``, never below 1."""
    tokens = 4
    for block in message.content:
        if isinstance(block, TextBlock):
            tokens += len(block.text) // CHARS_PER_TOKEN
        elif isinstance(block, ImageBlock):
            tokens += IMAGE_TOKENS
        elif isinstance(block, ThinkingBlock):
            tokens += len(block.thinking) // CHARS_PER_TOKEN
        else:
            tokens += len(str(block.arguments)) // CHARS_PER_TOKEN
    return tokens


def in_turns(messages: Sequence[Message]) -> list[Message]:
    """The conversation with each answer after the message that it answers.

    A transcript has them in the order in which they came: what is said while an answer is being written stands before
    that answer. A session answers in order and each message once, so the next answer is the oldest open message's.
    """
    turns: list[list[Message]] = []
    unanswered: deque[list[Message]] = deque()
    for message in messages:
        calls = unanswered[0][-1] if unanswered else None
        if isinstance(message, UserMessage) or (
            isinstance(message, ToolResultMessage) and not isinstance(calls, AssistantMessage | ToolResultMessage)
        ):
            turns.append([message])
            unanswered.append(turns[-1])
        elif isinstance(message, ToolResultMessage):
            unanswered[0].append(message)
        elif _answers_nothing(message):
            turns.append([message])
        else:
            if isinstance(calls, AssistantMessage):  # whose results never came
                unanswered.popleft()
            turn = unanswered[0] if unanswered else []
            if not turn:
                turns.append(turn)
            turn.append(message)
            if unanswered and message.stop_reason != "toolUse":
                unanswered.popleft()
    return [message for turn in turns for message in turn]


def _answers_nothing(message: AssistantMessage) -> bool:
    """The gateway's own words: a command's, or what was put into the transcript by hand."""
    return message.model == GATEWAY_MODEL and message.stop_reason != "error"


def within_window(messages: Sequence[Message], *, system: Sequence[str], window_tokens: int) -> list[Message]:
    """The newest of ``messages`` that fit the model's window beside the system text and room for the answer.

    The last message is always kept: if it alone is too long, the provider's own error says so. A cut conversation
    begins with a person's message, so that no tool result is left whose call is gone.
    """
    budget = window_tokens - window_tokens // ANSWER_SHARE - sum(len(text) for text in system) // CHARS_PER_TOKEN
    kept: list[Message] = []
    for message in reversed(messages):
        budget -= estimate_tokens(message)
        if budget < 0 and kept:
            break
        kept.append(message)
    kept.reverse()
    if len(kept) < len(messages):
        first = next((index for index, message in enumerate(kept) if isinstance(message, UserMessage)), None)
        if first is None:  # only results of tools: without their calls they mean nothing to a provider
            first = next((i for i, message in enumerate(kept) if not isinstance(message, ToolResultMessage)), 0)
        return kept[first:]
    return kept
