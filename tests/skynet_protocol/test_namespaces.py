"""The results and params of the read-only namespaces against examples of the protocol (OPENCLAW-V3 6).

A result that is decoded and encoded again comes out as it went in: no key is unknown, none is added, none is renamed,
and what is null stays null. Params are closed, and their defaults are those of the protocol.
"""

import json
from typing import Any

import msgspec
import pytest

from skynet_protocol import (
    channels,
    config,
    cron,
    devices,
    exec_approvals,
    health,
    heartbeat,
    logs,
    models,
    nodes,
    presence,
    sessions,
    skills,
    tools,
    usage,
)
from skynet_protocol.errors import RequestError
from skynet_protocol.params import Params, decode_params

HEARTBEAT = {
    "enabled": True,
    "every": "30m",
    "everyMs": 1800000,
    "prompt": "Read HEARTBEAT.md …",
    "target": "none",
    "ackMaxChars": 300,
}
HEALTH_SESSIONS = {"path": "/db", "count": 1, "recent": [{"key": "agent:main:main", "updatedAt": 5, "age": None}]}
ENTRY = {
    "sessionId": "s",
    "updatedAt": 5,
    "systemSent": True,
    "thinkingLevel": "high",
    "providerOverride": "mock",
    "modelOverride": "mock-1",
    "inputTokens": 0,
    "totalTokensFresh": False,
    "compactionCount": 0,
    "label": "x",
    "origin": {"label": "cli", "provider": "cli"},
    "deliveryContext": {"channel": "webchat"},
    "lastChannel": "webchat",
    "spawnDepth": 0,
}
TOKEN = {"role": "operator", "scopes": ["operator.admin"], "createdAtMs": 1, "rotatedAtMs": 2}
PAIRED = {
    "deviceId": "d",
    "publicKey": "k",
    "platform": "linux",
    "clientId": "cli",
    "clientMode": "cli",
    "role": "operator",
    "roles": ["operator"],
    "scopes": [],
    "createdAtMs": 1,
    "approvedAtMs": 1,
    "tokens": [TOKEN],
}
TOTALS = {
    "input": 1,
    "output": 2,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 3,
    "totalCost": 0.5,
    "inputCost": 0.0,
    "outputCost": 0.0,
    "cacheReadCost": 0.0,
    "cacheWriteCost": 0.0,
    "missingCostEntries": 0,
}
NODE = {"nodeId": "n", "displayName": "vm", "caps": [], "commands": ["system.run"], "paired": True, "connected": False}
EMPTY_CHANNELS: dict[str, Any] = {
    "ts": 5,
    "channelOrder": [],
    "channelLabels": {},
    "channelDetailLabels": {},
    "channelSystemImages": {},
    "channelMeta": [],
    "channels": {},
    "channelAccounts": {},
    "channelDefaultAccountId": {},
}
REQUIREMENTS: dict[str, Any] = {"bins": ["tmux"], "anyBins": [], "env": [], "config": [], "os": []}

