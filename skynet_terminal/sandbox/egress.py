"""The only network of a sandboxed command: an HTTP proxy of the gateway that reaches the hosts of its profile.

A sandbox has a network namespace of its own, in which there is nothing. A Unix socket of the gateway is mounted into
it, one for each sandbox, so that the socket says who asks; a forwarder in there
(:mod:`~skynet_terminal.sandbox.egress_forwarder`) listens on 127.0.0.1, where clients look for a proxy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox.addresses import may_connect
from skynet_terminal.sandbox.base import PATH, Mount
from skynet_terminal.sandbox.egress_dial import Dialer, Resolve, resolve_by_system
from skynet_terminal.sandbox.egress_hosts import HostRules

log = logging.getLogger(__name__)

PORT = 3128
"""Where the forwarder listens in the sandbox."""
PORTS = frozenset({80, 443})
"""What can be connected to, unless a host is named with a port of its own."""
INSIDE = PurePosixPath("/run/skynet")
"""Where the sandbox sees what it needs for it."""

REFUSALS_TOLD = 10
"""Of one door, in ``REFUSALS_S``: a command that is refused again and again does not fill the log."""
REFUSALS_S = 60.0

_LONGEST_PATH = 107
"""Of a Unix socket's address (sun_path of unix(7), and a NUL)."""


