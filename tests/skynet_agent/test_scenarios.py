"""What every wire API has to get right, against a scripted server over real HTTP (SK-057, BA-069)."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skynet_agent.apis import WIRE_APIS
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ConnectFailed,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
)
from skynet_agent.events import Finished, ModelEvent, Started, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    text_of,
)
from skynet_agent.providers import ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.router import Router
from skynet_memory.secrets import Secret
from tests.skynet_agent.lab import LABS, Lab, ask, until
from tests.support.model_server import ModelServer

MakeRouter = Callable[..., Router]
TOOLS = (ToolDefinition(name="exec", description="Run a command."), ToolDefinition(name="read"))
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_no_wire_api_is_left_out(server: ModelServer, tmp_path: Path) -> None:
    assert {lab.row(server, tmp_path).api for lab in LABS} | {"offline"} == set(WIRE_APIS)


@pytest.fixture(params=LABS, ids=str)
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found: Lab = request.param
    for name, value in found.env.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def row(lab: Lab, server: ModelServer, tmp_path: Path) -> ProviderRow:
    return lab.row(server, tmp_path)


@pytest.fixture
def router(row: ProviderRow, make_router: MakeRouter) -> Router:
    return make_router(row, retries=0)


async def collect(router: Router, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in router.stream(request)]


async def answer(router: Router, request: ModelRequest) -> AssistantMessage:
    events = await collect(router, request)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    return events[-1].message


def calls_of(message: AssistantMessage) -> list[ToolCallBlock]:
    return [block for block in message.content if isinstance(block, ToolCallBlock)]


def results_of(message: AssistantMessage, *texts: str) -> list[ToolResultMessage]:
    """A result for each call, of the text at its place."""
    pairs = zip(calls_of(message), texts, strict=True)
    return [ToolResultMessage(call.id, call.name, [TextBlock(text)], False, 1) for call, text in pairs]


def user(text: str) -> UserMessage:
    return UserMessage([TextBlock(text)], 1)


def going_on(*messages: Message, thinking: ThinkingLevel | None = None) -> ModelRequest:
    return ModelRequest(
        messages=messages, system=("You help.", "This is Ada."), options=ModelOptions(tools=TOOLS, thinking=thinking)
    )


# Answers


async def test_text(router: Router, server: ModelServer, lab: Lab) -> None:
    events = await collect(router, ask("tokens=100"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["w0"] + [
        f" w{n}" for n in range(1, 100)
    ]
    message = events[-1].message if isinstance(events[-1], Finished) else None
    assert message is not None
    assert message.usage is not None
    assert (message.stop_reason, counts(message.usage)) == ("stop", Usage(100, 100, 0, 0, 200))
    assert message.usage.cost_microusd == 1100
    headers = server.requests[-1].headers
    for name, pattern in lab.proof.items():
        assert re.fullmatch(pattern, headers.get(name, ""))
    assert headers["user-agent"] == "skynet-gateway"
    assert headers["content-type"] == "application/json"


async def test_what_a_cache_had_is_told(router: Router, lab: Lab) -> None:
    message = await answer(router, ask("tokens=2 prompt=100 cached=60"))
    assert message.usage is not None
    cached = 60 if lab.caches else 0
    assert counts(message.usage) == Usage(100 - cached, 2, cached, 0, 102)


def counts(usage: Usage) -> Usage:
    """Without what it costs."""
    return Usage(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.total)


async def test_a_conversation_is_read_from_the_cache(router: Router, server: ModelServer, lab: Lab) -> None:
    """Twenty turns with tools; what is true only now changes with each of them."""
    server.cache = True
    tiers = ("Be kind. " * 2000, "This is Ada. " * 200)
    messages: list[Message] = []
    read = asked = 0
    for turn in range(20):
        messages.append(user(f'tool=exec:{{"turn":{turn}}} say={"word " * 40}'))
        for _ in range(2):
            request = ModelRequest(
                messages=messages,
                system=tiers,
                volatile=f" It is {turn} o'clock.",
                cache_key="session-1",
                options=ModelOptions(tools=TOOLS),
            )
            message = await answer(router, request)
            messages += [message, *results_of(message, *["out " * 200] * len(calls_of(message)))]
            assert message.usage is not None
            read += message.usage.cache_read
            asked += message.usage.total - message.usage.output
    assert read / asked > 0.9 if lab.caches else read == 0


async def test_an_empty_answer(router: Router) -> None:
    message = await answer(router, ask("empty"))
    assert (message.content, message.stop_reason) == ([], "stop")


async def test_no_usage(router: Router) -> None:
    message = await answer(router, ask("tokens=1 usage=none"))
    assert message.content == [TextBlock("w0")]
    assert message.usage is not None and message.usage.estimated  # BA-082


async def test_thinking(router: Router, server: ModelServer) -> None:
    """SK-057."""
    events = await collect(router, ask("think=let me see sign=c2ln say=four", thinking="high"))
    shown = [event for event in events if not isinstance(event, ThinkingDelta) or event.text]
    assert [type(event) for event in shown] == [
        Started,
        ThinkingDelta,
        ThinkingDelta,
        ThinkingDelta,
        TextDelta,
        Finished,
    ]
    assert isinstance(events[-1], Finished)
    blocks = events[-1].message.content
    assert [(type(block), getattr(block, "thinking", "")) for block in blocks] == [
        (ThinkingBlock, "let me see"),
        (TextBlock, ""),
    ]


@pytest.mark.parametrize("level", ["off", "minimal", "low", "medium", "high", "xhigh"])
async def test_every_level_of_thinking_is_one_that_the_service_knows(router: Router, level: ThinkingLevel) -> None:
    assert text_of(await answer(router, ask("say=four", thinking=level, max_tokens=50_000))) == "four"


async def test_length(router: Router, lab: Lab) -> None:
    message = await answer(router, ask(f"tokens=2 finish={lab.length}"))
    assert (text_of(message), message.stop_reason) == ("w0 w1", "length")


async def test_options_are_such_that_the_service_knows_them(router: Router) -> None:
    request = ask("say=fine", max_tokens=50, temperature=0.5, top_p=0.5, seed=7, user="u-1")
    assert text_of(await answer(router, request)) == "fine"


async def test_the_system_prompt_and_what_is_true_only_now(router: Router, server: ModelServer) -> None:
    """BA-083."""
    request = ModelRequest(messages=[user("hello")], system=("Be kind.", "", "This is Ada."), volatile=" It is late.")
    assert text_of(await answer(router, request)).split() == ["echo:", "hello", "It", "is", "late."]
    raw = server.requests[-1].raw
    assert raw.index(b"Be kind.") < raw.index(b"This is Ada.")


async def test_images(router: Router, server: ModelServer) -> None:
    """BA-080."""
    message = UserMessage([TextBlock("say=a dot"), ImageBlock("image/png", PNG)], 1)
    assert text_of(await answer(router, ModelRequest(messages=[message]))) == "a dot"
    assert PNG.encode() in server.requests[-1].raw


async def test_images_for_a_model_that_cannot_see(
    row: ProviderRow, server: ModelServer, make_router: MakeRouter
) -> None:
    """BA-080."""
    router = make_router(replace(row, models=(replace(row.models[0], input=("text",)),)))
    message = UserMessage([TextBlock("what is this?"), ImageBlock("image/png", PNG)], 1)
    said = text_of(await answer(router, ModelRequest(messages=[message])))
    assert said.endswith("[image/png, 1 KiB: an image that this model cannot see]")
    assert PNG.encode() not in server.requests[-1].raw


@pytest.mark.parametrize(
    "said",
    [
        "héllo wörld",
        "日本語 テスト",
        "👩‍👩‍👧‍👦 🇦🇶",
        "e\u0301 \u202eabc\u202c",
        "a\u2028b\u2029c",
        "nul\u0001 \u007f",
        "\ufeffbom",
        "😀" * 50,
    ],
)
@pytest.mark.parametrize("split", [0, 1, 7])
async def test_odd_unicode(router: Router, said: str, split: int) -> None:
    script = f"say={said}" + (f" split={split}" if split else "")
    assert text_of(await answer(router, ask(script))) == said


async def test_a_big_token(router: Router) -> None:
    assert len(text_of(await answer(router, ask("big=3000000")))) == 3_000_000


# Tools


async def test_a_round_of_parallel_tools(router: Router) -> None:
    script = 'think=hm sign=c2ln say=look tool=exec:{"command":"ls -l"} tool=read:{"path":"é"}'
    events = await collect(router, going_on(user(script), thinking="low"))
    assert {event.index for event in events if isinstance(event, ToolCallDelta)} == {0, 1}
    assert isinstance(events[-1], Finished)
    message = events[-1].message
    assert message.stop_reason == "toolUse"
    first, second = calls_of(message)
    assert (first.name, first.arguments) == ("exec", {"command": "ls -l"})
    assert (second.name, second.arguments) == ("read", {"path": "é"})
    assert first.id != second.id
    request = going_on(user(script), message, *results_of(message, "out 0", "out 1"), thinking="low")
    assert text_of(await answer(router, request)) == "look"


async def test_rounds_go_on_as_long_as_there_are_calls(router: Router) -> None:
    """With thinking that has to come back in each of them, some of it hidden."""
    script = (
        'think=one sign=c2lnMQ== tool=exec:{"a":1} next-round redact=aGlkZGVu tool=exec:{"a":2} tool=read:{} next-round'
        ' think=three sign=c2lnMw== tool=exec:{"a":3} next-round say=done'
    )
    messages: list[Message] = [user(script)]
    for expected in ([{"a": 1}], [{"a": 2}, {}], [{"a": 3}]):
        message = await answer(router, going_on(*messages, thinking="low"))
        assert [call.arguments for call in calls_of(message)] == expected
        messages += [message, *results_of(message, *["ok"] * len(expected))]
    assert text_of(await answer(router, going_on(*messages, thinking="low"))) == "done"


async def test_results_may_be_errors_empty_or_images(router: Router) -> None:
    script = "tool=exec:{} tool=exec:{} tool=read:{} say=I see"
    message = await answer(router, going_on(user(script)))
    first, second, third = calls_of(message)
    results = [
        ToolResultMessage(first.id, first.name, [TextBlock("no such file")], True, 1),
        ToolResultMessage(second.id, second.name, [], False, 1),
        ToolResultMessage(third.id, third.name, [ImageBlock("image/png", PNG)], False, 1),
    ]
    # a model that has no place for images in results gets them in a message after them, which is a script of its own
    said = text_of(await answer(router, going_on(user(script), message, *results)))
    assert said in ("I see", "echo: Images of the tool results:")


@pytest.mark.parametrize("choice", ["auto", "none", "required", OneTool("read"), None])
@pytest.mark.parametrize("parallel", [None, False])
async def test_choices_of_tools(router: Router, choice: Any, parallel: bool | None) -> None:
    request = ask("say=fine", tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel)
    assert text_of(await answer(router, request)) == "fine"


# Another model goes on


def foreign(*blocks: AssistantBlock, stop: Any = "stop") -> AssistantMessage:
    return AssistantMessage(list(blocks), "some-api", "elsewhere", "m-9", stop, 2)


ODD_HISTORY: tuple[Message, ...] = (
    ToolResultMessage("gone", "exec", [TextBlock("of a call that was cut off")], False, 1),
    user("first"),
    foreign(ThinkingBlock("hm", "sealed by another"), TextBlock("a"), TextBlock(""), TextBlock("b")),
    user("second"),
    user("and third"),
    foreign(
        ThinkingBlock("", "sealed", redacted=True),
        ToolCallBlock("call|with odd/signs", "exec", {"a": {"b": [1, None, "é"]}}, "signed by another"),
        ToolCallBlock("same", "exec", {}),
        ToolCallBlock("same", "read", {}),
        ToolCallBlock("x" * 450, "a_tool_that_is_gone", {}),
        ToolCallBlock("", "exec", {}),
        stop="toolUse",
    ),
    ToolResultMessage("same", "exec", [TextBlock("one")], False, 3),
    ToolResultMessage("same", "read", [TextBlock("two")], True, 3),
    ToolResultMessage("call|with odd/signs", "exec", [], False, 3),
    user(""),
    foreign(ThinkingBlock("only thought")),
    foreign(TextBlock("part of an ans"), ToolCallBlock("late", "exec", {}), stop="aborted"),
    foreign(ToolCallBlock("same", "exec", {}), stop="toolUse"),
    ToolResultMessage("same", "exec", [TextBlock(" \n")], False, 3),
    foreign(stop="error"),
    foreign(TextBlock("  \n"), stop="stop"),
)


@pytest.mark.parametrize("thinking", [None, "low"])
async def test_any_history_is_one_that_the_service_takes(router: Router, thinking: ThinkingLevel | None) -> None:
    for length in range(len(ODD_HISTORY) + 1):
        request = going_on(*ODD_HISTORY[:length], user("say=I know"), thinking=thinking)
        assert text_of(await answer(router, request)).endswith("I know"), length


texts = st.sampled_from(["", " \n", "a", "é😀"])
identities = st.sampled_from(["", "c", "odd id", "x" * 50])
images = st.lists(st.just(ImageBlock("image/png", PNG)), max_size=1)
a_user = st.builds(lambda text, images: UserMessage([*images, TextBlock(text)], 1), texts, images)
an_answer = st.builds(
    lambda blocks, stop: foreign(*blocks, stop=stop),
    st.lists(
        st.builds(TextBlock, texts)
        | st.builds(ThinkingBlock, texts, st.sampled_from(["", "sig"]), st.booleans())
        | st.builds(ToolCallBlock, identities, st.sampled_from(["exec", "gone"]), st.just({"a": 1}), texts),
        max_size=4,
    ),
    st.sampled_from(["stop", "toolUse", "error", "aborted"]),
)
a_result = st.builds(
    lambda identity, content, failed: ToolResultMessage(identity, "exec", content, failed, 1),
    identities,
    st.lists(st.builds(TextBlock, texts) | st.just(ImageBlock("image/png", PNG)), max_size=2),
    st.booleans(),
)
a_request = st.builds(
    lambda history, last, volatile, thinking, choice, model: ModelRequest(
        messages=[*history, last],
        system=("You help.", "This is Ada."),
        volatile=volatile,
        model=model,
        options=ModelOptions(tools=TOOLS if choice else (), tool_choice=choice or None, thinking=thinking),
    ),
    st.lists(a_user | an_answer | a_result, max_size=8),
    st.builds(lambda images: UserMessage([*images, TextBlock("And now?")], 1), images),
    st.sampled_from(["", "It is late."]),
    st.sampled_from([None, "off", "low", "xhigh"]),
    st.sampled_from(["auto", "none", "required", ""]),
    st.sampled_from(["lab", "blind"]),
)


@pytest.mark.parametrize("lab", LABS, ids=str)
def test_any_request_at_all_is_one_that_the_service_takes(lab: Lab, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as env, asyncio.Runner() as runner:
        for name, value in lab.env.items():
            env.setenv(name, value)
        server = runner.run(ModelServer().__aenter__())
        row = lab.row(server, tmp_path)
        model = replace(row.models[0], input=("text",), reasoning=False)
        router = Router([row, replace(row, name="blind", models=(model,))], retries=0)

        @settings(max_examples=100)
        @given(a_request)
        def check(request: ModelRequest) -> None:
            assert runner.run(answer(router, request)).stop_reason == "stop"

        try:
            check()
        finally:
            runner.run(router.aclose())
            runner.run(server.__aexit__())


@pytest.mark.parametrize("other_lab", LABS, ids=str)
async def test_another_model_takes_over_in_the_middle_of_a_turn(
    row: ProviderRow,
    other_lab: Lab,
    server: ModelServer,
    make_router: MakeRouter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls, results, thinking and what was said before go from any wire API to any, and back (BA-078)."""
    for name, value in other_lab.env.items():
        monkeypatch.setenv(name, value)
    other_row = replace(other_lab.row(server, tmp_path), name="other")
    router = make_router(row, other_row, retries=0)
    script = (
        'think=one sign=c2lnMQ== tool=exec:{"a":1} tool=read:{"a":2} next-round think=two sign=c2lnMg== redact=aGlkZGVu'
        ' tool=exec:{"a":3} next-round think=three sign=c2lnMw== tool=exec:{"a":4} next-round say=done'
    )
    messages: list[Message] = [user("say=before"), await answer(router, going_on(user("say=before")))]
    messages.append(user(script))
    for name in ("lab", "other", "lab"):
        request = replace(going_on(*messages, thinking="low"), model=name)
        message = await answer(router, request)
        assert (message.provider, message.stop_reason) == (name, "toolUse")
        messages += [message, *results_of(message, *["ok"] * len(calls_of(message)))]
    request = replace(going_on(*messages, thinking="low"), model="other")
    messages.append(await answer(router, request))
    assert text_of(messages[-1]) == "done"
    for name in ("lab", "other"):
        request = replace(going_on(*messages, user("say=and on")), model=name)
        assert text_of(await answer(router, request)) == "and on"