RESULTS: list[tuple[type[msgspec.Struct], dict[str, Any]]] = [
    (
        health.HealthSnapshot,
        {
            "ok": True,
            "ts": 5,
            "durationMs": 0,
            "channels": {},
            "channelOrder": [],
            "channelLabels": {},
            "heartbeatSeconds": 1800,
            "defaultAgentId": "main",
            "agents": [{"agentId": "main", "isDefault": True, "heartbeat": HEARTBEAT, "sessions": HEALTH_SESSIONS}],
            "sessions": HEALTH_SESSIONS,
        },
    ),
    (
        health.StatusResult,
        {
            "linkChannel": {"id": "whatsapp", "label": "WhatsApp", "linked": True, "authAgeMs": 1000},
            "heartbeat": {
                "defaultAgentId": "main",
                "agents": [{"agentId": "main", "enabled": False, "every": "disabled", "everyMs": None}],
            },
            "channelSummary": [],
            "queuedSystemEvents": [],
            "sessions": {
                "paths": [],
                "count": 0,
                "defaults": {"model": None, "contextTokens": None},
                "recent": [
                    {
                        "agentId": "main",
                        "key": "agent:main:main",
                        "kind": "direct",
                        "sessionId": "s",
                        "updatedAt": 5,
                        "age": 0,
                        "systemSent": False,
                        "abortedLastRun": False,
                        "totalTokens": None,
                        "totalTokensFresh": False,
                        "remainingTokens": None,
                        "percentUsed": None,
                        "model": None,
                        "contextTokens": None,
                        "flags": [],
                    }
                ],
                "byAgent": [{"agentId": "main", "path": "[redacted]", "count": 0, "recent": []}],
            },
        },
    ),
    (heartbeat.HeartbeatSummary, HEARTBEAT),
    (heartbeat.SetHeartbeatsResult, {"ok": True, "enabled": False}),
    (heartbeat.WakeResult, {"ok": False}),
    (presence.PresenceEntry, {"ts": 5, "host": "vm", "reason": "self", "roles": ["operator"], "lastInputSeconds": 0}),
    (
        sessions.SessionsListResult,
        {
            "ts": 5,
            "path": "(multiple)",
            "count": 1,
            "defaults": {"modelProvider": None, "model": None, "contextTokens": None},
            "sessions": [
                {
                    "key": "agent:main:main",
                    "kind": "direct",
                    "updatedAt": 5,
                    "sessionId": "s",
                    "systemSent": False,
                    "abortedLastRun": False,
                    "totalTokensFresh": False,
                    "inputTokens": 0,
                    "derivedTitle": "x",
                }
            ],
        },
    ),
    (
        sessions.SessionsPreviewResult,
        {"ts": 5, "previews": [{"key": "main", "status": "ok", "items": [{"role": "tool", "text": "call exec"}]}]},
    ),
    (
        sessions.SessionsPatchResult,
        {
            "ok": True,
            "path": "/db",
            "key": "agent:main:main",
            "entry": ENTRY,
            "resolved": {"modelProvider": "mock", "model": "mock-1"},
        },
    ),
    (sessions.SessionsDeleteResult, {"ok": True, "key": "agent:main:x", "deleted": False, "archived": []}),
    (sessions.SessionsCompactResult, {"ok": True, "key": "k", "compacted": False, "reason": "no transcript"}),
    (models.ModelsListResult, {"models": [{"id": "m", "name": "m", "provider": "mock", "reasoning": False}]}),
    (
        tools.ToolsCatalogResult,
        {
            "agentId": "main",
            "profiles": [{"id": "minimal", "label": "Minimal"}],
            "groups": [
                {
                    "id": "fs",
                    "label": "Files",
                    "source": "core",
                    "tools": [
                        {
                            "id": "read",
                            "label": "read",
                            "description": "",
                            "source": "core",
                            "optional": False,
                            "defaultProfiles": ["coding"],
                        }
                    ],
                }
            ],
        },
    ),
    (
        skills.SkillsStatusResult,
        {
            "workspaceDir": "/w",
            "managedSkillsDir": "/m",
            "skills": [
                {
                    "name": "tmux",
                    "description": "",
                    "source": "bundled",
                    "bundled": True,
                    "filePath": "/f",
                    "baseDir": "/b",
                    "skillKey": "tmux",
                    "always": False,
                    "disabled": False,
                    "blockedByAllowlist": False,
                    "eligible": True,
                    "requirements": REQUIREMENTS,
                    "missing": REQUIREMENTS,
                    "configChecks": [{"path": "a.b", "satisfied": False}],
                    "install": [{"id": "i", "kind": "brew", "label": "l", "bins": []}],
                }
            ],
        },
    ),
    (
        config.ConfigGetResult,
        {
            "path": "/c",
            "exists": True,
            "raw": None,
            "parsed": None,
            "resolved": {},
            "valid": False,
            "config": {},
            "hash": "0",
            "issues": [{"path": "gateway.port", "message": "no"}],
            "warnings": [],
            "legacyIssues": [],
        },
    ),
    (logs.LogsTailResult, {"file": "/l", "cursor": 0, "size": 0, "lines": [], "truncated": False, "reset": False}),
    (
        usage.UsageStatusResult,
        {
            "updatedAt": 5,
            "providers": [
                {"provider": "a", "displayName": "A", "windows": [{"label": "5h", "usedPercent": 1.5, "resetAt": 6}]}
            ],
        },
    ),
    (
        usage.UsageCostResult,
        {"updatedAt": 5, "days": 1, "daily": [{"date": "2026-11-21", **TOTALS}], "totals": TOTALS},
    ),
    (usage.DoctorMemoryStatusResult, {"agentId": "main", "embedding": {"ok": False, "error": "no"}}),
    (devices.DevicePairListResult, {"pending": [], "paired": [PAIRED]}),
    (devices.DevicePairApproveResult, {"requestId": "r", "device": PAIRED}),
    (
        devices.DeviceTokenRotateResult,
        {"deviceId": "d", "role": "operator", "token": "t", "scopes": [], "rotatedAtMs": 1},
    ),
    (devices.DeviceTokenRevokeResult, {"deviceId": "d", "role": "operator", "revokedAtMs": 1}),
    (channels.ChannelsStatusResult, EMPTY_CHANNELS),
    (nodes.NodeListResult, {"ts": 5, "nodes": [NODE]}),
    (nodes.NodeDescribeResult, {"ts": 5, **NODE}),
    (nodes.NodePairListResult, {"pending": [], "paired": []}),
    (cron.CronStatusResult, {"enabled": False, "storePath": "/db", "jobs": 0, "nextWakeAtMs": None}),
    (
        cron.CronListResult,
        {"jobs": [], "total": 0, "offset": 0, "limit": 50, "hasMore": False, "nextOffset": None},
    ),
    (
        exec_approvals.ExecApprovalsSnapshot,
        {
            "path": "/f",
            "exists": True,
            "hash": "0",
            "file": {
                "version": 1,
                "socket": {"path": "/s"},
                "defaults": {},
                "agents": {"main": {"ask": "off", "allowlist": [{"pattern": "git", "lastUsedAt": 1}]}},
            },
        },
    ),
]


