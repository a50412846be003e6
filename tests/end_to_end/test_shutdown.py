"""The end of a gateway: every client is told why, then closed; nothing waits for those that do not listen."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from skynet_protocol.device import DeviceIdentity
from tests.support.client import WireClient, connect_params, open_socket
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.polling import until
from tests.support.raw_socket import close_frame, frame, open_raw, open_ready, request


async def stop(gateway: RunningGateway) -> None:
    """Tell the server to end, as a signal does."""
    gateway.server.should_exit = True


def kinds(client: WireClient) -> list[str]:
    return [received.get("event", received["type"]) for received in client.frames]


async def test_every_client_gets_the_event_and_then_the_close(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"scopes": []},
        {"client_id": "gateway-client", "mode": "ui"},
        {
            "role": "node",
            "client_id": "node-host",
            "mode": "node",
            "scopes": [],
            "device": DeviceIdentity.generate(),
        },
    ]
    async with running_gateway(tmp_path / "home") as gateway, asyncio.TaskGroup() as group:
        told = asyncio.Barrier(len(options) + 1)

        async def wait_for_the_end(chosen: dict[str, Any]) -> None:
            async with gateway.client(**chosen) as client:
                await told.wait()
                assert await client.closed() == (1012, "service restart")
                (shutdown,) = [event for event in client.events if event["event"] == "shutdown"]
                assert shutdown["payload"] == {"reason": "gateway stopping", "restartExpectedMs": None}
                numbers = [event["seq"] for event in client.events[1:]]
                assert numbers == list(range(1, len(numbers) + 1))
                assert client.frames[-1] is shutdown

        for chosen in options:
            group.create_task(wait_for_the_end(chosen))
        await told.wait()
        await stop(gateway)


async def test_a_client_in_its_handshake_is_closed_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway, open_socket(gateway.url) as client:
        await client.event(lambda event: event["event"] == "connect.challenge")
        await stop(gateway)
        assert await client.closed() == (1012, "service restart")
        assert kinds(client) == ["connect.challenge"]


async def test_clients_that_do_not_listen_do_not_hold_it_up(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        params = connect_params(token=gateway.token)
        async with (
            open_raw(gateway.url) as silent,
            open_ready(gateway.url, params, receive_buffer=8192) as full,
        ):
            connections = gateway.server.server_state.connections
            owner = gateway.app.gateway.broadcaster.all()[0].caller.user_id
            for _ in range(200):
                gateway.app.gateway.broadcaster.publish("presence", {"presence": "x" * 60_000}, owner=owner)
            await until(lambda: any(peer.buffered_bytes() for peer in connections))  # type: ignore[union-attr]
            started = time.monotonic()
            await stop(gateway)
            await until(lambda: not connections, "they are cut off")
            assert time.monotonic() - started < 8
            assert silent
            assert full


async def test_a_run_in_progress_does_not_hold_it_up(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway, gateway.client() as client:
        waiting = await client.send_frame("agent.wait", {"runId": "never", "timeoutMs": 60_000})
        await client.call("health")
        started = time.monotonic()
        await stop(gateway)
        assert (await client.closed())[0] == 1012
        assert waiting not in [received.get("id") for received in client.frames]
    assert time.monotonic() - started < 5


async def test_nobody_gets_in_any_more(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        url = gateway.url
        async with gateway.client() as client:
            await stop(gateway)
            await client.closed()
        with pytest.raises(OSError):
            async with open_raw(url):
                pass


async def test_what_is_asked_while_closing_is_not_answered(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        params = connect_params(token=gateway.token)
        async with open_ready(gateway.url, params) as raw:
            await stop(gateway)
            assert await raw.read_close() == (1012, "service restart")
            await raw.send(frame(request("health", id="late")) + close_frame(1012))
            assert b"late" not in await raw.read_to_end()
