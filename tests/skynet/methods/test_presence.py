"""``system-presence`` and ``system-event``."""

from dataclasses import replace
from typing import Any

import pytest

from skynet_memory.ids import ConnId
from skynet_protocol.connect import ClientInfo
from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World, node_of

TUI = ClientInfo(id="gateway-client", version="1", platform="linux", mode="ui", display_name="tui", instance_id="i")


async def test_presence_is_a_bare_array(world: World) -> None:
    world.presence.connected(world.admin, ConnId("c"), TUI, remote_ip="10.0.0.5")
    result = await world.call(world.admin, "system-presence", {"whatever": 1})
    shapes.check(shapes.PRESENCE, result)
    assert [entry["mode"] for entry in result] == ["gateway", "ui"]
    assert result[0]["reason"] == "self" and result[0]["version"] == "1.2.3"


async def test_presence_of_another_person(world: World) -> None:
    world.presence.connected(world.admin, ConnId("c1"), TUI)
    world.presence.connected(world.user, ConnId("c2"), ClientInfo(**{**fields(TUI), "display_name": "theirs"}))
    hosts = [entry["host"] for entry in await world.call(world.user, "system-presence")][1:]
    assert hosts == ["theirs"]
    assert {e["host"] for e in (await world.call(world.admin, "system-presence"))[1:]} == {"theirs", "tui"}
    with pytest.raises(RefusedError, match=r"^unauthorized role: node$"):
        await world.call(node_of(world.admin), "system-presence")


def fields(client: ClientInfo) -> dict[str, Any]:
    return {name: getattr(client, name) for name in client.__struct_fields__}


async def test_event(world: World) -> None:
    connection, other = world.listen(world.admin), world.listen(world.user)
    params = {
        "text": " battery low ",
        "deviceId": "d1",
        "host": "desk",
        "ip": "10.0.0.7",
        "mode": "local",
        "lastInputSeconds": 3.9,
        "tags": ["a", " "],
        "roles": ["node", 1],
        "version": 7,
        "extra": {},
    }
    assert await world.call(world.admin, "system-event", params) == {"ok": True}
    assert world.events.queued(world.admin.user_id) == ["battery low"]
    (event,) = connection.named("presence")
    shapes.check(shapes.PRESENCE, event["payload"]["presence"])
    entry = event["payload"]["presence"][1]
    assert entry.pop("ts") > 0
    assert entry == {
        "host": "desk",
        "ip": "10.0.0.7",
        "mode": "local",
        "lastInputSeconds": 3,
        "tags": ["a"],
        "text": "battery low",
        "deviceId": "d1",
    }
    assert other.events == [] and world.events.queued(world.user.user_id) == []


@pytest.mark.parametrize("params", [{}, {"text": " "}, {"text": 5}])
async def test_an_event_needs_a_text(world: World, params: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=r"^text required$"):
        await world.call(world.admin, "system-event", params)


async def test_a_nodes_report_of_itself_is_told_only_when_it_is_news(world: World) -> None:
    text = "Node: desk (10.0.0.7) · app 1.4 · last input 12s ago · mode local · reason launch"
    for report in (text, text, text.replace("launch", "periodic"), text.replace("app 1.4", "app 1.5")):
        await world.call(world.admin, "system-event", {"text": report})
    assert world.events.queued(world.admin.user_id) == [
        "Node: desk (10.0.0.7) · app 1.4 · mode local · reason launch",
        "Node: desk (10.0.0.7) · app 1.5 · reason launch",
    ]


async def test_a_huge_report_is_cut(world: World) -> None:
    await world.call(
        world.admin, "system-event", {"text": "x" * 100_000, "host": "h" * 9999, "tags": ["t" * 999] * 999}
    )
    entry = (await world.call(world.admin, "system-presence"))[1]
    assert (len(entry["text"]), len(entry["host"]), len(entry["tags"]), len(entry["tags"][0])) == (256, 256, 32, 256)


async def test_an_event_needs_the_admin_scope(world: World) -> None:
    for caller in (world.user, replace(world.admin, scopes=frozenset({"operator.write"}))):
        with pytest.raises(RefusedError, match=r"^missing scope: operator\.admin$"):
            await world.call(caller, "system-event", {"text": "x"})
