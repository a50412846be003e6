"""A v3 WebSocket client of the gateway: the same protocol that OpenClaw's command line speaks."""

from __future__ import annotations

import asyncio
import platform
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from skynet.cli.errors import CliError, Exit
from skynet.cli.identity import load_identity
from skynet.cli.target import Target
from skynet.config import is_loopback
from skynet.supervisor import Supervisor
from skynet.version import VERSION
from skynet_memory.ids import now_ms
from skynet_protocol.connect import ClientInfo, ConnectAuth, ConnectParams
from skynet_protocol.device import DeviceIdentity
from skynet_protocol.errors import PROTOCOL_VERSION
from skynet_protocol.scopes import Scope

MAY_NOT = "what you may: skynet users show; a token may have less than its person"
_FIELD = re.compile(r"^at /(\w+): ")
"""How the gateway names a parameter; a person knows it as an option."""
SCOPES: tuple[str, ...] = (Scope.ADMIN, Scope.READ, Scope.WRITE, Scope.APPROVALS, Scope.PAIRING)
"""What this client asks for; a person who may do less is granted less."""

T = TypeVar("T")

MAX_FRAME_BYTES = 26_214_400
CHALLENGE_TIMEOUT_S = 5.0
OPEN_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
UNNAMED_HOST = "skynet"
"""What this client is called on a machine without a name."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the gateway; see OPENCLAW-V3 section 9 for the payloads."""

    name: str
    payload: Any


class GatewayUnreachable(CliError):  # noqa: N818
    """Nothing answers, the connection ended, or an answer did not come in time."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, exit_code=Exit.UNREACHABLE, code="gateway_unreachable", hint=hint)


class ConnectRefused(CliError):  # noqa: N818
    """The gateway answers, but does not let this client in."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message, exit_code=Exit.NOT_ALLOWED, code=code, hint=hint)


