"""``history_search``."""

from dataclasses import replace

from skynet.tools import history
from skynet_agent.messages import TextBlock, UserMessage, encode_message
from skynet_memory.database import Database
from skynet_memory.ids import RunId, SessionKey
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from tests.skynet.tools.conftest import ADA, BOB, World

T0 = 1_795_000_000_000


async def say(database: Database, *texts: str, key: SessionKey = ADA.session_key) -> None:
    await SessionStore(database).get_or_create(ADA.user_id, key, at_ms=T0)
    for text in texts:
        payload = encode_message(UserMessage([TextBlock(text)], T0))
        await TranscriptStore(database).append(ADA.user_id, key, payload, at_ms=T0)


async def test_finds_what_was_said_with_what_was_around(world: World, database: Database) -> None:
    """SQ-086, SP-065."""
    await say(database, "one", "two", "the plumber comes on Friday", "four", "five", "six")
    await say(database, "pay the plumber", key=SessionKey("user:ada:agent:main:money"))
    found = await world.does("history_search", query="plumbers")
    assert "[conversation money, 2026-11-18 11:06 UTC]\nperson: pay the plumber" in found
    assert (
        "[this conversation, 2026-11-18 11:06 UTC]\n"
        "person: one\nperson: two\nperson: the plumber comes on Friday\nperson: four\nperson: five" in found
    )
    assert "six" not in found
    assert await world.does("history_search", query="electrician") == "nothing was said about electrician"


async def test_nobody_finds_what_another_said(world: World, database: Database) -> None:
    await say(database, "the plumber comes on Friday")
    assert await world.does("history_search", BOB, query="plumber") == "nothing was said about plumber"


async def test_a_question_does_not_find_itself(world: World, database: Database) -> None:
    asking = replace(ADA, run_id=RunId("asking"))
    await TurnStore(database).begin(
        owner=ADA.user_id,
        key=ADA.session_key,
        run_id=asking.run_id,
        kind="chat",
        payload=encode_message(UserMessage([TextBlock("what did I say about the plumber?")], T0)),
        now_ms=T0,
    )
    assert await world.does("history_search", asking, query="plumber") == "nothing was said about plumber"


async def test_results_are_bounded(world: World, database: Database) -> None:
    for n in range(40):
        await say(database, "lorem " + "x" * 3000, key=SessionKey(f"user:ada:agent:main:s{n}"))
    found = await world.does("history_search", query="lorem", limit=50)
    assert len(found) < history.ALL_CHARS + 200
    assert found.endswith(" more places were found: search for rarer words]")
    assert (await world.does("history_search", query="lorem")).count("[conversation") == history.DEFAULT_FOUND
