"""Who gets an event, and under which key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.broadcast import PUBLIC_EVENTS, Broadcaster, required_scope
from skynet_memory.ids import ConnId, Role, SessionKey, UserId
from skynet_protocol.device import DeviceIdentity
from skynet_protocol.events import EVENTS
from skynet_protocol.frames import StateVersion
from tests.support.client import CLI_SCOPES
from tests.support.connections import FakeWire, Parts, connection_parts

KEY = SessionKey("user:u:agent:main:home")
NODE: dict[str, Any] = {"role": "node", "client_id": "node-host", "mode": "node", "scopes": []}


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with connection_parts(tmp_path) as built:
        yield built


@pytest.fixture
def broadcaster(parts: Parts) -> Broadcaster:
    return parts.gateway.broadcaster


def names(wire: FakeWire) -> list[str]:
    return [event["event"] for event in wire.events()]


async def test_an_event_reaches_its_owner_alone(parts: Parts, broadcaster: Broadcaster) -> None:
    owner, other = await parts.ready(), await parts.ready(token=await parts.personal_token(Role.ADMIN))
    broadcaster.publish("agent", {"runId": "r"}, owner=parts.owner.id)
    assert names(owner) == ["agent"]
    assert names(other) == []
    broadcaster.publish("agent", {}, owner=UserId("nobody"))
    assert names(owner) == ["agent"]


async def test_an_event_without_an_owner_reaches_everybody(parts: Parts, broadcaster: Broadcaster) -> None:
    wires = [
        await parts.ready(scopes=[]),
        await parts.ready(token=await parts.personal_token()),
    ]
    for event in PUBLIC_EVENTS:
        broadcaster.publish(event, {}, owner=None)
    assert [sorted(names(wire)) for wire in wires] == [sorted(PUBLIC_EVENTS)] * 2


@pytest.mark.parametrize(
    ("event", "scopes", "expected"),
    [
        ("agent", ["operator.read"], True),
        ("agent", ["operator.write"], True),
        ("agent", ["operator.admin"], True),
        ("agent", ["operator.approvals"], False),
        ("agent", [], False),
        ("presence", [], False),
        ("tick", [], True),
        ("device.pair.requested", ["operator.read"], False),
        ("device.pair.requested", ["operator.pairing"], True),
        ("device.pair.resolved", ["operator.admin"], True),
        ("exec.approval.requested", ["operator.read", "operator.write", "operator.pairing"], False),
        ("exec.approval.requested", ["operator.approvals"], True),
        ("something.new", ["operator.approvals"], False),
    ],
)
async def test_an_event_needs_its_scope(
    parts: Parts, broadcaster: Broadcaster, event: str, scopes: list[str], expected: bool
) -> None:
    wire = await parts.ready(scopes=scopes)
    broadcaster.publish(event, {}, owner=parts.owner.id)
    assert names(wire) == ([event] if expected else [])


async def test_a_node_gets_what_is_public_alone(parts: Parts, broadcaster: Broadcaster, tmp_path: Path) -> None:
    token = await parts.personal_token(Role.ADMIN)
    wire = await parts.ready(token=token, device=DeviceIdentity.generate(), **NODE)
    for event in EVENTS:
        broadcaster.publish(event, {}, owner=wire.connection.caller.user_id)
    assert set(names(wire)) == PUBLIC_EVENTS


def test_every_event_that_is_not_public_needs_a_scope() -> None:
    assert {event for event in EVENTS if required_scope(event) is None} == PUBLIC_EVENTS
    assert required_scope("unheard.of") == "operator.read"


async def test_the_state_version_rides_along(parts: Parts, broadcaster: Broadcaster) -> None:
    wire = await parts.ready()
    version = StateVersion(presence=2, health=7)
    broadcaster.publish("health", {"ok": True}, owner=parts.owner.id, state_version=version)
    (event,) = wire.events()
    assert event["stateVersion"] == {"presence": 2, "health": 7}
    assert set(event) == {"type", "event", "payload", "seq", "stateVersion"}


async def test_each_client_gets_the_key_in_its_own_form(parts: Parts, broadcaster: Broadcaster) -> None:
    plain, short, other = await parts.ready(), await parts.ready(), await parts.ready()
    short.connection.hold(KEY, "home")
    made: list[str] = []

    def payload(form: str) -> dict[str, str]:
        made.append(form)
        return {"sessionKey": form}

    broadcaster.publish_to_session("chat", KEY, payload, owner=parts.owner.id)
    forms = [wire.events()[0]["payload"]["sessionKey"] for wire in (plain, short, other)]
    assert forms == ["agent:main:home", "home", "agent:main:home"]
    assert sorted(made) == ["agent:main:home", "home"]  # encoded once for each form
    broadcaster.publish_to_session("chat", KEY, payload, owner=UserId("nobody"))
    assert len(made) == 2


async def test_who_does_not_read_is_closed_in_the_midst_of_a_broadcast(parts: Parts, broadcaster: Broadcaster) -> None:
    options: dict[str, Any] = {"mode": "ui", "client_id": "gateway-client"}
    wires = [await parts.ready(**options) for _ in range(5)]
    wires[2].buffered = 2**40
    broadcaster.publish("agent", {}, owner=parts.owner.id)
    assert wires[2].ended == (1008, "slow consumer")
    for wire in (*wires[:2], *wires[3:]):
        assert wire.ended is None
        assert sorted(names(wire)) == ["agent", "presence"]  # of the one that left
        assert [event["seq"] for event in wire.events()] == [1, 2]


async def test_connections_are_found_until_they_leave(parts: Parts, broadcaster: Broadcaster) -> None:
    assert broadcaster.get(None) is None
    first, second = await parts.ready(), await parts.ready(scopes=CLI_SCOPES[:1])
    assert len(broadcaster) == 2
    assert broadcaster.get(first.connection.conn_id) is first.connection
    assert broadcaster.of(parts.owner.id) == broadcaster.all() == [first.connection, second.connection]
    for wire in (first, second):
        wire.connection.closed()
        broadcaster.remove(wire.connection)  # again
    assert len(broadcaster) == 0
    assert broadcaster.get(ConnId(first.connection.conn_id)) is None
    assert broadcaster.of(parts.owner.id) == []
    broadcaster.publish("tick", {}, owner=None)


async def test_what_is_a_rooms_reaches_its_members(parts: Parts) -> None:
    """BA-264: those that are in it at this moment, each connection once."""
    room = UserId("room")
    members: set[UserId] = set()
    broadcaster = Broadcaster(lambda owner: members if owner == room else ())
    wires = [await parts.ready(), await parts.ready(), await parts.ready(token=await parts.personal_token())]
    for connection in parts.gateway.broadcaster.all():
        broadcaster.add(connection)
    key = SessionKey("group:room:agent:main:main")
    for present, expected in (([], [0, 0, 0]), ([parts.owner.id], [1, 1, 0]), ([], [1, 1, 0])):
        members.clear()
        members.update(present)
        broadcaster.publish_to_session("chat", key, lambda form: {"sessionKey": form}, owner=room)
        assert [len(names(wire)) for wire in wires] == expected
    assert wires[0].events()[0]["payload"] == {"sessionKey": key}