class TaskOwner(Protocol):
    """Who owns tasks that outlive the call which starts them."""

    def start(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """What one door allows."""

    connections: int = 128
    """At the same time."""
    header_bytes: int = 65_536
    """Of a request's line and header fields, and of an answer's."""
    header_s: float = 30.0
    """For all of a request's line and header fields, from its first byte."""
    connect_s: float = 20.0
    """For finding a host's addresses and connecting to one of them."""
    idle_s: float = 300.0
    """Without a byte in either direction."""
    total_bytes: int | None = None
    """In both directions together, for as long as the door is open."""


class EgressProxy:
    """The doors of one gateway.

    Args:
        directory: of the sockets; no sandbox may see it. It is made, for the gateway's user alone.
        resolve: how addresses are found.
        may_reach: which addresses may be connected to; by default public ones of other machines.
        ports: what may be connected to on hosts that are named without a port.
    """

    def __init__(
        self,
        tasks: TaskOwner,
        *,
        directory: Path,
        resolve: Resolve = resolve_by_system,
        may_reach: Callable[[str], bool] = may_connect,
        ports: Collection[int] = PORTS,
        limits: EgressLimits | None = None,
    ) -> None:
        self._tasks = tasks
        self._directory = directory
        self._ports = frozenset(ports)
        self._limits = limits or EgressLimits()
        self._dialer = Dialer(resolve, may_reach, self._limits.connect_s)
        self._doors: set[Door] = set()
        self._is_cleared = False

    async def open(self, hosts: Sequence[str]) -> Door:
        """A way out to ``hosts``, for one sandbox: names, ``*.name`` for those below it, ``*`` for all that are
        public; ``name:port`` for another port than those of the web. Whoever opens it closes it.

        Raises:
            ValueError: one of them is no host.
            SandboxUnavailable: it cannot be made.
        """
        door = Door(self._tasks, self._directory, HostRules(hosts, self._ports), self._dialer, self._limits)
        door.on_close = self._doors.discard
        try:
            if not self._is_cleared:
                self._is_cleared = True
                await asyncio.to_thread(_clear, self._directory)
            await door.listen()
        except OSError as exc:
            raise SandboxUnavailable(f"no way out can be opened in {self._directory}: {exc.strerror or exc}") from exc
        self._doors.add(door)
        return door

    async def close(self) -> None:
        """Close all that are open."""
        for door in tuple(self._doors):
            await door.close()


class Door:
    """The way out of one sandbox, until it is closed.

    The sandbox has ``mounts`` and ``env``, and starts what ``argv_prefix`` gives instead of its command.
    """

    def __init__(
        self, tasks: TaskOwner, directory: Path, rules: HostRules, dialer: Dialer, limits: EgressLimits
    ) -> None:
        self.id = secrets.token_hex(8)
        self.socket_path = directory / f"{self.id}.sock"
        self.on_close: Callable[[Door], None] = lambda door: None
        self.rules = rules
        self.dialer = dialer
        self.limits = limits
        self.passed_bytes = 0
        """In both directions, by all of its connections."""
        self._tasks = tasks
        self._refused = 0
        self._refused_since_s = time.monotonic()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._interpreter, self._interpreter_mounts = _interpreter()

    @property
    def mounts(self) -> Sequence[Mount]:
        """What the sandbox has to see. No link is among the sources."""
        forwarder = Path(__file__).resolve().with_name("egress_forwarder.py")
        return (
            Mount(source=self.socket_path, target=INSIDE / "egress.sock"),
            Mount(source=forwarder, target=INSIDE / forwarder.name),
            *self._interpreter_mounts,
        )

    @property
    def env(self) -> Mapping[str, str]:
        """What tells programs to use it."""
        proxy, own = f"http://127.0.0.1:{PORT}", "localhost,127.0.0.1,::1"
        env = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": own}
        return {**env, **{name.lower(): value for name, value in env.items()}, "NODE_USE_ENV_PROXY": "1"}

    def argv_prefix(self, argv: Sequence[str], *, interpreter: str = "") -> Sequence[str]:
        """What to start in the sandbox to start ``argv`` with the proxy.

        Args:
            interpreter: a Python 3 as the sandbox sees it, where that has not the system of this machine.
        """
        forwarder, path = INSIDE / "egress_forwarder.py", INSIDE / "egress.sock"
        return (interpreter or self._interpreter, "-I", "-S", str(forwarder), str(PORT), str(path), *argv)

    async def listen(self) -> None:
        """
        Raises:
            OSError: it cannot.
        """
        from skynet_terminal.sandbox.egress_connection import BUFFER_BYTES  # only who has hosts needs HTTP

        listener = _listener(self.socket_path)
        try:
            self._server = await asyncio.start_unix_server(self._on_connection, sock=listener, limit=BUFFER_BYTES)
        except BaseException:
            listener.close()
            self.socket_path.unlink(missing_ok=True)
            raise

    async def close(self) -> None:
        """End its connections, and let no more in. Idempotent."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._tell_untold()
        self.on_close(self)
        self.socket_path.unlink(missing_ok=True)
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def count(self, size: int) -> bool:
        """Note that bytes were passed on; false if they were too many."""
        self.passed_bytes += size
        return self.limits.total_bytes is None or self.passed_bytes <= self.limits.total_bytes

    def log_refusal(self, words: str) -> None:
        """One line, or later one for all that are too many."""
        now_s = time.monotonic()
        if now_s - self._refused_since_s >= REFUSALS_S:
            self._tell_untold()
            self._refused, self._refused_since_s = 0, now_s
        self._refused += 1
        if self._refused <= REFUSALS_TOLD:
            log.info("egress %s: refused: %s", self.id, words)

    def _tell_untold(self) -> None:
        if self._refused > REFUSALS_TOLD:
            log.info("egress %s: refused %d more", self.id, self._refused - REFUSALS_TOLD)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from skynet_terminal.sandbox.egress_connection import Connection

        is_full = len(self._connections) >= self.limits.connections
        connection = Connection(self, reader, writer)
        try:
            task = self._tasks.start(connection.turn_away() if is_full else connection.run(), name=f"egress {self.id}")
        except RuntimeError:  # the owner is closing
            writer.transport.abort()
            return
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)


def _listener(path: Path) -> socket.socket:
    """
    Raises:
        OSError: it cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _clear(directory: Path) -> None:
    """Delete the sockets of a gateway that could not: those at which nobody listens."""
    with suppress(OSError):
        for path in directory.glob("*.sock"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, _address(path) as address:
                try:
                    probe.connect(address)
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """The address of a Unix socket there, however long the path is."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _interpreter() -> tuple[str, Sequence[Mount]]:
    """A Python 3 that sandboxes see: the system's, or the gateway's own, which then has to be mounted."""
    for directory in PATH.split(":"):
        program = Path(directory, "python3")
        with suppress(OSError):
            if os.access(program, os.X_OK) and program.resolve().is_relative_to("/usr"):
                return str(program), ()
    prefix = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(prefix / "bin" / version), (Mount(source=prefix, target=PurePosixPath(prefix)),)
