from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.context import ANSWER_SHARE, in_turns, within_window
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from skynet_agent.requests import ToolDefinition
from skynet_agent.tokens import message_tokens


def user(text: str) -> UserMessage:
    return UserMessage(content=[TextBlock(text=text)], timestamp=1)


def assistant(text: str) -> AssistantMessage:
    return AssistantMessage(
        content=[TextBlock(text=text)], api="a", provider="p", model="m", stop_reason="stop", timestamp=1
    )


def test_everything_stays_when_it_fits() -> None:
    messages: list[Message] = [user("a"), assistant("b"), user("c")]
    assert within_window(messages, system=("s",), window_tokens=128_000) == messages


def test_the_oldest_go_first_and_a_cut_conversation_begins_with_a_person() -> None:
    messages: list[Message] = []
    for number in range(50):
        messages += [user(f"question {number} " + "x" * 400), assistant("answer " + "y" * 400)]
    messages.append(user("last"))
    kept = within_window(messages, system=(), window_tokens=2000)
    assert kept == messages[-len(kept) :]
    assert 1 < len(kept) < len(messages)
    assert isinstance(kept[0], UserMessage)
    assert sum(message_tokens(message) for message in kept) <= 1750


def test_the_last_message_is_kept_however_long_it_is() -> None:
    messages: list[Message] = [user("a"), assistant("b"), user("x" * 1_000_000)]
    assert within_window(messages, system=(), window_tokens=1000) == messages[-1:]


def test_a_conversation_that_ends_in_tool_results_is_left_as_it_is() -> None:
    call = AssistantMessage(
        content=[ToolCallBlock(id="c", name="n", arguments={"a": 1})],
        api="a",
        provider="p",
        model="m",
        stop_reason="toolUse",
        timestamp=1,
    )
    result = ToolResultMessage(
        tool_call_id="c", tool_name="n", content=[TextBlock(text="r")], is_error=False, timestamp=1
    )
    assert within_window([call, result], system=(), window_tokens=128_000) == [call, result]


def round_of(number: int, results: int, size: int) -> list[Message]:
    """Calls and their results, each result of ``size`` characters."""
    calls = [ToolCallBlock(id=f"{number}-{n}", name="n", arguments={}) for n in range(results)]
    answer = msgspec.structs.replace(assistant(""), content=list(calls), stop_reason="toolUse")
    return [answer, *(ToolResultMessage(call.id, "n", [TextBlock(size * "x")], False, 1) for call in calls)]


def test_of_a_turn_that_is_too_long_the_newest_rounds_are_kept() -> None:
    """25 rounds with results of 30,000 characters are twice what the window holds."""
    before = [user("old"), assistant("old too")]
    rounds = [round_of(number, 1, 30_000) for number in range(25)]
    turn = [user("do it"), *(message for each in rounds for message in each), assistant("done")]
    kept = within_window([*before, *turn, user("and now?")], system=(), window_tokens=128_000)
    assert kept[0] is turn[0]
    assert kept[1:-1] == turn[-len(kept) + 2 :]
    assert kept[1] in [each[0] for each in rounds[8:13]]
    assert kept[-1] == user("and now?")
    assert 100_000 < sum(map(message_tokens, kept)) <= 112_000


def test_what_tools_say_of_themselves_counts() -> None:
    tools = [ToolDefinition(name="t", description="x" * 4000)]
    messages: list[Message] = [user("a" * 400), assistant("b" * 400), user("c")]
    assert len(within_window(messages, system=(), window_tokens=1400)) == 3
    assert len(within_window(messages, system=(), tools=tools, window_tokens=1400)) == 1


@pytest.mark.parametrize(("limit", "window_tokens"), [(80, 128_000), (1000, 4000)])
def test_a_long_conversation_is_told_from_the_same_message_for_many_turns(limit: int, window_tokens: int) -> None:
    """Whatever cuts it. Else nothing of it would be in any cache, at 80 messages as at 8,000."""
    said, begins = list[Message](), list[str]()
    for number in range(500):
        said.append(UserMessage([TextBlock(f"question {number}")], 1_000 * number))
        told = within_window(said[-limit:], system=(), window_tokens=window_tokens, is_cut=len(said) > limit)
        assert told[-1] is said[-1]
        assert len(told) >= min(len(said), 30)
        begins.append(text_of(told[0]))
        said.append(assistant("x" * 100))
    changes = sum(one != other for one, other in pairwise(begins))
    assert changes < 500 / 6
    assert len(set(begins)) == changes + 1, "it never goes back"


TURNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 500)), min_size=1, max_size=6)


@given(TURNS, st.integers(0, 20), st.integers(10, 4000))
def test_whatever_is_left_out_is_left_out_whole(
    turns: Sequence[tuple[int, int, int]], cut: int, window_tokens: int
) -> None:
    messages = list[Message]()
    for number, (rounds, results, size) in enumerate(turns):
        messages.append(user(f"u{number}"))
        for each in range(rounds):
            messages += round_of(100 * number + each, results, size)
        messages.append(assistant(f"a{number}"))
    messages = [*messages[cut:], user("own")]
    kept = within_window(messages, system=(), window_tokens=window_tokens)
    rest = iter(messages)
    assert all(any(message is each for each in rest) for message in kept), "in their order, each once"
    assert kept[-1] is messages[-1]
    assert len(kept) == 1 or sum(map(message_tokens, kept)) <= window_tokens - window_tokens // ANSWER_SHARE
    results = {message.tool_call_id for message in kept if isinstance(message, ToolResultMessage)}
    calls = {
        block.id
        for message in kept
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCallBlock)
    }
    assert calls <= results
    assert results <= calls or len(kept) == len(messages) or kept[0] is messages[0]


