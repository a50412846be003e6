"""The composition root: every part is built here and handed to those that use it.

Read top to bottom, it is the architecture.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET
from starlette.applications import Starlette

from skynet.config import CREDENTIALS_DIRECTORY, Config
from skynet.gateway.auth import Admission, Authenticator
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.commands import Commands
from skynet.gateway.connection import Gateway
from skynet.gateway.dispatch import Dispatcher, MethodTable, collect
from skynet.gateway.health import HealthBoard
from skynet.gateway.heartbeat import Heartbeats, SystemEvents
from skynet.gateway.presence import PresenceTable, StateVersions
from skynet.gateway.run_request import RunRequests
from skynet.gateway.runs import Runs
from skynet.gateway.server import GatewayServer, listen, loop_factory
from skynet.http import http_app
from skynet.logs import KEPT_FILES
from skynet.methods.agent import RunMethods
from skynet.methods.agents import AgentMethods
from skynet.methods.channels import ChannelMethods
from skynet.methods.chat import ChatMethods
from skynet.methods.config import ConfigMethods
from skynet.methods.cron import CronMethods
from skynet.methods.devices import DeviceMethods
from skynet.methods.exec_approvals import ExecApprovalMethods
from skynet.methods.health import HealthMethods
from skynet.methods.heartbeat import HeartbeatMethods
from skynet.methods.logs import LogMethods
from skynet.methods.models import ModelMethods
from skynet.methods.nodes import NodeMethods
from skynet.methods.ping import PingMethods
from skynet.methods.presence import PresenceMethods
from skynet.methods.providers import ProviderMethods
from skynet.methods.sessions import SessionMethods
from skynet.methods.skills import SkillMethods
from skynet.methods.tools import ToolMethods
from skynet.methods.usage import UsageMethods
from skynet.models import provider_rows, unprotected
from skynet.places import Places
from skynet.plugins import DIRECTORY as PLUGINS_DIRECTORY
from skynet.plugins import Plugins
from skynet.supervisor import Supervisor
from skynet.tools import built_in_tools
from skynet.tools.plugins import PluginTools
from skynet.version import VERSION
from skynet_agent.auth.tokens import TokenStore
from skynet_agent.prompt import Prompts
from skynet_agent.registry import KNOWN_PROVIDERS
from skynet_agent.router import Router
from skynet_agent.tools import Tool, Toolbox, ToolContext
from skynet_agent.workspace import Workspace
from skynet_memory.database import Database
from skynet_memory.ids import DEFAULT_AGENT, ConnId, Role, now_ms
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY_TABLES
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from skynet_memory.usage import UsageStore
from skynet_protocol.connect import Features, HelloOk, Policy, ServerInfo, SessionDefaults, Snapshot
from skynet_protocol.errors import PROTOCOL_VERSION
from skynet_protocol.events import EVENTS, TickEvent
from skynet_protocol.methods import METHODS
from skynet_users.credentials import CredentialStore
from skynet_users.devices import DeviceStore
from skynet_users.people import UserStore
from skynet_users.permissions import DEFAULT_POLICY, permits
from skynet_users.schema import COMPONENT as USER_TABLES

log = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 3600.0
WARM_UP_AFTER_S = 1.0
"""When the HTTP client is loaded: after the first clients were answered, before somebody asks a model."""


@dataclass(frozen=True, slots=True)
class App:
    """A gateway that is open but does not listen yet."""

    gateway: Gateway
    http: Starlette
    database: Database
    runs: Runs
    toolbox: Toolbox


@asynccontextmanager
async def open_app(config: Config) -> AsyncIterator[App]:
    """Open the state and build every part; leaving closes them in reverse.

    Args:
        config: with the gateway token filled in (:func:`skynet.config.ensure_gateway_token`).

    Raises:
        DatabaseInUse, DatabaseTooNew, DatabaseRefused: with words for the person who started the gateway.
    """
    started_s = time.monotonic()
    versions = StateVersions()
    broadcaster = Broadcaster()
    heartbeats, system_events = Heartbeats(), SystemEvents()
    async with (
        Database(config.database.path, synchronous=config.database.synchronous) as db,
        Supervisor() as tasks,
    ):
        await migrate(db, [USER_TABLES, MEMORY_TABLES])
        users, credentials, devices = UserStore(db), CredentialStore(db), DeviceStore(db)
        sessions, transcripts, turns, usage = SessionStore(db), TranscriptStore(db), TurnStore(db), UsageStore(db)
        owner = await users.ensure_owner()
        for run in await turns.close_unfinished(now_ms()):
            log.warning("closed run %s, which the last stop interrupted", run.run_id, extra={"user_id": run.owner})

        rows = provider_rows(config)
        router = Router(
            rows,
            default_model=config.agent.model,
            aliases=config.models.aliases,
            pools=config.pools,
            cheapest=config.router.cheapest,
            retries=config.router.retries,
            breaker_failures=config.router.breaker_failures,
            breaker_cooldown_s=config.router.breaker_cooldown_s,
            tokens=TokenStore(config.home / CREDENTIALS_DIRECTORY),
        )
        for problem in (*config.warnings, *router.problems(), *unprotected(rows)):
            log.warning("configuration: %s", problem)
        authenticator = Authenticator(
            config.gateway,
            owner=owner,
            users=users,
            credentials=credentials,
            devices=devices,
            broadcaster=broadcaster,
        )
        presence = PresenceTable(broadcaster, versions, version=VERSION)
        health = HealthBoard(
            sessions=sessions,
            heartbeats=heartbeats,
            broadcaster=broadcaster,
            versions=versions,
            tasks=tasks,
            store_path=str(config.database.path),
            agent_name=config.agent.name,
        )
        workspace = Workspace(
            config.home,
            workspace_dir=config.agent.workspace_dir if config.workspace_is_set else None,
            soul_path=None if config.agent.soul_path == Path() else config.agent.soul_path,
        )
        places = Places(
            lambda context: config.home / "users" / context.user_id / "files",
            roots=() if config.agent.restrict_to_workspace else (Path("/"),),
            sealed=private_places(config, os.environ),
            protected=workspace.protects,
        )
        tools = built_in_tools(places=places, workspace=workspace)
        plugins = Plugins(config.home / PLUGINS_DIRECTORY, env=os.environ, taken=[tool.name for tool in tools])
        toolbox = Toolbox(tools, permits=_permits, more=PluginTools(plugins).tools)
        requests = RunRequests(
            transcripts=transcripts,
            router=router,
            system_events=system_events,
            toolbox=toolbox,
            prompts=Prompts(workspace),
            max_output_tokens=config.agent.max_output_tokens,
        )
        async with (
            aclosing(router),
            Runs(
                turns=turns,
                sessions=sessions,
                requests=requests,
                router=router,
                broadcaster=broadcaster,
                tasks=tasks,
                timeout_s=config.agent.timeout_s,
                max_rounds=config.agent.max_rounds,
            ) as runs,
        ):
            commands = Commands(sessions=sessions, router=router, abort_session=runs.abort_session)
            table = collect(
                PingMethods(),
                HealthMethods(
                    board=health,
                    sessions=sessions,
                    heartbeats=heartbeats,
                    events=system_events,
                    router=router,
                    store_path=str(config.database.path),
                ),
                PresenceMethods(presence, system_events),
                HeartbeatMethods(heartbeats, system_events),
                ModelMethods(router),
                ProviderMethods(
                    router,
                    agent_name=config.agent.name,
                    known=KNOWN_PROVIDERS,
                    aliases=config.models.aliases,
                    pools=config.pools,
                    prompt_mode=lambda: workspace.mode,
                    active_runs=lambda owner: len(runs.active(owner)),
                ),
                AgentMethods(config.agent.name),
                SessionMethods(
                    sessions=sessions,
                    transcripts=transcripts,
                    router=router,
                    abort_session=runs.abort_session,
                    store_path=str(config.database.path),
                ),
                ChatMethods(
                    runs=runs,
                    sessions=sessions,
                    transcripts=transcripts,
                    broadcaster=broadcaster,
                    commands=commands,
                ),
                RunMethods(runs=runs, sessions=sessions, broadcaster=broadcaster, commands=commands),
                ConfigMethods(config),
                LogMethods(config.logging.file),
                UsageMethods(usage),
                DeviceMethods(devices, broadcaster),
                ChannelMethods(),
                SkillMethods(workspace_dir=config.agent.workspace_dir, managed_dir=config.home / "skills"),
                ToolMethods(toolbox.refresh),
                NodeMethods(devices),
                CronMethods(str(config.database.path)),
                ExecApprovalMethods(config.home / "exec-approvals.json"),
            )
            greeter = Greeter(config, table, presence, health, versions, started_s)
            gateway = Gateway(
                limits=config.gateway.limits,
                tasks=tasks,
                authenticator=authenticator,
                dispatcher=Dispatcher(table, tasks),
                broadcaster=broadcaster,
                presence=presence,
                greet=greeter.greet,
                connected=health.client_connected,
            )
            tasks.start(_tick(broadcaster, config.gateway.limits.tick_interval_s), name="tick")
            tasks.start(health.keep_fresh(), name="health")
            tasks.start(_sweep(turns), name="sweep")
            tasks.start(_warm_up(router, toolbox), name="warm up")
            http = http_app(
                runs=runs,
                authenticator=authenticator,
                router=router,
                database=db,
                connections=lambda: len(broadcaster),
                limits=config.gateway.limits,
                max_tokens=config.agent.max_output_tokens,
                origins=config.gateway.origins,
                accepting=lambda: not runs.closing,
            )
            yield App(gateway, http, db, runs, toolbox)


def serve(config: Config, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run a gateway until it is told to stop (SIGINT, SIGTERM).

    Args:
        on_ready: called with the WebSocket URL once connections are accepted.

    Raises:
        CannotListen, DatabaseInUse, DatabaseTooNew, DatabaseRefused: with words for the person who started it.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, on_ready))


async def _serve(config: Config, on_ready: Callable[[str], None] | None) -> None:
    listener = listen(config.gateway.host, config.gateway.port)
    try:
        async with open_app(config) as app:
            await GatewayServer(app.gateway, app.http, on_ready=on_ready).serve([listener])
    finally:
        listener.close()


class Greeter:
    """Makes hello-ok: what a client is told of the gateway when it is let in."""

    def __init__(
        self,
        config: Config,
        table: MethodTable,
        presence: PresenceTable,
        health: HealthBoard,
        versions: StateVersions,
        started_s: float,
    ) -> None:
        self._config = config
        self._presence = presence
        self._health = health
        self._versions = versions
        self._started_s = started_s
        self._features = Features(
            methods=[name for name, spec in METHODS.items() if spec.listed and name in table], events=EVENTS
        )
        limits = config.gateway.limits
        self._policy = Policy(
            max_payload=limits.frame_bytes,
            max_buffered_bytes=limits.outbound_bytes,
            tick_interval_ms=int(limits.tick_interval_s * 1000),
        )

    def greet(self, admission: Admission, conn_id: ConnId) -> HelloOk:
        """The answer to a ``connect`` that succeeded."""
        caller, config = admission.caller, self._config
        sees_paths = caller.role is Role.ADMIN
        return HelloOk(
            protocol=PROTOCOL_VERSION,
            server=ServerInfo(version=VERSION, conn_id=conn_id),
            features=self._features,
            snapshot=Snapshot(
                presence=self._presence.entries(caller),
                health=self._health.latest(caller),
                state_version=self._versions.wire(),
                uptime_ms=int((time.monotonic() - self._started_s) * 1000),
                config_path=str(config.file_path) if sees_paths else UNSET,
                state_dir=str(config.home) if sees_paths else UNSET,
                session_defaults=SessionDefaults(
                    default_agent_id=DEFAULT_AGENT,
                    main_key="main",
                    main_session_key=f"agent:{DEFAULT_AGENT}:main",
                    scope="per-sender",
                ),
                auth_mode=config.gateway.auth.mode,
            ),
            policy=self._policy,
            auth=admission.hello,
        )


def private_places(config: Config, env: Mapping[str, str]) -> Sequence[Path]:
    """What no tool touches, whatever an admin's tools may reach: where the gateway keeps its state, its secrets and
    those it asks providers with. ``/proc`` shows the environment of every process, with the keys that are in it."""
    database, log_file = config.database.path, config.logging.file
    try:
        user_home = Path(env.get("HOME") or Path.home())
    except RuntimeError:  # a container's user that nobody knows
        user_home = config.home
    named = (
        env.get("GOOGLE_APPLICATION_CREDENTIALS"),
        env.get("AWS_SHARED_CREDENTIALS_FILE"),
        env.get("AWS_CONFIG_FILE"),
        env.get("CLOUDSDK_CONFIG"),
    )
    return (
        config.home,
        Path("/proc"),
        config.file_path,
        *(database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")),
        *(log_file.with_name(log_file.name + suffix) for suffix in ("", *(f".{n}" for n in range(1, KEPT_FILES + 1)))),
        *(provider.credentials_file for provider in config.providers.values() if provider.credentials_file != Path()),
        user_home / ".aws",
        user_home / ".config" / "gcloud",
        *map(Path, filter(None, named)),
    )


def _permits(context: ToolContext, tool: Tool) -> str | None:
    """Why somebody may not use a tool; None if he may."""
    if permits(DEFAULT_POLICY.grants(context.role), tool.permission):
        return None
    return f"{tool.name} is not for people with the role {context.role}: it needs the permission {tool.permission}"


async def _tick(broadcaster: Broadcaster, interval_s: float) -> None:
    """Clients leave after two missed ticks, whatever else they get (OPENCLAW-V3 1.4)."""
    while True:
        await asyncio.sleep(interval_s)
        broadcaster.publish("tick", TickEvent(ts=now_ms()), owner=None)


async def _warm_up(router: Router, toolbox: Toolbox) -> None:
    """Load what the first request to a model needs, so that it does not pay for it."""
    await asyncio.sleep(WARM_UP_AFTER_S)
    await toolbox.refresh()
    await router.warm_up()


async def _sweep(turns: TurnStore) -> None:
    """Forget idempotency keys that are older than a day."""
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_S)
        await turns.sweep(now_ms())
