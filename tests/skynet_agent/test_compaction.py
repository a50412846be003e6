"""What is covered, and when: no gap, no overlap, nothing torn apart."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.compaction import (
    FIRST_SHARE,
    FULL,
    KEPT_LAST,
    LEAST_SHARE,
    LEFT,
    MOST_TOLD,
    TURNS,
    Plan,
    cheapest,
    plan,
    rolled_up,
)
from skynet_agent.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from skynet_agent.providers import FREE, ModelInfo, Price
from skynet_agent.routes import ResolvedModel
from skynet_agent.summaries import READ_TOKENS
from skynet_agent.tokens import message_tokens


def user(size: int = 0) -> UserMessage:
    return UserMessage([TextBlock("u" * size)], 1)


def answer(size: int = 0) -> AssistantMessage:
    return AssistantMessage([TextBlock("a" * size)], "", "p", "m", "stop", 1)


def turn(size: int) -> list[Message]:
    """About ``size`` tokens."""
    return [user(2 * (size - 8)), answer(2 * (size - 8))]


def rounds(identity: str, count: int, results: int, size: int) -> list[Message]:
    """Calls and their results."""
    made: list[Message] = []
    for number in range(count):
        calls = [ToolCallBlock(f"{identity}-{number}-{each}", "n", {}) for each in range(results)]
        made.append(AssistantMessage([*calls], "", "p", "m", "toolUse", 1))
        made += [ToolResultMessage(call.id, "n", [TextBlock("r" * size)], False, 1) for call in calls]
    return made


def tokens(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))


def filled(share: float, turns: int = 20, window_tokens: int = 10_000) -> list[Message]:
    """A conversation that fills ``share`` of the window."""
    return [message for _ in range(turns) for message in turn(int(share * window_tokens / turns))]


@pytest.mark.parametrize(
    ("share", "reason", "left"),
    [(0.79, None, 0.79), (0.81, "full", 0.5), (0.86, "fuller", 0.3), (0.96, "overfull", 0.5)],
)
def test_the_fuller_the_window_the_more_is_covered(share: float, reason: str | None, left: float) -> None:
    """SP-029 … SP-032, SK-197."""
    messages = filled(share)
    found = plan(messages, window_tokens=10_000, is_whole=True)
    if reason is None:
        assert found is None
        return
    assert found is not None
    assert (found.reason, found.is_read) == (reason, reason != "overfull")
    assert found.begin == 1, "the first message stays"
    rest = tokens(messages) - tokens(messages[found.begin : found.end])
    assert (left - 0.06) * 10_000 <= rest <= left * 10_000


def test_what_the_provider_counts_is_more_than_an_estimate() -> None:
    """BA-082."""
    messages = filled(0.4)
    assert plan(messages, window_tokens=10_000, is_whole=True, counted_tokens=7_900) is None
    found = plan(messages, window_tokens=10_000, is_whole=True, counted_tokens=8_100)
    assert found is not None and found.reason == "full"
    assert tokens(messages[found.begin : found.end]) < 2_000, "of which each message has its share"


def test_summaries_count_too() -> None:
    messages = filled(0.7)
    assert plan(messages, window_tokens=10_000, is_whole=False) is None
    found = plan(messages, window_tokens=10_000, is_whole=False, told_tokens=1_100)
    assert found is not None and found.begin == 0


def test_after_forty_turns_the_oldest_twenty_are_covered() -> None:
    """SK-102: the 41st turn triggers, however short they all are."""
    messages = [message for _ in range(TURNS) for message in turn(10)]
    assert plan(messages, window_tokens=128_000, is_whole=True) is None
    waiting = [*messages, user()]
    assert plan(waiting, window_tokens=128_000, is_whole=True) is None, "it has not been answered"
    messages += turn(10)
    assert plan(messages, window_tokens=128_000, is_whole=True) == Plan(0, TURNS, "turns")
    assert isinstance(messages[TURNS], UserMessage)


def test_a_few_messages_are_not_worth_a_model_but_are_left_out() -> None:
    messages = [*turn(8_000), *turn(20), *turn(20)]
    nearly = plan(messages, window_tokens=10_000, is_whole=False, counted_tokens=8_500)
    assert nearly is not None and nearly.end == 2
    small = [*turn(20), *turn(20), user(32_000), answer()]
    assert plan(small, window_tokens=10_000, is_whole=True) is None
    dropped = plan([*small[:-1], answer(8_000)], window_tokens=10_000, is_whole=True)
    assert dropped is not None and dropped.reason == "overfull"


def test_a_first_message_that_fills_the_window_does_not_stay() -> None:
    messages = [user(32_400), answer(), *turn(20), *turn(20)]
    found = plan(messages, window_tokens=10_000, is_whole=True)
    assert found == Plan(0, 2, "full")


def test_one_long_turn_is_cut_between_its_rounds() -> None:
    """SP-030: the middle of a turn that alone fills the window, each call with its result."""
    messages = [user(40), *rounds("x", 20, 2, 800), answer(40)]
    found = plan(messages, window_tokens=10_000, is_whole=True)
    assert found is not None
    assert found.begin == 1 and isinstance(messages[found.end], AssistantMessage)
    assert isinstance(messages[found.end - 1], ToolResultMessage)


def test_a_turn_that_goes_on_is_left_alone() -> None:
    messages = [user(40), *rounds("x", 20, 2, 800)]
    assert plan(messages, window_tokens=10_000, is_whole=True) is None


def test_not_more_is_covered_than_can_be_read() -> None:
    messages = filled(0.9, turns=30)
    found = plan(messages, window_tokens=10_000, is_whole=False, read_tokens=1_000)
    assert found is not None
    assert 0 < tokens(messages[: found.end]) <= 1_000
    least = plan(messages, window_tokens=10_000, is_whole=False, read_tokens=1)
    assert least is not None and least.end == 2, "or nothing would ever be"


@given(st.lists(st.integers(1, 2_000), max_size=20), st.integers(100, 20_000))
def test_summaries_are_rolled_up_before_they_are_too_many_or_too_long(told: list[int], window_tokens: int) -> None:
    """SP-035."""
    count = rolled_up(told, window_tokens=window_tokens)
    assert count == 0 or 2 <= count <= len(told)
    if len(told) > MOST_TOLD:
        assert count
    if len(told) < 2:
        assert not count


KINDS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 3_000), st.booleans()), min_size=1, max_size=60
)


def conversation(turns: Sequence[tuple[int, int, int, bool]]) -> list[Message]:
    """Each turn after the other; with a flag the next person's message comes while it is being answered."""
    messages: list[Message] = []
    early: list[Message] = []
    for number, (count, results, size, interrupts) in enumerate(turns):
        asked = early or [user(size)]
        messages += [] if early else asked
        early = []
        made = rounds(str(number), count, results, size)
        if interrupts and number + 1 < len(turns):
            early = [user(7)]
            place = 0 if not made else 1  # between a call and its result
            made[place:place] = early
        messages += [*made, answer(size)]
    return messages


