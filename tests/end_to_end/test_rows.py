"""What only a whole gateway shows of the rows of models and prompts: each test names the row that it is for."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from skynet_agent.offline import NOT_CONFIGURED
from skynet_agent.thinking import BUDGET_TOKENS
from skynet_memory.ids import DEFAULT_AGENT, Role, UserId, now_ms
from skynet_memory.keys import build_key
from skynet_memory.usage import UsageStore
from tests.end_to_end.scene import MAIN, add_person, answer, history, owner_of, send, text, told, tool
from tests.end_to_end.wires import AWS_ENV, AWS_SECRET, KEY, WIRES, all_wires
from tests.support.client import Refused, WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer

COMPLETIONS, ANTHROPIC = WIRES[0], WIRES[2]


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


async def complete(gateway: RunningGateway, message: str, *, token: str = "", **body: Any) -> httpx2.Response:
    """A chat completion of the owner, or of whom a token belongs to."""
    headers = {"authorization": f"Bearer {token or gateway.token}"}
    asked = {"model": "skynet", "messages": [{"role": "user", "content": message}], **body}
    async with httpx2.AsyncClient(base_url=gateway.http_url, headers=headers, timeout=20, trust_env=False) as http:
        return await http.post("/v1/chat/completions", json=asked)


# Providers


NO_KEYS = """\
[agent]
model = "openai/gpt-6.1-sol"
[providers.openai]
priority = 5
[providers.lab]
base_url = "http://127.0.0.1:9/v1"
api_key = "${LAB_KEY}"
"""


@pytest.mark.parametrize(("toml", "off"), [("", []), (NO_KEYS, [("lab", "LAB_KEY"), ("openai", "OPENAI_API_KEY")])])
async def test_without_a_key_there_is_a_gateway_that_says_what_is_missing(
    tmp_path: Path, toml: str, off: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """SK-074."""
    async with running_gateway(tmp_path, toml=toml) as gateway, gateway.client() as client:
        async with httpx2.AsyncClient(base_url=gateway.http_url, trust_env=False) as http:
            assert (await http.get("/health")).status_code == 200
        said = await answer(client, "hello")
        assert said.startswith(NOT_CONFIGURED) and "OPENAI_API_KEY" in said
        assert (await complete(gateway, "hello")).json()["choices"][0]["message"]["content"] == said
        listed = await client.call("providers.list", {"all": True})
        assert [provider["name"] for provider in listed["providers"]] == ["offline"]
        assert {each["name"]: each.get("keyVariable") for each in listed["known"]}["openai"] == "OPENAI_API_KEY"
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    found = [words.partition(": provider ")[2] for words in warned if " is off: " in words]
    assert found == [f"{name} is off: the environment variable {key} is not set" for name, key in off]


async def test_a_key_in_the_environment_and_a_name_with_slashes(tmp_path: Path, models: ModelServer) -> None:
    """SK-066, BA-067: the variable alone enables the provider, whose models have slashes of their own."""
    env = {"OPENROUTER_API_KEY": KEY}
    async with running_gateway(tmp_path / "plain", env=env) as gateway, gateway.client() as client:
        (provider,) = (await client.call("agent.status"))["providers"]
        assert (provider["name"], provider["auth"]) == ("openrouter", "key set")
        assert all("/" in model["id"] for model in provider["models"])
    toml = f'[providers.openrouter]\nbase_url = "{models.url}"\napi_key = "{KEY}"\n'
    toml += '[models.aliases]\nab = "openrouter/a/b"\n'
    async with running_gateway(tmp_path / "near", toml=toml) as gateway, gateway.client() as client:
        for name in ("openrouter/a/b", "ab"):
            patched = await client.call("sessions.patch", {"key": MAIN, "model": name})
            assert patched["resolved"] == {"modelProvider": "openrouter", "model": "a/b"}
            assert await answer(client, "say=by name") == "by name"
            assert models.bodies[-1]["model"] == "a/b"
            assert (await complete(gateway, "say=over http", model=name)).headers["x-skynet-model"] == "openrouter/a/b"
            assert models.bodies[-1]["model"] == "a/b"


async def test_an_answer_says_who_gave_it_and_who_could_not(tmp_path: Path, models: ModelServer) -> None:
    """BA-072, SQ-030: a pool by its name, whose first member fails."""
    async with ModelServer() as failing:
        failing.script = "fail=503"
        toml = COMPLETIONS.toml(failing, tmp_path, provider="one") + COMPLETIONS.toml(models, tmp_path, provider="two")
        toml += '[pools]\nfast = ["one/mock-1", "two/mock-1"]\n[router]\nretries = 0\n'
        async with running_gateway(tmp_path / "state", toml=toml) as gateway, gateway.client() as client:
            await client.call("sessions.patch", {"key": MAIN, "model": "fast"})
            params = {"message": "say=well", "sessionKey": MAIN, "idempotencyKey": "k"}
            request_id = await client.send_frame("agent", params)
            assert (await client.response(request_id))["payload"]["status"] == "accepted"
            meta = (await client.response(request_id))["payload"]["result"]["meta"]["agentMeta"]
            assert (meta["provider"], meta["model"]) == ("two", "mock-1")
            attempt = {"provider": "one", "model": "mock-1", "error": "one: scripted failure 503 (HTTP 503)"}
            assert meta["tried"] == [attempt]
            assert (await complete(gateway, "say=well", model="fast")).headers["x-skynet-model"] == "two/mock-1"


async def test_the_cheapest_of_those_that_offer_a_model_is_asked(tmp_path: Path, models: ModelServer) -> None:
    """BA-073: for an alias of the model, not for one that is pinned to its provider; and only where that is wanted."""
    toml = '[models.aliases]\nbest = "mock-1"\n'
    for name, dollars, priority in (("dear", 9.0, 9), ("cheap", 1.0, 1), ("middle", 3.0, 3)):
        toml += COMPLETIONS.toml(models, tmp_path, provider=name, price={"input": dollars, "output": dollars})
        toml = toml.replace(f"[providers.{name}]\n", f"[providers.{name}]\npriority = {priority}\n")
    for cheapest, asked in ((True, ["cheap", "cheap", "dear"]), (False, ["dear", "dear", "dear"])):
        more = f"[router]\ncheapest = {str(cheapest).lower()}\n"
        async with running_gateway(tmp_path / str(cheapest), toml=toml + more) as gateway:
            served = [await complete(gateway, "say=hi", model=name) for name in ("best", "mock-1", "dear/mock-1")]
            assert [each.headers["x-skynet-model"].partition("/")[0] for each in served] == asked


async def test_more_requests_than_a_minute_may_have_wait(tmp_path: Path, models: ModelServer) -> None:
    """BA-071: a provider's own setting; who waits is told of, and can be stopped."""
    toml = COMPLETIONS.toml(models, tmp_path).replace("[providers.lab]\n", "[providers.lab]\nrequests_per_minute = 2\n")
    async with running_gateway(tmp_path / "state", toml=toml) as gateway, gateway.client() as client:
        for _ in range(2):
            assert await answer(client, "say=hi") == "hi"
        run_id = await send(client, "say=later")
        async with asyncio.timeout(40):
            while (await client.call("agent.status"))["providers"][0]["waiting"] != 1:  # nobody announces it
                pass
        assert models.asked == 2
        await client.call("chat.abort", {"sessionKey": MAIN})
        assert (await client.chat_end(run_id))["state"] == "aborted"
        assert (await client.call("agent.status"))["providers"][0]["waiting"] == 0


