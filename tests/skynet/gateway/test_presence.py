"""The presence table: what is kept, for how long, and who is told."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.connection import Connection
from skynet.gateway.presence import MAX_ENTRIES, TTL_MS, PresenceTable, StateVersions
from skynet_memory.ids import ConnId, DeviceId, Role, UserId
from skynet_protocol.connect import ClientInfo
from skynet_users.caller import Caller
from tests.skynet.methods.world import FakeConnection, caller_of, node_of

OWNER = caller_of(UserId("owner"), Role.ADMIN)
USER = caller_of(UserId("user"), Role.USER)
TUI = ClientInfo(
    id="gateway-client", version="2026.2.26", platform="linux", mode="ui", display_name="openclaw-tui", instance_id="i1"
)


class Table:
    def __init__(self) -> None:
        self.now = 1_000_000
        self.broadcaster = Broadcaster()
        self.versions = StateVersions()
        self.presence = PresenceTable(self.broadcaster, self.versions, version="1.2.3", clock=lambda: self.now)

    def listen(self, caller: Caller) -> FakeConnection:
        connection = FakeConnection(replace(caller, conn_id=ConnId(f"c{len(self.broadcaster)}")))
        self.broadcaster.add(cast(Connection, connection))
        return connection

    def shown(self, caller: Caller) -> list[tuple[str, str]]:
        return [(str(e.host), str(e.reason)) for e in self.presence.entries(caller)[1:]]


@pytest.fixture
def table() -> Table:
    return Table()


async def published(connection: FakeConnection, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(40):
        while len(connection.named("presence")) < count:  # noqa: ASYNC110  (the fake tells nobody)
            await asyncio.sleep(0.005)
    return connection.named("presence")


def test_the_gateway_itself_is_always_there(table: Table) -> None:
    (entry,) = table.presence.entries(USER)
    assert (entry.mode, entry.reason, entry.version, entry.ts) == ("gateway", "self", "1.2.3", table.now)
    where = f"{entry.host} ({entry.ip})" if entry.ip else f"{entry.host}"
    assert entry.text == f"Gateway: {where} · app 1.2.3 · mode gateway · reason self"


def test_a_client_that_connects(table: Table) -> None:
    caller = replace(OWNER, device_id=DeviceId("D1"), scopes=frozenset({"operator.read"}))
    table.presence.connected(caller, ConnId("c1"), TUI, remote_ip="10.0.0.5")
    entry = table.presence.entries(OWNER)[1]
    assert (entry.host, entry.ip, entry.version, entry.platform, entry.mode) == (
        "openclaw-tui",
        "10.0.0.5",
        "2026.2.26",
        "linux",
        "ui",
    )
    assert (entry.device_id, entry.instance_id, entry.roles, entry.scopes) == (
        "D1",
        "D1",
        ("operator",),
        ("operator.read",),
    )
    assert (entry.reason, entry.text) == ("connect", "Node: openclaw-tui · mode ui")
    assert table.versions.presence == 2


def test_scopes_of_one_device_are_joined(table: Table) -> None:
    for number, scope in enumerate(("operator.read", "operator.admin")):
        caller = replace(OWNER, device_id=DeviceId("d"), scopes=frozenset({scope}))
        table.presence.connected(caller, ConnId(f"c{number}"), TUI)
    assert table.presence.entries(OWNER)[1].scopes == ("operator.read", "operator.admin")


async def test_the_command_line_leaves_no_entry(table: Table) -> None:
    connection = table.listen(OWNER)
    cli = ClientInfo(id="cli", version="1", platform="linux", mode="cli")
    table.presence.connected(OWNER, ConnId("c1"), cli)
    table.presence.disconnected(OWNER, ConnId("c1"))
    assert table.shown(OWNER) == [] and connection.events == []


async def test_connecting_is_not_published_and_leaving_is(table: Table) -> None:
    connection = table.listen(OWNER)
    table.presence.connected(OWNER, ConnId("c1"), TUI)
    assert connection.events == []
    table.presence.disconnected(OWNER, ConnId("c1"))
    (event,) = await published(connection, 1)
    assert event["payload"]["presence"][1]["reason"] == "disconnect"
    assert event["stateVersion"] == {"presence": 3, "health": 1}


async def test_a_device_is_there_while_one_of_its_connections_is(table: Table) -> None:
    connection = table.listen(OWNER)
    caller = replace(OWNER, device_id=DeviceId("d"))
    for conn in ("c1", "c2"):
        table.presence.connected(caller, ConnId(conn), TUI)
    table.presence.disconnected(caller, ConnId("c1"))
    assert table.shown(OWNER) == [("openclaw-tui", "connect")] and connection.events == []
    table.presence.disconnected(caller, ConnId("c2"))
    assert table.shown(OWNER) == [("openclaw-tui", "disconnect")]


async def test_devices_are_shown_to_their_owner_and_to_admins_alone(table: Table) -> None:
    admin, mine, other = table.listen(OWNER), table.listen(USER), table.listen(caller_of(UserId("o"), Role.USER))
    node = table.listen(node_of(USER))
    table.presence.connected(USER, ConnId("c1"), TUI)
    table.presence.connected(OWNER, ConnId("c2"), replace_client(host="desk"))
    assert table.shown(USER) == [("openclaw-tui", "connect")]
    assert table.shown(OWNER) == [("desk", "connect"), ("openclaw-tui", "connect")]
    table.presence.disconnected(USER, ConnId("c1"))
    (for_admin,), (for_me,) = await published(admin, 1), await published(mine, 1)
    assert [e["host"] for e in for_me["payload"]["presence"][1:]] == ["openclaw-tui"]
    assert [e["host"] for e in for_admin["payload"]["presence"][1:]] == ["openclaw-tui", "desk"]
    table.presence.disconnected(OWNER, ConnId("c2"))
    await published(admin, 2)
    assert len(mine.events) == 1 and other.events == [] and node.events == []


def replace_client(*, host: str) -> ClientInfo:
    return ClientInfo(
        id="gateway-client", version="1", platform="linux", mode="ui", display_name=host, instance_id=host
    )


async def test_a_claimed_device_id_does_not_touch_another_persons_entry(table: Table) -> None:
    table.presence.connected(replace(OWNER, device_id=DeviceId("d")), ConnId("c1"), TUI)
    table.presence.report(USER, {"text": "x", "device_id": "d", "host": "evil"})
    assert table.shown(OWNER)[-1] == ("openclaw-tui", "connect")
    assert [host for host, _ in table.shown(USER)] == ["evil"]


async def test_a_crowd_that_leaves_is_told_of_once_or_twice(table: Table) -> None:
    connection = table.listen(OWNER)
    for number in range(100):
        table.presence.connected(OWNER, ConnId(f"x{number}"), replace_client(host=f"h{number}"))
    for number in range(100):
        table.presence.disconnected(OWNER, ConnId(f"x{number}"))
    events = await published(connection, 2)
    assert len(events) == 2 and {e["reason"] for e in events[-1]["payload"]["presence"]} == {"self", "disconnect"}
    assert events[-1]["stateVersion"]["presence"] == 201


async def test_entries_without_a_connection_grow_old(table: Table) -> None:
    table.presence.connected(OWNER, ConnId("c1"), TUI)
    table.presence.report(OWNER, {"text": "old", "host": "old"})
    table.now += TTL_MS
    table.presence.report(OWNER, {"text": "new", "host": "new"})
    assert {host for host, _ in table.shown(OWNER)} == {"openclaw-tui", "old", "new"}
    table.now += 1
    assert {host for host, _ in table.shown(OWNER)} == {"openclaw-tui", "new"}


async def test_entries_are_bounded(table: Table) -> None:
    for number in range(MAX_ENTRIES + 10):
        table.presence.report(OWNER, {"text": "x", "host": f"h{number}"})
    assert len(table.presence._entries) == MAX_ENTRIES
    assert table.shown(OWNER)[0][0] == f"h{MAX_ENTRIES + 9}"
    for number in range(MAX_ENTRIES + 10):
        table.presence.connected(OWNER, ConnId(f"c{number}"), replace_client(host=f"c{number}"))
    assert len(table.shown(OWNER)) == MAX_ENTRIES


async def test_a_report_in_words(table: Table) -> None:
    text = "Node: desk (10.0.0.7) · app 1.4 · last input 12s ago · mode local · reason launch"
    reported = table.presence.report(OWNER, {"text": text})
    entry = reported.entry
    assert (entry.host, entry.ip, entry.version, entry.mode, entry.reason, entry.last_input_seconds) == (
        "desk",
        "10.0.0.7",
        "1.4",
        "local",
        "launch",
        12,
    )
    assert reported.changed == {"host", "ip", "version", "mode", "reason"}
    again = table.presence.report(OWNER, {"text": text.replace("launch", "periodic")})
    assert again.changed == {"reason"} and len(table.shown(OWNER)) == 1


async def test_given_fields_win_and_missing_ones_stay(table: Table) -> None:
    table.presence.report(OWNER, {"text": "x", "device_id": "D", "host": "a", "tags": ("t",)})
    entry = table.presence.report(OWNER, {"text": "y", "device_id": "d", "host": "", "version": "2"}).entry
    assert (entry.host, entry.version, entry.tags, entry.text) == ("a", "2", ("t",), "y")
