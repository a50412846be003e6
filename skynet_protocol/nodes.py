"""``node.*``, ``skills.bins`` and their events (OPENCLAW-V3 6.13), and which commands a node may offer."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, UnsetType, field

from skynet_protocol.params import LenientParams, NonEmptyStr, NonNegativeInt, Params, Result

NodeName = Annotated[str, Meta(min_length=1, max_length=200)]
NodeText = Annotated[str, Meta(max_length=512)]
NodeWords = Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=200)]
IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=512)]

# Which commands there are on which platform

_SYSTEM: Final = frozenset({"system.run.prepare", "system.run", "system.which", "system.notify", "browser.proxy"})
_CANVAS: Final = frozenset(
    f"canvas.{name}"
    for name in ("present", "hide", "navigate", "eval", "snapshot", "a2ui.push", "a2ui.pushJSONL", "a2ui.reset")
)
_PHONE: Final = frozenset(
    {
        "camera.list",
        "location.get",
        "device.info",
        "device.status",
        "contacts.search",
        "calendar.events",
        "reminders.list",
        "photos.latest",
        "motion.activity",
        "motion.pedometer",
    }
)

PLATFORM_COMMANDS: Final = MappingProxyType(
    {
        "linux": _SYSTEM,
        "windows": _SYSTEM,
        "macos": _CANVAS | _PHONE | _SYSTEM,
        "ios": _CANVAS | _PHONE | {"system.notify"},
        "android": _CANVAS | _PHONE | {"notifications.list"},
        "unknown": _CANVAS | {"camera.list", "location.get"} | _SYSTEM,
    }
)
"""What a node of each platform may offer. Only the configuration adds ``camera.snap``, ``camera.clip``,
``screen.record``, ``contacts.add``, ``calendar.add``, ``reminders.add`` and ``sms.send``."""

EXEC_APPROVALS_COMMANDS: Final = frozenset({"system.execApprovals.get", "system.execApprovals.set"})
"""On no list: only ``exec.approvals.node.*`` sends them."""

_PREFIXES: Final = (
    ("ios", "ios"),
    ("android", "android"),
    ("mac", "macos"),
    ("darwin", "macos"),
    ("win", "windows"),
    ("linux", "linux"),
)
_FAMILIES: Final = (
    ("iphone", "ios"),
    ("ipad", "ios"),
    ("ios", "ios"),
    ("android", "android"),
    ("mac", "macos"),
    ("windows", "windows"),
    ("linux", "linux"),
)


def node_platform(platform: str, device_family: str = "") -> str:
    """The key of :data:`PLATFORM_COMMANDS`: from the platform by its beginning, else from the device's family."""
    said = platform.strip().lower()
    for prefix, name in _PREFIXES:
        if said.startswith(prefix):
            return name
    family = device_family.strip().lower()
    for word, name in _FAMILIES:
        if word in family:
            return name
    return "unknown"


def allowed_commands(platform: str, allow: Collection[str] = (), deny: Collection[str] = ()) -> frozenset[str]:
    """The commands that a node of ``platform``, a key of :data:`PLATFORM_COMMANDS`, may offer here."""
    return (PLATFORM_COMMANDS[platform] | frozenset(allow)) - frozenset(deny) - EXEC_APPROVALS_COMMANDS


# The nodes there are


class NodeListParams(Params, frozen=True):
    pass


class NodeSummary(Result):
    """A paired or connected node; ``caps`` and ``commands`` are sorted, and empty while it is offline."""

    node_id: str
    caps: list[str]
    commands: list[str]
    paired: bool
    connected: bool
    display_name: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    core_version: str | UnsetType = UNSET
    ui_version: str | UnsetType = UNSET
    device_family: str | UnsetType = UNSET
    model_identifier: str | UnsetType = UNSET
    remote_ip: str | UnsetType = UNSET
    path_env: str | UnsetType = UNSET
    permissions: dict[str, bool] | UnsetType = UNSET
    connected_at_ms: NonNegativeInt | UnsetType = UNSET


class NodeListResult(Result):
    ts: NonNegativeInt
    nodes: list[NodeSummary]


class NodeDescribeParams(Params, frozen=True):
    node_id: NonEmptyStr


class NodeDescribeResult(NodeSummary, kw_only=True):
    """One node, flattened."""

    ts: NonNegativeInt


class NodeRenameParams(Params, frozen=True):
    node_id: NonEmptyStr
    display_name: NodeName


class NodeRenameResult(Result):
    node_id: str
    display_name: str


# Commands


class NodeInvokeParams(Params, frozen=True):
    """``params`` is whatever the command takes; ``timeout_ms`` goes to the node too, where it is given."""

    node_id: NonEmptyStr
    command: Annotated[str, Meta(min_length=1, max_length=200)]
    idempotency_key: IdempotencyKey
    params: Any = UNSET
    timeout_ms: NonNegativeInt | UnsetType = UNSET