async def test_whoever_cannot_use_tools_says_so_to_those_who_bring_some(tmp_path: Path, models: ModelServer) -> None:
    """BA-081."""
    toml = COMPLETIONS.toml(models, tmp_path, tools=False)
    own = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    async with running_gateway(tmp_path / "state", toml=toml) as gateway, gateway.client() as client:
        refused = await complete(gateway, "say=hi", tools=own)
        assert (refused.status_code, models.asked) == (400, 0)
        error = refused.json()["error"]
        assert (error["code"], error["message"]) == (
            "tools_unsupported",
            f"{COMPLETIONS.name} cannot use tools, and the request has some",
        )
        assert (await complete(gateway, "say=plain")).json()["choices"][0]["message"]["content"] == "plain"
        assert await answer(client, "say=plain too") == "plain too"
        assert not any("tools" in body for body in models.bodies)


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_no_answer_is_asked_to_be_longer_than_its_model_can_write(
    tmp_path: Path, models: ModelServer, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BA-084: whoever asks for a million tokens, a person or the agent's own setting."""
    for name, value in AWS_ENV.items():
        monkeypatch.setenv(name, value)
    toml = wire.toml(models, tmp_path, max_output_tokens=4321)
    async with running_gateway(tmp_path / "a", toml=toml) as gateway:
        assert (await complete(gateway, "say=hi", max_tokens=1_000_000)).status_code == 200
        assert b"4321" in models.requests[-1].raw and b"1000000" not in models.requests[-1].raw
        assert (await complete(gateway, "say=hi", max_tokens=321)).status_code == 200
        assert b"4321" not in models.requests[-1].raw and b"321" in models.requests[-1].raw
    toml = f"[agent]\nmax_output_tokens = 1000000\n{toml}"
    async with running_gateway(tmp_path / "b", toml=toml) as gateway, gateway.client() as client:
        await answer(client, "say=hi")
        assert b"4321" in models.requests[-1].raw and b"1000000" not in models.requests[-1].raw


# Thinking


async def test_how_much_to_think_is_a_number_and_what_is_no_level_a_mistake(
    tmp_path: Path, models: ModelServer
) -> None:
    """SK-082."""
    toml = ANTHROPIC.toml(models, tmp_path, max_output_tokens=100_000)
    async with running_gateway(tmp_path / "state", toml=toml) as gateway, gateway.client() as client:
        for level, tokens in BUDGET_TOKENS.items():
            await answer(client, "say=hi", thinking=level)
            thinking = models.bodies[-1].get("thinking")
            assert thinking == ({"type": "enabled", "budget_tokens": tokens} if tokens else None), level
        asked = models.asked
        message = {"message": "hi", "sessionKey": MAIN, "idempotencyKey": "k"}
        words = r"invalid thinkingLevel \(use off\|minimal\|low\|medium\|high\|xhigh\)"
        for method, params in (
            ("chat.send", {**message, "thinking": "galactic"}),
            ("agent", {**message, "thinking": "galactic"}),
            ("sessions.patch", {"key": MAIN, "thinkingLevel": "galactic"}),
        ):
            with pytest.raises(Refused, match=words) as caught:
                await client.call(method, params)
            error = caught.value.error
            assert (error["code"], error["details"]["code"]) == ("INVALID_REQUEST", "INVALID_PARAMS")
        refused = await complete(gateway, "say=hi", reasoning_effort="galactic")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "reasoning_effort")
        assert models.asked == asked
        assert len(await history(client)) == 2 * len(BUDGET_TOKENS)


