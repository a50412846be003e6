"""The composition root: every part is built here and handed to those that use it.

Read top to bottom, it is the architecture.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starlette.applications import Starlette

from skynet.app_commands import Confinement, open_commands, plugin_runner
from skynet.app_duties import (
    ask_beside,
    compact,
    log_refusal,
    note_refused_tool,
    permits,
    readers,
    session_counts,
    tell_of_job,
    tick,
    warm_up,
    warn_of_budget,
)
from skynet.app_settings import hidden_from_commands, own_folder, permission_policy, private_places, protection
from skynet.config import CREDENTIALS_DIRECTORY, Config
from skynet.gateway.approvals import Approvals
from skynet.gateway.audit_notes import AuditNotes
from skynet.gateway.auth import Authenticator
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.budgets import limits_of, limits_reader, loader
from skynet.gateway.children import Guard, most_protected
from skynet.gateway.commands import Commands
from skynet.gateway.compaction import Compactor
from skynet.gateway.config_audit import record_configuration
from skynet.gateway.connection import Gateway
from skynet.gateway.dispatch import Dispatcher, collect
from skynet.gateway.exec_approvals import ExecApprovals
from skynet.gateway.exec_file import ExecFile
from skynet.gateway.greeter import Greeter
from skynet.gateway.health import HealthBoard
from skynet.gateway.heartbeat import Heartbeats, SystemEvents
from skynet.gateway.ingress import Ingress
from skynet.gateway.memory_access import MemoryAccess
from skynet.gateway.model_calls import ModelCalls
from skynet.gateway.model_check import ModelCheck
from skynet.gateway.node_events import NodeEvents
from skynet.gateway.nodes import Nodes
from skynet.gateway.once import Once
from skynet.gateway.people_commands import PeopleCommands
from skynet.gateway.presence import PresenceTable, StateVersions
from skynet.gateway.recollections import Recollections
from skynet.gateway.removal import Removal
from skynet.gateway.revocation import Revocation
from skynet.gateway.rooms import Rooms
from skynet.gateway.run import Run
from skynet.gateway.run_answer import RunResult
from skynet.gateway.run_hooks import RunHooks
from skynet.gateway.run_request import COMPACTED_MESSAGES, HISTORY_MESSAGES, RunRequests
from skynet.gateway.runs import Runs
from skynet.gateway.server import GatewayServer, listen, loop_factory
from skynet.gateway.sweep import Sweep
from skynet.gateway.terminal_streams import TerminalStreams
from skynet.gateway.time_zone import machine_zone
from skynet.gateway.tool_calls import ToolCalls
from skynet.gateway.transcript_access import TranscriptAccess
from skynet.hooks import HookBus
from skynet.hooks.loading import DIRECTORY as HOOKS_DIRECTORY
from skynet.hooks.loading import load_hooks
from skynet.http import http_app
from skynet.methods.agent import RunMethods
from skynet.methods.agents import AgentMethods
from skynet.methods.approvals import ApprovalMethods
from skynet.methods.audit import AuditMethods
from skynet.methods.channels import ChannelMethods
from skynet.methods.chat import ChatMethods
from skynet.methods.config import ConfigMethods
from skynet.methods.cron import CronMethods
from skynet.methods.devices import DeviceMethods
from skynet.methods.exec_approvals import ExecApprovalMethods, ExecRequestMethods
from skynet.methods.groups import GroupMethods
from skynet.methods.health import HealthMethods
from skynet.methods.heartbeat import HeartbeatMethods
from skynet.methods.history import HistoryMethods
from skynet.methods.identities import IdentityMethods
from skynet.methods.knowledge import KnowledgeMethods
from skynet.methods.logs import LogMethods
from skynet.methods.memory import MemoryMethods
from skynet.methods.models import ModelMethods
from skynet.methods.nodes import NodeMethods
from skynet.methods.ping import PingMethods
from skynet.methods.presence import PresenceMethods
from skynet.methods.providers import ProviderMethods
from skynet.methods.sessions import SessionMethods
from skynet.methods.skills import SkillMethods
from skynet.methods.terminal import TerminalMethods
from skynet.methods.tools import ToolMethods
from skynet.methods.usage import UsageMethods
from skynet.methods.users import UserMethods
from skynet.models import provider_rows, unprotected
from skynet.places import Places
from skynet.plugins import DIRECTORY as PLUGINS_DIRECTORY
from skynet.plugins import Plugins
from skynet.supervisor import Supervisor
from skynet.tables import TABLES
from skynet.tools import Remembered, built_in_tools
from skynet.tools.plugins import PluginTools
from skynet.version import VERSION
from skynet_agent.auth.tokens import TokenStore
from skynet_agent.prompt import RULES, Prompts
from skynet_agent.registry import KNOWN_PROVIDERS
from skynet_agent.router import Router
from skynet_agent.tools import Toolbox
from skynet_agent.workspace import Workspace
from skynet_memory.compactions import CompactionStore
from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId, now_ms
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_context import ContextCache
from skynet_memory.memory_gate import WriteGate
from skynet_memory.migrations import migrate
from skynet_memory.search import TranscriptSearch
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from skynet_memory.usage import UsageStore
from skynet_protocol.terminal import TerminalExecResult
from skynet_users.approvals import Approval, ApprovalStore
from skynet_users.audit import AuditLog
from skynet_users.budgets import Ledger
from skynet_users.command_grants import CommandGrantStore
from skynet_users.credentials import CredentialStore
from skynet_users.devices import DeviceStore
from skynet_users.groups import GroupStore
from skynet_users.guardians import GuardianStore
from skynet_users.identities import IdentityStore
from skynet_users.links import LinkCodes
from skynet_users.memberships import Memberships
from skynet_users.nodes import NodeStore
from skynet_users.people import User, UserChanges, UserStore
from skynet_users.resolver import UserResolver

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class App:
    """A gateway that is open but does not listen yet."""

    gateway: Gateway
    http: Starlette
    database: Database
    runs: Runs
    toolbox: Toolbox
    hooks: HookBus
    ledger: Ledger
    resolver: UserResolver
    ingress: Ingress


@asynccontextmanager
async def open_app(config: Config) -> AsyncIterator[App]:
    """Open the state and build every part; leaving closes them in reverse.

    Args:
        config: with the gateway token filled in (:func:`skynet.config.ensure_gateway_token`).

    Raises:
        DatabaseInUse, DatabaseTooNew, DatabaseRefused, HooksRefused: with words for the person who started the gateway.
    """
    started_s = time.monotonic()
    versions = StateVersions()
    memberships = Memberships()
    broadcaster = Broadcaster(memberships.members)
    heartbeats, system_events = Heartbeats(), SystemEvents()
    zone = machine_zone()
    async with (
        Database(config.database.path, synchronous=config.database.synchronous) as db,
        Supervisor() as tasks,
        HookBus(
            tasks,
            gate_timeout_s=config.hooks.gate_timeout_s,
            observer_timeout_s=config.hooks.observer_timeout_s,
            queued_events=config.hooks.queued_events,
        ) as hooks,
        AsyncExitStack() as stack,
    ):
        load_hooks(hooks, config.home / HOOKS_DIRECTORY, on_error=config.hooks.on_error)
        await migrate(db, TABLES)

        # Who is there, and what each may do
        users, credentials, devices = UserStore(db), CredentialStore(db), DeviceStore(db)
        identities, guardians, links = IdentityStore(db), GuardianStore(db), LinkCodes(db)
        groups, audit = GroupStore(db, memberships=memberships), AuditLog(db)
        node_store = NodeStore(db)
        nodes = Nodes(devices, node_store, allow=config.nodes.allow_commands, deny=config.nodes.deny_commands)
        await groups.load()
        await record_configuration(audit, config)
        rooms = Rooms(groups)
        policy = permission_policy(config)
        resolver = UserResolver(db, unknown=config.users.unknown, new_role=config.users.new_role)
        owner = await users.ensure_owner()

        notes = await stack.enter_async_context(AuditNotes(audit, tasks))
        note_refusal = partial(log_refusal, notes.add)
        authenticator = Authenticator(
            config.gateway,
            owner=owner,
            users=users,
            credentials=credentials,
            devices=devices,
            broadcaster=broadcaster,
            policy=policy,
            person=resolver.user,
            note=notes.add,
        )

        # What was said, what is remembered, what was used
        sessions, transcripts, turns, usage = SessionStore(db), TranscriptStore(db), TurnStore(db), UsageStore(db)
        search = TranscriptSearch(db)
        for run in await turns.close_unfinished(now_ms()):
            log.warning("closed run %s, which the last stop interrupted", run.run_id, extra={"user_id": run.owner})
        workspace = Workspace(
            config.home,
            workspace_dir=config.agent.workspace_dir if config.workspace_is_set else None,
            soul_path=None if config.agent.soul_path == Path() else config.agent.soul_path,
        )
        guard = Guard(
            protection(config),
            broadcaster,
            system_events,
            guardians=guardians.of,
            record=audit.record,
        )

        async def never_remember(owner: UserId) -> Callable[[str], str | None] | None:
            user = await resolver.user(owner)
            if user is None or user.kind == "person":
                return None if user is None else guard.never_remember(user)
            child = most_protected(await readers(memberships, resolver, owner))
            return None if child is None else guard.never_remember(child)

        gate = WriteGate(banned=lambda: (RULES, workspace.text), refuses=never_remember)
        memories, knowledge = MemoryStore(db, gate), KnowledgeStore(db, gate)
        recollections = Recollections(ContextCache(memories), knowledge)

        # Models, and who pays for them
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
        ledger = Ledger(
            loader(usage),
            limits_reader(resolver.user, config.budgets, zone),
            limits_of(config.budgets.house),
            zone,
            on_warning=partial(warn_of_budget, broadcaster, zone),
            clock=now_ms,
        )
        calls = ModelCalls(router, ledger, hooks, usage)
        if config.filter.model:
            guard.model_check = ModelCheck(calls, config.filter.model)

        # What waits for somebody's yes
        approval_store = ApprovalStore(db)

        async def registered(approval: Approval, user: User) -> None:
            await ingress.registered(approval, user)

        approvals = Approvals(
            approval_store,
            users=users,
            guardians=guardians,
            policy=policy,
            broadcaster=broadcaster,
            events=system_events,
            record=audit.record,
            registered=registered,
            wait_s=config.approvals.wait_s,
        )
        exec_file = ExecFile(config.home / "exec-approvals.json")
        exec_approvals = ExecApprovals(
            exec_file,
            CommandGrantStore(db),
            people=resolver.user,
            users=users,
            guardians=guardians,
            policy=policy,
            broadcaster=broadcaster,
            events=system_events,
            record=audit.record,
            approver={Role.ADMIN: config.terminal.approver.admin, Role.USER: config.terminal.approver.user},
            wait_s=config.approvals.wait_s,
        )

        # Tools, and where commands are run
        places = Places(
            partial(own_folder, config),
            roots=() if config.agent.restrict_to_workspace else (Path("/"),),
            sealed=private_places(config, os.environ),
            protected=workspace.protects,
        )
        confinement = await stack.enter_async_context(Confinement(config, tasks, hidden_from_commands(config)))
        desk = await stack.enter_async_context(
            open_commands(
                config,
                db,
                tasks,
                places=places,
                confinement=confinement,
                sessions=sessions.get,
                nodes=nodes,
                approver=exec_approvals,
                people=resolver.user,
                by_hand=approvals.ask_for_tool,
                note=notes.add,
                job_ended=partial(tell_of_job, system_events),
            )
        )
        once = Once[TerminalExecResult](tasks)
        remembered = Remembered(memories=memories, knowledge=knowledge, history=search, record=audit.record)
        tools = built_in_tools(places=places, workspace=workspace, commands=desk, remembered=remembered)
        plugins = PluginTools(
            Plugins(config.home / PLUGINS_DIRECTORY, env=os.environ, taken=[tool.name for tool in tools]),
            plugin_runner(config, confinement),
            folder_of=partial(own_folder, config),
        )
        toolbox = Toolbox(tools, permits=permits, more=plugins.tools, refused=partial(note_refused_tool, notes.add))

        compactions = CompactionStore(db)
        compactor = Compactor(
            sessions=sessions,
            compactions=compactions,
            router=router,
            ask=partial(ask_beside, calls, resolver.user, sessions),
            memories=memories,
            tasks=tasks,
            model=config.compaction.model,
            turns=config.compaction.turns,
        )
        requests = RunRequests(
            compactions=compactions,
            router=router,
            system_events=system_events,
            tools=ToolCalls(toolbox, hooks, approve=approvals.ask_for_tool, used=knowledge.count_tool),
            prompts=Prompts(workspace),
            memory=recollections.text,
            max_output_tokens=config.agent.max_output_tokens,
            history_messages=COMPACTED_MESSAGES if config.compaction.enabled else HISTORY_MESSAGES,
        )
        health = HealthBoard(
            sessions=sessions,
            heartbeats=heartbeats,
            broadcaster=broadcaster,
            versions=versions,
            tasks=tasks,
            store_path=str(config.database.path),
            agent_name=config.agent.name,
        )

        def after_run(run: Run, result: RunResult) -> None:
            if config.compaction.enabled:
                compact(compactor, run)
            if run.is_welcome and result.status == "ok" and run.inbound.group is None:  # a room welcomes nobody
                welcomed = users.set(run.person, UserChanges(needs_welcome=False))
                tasks.start(welcomed, name=f"welcomed {run.person}")

        async with (
            aclosing(router),
            Runs(
                turns=turns,
                sessions=sessions,
                requests=requests,
                calls=calls,
                people=resolver.user,
                guard=guard,
                readers=partial(readers, memberships, resolver),
                broadcaster=broadcaster,
                tasks=tasks,
                timeout_s=config.agent.timeout_s,
                max_rounds=config.agent.max_rounds,
                after=after_run,
            ) as runs,
        ):
            run_hooks = RunHooks(hooks)

            def forget(user_id: UserId) -> None:
                resolver.forget(user_id)
                ledger.forget(user_id)
                tasks.start(groups.load(user_id), name="memberships")

            revocation = Revocation(
                broadcaster,
                tasks,
                forget=forget,
                stop_runs=runs.stop_person,
                withdraw=[exec_approvals.person_changed, once.stop_person, desk.stop_person],
            )
            presence = PresenceTable(broadcaster, versions, version=VERSION)
            commands = Commands(
                sessions=sessions,
                router=router,
                abort_session=runs.abort_session,
                ended=run_hooks.session_ended,
                archived=compactor.archived if config.compaction.on_reset else None,
                people=PeopleCommands(
                    approvals=approvals,
                    exec_approvals=exec_approvals,
                    links=links,
                    ledger=ledger,
                    record=audit.record,
                ),
                refused=note_refusal,
            )
            ingress = Ingress(
                resolver=resolver,
                policy=policy,
                approvals=approvals,
                approval_store=approval_store,
                rooms=rooms,
                commands=commands,
                runs=runs,
                tasks=tasks,
                record=audit.record,
            )
            memory_access = MemoryAccess(
                person=users.get,
                is_member=groups.is_member,
                record=audit.record,
                broadcaster=broadcaster,
                system_events=system_events,
            )
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
                    people=partial(session_counts, users, sessions),
                    record=audit.record,
                ),
                AgentMethods(config.agent.name),
                SessionMethods(
                    sessions=sessions,
                    transcripts=transcripts,
                    router=router,
                    abort_session=runs.abort_session,
                    ended=run_hooks.session_ended,
                    archived=compactor.archived if config.compaction.on_reset else None,
                    rooms=rooms,
                    store_path=str(config.database.path),
                ),
                ChatMethods(
                    runs=runs,
                    sessions=sessions,
                    transcripts=transcripts,
                    broadcaster=broadcaster,
                    commands=commands,
                    rooms=rooms,
                    others=TranscriptAccess(guardians.find, audit.record),
                ),
                RunMethods(runs=runs, sessions=sessions, broadcaster=broadcaster, commands=commands, rooms=rooms),
                ConfigMethods(config),
                LogMethods(config.logging.file),
                UsageMethods(usage),
                DeviceMethods(devices, broadcaster, revoked=revocation.device_revoked, record=audit.record),
                ChannelMethods(),
                SkillMethods(workspace_dir=config.agent.workspace_dir, managed_dir=config.home / "skills"),
                ToolMethods(toolbox.refresh),
                NodeMethods(
                    nodes,
                    NodeEvents(submit=runs.submit, events=system_events, broadcaster=broadcaster),
                    devices,
                    node_store,
                    broadcaster,
                    people=resolver.user,
                    approvals=exec_approvals,
                    record=audit.record,
                ),
                TerminalMethods(desk, TerminalStreams(broadcaster, tasks), once, rooms=rooms),
                CronMethods(str(config.database.path)),
                ExecApprovalMethods(exec_file, audit.record, nodes.invoke),
                ExecRequestMethods(exec_approvals),
                UserMethods(
                    users,
                    credentials=credentials,
                    identities=identities,
                    guardians=guardians,
                    policy=policy,
                    ledger=ledger,
                    changed=revocation.person_changed,
                    revoked=revocation.credential_revoked,
                    removed=Removal(memories, search, config.home / "users", jobs=desk.jobs.remove_person).clean_up,
                    record=audit.record,
                ),
                IdentityMethods(identities, links=links, record=audit.record),
                GroupMethods(groups, users=users, record=audit.record),
                ApprovalMethods(approvals, users),
                MemoryMethods(memories, memory_access, prompt_text=recollections.text),
                KnowledgeMethods(knowledge, memory_access),
                HistoryMethods(search),
                AuditMethods(audit),
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
                refused=note_refusal,
                node_connected=nodes.connected,
                node_gone=nodes.disconnected,
            )
            tasks.start(tick(broadcaster, config.gateway.limits.tick_interval_s), name="tick")
            tasks.start(health.keep_fresh(), name="health")
            tasks.start(revocation.keep_time(), name="token ends")
            tasks.start(Sweep(turns, approvals, memories, search).keep_on(), name="sweep")
            tasks.start(warm_up(router, toolbox), name="warm up")
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
                refused=note_refusal,
            )
            yield App(gateway, http, db, runs, toolbox, hooks, ledger, resolver, ingress)


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
