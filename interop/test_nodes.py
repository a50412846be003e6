"""Nodes: the real node host is paired, approved, listed, asked and named; it goes away in the middle and comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interop.gateway import Gateway
from interop.openclaw import OpenClaw, call
from interop.processes import Child, running, until

NODE_TIMEOUT_S = 60.0
NAME = "Pantry"
NOT_CONNECTED = "node not connected"


@dataclass
class Host:
    """A machine whose node host runs, and is paired with the gateway as a node."""

    machine: OpenClaw
    owner: OpenClaw
    gateway: Gateway
    directory: Path
    child: Child
    stack: ExitStack
    starts: int = field(default=1)

    @property
    def node_id(self) -> str:
        return self.machine.device_id

    def row(self) -> dict[str, Any]:
        """The node as ``nodes status`` shows it."""
        nodes = self.owner.run("nodes", "status", "--json").value["nodes"]
        (row,) = (node for node in nodes if node["nodeId"] == self.node_id)
        assert isinstance(row, dict)
        return row

    def start(self) -> None:
        """Start the node host again."""
        self.starts += 1
        self.child = start(self.stack, self.machine, self.gateway, self.directory / f"node-{self.starts}.out")

    def invoke(self, command: str, params: object, *options: str) -> Any:
        """What ``nodes invoke`` prints."""
        return self.owner.run(
            "nodes", "invoke", "--node", NAME, "--command", command, "--params", json.dumps(params), *options
        )


def start(stack: ExitStack, machine: OpenClaw, gateway: Gateway, log: Path) -> Child:
    command = machine.argv("node", "run", "--host", "127.0.0.1", "--port", str(gateway.port), "--display-name", NAME)
    env = machine.env() | {"OPENCLAW_GATEWAY_TOKEN": gateway.token}
    return stack.enter_context(running(command, env=env, cwd=machine.home, log=log))


@pytest.fixture(scope="module")
def host(
    openclaw_installed: None, gateway: Gateway, owner: OpenClaw, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """Paired as the documentation says: started, refused, listed by ``devices list``, approved, started again."""
    directory = tmp_path_factory.mktemp("node")
    machine = OpenClaw(directory / "home", gateway.url, gateway.token)
    # What the machine's own rules let run: anything, unless a test says otherwise
    rules = {"version": 1, "defaults": {"security": "full", "ask": "off"}, "agents": {}}
    (machine.state / "exec-approvals.json").write_text(json.dumps(rules), encoding="utf-8")
    assert machine.call("health")["ok"] is True  # so its device is an operator's, and a node only when it is approved
    with ExitStack() as stack:
        child = start(stack, machine, gateway, directory / "node.out")
        child.wait_for("pairing required", NODE_TIMEOUT_S)
        pending = owner.run("devices", "list", "--json").value["pending"]
        (request,) = (each for each in pending if each["deviceId"] == machine.device_id)
        approved = owner.run("devices", "approve", request["requestId"])
        assert approved.ok, str(approved)
        assert child.process.wait(NODE_TIMEOUT_S) == 0  # this client ends when it is refused, and is started again
        made = Host(machine, owner, gateway, directory, child, stack)
        made.start()
        until(lambda: made.row()["connected"], NODE_TIMEOUT_S, lambda: f"a connected node\n{made.child.output}")
        yield made


def test_it_is_listed_and_described_with_what_it_offers(host: Host) -> None:
    row = host.row()
    assert (row["displayName"], row["platform"], row["version"]) == (NAME, "linux", "2026.2.26")
    assert (row["paired"], row["connected"]) == (True, True)
    assert "system" in row["caps"]
    assert {"system.run", "system.run.prepare", "system.which"} <= set(row["commands"])
    assert not any(command.startswith("system.execApprovals") for command in row["commands"])
    shown = host.owner.run("nodes", "status")
    assert shown.ok and "Connected: 1" in shown.out and host.node_id[:8] in shown.out, str(shown)
    described = host.owner.run("nodes", "describe", "--node", NAME)
    assert described.ok and "- system.run\n" in described.out and "paired · connected" in described.flat, str(described)
    listed = host.owner.run("nodes", "list", "--json")
    assert listed.ok and host.node_id in listed.out, str(listed)
    pending = host.owner.run("nodes", "pending", "--json")
    assert pending.ok and pending.value == [], str(pending)
    presence = host.owner.run("system", "presence", "--json").value
    (entry,) = (each for each in presence if each.get("deviceId") == host.node_id and each["mode"] == "node")
    assert entry["host"] == NAME


def test_it_does_what_it_is_asked(host: Host) -> None:
    found = host.invoke("system.which", {"bins": ["sh", "no-such-program"]}).value
    assert (found["ok"], found["nodeId"], found["command"]) == (True, host.node_id, "system.which")
    assert list(found["payload"]["bins"]) == ["sh"]
    assert json.loads(found["payloadJSON"]) == found["payload"]
    ran = host.invoke("system.run", {"command": ["/bin/echo", "from the pantry"]}).value["payload"]
    assert (ran["stdout"], ran["exitCode"], ran["success"]) == ("from the pantry\n", 0, True)
    failed = host.invoke("system.run", {"command": ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"]}).value[
        "payload"
    ]
    assert (failed["stdout"], failed["stderr"], failed["exitCode"]) == ("out\n", "err\n", 3)


@pytest.mark.parametrize(
    ("command", "params", "text"),
    [
        ("camera.snap", {}, 'node command not allowed: "camera.snap" is not in the allowlist for platform "linux"'),
        ("system.notify", {}, 'node command not allowed: the node (platform: linux) does not support "system.notify"'),
        (
            "system.execApprovals.get",
            {},
            "node.invoke does not allow system.execApprovals.*; use exec.approvals.node.*",
        ),
        ("system.run", {"command": ["true"], "approved": True}, "approval override requires params.runId"),
        ("system.run", {"command": ["true"], "approved": True, "runId": "x"}, "unknown or expired approval id"),
        ("system.run", {}, "command required"),
    ],
)
def test_what_it_may_not_or_cannot_do_is_said(host: Host, command: str, params: object, text: str) -> None:
    refused = host.invoke(command, params)
    assert refused.code == 1 and text in refused.err, str(refused)


def test_nodes_run_where_neither_side_asks(host: Host, tmp_path: Path) -> None:
    """``tools.exec`` of the client and the machine's own rules: full, off."""
    client = runner(host, tmp_path, security="full", ask="off")
    ran = client.run("nodes", "run", "--node", NAME, "--json", "--", "echo", "by name")
    assert ran.value["payload"]["stdout"] == "by name\n"
    seen = client.run("nodes", "run", "--node", NAME, "--env", "WORD=told", "--json", "--", "printenv", "WORD")
    assert seen.value["payload"]["stdout"] == "told\n"
    raw = client.run("nodes", "run", "--node", NAME, "--raw", "echo raw; exit 4")
    assert raw.code == 1 and "raw" in raw.out and "exit 4" in raw.err, str(raw)


