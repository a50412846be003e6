"""One SQLite file: a single writer with group commit, and a pool of readers.

All writes go through one connection, driven by one task. Work that queues up while a transaction runs joins the next
one: each piece is a savepoint of its own, all share one COMMIT, and each caller returns only after that COMMIT. So a
piece that fails undoes only itself, while a COMMIT that fails fails all that were in it.

The writer task belongs to the Database, not to a caller, so cancelling a caller never leaves a transaction open: a
piece of work that was already handed to the connection's thread is finished and committed, one that was not is dropped.

Readers are other connections in WAL mode: they see only what is committed, and never wait for the writer.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeAlias, TypeVar, cast

import aiosqlite

from skynet_memory.errors import DatabaseInUse, DatabaseRefused, StorageUnavailable
from skynet_memory.scrub import Tree, scrub

log = logging.getLogger(__name__)

T = TypeVar("T")
Value: TypeAlias = str | bytes | int | float | None
Params: TypeAlias = Sequence[Value] | Mapping[str, Value]
Row: TypeAlias = sqlite3.Row

MAX_BATCH: Final = 64
"""Pieces of work in one COMMIT. Bounds how long the first of them waits for the last."""
ERASING_TRIES: Final = 50
ERASING_WAIT_MS: Final = 100
"""How long writers wait for a read to let go of the log, each time that it is to be emptied."""

_TRANSIENT: Final = {
    sqlite3.SQLITE_BUSY: "the database is locked",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_NOMEM: "out of memory",
}


def translate(exc: BaseException) -> BaseException:
    """SQLite's errors that may pass become StorageUnavailable; the others are bugs and stay what they are."""
    if isinstance(exc, sqlite3.Error):
        code = getattr(exc, "sqlite_errorcode", 0)
        reason = _TRANSIENT.get(code & 0xFF)
        if reason is not None:
            unavailable = StorageUnavailable(reason)
            unavailable.__cause__ = exc
            return unavailable
    return exc


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table by their row ids, both ends included; all of them unless said otherwise."""

    table: str
    low: int = -(2**63)
    high: int = 2**63 - 1
    with_indexes: bool = True
    """Indexes may hold what was deleted, too; of them all pages are looked at."""


class Statements:
    """What a piece of work may do with its connection, in that connection's thread; valid only while the work runs."""

    __slots__ = ("_connection", "topics")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.topics: list[str] = []

    def execute(self, sql: str, params: Params = ()) -> int:
        """Run a statement; returns the number of rows it changed."""
        return self._connection.execute(sql, params).rowcount

    def executemany(self, sql: str, params: Iterable[Params]) -> int:
        return self._connection.executemany(sql, params).rowcount

    def fetchone(self, sql: str, params: Params = ()) -> Row | None:
        """The first row. The statement is run to its end, so ``RETURNING`` is safe."""
        rows = self._connection.execute(sql, params).fetchall()
        return rows[0] if rows else None

    def fetchall(self, sql: str, params: Params = ()) -> list[Row]:
        return self._connection.execute(sql, params).fetchall()

    def changed(self, topic: str) -> None:
        """Count this as a change of ``topic`` once the COMMIT is done; see ``Database.version``."""
        self.topics.append(topic)


