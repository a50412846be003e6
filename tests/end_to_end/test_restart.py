"""The real process: killed, stopped, started again, and refused a start (DESIGN 1.4, 11)."""

import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from skynet_memory.turns import INTERRUPTED
from tests.skynet.cli.conftest import environment
from tests.support.client import WireClient, connect_params, open_client
from tests.support.model_server import ModelServer
from tests.support.polling import until
from tests.support.raw_socket import open_ready

TIMEOUT_S = 30
SESSIONS = ("agent:main:main", "agent:main:a", "agent:main:b")
ROUNDS = 4
WORDS = "one two three four five"


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, models: ModelServer) -> Path:
    return make_home(tmp_path / "state", models)


def make_home(home: Path, models: ModelServer) -> Path:
    home.mkdir()
    (home / "skynet.toml").write_text(
        f'[providers.mock]\nbase_url = "{models.url}"\napi_key = "k"\n'
        'models = [{ id = "mock-1", context_window = 128000 }]\n'
        # which would add entries and calls of its own to conversations of more than 40 turns
        "[compaction]\nenabled = false\n"
    )
    return home


@dataclass
class GatewayProcess:
    """``said`` is what it printed until it was ready, ``complaints`` where its standard error goes."""

    process: asyncio.subprocess.Process
    home: Path
    url: str
    said: str

    @property
    def http_url(self) -> str:
        return self.url.replace("ws://", "http://")

    @property
    def token(self) -> str:
        return (self.home / "gateway.token").read_text().strip()

    def client(self, **options: Any) -> Any:
        return open_client(self.url, token=self.token, **options)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.process.wait()


async def start(home: Path, *flags: str) -> asyncio.subprocess.Process:
    """``skynet gateway run`` in a process group of its own, without the settings of whoever runs the tests."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skynet.cli", "gateway", "run", *(flags or ("--port", "0"))),
        env=environment(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway that is ready; whatever is left of its group at the end is killed."""
    process = await start(home)
    assert process.stdout is not None and process.stderr is not None
    draining = asyncio.create_task(process.stderr.read())
    try:
        lines: list[str] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not (lines and lines[-1].startswith("Try:")):
                line = await process.stdout.readline()
                assert line, (await draining).decode()
                lines.append(line.decode())
        said = "".join(lines)
        match = re.search(r"listens on (ws://\S+)", said)
        assert match is not None, said
        yield GatewayProcess(process, home, match[1], said)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await draining


async def refused_start(home: Path, *flags: str) -> tuple[int, str]:
    """A start that fails: its exit code and what it complained of."""
    process = await start(home, *flags)
    async with asyncio.timeout(TIMEOUT_S):
        _, complaints = await process.communicate()
    assert process.returncode is not None
    return process.returncode, complaints.decode()


def text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


async def history(client: WireClient, key: str) -> list[dict[str, Any]]:
    answer = await client.call("chat.history", {"sessionKey": key, "limit": 1000}, timeout=TIMEOUT_S)
    messages: list[dict[str, Any]] = answer["messages"]
    return messages


# Killed


@dataclass
class Sent:
    """What the clients sent, by session in order, and which of it was acknowledged."""

    messages: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in SESSIONS})
    acknowledged: set[str] = field(default_factory=set)

    def params(self, key: str, run_id: str) -> dict[str, Any]:
        return {"sessionKey": key, "message": f"say={run_id} {WORDS} delay=3", "idempotencyKey": run_id}


