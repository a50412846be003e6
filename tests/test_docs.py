"""The documentation says what the code does. ``make docs`` runs this file, which writes the generated tables."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import skynet.methods
from skynet.cli.app import COMMANDS
from skynet.cli.errors import Exit
from skynet.config import Config, PriceConfig, config_to_public, load_config, schema
from skynet.config.schema import fields_of, is_table, plain_type
from skynet.gateway import run_request, runs
from skynet.gateway.approvals import Record
from skynet.gateway.authorize import METHOD_PERMISSIONS
from skynet.gateway.command_desk import CommandDesk
from skynet.gateway.dispatch import _MARK
from skynet.gateway.run_events import COALESCE_S
from skynet.hooks import (
    GATES,
    HOOKS,
    AgentCompleted,
    BeforeMessage,
    BeforeToolCall,
    Event,
    Gate,
    HookBus,
    HookUsage,
    HookUser,
    MessageReceived,
    ModelMessage,
    Stopped,
    load_hooks,
)
from skynet.hooks import bus as hook_bus
from skynet.hooks import calls as hook_calls
from skynet.hooks import shell as hook_shell
from skynet.hooks.files import FILE_BYTES as HOOK_BYTES
from skynet.http.chat_request import DEFAULT_MAX_TOKENS
from skynet.paths import DEEPEST
from skynet.places import LEAST_FREE_BYTES, Places
from skynet.plugins import MOST_PLUGINS, PluginFile, parse
from skynet.plugins.folders import FILE_BYTES
from skynet.supervisor import Supervisor
from skynet.tools import Remembered, built_in_tools, files, plugins, search
from skynet_agent import breaker, catalogue, claude, failover, turn, workspace
from skynet_agent.registry import REGISTRY, KnownProvider
from skynet_agent.thinking import BUDGET_TOKENS
from skynet_agent.tools import Tool
from skynet_agent.workspace import BOOTSTRAP, FILES, FIRST_RUN, Workspace, WorkspaceMode
from skynet_memory.database import Database
from skynet_memory.ids import Role, RunId, SessionKey, UserId
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.memories import MemoryStore
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY_TABLES
from skynet_memory.search import TranscriptSearch
from skynet_protocol import (
    approvals,
    audit,
    exec_approvals,
    groups,
    history,
    identities,
    knowledge,
    memory,
    providers,
    terminal,
    users,
)
from skynet_protocol.events import EVENT_SCOPES, EVENTS, is_droppable
from skynet_protocol.methods import METHODS
from skynet_terminal.processes import OPEN_FILES, OUTPUT_BYTES
from skynet_users.permissions import DEFAULT_POLICY, Permission, Reach, permits
from skynet_users.schema import COMPONENT as USER_TABLES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "skynet.example.toml"
BUDGETS = "Tokens, where a number is told"


def field_docs(table: type[Any]) -> dict[str, str]:
    """The docstring under each field, on one line."""
    (node,) = ast.parse(inspect.getsource(table)).body
    assert isinstance(node, ast.ClassDef)
    docs = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            assert isinstance(text.value, ast.Constant)
            docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def settings() -> Iterator[tuple[str, str, Any, type[msgspec.Struct]]]:
    """Every key of the schema: its path, its last part, its default, the table it is in."""
    yield from _settings(Config, "")


def _settings(table: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, str, Any, type[msgspec.Struct]]]:
    for field in msgspec.structs.fields(table):
        if table is Config and field.name in Config.NOT_KEYS:
            continue
        kind = plain_type(fields_of(table)[field.name])
        path = f"{prefix}{field.name}"
        inner = _table_of(kind)
        if inner is None:
            yield path, field.name, _default(field), table
        elif is_table(kind):
            yield from _settings(inner, f"{path}.")
        else:
            yield from _settings(inner, f"{path}.<name>." if "dict" in str(kind) else f"{path}[].")


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that a field is, or that its items are."""
    for candidate in (kind, *getattr(kind, "__args__", ())):
        if is_table(candidate):
            assert issubclass(candidate, msgspec.Struct)
            return candidate
    return None


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return msgspec.NODEFAULT
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return schema._public(value, "***")


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def settings_table() -> str:
    rows = ["| Key | Default | Meaning |", "|---|---|---|"]
    for path, name, default, table in settings():
        shown = "required" if default is msgspec.NODEFAULT else f"`{msgspec.json.encode(default).decode()}`"
        shown = "not set" if default is None else shown
        text = re.sub(r" (Default|Required)\b[^.:]*(?:\.(?=\d)[^.]*)?\.$", "", field_docs(table)[name])
        rows.append(f"| `{path}` | {shown} | {_cell(text)} |")
    return "\n".join(rows)


