"""The methods with everything real behind them but the socket: SQLite, router, broadcaster, dispatcher."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from skynet.config import Config, load_config
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.connection import Connection
from skynet.gateway.dispatch import Dispatcher, collect
from skynet.gateway.exec_file import ExecFile
from skynet.gateway.health import HealthBoard
from skynet.gateway.heartbeat import Heartbeats, SystemEvents
from skynet.gateway.node_events import NodeEvents
from skynet.gateway.nodes import Nodes
from skynet.gateway.presence import PresenceTable, StateVersions
from skynet.gateway.run import Inbound
from skynet.methods.agents import AgentMethods
from skynet.methods.channels import ChannelMethods
from skynet.methods.config import ConfigMethods
from skynet.methods.cron import CronMethods
from skynet.methods.devices import DeviceMethods
from skynet.methods.exec_approvals import ExecApprovalMethods
from skynet.methods.health import HealthMethods
from skynet.methods.heartbeat import HeartbeatMethods
from skynet.methods.logs import LogMethods
from skynet.methods.models import ModelMethods
from skynet.methods.nodes import NodeMethods
from skynet.methods.presence import PresenceMethods
from skynet.methods.providers import ProviderMethods
from skynet.methods.sessions import SessionMethods
from skynet.methods.skills import SkillMethods
from skynet.methods.tools import ToolMethods
from skynet.methods.usage import UsageMethods
from skynet.supervisor import Supervisor
from skynet_agent.messages import AssistantMessage, TextBlock, UserMessage, encode_message
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.registry import KNOWN_PROVIDERS
from skynet_agent.router import Router
from skynet_agent.tools import Tool, ToolContext
from skynet_memory.database import Database
from skynet_memory.ids import AgentId, ConnId, DeviceId, Role, RunId, SessionKey, UserId, new_id, now_ms
from skynet_memory.keys import build_key
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY_TABLES
from skynet_memory.sessions import Session, SessionStore
from skynet_memory.transcripts import NewEntry, TranscriptStore
from skynet_memory.turns import TurnBegun, TurnStore
from skynet_memory.usage import UsageRecord, UsageStore
from skynet_protocol.errors import RequestError
from skynet_protocol.frames import Request, encode_error
from skynet_protocol.methods import authorize
from skynet_protocol.scopes import greatest_scopes
from skynet_users.approvals import Json
from skynet_users.caller import Caller
from skynet_users.devices import DeviceStore
from skynet_users.nodes import NodeStore
from skynet_users.nodes_schema import COMPONENT as NODE_TABLES
from skynet_users.people import User, UserStore
from skynet_users.schema import COMPONENT as USER_TABLES

MODELS = (
    ProviderRow(
        name="mock",
        base_url="http://127.0.0.1:9",
        priority=2,
        models=(
            ModelInfo(id="mock-1", context_window=128_000),
            ModelInfo(id="mock-2", name="Mock Two", context_window=32_000, reasoning=True, input=("text", "image")),
        ),
    ),
    ProviderRow(name="other", base_url="http://127.0.0.1:9", priority=1, models=(ModelInfo(id="plain"),)),
)


async def _look(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    return "seen"


LOOK = Tool(name="look", description="Looks.", parameters={"type": "object"}, permission="files.read", run=_look)
WEATHER = Tool(
    name="weather",
    description="Tells the weather.",
    parameters={"type": "object"},
    permission="plugins.run",
    run=_look,
    plugin="weather-plugin",
)


async def look_for_tools() -> list[Tool]:
    return [LOOK, WEATHER]


ALIASES = {"fast": "mock/mock-2"}
POOLS: dict[str, tuple[str, ...]] = {"smart": ("other/plain", "mock/mock-1")}


class RefusedError(Exception):
    """The error of a response."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class FakeConnection:
    """What the broadcaster and the dispatcher need of a connection; keeps what it is sent."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.conn_id = caller.conn_id
        self.events: list[dict[str, Any]] = []
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, data: bytes) -> None:
        self.answers.put_nowait(json.loads(data))

    def send_event(self, frame: Callable[[int], bytes], *, droppable: bool, numbered: bool = True) -> None:
        self.events.append(json.loads(frame(len(self.events) + 1)))

    def form_of(self, key: SessionKey) -> str:
        return key

    def request_started(self) -> None: ...

    def request_ended(self) -> None: ...

    def while_open(self, waiting: Awaitable[object]) -> Awaitable[object]:
        return waiting

    def named(self, event: str) -> list[dict[str, Any]]:
        return [frame for frame in self.events if frame["event"] == event]


@dataclass
class World:
    """``admin``, ``user`` and ``child`` are callers with the greatest scopes of their role."""

    home: Path
    config: Config
    db: Database
    users: UserStore
    sessions: SessionStore
    transcripts: TranscriptStore
    turns: TurnStore
    usage: UsageStore
    devices: DeviceStore
    router: Router
    broadcaster: Broadcaster
    tasks: Supervisor
    versions: StateVersions
    heartbeats: Heartbeats
    events: SystemEvents
    presence: PresenceTable
    board: HealthBoard
    dispatcher: Dispatcher
    admin: Caller
    user: Caller
    child: Caller
    nodes: Nodes
    aborted: list[SessionKey] = field(default_factory=list)
    submitted: list[Inbound] = field(default_factory=list)
    """Messages of nodes."""
    revoked_devices: list[tuple[DeviceId, str | None]] = field(default_factory=list)
    recorded: list[tuple[str, str, str]] = field(default_factory=list)
    """What of the devices went to the audit log: action, actor, subject."""
    last_turn_ms: int = 0

    async def call(self, caller: Caller, method: str, params: Any = None) -> Any:
        """The payload that a connection of ``caller`` gets; raises RefusedError for an error."""
        peer = FakeConnection(caller)
        raw = None if params is None else msgspec.Raw(json.dumps(params).encode())
        try:
            authorize(method, caller.gateway_role, caller.scopes)
        except RequestError as exc:
            peer.send(encode_error("1", exc.shape()))
        else:
            self.dispatcher.dispatch(peer, Request(id="1", method=method, params=raw))
        async with asyncio.timeout(40):
            answer = await peer.answers.get()
        assert answer["type"] == "res" and answer["id"] == "1"
        if not answer["ok"]:
            raise RefusedError(answer["error"])
        return answer["payload"]

    def listen(self, caller: Caller) -> FakeConnection:
        """A ready connection of ``caller`` that keeps the events it is sent."""
        connection = FakeConnection(replace(caller, conn_id=ConnId(new_id())))
        self.broadcaster.add(cast(Connection, connection))
        return connection

    async def turn(
        self, caller: Caller, name: str = "main", text: str = "hi", answer: str = "hello", **origin: str
    ) -> Session:
        """One finished turn in the caller's session ``name``."""
        key, run_id = key_of(caller, name), RunId(new_id())
        # Each turn at a time of its own, so that lists have one order.
        at_ms = self.last_turn_ms = max(now_ms(), self.last_turn_ms + 2)
        begun = await self.turns.begin(
            owner=caller.user_id,
            key=key,
            run_id=run_id,
            kind="chat",
            payload=encode_message(UserMessage(content=[TextBlock(text=text)], timestamp=at_ms)),
            origin=origin,
            display_name=origin.get("label", ""),
            now_ms=at_ms,
        )
        assert isinstance(begun, TurnBegun)
        message = AssistantMessage(
            content=[TextBlock(text=answer)],
            api="openai-completions",
            provider="mock",
            model="mock-1",
            stop_reason="stop",
            timestamp=at_ms,
        )
        return await self.turns.finish(
            owner=caller.user_id,
            kind="chat",
            run_id=run_id,
            entries=[NewEntry("message", encode_message(message))],
            usage=[UsageRecord(provider="mock", model="mock-1", input=100, output=20, cost_microusd=1500, at_ms=at_ms)],
            status="ok",
            response=b"{}",
            model="mock-1",
            provider="mock",
            context_tokens=128_000,
            now_ms=at_ms,
        )


