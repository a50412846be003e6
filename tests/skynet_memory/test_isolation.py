"""Nothing of one person is visible to another, through any method of any store."""

import pytest

from skynet_memory.database import Database
from skynet_memory.errors import RunNotOpen, SessionNotFound
from skynet_memory.ids import AgentId, RunId, UserId
from skynet_memory.sessions import SessionChanges, SessionQuery, SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnBegun, TurnStore
from skynet_memory.usage import UsageStore
from tests.skynet_memory.support import T0, begin, finish, key, message, turn, usage

FOREVER = 2**60


async def dump(store: Database, owner: UserId) -> list[tuple[object, ...]]:
    """All rows of a person, to see that nobody else's call changed them."""
    tables = ("sessions", "entries", "archived_transcripts", "dedupe", "usage", "session_counts")
    return [
        tuple(row)
        for table in tables
        for row in await store.fetchall(f"SELECT * FROM {table} WHERE owner = ?", (owner,))
    ]


async def test_nothing_of_ada_is_visible_to_ben(store: Database, ada: UserId, ben: UserId) -> None:
    sessions, transcripts = SessionStore(store), TranscriptStore(store)
    turns, spent = TurnStore(store), UsageStore(store)
    old = await turn(turns, ada, "ada's old words")
    await sessions.reset(ada, key(ada))
    run_id, begun = await begin(turns, ada, "ada's words")
    await finish(turns, ada, run_id, records=[usage(cost_microusd=5)])
    open_run, _ = await begin(turns, ada, "waiting", name="open")
    await sessions.patch(
        ada, key(ada), SessionChanges(label="hers", display_name="hers", settings={"spawnedBy": "hers"})
    )
    [first, second] = await transcripts.history(ada, begun.session.session_id, limit=10)
    before = await dump(store, ada)
    version = sessions.version(ada)

    assert await sessions.get(ben, key(ada)) is None
    assert await sessions.by_session_id(ben, begun.session.session_id) is None
    assert await sessions.by_session_id(ben, old.session_id) is None
    assert await sessions.by_label(ben, "hers") == []
    for query in (
        SessionQuery(with_titles=True, with_last_message=True),
        SessionQuery(search="her"),
        SessionQuery(label="hers"),
        SessionQuery(spawned_by="hers"),
        SessionQuery(agent_id=AgentId("main"), active_since_ms=0, limit=5),
    ):
        assert await sessions.list(ben, query) == []
    assert await sessions.count(ben) == await sessions.count(ben, AgentId("main")) == 0
    assert sessions.version(ben) == 0
    for refused in (
        sessions.get_or_create(ben, key(ada)),
        sessions.patch(ben, key(ada), SessionChanges(label="x")),
        sessions.reset(ben, key(ada)),
        transcripts.append(ben, key(ada), message("user", "x")),
        transcripts.truncate_view(ben, key(ada), 1),
        turns.begin(owner=ben, key=key(ada), run_id=RunId("x"), kind="chat", payload=None, now_ms=T0),
    ):
        with pytest.raises(SessionNotFound):
            await refused
    assert not await sessions.delete(ben, key(ada))
    for session_id in (begun.session.session_id, old.session_id):
        assert await transcripts.history(ben, session_id, limit=10, include_covered=True) == []
        assert await transcripts.history(ben, session_id, limit=10, before=second.id) == []
    assert await transcripts.tail(ben, [key(ada)], 10) == {}
    with pytest.raises(RunNotOpen):
        await finish(turns, ben, open_run)
    assert await turns.lookup(ben, "chat", open_run) is None
    assert await spent.daily(ben, 0, FOREVER) == []
    assert await spent.daily(ben, 0, FOREVER, key=key(ada)) == []
    assert (await spent.totals(ben, 0, FOREVER)).calls == 0

    # What Ben makes under the same names is his own
    mine = await turns.begin(
        owner=ben,
        key=key(ben),
        run_id=open_run,
        kind="chat",
        payload=message("user", "mine"),
        session_id=begun.session.session_id,
        now_ms=T0,
    )
    assert isinstance(mine, TurnBegun)
    assert mine.session.session_id == begun.session.session_id
    assert [entry.id for entry in await transcripts.history(ben, mine.session.session_id, limit=10)] == [mine.entry_id]
    await finish(turns, ben, open_run)
    await sessions.patch(ben, key(ben), SessionChanges(label="hers"))
    assert await sessions.delete(ben, key(ben))

    assert await dump(store, ada) == before
    assert sessions.version(ada) == version
    assert await transcripts.history(ada, begun.session.session_id, limit=10) == [first, second]
