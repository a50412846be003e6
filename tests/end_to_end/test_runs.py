"""Runs as clients see them: order of frames, lanes, aborts, idempotency, failures (OPENCLAW-V3 6.5, 6.6, 7)."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from skynet_protocol.device import DeviceIdentity
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.script import without_session

MAIN = "agent:main:main"


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


async def send(client: WireClient, message: str, *, key: str = MAIN, run_id: str = "", **params: Any) -> str:
    run_id = run_id or str(uuid.uuid4())
    payload = {"sessionKey": key, "message": message, "idempotencyKey": run_id, **params}
    assert await client.call("chat.send", payload) == {"runId": run_id, "status": "started"}
    return run_id


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition that something outside of the protocol makes true."""
    async with asyncio.timeout(40):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def of_run(client: WireClient, run_id: str) -> list[dict[str, Any]]:
    return [event for event in client.events if event["payload"].get("runId") == run_id]


def text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


async def test_a_run_has_the_frames_of_openclaw_in_its_order(client: WireClient) -> None:
    run_id = await send(client, "tokens=20")
    final = await client.chat_end(run_id)
    words = " ".join(f"w{number}" for number in range(20))
    assert final["state"] == "final"
    assert text(final["message"]) == words
    events = of_run(client, run_id)
    began = events[0]["payload"]["data"]
    assert began == {"phase": "start", "startedAt": began["startedAt"]}
    assert began["startedAt"] <= events[0]["payload"]["ts"]  # it may be told in the next millisecond
    first = events[1]["payload"]["data"]
    assert first["delta"] == first["text"]  # one word, or several that came at once
    assert first["text"].split()[0] == "w0"
    assert (events[2]["event"], events[2]["payload"]["state"]) == ("chat", "delta")
    assert text(events[2]["payload"]["message"]) == first["text"]
    assert [event["event"] for event in events[-2:]] == ["agent", "chat"]
    assert events[-2]["payload"]["data"]["phase"] == "end"
    # the agent stream's deltas are the whole text; each chat delta has the text so far
    assistant = [e["payload"]["data"] for e in events if e["payload"].get("stream") == "assistant"]
    assert "".join(data["delta"] for data in assistant) == words
    assert assistant[-1]["text"] == words
    # one counter for both kinds of events, and the ack before all of them
    agent_seqs = [event["payload"]["seq"] for event in events if event["event"] == "agent"]
    assert agent_seqs == list(range(1, len(agent_seqs) + 1))
    frames = client.frames
    ack = next(i for i, f in enumerate(frames) if f["type"] == "res" and (f["payload"] or {}).get("runId") == run_id)
    assert ack < frames.index(events[0])


async def test_frame_numbers_are_contiguous_on_each_connection(gateway: RunningGateway, client: WireClient) -> None:
    async with gateway.client() as other:
        for _ in range(3):
            run_id = await send(client, "tokens=3")
            await asyncio.gather(client.chat_end(run_id), other.chat_end(run_id))
        for each in (client, other):
            numbers = [event["seq"] for event in each.events if "seq" in event]
            assert numbers == list(range(1, len(numbers) + 1))


async def test_history_is_what_was_said(client: WireClient) -> None:
    await client.chat_end(await send(client, "say=hello there"))
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert [(m["role"], text(m)) for m in history["messages"]] == [
        ("user", "say=hello there"),
        ("assistant", "hello there"),
    ]
    answer = history["messages"][1]
    assert (answer["provider"], answer["model"], answer["stopReason"]) == ("mock", "mock-1", "stop")
    assert "usage" not in answer
    assert history["thinkingLevel"] == "off"


async def test_the_model_sees_the_conversation(client: WireClient, models: ModelServer) -> None:
    await client.chat_end(await send(client, "say=one"))
    await client.chat_end(await send(client, "say=two"))
    messages = models.requests[-1].body["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[1]["content"].endswith("] say=one")
    assert messages[2]["content"] == "one"