def enabling_line(known: KnownProvider) -> str:
    """The one line that enables a provider: a variable of the environment, a section, or a command."""
    if known.has_login:
        return f"skynet providers login {known.name}"
    if "{" in known.row.base_url:
        (address,) = re.findall(r"\{(\w+)\}", known.row.base_url)
        return f"{known.keys[0]}=… {address}=https://…"
    if variables := (*known.keys, *known.projects):
        return f"{variables[0]}=…"
    return f"[providers.{known.name}]"


def providers_table() -> str:
    rows = ["| Name | Provider | Enabled by | First model |", "|---|---|---|---|"]
    for known in REGISTRY:
        first = f"`{known.models[0]}`" if known.models else "as configured"
        rows.append(f"| `{known.name}` | [{known.row.title}]({known.source}) | `{enabling_line(known)}` | {first} |")
    return "\n".join(rows)


def variables_table() -> str:
    rows = ["| Name | Other variables that enable it | Only fill in its section |", "|---|---|---|"]
    for known in REGISTRY:
        enabling = [*known.keys, *known.projects, *known.urls]
        others = enabling[0 if known.has_login or known.urls else 1 :]
        filling = (*known.shared_keys, *known.shared_projects, *known.regions)
        if others or filling:
            cells = (", ".join(f"`{name}`" for name in names) for names in (others, filling))
            rows.append(f"| `{known.name}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def served_methods() -> set[str]:
    """The names of all handlers in ``skynet.methods``, and ``connect``, which the handshake answers."""
    names = {"connect"}
    for module in pkgutil.iter_modules(skynet.methods.__path__):
        for _, namespace in inspect.getmembers(
            importlib.import_module(f"skynet.methods.{module.name}"), inspect.isclass
        ):
            for _, function in inspect.getmembers(namespace, inspect.isfunction):
                if name := getattr(function, _MARK, None):
                    names.add(name)
    return names


def methods_table() -> str:
    served = served_methods()
    rows = ["| Method | Needs | Permission | Served |", "|---|---|---|---|"]
    for name, spec in METHODS.items():
        needs = "role node" if spec.node_only else (spec.scope or "nothing").removeprefix("operator.")
        needs = "to be the first" if name == "connect" else needs
        permission = METHOD_PERMISSIONS[name] or ""
        rows.append(f"| `{name}` | {needs} | {permission} | {'yes' if name in served else ''} |")
    return "\n".join(rows)


def events_table() -> str:
    rows = ["| Event | Needs | When a client does not read |", "|---|---|---|"]
    for name in EVENTS:
        needs = EVENT_SCOPES.get(name, "").removeprefix("operator.")
        fate = (
            "deltas are skipped" if name == "chat" else "skipped" if is_droppable(name, {}) else "the client is closed"
        )
        rows.append(f"| `{name}` | {needs} | {'' if name == 'connect.challenge' else fate} |")
    return "\n".join(rows)


def hooks_reference() -> str:
    """Each event with its fields, from their docstrings."""
    lines = ["Every event has:", "", *_fields_table(Event), "", "`user` has:", "", *_fields_table(HookUser)]
    lines += ["", "`usage` of an event has:", "", *_fields_table(HookUsage)]
    lines += ["", "`messages` of an event are texts with a role:", "", *_fields_table(ModelMessage)]
    for event in (*GATES, *HOOKS):
        assert event.__doc__ is not None
        lines += ["", f"### `{event.NAME}`: `{event.__name__}`", "", _cell(" ".join(event.__doc__.split()))]
        if issubclass(event, Gate):
            lines += ["", f"May be changed: {', '.join(f'`{name}`' for name in sorted(event.CHANGEABLE))}."]
        if set(vars(event)["__annotations__"]):
            lines += ["", *_fields_table(event)]
    return "\n".join(lines)


def _fields_table(event: type[Any]) -> list[str]:
    described, kinds = field_docs(event), vars(event)["__annotations__"]
    own = [name for name, kind in kinds.items() if not kind.startswith("ClassVar")]
    rows = [f"| `{name}` | `{_cell(kinds[name])}` | {_cell(described[name])} |" for name in own]
    return ["| Field | Type | Meaning |", "|---|---|---|", *rows]


def permissions_table() -> str:
    """Every permission, what it is for, and how far it goes for each role."""
    (node,) = ast.parse(inspect.getsource(Permission)).body
    assert isinstance(node, ast.ClassDef)
    meanings = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.Assign) and isinstance(text, ast.Expr):
            assert isinstance(field.targets[0], ast.Name) and isinstance(text.value, ast.Constant)
            meanings[field.targets[0].id] = " ".join(str(text.value.value).split())
    rows = ["| Permission | | admin | user | child |", "|---|---|---|---|---|"]
    for permission in Permission:
        reaches = [DEFAULT_POLICY.grants(role).get(permission, Reach.NONE) for role in Role]
        shown = " | ".join("" if reach is Reach.NONE else reach.value for reach in reaches)
        rows.append(f"| `{permission}` | {_cell(meanings[permission.name])} | {shown} |")
    return "\n".join(rows)


