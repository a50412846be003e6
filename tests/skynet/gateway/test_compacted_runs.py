"""What a model is told once its conversation was compacted, and that no answer waits for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet.gateway.compaction import Compactor
from skynet_agent.compaction import TURNS
from skynet_agent.messages import AssistantMessage, TextBlock
from skynet_agent.requests import ModelRequest
from skynet_memory.compactions import CompactionStore
from skynet_memory.ids import SessionKey, UserId
from skynet_memory.memories import MemoryStore
from tests.skynet.gateway.stage import Stage, open_stage
from tests.support.polling import until


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path) as opened:
        yield opened


async def test_the_model_is_told_the_summary_and_no_reply_waits(stage: Stage) -> None:
    """SK-102, SP-033, SP-034: the 42nd message is answered while the summary is being written."""
    written = asyncio.Event()

    async def ask(owner: UserId, key: SessionKey, request: ModelRequest) -> AssistantMessage:
        await written.wait()
        return AssistantMessage([TextBlock("They counted to twenty.")], "", "mock", "mock-1", "stop", 1)

    compactor = Compactor(
        sessions=stage.sessions,
        compactions=CompactionStore(stage.db),
        router=stage.runs._calls.router,
        ask=ask,
        memories=MemoryStore(stage.db),
        tasks=stage.tasks,
    )
    for number in range(TURNS + 1):
        run = stage.inbound(f"say=a{number}")
        assert (await stage.end(f"say=a{number}")).status == "ok"
    compactor.turn_ended(stage.ada, run.key)
    assert (await stage.end("say=meanwhile")).text == "meanwhile"
    written.set()
    await until(lambda: len(stage.tasks) == 0)
    for number in range(2):
        await stage.end(f"say=b{number}")
    bodies = [json.loads(body) if isinstance(body, bytes | str) else body for body in stage.models.bodies]
    before, one, other = ([m for m in body["messages"] if m["role"] != "system"] for body in bodies[-3:])
    assert "They counted" not in json.dumps(before)
    first = json.dumps(one[0])
    assert "They counted to twenty." in first and "say=a20" in first and "say=a19" not in json.dumps(one)
    assert other[: len(one) - 1] == one[:-1], "and so it stays"