async def ask(client: WireClient, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The response frame; None if the gateway died before it came."""
    request_id = await client.send_frame(method, params)
    answer = asyncio.create_task(client.response(request_id, timeout=TIMEOUT_S))
    gone = asyncio.create_task(client.socket.wait_closed())
    await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if answer.done():
        return answer.result()
    answer.cancel()
    return None


async def write_until_killed(gateway: GatewayProcess, key: str, sent: Sent) -> None:
    with suppress(ConnectionClosed, InvalidHandshake, ConnectionError):
        async with gateway.client() as client:
            while True:
                run_id = str(uuid.uuid4())
                sent.messages[key].append(run_id)
                frame = await ask(client, "chat.send", sent.params(key, run_id))
                if frame is None:
                    return
                if frame["ok"]:
                    assert frame["payload"]["status"] == "started"
                    sent.acknowledged.add(run_id)
                else:  # the lane is full: go on when there is an answer more
                    assert frame["error"]["retryable"]
                    sent.messages[key].remove(run_id)
                    count = len(client.events)
                    await until(lambda count=count: len(client.events) > count or client.socket.close_code)  # type: ignore[misc]


async def check_outcomes(client: WireClient, sent: Sent) -> Counter[str]:
    """Each acknowledged message is there once and has one outcome; returns the run ids that have each outcome."""
    outcomes: Counter[str] = Counter()
    for key in SESSIONS:
        messages = await history(client, key)
        asked = [re.sub(r"^say=(\S+) .*", r"\1", text(m)) for m in messages if m["role"] == "user"]
        answers = [m for m in messages if m["role"] == "assistant"]
        assert len(set(asked)) == len(asked)
        assert set(asked) >= sent.acknowledged.intersection(sent.messages[key])
        assert set(asked) <= set(sent.messages[key])
        assert len(answers) == len(asked) == len(messages) / 2
        # A session answers in order, so the answers pair with the messages.
        for run_id, answer in zip(asked, answers, strict=True):
            if answer["stopReason"] == "stop":
                assert text(answer) == f"{run_id} {WORDS}"
                outcomes["answered"] += 1
            else:
                assert answer["stopReason"] == "error"
                assert answer["errorMessage"] == INTERRUPTED
                assert answer["content"] == []
                outcomes["interrupted"] += 1
    return outcomes


async def test_killed_in_the_middle_of_runs(home: Path, models: ModelServer) -> None:
    chance = random.Random()
    sent = Sent()
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS):
        async with running(home) as gateway, asyncio.TaskGroup() as group:
            async with gateway.client() as client:
                assert await check_outcomes(client, sent) == outcomes
            before = len(sent.acknowledged)
            for key in (*SESSIONS, *SESSIONS[:1]):
                group.create_task(write_until_killed(gateway, key, sent))
            goal = before + chance.randrange(1, 60)
            await until(lambda goal=goal: len(sent.acknowledged) >= goal, timeout=TIMEOUT_S)  # type: ignore[misc]
            gateway.signal(signal.SIGKILL)
            assert await gateway.ended() == -signal.SIGKILL
        async with running(home) as gateway, gateway.client() as client:
            outcomes = await check_outcomes(client, sent)
            rows = (await client.call("sessions.list", {"includeLastMessage": True}))["sessions"]
            assert {row["key"] for row in rows} <= set(SESSIONS)
            gateway.signal(signal.SIGKILL)  # at once after the start, too
            await gateway.ended()
    assert outcomes["interrupted"]

    async with running(home) as gateway, gateway.client() as client:
        # What was asked once is not asked again, whatever its outcome was.
        served = models.served
        for key in SESSIONS:
            for run_id in sent.messages[key]:
                if run_id in sent.acknowledged:
                    answer = await client.call("chat.send", sent.params(key, run_id), timeout=TIMEOUT_S)
                    assert answer == {"runId": run_id, "status": "ok"}
        assert models.served == served
        assert await check_outcomes(client, sent) == outcomes
        gateway.signal(signal.SIGTERM)
        assert await gateway.ended() == 0

    with closing(sqlite3.connect(home / "skynet.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        runs = dict(db.execute("SELECT status, count(*) FROM dedupe GROUP BY status").fetchall())
        assert Counter(runs) == Counter(ok=outcomes["answered"], interrupted=outcomes["interrupted"])
        billed = db.execute("SELECT count(*), count(DISTINCT run_id) FROM usage").fetchone()
        assert billed == (outcomes["answered"], outcomes["answered"])
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (2 * outcomes.total(),)


# Stopped


async def test_stopped_in_order_and_started_again(home: Path) -> None:
    async with running(home) as gateway:
        assert f"Gateway token: {gateway.token}" in gateway.said
        deaf_params = connect_params(token=gateway.token)
        async with (
            gateway.client() as client,
            gateway.client(client_id="test", mode="test") as idle,
            open_ready(gateway.url, deaf_params) as deaf,
            httpx2.AsyncClient(base_url=gateway.http_url, timeout=TIMEOUT_S, trust_env=False) as http,
        ):
            for run_id, message in (("shown", "tokens=3 hang"), ("queued", "say=never")):
                await client.call(
                    "chat.send", {"sessionKey": SESSIONS[0], "message": message, "idempotencyKey": run_id}
                )
            await client.event(
                lambda e: e["event"] == "chat" and text(e["payload"].get("message", {"content": []})) == "w0 w1 w2"
            )
            completion = asyncio.create_task(
                http.post(
                    "/v1/chat/completions",
                    headers={"Authorization": f"Bearer {gateway.token}"},
                    json={
                        "model": "skynet",
                        "user": "script",
                        "messages": [{"role": "user", "content": "tokens=2 delay=300"}],
                    },
                )
            )
            await until(lambda: any("openai-user:script" in json.dumps(event) for event in client.events))
            gateway.signal(signal.SIGTERM)
            for each in (client, idle):
                shutdown = await each.event(lambda e: e["event"] == "shutdown")
                assert shutdown["payload"] == {"reason": "gateway stopping", "restartExpectedMs": None}
                assert each.events[-1] is shutdown
                assert await each.closed() == (1012, "service restart")
            assert await deaf.read_close() == (1012, "service restart")
            async with asyncio.timeout(15):
                assert await gateway.ended() == 0
            # A request that could be answered in time was.
            answer = (await completion).json()
            assert answer["choices"][0]["message"]["content"] == "w0 w1"

    async with running(home) as gateway, gateway.client() as client:
        assert gateway.token not in gateway.said
        messages = await history(client, SESSIONS[0])
        assert [(m["role"], text(m)) for m in messages] == [
            ("user", "tokens=3 hang"),
            ("user", "say=never"),
            ("assistant", "w0 w1 w2"),
            ("assistant", ""),
        ]
        assert {(m["stopReason"], m["errorMessage"]) for m in messages[2:]} == {
            ("aborted", "interrupted: the gateway was stopped")
        }
        for run_id in ("shown", "queued"):
            again = {"sessionKey": SESSIONS[0], "message": "x", "idempotencyKey": run_id}
            assert (await client.call("chat.send", again))["status"] == "ok"
        assert len(await history(client, SESSIONS[0])) == 4


async def test_stopped_by_ctrl_c(home: Path) -> None:
    async with running(home) as gateway, gateway.client() as client:
        gateway.signal(signal.SIGINT)
        assert await client.closed() == (1012, "service restart")
        assert await gateway.ended() == 0


# Not started


async def test_starts_that_are_refused(home: Path, tmp_path: Path, models: ModelServer) -> None:
    newer = make_home(tmp_path / "newer", models)
    async with running(newer) as gateway:
        gateway.signal(signal.SIGTERM)
        await gateway.ended()
    with closing(sqlite3.connect(newer / "skynet.db")) as db, db:
        db.execute("INSERT INTO migrations VALUES ('memory', 999, 'm999_of_next_year', 0)")

    async with running(home) as gateway:
        (in_use, in_use_words), (taken, taken_words), (new, new_words) = await asyncio.gather(
            refused_start(home),
            refused_start(make_home(tmp_path / "other", models), "--port", gateway.url.rpartition(":")[2]),
            refused_start(newer),
        )
        assert in_use == taken == new == 1
        assert f"in use by process {gateway.process.pid}" in in_use_words
        assert "the port is in use" in taken_words
        assert "was written by a newer version: memory is at schema 999" in new_words
        assert "Traceback" not in in_use_words + taken_words + new_words
        async with gateway.client() as client:  # the first one never noticed
            assert (await client.call("health"))["ok"]
