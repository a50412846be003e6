"""Providers as people meet them: every wire API behind one gateway, and what they notice when one of them fails."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.scene import MAIN, answer, files_of, history, of_run, owner_of, say, send, text, tool
from tests.end_to_end.wires import AWS_ENV, AWS_SECRET, KEY, WIRES, Wire, all_wires
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


def bearer(gateway: RunningGateway) -> httpx2.AsyncClient:
    """An HTTP client of the owner."""
    headers = {"authorization": f"Bearer {gateway.token}"}
    return httpx2.AsyncClient(base_url=gateway.http_url, headers=headers, timeout=20, trust_env=False)


# Every wire API


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS_ENV.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def house(tmp_path: Path, models: ModelServer, aws: None) -> AsyncIterator[RunningGateway]:
    """A gateway with a provider for each of them."""
    async with running_gateway(tmp_path / "state", toml=all_wires(models, tmp_path)) as running:
        yield running


def script(name: str) -> str:
    """Two rounds of tools with thinking that has to come back, and an answer."""
    write = tool("write_file", path=f"{name}.txt", content="milk")
    read = f"{tool('read_file', path=f'{name}.txt')} {tool('list_files')}"
    return f"think=hm sign=c2ln say=one {write} next-round think=so sign=c2lnMg== {read} next-round say=done"


ROLES = ["user", "assistant", "toolResult", "assistant", "toolResult", "toolResult", "assistant"]


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_a_chat_with_tools(house: RunningGateway, models: ModelServer, tmp_path: Path, wire: Wire) -> None:
    """SK-057, SK-098, BA-069."""
    async with house.client(caps=("tool-events",)) as client:
        await client.call("sessions.patch", {"key": MAIN, "model": wire.name})
        image = {"type": "image", "mimeType": "image/png", "content": PNG}
        run_id = await send(client, script("chat"), thinking="high", attachments=[image])
        end = await client.chat_end(run_id)
        assert (end["state"], text(end["message"])) == ("final", "done"), end
        assert PNG.encode() in models.requests[-1].raw
        messages = await history(client)
        assert [message["role"] for message in messages] == ROLES
        answers = [message for message in messages if message["role"] == "assistant"]
        assert {(each["api"], each["provider"], each["model"]) for each in answers} == {
            (wire.api, wire.provider, wire.model)
        }
        assert [[block["type"] for block in each["content"]] for each in answers] == [
            ["thinking", "text", "toolCall"],
            ["thinking", "toolCall", "toolCall"],
            ["text"],
        ]
        # what seals thoughts is between gateway and provider
        assert "ignature" not in json.dumps([block | {"text": ""} for each in answers for block in each["content"]])
        read = next(message for message in messages if message.get("toolName") == "read_file")
        assert text(read) == "milk"
        totals = (await client.call("usage.cost", {"days": 1}))["totals"]
        assert (totals["input"], totals["missingCostEntries"]) == (300, 0)
        assert totals["totalCost"] == pytest.approx(300 * 2e-6 + totals["output"] * 1e-5)
        (row,) = (await client.call("sessions.list", {}))["sessions"]
        assert (row["modelProvider"], row["model"]) == (wire.provider, wire.model)
    assert (files_of(tmp_path / "state", await owner_of(house)) / "chat.txt").read_text() == "milk"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_openai_clients_get_the_same_from_all_of_them(house: RunningGateway, wire: Wire, stream: bool) -> None:
    """SQ-098."""
    body = {"model": wire.name, "messages": [{"role": "user", "content": script("http")}]}
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    async with bearer(house) as http:
        answered = await http.post("/v1/chat/completions", json={**body, **options})
    assert answered.status_code == 200, answered.text
    assert answered.headers["x-skynet-model"] == wire.name
    if stream:
        chunks = [json.loads(line[6:]) for line in answered.text.splitlines() if line.startswith("data: {")]
        said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        usage = chunks[-1]["usage"]
        assert {chunk["model"] for chunk in chunks} == {wire.name}
    else:
        said, usage = answered.json()["choices"][0]["message"]["content"], answered.json()["usage"]
    assert said == "one\n\ndone"
    assert usage["prompt_tokens"] == 300


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_a_client_s_own_tools_go_through(house: RunningGateway, models: ModelServer, wire: Wire) -> None:
    """The client carries them out itself: its loop, with what each service demands between two calls of a turn."""
    weather = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": tool("get_weather", city="Oslo") + " say=rain"}]
    body = {"model": wire.name, "messages": messages, "tools": [{"type": "function", "function": weather}]}
    async with bearer(house) as http:
        (choice,) = (await http.post("/v1/chat/completions", json=body)).json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
        messages += [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees"}]
        answered = await http.post("/v1/chat/completions", json=body)
    assert answered.json()["choices"][0]["message"]["content"] == "rain", answered.text
    assert "read_file" not in str(models.bodies[-1])


async def test_each_answer_says_who_gave_it(house: RunningGateway) -> None:
    """BA-072."""
    async with house.client() as client:
        for wire in WIRES:
            params = {"message": "say=hello", "sessionKey": f"agent:main:{wire.provider}", "idempotencyKey": str(wire)}
            await client.call("sessions.patch", {"key": params["sessionKey"], "model": wire.name})
            request_id = await client.send_frame("agent", params)
            assert (await client.response(request_id))["payload"]["status"] == "accepted"
            meta = (await client.response(request_id))["payload"]["result"]["meta"]["agentMeta"]
            assert (meta["provider"], meta["model"]) == (wire.provider, wire.model)
        listed = (await client.call("models.list"))["models"]
        assert {(model["provider"], model["id"]) for model in listed} == {(w.provider, w.model) for w in WIRES}
        status = await client.call("agent.status")
        assert all(provider["healthy"] and "latencyMs" in provider for provider in status["providers"])
        results = (await client.call("providers.test", {}))["results"]
        assert sorted((each["provider"], each["ok"]) for each in results) == sorted((w.provider, True) for w in WIRES)


async def test_no_key_is_ever_shown(
    tmp_path: Path, models: ModelServer, aws: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong, whoever asks, and although the providers repeat what proved who asked (BA-068)."""
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "skynet_agent")
    shown: list[str] = []
    toml = all_wires(models, tmp_path) + "[router]\nretries = 0\nbreaker_failures = 1000\n"
    async with (
        running_gateway(tmp_path / "state", toml=toml) as gateway,
        gateway.client() as client,
        bearer(gateway) as http,
    ):
        secrets: set[str] = set()
        for wire in WIRES:
            proof = ""
            for words in ("say=hello", "fail=500 say=you sent {}", "fail=403 say=you sent {}", "error-in-stream"):
                body = {"model": wire.name, "messages": [{"role": "user", "content": words.format(proof)}]}
                answered = await http.post("/v1/chat/completions", json=body)
                assert (answered.status_code == 200) == (words == "say=hello")
                proof = AWS_SECRET if wire.api == "bedrock" else bearer_of(models.requests[-1].headers)
                secrets.add(proof or KEY)
                shown.append(answered.text)
        assert {KEY, AWS_SECRET} < secrets
        methods = ("config.get", "agent.status", "providers.list", "status", "health", "providers.test", "logs.tail")
        shown += [json.dumps(await client.call(method, {})) for method in methods]
    assert "\n".join(shown).count("you sent ***") >= len(WIRES) - 1  # Ollama gets no key
    everything = "\n".join((*shown, caplog.text))
    assert "you sent ***" in caplog.text
    for secret in (*secrets, "PRIVATE KEY", "private_key"):
        assert secret not in everything


