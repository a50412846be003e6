"""Every call of a model is reserved, settled, and told to hooks; nothing is spent that no budget knows of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.model_calls import RESERVED_ANSWER_TOKENS, Account, ModelCalls
from skynet.hooks import BeforeModelCall, Block, HookUser, ModelAnswered, ModelAsked, ModelFailed
from skynet_agent.errors import CallRefused, ProviderError, UnknownModel
from skynet_agent.messages import TextBlock, UserMessage, text_of
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_agent.router import Router
from skynet_memory.ids import AgentId, Role, RunId, SessionId, UserId
from skynet_memory.keys import build_key
from skynet_memory.usage import UsageStore
from skynet_users.budgets import Limits
from tests.skynet.gateway.stage import Stage, end_of, open_stage
from tests.skynet.gateway.test_tool_runs import Look
from tests.support.pipeline import make_ledger
from tests.support.polling import until

PRICE = Price(input=1_000_000, output=2_000_000)
"""A dollar and two per million tokens: a micro-dollar and two a token."""


@pytest.fixture
async def stages(tmp_path: Path) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def make(**fields: Any) -> Stage:
            return await stack.enter_async_context(open_stage(tmp_path, **fields))

        yield make


def account(owner: UserId) -> Account:
    return Account(
        user=HookUser(id=owner, role=Role.USER, display_name="Ada"),
        key=build_key(owner, AgentId("main"), "main"),
        session_id=SessionId("s"),
    )


def question(text: str = "say=hello", **options: Any) -> ModelRequest:
    return ModelRequest(messages=[UserMessage([TextBlock(text)], 0)], options=ModelOptions(**options))


async def used(stage: Stage, owner: UserId) -> int:
    return (await stage.ledger.status(owner)).day.used.tokens


async def reserved(stage: Stage, owner: UserId) -> int:
    return (await stage.ledger.status(owner)).day.reserved.tokens


class TestBudgets:
    async def test_the_turn_that_crosses_it_is_the_last(self, stages: Any) -> None:
        """SK-124"""
        stage = await stages(limits=Limits(daily_tokens=10))
        first = await stage.end("say=hello prompt=14")
        assert first.status == "ok"
        assert await used(stage, stage.ada) == 15
        with pytest.raises(CallRefused, match=r"^You have used 15 of 10 tokens for today; it") as caught:
            await stage.submit("say=more")
        assert caught.value.code == "BUDGET_EXCEEDED"
        assert (caught.value.details["used"], caught.value.details["limit"]) == (15, 10)
        assert caught.value.retry_after_ms is not None
        assert 0 < caught.value.retry_after_ms <= 86_400_000
        assert await stage.said() == ["say=hello prompt=14", "hello"]

    async def test_another_person_is_not_stopped_by_it(self, stages: Any) -> None:
        """BA-292"""
        stage = await stages(limits=Limits(daily_tokens=10))
        assert (await stage.end("say=hello prompt=14")).status == "ok"
        assert (await stage.end("say=hello prompt=2", who=stage.ben)).status == "ok"

    async def test_the_house_stops_everybody(self, stages: Any) -> None:
        stage = await stages(house=Limits(daily_tokens=10))
        assert (await stage.end("say=hello prompt=14")).status == "ok"
        with pytest.raises(CallRefused, match=r"^All people of this house together have used 15 of 10 tokens"):
            await stage.submit("say=hello", who=stage.ben)

    async def test_it_is_enforced_between_the_rounds_of_a_turn(self, tmp_path: Path) -> None:
        async with open_stage(tmp_path, Look().tool(), limits=Limits(daily_tokens=10)) as stage:
            result = await stage.end("tool=look:{} every-round prompt=14")
            assert result.status == "error"
            assert "14 of 10 tokens" in result.error
            assert len(stage.models.requests) == 1
            assert await reserved(stage, stage.ada) == 0

    async def test_a_hundred_turns_at_once_overshoot_by_one_reservation_at_most(self, stages: Any) -> None:
        """SK-124: 100 parallel turns of one person, each of 1,000 tokens, with 3,000 to use."""
        limit, each = 3_000, 1_000
        stage = await stages(limits=Limits(daily_tokens=limit))

        async def turn(number: int) -> str:
            try:
                run = await stage.submit(f"say=hello prompt={each - 1} first=30", name=f"s{number}")
            except CallRefused as exc:
                return exc.code
            return (await end_of(run)).status

        # 64 of one person may be answered at a time; the others are told so, which is no matter of the budget
        ends = [*await asyncio.gather(*map(turn, range(50))), *await asyncio.gather(*map(turn, range(50, 100)))]
        assert await reserved(stage, stage.ada) == 0
        spent = await used(stage, stage.ada)
        assert spent == ends.count("ok") * each
        assert 0 < spent <= limit + RESERVED_ANSWER_TOKENS
        assert len(ends) == 100
        stored = await UsageStore(stage.db).spent(stage.ada, 0)
        assert stored[0] == spent

    async def test_what_was_used_is_known_after_a_restart(self, stages: Any) -> None:
        stage = await stages(limits=Limits(daily_tokens=10))
        assert (await stage.end("say=hello prompt=14")).status == "ok"
        later = make_ledger(stage.db, limits=Limits(daily_tokens=10))
        assert (await later.status(stage.ada)).day.used.tokens == 15

    async def test_an_aborted_turn_is_settled(self, stages: Any) -> None:
        stage = await stages(limits=Limits(daily_tokens=1_000_000))
        run = await stage.submit("tokens=50 delay=1000")
        await until(lambda: run.draft.usage is not None or run.draft.message("stop").content, "the first words")
        assert await reserved(stage, stage.ada) > RESERVED_ANSWER_TOKENS
        run.abort("rpc")
        await end_of(run)
        assert await reserved(stage, stage.ada) == 0
        assert await used(stage, stage.ada) > 0

    async def test_a_call_that_nobody_answers_costs_nothing(self, stages: Any) -> None:
        stage = await stages(limits=Limits(daily_tokens=1_000_000))
        assert (await stage.end("fail=400")).status == "error"
        assert await reserved(stage, stage.ada) == await used(stage, stage.ada) == 0


class TestReservations:
    async def test_an_estimate_is_of_all_that_may_be_used(self, stages: Any) -> None:
        stage = await stages()
        row = ProviderRow(
            name="mock",
            base_url=stage.models.url,
            models=(ModelInfo(id="mock-1", output_limit=5_000, price=PRICE), ModelInfo(id="other")),
        )
        router = Router([row])
        ledger = make_ledger(stage.db, limits=Limits(daily_tokens=10**9, daily_microusd=10**9))
        calls = ModelCalls(router, ledger, stage.hooks, UsageStore(stage.db))
        for request, answer, priced in (
            (question(), 5_000, True),
            (question(max_tokens=100), 100, True),
            (replace(question(), model="mock/other"), RESERVED_ANSWER_TOKENS, False),
            (replace(question(), model="nobody/none"), 0, False),
        ):
            reservation = await calls.reserve(account(stage.ada), request)
            day = (await ledger.status(stage.ada)).day
            prompt = day.reserved.tokens - answer
            assert 0 < prompt < 50
            assert day.reserved.microusd == (prompt + 2 * answer if priced else 0)
            reservation.release()
        await router.aclose()

    async def test_what_belongs_to_no_run_is_recorded(self, stages: Any) -> None:
        stage = await stages()
        calls = stage.calls
        message = await calls.ask(account(stage.ada), question("say=fact prompt=33"))
        assert text_of(message) == "fact"
        assert await UsageStore(stage.db).spent(stage.ada, 0) == (34, 0)
        assert await used(stage, stage.ada) == 34

    @pytest.mark.parametrize(
        ("request_", "error"),
        [(question("fail=400"), ProviderError), (replace(question(), model="nobody/none"), UnknownModel)],
    )
    async def test_its_failure_is_raised(self, stages: Any, request_: ModelRequest, error: type[Exception]) -> None:
        stage = await stages()
        with pytest.raises(error):
            await stage.calls.ask(account(stage.ada), request_)
        assert await used(stage, stage.ada) == await reserved(stage, stage.ada) == 0


class TestHooks:
    async def test_they_are_told_of_each_call(self, stages: Any) -> None:
        """SK-142: llm input and output."""
        stage = await stages()
        told: list[Any] = []
        for event in (ModelAsked, ModelAnswered, ModelFailed):
            stage.hooks.register(event, told.append)
        run = await stage.submit("say=hello prompt=14", "run-1")
        await end_of(run)
        await until(lambda: len(told) == 2, "both are told")
        asked, answered = sorted(told, key=lambda event: event.NAME)
        assert (asked.NAME, answered.NAME) == ("llm_input", "llm_output")
        assert (asked.user.id, asked.run, asked.session) == (stage.ada, RunId("run-1"), run.key)
        assert asked.messages[-1].text.startswith("say=hello")
        assert (answered.text, answered.usage.input_tokens, answered.usage.output_tokens) == ("hello", 14, 1)

    async def test_one_may_add_to_the_prompt(self, stages: Any) -> None:
        stage = await stages()
        stage.hooks.register(BeforeModelCall, lambda event: replace(event, system_suffix="Rhyme."))
        assert (await stage.end("say=hello")).status == "ok"
        assert "Rhyme." in str(stage.models.requests[0].body)

    async def test_one_may_stop_the_call(self, stages: Any) -> None:
        """SK-140: no model call, and the caller gets the reason."""
        stage = await stages()
        stage.hooks.register(BeforeModelCall, lambda event: Block("not on Sundays"))
        result = await stage.end("say=hello")
        assert (result.status, result.error) == ("error", "not on Sundays")
        assert not stage.models.requests

    async def test_a_failure_is_told(self, stages: Any) -> None:
        stage = await stages()
        told: list[ModelFailed] = []
        stage.hooks.register(ModelFailed, told.append)
        await stage.end("fail=400")
        await until(lambda: told, "it is told")
        assert told[0].error == "BadRequest"
