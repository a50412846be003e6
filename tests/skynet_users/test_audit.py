"""The audit log: rows are only added, and whoever changes the file behind it is found out."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skynet_memory.database import Database, Statements
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import Role, UserId, new_id
from skynet_memory.migrations import migrate
from skynet_users import audit
from skynet_users.audit import Action, AuditLog, append, chain, parse_head
from skynet_users.audit_schema import COMPONENT as AUDIT_TABLES
from skynet_users.audit_schema import START
from skynet_users.people import User, UserStore
from skynet_users.schema import COMPONENT as USER_TABLES

NOON = 1_795_262_400_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, AUDIT_TABLES])
        yield db


@pytest.fixture
async def ada(store: Database) -> User:
    return await UserStore(store).add("Ada", Role.ADMIN)


async def fill(log: AuditLog, rows: int = 10, actor: UserId | None = None) -> None:
    for number in range(rows):
        await log.record(
            Action.USER_CHANGED,
            actor=actor or UserId("somebody"),
            subject=f"thing {number}",
            details={"number": number},
            now_ms=NOON + number,
        )


def edit(path: Path, *statements: str) -> None:
    """Change the file as somebody with access to it would: without the triggers."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


class TestRecording:
    """Rows with numbers without gaps."""

    async def test_what_is_recorded_is_listed_newest_first(self, store: Database, ada: User) -> None:
        log = AuditLog(store)
        ben = await UserStore(store).add("Ben", Role.CHILD)
        await log.record(Action.LOGIN, actor=ada.id, details={"client": "cli", "local": True}, now_ms=NOON)
        await log.record(Action.USER_CHANGED, actor=ada.id, subject=ben.id, now_ms=NOON + 1)
        await log.record(Action.LOGIN_FAILED, actor="", now_ms=NOON + 2)
        failed, changed, login = await log.list()
        assert (login.seq, login.actor, login.actor_name, login.details) == (
            1, ada.id, "Ada", {"client": "cli", "local": True},
        )  # fmt: skip
        assert (changed.action, changed.subject, changed.subject_name, changed.at_ms) == (
            "user.changed", ben.id, "Ben", NOON + 1,
        )  # fmt: skip
        assert (failed.actor, failed.actor_name, failed.subject_name) == ("", "", "")
        assert await log.head() == f"3:{failed.hash}"

    async def test_it_outlives_the_people_in_it(self, store: Database, ada: User) -> None:
        """The name is the one of that time."""
        log, people = AuditLog(store), UserStore(store)
        ben = await people.add("Ben", Role.USER)
        await log.record(Action.USER_REMOVED, actor=ada.id, subject=ben.id)
        assert await people.remove(ben.id)
        (entry,) = await log.list()
        assert (entry.subject, entry.subject_name) == (ben.id, "Ben")
        assert (await log.verify()).ok

    async def test_rows_written_at_once_are_chained(self, store: Database, ada: User) -> None:
        log = AuditLog(store)
        await asyncio.gather(*(log.record(Action.LOGIN, actor=ada.id, subject=str(number)) for number in range(100)))
        assert sorted(entry.seq for entry in await log.list(100)) == list(range(1, 101))
        assert (await log.verify()).rows == 100

    async def test_the_hash_can_be_computed_by_others(self, store: Database, ada: User) -> None:
        """SK-193: as docs/audit.md says, with nothing but SHA-256 and JSON."""
        log = AuditLog(store)
        await log.record("login", actor=ada.id, subject="Zoë", details={"b": 1, "a": "é"}, now_ms=NOON)
        (entry,) = await log.list()
        text = json.dumps([1, NOON, "login", ada.id, "Ada", "Zoë", "", '{"a":"é","b":1}'], separators=(",", ":"))
        assert entry.hash == hashlib.sha256(("0" * 64 + text).encode()).hexdigest()

    async def test_a_record_is_part_of_the_write_it_is_made_in(self, store: Database, ada: User) -> None:
        def fail(tx: Statements) -> None:
            append(tx, Action.USER_ADDED, actor=ada.id, now_ms=NOON)
            raise ValueError("changed one's mind")

        with pytest.raises(ValueError, match="mind"):
            await store.write(fail)
        assert await AuditLog(store).list() == []
        assert (await AuditLog(store).verify()).ok

    async def test_pages_and_filters(self, store: Database, ada: User) -> None:
        """BA-285: by person and by time."""
        log = AuditLog(store)
        for number, action in enumerate(["login", "login.failed", "user.added", "user.removed", "username"]):
            await log.record(action, actor=ada.id if number % 2 else "", subject=f"s{number}", now_ms=NOON + number)

        async def found(**filters: object) -> list[int]:
            return [entry.seq for entry in await log.list(**filters)]  # type: ignore[arg-type]

        assert await found(limit=2) == [5, 4]
        assert await found(limit=2, before=4) == [3, 2]
        assert await found(limit=0) == [5]
        assert await found(action="login") == [2, 1]
        assert await found(action="login.failed") == [2]
        assert await found(action="user") == [4, 3]
        assert await found(action="%") == []
        assert await found(actor=ada.id) == [4, 2]
        assert await found(actor="") == [5, 3, 1]
        assert await found(subject="s0") == [1]
        assert await found(since_ms=NOON + 1, until_ms=NOON + 3) == [3, 2]
        await fill(log, 300)
        assert len(await log.list(1000)) == audit.MOST_LISTED

    async def test_texts_are_bounded_and_any_can_be_stored(self, store: Database) -> None:
        log = AuditLog(store)
        await log.record("a" * 600, actor="", subject="\ud800 \0 %", details={"long": "x" * 5000, "half": "\udfff"})
        await log.record("b", actor="", details={"many": ["x" * 400] * 40})
        many, long = await log.list()
        assert (len(long.action), long.subject, len(long.details["long"])) == (500, "? \0 %", 500)
        assert list(many.details) == ["shortened"]
        assert (await log.verify()).ok

    @settings(max_examples=30)
    @given(
        details=st.dictionaries(
            st.text(max_size=20),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(),
                lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
                max_leaves=8,
            ),
            max_size=5,
        ),
        subject=st.text(max_size=40),
    )
    def test_whatever_is_recorded_verifies(
        self, details: dict[str, object], subject: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        async def play() -> None:
            async with Database(tmp_path_factory.mktemp("audit") / "skynet.db") as db:
                await migrate(db, [USER_TABLES, AUDIT_TABLES])
                log = AuditLog(db)
                await log.record("login", actor="", subject=subject, details=details)
                await log.record("login", actor="", subject=subject, details=details)
                assert (await log.verify()).ok

        asyncio.run(play())


class TestNotes:
    """What strangers can cause is bounded."""

    async def test_beyond_so_many_in_a_minute_they_are_counted_only(self, store: Database, ada: User) -> None:
        log = AuditLog(store)
        for number in range(1000):
            await log.note(Action.LOGIN_FAILED, actor="", subject=f"device {number}", now_ms=NOON + number)
        await log.note(Action.LOGIN_FAILED, actor=ada.id, now_ms=NOON + 1)
        await log.note(Action.LOGIN, actor="", now_ms=NOON + 1)
        assert len(await log.list(200)) == audit.MOST_NOTES + 2
        for number in range(2):
            await log.note(Action.LOGIN_FAILED, actor="", details={"reason": "x"}, now_ms=NOON + 60_000 + number)
        second, first, *_ = await log.list()
        assert first.details == {"reason": "x", "leftOut": 1000 - audit.MOST_NOTES}
        assert second.details == {"reason": "x"}

    async def test_one_person_fills_no_disk_with_what_has_to_be_recorded(
        self, store: Database, ada: User, ben: User
    ) -> None:
        """Beyond so many in a minute the action is refused; others, notes and the next minute are not."""
        log = AuditLog(store)
        for number in range(audit.MOST_RECORDS):
            await log.record(Action.MEMORY_ERASED, actor=ada.id, subject=ada.id, now_ms=NOON + number)
        with pytest.raises(StorageUnavailable):
            await log.record(Action.TOKEN_CREATED, actor=ada.id, now_ms=NOON + 1000)
        await log.record(Action.TOKEN_CREATED, actor=ben.id, now_ms=NOON + 1000)
        await log.note(Action.PERMISSION_REFUSED, actor=ada.id, now_ms=NOON + 1000)
        await log.record(Action.TOKEN_CREATED, actor=ada.id, now_ms=NOON + 60_000)
        assert (await log.verify()).rows == audit.MOST_RECORDS + 3

    async def test_many_actors_are_not_all_remembered(self, store: Database) -> None:
        log = AuditLog(store)
        for number in range(1100):
            await log.note("permission.refused", actor=UserId(str(number)), now_ms=NOON + number * 1000)
        assert len(log._minutes) <= 1000
        assert (await log.verify()).rows == 1100

    async def test_what_was_done_is_never_left_out(self, store: Database, ada: User) -> None:
        log = AuditLog(store)
        for _ in range(100):
            await log.record(Action.TOKEN_CREATED, actor=ada.id, now_ms=NOON)
        assert (await log.verify()).rows == 100


class TestAppendOnly:
    """The database itself refuses everything else."""

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE audit SET actor = 'ben' WHERE seq = 2",
            "DELETE FROM audit WHERE seq = 10",
            "DELETE FROM audit",
            "INSERT INTO audit VALUES (12, 0, '', '', '', '', '', '', '')",
            "INSERT INTO audit VALUES (0, 0, '', '', '', '', '', '', '')",
            "INSERT OR REPLACE INTO audit VALUES (5, 0, '', '', '', '', '', '', '')",
            "UPDATE audit_head SET count = 9",
            "UPDATE audit_head SET hash = ''",
            "DELETE FROM audit_head",
            "INSERT OR REPLACE INTO audit_head VALUES (1, 11, '')",
        ],
    )
    async def test_refused(self, store: Database, statement: str) -> None:
        log = AuditLog(store)
        await fill(log)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            await store.write(lambda tx: tx.execute(statement))
        assert (await log.verify()).rows == 10