# The prompt


@pytest.mark.parametrize(
    ("mode", "toml", "texts"),
    [
        ("workspace directory", 'workspace_dir = "{}/house"\nsoul_path = "{}/soul.txt"', {"house", "house notes"}),
        ("state directory", "", {"home", "home user"}),
        ("one soul file", 'soul_path = "{}/soul.txt"', {"one"}),
        ("built-in prompt", 'workspace_dir = "{}/nowhere"', set()),
    ],
)
async def test_where_the_prompt_comes_from_is_told(
    tmp_path: Path, models: ModelServer, mode: str, toml: str, texts: set[str]
) -> None:
    """SK-114 to SK-117."""
    home = tmp_path / "state"
    home.mkdir()
    (tmp_path / "house").mkdir()
    for path, words in {
        home / "SOUL.md": "home",
        home / "USER.md": "home user",
        tmp_path / "house" / "SOUL.md": "house",
        tmp_path / "house" / "NOTES.md": "house notes",
        tmp_path / "soul.txt": "one",
    }.items():
        path.write_text(f"it says: {words}.")
    toml = f"[agent]\n{toml.replace('{}', str(tmp_path))}\n"
    async with running_gateway(home, models=models, toml=toml) as gateway, gateway.client() as client:
        assert (await client.call("agent.status"))["prompt"] == mode
        await answer(client, "say=hi")
        prompt = str(models.bodies[-1]["messages"][0]["content"])
        assert set(re.findall(r"it says: (.*?)\.", prompt)) == texts
        assert ("You are Skynet, the assistant" in prompt) is (not texts)


