"""``vertex``: where requests go and who asks, whole turns, and the scripted server with the vendors' own SDKs."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from skynet_agent import anthropic, gemini
from skynet_agent.apis.vertex import ANTHROPIC_VERSION, build_request, reader
from skynet_agent.errors import AuthFailed, BadRequest, ProviderError, StreamCut
from skynet_agent.events import Finished
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import Source
from skynet_agent.requests import ModelOptions, ModelRequest, ToolDefinition
from skynet_agent.router import Router
from skynet_memory.secrets import Secret
from tests.support.dialects.gemini import Check, canonical
from tests.support.dialects.vertex import Account, VertexGemini, share_account
from tests.support.model_server import ModelServer
from tests.support.script import Refused, Seen
from tests.support.service_account import PROJECT, service_account, written

OLD = ModelInfo(id="gemini-2.5-flash", reasoning=True, input=("text", "image"))
NEW = ModelInfo(
    id="gemini-3.1-pro-preview", reasoning=True, thinking_form="effort", input=("text", "image"), output_limit=65_536
)
CLAUDE = ModelInfo(id="claude-opus-4-5@20251101", reasoning=True, input=("text", "image"), output_limit=64_000)
MODELS = (OLD, NEW, CLAUDE)
TOOLS = (
    ToolDefinition(name="exec", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}),
    ToolDefinition(name="read"),
)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

MakeRouter = Callable[..., Router]


@pytest.fixture
def account(server: ModelServer) -> Account:
    account = share_account(server.dialects)
    account.project, account.location = PROJECT, "europe-west1"
    return account


@pytest.fixture
def row(server: ModelServer, account: Account, tmp_path: Path) -> ProviderRow:
    file = written(tmp_path / "account.json", service_account(f"{server.origin}/token"))
    return ProviderRow(
        name="cloud",
        api="vertex",
        auth="google",
        base_url=server.origin,
        region=account.location,
        credentials_file=str(file),
        models=MODELS,
    )


@pytest.fixture
def router(row: ProviderRow, make_router: MakeRouter) -> Router:
    return make_router(row, retries=0)


def user(text: str) -> UserMessage:
    return UserMessage([TextBlock(text)], 1)


def ask(text: str, model: ModelInfo = NEW, **options: Any) -> ModelRequest:
    return ModelRequest(messages=[user(text)], model=f"cloud/{model.id}", options=ModelOptions(**options))


async def answer(router: Router, request: ModelRequest) -> AssistantMessage:
    events = [event async for event in router.stream(request)]
    assert isinstance(events[-1], Finished)
    return events[-1].message


# Where to, and what


def test_gemini_is_google() -> None:
    request = ModelRequest(messages=[user("hi")])
    path, body = build_request(ProviderRow(name="cloud", api="vertex"), OLD, request)
    assert path == "/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert orjson.loads(body) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    assert type(reader(Source("cloud"), OLD)) is type(gemini.reader(Source("cloud")))


def test_claude_is_anthropics_in_an_envelope_of_googles() -> None:
    """BA-083."""
    row, request = ProviderRow(name="cloud", api="vertex"), ModelRequest(messages=[user("hi")])
    path, body = build_request(row, CLAUDE, request)
    assert path == "/publishers/anthropic/models/claude-opus-4-5@20251101:streamRawPredict"
    assert orjson.loads(body) == {
        "anthropic_version": ANTHROPIC_VERSION,
        "stream": True,
        **orjson.loads(orjson.dumps(anthropic.build_body(row, CLAUDE, request))),
    }
    assert "model" not in orjson.loads(body)


def test_a_models_name_cannot_leave_its_place() -> None:
    path, _ = build_request(ProviderRow(name="x"), ModelInfo(id="../a:b?c#d é"), ModelRequest(messages=[user("hi")]))
    assert path == "/publishers/google/models/..%2Fa%3Ab%3Fc%23d%20%C3%A9:streamGenerateContent?alt=sse"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
async def test_a_request_names_project_place_and_who_asks(
    router: Router, server: ModelServer, account: Account, model: ModelInfo
) -> None:
    """SK-065."""
    message = await answer(router, ask("say=fine prompt=30 cached=10", model))
    assert (text_of(message), message.stop_reason) == ("fine", "stop")
    assert message.usage is not None
    assert (message.usage.input, message.usage.cache_read, message.usage.output) == (20, 10, 1)
    token, asked = server.requests
    assert token.path == "/token"
    assert asked.path.startswith(f"/v1/projects/{PROJECT}/locations/europe-west1/publishers/")
    assert asked.headers["authorization"] == "Bearer ya29.token-1"
    assert [claims["scope"] for claims in account.given] == ["https://www.googleapis.com/auth/cloud-platform"]


async def test_a_token_serves_many_requests(router: Router, account: Account) -> None:
    async with asyncio.TaskGroup() as tasks:
        for model in MODELS * 5:
            tasks.create_task(answer(router, ask("tokens=3", model)))
    assert len(account.given) == 1


async def test_a_token_that_is_refused_is_replaced(router: Router, account: Account) -> None:
    await answer(router, ask("hi"))
    account.token = "another one"
    assert text_of(await answer(router, ask("say=again"))) == "again"
    assert len(account.given) == 2


async def test_an_account_with_another_key_is_refused(
    row: ProviderRow, make_router: MakeRouter, server: ModelServer, tmp_path: Path
) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = written(tmp_path / "other.json", service_account(f"{server.origin}/token", private_key=pem))
    with pytest.raises(AuthFailed, match="cloud: no access token: invalid_grant: Invalid JWT Signature"):
        await answer(make_router(replace(row, credentials_file=str(file)), retries=0), ask("hi"))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
async def test_what_is_not_allowed(row: ProviderRow, make_router: MakeRouter, model: ModelInfo) -> None:
    router = make_router(replace(row, project="other"), retries=0)
    with pytest.raises(AuthFailed, match=r"Permission 'aiplatform\.endpoints\.predict' denied .*projects/other/"):
        await answer(router, ask("hi", model))


async def test_a_key_alone(row: ProviderRow, make_router: MakeRouter, server: ModelServer, account: Account) -> None:
    account.key = "AQ.key-of-google"
    keyed = replace(row, credentials_file="", api_key=Secret(account.key))
    assert text_of(await answer(make_router(keyed, retries=0), ask("say=fine"))) == "fine"
    assert server.requests[-1].path == f"/v1/publishers/google/models/{NEW.id}:streamGenerateContent"
    with pytest.raises(AuthFailed, match="an API key reaches only Google's own models"):
        await answer(make_router(keyed, retries=0), ask("hi", CLAUDE))
    wrong = replace(keyed, api_key=Secret("AQ.wrong-key"))
    with pytest.raises(AuthFailed) as caught:
        await answer(make_router(wrong, retries=0), ask("hi"))
    assert "AQ." not in str(caught.value)


async def test_no_failure_shows_the_token(router: Router, server: ModelServer) -> None:
    """Not even of the first stream, which began before there was a token."""
    server.script = "fail=400 say=bad token ya29.token-1"
    with pytest.raises(BadRequest, match=r"bad token \*\*\*"):
        await answer(router, ask("hi"))


# Whole turns


def results_of(message: AssistantMessage, *blocks: Any) -> list[ToolResultMessage]:
    calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
    return [ToolResultMessage(call.id, call.name, list(blocks), False, 1) for call in calls]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
async def test_rounds_of_a_turn(router: Router, server: ModelServer, model: ModelInfo) -> None:
    """The server takes back only signatures that it gave, where it gave them (SK-065)."""
    script = (
        'think=let me see tool=exec:{"n":1} tool=read: next-round say=so think=hm tool=exec:{"n":2} next-round say=done'
    )
    messages: list[Message] = [user("say=hello"), await answer(router, ask("say=hello", model)), user(script)]
    signatures: list[str] = []
    for expected in (2, 1, 0):
        request = ModelRequest(
            messages=messages, model=f"cloud/{model.id}", options=ModelOptions(tools=TOOLS, thinking="low")
        )
        message = await answer(router, request)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        assert len(calls) == expected
        signatures += [block.thought_signature for block in calls]
        messages += [message, *results_of(message, TextBlock("ok"), ImageBlock("image/png", PNG))]
    assert text_of(messages[-1]) == "done"
    ids = [message.tool_call_id for message in messages if isinstance(message, ToolResultMessage)]
    assert len(set(ids)) == len(ids)
    assert [bool(signature) for signature in signatures] == [model is NEW, False, model is NEW]
    assert PNG in server.requests[-1].raw.decode()


async def test_a_call_that_another_model_made(router: Router) -> None:
    """A turn that Claude began goes on with Gemini, and ends with Claude."""
    script = 'think=one tool=exec:{"n":1} next-round think=two tool=exec:{"n":2} next-round say=done'
    messages: list[Message] = [user(script)]
    for model in (CLAUDE, NEW, CLAUDE):
        options = ModelOptions(tools=TOOLS, thinking="low")
        message = await answer(router, ModelRequest(messages=messages, model=f"cloud/{model.id}", options=options))
        messages += [message, *results_of(message, TextBlock("ok"))]
    assert text_of(messages[-1]) == "done"


async def test_what_was_said_before_is_cached(router: Router, server: ModelServer) -> None:
    server.cache = True
    messages: list[Message] = []
    shares: list[float] = []
    for number in range(4):
        messages.append(user(f"say=answer number {number}"))
        request = ModelRequest(
            messages=messages, system=("Be kind. " * 2000, "This is Ada."), volatile="now", model=f"cloud/{NEW.id}"
        )
        message = await answer(router, request)
        messages.append(message)
        usage = message.usage
        assert usage is not None
        shares.append(usage.cache_read / (usage.input + usage.cache_read))
    assert shares[0] == 0 and min(shares[1:]) > 0.9


async def test_thinking_is_shown_and_not_kept_as_text(router: Router, server: ModelServer) -> None:
    message = await answer(router, ask("think=let me see say=four", thinking="high"))
    assert message.content == [ThinkingBlock("let me see"), TextBlock("four")]
    config = server.bodies[-1]["generationConfig"]
    assert config["thinkingConfig"] == {"thinkingLevel": "HIGH", "includeThoughts": True}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
@pytest.mark.parametrize("script", ["tokens=9 cut=4", "tokens=4 error-in-stream"])
async def test_a_dropped_stream(router: Router, model: ModelInfo, script: str) -> None:
    draft = router.draft()
    with pytest.raises(StreamCut):
        async for _ in router.stream(ask(script, model), draft=draft):
            pass
    assert text_of(draft.message("error")) == "w0 w1 w2 w3"


# The scripted server refuses what the real one refuses


def contents(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"contents": [{"role": role, "parts": parts} for role, parts in turns]}


HI = ("user", [{"text": "hi"}])
CALL = {"functionCall": {"name": "f", "args": {}}}
SIGNED_CALL = {**CALL, "thoughtSignature": gemini.UNSIGNED}
RESULT = {"functionResponse": {"name": "f", "response": {"output": ""}}}


def with_tool(**fields: Any) -> dict[str, Any]:
    return {**contents(HI), "tools": [{"functionDeclarations": [{"name": "f", **fields}]}]}


def with_config(**fields: Any) -> dict[str, Any]:
    return {**contents(HI), "generationConfig": fields}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "at least one contents field"),
        ({**contents(HI), "model": "x"}, 'Unknown name "model"'),
        (contents(("assistant", [{"text": "hi"}])), "valid role"),
        (contents(("user", [])), "at least one parts field"),
        (contents(("user", [{"text": ""}])), "empty text"),
        (contents(("user", [{"text": "a", "inlineData": {}}])), "oneof"),
        (contents(("user", [{"inlineData": {"mimeType": "image/gif", "data": ""}}])), "mimeType"),
        (contents(("user", [{"inlineData": {"mimeType": "image/png", "data": "?"}}])), "Base64"),
        (contents(HI, ("model", [{"text": "a"}])), "ending with a model turn"),
        (contents(HI, ("model", [{"text": "a"}]), ("model", [{"text": "a"}]), HI), "alternate"),
        (contents(("model", [SIGNED_CALL]), ("user", [RESULT])), "immediately after a user turn"),
        (contents(("user", [RESULT])), "immediately after a function call turn"),
        (contents(HI, ("model", [SIGNED_CALL]), HI), "number of function response parts"),
        (contents(HI, ("model", [SIGNED_CALL, CALL]), ("user", [RESULT])), "number of function response parts"),
        (contents(HI, ("model", [SIGNED_CALL]), ("user", [RESULT, {"text": "a"}])), "number of function response"),
        (contents(HI, ("model", [CALL]), ("user", [RESULT])), "is missing a `thought_signature`"),
        (contents(HI, ("model", [{**CALL, "thoughtSignature": "AAAA"}]), ("user", [RESULT])), "Corrupted"),
        (contents(HI, ("model", [{**CALL, "thoughtSignature": "!"}]), ("user", [RESULT])), "Base64"),
        (contents(HI, ("model", [{"functionCall": {"name": "f", "id": "1"}}]), ("user", [RESULT])), '"id"'),
        (with_tool(strict=True), 'Unknown name "strict"'),
        (with_tool(parameters={"type": "object"}), "type"),
        (with_tool(parameters={"type": "OBJECT", "$schema": "x"}), r'Unknown name "\$schema"'),
        (with_tool(parametersJsonSchema={"type": "string"}), "type: object"),
        (
            with_tool(parametersJsonSchema={"type": "object", "properties": {"a": {"$ref": "#", "description": "b"}}}),
            r"starting with '\$'",
        ),
        ({**contents(HI), "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "without function_declarations"),
        (
            {
                **with_tool(),
                "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}},
            },
            "subset",
        ),
        (with_config(maxOutputTokens=1_000_000), "maxOutputTokens"),
        (with_config(temperature=2.5), "temperature"),
        (with_config(seed=2**31), "INT32"),
        (with_config(stopSequences=[""]), "stop_sequences"),
        (with_config(responseJsonSchema={}), "response_mime_type"),
        (with_config(thinkingConfig={"thinkingBudget": 1, "thinkingLevel": "LOW"}), "not supported together"),
        (with_config(thinkingConfig={"thinkingBudget": 100}), "thinking budget"),
        (with_config(thinkingConfig={"thinkingLevel": "MINIMAL"}), "MINIMAL is not supported"),
    ],
)
def test_bodies_that_are_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        Check(NEW.id, {}, knows_ids=False).body(body)


@pytest.mark.parametrize(
    "body",
    [
        contents(HI, ("model", [SIGNED_CALL, CALL]), ("user", [RESULT, RESULT]), HI),
        contents(HI, ("model", [CALL]), ("user", [RESULT]), HI),  # another turn
        with_tool(parametersJsonSchema={"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {}}),
        with_config(thinkingConfig={"thinkingLevel": "HIGH", "includeThoughts": True}, seed=-1, topP=1),
    ],
)
def test_bodies_that_are_taken(body: dict[str, Any]) -> None:
    Check(NEW.id, {}, knows_ids=False).body(body)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (
            "/v1/projects/house-1/locations/europe-west1/publishers/google/models/m:streamGenerateContent?alt=sse",
            {},
            401,
        ),
        (
            "/v1/projects/house-1/locations/europe-west1/publishers/google/models/m:streamGenerateContent?alt=sse",
            {"authorization": "Bearer old"},
            401,
        ),
        (
            "/v1/projects/house-1/locations/us/publishers/google/models/m:streamGenerateContent?alt=sse",
            {"authorization": "Bearer now"},
            403,
        ),
        ("/v1/publishers/google/models/m:streamGenerateContent?alt=sse", {"x-goog-api-key": "other"}, 401),
        (
            "/v2/projects/house-1/locations/europe-west1/publishers/google/models/m:streamGenerateContent",
            {"authorization": "Bearer now"},
            404,
        ),
        (
            "/v1/projects/house-1/locations/europe-west1/publishers/google/models/m:streamRawPredict",
            {"authorization": "Bearer now"},
            404,
        ),
    ],
)
def test_who_is_refused(path: str, headers: Mapping[str, str], status: int) -> None:
    dialect = VertexGemini()
    dialect.account = Account(token="now", key="key", project="house-1", location="europe-west1")
    with pytest.raises(Refused) as caught:
        dialect.ask(Seen("POST", path.partition("?")[0], headers, contents(HI), path))
    assert caught.value.failure.status == status


# The scripted server with the vendors' own SDKs


def genai_client(server: ModelServer, version: str = "v1beta1") -> Any:
    from google import genai
    from google.oauth2.credentials import Credentials

    return genai.Client(
        vertexai=True,
        project=PROJECT,
        location="europe-west1",
        credentials=Credentials("sdk-token"),  # type: ignore[no-untyped-call]
        http_options=genai.types.HttpOptions(base_url=server.origin, api_version=version),
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_googles_sdk_takes_what_the_server_says(server: ModelServer, account: Account, version: str) -> None:
    from google.genai import errors, types

    account.token = "sdk-token"

    def stream(script: str, **config: Any) -> list[types.GenerateContentResponse]:
        with genai_client(server, version) as client:
            made = types.GenerateContentConfig(**config)
            return list(client.models.generate_content_stream(model=NEW.id, contents=script, config=made))

    chunks = await asyncio.to_thread(stream, "think=hm so say=a b prompt=9 cached=4", system_instruction="Be kind.")
    contents = [chunk.candidates[0].content for chunk in chunks if chunk.candidates]
    parts = [part for content in contents if content is not None for part in content.parts or []]
    shown = [("hm", True), (" so", True), ("a", None), (" b", None), ("", None)]
    assert [(part.text, part.thought) for part in parts] == shown
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP  # type: ignore[index]
    usage = chunks[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count, usage.total_token_count) == (9, 4, 13)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (2, 2)

    def whole(script: str) -> types.GenerateContentResponse:
        with genai_client(server, version) as client:
            found: types.GenerateContentResponse = client.models.generate_content(model=NEW.id, contents=script)
            return found

    assert (await asyncio.to_thread(whole, "say=whole answer")).text == "whole answer"
    for script, code, status in (
        ("fail=429", 429, "RESOURCE_EXHAUSTED"),
        ("fail=503", 503, "UNAVAILABLE"),
        ("fail=context", 400, "INVALID_ARGUMENT"),
    ):
        with pytest.raises(errors.APIError) as caught:
            await asyncio.to_thread(stream, script)
        assert (caught.value.code, caught.value.status) == (code, status)


async def test_googles_sdk_runs_tools_against_the_server(server: ModelServer, account: Account) -> None:
    """It sends back parts as they came, signatures with them, and builds its schemas itself."""
    from google.genai import types

    account.token = "sdk-token"
    asked: list[int] = []

    def exec_(n: int) -> str:
        """Run."""
        asked.append(n)
        return f"out {n}"

    exec_.__name__ = "exec"

    def chat() -> str | None:
        with genai_client(server) as client:
            session = client.chats.create(model=NEW.id, config=types.GenerateContentConfig(tools=[exec_]))
            script = 'think=one tool=exec:{"n":1} tool=exec:{"n":2} next-round tool=exec:{"n":3} next-round say=done'
            said: str | None = session.send_message(script).text
            return said

    assert await asyncio.to_thread(chat) == "done"
    assert asked == [1, 2, 3]
    declared = server.bodies[-1]["tools"][0]["functionDeclarations"][0]
    assert declared["name"] == "exec"


async def test_googles_sdk_sends_what_is_sent_here(router: Router, server: ModelServer, account: Account) -> None:
    """The same request, from the SDK and from here, is the same JSON."""
    from google.genai import types

    account.token = "sdk-token"
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    def stream() -> None:
        config = types.GenerateContentConfig(
            system_instruction=[types.Part(text="tier 1"), types.Part(text="tier 2")],
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=100,
            stop_sequences=["END"],
            seed=7,
            response_mime_type="application/json",
            response_json_schema=schema,
            thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=4096),
        )
        contents = [
            types.Content(role="user", parts=[types.Part(text="say=fine")]),
            types.Content(role="model", parts=[types.Part(text="fine")]),
            types.Content(
                role="user",
                parts=[
                    types.Part(text="say=ok"),
                    types.Part(inline_data=types.Blob(mime_type="image/png", data=b"png!")),
                ],
            ),
        ]
        with genai_client(server) as client:
            list(client.models.generate_content_stream(model=OLD.id, contents=contents, config=config))

    await asyncio.to_thread(stream)
    account.token = ""
    options = ModelOptions(
        temperature=0.5,
        top_p=0.9,
        max_tokens=100,
        stop=["END"],
        seed=7,
        thinking="low",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )
    said = AssistantMessage([TextBlock("fine")], "vertex", "cloud", OLD.id, "stop", 1)
    last = UserMessage([TextBlock("say=ok"), ImageBlock("image/png", "cG5nIQ==")], 1)
    request = ModelRequest(
        messages=[user("say=fine"), said, last], system=("tier 1", "tier 2"), model=f"cloud/{OLD.id}", options=options
    )
    await answer(router, request)
    theirs, ours = (canonical(seen.body) for seen in server.requests if "/publishers/" in seen.path)
    theirs["systemInstruction"].pop("role", None)
    theirs["generationConfig"]["maxOutputTokens"] += 4096
    assert theirs == ours


async def test_anthropics_sdk_takes_what_the_server_says(server: ModelServer, account: Account) -> None:
    from anthropic import AsyncAnthropicVertex, BadRequestError, PermissionDeniedError

    account.token = "sdk-token"
    client = AsyncAnthropicVertex(
        region="europe-west1",
        project_id=PROJECT,
        access_token=account.token,
        base_url=f"{server.origin}/v1",
        max_retries=0,
    )
    async with client:
        script = [{"role": "user", "content": "think=hm say=a b prompt=9 cached=4"}]
        thinking: Any = {"type": "enabled", "budget_tokens": 1024}
        async with client.messages.stream(
            model=CLAUDE.id,
            max_tokens=2000,
            messages=script,  # type: ignore[arg-type]
            thinking=thinking,
        ) as stream:
            message = await stream.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (5, 4)
        assert server.requests[-1].path.endswith("/models/claude-opus-4-5@20251101:streamRawPredict")
        whole = await client.messages.create(
            model=CLAUDE.id, max_tokens=9, messages=[{"role": "user", "content": "say=whole"}]
        )
        assert [block.text for block in whole.content if block.type == "text"] == ["whole"]
        with pytest.raises(BadRequestError, match="prompt is too long"):
            await client.messages.create(
                model=CLAUDE.id, max_tokens=9, messages=[{"role": "user", "content": "fail=context"}]
            )
        account.project = "other"
        with pytest.raises(PermissionDeniedError, match=r"aiplatform\.endpoints\.predict"):
            await client.messages.create(model=CLAUDE.id, max_tokens=9, messages=[{"role": "user", "content": "hi"}])


async def test_anthropics_sdk_sends_what_is_sent_here(router: Router, server: ModelServer, account: Account) -> None:
    from anthropic import AsyncAnthropicVertex

    account.token = "sdk-token"
    async with AsyncAnthropicVertex(
        region="europe-west1", project_id=PROJECT, access_token=account.token, base_url=f"{server.origin}/v1"
    ) as client:
        body: Any = anthropic.build_body(ProviderRow(name="x"), CLAUDE, ModelRequest(messages=[user("say=fine")]))
        version = {"anthropic_version": ANTHROPIC_VERSION}  # the SDK has come to send another than is documented
        async with client.messages.stream(model=CLAUDE.id, extra_body=version, **body) as stream:
            await stream.get_final_message()
    account.token = ""
    await answer(router, ask("say=fine", CLAUDE))
    theirs, ours = (seen for seen in server.requests if "/publishers/" in seen.path)
    assert (theirs.target.replace("%40", "@"), theirs.body) == (ours.target, ours.body)


def test_the_kinds_of_failures_have_words_of_their_own(row: ProviderRow) -> None:
    """A request that cannot be made is refused before anything is sent."""
    request = ModelRequest(messages=[user("hi")], options=ModelOptions(response_format={"type": "grammar"}))
    for model in MODELS:
        with pytest.raises(ProviderError, match="cloud: response_format"):
            build_request(row, model, request)
