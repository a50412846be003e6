"""What the bodies of several wire APIs have in common."""

from typing import Any

import pytest

from skynet_agent.messages import AssistantMessage, ImageBlock, TextBlock, UserMessage
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions
from skynet_agent.writing import answer_tokens, last_of_user, output_limit, unseen, unsupported_format


@pytest.mark.parametrize(
    ("asked", "configured", "limit", "tokens"),
    [
        (None, None, None, None),
        (None, None, 9, None),  # what it can write is no reason to say so
        (5, None, None, 5),
        (None, 9, None, 9),
        (5, 9, None, 5),
        (20, 9, None, 9),
        (20, None, 9, 9),
        (20, 9, 7, 7),
        (None, 9, 7, 7),
    ],
)
def test_an_answer_is_never_longer_than_the_model_can_write(
    asked: int | None, configured: int | None, limit: int | None, tokens: int | None
) -> None:
    """BA-084."""
    model = ModelInfo(id="m", max_output_tokens=configured, output_limit=limit)
    assert answer_tokens(model, ModelOptions(max_tokens=asked)) == tokens
    assert output_limit(model) == min((each for each in (configured, limit) if each), default=None)


def test_the_message_that_is_answered() -> None:
    first, last = UserMessage([TextBlock("a")], 1), UserMessage([TextBlock("b")], 2)
    answer = AssistantMessage([TextBlock("c")], "", "", "m", "stop", 3)
    assert last_of_user([first, answer, last, answer]) is last
    assert last_of_user([answer]) is None


def test_an_image_that_cannot_be_shown_is_named() -> None:
    assert unseen(ImageBlock("image/bmp", "AAAA")) == "[image/bmp: an image of a kind that this model cannot see]"


@pytest.mark.parametrize(
    ("wanted", "kind"), [({"type": "grammar"}, "'grammar'"), ({}, "'None'"), ({"type": "x" * 500}, f"'{'x' * 40}'")]
)
def test_a_refused_format_names_what_is_allowed(wanted: dict[str, Any], kind: str) -> None:
    refusal = unsupported_format(ProviderRow(name="lab"), ModelOptions(response_format=wanted), "text")
    assert str(refusal) == f"lab: response_format {kind} is not supported; allowed: text"
    assert refusal.provider == "lab"
