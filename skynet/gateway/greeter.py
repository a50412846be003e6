"""What a client is told of the gateway when it is let in."""

import time

from msgspec import UNSET

from skynet.config import Config
from skynet.gateway.auth import Admission
from skynet.gateway.dispatch import MethodTable
from skynet.gateway.health import HealthBoard
from skynet.gateway.presence import PresenceTable, StateVersions
from skynet.version import VERSION
from skynet_memory.ids import DEFAULT_AGENT, ConnId, Role
from skynet_protocol.connect import Features, HelloOk, Policy, ServerInfo, SessionDefaults, Snapshot
from skynet_protocol.errors import PROTOCOL_VERSION
from skynet_protocol.events import EVENTS
from skynet_protocol.methods import METHODS


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