@pytest.mark.parametrize("decision", ["allow-once", "allow-always", "deny"])
def test_nodes_run_waits_for_somebody(host: Host, tmp_path: Path, decision: str) -> None:
    """The client's default, allowlist and on-miss: another client decides while it waits."""
    client = runner(host, tmp_path, security="allowlist", ask="on-miss")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.run, "nodes", "run", "--node", NAME, "--json", "--", "echo", decision)
        asked = until(lambda: approvals(host, decision), NODE_TIMEOUT_S, "a question")
        assert (asked["request"]["host"], asked["request"]["nodeId"]) == ("node", host.node_id)
        resolved = host.owner.call("exec.approval.resolve", {"id": asked["id"], "decision": decision})
        assert resolved == {"ok": True}
        ended = running.result()
    if decision == "deny":
        assert ended.code == 1 and "exec denied: user denied" in ended.err, str(ended)
    else:
        assert ended.value["payload"]["stdout"] == f"{decision}\n"


def runner(host: Host, directory: Path, **policy: str) -> OpenClaw:
    """Another client of the owner, whose commands on nodes have this policy."""
    client = OpenClaw(directory / "runner", host.gateway.url, host.gateway.token)
    path = client.state / "openclaw.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tools": {"exec": policy}}), encoding="utf-8")
    return client