# Failures


@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        ("fail=context", ContextOverflow, 400),
        ("fail=400", BadRequest, 400),
        ("fail=401", AuthFailed, 401),
        ("fail=403", AuthFailed, 403),
        ("fail=404", BadRequest, 404),
        ("fail=408", ProviderTimeout, 408),
        ("fail=429", RateLimited, 429),
        ("fail=500", Overloaded, 500),
        ("fail=503", Overloaded, 503),
        ("fail=529", Overloaded, 529),
    ],
)
async def test_failures(router: Router, script: str, kind: type[ProviderError], status: int) -> None:
    with pytest.raises(ProviderError) as caught:
        await collect(router, ask(script))
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.provider) == (status, "lab")
    assert text_of(await answer(router, ask("say=fine"))) == "fine"


@pytest.mark.parametrize(("script", "seconds"), [("fail=429:7", 7.0), ("fail=429:30.5", 30.5), ("fail=429", None)])
async def test_rate_limits_say_when(router: Router, script: str, seconds: float | None) -> None:
    with pytest.raises(RateLimited) as caught:
        await collect(router, ask(script))
    assert caught.value.retry_after_s == seconds


async def test_a_failure_that_passes(router: Router) -> None:
    with pytest.raises(Overloaded):
        await collect(router, ask("fail-once=503 say=fine"))
    assert text_of(await answer(router, ask("fail-once=503 say=fine"))) == "fine"


