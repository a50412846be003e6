import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from skynet_memory.database import MAX_BATCH, Database, Statements
from skynet_memory.errors import DatabaseInUse, DatabaseRefused, StorageUnavailable


@pytest.fixture
async def db(empty: Database) -> AsyncIterator[Database]:
    async with empty.transaction() as tx:
        await tx.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT")
    yield empty


def insert(text: str, then: Exception | None = None):
    def work(tx: Statements) -> int:
        tx.execute("INSERT INTO items (text) VALUES (?)", (text,))
        if then is not None:
            raise then
        return len(text)

    return work


async def texts(db: Database) -> list[str]:
    return [row["text"] for row in await db.fetchall("SELECT text FROM items ORDER BY id")]


class TestOpening:
    async def test_settings(self, db: Database) -> None:
        async with db.transaction() as tx:
            for pragma, value in {
                "journal_mode": "wal",
                "foreign_keys": 1,
                "synchronous": 1,
                "secure_delete": 1,
            }.items():
                row = await tx.fetchone(f"PRAGMA {pragma}")
                assert row is not None and row[0] == value, pragma

    async def test_full_synchronous(self, tmp_path: Path) -> None:
        async with Database(tmp_path / "a.db", synchronous="FULL") as db, db.transaction() as tx:
            row = await tx.fetchone("PRAGMA synchronous")
            assert row is not None and row[0] == 2

    async def test_files_are_private(self, tmp_path: Path) -> None:
        path = tmp_path / "home" / "deep" / "skynet.db"
        async with Database(path) as db:
            async with db.transaction() as tx:
                await tx.execute("CREATE TABLE t (x TEXT) STRICT")
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == dict.fromkeys(["skynet.db", "skynet.db-wal", "skynet.db-shm", "skynet.db.lock"], 0o600)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    async def test_an_open_file_is_made_private(self, tmp_path: Path) -> None:
        path = tmp_path / "skynet.db"
        path.touch(0o644)
        async with Database(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_second_opener_is_told_who(self, db: Database) -> None:
        with pytest.raises(DatabaseInUse) as caught:
            async with Database(db.path):
                pass
        assert caught.value.pid == os.getpid()
        assert str(os.getpid()) in str(caught.value)

    async def test_second_process_is_told_who(self, db: Database) -> None:
        script = (
            "import asyncio, sys, pathlib\n"
            "from skynet_memory.database import Database\n"
            "from skynet_memory.errors import DatabaseInUse\n"
            "async def main():\n"
            "    try:\n"
            "        async with Database(pathlib.Path(sys.argv[1])): print('opened')\n"
            "    except DatabaseInUse as exc: print(exc.pid)\n"
            "asyncio.run(main())\n"
        )
        answer = await asyncio.to_thread(
            partial(subprocess.run, capture_output=True, check=True, text=True, cwd=Path(__file__).parents[2]),
            [sys.executable, "-c", script, str(db.path)],
        )
        assert answer.stdout == f"{os.getpid()}\n"

    async def test_reopening_after_a_refusal_and_after_closing(self, tmp_path: Path) -> None:
        path = tmp_path / "a.db"
        for _ in range(3):
            async with Database(path):
                with pytest.raises(DatabaseInUse):
                    async with Database(path):
                        pass

    @pytest.mark.parametrize("content", [b"not a database, but long enough to be one" * 100, b"x"])
    async def test_another_kind_of_file(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "skynet.toml"
        path.write_bytes(content)
        with pytest.raises(DatabaseRefused, match="not a database"):
            async with Database(path):
                pass
        assert path.read_bytes() == content

    async def test_a_directory(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "file" / "skynet.db"):
            (tmp_path / "file").touch()
            with pytest.raises(DatabaseRefused, match=r"irectory|File exists"):
                async with Database(path):
                    pass

    async def test_nothing_is_left_open(self, tmp_path: Path) -> None:
        def counts() -> tuple[int, int]:
            return len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks())

        async with Database(tmp_path / "a.db"):
            pass
        await asyncio.to_thread(wait_for_threads, 1)
        before, threads = counts(), threading.active_count()
        for _ in range(10):
            async with Database(tmp_path / "a.db") as db:
                await db.fetchone("SELECT 1")
        await asyncio.to_thread(wait_for_threads, threads - 1)  # the one that waits is counted already
        assert counts() == before

    async def test_closing_finishes_what_is_queued(self, tmp_path: Path) -> None:
        async with Database(tmp_path / "a.db") as db:
            await db.write(lambda tx: tx.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT UNIQUE)"))
            tasks = [asyncio.create_task(db.write(insert(f"{n}"))) for n in range(200)]
            await asyncio.sleep(0)
        assert await asyncio.gather(*tasks) == [len(f"{n}") for n in range(200)]
        with pytest.raises(RuntimeError, match="not open"):
            await db.write(insert("late"))
        with pytest.raises(RuntimeError, match="not open"):
            await db.fetchone("SELECT 1")


class TestWriting:
    async def test_write_returns_the_result_after_the_commit(self, db: Database) -> None:
        assert await db.write(insert("hello")) == 5
        assert await texts(db) == ["hello"]

    async def test_a_failing_write_undoes_itself(self, db: Database) -> None:
        with pytest.raises(ValueError, match="no"):
            await db.write(insert("a", then=ValueError("no")))
        assert await texts(db) == []
        with pytest.raises(sqlite3.IntegrityError):
            await db.write(lambda tx: tx.executemany("INSERT INTO items (text) VALUES (?)", [("a",), ("b",), ("a",)]))
        assert await texts(db) == []

    async def test_readers_see_only_what_is_committed(self, db: Database) -> None:
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO items (text) VALUES ('a')")
            assert await tx.fetchall("SELECT 1 FROM items") != []
            assert await texts(db) == []
        assert await texts(db) == ["a"]

    async def test_reads_of_one_piece_see_one_state(self, db: Database) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def work(tx: Statements) -> list[int]:
            first = tx.fetchall("SELECT 1 FROM items")
            inside.set()
            assert go_on.wait(10)
            return [len(first), len(tx.fetchall("SELECT 1 FROM items"))]

        reading = asyncio.create_task(db.read(work))
        await asyncio.to_thread(inside.wait, 10)
        await db.write(insert("a"))
        go_on.set()
        assert await reading == [0, 0]
        assert await texts(db) == ["a"]

    async def test_readers_cannot_write(self, db: Database) -> None:
        with pytest.raises((sqlite3.OperationalError, StorageUnavailable)):
            await db.fetchall("INSERT INTO items (text) VALUES ('a') RETURNING id")

    async def test_queued_writes_share_a_commit(self, db: Database) -> None:
        watcher = sqlite3.connect(db.path)
        versions = []

        def work(n: int):
            def inner(tx: Statements) -> None:
                tx.execute("INSERT INTO items (text) VALUES (?)", (f"{n}",))

            return inner

        async def one(n: int) -> None:
            await db.write(work(n))
            versions.append(watcher.execute("PRAGMA data_version").fetchone()[0])

        async with asyncio.TaskGroup() as group:
            for n in range(MAX_BATCH):
                group.create_task(one(n))
        watcher.close()
        assert len(await texts(db)) == MAX_BATCH
        assert len(set(versions)) <= 2  # the first alone at most, then all that queued behind it

    async def test_one_failing_piece_of_a_batch(self, db: Database) -> None:
        jobs = [
            db.write(insert("a")),
            db.write(insert("a")),
            db.write(insert("b", ValueError("no"))),
            db.write(insert("c")),
        ]
        first, same, failed, last = await asyncio.gather(*jobs, return_exceptions=True)
        assert (first, last) == (1, 1)
        assert isinstance(same, sqlite3.IntegrityError)
        assert isinstance(failed, ValueError)
        assert await texts(db) == ["a", "c"]

    async def test_transactions_and_writes_share_a_commit_in_order(self, db: Database) -> None:
        order: list[str] = []

        async def interactive(text: str, fail: bool = False) -> None:
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO items (text) VALUES (?)", (text,))
                order.append(text)
                if fail:
                    raise ValueError(text)

        jobs = [
            interactive("a"),
            db.write(insert("b")),
            interactive("c", fail=True),
            interactive("d"),
            db.write(insert("e")),
        ]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), int, ValueError, type(None), int]
        assert order == ["a", "c", "d"]
        assert await texts(db) == ["a", "b", "d", "e"]

    async def test_a_failed_commit_fails_all_of_the_batch(self, db: Database) -> None:
        await db.write(
            lambda tx: tx.execute(
                "CREATE TABLE children (id INTEGER PRIMARY KEY,"
                " item INTEGER NOT NULL REFERENCES items(id) DEFERRABLE INITIALLY DEFERRED) STRICT"
            )
        )
        orphan = db.write(lambda tx: tx.execute("INSERT INTO children (item) VALUES (99)"))
        results = await asyncio.gather(db.write(insert("a")), orphan, db.write(insert("b")), return_exceptions=True)
        assert [type(result) for result in results] == [sqlite3.IntegrityError] * 3
        assert await texts(db) == []
        assert await db.write(insert("c")) == 1
        assert await texts(db) == ["c"]

    async def test_a_failed_commit_fails_an_open_block(self, db: Database) -> None:
        await db.write(
            lambda tx: tx.execute(
                "CREATE TABLE children (id INTEGER PRIMARY KEY,"
                " item INTEGER NOT NULL REFERENCES items(id) DEFERRABLE INITIALLY DEFERRED) STRICT"
            )
        )
        with pytest.raises(sqlite3.IntegrityError):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO children (item) VALUES (99)")
        assert await db.fetchall("SELECT 1 FROM children") == []
        assert await db.write(insert("c")) == 1

    async def test_writing_inside_the_own_transaction_is_refused(self, db: Database) -> None:
        async with db.transaction() as tx:
            with pytest.raises(RuntimeError, match="already inside"):
                await db.write(insert("a"))
            with pytest.raises(RuntimeError, match="already inside"):
                async with db.transaction():
                    pass
            await tx.execute("INSERT INTO items (text) VALUES ('b')")
        assert await texts(db) == ["b"]

    async def test_a_transaction_that_is_over_is_over(self, db: Database) -> None:
        async with db.transaction() as tx:
            pass
        with pytest.raises(RuntimeError, match="over"):
            await tx.execute("INSERT INTO items (text) VALUES ('late')")

    async def test_versions_count_committed_changes(self, db: Database) -> None:
        def change(text: str, then: Exception | None = None):
            def work(tx: Statements) -> None:
                tx.changed("items")
                insert(text, then)(tx)

            return work

        assert db.version("items") == 0
        await db.write(change("a"))
        assert db.version("items") == 1
        with pytest.raises(ValueError):
            await db.write(change("b", ValueError()))
        assert db.version("items") == 1
        async with db.transaction() as tx:
            await tx.run(change("c"))
            assert db.version("items") == 1
        assert db.version("items") == 2
        assert db.version("other") == 0


