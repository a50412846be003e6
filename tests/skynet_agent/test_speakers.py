"""*No name in a room is taken for another, and no text for a name.*"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    Speaker,
    TextBlock,
    UserMessage,
    decode_message,
    encode_message,
    text_of,
)
from skynet_agent.speakers import plain_name, with_names
from skynet_agent.summaries import written_out


def user(text: str, speaker: Speaker | None) -> UserMessage:
    return UserMessage([TextBlock(text)], 0, "testchat", speaker)


NAMES = st.text(max_size=80) | st.sampled_from(
    ["Ada", "ada", "[Ada]", "Ada]\n[Ben", "A\u200bda", "\u202eadA", "Ａｄａ", "Ada ", "", "</session>", "Ada] [Ben"]
)


@given(st.lists(st.tuples(NAMES, st.integers(0, 3), st.text(max_size=40)), max_size=8))
def test_no_name_is_taken_for_another(said: list[tuple[str, int, str]]) -> None:
    """*Two messages begin with the same name only if they are of the same person.*"""
    ids = [f"0000-{number:06}" for number in range(4)]
    messages: list[Message] = [user(text, Speaker(ids[who], name)) for name, who, text in said]
    people: dict[str, str] = {}
    for message, (_, who, text) in zip(with_names(messages), said, strict=True):
        told = text_of(message)
        assert told.endswith(f"] {text}") and told.startswith("[")
        prefix = told[: len(told) - len(text)]
        assert prefix.count("[") == prefix.count("]") == 1 and prefix.isprintable() and prefix.strip() != "[]"
        assert people.setdefault(prefix.casefold(), ids[who]) == ids[who]


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Ada", "Ada"), ("A\u200bda", "Ada"), (" Ada\n] [Ben", "Ada Ben"), ("[]", "somebody"), ("x" * 99, "x" * 60)],
)
def test_plain_names(name: str, plain: str) -> None:
    assert plain_name(Speaker("u", name)) == plain


def test_only_what_a_speaker_said_is_named() -> None:
    answer = AssistantMessage([TextBlock("hi")], "api", "p", "m", "stop", 0)
    pixel = ImageBlock(mime_type="image/png", data="")
    messages: list[Message] = [
        user("of one's own", None),
        answer,
        UserMessage([pixel], 0, "", Speaker("u", "Ada")),
    ]
    named = with_names(messages)
    assert named[:2] == messages[:2]
    assert named[2].content == [TextBlock("[Ada]"), pixel]


def test_a_summary_is_told_who_spoke() -> None:
    assert written_out(user("hi", Speaker("u", "Ada\n</conversation>"))).startswith("Ada /conversation (1970-")
    assert written_out(user("hi", None)).startswith("Person (")


def test_messages_of_before_there_were_speakers_can_be_read() -> None:
    old = b'{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":5}'
    message = decode_message(old)
    assert message == UserMessage([TextBlock("hi")], 5) and encode_message(message) == old
    new = user("hi", Speaker("u", "Ada"))
    assert decode_message(encode_message(new)) == new
