"""Ticks, numbers, presence, and clients that do not read: what one client does never reaches the others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
import pytest_asyncio

from skynet.gateway.socket import CLOSE_TIMEOUT_S
from skynet_memory.ids import Role
from skynet_protocol.device import DeviceIdentity
from skynet_users.credentials import CredentialStore
from skynet_users.people import UserStore
from tests.support.client import WireClient, connect_params
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.polling import until
from tests.support.raw_socket import PING, TEXT, RawSocket, close_frame, frame, open_raw, open_ready, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

TICK_S = 0.05
OUTBOUND = 256 * 1024
SMALL = 8192
"""Receive buffer of a client that stops reading."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    toml = f"[gateway.limits]\ntick_interval_s = {TICK_S}\noutbound_bytes = {OUTBOUND}\n"
    async with running_gateway(tmp_path_factory.mktemp("gateway"), toml=toml) as running:
        yield running


def named(name: str) -> Any:
    return lambda event: event["event"] == name


def of_name(client: WireClient, name: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["event"] == name]


# Events.


async def test_ticks_come_on_time_and_only_after_hello(gateway: RunningGateway) -> None:
    async with open_raw(gateway.url) as raw, gateway.client(scopes=[]) as client:
        assert client.hello["policy"]["tickIntervalMs"] == 50
        started = time.monotonic()
        await until(lambda: len(of_name(client, "tick")) >= 11, "eleven ticks")
        assert 10 * TICK_S * 0.9 <= time.monotonic() - started <= 10
        ticks = of_name(client, "tick")
        assert all(set(tick["payload"]) == {"ts"} for tick in ticks)
        assert [tick["payload"]["ts"] for tick in ticks] == sorted(tick["payload"]["ts"] for tick in ticks)
        await raw.send(frame(request("connect", connect_params(token=gateway.token), id="c")))
        kinds = [(await raw.read_frame()).json() for _ in range(3)]
        assert kinds[0]["event"] == "connect.challenge"
        assert (kinds[1]["type"], kinds[1]["id"]) == ("res", "c")


async def test_numbers_are_contiguous_on_each_connection(gateway: RunningGateway) -> None:
    async with gateway.client() as early:
        await until(lambda: len(of_name(early, "tick")) >= 3)
        async with gateway.client(scopes=[]) as blind, gateway.client() as late:
            for _ in range(5):
                await late.call("system-event", {"text": "Node: somewhere"})
            await until(lambda: len(of_name(late, "tick")) >= 5)
            for client in (early, late, blind):
                numbers = [event["seq"] for event in client.events if event["event"] != "connect.challenge"]
                assert numbers == list(range(1, len(numbers) + 1))
            assert {event["event"] for event in blind.events} == {"connect.challenge", "tick"}


async def test_state_versions_grow(gateway: RunningGateway) -> None:
    async with gateway.client() as client:
        before = client.hello["snapshot"]["stateVersion"]
        for number in range(3):
            await client.call("system-event", {"text": f"Node: number {number}"})
            await until(lambda count=number + 1: len(of_name(client, "presence")) >= count)  # type: ignore[misc]
        versions = [event["stateVersion"]["presence"] for event in of_name(client, "presence")]
        assert versions == sorted(set(versions))
        assert versions[0] > before["presence"]
        await client.call("health", {"probe": True})
        assert all("stateVersion" not in event for event in of_name(client, "tick"))


async def test_who_leaves_is_announced_except_a_command_line(gateway: RunningGateway) -> None:
    options: dict[str, Any] = {"client_id": "gateway-client", "mode": "ui"}
    device = DeviceIdentity.generate()
    await until(lambda: gateway.app.gateway.presence._timer is None, "what happened before is told")
    async with gateway.client() as watcher:
        async with gateway.client():
            pass
        async with gateway.client(device=device, **options) as leaving:
            mine = [entry for entry in leaving.hello["snapshot"]["presence"] if entry.get("deviceId")]
            assert [entry["deviceId"] for entry in mine] == [device.device_id]
            assert not of_name(watcher, "presence")  # a connect says nothing, nor did the command line
        event = await watcher.event(named("presence"))
        (entry,) = [entry for entry in event["payload"]["presence"] if entry.get("deviceId") == device.device_id]
        assert (entry["reason"], entry["mode"]) == ("disconnect", "ui")
        assert len(of_name(watcher, "presence")) == 1


@pytest.mark.parametrize("end", ["close", "reset", "broken frame"])
async def test_every_way_to_leave_is_noticed_at_once(gateway: RunningGateway, end: str) -> None:
    params = connect_params(token=gateway.token, client_id="gateway-client", mode="ui")
    async with gateway.client() as watcher, open_ready(gateway.url, params) as raw:
        assert len(gateway.app.gateway.broadcaster) == 2
        if end == "close":
            raw.write(close_frame())
        elif end == "reset":
            raw.writer.transport.abort()
        else:
            raw.write(b"\x81\x02hi")
        await watcher.event(named("presence"), timeout=3)
        assert len(gateway.app.gateway.broadcaster) == 1


async def test_one_persons_presence_is_not_anothers(gateway: RunningGateway) -> None:
    users, credentials = UserStore(gateway.app.database), CredentialStore(gateway.app.database)
    user = await users.add("Ben", Role.USER)
    token = (await credentials.create_token(user.id, "test")).token.reveal()
    options: dict[str, Any] = {"client_id": "gateway-client", "mode": "ui"}
    async with gateway.client(token=token) as other, gateway.client() as owner:
        async with gateway.client(**options):
            pass
        await owner.event(named("presence"))
        await until(lambda: len(of_name(other, "tick")) >= 2)
        assert not of_name(other, "presence")


