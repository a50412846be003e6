"""``/v1`` beside WebSocket clients: one person, one set of conversations, one port (OPENCLAW-V3 10)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from skynet_protocol.device import DeviceIdentity
from tests.support.client import Refused, WireClient, open_socket
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client(device=DeviceIdentity.generate()) as connected:
        yield connected


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"authorization": f"Bearer {gateway.token}"}
    async with httpx2.AsyncClient(base_url=gateway.http_url, headers=headers, timeout=20, trust_env=False) as opened:
        yield opened


async def complete(
    http: httpx2.AsyncClient, text: str, /, *, headers: dict[str, str] | None = None, **fields: Any
) -> Any:
    """The answer to a completion that succeeds."""
    body = {"model": "skynet", "messages": [{"role": "user", "content": text}], **fields}
    answer = await http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def content_of(completion: dict[str, Any]) -> str:
    content: str = completion["choices"][0]["message"]["content"]
    return content


def text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


async def conversation(client: WireClient, key: str) -> list[tuple[str, str]]:
    history = await client.call("chat.history", {"sessionKey": key})
    return [(message["role"], text(message)) for message in history["messages"]]


async def test_a_completion_is_a_run_that_the_persons_clients_see(
    gateway: RunningGateway, client: WireClient, http: httpx2.AsyncClient
) -> None:
    """SK-100."""
    async with gateway.client() as second:
        completion = await complete(http, "tokens=20", user="script")
        run_id = completion["id"].removeprefix("chatcmpl_")
        words = " ".join(f"w{number}" for number in range(20))
        assert content_of(completion) == words
        for each in (client, second):
            end = await each.chat_end(run_id)
            assert (end["state"], end["sessionKey"]) == ("final", "agent:main:openai-user:script")
            assert text(end["message"]) == words
            agent = [e["payload"] for e in each.events if e["event"] == "agent" and e["payload"]["runId"] == run_id]
            assert [payload["data"].get("phase") for payload in (agent[0], agent[-1])] == ["start", "end"]
            assert "".join(p["data"]["delta"] for p in agent if p["stream"] == "assistant") == words
            assert await each.call("agent.wait", {"runId": run_id, "timeoutMs": 1}) == {
                "runId": run_id,
                "status": "ok",
                "startedAt": agent[0]["data"]["startedAt"],
                "endedAt": agent[-1]["data"]["endedAt"],
            }
    (row,) = (await client.call("sessions.list", {"includeDerivedTitles": True, "includeLastMessage": True}))[
        "sessions"
    ]
    assert row["key"] == "agent:main:openai-user:script"
    assert row["origin"]["label"] == "script"
    assert (row["derivedTitle"], row["lastMessagePreview"]) == ("tokens=20", words)
    assert (row["inputTokens"], row["outputTokens"]) == (100, 20)
    assert completion["usage"]["completion_tokens"] == 20
    assert await conversation(client, row["key"]) == [("user", "tokens=20"), ("assistant", words)]


async def test_a_stream_and_its_events_say_the_same(client: WireClient, http: httpx2.AsyncClient) -> None:
    body = {"model": "skynet", "messages": [{"role": "user", "content": "tokens=10 delay=2"}], "stream": True}
    streamed, run_id = "", ""
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                chunk = json.loads(line.removeprefix("data: "))
                run_id = chunk["id"].removeprefix("chatcmpl_")
                for choice in chunk["choices"]:
                    streamed += choice["delta"].get("content") or ""
    end = await client.chat_end(run_id)
    assert streamed == text(end["message"]) == " ".join(f"w{number}" for number in range(10))


async def test_one_conversation_over_both_ways(
    client: WireClient, http: httpx2.AsyncClient, models: ModelServer
) -> None:
    """``user`` and a session header name a conversation, also for what is said in it over WebSocket (SK-100)."""
    await complete(http, "say=one", user="Alice")
    await complete(http, "say=two", user="Alice")
    assert len(models.bodies[-1]["messages"]) == 4
    (row,) = (await client.call("sessions.list", {}))["sessions"]
    await client.call("chat.send", {"sessionKey": row["key"], "message": "say=three", "idempotencyKey": "r3"})
    await client.chat_end("r3")
    await complete(http, "say=four", headers={"x-openclaw-session-key": row["key"]})
    expected = [
        (role, said)
        for word in ("one", "two", "three", "four")
        for role, said in (("user", f"say={word}"), ("assistant", word))
    ]
    assert await conversation(client, row["key"]) == expected
    assert [m["role"] for m in models.bodies[-1]["messages"]] == ["system", *["user", "assistant"] * 3, "user"]
    # the main conversation too, and it is not the one of another user
    await complete(http, "say=five", headers={"x-openclaw-session-key": "main"})
    assert await conversation(client, "agent:main:main") == [("user", "say=five"), ("assistant", "five")]
    await complete(http, "say=six", user="alice")
    assert len(models.bodies[-1]["messages"]) == 2
    # without a name, each request is a conversation of its own
    await complete(http, "say=seven")
    await complete(http, "say=eight")
    assert len(models.bodies[-1]["messages"]) == 2
    assert (await client.call("sessions.list", {}))["count"] == 5


async def test_both_ways_wait_in_one_lane(client: WireClient, http: httpx2.AsyncClient, models: ModelServer) -> None:
    await client.call("chat.send", {"sessionKey": "main", "message": "say=first first=100", "idempotencyKey": "r1"})
    second = asyncio.create_task(complete(http, "say=second", headers={"x-openclaw-session-key": "main"}))
    assert content_of(await second) == "second"
    ends = [e["payload"]["runId"] for e in client.events if e["payload"].get("state") == "final"]
    assert ends[0] == "r1"
    assert [text for _, text in await conversation(client, "main")][-1] == "second"
    assert len(models.bodies[-1]["messages"]) == 4


async def test_a_completion_that_a_websocket_client_stops(client: WireClient, http: httpx2.AsyncClient) -> None:
    body = {"model": "skynet", "messages": [{"role": "user", "content": "tokens=2 hang"}], "user": "u"}
    request = asyncio.create_task(http.post("/v1/chat/completions", json=body))
    await client.event(lambda e: e["payload"].get("state") == "delta")
    stopped = await client.call("chat.abort", {"sessionKey": "agent:main:openai-user:u"})
    assert stopped["aborted"] is True
    answer = await request
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "run_aborted"
    assert await conversation(client, "agent:main:openai-user:u") == [("user", "tokens=2 hang"), ("assistant", "w0 w1")]


async def test_a_client_that_hangs_up_stops_its_run_and_nobody_elses(
    client: WireClient, http: httpx2.AsyncClient, models: ModelServer
) -> None:
    await client.call("chat.send", {"sessionKey": "other", "message": "hang", "idempotencyKey": "other"})
    body = {"model": "skynet", "messages": [{"role": "user", "content": "tokens=2 hang"}], "user": "u", "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if "w1" in line:
                break
    end = await client.event(lambda e: e["event"] == "chat" and e["payload"]["state"] == "aborted")
    assert end["payload"]["stopReason"] == "disconnect"
    assert text(end["payload"]["message"]) == "w0 w1"
    await until(lambda: models.disconnects == 1)
    assert (await client.call("chat.abort", {"sessionKey": "other"}))["runIds"] == ["other"]


async def test_an_idempotency_key_is_one_of_its_way_in(client: WireClient, http: httpx2.AsyncClient) -> None:
    """The same key over HTTP and over WebSocket is two requests; over HTTP twice it is one."""
    headers = {"idempotency-key": "k"}
    first = await complete(http, "say=http", headers=headers, user="u")
    await client.call("chat.send", {"sessionKey": "main", "message": "say=socket", "idempotencyKey": "k"})
    await client.event(lambda e: e["payload"].get("state") == "final" and text(e["payload"]["message"]) == "socket")
    again = await complete(http, "say=other", headers=headers, user="u")
    assert content_of(again) == content_of(first) == "http"
    assert await conversation(client, "agent:main:openai-user:u") == [("user", "say=http"), ("assistant", "http")]


async def test_the_usage_of_both_ways_is_one_account(client: WireClient, http: httpx2.AsyncClient) -> None:
    await complete(http, "tokens=7")
    await client.call("chat.send", {"sessionKey": "main", "message": "tokens=5", "idempotencyKey": "r"})
    await client.chat_end("r")
    totals = (await client.call("usage.cost", {"days": 1}))["totals"]
    assert (totals["input"], totals["output"]) == (200, 12)


async def test_health_counts_the_clients_that_are_in(gateway: RunningGateway, http: httpx2.AsyncClient) -> None:
    async def clients() -> int:
        answer = await http.get("/health", headers={"authorization": ""})
        count: int = answer.json()["ws_clients"]
        return count

    assert await clients() == 0
    async with gateway.client() as first, gateway.client():
        assert await clients() == 2
        async with open_socket(gateway.url) as knocking:
            await knocking.event(lambda e: e["event"] == "connect.challenge")
            assert await clients() == 2  # nobody yet
        with pytest.raises(Refused):
            async with gateway.client(token="wrong"):
                pass
        assert await clients() == 2
        first.socket.transport.abort()
        await until(lambda: len(gateway.app.gateway.broadcaster) == 1)
        assert await clients() == 1
    await until(lambda: len(gateway.app.gateway.broadcaster) == 0)
    assert await clients() == 0


async def test_one_port_serves_everything(
    gateway: RunningGateway, client: WireClient, http: httpx2.AsyncClient
) -> None:
    assert urlsplit(gateway.url).netloc == urlsplit(gateway.http_url).netloc
    outcomes = await asyncio.gather(
        http.get("/health"),
        http.get("/readyz"),
        http.get("/v1/models"),
        http.get("/v1/nothing"),
        client.call("health"),
        complete(http, "say=x"),
    )
    assert [answer.status_code for answer in outcomes[:4]] == [200, 200, 200, 404]
    assert [model["id"] for model in outcomes[2].json()["data"]][:1]
    # on one kept-alive connection, one after another, also after a request that was refused
    refused = await http.post("/v1/chat/completions", content=b"{")
    assert refused.status_code == 400
    assert content_of(await complete(http, "say=y")) == "y"


async def test_browsers_of_other_sites_are_refused_at_both(gateway: RunningGateway, http: httpx2.AsyncClient) -> None:
    answer = await http.get("/v1/models", headers={"origin": "https://evil.example"})
    assert answer.status_code == 403
    with pytest.raises(Refused):
        async with gateway.client(headers={"origin": "https://evil.example"}):
            pass