async def test_messages_of_one_session_wait_for_each_other(client: WireClient, models: ModelServer) -> None:
    first = await send(client, "tokens=5 delay=40")
    second = await send(client, "say=second")
    third = await send(client, "say=third")
    for run_id, expected in ((first, "w0 w1 w2 w3 w4"), (second, "second"), (third, "third")):
        assert text((await client.chat_end(run_id))["message"]) == expected
    ends = [e["payload"]["runId"] for e in client.events if e["event"] == "chat" and e["payload"]["state"] == "final"]
    assert ends == [first, second, third]
    # what waits in the lane is not yet part of the conversation
    assert [m["role"] for m in models.requests[0].body["messages"]] == ["system", "user"]
    roles = [m["role"] for m in models.requests[2].body["messages"]]
    assert roles[-1] == "user"
    assert without_session(models.requests[2].body["messages"][-1]["content"]).endswith("say=third")


async def test_the_main_session_is_told_what_happened_once(client: WireClient, models: ModelServer) -> None:
    await client.call("wake", {"mode": "next-heartbeat", "text": "the bell rang"})
    await client.chat_end(await send(client, "say=elsewhere", key="agent:main:other"))
    await client.chat_end(await send(client, "say=here"))
    await client.chat_end(await send(client, "say=again"))
    told = ["the bell rang" in str(seen.body["messages"]) for seen in models.requests]
    assert told == [False, True, False]
    assert (await client.call("status"))["queuedSystemEvents"] == []


async def test_sessions_do_not_wait_for_each_other(client: WireClient) -> None:
    slow = await send(client, "hang", key="agent:main:slow")
    quick = await send(client, "say=quick", key="agent:main:quick")
    assert text((await client.chat_end(quick))["message"]) == "quick"
    assert not [e for e in of_run(client, slow) if e["event"] == "chat"]
    await client.call("chat.abort", {"sessionKey": "agent:main:slow"})


async def test_abort_keeps_what_was_said_and_stops_the_model(client: WireClient, models: ModelServer) -> None:
    run_id = await send(client, "tokens=1000 delay=20")
    await client.event(lambda e: e["event"] == "chat" and e["payload"]["state"] == "delta")
    answer = await client.call("chat.abort", {"sessionKey": MAIN, "runId": run_id})
    assert answer == {"ok": True, "aborted": True, "runIds": [run_id]}
    end = await client.chat_end(run_id)
    assert (end["state"], end["stopReason"]) == ("aborted", "rpc")
    partial = text(end["message"])
    assert partial.startswith("w0")
    # the event came before the answer
    response = next(f for f in client.frames if f["type"] == "res" and (f["payload"] or {}).get("aborted"))
    event = next(e for e in client.events if e["payload"].get("state") == "aborted")
    assert client.frames.index(event) < client.frames.index(response)
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert text(history["messages"][-1]) == partial
    assert history["messages"][-1]["stopReason"] == "aborted"
    assert "phase" not in of_run(client, run_id)[-2]["payload"].get("data", {})
    await until(lambda: models.disconnects == 1)
    assert (await client.call("agent.wait", {"runId": run_id, "timeoutMs": 100}))["status"] == "timeout"


@pytest.mark.parametrize("word", ["stop", "/stop", "Please stop!", "стоп"])
async def test_a_stop_word_stops_the_session(client: WireClient, word: str) -> None:
    run_id = await send(client, "hang")
    answer = await client.call("chat.send", {"sessionKey": MAIN, "message": word, "idempotencyKey": "stop-1"})
    assert answer == {"ok": True, "aborted": True, "runIds": [run_id]}
    assert (await client.chat_end(run_id))["stopReason"] == "stop"