def bearer_of(headers: Mapping[str, str]) -> str:
    """The key or the token that a request has."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key", "") or (token if kind == "Bearer" else "")


# A pool of three, and what is noticed when one of them fails


class Trio:
    """Three servers that stand in for each other, in this order. ``words`` begins with what names who answered."""

    def __init__(self, servers: Sequence[ModelServer]) -> None:
        self.a, self.b, self.c = self.servers = servers

    def toml(self, **router: object) -> str:
        lines = ["[agent]", 'model = "house"', "[pools]", 'house = ["a/m-a", "b/m-b", "c/m-c"]', "[router]"]
        lines += [f"{key} = {value}" for key, value in {"retries": 0, **router}.items()]
        for name, server in zip("abc", self.servers, strict=True):
            lines += [f"[providers.{name}]", f'base_url = "{server.url}"', f'api_key = "key-{name}"']
            lines += ["read_timeout_s = 0.3", "connect_timeout_s = 0.3"]
            window = 200_000 if name == "c" else 8192
            lines += [f'models = [{{ id = "m-{name}", context_window = {window} }}]']
        return "\n".join([*lines, ""])

    @property
    def asked(self) -> tuple[int, ...]:
        return tuple(server.asked for server in self.servers)


@pytest.fixture
async def trio() -> AsyncIterator[Trio]:
    async with ModelServer() as a, ModelServer() as b, ModelServer() as c:
        yield Trio((a, b, c))


def fallbacks(client: WireClient, run_id: str) -> list[dict[str, Any]]:
    """What clients were told of other models that took over."""
    told = [
        event["payload"]["data"] for event in of_run(client, run_id) if event["payload"].get("stream") == "lifecycle"
    ]
    return [data for data in told if data["phase"] == "fallback"]


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("fail=429:60", "scripted failure 429"),
        ("fail=500", "scripted failure 500"),
        ("fail=503", "scripted failure 503"),
        ("fail=408", "scripted failure 408"),
        ("fail=401", "scripted failure 401"),
        ("drop", "closed the connection"),
        ("cut=0", "broke off"),
        ("error-in-stream", "scripted failure"),
        ("hang", "0.3 s"),
    ],
)
async def test_whoever_fails_another_one_answers(
    tmp_path: Path, trio: Trio, way: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SK-076, SQ-097, BA-072."""
    trio.a.script = way
    async with running_gateway(tmp_path, toml=trio.toml()) as gateway, gateway.client() as client:
        run_id = await send(client, "say=all is well")
        end = await client.chat_end(run_id)
        assert (end["state"], text(end["message"])) == ("final", "all is well")
        (fallback,) = fallbacks(client, run_id)
        (tried,) = fallback["tried"]
        assert (fallback["provider"], fallback["model"]) == ("b", "m-b")
        assert (tried["provider"], tried["model"]) == ("a", "m-a")
        assert error in tried["error"], tried
        shown = [
            event["payload"]["data"]
            for event in of_run(client, run_id)
            if event["payload"].get("stream") == "assistant"
        ]
        assert "".join(each["delta"] for each in shown) == "all is well"
        messages = await history(client)
        assert [(m["role"], m.get("provider")) for m in messages] == [("user", None), ("assistant", "b")]
        async with bearer(gateway) as http:
            body = {"model": "skynet", "messages": [{"role": "user", "content": "say=and here"}]}
            answered = await http.post("/v1/chat/completions", json=body)
            assert answered.headers["x-skynet-model"] == "b/m-b"
            assert answered.json()["choices"][0]["message"]["content"] == "and here"
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(words.startswith("a/m-a failed") for words in warnings)  # SQ-097: also where it did no harm
    assert trio.c.asked == 0


