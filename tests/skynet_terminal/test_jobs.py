"""Background jobs: started, looked at, ended, remembered."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from skynet.supervisor import Supervisor
from skynet_memory.database import Database
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import UserId, new_id
from skynet_memory.migrations import migrate
from skynet_terminal.errors import StartFailed, TooMany, UnknownJob
from skynet_terminal.jobs import GATEWAY_DIED, GATEWAY_STOPPED, LONGEST_S, Job, Jobs
from skynet_terminal.jobs_schema import COMPONENT
from skynet_terminal.sandbox import Sandbox
from skynet_terminal.sandbox.unconfined import UnconfinedLaunch
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, add_person
from tests.support.polling import until
from tests.support.sandboxes import SANDBOXES, launcher, left_open, running_with, sandbox

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, COMPONENT])
        await add_person(db, ADA)
        await add_person(db, BEN)
        yield db


@pytest.fixture(params=SANDBOXES)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return sandbox(request.param, tmp_path / "sandbox")


class World:
    """Jobs of Ada and Ben."""

    def __init__(self, jobs: Jobs, box: Sandbox, tmp_path: Path) -> None:
        self.jobs = jobs
        self.logs = tmp_path / "jobs"
        self._make = {owner: launcher(box, tmp_path / owner) for owner in (ADA, BEN)}

    async def start(self, script: str, owner: UserId = ADA, **more: Any) -> Job:
        launch = await self._make[owner](["bash", "-c", script])
        return await self.jobs.start(owner, launch, **{"command": script} | more)

    async def ended(self, job: Job) -> Job:
        cursor = 0
        async with asyncio.timeout(60):
            while not (output := await self.jobs.output(job.owner, job.id, cursor, wait_s=40)).ended:
                cursor = output.cursor
            return await self.jobs.status(job.owner, job.id)

    async def text(self, job: Job, **more: Any) -> str:
        return (await self.jobs.output(job.owner, job.id, **more)).text


@asynccontextmanager
async def opened(db: Database, box: Sandbox, tmp_path: Path, **more: Any) -> AsyncIterator[World]:
    async with Supervisor() as tasks, Jobs(db, tmp_path / "jobs", tasks, **more) as jobs:
        yield World(jobs, box, tmp_path)


@pytest.fixture
async def world(db: Database, box: Sandbox, tmp_path: Path) -> AsyncIterator[World]:
    async with opened(db, box, tmp_path) as world:
        yield world


async def test_from_running_to_completed(world: World) -> None:
    """SK-176 and SK-183: a job runs, its status becomes completed with its exit code, the list shows it."""
    job = await world.start("echo out; read -r <go; echo err >&2; exit 0", title="T", cwd="/files", sandbox="s")
    assert (job.status, job.exit_code, job.ended_at_ms, job.owner) == ("running", None, None, ADA)
    assert (job.title, job.cwd, job.sandbox) == ("T", "/files", "s")
    job = await world.ended(await world.start("echo out; echo err >&2; exit 0"))
    assert (job.status, job.exit_code, job.signal, job.note) == ("completed", 0, "", "")
    assert (job.stdout_bytes, job.stderr_bytes) == (4, 4)
    assert job.ended_at_ms is not None
    assert job.ended_at_ms >= job.started_at_ms
    assert job in await world.jobs.list(ADA)


@pytest.mark.parametrize(
    ("script", "exit_code", "name"), [("exit 7", 7, ""), ("kill -SEGV $$", None, "SIGSEGV"), ("no-such-x", 127, "")]
)
async def test_failed(world: World, script: str, exit_code: int | None, name: str) -> None:
    """SK-183."""
    job = await world.ended(await world.start(script))
    assert (job.status, job.exit_code, job.signal) == ("failed", exit_code, name)


async def test_killed_with_all_of_it(world: World) -> None:
    """SK-183: kill ends its process group."""
    word = new_id()
    job = await world.start(f"trap '' TERM INT HUP; (exec -a {word} sleep 60) & exec -a {word} sleep 60")
    await until(lambda: len(running_with(word)) >= 2)
    killed = await world.jobs.kill(ADA, job.id)
    assert (killed.status, killed.signal, killed.exit_code) == ("killed", "SIGKILL", None)
    await until(lambda: not running_with(word))
    assert await world.ended(job) == killed == await world.jobs.kill(ADA, job.id)


async def test_its_time_limit(world: World) -> None:
    """SK-175."""
    word = new_id()
    job = await world.ended(await world.start(f"echo begun; exec -a {word} sleep 60", timeout_s=1))
    assert (job.status, job.signal, job.timeout_ms) == ("timed_out", "SIGKILL", 1000)
    assert await world.text(job) == "begun\n"
    await until(lambda: not running_with(word))


async def test_the_longest_that_one_may_run(db: Database, box: Sandbox, tmp_path: Path) -> None:
    """Whoever gives no time has not thought of one that never ends."""
    word = new_id()
    async with opened(db, box, tmp_path, longest_s=1) as world:
        job = await world.ended(await world.start(f"exec -a {word} sleep 60"))
        assert (job.status, job.timeout_ms) == ("timed_out", 1000)
    await until(lambda: not running_with(word))
    assert LONGEST_S == 86_400


async def test_the_list_is_newest_first_and_ids_stay(world: World) -> None:
    """SK-176: ids survive listing."""
    jobs = [await world.ended(await world.start(f"exit {number}")) for number in range(4)]
    assert await world.jobs.list(ADA) == jobs[::-1]
    assert await world.jobs.list(ADA, limit=2) == jobs[:1:-1]
    assert await world.jobs.list(ADA, before=jobs[2].id) == jobs[1::-1]
    assert await world.jobs.list(ADA, status="completed") == jobs[:1]
    assert [await world.jobs.status(ADA, job.id) for job in jobs] == jobs
    assert await world.jobs.list(BEN) == []


async def test_anothers_job_is_unknown(world: World) -> None:
    running, over = await world.start("sleep 60"), await world.ended(await world.start("echo secret"))
    for job_id in (running.id, over.id, "nothing", "../x"):
        for call in (world.jobs.status, world.jobs.kill, world.jobs.output):
            with pytest.raises(UnknownJob):
                await call(BEN, job_id)
    assert (await world.jobs.status(ADA, running.id)).status == "running"


async def test_a_person_has_so_many_at_once(db: Database, box: Sandbox, tmp_path: Path) -> None:
    async with opened(db, box, tmp_path, most_per_person=2) as world:
        first, _ = await world.start("sleep 60"), await world.start("sleep 60")
        with pytest.raises(TooMany, match="2 jobs are open"):
            await world.start("sleep 60")
        await world.start("sleep 60", BEN)
        await world.jobs.kill(ADA, first.id)
        await world.start("sleep 60")


async def test_output_piece_by_piece(world: World) -> None:
    os.mkfifo(fifo := world.logs.parent / ADA / "go")
    job = await world.start("echo one; echo e >&2; read -r <go; echo two; exit 3")
    first = b""
    while len(first) < 6:
        first += (await world.jobs.output(ADA, job.id, len(first), wait_s=40)).data
    assert sorted(first.split()) == [b"e", b"one"]
    waiting = asyncio.create_task(world.jobs.output(ADA, job.id, 6, wait_s=40))
    await asyncio.to_thread(fifo.write_text, "go\n")
    assert (await waiting).data == b"two\n"
    last = await world.jobs.output(ADA, job.id, 10, wait_s=40)
    assert (last.data, last.cursor, last.ended) == (b"", 10, True)
    await world.ended(job)
    assert (await world.text(job, stream="stdout"), await world.text(job, stream="stderr")) == ("one\ntwo\n", "e\n")
    assert await world.text(job, cursor=-4) == "two\n"


async def test_waiting_for_output_that_does_not_come(world: World) -> None:
    job = await world.start("sleep 60")
    output = await world.jobs.output(ADA, job.id, wait_s=0.05)
    assert (output.data, output.cursor, output.ended) == (b"", 0, False)


async def test_a_flood_is_bounded_on_disk_and_in_memory(db: Database, box: Sandbox, tmp_path: Path) -> None:
    """SK-176."""
    async with opened(db, box, tmp_path, log_bytes=100_000) as world:
        before = psutil.Process().memory_info().rss
        job = await world.ended(await world.start("echo begin; head -c 30M /dev/zero; echo; echo end"))
        assert job.stdout_bytes == 30 * 1024**2 + len("begin\n\nend\n")
        assert sum(path.stat().st_size for path in (world.logs / ADA).iterdir()) < 101_000
        first = await world.jobs.output(ADA, job.id, most_bytes=16)
        assert first.data.startswith(b"begin\n")
        last = await world.jobs.output(ADA, job.id, 30_000, most_bytes=200_000)
        assert last.dropped > 29 * 1024**2
        assert (last.data[-5:], last.ended) == (b"\nend\n", True)
        assert psutil.Process().memory_info().rss - before < 32 * 1024**2


async def test_logs_are_for_the_gateway_alone(world: World) -> None:
    await world.ended(await world.start("echo secret"))
    folder = world.logs / ADA
    assert {path.stat().st_mode & 0o777 for path in (world.logs, folder)} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


async def test_the_gateways_end_ends_them(db: Database, box: Sandbox, tmp_path: Path) -> None:
    word = new_id()
    async with opened(db, box, tmp_path) as world:
        jobs = [await world.start(f"trap '' TERM; echo {n}; exec -a {word} sleep 60") for n in range(3)]
        for job in jobs:
            await world.jobs.output(ADA, job.id, wait_s=40)
    await until(lambda: not running_with(word))
    async with opened(db, box, tmp_path) as world:
        for job in await world.jobs.list(ADA):
            assert (job.status, job.signal, job.note) == ("killed", "SIGKILL", GATEWAY_STOPPED)
        assert await world.text(jobs[2]) == "2\n"
        with pytest.raises(StartFailed):
            await world.jobs.__aexit__(None, None, None)
            await world.start("true")


async def test_the_supervisor_ends_first(db: Database, box: Sandbox, tmp_path: Path) -> None:
    """Recorded as well as when the jobs are closed before the tasks."""
    tasks = Supervisor()
    async with Jobs(db, tmp_path / "jobs", tasks) as jobs:
        world = World(jobs, box, tmp_path)
        job = await world.start("sleep 60")
        await tasks.__aexit__(None, None, None)
        ended = await jobs.status(ADA, job.id)
        assert (ended.status, ended.note) == ("killed", GATEWAY_STOPPED)
        with pytest.raises(StartFailed):
            await world.start("true")


async def test_old_ones_are_forgotten_with_their_logs(db: Database, box: Sandbox, tmp_path: Path) -> None:
    now = [1_000_000]
    async with opened(db, box, tmp_path, kept_jobs=3, kept_ms=1000, clock=lambda: now[0]) as world:
        jobs = [await world.ended(await world.start("echo x")) for _ in range(5)]
        await world.ended(await world.start("echo x", BEN))

        def logs() -> set[str]:
            return {path.name.partition(".")[0] for path in (world.logs / ADA).iterdir()}

        await until(lambda: logs() == {job.id for job in jobs[2:]})
        assert await world.jobs.list(ADA) == jobs[:1:-1]
    now[0] += 2000
    (world.logs / ADA / "stray.log").write_text("")
    async with opened(db, box, tmp_path, kept_jobs=3, kept_ms=1000, clock=lambda: now[0]) as world:
        assert await world.jobs.list(ADA) == []
        assert list(world.logs.iterdir()) == []


async def test_a_person_is_removed(world: World, db: Database) -> None:
    word = new_id()
    await world.ended(await world.start("echo secret"))
    await world.start(f"exec -a {word} sleep 60")
    kept = await world.ended(await world.start("echo ben", BEN))
    await world.jobs.remove_person(ADA)
    assert not (world.logs / ADA).exists()
    assert not running_with(word)
    assert [row["id"] for row in await db.fetchall("SELECT id FROM jobs")] == [kept.id]
    await db.write(lambda tx: tx.execute("DELETE FROM users WHERE id = ?", (BEN,)))
    assert await db.fetchall("SELECT id FROM jobs") == []


async def test_what_cannot_be_started_leaves_nothing(db: Database, tmp_path: Path) -> None:
    async with Supervisor() as tasks, Jobs(db, tmp_path / "jobs", tasks) as jobs:
        with pytest.raises(StartFailed):
            await jobs.start(ADA, UnconfinedLaunch(["/no/such"], {}, tmp_path), command="x")
        assert await jobs.list(ADA) == []


async def test_nobodys_job_is_not_started(db: Database, tmp_path: Path) -> None:
    """Its person was removed meanwhile."""
    async with Supervisor() as tasks, Jobs(db, tmp_path / "jobs", tasks, most_per_person=1) as jobs:
        for _ in range(2):
            with pytest.raises(sqlite3.IntegrityError):
                await jobs.start(UserId("gone"), UnconfinedLaunch(["/bin/true"], {}, tmp_path), command="x")


async def test_a_full_disk_takes_its_log_and_not_its_end(world: World) -> None:
    """What is written to the log fails; the job goes on to its end, which says so."""
    world.logs.mkdir(exist_ok=True)
    job = await world.start("sleep 0.2; echo out; exit 5")
    for name in (".log", ".stdout.log"):
        (world.logs / ADA / f"{job.id}{name}").symlink_to("/dev/full")
    job = await world.ended(job)
    assert (job.status, job.exit_code, job.stdout_bytes) == ("failed", 5, 4)
    assert job.note == f"its log is not complete: {os.strerror(28)}"


async def test_an_end_that_cannot_be_recorded_is_recorded_later(world: World, db: Database) -> None:
    job = await world.start("read -r <go; exit 5", BEN)
    os.mkfifo(fifo := world.logs.parent / BEN / "go2")
    job2 = await world.start("echo >started; read -r <go2; exit 5", BEN)
    await until((world.logs.parent / BEN / "started").exists)
    assert (await world.ended(job)).status == "failed"
    write = db.write
    fails = [True]

    async def failing(work: Any) -> Any:
        if fails:
            fails.clear()
            raise StorageUnavailable("the disk is full")
        return await write(work)

    db.write = failing  # type: ignore[method-assign]
    await asyncio.to_thread(fifo.write_text, "go\n")
    assert (await world.ended(job2)).exit_code == 5
    row = None
    while row is None or row["status"] == "running":
        row = await db.fetchone("SELECT * FROM jobs WHERE id = ?", (job2.id,))
        await asyncio.sleep(0.01)
    assert (row["status"], row["exit_code"]) == ("failed", 5)


async def test_who_asked_may_go(world: World) -> None:
    """Cancelling whoever starts a job at any step leaves it running, or not started; never half."""
    for steps in range(8):
        task = asyncio.create_task(world.start("sleep 60"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    for job in await world.jobs.list(ADA):
        assert (await world.jobs.kill(ADA, job.id)).status == "killed"


async def test_a_hundred_jobs_leave_nothing(db: Database, box: Sandbox, tmp_path: Path) -> None:
    async with opened(db, box, tmp_path, most_per_person=10) as world:
        await world.ended(await world.start("true"))
        await asyncio.to_thread(os.getpid)
        before = left_open()
        for _ in range(10):
            jobs = [await world.start("echo x; exit 3") for _ in range(10)]
            for job in jobs:
                await world.ended(job)
        await until(lambda: left_open()[0::2] == before[0::2])


async def hold_jobs(path: Path, name: str, word: str) -> None:
    """Tells its jobs' ids and waits to be killed."""
    async with Database(path / "skynet.db") as db, opened(db, sandbox(name, path / "sandbox"), path) as world:
        jobs = [await world.start(f"echo {n}; setsid -f bash -c 'exec -a {word} sleep 60'; exec -a {word} sleep 60")
                for n in range(2)]  # fmt: skip
        for job in jobs:
            await world.jobs.output(ADA, job.id, wait_s=40)
        await until(lambda: len(running_with(word)) >= 4)
        os.write(1, json.dumps([job.id for job in jobs]).encode() + b"\n")
        await asyncio.sleep(600)


async def test_the_gateway_dies(db: Database, box: Sandbox, tmp_path: Path) -> None:
    """SK-176 and BA-035: after ``kill -9`` the next start has them as lost, and no process is left."""
    await db.__aexit__(None, None, None)
    word = new_id()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(tmp_path), box.name, word, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    async with asyncio.timeout(40):
        ids = json.loads(await child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        await child.wait()
    async with Database(tmp_path / "skynet.db") as db, opened(db, box, tmp_path) as world:
        await until(lambda: not running_with(word))
        jobs = await world.jobs.list(ADA)
        assert [job.id for job in jobs] == ids[::-1]
        for job in jobs:
            assert (job.status, job.exit_code, job.note, job.stdout_bytes) == ("lost", None, GATEWAY_DIED, 2)
        assert await world.text(jobs[0]) == "1\n"


if __name__ == "__main__":
    asyncio.run(hold_jobs(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