class RequestFailed(CliError):  # noqa: N818
    """The gateway answered a request with an error; ``details`` is what it adds."""

    def __init__(self, message: str, *, code: str, details: Any = None, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.details = details


class _Frame(msgspec.Struct):
    """Any frame from the gateway."""

    type: str
    id: str = ""
    ok: bool = False
    payload: Any = None
    error: dict[str, Any] | None = None
    event: str = ""


class _RequestFrame(msgspec.Struct, tag_field="type", tag="req"):
    id: str
    method: str
    params: Any


_decode = msgspec.json.Decoder(_Frame).decode


@asynccontextmanager
async def open_client(target: Target, *, caps: Sequence[str] = ()) -> AsyncIterator[GatewayClient]:
    """A connection that is let in; closed, with all that waits on it failed, when the block is left.

    Raises:
        GatewayUnreachable: nothing listens there, or it speaks something else.
        ConnectRefused: the gateway refused this client.
    """
    socket = await _open_socket(target)
    async with socket, Supervisor() as tasks:
        identity = await asyncio.to_thread(load_identity, target.home)
        hello = await _shake_hands(socket, target, identity, caps)
        client = GatewayClient(socket, target, hello)
        tasks.start(client.read(), name="read the gateway's frames")
        try:
            yield client
        finally:
            client.stop_watching()


async def _open_socket(target: Target) -> ClientConnection:
    host = urlsplit(target.url).hostname or ""
    try:
        return await connect(
            target.url,
            proxy=None if is_loopback(host) else True,
            compression=None,
            max_size=MAX_FRAME_BYTES,
            ping_interval=None,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=1,
        )
    except (OSError, InvalidHandshake, EOFError, TimeoutError) as exc:
        reason = "refused" if isinstance(exc, ConnectionRefusedError) else str(exc) or type(exc).__name__
        if target.is_local and isinstance(exc, ConnectionRefusedError):
            message, hint = f"the gateway is not running at {target.url}", "start it with: skynet gateway run"
        else:
            message, hint = (
                f"cannot reach a gateway at {target.url}: {reason}",
                "is the address right, and is it running?",
            )
        raise GatewayUnreachable(message, hint=hint) from exc


async def _shake_hands(
    socket: ClientConnection, target: Target, identity: DeviceIdentity, caps: Sequence[str]
) -> dict[str, Any]:
    """Challenge, ``connect``, hello-ok."""
    try:
        async with asyncio.timeout(CHALLENGE_TIMEOUT_S):
            challenge = _decode(await socket.recv())
            if challenge.event != "connect.challenge":
                raise GatewayUnreachable(f"{target.url} is no gateway: no challenge came")
            params = _connect_params(target, identity, challenge.payload["nonce"], caps)
            request_id = str(uuid.uuid4())
            await socket.send(msgspec.json.encode(_RequestFrame(request_id, "connect", params)).decode())
            answer = _decode(await socket.recv())
    except TimeoutError:
        raise GatewayUnreachable(f"{target.url} did not answer the handshake in {CHALLENGE_TIMEOUT_S:.0f} s") from None
    except ConnectionClosed as exc:
        raise GatewayUnreachable(f"{target.url} closed the connection: {_close_text(exc)}") from exc
    except (msgspec.DecodeError, KeyError, TypeError) as exc:
        raise GatewayUnreachable(f"{target.url} is no gateway: it sent something else") from exc
    if not answer.ok:
        raise _refused(answer.error or {}, target)
    if not isinstance(answer.payload, dict) or answer.payload.get("type") != "hello-ok":
        raise GatewayUnreachable(f"{target.url} is no gateway: it answered something else")
    return answer.payload


def _connect_params(target: Target, identity: DeviceIdentity, nonce: str, caps: Sequence[str]) -> ConnectParams:
    params = ConnectParams(
        min_protocol=PROTOCOL_VERSION,
        max_protocol=PROTOCOL_VERSION,
        client=ClientInfo(
            id="cli",
            version=VERSION,
            platform=sys.platform,
            mode="cli",
            display_name=platform.node() or UNNAMED_HOST,
            instance_id=str(uuid.uuid4()),
        ),
        scopes=SCOPES,
        caps=tuple(caps),
        auth=ConnectAuth(token=target.token.reveal(), password=target.password.reveal()),
    )
    proof = identity.prove(params, nonce=nonce, signed_at=now_ms())
    return msgspec.structs.replace(params, device=proof)


def _refused(error: dict[str, Any], target: Target) -> CliError:
    message = str(error.get("message") or "refused")
    details = error.get("details")
    details = details if isinstance(details, dict) else {}
    code = str(details.get("code") or error.get("code") or "refused")
    if code == "PAIRING_REQUIRED":
        hint = "approve this device on the gateway's machine: skynet devices list, then skynet devices approve "
        return ConnectRefused(message, code=code, hint=hint + str(details.get("requestId") or "ID"))
    if code.startswith(("AUTH_TOKEN", "AUTH_PASSWORD")):
        message = message.partition(" (")[0]  # what follows names a setting of OpenClaw's own client
    if code.startswith("AUTH_PASSWORD"):
        return ConnectRefused(message, code=code, hint="give the gateway's password with --password")
    where = "in gateway.auth.token or the file gateway.token under the state directory" if target.is_local else ""
    hint = "give the gateway's token with --token" + (f"; the local one is {where}" if where else "")
    return ConnectRefused(message, code=code, hint=hint if code.startswith("AUTH_") else "")


class GatewayClient:
    """An open connection. Made by :func:`open_client`.

    Args:
        socket: connected, with the handshake done.
        target: what it is connected to.
        hello: the payload of hello-ok.
    """

    def __init__(self, socket: ClientConnection, target: Target, hello: dict[str, Any]) -> None:
        self.target = target
        self.hello = hello
        self._socket = socket
        self._waiting: dict[str, asyncio.Future[_Frame]] = {}
        self._two_phase: set[str] = set()
        self._expected: set[asyncio.Future[Any]] = set()
        self._listeners: list[Callable[[Event], None]] = []
        self._failure: GatewayUnreachable | None = None
        policy = hello.get("policy") or {}
        self._tick_timeout_s = 2 * max(int(policy.get("tickIntervalMs") or 30_000), 1000) / 1000
        self._watchdog = asyncio.get_running_loop().call_later(self._tick_timeout_s, self._no_tick)

    async def request(self, method: str, params: object = None, *, timeout_s: float | None = REQUEST_TIMEOUT_S) -> Any:
        """Call a method and return its payload.

        Raises:
            RequestFailed: the gateway answered with an error.
            GatewayUnreachable: the connection ended, or no answer came within ``timeout_s``.
        """
        return await self._call(method, params, timeout_s, is_two_phase=False)

    async def request_final(self, method: str, params: object, *, timeout_s: float | None = None) -> Any:
        """Call a method that answers twice, and return its second payload; raises as :meth:`request` does.

        A first answer that is not ``status: accepted`` counts as the final one (OPENCLAW-V3 7.3).
        """
        return await self._call(method, params, timeout_s, is_two_phase=True)

    def listen(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back for every event from now on, in order; returns what ends it. The callback must neither block nor
        raise."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def expect(self, select: Callable[[Event], T | None]) -> asyncio.Future[T]:
        """The first thing that ``select`` makes of an event from now on; fails when the connection ends."""
        found: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def look(event: Event) -> None:
            value = select(event)
            if value is not None and not found.done():
                found.set_result(value)

        def forget(_: asyncio.Future[T]) -> None:
            self._expected.discard(found)
            stop()

        stop = self.listen(look)
        self._expected.add(found)
        found.add_done_callback(forget)
        if self._failure is not None:
            found.set_exception(self._failure)
        return found

    async def _call(self, method: str, params: object, timeout_s: float | None, *, is_two_phase: bool) -> Any:
        if self._failure is not None:
            raise self._failure
        request_id = str(uuid.uuid4())
        answer: asyncio.Future[_Frame] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        if is_two_phase:
            self._two_phase.add(request_id)
        try:
            async with asyncio.timeout(timeout_s):
                frame = _RequestFrame(request_id, method, {} if params is None else params)
                await self._socket.send(msgspec.json.encode(frame).decode())
                result = await answer
        except TimeoutError:
            raise GatewayUnreachable(f"the gateway did not answer {method} in {timeout_s:g} s") from None
        except ConnectionClosed as exc:
            raise self._failure or GatewayUnreachable(_lost(_close_text(exc))) from exc
        finally:
            self._waiting.pop(request_id, None)
            self._two_phase.discard(request_id)
        if result.ok:
            return result.payload
        error = result.error or {}
        details = error.get("details")
        code = details.get("code") if isinstance(details, dict) else None
        message = str(error.get("message") or f"{method} failed")
        hint = MAY_NOT if message.startswith(("missing scope: ", "not permitted: ")) else ""
        message = _FIELD.sub(r"\1: ", message.removeprefix(f"invalid {method} params: "))
        raise RequestFailed(message, code=str(code or error.get("code") or ""), details=details, hint=hint)

    async def read(self) -> None:
        """Take in frames until the connection ends; run by :func:`open_client`."""
        reason = "the gateway closed the connection"
        try:
            async for data in self._socket:
                try:
                    frame = _decode(data)
                except msgspec.DecodeError:
                    continue  # as OpenClaw's clients do with frames that are none
                self._take(frame)
            reason = _closed_by(self._socket)
        except ConnectionClosed as exc:
            reason = _close_text(exc)
        finally:
            self._fail(GatewayUnreachable(_lost(reason)))

    def stop_watching(self) -> None:
        self._watchdog.cancel()

    def _take(self, frame: _Frame) -> None:
        if frame.type == "res":
            is_interim = frame.ok and isinstance(frame.payload, dict) and frame.payload.get("status") == "accepted"
            answer = self._waiting.get(frame.id)
            if answer is not None and not answer.done() and not (is_interim and frame.id in self._two_phase):
                answer.set_result(frame)
        elif frame.type == "event":
            if frame.event == "tick":
                self._watchdog.cancel()
                loop = asyncio.get_running_loop()
                self._watchdog = loop.call_later(self._tick_timeout_s, self._no_tick)
            event = Event(frame.event, frame.payload)
            for callback in tuple(self._listeners):
                callback(event)

    def _no_tick(self) -> None:
        """The gateway is silent: it hangs, or the network is gone (OPENCLAW-V3 1.4)."""
        self._fail(GatewayUnreachable(_lost(f"no sign of life for {self._tick_timeout_s:g} s")))
        self._socket.transport.abort()

    def _fail(self, failure: GatewayUnreachable) -> None:
        self._failure = self._failure or failure
        for answer in (*self._waiting.values(), *self._expected):
            if not answer.done():
                answer.set_exception(self._failure)
        self.stop_watching()


def _lost(reason: str) -> str:
    return f"the connection to the gateway was lost: {reason}"


def _close_text(exc: ConnectionClosed) -> str:
    if exc.rcvd is None:
        return "no close frame"
    return f"{exc.rcvd.code} {exc.rcvd.reason}".strip()


def _closed_by(socket: ClientConnection) -> str:
    return f"{socket.close_code} {socket.close_reason or ''}".strip()
