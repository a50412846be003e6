"""The ``connect`` request and its answer, hello-ok (OPENCLAW-V3 2.2, 2.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from skynet_protocol.errors import PROTOCOL_VERSION, ClientKind, Refusal, RequestError
from skynet_protocol.frames import Request, StateVersion, Violation, ViolationKind
from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, PositiveInt, Result, decode_params

GatewayClientId = Literal[
    "webchat-ui",
    "openclaw-control-ui",
    "webchat",
    "cli",
    "gateway-client",
    "openclaw-macos",
    "openclaw-ios",
    "openclaw-android",
    "node-host",
    "test",
    "fingerprint",
    "openclaw-probe",
]
GatewayClientMode = Literal["webchat", "cli", "ui", "backend", "node", "probe", "test"]


class ClientInfo(Params, frozen=True, omit_defaults=True):
    """Which program connects. Optional texts are empty if absent."""

    id: GatewayClientId
    version: NonEmptyStr
    platform: NonEmptyStr
    mode: GatewayClientMode
    display_name: NonEmptyStr = ""
    device_family: NonEmptyStr = ""
    model_identifier: NonEmptyStr = ""
    instance_id: NonEmptyStr = ""


class DeviceProof(Params, frozen=True):
    """The client's device and its signature over this connection's nonce; see ``skynet_protocol.device``."""

    id: NonEmptyStr
    public_key: NonEmptyStr
    signature: NonEmptyStr
    signed_at: NonNegativeInt
    nonce: NonEmptyStr


class ConnectAuth(Params, frozen=True, omit_defaults=True):
    """Secrets that the client offers; an empty one counts as absent. ``mode``, from Skynet's clients, says nothing."""

    token: str = ""
    device_token: str = ""
    password: str = ""
    mode: str = ""

    def __repr__(self) -> str:
        offered = ", ".join(f"{name}=***" for name in ("token", "device_token", "password") if getattr(self, name))
        return f"ConnectAuth({offered})"


class ConnectParams(Params, frozen=True, omit_defaults=True):
    """Params of ``connect``; strict at every level. Nothing is implied by an absent field: no scopes means none."""

    min_protocol: PositiveInt
    max_protocol: PositiveInt
    client: ClientInfo
    role: NonEmptyStr = "operator"
    scopes: tuple[NonEmptyStr, ...] = ()
    caps: tuple[NonEmptyStr, ...] = ()
    commands: tuple[NonEmptyStr, ...] = ()
    permissions: dict[str, bool] = msgspec.field(default_factory=dict)
    path_env: str = ""
    device: DeviceProof | UnsetType = UNSET
    auth: ConnectAuth = ConnectAuth()
    locale: str = ""
    user_agent: str = ""


_decoder = msgspec.json.Decoder(ConnectParams)


def refuse_frame(violation: Violation) -> Refusal:
    """How a first frame that is no request ends the handshake."""
    return Refusal.not_json() if violation.kind is ViolationKind.NOT_JSON else Refusal.not_a_request()


def read_connect(request: Request) -> ConnectParams:
    """The params of a connection's first request, checked as far as they can be without knowing anything else.

    Raises:
        Refusal: not ``connect``, params that do not fit, no common protocol, no such role; in this order
            (OPENCLAW-V3 2.3).
    """
    if request.method != "connect":
        raise Refusal.not_connect()
    try:
        params = decode_params(request.params, _decoder, "connect")
    except RequestError as exc:
        raise Refusal.invalid_params(exc) from exc
    check_connect(params)
    return params


def check_connect(params: ConnectParams) -> None:
    """Whether client and gateway share a protocol version and the role exists; raises ``Refusal`` if not."""
    if not params.min_protocol <= PROTOCOL_VERSION <= params.max_protocol:
        raise Refusal.protocol_mismatch()
    if params.role not in ("operator", "node"):
        raise Refusal.invalid_role()


def is_webchat(client: ClientInfo) -> bool:
    """A browser client; the Control UI is one by its mode."""
    return client.mode == "webchat" or client.id == "webchat-ui"


def is_control_ui(client: ClientInfo) -> bool:
    return client.id == "openclaw-control-ui"


def is_cli(client: ClientInfo) -> bool:
    return client.mode == "cli"


def client_kind(client: ClientInfo) -> ClientKind:
    """Whose hint this client gets when its secret is refused."""
    if is_cli(client):
        return "cli"
    return "browser" if is_control_ui(client) or is_webchat(client) else "other"


class ServerInfo(Result):
    version: str
    conn_id: str


class Features(Result):
    methods: Sequence[str]
    events: Sequence[str]


class SessionDefaults(Result):
    default_agent_id: str
    main_key: str
    main_session_key: str
    scope: Literal["per-sender", "global"] | UnsetType = UNSET


class UpdateAvailable(Result):
    current_version: str
    latest_version: str
    channel: str


class Snapshot(Result):
    """The gateway's state. ``presence`` and ``health`` are what their methods answer; health may be ``{}``."""

    presence: Any
    health: Any
    state_version: StateVersion
    uptime_ms: int
    config_path: str | UnsetType = UNSET
    state_dir: str | UnsetType = UNSET
    session_defaults: SessionDefaults | UnsetType = UNSET
    auth_mode: Literal["none", "token", "password", "trusted-proxy"] | UnsetType = UNSET
    update_available: UpdateAvailable | UnsetType = UNSET


class HelloAuth(Result):
    """The device token of a client that proved a device; ``scopes`` are the token's, not the connection's."""

    device_token: str
    role: str
    scopes: Sequence[str]
    issued_at_ms: int | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"HelloAuth(device_token=***, role={self.role!r}, scopes={self.scopes!r})"


class Policy(Result):
    """The limits that hold on this connection: bytes, bytes, milliseconds."""

    max_payload: int
    max_buffered_bytes: int
    tick_interval_ms: int


class HelloOk(Result, tag_field="type", tag="hello-ok"):
    """The payload that answers ``connect``; the first frame after the challenge."""

    protocol: int
    server: ServerInfo
    features: Features
    snapshot: Snapshot
    policy: Policy
    canvas_host_url: str | UnsetType = UNSET
    auth: HelloAuth | UnsetType = UNSET
