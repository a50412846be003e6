"""``skynet nodes`` against a real gateway and a node whose answers are known."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skynet.cli.errors import Exit
from skynet_protocol.device import DeviceIdentity
from tests.skynet.cli.conftest import RunningGateway, Skynet
from tests.support.client import open_client
from tests.support.node import COMMANDS, ScriptedNode

NAME = "Pantry \x1b[31m"
SHOWN = "Pantry"


@pytest.fixture
def node(gateway: RunningGateway) -> Iterator[str]:
    """The id of a connected node that answers every command with what it was asked."""
    device, ready, loop = DeviceIdentity.generate(), threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        client = {"id": "node-host", "mode": "node", "version": "9", "platform": "linux", "displayName": NAME}
        async with open_client(
            gateway.url,
            token=gateway.token,
            device=device,
            role="node",
            scopes=(),
            client=client,
            commands=list(COMMANDS),
        ) as connection:
            scripted = ScriptedNode(connection, device)
            ready.set()
            async with asyncio.timeout(120):
                while True:
                    asked = await scripted.asked()
                    await scripted.answer(asked, answer(asked))

    def answer(asked: dict[str, Any]) -> Any:
        params = json.loads(asked["paramsJSON"])
        if asked["command"] != "system.run":
            return {"asked": params}
        return {"stdout": f"{params['command'][-1]}\n", "stderr": "", "exitCode": 7, "timedOut": False}

    serving = loop.create_task(serve())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait({serving})))
    thread.start()
    try:
        assert ready.wait(40), serving
        yield device.device_id
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(40)
        loop.close()


def test_it_is_listed_described_and_named(skynet: Skynet, node: str) -> None:
    line = next(line for line in skynet("nodes", "list").out.splitlines() if line.startswith(node[:12]))
    assert SHOWN in line and "\tconnected\tlinux\t" in line and "\x1b" not in line
    shown = skynet("nodes", "describe", node).out
    assert node in shown and "system.run, system.run.prepare, system.which" in shown
    renamed = skynet("nodes", "rename", node[:8], "Larder")
    assert (renamed.code, renamed.out) == (Exit.OK, f"{node[:12]} is now Larder\n")
    described = json.loads(skynet("nodes", "describe", "LARDER", "--json").out)
    assert (described["nodeId"], described["connected"]) == (node, True)


def test_it_is_asked(skynet: Skynet, node: str) -> None:
    outcome = skynet("nodes", "invoke", node, "system.which", '{"bins": ["ls"]}')
    assert (outcome.code, json.loads(outcome.out)) == (Exit.OK, {"asked": {"bins": ["ls"]}})
    whole = json.loads(skynet("nodes", "invoke", node, "system.which", "--json").out)
    assert (whole["command"], whole["payload"]) == ("system.which", {"asked": {}})
    refused = skynet("nodes", "invoke", node, "camera.snap")
    assert refused.code == Exit.FAILED and "not in the allowlist" in refused.err
    assert skynet("nodes", "invoke", node, "system.which", "{").code == Exit.USAGE


def test_a_command_runs_there_and_ends_as_it_does(skynet: Skynet, node: str) -> None:
    outcome = skynet("nodes", "run", node, "--", "echo", "hi")
    assert (outcome.code, outcome.out) == (7, "echo hi\n"), outcome


def test_a_node_that_is_not_there(skynet: Skynet, node: str) -> None:
    for command in (("describe", "attic"), ("invoke", "attic", "system.which"), ("rename", "attic", "x")):
        outcome = skynet("nodes", *command)
        assert outcome.code == Exit.FAILED and "no node is called 'attic'" in outcome.err, outcome
        assert "see: skynet nodes list" in outcome.err