async def test_the_mode_changes_with_the_files(tmp_path: Path, models: ModelServer) -> None:
    """SK-115, SK-117: an empty home answers; the first ``SOUL.md`` is there from the next message on."""
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        assert await answer(client, "say=hi") == "hi"
        assert (await client.call("agent.status"))["prompt"] == "built-in prompt"
        (tmp_path / "SOUL.md").write_text("You sing.")
        assert (await client.call("agent.status"))["prompt"] == "state directory"
        await answer(client, "say=hi")
        assert "You sing." in str(models.bodies[-1]["messages"][0])


# The conversation


async def test_a_restart_between_two_turns(tmp_path: Path, models: ModelServer) -> None:
    """SK-101: what was stored is loaded, as much as a request may hold."""
    said: list[tuple[str, str]] = []
    for start in range(3):
        async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
            for turn in range(2):
                question, reply = f"say=answer {start}.{turn}", f"answer {start}.{turn}"
                assert await answer(client, question) == reply
                assert spoken(models.bodies[-1]) == [*said, ("user", question)]
                said += [("user", question), ("assistant", reply)]
            assert told(await history(client)) == said
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        for number in range(45):
            assert await answer(client, f"say=more {number}") == f"more {number}"
        told_of = spoken(models.bodies[-1])
        # the beginning stays where it is for many turns, in the older half of the last 80 messages
        first = int(told_of[0][1].removeprefix("say=more "))
        assert 4 <= first <= 24
        everything = [
            each
            for number in range(first, 45)
            for each in (("user", f"say=more {number}"), ("assistant", f"more {number}"))
        ]
        assert told_of == everything[:-1]


def spoken(body: dict[str, Any]) -> list[tuple[str, str]]:
    """What a request tells of the conversation, without times and what is true only now."""
    found = []
    for message in body["messages"]:
        if message["role"] != "system":
            words = message["content"].partition("\n\n<session>")[0]
            found.append((message["role"], words.partition("] ")[2] or words))
    return found


# Money


async def test_tokens_and_money_of_a_request_a_session_and_a_person(tmp_path: Path, models: ModelServer) -> None:
    """BA-070. A token read costs two micro-dollars, one written ten (``wires``)."""
    toml = COMPLETIONS.toml(models, tmp_path)
    async with running_gateway(tmp_path / "state", toml=toml) as gateway:
        _, token = await add_person(gateway, Role.USER)
        async with gateway.client() as ada, gateway.client(token=token) as bob:
            requests = [
                await usage_of_run(ada, "tokens=3 prompt=100"),
                await usage_of_run(ada, f"{tool('list_files')} tokens=5 prompt=70"),
                await usage_of_run(ada, "tokens=7 prompt=40", key="agent:main:other"),
                await usage_of_run(bob, "tokens=11 prompt=1000"),
            ]
            assert requests == [(100, 3), (140, 10), (40, 7), (1000, 11)]
            completed = (await complete(gateway, "tokens=2 prompt=30", user="script")).json()["usage"]
            assert (completed["prompt_tokens"], completed["completion_tokens"]) == (30, 2)

            rows = (await ada.call("sessions.list", {}))["sessions"]
            assert {row["key"]: (row["inputTokens"], row["outputTokens"]) for row in rows} == {
                MAIN: (240, 13),
                "agent:main:other": (40, 7),
                "agent:main:openai-user:script": (30, 2),
            }
            usage, owner = UsageStore(gateway.app.database), UserId(await owner_of(gateway))
            for name, microusd in (("main", 240 * 2 + 13 * 10), ("other", 40 * 2 + 7 * 10)):
                key = build_key(owner, DEFAULT_AGENT, name)
                assert (await usage.totals(owner, 0, now_ms() + 1, key=key)).cost_microusd == microusd

            for client, read, written in ((ada, 310, 22), (bob, 1000, 11)):
                of_person = (await client.call("usage.cost", {"days": 1}))["totals"]
                assert (of_person["input"], of_person["output"]) == (read, written)
                assert of_person["totalCost"] == pytest.approx((read * 2 + written * 10) / 1e6)


