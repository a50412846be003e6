"""A conversation that becomes long: summarised beside it, told on, remembered, and still all there (SK-102, SK-197)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet_agent.compaction import TURNS
from tests.end_to_end.scene import MAIN, history, say, told
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

FACT = {"category": "fact", "key": "dog", "value": "The dog of the family is called Rex."}
"""The scripted model says what the end of the conversation tells it to, even when it is to summarise."""


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer(keep=1000) as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running


async def row(client: WireClient) -> dict[str, Any]:
    """What the list of sessions says of the main one."""
    answer = await client.call("sessions.patch", {"key": MAIN, "thinkingLevel": None})
    entry: dict[str, Any] = answer["entry"]
    return entry


def prompt(models: ModelServer) -> list[dict[str, Any]]:
    """The messages of the last request, without the system's."""
    return [message for message in models.bodies[-1]["messages"] if message["role"] != "system"]


async def test_the_forty_first_turn(gateway: RunningGateway, models: ModelServer) -> None:
    async with gateway.client() as client:
        for number in range(TURNS):
            is_last = number == TURNS // 2 - 1  # of those that are summarised
            await say(client, f"say=answer {number}" + (f"\nFACTS\n{json.dumps(FACT)}" if is_last else ""))
        assert len(models.bodies) == TURNS
        assert (await row(client)).get("compactionCount", 0) == 0
        assert (await say(client, f"say=answer {TURNS}"))["state"] == "final"
        async with asyncio.timeout(30):
            while (await row(client)).get("compactionCount", 0) == 0:  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0.01)
        assert len(models.bodies) == TURNS + 2
        await say(client, "say=and on")
        first = prompt(models)
        assert len(first) == 2 * 21 + 1
        assert "<summary" in json.dumps(first[0]) and "say=answer 20" in json.dumps(first[0])
        await say(client, "say=and on")
        assert prompt(models)[: len(first) - 1] == first[:-1], "what a provider has cached stays"
        found = await client.call("memory.search", {"query": "what is the dog called"})
        assert "Rex" in json.dumps(found)
        shown = told(await history(client))
        assert len(shown) == 2 * (TURNS + 3) + 1
        assert [text for role, text in shown if role == "system"] == ["Compaction"]
        spent = await client.call("usage.cost", {"days": 1})
        assert spent["totals"]["input"] > 0
