"""How much Claude thinks, and where its cache marks stand; what that is on the wire is tested with each wire API."""

from collections.abc import Sequence
from typing import Any

import pytest

from skynet_agent.claude import CAUTIOUS_TOKENS, LONG_ANSWER_TOKENS, LOOKBACK_BLOCKS, CacheMarks, Thinking, thinking
from skynet_agent.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions, OneTool, ThinkingLevel, ToolDefinition

ROW = ProviderRow(name="lab", thinking_levels=("off", "low", "medium", "high"))
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
FORCED: dict[str, Any] = {"tools": [ToolDefinition(name="exec")], "tool_choice": "required"}
ASKED = UserMessage([TextBlock("a")], 1)
CALL = ToolCallBlock("c", "exec", {})
RESULT = ToolResultMessage("c", "exec", [], False, 3)


def answer(*blocks: Any) -> AssistantMessage:
    return AssistantMessage(list(blocks), "anthropic-messages", "lab", "claude-1", "toolUse", 2)


def told(
    level: ThinkingLevel | None, messages: Sequence[Message] = (ASKED,), model: ModelInfo | None = None, **options: Any
) -> Thinking:
    info = model or ModelInfo(id="claude-1", reasoning=True)
    return thinking(ROW, info, ModelOptions(thinking=level, **options), messages)


class TestBudgets:
    """A model that is told by a number of tokens."""

    def test_the_answer_has_its_room_besides(self) -> None:
        assert told("low", max_tokens=100) == Thinking(4196, {"type": "enabled", "budget_tokens": 4096})
        assert told("low", max_tokens=100).is_on and told("low", max_tokens=100).has_budget

    @pytest.mark.parametrize("level", [None, "off"])
    def test_without_thinking_nothing_is_said(self, level: ThinkingLevel | None) -> None:
        assert told(level, max_tokens=100) == Thinking(100)
        assert not told(level).is_on and not told(level).has_budget

    @pytest.mark.parametrize(
        ("limits", "most"),
        [
            ({}, CAUTIOUS_TOKENS),
            ({"output_limit": 4096}, 4096),
            ({"output_limit": 500_000}, LONG_ANSWER_TOKENS),
            ({"max_output_tokens": 64_000}, 64_000),
            ({"max_output_tokens": 64_000, "output_limit": 32_000}, 32_000),
        ],
    )
    def test_who_asks_for_no_length_gets_a_usual_one(self, limits: dict[str, int], most: int) -> None:
        assert told(None, model=ModelInfo(id="claude-1", **limits)).max_tokens == most  # type: ignore[arg-type]

    def test_thinking_leaves_room_for_an_answer_or_is_left_out(self) -> None:
        small = ModelInfo(id="claude-1", max_output_tokens=2048)
        assert told("high", model=small) == Thinking(2048, {"type": "enabled", "budget_tokens": 1024})
        assert told("high", model=ModelInfo(id="claude-1", max_output_tokens=2047)) == Thinking(2047)

    @pytest.mark.parametrize("choice", ["required", OneTool("exec")])
    def test_a_forced_call_is_not_thought_about(self, choice: Any) -> None:
        assert not told("high", **{**FORCED, "tool_choice": choice}).is_on
        assert told("high", tool_choice=choice).is_on  # there is no tool that could be called

    @pytest.mark.parametrize(
        ("messages", "thinks"),
        [
            ([ASKED], True),
            ([ASKED, answer(ThinkingBlock("hm", "sig"), CALL), RESULT], True),
            ([ASKED, answer(ThinkingBlock("hm", "sig"), CALL), RESULT, answer(CALL), RESULT], True),
            ([ASKED, answer(CALL), RESULT], False),
            ([ASKED, answer(ThinkingBlock("cut"), CALL), RESULT], False),
            ([ASKED, answer(CALL), RESULT, ASKED], False),
            ([ASKED, answer(CALL), RESULT, answer(TextBlock("b")), ASKED], True),
        ],
    )
    def test_a_turn_that_began_without_thinking_goes_on_so(self, messages: Sequence[Message], thinks: bool) -> None:
        assert told("low", messages).is_on is thinks


class TestEfforts:
    """A model that is told by a word."""

    @staticmethod
    def model(*levels: ThinkingLevel) -> ModelInfo:
        return ModelInfo(id="claude-2", reasoning=True, thinking_form="effort", thinking_levels=levels)

    @pytest.mark.parametrize(
        ("levels", "level", "config", "effort"),
        [
            ((), None, None, None),
            ((), "minimal", ADAPTIVE, "low"),
            ((), "xhigh", ADAPTIVE, "high"),  # of the row's levels
            (("low", "xhigh"), "xhigh", ADAPTIVE, "xhigh"),
            (("minimal",), "low", ADAPTIVE, None),
            (("off", "low"), "off", {"type": "disabled"}, None),
            (("low", "high"), "off", None, "low"),  # it always thinks
        ],
    )
    def test_words(
        self, levels: tuple[ThinkingLevel, ...], level: ThinkingLevel | None, config: Any, effort: str | None
    ) -> None:
        thought = told(level, model=self.model(*levels))
        assert (thought.config, thought.effort) == (config, effort)
        assert thought.is_on is (config == ADAPTIVE)
        assert not thought.has_budget

    def test_a_forced_call_is_not_thought_about(self) -> None:
        assert told("high", model=self.model("low"), **FORCED).config is None
        for level in (None, "high"):  # some think unless they are told not to
            assert told(level, model=self.model("off", "low"), **FORCED).config == {"type": "disabled"}

    def test_it_may_begin_to_think_at_any_time(self) -> None:
        assert told("low", [ASKED, answer(CALL), RESULT], self.model()).is_on


class TestCacheMarks:
    def test_nothing_was_said(self) -> None:
        assert list(CacheMarks().places()) == []

    def test_the_first_round_marks_the_ends_of_the_last_two_questions(self) -> None:
        marks = CacheMarks()
        places = []
        for block in (0, 3, 5):
            marks.asked(block)
            places.append(list(marks.places()))
        assert places == [[0], [0, 3], [3, 5]]

    def test_later_rounds_mark_the_question_and_the_last_results(self) -> None:
        marks = CacheMarks()
        marks.asked(0)
        marks.asked(2)
        marks.answered(5)
        assert list(marks.places()) == [2, 5]
        marks.answered(9)
        assert list(marks.places()) == [2, 9]
        marks.asked(11)
        assert list(marks.places()) == [2, 11]

    @pytest.mark.parametrize(("blocks", "places"), [(LOOKBACK_BLOCKS - 1, [0, 21]), (LOOKBACK_BLOCKS, [2, 22])])
    def test_a_round_of_more_blocks_than_are_searched_marks_the_round_before(
        self, blocks: int, places: list[int]
    ) -> None:
        marks = CacheMarks()
        marks.asked(0)
        marks.answered(2)
        marks.answered(2 + blocks)
        assert list(marks.places()) == places
