"""Budgets as people meet them: refused before a model is asked, in the middle of a turn, and told in words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.model_calls import Account
from skynet.hooks import HookUser
from skynet.models import provider_rows
from skynet.supervisor import Supervisor
from skynet.tables import TABLES
from skynet_agent.messages import TextBlock, UserMessage
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_agent.router import Router
from skynet_memory.database import Database
from skynet_memory.ids import DEFAULT_AGENT, Role, SessionId
from skynet_memory.keys import build_key
from skynet_memory.migrations import migrate
from skynet_memory.usage import UsageStore
from skynet_users.budgets import Limits, Spent
from skynet_users.people import UserStore
from tests.end_to_end.scene import add_person, answer, say, send, tool
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, gateway_config, running_gateway
from tests.support.model_server import ModelServer
from tests.support.pipeline import make_calls, make_ledger
from tests.support.polling import until

LIMIT = 20_000
ANSWER_TOKENS = 200
LIMITS = f"""
[agent]
max_output_tokens = {ANSWER_TOKENS}
[budgets.user]
daily_tokens = {LIMIT}
[budgets.house]
daily_tokens = 1000000
"""
WORDS = re.compile(
    r"You have used [\d,]+ of 20,000 tokens for today(, and answers under way need the rest)?;"
    r" it starts again on \w{3} \d+ \w{3}, 00:00\."
)


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models, toml=LIMITS, env={"TZ": "UTC"}) as running:
        yield running


@pytest.fixture
async def ben(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    """A client of somebody whose tokens are limited."""
    _, token = await add_person(gateway, Role.USER, "Ben")
    async with gateway.client(token=token) as client:
        yield client


async def used(client: WireClient) -> int:
    """What is stored of one's usage."""
    totals: dict[str, Any] = (await client.call("usage.cost", {"days": 2}))["totals"]
    return int(totals["totalTokens"])


async def refusal_of(client: WireClient) -> str:
    """The words with which a message is refused, at once."""
    with pytest.raises(Refused, match=WORDS) as refusal:
        await send(client, "hello")
    return str(refusal.value)


async def test_60_turns_at_once_overshoot_by_at_most_one_call(ben: WireClient, models: ModelServer) -> None:
    """SK-124, BA-292: as many as one person may have under way."""

    async def turn(number: int) -> str:
        """The words of the refusal, if it was refused: at once, or when its turn came."""
        try:
            run = await send(ben, "tokens=20 prompt=1500 delay=1", key=f"agent:main:s{number}")
        except Refused as refusal:
            return str(refusal)
        end = await ben.chat_end(run, timeout=60)
        return "" if end["state"] == "final" else str(end["errorMessage"])

    async with asyncio.TaskGroup() as group:
        turns = [group.create_task(turn(number)) for number in range(60)]
    refused = [task.result() for task in turns if task.result()]
    answered = [task for task in turns if not task.result()]
    assert refused and answered
    for words in refused:
        assert WORDS.fullmatch(words), words
    assert len(models.bodies) == len(answered), "a refused message asks no model"
    greatest = 1520
    assert await used(ben) == greatest * len(answered) < LIMIT + greatest
    budget = await ben.call("users.budget", {})
    assert budget["day"]["tokens"] == {"used": greatest * len(answered), "reserved": 0, "limit": LIMIT}
    assert "houseDay" not in budget


async def test_it_ends_a_turn_between_two_rounds(ben: WireClient, models: ModelServer) -> None:
    """SK-124: what the rounds before used is kept, with what they said."""
    loop = f"say=looking {tool('list_files')} prompt=9000 every-round"
    end = await say(ben, loop)
    assert end["state"] == "error"
    assert WORDS.fullmatch(end["errorMessage"]), end
    assert len(models.bodies) == 3  # 9,001 and 18,002 are below the limit
    assert LIMIT <= await used(ben) < LIMIT + 9100
    assert await refusal_of(ben)
    assert len(models.bodies) == 3


async def test_nobody_elses_budget_is_touched_and_a_warning_comes_once(
    gateway: RunningGateway, ben: WireClient
) -> None:
    await answer(ben, "tokens=1 prompt=16500")
    warning = await ben.event(lambda event: event["event"] == "budget.warning")
    payload = warning["payload"]
    assert (payload["whose"], payload["period"], payload["unit"], payload["limit"]) == ("you", "day", "tokens", LIMIT)
    assert payload["message"].startswith("You have used 16,501 of 20,000 tokens for today")
    await answer(ben, "tokens=1 prompt=100")
    assert len([event for event in ben.events if event["event"] == "budget.warning"]) == 1
    await answer(ben, "tokens=1 prompt=5000")
    assert await refusal_of(ben)
    async with gateway.client() as owner:
        assert await answer(owner, "say=hello") == "hello"
        assert not [event for event in owner.events if event["event"] == "budget.warning"]


