"""What is left out of a turn's own rounds, step by step, and what is not."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    text_of,
)
from skynet_agent.shortening import CUTS, next_cut, with_shorter_results, without_thinking
from skynet_agent.tools import tool_result


def rounds(*sizes: int) -> list[Message]:
    """A round for each size, whose result has so many characters, and an image."""
    messages: list[Message] = []
    for number, size in enumerate(sizes):
        call = ToolCallBlock(str(number), "look", {})
        messages.append(AssistantMessage([ThinkingBlock("hm"), call], "", "", "", "toolUse", 1))
        messages.append(tool_result(call, [TextBlock(size * "x"), ImageBlock("image/png", "AAAA")]))
    return messages


def sizes(messages: Sequence[Message]) -> list[int]:
    return [len(text_of(message)) for message in messages if isinstance(message, ToolResultMessage)]


def test_older_results_are_cut_first() -> None:
    messages = rounds(30_000, 300, 30_000)
    told = [sizes(with_shorter_results(messages, cuts)) for cuts in range(len(CUTS) + 1)]
    assert told[0] == [30_000, 300, 30_000]
    assert [
        [size > limit * 0.9 for size, limit in zip(each, limits, strict=True)]
        for each, limits in zip(
            told[1:], ([4000, 300, 30_000], [500, 300, 30_000], [500, 300, 4000], [500, 300, 500]), strict=True
        )
    ] == [[True] * 3] * 4
    assert all(len(message.content) == 2 for message in with_shorter_results(messages, len(CUTS)))


@given(st.lists(st.integers(0, 10_000), max_size=5))
def test_each_cut_makes_it_shorter_until_nothing_does(given: list[int]) -> None:
    messages, cuts, told = rounds(*given), 0, sum(given)
    while (more := next_cut(messages, cuts)) != cuts:
        now = sum(sizes(with_shorter_results(messages, more)))
        assert more > cuts and now < told
        cuts, told = more, now
    assert all(size <= 500 for size in sizes(with_shorter_results(messages, len(CUTS))))
    assert told == sum(sizes(with_shorter_results(messages, len(CUTS))))


def test_thinking_is_left_out_and_calls_are_not() -> None:
    messages = rounds(10)
    answer, result = without_thinking(messages)
    assert [type(block) for block in answer.content] == [ToolCallBlock]
    assert result is messages[1]
