"""Every call of a model on somebody's behalf: hooks are asked, the budget is reserved, and what it used is settled.

Nothing else in the gateway asks the router for an answer, so nothing is spent that no budget knows of.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

import msgspec

from skynet.hooks import (
    BeforeModelCall,
    HookBus,
    HookUsage,
    HookUser,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelMessage,
    Stopped,
)
from skynet_agent.cost import with_cost
from skynet_agent.draft import Draft
from skynet_agent.errors import CallRefused, ProviderError, UnknownModel
from skynet_agent.events import Finished, ModelEvent, Started, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    text_of,
)
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from skynet_agent.tokens import request_tokens
from skynet_memory.ids import RunId, SessionId, SessionKey, UserId, now_ms
from skynet_memory.usage import UsageRecord, UsageStore
from skynet_users.budgets import BudgetExceeded, Ledger, Reservation

log = logging.getLogger(__name__)

RESERVED_ANSWER_TOKENS = 16_384
"""What is set aside for an answer that no limit of the request or the model makes shorter."""


class Screen(Protocol):
    """What an answer passes on its way to somebody."""

    def feed(self, text: str) -> str:
        """The next part of the answer; returns what may be shown now."""

    async def finish(self, calls: Sequence[ToolCallBlock]) -> tuple[str, Sequence[ToolCallBlock]]:
        """The answer is complete: the rest of it, or what stands in its place, and those calls that it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """On whose behalf a model is asked, and for which conversation."""

    user: HookUser
    key: SessionKey
    session_id: SessionId
    run_id: RunId | None = None

    @property
    def owner(self) -> UserId:
        """Who pays."""
        return self.user.id


