"""One turn: a model is asked, its tools are run, and it is asked again until it has answered (SK-097, SK-098).

A turn always ends in an assistant message, whatever happens, so that every transcript is complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, TypeAlias

import msgspec

from skynet_agent.draft import Draft
from skynet_agent.errors import CallRefused, ContextOverflow, ProviderError, UnknownModel
from skynet_agent.events import (
    Answered,
    Finished,
    ModelEvent,
    Shortened,
    TextDelta,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnEvent,
)
from skynet_agent.history import MISSING_RESULT
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    ToolCallBlock,
    ToolResultMessage,
)
from skynet_agent.requests import ModelRequest
from skynet_agent.shortening import next_cut, with_shorter_results, without_thinking
from skynet_agent.tokens import message_tokens
from skynet_agent.tools import tool_result

log = logging.getLogger(__name__)

MAX_ROUNDS = 25
MAX_PARALLEL_CALLS = 16
"""So many calls of one round run at once; the others wait."""
MAX_CALLS = 64
"""So many calls of one round are carried out; the others are refused, in words for the model."""
MAX_RESULT_CHARS = 20_000_000
"""Of all results of a turn together, images in base64 included: more is more than any vendor takes in one request."""
LOOP_WINDOW = 10
LOOP_REPEATS = 5
"""A call that was made with the same outcome so often among the last ``LOOP_WINDOW`` ends the turn (SK-195)."""
FAILED_ROUNDS = 3
"""So many rounds in a row in which every call failed end the turn (SK-195)."""
MAX_SHORTENINGS = 5
"""So often a conversation is made shorter for one call; each time it has about half of what it had."""
LONGEST_NAME = 64
"""What is told of a tool's name: one that does not exist may be any text."""

ToolRunner: TypeAlias = Callable[[ToolCallBlock, Callable[[str], None]], Awaitable[ToolResultMessage]]
"""Carries out a call and never raises but for cancellation; the function it gets tells of output on the way."""
Shorten: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | None]
"""A conversation that is too long for the model, made shorter; None if it cannot be."""


class Model(Protocol):
    """Whoever is asked: a :class:`~skynet_agent.router.Router`, or what stands before it."""

    def draft(self) -> Draft:
        """An empty message."""

    def stream(self, request: ModelRequest, *, draft: Draft | None = None) -> AsyncGenerator[ModelEvent, None]:
        """
        Raises:
            ProviderError, UnknownModel: nobody has answered.
            CallRefused: nobody was asked.
        """


