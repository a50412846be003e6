"""Which provider is asked, which one next, and what is remembered of them."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from skynet_agent.breaker import COOL_DOWN_S, FAILURES
from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    StreamCut,
    ToolsUnsupported,
    UnknownModel,
)
from skynet_agent.events import Attempt, Finished, ModelEvent, Started, TextDelta
from skynet_agent.failover import RETRIES, SHORT_WAIT_S
from skynet_agent.limiter import WINDOW_S
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from skynet_agent.offline import NOT_ANSWERING, NOT_CONFIGURED
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.requests import ModelRequest, ToolDefinition
from skynet_agent.router import Router
from skynet_agent.tokens import request_tokens, text_tokens
from skynet_memory.secrets import Secret
from tests.skynet_agent.fake_time import FakeTime, settle
from tests.skynet_agent.lab import ask, row_of, until
from tests.support.model_server import ModelServer
from tests.support.script import MODELS

MakeRouter = Callable[..., Router]
NAMES = ("one", "two", "three")


async def collect(router: Router, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in router.stream(request)]


async def answer(router: Router, request: ModelRequest) -> tuple[Started, AssistantMessage]:
    """Who began to answer, and the whole answer."""
    events = await collect(router, request)
    started, finished = events[0], events[-1]
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    return started, finished.message


def kinds(tried: tuple[Attempt, ...]) -> list[tuple[str, str]]:
    return [(attempt.provider, attempt.kind) for attempt in tried]


class Lab:
    """Three providers with a model server each, asked in the order one, two, three. Pauses take no time."""

    def __init__(self, servers: list[ModelServer], make_router: MakeRouter) -> None:
        self.servers = servers
        self.time = FakeTime()
        self._make_router = make_router

    def row(self, name: str, **fields: object) -> ProviderRow:
        number = NAMES.index(name)
        row = ProviderRow(
            name=name, base_url=self.servers[number].url, priority=-number, models=(ModelInfo(id="mock-1"),)
        )
        return replace(row, **fields)  # type: ignore[arg-type]

    def router(self, *rows: ProviderRow, **settings: object) -> Router:
        """With ``rows`` for those that differ."""
        others = [self.row(name) for name in NAMES if name not in {row.name for row in rows}]
        return self.alone(*rows, *others, **settings)

    def alone(self, *rows: ProviderRow, **settings: object) -> Router:
        """With ``rows`` and no other."""
        ours = {"retries": RETRIES, "monotonic": self.time, "sleep": self.time.sleep}
        return self._make_router(*rows, **{**ours, **settings})

    def fails(self, **scripts: str) -> None:
        """Let a provider answer every message by this script; an empty one is the message again."""
        for name, script in scripts.items():
            self.servers[NAMES.index(name)].script = script

    @property
    def calls(self) -> list[int]:
        """Requests to each since the last look."""
        served = [server.served for server in self.servers]
        for server in self.servers:
            server.served = 0
        return served


@pytest.fixture
async def lab(make_router: MakeRouter) -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        yield Lab([await stack.enter_async_context(ModelServer()) for _ in NAMES], make_router)


def tools(*names: str) -> tuple[ToolDefinition, ...]:
    return tuple(ToolDefinition(name=name) for name in names)


def test_the_wire_api_of_a_row_has_to_exist() -> None:
    with pytest.raises(ValueError, match=r"provider 'a': unknown api 'telepathy'; allowed: .*openai-completions"):
        Router([ProviderRow(name="a", api="telepathy")])


# Who is asked


async def test_the_highest_priority_alone_is_asked(lab: Lab) -> None:
    """SK-075, SK-078."""
    events = await collect(lab.router(), ask("tokens=2"))
    assert events[:3] == [Started("one", "mock-1", "openai-completions"), TextDelta("w0"), TextDelta(" w1")]
    assert isinstance(events[3], Finished)
    assert lab.calls == [1, 0, 0]


@pytest.mark.parametrize(
    ("script", "kind", "times"),
    [
        ("fail=429:7", "RateLimited", 1),
        ("fail=500", "Overloaded", 3),
        ("fail=503", "Overloaded", 3),
        ("fail=529", "Overloaded", 3),
        ("fail=409", "Overloaded", 3),
        ("fail=408", "ProviderTimeout", 3),
        ("cut=0", "StreamCut", 2),
        ("error-in-stream", "Overloaded", 3),
    ],
)
@pytest.mark.parametrize("name", ["", "one/mock-1", "mock-1", "pool"])
async def test_retriable_failures_move_on(lab: Lab, script: str, kind: str, times: int, name: str) -> None:
    """SK-076, SK-081."""
    lab.fails(one=script)
    started, message = await answer(lab.router(pools={"pool": ["one", "two"]}), ask("say=hello", name))
    assert (started.provider, kinds(started.tried)) == ("two", [("one", kind)] * times)
    assert started.tried[0].message.startswith("one: ")
    assert (message.provider, text_of(message)) == ("two", "hello")
    assert lab.calls == [times, 1, 0]
    assert lab.time.pauses == [0.2, 0.4][: times - 1]


async def test_a_provider_that_refuses_connections(lab: Lab) -> None:
    async with ModelServer() as gone:
        pass
    router = lab.router(lab.row("one", base_url=gone.url))
    started, _ = await answer(router, ask("say=hello"))
    assert (started.provider, kinds(started.tried)) == ("two", [("one", "ConnectFailed")] * 3)
    assert "Connection refused" in started.tried[0].message


async def test_silence_is_waited_for_once(lab: Lab) -> None:
    """Whoever waited for a whole time limit is not made to wait for two more (BA-039)."""
    lab.fails(one="hang")
    started, _ = await answer(lab.router(lab.row("one", read_timeout_s=0.05)), ask("say=hello"))
    assert (started.provider, kinds(started.tried)) == ("two", [("one", "ProviderTimeout")])
    assert lab.calls == [1, 1, 0]
    with pytest.raises(ProviderTimeout, match=r"one: silent for 0.05 s"):
        await collect(lab.alone(lab.row("one", read_timeout_s=0.05)), ask("hi"))
    assert lab.calls == [1, 0, 0]


@pytest.mark.parametrize(
    ("script", "kind"),
    [("fail=400", BadRequest), ("fail=404", BadRequest), ("fail=401", AuthFailed), ("fail=403", AuthFailed)],
)
async def test_other_failures_do_not(lab: Lab, script: str, kind: type[ProviderError]) -> None:
    """SK-076."""
    lab.fails(one=script)
    for name in ("", "one/mock-1", "mock-1"):
        with pytest.raises(kind) as caught:
            await collect(lab.router(), ask("hi", name))
        assert kinds(caught.value.tried) == [("one", kind.__name__)]
    assert lab.calls == [3, 0, 0]


async def test_authentication_moves_on_in_a_pool_with_a_warning(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """SQ-030, SQ-097."""
    lab.fails(one="fail=401")
    with caplog.at_level(logging.WARNING, logger="skynet_agent.router"):
        started, _ = await answer(lab.router(pools={"pool": ["one", "three"]}), ask("say=hi", "pool"))
    assert (started.provider, kinds(started.tried)) == ("three", [("one", "AuthFailed")])
    assert lab.calls == [1, 0, 1]
    assert "one/mock-1 failed (AuthFailed: HTTP 401)" in caplog.text


async def test_what_a_provider_says_of_a_message_is_in_the_log_at_debug_alone(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.fails(one="fail=400 say=you wrote my diary")
    router = lab.router()
    for level, is_there in ((logging.INFO, False), (logging.DEBUG, True)):
        caplog.clear()
        with caplog.at_level(level), pytest.raises(BadRequest, match="you wrote my diary"):
            await collect(router, ask("hi"))
        assert "one/mock-1 failed (BadRequest: HTTP 400)" in caplog.text
        assert ("my diary" in caplog.text) is is_there


async def test_a_refusal_ends_a_pool_too(lab: Lab) -> None:
    lab.fails(one="fail=400")
    with pytest.raises(BadRequest):
        await collect(lab.router(pools={"pool": ["one", "two"]}), ask("hi", "pool"))
    assert lab.calls == [1, 0, 0]


async def test_all_fail_the_last_error_counts(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """SK-077."""
    lab.fails(one="fail=500", two="fail=503", three="fail=429:9")
    with pytest.raises(RateLimited, match=r"three: scripted failure 429 \(HTTP 429\)") as caught:
        await collect(lab.router(retries=1), ask("hi"))
    assert caught.value.retry_after_s == 9
    assert kinds(caught.value.tried) == [
        *[("one", "Overloaded")] * 2,
        *[("two", "Overloaded")] * 2,
        ("three", "RateLimited"),
    ]
    assert lab.calls == [2, 2, 1]
    lines = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert [line.partition(" failed")[0] for line in lines] == [
        *["one/mock-1"] * 2,
        *["two/mock-1"] * 2,
        "three/mock-1",
    ]


async def test_the_next_request_begins_at_the_top(lab: Lab) -> None:
    """SK-079."""
    router = lab.router()
    lab.fails(one="fail=500")
    await answer(router, ask("say=1"))
    lab.fails(one="")
    started, _ = await answer(router, ask("say=2"))
    assert (started.provider, started.tried) == ("one", ())
    assert lab.calls == [4, 1, 0]


@pytest.mark.parametrize("script", ["tokens=5 cut=2", "tokens=2 error-in-stream", "think=a,b cut=1"])
async def test_after_the_first_token_nobody_else_is_asked(lab: Lab, script: str) -> None:
    """SQ-096."""
    lab.fails(one=script)
    router = lab.router()
    draft = router.draft()
    with pytest.raises(StreamCut) as caught:
        async for _ in router.stream(ask("hi"), draft=draft):
            pass
    assert caught.value.provider == "one"
    assert isinstance(caught.value.__cause__, ProviderError)
    assert kinds(caught.value.tried) == [("one", type(caught.value.__cause__).__name__)]
    message = draft.message("error")
    assert message.content
    assert message.usage is not None and message.usage.estimated  # it is paid for (BA-082)
    assert message.usage.input == request_tokens(ask("hi")) and message.usage.output > 0
    assert lab.calls == [1, 0, 0]


async def test_an_answer_that_nobody_waits_for_is_paid_for_all_the_same(lab: Lab) -> None:
    lab.fails(one="tokens=50 hang")
    priced = ModelInfo(id="mock-1", price=Price(input=1_000_000, output=10_000_000))
    router = lab.alone(lab.row("one", models=(priced,)))
    draft = router.draft()
    async with aclosing(router.stream(ask("hi"), draft=draft)) as events:
        async for event in events:
            if isinstance(event, TextDelta) and event.text.strip() == "w9":
                break
    usage = draft.message("aborted").usage
    assert usage is not None and usage.estimated
    assert usage.output == text_tokens("w0 w1 w2 w3 w4 w5 w6 w7 w8 w9")
    assert usage.cost_microusd == usage.input + 10 * usage.output


async def test_a_call_that_showed_nothing_has_no_usage(lab: Lab) -> None:
    lab.fails(one="hang")
    router = lab.router()
    draft = router.draft()
    task = asyncio.ensure_future(anext(router.stream(ask("hi"), draft=draft)))
    await until(lambda: lab.calls == [1, 0, 0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert draft.message("aborted").usage is None


@pytest.mark.parametrize(
    ("times", "served_by", "text"), [(0, "one", "good"), (1, "one", "good"), (2, "two", "hello"), (9, "two", "hello")]
)
async def test_an_answer_that_makes_no_sense_is_asked_for_once_more(
    lab: Lab, times: int, served_by: str, text: str
) -> None:
    """BA-076: bad JSON so often."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    delta = b'data: {"choices":[{"index":0,"delta":{"content":"good"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    asked = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        request = await reader.readuntil(b"\r\n\r\n")
        length = request.lower().split(b"content-length:")[1].split(b"\r\n")[0]
        await reader.readexactly(int(length))  # else closing would be a reset
        writer.write(head + (b"data: {nonsense\n\n" if asked <= times else delta))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as garbled:
        port = garbled.sockets[0].getsockname()[1]
        router = lab.router(lab.row("one", base_url=f"http://127.0.0.1:{port}/v1"))
        started, message = await answer(router, ask("say=hello"))
    assert (started.provider, text_of(message), asked) == (served_by, text, min(times + 1, 2))
    assert all("makes no sense" in attempt.message for attempt in started.tried)
    assert len(started.tried) == min(times, 2)