def approvals(host: Host, word: str) -> dict[str, Any] | None:
    """The open question about a command with ``word``."""
    found = host.owner.call("exec.approval.list")["approvals"]
    return next((each for each in found if word in each["request"]["command"]), None)


def test_the_machines_own_rules_are_shown_and_changed(host: Host) -> None:
    shown = host.owner.run("approvals", "get", "--node", NAME, "--json").value
    assert shown["file"]["defaults"] == {"security": "full", "ask": "off"}
    added = host.owner.run("approvals", "allowlist", "add", "--node", NAME, "/bin/true")
    assert added.ok, str(added)
    shown = host.owner.run("approvals", "get", "--node", NAME, "--json").value
    assert "/bin/true" in json.dumps(shown["file"]["agents"])


def test_a_name_that_was_given_stays(host: Host) -> None:
    try:
        renamed = host.owner.run("nodes", "rename", "--node", NAME, "--name", "Larder")
        assert renamed.ok and f"node rename ok: {host.node_id} -> Larder" in renamed.out, str(renamed)
        assert host.row()["displayName"] == "Larder"
        described = host.owner.run("nodes", "describe", "--node", "larder", "--json").value
        assert described["nodeId"] == host.node_id
    finally:
        assert host.owner.run("nodes", "rename", "--node", host.node_id, "--name", NAME).ok


def test_it_goes_away_in_the_middle_and_comes_back(host: Host, tmp_path: Path) -> None:
    """SK node gone mid-invoke: UNAVAILABLE at once, and nothing hangs."""
    started = tmp_path / "started"
    script = f"touch {started}; sleep 300"
    argv = host.owner.argv(
        *("nodes", "invoke", "--node", NAME, "--command", "system.run", "--invoke-timeout", "200000"),
        *("--timeout", "210000", "--params", json.dumps({"command": ["/bin/sh", "-c", script]})),
    )
    with subprocess.Popen(
        argv,
        env=host.owner.env(),
        cwd=host.owner.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as asking:
        try:
            until(started.exists, NODE_TIMEOUT_S, "the command on the node")
            os.killpg(host.child.process.pid, signal.SIGKILL)  # the client starts itself a second time
            host.child.process.wait()
            gone_s = time.monotonic()
            _, err = asking.communicate(timeout=NODE_TIMEOUT_S)
            assert time.monotonic() - gone_s < 30
            assert asking.returncode == 1 and "node disconnected (system.run)" in err, err
        finally:
            asking.kill()
    row = host.row()
    assert (row["paired"], row["connected"], row["commands"]) == (True, False, [])
    refused = host.invoke("system.which", {"bins": ["sh"]})
    assert refused.code == 1 and NOT_CONNECTED in refused.err, str(refused)

    host.start()
    until(lambda: host.row()["connected"], NODE_TIMEOUT_S, lambda: host.child.output)
    assert host.invoke("system.which", {"bins": ["sh"]}).ok


def test_a_removed_device_is_no_node_any_more(host: Host) -> None:
    removed = host.owner.run("devices", "remove", host.node_id)
    assert removed.ok, str(removed)
    refused = host.owner.run(
        *call("node.invoke", {"nodeId": host.node_id, "command": "system.which", "idempotencyKey": "k"})
    )
    assert refused.refusal == NOT_CONNECTED
