"""Any sequence of session operations of two people does what a small model in memory does."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from skynet_memory import schema
from skynet_memory.database import Database
from skynet_memory.errors import LabelInUse, RunNotOpen, SessionNotFound
from skynet_memory.ids import RunId, SessionId, UserId
from skynet_memory.migrations import migrate
from skynet_memory.sessions import Session, SessionChanges, SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnBegun, TurnRepeated, TurnStore
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person, finish, key, message, text_of

Step = tuple[str, UserId, str, str, int]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["touch", "begin", "begin", "finish", "append", "reset", "delete", "keep", "label", "truncate"]
        ),
        st.sampled_from([ADA, BEN]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["1", "2", "3"]),  # a run id, a label, a number to keep
        st.integers(-3, 3),  # the clock moves by this
    ),
    max_size=30,
)


@dataclass
class Mine:
    """One person's part of the model. A transcript is (texts, first visible)."""

    sessions: dict[str, tuple[SessionId, str, int]] = field(default_factory=dict)  # name: (id, label, updated)
    transcripts: dict[SessionId, list[str]] = field(default_factory=dict)
    hidden: dict[SessionId, int] = field(default_factory=dict)
    under: dict[str, set[SessionId]] = field(default_factory=dict)  # every session id a name ever had
    runs: dict[str, tuple[str, SessionId, bool]] = field(default_factory=dict)  # run id: (name, session id, open)

    def put(self, session: Session) -> None:
        old = self.sessions.get(session.name)
        assert old is None or session.updated_at_ms > old[2]
        self.sessions[session.name] = (session.session_id, session.label, session.updated_at_ms)
        self.transcripts.setdefault(session.session_id, [])
        self.under.setdefault(session.name, set()).add(session.session_id)


class Checked:
    def __init__(self, db: Database) -> None:
        self.stores = SessionStore(db), TranscriptStore(db), TurnStore(db)
        self.people = {ADA: Mine(), BEN: Mine()}
        self.db = db

    async def step(self, number: int, step: Step, now_ms: int) -> None:
        sessions, transcripts, turns = self.stores
        verb, owner, name, word, _ = step
        mine, text = self.people[owner], f"text {number}"
        match verb:
            case "touch":
                mine.put(await sessions.get_or_create(owner, key(owner, name), at_ms=now_ms))
            case "begin":
                begun = await turns.begin(
                    owner=owner,
                    key=key(owner, name),
                    run_id=RunId(word),
                    kind="chat",
                    payload=message("user", text),
                    now_ms=now_ms,
                )
                assert isinstance(begun, TurnRepeated if word in mine.runs else TurnBegun)
                if isinstance(begun, TurnBegun):
                    mine.put(begun.session)
                    mine.transcripts[begun.session.session_id].append(text)
                    mine.runs[word] = (name, begun.session.session_id, True)
            case "finish":
                run_name, session_id, is_open = mine.runs.get(word, ("", SessionId(""), False))
                try:
                    session = await finish(turns, owner, RunId(word), text, at_ms=now_ms)
                except RunNotOpen:
                    assert not is_open
                except SessionNotFound:
                    assert is_open
                    assert run_name not in mine.sessions
                else:
                    assert is_open
                    if session.session_id == session_id:
                        mine.put(session)
                if is_open:
                    mine.runs[word] = (run_name, session_id, False)
                    if session_id in mine.transcripts:
                        mine.transcripts[session_id].append(text)
            case "append":
                try:
                    entry = await transcripts.append(owner, key(owner, name), message("assistant", text), at_ms=now_ms)
                except SessionNotFound:
                    assert name not in mine.sessions
                else:
                    mine.transcripts[entry.session_id].append(text)
                    await self.refreshed(owner, name)
            case "reset":
                session = await sessions.reset(owner, key(owner, name), at_ms=now_ms)
                assert name not in mine.sessions or session.session_id != mine.sessions[name][0]
                mine.put(session)
            case "delete" | "keep":
                deleted = await sessions.delete(owner, key(owner, name), keep_transcript=verb == "keep")
                assert deleted == (mine.sessions.pop(name, None) is not None)
                if deleted and verb == "delete":
                    for session_id in mine.under.pop(name):
                        del mine.transcripts[session_id]
            case "label":
                taken = any(label == word for other, (_, label, _) in mine.sessions.items() if other != name)
                try:
                    session = await sessions.patch(owner, key(owner, name), SessionChanges(label=word))
                except LabelInUse:
                    assert taken
                else:
                    assert not taken
                    if name not in mine.sessions:
                        mine.put(session)
                    session_id, _, updated = mine.sessions[name]
                    assert (session.session_id, session.updated_at_ms) == (session_id, updated)
                    mine.sessions[name] = (session_id, word, updated)
            case "truncate":
                try:
                    cut = await transcripts.truncate_view(owner, key(owner, name), int(word), at_ms=now_ms)
                except SessionNotFound:
                    assert name not in mine.sessions
                else:
                    session_id = mine.sessions[name][0]
                    visible = len(mine.transcripts[session_id]) - mine.hidden.get(session_id, 0)
                    assert (cut.kept, cut.covered) == (min(int(word), visible), max(0, visible - int(word)))
                    mine.hidden[session_id] = mine.hidden.get(session_id, 0) + cut.covered
                    if cut.covered:
                        await self.refreshed(owner, name)

    async def refreshed(self, owner: UserId, name: str) -> None:
        session = await self.stores[0].get(owner, key(owner, name))
        assert session is not None
        self.people[owner].put(session)

    async def check(self) -> None:
        sessions, transcripts, _ = self.stores
        for owner, mine in self.people.items():
            listed = await sessions.list(owner)
            expected = sorted(mine.sessions.items(), key=lambda item: (item[1][2], item[0]), reverse=True)
            assert [(row.name, (row.session_id, row.label, row.updated_at_ms)) for row in listed] == expected
            assert await sessions.count(owner) == len(mine.sessions)
            for session_id, texts in mine.transcripts.items():
                for covered in (True, False):
                    entries = await transcripts.history(owner, session_id, limit=100, include_covered=covered)
                    visible = texts if covered else texts[mine.hidden.get(session_id, 0) :]
                    assert [text_of(entry.payload) for entry in entries] == visible
            rows = await self.db.fetchall("SELECT count(*) FROM entries WHERE owner = ?", (owner,))
            assert rows[0][0] == sum(len(texts) for texts in mine.transcripts.values())


async def run(sequence: list[Step]) -> None:
    with TemporaryDirectory() as directory:
        async with Database(Path(directory) / "a.db", readers=1) as db:
            await migrate(db, [USER_TABLES, schema.COMPONENT])
            for owner in (ADA, BEN):
                await add_person(db, owner)
            checked, now_ms = Checked(db), T0
            for number, step in enumerate(sequence):
                now_ms += step[4]
                await checked.step(number, step, now_ms)
            await checked.check()


@settings(max_examples=60, deadline=None)
@given(steps)
def test_like_the_model(sequence: list[Step]) -> None:
    asyncio.run(run(sequence))
