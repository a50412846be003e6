"""The pipeline by itself: real storage, a scripted model, no sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.children import Guard
from skynet.gateway.heartbeat import SystemEvents
from skynet.gateway.model_calls import ModelCalls
from skynet.gateway.run import Inbound, Run
from skynet.gateway.run_answer import RunResult
from skynet.gateway.run_request import RunRequests
from skynet.gateway.runs import Runs
from skynet.hooks import HookBus
from skynet.supervisor import Supervisor
from skynet.tables import TABLES
from skynet_agent.messages import TextBlock
from skynet_agent.prompt import Prompts
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.router import Router
from skynet_agent.tools import Tool
from skynet_agent.workspace import Workspace
from skynet_memory.compactions import CompactionStore
from skynet_memory.database import Database
from skynet_memory.ids import AgentId, Role, RunId, SessionId, UserId, new_id, now_ms
from skynet_memory.keys import build_key
from skynet_memory.migrations import migrate
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from skynet_users.budgets import Ledger, Limits
from skynet_users.caller import Caller
from skynet_users.people import UserStore
from tests.support.model_server import ModelServer
from tests.support.pipeline import make_calls, make_ledger, make_tools
from tests.support.polling import until


@dataclass
class Stage:
    """``runs`` and what is behind them; ``ada`` and ``ben`` are people."""

    runs: Runs
    db: Database
    sessions: SessionStore
    transcripts: TranscriptStore
    turns: TurnStore
    tasks: Supervisor
    hooks: HookBus
    ledger: Ledger
    calls: ModelCalls
    models: ModelServer
    ada: UserId
    ben: UserId
    now_ms: int

    def inbound(self, text: str, run_id: str = "", *, who: UserId | None = None, **fields: Any) -> Inbound:
        user = who or self.ada
        name = fields.pop("name", "main")
        caller = Caller(user_id=user, role=Role.USER, scopes=frozenset(), correlation_id="c")
        values: dict[str, Any] = {
            "caller": caller,
            "key": build_key(user, AgentId("main"), name),
            "run_id": RunId(run_id or new_id()),
            "kind": "chat",
            "content": (TextBlock(text=text),),
            "wire_key": name,
        }
        return Inbound(**(values | fields))

    async def submit(self, text: str, run_id: str = "", **fields: Any) -> Run:
        """A message that is new."""
        run = await self.runs.submit(self.inbound(text, run_id, **fields))
        assert isinstance(run, Run)
        return run

    async def end(self, text: str, run_id: str = "", **fields: Any) -> RunResult:
        return await end_of(await self.submit(text, run_id, **fields))

    async def said(self, name: str = "main", who: UserId | None = None) -> list[str]:
        """Every message of a session, an error's words in place of its text."""
        owner = who or self.ada
        session = await self.sessions.get(owner, build_key(owner, AgentId("main"), name))
        return [] if session is None else await self.transcript(session.session_id, owner)

    async def transcript(self, session_id: SessionId, owner: UserId | None = None) -> list[str]:
        messages = [
            json.loads(entry.payload)
            for entry in await self.transcripts.history(owner or self.ada, session_id, limit=1000)
        ]
        return [
            "".join(block["text"] for block in message["content"]) or message.get("errorMessage", "")
            for message in messages
        ]

    async def open_runs(self) -> int:
        rows = await self.db.fetchall("SELECT count(*) FROM dedupe WHERE status = 'running'")
        return int(rows[0][0])

    async def fill(self) -> None:
        """The disk is full: no page can be added to the file."""
        await self.db.write(lambda tx: tx.fetchone("PRAGMA max_page_count = 1"))

    async def make_room(self) -> None:
        await self.db.write(lambda tx: tx.fetchone("PRAGMA max_page_count = 1000000"))


@asynccontextmanager
async def open_stage(
    home: Path,
    *tools: Tool,
    max_output_tokens: int | None = None,
    limits: Limits | None = None,
    house: Limits | None = None,
    guard: Guard | None = None,
) -> AsyncIterator[Stage]:
    async with ModelServer() as models, Database(home / "skynet.db") as db, Supervisor() as tasks:
        await migrate(db, TABLES)
        users, sessions, transcripts, turns = UserStore(db), SessionStore(db), TranscriptStore(db), TurnStore(db)
        row = ProviderRow(name="mock", base_url=models.url, models=(ModelInfo(id="mock-1", context_window=128_000),))
        router = Router([row])
        ada, ben = await users.add("Ada", Role.USER), await users.add("Ben", Role.USER)
        stage: Stage
        hooks = HookBus(tasks)
        ledger = make_ledger(db, limits=limits, house=house)
        calls = make_calls(db, router, tasks, ledger=ledger, hooks=hooks)
        requests = RunRequests(
            compactions=CompactionStore(db),
            router=router,
            system_events=SystemEvents(),
            tools=make_tools(tasks, tools, hooks=hooks),
            prompts=Prompts(Workspace(home)),
            max_output_tokens=max_output_tokens,
        )
        async with (
            aclosing(router),
            Runs(
                turns=turns,
                sessions=sessions,
                requests=requests,
                calls=calls,
                people=users.by_id,
                guard=guard,
                broadcaster=Broadcaster(),
                tasks=tasks,
                timeout_s=60.0,
                clock=lambda: stage.now_ms,
            ) as runs,
        ):
            stage = Stage(
                runs=runs,
                db=db,
                sessions=sessions,
                transcripts=transcripts,
                turns=turns,
                tasks=tasks,
                hooks=hooks,
                ledger=ledger,
                calls=calls,
                models=models,
                ada=ada.id,
                ben=ben.id,
                now_ms=now_ms(),
            )
            yield stage


async def end_of(run: Run) -> RunResult:
    async with asyncio.timeout(40):
        return await run.wait()


async def answering(run: Run) -> None:
    """Return when the model is at work on ``run``."""
    await until(lambda: run.started_at_ms, "the run leaves its lane")
