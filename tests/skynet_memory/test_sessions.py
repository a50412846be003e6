import asyncio
import dataclasses
import sqlite3

import pytest

from skynet_memory.database import Database, Statements
from skynet_memory.errors import LabelInUse, SessionNotFound
from skynet_memory.ids import AgentId, SessionId, UserId
from skynet_memory.keys import InvalidSessionKey
from skynet_memory.sessions import (
    MAX_LISTED,
    SessionChanges,
    SessionQuery,
    SessionStore,
    list_statement,
    new_session,
    upsert,
)
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnRepeated, TurnStore
from tests.skynet_memory.support import T0, begin, finish, key, message, text_of, turn


@pytest.fixture
def sessions(store: Database) -> SessionStore:
    return SessionStore(store)


@pytest.fixture
def turns(store: Database) -> TurnStore:
    return TurnStore(store)


@pytest.fixture
def transcripts(store: Database) -> TranscriptStore:
    return TranscriptStore(store)


async def names(sessions: SessionStore, owner: UserId, query: SessionQuery | None = None) -> list[str]:
    return [row.name for row in await sessions.list(owner, query)]


class TestGetOrCreate:
    async def test_a_new_session(self, sessions: SessionStore, ada: UserId) -> None:
        session = await sessions.get_or_create(
            ada, key(ada, "x:y"), origin={"label": "tui"}, display_name="TUI", at_ms=T0
        )
        assert (session.key, session.owner, session.agent_id, session.name) == (key(ada, "x:y"), ada, "main", "x:y")
        assert (session.origin, session.display_name, session.settings) == ({"label": "tui"}, "TUI", {})
        assert (session.created_at_ms, session.updated_at_ms) == (T0, T0)
        assert (session.system_sent, session.aborted_last_run, session.context_tokens) == (False, False, None)
        assert await sessions.get(ada, session.key) == session
        assert await sessions.by_session_id(ada, session.session_id) == session

    async def test_many_at_once_are_one(self, sessions: SessionStore, ada: UserId) -> None:
        got = await asyncio.gather(*[sessions.get_or_create(ada, key(ada), at_ms=T0 + n) for n in range(50)])
        assert len({session.session_id for session in got}) == 1
        assert await sessions.count(ada) == 1
        stored = await sessions.get(ada, key(ada))
        assert stored is not None
        assert stored.updated_at_ms >= T0 + 49

    async def test_time_never_stands(self, sessions: SessionStore, ada: UserId) -> None:
        times = [
            (await sessions.get_or_create(ada, key(ada), at_ms=at)).updated_at_ms for at in (T0, T0, T0 - 9, T0 + 9)
        ]
        assert times == [T0, T0 + 1, T0 + 2, T0 + 9]

    async def test_refreshing_keeps_what_is_not_given(self, sessions: SessionStore, ada: UserId) -> None:
        await sessions.get_or_create(ada, key(ada), origin={"label": "a"}, display_name="A")
        session = await sessions.get_or_create(ada, key(ada))
        assert (session.origin, session.display_name) == ({"label": "a"}, "A")
        session = await sessions.get_or_create(ada, key(ada), origin={"surface": "b"}, display_name="B")
        assert (session.origin, session.display_name) == ({"surface": "b"}, "B")

    async def test_keys_that_are_none(self, sessions: SessionStore, ada: UserId, ben: UserId) -> None:
        with pytest.raises(InvalidSessionKey):
            await sessions.get_or_create(ada, "agent:main:main")  # type: ignore[arg-type]
        with pytest.raises(SessionNotFound):
            await sessions.get_or_create(ada, key(ben))
        assert await sessions.count(ada) == await sessions.count(ben) == 0


