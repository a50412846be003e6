"""Methods that say what there is: models, agents, tools, skills, channels, cron."""

from typing import Any

import pytest

from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World


async def test_models(world: World) -> None:
    result = await world.call(world.user, "models.list", {})
    shapes.check(shapes.MODELS_LIST, result)
    assert result["models"] == [
        {
            "id": "mock-1",
            "name": "mock-1",
            "provider": "mock",
            "contextWindow": 128_000,
            "reasoning": False,
            "input": ["text"],
        },
        {
            "id": "mock-2",
            "name": "Mock Two",
            "provider": "mock",
            "contextWindow": 32_000,
            "reasoning": True,
            "input": ["text", "image"],
        },
        {"id": "plain", "name": "plain", "provider": "other", "reasoning": False, "input": ["text"]},
    ]


async def test_agents(world: World) -> None:
    result = await world.call(world.user, "agents.list")
    shapes.check(shapes.AGENTS_LIST, result)
    assert result == {
        "defaultId": "main",
        "mainKey": "main",
        "scope": "per-sender",
        "agents": [{"id": "main", "name": "Ada", "identity": {"name": "Ada"}}],
    }


@pytest.mark.parametrize(
    ("params", "agent"),
    [
        ({}, "main"),
        ({"agentId": "zzz"}, "zzz"),
        ({"agentId": " Main "}, "main"),
        ({"sessionKey": "agent:work:main"}, "work"),
        ({"sessionKey": "some-session"}, "main"),
        ({"sessionKey": " "}, "main"),
        ({"agentId": "work", "sessionKey": "agent:work:x"}, "work"),
    ],
)
async def test_identity(world: World, params: dict[str, Any], agent: str) -> None:
    result = await world.call(world.user, "agent.identity.get", params)
    shapes.check(shapes.AGENT_IDENTITY, result)
    assert result == {"agentId": agent, "name": "Ada", "avatar": "A"}


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"sessionKey": "agent:x"}, 'malformed session key "agent:x"'),
        (
            {"agentId": "zzz", "sessionKey": "agent:main:main"},
            'agent "zzz" does not match session key agent "main"',
        ),
        ({"agent": "x"}, "at root: unexpected property 'agent'"),
    ],
)
async def test_identity_refusals(world: World, params: dict[str, Any], problem: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.user, "agent.identity.get", params)
    assert str(refused.value) == f"invalid agent.identity.get params: {problem}"


async def test_tools(world: World) -> None:
    result = await world.call(world.user, "tools.catalog", {"agentId": "main", "includePlugins": False})
    shapes.check(shapes.TOOLS_CATALOG, result)
    assert [profile["id"] for profile in result["profiles"]] == ["minimal", "coding", "messaging", "full"]
    (group,) = result["groups"]
    assert (group["id"], group["label"], group["source"]) == ("files", "Files", "core")
    assert group["tools"] == [
        {
            "id": "look",
            "label": "look",
            "description": "Looks.",
            "source": "core",
            "defaultProfiles": ["coding", "full"],
        }
    ]


async def test_each_plugin_is_a_group(world: World) -> None:
    result = await world.call(world.user, "tools.catalog", {})
    shapes.check(shapes.TOOLS_CATALOG, result)
    _, group = result["groups"]
    assert group == {
        "id": "plugin:weather-plugin",
        "label": "weather-plugin",
        "source": "plugin",
        "pluginId": "weather-plugin",
        "tools": [
            {
                "id": "weather",
                "label": "weather",
                "description": "Tells the weather.",
                "source": "plugin",
                "defaultProfiles": [],
                "pluginId": "weather-plugin",
            }
        ],
    }


async def test_skills(world: World) -> None:
    result = await world.call(world.user, "skills.status")
    shapes.check(shapes.SKILLS_STATUS, result)
    assert result == {
        "workspaceDir": str(world.home / "workspace"),
        "managedSkillsDir": str(world.home / "skills"),
        "skills": [],
    }


@pytest.mark.parametrize("method", ["tools.catalog", "skills.status"])
async def test_an_unknown_agent_has_neither_tools_nor_skills(world: World, method: str) -> None:
    with pytest.raises(RefusedError, match=r'^unknown agent id "x"$'):
        await world.call(world.user, method, {"agentId": "x"})


async def test_channels(world: World) -> None:
    result = await world.call(world.user, "channels.status", {"probe": True, "timeoutMs": 8000})
    shapes.check(shapes.CHANNELS_STATUS, result)
    assert result.pop("ts") > 0
    assert not any(result.values()) and len(result) == 8


async def test_cron(world: World) -> None:
    status = await world.call(world.user, "cron.status")
    shapes.check(shapes.CRON_STATUS, status)
    assert status == {"enabled": False, "storePath": str(world.home / "skynet.db"), "jobs": 0, "nextWakeAtMs": None}
    listed = await world.call(world.user, "cron.list", {"includeDisabled": True})
    shapes.check(shapes.CRON_LIST, listed)
    assert listed == {"jobs": [], "total": 0, "offset": 0, "limit": 50, "hasMore": False, "nextOffset": None}
    assert (await world.call(world.user, "cron.list", {"limit": 7}))["limit"] == 7


@pytest.mark.parametrize(
    "method",
    [
        "models.list",
        "agents.list",
        "tools.catalog",
        "skills.status",
        "channels.status",
        "cron.status",
        "cron.list",
        "sessions.list",
        "config.get",
        "logs.tail",
        "device.pair.list",
        "node.list",
        "node.pair.list",
        "exec.approvals.get",
    ],
)
async def test_params_are_closed(world: World, method: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, method, {"nope": 1})
    assert str(refused.value) == f"invalid {method} params: at root: unexpected property 'nope'"
    assert refused.value.error["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("method", "params", "problem"),
    [
        ("sessions.list", {"limit": 0}, "at /limit: must be >= 1"),
        ("sessions.list", {"limit": "x"}, "at /limit: must be integer"),
        ("sessions.list", {"label": "x" * 65}, "at /label: must NOT have more than 64 characters"),
        ("sessions.preview", {"keys": []}, "at /keys: must NOT have fewer than 1 items"),
        ("sessions.preview", {"keys": ["a"], "maxChars": 19}, "at /maxChars: must be >= 20"),
        ("sessions.patch", {}, "must have required property 'key'"),
        ("sessions.delete", {"key": ""}, "at /key: must NOT have fewer than 1 characters"),
        ("logs.tail", {"limit": 5001}, "at /limit: must be <= 5000"),
        ("device.pair.approve", {}, "must have required property 'requestId'"),
        ("node.describe", {}, "must have required property 'nodeId'"),
        ("cron.list", {"limit": 201}, "at /limit: must be <= 200"),
    ],
)
async def test_bad_params_name_the_field(world: World, method: str, params: dict[str, Any], problem: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, method, params)
    assert str(refused.value) == f"invalid {method} params: {problem}"
