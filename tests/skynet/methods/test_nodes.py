"""``node.*``: shapes and texts, and OpenClaw's older store of nodes, which is each person's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet_memory.ids import DeviceId, now_ms
from skynet_users.devices import Admitted, ConnectingDevice
from skynet_users.errors import UnknownPairingRequest
from skynet_users.nodes import MAX_BRIDGE_NODES, MAX_PENDING, PENDING_MS, NodeStore
from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World, node_of

DESCRIBED = {"displayName": "Old phone", "platform": "ios", "caps": ["canvas"], "commands": ["canvas.eval"]}


async def pair(world: World, device: str = "n1", **fields: Any) -> None:
    """Pair a node of the user's."""
    request = ConnectingDevice(
        device_id=DeviceId(device), public_key=f"key-{device}", role="node", scopes=frozenset(), local=True, **fields
    )
    assert isinstance(await world.devices.admit(world.user.user_id, request), Admitted)


def pairing(world: World) -> Any:
    """The user with the scope that the role does not have by default."""
    return replace(world.user, scopes=world.user.scopes | {"operator.pairing"})


async def test_the_older_store(world: World) -> None:
    """Asked for, listed, approved, verified; the token is told once."""
    caller = pairing(world)
    heard = world.listen(caller)
    asked = await world.call(caller, "node.pair.request", {"nodeId": "bridge", "silent": True, **DESCRIBED})
    request = asked["request"]
    assert (asked["status"], asked["created"]) == ("pending", True)
    assert request == {"requestId": request["requestId"], "nodeId": "bridge", "ts": request["ts"], "silent": True} | (
        DESCRIBED
    )
    again = await world.call(caller, "node.pair.request", {"nodeId": "bridge", **DESCRIBED})
    assert (again["created"], again["request"]["requestId"]) == (False, request["requestId"])
    assert "silent" not in again["request"]
    listed = await world.call(caller, "node.pair.list")
    shapes.check(shapes.NODE_PAIR_LIST, listed)
    assert [each["requestId"] for each in listed["pending"]] == [request["requestId"]]

    approved = await world.call(caller, "node.pair.approve", {"requestId": request["requestId"]})
    token = approved["node"]["token"]
    assert approved["node"] | DESCRIBED == approved["node"]
    listed = await world.call(caller, "node.pair.list")
    assert listed["pending"] == [] and token not in str(listed)
    verified = await world.call(caller, "node.pair.verify", {"nodeId": "bridge", "token": token})
    assert verified["ok"] and verified["node"]["nodeId"] == "bridge"
    assert (await world.call(caller, "node.pair.list"))["paired"][0]["lastConnectedAtMs"]
    for node_id, wrong in (("bridge", "x"), ("other", token)):
        assert await world.call(caller, "node.pair.verify", {"nodeId": node_id, "token": wrong}) == {"ok": False}
    assert [event["event"] for event in heard.events] == ["node.pair.requested", "node.pair.resolved"]
    assert heard.events[1]["payload"] | {"nodeId": "bridge", "decision": "approved"} == heard.events[1]["payload"]
    assert ("pairing.approved", caller.user_id, "bridge") in world.recorded

    repair = await world.call(caller, "node.pair.request", {"nodeId": "bridge"})
    assert repair["request"]["isRepair"] is True
    rejected = await world.call(caller, "node.pair.reject", {"requestId": repair["request"]["requestId"]})
    assert rejected == {"requestId": repair["request"]["requestId"], "nodeId": "bridge"}
    renamed = await world.call(caller, "node.rename", {"nodeId": "bridge", "displayName": "Shelf"})
    assert renamed == {"nodeId": "bridge", "displayName": "Shelf"}
    assert (await world.call(caller, "node.pair.list"))["paired"][0]["displayName"] == "Shelf"


async def test_it_is_each_persons_own(world: World) -> None:
    caller = pairing(world)
    asked = await world.call(caller, "node.pair.request", {"nodeId": "bridge"})
    heard = world.listen(world.admin)
    assert await world.call(world.admin, "node.pair.list") == {"pending": [], "paired": []}
    for method in ("node.pair.approve", "node.pair.reject"):
        with pytest.raises(RefusedError, match=r"^unknown requestId$"):
            await world.call(world.admin, method, {"requestId": asked["request"]["requestId"]})
    node = (await world.call(caller, "node.pair.approve", {"requestId": asked["request"]["requestId"]}))["node"]
    verify = {"nodeId": "bridge", "token": node["token"]}
    assert await world.call(world.admin, "node.pair.verify", verify) == {"ok": False}
    with pytest.raises(RefusedError, match=r"^unknown nodeId$"):
        await world.call(world.admin, "node.rename", {"nodeId": "bridge", "displayName": "x"})
    assert heard.events == []


