"""Claude, whoever runs it: how much it is to think and to write, and where the marks of its prompt cache stand.

Anthropic's format (``anthropic``) and Bedrock's (``apis/bedrock``) say both in words of their own. References, all
below https://platform.claude.com/docs/en/build-with-claude/: ``prompt-caching``, ``thinking``, ``effort``.

**Cache marks.** A prefix of the request (tools, then system, then messages) is written to the cache up to every mark.
It is read from there up to the last place where an earlier request had a mark; each mark and ``LOOKBACK_BLOCKS`` blocks
before it are searched for such a place. Four marks are allowed, and these are set:

- The ends of the two stable tiers of the system prompt.
- Where this request's own part ends: after the last tool result, or, in the first round of a turn, after the last
  user's own blocks. The next round reads up to there.
- Where what the next turn will repeat ends: after the last user's own blocks. What follows them is not repeated:
  ``request.volatile`` is gone by then, and so is the thinking of this turn. In the first round that is the same place,
  and the mark goes where the turn before had it, after the previous user's own blocks: any number of rounds may lie
  between the two. So it does, to the end of the round before, when the last round has more blocks than are searched.

So everything is written at most twice, once in its turn and once in the next. ``request.volatile`` stays in the last
user's message for all rounds of a turn. Behind the tool results it would save the second writing, but text there makes
models end their turn, and newer models refuse their own thinking when something before it has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skynet_agent.history import by_side
from skynet_agent.messages import Json, Message, ThinkingBlock, ToolResultMessage
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions, OneTool, ThinkingLevel
from skynet_agent.thinking import BUDGET_TOKENS, nearest_level
from skynet_agent.writing import output_limit

CAUTIOUS_TOKENS = 8192
"""For the answer of a model of which nobody knows how much it writes."""
LONG_ANSWER_TOKENS = 32_000
"""Nobody who asks for no length wants more, although some models can write half a million."""
LEAST_ANSWER_TOKENS = 1024
"""What thinking leaves for the answer where the two do not fit."""
LEAST_BUDGET = 1024
EFFORTS: tuple[ThinkingLevel, ...] = ("low", "medium", "high", "xhigh")
LOOKBACK_BLOCKS = 20

_ADAPTIVE: Mapping[str, Json] = {"type": "adaptive", "display": "summarized"}
"""The newest models show nothing of their thinking unless they are asked to."""


class Thinking(NamedTuple):
    """How much to think and to write.

    ``max_tokens`` is for thinking and answer together. ``config`` is Anthropic's field ``thinking``; None leaves it
    out. ``effort`` is the word for how much, for models that are told by one.
    """

    max_tokens: int
    config: Mapping[str, Json] | None = None
    effort: ThinkingLevel | None = None

    @property
    def is_on(self) -> bool:
        """Whether the model is told to think, beside which temperature and the like are refused."""
        return self.config is not None and self.config["type"] != "disabled"

    @property
    def has_budget(self) -> bool:
        """Whether a part of ``max_tokens`` is set apart for thinking, so that it has to be told."""
        return self.config is not None and "budget_tokens" in self.config


def thinking(row: ProviderRow, model: ModelInfo, options: ModelOptions, messages: Sequence[Message]) -> Thinking:
    """How much the model is told to think, and to write in all.

    The length that was asked for is the answer's: thinking has its room besides. A call that the model has to make is
    not thought about: both together are refused.
    """
    budget = BUDGET_TOKENS[options.thinking or "off"]
    limit = output_limit(model)
    answer = options.max_tokens or model.max_output_tokens or min(limit or CAUTIOUS_TOKENS, LONG_ANSWER_TOKENS)
    most = limit or answer + budget
    without, whole = Thinking(min(answer, most)), min(answer + budget, most)
    is_forced = bool(options.tools) and (options.tool_choice == "required" or isinstance(options.tool_choice, OneTool))
    if model.thinking_form == "effort":
        levels = model.thinking_levels or row.thinking_levels
        if "off" in levels and (is_forced or options.thinking == "off"):
            return without._replace(config={"type": "disabled"})  # some think unless they are told not to
        if is_forced or options.thinking is None:
            return without
        if options.thinking == "off":
            return without._replace(effort="low")  # the least, for a model that always thinks
        word = nearest_level(options.thinking, [level for level in levels if level in EFFORTS])
        return Thinking(whole, _ADAPTIVE, word)
    budget = min(budget, whole - min(answer, LEAST_ANSWER_TOKENS))
    if is_forced or budget < LEAST_BUDGET or not _may_think(messages):
        return without
    return Thinking(whole, {"type": "enabled", "budget_tokens": budget})


def _may_think(messages: Sequence[Message]) -> bool:
    """Whether this turn began with thinking, or begins now. One that began without cannot go on with a budget.

    It is still the same turn when somebody wrote something behind the results of tools.
    """
    first: Sequence[Message] = ()
    for side, group in reversed(by_side(messages)):
        if side == "assistant":
            first = group
        elif not any(isinstance(message, ToolResultMessage) for message in group):
            break
    begun = first[0].content[0] if first else None
    return begun is None or (isinstance(begun, ThinkingBlock) and bool(begun.thinking_signature))


class CacheMarks:
    """Where the marks in the messages stand: see the module. Told of the blocks in their order, by number."""

    def __init__(self) -> None:
        self._asked: list[int] = []
        self._rounds: list[int] = []  # since then

    def asked(self, block: int) -> None:
        """A user's own blocks end here."""
        self._asked.append(block)
        self._rounds.clear()

    def answered(self, block: int) -> None:
        """The results of a round end here."""
        self._rounds.append(block)

    def places(self) -> Sequence[int]:
        """The blocks that end with a mark, at most two."""
        rounds = self._rounds
        if not rounds:
            return self._asked[-2:]
        if len(rounds) > 1 and rounds[-1] - rounds[-2] >= LOOKBACK_BLOCKS:
            return rounds[-2:]
        return [*self._asked[-1:], rounds[-1]]
