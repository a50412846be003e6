"""Chat completions over real HTTP: answers, streams, sessions, failures, clients that leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet.config.schema import LimitsConfig
from skynet_agent.messages import AssistantMessage, ToolResultMessage, UserMessage, text_of
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_memory.ids import Role, SessionKey
from skynet_memory.secrets import Secret
from tests.skynet.http.conftest import TOKEN, Surface, open_surface, until
from tests.support.model_server import ModelServer
from tests.support.script import without_session

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def events(data: bytes) -> list[Any]:
    """The data of each server-sent event."""
    assert data.endswith(b"\n\n")
    lines = data[:-2].split(b"\n\n")
    assert all(line.startswith(b"data: ") for line in lines)
    return ["[DONE]" if line == b"data: [DONE]" else json.loads(line[6:]) for line in lines]


def streamed_text(data: bytes) -> str:
    return "".join(
        event["choices"][0]["delta"].get("content") or ""
        for event in events(data)
        if event != "[DONE]" and event.get("choices")
    )


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


class TestAnswer:
    async def test_whole(self, surface: Surface) -> None:
        answer = await surface.chat("say=hello there prompt=30 cached=10")
        assert answer.status_code == 200
        body = answer.json()
        run_id = body["id"].removeprefix("chatcmpl_")
        assert run_id != body["id"]
        assert body["created"] > 1_700_000_000
        assert {name: body[name] for name in ("object", "model", "choices", "usage")} == {
            "object": "chat.completion",
            "model": "skynet",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "hello there", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": 30,
                "completion_tokens": 2,
                "total_tokens": 32,
                "prompt_tokens_details": {"cached_tokens": 10},
            },
        }
        assert answer.headers["x-skynet-model"] == "mock/mock-1"
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"]

    async def test_streamed(self, surface: Surface) -> None:
        answer = await surface.chat("tokens=5", stream=True)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-skynet-model"] == "mock/mock-1"
        first, *deltas, last, done = events(answer.content)
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert [event["choices"][0]["delta"] for event in deltas] == [
            {"content": text} for text in ("w0", " w1", " w2", " w3", " w4")
        ]
        assert {event["choices"][0]["finish_reason"] for event in (first, *deltas)} == {None}
        assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
        assert done == "[DONE]"
        assert not [event for event in (first, *deltas, last) if "usage" in event]
        assert len({event["id"] for event in (first, *deltas, last)}) == 1

    async def test_streamed_with_usage(self, surface: Surface) -> None:
        answer = await surface.chat("tokens=3", stream=True, stream_options={"include_usage": True})
        *_, usage, done = events(answer.content)
        assert done == "[DONE]"
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] == 3

    async def test_any_unicode(self, surface: Surface) -> None:
        text = 'say=Grüße 👩‍👩‍👧 "quoted" \\ </script> \u2028 \x7f'
        for stream in (False, True):
            answer = await surface.chat(text, stream=stream)
            said = streamed_text(answer.content) if stream else answer.json()["choices"][0]["message"]["content"]
            assert said == text.removeprefix("say=")

    async def test_length(self, surface: Surface) -> None:
        answer = await surface.chat("tokens=3 finish=length")
        assert answer.json()["choices"][0]["finish_reason"] == "length"

    async def test_tool_calls(self, surface: Surface) -> None:
        answer = await surface.chat('tool=look:{"at":"the sky"}', tools=[TOOL], tool_choice="auto")
        choice = answer.json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        assert (call["type"], call["function"]) == ("function", {"name": "look", "arguments": '{"at":"the sky"}'})
        (sent,) = surface.models.bodies[-1]["tools"]
        assert TOOL["function"].items() <= sent["function"].items()
        assert surface.models.bodies[-1]["tool_choice"] == "auto"

    async def test_streamed_tool_calls(self, surface: Surface) -> None:
        answer = await surface.chat('tool=look:{"at":"sky"} tool=feel:{"at":"sea"}', tools=[TOOL], stream=True)
        calls: dict[int, dict[str, str]] = {}
        *deltas, last, done = events(answer.content)
        for event in deltas:
            for part in event["choices"][0]["delta"].get("tool_calls", ()):
                if "id" in part:
                    assert part["type"] == "function"
                    calls[part["index"]] = {"name": part["function"]["name"], "arguments": ""}
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
        assert list(calls.values()) == [
            {"name": "look", "arguments": '{"at":"sky"}'},
            {"name": "feel", "arguments": '{"at":"sea"}'},
        ]
        assert (last["choices"][0]["finish_reason"], done) == ("tool_calls", "[DONE]")


class TestModel:
    @pytest.mark.parametrize(
        ("model", "asked"),
        [
            ("skynet", "mock-1"),
            ("openclaw", "mock-1"),
            ("openclaw:main", "mock-1"),
            ("mock/mock-2", "mock-2"),
            ("fast", "mock-2"),
            ("any", "mock-1"),
        ],
    )
    async def test_names(self, surface: Surface, model: str, asked: str) -> None:
        for stream in (False, True):
            answer = await surface.chat(model=model, stream=stream)
            body = events(answer.content)[0] if stream else answer.json()
            assert body["model"] == model
            assert answer.headers["x-skynet-model"] == f"mock/{asked}"
            assert surface.models.bodies[-1]["model"] == asked

    async def test_unknown(self, surface: Surface) -> None:
        answer = await surface.chat(model="gpt-77", user="x")
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "model", "model_not_found")
        assert "mock/mock-1" in error["message"]
        assert await surface.sessions.count(surface.owner.id) == 0

    async def test_options_reach_the_model(self, surface: Surface) -> None:
        await surface.chat(temperature=0.5, stop=["END"], seed=7, response_format={"type": "json_object"})
        body = surface.models.bodies[-1]
        assert (body["temperature"], body["stop"], body["seed"]) == (0.5, ["END"], 7)
        assert body["response_format"] == {"type": "json_object"}
        assert 4096 in (body.get("max_tokens"), body.get("max_completion_tokens"))

    async def test_an_answer_is_as_long_as_configured_unless_the_client_says(self, tmp_path: Path) -> None:
        async with open_surface(tmp_path, max_tokens=9000) as surface:
            await surface.chat()
            await surface.chat(max_completion_tokens=70)
            assert [body["max_tokens"] for body in surface.models.bodies] == [9000, 70]

    async def test_only_a_conversation_that_goes_on_has_a_cache_of_its_own(self, tmp_path: Path) -> None:
        async with ModelServer() as models:
            row = ProviderRow(
                name="keyed", base_url=models.url, models=(ModelInfo(id="m"),), supports_prompt_cache_key=True
            )
            async with open_surface(tmp_path, extra_providers=(row,)) as surface:
                for fields in ({}, {}, {"user": "bob"}, {"user": "bob"}, {"user": "bob"}):
                    await surface.chat(model="keyed/m", **fields)
                session = await surface.sessions.get(
                    surface.owner.id, SessionKey(f"user:{surface.owner.id}:agent:main:openai-user:bob")
                )
                assert session is not None
                keys = [body.get("prompt_cache_key") for body in models.bodies]
                assert keys == [None, None, None, session.session_id, session.session_id]


class TestConversation:
    async def test_a_user_has_one_that_goes_on(self, surface: Surface) -> None:
        await surface.chat("say=one", user="bob")
        await surface.chat("say=two", user="bob")
        sent = [message for message in surface.models.bodies[-1]["messages"] if message["role"] != "system"]
        assert sent[-1]["content"].endswith("\n\n<session>\nChannel: bob\nMessage 2 of this session\n</session>")
        assert [(message["role"], without_session(message["content"])) for message in sent] == [
            ("user", "say=one"),
            ("assistant", "one"),
            ("user", "say=two"),
        ]
        stored = await surface.transcript(f"user:{surface.owner.id}:agent:main:openai-user:bob")
        assert [text_of(message) for message in stored] == ["say=one", "one", "say=two", "two"]

    async def test_a_header_names_the_session(self, surface: Surface) -> None:
        headers = {"x-openclaw-session-key": "agent:main:main", "x-openclaw-agent-id": "main"}
        await surface.chat(headers=headers, user="ignored")
        assert len(await surface.transcript(f"user:{surface.owner.id}:agent:main:main")) == 2

    async def test_an_agent_has_sessions_of_its_own(self, surface: Surface) -> None:
        await surface.chat(user="bob", headers={"x-openclaw-agent-id": "work"})
        await surface.chat(user="bob", model="openclaw:home")
        for agent in ("work", "home"):
            assert len(await surface.transcript(f"user:{surface.owner.id}:agent:{agent}:openai-user:bob")) == 2

    async def test_without_user_each_is_new(self, surface: Surface) -> None:
        await surface.chat("say=one")
        await surface.chat("say=two")
        assert await surface.sessions.count(surface.owner.id) == 2
        assert "say=one" not in json.dumps(surface.models.bodies[-1])

    async def test_the_clients_own_history_is_the_conversation(self, surface: Surface) -> None:
        await surface.chat("say=stored", user="bob")
        mine = [user("a"), {"role": "assistant", "content": "b"}, user("say=c")]
        await surface.chat(user="bob", messages=[{"role": "system", "content": "Be brief."}, *mine])
        system, *sent = surface.models.bodies[-1]["messages"]
        assert "Be brief." in json.dumps(system) or "Be brief." in json.dumps(sent[0])
        assert [(message["role"], message["content"]) for message in sent if message["role"] != "system"] == [
            ("user", "a"),
            ("assistant", "b"),
            ("user", "say=c"),
        ]
        stored = await surface.transcript(f"user:{surface.owner.id}:agent:main:openai-user:bob")
        assert [text_of(message) for message in stored] == ["say=stored", "stored", "say=c", "c"]

    async def test_tool_results_end_a_conversation(self, surface: Surface) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
        messages = [
            user('tool=look:{"at":"sky"}'),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        ]
        answer = await surface.chat(messages=messages, tools=[TOOL], user="bob")
        assert answer.json()["choices"][0]["message"]["content"] == "tool said: blue"
        sent = [message for message in surface.models.bodies[-1]["messages"] if message["role"] != "system"]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "c1"
        stored = await surface.transcript(f"user:{surface.owner.id}:agent:main:openai-user:bob")
        assert [type(message) for message in stored] == [ToolResultMessage, AssistantMessage]

    async def test_images_reach_the_model(self, surface: Surface) -> None:
        url = "data:image/png;base64,iVBORw0KGgo="
        parts = [{"type": "text", "text": "say=nice"}, {"type": "image_url", "image_url": {"url": url}}]
        assert (await surface.chat(messages=[{"role": "user", "content": parts}])).status_code == 200
        assert url in json.dumps(surface.models.bodies[-1])

    async def test_somebody_elses_session_is_not_there(self, surface: Surface) -> None:
        _, ann = await surface.person("Ann", Role.USER)
        key = f"user:{surface.owner.id}:agent:main:main"
        answer = await surface.chat(headers={**ann, "x-openclaw-session-key": key})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_not_found")

    async def test_a_malformed_session_key(self, surface: Surface) -> None:
        answer = await surface.chat(headers={"x-openclaw-session-key": "agent:x"})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


FAILURES = [
    ("fail=429:7", 429, "rate_limit_exceeded"),
    ("fail=401", 502, "provider_auth_failed"),
    ("fail=403", 502, "provider_auth_failed"),
    ("fail=400", 400, "provider_bad_request"),
    ("fail=context", 400, "context_length_exceeded"),
    ("fail=500", 503, "provider_overloaded"),
    ("fail=504", 504, "provider_timeout"),
    ("cut=0", 502, "provider_stream_cut"),
]


class TestFailure:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(("script", "status", "code"), FAILURES)
    async def test_before_the_first_token(
        self, surface: Surface, script: str, status: int, code: str, stream: bool
    ) -> None:
        answer = await surface.chat(script, stream=stream, model="mock/mock-1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"]
        if status == 429:
            assert answer.headers["retry-after"] == "7"
        if code == "provider_auth_failed":
            assert answer.headers["x-should-retry"] == "false"
            assert "scripted failure" not in answer.text

    @pytest.mark.parametrize("script", ["tokens=3 error-in-stream", "tokens=9 cut=4"])
    async def test_after_the_first_token(self, surface: Surface, script: str) -> None:
        answer = await surface.chat(script, stream=True, model="mock/mock-1")
        assert answer.status_code == 200
        *shown, last = events(answer.content)
        assert last["error"]["type"] == "api_error"
        assert last["error"]["code"] == "provider_stream_cut"
        assert [event["choices"][0]["delta"].get("content") for event in shown[:3]] == ["", "w0", " w1"]
        answer = await surface.chat(script, model="mock/mock-1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_stream_cut")

    async def test_no_provider_can_be_reached(self, tmp_path: Path) -> None:
        gone = ProviderRow(
            name="gone", base_url="http://127.0.0.1:9/v1", api_key=Secret("k"), models=(ModelInfo(id="m"),)
        )
        async with open_surface(tmp_path, extra_providers=(gone,)) as surface:
            answer = await surface.chat(model="gone/m")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "provider_unreachable")

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("script", ["hang", "tokens=2 hang"])
    async def test_a_run_that_takes_too_long(self, tmp_path: Path, stream: bool, script: str) -> None:
        async with open_surface(tmp_path, timeout_s=0.2) as surface:
            answer = await surface.chat(script, stream=stream)
            if stream and script != "hang":
                assert events(answer.content)[-1]["error"]["code"] == "run_timeout"
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (504, "run_timeout")

    async def test_the_database_does_not_take_it(self, surface: Surface) -> None:
        await surface.db.write(lambda tx: tx.execute("DROP TABLE dedupe"))
        answer = await surface.chat()
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("api_error", "internal_error")
        assert error["message"] == f"internal error (correlation id {answer.headers['x-request-id']})"

    @pytest.mark.parametrize("stream", [False, True])
    async def test_the_answer_cannot_be_stored(self, surface: Surface, stream: bool) -> None:
        asking = asyncio.create_task(surface.chat("first=300 say=hi", stream=stream))
        await until(lambda: surface.models.served == 1)
        await surface.db.write(lambda tx: tx.execute("DROP TABLE usage"))
        answer = await asking
        if stream:
            assert events(answer.content)[-1]["error"]["code"] == "internal_error"
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")

    async def test_a_run_that_somebody_stopped(self, surface: Surface) -> None:
        asking = asyncio.create_task(surface.chat("tokens=2 hang"))
        await until(lambda: surface.models.served == 1)
        for run in surface.runs.active(surface.owner.id):
            run.abort("stop")
        answer = await asking
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "run_aborted")

    async def test_a_gateway_that_stops(self, tmp_path: Path) -> None:
        async with open_surface(tmp_path) as surface:
            await surface.runs.__aexit__(None, None, None)
            answer = await surface.chat()
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
            assert answer.headers["retry-after"] == "2"


class TestBody:
    @pytest.mark.parametrize(
        ("body", "param"),
        [
            (b"", None),
            (b"[]", None),
            (b"\xff", None),
            (b'{"model": "skynet"}', "messages"),
            (b'{"messages": []}', "model"),
        ],
    )
    async def test_malformed(self, surface: Surface, body: bytes, param: str | None) -> None:
        answer = await surface.http.post("/v1/chat/completions", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param

    async def test_no_user_message(self, surface: Surface) -> None:
        answer = await surface.chat(messages=[])
        assert answer.status_code == 400
        assert answer.json()["error"] == {
            "message": "Missing user message in `messages`.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": None,
        }

    async def test_the_content_type_does_not_matter(self, surface: Surface) -> None:
        body = json.dumps({"model": "skynet", "messages": [user("say=hi")]})
        answer = await surface.http.post("/v1/chat/completions", content=body, headers={"content-type": "text/plain"})
        assert answer.status_code == 200

    async def test_too_long(self, tmp_path: Path) -> None:
        async with open_surface(tmp_path, limits=LimitsConfig(http_body_bytes=2000)) as surface:

            async def parts() -> AsyncIterator[bytes]:
                for _ in range(100):
                    yield b" " * 1000

            for content in (b" " * 100_000, parts()):
                answer = await surface.http.post("/v1/chat/completions", content=content)
                assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
            assert (await surface.chat()).status_code == 200


class TestIdempotency:
    async def test_a_repeat_gets_the_same_answer(self, surface: Surface) -> None:
        headers = {"idempotency-key": "key-1"}
        first = await surface.chat("say=hi prompt=20 cached=5", headers=headers)
        again = await surface.chat("say=hi prompt=20 cached=5", headers=headers)
        assert first.json()["id"] == "chatcmpl_key-1"
        for part in ("id", "choices", "usage"):
            assert again.json()[part] == first.json()[part]
        assert again.headers["x-skynet-model"] == "mock/mock-1"
        assert surface.models.served == 1
        streamed = await surface.chat("say=hi", headers=headers, stream=True, stream_options={"include_usage": True})
        assert streamed_text(streamed.content) == "hi"
        assert events(streamed.content)[-2]["usage"] == first.json()["usage"]

    async def test_a_repeat_while_it_runs(self, surface: Surface) -> None:
        headers = {"idempotency-key": "key-1"}
        asking = asyncio.create_task(surface.chat("first=400 say=hi", headers=headers))
        await until(lambda: surface.models.served == 1)
        answer = await surface.chat(headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_in_use")
        assert answer.headers["retry-after"] == "1"
        assert (await asking).json()["choices"][0]["message"]["content"] == "hi"

    async def test_a_failure_is_repeated_too(self, surface: Surface) -> None:
        for script, status, code in FAILURES[:5]:
            headers = {"idempotency-key": code}
            for _ in range(2):
                answer = await surface.chat(script, headers=headers, model="mock/mock-1")
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert answer.headers["x-should-retry"] == "false"

    async def test_tool_calls_are_repeated_whole_or_not_at_all(self, surface: Surface) -> None:
        headers = {"idempotency-key": "key-1"}
        first = await surface.chat('tool=look:{"at":"sky"}', headers=headers, tools=[TOOL])
        again = await surface.chat('tool=look:{"at":"sky"}', headers=headers, tools=[TOOL])
        assert surface.models.served == 1
        if again.status_code == 200:
            assert again.json()["choices"] == first.json()["choices"]
        else:
            assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency_key_used")

    async def test_what_had_no_answer_cannot_be_repeated(self, surface: Surface) -> None:
        headers = {"idempotency-key": "key-1"}
        asking = asyncio.create_task(surface.chat("hang", headers=headers))
        await until(lambda: surface.models.served == 1)
        for run in surface.runs.active(surface.owner.id):
            run.abort("stop")
        await asking
        answer = await surface.chat(headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_used")

    async def test_people_do_not_share_keys(self, surface: Surface) -> None:
        _, ann = await surface.person("Ann", Role.USER)
        headers = {"idempotency-key": "key-1"}
        await surface.chat("say=mine", headers=headers)
        answer = await surface.chat("say=hers", headers={**headers, **ann})
        assert answer.json()["choices"][0]["message"]["content"] == "hers"

    @pytest.mark.parametrize("key", ["x" * 256, "a\tb", "ä"])
    async def test_malformed_keys(self, surface: Surface, key: str) -> None:
        answer = await surface.chat(headers={"idempotency-key": key.encode("latin-1")})  # type: ignore[dict-item]
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Idempotency-Key")


class TestDisconnect:
    @pytest.mark.parametrize("script", ["hang", "tokens=3 hang", "tokens=100000 delay=1"])
    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_client_that_leaves_stops_the_model(self, surface: Surface, script: str, stream: bool) -> None:
        reader, writer = await ask_raw(surface, script, stream=stream)
        await until(lambda: surface.models.served == 1)
        if stream and script != "hang":
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b'"w0')
        writer.close()
        await until(lambda: surface.models.disconnects == 1)
        await until(surface.idle)
        message, answer = await surface.transcript(f"user:{surface.owner.id}:agent:main:openai-user:bob")
        assert isinstance(message, UserMessage)
        assert answer.stop_reason == "aborted"
        assert (await surface.chat(user="bob")).status_code == 200

    async def test_a_client_that_leaves_while_it_waits_its_turn(self, surface: Surface) -> None:
        _, first = await ask_raw(surface, "hang", stream=True)
        await until(lambda: surface.models.served == 1)
        _, second = await ask_raw(surface, "say=never", stream=True)
        await until(lambda: len(surface.runs.active(surface.owner.id)) == 2)
        second.close()
        await until(lambda: any(run.stop_reason for run in surface.runs.active(surface.owner.id)))
        first.close()
        await until(surface.idle)
        assert surface.models.served == 1

    async def test_a_client_that_leaves_its_body_unfinished(self, surface: Surface) -> None:
        _, writer = await ask_raw(surface, "say=hi", stream=False, claimed_bytes=1000)
        writer.close()
        assert (await surface.chat()).status_code == 200
        assert surface.models.served == 1


class TestCancellation:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 20, 100])
    async def test_a_request_that_is_cancelled_leaves_nothing_running(
        self, surface: Surface, steps: int, stream: bool
    ) -> None:
        """The server cancels what still runs when its stop takes too long."""
        sent: list[Any] = []
        body = json.dumps({"model": "skynet", "messages": [user("tokens=2 hang")], "stream": stream}).encode()
        incoming = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            return incoming.pop() if incoming else await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
            "client": ("127.0.0.1", 1),
        }
        request = asyncio.create_task(surface.app(scope, receive, send))
        for _ in range(steps):
            await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await until(surface.idle)
        assert (await surface.chat()).status_code == 200

    async def test_requests_leave_no_tasks(self, surface: Surface) -> None:
        await surface.chat(stream=True)
        await until(surface.idle)
        before = len(asyncio.all_tasks())
        for script in ("say=hi", "fail=400", "tokens=2 cut=1"):
            for stream in (False, True):
                await surface.chat(script, stream=stream)
        await until(lambda: surface.idle() and len(asyncio.all_tasks()) <= before)


class TestSlowReader:
    async def test_a_reader_that_stops_reading_stops_the_run(self, tmp_path: Path) -> None:
        limits = LimitsConfig(outbound_bytes=100_000)
        async with open_surface(tmp_path, limits=limits) as surface:
            reader, writer = await ask_raw(surface, "tokens=200000", stream=True)
            await until(lambda: surface.models.served == 1)
            await until(lambda: surface.models.disconnects == 1)
            await until(surface.idle)
            data = b""
            while b"slow_consumer" not in data:
                data = data[-200:] + await asyncio.wait_for(reader.read(65536), 10)
            assert b"[DONE]" not in data
            writer.close()

    async def test_a_long_answer_arrives_whole(self, surface: Surface) -> None:
        answer = await surface.chat("big=3000000 tokens=5", stream=True)
        assert len(streamed_text(answer.content)) == 3_000_000 + len("w0 w1 w2 w3 w4")
        assert events(answer.content)[-1] == "[DONE]"

    async def test_a_slow_reader_within_the_limit_gets_everything(self, surface: Surface) -> None:
        reader, writer = await ask_raw(surface, "tokens=20000", stream=True)
        await until(surface.idle)
        data = b""
        while b"[DONE]" not in data[-100:]:
            data += await asyncio.wait_for(reader.read(65536), 10)
        assert data.count(b'"content":"') + data.count(b'"content":" w') >= 20_000
        writer.close()


async def ask_raw(
    surface: Surface, script: str, *, stream: bool, claimed_bytes: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request over a plain socket, and read nothing."""
    body = json.dumps({"model": "skynet", "messages": [user(script)], "stream": stream, "user": "bob"}).encode()
    host, _, port = surface.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    length = len(body) if claimed_bytes is None else claimed_bytes
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-length: {length}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer
