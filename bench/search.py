"""``python -m bench.search``: how quickly memories are found, and how well what was said; prints one JSON object.

Speed is measured through ``MemoryStore`` on a file of its own, in this process alone, without a gateway. Memories and
queries come from an invented vocabulary whose words are as unevenly frequent as those of a language (Zipf's law).
"""

import argparse
import asyncio
import itertools
import json
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bench.peers import ROOT
from skynet_memory import memories_schema, schema, search_schema
from skynet_memory.database import Database
from skynet_memory.fulltext import row_id, shard_of
from skynet_memory.ids import AgentId, RunId, SessionKey, UserId, new_id, now_ms
from skynet_memory.keys import build_key
from skynet_memory.memories import CATEGORIES, MemoryStore, NewMemory
from skynet_memory.memory_types import digest_of_key
from skynet_memory.migrations import migrate
from skynet_memory.search import TranscriptSearch
from skynet_memory.transcripts import NewEntry
from skynet_memory.turns import TurnStore
from skynet_users.schema import COMPONENT as USERS

QUESTIONS = ROOT / "bench" / "retrieval" / "household.jsonl"
COMPONENTS = (USERS, schema.COMPONENT, memories_schema.COMPONENT, search_schema.COMPONENT)
VOCABULARY = 30_000
BATCH = 20_000


class Language:
    """Words of which the n-th is n times rarer than the first."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        syllables = [a + b for a in "bdfgklmnprtvz" for b in "aiou"]
        words: dict[str, None] = {}
        while len(words) < VOCABULARY:
            words["".join(self.random.choices(syllables, k=self.random.randint(2, 4))) + "k"] = None
        self.words = list(words)
        self.random.shuffle(self.words)
        self._weights = list(itertools.accumulate(1 / place for place in range(1, VOCABULARY + 1)))

    def text(self, shortest: int, longest: int) -> str:
        count = self.random.randint(shortest, longest)
        return " ".join(self.random.choices(self.words, cum_weights=self._weights, k=count))

    def query(self) -> str:
        """One to six words: common, as they come, and rare ones."""
        return " ".join(
            self.random.choice((self.random.choice(self.words[:200]), self.text(1, 1), self.random.choice(self.words)))
            for _ in range(self.random.randint(1, 6))
        )


def fill(path: Path, people: Sequence[UserId], each: int, language: Language) -> None:
    """Write the rows as the store would, without its rules: a million of them is too much for a bench otherwise."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -200000")
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'memories'"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    rows = _rows(people, each, language)
    while batch := list(itertools.islice(rows, BATCH)):
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO memories VALUES ({', '.join('?' * 17)})", batch)
        for shard, of_shard in itertools.groupby(batch, key=lambda row: shard_of(int(str(row[0])))):
            connection.executemany(
                f"INSERT INTO memory_words_{shard}(rowid, terms, facet) VALUES (?, ?, ?)",
                [(row[0], row[12], row[3]) for row in of_shard],
            )
        connection.execute("COMMIT")
    connection.executemany(
        "INSERT INTO memory_owners (number, owner, last_memory) VALUES (?, ?, ?)",
        [(number, owner, each) for number, owner in enumerate(people, start=1)],
    )
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()


def _rows(people: Sequence[UserId], each: int, language: Language) -> Iterator[tuple[object, ...]]:
    for owner_number, owner in enumerate(people, start=1):
        for number in range(1, each + 1):
            key, value, at_ms = f"note {number}", language.text(5, 20), number
            yield (
                row_id(owner_number, number), new_id(), owner, CATEGORIES[number % 4], key, digest_of_key(key), value,
                "note", 0.8, "user_said", 0.5, "[]", f"note {number} {value}", b"", at_ms, at_ms, None,
            )  # fmt: skip


