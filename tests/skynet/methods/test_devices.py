"""``device.*`` and ``node.*``: shapes, texts, and whose devices a caller reaches."""

import json
from dataclasses import replace
from typing import Any

import pytest

from skynet_memory.ids import DeviceId
from skynet_users.devices import ConnectingDevice, PairingRequired
from tests.skynet.methods import shapes
from tests.skynet.methods.world import Caller, RefusedError, World

ALL = frozenset({"operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing"})


async def ask(world: World, caller: Caller, device_id: str, **fields: Any) -> str:
    """A device of this person asks from afar; returns the request's id."""
    values: dict[str, Any] = {
        "role": "operator",
        "scopes": frozenset({"operator.read"}),
        "platform": "linux",
        "client_id": "cli",
        "client_mode": "cli",
        "remote_ip": "10.0.0.5",
    }
    device = ConnectingDevice(device_id=DeviceId(device_id), public_key=f"key-{device_id}", **(values | fields))
    outcome = await world.devices.admit(caller.user_id, device)
    assert isinstance(outcome, PairingRequired)
    return outcome.request.request_id


async def pair(world: World, caller: Caller, device_id: str, **fields: Any) -> None:
    await world.devices.approve(caller.user_id, await ask(world, caller, device_id, **fields))


def pairing(caller: Caller) -> Caller:
    """The same person with every scope: what is refused is refused for the person's sake."""
    return replace(caller, scopes=ALL)


async def test_list(world: World) -> None:
    await pair(world, world.admin, "d1", display_name="desk", device_family="Linux")
    request_id = await ask(world, world.admin, "d2", role="node", scopes=frozenset(), display_name="PE Node")
    result = await world.call(world.admin, "device.pair.list", {})
    shapes.check(shapes.PAIR_LIST, result)
    (pending,), (paired,) = result["pending"], result["paired"]
    assert pending.pop("ts") > 0
    assert pending == {
        "requestId": request_id,
        "deviceId": "d2",
        "publicKey": "key-d2",
        "displayName": "PE Node",
        "platform": "linux",
        "clientId": "cli",
        "clientMode": "cli",
        "role": "node",
        "roles": ["node"],
        "scopes": [],
        "remoteIp": "10.0.0.5",
        "silent": False,
        "isRepair": False,
    }
    assert (paired["deviceId"], paired["roles"], paired["scopes"]) == ("d1", ["operator"], ["operator.read"])
    assert paired["tokens"][0]["role"] == "operator"
    stored = await world.devices.get(world.admin.user_id, DeviceId("d1"))
    assert stored is not None and stored.tokens[0].token.reveal() not in json.dumps(result)


async def test_approve_and_reject_are_told(world: World) -> None:
    connection = world.listen(world.admin)
    first, second = await ask(world, world.admin, "d1"), await ask(world, world.admin, "d2")
    approved = await world.call(world.admin, "device.pair.approve", {"requestId": first})
    rejected = await world.call(world.admin, "device.pair.reject", {"requestId": second})
    shapes.check(shapes.PAIR_APPROVE, approved)
    shapes.check(shapes.PAIR_REJECT, rejected)
    assert rejected == {"requestId": second, "deviceId": "d2"}
    events = connection.named("device.pair.resolved")
    for event in events:
        shapes.check(shapes.PAIR_RESOLVED, event["payload"])
    assert [(e["payload"]["deviceId"], e["payload"]["decision"]) for e in events] == [
        ("d1", "approved"),
        ("d2", "rejected"),
    ]


async def test_an_admin_lets_in_another_persons_device(world: World) -> None:
    theirs, bystander = world.listen(pairing(world.user)), world.listen(pairing(world.child))
    request_id = await ask(world, world.user, "d1")
    assert len((await world.call(world.admin, "device.pair.list"))["pending"]) == 1
    await world.call(world.admin, "device.pair.approve", {"requestId": request_id})
    device = await world.devices.get(world.user.user_id, DeviceId("d1"))
    assert device is not None and device.owner == world.user.user_id
    assert len(theirs.named("device.pair.resolved")) == 1 and bystander.events == []
    assert await world.call(world.admin, "device.pair.remove", {"deviceId": "d1"}) == {"deviceId": "d1"}


async def test_rotate_and_revoke(world: World) -> None:
    await pair(world, world.admin, "d1", scopes=frozenset({"operator.admin"}))
    before = await world.devices.get(world.admin.user_id, DeviceId("d1"))
    rotated = await world.call(
        world.admin, "device.token.rotate", {"deviceId": "d1", "role": "operator", "scopes": ["operator.read"]}
    )
    shapes.check(shapes.TOKEN_ROTATE, rotated)
    assert rotated["scopes"] == ["operator.read"]
    assert before is not None and rotated["token"] != before.tokens[0].token.reveal()
    revoked = await world.call(world.admin, "device.token.revoke", {"deviceId": "d1", "role": "operator"})
    shapes.check(shapes.TOKEN_REVOKE, revoked)
    (paired,) = (await world.call(world.admin, "device.pair.list"))["paired"]
    assert paired["tokens"][0]["revokedAtMs"] == revoked["revokedAtMs"]


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("device.pair.approve", {"requestId": "x"}, "unknown requestId"),
        ("device.pair.reject", {"requestId": "x"}, "unknown requestId"),
        ("device.pair.remove", {"deviceId": "x"}, "unknown deviceId"),
        ("device.token.rotate", {"deviceId": "x", "role": "operator"}, "unknown deviceId/role"),
        ("device.token.rotate", {"deviceId": "d1", "role": "node"}, "unknown deviceId/role"),
        (
            "device.token.rotate",
            {"deviceId": "d1", "role": "operator", "scopes": ["operator.admin"]},
            "unknown deviceId/role",
        ),
        ("device.token.revoke", {"deviceId": "d1", "role": "node"}, "unknown deviceId/role"),
    ],
)
async def test_refusals(world: World, method: str, params: dict[str, Any], message: str) -> None:
    await pair(world, world.admin, "d1")
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, method, params)
    assert str(refused.value) == message and refused.value.error["code"] == "INVALID_REQUEST"


