"""Every setting: its type, limits, default and meaning.

A field is a key of the TOML file, a struct is a table. The docstring under a field is its documentation;
``skynet.example.toml`` and ``docs/configuration.md`` are tested against this module.
"""

from __future__ import annotations

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from skynet_agent.providers import ThinkingField
from skynet_agent.requests import ThinkingLevel
from skynet_memory.secrets import Secret

DEFAULT_FILE_NAME = "skynet.toml"
PLACEHOLDER_TOKEN = "change-me"  # noqa: S105
"""The token that examples carry; it never protects anything beyond loopback (SK-012)."""

CREDENTIALS_DIRECTORY = "credentials"
"""Under the state directory: what logging in to a provider left behind, one file each."""

BUILT_IN_PROVIDER = "offline"
"""The provider that is always there, needs no network and cannot be configured."""

ReachWord = Literal["none", "own", "all"]
Port = Annotated[int, Meta(ge=0, le=65535)]
FrameBytes = Annotated[int, Meta(ge=1024, le=1024 * 1024 * 1024)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]
BudgetTokens = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
BudgetUsd = Annotated[float, Meta(ge=0, le=1_000_000)]
UsdPerMillion = Annotated[float, Meta(ge=0, le=1_000_000)]
WireApi = Literal["openai-completions", "openai-responses", "anthropic-messages", "ollama", "bedrock", "vertex"]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the file."""


class AuthConfig(Section, frozen=True, kw_only=True):
    """``[gateway.auth]``: how a client proves that it may connect."""

    mode: Literal["token", "password", "none"] = "token"
    """``token``: the gateway token. ``password``: the password below. ``none``: no secret, loopback only. A paired
    device's own token, and with a device a person's ``sk-sky-…`` token, are accepted in every mode. Default
    ``token``."""

    token: Secret = Secret("")
    """The gateway token. Default empty: generated at the first start, kept in ``gateway.token`` under the state
    directory (0600) and printed once. Whoever holds it is the owner. ``change-me`` is refused on any address but
    loopback."""

    password: Secret = Secret("")
    """The password of mode ``password``. Default empty, which that mode refuses."""


class LimitsConfig(Section, frozen=True, kw_only=True):
    """``[gateway.limits]``: how much one client may ask of the gateway."""

    handshake_timeout_s: Seconds = 10.0
    """Seconds from the upgrade to a successful ``connect``; then the socket is closed. Default 10."""

    preauth_frame_bytes: FrameBytes = 65_536
    """Largest frame before authentication, in bytes. Default 65536 (64 KiB)."""

    frame_bytes: FrameBytes = 26_214_400
    """Largest frame after authentication, in bytes; clients are told as ``policy.maxPayload``. Default 26214400 (25
    MiB)."""

    outbound_bytes: FrameBytes = 8_388_608
    """Bytes a connection may leave unread before droppable events are skipped and then the connection is closed;
    clients are told as ``policy.maxBufferedBytes``. Default 8388608 (8 MiB)."""

    tick_interval_s: Annotated[float, Meta(ge=0.05, le=3600)] = 30.0
    """Seconds between ``tick`` events; clients leave after two missed ones. Default 30."""

    auth_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    """Failed authentications from one address within ``auth_window_s`` before it is locked out. Loopback without an
    Origin header is exempt. Default 10."""

    auth_window_s: Seconds = 60.0
    """Seconds over which failed authentications are counted. Default 60."""

    auth_lockout_s: Seconds = 300.0
    """Seconds for which a locked-out address is refused, even with the right secret. Default 300."""

    http_body_bytes: FrameBytes = 1_048_576
    """Largest body of an HTTP request, in bytes. Default 1048576 (1 MiB)."""


class GatewayConfig(Section, frozen=True, kw_only=True):
    """``[gateway]``: where it listens and who may come in."""

    host: Annotated[str, Meta(min_length=1, max_length=255)] = "127.0.0.1"
    """Address to listen on. Anything but loopback needs a token or a password. Default ``127.0.0.1``."""

    port: Port = 18789
    """TCP port for HTTP and WebSocket; 0 takes any free one. Default 18789."""

    origins: tuple[str, ...] = ()
    """Browser origins (``https://host[:port]``) that may connect besides loopback pages. Default none."""

    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks (``10.0.0.5``, ``10.0.0.0/8``) of reverse proxies whose forwarding headers are believed.
    Default none."""

    auth: AuthConfig = AuthConfig()
    limits: LimitsConfig = LimitsConfig()


class AgentConfig(Section, frozen=True, kw_only=True):
    """``[agent]``: the assistant that answers."""

    name: Annotated[str, Meta(min_length=1, max_length=64)] = "Assistant"
    """The name clients show for the assistant. Default ``Assistant``."""

    model: str = ""
    """The model that answers unless a session chose another: ``provider/model``, an alias, a pool or a model's
    id. Default empty: the first model of the provider with the highest priority. Without any provider the offline
    assistant answers."""

    workspace_dir: Path = Path()
    """Directory of the ``*.md`` files that the assistant is made of: its prompt. Default empty: the file of
    ``soul_path``, else the state directory if it has a ``SOUL.md``, else a built-in prompt."""

    soul_path: Path = Path()
    """The one file that says who the assistant is, for those who keep no directory of such files. Default empty."""

    timeout_s: Annotated[float, Meta(gt=0, le=604_800)] = 600.0
    """Seconds after which a run is stopped, unless the request says otherwise. Default 600."""

    max_rounds: Annotated[int, Meta(ge=1, le=100)] = 25
    """How often the model is asked in one turn at most: each time it has used tools it is asked again. Default 25."""

    max_output_tokens: Tokens | None = None
    """Most tokens of one answer, unless the request says otherwise; never more than the model can write. Default: the
    model's own limit."""

    restrict_to_workspace: bool = True
    """Whether file tools reach only each person's own folder. If false, admins also reach other files of the machine,
    by their absolute path, but none that hold the gateway's own state or secrets. Default true."""


class ModelsConfig(Section, frozen=True, kw_only=True):
    """``[models]``: names for models."""

    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    """Short names: ``fast = "lab/m-1"``. A value is ``provider/model``, another alias, or the id alone of a model that
    several providers offer. Default none."""


class RouterConfig(Section, frozen=True, kw_only=True):
    """``[router]``: how hard a model is tried, and what comes next when it fails."""

    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    """How often a model that failed for the moment is asked again before the next one. Default 2."""

    breaker_failures: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Failures in a row after which a provider is left alone for a while. Default 5."""

    breaker_cooldown_s: Seconds = 30.0
    """Seconds for which it is left alone; then one request tries it. Default 30."""

    cheapest: bool = False
    """Whether a model that several providers offer is asked of the cheapest first, instead of by priority. One that is
    named with its provider is asked there. Default false."""


class PriceConfig(Section, frozen=True, kw_only=True):
    """``price`` of a model: US dollars per million tokens. A model without a price has an unknown cost, never a cost of
    0."""

    input: UsdPerMillion
    """Dollars per million input tokens. Required where a price is given."""

    output: UsdPerMillion
    """Dollars per million output tokens. Required where a price is given."""

    cache_read: UsdPerMillion | None = None
    """Dollars per million input tokens read from the provider's cache. Default: as input."""

    cache_write: UsdPerMillion | None = None
    """Dollars per million input tokens written to the provider's cache. Default: as input."""


class ModelConfig(Section, frozen=True, kw_only=True):
    """One entry of ``providers.<name>.models``. What it does not say is taken from the catalogue, which knows the
    models of the registry's providers."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    """The model's id as the provider's endpoint wants it. Required."""

    name: str = ""
    """The name people see. Default empty: as the catalogue calls it, else the id."""

    context_window: Tokens | None = None
    """Tokens of input and output the model can hold. Default: as the catalogue says, else unknown."""

    max_output_tokens: Tokens | None = None
    """Most tokens the model may write in one answer, told to the provider with every request; a request may ask for
    fewer. Default: the provider decides."""

    reasoning: bool | None = None
    """Whether the model thinks before it answers. Default: as the catalogue says, else false."""

    thinking_form: Literal["budget", "effort"] | None = None
    """How a model that thinks is told how much, where its API knows both: a number of tokens, or a word. Default: as
    the catalogue says, else ``budget``."""

    thinking_levels: tuple[ThinkingLevel, ...] | None = None
    """The levels of thinking it knows, ``off`` only if it can do without; others become the nearest. Default: as the
    catalogue says, else as the provider's."""

    tools: bool | None = None
    """Whether the model can call tools; one that cannot is refused requests that have some. Default: as the catalogue
    says, else true."""

    input: tuple[Literal["text", "image"], ...] | None = None
    """What the model can read. Default: as the catalogue says, else ``["text"]``."""

    price: PriceConfig | None = None
    """What the model costs. Default: as the catalogue says at the vendor's own address, else unknown."""


class ProviderConfig(Section, frozen=True, kw_only=True):
    """``[providers.<name>]``: an endpoint that runs models. A name of the registry (``openai``) needs only a key."""

    api: WireApi = "openai-completions"
    """The wire API the endpoint speaks. Default ``openai-completions``, for a name of the registry its own."""

    base_url: Annotated[str, Meta(max_length=2048)] = ""
    """The endpoint, up to and without ``/chat/completions``, ``/responses``, ``/v1/messages`` or ``/api/chat``:
    ``http://127.0.0.1:8000/v1``. Required unless the registry knows the name or the API is ``bedrock`` or ``vertex``.
    Default empty."""

    api_key: Secret = Secret("")
    """The endpoint's key. ``"${NAME}"`` takes it from the environment; when that variable is not set the provider is
    off and a warning says so. Default empty: the registry's variable at the vendor's own address, else none is sent."""

    enabled: bool = True
    """Whether the provider is used. Default true."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    """The highest is asked first; the others when it fails. Default 0; vendors of the registry are below it, in the
    order of docs/providers.md."""

    models: tuple[ModelConfig, ...] = ()
    """The models this provider offers. Default none: those the registry names, or any id that is asked for."""

    unlisted_models: bool | None = None
    """Whether models that are not listed may be asked for as ``provider/model``. Default: yes for a name of the
    registry and where none is listed, else no."""

    headers: dict[str, Secret] = msgspec.field(default_factory=dict)
    """Headers to send with every request besides those the API wants; never shown. Default none."""

    connect_timeout_s: Seconds | None = None
    """Seconds to connect in. Default: 10."""

    read_timeout_s: Seconds | None = None
    """The longest silence in seconds, before the answer begins and within it. Default: 120; 600 for the servers of
    one's own that the registry knows."""

    requests_per_minute: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """So many requests may begin in any minute; more wait their turn. Default: no limit."""

    region: str = ""
    """AWS region or Google Cloud location, for ``bedrock`` and ``vertex``. Default empty: the profile's, or
    ``global``."""

    project: str = ""
    """Google Cloud project, for ``vertex``. Default empty: the credentials' own."""

    profile: str = ""
    """Profile of the AWS configuration files, for ``bedrock``. Default empty: AWS's usual chain."""

    credentials_file: Path = Path()
    """JSON file of a Google service account, for ``vertex``. Default empty: Google's application default
    credentials."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    """What chat completions call the limit of an answer. Default: ``max_tokens``."""

    supports_stream_options: bool | None = None
    """Whether ``stream_options`` may be sent; without it many endpoints report no usage. Default: true."""

    supports_prompt_cache_key: bool | None = None
    """Whether ``prompt_cache_key`` may be sent, which keeps a conversation with the machine that remembers it. Default:
    false."""

    thinking_field: ThinkingField | None = None
    """Where chat completions are told how much to think; empty for nowhere. Default: ``reasoning_effort``."""

    thinking_levels: tuple[ThinkingLevel, ...] | None = None
    """The levels of thinking the endpoint knows. Default: ``minimal``, ``low``, ``medium`` and ``high``."""

    tool_call_ids: Literal["any", "nine"] | None = None
    """``nine``: tool calls have ids of exactly nine letters and digits (Mistral's models). Default: ``any``."""

    wants_thinking_back: bool | None = None
    """Whether thinking has to be sent back between two rounds of a turn, as ``reasoning_content``. Default: false."""


class CompactionConfig(Section, frozen=True, kw_only=True):
    """``[compaction]``: how long conversations are kept within a model's window, see docs/assistant.md."""

    enabled: bool = True
    """Whether they are. If false, each call is told as much of the end of a conversation as fits. Default true."""

    model: str = ""
    """The model that summarises and gathers facts: ``provider/model``, an alias, a pool or a model's id. It reads what
    is summarised. Default empty: the cheapest model whose price is known, else that of ``agent.model``."""

    turns: Annotated[int, Meta(ge=4, le=1000)] = 40
    """With more turns than these the older half of so many is summarised, however short they are. Default 40."""

    on_reset: bool = True
    """Whether facts are gathered from a conversation that is reset, before it is put away. Default true."""


class DatabaseConfig(Section, frozen=True, kw_only=True):
    """``[database]``: where everything is kept."""

    path: Path = Path()
    """The SQLite file. Default empty: ``skynet.db`` under the state directory."""

    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """``NORMAL``: what was acknowledged survives the death of the process. ``FULL``: also a power cut, at a cost for
    each write. Default ``NORMAL``."""


class UsersConfig(Section, frozen=True, kw_only=True):
    """``[users]``: strangers who write on a channel."""

    unknown: Literal["approve", "create", "refuse"] = "approve"
    """``approve``: they wait until somebody who may decide lets them in. ``create``: they are people at once.
    ``refuse``: they are not answered. Default ``approve``."""

    new_role: Literal["user", "child"] = "user"
    """The role of people that ``create`` makes. Nobody becomes an admin so. Default ``user``."""


class LoggingConfig(Section, frozen=True, kw_only=True):
    """``[logging]``: what the gateway writes down of itself."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written. Message contents appear only at ``debug``, shortened. Default ``info``."""

    file: Path = Path()
    """The log file, which ``skynet logs`` reads. Default empty: ``logs/skynet.log`` under the state directory."""


class PermissionsConfig(Section, frozen=True, kw_only=True):
    """``[permissions]``: what a role may do, where that is not as docs/people.md has it. Admins may do everything."""

    user: dict[str, ReachWord] = msgspec.field(default_factory=dict)
    """Of users: a permission and how far it goes, ``none``, ``own`` or ``all``: ``"commands.run" = "none"``. Default
    none."""

    child: dict[str, ReachWord] = msgspec.field(default_factory=dict)
    """Of children, who can be given no more than ``files.read`` and ``files.write`` of their own. Default none."""


class ApprovalsConfig(Section, frozen=True, kw_only=True):
    """``[approvals]``: what waits for somebody's yes."""

    wait_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    """Seconds for which a tool call waits for its approval; then the answer says that it is still open, and the same
    call works once it is given. Default 60."""


class HooksConfig(Section, frozen=True, kw_only=True):
    """``[hooks]``: code of one's own around messages, tools and models (docs/hooks.md)."""

    on_error: Literal["refuse", "skip"] = "refuse"
    """What to do when a hook cannot be loaded, which may have been there to stop something. ``refuse``: the gateway
    does not start, and says why. ``skip``: it starts without that one. Default ``refuse``."""

    gate_timeout_s: Seconds = 5.0
    """Seconds for each hook that is asked before something happens; one that takes longer stops it. Default 5."""

    observer_timeout_s: Seconds = 30.0
    """Seconds for each call of a hook that is told afterwards; one that takes longer is ended. Default 30."""

    queued_events: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Events that may wait for one such hook; then the oldest is dropped, which the log counts. Default 256."""


class BudgetConfig(Section, frozen=True, kw_only=True):
    """``[budgets.<role>]`` and ``[budgets.house]``: how much may be used; 0 is nothing. Days and months begin where the
    person lives, those of the house where the gateway runs."""

    daily_tokens: BudgetTokens | None = None
    """Most tokens of a day: read and written, those of providers' caches included. Default: no limit."""

    monthly_tokens: BudgetTokens | None = None
    """Most tokens of a month. Default: no limit."""

    daily_usd: BudgetUsd | None = None
    """Most US dollars of a day; calls whose price is not known count as 0. Default: no limit."""

    monthly_usd: BudgetUsd | None = None
    """Most US dollars of a month. Default: no limit."""


class BudgetsConfig(Section, frozen=True, kw_only=True):
    """``[budgets]``: limits for everybody of a role, where a person has none of their own, and for all together."""

    user: BudgetConfig = BudgetConfig()
    child: BudgetConfig = BudgetConfig()
    admin: BudgetConfig = BudgetConfig()
    house: BudgetConfig = BudgetConfig()


class FilterConfig(Section, frozen=True, kw_only=True):
    """``[filter]``: the content filter of children's accounts. How strict it is, is set for each child."""

    rules_file: Path = Path()
    """A file of words that the household adds to the filter or takes out of it, see docs/children.md. Default empty:
    the built-in words alone."""

    model: str = ""
    """The model that is also asked whether a text is fit for a child when the words passed it: ``provider/model``, an
    alias or a pool. If it fails, ``strict`` refuses and ``moderate`` lets through. Default empty: none is asked."""


class ChildrenConfig(Section, frozen=True, kw_only=True):
    """``[children]``: what holds for every child."""

    never_remember: tuple[str, ...] = (
        "health",
        "religion",
        "sexuality",
        "address",
        "school",
        "phone",
        "email",
        "password",
    )
    """Topics that are never kept in the memory of a child; there are also ``money``, ``politics`` and those of
    ``filter.rules_file``. Default ``health``, ``religion``, ``sexuality``, ``address``, ``school``, ``phone``,
    ``email`` and ``password``."""


class TerminalLimitsConfig(Section, frozen=True, kw_only=True):
    """``[terminal.limits]``: what one command has, with all that it starts."""

    cpu_s: Annotated[int, Meta(ge=1, le=86_400)] = 600
    """Seconds of processor time of each process. Default 600."""

    memory_mb: Annotated[int, Meta(ge=16, le=1_048_576)] = 2048
    """Megabytes of memory of all its processes. Default 2048."""

    processes: Annotated[int, Meta(ge=4, le=100_000)] = 256
    """Processes and threads. Default 256."""

    file_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 1024
    """Megabytes of the largest file that it writes. Default 1024."""

    disk_mb: Annotated[int, Meta(ge=1, le=16_777_216)] = 4096
    """Megabytes by which it may fill the disk. Default 4096."""

    tmp_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 512
    """Megabytes of its own ``/tmp``, which is in memory. Default 512."""


class CommandRuleConfig(Section, frozen=True, kw_only=True):
    """``[[terminal.rules]]``: a rule of one's own about commands, before the built-in ones, see
    docs/command-policy.md."""

    decision: Literal["allow", "ask", "deny"]
    """What becomes of it. ``allow`` lifts a question or a refusal, but none of what destroys the machine.
    Required."""

    program: Annotated[str, Meta(min_length=1, max_length=256)]
    """The program's name, ``terraform``, without its path. Required."""

    args: tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...] = ()
    """Words that have to be among its arguments, in this order: ``["apply"]``. ``*`` stands for any one word. Default
    none: the program whatever its arguments."""

    reason: Annotated[str, Meta(max_length=500)] = ""
    """Told to the person and the model. Default empty: that the household has a rule."""

    roles: tuple[Literal["admin", "user", "child"], ...] = ()
    """For whom it holds. Default empty: everybody."""


class MountConfig(Section, frozen=True, kw_only=True):
    """``[[terminal.mounts]]``: a directory of this machine that commands see as well (docs/sandbox.md)."""

    source: Annotated[str, Meta(min_length=1, max_length=4096)]
    """The directory or file on this machine, absolute. Required."""

    target: Annotated[str, Meta(max_length=4096)] = ""
    """Where commands see it, absolute. Default empty: ``/mnt/`` and the name of ``source``."""

    mode: Literal["ro", "rw"] = "ro"
    """``ro``: can be read. ``rw``: can be written too. Default ``ro``."""

    people: tuple[str, ...] = ()
    """Whose commands see it: ids of people, or ``role:admin``, ``role:user``. Default empty: admins' alone."""


class HostsConfig(Section, frozen=True, kw_only=True):
    """``[terminal.hosts]``: what commands reach of the network, which is nothing unless it stands here."""

    admin: tuple[str, ...] = ()
    """Hosts for admins' commands: ``wttr.in``, ``*.wikipedia.org`` for those below a name, ``*`` for every public one.
    Addresses of this machine and of private networks are never reached. Default none."""

    user: tuple[str, ...] = ()
    """Hosts for users' commands. Default none."""


class ApproverConfig(Section, frozen=True, kw_only=True):
    """``[terminal.approver]``: who is asked about a command that needs a yes. About a child's it is always
    somebody else."""

    admin: Literal["self", "admin"] = "self"
    """Of admins: ``self``, on their own devices, or ``admin``: another admin. Default ``self``."""

    user: Literal["self", "admin"] = "self"
    """Of users. Default ``self``."""


class TerminalConfig(Section, frozen=True, kw_only=True):
    """``[terminal]``: commands, jobs and terminals, and what holds them (docs/sandbox.md, docs/terminal.md)."""

    sandbox: Literal["auto", "bubblewrap", "podman", "docker", "none"] = "auto"
    """What commands run in. ``auto``: bubblewrap, or else podman or docker if ``image`` is set; without one of them no
    command runs. ``none``: nothing holds them, and only admins may run any. Default ``auto``."""

    image: Annotated[str, Meta(max_length=512)] = ""
    """The image for podman and docker. Default empty."""

    timeout_s: Annotated[float, Meta(gt=0, le=300)] = 30.0
    """Seconds for a command that names no time of its own. Default 30."""

    longest_s: Annotated[float, Meta(gt=0, le=3600)] = 300.0
    """Most seconds that a command can be given. Default 300."""

    idle_s: Annotated[float, Meta(ge=1, le=604_800)] = 1800.0
    """Seconds after which a terminal or a shell that nobody uses is ended. Default 1800."""

    max_terminals: Annotated[int, Meta(ge=0, le=1000)] = 8
    """Terminals of one person at a time. Default 8."""

    max_jobs: Annotated[int, Meta(ge=0, le=1000)] = 8
    """Background jobs of one person at a time. Default 8."""

    job_log_bytes: Annotated[int, Meta(ge=4096, le=1_073_741_824)] = 8_388_608
    """Bytes kept of the output of a background job, its beginning and its end. Default 8388608."""

    blocked: tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...] = ()
    """Commands that nobody runs, by their first words: ``terraform apply``. Default none."""

    rules: tuple[CommandRuleConfig, ...] = ()
    mounts: tuple[MountConfig, ...] = ()
    env: dict[str, Secret] = msgspec.field(default_factory=dict)
    """``[terminal.env]``: variables that every command gets: keys of tools, never the gateway's own. Default none."""

    hosts: HostsConfig = HostsConfig()
    approver: ApproverConfig = ApproverConfig()
    limits: TerminalLimitsConfig = TerminalLimitsConfig()


