from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.context import estimate_tokens, in_turns, within_window
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
    assert sum(estimate_tokens(message) for message in kept) <= 1500


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


def test_images_count() -> None:
    image = UserMessage(content=[ImageBlock(mime_type="image/png", data="AAAA")], timestamp=1)
    assert estimate_tokens(image) > 1000


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


@given(st.lists(st.sampled_from("uacreig"), max_size=20))
def test_any_transcript_keeps_all_of_its_messages(kinds: Sequence[str]) -> None:
    messages = [spoken(f"{kind}{number}") for number, kind in enumerate(kinds)]
    turned = in_turns(messages)
    assert sorted(map(id, turned)) == sorted(map(id, messages))
    assert [m for m in turned if isinstance(m, UserMessage)] == [m for m in messages if isinstance(m, UserMessage)]


@given(st.lists(st.sampled_from("uaeig"), max_size=20))
def test_turns_stay_as_they_are(kinds: Sequence[str]) -> None:
    turned = in_turns([spoken(f"{kind}{number}") for number, kind in enumerate(kinds)])
    assert in_turns(turned) == turned