class TestList:
    async def test_newest_first_with_a_limit(self, sessions: SessionStore, ada: UserId) -> None:
        for n, name in enumerate("abcd"):
            await sessions.get_or_create(ada, key(ada, name), at_ms=T0 + n)
        await sessions.get_or_create(ada, key(ada, "b"), at_ms=T0 + 10)
        assert await names(sessions, ada) == ["b", "d", "c", "a"]
        assert await names(sessions, ada, SessionQuery(limit=2)) == ["b", "d"]
        assert await names(sessions, ada, SessionQuery(limit=0)) == []
        assert await names(sessions, ada, SessionQuery(limit=10**30)) == ["b", "d", "c", "a"]
        assert await names(sessions, ada, SessionQuery(active_since_ms=T0 + 3)) == ["b", "d"]

    async def test_filters(self, sessions: SessionStore, ada: UserId) -> None:
        await sessions.get_or_create(ada, key(ada, "plain"), at_ms=T0)
        await sessions.get_or_create(ada, key(ada, "other", agent="ops"), display_name="Über ÉTÉ", at_ms=T0 + 1)
        await sessions.patch(
            ada, key(ada, "kid"), SessionChanges(label="Garden", settings={"spawnedBy": key(ada, "plain")})
        )
        kid = await sessions.get(ada, key(ada, "kid"))
        assert kid is not None
        assert await names(sessions, ada, SessionQuery(agent_id=AgentId("ops"))) == ["other"]
        assert await names(sessions, ada, SessionQuery(label="Garden")) == ["kid"]
        assert await names(sessions, ada, SessionQuery(label="garden")) == []
        assert await names(sessions, ada, SessionQuery(spawned_by=key(ada, "plain"))) == ["kid"]
        for search in ("GARDEN", "arde", kid.session_id[:20].upper(), "agent:main:KID"):
            assert await names(sessions, ada, SessionQuery(search=search)) == ["kid"], search
        assert await names(sessions, ada, SessionQuery(search="über été")) == ["other"]
        assert await names(sessions, ada, SessionQuery(search="%")) == []
        assert await names(sessions, ada, SessionQuery(search="agent", agent_id=AgentId("ops"), limit=1)) == ["other"]

    async def test_search_sees_the_origin_label(self, sessions: SessionStore, ada: UserId) -> None:
        await sessions.get_or_create(ada, key(ada), origin={"label": "Living Room"})
        assert await names(sessions, ada, SessionQuery(search="living")) == ["main"]

    async def test_texts_only_when_asked_for(self, sessions: SessionStore, turns: TurnStore, ada: UserId) -> None:
        long = "please tell me all about the history of the very long title of this " * 3
        await turn(turns, ada, long)
        await turn(turns, ada, "second")
        [row] = await sessions.list(ada)
        assert (row.derived_title, row.last_message) == ("", "")
        [row] = await sessions.list(ada, SessionQuery(with_titles=True, with_last_message=True))
        assert row.derived_title.startswith("please tell me all about")
        assert len(row.derived_title) <= 60
        assert row.last_message == "re: second"

    async def test_a_page_costs_the_same_however_many_there_are(
        self, store: Database, sessions: SessionStore, ada: UserId, ben: UserId
    ) -> None:
        def fill(tx: Statements) -> None:
            for n in range(10_000):
                owner = ada if n % 2 else ben
                upsert(tx, new_session(owner, key(owner, f"s{n}", "ops" if n % 4 == 1 else "main"), T0 + n))

        await store.write(fill)
        queries = [
            SessionQuery(limit=50),
            SessionQuery(limit=50, with_titles=True, with_last_message=True),
            SessionQuery(limit=50, agent_id=AgentId("ops")),
            SessionQuery(limit=50, active_since_ms=T0 + 9_000),
            SessionQuery(limit=50, label="x"),
        ]
        for query in queries:
            sql, params = list_statement(ada, query)
            plan = [row["detail"] for row in await store.fetchall(f"EXPLAIN QUERY PLAN {sql}", params)]
            assert len(plan) == 1 or query.label, plan
            assert plan[0].startswith("SEARCH sessions USING INDEX sessions_"), plan
        rows = await sessions.list(ada, SessionQuery(limit=50))
        assert [row.name for row in rows] == [f"s{n}" for n in range(9_999, 9_899, -2)]
        assert len(await sessions.list(ada)) == MAX_LISTED

        assert await sessions.count(ada) == 5_000
        assert await sessions.count(ada, AgentId("ops")) == 2_500
        assert await sessions.count(ada, AgentId("none")) == 0
        assert await store.fetchall("SELECT 1 FROM session_counts WHERE owner = ?", (ada,)) != []

        # The plan says which index; the virtual machine's steps say that nothing behind the page is read
        def steps(limit: int, owner: UserId) -> int:
            connection = sqlite3.connect(store.path)
            connection.create_function("casefold", 1, str.casefold)
            count = 0

            def progress() -> int:
                nonlocal count
                count += 1
                return 0

            connection.set_progress_handler(progress, 1)
            sql, params = list_statement(owner, SessionQuery(limit=limit))
            connection.execute(sql, params).fetchall()
            connection.close()
            return count

        assert steps(50, ada) < 5_000


