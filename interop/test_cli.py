"""The commands of ``openclaw`` that show what the gateway knows: exit codes and the values they show."""

from __future__ import annotations

import json

import pytest

from interop.gateway import Gateway
from interop.openclaw import OpenClaw, Outcome
from skynet.version import VERSION

MAIN = "agent:main:main"


@pytest.mark.reads("--version")
def test_the_client_is_the_one_we_name(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert outcome.out.strip() == "2026.2.26"


@pytest.mark.reads("health", "--json")
def test_health_as_json(outcome: Outcome) -> None:
    value = outcome.value
    assert (value["ok"], value["defaultAgentId"]) == (True, "main")
    (agent,) = value["agents"]
    assert (agent["agentId"], agent["isDefault"]) == ("main", True)
    assert (value["channels"], value["channelOrder"], value["channelLabels"]) == ({}, [], {})
    assert value["sessions"]["count"] >= 1
    assert len(value["sessions"]["recent"]) <= 5


@pytest.mark.reads("health")
def test_health_for_people(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    lines = outcome.out.splitlines()
    assert "Agents: main (default)" in lines
    assert [line for line in lines if line.startswith("Heartbeat interval: ") and line.endswith(" (main)")]
    (store,) = (line for line in lines if line.startswith("Session store (main): "))
    assert not store.endswith("(0 entries)")


@pytest.mark.reads("status", "--timeout", "20000")
def test_status_reaches_the_gateway(outcome: Outcome, gateway: Gateway) -> None:
    assert outcome.ok, str(outcome)
    assert f"remote · {gateway.url} (config gateway.remote.url) · reachable " in outcome.flat, str(outcome)
    assert " · auth token · " in outcome.flat
    assert f" app {VERSION} " in outcome.flat


@pytest.mark.reads("status", "--deep", "--timeout", "20000")
def test_status_deep_probes_health_and_heartbeat(outcome: Outcome, gateway: Gateway) -> None:
    assert outcome.ok, str(outcome)
    assert f"{gateway.url} (config gateway.remote.url) · reachable " in outcome.flat, str(outcome)
    assert " Gateway reachable " in outcome.flat  # the row of the health table
    assert " Last heartbeat none " in outcome.flat
    assert " Probes enabled " in outcome.flat


@pytest.mark.reads("gateway", "probe", "--timeout", "20000")
def test_gateway_probe_for_people(outcome: Outcome, gateway: Gateway) -> None:
    assert outcome.ok, str(outcome)
    assert "Reachable: yes" in outcome.out
    remote = outcome.flat[outcome.flat.index(f"Remote (configured) {gateway.url}") :]
    assert " · RPC: ok " in remote
    assert f" · app {VERSION} " in remote


@pytest.mark.reads("gateway", "probe", "--json", "--timeout", "20000")
def test_gateway_probe_as_json(outcome: Outcome, gateway: Gateway) -> None:
    value = outcome.value
    assert value["ok"] is True
    (target,) = (each for each in value["targets"] if each["kind"] == "configRemote")
    assert (target["url"], target["connect"]["ok"], target["connect"]["error"]) == (gateway.url, True, None)
    assert target["self"]["version"] == VERSION
    assert target["self"]["host"] and target["self"]["platform"]
    assert (target["config"]["path"], target["config"]["valid"]) == (str(gateway.configuration), True)
    assert (target["health"]["ok"], target["health"]["defaultAgentId"]) == (True, "main")
    assert target["summary"]["heartbeat"]["defaultAgentId"] == "main"
    assert any(entry.get("mode") == "gateway" for entry in target["presence"])


@pytest.mark.reads("channels", "status")
def test_channels_status_for_people(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert "Gateway reachable." in outcome.out
    assert "config-only" not in outcome.out


@pytest.mark.reads("cron", "list")
def test_cron_list_for_people(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert outcome.out.strip() == "No cron jobs."


@pytest.mark.reads("cron", "status")
def test_cron_status(outcome: Outcome) -> None:
    value = outcome.value
    assert (value["jobs"], value["nextWakeAtMs"]) == (0, None)
    assert isinstance(value["enabled"], bool) and value["storePath"]


@pytest.mark.reads("devices", "list")
def test_devices_list_for_people(outcome: Outcome, owner: OpenClaw) -> None:
    assert outcome.ok, str(outcome)
    assert "Paired (" in outcome.out
    assert owner.device_id[:16] in outcome.out
    assert "local fallback" not in outcome.out + outcome.err


@pytest.mark.reads("devices", "list", "--json")
def test_devices_list_shows_this_client_and_no_secret(outcome: Outcome, owner: OpenClaw) -> None:
    paired = {device["deviceId"]: device for device in outcome.value["paired"]}
    device = paired[owner.device_id]
    assert (device["role"], device["roles"], device["platform"]) == ("operator", ["operator"], "linux")
    # each connect asked for what it needed; what is remembered is all of it
    scopes = {"operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing"}
    assert set(device["scopes"]) == scopes
    (token,) = device["tokens"]
    assert token["role"] == "operator" and set(token["scopes"]) <= scopes
    assert owner.device["tokens"]["operator"]["token"] not in outcome.out


@pytest.mark.reads("logs", "--limit", "5")
def test_logs_for_people(outcome: Outcome, gateway: Gateway) -> None:
    assert outcome.ok, str(outcome)
    first, *lines = outcome.out.splitlines()
    assert first == f"Log file: {gateway.log}"
    assert lines


@pytest.mark.reads("logs", "--limit", "5", "--json")
def test_logs_are_the_lines_of_our_log_file(outcome: Outcome, gateway: Gateway) -> None:
    assert outcome.ok, str(outcome)
    meta, *lines = map(json.loads, outcome.out.splitlines())
    assert (meta["type"], meta["file"]) == ("meta", str(gateway.log))
    assert 1 <= len(lines) <= 5
    written = gateway.log.read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert line["type"] == "log", line  # a line the client cannot read is of type raw
        assert line["raw"] in written
        assert line["level"] in ("debug", "info", "warn", "error") and line["message"] and line["time"]


@pytest.mark.reads("nodes", "status")
def test_nodes_status_for_people(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert "Known: " in outcome.out


@pytest.mark.reads("system", "presence")
def test_system_presence_has_our_gateway(outcome: Outcome) -> None:
    (own,) = (entry for entry in outcome.value if entry.get("mode") == "gateway")
    assert (own["version"], own["reason"]) == (VERSION, "self")
    assert own["text"] == f"Gateway: {own['host']} ({own['ip']}) · app {VERSION} · mode gateway · reason self"


@pytest.mark.reads("system", "heartbeat", "last")
def test_there_was_no_heartbeat_yet(outcome: Outcome) -> None:
    assert outcome.value is None


@pytest.mark.reads("approvals", "get", "--gateway")
def test_approvals_for_people(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert " Target gateway " in outcome.flat
    assert " Version 1 " in outcome.flat
    assert "No allowlist entries." in outcome.out


@pytest.mark.reads("gateway", "usage-cost")
def test_usage_cost_for_people(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    (total,) = (line for line in outcome.out.splitlines() if line.startswith("Total: "))
    assert not total.endswith(" 0 tokens")
    assert total.endswith(" tokens")


@pytest.mark.reads("gateway", "usage-cost", "--days", "7", "--json")
def test_usage_cost_counts_the_run(outcome: Outcome) -> None:
    value = outcome.value
    assert value["days"] >= 7
    totals = value["totals"]
    assert totals["input"] >= 100 and totals["output"] >= 5
    assert totals["totalTokens"] >= 105
    today = value["daily"][-1]
    assert today["totalTokens"] == totals["totalTokens"]


@pytest.mark.reads("gateway", "health")
def test_gateway_health(outcome: Outcome) -> None:
    assert outcome.ok, str(outcome)
    assert "Gateway Health" in outcome.out
    assert "OK" in outcome.out


def test_system_heartbeat_is_switched_off_and_on(owner: OpenClaw) -> None:
    assert owner.run("system", "heartbeat", "disable").value == {"ok": True, "enabled": False}
    assert owner.run("system", "heartbeat", "enable").value == {"ok": True, "enabled": True}


def test_system_event_is_accepted(owner: OpenClaw) -> None:
    outcome = owner.run("system", "event", "--text", "the kettle boils", "--mode", "now")
    assert outcome.ok, str(outcome)
    assert outcome.out.strip() == "ok"
