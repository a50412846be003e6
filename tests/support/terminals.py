"""Terminals for tests: in the sandbox that is none and in bubblewrap's, and somebody who looks at them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from skynet.supervisor import Supervisor
from skynet_terminal.pty import Terminal
from skynet_terminal.sandbox.base import Profile, Sandbox
from skynet_terminal.sandbox.unconfined import Unconfined
from skynet_terminal.terminals import Terminals
from skynet_terminal.viewers import Chunk, Viewer

OWNER = "anna"


class Place:
    """Where a test opens terminals."""

    def __init__(self, terminals: Terminals, sandbox: Sandbox, folder: Path) -> None:
        self.terminals = terminals
        self.sandbox = sandbox
        self.profile = Profile(folder=folder)

    async def open(self, argv: Sequence[str], *, owner: str = OWNER, **more: Any) -> Terminal:
        launch = await self.sandbox.prepare(self.profile, argv, tty=True)
        return await self.terminals.create(owner, launch, **more)


@asynccontextmanager
async def place(folder: Path, sandbox: Sandbox | None = None, **more: Any) -> AsyncIterator[Place]:
    """Terminals whose commands have ``folder``."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240
    async with Supervisor() as tasks, Terminals(tasks, **more) as terminals:
        yield Place(terminals, sandbox or Unconfined(), folder)


class Watcher:
    """Reads all that a viewer is given, as a client that is fast enough."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.text = ""
        self.chunks: list[Chunk] = []
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        async for chunk in self.viewer:
            self.text += chunk.text
            self.chunks.append(chunk)

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def close(self) -> None:
        self.viewer.detach()
        await self._task


async def all_of(terminal: Terminal) -> str:
    """What it writes up to its end."""
    text, cursor = "", 0
    while True:
        chunk = await terminal.read(cursor, 30)
        text, cursor = text + chunk.text, chunk.cursor
        if chunk.ended:
            return text