async def test_offline_is_asked_last_when_a_pool_lists_it(lab: Lab) -> None:
    lab.fails(one="fail=503")
    _, message = await answer(lab.router(pools={"pool": ["one", "offline"]}), ask("echo x", "pool"))
    assert text_of(message) == f"{NOT_ANSWERING}\n\nx"
    with pytest.raises(Overloaded):
        await collect(lab.router(), ask("hi", "one"))


async def test_without_providers_offline_serves(make_router: MakeRouter) -> None:
    router = make_router(clock=lambda: datetime(2026, 11, 21, 1, 20, tzinfo=UTC))
    await router.warm_up()
    started, message = await answer(router, ask("2+2"))
    assert started == Started("offline", "assistant", "offline")
    assert text_of(message) == f"{NOT_CONFIGURED}\n\n2+2 = 4"
    assert (message.provider, message.stop_reason, message.timestamp) == ("offline", "stop", 1795224000000)
    assert message.usage is not None
    assert message.usage.cost_microusd == 0
    assert [health.name for health in router.health()] == ["offline"]


async def test_an_unknown_model_asks_nobody(lab: Lab) -> None:
    with pytest.raises(UnknownModel, match="unknown model 'gpt-9'; available: one/mock-1, two/mock-1, three/mock-1"):
        await collect(lab.router(), ask("hi", "gpt-9"))
    assert lab.calls == [0, 0, 0]


