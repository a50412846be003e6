"""Fills a gateway's database with conversations before it starts, through its own stores."""

import asyncio
from pathlib import Path

from skynet_agent.messages import AssistantMessage, TextBlock, Usage, UserMessage, encode_message
from skynet_memory.database import Database
from skynet_memory.ids import AgentId, RunId, UserId, now_ms
from skynet_memory.keys import build_key
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY
from skynet_memory.transcripts import NewEntry
from skynet_memory.turns import TurnStore
from skynet_memory.usage import UsageRecord
from skynet_users.people import UserStore
from skynet_users.schema import COMPONENT as USERS

BATCH = 500
ANSWER = " ".join(f"w{number}" for number in range(100))


def seed_skynet(path: Path, sessions: int) -> None:
    """Store ``sessions`` conversations of one turn each, a second apart up to now, for the owner of a new database."""
    asyncio.run(_seed(path, sessions))


async def _seed(path: Path, sessions: int) -> None:
    async with Database(path) as db:
        await migrate(db, (USERS, MEMORY))
        owner = (await UserStore(db).ensure_owner()).id
        turns, begun_ms = TurnStore(db), now_ms() - sessions * 1000
        for first in range(0, sessions, BATCH):
            numbers = range(first, min(first + BATCH, sessions))
            await asyncio.gather(*(_turn(turns, owner, number, begun_ms + number * 1000) for number in numbers))


async def _turn(turns: TurnStore, owner: UserId, number: int, at_ms: int) -> None:
    """Like a turn of a terminal client: 100 tokens to the model and 100 back."""
    run_id = RunId(f"seed-{number}")
    question = UserMessage(content=[TextBlock(text="tokens=100")], timestamp=at_ms)
    usage = Usage(input=100, output=100, cache_read=0, cache_write=0, total=200, cost_microusd=0)
    answer = AssistantMessage(
        content=[TextBlock(text=ANSWER)],
        api="openai-completions",
        provider="lab",
        model="mock-1",
        stop_reason="stop",
        usage=usage,
        timestamp=at_ms,
    )
    await turns.begin(
        owner=owner,
        key=build_key(owner, AgentId("main"), f"bench-{number}"),
        run_id=run_id,
        kind="chat",
        payload=encode_message(question),
        origin={"label": "openclaw-tui", "provider": "webchat", "surface": "webchat", "chatType": "direct"},
        display_name="openclaw-tui",
        now_ms=at_ms,
    )
    record = UsageRecord(provider="lab", model="mock-1", input=100, output=100, cost_microusd=0, at_ms=at_ms)
    await turns.finish(
        owner=owner,
        kind="chat",
        run_id=run_id,
        entries=[NewEntry("message", encode_message(answer))],
        usage=[record],
        status="ok",
        response=b'{"status":"ok"}',
        model="mock-1",
        provider="lab",
        context_tokens=128_000,
        now_ms=at_ms,
    )