@given(
    KINDS,
    st.integers(200, 50_000),
    st.integers(0, 100_000),
    st.integers(0, 5_000),
    st.booleans(),
    st.integers(0, 10),
    st.none() | st.integers(1, 20_000),
)
def test_whatever_is_covered(
    turns: Sequence[tuple[int, int, int, bool]],
    window_tokens: int,
    counted_tokens: int,
    told_tokens: int,
    is_whole: bool,
    cut: int,
    read_tokens: int | None,
) -> None:
    """It begins where the last compaction ended, keeps the end, tears nothing apart, and is what the limit asks for."""
    messages = conversation(turns)[0 if is_whole else cut :]
    found = plan(
        messages,
        window_tokens=window_tokens,
        counted_tokens=counted_tokens,
        told_tokens=told_tokens,
        is_whole=is_whole,
        read_tokens=read_tokens,
    )
    used = max(tokens(messages) + told_tokens, counted_tokens)
    asked = sum(isinstance(message, UserMessage) for message in messages)
    if found is None:
        return
    assert used >= FULL * window_tokens if found.reason != "turns" else asked > TURNS
    assert found.begin in (0, 1) and found.begin < found.end <= len(messages) - KEPT_LAST
    if found.begin:
        assert is_whole and message_tokens(messages[0]) <= window_tokens * FIRST_SHARE
    covered, rest = messages[found.begin : found.end], messages[found.end :]
    assert not isinstance(rest[0], ToolResultMessage)
    calls = {
        block.id
        for message in covered
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCallBlock)
    }
    assert calls.isdisjoint({message.tool_call_id for message in rest if isinstance(message, ToolResultMessage)})
    if found.is_read and found.reason != "turns" and read_tokens is None:
        assert tokens(covered) * min(4, used / (tokens(messages) + told_tokens)) >= LEAST_SHARE * window_tokens * 0.99
    if found.reason != "turns" and read_tokens is None and counted_tokens == 0 and not told_tokens:
        left = tokens(messages) - tokens(covered)
        sizes = [*accumulate(map(message_tokens, messages[::-1]))]
        unavoidable = sizes[min(KEPT_LAST, len(sizes)) - 1] + message_tokens(messages[0])
        longest = max(sum(map(message_tokens, part)) for part in _turns(messages))
        assert left <= LEFT[found.reason] * window_tokens or left <= unavoidable + 2 * longest


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    parts: list[list[Message]] = [[]]
    for message in messages:
        if isinstance(message, UserMessage):
            parts.append([])
        parts[-1].append(message)
    return parts


@given(KINDS, st.integers(200, 20_000))
def test_one_after_the_other_they_leave_no_gap(turns: Sequence[tuple[int, int, int, bool]], window_tokens: int) -> None:
    """SP-035: each begins where the one before it ended, and they come to an end."""
    messages = conversation(turns)
    live = list(range(len(messages)))
    covered: list[int] = []
    first: int | None = None
    for _ in range(200):
        found = plan([messages[place] for place in live], window_tokens=window_tokens, is_whole=not covered)
        if found is None:
            break
        if found.begin:
            first = live[0]
        part = live[found.begin : found.end]
        covered += part
        live = live[found.end :]
    else:
        raise AssertionError("it never ends")
    begin = 0 if first is None else 1
    assert covered == list(range(begin, begin + len(covered)))
    assert [*([] if first is None else [first]), *covered, *live] == list(range(len(messages)))


def model(name: str, price: Price | None) -> ResolvedModel:
    return ResolvedModel(provider="p", model=name, api="a", info=ModelInfo(id=name, price=price))


def test_the_cheapest_model_summarises() -> None:
    dear, cheap = Price(input=10_000, output=1), Price(input=1_000, output=5_000)
    models = [model("unknown", None), model("dear", dear), model("cheap", cheap)]
    assert cheapest(models) == models[2]
    assert cheapest([*models, free := model("free", FREE)]) is free
    assert cheapest(models[:1]) is None
    assert READ_TOKENS < 32_768