async def test_the_default_can_be_changed_while_it_runs(lab: Lab) -> None:
    router = lab.router(default_model="one", pools={"pool": ["three", "one"]})
    assert router.set_default("pool") == "one"
    assert (router.default().name, router.resolve("").name) == ("three/mock-1", "three/mock-1")
    started, _ = await answer(router, ask("say=hi"))
    assert started.provider == "three"
    with pytest.raises(UnknownModel):
        router.set_default("nobody")
    assert router.default_name == "pool"
    assert router.set_default("") == "pool"
    assert (router.default_name, router.default().name) == ("", "one/mock-1")


async def test_the_cheapest_offer_is_asked_first(lab: Lab) -> None:
    """BA-073."""

    def sells(name: str, input_price: int, output_price: int) -> ProviderRow:
        price = Price(input=input_price, output=output_price)
        return lab.row(name, models=(ModelInfo(id="mock-1", price=price),))

    rows = (sells("one", 4_000_000, 4_000_000), sells("two", 1_000_000, 20_000_000))
    router = lab.router(*rows, cheapest=True)
    long_prompt, long_answer = ask("say=hi big=1" + " " * 40_000, "mock-1"), ask("say=hi", "mock-1")
    assert (await answer(router, long_prompt))[0].provider == "two"
    assert (await answer(router, long_answer))[0].provider == "one"
    assert (await answer(router, ask("say=hi", "three/mock-1")))[0].provider == "three"
    assert (await answer(lab.router(*rows), long_prompt))[0].provider == "one"
    lab.fails(two="fail=503")
    assert (await answer(router, long_prompt))[0].provider == "one"


