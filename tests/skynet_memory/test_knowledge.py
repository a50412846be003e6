from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet_memory.database import Database
from skynet_memory.errors import MemoryRefused
from skynet_memory.knowledge import OFTEN, KnowledgeStore
from skynet_memory.memories_schema import COMPONENT
from skynet_memory.migrations import migrate
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, COMPONENT])
        await add_person(db, ADA)
        await add_person(db, BEN)
        yield db


@pytest.fixture
def knowledge(db: Database) -> KnowledgeStore:
    return KnowledgeStore(db)


async def test_write_search_and_rewrite(knowledge: KnowledgeStore) -> None:
    """SK-103."""
    first = await knowledge.write(ADA, "Boiler", "The heating engineer is Mr. Frei", ["heating"], now_ms=T0)
    assert [hit.topic for hit in await knowledge.search(ADA, "engineers heating")] == [first]
    second = await knowledge.write(ADA, "boiler", "Serviced every autumn", ["home"], now_ms=T0 + 1)
    assert (second.id, second.created_at_ms, second.updated_at_ms) == (first.id, T0, T0 + 1)
    assert await knowledge.search(ADA, "engineer") == []
    assert await knowledge.get(ADA, "BOILER") == second
    assert [topic.topic for topic in await knowledge.list(ADA)] == ["boiler"]
    assert await knowledge.forget(ADA, "Boiler")
    assert not await knowledge.forget(ADA, "Boiler")
    assert await knowledge.get(ADA, "boiler") is None


async def test_topics_of_much_used_tools_are_hot(knowledge: KnowledgeStore) -> None:
    """SK-104."""
    for number in range(7):
        await knowledge.write(
            ADA, f"topic {number}", "text", ["write_file" if number % 2 else "read_file"], now_ms=T0 + number
        )
    await knowledge.write(ADA, "other", "text", ["never_used"])
    for _ in range(OFTEN - 1):
        await knowledge.count_tool(ADA, "read_file")
    assert await knowledge.hot(ADA) == []
    assert await knowledge.count_tool(ADA, "read_file") == OFTEN
    assert [topic.topic for topic in await knowledge.hot(ADA)] == ["topic 6", "topic 4", "topic 2", "topic 0"]
    for _ in range(OFTEN + 1):
        await knowledge.count_tool(ADA, "write_file")
    assert [topic.topic for topic in await knowledge.hot(ADA)] == [
        "topic 5",
        "topic 3",
        "topic 1",
        "topic 6",
        "topic 4",
    ]
    assert await knowledge.hot(BEN) == []


async def test_nothing_of_ada_reaches_ben(knowledge: KnowledgeStore) -> None:
    await knowledge.write(ADA, "plan", "a party", ["read_file"])
    mine = await knowledge.write(BEN, "plan", "a walk", ["walk"])
    for _ in range(OFTEN):
        await knowledge.count_tool(BEN, "read_file")
    assert await knowledge.search(BEN, "party") == await knowledge.hot(BEN) == []
    assert await knowledge.list(BEN) == [mine]
    assert await knowledge.forget(BEN, "plan")
    assert (await knowledge.get(ADA, "plan")) is not None
    assert (knowledge.version(ADA), knowledge.version(BEN)) == (1, 3)


@pytest.mark.parametrize(
    ("topic", "content", "tags", "reason"),
    [
        ("", "x", [], "the topic is empty"),
        ("x", "y" * 8001, [], "the content is 8,001 characters"),
        ("x", "y", ["t"] * 5 + [f"t{number}" for number in range(20)], "the tags are 21"),
        ("wifi", "password: hunter2", [], "secret"),
    ],
)
async def test_refusals_say_why(
    knowledge: KnowledgeStore, topic: str, content: str, tags: list[str], reason: str
) -> None:
    with pytest.raises(MemoryRefused, match=reason):
        await knowledge.write(ADA, topic, content, tags)
    assert await knowledge.list(ADA) == []


async def test_lists_are_paged_by_topic(knowledge: KnowledgeStore) -> None:
    for topic in ("c", "a", "b"):
        await knowledge.write(ADA, topic, "x")
    assert [topic.topic for topic in await knowledge.list(ADA, limit=2)] == ["a", "b"]
    assert [topic.topic for topic in await knowledge.list(ADA, limit=2, after="b")] == ["c"]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text())
async def test_no_query_is_an_error(knowledge: KnowledgeStore, query: str) -> None:
    await knowledge.write(ADA, "abc", "a b c")
    assert len(await knowledge.search(ADA, query)) <= 1