async def test_its_bounds(world: World) -> None:
    store, owner, at_ms = NodeStore(world.db), world.user.user_id, now_ms()
    caller = pairing(world)
    for number in range(MAX_PENDING):
        await world.call(caller, "node.pair.request", {"nodeId": f"n{number}"})
    with pytest.raises(RefusedError, match="waiting already"):
        await world.call(caller, "node.pair.request", {"nodeId": "one more"})
    (first, *_) = await store.pending(owner)
    assert await store.pending(owner, now_ms=at_ms + 2 * PENDING_MS) == []
    with pytest.raises(UnknownPairingRequest):
        await store.approve(owner, first.request_id, now_ms=at_ms + 2 * PENDING_MS)
    for number in range(MAX_BRIDGE_NODES + 3):
        request, _ = await store.request(owner, f"b{number}", {}, now_ms=at_ms + 3 * PENDING_MS + number)
        await store.approve(owner, request.request_id, now_ms=at_ms + 3 * PENDING_MS + number)
    kept = {node.node_id for node in await store.paired(owner)}
    assert len(kept) == MAX_BRIDGE_NODES and "b0" not in kept and f"b{MAX_BRIDGE_NODES + 2}" in kept


async def test_a_name_is_of_the_device_while_it_is_paired(world: World) -> None:
    await pair(world, display_name="pantry", platform="linux")
    caller = pairing(world)
    await world.call(caller, "node.rename", {"nodeId": "n1", "displayName": "Larder"})
    await pair(world, display_name="pantry", platform="linux")
    (node,) = (await world.call(caller, "node.list"))["nodes"]
    shapes.check(shapes.NODE_LIST, await world.call(caller, "node.list"))
    assert node["displayName"] == "Larder"
    assert (await world.call(caller, "node.describe", {"nodeId": " n1 "}))["displayName"] == "Larder"
    await world.devices.remove(world.user.user_id, DeviceId("n1"))
    await pair(world, display_name="pantry", platform="linux")
    assert (await world.call(caller, "node.list"))["nodes"][0]["displayName"] == "pantry"
    for caller_of_others in (world.admin, replace(world.child, scopes=world.admin.scopes)):
        with pytest.raises(RefusedError, match=r"^unknown nodeId$"):
            await world.call(caller_of_others, "node.rename", {"nodeId": "n1", "displayName": "x"})


async def test_an_operators_device_is_no_node(world: World) -> None:
    request = ConnectingDevice(
        device_id=DeviceId("d1"), public_key="k", role="operator", scopes=frozenset({"operator.read"}), local=True
    )
    await world.devices.admit(world.user.user_id, request)
    assert (await world.call(world.user, "node.list"))["nodes"] == []
    with pytest.raises(RefusedError, match=r"^unknown nodeId$"):
        await world.call(pairing(world), "node.rename", {"nodeId": "d1", "displayName": "x"})


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("node.invoke", {"nodeId": "n"}, "must have required property 'command'"),
        ("node.invoke", {"nodeId": "n", "command": "c"}, "must have required property 'idempotencyKey'"),
        ("node.rename", {"nodeId": "n"}, "must have required property 'displayName'"),
        ("node.pair.approve", {}, "must have required property 'requestId'"),
        ("node.pair.verify", {"nodeId": "n"}, "must have required property 'token'"),
        ("node.pair.request", {"nodeId": "n", "extra": 1}, "at root: unexpected property 'extra'"),
    ],
)
async def test_params(world: World, method: str, params: Any, text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, method, params)
    assert str(refused.value) == f"invalid {method} params: {text}"


async def test_a_node_says_whose_it_is_by_its_connection(world: World) -> None:
    node = node_of(world.user)
    result = {"id": "1", "nodeId": node.device_id, "ok": True}
    assert await world.call(node, "node.invoke.result", result) == {"ok": True, "ignored": True}
    with pytest.raises(RefusedError, match=r"^nodeId mismatch$"):
        await world.call(node, "node.invoke.result", result | {"nodeId": "other"})
    await world.call(node, "node.event", {"event": "agent.request", "payload": {"message": "hi", "thinking": "low"}})
    (inbound,) = world.submitted
    assert (inbound.owner, inbound.text, inbound.thinking) == (world.user.user_id, inbound.text, "low")
    assert inbound.caller.gateway_role == "operator" and inbound.caller.scopes == world.user.scopes
    assert inbound.key == f"user:{world.user.user_id}:agent:main:node-{node.device_id}"
    with pytest.raises(RefusedError, match="message is 30000 characters"):
        await world.call(node, "node.event", {"event": "voice.transcript", "payload": {"text": "x" * 30_000}})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    event=st.sampled_from(
        ["voice.transcript", "agent.request", "chat.subscribe", "chat.unsubscribe", "exec.started", "exec.finished"]
    )
    | st.text(min_size=1),
    payload=st.dictionaries(
        st.sampled_from(["text", "message", "sessionKey", "thinking", "timeoutSeconds", "attachments", "output"]),
        st.none() | st.text() | st.integers() | st.lists(st.text()),
    )
    | st.text()
    | st.none(),
)
async def test_any_event_is_taken_or_refused(world: World, event: str, payload: Any) -> None:
    try:
        assert await world.call(node_of(world.user), "node.event", {"event": event, "payload": payload}) == {"ok": True}
    except RefusedError as refused:
        assert "internal error" not in str(refused), refused.error
    assert all(inbound.owner == world.user.user_id for inbound in world.submitted)