@pytest.mark.parametrize(("struct", "example"), RESULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_result_comes_out_as_it_went_in(struct: type[msgspec.Struct], example: dict[str, Any]) -> None:
    encoded = json.dumps(example).encode()
    assert json.loads(msgspec.json.encode(msgspec.json.decode(encoded, type=struct))) == example


@pytest.mark.parametrize(("struct", "example"), RESULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_required_key_cannot_be_forgotten(struct: type[msgspec.Struct], example: dict[str, Any]) -> None:
    """A field without a default is on the wire whatever its value: clients iterate over it without checks."""
    for field in msgspec.structs.fields(struct):
        if field.required:
            rest = {key: value for key, value in example.items() if key != field.encode_name}
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(json.dumps(rest).encode(), type=struct)


CLOSED: list[type[Params]] = [
    heartbeat.WakeParams,
    sessions.SessionsListParams,
    sessions.SessionsPreviewParams,
    sessions.SessionsResolveParams,
    sessions.SessionsPatchParams,
    sessions.SessionsResetParams,
    sessions.SessionsDeleteParams,
    sessions.SessionsCompactParams,
    models.ModelsListParams,
    tools.ToolsCatalogParams,
    skills.SkillsStatusParams,
    config.ConfigGetParams,
    logs.LogsTailParams,
    devices.DevicePairListParams,
    devices.DevicePairApproveParams,
    devices.DevicePairRejectParams,
    devices.DevicePairRemoveParams,
    devices.DeviceTokenRotateParams,
    devices.DeviceTokenRevokeParams,
    channels.ChannelsStatusParams,
    nodes.NodeListParams,
    nodes.NodeDescribeParams,
    nodes.NodePairListParams,
    cron.CronStatusParams,
    cron.CronListParams,
    exec_approvals.ExecApprovalsGetParams,
]
LENIENT = [
    health.HealthParams,
    health.StatusParams,
    heartbeat.LastHeartbeatParams,
    heartbeat.SetHeartbeatsParams,
    presence.SystemPresenceParams,
    presence.SystemEventParams,
    usage.UsageStatusParams,
    usage.UsageCostParams,
    usage.DoctorMemoryStatusParams,
]


@pytest.mark.parametrize("struct", CLOSED, ids=lambda struct: struct.__name__)
def test_params_are_closed(struct: type[Params]) -> None:
    with pytest.raises(RequestError, match=r"^invalid m params: at root: unexpected property 'nope'$"):
        decode_params(b'{"nope":1}', msgspec.json.Decoder(struct), "m")


@pytest.mark.parametrize("struct", LENIENT, ids=lambda struct: struct.__name__)
def test_lenient_params_take_anything(struct: type[msgspec.Struct]) -> None:
    # Whose costs they are is the gateway's own question, and an answer about somebody else would be a wrong one.
    own = {"userId", "all"}
    names = [field.encode_name for field in msgspec.structs.fields(struct) if field.encode_name not in own]
    for value in (None, 1, "x", [1], {"a": 1}):
        decode_params(json.dumps(dict.fromkeys([*names, "nope"], value)).encode(), msgspec.json.Decoder(struct), "m")
    decode_params(None, msgspec.json.Decoder(struct), "m")


@pytest.mark.parametrize(
    ("struct", "given", "defaults"),
    [
        (sessions.SessionsPreviewParams, {"keys": ["a"]}, {"limit": 12, "max_chars": 240}),
        (sessions.SessionsCompactParams, {"key": "a"}, {"max_lines": 400}),
        (sessions.SessionsDeleteParams, {"key": "a"}, {"delete_transcript": True}),
        (logs.LogsTailParams, {}, {"limit": 500, "max_bytes": 250_000, "cursor": msgspec.UNSET}),
        (channels.ChannelsStatusParams, {}, {"probe": False, "timeout_ms": 10_000}),
        (tools.ToolsCatalogParams, {}, {"include_plugins": True}),
        (cron.CronListParams, {}, {"offset": 0, "sort_by": "nextRunAtMs", "limit": msgspec.UNSET}),
    ],
)
def test_defaults(struct: type[Params], given: dict[str, Any], defaults: dict[str, Any]) -> None:
    params = decode_params(json.dumps(given).encode(), msgspec.json.Decoder(struct), "m")
    assert {name: getattr(params, name) for name in defaults} == defaults


def test_patch_tells_absent_from_null() -> None:
    decoder = msgspec.json.Decoder(sessions.SessionsPatchParams)
    assert decode_params(b'{"key":"a"}', decoder, "m").label is msgspec.UNSET
    assert decode_params(b'{"key":"a","label":null}', decoder, "m").label is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"key":"a","label":""}', "at /label: must NOT have fewer than 1 characters"),
        ('{"key":"a","label":"%s"}' % ("x" * 65), "at /label: must NOT have more than 64 characters"),
        ('{"key":"a","sendPolicy":"maybe"}', "at /sendPolicy: must be equal to constant"),
        ('{"key":"a","spawnDepth":-1}', "at /spawnDepth: must be >= 0"),
        ('{"key":5}', "at /key: must be string"),
    ],
)
def test_patch_refusals(text: str, problem: str) -> None:
    with pytest.raises(RequestError) as refused:
        decode_params(text.encode(), msgspec.json.Decoder(sessions.SessionsPatchParams), "sessions.patch")
    assert str(refused.value).startswith(f"invalid sessions.patch params: {problem}")