GENERATED = (
    ("people.md", "permissions", permissions_table),
    ("configuration.md", "settings", settings_table),
    ("providers.md", "providers", providers_table),
    ("providers.md", "variables", variables_table),
    ("protocol.md", "methods", methods_table),
    ("protocol.md", "events", events_table),
    ("hooks.md", "hooks", hooks_reference),
)


def parts(text: str, mark: str) -> tuple[str, str, str]:
    """The text before the generated table, the table, and the text after it."""
    head, start, rest = text.partition(f"<!-- {mark} -->\n")
    table, end, tail = rest.partition("<!-- end -->")
    assert start and end, f"no {mark}"
    return head + start, table, end + tail


@pytest.mark.parametrize(("file", "mark", "table"), GENERATED)
def test_generated_tables_are_up_to_date(file: str, mark: str, table: Any) -> None:
    _, written, _ = parts((DOCS / file).read_text(), mark)
    assert written.strip() == table().strip(), "run: make docs"


def test_every_setting_is_documented_where_it_is_defined() -> None:
    for path, name, default, table in settings():
        text = field_docs(table).get(name, "")
        assert text, f"{path} has no docstring"
        assert "Required" in text if default is msgspec.NODEFAULT else "Default" in text, path
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert f"{default:g}" in text or str(default) in text, path


def test_every_table_says_what_it_is() -> None:
    tables = {table for _, _, _, table in settings()}
    assert PriceConfig in tables
    assert all(table.__doc__ for table in tables)


class TestProviders:
    """``docs/providers.md``: what it says is enough, is."""

    TEXT = (DOCS / "providers.md").read_text()

    @pytest.mark.parametrize("known", REGISTRY, ids=lambda known: known.name)
    def test_one_line_enables_each(self, known: KnownProvider, tmp_path: Path) -> None:
        line = enabling_line(known)
        assert f"`{line}`" in self.TEXT
        env, file = {"SKYNET_HOME": str(tmp_path)}, tmp_path / "skynet.toml"
        if line.startswith("["):
            file.write_text(line)
        elif line.startswith("skynet"):
            (tmp_path / "credentials").mkdir()
            (tmp_path / "credentials" / f"{known.name}.json").write_text("{}")
        else:
            env |= {name: value.replace("…", "x") for name, _, value in (part.partition("=") for part in line.split())}
        config = load_config(None, env=env)
        assert list(config.enabled_providers) == [known.name]

    def test_the_age_of_the_catalogue_is_told(self) -> None:
        assert f"as of {catalogue.catalogue_date()}" in self.TEXT

    def test_every_example_is_right(self, tmp_path: Path) -> None:
        examples = re.findall(r"```toml\n(.*?)```", self.TEXT, re.DOTALL)
        assert len(examples) >= 6
        for example in examples:
            (tmp_path / "skynet.toml").write_text(example)
            config = load_config(None, env={"SKYNET_HOME": str(tmp_path), "HOME": str(tmp_path), "LAB_KEY": "k"})
            assert config.enabled_providers or config.providers or config.pools
            assert not any("is off" in warning for warning in config.warnings)