async def usage_of_run(client: WireClient, message: str, *, key: str = MAIN) -> tuple[int, int]:
    """Tokens read and written by a run of all its rounds, as its own answer tells."""
    request_id = await client.send_frame("agent", {"message": message, "sessionKey": key, "idempotencyKey": message})
    assert (await client.response(request_id))["payload"]["status"] == "accepted"
    usage = (await client.response(request_id))["payload"]["result"]["meta"]["agentMeta"]["usage"]
    return usage["input"], usage["output"]


# Files


@pytest.mark.parametrize(
    ("toml", "role", "reaches"),
    [
        ("", Role.ADMIN, False),
        ("[agent]\nrestrict_to_workspace = false\n", Role.ADMIN, True),
        ("[agent]\nrestrict_to_workspace = false\n", Role.USER, False),
    ],
)
async def test_files_beyond_the_own_folder(
    tmp_path: Path, models: ModelServer, toml: str, role: Role, reaches: bool
) -> None:
    """SK-090 to SK-093: only admins leave their own folder, and only where the house allows it."""
    (tmp_path / "plan.txt").write_text("buy milk")
    async with running_gateway(tmp_path / "state", models=models, toml=toml) as gateway:
        _, token = await add_person(gateway, role)
        async with gateway.client(token=token) as client:
            said = await answer(client, tool("read_file", path=f"{tmp_path}/plan.txt"))
            assert said == "tool said: buy milk" if reaches else "it leads out of your folder" in said
            await answer(client, tool("write_file", path=f"{tmp_path}/new.txt", content="x"))
            assert (tmp_path / "new.txt").exists() is reaches


# Keys


async def test_no_key_is_in_anything_that_a_model_is_told(
    tmp_path: Path, models: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BA-068: whatever an admin's tools may reach, and whichever provider is asked."""
    for name, value in {**AWS_ENV, "HOUSE_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "state"
    toml = "[agent]\nrestrict_to_workspace = false\n" + all_wires(models, tmp_path)
    look = " ".join(
        [tool("search_files", query="sk-key-of", path=str(tmp_path)), tool("list_files", path=str(home))]
        + [
            tool("read_file", path=str(path))
            for path in (home / "skynet.toml", home / "gateway.token", home / "skynet.db", tmp_path / "account.json")
        ]
        + [tool("read_file", path=path) for path in ("/proc/self/environ", "/proc/self/cmdline", "/proc/self/mem")]
    )
    async with running_gateway(home, toml=toml) as gateway, gateway.client() as client:
        for wire in WIRES:
            await client.call("sessions.patch", {"key": MAIN, "model": wire.name})
            assert await answer(client, f"{look} next-round say=looked") == "looked"
        results = [text(message) for message in await history(client) if message["role"] == "toolResult"]
        assert len(results) == 9 * len(WIRES)
        assert sum("it belongs to the gateway itself" in result for result in results) == 8 * len(WIRES)
        secrets = [KEY, AWS_SECRET, gateway.token, "PRIVATE KEY"]
    told_models = [seen for seen in models.requests if seen.path != "/token"]
    assert len(told_models) == 2 * len(WIRES)
    for secret in secrets:
        assert not any(secret.encode() in seen.raw for seen in told_models), secret
        assert not any(secret in result for result in results), secret
    assert any(KEY in json.dumps(dict(seen.headers)) for seen in told_models)  # where it belongs