@pytest.mark.parametrize("script", ["tokens=9 cut=4", "tokens=4 error-in-stream", "tokens=9 cut=4 delay=5"])
async def test_a_dropped_stream(router: Router, script: str) -> None:
    draft = router.draft()
    with pytest.raises(StreamCut):
        async for _ in router.stream(ask(script), draft=draft):
            pass
    assert text_of(draft.message("error")) == "w0 w1 w2 w3"


async def test_a_stream_dropped_before_the_first_token(router: Router) -> None:
    with pytest.raises(StreamCut):
        await collect(router, ask("cut=0"))


async def test_an_error_before_the_first_token_is_what_it_says(router: Router) -> None:
    with pytest.raises(Overloaded, match="scripted failure in the stream"):
        await collect(router, ask("error-in-stream"))


async def test_a_dropped_connection(router: Router) -> None:
    with pytest.raises(ConnectFailed, match="closed the connection without an answer"):
        await collect(router, ask("drop"))


# Time


@pytest.mark.parametrize("script", ["hang", "tokens=2 hang", "tokens=1000 delay=20", "first=60000"])
async def test_cancelling_reaches_the_provider_at_once(router: Router, server: ModelServer, script: str) -> None:
    task = asyncio.create_task(collect(router, ask(script)))
    await until(lambda: server.asked == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.disconnects == 1)