class TestAssistant:
    """``docs/assistant.md``: what it says of the assistant, its tools and its turns is what the code has."""

    TEXT = (DOCS / "assistant.md").read_text()

    def rows(self) -> Iterator[list[str]]:
        for line in self.TEXT.splitlines():
            if line.startswith("| "):
                yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]

    def test_every_built_in_tool_has_its_row(self, tmp_path: Path) -> None:
        places = Places(lambda context: tmp_path)
        permissions = {row[0]: row[-1] for row in self.rows() if len(row) == 4}
        database = Database(tmp_path / "skynet.db")
        remembered = Remembered(
            memories=MemoryStore(database),
            knowledge=KnowledgeStore(database),
            history=TranscriptSearch(database),
            record=cast(Record, object()),
        )
        offered = built_in_tools(places=places, workspace=Workspace(tmp_path), remembered=remembered)
        assert {f"`{tool.name}`": f"`{tool.permission}`" for tool in offered}.items() <= permissions.items()
        for tool in built_in_tools(places=places, workspace=Workspace(tmp_path), commands=cast(CommandDesk, object())):
            assert f"`{tool.name}`" in self.TEXT

    def test_what_each_role_may_do(self) -> None:
        told = {row[0]: set(re.findall(r"`([a-z.]+)`", row[1])) for row in self.rows() if len(row) == 2}
        for role in Role:
            grants = DEFAULT_POLICY.grants(role)
            assert told[role] == {word for word in told[Role.ADMIN] if permits(grants, word)}, role
        needed = {row[-1].strip("`") for row in self.rows() if len(row) == 4 and row[0].startswith("`")}
        assert {word for word in needed if word in set(Permission)} <= told[Role.ADMIN]

    def test_every_setting_of_the_agent_and_the_router_is_named(self) -> None:
        missing = [path for path, *_ in settings() if path.startswith(("agent.", "router.")) and path not in self.TEXT]
        assert not missing

    def test_where_the_prompt_may_be_from(self) -> None:
        assert [row[2] for row in self.rows() if len(row) == 3 and row[2].strip("`") in set(WorkspaceMode)] == [
            f"`{mode}`" for mode in WorkspaceMode
        ]

    def test_the_files_stand_in_their_order(self) -> None:
        files = [*(f"| `{name}` |" for name in FILES), "| other `*.md` files |", f"| `{BOOTSTRAP}` |"]
        places = [self.TEXT.index(file) for file in files]
        assert places == sorted(places)
        assert f"`{FIRST_RUN}`" in self.TEXT

    def test_the_budgets_of_the_levels_of_thinking(self) -> None:
        levels, (_, *tokens) = (row for row in self.rows() if len(row) == 6 and row[0] in ("Level", BUDGETS))
        assert dict(zip([level.strip("`") for level in levels[1:]], tokens, strict=True)) == {
            level: f"{tokens:,}" for level, tokens in BUDGET_TOKENS.items() if tokens
        }

    @pytest.mark.parametrize(
        "words",
        [
            f"at most {workspace.FILE_CHARS:,} characters in the prompt, all together {workspace.TOTAL_CHARS:,}",
            f"beyond {workspace.MOST_FILES} files",
            f"the last {run_request.COMPACTED_MESSAGES:,} stored messages ({run_request.HISTORY_MESSAGES} with",
            f"{run_request.DEFAULT_WINDOW_TOKENS:,}",
            f"{files.READ_CHARS:,} characters a call",
            f"the first {files.FILE_BYTES // 2**20} MiB",
            f"{files.IMAGE_BYTES:,} bytes",
            f"the last {files.MOST_SEEN:,}",
            f"{search.MOST_ENTRIES:,} entries, {search.LIST_CHARS:,} characters",
            f"{DEEPEST} levels, {search.WALK_S:.0f} seconds",
            f"{search.MOST_MATCHES} matches, {search.LINE_CHARS} characters a line",
            f"{Tool.__dataclass_fields__['timeout_s'].default:.0f} seconds",
            f"less than {LEAST_FREE_BYTES // 2**20} MiB",
            f"at most {runs.MAX_QUEUED} wait",
            f"at most {runs.MAX_ACTIVE} are answered",
            f"at most {turn.MAX_PARALLEL_CALLS}",
            f"`agent.max_rounds` times ({turn.MAX_ROUNDS})",
            f"`router.retries` times ({failover.RETRIES})",
            f"`router.breaker_failures` failures in a row ({breaker.FAILURES})",
            f"`router.breaker_cooldown_s` seconds ({breaker.COOL_DOWN_S:.0f})",
            f"at most {breaker.LONGEST_S / 60:.0f} minutes",
            f"at most {failover.SHORT_WAIT_S:.0f} seconds",
            f"after {failover.RETRY_PAUSE_S:g} s, then {2 * failover.RETRY_PAUSE_S:g} s",
            f"has {DEFAULT_MAX_TOKENS:,} tokens",
            f"for {claude.LONG_ANSWER_TOKENS:,}",
            f"for {claude.CAUTIOUS_TOKENS:,}",
            f"at most {1 / COALESCE_S:.0f} a second",
        ],
    )
    def test_numbers(self, words: str) -> None:
        assert words in " ".join(self.TEXT.split())