async def test_a_server_that_is_not_there(tmp_path: Path, trio: Trio) -> None:
    await trio.a.__aexit__()
    async with running_gateway(tmp_path, toml=trio.toml()) as gateway, gateway.client() as client:
        assert await answer(client, "say=all is well") == "all is well"
    assert trio.asked == (0, 1, 0)
    await trio.a.__aenter__()


async def test_when_all_fail_the_last_one_s_words_are_shown(tmp_path: Path, trio: Trio) -> None:
    """SK-077."""
    for number, server in enumerate(trio.servers):
        server.script = f"fail=503 say=the house number {number} is closed"
    async with running_gateway(tmp_path, toml=trio.toml()) as gateway, gateway.client() as client:
        end = await say(client, "say=never")
        assert end["state"] == "error"
        assert "the house number 2 is closed" in end["errorMessage"]
        (failed,) = (message for message in await history(client) if message["role"] == "assistant")
        assert (failed["stopReason"], failed["errorMessage"]) == ("error", end["errorMessage"])
        for server in trio.servers:
            server.script = ""
        assert await answer(client, "say=open again") == "open again"


async def test_a_provider_that_keeps_failing_is_left_alone_until_it_is_back(tmp_path: Path, trio: Trio) -> None:
    """SK-080."""
    toml = trio.toml(breaker_failures=2, breaker_cooldown_s=1.5)
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client() as client:

        async def state() -> dict[str, Any]:
            """Of the first provider, as both methods tell it."""
            while True:
                status = (await client.call("agent.status"))["providers"]
                assert [provider["name"] for provider in status] == ["a", "b", "c"]
                listed = (await client.call("providers.list", {}))["providers"]
                # Its time may be up between the two
                if (listed[0]["circuit"], status[0]["circuit"]) != ("half_open", "open"):
                    break
            assert listed[0]["circuit"] == status[0]["circuit"]
            first: dict[str, Any] = status[0]
            return first

        trio.a.script = "fail=503"
        for number in (1, 2):
            assert await answer(client, "say=well") == "well"
            assert (await state())["failures"] == number
        found = await state()
        assert (found["circuit"], found["healthy"]) == ("open", False)
        assert 0 < found["openForMs"] <= 1500
        assert "scripted failure 503" in found["lastError"]
        run_id = await send(client, "say=well")
        await client.chat_end(run_id)
        assert trio.a.asked == 2  # passed over
        assert fallbacks(client, run_id) == []  # nothing failed in this one

        # the probe finds it still away: one request, and it is left alone again
        await circuit_is("half_open", state)
        assert await answer(client, "say=well") == "well"
        assert trio.a.asked == 3
        assert (await state())["circuit"] == "open"

        # the next one finds it back
        trio.a.script = ""
        await circuit_is("half_open", state)
        assert await answer(client, "say=well") == "well"
        assert trio.asked == (4, 4, 0)
        found = await state()
        assert (found["circuit"], found["healthy"], found["failures"]) == ("closed", True, 0)


