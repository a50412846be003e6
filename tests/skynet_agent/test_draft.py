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
    usage = Usage(1, 2, 0, 0, 3)
    assert it.message("toolUse", usage=usage) == AssistantMessage(
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
    assert (it.message("stop").content, it.message("stop").provider) == ([], "b")


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
