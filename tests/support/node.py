"""A node whose answers the test gives: a real connection in role node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from skynet_protocol.device import DeviceIdentity
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway

COMMANDS = ("system.run.prepare", "system.run", "system.which", "system.execApprovals.get", "system.execApprovals.set")


@dataclass
class ScriptedNode:
    client: WireClient
    device: DeviceIdentity
    read: int = 0

    @property
    def node_id(self) -> str:
        return self.device.device_id

    async def asked(self) -> dict[str, Any]:
        """The next thing it is asked for: the payload of ``node.invoke.request``."""
        number = self.read
        self.read += 1

        def is_it(event: dict[str, Any]) -> bool:
            requests = [each for each in self.client.events if each["event"] == "node.invoke.request"]
            return len(requests) > number and requests[number] is event

        event = await self.client.event(is_it)
        assert "seq" not in event
        payload: dict[str, Any] = event["payload"]
        return payload

    async def answer(self, request: dict[str, Any], value: Any = None, **fields: Any) -> dict[str, Any]:
        """Answer a request, as the real node host does; ``fields`` go in place of that."""
        params = {"id": request["id"], "nodeId": self.node_id, "ok": True}
        answer: dict[str, Any] = await self.client.call(
            "node.invoke.result", params | (fields or {"payloadJSON": json.dumps(value)})
        )
        return answer

    async def tell(self, event: str, payload: Any = None) -> dict[str, Any]:
        """Send a ``node.event``, as the real node host does."""
        answer: dict[str, Any] = await self.client.call(
            "node.event", {"event": event, "payloadJSON": json.dumps(payload)}
        )
        return answer


@asynccontextmanager
async def connected_node(
    gateway: RunningGateway,
    *,
    name: str = "Pantry",
    device: DeviceIdentity | None = None,
    commands: Sequence[str] = COMMANDS,
    platform: str = "linux",
    **options: Any,
) -> AsyncIterator[ScriptedNode]:
    device = device or DeviceIdentity.generate()
    client = {"id": "node-host", "mode": "node", "version": "dev", "platform": platform, "displayName": name}
    async with gateway.client(
        device=device,
        role="node",
        scopes=(),
        client=client,
        caps=("system",),
        commands=list(commands),
        pathEnv="/usr/bin:/bin",
        **options,
    ) as connection:
        yield ScriptedNode(connection, device)
