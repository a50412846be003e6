"""Every turn ends in an assistant message."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from skynet_agent.errors import BadRequest, StreamCut, UnknownModel
from skynet_agent.events import Finished, ModelEvent, Started, TextDelta
from skynet_agent.messages import TextBlock, ThinkingBlock, Usage, text_of
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from skynet_agent.turn import run_turn
from tests.skynet_agent.lab import ask, row_of, until
from tests.support.model_server import ModelServer

MakeRouter = Callable[..., Router]


async def run(router: Router, request: ModelRequest) -> tuple[list[ModelEvent], Finished]:
    events = [event async for event in run_turn(router, request)]
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    return events, events[-1]


async def test_a_turn(server: ModelServer, make_router: MakeRouter) -> None:
    events, finished = await run(make_router(row_of(server)), ask("think=hm say=hello you prompt=50 cached=20"))
    assert events[0] == Started("lab", "mock-1", "openai-completions")
    message = finished.message
    assert finished.error is None
    assert message.content == [ThinkingBlock("hm"), TextBlock("hello you")]
    assert (message.stop_reason, message.error_message) == ("stop", None)
    assert message.usage == Usage(30, 3, 20, 0, 53, cost_microusd=30 + 30 + 20)


async def test_a_failure_before_anything(server: ModelServer, make_router: MakeRouter) -> None:
    events, finished = await run(make_router(row_of(server)), ask("fail=400"))
    assert len(events) == 1
    assert isinstance(finished.error, BadRequest)
    message = finished.message
    assert (message.content, message.stop_reason, message.usage) == ([], "error", None)
    assert (message.provider, message.model, message.error_message) == (
        "lab",
        "mock-1",
        "lab: scripted failure 400 (HTTP 400)",
    )


async def test_a_failure_in_the_middle_keeps_the_text(server: ModelServer, make_router: MakeRouter) -> None:
    _, finished = await run(make_router(row_of(server)), ask("tokens=9 cut=3"))
    assert isinstance(finished.error, StreamCut)
    assert text_of(finished.message) == "w0 w1 w2"
    assert (finished.message.stop_reason, finished.message.error_message) == ("error", "lab: the answer broke off")


async def test_an_unknown_model(server: ModelServer, make_router: MakeRouter) -> None:
    _, finished = await run(make_router(row_of(server)), ask("hi", "gpt-9"))
    assert isinstance(finished.error, UnknownModel)
    assert finished.message.error_message == "unknown model 'gpt-9'; available: lab/mock-1"


@pytest.mark.parametrize("script", ["tokens=3 hang", "hang", "tokens=1000 delay=20"])
async def test_cancelling_closes_the_stream_and_leaves_the_draft(
    server: ModelServer, make_router: MakeRouter, script: str
) -> None:
    router = make_router(row_of(server))
    draft = router.draft()
    seen: list[ModelEvent] = []

    async def turn() -> None:
        async with aclosing(run_turn(router, ask(script), draft=draft)) as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - what was seen until the cancellation counts

    task = asyncio.create_task(turn())
    wanted = 0 if script == "hang" else 4
    await until(lambda: server.served == 1 and len(seen) >= wanted)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.disconnects == 1)
    message = draft.message("aborted", error_message="aborted")
    assert message.stop_reason == "aborted"
    assert text_of(message) == "".join(event.text for event in seen if isinstance(event, TextDelta))
    assert not any(isinstance(event, Finished) for event in seen)
    assert (message.provider, message.model) == ("lab", "mock-1")


@pytest.mark.parametrize("steps", range(1, 30))
async def test_cancelled_anywhere_the_next_turn_works(server: ModelServer, make_router: MakeRouter, steps: int) -> None:
    router = make_router(row_of(server))

    async def turn() -> None:
        async with aclosing(run_turn(router, ask("tokens=20"))) as events:
            async for _ in events:
                pass

    task = asyncio.create_task(turn())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    _, finished = await run(router, ask("tokens=20"))
    assert text_of(finished.message).endswith("w19")


async def test_leaving_at_the_end_keeps_the_connection(server: ModelServer, make_router: MakeRouter) -> None:
    """Also when the provider ends the body a little after the answer."""
    router = make_router(row_of(server))
    for _ in range(3):
        async with aclosing(run_turn(router, ask("tokens=3 split=30 delay=1"))) as events:
            async for event in events:
                if isinstance(event, Finished):
                    break
    assert (server.served, server.connected, server.disconnects) == (3, 1, 0)
