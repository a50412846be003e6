"""What hooks are told: plain data that nobody can change."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.hooks import EVENTS, GATES, HOOKS, BeforeModelCall, Event, ModelMessage, thawed
from skynet.hooks.events import frozen
from tests.skynet.hooks.support import ADA, SESSION, one_of_each, tool_call

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_there_are_eleven_points_and_three_gates() -> None:
    """SK-142: the eight event types and the three of the model."""
    assert [hook.NAME for hook in HOOKS] == [
        "message_received",
        "message_sent",
        "tool_call",
        "tool_result",
        "agent_start",
        "agent_complete",
        "session_start",
        "session_end",
        "llm_input",
        "llm_output",
        "llm_error",
    ]
    assert [gate.NAME for gate in GATES] == ["before_message", "before_model_call", "before_tool_call"]
    assert len(EVENTS) == 14
    assert {type(event) for event in one_of_each()} == set(EVENTS.values())


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.NAME)
def test_each_says_who_and_where_and_cannot_be_changed(event: Event) -> None:
    """SK-132: a hook sees the user's id and role."""
    assert (event.user.id, event.user.role, event.user.display_name) == (ADA.id, "user", "Ada")
    assert event.session == SESSION
    assert event.at_ms > 0
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)
        assert is_plain(getattr(event, field.name)), field.name


def is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    if isinstance(value, MappingProxyType):
        return all(map(is_plain, value.values()))
    if dataclasses.is_dataclass(value):
        return all(is_plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    return value is None or isinstance(value, str | int | float)


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.NAME)
def test_a_log_tells_nothing_that_was_said(event: Event) -> None:
    assert repr(event) == f"<{event.NAME} of {ADA.id} in run {event.run}>"


@pytest.mark.parametrize("gate", GATES)
def test_what_may_be_changed_is_a_field(gate: type[Any]) -> None:
    assert {field.name for field in dataclasses.fields(gate)} > gate.CHANGEABLE


def test_the_last_text_of_the_person() -> None:
    said = (
        ModelMessage(role="user", text="a"),
        ModelMessage(role="user", text="b"),
        ModelMessage(role="tool", text="c"),
    )
    asked = BeforeModelCall(user=ADA, session=SESSION, model="", system=(), messages=said)
    assert asked.last_user_text == "b"
    assert dataclasses.replace(asked, messages=()).last_user_text == ""


class TestJson:
    @given(json_values)
    def test_what_was_frozen_is_the_same_when_it_is_thawed(self, value: Any) -> None:
        once = frozen(value)
        assert is_plain(once)
        assert thawed(once) == value
        assert msgspec.json.encode(thawed(frozen(once))) == msgspec.json.encode(value)

    def test_it_is_a_copy(self) -> None:
        inner = {"b": [1]}
        call = tool_call(a=inner)
        inner["b"].append(2)
        assert thawed(call.arguments) == {"a": {"b": [1]}}
        with pytest.raises(TypeError):
            call.arguments["a"]["b"] = 1
        changed = dataclasses.replace(call, arguments={**call.arguments, "c": 1})
        assert thawed(changed.arguments) == {"a": {"b": [1]}, "c": 1}

    def test_no_depth_is_too_deep(self) -> None:
        value: list[Any] = []
        for _ in range(5_000):
            value = [{"a": value}]
        flat = thawed(tool_call(deep=value).arguments)["deep"]
        for _ in range(5_000):
            flat = flat[0]["a"]
        assert flat == []

    def test_what_is_no_json_is_refused(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        with pytest.raises(ValueError, match="holds itself"):
            tool_call(a=circle)
        for value in (object(), b"", {1}, [{1: 2}]):
            with pytest.raises(TypeError):
                tool_call(a=value)
