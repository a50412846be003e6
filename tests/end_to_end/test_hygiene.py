"""What is opened is closed: descriptors, threads, tasks and memory after many gateways and many connections."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from skynet_protocol.device import DeviceIdentity
from tests.support.client import WireClient, connect_params
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.polling import until
from tests.support.raw_socket import frame, open_raw, open_ready, open_tcp, request, upgrade_request

ROUNDS = 12
CONNECTIONS = 500


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path / "home") as running:
        yield running


class Counts:
    """What this process holds open."""

    def __init__(self) -> None:
        gc.collect()
        self.descriptors = psutil.Process().num_fds()
        self.threads = threading.active_count()
        self.tasks = len(asyncio.all_tasks())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Counts({vars(self)})"


async def use(client: WireClient) -> None:
    await client.call("health", {"probe": True})
    await client.call("sessions.list", {})
    await client.call("device.pair.list", {})


async def test_gateways_leave_nothing_behind(tmp_path: Path) -> None:
    async def one(number: int) -> None:
        async with running_gateway(tmp_path / f"home-{number % 2}") as running:
            async with running.client(device=DeviceIdentity.generate()) as client:
                await use(client)
            async with open_raw(running.url) as raw, running.client() as left_open:
                await raw.read_frame()
                running.server.should_exit = True
                await left_open.closed()

    await one(0)  # what is made once and kept (thread pools, caches) is there after the first
    await one(1)
    before = Counts()
    for number in range(ROUNDS):
        await one(number)
    await until(lambda: Counts() == before, f"{before} again, not {Counts()}")


async def started() -> None:
    """Return when what the gateway does once after its start is over: it would be counted."""
    await until(lambda: all(task.get_name() != "warm up" for task in asyncio.all_tasks()), "the start is over")


async def test_connections_leave_nothing_behind(gateway: RunningGateway) -> None:
    broadcaster = gateway.app.gateway.broadcaster
    sockets = gateway.server.server_state.connections
    params = connect_params(token=gateway.token)

    async def everything() -> None:
        async with gateway.client(device=DeviceIdentity.generate()) as client:
            await use(client)
        async with open_ready(gateway.url, params) as raw:
            raw.write(frame(request("sessions.list", {})))  # gone before it is answered
        async with open_raw(gateway.url) as raw:
            raw.write(frame(request("connect", params)))  # gone in its handshake
        async with open_raw(gateway.url) as raw:
            raw.write(frame("not json"))
            await raw.read_close()
        async with open_tcp(gateway.url) as raw:
            raw.write(upgrade_request(gateway.url)[:-2])  # never finished

    await everything()
    await until(lambda: not sockets)
    await started()
    before = Counts()
    for _ in range(30):
        await everything()
    await until(lambda: not sockets and not len(broadcaster), "all are forgotten")
    await until(lambda: Counts() == before, f"{before} again, not {Counts()}")
    assert not broadcaster._by_owner


async def test_many_idle_connections(gateway: RunningGateway) -> None:
    broadcaster = gateway.app.gateway.broadcaster
    params = connect_params(token=gateway.token, scopes=[])
    await started()
    before = Counts()
    async with AsyncExitStack() as stack:
        raws = [await stack.enter_async_context(open_ready(gateway.url, params)) for _ in range(CONNECTIONS)]
        assert len(broadcaster) == CONNECTIONS
        tasks = len(asyncio.all_tasks())
        assert tasks - before.tasks < 20  # a connection is no task
        async with gateway.client() as client:
            assert (await client.call("health"))["ok"]
        await raws[-1].send(frame(request("health", id="last")))
        assert (await raws[-1].read_response("last"))["ok"]
    await until(lambda: not len(broadcaster) and not gateway.server.server_state.connections, "all are forgotten")
    await until(lambda: Counts() == before, f"{before} again, not {Counts()}")


async def test_a_crowd_that_connects_at_once(gateway: RunningGateway) -> None:
    async def visit() -> None:
        async with gateway.client(device=DeviceIdentity.generate()) as client:
            assert (await client.call("health"))["ok"]

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(visit())
    await until(lambda: not len(gateway.app.gateway.broadcaster))