def key_of(caller: Caller, name: str = "main") -> SessionKey:
    return build_key(caller.user_id, AgentId("main"), name)


def caller_of(user: UserId, role: Role, **fields: Any) -> Caller:
    values: dict[str, Any] = {
        "user_id": user,
        "role": role,
        "scopes": greatest_scopes(role),
        "correlation_id": "corr",
        "conn_id": ConnId(new_id()),
        "client_id": "cli",
        "client_mode": "cli",
    }
    return Caller(**(values | fields))


def node_of(caller: Caller, device_id: str = "d" * 64) -> Caller:
    """A node of this person."""
    return replace(
        caller, gateway_role="node", device_id=DeviceId(device_id), client_id="node-host", client_mode="node"
    )


@asynccontextmanager
async def open_world(home: Path) -> AsyncIterator[World]:
    config = load_config(None, env={"SKYNET_HOME": str(home)})
    async with Database(home / "skynet.db") as db, Supervisor() as tasks:
        await migrate(db, [USER_TABLES, MEMORY_TABLES, NODE_TABLES])
        users, sessions, transcripts = UserStore(db), SessionStore(db), TranscriptStore(db)
        usage, devices = UsageStore(db), DeviceStore(db)
        node_store = NodeStore(db)
        nodes = Nodes(devices, node_store)
        submitted: list[Inbound] = []
        router = Router(MODELS, aliases=ALIASES, pools=POOLS)
        broadcaster, versions = Broadcaster(), StateVersions()
        heartbeats, events = Heartbeats(), SystemEvents()
        presence = PresenceTable(broadcaster, versions, version="1.2.3")
        path = str(home / "skynet.db")
        board = HealthBoard(
            sessions=sessions,
            heartbeats=heartbeats,
            broadcaster=broadcaster,
            versions=versions,
            tasks=tasks,
            store_path=path,
            agent_name="Ada",
        )
        aborted: list[SessionKey] = []
        revoked_devices: list[tuple[DeviceId, str | None]] = []
        recorded: list[tuple[str, str, str]] = []

        async def abort_session(owner: UserId, key: SessionKey) -> bool:
            aborted.append(key)
            return False

        async def device_revoked(device_id: DeviceId, role: str | None) -> None:
            revoked_devices.append((device_id, role))

        async def record(
            action: str, *, actor: UserId | Literal[""], subject: str, details: Mapping[str, Json]
        ) -> None:
            recorded.append((action, actor, subject))

        async def submit(inbound: Inbound) -> None:
            submitted.append(inbound)

        async def nobody() -> list[tuple[User, int]]:
            return []

        table = collect(
            HealthMethods(
                board=board, sessions=sessions, heartbeats=heartbeats, events=events, router=router, store_path=path
            ),
            PresenceMethods(presence, events),
            HeartbeatMethods(heartbeats, events),
            ModelMethods(router),
            ProviderMethods(
                router,
                agent_name="Ada",
                known=KNOWN_PROVIDERS,
                aliases=ALIASES,
                pools=POOLS,
                prompt_mode=lambda: "built-in prompt",
                active_runs=lambda owner: 0,
                people=nobody,
                record=record,
            ),
            AgentMethods("Ada"),
            SessionMethods(
                sessions=sessions,
                transcripts=transcripts,
                router=router,
                abort_session=abort_session,
                store_path=path,
            ),
            ConfigMethods(config, env={"SKYNET_HOME": str(home)}),
            LogMethods(home / "logs" / "skynet.log"),
            UsageMethods(usage),
            DeviceMethods(devices, broadcaster, revoked=device_revoked, record=record),
            ChannelMethods(),
            SkillMethods(workspace_dir=home / "workspace", managed_dir=home / "skills"),
            ToolMethods(look_for_tools),
            NodeMethods(
                nodes,
                NodeEvents(submit=submit, events=events, broadcaster=broadcaster),
                devices,
                node_store,
                broadcaster,
                people=users.by_id,
                record=record,
            ),
            CronMethods(path),
            ExecApprovalMethods(ExecFile(home / "exec-approvals.json"), record),
        )
        try:
            yield World(
                home=home,
                config=config,
                db=db,
                users=users,
                sessions=sessions,
                transcripts=transcripts,
                turns=TurnStore(db),
                usage=usage,
                devices=devices,
                router=router,
                broadcaster=broadcaster,
                tasks=tasks,
                versions=versions,
                heartbeats=heartbeats,
                events=events,
                presence=presence,
                board=board,
                dispatcher=Dispatcher(table, tasks),
                admin=caller_of((await users.ensure_owner()).id, Role.ADMIN),
                user=caller_of((await users.add("Bo", Role.USER)).id, Role.USER),
                child=caller_of((await users.add("Cy", Role.CHILD)).id, Role.CHILD),
                nodes=nodes,
                aborted=aborted,
                submitted=submitted,
                revoked_devices=revoked_devices,
                recorded=recorded,
            )
        finally:
            await router.aclose()
