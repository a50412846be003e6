"""Search over a person's own transcripts."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skynet_memory import schema, search, search_schema
from skynet_memory.database import Database
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import UserId
from skynet_memory.migrations import migrate
from skynet_memory.search import Hit, TranscriptSearch, words_in
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person, begin, finish, key, message, turn

TEXTS = (
    "I booked the train to Lisbon for June",
    "Good, which hotel do you like?",
    "The one near the river",
    "It is called Tejo House",
    "Thanks. What is the weather like?",
    "Sunny all week",
    "Now the dentist: Tuesday at nine",
    "Noted",
)


@pytest.fixture
async def store(store: Database) -> Database:
    await migrate(store, [USER_TABLES, schema.COMPONENT, search_schema.COMPONENT])
    return store


@pytest.fixture
def searching(store: Database) -> TranscriptSearch:
    return TranscriptSearch(store)


async def talk(store: Database, owner: UserId, texts: tuple[str, ...] = TEXTS, name: str = "main") -> list[str]:
    """Say the texts in turn, the person first; returns the ids of the entries."""
    await SessionStore(store).get_or_create(owner, key(owner, name), at_ms=T0)
    transcripts = TranscriptStore(store)
    roles = ("user", "assistant")
    return [
        (await transcripts.append(owner, key(owner, name), message(roles[n % 2], text), at_ms=T0 + n)).id
        for n, text in enumerate(texts)
    ]


def shown(hits: list[Hit]) -> list[list[str]]:
    return [[entry.text for entry in hit.entries] for hit in hits]


async def test_a_hit_comes_with_two_neighbours_on_each_side(
    store: Database, searching: TranscriptSearch, ada: UserId
) -> None:
    """SP-065, SQ-086: what was said is found with what was said around it."""
    ids = await talk(store, ada)
    [hit] = await searching.search(ada, "hotels", now_ms=T0)
    assert (hit.key, hit.entry_id) == (key(ada), ids[1])
    assert shown([hit]) == [list(TEXTS[:4])]
    assert [entry.matched for entry in hit.entries] == [False, True, False, False]
    assert [entry.role for entry in hit.entries] == ["user", "assistant", "user", "assistant"]
    assert shown(await searching.search(ada, "hotels", window=0, now_ms=T0)) == [[TEXTS[1]]]
    session = await SessionStore(store).get(ada, key(ada))
    assert session is not None
    assert hit.session_id == session.session_id


async def test_windows_show_nothing_twice(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    await talk(store, ada)
    hits = await searching.search(ada, "hotel dentist Tejo the", now_ms=T0)
    entries = [entry.id for hit in hits for entry in hit.entries]
    assert len(entries) == len(set(entries))
    assert len(hits) < sum(entry.matched for hit in hits for entry in hit.entries)
    assert all(one.score >= two.score > 0 for one, two in pairwise(hits))


async def test_nobody_finds_what_another_said(
    store: Database, searching: TranscriptSearch, ada: UserId, ben: UserId
) -> None:
    await talk(store, ada)
    assert await searching.search(ben, "Lisbon", now_ms=T0) == []
    await talk(store, ben, ("my own secret plan", "a plan"))
    assert await searching.search(ben, "Lisbon train hotel", now_ms=T0) == []
    assert await searching.search(ada, "secret plan", now_ms=T0) == []
    assert [hit.key for hit in await searching.search(ben, "plan", now_ms=T0)] == [key(ben)]


async def test_scores_say_nothing_of_other_people(
    store: Database, searching: TranscriptSearch, ada: UserId, ben: UserId
) -> None:
    """How rare a word is among others' messages would tell whether they used it."""
    await talk(store, ada)
    before = await searching.search(ada, "Lisbon hotel", now_ms=T0)
    await talk(store, ben, ("Lisbon hotel",) * 20)
    assert await searching.search(ben, "Lisbon", now_ms=T0)
    assert await searching.search(ada, "Lisbon hotel", now_ms=T0) == before


