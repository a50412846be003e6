"""A v3 client for tests: as thin as possible, so that a test sees the frames themselves."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from skynet_protocol.connect import ClientInfo, ConnectAuth, ConnectParams
from skynet_protocol.device import DeviceIdentity

CLI_SCOPES = ("operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing")


class Refused(Exception):  # noqa: N818
    """A response with ``ok: false``."""

    def __init__(self, error: dict[str, Any], frame: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error
        self.frame = frame


class WireClient:
    """One connection. A reader task sorts frames: responses by id, events in the order they came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.frames: list[dict[str, Any]] = []
        self.hello: dict[str, Any] = {}
        self._responses: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for message in self.socket:
                frame = json.loads(message)
                self.frames.append(frame)
                if frame["type"] == "res":
                    self._responses.setdefault(frame["id"], asyncio.Queue()).put_nowait(frame)
                else:
                    self.events.append(frame)
                self._news.set()
        except ConnectionClosed:
            pass
        finally:
            self._news.set()

    async def aclose(self) -> None:
        await self.socket.close()
        await self._reader

    async def send_frame(self, method: str, params: Any = None, *, request_id: str | None = None) -> str:
        request_id = request_id or str(uuid.uuid4())
        frame = {"type": "req", "id": request_id, "method": method}
        if params is not None:
            frame["params"] = params
        await self.socket.send(json.dumps(frame))
        return request_id

    async def response(self, request_id: str, *, timeout: float = 40) -> dict[str, Any]:
        """The next response frame with this id."""
        queue = self._responses.setdefault(request_id, asyncio.Queue())
        async with asyncio.timeout(timeout):
            return await queue.get()

    async def call(self, method: str, params: Any = None, *, timeout: float = 40) -> Any:
        """The payload of the (first) response; raises Refused on an error."""
        frame = await self.response(await self.send_frame(method, params), timeout=timeout)
        if not frame["ok"]:
            raise Refused(frame["error"], frame)
        return frame["payload"]

    async def event(self, matches: Any, *, timeout: float = 40) -> dict[str, Any]:
        """The first event, seen or still to come, for which ``matches(event)`` is true."""
        async with asyncio.timeout(timeout):
            while True:
                for event in self.events:
                    if matches(event):
                        return event
                self._news.clear()
                await self._news.wait()
                if self._reader.done() and not any(matches(event) for event in self.events):
                    raise AssertionError(f"closed before the event came: {self.socket.close_code}")

    async def chat_end(self, run_id: str, *, timeout: float = 40) -> dict[str, Any]:
        """The chat event that ends the run."""
        event = await self.event(
            lambda e: e["event"] == "chat" and e["payload"]["runId"] == run_id and e["payload"]["state"] != "delta",
            timeout=timeout,
        )
        payload: dict[str, Any] = event["payload"]
        return payload

    async def closed(self, *, timeout: float = 40) -> tuple[int | None, str | None]:
        """Wait for the close; its code and reason."""
        async with asyncio.timeout(timeout):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason


def connect_params(
    *,
    token: str = "",
    device: DeviceIdentity | None = None,
    nonce: str = "",
    scopes: Sequence[str] = CLI_SCOPES,
    client_id: str = "cli",
    mode: str = "cli",
    role: str = "operator",
    caps: Sequence[str] = (),
    signed_at: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Params of ``connect`` as the real CLI sends them, with a proof of ``device`` if there is one."""
    auth = {name: fields.pop(name) for name in ("password", "device_token") if name in fields}
    client = fields.pop("client", None) or {"id": client_id, "version": "dev", "platform": "linux", "mode": mode}
    params = ConnectParams(
        min_protocol=3,
        max_protocol=3,
        client=msgspec.convert(client, ClientInfo),
        role=role,
        scopes=tuple(scopes),
        caps=tuple(caps),
        auth=ConnectAuth(token=token, **auth),
    )
    if device is not None:
        signed = int(time.time() * 1000) if signed_at is None else signed_at
        params = msgspec.structs.replace(params, device=device.prove(params, nonce=nonce, signed_at=signed))
    encoded: dict[str, Any] = json.loads(msgspec.json.encode(params))
    return encoded | fields


@asynccontextmanager
async def open_socket(url: str, **options: Any) -> AsyncIterator[WireClient]:
    """A connection whose handshake is the test's business."""
    async with connect(url, max_size=None, compression=None, **options) as socket:
        client = WireClient(socket)
        try:
            yield client
        finally:
            await client.aclose()


@asynccontextmanager
async def open_client(
    url: str, *, token: str = "", device: DeviceIdentity | None = None, headers: Any = None, **options: Any
) -> AsyncIterator[WireClient]:
    """A connection past its handshake. Raises Refused when it is refused."""
    async with open_socket(url, additional_headers=headers) as client:
        challenge = await client.event(lambda e: e["event"] == "connect.challenge")
        params = connect_params(token=token, device=device, nonce=challenge["payload"]["nonce"], **options)
        client.hello = await client.call("connect", params)
        yield client