class TestPatch:
    async def test_creates_what_is_missing(self, sessions: SessionStore, ada: UserId) -> None:
        session = await sessions.patch(ada, key(ada), SessionChanges(settings={"thinkingLevel": "high"}))
        assert session.settings == {"thinkingLevel": "high"}
        assert await sessions.get(ada, key(ada)) == session

    async def test_changes_only_what_is_given(self, sessions: SessionStore, ada: UserId) -> None:
        before = await sessions.get_or_create(ada, key(ada), display_name="A", at_ms=T0)
        changes = SessionChanges(
            label="L", model="lab/m-1", display_name="D", settings={"thinkingLevel": "high", "nested": {"a": [1, None]}}
        )
        session = await sessions.patch(ada, key(ada), changes)
        assert (session.label, session.model, session.display_name) == ("L", "lab/m-1", "D")
        assert session.settings == {"thinkingLevel": "high", "nested": {"a": [1, None]}}
        assert session.updated_at_ms == before.updated_at_ms
        assert await sessions.patch(ada, key(ada), SessionChanges()) == session
        session = await sessions.patch(
            ada, key(ada), SessionChanges(label="", model="", settings={"thinkingLevel": None, "verboseLevel": "on"})
        )
        assert (session.label, session.model, session.display_name) == ("", "", "D")
        assert session.settings == {"nested": {"a": [1, None]}, "verboseLevel": "on"}

    async def test_labels_are_unique_to_a_person(self, sessions: SessionStore, ada: UserId, ben: UserId) -> None:
        await sessions.patch(ada, key(ada, "a"), SessionChanges(label="L"))
        with pytest.raises(LabelInUse, match="label already in use: L"):
            await sessions.patch(ada, key(ada, "b"), SessionChanges(label="L", model="x/y"))
        assert await sessions.get(ada, key(ada, "b")) is None
        await sessions.patch(ada, key(ada, "a"), SessionChanges(label="L"))
        await sessions.patch(ben, key(ben, "a"), SessionChanges(label="L"))
        assert [session.name for session in await sessions.by_label(ada, "L")] == ["a"]
        assert await sessions.by_label(ada, "") == []