class Transaction:
    """An open transaction: like ``Statements``, with a trip to the connection's thread for every call."""

    __slots__ = ("_connection", "_open", "_statements")

    def __init__(self, connection: "_Connection", statements: Statements) -> None:
        self._connection = connection
        self._statements = statements
        self._open = True

    async def execute(self, sql: str, params: Params = ()) -> int:
        return await self.run(lambda tx: tx.execute(sql, params))

    async def executemany(self, sql: str, params: Iterable[Params]) -> int:
        return await self.run(lambda tx: tx.executemany(sql, params))

    async def fetchone(self, sql: str, params: Params = ()) -> Row | None:
        return await self.run(lambda tx: tx.fetchone(sql, params))

    async def fetchall(self, sql: str, params: Params = ()) -> list[Row]:
        return await self.run(lambda tx: tx.fetchall(sql, params))

    async def run(self, work: Callable[[Statements], T]) -> T:
        """Run several statements in one trip; if ``work`` raises and the block goes on, what it did stays."""
        if not self._open:
            raise RuntimeError("the transaction is over")
        try:
            return await self._connection.run(lambda _: work(self._statements))
        except sqlite3.Error as exc:
            raise translate(exc) from exc.__cause__

    def close(self) -> None:
        self._open = False


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection with its thread opened up for whole functions, not only for single statements."""

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return cast(T, await self._execute(function, self._conn))  # type: ignore[no-untyped-call]


@dataclass(slots=True, eq=False)
class _Work(Generic[T]):
    """A function that runs as one savepoint, in one trip to the thread."""

    function: Callable[[Statements], T]
    done: asyncio.Future[T]


@dataclass(slots=True, eq=False)
class _Interactive:
    """A transaction whose statements come one by one from its owner's task."""

    task: asyncio.Task[Any] | None
    granted: asyncio.Future[Transaction]
    finished: asyncio.Future[bool]
    """True: keep it; False: undo it. Always set, however the owner's block ends."""
    done: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class _Outcome:
    value: object = None
    error: BaseException | None = None
    topics: list[str] = field(default_factory=list)