class NodesConfig(Section, frozen=True, kw_only=True):
    """``[nodes]``: what devices that lend the assistant their abilities may be asked to do."""

    allow_commands: tuple[str, ...] = ()
    """Commands of nodes that their platform does not allow by itself: ``camera.snap``, ``camera.clip``,
    ``screen.record``, ``contacts.add``, ``calendar.add``, ``reminders.add``, ``sms.send`` and those of a node's own.
    Default empty."""

    deny_commands: tuple[str, ...] = ()
    """Commands that no node is asked for, for example ``system.run``; this goes before everything that allows them.
    Default empty."""


class Config(Section, frozen=True, kw_only=True):
    """The whole configuration, complete and checked. Made by :func:`skynet.config.load_config`; its paths are
    absolute."""

    gateway: GatewayConfig = GatewayConfig()
    agent: AgentConfig = AgentConfig()
    models: ModelsConfig = ModelsConfig()
    pools: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """``[pools]``: ordered lists of models that stand in for each other: ``smart = ["fast", "openai/gpt-6.1-sol"]``. An
    entry is ``provider/model``, an alias or a model's id. Default none."""

    providers: dict[str, ProviderConfig] = msgspec.field(default_factory=dict)
    router: RouterConfig = RouterConfig()
    budgets: BudgetsConfig = BudgetsConfig()
    users: UsersConfig = UsersConfig()
    compaction: CompactionConfig = CompactionConfig()
    database: DatabaseConfig = DatabaseConfig()
    logging: LoggingConfig = LoggingConfig()
    permissions: PermissionsConfig = PermissionsConfig()
    approvals: ApprovalsConfig = ApprovalsConfig()
    hooks: HooksConfig = HooksConfig()
    filter: FilterConfig = FilterConfig()
    children: ChildrenConfig = ChildrenConfig()
    terminal: TerminalConfig = TerminalConfig()
    nodes: NodesConfig = NodesConfig()

    home: Path = Path()
    """The state directory (``SKYNET_HOME``, default ``~/.skynet``). Not a key of the file."""

    file: Path | None = None
    """The file that was read, or None. Not a key of the file."""

    warnings: tuple[str, ...] = ()
    """What is allowed but probably not meant, for the log. Not a key of the file."""

    workspace_is_set: bool = False
    """Whether ``agent.workspace_dir`` was configured; else it holds its default. Not a key of the file."""

    NOT_KEYS: ClassVar[frozenset[str]] = frozenset({"home", "file", "warnings", "workspace_is_set"})

    @property
    def file_path(self) -> Path:
        """The file that was read, or the one that would have been, had it been there."""
        return self.file or self.home / DEFAULT_FILE_NAME

    @property
    def enabled_providers(self) -> dict[str, ProviderConfig]:
        """The providers in use, in the order they are asked: highest priority first, then as configured."""
        in_use = [(name, provider) for name, provider in self.providers.items() if provider.enabled]
        return dict(sorted(in_use, key=lambda item: -item[1].priority))

    @property
    def default_model(self) -> str:
        """The model that answers by default; "" for the offline assistant, or when no provider lists a model."""
        if not self.enabled_providers:
            return ""
        if self.agent.model:
            return self.agent.model
        for name, provider in self.enabled_providers.items():
            if provider.models:
                return f"{name}/{provider.models[0].id}"
        return ""