class TestResetAndDelete:
    async def test_reset(
        self, sessions: SessionStore, turns: TurnStore, transcripts: TranscriptStore, ada: UserId
    ) -> None:
        await turn(turns, ada, "old")
        changes = SessionChanges(label="L", model="lab/m-2", settings={"thinkingLevel": "high"})
        before = await sessions.patch(ada, key(ada), changes)
        assert before.input_tokens > 0
        session = await sessions.reset(ada, key(ada), at_ms=T0 - 5)
        assert session.session_id != before.session_id
        assert session == dataclasses.replace(
            before,
            session_id=session.session_id,
            input_tokens=0,
            output_tokens=0,
            total_tokens=0,
            system_sent=False,
            updated_at_ms=before.updated_at_ms + 1,
        )
        assert await transcripts.history(ada, session.session_id, limit=10) == []
        old = await transcripts.history(ada, before.session_id, limit=10)
        assert [text_of(entry.payload) for entry in old] == ["old", "re: old"]
        await turn(turns, ada, "new")
        [row] = await sessions.list(ada, SessionQuery(with_titles=True))
        assert row.derived_title == "new"
        assert await sessions.by_session_id(ada, before.session_id) is None

    async def test_reset_creates_what_is_missing(self, sessions: SessionStore, ada: UserId) -> None:
        session = await sessions.reset(ada, key(ada))
        assert await sessions.get(ada, key(ada)) == session

    async def test_delete_takes_all_that_was_said(
        self, store: Database, sessions: SessionStore, turns: TurnStore, ada: UserId
    ) -> None:
        run_id, _ = await begin(turns, ada, "secret one")
        await finish(turns, ada, run_id)
        await sessions.reset(ada, key(ada))
        await turn(turns, ada, "secret two")
        await turn(turns, ada, "kept", name="other")
        assert await sessions.delete(ada, key(ada))
        assert not await sessions.delete(ada, key(ada))
        assert await names(sessions, ada) == ["other"]
        assert await sessions.count(ada) == 1
        left = await store.fetchall("SELECT payload FROM entries ORDER BY id")
        assert [text_of(row["payload"]) for row in left] == ["kept", "re: kept"]
        assert await store.fetchall("SELECT 1 FROM archived_transcripts UNION ALL SELECT 1 FROM erasing") == []
        again = await turns.begin(
            owner=ada, key=key(ada), run_id=run_id, kind="chat", payload=message("user", "x"), now_ms=T0
        )
        assert isinstance(again, TurnRepeated)
        assert again.response is None

    async def test_delete_may_keep_the_transcript(
        self, sessions: SessionStore, turns: TurnStore, transcripts: TranscriptStore, ada: UserId
    ) -> None:
        before = await turn(turns, ada, "kept")
        assert await sessions.delete(ada, key(ada), keep_transcript=True)
        assert await sessions.get(ada, key(ada)) is None
        assert len(await transcripts.history(ada, before.session_id, limit=10)) == 2

    async def test_deleted_text_leaves_the_file(
        self, store: Database, sessions: SessionStore, turns: TurnStore, ada: UserId
    ) -> None:
        await turn(turns, ada, "UNMISTAKABLE-" * 20)
        await sessions.delete(ada, key(ada))
        await store.backup(store.path.with_name("copy.db"))
        assert b"UNMISTAKABLE" not in store.path.with_name("copy.db").read_bytes()


async def test_version_grows_with_every_change_of_the_person(
    sessions: SessionStore, turns: TurnStore, transcripts: TranscriptStore, ada: UserId, ben: UserId
) -> None:
    seen = [sessions.version(ada)]

    async def step(change: object) -> None:
        await change  # type: ignore[misc]
        seen.append(sessions.version(ada))

    await step(sessions.get_or_create(ada, key(ada)))
    await step(sessions.patch(ada, key(ada), SessionChanges(label="x")))
    await step(begin(turns, ada, run_id="r"))
    await step(finish(turns, ada, "r"))  # type: ignore[arg-type]
    await step(transcripts.append(ada, key(ada), message("assistant", "injected")))
    await step(transcripts.truncate_view(ada, key(ada), 1))
    await step(sessions.reset(ada, key(ada)))
    await step(sessions.delete(ada, key(ada)))
    assert seen == sorted(set(seen))
    assert sessions.version(ben) == 0
    await sessions.delete(ada, key(ada))
    await sessions.list(ada)
    await sessions.by_session_id(ada, SessionId("none"))
    assert sessions.version(ada) == seen[-1]
