"""What terminals write, sent to the connections that watch them, and never faster than they read."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET

from skynet.gateway.broadcast import Broadcaster
from skynet.supervisor import Supervisor
from skynet_memory.ids import ConnId
from skynet_protocol.frames import EncodedEvent
from skynet_protocol.terminal import TerminalExitEvent, TerminalOutputEvent

if TYPE_CHECKING:
    from skynet.gateway.connection import Connection
    from skynet_terminal.pty import Terminal

log = logging.getLogger(__name__)

MARK_BYTES = 32_768
"""Beyond so much that a client has not read, it gets nothing more. Less than what pauses its requests (64 KiB): who
types Ctrl-C into a flood is heard."""
FIRST_WAIT_S = 0.002
LONGEST_WAIT_S = 0.1


@dataclass(frozen=True, slots=True)
class _Watched:
    conn_id: ConnId
    terminal_id: str


class TerminalStreams:
    """One task for each connection and terminal that it watches. It waits while the client does not read; the terminal
    is not read meanwhile, and its program waits in the end too."""

    def __init__(self, broadcaster: Broadcaster, tasks: Supervisor) -> None:
        self._broadcaster = broadcaster
        self._tasks = tasks
        self._running: dict[_Watched, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, conn_id: ConnId, terminal: Terminal, cursor: int | None) -> bool:
        """Send what the terminal has written since ``cursor``, or a replay of what is kept, and go on with what it
        writes. In the place of what this connection had of this terminal before. False for a connection that is gone.
        """
        connection = self._broadcaster.get(conn_id)
        if connection is None:
            return False
        self.stop(conn_id, terminal.id)
        watched = _Watched(conn_id, terminal.id)
        task = self._tasks.start(self._watch(connection, terminal, cursor), name=f"show terminal {terminal.id}")
        self._running[watched] = task
        task.add_done_callback(lambda done: self._forget(watched, done))
        return True

    def stop(self, conn_id: ConnId, terminal_id: str) -> bool:
        """Send no more; False where nothing was sent."""
        task = self._running.pop(_Watched(conn_id, terminal_id), None)
        return task is not None and task.cancel()

    def _forget(self, watched: _Watched, task: asyncio.Task[None]) -> None:
        if self._running.get(watched) is task:
            del self._running[watched]

    async def _watch(self, connection: Connection, terminal: Terminal, cursor: int | None) -> None:
        if self._broadcaster.get(connection.conn_id) is not connection:
            return
        # Closing the connection, for whatever reason, cancels this task
        await connection.while_open(self._send_all(connection, terminal, cursor))

    async def _send_all(self, connection: Connection, terminal: Terminal, cursor: int | None) -> None:
        async with terminal.attach(cursor) as viewer:
            async for chunk in viewer:
                if chunk.text or chunk.dropped:
                    event = TerminalOutputEvent(terminal_id=terminal.id, data=chunk.text, cursor=chunk.cursor)
                    event.dropped = chunk.dropped or UNSET
                    await _room(connection)
                    connection.send_event(EncodedEvent("terminal.output", event).with_seq, droppable=False)
                if chunk.ended:
                    break
        end = TerminalExitEvent(terminal_id=terminal.id, exit_code=terminal.exit_code, signal=terminal.signal or None)
        connection.send_event(EncodedEvent("terminal.exit", end).with_seq, droppable=False)


async def _room(connection: Connection) -> None:
    """Return when the client has read most of what it was sent, and everybody else has had a turn."""
    await asyncio.sleep(0)
    wait_s = FIRST_WAIT_S
    while not connection.has_room(MARK_BYTES):
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
