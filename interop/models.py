"""The scripted model server, on a loop and a thread of its own, so that tests can ask it what it was sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.support.model_server import ModelServer

T = TypeVar("T")


def last_user_text(body: dict[str, Any]) -> str:
    """The text of the last user message of a request."""
    for message in reversed(body["messages"]):
        if message["role"] == "user":
            content = message["content"]
            return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return ""


class Models:
    """What tests may ask of the running server."""

    def __init__(self, server: ModelServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self.url = server.url

    def requests(self, text: str) -> list[dict[str, Any]]:
        """The bodies of the chat requests so far whose last user message has ``text``, oldest first."""
        return [body for body in self._ask(lambda: list(self._server.bodies)) if text in last_user_text(body)]

    def disconnects(self) -> int:
        """How many clients went away before their answer was complete."""
        return self._ask(lambda: self._server.disconnects)

    def _ask(self, question: Callable[[], T]) -> T:
        async def ask() -> T:
            return question()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(10)


@contextmanager
def running_models() -> Iterator[Models]:
    """The server, listening on a free port of loopback while the block lasts."""
    started = threading.Event()
    found: list[Models] = []
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        async with ModelServer() as server:
            found.append(Models(server, loop))
            stop.append(lambda: loop.call_soon_threadsafe(done.set))
            started.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="model server")
    thread.start()
    try:
        assert started.wait(10), "the model server did not start"
        yield found[0]
    finally:
        for each in stop:
            each()
        thread.join(10)
