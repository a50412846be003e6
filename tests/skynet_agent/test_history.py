"""What a model is given of a conversation that it may not have been part of (SK-083, BA-077 to BA-080)."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.history import ANY_IDS, MISSING_RESULT, NO_TEXT, CallIds, by_side, conversation
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelRequest

ROW = ProviderRow(name="lab", api="some-api")
MODEL = ModelInfo(id="m-1", input=("text", "image"))
BLIND = ModelInfo(id="m-1")
IMAGE = ImageBlock("image/png", "AAAA" * 1024)


def user(*blocks: Any) -> UserMessage:
    return UserMessage([TextBlock(block) if isinstance(block, str) else block for block in blocks], 1)


def assistant(
    *blocks: Any, by: tuple[str, str, str] = ("some-api", "lab", "m-1"), stop: StopReason = "stop"
) -> AssistantMessage:
    content = [TextBlock(block) if isinstance(block, str) else block for block in blocks]
    return AssistantMessage(content, *by, stop, 2)


def call(identity: str, signature: str = "") -> ToolCallBlock:
    return ToolCallBlock(identity, "exec", {"a": 1}, signature)


def result(identity: str, *blocks: Any, is_error: bool = False) -> ToolResultMessage:
    content = [TextBlock(block) if isinstance(block, str) else block for block in blocks]
    return ToolResultMessage(identity, "exec", content, is_error, 3)


OTHERS = [
    ("some-api", "lab", "m-2"),
    ("some-api", "other", "m-1"),
    ("other-api", "lab", "m-1"),
]


def cleaned(
    *messages: Message, model: ModelInfo = MODEL, volatile: str = "", ids: CallIds = ANY_IDS, says: bool = True
) -> list[Message]:
    return conversation(ROW, model, ModelRequest(messages=messages, volatile=volatile), ids=ids, volatile=says)


def test_what_needs_no_change_has_none() -> None:
    messages = [
        user("a", IMAGE),
        assistant("look", call("c1"), call("c2"), stop="toolUse"),
        result("c1", "x", IMAGE),
        result("c2", is_error=True),
        assistant("b"),
        user("c"),
    ]
    assert cleaned(*messages) == messages


# Thinking


def test_thinking_of_earlier_turns_is_left_out() -> None:
    """SK-083."""
    messages = [user("a"), assistant(ThinkingBlock("hm", "sig"), "b"), user("c"), assistant(ThinkingBlock("so"), "d")]
    assert cleaned(*messages, user("e")) == [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]


def test_that_of_this_turn_goes_back_to_who_thought_it() -> None:
    round_ = assistant(
        ThinkingBlock("hm", "sig"), ThinkingBlock("", "sealed", redacted=True), call("c1", "thought"), stop="toolUse"
    )
    messages = [user("a"), round_, result("c1", "x")]
    assert cleaned(*messages) == messages


@pytest.mark.parametrize("by", OTHERS)
def test_another_model_is_shown_it_as_text(by: tuple[str, str, str]) -> None:
    """BA-077. Signatures are nothing to others, and neither is what was hidden."""
    round_ = assistant(
        ThinkingBlock("hm", "sig"),
        ThinkingBlock("", "sealed", redacted=True),
        ThinkingBlock(" ", "sig"),
        call("c1", "thought"),
        by=by,
        stop="toolUse",
    )
    assert cleaned(user("a"), round_, result("c1", "x")) == [
        user("a"),
        assistant("<thinking>\nhm\n</thinking>\n\n", call("c1"), by=by, stop="toolUse"),
        result("c1", "x"),
    ]


def test_an_answer_that_was_only_thought_is_left_out() -> None:
    assert cleaned(user("a"), assistant(ThinkingBlock("hm", "sig")), user("b")) == [user("a"), user("b")]
    assert cleaned(user("a"), assistant(ThinkingBlock("hm", "sig"))) == [user("a")]


# Images


def test_a_model_that_cannot_see_is_told_of_images() -> None:
    """BA-080."""
    told = "[image/png, 3 KiB: an image that this model cannot see]"
    messages = [user("a", IMAGE), assistant(call("c1"), stop="toolUse"), result("c1", IMAGE)]
    assert cleaned(*messages, model=BLIND) == [user("a", told), messages[1], result("c1", told)]
    assert cleaned(user(ImageBlock("image/gif", "AAAA")), model=BLIND) == [
        user("[image/gif, 1 KiB: an image that this model cannot see]")
    ]


# Calls and results


def test_every_call_has_its_result_and_every_result_its_call() -> None:
    assert cleaned(
        result("cut off", "x"),
        assistant("look", call("c1"), call("c2"), call("c3"), stop="toolUse"),
        result("c3", "three"),
        result("c1", "one"),
        result("c1", "one again"),
        result("c9", "of nobody"),
        user("next"),
        result("c2", "too late"),
    ) == [
        assistant("look", call("c1"), call("c2"), call("c3"), stop="toolUse"),
        result("c1", "one again"),
        ToolResultMessage("c2", "exec", [TextBlock(MISSING_RESULT)], True, 0),
        result("c3", "three"),
        user("next"),
    ]


def test_a_call_at_the_end_has_a_result_too() -> None:
    assert cleaned(user("a"), assistant(call("c1"), stop="toolUse"))[2:] == [
        ToolResultMessage("c1", "exec", [TextBlock(MISSING_RESULT)], True, 0)
    ]


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_calls_of_an_answer_that_failed_were_never_made(stop: StopReason) -> None:
    messages = [
        user("a"),
        assistant("part", call("c1"), stop=stop),
        result("c1", "x"),
        assistant(call("c2"), stop=stop),
    ]
    assert cleaned(*messages) == [user("a"), assistant("part", stop=stop)]


def test_two_calls_of_one_id_have_two_results() -> None:
    cleaned_ = cleaned(
        assistant(call("c"), call("c"), call("c"), stop="toolUse"),
        result("c", "one"),
        result("c", "two"),
        assistant(call("c"), stop="toolUse"),
        result("c", "three"),
    )
    results = [message for message in cleaned_ if isinstance(message, ToolResultMessage)]
    assert [each.content for each in results] == [
        [TextBlock("one")],
        [TextBlock("two")],
        [TextBlock(MISSING_RESULT)],
        [TextBlock("three")],
    ]
    calls = ids_of_calls(cleaned_)
    assert len(set(calls)) == 4
    assert calls[0] == "c"
    assert [each.tool_call_id for each in results] == calls


def ids_of_calls(messages: Sequence[Message]) -> list[str]:
    return [
        block.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]


@pytest.mark.parametrize("identity", ["", "call|odd", "é", "x" * 41, "\ud800", "functions.exec:0", "a b"])
@pytest.mark.parametrize("ids", [ANY_IDS, CallIds(r"[a-zA-Z0-9]{9}", 9)])
def test_ids_have_the_form_that_the_api_takes(identity: str, ids: CallIds) -> None:
    messages = [assistant(call(identity), stop="toolUse"), result(identity, "x")]
    first, second = cleaned(*messages, ids=ids)
    assert isinstance(second, ToolResultMessage)
    (fitted,) = ids_of_calls([first])
    assert re.fullmatch(r"[a-zA-Z0-9]{9,32}", fitted)
    assert second.tool_call_id == fitted
    assert second.content == [TextBlock("x")]


def test_ids_stay_the_same_from_turn_to_turn() -> None:
    """The provider's cache would not know the conversation again."""
    messages: list[Message] = []
    seen: list[Message] = []
    for turn in range(4):
        messages += [user(f"t{turn}"), assistant(call("odd id"), call("c"), stop="toolUse"), result("c", f"r{turn}")]
        now = cleaned(*messages)
        assert now[: len(seen)] == seen
        seen = now


