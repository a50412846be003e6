"""A process is killed while it writes: what it acknowledged is there exactly once, and nothing is half there."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

from skynet_memory import schema
from skynet_memory.database import Database
from skynet_memory.ids import UserId
from skynet_memory.migrations import migrate
from skynet_memory.sessions import SessionStore
from skynet_memory.transcripts import TranscriptStore
from skynet_memory.turns import TurnStore
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person, begin, finish, key, text_of

ROOT = Path(__file__).parents[2]
ROUNDS = 6
WRITERS = 4


async def write_until_killed(path: Path, name: str) -> None:
    """Writes a run id with ``+`` when its beginning is durable, with ``.`` when its end is."""
    async with Database(path) as db, asyncio.TaskGroup() as group:
        turns = TurnStore(db)

        async def write(writer: int) -> None:
            owner = ADA if writer % 2 else BEN
            number = 0
            while True:
                number += 1
                run_id = f"{name}-{writer}-{number}"
                await begin(turns, owner, run_id, run_id=run_id, name=f"s{writer}")
                os.write(1, f"+{run_id}\n".encode())
                await finish(turns, owner, run_id, f"re: {run_id}")  # type: ignore[arg-type]
                os.write(1, f".{run_id}\n".encode())

        for writer in range(WRITERS):
            group.create_task(write(writer))


async def killed_writer(path: Path, name: str, lines: int) -> list[str]:
    """What a child acknowledged until it was killed, which is after about so many lines."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(path), name, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    async with asyncio.timeout(30):
        first = [await child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        rest = (await child.stdout.read()).splitlines(keepends=True)
        assert await child.wait() == -signal.SIGKILL
    return [line.decode().strip() for line in (*first, *rest) if line.endswith(b"\n")]


async def entries_of(db: Database, owner: UserId, name: str) -> list[str]:
    session = await SessionStore(db).get(owner, key(owner, name))
    if session is None:
        return []
    entries = await TranscriptStore(db).history(owner, session.session_id, limit=1_000_000)
    return [text_of(entry.payload) or json.loads(entry.payload)["errorMessage"] for entry in entries]


async def test_killed_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "skynet.db"
    async with Database(path) as db:
        await migrate(db, [USER_TABLES, schema.COMPONENT])
        await add_person(db, ADA)
        await add_person(db, BEN)
    chance = random.Random(7)
    begun: set[str] = set()
    finished: set[str] = set()
    for round_ in range(ROUNDS):
        lines = await killed_writer(path, f"{round_}", chance.randrange(1, 400))
        begun.update(line[1:] for line in lines if line[0] == "+")
        finished.update(line[1:] for line in lines if line[0] == ".")

        async with Database(path) as db:
            rows = await db.fetchall("PRAGMA integrity_check")
            assert [row[0] for row in rows] == ["ok"]
            open_runs = {
                row["run_id"] for row in await db.fetchall("SELECT run_id FROM dedupe WHERE status = 'running'")
            }
            assert not open_runs & finished
            closed = {interrupted.run_id for interrupted in await TurnStore(db).close_unfinished(T0)}
            assert closed == open_runs

            stored = {row["run_id"]: row["status"] for row in await db.fetchall("SELECT run_id, status FROM dedupe")}
            assert begun <= stored.keys()
            assert finished <= {run_id for run_id, status in stored.items() if status == "ok"}
            assert set(stored.values()) <= {"ok", "interrupted"}
            billed = Counter(row["run_id"] for row in await db.fetchall("SELECT run_id FROM usage"))
            assert billed == Counter(run_id for run_id, status in stored.items() if status == "ok")

            texts: Counter[str] = Counter()
            for writer in range(WRITERS):
                texts.update(await entries_of(db, ADA if writer % 2 else BEN, f"s{writer}"))
            errors = [text for text in texts if text.startswith("interrupted")]
            interrupted_count = sum(texts.pop(text) for text in errors)
            assert interrupted_count == sum(status == "interrupted" for status in stored.values())
            expected = Counter(stored.keys())
            expected.update(f"re: {run_id}" for run_id, status in stored.items() if status == "ok")
            assert texts == expected
            assert (await db.fetchall("SELECT count(*) FROM entries"))[0][0] == texts.total() + interrupted_count
    assert len(finished) > ROUNDS


if __name__ == "__main__":
    asyncio.run(write_until_killed(Path(sys.argv[1]), sys.argv[2]))
