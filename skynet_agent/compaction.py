"""What of a conversation leaves a model's view, and when. Pure: who asks the model and who stores is elsewhere.

A conversation that fills its model's window is shortened in steps (SP-030 … SP-032): a summary takes the place of the
messages in its middle, of more of them when it is fuller, and when it is nearly full the oldest are left out unread.
One of many turns has the older half of them summarised, however short they are (SK-102). What is left out is always the
oldest that is not summarised yet, so that the summaries tell the conversation in order and without a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

from skynet_agent.messages import AssistantMessage, Message, ToolCallBlock, ToolResultMessage, UserMessage
from skynet_agent.routes import TYPICAL_INPUT, TYPICAL_OUTPUT, ResolvedModel
from skynet_agent.summaries import read_tokens_of
from skynet_agent.tokens import message_tokens
from skynet_agent.turn_order import turns_of

Reason: TypeAlias = Literal["turns", "full", "fuller", "overfull"]

FULL, FULLER, OVERFULL = 0.80, 0.85, 0.95
"""Shares of the window from which on the middle is summarised, more of it is, and the oldest are left out unread."""
LEFT = {"full": 0.50, "fuller": 0.30, "overfull": 0.50}
"""What share of the window the conversation fills afterwards, if what has to stay allows it."""
TURNS = 40
"""With more turns than these the older half of so many is summarised."""
KEPT_LAST = 3
"""So many messages at the end always stay, and so does the rest of their round."""
LEAST_SHARE = 0.05
"""Less of the window than this is not worth a call of a model."""
FIRST_SHARE = 0.125
"""The first message of a conversation stays, unless it fills more of the window than this."""
MOST_SCALE = 4.0
"""A provider that counts more than so many times our estimate counts something else, too."""
MOST_TOLD = 8
"""With more summaries than these the older ones are rolled up into one."""
TOLD_SHARE = 0.125
"""Of the window; with more than this in summaries they are rolled up, too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``messages[begin:end]`` are to be covered; ``is_read``: by a summary that a model writes."""

    begin: int
    end: int
    reason: Reason

    @property
    def is_read(self) -> bool:
        return self.reason != "overfull"


def plan(
    messages: Sequence[Message],
    *,
    window_tokens: int,
    counted_tokens: int = 0,
    told_tokens: int = 0,
    is_whole: bool,
    summary_tokens: int = 0,
    turns: int = TURNS,
    read_tokens: int | None = None,
) -> Plan | None:
    """What to cover now; None for nothing.

    Args:
        messages: all that is not covered, in the order of the transcript; the newest may still wait for an answer.
        counted_tokens: of the last prompt, as the provider counted; 0 if that is not known.
        told_tokens: of the summaries that the model is told before ``messages``.
        is_whole: nothing was ever covered, so that the first message is that of the conversation.
        summary_tokens: what a summary takes itself.
        read_tokens: as many as the model that summarises can read at once.
    """
    if not messages:
        return None
    estimated = told_tokens + sum(map(message_tokens, messages))
    used = max(estimated, counted_tokens)
    scale = min(used / estimated, MOST_SCALE)
    sizes = [scale * message_tokens(message) for message in messages]
    cuts = _Cuts(messages)
    share = used / window_tokens
    reason: Reason | None = (
        "overfull" if share >= OVERFULL else "fuller" if share >= FULLER else "full" if share >= FULL else None
    )
    if reason is not None:
        keeps_first = is_whole and isinstance(messages[0], UserMessage) and sizes[0] <= window_tokens * FIRST_SHARE
        begin = 1 if keeps_first else 0
        is_read = reason != "overfull"
        wanted = used - LEFT[reason] * window_tokens + (summary_tokens if is_read else 0)
        before = [0.0, *accumulate(sizes)]
        end = cuts.covering(begin, before, wanted)
        least = window_tokens * LEAST_SHARE if is_read else 0
        if end is not None and before[end] - before[begin] > least:
            return Plan(begin, cuts.readable(begin, end, read_tokens) if is_read else end, reason)
    if len(cuts.asked) > turns:
        end = cuts.between_turns(0, cuts.asked[turns // 2])
        if end is not None:
            return Plan(0, cuts.readable(0, end, read_tokens), "turns")
    return None


def rolled_up(told_tokens: Sequence[int], *, window_tokens: int) -> int:
    """How many of the summaries, the oldest ones, are to become one; 0 for none."""
    if len(told_tokens) < 2:
        return 0
    if len(told_tokens) > MOST_TOLD or sum(told_tokens) > window_tokens * TOLD_SHARE:
        return max(2, len(told_tokens) - 1)
    return 0


def cheapest(models: Iterable[ResolvedModel]) -> ResolvedModel | None:
    """The one that costs least to read much and write little; None if no price is known."""
    priced = [model for model in models if model.info.price is not None]
    return min(priced, key=_price, default=None)


def _price(model: ResolvedModel) -> float:
    assert model.info.price is not None
    price = model.info.price
    return float(price.input * TYPICAL_INPUT + price.output * TYPICAL_OUTPUT)


class _Cuts:
    """The places where a conversation may be cut: between two turns, or between two rounds of a turn that is over.

    No call of a tool is cut from its result, and nothing that still waits for its answer is before a cut.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        count = len(messages)
        turns = turns_of(messages, is_cut=not isinstance(messages[0], UserMessage))
        crossing = _crossings(count, ((turn[0], turn[-1]) for turn in turns.all if turn))
        apart = _crossings(count, _calls(messages))
        open_places = {turn[0] for turn in turns.unanswered if turn}
        end = min(open_places, default=count)
        self.asked = [
            place
            for place, message in enumerate(messages)
            if isinstance(message, UserMessage) and place not in open_places
        ]
        """Where the messages of persons stand that are answered."""
        places = [
            place
            for place in range(1, min(end, count - KEPT_LAST) + 1)
            if not apart[place] and not isinstance(messages[place], ToolResultMessage)
        ]
        self._between = [place for place in places if not crossing[place]]
        self._rounds = [place for place in places if crossing[place] <= 1 and self._begins_round(place)]

    def _begins_round(self, place: int) -> bool:
        before, after = self._messages[place - 1], self._messages[place]
        return isinstance(before, ToolResultMessage) and isinstance(after, AssistantMessage)

    def covering(self, begin: int, sums: Sequence[float], wanted: float) -> int | None:
        """The first place with ``wanted`` before it, between turns if there is one; the last there is if none has.

        Args:
            sums: of the sizes of all messages before each place.
        """
        for places in (self._between, self._rounds):
            for place in places:
                if place > begin and sums[place] - sums[begin] >= wanted:
                    return place
        return max((place for place in (*self._between, *self._rounds) if place > begin), default=None)

    def between_turns(self, begin: int, most: int) -> int | None:
        """The last place between two turns up to ``most``."""
        return max((place for place in self._between if begin < place <= most), default=None)

    def readable(self, begin: int, end: int, read_tokens: int | None) -> int:
        """``end``, or the last place before it with no more to read than ``read_tokens``; the first if none has."""
        if read_tokens is None:
            return end
        places = sorted({place for place in (*self._between, *self._rounds, end) if begin < place <= end})
        sizes = [0, *accumulate(map(read_tokens_of, self._messages))]
        return max((place for place in places if sizes[place] - sizes[begin] <= read_tokens), default=places[0])


def _crossings(count: int, spans: Iterable[tuple[int, int]]) -> list[int]:
    """For each place how many of the spans, from one message to another, begin before it and end at it or after."""
    steps = [0] * (count + 2)
    for first, last in spans:
        steps[first + 1] += 1
        steps[last + 1] -= 1
    return [*accumulate(steps)]


def _calls(messages: Sequence[Message]) -> Iterable[tuple[int, int]]:
    """Where each result stands, and before it the answer that called for it."""
    called: dict[str, int] = {}
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            called |= {block.id: place for block in message.content if isinstance(block, ToolCallBlock)}
        elif isinstance(message, ToolResultMessage) and message.tool_call_id in called:
            yield called[message.tool_call_id], place