class ModelCalls:
    """
    Args:
        usage: where calls are recorded that belong to no run; a run records its own.
    """

    def __init__(
        self,
        router: Router,
        ledger: Ledger,
        hooks: HookBus,
        usage: UsageStore,
        *,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.router = router
        self.hooks = hooks
        self._ledger = ledger
        self._usage = usage
        self._clock = clock

    async def check(self, owner: UserId) -> None:
        """Whether this person may ask a model now.

        Raises:
            CallRefused: a budget is used up.
        """
        try:
            await self._ledger.check(owner)
        except BudgetExceeded as exc:
            raise self._used_up(exc) from exc

    def of(self, account: Account, screen: Callable[[], Screen] | None = None) -> "Asker":
        """Asks in this person's name, for one run.

        Args:
            screen: makes what one message has to pass, for people whose answers are looked at before they are shown.
        """
        return Asker(self, account, screen)

    async def ask(self, account: Account, request: ModelRequest) -> AssistantMessage:
        """The whole answer to a question that belongs to no run, recorded as the person's usage.

        Raises:
            CallRefused, ProviderError, UnknownModel: as a run would end with.
        """
        draft = self.router.draft()
        try:
            async with aclosing(self.of(account).stream(request, draft=draft)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        return event.message
        finally:
            if draft.usage is not None:
                records = usage_records([draft.message("stop")], self._clock())
                await self._usage.add(
                    account.owner, account.key, account.session_id, account.run_id or RunId(""), records
                )
        raise AssertionError("an answer ends with Finished")

    async def reserve(self, account: Account, request: ModelRequest) -> Reservation:
        """Set aside what ``request`` may use.

        Raises:
            CallRefused: a budget is used up.
        """
        try:
            info = self.router.resolve(request.model).info
        except UnknownModel:  # which is what the router will say
            output, price = 0, None
        else:
            output, price = RESERVED_ANSWER_TOKENS, info.price
            for limit in (request.options.max_tokens, info.output_limit):
                output = output if limit is None else min(output, limit)
        prompt = request_tokens(request)
        estimate = with_cost(Usage(prompt, output, 0, 0, prompt + output), price)
        try:
            return await self._ledger.reserve(account.owner, estimate.total, estimate.cost_microusd)
        except BudgetExceeded as exc:
            raise self._used_up(exc) from exc

    def _used_up(self, exceeded: BudgetExceeded) -> CallRefused:
        return CallRefused(
            str(exceeded),
            code="BUDGET_EXCEEDED",
            details={
                "whose": exceeded.whose,
                "period": exceeded.period,
                "unit": exceeded.unit,
                "used": exceeded.used,
                "limit": exceeded.limit,
                "resetsAtMs": exceeded.resets_at_ms,
            },
            retry_after_ms=max(0, exceeded.resets_at_ms - self._clock()),
        )


class Asker:
    """The model as one run sees it; a :class:`~skynet_agent.turn.Turn` asks it."""

    def __init__(self, calls: ModelCalls, account: Account, screen: Callable[[], Screen] | None) -> None:
        self._calls = calls
        self._account = account
        self._screen = screen
        self._round = 0

    def draft(self) -> Draft:
        return self._calls.router.draft()

    async def stream(self, request: ModelRequest, *, draft: Draft | None = None) -> AsyncGenerator[ModelEvent, None]:
        """As :meth:`skynet_agent.router.Router.stream`; what is refused was not asked.

        Raises:
            CallRefused: a hook said no, or a budget is used up.
        """
        draft = draft or self.draft()
        self._round += 1
        request = await self._admitted(request, draft)
        reservation = await self._calls.reserve(self._account, request)
        try:
            answer = self._plain(request, draft) if self._screen is None else self._filtered(request, draft)
            async with aclosing(answer) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        self._announce_answer(event.message)
                    yield event
        except (ProviderError, UnknownModel) as exc:
            self._announce_failure(request, exc)
            raise
        finally:
            if draft.usage is None:
                reservation.release()
            else:
                reservation.settle(draft.usage.total, draft.usage.cost_microusd)

    def _plain(self, request: ModelRequest, draft: Draft) -> AsyncGenerator[ModelEvent, None]:
        return self._calls.router.stream(request, draft=draft)

    async def _filtered(self, request: ModelRequest, draft: Draft) -> AsyncGenerator[ModelEvent, None]:
        """What passes the filter; ``draft`` never holds anything else. Thinking is not shown, nor kept; tool calls come
        last, as they were understood: what cannot be read is not passed on."""
        assert self._screen is not None
        screen, inner = self._screen(), self.draft()
        try:
            async with aclosing(self._plain(request, inner)) as events:
                async for event in events:
                    match event:
                        case Started():
                            draft.begin(event.provider, event.model, event.api)
                            yield event
                        case TextDelta(text):
                            if shown := screen.feed(text):
                                draft.add(TextDelta(shown))
                                yield TextDelta(shown)
                        case ThinkingDelta() | ToolCallDelta():
                            pass
                        case Finished(message):
                            called = [block for block in message.content if isinstance(block, ToolCallBlock)]
                            rest, calls = await screen.finish(called)
                            for delta in (*([TextDelta(rest)] if rest else ()), *map(_whole_call, count(), calls)):
                                draft.add(delta)
                                yield delta
                            draft.usage = inner.usage
                            yield Finished(draft.message("stop" if called and not calls else message.stop_reason))
        finally:
            draft.usage = inner.usage

    # Hooks

    async def _admitted(self, request: ModelRequest, draft: Draft) -> ModelRequest:
        hooks, account = self._calls.hooks, self._account
        if not (hooks.has(BeforeModelCall) or hooks.has(ModelAsked)):
            return request
        told = tuple(_told(message) for message in request.messages)
        gate = BeforeModelCall(
            user=account.user,
            session=account.key,
            run=account.run_id,
            model=request.model,
            system=(*request.system, request.volatile),
            messages=told,
            round=self._round,
        )
        try:
            gate = await hooks.ask(gate)
        except Stopped as stopped:
            draft.begin("", "", "")
            raise CallRefused(stopped.reason, code="BLOCKED") from stopped
        if gate.system_suffix:
            volatile = "\n\n".join(part for part in (request.volatile, gate.system_suffix) if part)
            request = replace(request, volatile=volatile)
        hooks.announce(
            ModelAsked(
                user=account.user,
                session=account.key,
                run=account.run_id,
                model=request.model,
                system=(*request.system, request.volatile),
                messages=told,
                round=self._round,
            )
        )
        return request

    def _announce_answer(self, message: AssistantMessage) -> None:
        hooks, account = self._calls.hooks, self._account
        if hooks.has(ModelAnswered):
            hooks.announce(
                ModelAnswered(
                    user=account.user,
                    session=account.key,
                    run=account.run_id,
                    provider=message.provider,
                    model=message.model,
                    text=text_of(message),
                    tools=tuple(block.name for block in message.content if isinstance(block, ToolCallBlock)),
                    stop_reason=message.stop_reason,
                    usage=hook_usage(message.usage),
                    round=self._round,
                )
            )

    def _announce_failure(self, request: ModelRequest, error: Exception) -> None:
        hooks, account = self._calls.hooks, self._account
        if hooks.has(ModelFailed):
            hooks.announce(
                ModelFailed(
                    user=account.user,
                    session=account.key,
                    run=account.run_id,
                    model=request.model,
                    error=type(error).__name__,
                    words=str(error),
                    round=self._round,
                )
            )


def usage_records(messages: Sequence[Message], at_ms: int) -> list[UsageRecord]:
    """A record for each call of a model."""
    return [
        UsageRecord(
            provider=message.provider,
            model=message.model,
            input=message.usage.input,
            output=message.usage.output,
            cache_read=message.usage.cache_read,
            cache_write=message.usage.cache_write,
            cost_microusd=message.usage.cost_microusd,
            cost_parts=message.usage.cost_parts,
            at_ms=at_ms,
            estimated=message.usage.estimated,
        )
        for message in messages
        if isinstance(message, AssistantMessage) and message.usage is not None
    ]


def hook_usage(*usages: Usage | None) -> HookUsage:
    """What calls used, as hooks are told; those that told nothing count as nothing."""
    known = [usage for usage in usages if usage is not None]
    costs = [usage.cost_microusd for usage in known]
    return HookUsage(
        input_tokens=sum(usage.input + usage.cache_read + usage.cache_write for usage in known),
        output_tokens=sum(usage.output for usage in known),
        cost_microusd=sum(cost or 0 for cost in costs) if costs and None not in costs else None,
    )


def _whole_call(index: int, call: ToolCallBlock) -> ToolCallDelta:
    arguments = msgspec.json.encode(call.arguments).decode()
    return ToolCallDelta(index, call.id, call.name, arguments, call.thought_signature)


def _told(message: Message) -> ModelMessage:
    match message:
        case UserMessage():
            return ModelMessage(role="user", text=_text(message))
        case ToolResultMessage():
            return ModelMessage(role="tool", text=_text(message))
        case _:
            return ModelMessage(role="assistant", text=_text(message))


def _text(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