# Rate limits


async def test_a_short_rate_limit_is_waited_for_when_nobody_else_is_there(lab: Lab) -> None:
    """BA-038."""
    router = lab.alone(lab.row("one"))
    started, message = await answer(router, ask("say=hello fail-once=429:1"))
    assert (kinds(started.tried), text_of(message)) == ([("one", "RateLimited")], "hello")
    assert lab.time.pauses == [1.0]
    assert router.health()[0].state == "closed"


@pytest.mark.parametrize(
    ("script", "pauses"), [("fail=429:2", [2.0]), (f"fail=429:{SHORT_WAIT_S + 1:.0f}", []), ("fail=429", [])]
)
async def test_it_is_waited_for_once_and_not_for_long(lab: Lab, script: str, pauses: list[float]) -> None:
    lab.fails(one=script)
    with pytest.raises(RateLimited, match=r"one: scripted failure 429 \(HTTP 429\)"):
        await collect(lab.alone(lab.row("one")), ask("hi"))
    assert (lab.time.pauses, lab.calls) == (pauses, [1 + len(pauses), 0, 0])


async def test_of_several_limits_the_shortest_is_waited_for(lab: Lab) -> None:
    lab.fails(one="fail=429:4", two="fail=429:2", three="fail=500")
    with pytest.raises(RateLimited, match="two: "):
        await collect(lab.router(retries=0), ask("hi"))
    assert (lab.time.pauses, lab.calls) == ([2.0], [1, 2, 1])


async def test_a_provider_that_set_a_limit_is_left_alone_until_then(lab: Lab) -> None:
    router = lab.router()
    lab.fails(one="fail=429:60")
    await answer(router, ask("say=hi"))
    lab.fails(one="")
    lab.time.now_s += 59
    assert (await answer(router, ask("say=hi")))[0] == Started("two", "mock-1", "openai-completions")
    lab.time.now_s += 1
    assert (await answer(router, ask("say=hi")))[0].provider == "one"
    assert lab.calls == [2, 2, 0]


async def test_requests_wait_for_their_turn(lab: Lab) -> None:
    """BA-071."""
    time = FakeTime(runs=False)
    router = lab.alone(lab.row("one", requests_per_minute=2), monotonic=time, sleep=time.sleep)
    tasks = [asyncio.create_task(answer(router, ask("say=hi"))) for _ in range(4)]
    await until(lambda: sum(task.done() for task in tasks) == 2)
    await settle()
    assert lab.calls == [2, 0, 0]
    assert router.health()[0].waiting == 2
    with pytest.raises(RateLimited, match="one: 2 requests may begin in a minute, and as many wait already") as caught:
        await answer(router, ask("say=hi"))
    assert caught.value.retry_after_s == WINDOW_S
    tasks.pop().cancel()
    await settle()
    await time.advance(WINDOW_S)
    await asyncio.gather(*tasks)
    assert lab.calls == [1, 0, 0]
    assert (router.health()[0].waiting, router.health()[0].failures) == (0, 0)


async def test_who_finds_the_queue_full_is_served_by_the_next(lab: Lab) -> None:
    time = FakeTime(runs=False)
    router = lab.router(lab.row("one", requests_per_minute=1), monotonic=time, sleep=time.sleep)
    await answer(router, ask("say=hi"))
    waits = asyncio.create_task(answer(router, ask("say=hi")))
    await settle()
    started, _ = await answer(router, ask("say=hi"))
    assert (started.provider, kinds(started.tried)) == ("two", [("one", "RateLimited")])
    assert router.health()[0].state == "closed"
    await time.advance(WINDOW_S)
    assert (await waits)[0].provider == "one"