OWN_METHODS: Mapping[str, Sequence[type[msgspec.Struct]]] = {
    "agent.status": (providers.AgentStatusResult, providers.ProviderStatus, providers.ProviderModel),
    "agent.model": (providers.AgentModelParams, providers.AgentModelResult),
    "providers.list": (providers.ProvidersListParams, providers.ProvidersListResult, providers.KnownProvider),
    "providers.models": (providers.ProvidersModelsParams, providers.ProvidersModelsResult),
    "providers.test": (providers.ProvidersTestParams, providers.ProvidersTestResult, providers.ProviderTest),
    "users.list": (users.UsersListResult, users.Person),
    "users.get": (users.UsersGetParams, users.UsersGetResult, users.PersonName),
    "users.add": (users.UsersAddParams, users.UsersAddResult),
    "users.set": (users.UsersSetParams, users.UsersSetResult),
    "users.remove": (users.UsersRemoveParams, users.UsersRemoveResult),
    "users.password": (users.UsersPasswordParams, users.UsersPasswordResult),
    "users.budget": (users.UsersBudgetParams, users.UsersBudgetResult, users.BudgetPeriod, users.Allowance),
    "users.tokens.list": (users.UsersTokensListParams, users.UsersTokensListResult, users.TokenSummary),
    "users.tokens.create": (users.UsersTokensCreateParams, users.UsersTokensCreateResult),
    "users.tokens.revoke": (users.UsersTokensRevokeParams, users.UsersTokensRevokeResult),
    "users.guardians.set": (users.UsersGuardiansSetParams, users.UsersGuardiansResult),
    "users.guardians.remove": (users.UsersGuardiansRemoveParams, users.UsersGuardiansResult),
    "identities.list": (identities.IdentitiesListParams, identities.IdentitiesListResult, users.PersonIdentity),
    "identities.link": (identities.IdentitiesLinkParams, identities.IdentitiesLinkResult),
    "identities.unlink": (identities.IdentitiesUnlinkParams, identities.IdentitiesUnlinkResult),
    "identities.code": (identities.IdentitiesCodeResult,),
    "identities.claim": (identities.IdentitiesClaimParams, identities.IdentitiesClaimResult),
    "approvals.list": (approvals.ApprovalsListParams, approvals.ApprovalsListResult, approvals.ApprovalSummary),
    "approvals.decide": (
        approvals.ApprovalsDecideParams,
        approvals.ApprovalsDecideResult,
        approvals.ApprovalRequestedEvent,
        approvals.ApprovalResolvedEvent,
    ),
    "approvals.request": (approvals.ApprovalsRequestParams, approvals.ApprovalsRequestResult),
    "exec.approval.list": (exec_approvals.ExecApprovalListResult, exec_approvals.ExecApprovalSummary),
    "exec.approval.grants": (
        exec_approvals.ExecApprovalGrantsParams,
        exec_approvals.ExecApprovalGrantsResult,
        exec_approvals.ExecApprovalGrant,
    ),
    "exec.approval.grants.remove": (
        exec_approvals.ExecApprovalGrantsRemoveParams,
        exec_approvals.ExecApprovalGrantsRemoveResult,
    ),
    "groups.list": (groups.GroupsListResult, groups.GroupSummary),
    "groups.create": (groups.GroupsCreateParams, groups.GroupsCreateResult),
    "groups.set": (groups.GroupsSetParams, groups.GroupsSetResult),
    "groups.join": (groups.GroupsJoinParams, groups.GroupsJoinResult),
    "groups.leave": (groups.GroupsLeaveParams, groups.GroupsLeaveResult),
    "groups.members": (groups.GroupsMembersParams, groups.GroupsMembersResult, groups.GroupMember),
    "memory.list": (memory.MemoryListParams, memory.MemoryListResult, memory.MemoryEntry, memory.MemoryReadEvent),
    "memory.search": (memory.MemorySearchParams, memory.MemorySearchResult),
    "memory.learn": (memory.MemoryLearnParams, memory.MemoryLearnResult),
    "memory.update": (memory.MemoryUpdateParams, memory.MemoryUpdateResult),
    "memory.forget": (memory.MemoryForgetParams, memory.MemoryForgetResult),
    "memory.export": (memory.MemoryExportParams, memory.MemoryExportResult),
    "memory.import": (memory.MemoryImportParams, memory.MemoryImportResult),
    "memory.show": (memory.MemoryShowParams, memory.MemoryShowResult),
    "knowledge.list": (knowledge.KnowledgeListParams, knowledge.KnowledgeListResult, knowledge.Topic),
    "knowledge.search": (knowledge.KnowledgeSearchParams, knowledge.KnowledgeSearchResult),
    "knowledge.write": (knowledge.KnowledgeWriteParams, knowledge.KnowledgeWriteResult),
    "knowledge.forget": (knowledge.KnowledgeForgetParams, knowledge.KnowledgeForgetResult),
    "history.search": (history.HistorySearchParams, history.HistoryHit, history.HistoryEntry),
    "terminal.exec": (terminal.TerminalExecParams, terminal.TerminalExecResult, terminal.RawOutput),
    "terminal.exec_bg": (terminal.TerminalExecBgParams, terminal.JobResult, terminal.Job),
    "terminal.job_status": (terminal.TerminalJobParams, terminal.JobResult),
    "terminal.job_list": (terminal.TerminalJobListParams, terminal.TerminalJobListResult),
    "terminal.job_kill": (terminal.TerminalJobParams, terminal.JobResult),
    "terminal.job_output": (terminal.TerminalJobOutputParams, terminal.TerminalOutput),
    "terminal.create": (terminal.TerminalCreateParams, terminal.TerminalSummary),
    "terminal.write": (terminal.TerminalWriteParams, terminal.TerminalAnswer),
    "terminal.read": (terminal.TerminalReadParams,),
    "terminal.resize": (terminal.TerminalResizeParams,),
    "terminal.signal": (terminal.TerminalSignalParams,),
    "terminal.kill": (terminal.TerminalIdParams,),
    "terminal.list": (terminal.TerminalListResult,),
    "terminal.subscribe": (
        terminal.TerminalSubscribeParams,
        terminal.TerminalAnswer,
        terminal.TerminalOutputEvent,
        terminal.TerminalExitEvent,
    ),
    "terminal.unsubscribe": (terminal.TerminalIdParams, terminal.TerminalUnsubscribeResult),
    "audit.list": (audit.AuditListParams, audit.AuditEntryView, audit.AuditListResult),
    "audit.verify": (audit.AuditVerifyParams, audit.AuditVerifyResult),
}