def test_images_count() -> None:
    image = UserMessage(content=[ImageBlock(mime_type="image/png", data="AAAA")], timestamp=1)
    assert message_tokens(image) > 1000


def conversation(words: str) -> list[Message]:
    """``u1`` is a message, ``a1`` its answer, ``c1`` an answer that is a tool call, ``r1`` its result, ``e1`` an answer
    that failed, ``i1`` the note of a run that was interrupted, ``g`` the gateway's own words."""
    return [spoken(word) for word in words.split()]


def spoken(word: str) -> Message:
    kind = word[0]
    if kind == "u":
        return user(word)
    if kind == "r":
        return ToolResultMessage("c", "n", [TextBlock(text=word)], False, 1)
    changes: dict[str, Any] = {
        "c": {"stop_reason": "toolUse"},
        "e": {"stop_reason": "error"},
        "i": {"stop_reason": "error", "model": "gateway-injected"},
        "g": {"model": "gateway-injected"},
    }
    return msgspec.structs.replace(assistant(word), **changes.get(kind, {}))


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("", ""),
        ("u1 a1 u2 a2 u3", "u1 a1 u2 a2 u3"),
        ("u1 u2 a1 a2 u3", "u1 a1 u2 a2 u3"),
        ("u1 u2 u3 a1 a2 a3", "u1 a1 u2 a2 u3 a3"),
        ("u1 u2 a1 u3 a2 u4 a3", "u1 a1 u2 a2 u3 a3 u4"),
        ("u1 u2 e1 i2 u3", "u1 e1 u2 i2 u3"),
        ("u1 g u2 a1 g a2", "u1 a1 g u2 a2 g"),
        ("u1 c1 r1 a1 u2", "u1 c1 r1 a1 u2"),
        ("u1 u2 c1 r1 r1 a1 a2", "u1 c1 r1 r1 a1 u2 a2"),
        ("u1 c1 u2 a2", "u1 c1 u2 a2"),  # the results of the call never came
        ("a0 u1 a1", "a0 u1 a1"),  # the beginning was cut off
        ("r0 a0 u1 a1", "r0 a0 u1 a1"),
        ("u1 u2", "u1 u2"),
    ],
)
def test_each_answer_follows_its_message(stored: str, told: str) -> None:
    assert [text_of(message) for message in in_turns(conversation(stored))] == told.split()


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("u2 u3 a1 a2 a3", "a1 u2 a2 u3 a3"),
        ("u2 a1 u3 a2 u4 a3 a4", "a1 u2 a2 u3 a3 u4 a4"),
        ("r1 u2 c1 r1 a1 a2", "r1 c1 r1 a1 u2 a2"),
        ("u2 g e1 a2", "e1 u2 a2 g"),
        ("u1 a1", "u1 a1"),
    ],
)
def test_answers_to_what_was_cut_off_are_nobody_elses(stored: str, told: str) -> None:
    assert [text_of(message) for message in in_turns(conversation(stored), is_cut=True)] == told.split()


LANES = st.lists(st.sampled_from(["say", "round", "end", "stop", "note"]), max_size=40)


@given(LANES, st.integers(0, 40))
def test_in_a_lane_nothing_is_told_with_anothers_answer(steps: Sequence[str], cut: int) -> None:
    """Wherever the transcript is cut, if none waits, as when the next one is about to be answered."""
    stored, lane, number = list[str](), list[int](), 0
    for step in [*steps, *["end"] * len(steps)]:
        if step == "say":
            number += 1
            lane.append(number)
            stored.append(f"u{number}")
        elif step == "note":
            stored.append("g")
        elif lane:
            stored += [f"c{lane[0]}", f"r{lane[0]}"] if step == "round" else []
            stored += [f"{'a' if step == 'end' else 'e'}{lane.pop(0)}"] if step != "round" else []
    stored = stored[cut:]
    told = [text_of(message) for message in in_turns(conversation(" ".join(stored)), is_cut=cut > 0)]
    assert sorted(told) == sorted(stored)
    asked = ""
    for words in told:
        if words != "g":
            assert words[0] == "u" or words[1:] == asked or f"u{words[1:]}" not in told
            asked = words[1:]


@given(st.lists(st.sampled_from("uacreig"), max_size=20), st.booleans())
def test_any_transcript_keeps_all_of_its_messages(kinds: Sequence[str], is_cut: bool) -> None:
    messages = [spoken(f"{kind}{number}") for number, kind in enumerate(kinds)]
    turned = in_turns(messages, is_cut=is_cut)
    assert sorted(map(id, turned)) == sorted(map(id, messages))
    assert [m for m in turned if isinstance(m, UserMessage)] == [m for m in messages if isinstance(m, UserMessage)]


@given(st.lists(st.sampled_from("uaeig"), max_size=20))
def test_turns_stay_as_they_are(kinds: Sequence[str]) -> None:
    turned = in_turns([spoken(f"{kind}{number}") for number, kind in enumerate(kinds)])
    assert in_turns(turned) == turned
