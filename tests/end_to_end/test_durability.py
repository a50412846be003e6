"""Nothing acknowledged is lost and nothing is half there: full disks, clients that vanish, sessions that are taken away
(DESIGN 1.4, 11)."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from skynet.gateway.runs import MAX_QUEUED
from tests.support.client import Refused, WireClient, connect_params
from tests.support.gateway import TOKEN, RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until

MAIN = "agent:main:main"
LARGE = "x" * 40_000
"""Does not fit into the pages that the file has."""


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running
        for run in list(running.app.runs._active.values()):
            run.abort("rpc")
        await idle(running)


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client() as connected:
        yield connected


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"authorization": f"Bearer {gateway.token}"}
    async with httpx2.AsyncClient(base_url=gateway.http_url, headers=headers, timeout=20, trust_env=False) as opened:
        yield opened


async def limit_pages(gateway: RunningGateway, pages: int) -> None:
    """As if the disk had room for so many pages; never fewer than there are."""
    await gateway.app.database.write(lambda tx: tx.fetchone(f"PRAGMA max_page_count = {pages}"))


async def fill_disk(gateway: RunningGateway) -> None:
    await limit_pages(gateway, 1)


async def make_room(gateway: RunningGateway) -> None:
    await limit_pages(gateway, 1_000_000)


async def rows(gateway: RunningGateway, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await gateway.app.database.fetchall(sql)]


async def counts(gateway: RunningGateway) -> dict[str, int]:
    """How much there is of everything that a turn writes."""
    tables = ("sessions", "session_counts", "entries", "dedupe", "usage", "archived_transcripts", "erasing")
    return {table: (await rows(gateway, f"SELECT count(*) FROM {table}"))[0][0] for table in tables}


async def open_runs(gateway: RunningGateway) -> int:
    return int((await rows(gateway, "SELECT count(*) FROM dedupe WHERE status = 'running'"))[0][0])


async def idle(gateway: RunningGateway) -> None:
    """No message is being stored, and none waits for an answer."""
    work = ("accept ", "lane ", "method ")
    await until(
        lambda: (
            not gateway.app.runs._active
            and not any(task.get_name().startswith(work) for task in asyncio.all_tasks())
            and not gateway.server.server_state.tasks
        )
    )


def params(message: str, run_id: str = "", key: str = MAIN) -> dict[str, Any]:
    return {"sessionKey": key, "message": message, "idempotencyKey": run_id or str(uuid.uuid4())}


async def said(client: WireClient, key: str = MAIN) -> list[tuple[str, str]]:
    """Role and text, or an error's words, of every message."""
    messages = (await client.call("chat.history", {"sessionKey": key, "limit": 1000}))["messages"]
    return [
        (
            message["role"],
            "".join(b["text"] for b in message["content"] if b["type"] == "text") or message.get("errorMessage", ""),
        )
        for message in messages
    ]


# The disk is full


@pytest.mark.parametrize("method", ["chat.send", "agent"])
async def test_a_message_that_does_not_fit(gateway: RunningGateway, client: WireClient, method: str) -> None:
    await client.call("chat.send", params("say=before", "before"))
    await client.chat_end("before")
    await idle(gateway)
    before = await counts(gateway)
    await fill_disk(gateway)
    for key in (MAIN, "agent:main:new"):
        with pytest.raises(Refused) as refused:
            await client.call(method, params(f"say=kept {LARGE}", "k", key))
        error = refused.value.error
        assert error["code"] == "UNAVAILABLE"
        assert error["message"] == "storage unavailable: the disk is full"
        assert error["retryable"] is True
        assert error["retryAfterMs"] > 0
        assert error["details"] == {"code": "IO_ERROR"}
    assert await counts(gateway) == before
    # reads go on
    assert await said(client) == [("user", "say=before"), ("assistant", "before")]
    assert (await client.call("sessions.list", {}))["count"] == 1
    assert (await client.call("health", {"probe": True}))["ok"]
    async with gateway.client() as another:
        assert await said(another) == await said(client)

    await make_room(gateway)
    request_id = await client.send_frame(method, params(f"say=kept {LARGE}", "k"))
    assert (await client.response(request_id))["payload"]["status"] in ("started", "accepted")
    assert (await client.chat_end("k"))["state"] == "final"
    assert [role for role, _ in await said(client)] == ["user", "assistant"] * 2