@pytest.mark.parametrize("name", OWN_METHODS)
def test_every_field_of_a_method_of_our_own_is_described(name: str) -> None:
    section = re.search(rf"(?ms)^### `{re.escape(name)}`\n(.*?)^##", (DOCS / "protocol.md").read_text())
    assert section is not None
    for struct in OWN_METHODS[name]:
        for field in msgspec.structs.fields(struct):
            assert f"`{field.encode_name}`" in section[1], f"{struct.__name__}.{field.encode_name}"


class TestPlugins:
    """``docs/plugins.md``: its example is a plugin, and its numbers are those of the code."""

    TEXT = (DOCS / "plugins.md").read_text()

    def test_every_key_is_in_the_table(self) -> None:
        documented = dict(re.findall(r"(?m)^\| `([a-z_]+)` \| ([^|]+) \|", self.TEXT))
        fields = msgspec.structs.fields(PluginFile)
        assert list(documented) == [field.name for field in fields]
        for field in fields:
            assert (documented[field.name] == "required") == field.required
        assert documented["timeout_s"] == f"`{PluginFile(description='', command=()).timeout_s:g}`"

    def test_the_example_is_a_plugin(self) -> None:
        (example,) = re.findall(r"```toml\n(.*?)```", self.TEXT, re.DOTALL)
        file = parse(example.encode(), Path("/tools/weather/tool.toml"), {"WEATHER_KEY": "k"})
        assert (file.name, file.env) == ("weather", {"WEATHER_KEY": "k"})

    def test_its_numbers(self) -> None:
        assert f"first {MOST_PLUGINS:,} are" in self.TEXT
        assert f"`{plugins.PATH}`" in self.TEXT
        assert f"{plugins.OUTPUT_CHARS:,} characters" in self.TEXT
        assert f"{OPEN_FILES:,} open files" in self.TEXT
        assert f"at most {FILE_BYTES // 1024} KiB" in self.TEXT
        assert f"after {OUTPUT_BYTES // 1024 // 1024} MiB" in self.TEXT


