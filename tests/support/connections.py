"""Connections without a network: real parts, and a wire that records what leaves and hands over what arrives."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skynet.config import GatewayConfig
from skynet.config.schema import AuthConfig, LimitsConfig
from skynet.gateway.auth import Admission, Authenticator
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.connection import Connection, Gateway
from skynet.gateway.dispatch import Dispatcher, collect, method
from skynet.gateway.peer import PeerInfo
from skynet.gateway.presence import PresenceTable, StateVersions
from skynet.supervisor import Supervisor
from skynet_memory.database import Database
from skynet_memory.ids import ConnId, Role
from skynet_memory.migrations import migrate
from skynet_memory.secrets import Secret
from skynet_protocol.connect import Features, HelloOk, Policy, ServerInfo, Snapshot
from skynet_protocol.params import LenientParams
from skynet_users.caller import Caller
from skynet_users.credentials import CredentialStore
from skynet_users.devices import DeviceStore
from skynet_users.people import User, UserStore
from skynet_users.schema import COMPONENT
from tests.support.client import connect_params
from tests.support.polling import until

TOKEN = "gateway-token"
LOCAL = PeerInfo(address="127.0.0.1", port=50000, headers={"host": "127.0.0.1:18789"})


class FakeWire:
    """Records what leaves. As a socket does, it hands over nothing while it is paused."""

    def __init__(self) -> None:
        self.connection: Connection
        self.sent: list[dict[str, Any]] = []
        self.buffered = 0
        self.pings = 0
        self.limit_bytes = 0
        self.ended: tuple[int, str] | None = None
        self.paused_by: set[str] = set()
        self._waiting: deque[bytes] = deque()

    def send_text(self, data: bytes) -> None:
        if self.ended is None:
            self.sent.append(json.loads(data))

    def buffered_bytes(self) -> int:
        return self.buffered

    def ping(self) -> None:
        self.pings += 1

    def allow_frames_of(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes

    def pause_reading(self, why: str) -> None:
        self.paused_by.add(why)

    def resume_reading(self, why: str) -> None:
        self.paused_by.discard(why)
        asyncio.get_running_loop().call_soon(self._hand_over)

    def close(self, code: int, reason: str) -> None:
        if self.ended is None:
            self.ended = (code, reason)

    def arrives(self, data: bytes) -> None:
        """A message comes from the client."""
        self._waiting.append(data)
        self._hand_over()

    def requests(self, method: str, params: Any = None, *, id: str = "r") -> None:  # noqa: A002
        """A request comes from the client."""
        self.arrives(json.dumps({"type": "req", "id": id, "method": method, "params": params}).encode())

    def responses(self) -> list[dict[str, Any]]:
        return [sent for sent in self.sent if sent["type"] == "res"]

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """What was sent of this event; of all but the challenge without a name."""
        events = [sent for sent in self.sent if sent["type"] == "event" and sent["event"] != "connect.challenge"]
        return [event for event in events if not name or event["event"] == name]

    def _hand_over(self) -> None:
        while self._waiting and not self.paused_by and self.ended is None:
            self.connection.received(self._waiting.popleft())


class AnyParams(LenientParams, frozen=True):
    """Whatever is sent."""


class Methods:
    """One method that answers at once, one that waits until ``release``, one that fails."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    @method("health")
    def health(self, caller: Caller, params: AnyParams) -> dict[str, bool]:
        return {"ok": True}

    @method("status")
    def status(self, caller: Caller, params: AnyParams) -> Awaitable[bool]:
        return self.release.wait()

    @method("sessions.list")
    async def list_sessions(self, caller: Caller, params: AnyParams) -> None:
        raise RuntimeError("broken")


@dataclass
class Parts:
    """What connections share, and how to make them."""

    gateway: Gateway
    methods: Methods
    owner: User
    users: UserStore
    credentials: CredentialStore
    database: Database
    connected: list[Caller] = field(default_factory=list)

    def open(self, peer: PeerInfo = LOCAL) -> FakeWire:
        """A connection that was challenged."""
        wire = FakeWire()
        wire.connection = Connection(wire, peer, self.gateway)
        wire.connection.opened()
        return wire

    async def ready(self, **options: Any) -> FakeWire:
        """A connection past its handshake; ``options`` as of ``connect_params``."""
        wire = self.open()
        nonce = wire.sent[0]["payload"]["nonce"]
        wire.requests("connect", connect_params(**{"token": TOKEN, "nonce": nonce, **options}), id="connect")
        await until(lambda: len(wire.responses()) or wire.ended)
        assert wire.responses()[0]["ok"], wire.sent
        return wire

    async def personal_token(self, role: Role = Role.USER) -> str:
        """A token of somebody new."""
        user = await self.users.add(role.value, role)
        return (await self.credentials.create_token(user.id, "test")).token.reveal()


@asynccontextmanager
async def connection_parts(path: Path, **limits: Any) -> AsyncIterator[Parts]:
    """The parts of a gateway that connections need, with its people in ``path``."""
    config = GatewayConfig(auth=AuthConfig(token=Secret(TOKEN)), limits=LimitsConfig(**limits))
    broadcaster, versions, methods = Broadcaster(), StateVersions(), Methods()
    connected: list[Caller] = []

    def greet(admission: Admission, conn_id: ConnId) -> HelloOk:
        return HelloOk(
            protocol=3,
            server=ServerInfo(version="test", conn_id=conn_id),
            features=Features(methods=[], events=[]),
            snapshot=Snapshot(presence=[], health={}, state_version=versions.wire(), uptime_ms=0),
            policy=Policy(max_payload=1, max_buffered_bytes=1, tick_interval_ms=1),
            auth=admission.hello,
        )

    async with Database(path / "skynet.db") as db, Supervisor() as tasks:
        await migrate(db, [COMPONENT])
        users, credentials = UserStore(db), CredentialStore(db)
        owner = await users.ensure_owner()
        authenticator = Authenticator(
            config,
            owner=owner,
            users=users,
            credentials=credentials,
            devices=DeviceStore(db),
            broadcaster=broadcaster,
        )
        gateway = Gateway(
            limits=config.limits,
            tasks=tasks,
            authenticator=authenticator,
            dispatcher=Dispatcher(collect(methods), tasks),
            broadcaster=broadcaster,
            presence=PresenceTable(broadcaster, versions, version="test"),
            greet=greet,
            connected=connected.append,
        )
        yield Parts(gateway, methods, owner, users, credentials, db, connected)