async def test_an_admin_raises_a_limit_and_it_goes_on(gateway: RunningGateway, ben: WireClient) -> None:
    """BA-292: a person's own limit comes before the role's, from the next call on."""
    await answer(ben, "tokens=1 prompt=25000")
    assert await refusal_of(ben)
    async with gateway.client() as owner:
        (person,) = [row for row in (await owner.call("users.list"))["users"] if row["displayName"] == "Ben"]
        await owner.call("users.set", {"userId": person["id"], "dailyTokens": 100_000})
        assert await answer(ben, "say=hello") == "hello"
        cost = await owner.call("usage.cost", {"userId": person["id"]})
        assert cost["people"][0]["displayName"] == "Ben" and cost["totals"]["totalTokens"] > 25_000


async def test_what_was_used_before_a_restart_counts(tmp_path: Path, models: ModelServer) -> None:
    async with running_gateway(tmp_path, models=models, toml=LIMITS) as first:
        _, token = await add_person(first, Role.USER)
        async with first.client(token=token) as client:
            await answer(client, "tokens=1 prompt=25000")
    async with running_gateway(tmp_path, models=models, toml=LIMITS) as second, second.client(token=token) as client:
        assert "You have used 25,001 of 20,000 tokens" in await refusal_of(client)


async def test_a_stopped_answer_gives_back_what_it_did_not_use(ben: WireClient) -> None:
    run = await send(ben, "tokens=3 hang")
    await until(lambda: [event for event in ben.events if event["event"] == "chat"], "the first words")
    reserved = (await ben.call("users.budget", {}))["day"]["tokens"]["reserved"]
    assert reserved > ANSWER_TOKENS
    await ben.call("chat.abort", {"sessionKey": "main", "runId": run})
    async with asyncio.timeout(40):
        while (day := (await ben.call("users.budget", {}))["day"]["tokens"])["reserved"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert 0 < day["used"] < reserved
    assert day["used"] == await used(ben)


async def test_over_http_the_refusal_is_an_error_of_the_request(gateway: RunningGateway, ben: WireClient) -> None:
    import httpx2

    _, token = await add_person(gateway, Role.USER)
    headers = {"authorization": f"Bearer {token}"}
    body = {"model": "skynet", "messages": [{"role": "user", "content": "tokens=1 prompt=30000"}]}
    async with httpx2.AsyncClient(base_url=gateway.http_url, timeout=20, trust_env=False, headers=headers) as http:
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        refused = await http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 429
    assert WORDS.search(refused.json()["error"]["message"])


async def test_100_turns_at_once_some_of_which_fail_or_are_stopped(tmp_path: Path, models: ModelServer) -> None:
    """SK-124: past the bound on what one person may have under way. All give back what they did not use."""
    config = gateway_config(tmp_path, models=models)
    async with (
        Database(tmp_path / "skynet.db") as db,
        Supervisor() as tasks,
        aclosing(Router(provider_rows(config), retries=0)) as router,
    ):
        await migrate(db, TABLES)
        ben = await UserStore(db).add("Ben", Role.USER)
        ledger = make_ledger(db, limits=Limits(daily_tokens=5000))
        calls = make_calls(db, router, tasks, ledger=ledger)
        key = build_key(ben.id, DEFAULT_AGENT, "main")
        account = Account(
            user=HookUser(id=ben.id, role=Role.USER, display_name="Ben"), key=key, session_id=SessionId("s")
        )
        ways = ("tokens=150 prompt=9", "tokens=3 prompt=9", "fail=500", "tokens=2 hang")

        async def turn(number: int) -> None:
            request = ModelRequest(
                model="mock/mock-1",
                system=(),
                messages=(UserMessage(content=[TextBlock(text=ways[number % len(ways)])], timestamp=1),),
                options=ModelOptions(max_tokens=ANSWER_TOKENS),
            )
            async with asyncio.timeout(60):
                await calls.ask(account, request)

        turns = [asyncio.create_task(turn(number)) for number in range(100)]
        quick = [task for number, task in enumerate(turns) if number % len(ways) != 3]
        await asyncio.wait(quick)
        for task in turns:
            task.cancel()
        await asyncio.wait(turns)
        outcomes = {"stopped" if task.cancelled() else type(task.exception()).__name__ for task in turns}
        assert outcomes == {"NoneType", "CallRefused", "Overloaded", "stopped"}
        day = (await ledger.status(ben.id)).day
        assert day.reserved == Spent()
        stored, _ = await UsageStore(db).spent(ben.id, 0)
        assert 0 < day.used.tokens == stored < 5000 + ANSWER_TOKENS
