import asyncio
import json

import pytest

from skynet_memory.database import Database, Statements
from skynet_memory.errors import RunNotOpen, SessionNotFound, StorageUnavailable
from skynet_memory.ids import RunId, SessionId, UserId
from skynet_memory.keys import InvalidSessionKey
from skynet_memory.sessions import SessionQuery, SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import DEDUPE_MS, INTERRUPTED, Interrupted, TurnBegun, TurnRepeated, TurnStore
from tests.skynet_memory.support import T0, begin, finish, key, message, said, text_of, turn, usage


@pytest.fixture
def turns(store: Database) -> TurnStore:
    return TurnStore(store)


async def texts(store: Database, owner: UserId, session_id: SessionId) -> list[str]:
    entries = await TranscriptStore(store).history(owner, session_id, limit=100)
    return [text_of(entry.payload) for entry in entries]


async def test_a_turn(store: Database, turns: TurnStore, ada: UserId) -> None:
    run_id, begun = await begin(turns, ada, "hello", origin={"label": "tui"}, display_name="TUI")
    assert begun.session.origin == {"label": "tui"}
    assert begun.session.display_name == "TUI"
    records = [usage(10, 5, cost_microusd=7, cache_read=100), usage(20, 6, cache_read=110, cache_write=3)]
    session = await turns.finish(
        owner=ada,
        kind="chat",
        run_id=run_id,
        entries=[said("assistant", "one"), said("assistant", "two")],
        usage=records,
        status="ok",
        response=b"{}",
        model="m-1",
        provider="lab",
        context_tokens=1000,
        now_ms=T0,
    )
    assert session.session_id == begun.session.session_id
    assert (session.input_tokens, session.output_tokens, session.cache_read, session.cache_write) == (30, 11, 210, 3)
    assert session.total_tokens == 20 + 110 + 3
    assert (session.last_model, session.last_provider, session.context_tokens) == ("m-1", "lab", 1000)
    assert (session.system_sent, session.aborted_last_run) == (True, False)
    assert session.updated_at_ms > begun.session.updated_at_ms == T0
    assert await texts(store, ada, session.session_id) == ["hello", "one", "two"]
    assert await SessionStore(store).get(ada, key(ada)) == session
    [row] = await SessionStore(store).list(ada, SessionQuery(with_titles=True, with_last_message=True))
    assert (row.derived_title, row.last_message) == ("hello", "two")


async def test_turns_follow_each_other(store: Database, turns: TurnStore, ada: UserId) -> None:
    first = await turn(turns, ada, "a", at_ms=T0)
    second = await turn(turns, ada, "b", at_ms=T0)
    assert second.session_id == first.session_id
    assert second.updated_at_ms > first.updated_at_ms
    assert await texts(store, ada, second.session_id) == ["a", "re: a", "b", "re: b"]


async def test_a_turn_without_an_entry_of_the_person(store: Database, turns: TurnStore, ada: UserId) -> None:
    run_id, begun = await begin(turns, ada, None)
    assert begun.entry_id is None
    session = await turns.finish(
        owner=ada, kind="chat", run_id=run_id, entries=[], usage=[], status="ok", response=b"x", now_ms=T0
    )
    assert await texts(store, ada, session.session_id) == []
    assert (session.total_tokens, session.last_model, session.context_tokens) == (0, "", None)


async def test_aborted(turns: TurnStore, ada: UserId) -> None:
    run_id, _ = await begin(turns, ada)
    assert (await finish(turns, ada, run_id, status="aborted")).aborted_last_run
    assert not (await turn(turns, ada)).aborted_last_run


async def test_bad_keys(turns: TurnStore, ada: UserId, ben: UserId) -> None:
    values = {"run_id": RunId("r"), "kind": "chat", "payload": message("user", "x"), "now_ms": T0}
    with pytest.raises(InvalidSessionKey):
        await turns.begin(owner=ada, key="main", **values)  # type: ignore[arg-type]
    with pytest.raises(SessionNotFound):
        await turns.begin(owner=ada, key=key(ben), **values)  # type: ignore[arg-type]


