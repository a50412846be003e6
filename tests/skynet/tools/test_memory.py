"""``memory_learn``, ``memory_search`` and ``memory_forget``."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.tools import memory
from skynet_memory.database import Database
from skynet_memory.ids import UserId, now_ms
from skynet_memory.memory_types import NewMemory
from tests.skynet.tools.conftest import ADA, BOB, World

pytestmark = pytest.mark.usefixtures("database")


async def learn(world: World, key: str = "bike", value: str = "My bike is a blue Brompton", **more: object) -> str:
    return await world.does("memory_learn", **{"category": "fact", "key": key, "value": value, **more})


async def test_learns_finds_and_forgets(world: World) -> None:
    """SK-135, SP-062, SP-063."""
    assert await learn(world) == "remembered: bike: My bike is a blue Brompton (fact, confidence 0.8)"
    assert await world.does("memory_search", query="Brompton") == (
        "- bike: My bike is a blue Brompton (fact, confidence 0.8)"
    )
    assert await world.does("memory_forget", key="bike") == 'forgotten: "bike"'
    assert await world.does("memory_search", query="Brompton") == "nothing is remembered about Brompton"
    assert await world.fails("memory_forget", key="bike") == 'nothing is remembered as "bike"'


async def test_says_what_became_of_it(world: World) -> None:
    await learn(world, confidence=0.9)
    assert (await learn(world, confidence=0.9)).startswith("already remembered: ")
    assert (await learn(world, value="It is red now", confidence=0.9)).startswith("updated: bike: It is red now")
    kept = await learn(world, value="It may be green", inferred=True)
    assert kept.startswith("kept as it was, ")
    assert "It is red now" in kept
    refused = await world.fails("memory_learn", category="fact", key="mail", value="my password is hunter2secret")
    assert refused.startswith("not remembered: ")
    assert "hunter2secret" not in refused


async def test_how_sure_it_is_and_for_how_long(world: World) -> None:
    assert "inferred" in await learn(world, inferred=True)
    await learn(world, key="guest", value="Grandma stays with us", category="context", days=3)
    [found] = await world.remembered.memories.search(ADA.user_id, "grandma", now_ms=now_ms())
    assert found.memory.source == "user_said"
    assert found.memory.expires_at_ms is not None
    assert abs(found.memory.expires_at_ms - now_ms() - 3 * memory.DAY_MS) < 60_000
    [bike] = await world.remembered.memories.search(ADA.user_id, "bike", now_ms=now_ms())
    assert (bike.memory.confidence, bike.memory.source) == (0.5, "inferred")


async def test_without_words_it_tells_what_matters_most(world: World) -> None:
    assert await world.does("memory_search") == "nothing is remembered"
    for n in range(30):
        await world.remembered.memories.learn(
            ADA.user_id, NewMemory("fact", f"key{n}", f"number {n}", importance=n / 30), now_ms=now_ms()
        )
    lines = (await world.does("memory_search")).splitlines()
    assert len(lines) == memory.DEFAULT_FOUND
    assert lines[0].startswith("- key29: number 29")
    await learn(world, key="manner", value="Answer briefly", category="instruction")
    assert (await world.does("memory_search", category="instruction")).startswith("- manner: ")
    assert len((await world.does("memory_search", category="fact", limit=20)).splitlines()) == 20


async def test_nobody_finds_or_forgets_what_is_anothers(world: World) -> None:
    """SK-134."""
    await learn(world)
    assert await world.does("memory_search", BOB, query="bike") == "nothing is remembered about bike"
    assert await world.does("memory_search", BOB) == "nothing is remembered"
    assert await world.fails("memory_forget", BOB, key="bike") == 'nothing is remembered as "bike"'
    assert "Brompton" in await world.does("memory_search", query="bike")


async def test_in_a_room_it_is_the_rooms(world: World) -> None:
    """BA-264: what is asked in a room shows nothing of the one who asks."""
    await learn(world)
    room = replace(ADA, group=UserId("bob"))
    assert await world.does("memory_search", room) == "nothing is remembered"
    await world.does("memory_learn", room, category="fact", key="bins", value="Thursday")
    assert "Thursday" in await world.does("memory_search", BOB)


async def test_what_is_erased_is_written_down(world: World) -> None:
    await learn(world)
    await world.fails("memory_forget", key="car")
    await world.does("memory_forget", key="bike")
    assert world.recorded == [
        {"action": "memory.erased", "actor": "ada", "subject": "ada", "details": {"method": "memory_forget"}}
    ]


async def test_a_wrong_key_is_told_what_there_is(world: World) -> None:
    await learn(world, key="blue bike")
    assert await world.fails("memory_forget", key="bike") == 'nothing is remembered as "bike"; there is: "blue bike"'


async def test_results_are_bounded(world: World) -> None:
    await learn(world, value="word\n" + "x" * 1990)
    line = await world.does("memory_search", query="word")
    assert "\n" not in line
    assert len(line) < memory.VALUE_CHARS + 100


@pytest.mark.parametrize(
    "arguments",
    [
        {"category": "secret", "key": "a", "value": "b"},
        {"category": "fact", "key": "", "value": "b"},
        {"category": "fact", "key": "a", "value": "b" * 2001},
        {"category": "fact", "key": "a", "value": "b", "confidence": 2},
        {"category": "fact", "key": "a", "value": "b", "days": 0},
        {"key": "a", "value": "b"},
    ],
)
async def test_wrong_arguments(world: World, arguments: dict[str, object]) -> None:
    assert "arguments are wrong" in await world.fails("memory_learn", **arguments)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(min_size=1, max_size=50), value=st.text(min_size=1, max_size=50), query=st.text(max_size=50))
async def test_any_text_is_remembered_or_refused(
    world: World, database: Database, key: str, value: str, query: str
) -> None:
    answers = [
        await world.call("memory_learn", category="fact", key=key, value=value),
        await world.call("memory_search", query=query),
        await world.call("memory_forget", key=key),
    ]
    assert not any("reason of its own" in answer.text for answer in answers)