async def test_closing_the_events_reaches_the_provider_at_once(router: Router, server: ModelServer) -> None:
    async with aclosing(router.stream(ask("tokens=2 hang"))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    await until(lambda: server.disconnects == 1)


async def test_what_had_come_before_an_abort_is_kept(router: Router, server: ModelServer) -> None:
    """And the next request is one that the service takes."""
    script, draft = 'think=hm say=let me look tool=exec:{"command":"ls"} hang', router.draft()

    async def read() -> None:
        async for _ in router.stream(going_on(user(script), thinking="low"), draft=draft):
            pass

    task = asyncio.create_task(read())
    await until(lambda: len(draft.message("aborted").content) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    partial = draft.message("aborted")
    assert text_of(partial) == "let me look"
    request = going_on(user(script), partial, user("say=and now?"), thinking="low")
    assert text_of(await answer(router, request)) == "and now?"


async def test_slow_is_not_dead(row: ProviderRow, make_router: MakeRouter) -> None:
    """The limit is for the silence between two reads, not for the whole answer."""
    router = make_router(replace(row, read_timeout_s=0.3), retries=0)
    assert text_of(await answer(router, ask("tokens=8 first=60 delay=60"))).endswith("w7")


@pytest.mark.parametrize(("script", "kind"), [("hang", ProviderTimeout), ("tokens=2 hang", StreamCut)])
async def test_silence_is(
    row: ProviderRow, server: ModelServer, make_router: MakeRouter, script: str, kind: type[ProviderError]
) -> None:
    router = make_router(replace(row, read_timeout_s=0.1), retries=0)
    with pytest.raises(kind, match=r"lab: silent for 0\.1 s"):
        await collect(router, ask(script))
    await until(lambda: server.disconnects == 1)


# Addresses


def at(row: ProviderRow, url: str, **fields: Any) -> ProviderRow:
    """``row`` at another host, its path kept."""
    path = row.base_url.removeprefix("http://").partition("/")[2]
    return replace(row, base_url=f"{url}/{path}" if path else url, **fields)


async def test_connect_refused(row: ProviderRow, make_router: MakeRouter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    router = make_router(at(row, f"http://127.0.0.1:{port}"), retries=0)
    with pytest.raises(ConnectFailed, match=rf"^lab: no connection to http://127\.0\.0\.1:{port}: Connection refused$"):
        await collect(router, ask("hi"))


async def test_connect_timeout(row: ProviderRow, make_router: MakeRouter) -> None:
    """A server whose backlog is full does not answer the handshake."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            slow = at(row, f"http://127.0.0.1:{port}", connect_timeout_s=0.1, read_timeout_s=5.0)
            with pytest.raises(ProviderTimeout, match=r"no connection to .* within 0\.1 s"):
                await collect(make_router(slow, retries=0), ask("hi"))
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize("url", ["http://no-such-host.invalid", "not a url", "ftp://127.0.0.1"])
async def test_no_such_place(row: ProviderRow, make_router: MakeRouter, url: str) -> None:
    with pytest.raises(ConnectFailed):
        await collect(make_router(at(row, url), retries=0), ask("hi"))


async def test_credentials_in_an_address_are_not_shown(row: ProviderRow, make_router: MakeRouter) -> None:
    url = "http://someone:hunter2@127.0.0.1:9/v1?key=hunter2"
    with pytest.raises(ConnectFailed, match=r"http://127\.0\.0\.1:9\b") as caught:
        await collect(make_router(replace(row, base_url=url, api_key=Secret("")), retries=0), ask("hi"))
    assert "hunter2" not in str(caught.value)


@asynccontextmanager
async def raw_server(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers the n-th request with the n-th bytes; empty closes the connection instead, as does the last one's end."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                requests.append(head)
                reply = answers[len(requests) - 1] if len(requests) <= len(answers) else b""
                writer.write(reply)
                if not reply or b"connection: close" in reply:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", requests


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


async def test_answers_that_are_none(row: ProviderRow, make_router: MakeRouter) -> None:
    body = b'{"choices":[]}'
    cases: list[tuple[bytes, type[ProviderError]]] = [
        (b"SSH-2.0-OpenSSH_9.6\r\n", ConnectFailed),
        (HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, StreamCut),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n", BadRequest),
        (HEAD + b"content-length: 0\r\n\r\n", StreamCut),
        (b"HTTP/1.1 503 No\r\ncontent-length: 100\r\nconnection: close\r\n\r\nhalf", Overloaded),
    ]
    for reply, kind in cases:
        async with raw_server(reply) as (url, requests):
            router = make_router(at(row, url, read_timeout_s=2.0), retries=0)
            with pytest.raises(ProviderError) as caught:
                await collect(router, ask("hi"))
            assert type(caught.value) is kind, reply
            assert len(requests) == 1


async def test_a_connection_that_closes_unanswered_is_tried_once_more(
    row: ProviderRow, make_router: MakeRouter
) -> None:
    async with raw_server(b"", b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno") as (url, requests):
        with pytest.raises(Overloaded):
            await collect(make_router(at(row, url), retries=0), ask("hi"))
        assert len(requests) == 2
    async with raw_server(b"", b"") as (url, requests):
        with pytest.raises(ConnectFailed, match="closed the connection without an answer"):
            await collect(make_router(at(row, url), retries=0), ask("hi"))
        assert len(requests) == 2


# Connections


async def test_connections_are_kept(router: Router, server: ModelServer) -> None:
    await collect(router, ask("hello"))
    connected = server.connected
    for script in ("tokens=20", "tokens=3 split=7", "fail=429", "tokens=1 delay=5", "hello"):
        with suppress(RateLimited):
            await collect(router, ask(script))
    assert (server.asked, server.connected) == (6, connected)


async def test_many_at_once(router: Router, server: ModelServer) -> None:
    messages = await asyncio.gather(*[answer(router, ask(f"tokens={n} delay=1")) for n in range(1, 31)])
    assert [text_of(message).split()[-1] for message in messages] == [f"w{n}" for n in range(30)]
    assert server.disconnects == 0
