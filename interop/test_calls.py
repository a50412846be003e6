"""``openclaw gateway call`` for the methods that only tell, and what is refused with which words."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest

from interop.gateway import PROVIDER_KEY, Gateway
from interop.openclaw import OpenClaw, Outcome, call
from skynet.version import VERSION

MAIN = "agent:main:main"
DAY_MS = 86_400_000


def reads(method: str, params: dict[str, Any] | None = None) -> pytest.MarkDecorator:
    return pytest.mark.reads(*call(method, params))


@reads("ping")
def test_ping(outcome: Outcome) -> None:
    assert isinstance(outcome.value, dict)


@reads("health", {"probe": True})
def test_health(outcome: Outcome) -> None:
    value = outcome.value
    assert (value["ok"], value["defaultAgentId"]) == (True, "main")
    assert abs(value["ts"] - time.time() * 1000) < DAY_MS  # it was asked when the run began


@reads("status")
def test_status_has_the_session_just_used(outcome: Outcome, first_run: Outcome) -> None:
    value = outcome.value
    assert value["heartbeat"]["defaultAgentId"] == "main"
    assert value["channelSummary"] == []
    sessions = value["sessions"]
    assert sessions["defaults"] == {"model": "mock-1", "contextTokens": 128_000}
    (session,) = (each for each in sessions["recent"] if each["key"] == MAIN)
    assert session["sessionId"] == first_run.value["result"]["meta"]["agentMeta"]["sessionId"]
    assert (session["agentId"], session["kind"], session["model"]) == ("main", "direct", "mock-1")
    assert (session["inputTokens"], session["outputTokens"], session["abortedLastRun"]) == (100, 5, False)
    assert [each["agentId"] for each in sessions["byAgent"]] == ["main"]


@reads("system-presence")
def test_system_presence(outcome: Outcome) -> None:
    (own,) = (entry for entry in outcome.value if entry.get("mode") == "gateway")
    assert (own["version"], own["reason"]) == (VERSION, "self")


@reads("last-heartbeat")
def test_last_heartbeat(outcome: Outcome) -> None:
    assert outcome.value is None


@reads("models.list", {})
def test_models_list(outcome: Outcome) -> None:
    models = {(model["provider"], model["id"]): model for model in outcome.value["models"]}
    model = models["mock", "mock-1"]
    assert (model["name"], model["contextWindow"]) == ("mock-1", 128_000)


@reads("agents.list", {})
def test_agents_list(outcome: Outcome) -> None:
    value = outcome.value
    assert (value["defaultId"], value["mainKey"], value["scope"]) == ("main", "main", "per-sender")
    assert [agent["id"] for agent in value["agents"]] == ["main"]


@reads("agent.identity.get", {"sessionKey": "main"})
def test_agent_identity(outcome: Outcome) -> None:
    value = outcome.value
    assert (value["agentId"], value["name"]) == ("main", "Assistant")
    assert value["avatar"]


@reads("sessions.list", {"includeDerivedTitles": True, "includeLastMessage": True, "agentId": "main"})
def test_sessions_list_shows_the_session_just_used(outcome: Outcome, first_run: Outcome) -> None:
    value = outcome.value
    assert value["count"] == len(value["sessions"])
    assert value["defaults"] == {"modelProvider": "mock", "model": "mock-1", "contextTokens": 128_000}
    (session,) = (each for each in value["sessions"] if each["key"] == MAIN)
    assert session["sessionId"] == first_run.value["result"]["meta"]["agentMeta"]["sessionId"]
    assert (session["kind"], session["modelProvider"], session["model"]) == ("direct", "mock", "mock-1")
    assert (session["inputTokens"], session["outputTokens"], session["contextTokens"]) == (100, 5, 128_000)
    assert (session["derivedTitle"], session["lastMessagePreview"]) == ("tokens=5", "w0 w1 w2 w3 w4")
    ages = [each["updatedAt"] for each in value["sessions"]]
    assert ages == sorted(ages, reverse=True)


@reads("sessions.preview", {"keys": ["main", "agent:main:nobody-wrote-here"]})
def test_sessions_preview(outcome: Outcome) -> None:
    used, missing = outcome.value["previews"]
    assert (used["key"], used["status"]) == ("main", "ok")
    assert used["items"] == [{"role": "user", "text": "tokens=5"}, {"role": "assistant", "text": "w0 w1 w2 w3 w4"}]
    assert missing == {"key": "agent:main:nobody-wrote-here", "status": "missing", "items": []}


@reads("sessions.resolve", {"key": "main"})
def test_sessions_resolve(outcome: Outcome) -> None:
    assert outcome.value == {"ok": True, "key": MAIN}


@reads("chat.history", {"sessionKey": "main"})
def test_chat_history(outcome: Outcome, first_run: Outcome) -> None:
    value = outcome.value
    assert value["sessionKey"] == "main"  # as it was asked for
    assert value["sessionId"] == first_run.value["result"]["meta"]["agentMeta"]["sessionId"]
    asked, answered = value["messages"]
    assert (asked["role"], asked["content"]) == ("user", [{"type": "text", "text": "tokens=5"}])
    assert (answered["role"], answered["content"]) == ("assistant", [{"type": "text", "text": "w0 w1 w2 w3 w4"}])
    assert (answered["api"], answered["provider"], answered["model"]) == ("openai-completions", "mock", "mock-1")
    assert answered["stopReason"] == "stop"
    assert not {"usage", "cost"} & answered.keys()


@reads("chat.history", {"sessionKey": "agent:main:nobody-wrote-here"})
def test_chat_history_of_an_unknown_session_is_empty(outcome: Outcome) -> None:
    assert outcome.value["messages"] == []
    assert "sessionId" not in outcome.value


@reads("config.get", {})
def test_config_get_redacts_every_secret(outcome: Outcome, gateway: Gateway) -> None:
    value = outcome.value
    assert (value["path"], value["exists"], value["valid"]) == (str(gateway.configuration), True, True)
    assert value["hash"] == hashlib.sha256(gateway.configuration.read_bytes()).hexdigest()
    assert value["issues"] == []
    assert value["config"]["providers"]["mock"]["api_key"] == "__OPENCLAW_REDACTED__"
    assert gateway.token not in outcome.out
    assert PROVIDER_KEY not in outcome.out


@reads("logs.tail", {"limit": 3})
def test_logs_tail(outcome: Outcome, gateway: Gateway) -> None:
    value = outcome.value
    assert (value["file"], value["cursor"]) == (str(gateway.log), value["size"])
    assert len(value["lines"]) == 3
    for line in map(json.loads, value["lines"]):
        assert line["_meta"]["logLevelName"] and line["time"]
    assert gateway.token not in gateway.log.read_text(encoding="utf-8")


@reads("usage.status")
def test_usage_status(outcome: Outcome) -> None:
    assert isinstance(outcome.value["providers"], list)


@reads("usage.cost", {"days": 1})
def test_usage_cost(outcome: Outcome) -> None:
    value = outcome.value
    assert value["totals"]["totalTokens"] >= 105
    assert abs(value["updatedAt"] - time.time() * 1000) < DAY_MS


@reads("device.pair.list", {})
def test_device_pair_list(outcome: Outcome, owner: OpenClaw) -> None:
    assert owner.device_id in [device["deviceId"] for device in outcome.value["paired"]]


@reads("channels.status", {"probe": False, "timeoutMs": 5000})
def test_channels_status_has_all_its_containers(outcome: Outcome) -> None:
    value = outcome.value
    empty = {name: held for name, held in value.items() if name != "ts"}
    assert empty == {
        "channelOrder": [],
        "channelLabels": {},
        "channelDetailLabels": {},
        "channelSystemImages": {},
        "channelMeta": [],
        "channels": {},
        "channelAccounts": {},
        "channelDefaultAccountId": {},
    }


@reads("skills.status", {})
def test_skills_status(outcome: Outcome) -> None:
    assert isinstance(outcome.value["skills"], list)
    assert outcome.value["workspaceDir"]


@reads("tools.catalog", {})
def test_tools_catalog(outcome: Outcome) -> None:
    value = outcome.value
    assert value["agentId"] == "main"
    assert {profile["id"] for profile in value["profiles"]} >= {"minimal", "full"}
    assert isinstance(value["groups"], list)


@reads("node.list", {})
def test_node_list(outcome: Outcome) -> None:
    assert isinstance(outcome.value["nodes"], list)


@reads("node.pair.list", {})
def test_node_pair_list(outcome: Outcome) -> None:
    assert outcome.value == {"pending": [], "paired": []}


@reads("cron.status", {})
def test_cron_status(outcome: Outcome) -> None:
    assert outcome.value["jobs"] == 0


@reads("cron.list", {"includeDisabled": True})
def test_cron_list(outcome: Outcome) -> None:
    value = outcome.value
    assert (value["jobs"], value["total"], value["hasMore"], value["nextOffset"]) == ([], 0, False, None)


@reads("exec.approvals.get", {})
def test_exec_approvals_get(outcome: Outcome) -> None:
    value = outcome.value
    assert value["file"]["version"] == 1
    assert value["path"] and value["hash"] and isinstance(value["exists"], bool)


@reads("agent.wait", {"runId": "never-started", "timeoutMs": 50})
def test_agent_wait_for_an_unknown_run_times_out(outcome: Outcome) -> None:
    assert outcome.value == {"runId": "never-started", "status": "timeout"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("nope.nope", {}, "unknown method: nope.nope"),
    ("connect", {}, "connect is only valid as the first request"),
    ("sessions.list", {"foo": 1}, "invalid sessions.list params: at root: unexpected property 'foo'"),
    ("sessions.resolve", {}, "Either key, sessionId, or label is required"),
    ("sessions.resolve", {"key": "main", "label": "x"}, "Provide either key, sessionId, or label (not multiple)"),
    ("sessions.resolve", {"label": "nobody"}, "No session found with label: nobody"),
    ("sessions.patch", {"key": "main", "verboseLevel": "loud"}, 'invalid verboseLevel (use "on"|"off")'),
    ("sessions.delete", {"key": "main"}, "Cannot delete the main session (agent:main:main)."),
    ("chat.history", {}, "invalid chat.history params: must have required property 'sessionKey'"),
    ("chat.send", {"sessionKey": "main", "message": " ", "idempotencyKey": "blank"}, "message or attachment required"),
    ("chat.inject", {"sessionKey": "agent:main:no-such", "message": "x"}, "session not found"),
    (
        "agent.identity.get",
        {"sessionKey": "agent:x"},
        'invalid agent.identity.get params: malformed session key "agent:x"',
    ),
    ("set-heartbeats", {}, "invalid set-heartbeats params: enabled (boolean) required"),
    ("system-event", {"text": " "}, "text required"),
    ("device.pair.approve", {"requestId": "nope"}, "unknown requestId"),
    ("device.pair.approve", {}, "invalid device.pair.approve params: must have required property 'requestId'"),
    ("device.pair.reject", {"requestId": "nope"}, "unknown requestId"),
    ("device.pair.remove", {"deviceId": "nope"}, "unknown deviceId"),
    ("device.token.rotate", {"deviceId": "nope", "role": "operator"}, "unknown deviceId/role"),
    ("device.token.revoke", {"deviceId": "nope", "role": "operator"}, "unknown deviceId/role"),
]


@pytest.mark.parametrize(
    ("refusal"),
    [
        pytest.param(text, marks=reads(method, params), id=f"{method}-{n}")
        for n, (method, params, text) in enumerate(REFUSED)
    ],
)
def test_refused_in_openclaw_s_words(outcome: Outcome, refusal: str) -> None:
    assert outcome.refusal == refusal