async def test_abort_of_nothing_and_of_another_session(client: WireClient) -> None:
    assert await client.call("chat.abort", {"sessionKey": MAIN}) == {"ok": True, "aborted": False, "runIds": []}
    run_id = await send(client, "hang")
    with pytest.raises(Refused, match="runId does not match sessionKey"):
        await client.call("chat.abort", {"sessionKey": "agent:main:other", "runId": run_id})
    # the alias means the same session
    assert (await client.call("chat.abort", {"sessionKey": "main", "runId": run_id}))["aborted"] is True


async def test_a_queued_run_can_be_aborted(client: WireClient) -> None:
    first = await send(client, "hang")
    second = await send(client, "say=never")
    await client.call("chat.abort", {"sessionKey": MAIN})
    assert (await client.chat_end(first))["state"] == "aborted"
    assert (await client.chat_end(second))["state"] == "aborted"
    assert "message" not in await client.chat_end(second)
    assert text((await client.chat_end(await send(client, "say=next")))["message"]) == "next"


async def test_a_run_that_is_stopped_while_it_waits_ends_at_once(client: WireClient) -> None:
    first = await send(client, "hang")
    second, third = await send(client, "say=never"), await send(client, "say=third")
    answer = await client.call("chat.abort", {"sessionKey": MAIN, "runId": second})
    assert answer["runIds"] == [second]
    assert (await client.chat_end(second))["state"] == "aborted"
    assert not [e for e in of_run(client, first) if e["event"] == "chat"]
    await client.call("chat.abort", {"sessionKey": MAIN, "runId": first})
    assert text((await client.chat_end(third))["message"]) == "third"


async def test_a_repeated_key_runs_nothing_twice(client: WireClient, models: ModelServer) -> None:
    run_id = await send(client, "tokens=3 first=100", run_id="k1")
    params = {"sessionKey": MAIN, "message": "tokens=3", "idempotencyKey": "k1"}
    assert await client.call("chat.send", params) == {"runId": "k1", "status": "in_flight"}
    await client.chat_end(run_id)
    assert await client.call("chat.send", params) == {"runId": "k1", "status": "ok"}
    assert len(models.requests) == 1


async def test_twenty_sends_of_one_key_run_once(client: WireClient, models: ModelServer) -> None:
    params = {"sessionKey": MAIN, "message": "say=once", "idempotencyKey": "k"}
    answers = await asyncio.gather(*(client.call("chat.send", params) for _ in range(20)))
    assert [a["status"] for a in answers].count("started") == 1
    assert {a["status"] for a in answers} <= {"started", "in_flight", "ok"}
    await client.chat_end("k")
    assert len(models.requests) == 1
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert len(history["messages"]) == 2


async def test_agent_answers_twice(client: WireClient) -> None:
    request_id = await client.send_frame(
        "agent", {"message": "tokens=5", "agentId": "main", "sessionKey": MAIN, "idempotencyKey": "a1"}
    )
    accepted = (await client.response(request_id))["payload"]
    assert (accepted["runId"], accepted["status"]) == ("a1", "accepted")
    final = (await client.response(request_id))["payload"]
    assert (final["runId"], final["status"], final["summary"]) == ("a1", "ok", "completed")
    assert final["result"]["payloads"] == [{"text": "w0 w1 w2 w3 w4", "mediaUrl": None}]
    meta = final["result"]["meta"]["agentMeta"]
    assert (meta["provider"], meta["model"]) == ("mock", "mock-1")
    assert meta["usage"] == {"input": 100, "output": 5, "total": 105, "cacheRead": 0, "cacheWrite": 0}
    assert meta["promptTokens"] == 100
    # a repeat gets the final answer at once, and chat events were sent as well
    assert await client.call("agent", {"message": "tokens=5", "idempotencyKey": "a1"}) == final
    assert (await client.chat_end("a1"))["state"] == "final"
    assert (await client.call("agent.wait", {"runId": "a1"}))["status"] == "ok"


