"""How a conversation that is too long for a model becomes shorter."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.run_request import shorter
from skynet_agent.messages import AssistantMessage, Message, TextBlock, UserMessage
from skynet_agent.tokens import message_tokens


def conversation(kinds: Sequence[str], sizes: Sequence[int]) -> list[Message]:
    return [
        UserMessage([TextBlock(size * "x")], 1)
        if kind == "u"
        else AssistantMessage([TextBlock(size * "x")], "", "", "", "stop", 1)
        for kind, size in zip(kinds, sizes, strict=False)
    ]


def tokens(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))


SIZES = st.lists(st.integers(0, 5000), min_size=20, max_size=20)


@given(st.lists(st.sampled_from("ua"), max_size=19), SIZES)
def test_each_time_half_of_it_is_left_out_and_the_last_turn_never(kinds: list[str], sizes: list[int]) -> None:
    messages: Sequence[Message] = conversation([*kinds, "u"], sizes)
    last = messages[-1]
    while (less := shorter(messages)) is not None:
        assert list(messages[-len(less) :]) == list(less)
        assert len(less) < len(messages) and isinstance(less[0], UserMessage) and less[-1] is last
        later_turns = sum(isinstance(message, UserMessage) for message in less) - 1
        assert not later_turns or 2 * tokens(less) <= tokens(messages)
        messages = less
    assert sum(isinstance(message, UserMessage) for message in messages) == 1


def test_a_conversation_of_one_turn_cannot_be_shorter() -> None:
    assert shorter(conversation("u", [5])) is None
    assert shorter(conversation("uaa", [5, 5, 5])) is None
    assert shorter(conversation("aa", [5, 5])) is None
    assert shorter([]) is None
