"""``knowledge_write`` and ``knowledge_search``."""

import pytest

from skynet.tools import knowledge
from tests.skynet.tools.conftest import BOB, World

pytestmark = pytest.mark.usefixtures("database")


async def test_writes_finds_and_replaces(world: World) -> None:
    """SK-103."""
    text = "Hold the button for ten seconds, then wait."
    assert await world.does("knowledge_write", topic="Resetting the router", content=text, tags=["network"]) == (
        f'written: "Resetting the router", {len(text)} characters'
    )
    assert await world.does("knowledge_search", query="button") == f"## Resetting the router (network)\n{text}"
    await world.does("knowledge_write", topic="resetting the ROUTER", content="Pull the plug.")
    assert await world.does("knowledge_search", query="button") == "nothing was written down about button"
    assert "Pull the plug." in await world.does("knowledge_search", query="router")


async def test_nobody_finds_what_is_anothers(world: World) -> None:
    await world.does("knowledge_write", topic="Garden", content="Beans after May")
    assert await world.does("knowledge_search", BOB, query="beans") == "nothing was written down about beans"


async def test_secrets_are_refused(world: World) -> None:
    words = await world.fails("knowledge_write", topic="Mail", content="The password is hunter2secret")
    assert words.startswith("not remembered: ")
    assert "hunter2secret" not in words


async def test_results_are_bounded(world: World) -> None:
    for n in range(10):
        await world.does("knowledge_write", topic=f"Topic {n}", content=f"lorem {n} " * 800)
    assert (await world.does("knowledge_search", query="lorem")).count("## ") == knowledge.DEFAULT_FOUND
    found = await world.does("knowledge_search", query="lorem", limit=10)
    assert found.count("## ") == 10
    assert len(found) < knowledge.FOUND_CHARS + 1000


@pytest.mark.parametrize(
    "arguments", [{"topic": "a"}, {"topic": "", "content": "b"}, {"topic": "a", "content": "b" * 8001}]
)
async def test_wrong_arguments(world: World, arguments: dict[str, object]) -> None:
    assert "arguments are wrong" in await world.fails("knowledge_write", **arguments)