def fields_of(schema: type[msgspec.Struct]) -> dict[str, Any]:
    """The keys of a table with their types."""
    hints = get_type_hints(schema, include_extras=True)
    return {
        name: hints[name] for name in schema.__struct_fields__ if name not in Config.NOT_KEYS or schema is not Config
    }


def plain_type(kind: Any) -> Any:
    """The type without its limits and without ``| None``."""
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return plain_type(next(item for item in get_args(kind) if item is not type(None)))
    return kind


def is_table(kind: Any) -> bool:
    """Whether a type, without its limits, is a table with fixed keys."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def config_to_public(config: Config, redacted: str = "***") -> dict[str, Any]:
    """The configuration as plain JSON values with the file's keys, every secret that is set replaced by
    ``redacted``."""
    public = _public(config, redacted)
    assert isinstance(public, dict)
    return {key: value for key, value in public.items() if key not in Config.NOT_KEYS}


def _public(value: object, redacted: str) -> object:
    match value:
        case Secret():
            return redacted if value else ""
        case Path():
            return "" if value == Path() else str(value)
        case msgspec.Struct():
            return {name: _public(getattr(value, name), redacted) for name in value.__struct_fields__}
        case dict():
            return {key: _public(item, redacted) for key, item in value.items()}
        case tuple() | list():
            return [_public(item, redacted) for item in value]
        case _:
            return value
