from skynet.gateway.context import estimate_tokens, within_window
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
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
    messages = [user("a"), assistant("b"), user("x" * 1_000_000)]
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
