"""Listening: uvicorn with the gateway's socket class in place of its WebSocket protocol."""

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from skynet.gateway.connection import Gateway
from skynet.gateway.http_protocol import HttpProtocol
from skynet.gateway.socket import GatewaySocket

GRACE_S = 10
"""How long a stop waits for HTTP requests that are being answered."""
BACKLOG = 2048


class CannotListen(Exception):  # noqa: N818
    """The address is taken or not this machine's."""


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes any free one.

    Raises:
        CannotListen: with words for the person who started the gateway.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG, reuse_port=False)
    except OSError as exc:
        raise CannotListen(f"cannot listen on {host}:{port}: {_reason(exc)}") from exc


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop what uses it, or choose another with --port"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


class GatewayServer(uvicorn.Server):
    """uvicorn's server, told when it is ready."""

    def __init__(self, gateway: Gateway, http: ASGIApp, *, on_ready: Callable[[str], None] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                http,
                http=partial(HttpProtocol, limits=gateway.limits),  # type: ignore[arg-type]
                loop="none",  # the loop is made by whoever runs this
                ws=partial(GatewaySocket, gateway=gateway),  # type: ignore[arg-type]
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_S,
                timeout_keep_alive=75,
            )
        )
        self._on_ready = on_ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second SIGINT stops waiting. uvicorn's own would raise the signal again once it is done,
        which ends the process before the state is closed.
        """
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None and sockets and self.started:
            self._on_ready(url_of(sockets[0]))


def url_of(listener: socket.socket) -> str:
    """``ws://host:port`` of a listening socket, as a client on this machine would write it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (shown, not bound)
        host = "127.0.0.1"
    return f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop where there is one."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