class NodeInvokeResult(Result):
    """``payload`` is what the node answered; ``payload_json`` its text, if it answered with a text."""

    ok: Literal[True]
    node_id: str
    command: str
    payload: Any
    payload_json: str | None = field(name="payloadJSON")


class NodeInvokeRequestEvent(Result):
    """``node.invoke.request``: to one node, which answers with ``node.invoke.result``."""

    id: str
    node_id: str
    command: str
    params_json: str | None = field(name="paramsJSON")
    timeout_ms: int | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET


class NodeErrorParams(Params, frozen=True):
    code: NonEmptyStr | UnsetType = UNSET
    message: NonEmptyStr | UnsetType = UNSET


class NodeInvokeResultParams(Params, frozen=True):
    """Of ``node.invoke.result``: the payload as JSON or as its text; null texts and errors are tolerated."""

    id: NonEmptyStr
    node_id: NonEmptyStr
    ok: bool
    payload: Raw | UnsetType = UNSET
    payload_json: str | UnsetType | None = field(name="payloadJSON", default=UNSET)
    error: NodeErrorParams | UnsetType | None = UNSET


class NodeInvokeResultAnswer(Result):
    """``ignored``: nobody waits for it, or not any more."""

    ok: Literal[True]
    ignored: bool | UnsetType = UNSET


class NodeEventParams(Params, frozen=True):
    """Of ``node.event``. A ``payload_json`` of null counts as none, so that the real node host's events arrive."""

    event: NonEmptyStr
    payload: Raw | UnsetType = UNSET
    payload_json: str | UnsetType | None = field(name="payloadJSON", default=UNSET)


class NodeEventResult(Result):
    ok: Literal[True]


class SkillsBinsParams(Params, frozen=True):
    pass


class SkillsBinsResult(Result):
    """Programs that skills need, which a node may run without asking."""

    bins: list[str]


# What nodes tell by themselves. Unknown fields are ignored, as in OpenClaw.


class VoiceTranscript(LenientParams, frozen=True):
    text: str
    session_key: str | None = None
    event_id: str | None = None


class AgentRequest(LenientParams, frozen=True):
    message: str
    session_key: str | None = None
    thinking: str | None = None
    timeout_seconds: int | float | None = None
    attachments: tuple[Any, ...] | None = None


class ChatSubscription(LenientParams, frozen=True):
    session_key: str


class ExecNotice(LenientParams, frozen=True):
    """Of ``exec.started``, ``exec.finished`` and ``exec.denied``."""

    session_key: str
    run_id: str | None = None
    command: str | None = None
    exit_code: int | None = None
    timed_out: bool | None = None
    output: str | None = None
    reason: str | None = None


# OpenClaw's older store of nodes


class NodePairRequestParams(Params, frozen=True):
    node_id: Annotated[str, Meta(min_length=1, max_length=200)]
    display_name: NodeText = ""
    platform: NodeText = ""
    version: NodeText = ""
    core_version: NodeText = ""
    ui_version: NodeText = ""
    device_family: NodeText = ""
    model_identifier: NodeText = ""
    caps: NodeWords = ()
    commands: NodeWords = ()
    remote_ip: NodeText = ""
    silent: bool = False


class _BridgeNode(Result):
    node_id: str
    display_name: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    core_version: str | UnsetType = UNSET
    ui_version: str | UnsetType = UNSET
    device_family: str | UnsetType = UNSET
    model_identifier: str | UnsetType = UNSET
    caps: list[str] | UnsetType = UNSET
    commands: list[str] | UnsetType = UNSET
    remote_ip: str | UnsetType = UNSET


class NodePairPending(_BridgeNode, kw_only=True):
    """A request; also the payload of ``node.pair.requested``."""

    request_id: str
    ts: NonNegativeInt
    silent: bool | UnsetType = UNSET
    is_repair: bool | UnsetType = UNSET


class NodePaired(_BridgeNode, kw_only=True):
    """``token`` is told once, in the answer to the approval."""

    created_at_ms: NonNegativeInt
    approved_at_ms: NonNegativeInt
    token: str | UnsetType = UNSET
    last_connected_at_ms: NonNegativeInt | UnsetType = UNSET


class NodePairRequestResult(Result):
    status: Literal["pending"]
    request: NodePairPending
    created: bool


class NodePairListParams(Params, frozen=True):
    pass


class NodePairListResult(Result):
    pending: list[NodePairPending]
    paired: list[NodePaired]


class NodePairApproveParams(Params, frozen=True):
    request_id: NonEmptyStr


class NodePairApproveResult(Result):
    request_id: str
    node: NodePaired


class NodePairRejectParams(Params, frozen=True):
    request_id: NonEmptyStr


class NodePairRejectResult(Result):
    request_id: str
    node_id: str


class NodePairVerifyParams(Params, frozen=True):
    node_id: NonEmptyStr
    token: NonEmptyStr


class NodePairVerifyResult(Result):
    ok: bool
    node: NodePaired | UnsetType = UNSET


class NodePairResolvedEvent(Result):
    request_id: str
    node_id: str
    decision: Literal["approved", "rejected"]
    ts: int
