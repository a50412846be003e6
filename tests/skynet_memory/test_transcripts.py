import sqlite3

import pytest

from skynet_memory.database import Database
from skynet_memory.errors import SessionNotFound
from skynet_memory.ids import EntryId, SessionId, UserId
from skynet_memory.sessions import SessionQuery, SessionStore
from skynet_memory.transcripts import Entry, NewEntry, TranscriptStore, Truncated
from skynet_memory.turns import TurnStore
from tests.skynet_memory.support import T0, begin, key, message, said, text_of, turn


@pytest.fixture
async def transcripts(store: Database, ada: UserId, ben: UserId) -> TranscriptStore:
    """Each of the two people has an empty session."""
    sessions = SessionStore(store)
    await sessions.get_or_create(ada, key(ada), at_ms=T0)
    await sessions.get_or_create(ben, key(ben), at_ms=T0)
    return TranscriptStore(store)


async def session_id(store: Database, owner: UserId) -> SessionId:
    session = await SessionStore(store).get(owner, key(owner))
    assert session is not None
    return session.session_id


def texts(entries: list[Entry]) -> list[str]:
    return [text_of(entry.payload) for entry in entries]


async def fill(transcripts: TranscriptStore, owner: UserId, count: int) -> list[Entry]:
    return [
        await transcripts.append(owner, key(owner), message("user" if n % 2 == 0 else "assistant", f"{n}"))
        for n in range(count)
    ]


async def test_append_and_history(store: Database, transcripts: TranscriptStore, ada: UserId) -> None:
    added = await fill(transcripts, ada, 5)
    sid = await session_id(store, ada)
    assert await transcripts.history(ada, sid, limit=10) == added
    assert texts(await transcripts.history(ada, sid, limit=2)) == ["3", "4"]
    assert await transcripts.history(ada, sid, limit=0) == []
    assert texts(await transcripts.history(ada, sid, limit=2, before=added[3].id)) == ["1", "2"]
    assert await transcripts.history(ada, sid, limit=2, before=added[0].id) == []
    assert await transcripts.history(ada, sid, limit=2, before=EntryId("none")) == []
    assert await transcripts.history(ada, SessionId("none"), limit=2) == []
    assert [entry.parent_id for entry in added] == [None, *(entry.id for entry in added[:-1])]


async def test_append_touches_the_session(store: Database, transcripts: TranscriptStore, ada: UserId) -> None:
    await transcripts.append(ada, key(ada), message("assistant", "injected"), at_ms=T0 - 5)
    [row] = await SessionStore(store).list(ada, SessionQuery(with_titles=True, with_last_message=True))
    assert (row.derived_title, row.last_message, row.updated_at_ms) == ("", "injected", T0 + 1)
    await transcripts.append(ada, key(ada), b'{"role":"toolResult","content":[]}', kind="tool_result")
    [row] = await SessionStore(store).list(ada, SessionQuery(with_last_message=True))
    assert row.last_message == "injected"


async def test_append_needs_a_session(transcripts: TranscriptStore, ada: UserId) -> None:
    with pytest.raises(SessionNotFound):
        await transcripts.append(ada, key(ada, "missing"), message("user", "x"))


async def test_the_session_knows_its_branch(store: Database, transcripts: TranscriptStore, ada: UserId) -> None:
    added = await fill(transcripts, ada, 4)
    # Going back to an earlier entry makes a second branch of the tree
    await store.write(lambda tx: tx.execute("UPDATE sessions SET leaf_entry = ? WHERE owner = ?", (added[1].id, ada)))
    await transcripts.append(ada, key(ada), message("user", "instead"))
    sid = await session_id(store, ada)
    assert texts(await transcripts.history(ada, sid, limit=10)) == ["0", "1", "instead"]
    assert texts(await transcripts.history(ada, sid, limit=10, before=added[3].id)) == ["0", "1", "2"]


async def test_tail(store: Database, transcripts: TranscriptStore, ada: UserId) -> None:
    await fill(transcripts, ada, 3)
    await SessionStore(store).get_or_create(ada, key(ada, "empty"))
    tails = await transcripts.tail(ada, [key(ada), key(ada, "empty"), key(ada, "missing")], 2)
    assert {name: texts(entries) for name, entries in tails.items()} == {key(ada): ["1", "2"], key(ada, "empty"): []}


