"""Token counts without a tokenizer (BA-082)."""

from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from skynet_agent.requests import ModelOptions, ModelRequest, ToolDefinition
from skynet_agent.tokens import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    estimated_usage,
    message_tokens,
    request_tokens,
    text_tokens,
)


def answer(*blocks: TextBlock | ThinkingBlock | ToolCallBlock) -> AssistantMessage:
    return AssistantMessage(content=list(blocks), api="", provider="lab", model="m", stop_reason="stop", timestamp=1)


def test_texts() -> None:
    assert [text_tokens("x" * length) for length in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]


def test_messages() -> None:
    result: Message = ToolResultMessage(
        tool_call_id="1", tool_name="t", content=[TextBlock("x" * 40)], is_error=False, timestamp=1
    )
    seen: Message = UserMessage([TextBlock("x" * 40), ImageBlock("image/png", "")], 1)
    assert message_tokens(result) == MESSAGE_TOKENS + 10
    assert message_tokens(seen) == MESSAGE_TOKENS + 10 + IMAGE_TOKENS
    assert message_tokens(UserMessage([], 1)) == MESSAGE_TOKENS
    call = ToolCallBlock("call_1", "tool", {"key": "value"})  # {"key": "value"} has 16 characters
    assert message_tokens(answer(ThinkingBlock("x" * 40), call)) == MESSAGE_TOKENS + 10 + 1 + 4


def test_requests() -> None:
    messages = [UserMessage([TextBlock("x" * 40)], 1)]
    assert request_tokens(ModelRequest(messages=messages)) == MESSAGE_TOKENS + 10
    tool = ToolDefinition(name="tool", description="x" * 40, parameters={})
    request = ModelRequest(
        messages=messages, system=("x" * 400, ""), volatile="x" * 4, options=ModelOptions(tools=[tool])
    )
    assert request_tokens(request) == MESSAGE_TOKENS + 10 + 100 + 1 + MESSAGE_TOKENS + 1 + 10 + 1


def test_usage() -> None:
    request = ModelRequest(messages=[UserMessage([TextBlock("x" * 40)], 1)])
    assert estimated_usage(request, answer(TextBlock("x" * 80))) == Usage(14, 20, 0, 0, 34, estimated=True)