class TestHooks:
    """``docs/hooks.md``: its examples do what it says, and its numbers are those of the code."""

    TEXT = (DOCS / "hooks.md").read_text()

    @pytest.fixture
    async def loaded(self, tmp_path: Path) -> AsyncIterator[HookBus]:
        """All examples, loaded from the places that they name."""
        folder = tmp_path / "hooks"
        folder.mkdir(0o700)
        examples = re.findall(r"```(?:python|sh)\n(.*?)```", self.TEXT, re.DOTALL)
        assert len(examples) == 3
        for example in examples:
            (place,) = re.findall(r"(?m)^# ~/\.skynet/hooks/([^,\s]+)", example)
            file = folder / place
            file.parent.mkdir(0o700, exist_ok=True)
            file.write_text(example)
            file.chmod(0o700)
        async with Supervisor() as tasks, HookBus(tasks, gate_timeout_s=60.0, observer_timeout_s=60.0) as bus:
            load_hooks(bus, folder)
            yield bus

    @staticmethod
    def about(role: Role = Role.USER) -> dict[str, Any]:
        user = HookUser(id=UserId("0190"), role=role, display_name="Ada")
        return {"user": user, "session": SessionKey("user:0190:agent:main:main"), "run": RunId("r1")}

    async def test_the_gates_of_the_examples(self, loaded: HookBus) -> None:
        """SK-140, SK-144."""
        asked = BeforeMessage(**self.about(), text="Where is the lab?")
        assert (await loaded.ask(asked)).text == "Where is the room with the printers?"
        for text, reason in (
            ("It is correct horse battery staple", "That is the password"),
            ("Mine is 4000 1234 5678 9010.", "That looks like the number of a card"),
        ):
            with pytest.raises(Stopped, match=reason):
                await loaded.ask(BeforeMessage(**self.about(), text=text))

    async def test_the_gate_of_a_tool(self, loaded: HookBus) -> None:
        call: dict[str, Any] = {"tool": "write_file", "call_id": "c1", "arguments": {"path": "a"}}
        asked = BeforeToolCall(**self.about(), **call)
        assert await loaded.ask(asked) is asked
        with pytest.raises(Stopped, match="by grown-ups"):
            await loaded.ask(BeforeToolCall(**self.about(Role.CHILD), **call))

    async def test_the_observer_of_the_examples(self, loaded: HookBus, tmp_path: Path) -> None:
        usage = HookUsage(input_tokens=10, output_tokens=7, cost_microusd=None)
        loaded.announce(MessageReceived(**self.about(), text="Hello"))
        loaded.announce(AgentCompleted(**self.about(), status="ok", usage=usage))
        await loaded.aclose()
        assert (tmp_path / "hooks" / "diary.txt").read_text() == "Ada: 5 characters\nok: 7 tokens\n"

    def test_the_entry_points(self) -> None:
        (example,) = re.findall(r"```toml\n(.*?)```", self.TEXT, re.DOTALL)
        assert list(tomllib.loads(example)["project"]["entry-points"]) == ["skynet.hooks"]

    def test_every_event_stands_in_its_order(self) -> None:
        (section,) = re.findall(r"(?s)## In a run\n(.*?)\n## ", self.TEXT)
        assert set(re.findall(r"`(\w+)`", section)) - {"blocked"} == {event.NAME for event in (*GATES, *HOOKS)}

    @pytest.mark.parametrize(
        "words",
        [
            f"`hooks.gate_timeout_s` ({Config().hooks.gate_timeout_s:.0f} seconds for each)",
            f"`hooks.observer_timeout_s` ({Config().hooks.observer_timeout_s:.0f} seconds)",
            f"`hooks.queued_events` ({Config().hooks.queued_events}) events",
            f"observers have {hook_bus.CLOSE_S:.0f} seconds to finish",
            f"{hook_bus.LONGEST_REASON:,} characters of it",
            f"at most {hook_calls.MOST_THREADS} calls run at a time",
            f"at most {HOOK_BYTES // 1024 // 1024} MiB",
            f"`PATH` (`{hook_shell.PATH}`)",
        ],
    )
    def test_numbers(self, words: str) -> None:
        assert words in " ".join(self.TEXT.split())

    def test_the_settings_and_the_code_agree(self) -> None:
        hooks = Config().hooks
        assert (hooks.gate_timeout_s, hooks.observer_timeout_s) == (
            hook_bus.GATE_TIMEOUT_S,
            hook_bus.OBSERVER_TIMEOUT_S,
        )
        assert hooks.queued_events == hook_bus.QUEUED_EVENTS