async def test_what_is_said_later_is_found_too(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    turns = TurnStore(store)
    await turn(turns, ada, "first about apples")
    assert len(await searching.search(ada, "apples", now_ms=T0)) == 1
    assert await searching.search(ada, "pears", now_ms=T0) == []
    await turn(turns, ada, "then about pears")
    await turn(turns, ada, "and pears elsewhere", name="other")
    hits = await searching.search(ada, "pears", now_ms=T0)
    assert {hit.key for hit in hits} == {key(ada), key(ada, "other")}
    assert await searching.index(ada) == 0


async def test_reading_goes_on_where_an_earlier_process_was(
    store: Database, searching: TranscriptSearch, ada: UserId
) -> None:
    await talk(store, ada)
    assert await searching.index(ada) == len(TEXTS)
    await talk(store, ada, ("one more",))
    assert await TranscriptSearch(store).index(ada) == 1


async def test_results_of_tools_and_other_entries_are_left_out(
    store: Database, searching: TranscriptSearch, ada: UserId
) -> None:
    await talk(store, ada, ("look into the file", "I shall"))
    transcripts = TranscriptStore(store)
    for kind, payload in (
        ("tool_result", json.dumps({"role": "toolResult", "content": [{"type": "text", "text": "zebra"}]}).encode()),
        ("message", b'{"role":"system","content":"zebra"}'),
        ("message", b"zebra, not JSON"),
        ("message", b'{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"zebra","arguments":{}}]}'),
        ("compaction", b'{"role":"user","content":"zebra"}'),
    ):
        await transcripts.append(ada, key(ada), payload, kind=kind)  # type: ignore[arg-type]
    await transcripts.append(ada, key(ada), message("assistant", "The file says nothing"))
    assert await searching.search(ada, "zebra", now_ms=T0) == []
    # They separate nothing either
    assert shown(await searching.search(ada, "nothing", now_ms=T0)) == [
        ["look into the file", "I shall", "The file says nothing"]
    ]


async def test_neighbours_are_those_of_the_branch(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    ids = await talk(store, ada, ("start", "first reply", "abandoned words", "abandoned reply"))
    await store.write(lambda tx: tx.execute("UPDATE sessions SET leaf_entry = ? WHERE owner = ?", (ids[1], ada)))
    await talk(store, ada, ("instead", "second reply"))
    assert shown(await searching.search(ada, "instead", now_ms=T0)) == [
        ["start", "first reply", "instead", "second reply"]
    ]
    assert shown(await searching.search(ada, "abandoned words", now_ms=T0)) == [
        ["start", "first reply", "abandoned words", "abandoned reply"]
    ]


async def test_transcripts_of_before_a_reset_are_found(
    store: Database, searching: TranscriptSearch, ada: UserId
) -> None:
    await talk(store, ada)
    await SessionStore(store).reset(ada, key(ada))
    await talk(store, ada, ("a new start",))
    assert [hit.key for hit in await searching.search(ada, "dentist", now_ms=T0)] == [key(ada)]
    assert shown(await searching.search(ada, "start", now_ms=T0)) == [["a new start"]]


@pytest.mark.parametrize("read_before", [False, True])
async def test_what_is_erased_is_gone_from_the_index(
    store: Database, searching: TranscriptSearch, ada: UserId, read_before: bool
) -> None:
    await talk(store, ada)
    await talk(store, ada, ("the Lisbon trip was fine",), name="kept")
    if read_before:
        assert len(await searching.search(ada, "Lisbon", now_ms=T0)) == 2
    await SessionStore(store).delete(ada, key(ada))
    assert [hit.key for hit in await searching.search(ada, "Lisbon", now_ms=T0)] == [key(ada, "kept")]
    assert await searching.search(ada, "dentist", now_ms=T0) == []
    await store.write(lambda tx: tx.execute("INSERT INTO search_words (search_words) VALUES ('integrity-check')"))
    # Row numbers are given anew
    await talk(store, ada)
    assert len(await searching.search(ada, "dentist", now_ms=T0)) == 1


async def test_a_person_who_leaves_takes_everything_along(
    store: Database, searching: TranscriptSearch, ada: UserId, ben: UserId
) -> None:
    await talk(store, ada)
    await talk(store, ben)
    for owner in (ada, ben):
        await searching.index(owner)
    await store.write(lambda tx: tx.execute("DELETE FROM users WHERE id = ?", (ada,)))
    for table in ("search_people", "search_marks", "search_entries"):
        rows = await store.fetchall(f"SELECT owner FROM {table}")
        assert {row["owner"] for row in rows} == {ben}
    await store.write(lambda tx: tx.execute("INSERT INTO search_words (search_words) VALUES ('integrity-check')"))
    assert await searching.search(ada, "dentist", now_ms=T0) == []
    assert len(await searching.search(ben, "dentist", now_ms=T0)) == 1


async def test_words_of_what_was_erased_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "words.db"
    async with Database(path) as db:
        await migrate(db, [USER_TABLES, schema.COMPONENT, search_schema.COMPONENT])
        await add_person(db, ADA)
        searching = TranscriptSearch(db)
        await talk(db, ADA, ("the word is xylophonic",), name="gone")
        await searching.index(ADA)
        await talk(db, ADA, ("something else",), name="kept")
        await searching.index(ADA)
        assert not await searching.tidy()
        await SessionStore(db).delete(ADA, key(ADA, "gone"))
        assert await searching.tidy()
        assert not await searching.tidy()
        for suffix in ("", "-wal"):
            assert b"xylophon" not in path.with_name(path.name + suffix).read_bytes()
        assert len(await searching.search(ADA, "else", now_ms=T0)) == 1
    assert b"xylophon" not in path.read_bytes()


async def test_a_question_does_not_find_itself(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    turns = TurnStore(store)
    await turn(turns, ada, "the plumber comes on Friday")
    run_id, _ = await begin(turns, ada, "when did I say the plumber comes?")
    hits = await searching.search(ada, "plumber", now_ms=T0, asked_by=run_id)
    assert shown(hits) == [["the plumber comes on Friday", "re: the plumber comes on Friday"]]
    assert len(shown(await searching.search(ada, "plumber", now_ms=T0))[0]) == 3
    await finish(turns, ada, run_id)
    hits = await searching.search(ada, "plumber", now_ms=T0, asked_by=run_id)
    assert "when did I say the plumber comes?" in {text for texts in shown(hits) for text in texts}


@pytest.mark.parametrize(
    "query",
    ["北京", "北京旅行", "我什么时候去北京?", "旅", "paris", "HOTEL", "hôtel", "서울", "กรุงเทพ", "café", "cafe\u0301s"],
)
async def test_every_script_is_found(store: Database, searching: TranscriptSearch, ada: UserId, query: str) -> None:
    await talk(store, ada, ("我明年去北京旅行,然后去Paris", "The hotel café", "서울에서 만나요", "ฉันอยู่ที่กรุงเทพ"))
    await talk(store, ada, ("nothing of the kind", "or this"), name="other")
    assert [hit.key for hit in await searching.search(ada, query, now_ms=T0)] == [key(ada)]


async def test_other_characters_are_no_match(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    await talk(store, ada, ("我明年去北京旅行",))
    assert await searching.search(ada, "东京", now_ms=T0) == []
    assert await searching.search(ada, "京北", now_ms=T0) == []


async def test_the_beginning_of_a_word_is_enough(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    await talk(store, ada)
    assert len(await searching.search(ada, "dent", now_ms=T0)) == 1


async def test_words_that_say_nothing_do_not_count(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    await talk(store, ada, ("what did you say about it?", "I did not say what you said"), name="noise")
    await talk(store, ada, ("the plumber comes on Friday",), name="told")
    hits = await searching.search(ada, "what did I say about the plumber, and when?", now_ms=T0)
    assert hits[0].key == key(ada, "told")
    assert [hit.key for hit in await searching.search(ada, "what did you", now_ms=T0)] == [key(ada, "noise")]


async def test_a_full_disk_leaves_what_was_read_before(
    store: Database, searching: TranscriptSearch, ada: UserId, caplog: pytest.LogCaptureFixture
) -> None:
    """DESIGN 11: reads go on."""
    await talk(store, ada)
    await searching.index(ada)
    await talk(store, ada, tuple(" ".join(f"word{n}x{m}" for m in range(500)) for n in range(60)), name="long")
    row = await store.fetchone("PRAGMA page_count")
    assert row is not None
    await store.write(lambda tx: tx.fetchone(f"PRAGMA max_page_count = {row[0]}"))
    with pytest.raises(StorageUnavailable):
        await searching.index(ada)
    assert [hit.key for hit in await searching.search(ada, "dentist", now_ms=T0)] == [key(ada)]
    assert "does not know what was said lately" in caplog.text


async def test_limits(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    for n in range(60):
        await talk(store, ada, ("the same words",), name=f"s{n}")
    assert len(await searching.search(ada, "words", now_ms=T0)) == search.DEFAULT_HITS
    assert len(await searching.search(ada, "words", limit=1000, now_ms=T0)) == search.MAX_HITS
    assert len(await searching.search(ada, "words", limit=-1, now_ms=T0)) == 1
    for nothing in ("", " ", "?!", "\x00", "\ud800"):
        assert await searching.search(ada, nothing, now_ms=T0) == []


async def test_the_rare_word_counts_most(
    store: Database, searching: TranscriptSearch, ada: UserId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "CANDIDATES", 20)
    await talk(store, ada, ("the violin lesson",), name="old")
    for n in range(60):
        await talk(store, ada, ("the the the lesson",), name=f"s{n}")
    hits = await searching.search(ada, "the violin of the lesson", now_ms=T0)
    assert hits[0].key == key(ada, "old")
    assert len(hits) == search.DEFAULT_HITS


async def test_the_newer_of_two_alike_is_first(store: Database, searching: TranscriptSearch, ada: UserId) -> None:
    sessions, transcripts = SessionStore(store), TranscriptStore(store)
    for name, age_ms in (("new", 0), ("old", 90 * 24 * 3600 * 1000)):
        await sessions.get_or_create(ada, key(ada, name), at_ms=T0)
        await transcripts.append(ada, key(ada, name), message("user", "the same words"), at_ms=T0 - age_ms)
    hits = await searching.search(ada, "words", now_ms=T0)
    assert [hit.key for hit in hits] == [key(ada, "new"), key(ada, "old")]


async def test_two_searches_at_once_read_everything_once(
    store: Database, searching: TranscriptSearch, ada: UserId
) -> None:
    await talk(store, ada, TEXTS * 40)
    results = await asyncio.gather(*(searching.search(ada, "dentist", now_ms=T0) for _ in range(5)))
    assert all(result == results[0] for result in results)
    await asyncio.gather(*(TranscriptSearch(store).index(ada) for _ in range(3)))
    row = await store.fetchone("SELECT count(*), (SELECT entries FROM search_people) FROM search_entries")
    assert row is not None
    assert tuple(row) == (len(TEXTS) * 40, len(TEXTS) * 40)


@pytest.mark.parametrize("steps", [1, 5, 20, 60])
async def test_a_search_that_is_cancelled_leaves_the_next_one_whole(
    store: Database, searching: TranscriptSearch, ada: UserId, steps: int
) -> None:
    await talk(store, ada, TEXTS * 40)
    task = asyncio.create_task(searching.search(ada, "dentist", now_ms=T0))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await searching.search(ada, "dentist", now_ms=T0)
    row = await store.fetchone("SELECT count(*), count(DISTINCT entry_id) FROM search_entries")
    assert row is not None
    assert tuple(row) == (len(TEXTS) * 40, len(TEXTS) * 40)


@settings(max_examples=60)
@given(queries=st.lists(st.text(max_size=60), min_size=5, max_size=5), said=st.text(max_size=60))
def test_any_text_is_a_query(queries: list[str], said: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def check() -> None:
        path = tmp_path_factory.mktemp("any") / "any.db"
        async with Database(path) as db:
            await migrate(db, [USER_TABLES, schema.COMPONENT, search_schema.COMPONENT])
            await add_person(db, ADA)
            await add_person(db, BEN)
            await talk(db, ADA, (said.encode(errors="replace").decode(), "a reply"))
            searching = TranscriptSearch(db)
            for query in [*queries, *(f'person : "{n}" OR {query}' for n, query in enumerate(queries))]:
                await searching.search(ADA, query, now_ms=T0)
                assert await searching.search(BEN, query, now_ms=T0) == []

    asyncio.run(check())


@settings(max_examples=200)
@given(query=st.text())
def test_words_hold_nothing_of_the_query_language(query: str) -> None:
    assert all(word.isprintable() and not set(word) & set(' "*():^{}-+.,;') for word in words_in(query))


async def test_whoever_searches_much_keeps_nobody_from_reading(
    store: Database, searching: TranscriptSearch, ada: UserId
) -> None:
    """A hundred searches of one person wait for each other, and not in everybody's way."""
    await talk(store, ada)
    await searching.search(ada, "hotel", now_ms=T0)
    searches = [asyncio.create_task(searching.search(ada, "hotel river dentist", now_ms=T0)) for _ in range(100)]
    await asyncio.wait(searches, return_when=asyncio.FIRST_COMPLETED)
    await store.fetchone("SELECT 1")
    assert sum(each.done() for each in searches) < 50
    assert all(await asyncio.gather(*searches))
