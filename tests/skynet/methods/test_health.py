"""``health`` and ``status``: shapes, what each kind of caller may see, and that both are one person's."""

import json
from dataclasses import replace

import pytest

from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World, node_of


async def test_health(world: World) -> None:
    for index in range(7):
        await world.turn(world.admin, f"s{index}")
    result = await world.call(world.admin, "health")
    shapes.check(shapes.HEALTH, result)
    assert result["sessions"]["count"] == 7 and result["sessions"]["path"] == str(world.home / "skynet.db")
    assert [s["key"] for s in result["sessions"]["recent"]] == [f"agent:main:s{i}" for i in (6, 5, 4, 3, 2)]
    (agent,) = result["agents"]
    assert (agent["agentId"], agent["name"], agent["isDefault"]) == ("main", "Ada", True)
    assert agent["sessions"] == result["sessions"]
    assert agent["heartbeat"] | {"prompt": ""} == {
        "enabled": False,
        "every": "disabled",
        "everyMs": None,
        "prompt": "",
        "target": "none",
        "ackMaxChars": 300,
    }


@pytest.mark.parametrize("params", [None, {}, {"probe": False}, {"probe": "yes"}, {"unknown": [1]}])
async def test_health_takes_any_params(world: World, params: object) -> None:
    shapes.check(shapes.HEALTH, await world.call(world.admin, "health", params))


async def test_probe_is_fresh(world: World) -> None:
    await world.call(world.admin, "health")
    await world.turn(world.admin)
    assert (await world.call(world.admin, "health"))["sessions"]["count"] == 0
    assert (await world.call(world.admin, "health", {"probe": True}))["sessions"]["count"] == 1


async def test_health_needs_no_scope_but_then_names_no_session(world: World) -> None:
    await world.turn(world.admin)
    for caller in (replace(world.admin, scopes=frozenset()), node_of(world.admin)):
        result = await world.call(caller, "health")
        shapes.check(shapes.HEALTH, result)
        assert result["sessions"] == {"path": "[redacted]", "count": 1, "recent": []}
        assert result["agents"][0]["sessions"] == result["sessions"]
    assert "agent:main:main" in json.dumps(await world.call(world.admin, "health"))


async def test_health_of_another_person(world: World) -> None:
    await world.turn(world.admin, "secret-plan")
    result = await world.call(world.user, "health")
    assert result["sessions"]["count"] == 0 and "secret-plan" not in json.dumps(result)


async def test_status_of_an_admin(world: World) -> None:
    session = await world.turn(world.admin)
    await world.call(world.admin, "sessions.patch", {"key": "main", "thinkingLevel": "high"})
    await world.call(world.admin, "wake", {"mode": "now", "text": "look"})
    result = await world.call(world.admin, "status")
    shapes.check(shapes.STATUS, result)
    assert result["queuedSystemEvents"] == ["look"]
    assert result["sessions"]["paths"] == [str(world.home / "skynet.db")]
    assert result["sessions"]["defaults"] == {"model": "mock-1", "contextTokens": 128_000}
    (row,) = result["sessions"]["recent"]
    assert result["sessions"]["byAgent"][0]["recent"] == [row]
    assert row.pop("age") >= 0
    assert row == {
        "agentId": "main",
        "key": "agent:main:main",
        "kind": "direct",
        "sessionId": session.session_id,
        "updatedAt": session.updated_at_ms,
        "systemSent": True,
        "abortedLastRun": False,
        "thinkingLevel": "high",
        "inputTokens": 100,
        "outputTokens": 20,
        "cacheRead": 0,
        "cacheWrite": 0,
        "totalTokens": session.total_tokens,
        "totalTokensFresh": True,
        "remainingTokens": 128_000 - session.total_tokens,
        "percentUsed": 0,
        "model": "mock-1",
        "contextTokens": 128_000,
        "flags": ["think:high", "system", f"id:{session.session_id}"],
    }


async def test_status_lists_at_most_ten(world: World) -> None:
    for index in range(12):
        await world.turn(world.admin, f"s{index}")
    result = await world.call(world.admin, "status")
    assert result["sessions"]["count"] == 12 and len(result["sessions"]["recent"]) == 10


async def test_status_without_the_admin_scope(world: World) -> None:
    for caller in (replace(world.admin, scopes=frozenset({"operator.read"})), world.user):
        await world.turn(caller)
        result = await world.call(caller, "status")
        shapes.check(shapes.STATUS, result)
        assert result["sessions"] == {
            "paths": [],
            "count": 1,
            "defaults": {"model": None, "contextTokens": None},
            "recent": [],
            "byAgent": [{"agentId": "main", "path": "[redacted]", "count": 1, "recent": []}],
        }


async def test_status_of_another_person(world: World) -> None:
    await world.turn(world.admin, "secret-plan")
    await world.call(world.admin, "wake", {"mode": "now", "text": "secret-plan"})
    result = await world.call(replace(world.user, scopes=world.admin.scopes), "status")
    assert result["sessions"]["count"] == 0 and "secret-plan" not in json.dumps(result)


async def test_a_node_may_ask_for_health_alone(world: World) -> None:
    with pytest.raises(RefusedError, match=r"^unauthorized role: node$"):
        await world.call(node_of(world.admin), "status")