def parts_in(directory: Path) -> list[Path]:
    return list(directory.glob("*.part"))


def wait_for_threads(count: int) -> None:
    """Until no more than these are left, and the one that waits."""
    deadline = time.monotonic() + 10
    while threading.active_count() > count + 1:
        assert time.monotonic() < deadline, threading.enumerate()


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class TestCancellation:
    """A write is cancelled after n steps of the loop: it is there whole or not at all, and the next one works."""

    @pytest.mark.parametrize("wait_s", [0, 0.002], ids=["at once", "after the thread had time"])
    @pytest.mark.parametrize("n", range(24))
    async def test_transaction(self, db: Database, n: int, wait_s: float) -> None:
        async def pair() -> None:
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO items (text) VALUES ('first')")
                await tx.execute("INSERT INTO items (text) VALUES ('second')")

        task = asyncio.create_task(pair())
        await steps(n // 2)
        await asyncio.sleep(wait_s)
        await steps(n - n // 2)
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
        assert await db.write(insert("next")) == 4
        found = await texts(db)
        assert found in (["next"], ["first", "second", "next"])
        if ended == [None]:
            assert found == ["first", "second", "next"]

    @pytest.mark.parametrize("n", range(24))
    async def test_transaction_with_others_in_the_batch(self, db: Database, n: int) -> None:
        async def pair(name: str) -> None:
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO items (text) VALUES (?)", (f"{name}1",))
                await tx.execute("INSERT INTO items (text) VALUES (?)", (f"{name}2",))

        before = asyncio.create_task(pair("before"))
        task = asyncio.create_task(pair("x"))
        after = asyncio.create_task(db.write(insert("after")))
        await steps(n)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(before, after)
        found = await texts(db)
        assert set(found) - {"x1", "x2"} == {"before1", "before2", "after"}
        assert ("x1" in found) == ("x2" in found)

    @pytest.mark.parametrize("n", range(16))
    async def test_write(self, db: Database, n: int) -> None:
        def pair(tx: Statements) -> None:
            tx.execute("INSERT INTO items (text) VALUES ('first')")
            tx.execute("INSERT INTO items (text) VALUES ('second')")

        task = asyncio.create_task(db.write(pair))
        await steps(n)
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
        assert await db.write(insert("next")) == 4
        found = await texts(db)
        assert found in (["next"], ["first", "second", "next"])
        if ended == [None]:
            assert found == ["first", "second", "next"]

    @pytest.mark.parametrize("n", range(8))
    async def test_read(self, db: Database, n: int) -> None:
        await db.write(insert("a"))
        for _ in range(4):
            task = asyncio.create_task(db.read(lambda tx: tx.fetchall("SELECT text FROM items")))
            await steps(n)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await texts(db) == ["a"]

    @pytest.mark.parametrize("n", range(8))
    async def test_closing(self, tmp_path: Path, n: int) -> None:
        threads = threading.active_count()

        async def open_and_write() -> None:
            async with Database(tmp_path / "a.db") as db:
                await db.write(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS t (x TEXT) STRICT"))
                closing.set()

        closing = asyncio.Event()
        task = asyncio.create_task(open_and_write())
        await closing.wait()
        await steps(n)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with Database(tmp_path / "a.db") as db:
            assert await db.fetchall("SELECT * FROM t") == []
        await asyncio.to_thread(wait_for_threads, threads)

    @pytest.mark.parametrize("n", range(12))
    async def test_opening(self, tmp_path: Path, n: int) -> None:
        async def open_it() -> None:
            async with Database(tmp_path / "a.db"):
                pass

        task = asyncio.create_task(open_it())
        await steps(n)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with Database(tmp_path / "a.db") as db:
            assert await db.fetchone("SELECT 1") is not None


class TestUnavailable:
    async def test_disk_full(self, db: Database) -> None:
        await db.write(insert("kept"))

        def limit(tx: Statements) -> None:
            tx.fetchall("PRAGMA max_page_count = 1")  # rounded up to what is in use

        await db.write(limit)
        big = "x" * 100_000
        small = db.write(insert("s"))
        with pytest.raises(StorageUnavailable, match="disk is full") as caught:
            await db.write(insert(big))
        assert caught.value.retry_after_ms > 0
        assert await small == 1
        with pytest.raises(StorageUnavailable, match="disk is full"):
            async with db.transaction() as tx:
                await tx.execute("INSERT INTO items (text) VALUES ('half')")
                await tx.execute("INSERT INTO items (text) VALUES (?)", (big,))
        assert await texts(db) == ["kept", "s"]

        def unlimit(tx: Statements) -> None:
            tx.fetchall("PRAGMA max_page_count = 1000000")

        await db.write(unlimit)
        await db.write(insert(big))
        assert await texts(db) == ["kept", "s", big]

    async def test_locked_by_another_program(self, tmp_path: Path) -> None:
        async with Database(tmp_path / "a.db", busy_timeout_s=0.05) as db:
            await db.write(lambda tx: tx.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, text TEXT UNIQUE)"))
            await db.write(insert("kept"))
            other = sqlite3.connect(db.path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageUnavailable, match="locked") as caught:
                await db.write(insert("a"))
            assert caught.value.retry_after_ms > 0
            with pytest.raises(StorageUnavailable, match="locked"):
                async with db.transaction() as tx:
                    await tx.execute("INSERT INTO items (text) VALUES ('b')")
            assert await texts(db) == ["kept"]
            other.execute("ROLLBACK")
            other.close()
            await db.write(insert("c"))
            assert await texts(db) == ["kept", "c"]


async def test_backup_is_a_whole_private_copy(db: Database, tmp_path: Path) -> None:
    await db.write(insert("a"))
    target = tmp_path / "copy.db"
    target.write_text("an older copy")
    await db.backup(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = sqlite3.connect(target)
    assert copy.execute("SELECT text FROM items").fetchall() == [("a",)]
    copy.close()
    assert not parts_in(tmp_path)