async def circuit_is(wanted: str, state: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    async with asyncio.timeout(40):
        while (await state())["circuit"] != wanted:  # noqa: ASYNC110  (time alone changes it)
            await asyncio.sleep(0.02)


async def test_an_answer_that_breaks_off_is_kept_and_asked_of_nobody_else(tmp_path: Path, trio: Trio) -> None:
    """SQ-096."""
    async with running_gateway(tmp_path, toml=trio.toml(retries=2)) as gateway, gateway.client() as client:
        run_id = await send(client, "tokens=9 cut=3")
        end = await client.chat_end(run_id)
        assert (end["state"], text(end["message"])) == ("error", "w0 w1 w2")
        assert trio.asked == (1, 0, 0)
        kept = (await history(client))[-1]
        assert (text(kept), kept["stopReason"], kept["provider"]) == ("w0 w1 w2", "error", "a")
        assert kept["errorMessage"] == end["errorMessage"]
        ends = [event for event in of_run(client, run_id) if event["payload"].get("state") in ("final", "error")]
        assert len(ends) == 1
        # the next message goes on from there
        assert await answer(client, "say=go on") == "go on"
        spoken = [message["role"] for message in trio.a.bodies[-1]["messages"] if message["role"] != "system"]
        assert spoken == ["user", "assistant", "user"]


async def test_another_model_goes_on_in_the_middle_of_a_turn_and_nothing_is_done_twice(
    tmp_path: Path, trio: Trio
) -> None:
    toml = trio.toml()
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client(caps=("tool-events",)) as client:
        write = tool("write_file", path="once.txt", content="milk")
        run_id = await send(client, f"say=writing delay=50 {write} next-round say=written")
        await client.event(lambda e: e["payload"].get("stream") == "assistant")
        trio.a.script = "fail=503"  # from now on
        end = await client.chat_end(run_id)
        assert text(end["message"]) == "written"
        phases = [e["payload"]["data"]["phase"] for e in of_run(client, run_id) if e["payload"].get("stream") == "tool"]
        assert phases == ["start", "result"]
        answers = [message for message in await history(client) if message["role"] == "assistant"]
        assert [(each["provider"], text(each)) for each in answers] == [("a", "writing"), ("b", "written")]


async def test_who_has_no_tools_stands_in_without_them(tmp_path: Path, trio: Trio) -> None:
    toml = trio.toml().replace('id = "m-b", ', 'id = "m-b", tools = false, ')
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client() as client:
        await say(client, f"{tool('list_files')} say=nothing there")
        trio.a.script = "fail=503"
        assert await answer(client, "say=what was there?") == "what was there?"
        assert trio.asked == (3, 1, 0)
        asked = trio.b.bodies[-1]
        assert "tools" not in asked and "the folder is empty" in json.dumps(asked)


async def test_what_is_too_long_goes_to_who_can_hold_it(tmp_path: Path, trio: Trio) -> None:
    for server in (trio.a, trio.b):
        server.script = "fail=context"
    async with running_gateway(tmp_path, toml=trio.toml()) as gateway, gateway.client() as client:
        assert await answer(client, "say=it fits") == "it fits"
    assert trio.asked == (1, 0, 1)  # the second's window is no larger than the first's