class TestVerify:
    """SK-193: whatever is done to the file is found, and where."""

    @pytest.mark.parametrize(
        ("statements", "problem", "seq"),
        [
            (["UPDATE audit SET actor = 'ben' WHERE seq = 4"], "changed", 4),
            (["UPDATE audit SET at_ms = at_ms + 1 WHERE seq = 1"], "changed", 1),
            (["UPDATE audit SET details = '{\"number\": 3}' WHERE seq = 4"], "changed", 4),
            (["UPDATE audit SET actor_name = CAST(x'ff' AS TEXT) WHERE seq = 4"], "changed", 4),
            (["UPDATE audit SET hash = upper(hash) WHERE seq = 10"], "changed", 10),
            (["DELETE FROM audit WHERE seq = 4"], "missing", 4),
            (["DELETE FROM audit WHERE seq = 1"], "missing", 1),
            (["DELETE FROM audit WHERE seq > 7"], "cut", 8),
            (["DELETE FROM audit"], "cut", 1),
            (["DELETE FROM audit WHERE seq = 4", "UPDATE audit SET seq = seq - 1 WHERE seq > 4"], "changed", 4),
            (
                [
                    "UPDATE audit SET seq = 99 WHERE seq = 4",
                    "UPDATE audit SET seq = 4 WHERE seq = 5",
                    "UPDATE audit SET seq = 5 WHERE seq = 99",
                ],
                "changed",
                4,
            ),
            (
                [
                    "UPDATE audit SET seq = -seq WHERE seq >= 4",
                    "UPDATE audit SET seq = 1 - seq WHERE seq < 0",
                    "INSERT INTO audit SELECT 4, at_ms, action, actor, actor_name, subject, subject_name, details, hash"
                    " FROM audit WHERE seq = 3",
                ],
                "changed",
                4,
            ),
            (["INSERT INTO audit VALUES (11, 0, '', '', '', '', '', '', '')"], "added", 11),
            (["INSERT INTO audit VALUES (13, 0, '', '', '', '', '', '', '')"], "added", 11),
            (["INSERT INTO audit VALUES (0, 0, '', '', '', '', '', '', '')"], "added", 0),
            (["INSERT INTO audit VALUES (-7, 0, '', '', '', '', '', '', '')"], "added", -7),
            (["DELETE FROM audit_head"], "head", 10),
            (["UPDATE audit_head SET hash = '00'"], "head", 10),
            (["UPDATE audit_head SET count = 11"], "cut", 11),
            (["DELETE FROM audit WHERE seq > 7", "UPDATE audit_head SET count = 7"], "head", 7),
            (["DELETE FROM audit WHERE seq = 9", "UPDATE audit_head SET count = 9"], "missing", 9),
        ],
    )
    async def test_what_was_done_to_the_file(
        self, store: Database, statements: list[str], problem: str, seq: int
    ) -> None:
        log = AuditLog(store)
        await fill(log)
        assert (await log.verify()).ok
        edit(store.path, *statements)
        result = await log.verify()
        assert (result.ok, result.problem, result.first_bad_seq) == (False, problem, seq)
        await log.list()

    @pytest.mark.parametrize("column", ["action", "actor", "actor_name", "subject", "subject_name", "details", "hash"])
    async def test_every_column_counts(self, store: Database, column: str) -> None:
        log = AuditLog(store)
        await fill(log)
        edit(store.path, f"UPDATE audit SET {column} = {column} || ' ' WHERE seq = 6")
        assert ((await log.verify()).problem, (await log.verify()).first_bad_seq) == ("changed", 6)

    async def test_a_row_whose_hash_is_computed_anew_does_not_fit_the_next(self, store: Database) -> None:
        log = AuditLog(store)
        await fill(log)
        forge(store.path, from_seq=6, to_seq=6)
        assert ((await log.verify()).problem, (await log.verify()).first_bad_seq) == ("changed", 7)

    async def test_a_chain_that_is_written_anew_does_not_fit_the_head_that_was_kept_elsewhere(
        self, store: Database
    ) -> None:
        """The one thing that the file alone cannot tell; docs/audit.md says so."""
        log = AuditLog(store)
        await fill(log)
        kept = await log.head()
        await fill(log, 3)
        assert (await log.verify(kept)).ok
        forge(store.path, from_seq=6, to_seq=13)
        assert ((await log.verify()).problem, (await log.verify()).first_bad_seq) == ("head", 13)
        last = (await log.list(1))[0].hash
        edit(store.path, f"UPDATE audit_head SET hash = '{last}'")
        assert (await log.verify()).ok
        result = await log.verify(kept)
        assert (result.problem, result.first_bad_seq) == ("unlike", 10)
        assert (await log.verify(f"14:{last}")).problem == "cut"

    async def test_an_empty_log_is_right(self, store: Database) -> None:
        log = AuditLog(store)
        result = await log.verify()
        assert (result.ok, result.rows, result.head) == (True, 0, f"0:{START}")
        assert result.head == await log.head()

    async def test_it_goes_in_batches_while_rows_are_added(
        self, store: Database, ada: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit, "BATCH_ROWS", 7)
        log = AuditLog(store)
        await fill(log, 50)
        async with asyncio.TaskGroup() as group:
            verification = group.create_task(log.verify())
            for _ in range(50):
                group.create_task(log.record("login", actor=ada.id))
        assert verification.result().ok and verification.result().rows >= 50
        assert (await log.verify()).rows == 100
        edit(store.path, "UPDATE audit SET subject = '' WHERE seq = 50")
        assert (await log.verify()).first_bad_seq == 50

    @pytest.mark.parametrize("text", ["x", "1:", ":" + "0" * 64, "1:" + "g" * 64, "-1:" + "0" * 64, "1:" + "0" * 65])
    def test_what_is_no_head(self, text: str) -> None:
        with pytest.raises(ValueError, match="not the head"):
            parse_head(text)

    async def test_what_was_written_over_is_still_listed(self, store: Database) -> None:
        log = AuditLog(store)
        await fill(log, 3)
        edit(
            store.path,
            "UPDATE audit SET details = 'x' WHERE seq = 1",
            "UPDATE audit SET details = '[]' WHERE seq = 2",
            "UPDATE audit SET actor = CAST(x'ff41' AS TEXT) WHERE seq = 3",
        )
        third, second, first = await log.list()
        assert (first.details, second.details, third.actor) == ({"unreadable": "x"}, {"unreadable": "[]"}, "?A")


