"""What somebody new is met with, and what everybody sees of how the gateway is doing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory.ids import Role, UserId
from skynet_users.people import UserChanges, UserStore
from tests.end_to_end.scene import add_person, answer, say, send
from tests.end_to_end.test_memory import prompt
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

WELCOME = "begin with a short welcome"


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running


async def is_new(gateway: RunningGateway, user: str) -> bool:
    return (await UserStore(gateway.app.database).get(UserId(user))).needs_welcome


async def newcomer(gateway: RunningGateway) -> tuple[str, str]:
    user, token = await add_person(gateway, Role.USER)
    await UserStore(gateway.app.database).set(UserId(user), UserChanges(needs_welcome=True))
    return user, token


async def test_who_is_new_is_welcomed_until_they_were_answered_once(
    gateway: RunningGateway, models: ModelServer
) -> None:
    """SK-133: a turn that failed welcomed nobody."""
    user, token = await newcomer(gateway)
    async with gateway.client(token=token) as client:
        assert (await say(client, "fail=400"))["state"] == "error"
        assert WELCOME in prompt(models)
        assert await is_new(gateway, user)
        await answer(client, "say=hello")
        assert WELCOME in prompt(models)
        async with asyncio.timeout(40):
            while await is_new(gateway, user):  # noted soon after the answer
                pass
        await answer(client, "say=hello")
        assert WELCOME not in prompt(models)


async def test_who_was_there_before_is_not_welcomed(gateway: RunningGateway, models: ModelServer) -> None:
    async with gateway.client() as client:
        await answer(client, "say=hello")
    assert WELCOME not in prompt(models)


async def test_the_status_is_of_ones_own_conversations_and_runs(gateway: RunningGateway) -> None:
    """BA-271: model and runs under way as well; nobody's status counts what others do."""

    async def told(client: WireClient) -> tuple[int, int, str]:
        status = await client.call("status")
        agent = await client.call("agent.status")
        return status["sessions"]["count"], agent["activeRuns"], agent["model"]

    _, token = await add_person(gateway, Role.USER)
    async with gateway.client() as admin, gateway.client(token=token) as client:
        for key in ("agent:main:main", "agent:main:two"):
            await answer(admin, "say=hello", key=key)
        await send(admin, "hang")
        await answer(client, "say=hello")
        assert await told(admin) == (2, 1, "mock/mock-1")
        assert await told(client) == (1, 0, "mock/mock-1")
