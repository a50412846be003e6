"""Compactions cover without a gap, remove nothing, and are written whole or not at all."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory import compactions_schema, schema
from skynet_memory.compactions import CompactionStore, Window
from skynet_memory.database import Database
from skynet_memory.ids import EntryId, SessionId, UserId
from skynet_memory.migrations import migrate
from skynet_memory.sessions import Session, SessionStore
from skynet_memory.transcripts import Entry, NewEntry, TranscriptStore, Truncated
from skynet_memory.turns import TurnStore
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, T0, add_person, begin, key, message, said, text_of, turn

LIMIT = 1_000


@pytest.fixture
async def compactions(store: Database, ada: UserId) -> CompactionStore:
    """Ada has an empty session."""
    await migrate(store, [USER_TABLES, schema.COMPONENT, compactions_schema.COMPONENT])
    await SessionStore(store).get_or_create(ada, key(ada), at_ms=T0)
    return CompactionStore(store)


async def session_of(store: Database, owner: UserId) -> Session:
    session = await SessionStore(store).get(owner, key(owner))
    assert session is not None
    return session


async def fill(store: Database, owner: UserId, count: int, start: int = 0) -> list[Entry]:
    transcripts = TranscriptStore(store)
    return [
        await transcripts.append(owner, key(owner), message("user" if n % 2 == 0 else "assistant", f"{n}"))
        for n in range(start, start + count)
    ]


def ids(entries: Sequence[Entry]) -> list[EntryId]:
    return [entry.id for entry in entries]


def told(window: Window) -> list[tuple[str, int, int]]:
    return [(each.compaction.summary, each.compaction.before, each.compaction.covered) for each in window.told]


async def test_what_is_covered_is_told_by_its_summary(
    store: Database, compactions: CompactionStore, ada: UserId
) -> None:
    """SK-197: nothing is removed, and each original row names its summary. SP-034: summaries stand in their order."""
    added = await fill(store, ada, 10)
    before = await session_of(store, ada)
    sid = before.session_id
    first = await compactions.cover(ada, sid, ids(added[1:5]), summary="one", model="p/m", now_ms=T0 + 1)
    assert first is not None
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert window.first is not None and window.first.id == added[0].id
    assert (told(window), ids(window.entries), window.is_cut) == ([("one", 0, 4)], ids(added[5:]), False)
    more = await fill(store, ada, 4, start=10)
    second = await compactions.cover(ada, sid, ids(added[5:9]), summary="two", now_ms=T0 + 2)
    third = await compactions.cover(ada, sid, ids([added[9], *more[:2]]), now_ms=T0 + 3)
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert told(window) == [("one", 0, 4), ("two", 4, 4), ("", 8, 3)]
    assert [each.id for each in window.told] == [first, second, third]
    assert (window.told[0].compaction.first, window.told[0].compaction.last) == (added[1].id, added[4].id)
    assert window.told[0].compaction.model == "p/m"
    assert window.first is not None and window.first.id == added[0].id
    assert ids(window.entries) == ids(more[2:])
    everything = await TranscriptStore(store).history(ada, sid, limit=LIMIT, include_covered=True)
    assert [text_of(entry.payload) for entry in everything if entry.kind == "message"] == [str(n) for n in range(14)]
    assert [entry.covered_by for entry in everything if entry.kind == "message"] == [
        None,
        *[first] * 4,
        *[second] * 4,
        *[third] * 3,
        None,
        None,
    ]
    assert [entry.id for entry in everything if entry.kind == "compaction"] == [first, second, third]
    visible = await TranscriptStore(store).history(ada, sid, limit=LIMIT)
    assert ids(visible) == ids(more[2:])
    assert ids(await TranscriptStore(store).history(ada, sid, limit=1)) == ids(more[3:])
    after = await session_of(store, ada)
    assert (after.compaction_count, after.updated_at_ms) == (3, before.updated_at_ms + 4), "as the messages left it"


async def test_a_cut_window_says_so(store: Database, compactions: CompactionStore, ada: UserId) -> None:
    added = await fill(store, ada, 6)
    sid = (await session_of(store, ada)).session_id
    assert (await compactions.window(ada, sid, limit=3)).is_cut
    assert not (await compactions.window(ada, sid, limit=6)).is_cut
    await compactions.cover(ada, sid, ids(added[:3]), summary="s", now_ms=T0)
    await fill(store, ada, 1, start=6)
    assert (await compactions.window(ada, sid, limit=3)).is_cut, "though the compaction stands between"
    assert not (await compactions.window(ada, sid, limit=4)).is_cut
    assert await compactions.live(ada, sid) == ids((await compactions.window(ada, sid, limit=9)).entries)
    count, size = await compactions.size(ada, sid)
    assert (count, size) == (4, sum(len(message("user", "0")) + 5 * (n % 2) for n in (3, 4, 5, 6)))


async def test_only_the_oldest_are_covered(store: Database, compactions: CompactionStore, ada: UserId) -> None:
    """SP-035: no gap, no overlap, whatever is asked for."""
    added = await fill(store, ada, 8)
    sid = (await session_of(store, ada)).session_id
    for wrong in ([], added[2:4], [added[0], added[2]], [added[1], added[0]], [*added, added[0]]):
        assert await compactions.cover(ada, sid, ids(wrong), summary="s", now_ms=T0) is None
    assert await compactions.cover(ada, sid, [EntryId("none")], summary="s", now_ms=T0) is None
    assert await compactions.cover(ada, SessionId("none"), ids(added[:2]), summary="s", now_ms=T0) is None
    assert await compactions.cover(ada, sid, ids(added[:2]), summary="s", now_ms=T0) is not None
    for wrong in (added[:2], added[1:3], added[3:5]):
        assert await compactions.cover(ada, sid, ids(wrong), summary="s", now_ms=T0) is None
    assert (await session_of(store, ada)).compaction_count == 1


async def test_a_call_is_never_separated_from_its_result(
    store: Database, compactions: CompactionStore, ada: UserId
) -> None:
    entries = [said("user", "q"), said("assistant", "call"), NewEntry("tool_result", message("toolResult", "r"))]
    transcripts = TranscriptStore(store)
    added = [await transcripts.append(ada, key(ada), each.payload, kind=each.kind) for each in entries]
    sid = (await session_of(store, ada)).session_id
    with pytest.raises(ValueError, match="separate"):
        await compactions.cover(ada, sid, ids(added[:2]), summary="s", now_ms=T0)
    assert ids((await compactions.window(ada, sid, limit=LIMIT)).entries) == ids(added)


async def test_messages_that_come_meanwhile_stay(store: Database, compactions: CompactionStore, ada: UserId) -> None:
    added = await fill(store, ada, 4)
    sid = (await session_of(store, ada)).session_id
    run_id, _ = await begin(TurnStore(store), ada, "meanwhile", run_id="r")
    assert await compactions.cover(ada, sid, ids(added), summary="s", now_ms=T0) is not None
    await TurnStore(store).finish(
        owner=ada,
        kind="chat",
        run_id=run_id,
        entries=[said("assistant", "answer")],
        usage=[],
        status="ok",
        response=b"{}",
        now_ms=T0,
    )
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert [text_of(entry.payload) for entry in window.entries] == ["meanwhile", "answer"]


async def test_a_conversation_that_was_put_away_is_left_alone(
    store: Database, compactions: CompactionStore, ada: UserId
) -> None:
    added = await fill(store, ada, 4)
    sid = (await session_of(store, ada)).session_id
    await SessionStore(store).reset(ada, key(ada))
    assert await compactions.cover(ada, sid, ids(added[:2]), summary="s", now_ms=T0) is None
    assert ids((await compactions.window(ada, sid, limit=LIMIT)).entries) == ids(added), "it can still be read"
    assert await compactions.size(ada, sid) == (0, 0)
    assert await compactions.live(ada, sid) == []
    await SessionStore(store).delete(ada, key(ada))
    assert (await compactions.window(ada, sid, limit=LIMIT)).entries == []


async def test_rolled_up_summaries_are_one(store: Database, compactions: CompactionStore, ada: UserId) -> None:
    """SP-035: the one stands where they stood, before those that are newer."""
    added = await fill(store, ada, 10)
    sid = (await session_of(store, ada)).session_id
    made = [await compactions.cover(ada, sid, ids(added[n : n + 2]), summary=f"{n}", now_ms=T0) for n in range(1, 9, 2)]
    numbers = [each for each in made if each is not None]
    for wrong in (numbers[1:3], numbers[:1], [], numbers[::-1]):
        assert await compactions.roll_up(ada, sid, wrong, summary="s", now_ms=T0) is None
    rolled = await compactions.roll_up(ada, sid, numbers[:3], summary="all", model="p/m", now_ms=T0)
    assert rolled is not None
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert told(window) == [("all", 0, 6), ("7", 6, 2)]
    assert [each.id for each in window.told] == [rolled, numbers[3]]
    assert window.first is not None and window.first.id == added[0].id
    assert ids(window.entries) == ids(added[9:])
    assert await compactions.roll_up(ada, sid, [rolled, numbers[3]], summary="again", now_ms=T0) is not None
    assert told(await compactions.window(ada, sid, limit=LIMIT)) == [("again", 0, 8)]
    everything = await TranscriptStore(store).history(ada, sid, limit=LIMIT, include_covered=True)
    assert len(everything) == 10 + 6


async def test_truncating_forgets_what_was_told(store: Database, compactions: CompactionStore, ada: UserId) -> None:
    added = await fill(store, ada, 8)
    sid = (await session_of(store, ada)).session_id
    assert await compactions.cover(ada, sid, ids(added[1:4]), summary="s", now_ms=T0) is not None
    assert await TranscriptStore(store).truncate_view(ada, key(ada), 2) == Truncated(kept=2, covered=2)
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert (window.first, window.told, ids(window.entries)) == (None, (), ids(added[6:]))
    assert (await session_of(store, ada)).compaction_count == 2
    more = await fill(store, ada, 4, start=8)
    assert await compactions.cover(ada, sid, ids(more[:2]), summary="t", now_ms=T0) is None
    assert await compactions.cover(ada, sid, ids([*added[6:], *more[:2]]), summary="t", now_ms=T0) is not None
    assert told(await compactions.window(ada, sid, limit=LIMIT)) == [("t", 0, 4)]


async def test_nobody_elses_conversation_is_covered(
    store: Database, compactions: CompactionStore, ada: UserId, ben: UserId
) -> None:
    added = await fill(store, ada, 4)
    sid = (await session_of(store, ada)).session_id
    made = [await compactions.cover(ada, sid, ids(added[n : n + 1]), summary="s", now_ms=T0) for n in range(2)]
    mine = await turn(TurnStore(store), ben)
    for session_id in (sid, mine.session_id):
        assert await compactions.cover(ben, session_id, ids(added[2:3]), summary="ben's", now_ms=T0) is None
        rolled = await compactions.roll_up(ben, session_id, [each for each in made if each], summary="b", now_ms=T0)
        assert rolled is None
    window = await compactions.window(ben, sid, limit=LIMIT)
    assert (window.first, window.told, window.entries) == (None, (), [])
    assert await compactions.size(ben, sid) == (0, 0)
    assert await compactions.live(ben, sid) == []
    assert len((await compactions.window(ada, sid, limit=LIMIT)).told) == 2


@pytest.mark.parametrize("steps", range(8))
async def test_a_compaction_that_is_cancelled_is_whole_or_not_there(
    store: Database, compactions: CompactionStore, ada: UserId, steps: int
) -> None:
    added = await fill(store, ada, 4)
    sid = (await session_of(store, ada)).session_id
    task = asyncio.ensure_future(compactions.cover(ada, sid, ids(added[:2]), summary="s", now_ms=T0))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await store.write(lambda tx: None)  # it may have been on its way
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert (told(window), ids(window.entries)) in (([], ids(added)), ([("s", 0, 2)], ids(added[2:])))
    again = await compactions.cover(ada, sid, ids(added[2 if window.told else 0 :]), summary="t", now_ms=T0)
    assert again is not None
    window = await compactions.window(ada, sid, limit=LIMIT)
    assert (sum(each.compaction.covered for each in window.told), window.entries) == (4, [])


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "cover", "keep", "roll", "cut"]), st.integers(1, 5)), min_size=1, max_size=25
)


async def follow(steps: Sequence[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory:
        async with Database(Path(directory) / "a.db", readers=1) as db:
            await migrate(db, [USER_TABLES, schema.COMPONENT, compactions_schema.COMPONENT])
            await add_person(db, ADA)
            await SessionStore(db).get_or_create(ADA, key(ADA), at_ms=T0)
            compactions, transcripts = CompactionStore(db), TranscriptStore(db)
            sid = (await session_of(db, ADA)).session_id
            all_ids: list[EntryId] = []
            hidden = 0
            for word, count in steps:
                window = await compactions.window(ADA, sid, limit=LIMIT)
                live = ids(window.entries)
                if word == "say":
                    all_ids += ids(await fill(db, ADA, count, start=len(all_ids)))
                elif word == "cover":
                    await compactions.cover(ADA, sid, live[:count], summary="s", now_ms=T0)
                elif word == "keep":
                    await compactions.cover(ADA, sid, live[1 : 1 + count], summary="s", now_ms=T0)
                elif word == "roll":
                    await compactions.roll_up(
                        ADA, sid, [each.id for each in window.told[:count]], summary="r", now_ms=T0
                    )
                elif (await transcripts.truncate_view(ADA, key(ADA), count)).covered:
                    hidden = len(all_ids) - min(count, len(live))
                window = await compactions.window(ADA, sid, limit=LIMIT)
                before = hidden + (1 if window.first else 0)
                for each in window.told:
                    assert each.compaction.before == before - hidden - (1 if window.first else 0)
                    assert each.compaction.first == all_ids[before]
                    before += each.compaction.covered
                    assert each.compaction.last == all_ids[before - 1]
                assert ids(window.entries) == all_ids[before:], "what is told and what is shown are all there is"
                assert window.first is None or window.first.id == all_ids[0]
                everything = await transcripts.history(ADA, sid, limit=LIMIT, include_covered=True)
                assert [entry.id for entry in everything if entry.kind == "message"] == all_ids


@given(STEPS)
def test_whatever_happens_there_is_no_gap(steps: Sequence[tuple[str, int]]) -> None:
    """SP-035."""
    asyncio.run(follow(steps))