async def test_nobody_gives_a_device_more_than_the_own_connection_may(world: World) -> None:
    """Else a connection that may only pair would be an administrator by way of a device."""
    await pair(world, world.admin, "d1", scopes=frozenset({"operator.admin"}))
    request_id = await ask(world, world.admin, "d2", scopes=frozenset({"operator.pairing", "operator.write"}))
    weak = replace(world.admin, scopes=frozenset({"operator.pairing"}))
    before = await world.devices.get(world.admin.user_id, DeviceId("d1"))
    for method, params, lacking in (
        ("device.token.rotate", {"deviceId": "d1", "role": "operator"}, "operator.admin"),
        ("device.token.rotate", {"deviceId": "d1", "role": "operator", "scopes": ["operator.read"]}, "operator.read"),
        ("device.pair.approve", {"requestId": request_id}, "operator.write"),
    ):
        with pytest.raises(RefusedError, match=f"^missing scope: {lacking}$") as refused:
            await world.call(weak, method, params)
        assert refused.value.error["details"] == {"code": "FORBIDDEN", "scope": lacking}
    assert await world.devices.get(world.admin.user_id, DeviceId("d1")) == before
    rotated = await world.call(
        weak, "device.token.rotate", {"deviceId": "d1", "role": "operator", "scopes": ["operator.pairing"]}
    )
    assert rotated["scopes"] == ["operator.pairing"]
    # The request that was refused is still there for somebody who may.
    approved = await world.call(world.admin, "device.pair.approve", {"requestId": request_id})
    assert approved["device"]["scopes"] == ["operator.pairing", "operator.write"]


async def test_who_may_only_pair_lets_a_node_in(world: World) -> None:
    request_id = await ask(world, world.admin, "d1", role="node", scopes=frozenset({"camera"}))
    weak = replace(world.admin, scopes=frozenset({"operator.pairing"}))
    assert (await world.call(weak, "device.pair.approve", {"requestId": request_id}))["device"]["roles"] == ["node"]


async def test_another_persons_devices_do_not_exist(world: World) -> None:
    await pair(world, world.admin, "d1", role="node", scopes=frozenset())
    request_id = await ask(world, world.admin, "d2")
    stranger = pairing(world.user)
    assert await world.call(stranger, "device.pair.list") == {"pending": [], "paired": []}
    assert (await world.call(stranger, "node.list"))["nodes"] == []
    for method, params in (
        ("device.pair.approve", {"requestId": request_id}),
        ("device.pair.reject", {"requestId": request_id}),
        ("device.pair.remove", {"deviceId": "d1"}),
        ("device.token.rotate", {"deviceId": "d1", "role": "node"}),
        ("device.token.revoke", {"deviceId": "d1", "role": "node"}),
        ("node.describe", {"nodeId": "d1"}),
    ):
        with pytest.raises(RefusedError, match=r"^unknown "):
            await world.call(stranger, method, params)
    assert len(await world.devices.pending(world.admin.user_id)) == 1


async def test_not_even_an_admin_gets_another_persons_token_or_nodes(world: World) -> None:
    await pair(world, world.user, "d1", role="node", scopes=frozenset())
    with pytest.raises(RefusedError, match=r"^unknown deviceId/role$"):
        await world.call(world.admin, "device.token.rotate", {"deviceId": "d1", "role": "node"})
    assert (await world.call(world.admin, "node.list"))["nodes"] == []
    with pytest.raises(RefusedError, match=r"^unknown nodeId$"):
        await world.call(world.admin, "node.describe", {"nodeId": "d1"})
    await world.call(world.admin, "device.token.revoke", {"deviceId": "d1", "role": "node"})


async def test_pairing_needs_its_scope(world: World) -> None:
    for caller in (world.user, world.child):
        with pytest.raises(RefusedError, match=r"^missing scope: operator\.pairing$"):
            await world.call(caller, "device.pair.list")


async def test_nodes(world: World) -> None:
    await pair(world, world.user, "n2", role="node", scopes=frozenset(), display_name="b", client_mode="node")
    await pair(world, world.user, "n1", role="node", scopes=frozenset(), display_name="A", client_mode="node")
    await pair(world, world.user, "d1")
    result = await world.call(world.user, "node.list", {})
    shapes.check(shapes.NODE_LIST, result)
    assert [node["nodeId"] for node in result["nodes"]] == ["n1", "n2"]
    assert result["nodes"][0] == {
        "nodeId": "n1",
        "displayName": "A",
        "platform": "linux",
        "remoteIp": "10.0.0.5",
        "caps": [],
        "commands": [],
        "paired": True,
        "connected": False,
    }
    described = await world.call(world.user, "node.describe", {"nodeId": "n1"})
    shapes.check(shapes.NODE_DESCRIBE, described)
    assert described | result["nodes"][0] == described
    for other in ("d1", "nosuch"):
        with pytest.raises(RefusedError, match=r"^unknown nodeId$"):
            await world.call(world.user, "node.describe", {"nodeId": other})


async def test_the_older_store_of_nodes_is_empty(world: World) -> None:
    result = await world.call(world.admin, "node.pair.list", {})
    shapes.check(shapes.NODE_PAIR_LIST, result)
    assert result == {"pending": [], "paired": []}
