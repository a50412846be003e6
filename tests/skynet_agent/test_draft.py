"""Deltas become blocks, in the order in which they began."""

from datetime import UTC, datetime

from skynet_agent.draft import Draft
from skynet_agent.events import TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock, Usage


def draft() -> Draft:
    return Draft(lambda: datetime(2026, 11, 21, 1, 20, tzinfo=UTC))


def test_blocks() -> None:
    it = draft()
    it.begin("lab", "m-1", "openai-completions")
    for delta in (
        ThinkingDelta("let "),
        ThinkingDelta("me"),
        TextDelta("a"),
        TextDelta("b"),
        ToolCallDelta(0, "call_0", "exec", ""),
        ToolCallDelta(1, "call_1", "read", '{"pa'),
        ToolCallDelta(0, "", "", '{"command":"ls"}'),
        ToolCallDelta(1, "", "", 'th":"x"}'),
        TextDelta("c"),
    ):
        it.add(delta)
    it.usage = usage = Usage(1, 2, 0, 0, 3)
    assert it.message("toolUse") == AssistantMessage(
        content=[
            ThinkingBlock("let me"),
            TextBlock("ab"),
            ToolCallBlock("call_0", "exec", {"command": "ls"}),
            ToolCallBlock("call_1", "read", {"path": "x"}),
            TextBlock("c"),
        ],
        api="openai-completions",
        provider="lab",
        model="m-1",
        stop_reason="toolUse",
        timestamp=1795224000000,
        usage=usage,
    )


def test_a_signature_ends_a_block_of_thinking() -> None:
    it = draft()
    for delta in (
        ThinkingDelta("let "),
        ThinkingDelta("me"),
        ThinkingDelta("", "sig-1"),
        ThinkingDelta("more"),
        ThinkingDelta("", "sealed", redacted=True),
        ThinkingDelta(" and more"),
        ThinkingDelta("!", "sig-2"),
        ThinkingDelta("", "sig-3"),
        TextDelta("a"),
    ):
        it.add(delta)
    assert it.message("stop").content == [
        ThinkingBlock("let me", "sig-1"),
        ThinkingBlock("more"),
        ThinkingBlock("", "sealed", redacted=True),
        ThinkingBlock(" and more!", "sig-2"),
        ThinkingBlock("", "sig-3"),
        TextBlock("a"),
    ]


def test_a_call_keeps_its_signature_whenever_it_comes() -> None:
    it = draft()
    for delta in (
        ToolCallDelta(0, "c0", "exec", "{}", "sig-0"),
        ToolCallDelta(1, "c1", "exec", "{"),
        ToolCallDelta(1, "", "", "}", "sig-1"),
        ToolCallDelta(1, "", "", ""),
    ):
        it.add(delta)
    assert it.message("toolUse").content == [
        ToolCallBlock("c0", "exec", {}, "sig-0"),
        ToolCallBlock("c1", "exec", {}, "sig-1"),
    ]


def test_a_message_can_be_had_at_any_time_and_begins_anew() -> None:
    it = draft()
    assert it.message("error", error_message="no").content == []
    it.begin("a", "m", "x")
    it.add(TextDelta("one"))
    partial = it.message("aborted")
    it.add(TextDelta(" two"))
    assert (partial.content, partial.stop_reason) == ([TextBlock("one")], "aborted")
    assert it.message("stop").content == [TextBlock("one two")]
    it.begin("b", "m", "x")
    message = it.message("stop")
    assert (message.content, message.provider, message.usage) == ([], "b", None)


def test_arguments_that_are_no_object_are_empty() -> None:
    for arguments in ("", "{", "[1]", "null", "[" * 100_000, '{"a":' * 101 + "1" + "}" * 101):
        it = draft()
        it.add(ToolCallDelta(0, "c", "exec", arguments))
        assert it.message("toolUse").content == [ToolCallBlock("c", "exec", {})]


def test_arguments_may_be_nested() -> None:
    it = draft()
    it.add(ToolCallDelta(0, "c", "exec", '{"a":' * 100 + "1" + "}" * 100))
    (call,) = it.message("toolUse").content
    assert isinstance(call, ToolCallBlock)
    assert list(call.arguments) == ["a"]