class Turn:
    """A turn on its way.

    ``messages`` holds what is complete: answers that asked for tools, and the results. ``draft`` is the message that is
    being written. Whoever cancels ``run`` has both, and stores them with ``stopped``.

    Args:
        emit: called with every event, on the loop, in order; the last one is ``Finished``.
        tools: runs the model's calls. Without it a call ends the turn: it is the caller's to carry out.
        max_rounds: the model is asked at most so often.
        shorten: makes the conversation shorter when the model says it is too long.
        after_round: awaited when the results of a round are in ``messages``, before the model is asked again.
    """

    def __init__(
        self,
        model: Model,
        request: ModelRequest,
        *,
        emit: Callable[[TurnEvent], None],
        draft: Draft | None = None,
        tools: ToolRunner | None = None,
        max_rounds: int = MAX_ROUNDS,
        shorten: Shorten | None = None,
        after_round: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.messages: list[Message] = []
        self.draft = draft or model.draft()
        self._model = model
        self._request = request
        self._before: Sequence[Message] = request.messages
        self._emit = emit
        self._tools = tools
        self._max_rounds = max_rounds
        self._shorten = shorten
        self._after_round = after_round
        self._watch = LoopWatch()
        self._result_chars = 0
        self._cuts = 0
        self._ended = False

    async def run(self) -> Finished:
        """Carry out the turn. Its last event is returned; the message is the last of ``messages`` too.

        A failure ends the turn with ``stop_reason`` ``error``: the message holds the words of the failure and the text
        so far, ``Finished.error`` the exception. Cancelling closes the provider's stream and stops the tools at once.
        """
        error: ProviderError | UnknownModel | CallRefused | None = None
        try:
            message = await self._rounds()
        except (ProviderError, UnknownModel, CallRefused) as exc:
            log.warning("the turn failed (%s)", exc.for_log if isinstance(exc, ProviderError) else exc)
            log.debug("the turn failed: %s", exc)
            message, error = self.draft.message("error", error_message=str(exc)), exc
        self.messages.append(message)
        self._ended = True
        finished = Finished(message, error)
        self._emit(finished)
        return finished

    def stopped(self, stop_reason: StopReason, error_message: str | None = None) -> list[Message]:
        """What there is of a turn that did not end by itself, or whose end came to nothing, as far as it came.

        Calls that were not carried out have a result that says so: whoever reads the conversation later sees that it
        was this turn that ended here.
        """
        whole = self.messages[:-1] if self._ended else self.messages
        return [*whole, *_interrupted(whole), self.draft.message(stop_reason, error_message=error_message)]

    async def _rounds(self) -> AssistantMessage:
        for _ in range(self._max_rounds):
            message = await self._ask()
            calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
            if not calls or message.stop_reason != "toolUse" or self._tools is None:
                return message
            self.messages.append(message)
            self.draft.begin(message.provider, message.model, message.api)
            self._emit(Answered(message))
            results = await self._run_tools(calls, self._tools)
            if self._after_round is not None:
                await self._after_round()
            if reason := self._watch.stuck(calls, results):
                return self._give_up(reason)
            if self._request.options.tool_choice is not None:  # a call that has to be made has been made
                options = replace(self._request.options, tool_choice=None)
                self._request = replace(self._request, options=options)
        return self._give_up(f"the model was asked {self._max_rounds} times and still wanted to use tools")

    async def _ask(self) -> AssistantMessage:
        """One call of the model, with a shorter conversation should it be too long."""
        for shortenings in range(MAX_SHORTENINGS + 1):
            request = replace(self._request, messages=[*self._before, *self._since_then])
            try:
                return await self._stream(request)
            except ContextOverflow:
                if shortenings == MAX_SHORTENINGS or not self._make_shorter():
                    raise
                self._emit(Shortened())
        raise AssertionError("the last attempt returns or raises")

    @property
    def _since_then(self) -> Sequence[Message]:
        """What the turn has added so far, as the model is told it."""
        if self._before is self._request.messages and not self._cuts:
            return self.messages
        return without_thinking(with_shorter_results(self.messages, self._cuts))

    def _make_shorter(self) -> bool:
        """Tell the model less of whichever is longer: what was said before this turn, or what its tools gave."""
        if self._shorten is None:
            return False
        before, since = (sum(map(message_tokens, messages)) for messages in (self._before, self._since_then))
        if before < since:
            return self._cut_results() or self._shorten_before(self._shorten)
        return self._shorten_before(self._shorten) or self._cut_results()

    def _shorten_before(self, shorten: Shorten) -> bool:
        shorter = shorten(self._before)
        if shorter is None:
            return False
        log.warning("the conversation is too long: %d messages become %d", len(self._before), len(shorter))
        self._before = shorter
        return True

    def _cut_results(self) -> bool:
        cuts, self._cuts = self._cuts, next_cut(self.messages, self._cuts)
        if cuts == self._cuts:
            return False
        log.warning("the turn is too long: the model is told less of what its tools gave")
        return True

    async def _stream(self, request: ModelRequest) -> AssistantMessage:
        async with aclosing(self._model.stream(request, draft=self.draft)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.message
                self._emit(event)
        raise AssertionError("an answer ends with Finished")

    async def _run_tools(self, calls: Sequence[ToolCallBlock], tools: ToolRunner) -> list[ToolResultMessage]:
        """Carry out the calls of a round at the same time. ``messages`` gets each result as it comes."""
        results: dict[int, ToolResultMessage] = {}
        room = asyncio.Semaphore(MAX_PARALLEL_CALLS)

        async def carry_out(number: int, call: ToolCallBlock) -> None:
            is_over = False

            def update(text: str) -> None:
                if not is_over:  # a thread that a tool left behind may still have something to tell
                    self._emit(ToolUpdated(call, text))

            async with room:
                self._emit(ToolStarted(call))
                try:
                    result = _too_many(call) if number >= MAX_CALLS else self._bounded(call, await tools(call, update))
                finally:
                    is_over = True
            results[number] = result
            self.messages.append(result)
            self._emit(ToolEnded(call, result))

        async with asyncio.TaskGroup() as group:
            for number, call in enumerate(calls):
                group.create_task(carry_out(number, call), name=f"tool {call.name}")
        in_order = [results[number] for number in range(len(calls))]
        self.messages[-len(calls) :] = in_order
        return in_order

    def _bounded(self, call: ToolCallBlock, result: ToolResultMessage) -> ToolResultMessage:
        """``result``, if there is room for it."""
        size = sum(len(block.data if isinstance(block, ImageBlock) else block.text) for block in result.content)
        if self._result_chars + size > MAX_RESULT_CHARS:
            text = f"the result is left out: those of this turn would have more than {MAX_RESULT_CHARS} characters"
            return tool_result(call, text, is_error=True)
        self._result_chars += size
        return result

    def _give_up(self, reason: str) -> AssistantMessage:
        """The gateway's own end of a turn that would have none, told to the person like any answer."""
        log.warning("the turn was stopped: %s", reason)
        text = TextDelta(f"I stopped here: {reason}.")
        self.draft.add(text)
        self._emit(text)
        return self.draft.message("length")


class LoopWatch:
    """Notices a model that goes round in circles (SK-195)."""

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque(maxlen=LOOP_WINDOW)
        self._failed_rounds = 0

    def stuck(self, calls: Sequence[ToolCallBlock], results: Sequence[ToolResultMessage]) -> str:
        """Why the turn should end after this round; "" if it should not."""
        for call, result in zip(calls, results, strict=True):
            step = _fingerprint(call, result)
            self._recent.append(step)
            if self._recent.count(step) >= LOOP_REPEATS:
                name = call.name[:LONGEST_NAME]
                return f"{name} was called {LOOP_REPEATS} times with the same input and the same result"
        self._failed_rounds = self._failed_rounds + 1 if all(result.is_error for result in results) else 0
        if self._failed_rounds >= FAILED_ROUNDS:
            return f"every use of a tool failed {FAILED_ROUNDS} times in a row"
        return ""


def _interrupted(messages: Sequence[Message]) -> list[ToolResultMessage]:
    """Results for the calls of the last answer that have none."""
    results: Counter[str] = Counter()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            results[message.tool_call_id] += 1
            continue
        missing = []
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                if not results[block.id]:
                    missing.append(tool_result(block, MISSING_RESULT, is_error=True))
                else:
                    results[block.id] -= 1
        return missing
    return []


def _too_many(call: ToolCallBlock) -> ToolResultMessage:
    return tool_result(call, f"not carried out: at most {MAX_CALLS} calls are, at a time", is_error=True)


def _fingerprint(call: ToolCallBlock, result: ToolResultMessage) -> bytes:
    step = [call.name, call.arguments, result.content, result.is_error]
    return hashlib.sha256(msgspec.json.encode(step, order="deterministic")).digest()