# Texts


def test_no_text_is_empty() -> None:
    assert cleaned(
        user(""),
        assistant("", "a", " \n"),
        user("b", "", IMAGE),
        assistant("\n"),
        user(),
        assistant(call("c1"), stop="toolUse"),
        result("c1", ""),
    ) == [
        user(NO_TEXT),
        assistant("a"),
        user("b", IMAGE),
        user(NO_TEXT),
        assistant(call("c1"), stop="toolUse"),
        result("c1"),
    ]


def test_what_is_true_only_now_ends_the_last_message_of_the_user() -> None:
    messages = [user("a"), assistant("b"), user("c"), assistant(call("c1"), stop="toolUse"), result("c1", "x")]
    changed = [*messages[:2], user("c", "it is late"), *messages[3:]]
    assert cleaned(*messages, volatile="it is late") == changed
    assert cleaned(*messages, volatile="it is late", says=False) == messages
    assert cleaned(assistant("b"), volatile="it is late") == [assistant("b")]


def test_sides() -> None:
    first, second, third, fourth = user("a"), user("b"), assistant(call("c1"), stop="toolUse"), result("c1", "x")
    assert by_side([first, second, third, fourth, user("c")]) == [
        ("user", [first, second]),
        ("assistant", [third]),
        ("user", [fourth, user("c")]),
    ]
    assert by_side([]) == []


# Any history

texts = st.sampled_from(["", " ", "a", "é😀"])
identities = st.sampled_from(["", "c", "c1", "odd id", "x" * 50])
blocks = st.one_of(
    st.builds(TextBlock, texts),
    st.builds(ThinkingBlock, texts, st.sampled_from(["", "sig"]), st.booleans()),
    st.builds(call, identities, st.sampled_from(["", "sig"])),
)
histories = st.lists(
    st.one_of(
        st.builds(user, texts),
        st.builds(lambda text: user(text, IMAGE), texts),
        st.builds(
            lambda content, by, stop: assistant(*content, by=by, stop=stop),
            st.lists(blocks, max_size=4),
            st.sampled_from([*OTHERS, ("some-api", "lab", "m-1")]),
            st.sampled_from(["stop", "toolUse", "error", "aborted"]),
        ),
        st.builds(result, identities, texts),
    ),
    max_size=8,
)


@given(histories, st.booleans())
def test_any_history_becomes_one_that_providers_take(history: list[Message], sees: bool) -> None:
    messages = cleaned(*history, model=MODEL if sees else BLIND, volatile="now")
    waiting: list[str] = []
    used: set[str] = set()
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert message.tool_call_id == waiting.pop(0)  # at once, and in the order of the calls
        else:
            assert not waiting
            assert message.content
        for block in message.content:
            assert not isinstance(block, TextBlock) or block.text.strip()
            assert not isinstance(block, ImageBlock) or sees
        if isinstance(message, AssistantMessage):
            assert any(not isinstance(block, ThinkingBlock) for block in message.content)
            waiting = ids_of_calls([message])
            assert len({*used, *waiting}) == len(used) + len(waiting)
            assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", identity) for identity in waiting)
            used.update(waiting)
    assert not waiting
    users = [message for message in history if isinstance(message, UserMessage)]
    assert len([message for message in messages if isinstance(message, UserMessage)]) == len(users)
    assert cleaned(*messages, model=MODEL if sees else BLIND) == messages  # nothing is left to be done