class Database:
    """Use as an async context manager; the file and its directory are made if they are missing.

    Args:
        synchronous: ``NORMAL`` survives the death of the process, ``FULL`` a power cut as well.
        readers: connections that reads are spread over.
        busy_timeout_s: how long a write waits for another process that has the file locked.

    Raises (on entering):
        DatabaseInUse: another process has it open.
        DatabaseRefused: not a database, or not accessible.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        readers: int = 2,
        busy_timeout_s: float = 5.0,
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._reader_count = readers
        self._busy_timeout_s = busy_timeout_s
        self._queue: deque[_Work[Any] | _Interactive] = deque()
        self._queued = asyncio.Event()
        self._closing = False
        self._holder: asyncio.Task[Any] | None = None
        self._versions: defaultdict[str, int] = defaultdict(int)
        self._lock_fd = -1
        self._scrub_fd = -1
        self._erasing: deque[tuple[tuple[Rows, ...], asyncio.Future[bool]]] = deque()
        self._connections: list[_Connection] = []
        self._readers: list[_Connection] = []
        self._reading: list[int] = []

    # Opening and closing

    async def __aenter__(self) -> Self:
        try:
            self._take_file()
            await to_the_end(self._connect())
        except BaseException as exc:
            await to_the_end(self._disconnect())
            if isinstance(exc, sqlite3.Error | OSError):
                raise DatabaseRefused(self.path, str(exc)) from exc
            raise
        self._writer, *self._readers = self._connections
        self._reading = [0] * len(self._readers)
        # Owned by this object: __aexit__ awaits it
        self._task = asyncio.get_running_loop().create_task(self._write_forever(), name=f"writer of {self.path.name}")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Finish the writes that are queued, then close."""
        self._closing = True
        self._queued.set()
        try:
            await to_the_end(asyncio.wait([self._task]))
        finally:
            self._task.cancel()
            await to_the_end(self._disconnect())

    def _take_file(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # First: closing any descriptor of the file would drop the locks that SQLite holds on it in this process
        self._lock_fd = _lock(self.path)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # SQLite takes any file of less than a page for an empty one, and would write over it
            if os.pread(fd, 16, 0) not in (b"", b"SQLite format 3\0"):
                raise DatabaseRefused(self.path, "file is not a database")
            os.fchmod(fd, 0o600)  # SQLite gives its -wal and -shm files the same
        finally:
            os.close(fd)

    async def _connect(self) -> None:
        for read_only in (False, *[True] * self._reader_count):
            connection = _Connection(self._open, 64)
            await connection
            self._connections.append(connection)
            await connection.run(partial(self._configure, read_only))

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, cached_statements=256
        )
        connection.row_factory = sqlite3.Row
        return connection

    def _configure(self, read_only: bool, connection: sqlite3.Connection) -> None:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        # SQLite's own lower() knows only ASCII
        connection.create_function("casefold", 1, str.casefold, deterministic=True)
        if read_only:
            connection.execute("PRAGMA query_only = ON")

    async def _disconnect(self) -> None:
        self._readers = []
        try:
            while self._connections:
                with contextlib.suppress(sqlite3.Error):
                    await self._connections.pop().close()
        finally:
            for fd in (self._scrub_fd, self._lock_fd):
                if fd >= 0:
                    os.close(fd)
            self._scrub_fd = self._lock_fd = -1

    # Reading

    async def fetchone(self, sql: str, params: Params = ()) -> Row | None:
        return await self._on_reader(lambda connection: Statements(connection).fetchone(sql, params))

    async def fetchall(self, sql: str, params: Params = ()) -> list[Row]:
        return await self._on_reader(lambda connection: Statements(connection).fetchall(sql, params))

    async def read(self, work: Callable[[Statements], T]) -> T:
        """Run ``work`` in a reader's thread; all its statements see the same, committed state."""
        return await self._on_reader(partial(_read, work))

    async def _on_reader(self, function: Callable[[sqlite3.Connection], T]) -> T:
        if not self._readers:
            raise RuntimeError(f"{self.path} is not open")
        index = min(range(len(self._readers)), key=self._reading.__getitem__)
        self._reading[index] += 1
        try:
            return await self._readers[index].run(function)
        except sqlite3.Error as exc:
            raise translate(exc) from exc.__cause__
        finally:
            self._reading[index] -= 1

    def version(self, topic: str) -> int:
        """How many committed pieces of work called ``changed(topic)`` since the file was opened.

        It grows after the COMMIT and before the caller of the write returns, so what is read after asking for the
        version is at least as new as the version.
        """
        return self._versions.get(topic, 0)

    # Writing

    async def write(self, work: Callable[[Statements], T]) -> T:
        """Run ``work`` in the writer's thread as one transaction; returns what it returns, after the COMMIT.

        ``work`` must be short and must not wait for anything but its statements. If it raises, it is undone and the
        error is raised here. If the caller is cancelled, the work is either committed whole or never run.

        Raises:
            StorageUnavailable: disk full or locked; nothing of it is written.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enqueue(_Work(work, done))
        return await done

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction of several awaited statements. Leaving the block returns after its COMMIT.

        Other writers wait for the end of the block: no network, no user, no other ``write`` inside. A block that
        raises or is cancelled is rolled back.
        """
        loop = asyncio.get_running_loop()
        job = _Interactive(asyncio.current_task(), loop.create_future(), loop.create_future(), loop.create_future())
        self._enqueue(job)
        keep = False
        try:
            tx = await job.granted
            try:
                yield tx
            finally:
                tx.close()
            keep = True
        finally:
            if not job.finished.done():  # it is when the database closed under it
                job.finished.set_result(keep)
        await job.done

    def _enqueue(self, job: _Work[Any] | _Interactive) -> None:
        if self._closing or not self._readers:
            raise RuntimeError(f"{self.path} is not open")
        if self._holder is not None and self._holder is asyncio.current_task():
            raise RuntimeError("this task is already inside a transaction")
        self._queue.append(job)
        self._queued.set()

    async def _write_forever(self) -> None:
        while not (self._closing and not self._queue and not self._erasing):
            await self._queued.wait()
            self._queued.clear()
            while self._queue or self._erasing:
                if self._queue:
                    await self._write_batch()
                if self._erasing:
                    await self._erase_batch()

    async def _write_batch(self) -> None:
        """One BEGIN IMMEDIATE … COMMIT with as much of the queue as fits."""
        batch: list[tuple[_Work[Any] | _Interactive, _Outcome]] = []
        begun = committed = False
        current: Sequence[_Work[Any] | _Interactive] = ()
        try:
            while not committed and len(batch) < MAX_BATCH and self._queue:
                head = self._queue[0]
                if isinstance(head, _Interactive):
                    current = (self._queue.popleft(),)
                    if head.finished.done():  # cancelled while it waited
                        continue
                    batch.append((head, await self._interact(head, begun)))
                    begun = True
                else:
                    current = works = self._take_works(MAX_BATCH - len(batch))
                    last = not self._queue or len(batch) + len(works) >= MAX_BATCH
                    outcomes = await self._writer.run(partial(_run_works, works, not begun, last))
                    begun, committed = True, last
                    batch.extend(zip(works, outcomes, strict=True))
                current = ()
            if not committed:
                await self._writer.run(_commit)
        except BaseException as exc:
            await self._abandon([*(job for job, _ in batch), *current], exc)
            if not isinstance(exc, Exception):
                raise
            return
        for job, outcome in batch:
            self._settle(job, outcome)

    def _take_works(self, limit: int) -> list[_Work[Any]]:
        works: list[_Work[Any]] = []
        while self._queue and len(works) < limit:
            job = self._queue[0]
            if isinstance(job, _Interactive):
                break
            self._queue.popleft()
            if not job.done.cancelled():
                works.append(job)
        return works

    async def _interact(self, job: _Interactive, begun: bool) -> _Outcome:
        """Lend the connection to the owner of ``job`` until its block ends. The writer task is never its task."""
        statements = await self._writer.run(partial(_open_savepoint, not begun))
        if not job.granted.cancelled():
            job.granted.set_result(Transaction(self._writer, statements))
        self._holder = job.task
        try:
            keep = await job.finished
        finally:
            self._holder = None
        # A statement that its cancelled owner no longer awaits is still in the thread's queue, before this
        await self._writer.run(partial(_close_savepoint, keep))
        return _Outcome(topics=statements.topics if keep else [])

    def _settle(self, job: _Work[Any] | _Interactive, outcome: _Outcome) -> None:
        for topic in outcome.topics:
            self._versions[topic] += 1
        if job.done.done():  # cancelled meanwhile
            return
        if outcome.error is None:
            job.done.set_result(outcome.value)
        else:
            job.done.set_exception(translate(outcome.error))

    async def _abandon(self, jobs: Sequence[_Work[Any] | _Interactive], exc: BaseException) -> None:
        """The transaction as a whole failed: leave none open, and tell everybody in it."""
        try:
            await self._writer.run(_rollback)
        except (sqlite3.Error, ValueError):
            log.exception("rolling back failed")
        error = translate(exc) if isinstance(exc, Exception) else StorageUnavailable("the gateway is stopping")
        log.warning("a commit of %d writes failed: %s", len(jobs), error)
        for job in jobs:
            for future in (job.granted, job.done) if isinstance(job, _Interactive) else (job.done,):
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # its owner may have left the block by an error of its own

    # The whole file

    async def erase_traces(self, *tables: Rows) -> bool:
        """Remove what deleting left behind: empty the write-ahead log into the file, and zero the unallocated space of
        the pages of ``tables`` and their indexes; see ``scrub.py``.

        To be called after the COMMIT that deleted. Readers go on meanwhile; writers wait, 5 µs for each page. False if
        a long read, such as a backup, held the log all the time: erase again later. Closing the file empties it too.
        """
        for _ in range(ERASING_TRIES):
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            if self._closing or not self._readers:
                raise RuntimeError(f"{self.path} is not open")
            self._erasing.append((tables, done))
            self._queued.set()
            if await done:
                return True
        log.warning("what was deleted is still in the log of %s: a read holds it", self.path.name)
        return False

    async def _erase_batch(self) -> None:
        """All that is asked for by now, at once. The writer is between two transactions."""
        asked = list(self._erasing)
        self._erasing.clear()
        error: BaseException | None = None
        erased = False
        try:
            rows = list(dict.fromkeys(each for tables, _ in asked for each in tables))
            erased = await self._writer.run(partial(self._erase, rows))
        except BaseException as exc:
            error = exc
        for _, done in asked:
            if not done.done():
                if error is None:
                    done.set_result(erased)
                else:
                    done.set_exception(translate(error))
        if error is not None and not isinstance(error, Exception):
            raise error

    def _erase(self, rows: Sequence[Rows], connection: sqlite3.Connection) -> bool:
        connection.execute(f"PRAGMA busy_timeout = {ERASING_WAIT_MS}")
        try:
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] != 0:
                return False
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_timeout_s * 1000)}")
        if self._scrub_fd < 0:
            # Kept open: closing any descriptor of the file would drop the locks that SQLite holds on it
            self._scrub_fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        connection.execute("BEGIN IMMEDIATE")
        try:
            trees = [tree for each in rows for tree in _trees(connection, each)]
            if scrub(self._scrub_fd, trees):
                os.fdatasync(self._scrub_fd)
        finally:
            connection.execute("ROLLBACK")
            # Pages in the cache still have what the file no longer has, and would be written back with the next change
            connection.execute("PRAGMA shrink_memory")
        return True

    async def backup(self, target: Path) -> None:
        """Copy the committed state to ``target`` (mode 0600) by SQLite's online backup; replaces it only when whole."""
        part = target.with_name(target.name + ".part")
        os.close(await asyncio.to_thread(os.open, part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        try:
            await self._readers[0].run(partial(_copy, part))
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


async def to_the_end(awaitable: Coroutine[Any, Any, T]) -> T:
    """Await it; when cancelled meanwhile, be cancelled only after its end. A second cancellation does not wait."""
    task = asyncio.get_running_loop().create_task(awaitable)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


# In the connection's thread


def _read(work: Callable[[Statements], T], connection: sqlite3.Connection) -> T:
    connection.execute("BEGIN")
    try:
        return work(Statements(connection))
    finally:
        connection.rollback()


def _run_works(
    works: Sequence[_Work[Any]], begin: bool, commit: bool, connection: sqlite3.Connection
) -> list[_Outcome]:
    if begin:
        connection.execute("BEGIN IMMEDIATE")
    outcomes = [_run_work(work, connection) for work in works]
    if commit:
        connection.execute("COMMIT")
    return outcomes


def _run_work(work: _Work[Any], connection: sqlite3.Connection) -> _Outcome:
    statements = _open_savepoint(False, connection)
    try:
        value = work.function(statements)
    except BaseException as exc:
        if not connection.in_transaction:  # SQLite gave up the whole transaction (disk full, out of memory)
            raise
        _close_savepoint(False, connection)
        return _Outcome(error=exc)
    _close_savepoint(True, connection)
    return _Outcome(value, topics=statements.topics)


def _open_savepoint(begin: bool, connection: sqlite3.Connection) -> Statements:
    if begin:
        connection.execute("BEGIN IMMEDIATE")
    connection.execute("SAVEPOINT piece")
    return Statements(connection)


def _close_savepoint(keep: bool, connection: sqlite3.Connection) -> None:
    if not connection.in_transaction:
        raise StorageUnavailable("SQLite gave up the transaction")
    if not keep:
        connection.execute("ROLLBACK TO piece")
    connection.execute("RELEASE piece")


def _commit(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # not when every piece was cancelled before it began
        connection.execute("COMMIT")


def _rollback(connection: sqlite3.Connection) -> None:
    connection.rollback()


def _trees(connection: sqlite3.Connection, rows: Rows) -> list[Tree]:
    found = connection.execute(
        "SELECT type, rootpage FROM sqlite_schema WHERE tbl_name = ? AND rootpage > 0 AND (? OR type = 'table')",
        (rows.table, rows.with_indexes),
    )
    return [Tree(root, rows.low, rows.high) if kind == "table" else Tree(root) for kind, root in found]


def _copy(target: Path, connection: sqlite3.Connection) -> None:
    with contextlib.closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def _lock(path: Path) -> int:
    """Hold ``<path>.lock`` for as long as the descriptor is open; the kernel lets go of it when the process dies."""
    lock_path = path.with_name(path.name + ".lock")
    fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as exc:
        text = os.pread(fd, 32, 0).strip()
        os.close(fd)
        raise DatabaseInUse(path, int(text) if text.isdigit() else None) from exc
    except BaseException:
        os.close(fd)
        raise
    return fd