class TestExample:
    """``skynet.example.toml`` loads, and has every key with its default."""

    def test_it_loads_and_changes_nothing(self, tmp_path: Path) -> None:
        env = {"SKYNET_HOME": str(tmp_path)}
        example = load_config(EXAMPLE, env=env)
        assert config_to_public(example) == config_to_public(load_config(None, env=env))
        assert example.warnings == ()

    def test_it_loads_with_every_line_in_force(self, tmp_path: Path) -> None:
        file = tmp_path / "all.toml"
        file.write_text(uncommented())
        config = load_config(file, env={"SKYNET_HOME": str(tmp_path), "OPENAI_API_KEY": "sk-1"})
        assert config.warnings == ()
        assert config.pools
        assert config.models.aliases

    def test_every_key_is_there_with_its_default(self) -> None:
        document = tomllib.loads(uncommented())
        illustrations = {"base_url", "id", "aliases", "pools", "input", "output", "env"}
        for path, name, default, _ in settings():
            values = _values(document, re.split(r"\.|(?=\[\])", path))
            assert values, f"{path} is not in the example"
            if name not in illustrations and default not in (None, msgspec.NODEFAULT):
                assert default in values, f"{path}: the default is {default!r}, the example has {values}"


def uncommented() -> str:
    """The example with its commented settings in force."""
    return re.sub(r"(?m)^# ?(?=\[|[a-z_]+ = )", "", EXAMPLE.read_text())


def _values(node: Any, parts: list[str]) -> list[Any]:
    """What stands at a path, in which ``<name>`` is any key and ``[]`` any element."""
    if not parts:
        return [node]
    head, *rest = parts
    if head == "<name>":
        return [value for item in node.values() for value in _values(item, rest)]
    if head == "[]":
        return [value for item in node for value in _values(item, rest)]
    return _values(node[head], rest) if isinstance(node, dict) and head in node else []


class TestCommandLine:
    TEXT = (DOCS / "cli.md").read_text()

    def test_every_command_has_its_section(self) -> None:
        assert set(re.findall(r"(?m)^### `skynet ([^`]+)`$", self.TEXT)) == set(COMMANDS)

    def test_every_exit_code_is_in_the_table(self) -> None:
        rows = set(re.findall(r"(?m)^\| (\d+) \| ([A-Z_]+) \|", self.TEXT))
        assert rows == {(str(int(code)), code.name) for code in Exit}


async def test_every_table_of_the_database_is_named(tmp_path: Path) -> None:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, MEMORY_TABLES])
        rows = await db.fetchall("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    text = (DOCS / "storage.md").read_text()
    documented = {name for row in re.findall(r"(?m)^\| (`[^|]*`) \|", text) for name in re.findall(r"`(\w+)`", row)}
    missing = {row[0] for row in rows} - documented
    assert not missing


@pytest.mark.parametrize("file", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"], ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", file.read_text()):
        assert (file.parent / target).exists(), target


def write_tables() -> None:
    for file, mark, table in GENERATED:
        head, _, tail = parts((DOCS / file).read_text(), mark)
        (DOCS / file).write_text(f"{head}{table()}\n{tail}")


if __name__ == "__main__":
    write_tables()