async def test_agent_by_session_id_has_no_chat_events(client: WireClient) -> None:
    for number in range(2):
        request_id = await client.send_frame(
            "agent", {"message": "say=hi", "sessionId": "s1", "idempotencyKey": f"b{number}"}
        )
        await client.response(request_id)
        final = (await client.response(request_id))["payload"]
        assert final["result"]["meta"]["agentMeta"]["sessionId"] == "s1"
    assert {event["event"] for event in of_run(client, "b1")} == {"agent"}
    assert all("sessionKey" not in event["payload"] for event in of_run(client, "b1"))
    row = next(r for r in (await client.call("sessions.list", {}))["sessions"] if r["sessionId"] == "s1")
    history = await client.call("chat.history", {"sessionKey": row["key"]})
    assert len(history["messages"]) == 4


async def test_agent_wait_waits_for_a_run_that_has_not_begun(gateway: RunningGateway, client: WireClient) -> None:
    waiting = asyncio.create_task(client.call("agent.wait", {"runId": "later", "timeoutMs": 10_000}))
    await client.chat_end(await send(client, "say=x", run_id="later"))
    result = await waiting
    assert result["status"] == "ok"
    assert result["startedAt"] <= result["endedAt"]
    assert (await client.call("agent.wait", {"runId": "never", "timeoutMs": 1}))["status"] == "timeout"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"agentId": "x"}, 'invalid agent params: unknown agent id "x"'),
        ({"sessionKey": "agent:x"}, 'invalid agent params: malformed session key "agent:x"'),
        (
            {"agentId": "main", "sessionKey": "agent:b:main"},
            'invalid agent params: agent "main" does not match session key agent "b"',
        ),
        ({"deliver": True}, "Error: Channel is required (no configured channels detected)."),
        ({"deliver": True, "channel": "nope"}, "invalid agent params: unknown channel: nope"),
    ],
)
async def test_agent_refusals(client: WireClient, params: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as refused:
        await client.call("agent", {"message": "x", "idempotencyKey": "k", **params})
    assert refused.value.error["code"] == "INVALID_REQUEST"
    assert str(refused.value) == message


async def test_a_model_that_fails_ends_the_run_with_an_error(client: WireClient) -> None:
    run_id = await send(client, "fail=400")
    end = await client.chat_end(run_id)
    assert end["state"] == "error"
    assert "400" in end["errorMessage"] or "mock" in end["errorMessage"]
    lifecycle = [e["payload"]["data"] for e in of_run(client, run_id) if e["payload"].get("stream") == "lifecycle"]
    assert [data["phase"] for data in lifecycle] == ["start", "error"]
    assert lifecycle[-1]["error"] == end["errorMessage"]
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert history["messages"][-1]["stopReason"] == "error"
    assert (await client.call("agent.wait", {"runId": run_id}))["status"] == "error"
    assert (await client.chat_end(await send(client, "say=again")))["state"] == "final"


async def test_a_model_failure_is_the_text_of_an_agent_answer(client: WireClient) -> None:
    request_id = await client.send_frame("agent", {"message": "fail=503", "idempotencyKey": "f1"})
    await client.response(request_id)
    final = await client.response(request_id)
    assert final["ok"] is True
    error = final["payload"]["result"]["meta"]["error"]
    assert final["payload"]["result"]["payloads"] == [{"text": error["message"], "mediaUrl": None}]


async def test_text_shown_before_a_failure_is_kept_and_marked(client: WireClient) -> None:
    run_id = await send(client, "tokens=10 cut=3")
    end = await client.chat_end(run_id)
    assert end["state"] == "error"
    assert text(end["message"]) == "w0 w1 w2"
    last = (await client.call("chat.history", {"sessionKey": MAIN}))["messages"][-1]
    assert text(last) == "w0 w1 w2"
    assert last["stopReason"] == "error"


async def test_another_provider_answers_when_the_first_cannot(tmp_path: Path, models: ModelServer) -> None:
    async with ModelServer() as second:
        toml = (
            f'[providers.spare]\nbase_url = "{second.url}"\napi_key = "k"\npriority = -1\n'
            'models = [{ id = "spare-1" }]\n'
        )
        async with running_gateway(tmp_path, models=models, toml=toml) as gateway, gateway.client() as client:
            models.script = "fail=503"
            run_id = await send(client, "say=from the spare")
            assert text((await client.chat_end(run_id))["message"]) == "from the spare"
            fallback = [e["payload"]["data"] for e in of_run(client, run_id) if "fallback" in str(e["payload"])]
            assert fallback[0]["provider"] == "spare"
            history = await client.call("chat.history", {"sessionKey": MAIN})
            assert history["messages"][-1]["model"] == "spare-1"


async def test_a_run_that_takes_too_long_is_stopped(client: WireClient) -> None:
    run_id = await send(client, "hang", timeoutMs=100)
    end = await client.chat_end(run_id)
    assert (end["state"], end["stopReason"]) == ("aborted", "timeout")


async def test_a_run_goes_on_without_its_client(gateway: RunningGateway, client: WireClient) -> None:
    async with gateway.client() as leaving:
        run_id = await send(leaving, "tokens=5 delay=30")
    await client.chat_end(run_id)
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert text(history["messages"][-1]) == "w0 w1 w2 w3 w4"


async def test_each_client_gets_events_under_the_key_it_holds(gateway: RunningGateway, client: WireClient) -> None:
    async with gateway.client() as literal, gateway.client() as acp:
        run_id = await send(literal, "say=a", key="main")
        assert (await literal.chat_end(run_id))["sessionKey"] == "main"
        assert (await client.chat_end(run_id))["sessionKey"] == MAIN
        run_id = await send(acp, "say=b", key="acp:1234")
        assert (await acp.chat_end(run_id))["sessionKey"] == "acp:1234"
        assert (await client.chat_end(run_id))["sessionKey"] == "agent:main:acp:1234"
        assert all(event["payload"]["sessionKey"] == "acp:1234" for event in of_run(acp, run_id))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/help", "/status"),
        ("/status", "Model: mock/mock-1"),
        ("/whoami", "Role: admin"),
        ("/models", "mock/mock-2"),
        ("/model", "Model: mock/mock-1"),
        ("/think high", "thinkingLevel: high"),
        ("/think wild", "invalid thinkingLevel (use off|minimal|low|medium|high|xhigh)"),
        ("/think ultrathink", "thinkingLevel: high"),
    ],
)
async def test_commands_are_answered_without_the_model(
    client: WireClient, models: ModelServer, command: str, expected: str
) -> None:
    run_id = await send(client, command)
    end = await client.chat_end(run_id)
    assert (end["state"], end["seq"]) == ("final", 1)
    assert expected in text(end["message"])
    assert [event["event"] for event in of_run(client, run_id)] == ["chat"]
    assert not models.requests
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert [m["role"] for m in history["messages"]] == ["assistant"]
    assert history["messages"][0]["model"] == "gateway-injected"


