"""The HTTP surface over real stores, a real router and the scripted model server, behind a real uvicorn."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette

from skynet.config import GatewayConfig
from skynet.config.schema import AuthConfig, LimitsConfig
from skynet.gateway.auth import Authenticator
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.heartbeat import SystemEvents
from skynet.gateway.run_request import RunRequests
from skynet.gateway.runs import Runs
from skynet.http import http_app
from skynet.supervisor import Supervisor
from skynet.tables import TABLES
from skynet_agent.messages import decode_message
from skynet_agent.prompt import Prompts
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.router import Router
from skynet_agent.tools import Tool
from skynet_agent.workspace import Workspace
from skynet_memory.compactions import CompactionStore
from skynet_memory.database import Database
from skynet_memory.ids import SessionKey, UserId
from skynet_memory.migrations import migrate
from skynet_memory.secrets import Secret
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from skynet_users.credentials import CredentialStore
from skynet_users.devices import DeviceStore
from skynet_users.people import User, UserStore
from tests.support.model_server import ModelServer
from tests.support.pipeline import make_calls, make_tools

TOKEN = "test-token"


@dataclass
class Surface:
    """A running HTTP surface and what is behind it."""

    url: str
    app: Starlette
    http: httpx2.AsyncClient
    models: ModelServer
    db: Database
    runs: Runs
    owner: User
    users: UserStore
    credentials: CredentialStore
    sessions: SessionStore
    transcripts: TranscriptStore
    counts: dict[str, Any]

    async def chat(self, text: str = "say=hi", /, *, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """Ask for a completion; its response."""
        body = {"model": "skynet", "messages": [{"role": "user", "content": text}], **fields}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def person(self, name: str, role: Any) -> tuple[UserId, dict[str, str]]:
        """Add somebody; the id, and the headers with a personal token."""
        user = await self.users.add(name, role)
        created = await self.credentials.create_token(user.id, "test")
        return user.id, {"authorization": f"Bearer {created.token.reveal()}"}

    async def transcript(self, key: str, owner: UserId | None = None) -> list[Any]:
        """The stored messages of a session, decoded."""
        session = await self.sessions.get(owner or self.owner.id, SessionKey(key))
        assert session is not None, f"no session {key}"
        entries = await self.transcripts.history(session.owner, session.session_id, limit=100)
        return [decode_message(entry.payload) for entry in entries]

    def idle(self) -> bool:
        """Whether no run is queued or running."""
        return not self.runs.active(self.owner.id)


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], timeout_s: float = 10) -> None:
    """Wait until ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve an application on a free port; its URL."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http="httptools", lifespan="on", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    try:
        await until(lambda: server.started or task.done())
        assert server.started
        host, port = server.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def open_surface(
    home: Path,
    *,
    auth: AuthConfig | None = None,
    limits: LimitsConfig | None = None,
    extra_providers: tuple[ProviderRow, ...] = (),
    timeout_s: float = 60,
    tools: Sequence[Tool] = (),
    max_tokens: int | None = None,
) -> AsyncIterator[Surface]:
    config = GatewayConfig(
        auth=auth or AuthConfig(token=Secret(TOKEN)), limits=limits or LimitsConfig(), origins=("https://app.example",)
    )
    counts: dict[str, Any] = {"connections": 0, "accepting": True}
    async with ModelServer() as models, Database(home / "skynet.db") as db, Supervisor() as tasks:
        await migrate(db, TABLES)
        users, credentials = UserStore(db), CredentialStore(db)
        owner = await users.ensure_owner()
        broadcaster, transcripts = Broadcaster(), TranscriptStore(db)
        row = ProviderRow(
            name="mock",
            base_url=models.url,
            api_key=Secret("k"),
            models=tuple(
                ModelInfo(id=name, context_window=128_000, input=("text", "image")) for name in ("mock-1", "mock-2")
            ),
        )
        router = Router([row, *extra_providers], aliases={"fast": "mock/mock-2"}, pools={"any": ("mock/mock-1",)})
        authenticator = Authenticator(
            config,
            owner=owner,
            users=users,
            credentials=credentials,
            devices=DeviceStore(db),
            broadcaster=broadcaster,
        )
        requests = RunRequests(
            compactions=CompactionStore(db),
            router=router,
            system_events=SystemEvents(),
            tools=make_tools(tasks, tools),
            prompts=Prompts(Workspace(home)),
        )
        async with Runs(
            turns=TurnStore(db),
            sessions=SessionStore(db),
            requests=requests,
            calls=make_calls(db, router, tasks),
            people=users.by_id,
            broadcaster=broadcaster,
            tasks=tasks,
            timeout_s=timeout_s,
        ) as runs:
            app = http_app(
                runs=runs,
                authenticator=authenticator,
                router=router,
                database=db,
                connections=lambda: counts["connections"],
                limits=config.limits,
                max_tokens=max_tokens,
                origins=config.origins,
                accepting=lambda: counts["accepting"],
            )
            try:
                async with (
                    serving(app) as url,
                    httpx2.AsyncClient(
                        base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=20, trust_env=False
                    ) as http,
                ):
                    yield Surface(
                        url=url,
                        app=app,
                        http=http,
                        models=models,
                        db=db,
                        runs=runs,
                        owner=owner,
                        users=users,
                        credentials=credentials,
                        sessions=SessionStore(db),
                        transcripts=transcripts,
                        counts=counts,
                    )
            finally:
                await router.aclose()


OpenSurface = Callable[..., AbstractAsyncContextManager[Surface]]


@pytest.fixture
async def surface(tmp_path: Path) -> AsyncIterator[Surface]:
    """A surface with the gateway token and the scripted models behind it."""
    async with open_surface(tmp_path) as opened:
        yield opened
