import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.previews import role_and_text, shorten
from skynet_protocol.chat import add_time_prefix


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "hi\n there "}, ("user", "hi there")),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "…"}]}, ("user", "a")),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}]},
            ("assistant", "b"),
        ),
        ({"role": "toolResult", "toolCallId": "1", "content": []}, ("toolResult", "")),
        ({"role": "user", "content": "[Sat 2026-11-21 01:20 UTC] hello"}, ("user", "hello")),
        ({"role": "user", "content": "[Sat] hello"}, ("user", "[Sat] hello")),
        (
            {"role": "assistant", "content": "[Sat 2026-11-21 01:20 UTC] x"},
            ("assistant", "[Sat 2026-11-21 01:20 UTC] x"),
        ),
        ({"role": 1, "content": "x"}, ("", "")),
        ([], ("", "")),
    ],
)
def test_role_and_text(message: object, expected: tuple[str, str]) -> None:
    assert role_and_text(json.dumps(message).encode()) == expected


@given(st.text(), st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_the_time_that_the_gateway_puts_before_a_text_is_no_part_of_it(text: str, now: datetime) -> None:
    sent = add_time_prefix(text, now)
    if sent != text:
        _, shown = role_and_text(json.dumps({"role": "user", "content": sent}).encode())
        assert shown == " ".join(text.split())


@given(st.binary(max_size=200))
def test_any_bytes_have_some_text(payload: bytes) -> None:
    role, text = role_and_text(payload)
    assert isinstance(role, str)
    assert isinstance(text, str)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("exactly ten", "exactly…"),
        ("abcdefghijklmnop", "abcdefghi…"),
        ("ab cdefghijklmnop", "ab cdefgh…"),
    ],
)
def test_shorten(text: str, expected: str) -> None:
    assert shorten(text, 10) == expected


@given(st.text(max_size=200))
def test_never_longer(text: str) -> None:
    short = shorten(text, 60)
    assert len(short) <= 60
    assert short == text or short.endswith("…")