async def test_a_session_keeps_the_model_that_a_command_chose(client: WireClient, models: ModelServer) -> None:
    await client.chat_end(await send(client, "/model mock/mock-2"))
    await client.chat_end(await send(client, "say=x"))
    assert models.requests[-1].body["model"] == "mock-2"


async def test_a_model_that_thinks_is_told_how_much(tmp_path: Path, models: ModelServer) -> None:
    toml = (
        f'[providers.thinker]\nbase_url = "{models.url}"\napi_key = "k"\npriority = 9\n'
        'models = [{ id = "t-1", reasoning = true }]\n'
    )
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client() as client:
        await client.chat_end(await send(client, "say=a", thinking="low"))
        assert models.requests[-1].body["reasoning_effort"] == "low"
        await client.call("sessions.patch", {"key": MAIN, "thinkingLevel": "high"})
        await client.chat_end(await send(client, "say=b"))
        assert models.requests[-1].body["reasoning_effort"] == "high"
        with pytest.raises(Refused, match="invalid thinkingLevel"):
            await client.call(
                "chat.send", {"sessionKey": MAIN, "message": "x", "idempotencyKey": "k", "thinking": "wild"}
            )


async def test_new_begins_a_conversation_once(client: WireClient, models: ModelServer) -> None:
    await client.chat_end(await send(client, "say=before"))
    await client.chat_end(await send(client, "/new say=after", run_id="new-1"))
    assert len(models.requests[-1].body["messages"]) == 2
    params = {"sessionKey": MAIN, "message": "/new say=after", "idempotencyKey": "new-1"}
    assert (await client.call("chat.send", params))["status"] == "ok"
    assert len((await client.call("chat.history", {"sessionKey": MAIN}))["messages"]) == 2