async def test_an_answer_is_bounded_in_bytes(
    store: Database, transcripts: TranscriptStore, ada: UserId, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = await fill(transcripts, ada, 5)
    sid, size = await session_id(store, ada), len(added[0].payload) + len(added[1].payload)
    assert texts(await transcripts.history(ada, sid, limit=10, max_bytes=2 * size)) == ["1", "2", "3", "4"]
    assert texts(await transcripts.history(ada, sid, limit=10, max_bytes=2 * size - 1)) == ["2", "3", "4"]
    assert texts(await transcripts.history(ada, sid, limit=10, max_bytes=0)) == ["4"]
    other = key(ada, "other")
    await SessionStore(store).get_or_create(ada, other)
    await transcripts.append(ada, other, message("user", "0"))
    await transcripts.append(ada, other, message("assistant", "1"))
    monkeypatch.setattr("skynet_memory.transcripts.HISTORY_BYTES", size)
    tails = await transcripts.tail(ada, [key(ada), other], 10)
    assert {name: texts(entries) for name, entries in tails.items()} == {key(ada): ["3", "4"], other: ["1"]}


async def test_truncating_covers_and_removes_nothing(
    store: Database, transcripts: TranscriptStore, ada: UserId
) -> None:
    added = await fill(transcripts, ada, 5)
    sid = await session_id(store, ada)
    assert await transcripts.truncate_view(ada, key(ada), 9) == Truncated(kept=5, covered=0)
    assert await transcripts.truncate_view(ada, key(ada), 2) == Truncated(kept=2, covered=3)
    assert texts(await transcripts.history(ada, sid, limit=10)) == ["3", "4"]
    everything = await transcripts.history(ada, sid, limit=10, include_covered=True)
    assert texts(everything) == ["0", "1", "2", "3", "4"]
    assert [entry.covered_by for entry in everything] == [added[3].id] * 3 + [None] * 2
    assert await transcripts.truncate_view(ada, key(ada), 2) == Truncated(kept=2, covered=0)
    await transcripts.append(ada, key(ada), message("user", "5"))
    assert texts(await transcripts.history(ada, sid, limit=10)) == ["3", "4", "5"]
    with pytest.raises(SessionNotFound):
        await transcripts.truncate_view(ada, key(ada, "missing"), 2)


async def test_truncating_an_empty_transcript(transcripts: TranscriptStore, ada: UserId) -> None:
    assert await transcripts.truncate_view(ada, key(ada), 1) == Truncated(kept=0, covered=0)


async def test_a_truncated_view_never_begins_with_a_tool_result(
    store: Database, transcripts: TranscriptStore, ada: UserId
) -> None:
    entries = [said("user", "q"), said("assistant", "call"), NewEntry("tool_result", message("toolResult", "r1"))]
    entries += [NewEntry("tool_result", message("toolResult", "r2")), said("assistant", "a")]
    for entry in entries:
        await transcripts.append(ada, key(ada), entry.payload, kind=entry.kind)
    assert await transcripts.truncate_view(ada, key(ada), 3) == Truncated(kept=1, covered=4)
    assert texts(await transcripts.history(ada, await session_id(store, ada), limit=10)) == ["a"]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET payload = '{}'",
        "UPDATE entries SET parent_id = NULL",
        "UPDATE entries SET owner = 'x'",
        "UPDATE entries SET session_id = 'x'",
        "DELETE FROM entries",
    ],
)
async def test_entries_only_grow(store: Database, transcripts: TranscriptStore, ada: UserId, sql: str) -> None:
    added = await fill(transcripts, ada, 2)
    with pytest.raises(sqlite3.IntegrityError, match="entries"):
        await store.write(lambda tx: tx.execute(sql))
    assert await transcripts.history(ada, await session_id(store, ada), limit=10) == added


async def test_a_parent_is_in_the_same_transcript(
    store: Database, transcripts: TranscriptStore, ada: UserId, ben: UserId
) -> None:
    [entry] = await fill(transcripts, ada, 1)
    for owner, sid, parent in [
        (ada, await session_id(store, ada), "none"),
        (ada, "other", entry.id),
        (ben, await session_id(store, ben), entry.id),
        (ben, entry.session_id, entry.id),
    ]:
        values = (owner, sid, parent)
        with pytest.raises(sqlite3.IntegrityError, match="same transcript"):
            await store.write(
                lambda tx, values=values: tx.execute(
                    "INSERT INTO entries VALUES ('new', ?, ?, ?, 'message', x'7b7d', 0, NULL)", values
                )
            )


async def test_a_removed_person_leaves_nothing(store: Database, ada: UserId, ben: UserId) -> None:
    turns = TurnStore(store)
    for owner in (ada, ben):
        await turn(turns, owner)
        await SessionStore(store).reset(owner, key(owner))
        await begin(turns, owner)
    await store.write(lambda tx: tx.execute("DELETE FROM users WHERE id = ?", (ada,)))
    for table in ("sessions", "entries", "dedupe", "usage", "archived_transcripts", "session_counts"):
        rows = await store.fetchall(f"SELECT DISTINCT owner FROM {table}")
        assert [row["owner"] for row in rows] == [ben], table