class TestRepeats:
    async def again(
        self, turns: TurnStore, owner: UserId, run_id: str, at_ms: int, name: str = "main", kind: str = "chat"
    ) -> TurnBegun | TurnRepeated:
        return await turns.begin(
            owner=owner,
            key=key(owner, name),
            run_id=RunId(run_id),
            kind=kind,
            payload=message("user", "again"),
            now_ms=at_ms,
        )

    async def test_a_repeated_key_writes_nothing(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        run_id, begun = await begin(turns, ada, "once", run_id="r")
        before = await store.fetchall("SELECT * FROM sessions")
        running = await self.again(turns, ada, "r", T0 + 5, name="other")
        assert running == TurnRepeated(
            status="running", response=None, started_at_ms=T0, ended_at_ms=None, session_key=key(ada)
        )
        assert [tuple(row) for row in await store.fetchall("SELECT * FROM sessions")] == [tuple(row) for row in before]
        assert await texts(store, ada, begun.session.session_id) == ["once"]

        await finish(turns, ada, run_id, at_ms=T0 + 7)
        done = await self.again(turns, ada, "r", T0 + DEDUPE_MS - 1)
        assert done == TurnRepeated(
            status="ok",
            response=b'{"status":"ok"}',
            started_at_ms=T0,
            ended_at_ms=T0 + 7,
            session_key=key(ada),
        )
        assert await texts(store, ada, begun.session.session_id) == ["once", "answer"]

    async def test_keys_are_a_persons_and_a_kinds_own(self, turns: TurnStore, ada: UserId, ben: UserId) -> None:
        await begin(turns, ada, run_id="r")
        assert isinstance(await self.again(turns, ben, "r", T0), TurnBegun)
        assert isinstance(await self.again(turns, ada, "r", T0, kind="agent"), TurnBegun)

    async def test_after_a_day_a_key_is_new(self, turns: TurnStore, ada: UserId) -> None:
        run_id, _ = await begin(turns, ada, run_id="r")
        assert isinstance(await self.again(turns, ada, "r", T0 + DEDUPE_MS), TurnRepeated)  # it still runs
        await finish(turns, ada, run_id)
        assert isinstance(await self.again(turns, ada, "r", T0 + DEDUPE_MS), TurnBegun)
        await finish(turns, ada, run_id, at_ms=T0 + DEDUPE_MS)

    async def test_many_at_once_begin_once(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        results = await asyncio.gather(*[self.again(turns, ada, "r", T0) for _ in range(20)])
        begun = [result for result in results if isinstance(result, TurnBegun)]
        assert len(begun) == 1
        assert await texts(store, ada, begun[0].session.session_id) == ["again"]

    async def test_lookup(self, turns: TurnStore, ada: UserId, ben: UserId) -> None:
        await turns.begin(
            owner=ada, key=key(ada), run_id=RunId("r"), kind="chat", payload=None, now_ms=(2**43)
        )  # in the far future, so that it never expires here
        found = await turns.lookup(ada, "chat", RunId("r"))
        assert found is not None
        assert found.status == "running"
        assert await turns.lookup(ben, "chat", RunId("r")) is None
        assert await turns.lookup(ada, "agent", RunId("r")) is None
        await begin(turns, ada, run_id="old", at_ms=0)
        assert await turns.lookup(ada, "chat", RunId("old")) is None

    async def test_sweep(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        for run_id, at_ms in [("old", T0), ("new", T0 + 1)]:
            await begin(turns, ada, run_id=run_id, at_ms=at_ms)
            await finish(turns, ada, RunId(run_id), at_ms=at_ms)
        await begin(turns, ada, run_id="old but running", at_ms=T0)
        assert await turns.sweep(T0 + DEDUPE_MS) == 1
        rows = await store.fetchall("SELECT run_id FROM dedupe ORDER BY run_id")
        assert [row["run_id"] for row in rows] == ["new", "old but running"]


class TestFinish:
    async def test_only_once(self, store: Database, turns: TurnStore, ada: UserId, ben: UserId) -> None:
        run_id, begun = await begin(turns, ada)
        with pytest.raises(RunNotOpen):
            await finish(turns, ben, run_id)
        await finish(turns, ada, run_id)
        with pytest.raises(RunNotOpen):
            await finish(turns, ada, run_id)
        assert await texts(store, ada, begun.session.session_id) == ["hello", "answer"]
        assert len(await store.fetchall("SELECT 1 FROM usage")) == 1

    async def test_after_a_reset_the_old_transcript_gets_the_answer(
        self, store: Database, turns: TurnStore, ada: UserId
    ) -> None:
        run_id, begun = await begin(turns, ada)
        reset = await SessionStore(store).reset(ada, key(ada))
        session = await finish(turns, ada, run_id)
        assert session == reset
        assert await texts(store, ada, begun.session.session_id) == ["hello", "answer"]
        assert await texts(store, ada, session.session_id) == []

    async def test_after_a_deletion(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        run_id, begun = await begin(turns, ada)
        await SessionStore(store).delete(ada, key(ada))
        with pytest.raises(SessionNotFound):
            await finish(turns, ada, run_id)
        assert await texts(store, ada, begun.session.session_id) == []
        assert len(await store.fetchall("SELECT 1 FROM usage")) == 1
        with pytest.raises(RunNotOpen):
            await finish(turns, ada, run_id)

    async def test_a_full_disk_leaves_the_run_open(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        run_id, begun = await begin(turns, ada)

        def pages(count: int) -> object:
            def work(tx: Statements) -> None:
                tx.fetchall(f"PRAGMA max_page_count = {count}")

            return store.write(work)

        await pages(1)
        with pytest.raises(StorageUnavailable):
            await finish(turns, ada, run_id, "x" * 100_000)
        assert await texts(store, ada, begun.session.session_id) == ["hello"]
        assert await store.fetchall("SELECT 1 FROM usage") == []
        await pages(1_000_000)
        await finish(turns, ada, run_id, "x" * 100_000)


class TestChosenSessionIds:
    async def test_of_a_new_session(self, turns: TurnStore, ada: UserId, ben: UserId) -> None:
        chosen = SessionId("chosen")
        _, begun = await begin(turns, ada, session_id=chosen)
        assert begun.session.session_id == chosen
        _, theirs = await begin(turns, ben, session_id=chosen)
        assert theirs.session.session_id == chosen
        _, again = await begin(turns, ada, session_id=SessionId("other"))
        assert again.session.session_id == chosen

    async def test_that_are_taken(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        chosen = SessionId("chosen")
        await begin(turns, ada, name="a", session_id=chosen)
        _, begun = await begin(turns, ada, name="b", session_id=chosen)
        assert begun.session.session_id != chosen
        await SessionStore(store).reset(ada, key(ada, "a"))
        _, begun = await begin(turns, ada, name="c", session_id=chosen)
        assert begun.session.session_id != chosen
        assert await texts(store, ada, chosen) == ["hello"]


class TestInterrupted:
    async def test_open_runs_are_closed_with_an_entry(
        self, store: Database, turns: TurnStore, ada: UserId, ben: UserId
    ) -> None:
        await turn(turns, ada, "done")
        run_id, begun = await begin(turns, ada, "open", at_ms=T0 + 1)
        theirs, their_begun = await begin(turns, ben, None, at_ms=T0 + 2)
        closed = await turns.close_unfinished(T0 + 10)
        assert closed == [
            Interrupted(owner=ada, key=key(ada), run_id=run_id, kind="chat"),
            Interrupted(owner=ben, key=key(ben), run_id=theirs, kind="chat"),
        ]
        entries = await TranscriptStore(store).history(ada, begun.session.session_id, limit=10)
        assert json.loads(entries[-1].payload) == {
            "role": "assistant",
            "content": [],
            "api": "openai-responses",
            "provider": "openclaw",
            "model": "gateway-injected",
            "stopReason": "error",
            "errorMessage": INTERRUPTED,
            "timestamp": T0 + 10,
        }
        assert len(entries) == 4
        assert await texts(store, ben, their_begun.session.session_id) == []
        session = await SessionStore(store).get(ada, key(ada))
        assert session is not None
        assert session.aborted_last_run
        assert session.updated_at_ms > begun.session.updated_at_ms
        assert await turns.close_unfinished(T0 + 11) == []
        with pytest.raises(RunNotOpen):
            await finish(turns, ada, run_id)
        again = await turns.begin(
            owner=ada, key=key(ada), run_id=run_id, kind="chat", payload=message("user", "x"), now_ms=T0 + 12
        )
        assert isinstance(again, TurnRepeated)
        assert (again.status, again.response, again.ended_at_ms) == ("interrupted", None, T0 + 10)

    async def test_two_open_runs_of_one_session(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        _, begun = await begin(turns, ada, "a")
        await begin(turns, ada, "b")
        assert len(await turns.close_unfinished(T0)) == 2
        assert await texts(store, ada, begun.session.session_id) == ["a", "b", "", ""]

    async def test_a_session_that_is_gone(self, store: Database, turns: TurnStore, ada: UserId) -> None:
        await begin(turns, ada, "a")
        await SessionStore(store).delete(ada, key(ada))
        assert len(await turns.close_unfinished(T0)) == 1
        assert await store.fetchall("SELECT 1 FROM entries") == []


async def add(turns: TurnStore, owner: UserId, run_id: RunId, *texts: str, kind: str = "chat") -> None:
    entries = [said("assistant", text) for text in texts]
    await turns.add(owner=owner, kind=kind, run_id=run_id, entries=entries, usage=[usage(10, 5)], now_ms=T0)


async def test_a_turn_that_goes_on_is_stored_as_far_as_it_came(store: Database, turns: TurnStore, ada: UserId) -> None:
    run_id, begun = await begin(turns, ada, "hello")
    await add(turns, ada, run_id, "one", "two")
    assert await texts(store, ada, begun.session.session_id) == ["hello", "one", "two"]
    session = await SessionStore(store).get(ada, key(ada))
    assert session is not None and (session.input_tokens, session.output_tokens) == (10, 5)
    assert not session.system_sent
    session = await finish(turns, ada, run_id, "three")
    assert await texts(store, ada, session.session_id) == ["hello", "one", "two", "three"]
    with pytest.raises(RunNotOpen):
        await add(turns, ada, run_id, "late")
    assert await texts(store, ada, session.session_id) == ["hello", "one", "two", "three"]


async def test_another_person_cannot_go_on_with_a_turn(
    store: Database, turns: TurnStore, ada: UserId, ben: UserId
) -> None:
    run_id, begun = await begin(turns, ada, "hello")
    with pytest.raises(RunNotOpen):
        await add(turns, ben, run_id, "mine")
    assert await texts(store, ada, begun.session.session_id) == ["hello"]


async def test_a_turn_that_goes_on_after_its_session_was_deleted(
    store: Database, turns: TurnStore, ada: UserId
) -> None:
    run_id, begun = await begin(turns, ada, "hello")
    assert await SessionStore(store).delete(ada, key(ada))
    await add(turns, ada, run_id, "one")
    assert await texts(store, ada, begun.session.session_id) == []
    assert len(await store.fetchall("SELECT 1 FROM usage")) == 1


async def test_what_a_killed_process_had_stored_of_a_turn_stays(store: Database, turns: TurnStore, ada: UserId) -> None:
    run_id, begun = await begin(turns, ada, "hello")
    await add(turns, ada, run_id, "one")
    assert [run.run_id for run in await turns.close_unfinished(T0)] == [run_id]
    assert (await texts(store, ada, begun.session.session_id))[:2] == ["hello", "one"]