def forge(path: Path, *, from_seq: int, to_seq: int) -> None:
    """Change a row and compute the hashes from there on."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE audit SET actor = 'ben' WHERE seq = ?", (from_seq,))
        (last,) = connection.execute("SELECT hash FROM audit WHERE seq = ?", (from_seq - 1,)).fetchone()
        for seq in range(from_seq, to_seq + 1):
            *row, _ = connection.execute("SELECT * FROM audit WHERE seq = ?", (seq,)).fetchone()
            last = chain(last, row)
            connection.execute("UPDATE audit SET hash = ? WHERE seq = ?", (last, seq))
        connection.commit()


class TestWhenItCannotBeStored:
    """An action that cannot be recorded fails; what happens anyway is in the log file."""

    @pytest.fixture
    async def full(self, store: Database) -> Database:
        """A disk without room for another row."""
        pages = await store.write(lambda tx: tx.fetchone("PRAGMA page_count"))
        assert pages is not None
        await store.write(lambda tx: tx.fetchone(f"PRAGMA max_page_count = {pages[0]}"))
        log = AuditLog(store)
        with pytest.raises(StorageUnavailable):
            for _ in range(1000):
                await log.record("login", actor="", details={"text": "x" * 400})
        return store

    async def test_an_action_fails(self, full: Database) -> None:
        with pytest.raises(StorageUnavailable, match="full"):
            await AuditLog(full).record(Action.USER_ADDED, actor="", details={str(n): "x" * 400 for n in range(9)})

    async def test_a_note_is_in_the_log_file(self, full: Database, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.ERROR):
            await AuditLog(full).note("login", actor=UserId("ada"), details={str(n): "x" * 400 for n in range(9)})
        assert "not in the audit log: login by ada on nothing: storage unavailable: the disk is full" in caplog.text

    async def test_what_failed_leaves_the_chain_whole(self, full: Database) -> None:
        await full.write(lambda tx: tx.fetchone("PRAGMA max_page_count = 1000000"))
        log = AuditLog(full)
        await log.record(Action.USER_ADDED, actor="")
        assert (await log.verify()).ok

    async def test_without_its_head_nothing_is_recorded_and_nobody_is_locked_out(
        self, store: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        edit(store.path, "DELETE FROM audit_head")
        log = AuditLog(store)
        assert await log.head() == ""
        with pytest.raises(LookupError, match="skynet audit verify"):
            await log.record("user.added", actor="")
        await log.note("login", actor="")
        assert "not in the audit log: login by nobody" in caplog.text


async def test_every_filter_has_its_index(store: Database) -> None:
    for condition in ("actor = ''", "subject = ''", "action > 'a' AND action < 'b'", "seq < 5"):
        rows = await store.fetchall(f"EXPLAIN QUERY PLAN SELECT * FROM audit WHERE {condition}")
        assert "SEARCH" in rows[0][3], condition


@pytest.mark.parametrize("cut", range(1, 8))
async def test_a_cancelled_record_is_there_or_not(store: Database, cut: int) -> None:
    log = AuditLog(store)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(log.record("login", actor=UserId(new_id())))
        for _ in range(cut):
            await asyncio.sleep(0)
        task.cancel()
    await log.record("login", actor="")
    result = await log.verify()
    assert result.ok and result.rows in (1, 2)


class TestDocumentation:
    """``docs/audit.md`` says what the code does."""

    TEXT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()

    def test_every_action_and_every_problem_has_its_row(self) -> None:
        cells = [line.split("|")[1] for line in self.TEXT.splitlines() if line.startswith("| `")]
        words = {word for cell in cells for word in re.findall(r"`([a-z.]+)`", cell)}
        assert words == set(Action) | set(get_args(audit.Problem))

    def test_its_numbers(self) -> None:
        assert f"cut at {audit.MAX_TEXT} characters" in self.TEXT
        assert f"at most {audit.MOST_NOTES} rows a minute" in self.TEXT
        assert f"more than {audit.MOST_RECORDS} times\na minute" in self.TEXT
