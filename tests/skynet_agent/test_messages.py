"""The JSON of messages is the stored payload: exact bytes, read back the same."""

import msgspec
import pytest

from skynet_agent.messages import (
    AbortMark,
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    decode_message,
    encode_message,
    text_of,
)

ASSISTANT = AssistantMessage(
    content=[ThinkingBlock("hm"), TextBlock("a"), ToolCallBlock("call_1", "exec", {"command": "ls"}), TextBlock("b")],
    api="openai-completions",
    provider="lab",
    model="m-1",
    stop_reason="toolUse",
    timestamp=2,
    usage=Usage(90, 5, 10, 0, 105, cost_microusd=12),
)
INJECTED = AssistantMessage(
    content=[TextBlock("part")],
    api="openai-responses",
    provider="openclaw",
    model="gateway-injected",
    stop_reason="stop",
    timestamp=3,
    idempotency_key="r-1:assistant",
    openclaw_abort=AbortMark(origin="rpc", run_id="r-1"),
)


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (
            UserMessage([TextBlock("hi"), ImageBlock("image/png", "AAAA")], 1),
            b'{"role":"user","content":[{"type":"text","text":"hi"},'
            b'{"type":"image","mimeType":"image/png","data":"AAAA"}],"timestamp":1}',
        ),
        (
            ASSISTANT,
            b'{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},'
            b'{"type":"toolCall","id":"call_1","name":"exec","arguments":{"command":"ls"}},{"type":"text","text":"b"}],'
            b'"api":"openai-completions","provider":"lab","model":"m-1","stopReason":"toolUse","timestamp":2,'
            b'"usage":{"input":90,"output":5,"cacheRead":10,"cacheWrite":0,"total":105,"costMicrousd":12}}',
        ),
        (
            AssistantMessage(
                content=[
                    ThinkingBlock("hm", "sig"),
                    ThinkingBlock("", "sealed", redacted=True),
                    ToolCallBlock("c", "exec", {}, "thought"),
                ],
                api="anthropic-messages",
                provider="lab",
                model="m-1",
                stop_reason="toolUse",
                timestamp=2,
            ),
            b'{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"},'
            b'{"type":"thinking","thinking":"","thinkingSignature":"sealed","redacted":true},'
            b'{"type":"toolCall","id":"c","name":"exec","arguments":{},"thoughtSignature":"thought"}],'
            b'"api":"anthropic-messages","provider":"lab","model":"m-1","stopReason":"toolUse","timestamp":2}',
        ),
        (
            INJECTED,
            b'{"role":"assistant","content":[{"type":"text","text":"part"}],"api":"openai-responses",'
            b'"provider":"openclaw","model":"gateway-injected","stopReason":"stop","timestamp":3,'
            b'"idempotencyKey":"r-1:assistant","openclawAbort":{"origin":"rpc","runId":"r-1","aborted":true}}',
        ),
        (
            ToolResultMessage("call_1", "exec", [TextBlock("a b")], False, 4),
            b'{"role":"toolResult","toolCallId":"call_1","toolName":"exec","content":[{"type":"text","text":"a b"}],'
            b'"isError":false,"timestamp":4}',
        ),
    ],
)
def test_payloads(message: Message, payload: bytes) -> None:
    assert encode_message(message) == payload
    assert decode_message(payload) == message


def test_fields_of_a_newer_version_are_ignored() -> None:
    newer = b'{"role":"user","mood":"good","content":[{"type":"text","text":"hi","bold":true}],"timestamp":1}'
    assert decode_message(newer) == UserMessage([TextBlock("hi")], 1)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"role":"robot"}', b'{"role":"user"}'])
def test_other_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        decode_message(payload)


def test_text_is_the_text_blocks_alone() -> None:
    assert text_of(ASSISTANT) == "ab"
    assert msgspec.json.decode(encode_message(ASSISTANT))["stopReason"] == "toolUse"
