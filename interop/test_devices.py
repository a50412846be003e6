"""Devices: the token a paired client keeps, its rotation and revocation, and a second role that needs approval."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from interop.gateway import Gateway
from interop.openclaw import OpenClaw, call
from interop.processes import running

DEVICE_MISMATCH = "unauthorized: device token mismatch (rotate/reissue device token)"
NODE_TIMEOUT_S = 60.0


@pytest.fixture
def paired(openclaw_installed: None, gateway: Gateway, tmp_path: Path) -> OpenClaw:
    """A client with a device of its own that has connected with the gateway's token once."""
    client = OpenClaw(tmp_path / "paired", gateway.url, gateway.token)
    assert client.call("health")["ok"] is True
    return client


def test_a_paired_device_needs_no_other_token_until_its_own_is_rotated_or_revoked(
    paired: OpenClaw, owner: OpenClaw, gateway: Gateway, tmp_path: Path
) -> None:
    device = ("--device", paired.device_id, "--role", "operator")
    paired.configure(gateway.url, None)
    assert paired.call("health")["ok"] is True
    kept = paired.device["tokens"]["operator"]["token"]
    shutil.copytree(paired.home, tmp_path / "thief", dirs_exist_ok=True)

    rotated = owner.run("devices", "rotate", *device, "--json").value
    assert (rotated["deviceId"], rotated["role"]) == (paired.device_id, "operator")
    assert rotated["token"] != kept
    refused = paired.run(*call("health"))
    assert refused.code == 1 and f"gateway closed (1008): {DEVICE_MISMATCH}" in refused.err, str(refused)
    assert paired.device["tokens"] == {}  # the client drops a token that is refused with these words

    paired.configure(gateway.url, gateway.token)
    assert paired.call("health")["ok"] is True
    assert paired.device["tokens"]["operator"]["token"] == rotated["token"]
    revoked = owner.run("devices", "revoke", *device, "--json").value
    assert (revoked["deviceId"], revoked["role"]) == (paired.device_id, "operator")
    assert revoked["revokedAtMs"] > 0
    paired.configure(gateway.url, None)
    refused = paired.run(*call("health"))
    assert refused.code == 1 and DEVICE_MISMATCH in refused.err, str(refused)


def test_a_removed_device_is_paired_anew_with_the_token(paired: OpenClaw, owner: OpenClaw, gateway: Gateway) -> None:
    removed = owner.run("devices", "remove", paired.device_id, "--json")
    assert removed.ok, str(removed)
    assert paired.device_id not in [each["deviceId"] for each in owner.call("device.pair.list")["paired"]]
    paired.configure(gateway.url, None)
    refused = paired.run(*call("health"))
    assert refused.code == 1 and "unauthorized: device token mismatch" in refused.err, str(refused)
    paired.configure(gateway.url, gateway.token)
    assert paired.call("health")["ok"] is True
    assert paired.device_id in [each["deviceId"] for each in owner.call("device.pair.list")["paired"]]


def test_a_second_role_waits_for_approval_even_on_loopback(
    paired: OpenClaw, owner: OpenClaw, gateway: Gateway, tmp_path: Path
) -> None:
    command = paired.argv(
        "node", "run", "--host", "127.0.0.1", "--port", str(gateway.port), "--display-name", "Kitchen"
    )
    env = paired.env() | {"OPENCLAW_GATEWAY_TOKEN": gateway.token}
    with running(command, env=env, cwd=paired.home, log=tmp_path / "node.out") as node:
        node.wait_for("node host gateway closed (1008): pairing required", NODE_TIMEOUT_S)
        listed = owner.run("devices", "list", "--json").value
        (pending,) = (each for each in listed["pending"] if each["deviceId"] == paired.device_id)
        assert (pending["role"], pending["roles"], pending["displayName"]) == ("node", ["node"], "Kitchen")
        assert (pending["clientId"], pending["clientMode"], pending["platform"]) == ("node-host", "node", "linux")
        assert pending["silent"] is False
        # the operator role of the same device goes on working meanwhile
        assert paired.call("health")["ok"] is True
        approved = owner.run("devices", "approve", pending["requestId"])
        assert approved.ok, str(approved)
        assert f"Approved {paired.device_id}" in approved.out.replace("\n", " ")
    listed = owner.run("devices", "list", "--json").value
    assert paired.device_id not in [each["deviceId"] for each in listed["pending"]]
    (device,) = (each for each in listed["paired"] if each["deviceId"] == paired.device_id)
    assert set(device["roles"]) == {"operator", "node"}


def test_a_rejected_request_is_gone(paired: OpenClaw, owner: OpenClaw, gateway: Gateway, tmp_path: Path) -> None:
    command = paired.argv("node", "run", "--host", "127.0.0.1", "--port", str(gateway.port))
    env = paired.env() | {"OPENCLAW_GATEWAY_TOKEN": gateway.token}
    with running(command, env=env, cwd=paired.home, log=tmp_path / "node.out") as node:
        node.wait_for("pairing required", NODE_TIMEOUT_S)
    (pending,) = (each for each in owner.call("device.pair.list")["pending"] if each["deviceId"] == paired.device_id)
    rejected = owner.call("device.pair.reject", {"requestId": pending["requestId"]})
    assert rejected == {"requestId": pending["requestId"], "deviceId": paired.device_id}
    refused = owner.run(*call("device.pair.approve", {"requestId": pending["requestId"]}))
    assert refused.refusal == "unknown requestId"