async def test_unknown_slash_words_go_to_the_model(client: WireClient, models: ModelServer) -> None:
    await client.chat_end(await send(client, "/nonsense say=x"))
    assert len(models.requests) == 1


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "message or attachment required"),
        (" \n\t ", "message or attachment required"),
        ("\x01\x02", "message or attachment required"),
        ("a\x00b", "message must not contain null bytes"),
    ],
)
async def test_messages_without_content_are_refused(client: WireClient, message: str, problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        await client.call("chat.send", {"sessionKey": MAIN, "message": message, "idempotencyKey": "k"})
    assert (await client.call("chat.history", {"sessionKey": MAIN}))["messages"] == []


async def test_a_message_of_ten_megabytes_is_answered(client: WireClient) -> None:
    run_id = await send(client, "say=x " + "y" * 10_000_000)
    assert (await client.chat_end(run_id))["state"] == "final"
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert len(str(history)) < 100_000


@pytest.mark.parametrize("key", ["agent:x", "x" * 10_000, "a\x07b", "agent:main:", "user:abc"])
async def test_malformed_keys(client: WireClient, key: str) -> None:
    if key == "user:abc":  # an ordinary bare name
        await client.chat_end(await send(client, "say=x", key=key))
        return
    with pytest.raises(Refused, match="malformed session key"):
        await client.call("chat.send", {"sessionKey": key, "message": "x", "idempotencyKey": "k"})


async def test_path_like_keys_are_names_and_nothing_more(client: WireClient, tmp_path: Path) -> None:
    await client.chat_end(await send(client, "say=x", key="../../etc/passwd"))
    rows = (await client.call("sessions.list", {}))["sessions"]
    assert [row["key"] for row in rows] == ["agent:main:../../etc/passwd"]


async def test_inject_shows_a_message_that_no_model_wrote(client: WireClient) -> None:
    with pytest.raises(Refused, match="session not found"):
        await client.call("chat.inject", {"sessionKey": "agent:main:none", "message": "x"})
    await client.chat_end(await send(client, "say=x"))
    answer = await client.call("chat.inject", {"sessionKey": MAIN, "message": "note", "label": "from the door"})
    event = await client.event(lambda e: e["payload"].get("runId") == f"inject-{answer['messageId']}")
    assert event["payload"]["seq"] == 0
    assert text(event["payload"]["message"]) == "[from the door]\n\nnote"
    history = await client.call("chat.history", {"sessionKey": MAIN})
    assert text(history["messages"][-1]) == "[from the door]\n\nnote"


async def test_a_lane_refuses_what_it_cannot_hold(client: WireClient) -> None:
    await send(client, "hang")
    for _ in range(20):
        await send(client, "say=x")
    with pytest.raises(Refused, match="20 messages are waiting") as refused:
        await client.call("chat.send", {"sessionKey": MAIN, "message": "x", "idempotencyKey": "k"})
    assert refused.value.error["retryable"] is True
    assert len((await client.call("chat.abort", {"sessionKey": MAIN}))["runIds"]) == 21


async def test_a_person_has_so_many_runs_and_no_more(client: WireClient) -> None:
    for number in range(64):
        await send(client, "hang", key=f"agent:main:s{number}")
    with pytest.raises(Refused, match="64 of your messages") as refused:
        await client.call("chat.send", {"sessionKey": "agent:main:t", "message": "x", "idempotencyKey": "k"})
    assert refused.value.error["retryable"] is True
    await asyncio.gather(*(client.call("chat.abort", {"sessionKey": f"agent:main:s{n}"}) for n in range(64)))


async def test_a_message_that_is_refused_ends_no_conversation(client: WireClient) -> None:
    await client.chat_end(await send(client, "say=before"))
    before = await client.call("chat.history", {"sessionKey": MAIN})
    for params in ({"thinking": "wild"}, {"attachments": [{"content": "!"}]}):
        for method in ("chat.send", "agent"):
            with pytest.raises(Refused):
                await client.call(method, {"sessionKey": MAIN, "message": "/new x", "idempotencyKey": "k", **params})
    assert await client.call("chat.history", {"sessionKey": MAIN}) == before


async def test_waiting_ends_with_its_connection(gateway: RunningGateway, client: WireClient) -> None:
    def waiting() -> int:
        return sum(task.get_name() == "method agent.wait" for task in asyncio.all_tasks())

    async with gateway.client() as leaving:
        for number in range(50):
            await leaving.send_frame("agent.wait", {"runId": f"never-{number}", "timeoutMs": 2**52})
        await until(lambda: waiting() == 50)
    await until(lambda: waiting() == 0)


async def test_a_hostile_answer_does_not_keep_the_gateway_busy(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway, gateway.client() as client:
        await client.chat_end(await send(client, "echo [[reply_to:" + " " * 50_000 + "|"))
        history = await client.call("chat.history", {"sessionKey": MAIN})
        assert len(history["messages"]) == 2


async def test_send_policy_deny(client: WireClient) -> None:
    await client.call("sessions.patch", {"key": MAIN, "sendPolicy": "deny"})
    with pytest.raises(Refused, match="send blocked by session policy"):
        await client.call("chat.send", {"sessionKey": MAIN, "message": "x", "idempotencyKey": "k"})
    with pytest.raises(Refused, match="send blocked by session policy"):
        await client.call("agent", {"sessionKey": MAIN, "message": "x", "idempotencyKey": "k"})


async def test_the_offline_assistant_answers_without_any_provider(tmp_path: Path) -> None:
    """SK-074."""
    async with running_gateway(tmp_path) as gateway, gateway.client() as client:
        end = await client.chat_end(await send(client, "hello"))
        assert end["state"] == "final"
        assert "offline" in text(end["message"]).lower()


async def test_usage_and_cost_are_recorded(tmp_path: Path, models: ModelServer) -> None:
    toml = (
        f'[providers.priced]\nbase_url = "{models.url}"\napi_key = "k"\npriority = 9\n'
        'models = [{ id = "p-1", price = { input = 3.0, output = 15.0 } }]\n'
    )
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client() as client:
        await client.chat_end(await send(client, "tokens=10"))
        cost = await client.call("usage.cost", {"days": 1})
        assert cost["totals"]["input"] == 100
        assert cost["totals"]["output"] == 10
        assert cost["totals"]["totalCost"] == pytest.approx((100 * 3 + 10 * 15) / 1e6)
        row = (await client.call("sessions.list", {}))["sessions"][0]
        assert (row["inputTokens"], row["outputTokens"]) == (100, 10)


async def test_a_terminal_interface_reads_the_answer_before_any_event_of_the_run(gateway: RunningGateway) -> None:
    """Its own pong releases the events; so the acknowledgement and the end of a run never share a read."""
    async with gateway.client(client_id="gateway-client", mode="ui") as tui:
        run_id = await send(tui, "say=quick")
        assert (await tui.chat_end(run_id))["state"] == "final"
        numbers = [event["seq"] for event in tui.events if "seq" in event]
        assert numbers == list(range(1, len(numbers) + 1))
        rows = (await tui.call("sessions.list", {}))["sessions"]
        assert rows[0]["displayName"] == "gateway-client"
