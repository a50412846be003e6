"""JSON Schemas of results, written down from the protocol (OPENCLAW-V3 6), not from our structs.

Closed at every level: a key that is not named here fails, as it would in a strict client.
"""

from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]

S: Schema = {"type": "string"}
S1: Schema = {"type": "string", "minLength": 1}
I: Schema = {"type": "integer", "minimum": 0}  # noqa: E741  (the protocol's own letter)
N: Schema = {"type": "number"}
B: Schema = {"type": "boolean"}
TRUE: Schema = {"const": True}
ANY: Schema = {}


def obj(required: dict[str, Schema] | None = None, **optional: Schema) -> Schema:
    required = required or {}
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def arr(item: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": item, **more}


def mapping(value: Schema) -> Schema:
    return {"type": "object", "additionalProperties": value}


def null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(*values: object) -> Schema:
    return {"enum": list(values)}


def check(shape: Schema, value: object) -> None:
    """Fail with the path of the first thing that is not as the shape says."""
    Draft202012Validator.check_schema(shape)
    for error in Draft202012Validator(shape).iter_errors(value):
        raise AssertionError(f"{error.json_path}: {error.message}")


HEARTBEAT = obj({"enabled": B, "every": S1, "everyMs": null(I), "prompt": S, "target": S, "ackMaxChars": I}, model=S)
HEALTH_SESSIONS = obj(
    {
        "path": S1,
        "count": I,
        "recent": arr(obj({"key": S1, "updatedAt": null(I), "age": null(I)}), maxItems=5),
    }
)
HEALTH = obj(
    {
        "ok": TRUE,
        "ts": I,
        "durationMs": I,
        "channels": mapping(ANY),
        "channelOrder": arr(S1),
        "channelLabels": mapping(S1),
        "heartbeatSeconds": I,
        "defaultAgentId": S1,
        "agents": arr(
            obj({"agentId": S1, "isDefault": B, "heartbeat": HEARTBEAT, "sessions": HEALTH_SESSIONS}, name=S1)
        ),
        "sessions": HEALTH_SESSIONS,
    }
)
KIND = one_of("direct", "group", "global", "unknown")
STATUS_SESSION = obj(
    {
        "agentId": S1,
        "key": S1,
        "kind": KIND,
        "sessionId": S1,
        "updatedAt": null(I),
        "age": null(I),
        "systemSent": B,
        "abortedLastRun": B,
        "totalTokens": null(I),
        "totalTokensFresh": B,
        "remainingTokens": null(I),
        "percentUsed": null(I),
        "model": null(S1),
        "contextTokens": null(I),
        "flags": arr(S1),
    },
    thinkingLevel=S1,
    verboseLevel=S1,
    reasoningLevel=S1,
    elevatedLevel=S1,
    inputTokens=I,
    outputTokens=I,
    cacheRead=I,
    cacheWrite=I,
)
STATUS = obj(
    {
        "heartbeat": obj(
            {
                "defaultAgentId": S1,
                "agents": arr(obj({"agentId": S1, "enabled": B, "every": S1, "everyMs": null(I)})),
            }
        ),
        "channelSummary": arr(S),
        "queuedSystemEvents": arr(S1),
        "sessions": obj(
            {
                "paths": arr(S1),
                "count": I,
                "defaults": obj({"model": null(S1), "contextTokens": null(I)}),
                "recent": arr(STATUS_SESSION, maxItems=10),
                "byAgent": arr(obj({"agentId": S1, "path": S1, "count": I, "recent": arr(STATUS_SESSION)})),
            }
        ),
    },
    linkChannel=obj({"id": S1, "label": S1, "linked": B, "authAgeMs": null(I)}),
)
PRESENCE_ENTRY = obj(
    {"ts": I},
    host=S1,
    ip=S1,
    version=S1,
    platform=S1,
    deviceFamily=S1,
    modelIdentifier=S1,
    mode=S1,
    lastInputSeconds=I,
    reason=S1,
    tags=arr(S1),
    text=S,
    deviceId=S1,
    roles=arr(S1),
    scopes=arr(S1),
    instanceId=S1,
)
PRESENCE = arr(PRESENCE_ENTRY)

DELIVERY = obj(None, channel=S1, to=S1, accountId=S1, threadId=S1)
SESSION_ROW = obj(
    {"key": S1, "kind": KIND, "updatedAt": null(I)},
    label=S1,
    displayName=S1,
    channel=S1,
    subject=S1,
    groupChannel=S1,
    space=S1,
    chatType=S1,
    origin=mapping(ANY),
    sessionId=S1,
    systemSent=B,
    abortedLastRun=B,
    thinkingLevel=S1,
    verboseLevel=S1,
    reasoningLevel=S1,
    elevatedLevel=S1,
    sendPolicy=one_of("allow", "deny"),
    responseUsage=S1,
    inputTokens=I,
    outputTokens=I,
    totalTokens=I,
    totalTokensFresh=B,
    modelProvider=S1,
    model=S1,
    contextTokens=I,
    deliveryContext=DELIVERY,
    lastChannel=S1,
    lastTo=S1,
    lastAccountId=S1,
    derivedTitle={"type": "string", "minLength": 1, "maxLength": 60},
    lastMessagePreview=S1,
)
SESSIONS_LIST = obj(
    {
        "ts": I,
        "path": S1,
        "count": I,
        "defaults": obj({"modelProvider": null(S1), "model": null(S1), "contextTokens": null(I)}),
        "sessions": arr(SESSION_ROW),
    }
)
SESSIONS_PREVIEW = obj(
    {
        "ts": I,
        "previews": arr(
            obj(
                {
                    "key": S1,
                    "status": one_of("ok", "empty", "missing", "error"),
                    "items": arr(obj({"role": one_of("user", "assistant", "tool", "system", "other"), "text": S1})),
                }
            )
        ),
    }
)
SESSION_ENTRY = obj(
    {"sessionId": S1, "updatedAt": I},
    systemSent=B,
    abortedLastRun=B,
    thinkingLevel=S1,
    verboseLevel=S1,
    reasoningLevel=S1,
    elevatedLevel=S1,
    responseUsage=S1,
    sendPolicy=S1,
    groupActivation=S1,
    execHost=S1,
    execSecurity=S1,
    execAsk=S1,
    execNode=S1,
    providerOverride=S1,
    modelOverride=S1,
    modelProvider=S1,
    model=S1,
    contextTokens=I,
    inputTokens=I,
    outputTokens=I,
    totalTokens=I,
    totalTokensFresh=B,
    cacheRead=I,
    cacheWrite=I,
    compactionCount=I,
    label=S1,
    displayName=S1,
    chatType=S1,
    origin=mapping(ANY),
    deliveryContext=DELIVERY,
    lastChannel=S1,
    lastTo=S1,
    lastAccountId=S1,
    spawnedBy=S1,
    spawnDepth=I,
)
SESSIONS_RESOLVE = obj({"ok": TRUE, "key": S1})
SESSIONS_PATCH = obj(
    {
        "ok": TRUE,
        "path": S1,
        "key": S1,
        "entry": SESSION_ENTRY,
        "resolved": obj({"modelProvider": S1, "model": S1}),
    }
)
SESSIONS_RESET = obj({"ok": TRUE, "key": S1, "entry": SESSION_ENTRY})
SESSIONS_DELETE = obj({"ok": TRUE, "key": S1, "deleted": B, "archived": arr(S1)})
SESSIONS_COMPACT = obj(
    {"ok": TRUE, "key": S1, "compacted": B}, kept=I, archived=S1, reason=one_of("no sessionId", "no transcript")
)
MODELS_LIST = obj(
    {
        "models": arr(
            obj(
                {"id": S1, "name": S1, "provider": S1},
                contextWindow={"type": "integer", "minimum": 1},
                reasoning=B,
                input=arr(one_of("text", "image")),
            )
        )
    }
)
AGENTS_LIST = obj(
    {
        "defaultId": S1,
        "mainKey": S1,
        "scope": one_of("per-sender", "global"),
        "agents": arr(
            obj({"id": S1}, name=S1, identity=obj(None, name=S1, theme=S1, emoji=S1, avatar=S1, avatarUrl=S1))
        ),
    }
)
AGENT_IDENTITY = obj({"agentId": S1}, name=S1, avatar=S1, emoji=S1)
PROFILE = one_of("minimal", "coding", "messaging", "full")
TOOLS_CATALOG = obj(
    {
        "agentId": S1,
        "profiles": arr(obj({"id": PROFILE, "label": S1})),
        "groups": arr(
            obj(
                {
                    "id": S1,
                    "label": S1,
                    "source": one_of("core", "plugin"),
                    "tools": arr(
                        obj(
                            {
                                "id": S1,
                                "label": S1,
                                "description": S,
                                "source": one_of("core", "plugin"),
                                "defaultProfiles": arr(PROFILE),
                            },
                            pluginId=S1,
                            optional=B,
                        )
                    ),
                },
                pluginId=S1,
            )
        ),
    }
)
SKILLS_STATUS = obj({"workspaceDir": S1, "managedSkillsDir": S1, "skills": arr(ANY)})
ISSUE = obj({"path": S, "message": S1})
CONFIG_GET = obj(
    {
        "path": S1,
        "exists": B,
        "raw": null(S),
        "parsed": ANY,
        "resolved": mapping(ANY),
        "valid": B,
        "config": mapping(ANY),
        "hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "issues": arr(ISSUE),
        "warnings": arr(ISSUE),
        "legacyIssues": arr(ISSUE),
    }
)
LOGS_TAIL = obj({"file": S1, "cursor": I, "size": I, "lines": arr(S)}, truncated=B, reset=B)
USAGE_STATUS = obj(
    {
        "updatedAt": I,
        "providers": arr(
            obj(
                {
                    "provider": S1,
                    "displayName": S1,
                    "windows": arr(obj({"label": S1, "usedPercent": N}, resetAt=I)),
                },
                plan=S1,
                error=S1,
            )
        ),
    }
)
TOTALS: dict[str, Schema] = {
    "input": N,
    "output": N,
    "cacheRead": N,
    "cacheWrite": N,
    "totalTokens": N,
    "totalCost": N,
    "inputCost": N,
    "outputCost": N,
    "cacheReadCost": N,
    "cacheWriteCost": N,
    "missingCostEntries": N,
    "cacheShare": N,
    "estimatedEntries": N,
}
DATE: Schema = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
USAGE_COST = obj({"updatedAt": I, "days": I, "daily": arr(obj({"date": DATE, **TOTALS})), "totals": obj(TOTALS)})
DOCTOR_MEMORY = obj({"agentId": S1, "embedding": obj({"ok": B}, error=S1)}, provider=S1)
PENDING = obj(
    {"requestId": S1, "deviceId": S1, "publicKey": S1, "ts": I},
    displayName=S1,
    platform=S1,
    deviceFamily=S1,
    clientId=S1,
    clientMode=S1,
    role=S1,
    roles=arr(S1),
    scopes=arr(S1),
    remoteIp=S1,
    silent=B,
    isRepair=B,
)
PAIRED = obj(
    {
        "deviceId": S1,
        "publicKey": S1,
        "createdAtMs": I,
        "approvedAtMs": I,
        "tokens": arr(
            obj({"role": S1, "scopes": arr(S1), "createdAtMs": I}, rotatedAtMs=I, revokedAtMs=I, lastUsedAtMs=I)
        ),
    },
    displayName=S1,
    platform=S1,
    deviceFamily=S1,
    clientId=S1,
    clientMode=S1,
    role=S1,
    roles=arr(S1),
    scopes=arr(S1),
    remoteIp=S1,
)
PAIR_LIST = obj({"pending": arr(PENDING), "paired": arr(PAIRED)})
PAIR_APPROVE = obj({"requestId": S1, "device": PAIRED})
PAIR_REJECT = obj({"requestId": S1, "deviceId": S1})
PAIR_REMOVE = obj({"deviceId": S1})
TOKEN_ROTATE = obj({"deviceId": S1, "role": S1, "token": S1, "scopes": arr(S1), "rotatedAtMs": I})
TOKEN_REVOKE = obj({"deviceId": S1, "role": S1, "revokedAtMs": I})
PAIR_RESOLVED = obj({"requestId": S1, "deviceId": S1, "decision": one_of("approved", "rejected"), "ts": I})
CHANNELS_STATUS = obj(
    {
        "ts": I,
        "channelOrder": arr(S1),
        "channelLabels": mapping(S1),
        "channelDetailLabels": mapping(S1),
        "channelSystemImages": mapping(S1),
        "channelMeta": arr(obj({"id": S1, "label": S1, "detailLabel": S1}, systemImage=S)),
        "channels": mapping(ANY),
        "channelAccounts": mapping(arr(ANY)),
        "channelDefaultAccountId": mapping(S1),
    }
)
NODE_FIELDS: dict[str, Schema] = {
    "nodeId": S1,
    "caps": arr(S1),
    "commands": arr(S1),
    "paired": B,
    "connected": B,
}
NODE_OPTIONAL: dict[str, Schema] = {
    "displayName": S1,
    "platform": S1,
    "version": S1,
    "coreVersion": S1,
    "uiVersion": S1,
    "deviceFamily": S1,
    "modelIdentifier": S1,
    "remoteIp": S1,
    "pathEnv": S1,
    "permissions": mapping(B),
    "connectedAtMs": I,
}
NODE_LIST = obj({"ts": I, "nodes": arr(obj(NODE_FIELDS, **NODE_OPTIONAL))})
NODE_DESCRIBE = obj({"ts": I, **NODE_FIELDS}, **NODE_OPTIONAL)
NODE_PAIR_LIST = obj({"pending": arr(ANY), "paired": arr(ANY)})
CRON_STATUS = obj({"enabled": B, "storePath": S1, "jobs": I, "nextWakeAtMs": null(I)})
CRON_LIST = obj({"jobs": arr(ANY), "total": I, "offset": I, "limit": I, "hasMore": B, "nextOffset": null(I)})
APPROVALS: dict[str, Schema] = {"security": S, "ask": S, "askFallback": S, "autoAllowSkills": B}
EXEC_APPROVALS = obj(
    {
        "path": S1,
        "exists": B,
        "hash": S1,
        "file": obj(
            {"version": {"const": 1}},
            socket=obj(None, path=S),
            defaults=obj(None, **APPROVALS),
            agents=mapping(
                obj(
                    None,
                    **APPROVALS,
                    allowlist=arr(obj({"pattern": S}, id=S1, lastUsedAt=I, lastUsedCommand=S, lastResolvedPath=S)),
                )
            ),
        ),
    }
)
