"""Scripted model servers, and routers that are closed after the test."""

from collections.abc import AsyncIterator, Callable

import pytest

from skynet_agent.providers import ProviderRow
from skynet_agent.router import Router
from tests.support.model_server import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def other() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def make_router() -> AsyncIterator[Callable[..., Router]]:
    """Routers that are closed after the test; they ask each model once, unless told otherwise."""
    made: list[Router] = []

    def make(*rows: ProviderRow, **settings: object) -> Router:
        made.append(Router(rows, **{"retries": 0, **settings}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for router in made:
        await router.aclose()
