"""How many tokens something is, before or without a provider's own count (BA-082).

A tokenizer would be exact for one vendor's models, wrong for the others', and costs megabytes. Four characters a token
are within a third for European languages and code.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Json,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from skynet_agent.requests import ModelRequest, ToolDefinition

CHARACTERS = 4
"""Of one token, about."""
MESSAGE_TOKENS = 4
"""What stands around each message: its role, and where it ends."""
IMAGE_TOKENS = 1500
"""About what providers charge for an image at full detail."""


def text_tokens(text: str) -> int:
    """Tokens of ``text``; 0 only for an empty one."""
    return -(-len(text) // CHARACTERS)


def message_tokens(message: Message) -> int:
    """Tokens of ``message`` as part of a conversation, never below 1."""
    tokens = MESSAGE_TOKENS
    for block in message.content:
        match block:
            case TextBlock():
                tokens += text_tokens(block.text)
            case ImageBlock():
                tokens += IMAGE_TOKENS
            case ThinkingBlock():
                tokens += text_tokens(block.thinking)
            case ToolCallBlock():
                tokens += text_tokens(block.name) + _json_tokens(block.arguments)
    return tokens


def request_tokens(request: ModelRequest) -> int:
    """Tokens of everything that the model is given."""
    texts = (*request.system, request.volatile)
    return (
        sum(map(text_tokens, texts)) + sum(map(message_tokens, request.messages)) + tools_tokens(request.options.tools)
    )


def tools_tokens(tools: Iterable[ToolDefinition]) -> int:
    """Tokens of what a model is told of its tools."""
    return sum(
        MESSAGE_TOKENS + text_tokens(tool.name) + text_tokens(tool.description) + _json_tokens(tool.parameters)
        for tool in tools
    )


def _json_tokens(value: Json) -> int:
    return -(-len(msgspec.json.encode(value)) // CHARACTERS)


def estimated_usage(request: ModelRequest, answer: AssistantMessage) -> Usage:
    """What a call used whose provider tells nothing: all of it at the full price, as if no cache had helped."""
    prompt, output = request_tokens(request), message_tokens(answer) - MESSAGE_TOKENS
    return Usage(prompt, output, 0, 0, prompt + output, estimated=True)