async def test_a_completion_that_does_not_fit(gateway: RunningGateway, http: httpx2.AsyncClient) -> None:
    body = {"model": "skynet", "messages": [{"role": "user", "content": LARGE}], "user": "u"}
    before = await counts(gateway)
    await fill_disk(gateway)
    answer = await http.post("/v1/chat/completions", json=body, headers={"idempotency-key": "k"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["message"] == "the gateway cannot store the request now"
    assert await counts(gateway) == before
    assert (await http.get("/readyz")).status_code == 200
    await make_room(gateway)
    answer = await http.post("/v1/chat/completions", json=body, headers={"idempotency-key": "k"})
    assert answer.status_code == 200


async def test_an_answer_that_does_not_fit_is_told_and_kept_when_there_is_room(
    gateway: RunningGateway, client: WireClient
) -> None:
    await client.call("chat.send", params(f"first=200 big={len(LARGE)}", "k"))
    await fill_disk(gateway)
    end = await client.chat_end("k")
    assert end["state"] == "error"
    assert end["errorMessage"] == "storage unavailable: the disk is full"
    assert [role for role, _ in await said(client)] == ["user"]
    await make_room(gateway)
    await idle(gateway)
    assert [role for role, _ in await said(client)] == ["user", "assistant"]
    assert await open_runs(gateway) == 0
    assert (await client.call("chat.send", params("x", "k")))["status"] == "ok"
    await client.call("chat.send", params("say=after", "after"))
    assert (await client.chat_end("after"))["state"] == "final"


async def test_of_many_messages_at_once_some_fit(
    gateway: RunningGateway, client: WireClient, models: ModelServer
) -> None:
    """Each is there whole or not at all, and its sender knows."""
    models.script = "hang"
    await fill_disk(gateway)
    pages = (await rows(gateway, "PRAGMA page_count"))[0][0]
    await limit_pages(gateway, pages + 60)
    run_ids = [f"r{number}" for number in range(40)]
    answers = await asyncio.gather(
        *(client.send_frame("chat.send", params(f"say={'y' * 20_000}", run_id, f"s{run_id}")) for run_id in run_ids)
    )
    frames = [await client.response(request_id) for request_id in answers]
    kept = {run_id for run_id, frame in zip(run_ids, frames, strict=True) if frame["ok"]}
    assert all(frame["ok"] or frame["error"]["retryAfterMs"] for frame in frames)
    assert kept != set(run_ids)
    await make_room(gateway)
    assert {row[0] for row in await rows(gateway, "SELECT run_id FROM dedupe")} == kept
    listed = {row["key"] for row in (await client.call("sessions.list", {}))["sessions"]}
    assert listed == {f"agent:main:s{run_id}" for run_id in kept}
    assert (await counts(gateway))["entries"] == len(kept)
    models.script = ""
    for run_id in run_ids:
        await client.call("chat.abort", {"sessionKey": f"s{run_id}"})
        if run_id not in kept:
            await client.call("chat.send", params("say=again", run_id, f"s{run_id}"))
            assert (await client.chat_end(run_id))["state"] == "final"
    await idle(gateway)
    assert await open_runs(gateway) == 0


# Clients that vanish


async def test_a_client_that_leaves_before_its_acknowledgement(gateway: RunningGateway, client: WireClient) -> None:
    """The message is there with one answer, or it is not there."""
    for number in range(15):
        async with connect(gateway.url, compression=None) as socket:
            await socket.recv()
            connect_frame = {"type": "req", "id": "c", "method": "connect", "params": connect_params(token=TOKEN)}
            await socket.send(json.dumps(connect_frame))
            await socket.recv()
            send = {
                "type": "req",
                "id": "s",
                "method": "chat.send",
                "params": params(f"say={number}", key=f"s{number}"),
            }
            await socket.send(json.dumps(send))
            if number % 3 == 0:
                socket.transport.abort()
            elif number % 3 == 1:
                for _ in range(number):
                    await asyncio.sleep(0)
                socket.transport.abort()
    await idle(gateway)
    await client.call("ping")
    listed = {row["key"].rpartition(":s")[2] for row in (await client.call("sessions.list", {}))["sessions"]}
    for number in listed:
        assert await said(client, f"s{number}") == [("user", f"say={number}"), ("assistant", number)]
    assert {str(number) for number in range(2, 15, 3)} <= listed
    assert await open_runs(gateway) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_cancelled_at_any_moment(
    gateway: RunningGateway, client: WireClient, http: httpx2.AsyncClient, stream: bool
) -> None:
    """Its run is stopped, and its message has one end or was never there."""
    for number in range(12):
        body = {
            "model": "skynet",
            "messages": [{"role": "user", "content": "tokens=2 hang"}],
            "user": f"u{number}",
            "stream": stream,
        }
        request = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        for _ in range(number * 8):
            await asyncio.sleep(0)
        if number == 11:
            await until(lambda: gateway.app.runs._active)
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request
    await idle(gateway)
    assert await open_runs(gateway) == 0
    for row in (await client.call("sessions.list", {}))["sessions"]:
        assert [role for role, _ in await said(client, row["key"])] == ["user", "assistant"]
    answer = await http.post(
        "/v1/chat/completions", json={"model": "skynet", "messages": [{"role": "user", "content": "say=on"}]}
    )
    assert answer.json()["choices"][0]["message"]["content"] == "on"


# Many at once


async def test_fifty_messages_at_once_make_one_session(gateway: RunningGateway, client: WireClient) -> None:
    """As many as a lane holds are taken; the others hear at once that they have to come again."""
    async with gateway.client() as second, gateway.client() as third:
        clients = (client, second, third)
        requests = [
            (each, await each.send_frame("chat.send", params(f"say={number} first=20", str(number), "New")))
            for number in range(50)
            for each in [clients[number % 3]]
        ]
        frames = [await each.response(request_id) for each, request_id in requests]
    taken = {str(number) for number, frame in enumerate(frames) if frame["ok"]}
    assert MAX_QUEUED < len(taken) < 50
    for frame in frames:
        if not frame["ok"]:
            assert frame["error"]["message"] == f"{MAX_QUEUED} messages are waiting in this session already"
            assert frame["error"]["retryAfterMs"] > 0
    await idle(gateway)
    (row,) = (await client.call("sessions.list", {}))["sessions"]
    assert row["key"] == "agent:main:new"
    conversation = await said(client, "new")
    assert sorted(text.split()[0].removeprefix("say=") for role, text in conversation if role == "user") == sorted(
        taken
    )
    assert sorted(text for role, text in conversation if role == "assistant") == sorted(taken)
    assert (row["inputTokens"], row["outputTokens"]) == (100 * len(taken), len(taken))
    assert await rows(gateway, "SELECT count(DISTINCT session_id) FROM dedupe") == [(1,)]


# Sessions that are taken away


@pytest.mark.parametrize("method", ["sessions.delete", "sessions.reset"])
async def test_a_session_is_taken_away_while_its_model_answers(
    gateway: RunningGateway, client: WireClient, models: ModelServer, method: str
) -> None:
    for run_id, message in (("running", "tokens=3 hang"), ("queued", "say=never")):
        await client.call("chat.send", params(message, run_id, "gone"))
    await client.event(lambda e: e["payload"].get("runId") == "running" and e["payload"].get("state") == "delta")
    (before,) = (await client.call("sessions.list", {}))["sessions"]
    await client.call(method, {"key": "gone"})
    # Both runs had ended before the answer came.
    ends = [e["payload"] for e in client.events if e["payload"].get("state") == "aborted"]
    assert [(end["runId"], end["stopReason"]) for end in ends] == [("running", "rpc"), ("queued", "rpc")]
    assert await open_runs(gateway) == 0
    assert await said(client, "gone") == []
    await until(lambda: models.disconnects == 1)
    listed = (await client.call("sessions.list", {}))["sessions"]
    if method == "sessions.delete":
        assert listed == []
        assert (await counts(gateway))["entries"] == 0
    else:
        assert listed[0]["sessionId"] != before["sessionId"]
    # A repeated key does not bring it back, a new message does, and begins anew.
    assert (await client.call("chat.send", params("tokens=3 hang", "running", "gone")))["status"] == "ok"
    assert await said(client, "gone") == []
    await client.call("chat.send", params("say=new", "new", "gone"))
    await client.chat_end("new")
    assert await said(client, "gone") == [("user", "say=new"), ("assistant", "new")]
    assert [m["role"] for m in models.bodies[-1]["messages"]] == ["system", "user"]


async def test_sending_resetting_and_deleting_at_the_same_time(
    gateway: RunningGateway, client: WireClient, models: ModelServer
) -> None:
    """Whoever is first: every message gets one end, and what is left is consistent."""
    async with gateway.client() as other:
        run_ids: list[str] = []

        async def send() -> None:
            for number in range(25):
                run_ids.append(f"r{number}")
                await client.call("chat.send", params("tokens=3 delay=1", run_ids[-1], "torn"))
                if number % 5 == 4:
                    await client.chat_end(run_ids[-1])

        async def tear() -> None:
            for number in range(12):
                await other.call(("sessions.reset", "sessions.delete", "sessions.compact")[number % 3], {"key": "torn"})

        await asyncio.gather(send(), tear())
        for run_id in run_ids:
            end = await client.chat_end(run_id)
            assert end["state"] in ("final", "aborted")
    await idle(gateway)
    assert await open_runs(gateway) == 0
    ends = [e["payload"]["runId"] for e in client.events if e["payload"].get("state") in ("final", "aborted", "error")]
    assert sorted(ends) == sorted(run_ids)
    roles = [role for role, _ in await said(client, "torn")]
    assert roles.count("user") == roles.count("assistant")
    count = (await client.call("sessions.list", {}))["count"]
    assert count == (await counts(gateway))["sessions"]
    assert await rows(gateway, "PRAGMA foreign_key_check") == []
    assert await rows(gateway, "PRAGMA integrity_check") == [("ok",)]
    await client.call("chat.send", params("say=well", "well", "torn"))
    assert (await client.chat_end("well"))["state"] == "final"
