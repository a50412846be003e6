"""What the tests of this package ask, and whom."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from skynet_agent.messages import Message, TextBlock, UserMessage
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_memory.secrets import Secret
from tests.support.model_server import ModelServer

LAB = ProviderRow(
    name="lab",
    api_key=Secret("key-of-lab"),
    models=(ModelInfo(id="mock-1", context_window=8192, price=Price(input=1_000_000, output=10_000_000)),),
)


def ask(text: str, model: str = "", history: Sequence[Message] = (), **options: object) -> ModelRequest:
    """A request whose last message is ``text``."""
    messages = [*history, UserMessage([TextBlock(text)], 1)]
    return ModelRequest(messages=messages, model=model, options=ModelOptions(**options))  # type: ignore[arg-type]


def row_of(server: ModelServer, **fields: object) -> ProviderRow:
    """``LAB`` at ``server``."""
    return replace(LAB, base_url=server.url, **fields)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, at most five seconds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - a real server announces nothing
            await asyncio.sleep(0.002)
