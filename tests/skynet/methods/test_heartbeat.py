"""``wake``, ``last-heartbeat``, ``set-heartbeats``."""

from typing import Any

import pytest

from skynet_protocol.events import HeartbeatEvent
from tests.skynet.methods.world import RefusedError, World


async def test_wake_queues_for_the_callers_main_session(world: World) -> None:
    assert await world.call(world.user, "wake", {"mode": "now", "text": " hi "}) == {"ok": True}
    assert await world.call(world.user, "wake", {"mode": "next-heartbeat", "text": "later"}) == {"ok": True}
    assert (await world.call(world.user, "status"))["queuedSystemEvents"] == ["hi", "later"]
    assert (await world.call(world.admin, "status"))["queuedSystemEvents"] == []


async def test_wake_with_blanks_does_nothing(world: World) -> None:
    assert await world.call(world.user, "wake", {"mode": "now", "text": " "}) == {"ok": False}
    assert world.events.queued(world.user.user_id) == []


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"mode": "now"}, "must have required property 'text'"),
        ({"mode": "now", "text": ""}, "at /text: must NOT have fewer than 1 characters"),
        ({"mode": "soon", "text": "x"}, "at /mode: must be equal to constant"),
        ({"mode": "now", "text": "x", "more": 1}, "at root: unexpected property 'more'"),
    ],
)
async def test_wake_refusals(world: World, params: dict[str, Any], problem: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.user, "wake", params)
    assert str(refused.value).startswith(f"invalid wake params: {problem}")


async def test_last_heartbeat(world: World) -> None:
    assert await world.call(world.admin, "last-heartbeat", {}) is None
    world.heartbeats.ended(world.admin.user_id, HeartbeatEvent(ts=5, status="sent", preview="secret"))
    assert await world.call(world.admin, "last-heartbeat") == {"ts": 5, "status": "sent", "preview": "secret"}
    assert await world.call(world.user, "last-heartbeat") is None


async def test_set_heartbeats(world: World) -> None:
    for enabled in (False, True):
        result = await world.call(world.admin, "set-heartbeats", {"enabled": enabled, "more": 1})
        assert result == {"ok": True, "enabled": enabled}
        assert world.heartbeats.enabled is enabled


@pytest.mark.parametrize("params", [None, {}, {"enabled": "yes"}, {"enabled": 1}, {"enabled": None}])
async def test_set_heartbeats_wants_a_boolean(world: World, params: Any) -> None:
    with pytest.raises(RefusedError, match=r"^invalid set-heartbeats params: enabled \(boolean\) required$"):
        await world.call(world.admin, "set-heartbeats", params)


async def test_only_an_admin_switches_heartbeats(world: World) -> None:
    with pytest.raises(RefusedError, match=r"^missing scope: operator\.admin$"):
        await world.call(world.user, "set-heartbeats", {"enabled": False})