# Clients that do not read.


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talkative(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    """A gateway with an answer of 50 KB to a request of 60 bytes: ``system-presence``."""
    async with running_gateway(tmp_path_factory.mktemp("talkative")) as running:
        async with running.client() as client:
            for number in range(200):
                await client.call("system-event", {"text": f"Node: {number} " + "x" * 240})
            assert len(json.dumps(await client.call("system-presence"))) > 40_000
        yield running


def ask_much(times: int) -> bytes:
    """Small requests with great answers."""
    return b"".join(frame(request("system-presence", id=str(number))) for number in range(times))


def _buffered(connection: Any) -> int:
    return connection.buffered_bytes() if hasattr(connection, "buffered_bytes") else 0


async def test_a_slow_consumer_misses_droppable_events_then_is_closed(gateway: RunningGateway) -> None:
    broadcaster = gateway.app.gateway.broadcaster
    owner = (await UserStore(gateway.app.database).list())[0]
    params = connect_params(token=gateway.token, scopes=["operator.admin"])
    async with gateway.client() as busy, open_ready(gateway.url, params, receive_buffer=SMALL) as slow:
        (connection,) = (peer for peer in broadcaster.all() if peer.conn_id != busy.hello["server"]["connId"])
        blob = {"presence": "x" * 50_000}
        for _ in range(200):  # droppable, and never the end of anybody
            broadcaster.publish("presence", blob, owner=owner.id)
            await asyncio.sleep(0)
        sent = connection._seq
        assert OUTBOUND < connection._wire.buffered_bytes() < OUTBOUND + 2 * 50_100
        ticks = len(of_name(busy, "tick"))
        await until(lambda: len(of_name(busy, "tick")) >= ticks + 3)
        assert len(of_name(busy, "presence")) == 200  # who reads gets all
        assert connection._seq == sent
        assert len(broadcaster) == 2
        broadcaster.publish("agent", {"runId": "r"}, owner=owner.id)  # not droppable
        assert len(broadcaster) == 1
        started = time.monotonic()
        assert (await busy.call("health"))["ok"]
        assert time.monotonic() - started < 1
        numbers = []
        while True:
            received = await slow.read_frame()
            if received.opcode == 8:
                break
            numbers.append(received.json()["seq"])
        assert received.close == (1008, "slow consumer")
        assert numbers == list(range(1, sent + 1))
        assert busy.socket.close_code is None


async def test_a_client_that_asks_and_never_reads_stops_being_read(talkative: RunningGateway) -> None:
    params = connect_params(token=talkative.token)
    process = psutil.Process()
    async with talkative.client() as other, open_ready(talkative.url, params, receive_buffer=SMALL) as greedy:
        await other.call("system-presence")
        before = process.memory_info().rss
        greedy.write(ask_much(100_000))
        await until(lambda: any(map(_buffered, talkative.server.server_state.connections)))
        for _ in range(50):
            assert (await other.call("health"))["ok"]
        (held,) = [size for size in map(_buffered, talkative.server.server_state.connections) if size]
        assert held < 2 * 1024 * 1024
        assert process.memory_info().rss - before < 64 * 1024 * 1024
        assert greedy.writer.transport.get_write_buffer_size() > 0  # the gateway does not take more
        assert len(talkative.app.gateway.broadcaster) == 2


async def test_who_was_paused_goes_on_when_it_reads(talkative: RunningGateway) -> None:
    params = connect_params(token=talkative.token)
    async with open_ready(talkative.url, params, receive_buffer=SMALL) as slow:
        slow.write(ask_much(300) + frame(opcode=PING))
        await until(lambda: any(map(_buffered, talkative.server.server_state.connections)))
        for number in range(300):
            assert (await slow.read_response(str(number)))["ok"]
        assert await still_answers(slow)


async def test_many_requests_at_once_are_all_answered(gateway: RunningGateway) -> None:
    async with gateway.client() as client:
        ids = [await client.send_frame("status", {}) for _ in range(1000)]  # more than may be unanswered
        for request_id in ids:
            assert (await client.response(request_id))["ok"]


async def test_who_never_leaves_is_cut_off(talkative: RunningGateway) -> None:
    """Refused, broken, or closing without reading: each is gone within the time a close may take."""
    params = connect_params(token=talkative.token)
    connections = talkative.server.server_state.connections
    await until(lambda: not connections)
    async with (
        open_raw(talkative.url) as refused,
        open_raw(talkative.url) as broken,
        open_ready(talkative.url, params, receive_buffer=SMALL) as full,
    ):
        full.write(ask_much(300))
        await until(lambda: any(map(_buffered, connections)))
        refused.write(frame("not json"))
        broken.write(b"\x81\x02hi")
        assert await refused.read_close() == (1000, "")
        assert (await broken.read_close())[0] == 1002
        (stuck,) = talkative.app.gateway.broadcaster.all()
        stuck.close(1008, "enough")
        await until(lambda: not connections, "all are gone", timeout=CLOSE_TIMEOUT_S + 3)


async def still_answers(raw: RawSocket) -> bool:
    await raw.send(frame(request("health", id="still")))
    while True:
        received = await raw.read_frame()
        if received.opcode == TEXT and received.json().get("id") == "still":
            return bool(received.json()["ok"])