async def speed(people: int, each: int, queries: int) -> dict[str, float]:
    """Milliseconds of one search, of one memory learned, and of one forgotten."""
    language, owners = Language(people), [UserId(f"person-{number}") for number in range(people)]
    choose = language.random.choice
    with tempfile.TemporaryDirectory(prefix="skynet-search-") as name:
        path = Path(name) / "skynet.db"
        async with Database(path) as db:
            await migrate(db, COMPONENTS)
            await add_people(db, owners)
        await asyncio.to_thread(fill, path, owners, each, language)
        async with Database(path) as db:
            memories = MemoryStore(db)
            asked = [(choose(owners), language.query()) for _ in range(queries)]
            for owner, query in asked[:50]:
                await memories.search(owner, query, now_ms=0)
            searches = [await timed(lambda o=o, q=q: memories.search(o, q, now_ms=0)) for o, q in asked]
            learned = [
                await timed(
                    lambda n=n: memories.learn(choose(owners), NewMemory("fact", f"new {n}", language.text(5, 20)), 0)
                )
                for n in range(200)
            ]
            forgotten = [await timed(lambda n=n: memories.forget(choose(owners), f"note {n}")) for n in range(1, 21)]
            megabytes = path.stat().st_size / 1e6
    by_clock, by_cpu = (hundredths(each[side] for each in searches) for side in (0, 1))
    return {
        "p50_ms": by_clock[50],
        "p99_ms": by_clock[99],
        "p50_cpu_ms": by_cpu[50],
        "p99_cpu_ms": by_cpu[99],
        "learn_ms": statistics.median(each[0] for each in learned),
        "learn_cpu_ms": statistics.median(each[1] for each in learned),
        "forget_ms": statistics.median(each[0] for each in forgotten),
        "forget_cpu_ms": statistics.median(each[1] for each in forgotten),
        "megabytes": megabytes,
    }


async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Milliseconds by the clock, and of the processor in all threads."""
    begun, begun_cpu = time.perf_counter(), time.process_time()
    await work()
    return (time.perf_counter() - begun) * 1000, (time.process_time() - begun_cpu) * 1000


def hundredths(values: Iterable[float]) -> list[float]:
    return [0.0, *statistics.quantiles(values, n=100)]


async def add_people(db: Database, owners: Sequence[UserId]) -> None:
    rows = [(owner, owner, "admin", 0) for owner in owners]
    await db.write(
        lambda tx: tx.executemany("INSERT INTO users (id, display_name, role, created_at_ms) VALUES (?, ?, ?, ?)", rows)
    )


async def quality() -> dict[str, float]:
    """Of the questions, the share whose answer is among the first 5, 10 and 20 hits, neighbours within two included."""
    conversations = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    owner = UserId("person")
    with tempfile.TemporaryDirectory(prefix="skynet-search-") as name:
        async with Database(Path(name) / "skynet.db") as db:
            await migrate(db, COMPONENTS)
            await add_people(db, [owner])
            entries = {c["id"]: await converse(db, owner, c) for c in conversations}
            finder = TranscriptSearch(db)
            asked = found = 0
            at: dict[int, int] = dict.fromkeys((5, 10, 20), 0)
            for conversation in conversations:
                for question, turns in conversation["questions"]:
                    hits = await finder.search(owner, question, limit=20, window=2, now_ms=now_ms())
                    wanted = {entries[conversation["id"]][turn] for turn in turns}
                    place = next(
                        (n for n, hit in enumerate(hits, start=1) if wanted & {entry.id for entry in hit.entries}), 99
                    )
                    asked += 1
                    found += place <= 20
                    for most in at:
                        at[most] += place <= most
    return {"questions": asked, **{f"hit_{most}": 100 * count / asked for most, count in at.items()}}


async def converse(db: Database, owner: UserId, conversation: dict[str, list[list[str]]]) -> list[str]:
    """Store a conversation of the data set in a session of its own; returns the ids of its entries."""
    turns, key, ids = TurnStore(db), SessionKey(build_key(owner, AgentId("main"), str(conversation["id"]))), []
    said = conversation["turns"]
    for number in range(0, len(said), 2):
        run_id = RunId(f"{conversation['id']}-{number}")
        answer = [NewEntry("message", message(*turn)) for turn in said[number + 1 : number + 2]]
        await turns.begin(
            owner=owner, key=key, run_id=run_id, kind="chat", payload=message(*said[number]), now_ms=now_ms()
        )
        await turns.finish(
            owner=owner, kind="chat", run_id=run_id, entries=answer, usage=[], status="ok", response=b"{}",
            model="m", provider="lab", context_tokens=None, now_ms=now_ms(),
        )  # fmt: skip
    rows = await db.fetchall(
        "SELECT e.id FROM entries e JOIN sessions s ON s.owner = e.owner AND s.session_id = e.session_id"
        " WHERE s.owner = ? AND s.key = ? ORDER BY e.rowid",
        (owner, key),
    )
    ids = [row["id"] for row in rows]
    assert len(ids) == len(said)
    return ids


def message(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": [{"type": "text", "text": text}], "timestamp": 0}).encode()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__)
    parser.add_argument("--people", type=int, default=0, help="measure speed with so many people; 0: quality")
    parser.add_argument("--each", type=int, default=1000, help="memories of each")
    parser.add_argument("--queries", type=int, default=1000)
    arguments = parser.parse_args()
    job = speed(arguments.people, arguments.each, arguments.queries) if arguments.people else quality()
    print(json.dumps(asyncio.run(job)))


if __name__ == "__main__":
    main()