# Circuits (SK-080)


async def open_circuit(lab: Lab, router: Router, name: str) -> None:
    """Let ``name`` fail until it is left alone."""
    lab.fails(**{name: "fail=500"})
    for _ in range(FAILURES):
        await collect(router, ask("say=hi", name + "-first"))
    assert state_of(router, name) == "open"
    _ = lab.calls


def state_of(router: Router, name: str) -> str:
    return next(health.state for health in router.health() if health.name == name)


def pools() -> dict[str, list[str]]:
    """A pool for each provider that asks it first."""
    return {f"{name}-first": [name, *(other for other in NAMES if other != name)] for name in NAMES}


async def test_a_provider_that_keeps_failing_is_passed_over(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    router = lab.router(pools=pools(), retries=0)
    with caplog.at_level(logging.INFO):
        await open_circuit(lab, router, "one")
        started, _ = await answer(router, ask("say=hi"))
    assert (started.provider, started.tried, lab.calls) == ("two", (), [0, 1, 0])
    assert "one is left alone for 30 s, failures in a row: 5" in caplog.text
    assert "one/mock-1 is passed over: it failed lately" in caplog.text


async def test_it_is_tried_again_after_the_cool_down(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    router = lab.router(pools=pools())
    await open_circuit(lab, router, "one")
    lab.time.now_s += COOL_DOWN_S
    assert state_of(router, "one") == "half_open"
    started, _ = await answer(router, ask("say=hi"))  # fails still, and is not asked a second time
    assert (started.provider, kinds(started.tried), lab.calls) == ("two", [("one", "Overloaded")], [1, 1, 0])
    lab.fails(one="")
    assert (await answer(router, ask("say=hi")))[0].provider == "two"
    lab.time.now_s += COOL_DOWN_S
    with caplog.at_level(logging.INFO):
        assert (await answer(router, ask("say=hi")))[0].provider == "one"
    assert state_of(router, "one") == "closed"
    assert "one answers again" in caplog.text


async def test_only_one_request_is_the_probe(lab: Lab) -> None:
    router = lab.router(pools=pools())
    await open_circuit(lab, router, "one")
    lab.fails(one="say=back first=30")
    lab.time.now_s += COOL_DOWN_S
    served = [
        (await each)[0].provider for each in [asyncio.create_task(answer(router, ask("say=hi"))) for _ in range(9)]
    ]
    assert sorted(served) == ["one", *["two"] * 8]
    assert lab.calls == [1, 8, 0]


@pytest.mark.parametrize("script", ["hang", "tokens=1000 delay=20"])
async def test_a_probe_that_is_left_does_not_keep_it_half_open(lab: Lab, script: str) -> None:
    router = lab.router(pools=pools())
    await open_circuit(lab, router, "one")
    lab.fails(one=script)
    lab.time.now_s += COOL_DOWN_S
    probe = asyncio.create_task(answer(router, ask("hi")))
    await until(lambda: lab.servers[0].served == 1)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    lab.fails(one="")
    assert (await answer(router, ask("say=hi")))[0].provider == "one"
    assert state_of(router, "one") == "closed"


async def test_when_all_are_open_they_are_asked_all_the_same(lab: Lab) -> None:
    router = lab.router(pools=pools())
    lab.fails(one="fail=500", two="fail=503", three="fail=529")
    for _ in range(FAILURES):
        with pytest.raises(Overloaded):
            await collect(router, ask("hi"))
    assert [health.state for health in router.health()] == ["open"] * 3
    _ = lab.calls
    with pytest.raises(Overloaded, match=r"three: scripted failure 529 \(HTTP 529\)"):
        await collect(router, ask("hi"))
    assert lab.calls == [1, 1, 1]
    lab.fails(two="")
    assert (await answer(router, ask("say=hi")))[0].provider == "two"
    assert [health.state for health in router.health()] == ["open", "closed", "open"]
    _ = lab.calls
    assert (await answer(router, ask("say=hi")))[0] == Started("two", "mock-1", "openai-completions")


async def test_a_provider_that_is_left_alone_serves_when_all_others_fail(lab: Lab) -> None:
    router = lab.router(pools=pools(), retries=0)
    await open_circuit(lab, router, "one")
    lab.fails(one="", two="fail=500", three="fail=500")
    started, _ = await answer(router, ask("say=hi"))
    assert (started.provider, kinds(started.tried)) == ("one", [("two", "Overloaded"), ("three", "Overloaded")])


async def test_refusals_do_not_open_it(lab: Lab) -> None:
    router = lab.router()
    for script in ("fail=400", "fail=404", "fail=401", "fail=context"):
        lab.fails(one=script)
        for _ in range(FAILURES):
            with pytest.raises(ProviderError):
                await collect(router, ask("hi", "one/mock-1"))
    assert (state_of(router, "one"), router.health()[0].failures) == ("closed", 0)


async def test_a_refusal_that_never_left_the_house_closes_nothing(lab: Lab) -> None:
    speaks_ollama = lab.row("one", api="ollama", base_url=lab.servers[0].origin)
    router = lab.router(speaks_ollama, pools=pools(), retries=0)
    await open_circuit(lab, router, "one")
    lab.time.now_s += COOL_DOWN_S
    with pytest.raises(BadRequest) as caught:
        await collect(router, ask("hi", "one/mock-1", response_format={"type": "grammar"}))
    assert caught.value.status is None
    assert state_of(router, "one") == "half_open"


async def test_answers_that_keep_breaking_off_open_it(lab: Lab) -> None:
    router = lab.router()
    lab.fails(one="tokens=3 cut=1")
    for _ in range(FAILURES):
        with pytest.raises(StreamCut):
            await collect(router, ask("hi"))
    assert (await answer(router, ask("say=hi")))[0].provider == "two"


# Too long


def windows(lab: Lab, **tokens: int | None) -> list[ProviderRow]:
    return [lab.row(name, models=(ModelInfo(id="mock-1", context_window=window),)) for name, window in tokens.items()]


async def test_a_conversation_that_is_too_long_goes_to_a_larger_window(lab: Lab) -> None:
    router = lab.router(*windows(lab, one=8000, two=8000, three=9000))
    lab.fails(one="fail=context", two="fail=context")
    started, _ = await answer(router, ask("say=hi"))
    assert (started.provider, kinds(started.tried)) == ("three", [("one", "ContextOverflow")])
    assert lab.calls == [1, 0, 1]


@pytest.mark.parametrize(("two", "three"), [(8000, 4000), (None, None)])
async def test_without_a_larger_window_it_is_the_askers_turn(lab: Lab, two: int | None, three: int | None) -> None:
    router = lab.router(*windows(lab, one=8000, two=two, three=three))
    lab.fails(one="fail=context")
    with pytest.raises(ContextOverflow, match="one: ") as caught:
        await collect(router, ask("hi"))
    assert (lab.calls, kinds(caught.value.tried)) == ([1, 0, 0], [("one", "ContextOverflow")])


async def test_too_long_counts_more_than_a_later_failure(lab: Lab) -> None:
    """A shorter conversation is the way out."""
    router = lab.router(*windows(lab, one=None, two=8000, three=9000), retries=0)
    lab.fails(one="fail=context", two="fail=context", three="fail=500")
    with pytest.raises(ContextOverflow, match="two: ") as caught:
        await collect(router, ask("hi"))
    assert kinds(caught.value.tried) == [
        ("one", "ContextOverflow"),
        ("two", "ContextOverflow"),
        ("three", "Overloaded"),
    ]


# Tools (BA-081)


async def test_a_model_without_tools_is_passed_over_by_requests_that_have_some(lab: Lab) -> None:
    """BA-081."""
    plain = lab.row("one", models=(ModelInfo(id="mock-1", tools=False),))
    router = lab.router(plain)
    started, _ = await answer(router, ask("say=hi", tools=tools("clock")))
    assert (started.provider, started.tried) == ("two", ())
    assert (await answer(router, ask("say=hi")))[0].provider == "one"
    with pytest.raises(ToolsUnsupported, match=r"^one/mock-1 cannot use tools, and the request has some$") as caught:
        await collect(lab.alone(plain), ask("hi", tools=tools("clock")))
    assert caught.value.provider == "one"
    assert lab.calls == [1, 1, 0]


async def test_whoever_cannot_use_optional_tools_answers_without(lab: Lab) -> None:
    plain = lab.row("two", models=(ModelInfo(id="mock-1", tools=False),))
    router = lab.router(plain, retries=0)
    lab.fails(one="fail=503")
    request = ask("say=hi", tools=tools("clock"), tools_optional=True, tool_choice="auto", parallel_tool_calls=False)
    assert (await answer(router, request))[0].provider == "two"
    assert "tools" in lab.servers[0].bodies[-1]
    assert {"tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(lab.servers[1].bodies[-1])


async def test_tools_are_offered_where_the_model_that_is_asked_first_can_use_them(lab: Lab) -> None:
    plain = lab.row("one", models=(ModelInfo(id="mock-1", tools=False),))
    router = lab.router(plain, pools=pools())
    offers = {name: router.offers_tools(name) for name in ("", "one", "one/mock-1", "two/mock-1", "three-first", "no")}
    assert offers == {
        **dict.fromkeys(("", "one", "one/mock-1", "no"), False),
        **dict.fromkeys(("two/mock-1", "three-first"), True),
    }


# How they are


async def test_health(lab: Lab) -> None:
    now = datetime(2026, 11, 21, 1, 20, tzinfo=UTC)
    models = (ModelInfo(id="mock-1"), ModelInfo(id="mock-2"))
    rows = (
        lab.row("one", title="The First", models=models, api_key=Secret("key-of-one")),
        lab.row("two", local=True),
    )
    router = lab.router(*rows, pools=pools(), clock=lambda: now, retries=0)
    before = router.health()
    assert [health.name for health in before] == ["one", "two", "three"]
    assert [health.auth for health in before] == ["key set", "no key needed", "no key"]
    assert all(health.healthy and health.state == "closed" for health in before)
    assert (before[0].title, before[0].api, before[0].priority, before[0].models) == (
        *("The First", "openai-completions", 0, models),
    )
    assert (before[0].last_error, before[0].last_success_ms, before[0].first_token_s) == (None, None, None)
    lab.fails(one="fail=500")
    await answer(router, ask("say=hi"))
    one, two, _ = router.health()
    assert (one.healthy, one.state, one.failures) == (False, "closed", 1)
    assert (one.last_error, one.last_error_ms) == ("one: scripted failure 500 (HTTP 500)", 1795224000000)
    assert (two.healthy, two.last_success_ms, two.first_token_s) == (True, 1795224000000, 0.0)
    await open_circuit(lab, router, "one")
    assert (router.health()[0].state, router.health()[0].opened_for_s) == ("open", COOL_DOWN_S)
    lab.fails(three="fail=401")
    await answer(router, ask("say=hi", "three-first"))
    three = router.health()[2]
    assert (three.healthy, three.refused, three.auth) == (
        *(False, True, "refused: three: scripted failure 401 (HTTP 401)"),
    )
    lab.fails(three="")
    await answer(router, ask("say=hi", "three-first"))
    assert (router.health()[2].healthy, router.health()[2].auth) == (True, "no key")


async def test_the_time_to_the_first_token_is_an_average_of_what_was_seen(
    server: ModelServer, make_router: MakeRouter
) -> None:
    router = make_router(row_of(server))
    await answer(router, ask("tokens=3 first=50 delay=30"))
    first = router.health()[0].first_token_s
    assert first is not None
    assert 0.045 < first < 1
    await answer(router, ask("say=now"))
    second = router.health()[0].first_token_s
    assert second is not None
    assert first * 0.79 < second < first


async def test_a_ping_asks_one_provider_for_a_few_tokens(lab: Lab) -> None:
    router = lab.router(lab.row("one", requests_per_minute=1, unlisted_models=True), pools=pools(), retries=0)
    await answer(router, ask("say=hi"))
    lab.fails(one="fail=503")
    with pytest.raises(Overloaded, match="one: scripted failure 503"):
        await router.ping("one")
    assert lab.calls == [2, 0, 0]
    lab.fails(one="")
    assert 0 <= await router.ping("one") < 1
    await router.ping("one", "other/model")
    body = lab.servers[0].bodies[-1]
    assert (body["model"], body["max_tokens"]) == ("other/model", 16)
    assert (router.health()[0].failures, router.health()[0].last_error) == (0, None)
    with pytest.raises(UnknownModel, match="nobody"):
        await router.ping("nobody")


# Leaving, and many at once


async def test_a_pool_may_be_left_while_it_runs(lab: Lab) -> None:
    lab.fails(one="fail=503")
    async with aclosing(lab.router().stream(ask("tokens=1000 delay=20"))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    await until(lambda: lab.servers[1].disconnects == 1)


async def test_a_pause_can_be_cancelled(lab: Lab) -> None:
    time = FakeTime(runs=False)
    router = lab.router(monotonic=time, sleep=time.sleep)
    lab.fails(one="fail=500")
    task = asyncio.create_task(answer(router, ask("hi")))
    await until(lambda: time.pauses == [0.2])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    lab.fails(one="")
    assert (await answer(router, ask("say=hi")))[0].provider == "one"


@pytest.mark.parametrize("steps", range(1, 60, 2))
async def test_cancelled_anywhere_the_next_request_is_served(lab: Lab, steps: int) -> None:
    router = lab.alone(lab.row("one", requests_per_minute=100), lab.row("two"), pools=pools(), retries=0)
    await open_circuit(lab, router, "one")
    lab.time.now_s += COOL_DOWN_S
    task = asyncio.create_task(answer(router, ask("tokens=20")))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lab.fails(one="")
    lab.time.now_s += COOL_DOWN_S
    started, message = await answer(router, ask("tokens=20"))
    assert (started.provider, text_of(message)[-3:]) == ("one", "w19")
    health = router.health()[0]
    assert (health.state, health.waiting) == ("closed", 0)


async def test_a_hundred_streams_at_once(lab: Lab) -> None:
    """BA-074."""
    router = lab.router()
    most = 0

    async def one(number: int) -> None:
        nonlocal most
        text = ""
        async for event in router.stream(ask(f"say=answer {number} for you delay=5")):
            if isinstance(event, TextDelta):
                text += event.text
                most = max(most, len(lab.servers[0].connections))
        assert text == f"answer {number} for you"

    async with asyncio.timeout(40), asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(one(number))
    assert most == 100
    assert lab.calls == [100, 0, 0]


async def test_what_nobody_has_read_yet_waits_at_the_provider(lab: Lab) -> None:
    """SK-057: whoever reads slowly slows the provider, and fills nothing here."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    delta = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 64_000)
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    deltas, written, at = 250, 0, 0.0
    loop = asyncio.get_running_loop()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written, at
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for _ in range(deltas):
            writer.write(delta)
            await writer.drain()
            written, at = written + 1, loop.time()
        writer.write(end)
        await writer.drain()
        writer.close()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)  # else the kernel keeps megabytes
    async with await asyncio.start_server(talk, sock=listener):
        port = listener.getsockname()[1]
        router = lab.alone(lab.row("one", base_url=f"http://127.0.0.1:{port}/v1"))
        said = 0
        async with aclosing(router.stream(ask("hi"))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    if not said:  # a pause, until the provider cannot go on
                        await until(lambda: written == deltas or loop.time() - at > 0.3)
                        assert written < deltas / 2
                    said += len(event.text)
    assert (said, written) == (deltas * 64_000, deltas)


# The conversation goes with the person, not with the model (BA-077, BA-079, BA-080)


async def test_the_next_model_knows_what_was_said_to_the_last_one(lab: Lab) -> None:
    """BA-079."""
    sees = lab.row("one", models=(ModelInfo(id="mock-1", reasoning=True, input=("text", "image")),))
    router = lab.router(sees)
    first = UserMessage([TextBlock("think=let me see tool=clock:{} say=it is noon")], 1)
    _, called = await answer(router, ModelRequest(messages=[first], model="one", system=("be kind",)))
    call = next(block for block in called.content if isinstance(block, ToolCallBlock))
    history: list[Message] = [
        first,
        called,
        ToolResultMessage(
            tool_call_id=call.id,
            tool_name="clock",
            content=[TextBlock("12:00"), ImageBlock("image/png", "aGVsbG8=")],
            is_error=False,
            timestamp=2,
        ),
    ]
    # within the turn: the other model takes over before the tool's result was answered
    lab.fails(one="fail=500")
    started, said = await answer(router, ModelRequest(messages=history, system=("be kind",)))
    assert (started.provider, text_of(said)) == ("two", "it is noon")
    body = lab.servers[1].bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "be kind"}
    assert body["messages"][2]["content"].startswith("<thinking>\nlet me see\n</thinking>")
    assert body["messages"][2]["tool_calls"][0]["id"] == body["messages"][3]["tool_call_id"]
    assert body["messages"][3]["content"] == "12:00[image/png, 1 KiB: an image that this model cannot see]"
    # and in the next one
    await answer(router, ask("say=still here", "three", [*history, said]))
    body = lab.servers[2].bodies[-1]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert "noon" in str(body["messages"][3])
    assert "let me see" not in str(body["messages"][1])


async def test_thinking_is_left_out_where_it_is_unknown(lab: Lab) -> None:
    thinks = lab.row("one", models=(ModelInfo(id="mock-1", reasoning=True),))
    router = lab.router(thinks)
    await answer(router, ask("say=hi", thinking="high"))
    assert lab.servers[0].bodies[-1]["reasoning_effort"] == "high"
    await answer(router, ask("say=hi", "two", thinking="high"))
    assert "reasoning_effort" not in lab.servers[1].bodies[-1]


async def test_every_member_of_a_pool_streams(lab: Lab) -> None:
    """SQ-098: whoever serves, the pieces and the whole are the same."""
    router = lab.router(pools=pools())
    for name in NAMES:
        events = await collect(router, ask("tokens=5", f"{name}-first"))
        finished = events[-1]
        assert isinstance(finished, Finished)
        deltas = [event.text for event in events if isinstance(event, TextDelta)]
        assert (finished.message.provider, len(deltas), "".join(deltas)) == (name, 5, text_of(finished.message))


async def test_a_key_never_appears_in_a_failure(server: ModelServer, make_router: MakeRouter) -> None:
    router = make_router(row_of(server))
    with pytest.raises(AuthFailed, match=r"Incorrect API key provided: \*\*\* \(HTTP 401\)"):
        await collect(router, ask("fail=401 say=Incorrect API key provided: key-of-lab"))
    assert "key-of-lab" not in str(router.health())


async def test_a_provider_says_what_it_offers(server: ModelServer, make_router: MakeRouter) -> None:
    router = make_router(row_of(server))
    assert [model.id for model in await router.discover("lab")] == list(MODELS)
    with pytest.raises(KeyError):
        await router.discover("nobody")
