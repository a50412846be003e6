"""Which provider is asked, which one next, and what the names mean."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime

import pytest

from skynet_agent.errors import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamCut,
    UnknownModel,
)
from skynet_agent.events import Attempt, Finished, ModelEvent, Started, TextDelta
from skynet_agent.messages import text_of
from skynet_agent.offline import NOT_ANSWERING, NOT_CONFIGURED
from skynet_agent.providers import OFFLINE, ModelInfo, ProviderRow
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from tests.skynet_agent.lab import ask, row_of, until
from tests.support.model_server import ModelServer

MakeRouter = Callable[..., Router]


def row(name: str, *models: str, **fields: object) -> ProviderRow:
    infos = tuple(ModelInfo(id=model) for model in models)
    return ProviderRow(name=name, base_url="http://127.0.0.1:9/v1", models=infos, **fields)  # type: ignore[arg-type]


def targets(router: Router, name: str) -> list[str]:
    """Who would be asked, in order."""
    return [target.name for target in router._route(name).targets]


async def collect(router: Router, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in router.stream(request)]


# Names

ROWS = (
    row("low", "m-low", "shared", priority=-1),
    row("a", "m-a", "shared"),
    row("high", "m-high", "shared", "org/shared", priority=10),
    row("b", "org/shared"),
    row("open", "m-open", unlisted_models=True),
    row("bare"),
)
NAMES: Mapping[str, object] = {
    "aliases": {
        "fast": "a/m-a",
        "faster": "fast",
        "loop": "pool",
        "smart": "pool",
        "shared-alias": "shared",
        "ghost": "x/y",
    },
    "pools": {
        "pool": ["low", "b/org/shared", "a/shared", "gone/m"],
        "with-offline": ["a/m-a", "offline"],
        "nested": ["fast", "pool"],
        "empty": [],
        "ghosts": ["x/y"],
        "circle": ["circle2"],
        "circle2": ["circle"],
    },
}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("", ["high/m-high", "a/m-a", "b/org/shared", "open/m-open", "low/m-low"]),
        ("a", ["a/m-a"]),
        ("a/m-a", ["a/m-a"]),
        ("a/shared", ["a/shared", "high/shared", "low/shared"]),
        ("shared", ["high/shared", "a/shared", "low/shared"]),
        ("org/shared", ["high/org/shared", "b/org/shared"]),
        ("b/org/shared", ["b/org/shared", "high/org/shared"]),
        ("open/any/thing", ["open/any/thing"]),
        ("open/shared", ["open/shared", "high/shared", "a/shared", "low/shared"]),
        ("bare/anything", ["bare/anything"]),
        ("fast", ["a/m-a"]),
        ("faster", ["a/m-a"]),
        ("shared-alias", ["high/shared", "a/shared", "low/shared"]),
        ("pool", ["low/m-low", "b/org/shared", "a/shared"]),
        ("smart", ["low/m-low", "b/org/shared", "a/shared"]),
        ("nested", ["a/m-a", "low/m-low", "b/org/shared", "a/shared"]),
        ("with-offline", ["a/m-a", "offline/assistant"]),
        ("offline", ["offline/assistant"]),
        ("offline/assistant", ["offline/assistant"]),
    ],
)
def test_names(name: str, asked: list[str]) -> None:
    router = Router(ROWS, **NAMES)  # type: ignore[arg-type]
    assert targets(router, name) == asked
    assert router.resolve(name).name == asked[0]


@pytest.mark.parametrize(
    "name", ["nobody", "a/nothing", "a/", "/m-a", "bare", "x/y", "ghost", "ghosts", "empty", "circle"]
)
def test_unknown_names_say_what_exists(name: str) -> None:
    router = Router(ROWS, **NAMES)  # type: ignore[arg-type]
    with pytest.raises(UnknownModel) as caught:
        router.resolve(name)
    assert {"a/m-a", "pool", "fast", "high/org/shared"} <= set(caught.value.known)
    assert "available: pool," in str(caught.value)


@pytest.mark.parametrize(
    ("default", "asked"),
    [
        (
            "a/shared",
            [
                "a/shared",
                "high/shared",
                "low/shared",
                "high/m-high",
                "a/m-a",
                "b/org/shared",
                "open/m-open",
                "low/m-low",
            ],
        ),
        ("low", ["low/m-low", "high/m-high", "a/m-a", "b/org/shared", "open/m-open"]),
        ("pool", ["low/m-low", "b/org/shared", "a/shared"]),
        ("offline", ["offline/assistant", "high/m-high", "a/m-a", "b/org/shared", "open/m-open", "low/m-low"]),
    ],
)
def test_the_default_falls_back_to_first_models(default: str, asked: list[str]) -> None:
    assert targets(Router(ROWS, default_model=default, **NAMES), "") == asked  # type: ignore[arg-type]


def test_offline_serves_only_without_providers() -> None:
    assert targets(Router([]), "") == ["offline/assistant"]
    assert targets(Router([], default_model="openai/gpt"), "") == ["offline/assistant"]
    assert targets(Router([row("a", "m"), OFFLINE]), "") == ["a/m"]
    with pytest.raises(UnknownModel, match="available: offline/assistant"):
        Router([]).resolve("openai/gpt")
    with pytest.raises(UnknownModel, match="no provider lists a model"):
        Router([row("bare")]).resolve("")


def test_models_and_default() -> None:
    router = Router(ROWS, default_model="a/shared")
    listed = [model.name for model in router.models()]
    assert listed[:4] == ["high/m-high", "high/shared", "high/org/shared", "a/m-a"]
    assert (router.default().provider, router.default().model, router.default().context_window) == ("a", "shared", None)
    assert [model.name for model in Router([]).models()] == ["offline/assistant"]
    assert Router([]).default().name == "offline/assistant"
    ghost = Router(ROWS, default_model="gone/m").default()
    assert (ghost.provider, ghost.model, ghost.api) == ("gone", "m", "")


def test_problems_name_what_leads_nowhere() -> None:
    problems = Router(ROWS, default_model="gone/m", **NAMES).problems()  # type: ignore[arg-type]
    assert [problem.split(": unknown")[0] for problem in problems] == [
        "the default model",
        "alias 'ghost'",
        "pool 'pool'",
        "pool 'empty'",
        "pool 'ghosts'",
        "pool 'circle'",
        "pool 'circle2'",
    ]
    assert Router([], default_model="openai/gpt").problems() == []


def test_rows_are_checked() -> None:
    with pytest.raises(ValueError, match="same name"):
        Router([row("a"), row("a")])
    with pytest.raises(ValueError, match="unknown api 'telepathy'; allowed: offline, openai-completions"):
        Router([row("a", api="telepathy")])


# Calls: three servers, asked in the order one, two, three.


class Lab:
    """Three providers with a model server each."""

    def __init__(self, servers: list[ModelServer], make_router: MakeRouter) -> None:
        self.servers = servers
        self._make_router = make_router

    def router(self, **settings: object) -> Router:
        rows = [
            ProviderRow(name=name, base_url=server.url, priority=priority, models=(ModelInfo(id="mock-1"),))
            for name, priority, server in zip(("one", "two", "three"), (2, 1, 0), self.servers, strict=True)
        ]
        return self._make_router(*rows, **settings)

    @property
    def calls(self) -> list[int]:
        return [server.served for server in self.servers]


@pytest.fixture
async def lab(make_router: MakeRouter) -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        yield Lab([await stack.enter_async_context(ModelServer()) for _ in range(3)], make_router)


def fails(lab: Lab, **scripts: str) -> None:
    """Let a provider answer every message by this script; an empty one is the message again."""
    for name, script in scripts.items():
        lab.servers[["one", "two", "three"].index(name)].script = script


async def test_the_highest_priority_alone_is_asked(lab: Lab) -> None:
    events = await collect(lab.router(), ask("tokens=2"))
    assert events[:3] == [Started("one", "mock-1", "openai-completions"), TextDelta("w0"), TextDelta(" w1")]
    assert isinstance(events[3], Finished)
    assert lab.calls == [1, 0, 0]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("fail=429:7", "RateLimited"),
        ("fail=500", "Overloaded"),
        ("fail=503", "Overloaded"),
        ("fail=529", "Overloaded"),
        ("fail=408", "ProviderTimeout"),
        ("cut=0", "StreamCut"),
        ("error-in-stream", "Overloaded"),
    ],
)
@pytest.mark.parametrize("name", ["", "one/mock-1", "mock-1", "pool"])
async def test_retriable_failures_move_on(lab: Lab, script: str, kind: str, name: str) -> None:
    fails(lab, one=script)
    events = await collect(lab.router(pools={"pool": ["one", "two"]}), ask("say=hello", name))
    started = events[0]
    assert isinstance(started, Started)
    assert (started.provider, [(attempt.provider, attempt.kind) for attempt in started.tried]) == (
        "two",
        [("one", kind)],
    )
    assert isinstance(started.tried[0], Attempt)
    assert started.tried[0].message.startswith("one: ")
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.message.provider, text_of(finished.message)) == ("two", "hello")
    assert lab.calls == [1, 1, 0]


@pytest.mark.parametrize(
    ("script", "kind"),
    [("fail=400", BadRequest), ("fail=404", BadRequest), ("fail=401", AuthFailed), ("fail=context", ContextOverflow)],
)
async def test_other_failures_do_not(lab: Lab, script: str, kind: type[ProviderError]) -> None:
    fails(lab, one=script)
    for name in ("", "one/mock-1", "mock-1"):
        with pytest.raises(kind):
            await collect(lab.router(), ask("hi", name))
    assert lab.calls == [3, 0, 0]


async def test_authentication_moves_on_in_a_pool_with_a_warning(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    fails(lab, one="fail=401")
    with caplog.at_level(logging.WARNING, logger="skynet_agent.router"):
        events = await collect(lab.router(pools={"pool": ["one", "three"]}), ask("say=hi", "pool"))
    assert isinstance(events[-1], Finished)
    assert lab.calls == [1, 0, 1]
    assert "one/mock-1 failed (AuthFailed)" in caplog.text


async def test_a_refusal_ends_a_pool_too(lab: Lab) -> None:
    fails(lab, one="fail=400")
    with pytest.raises(BadRequest):
        await collect(lab.router(pools={"pool": ["one", "two"]}), ask("hi", "pool"))
    assert lab.calls == [1, 0, 0]


async def test_all_fail_the_last_error_counts(lab: Lab) -> None:
    fails(lab, one="fail=500", two="fail=503", three="fail=429:9")
    with pytest.raises(RateLimited, match=r"three: scripted failure 429 \(HTTP 429\)") as caught:
        await collect(lab.router(), ask("hi"))
    assert caught.value.retry_after_s == 9
    assert lab.calls == [1, 1, 1]


async def test_nothing_is_remembered(lab: Lab) -> None:
    router = lab.router()
    fails(lab, one="fail=500")
    await collect(router, ask("say=1"))
    fails(lab, one="")
    events = await collect(router, ask("say=2"))
    assert isinstance(events[0], Started)
    assert (events[0].provider, events[0].tried) == ("one", ())
    assert lab.calls == [2, 1, 0]


@pytest.mark.parametrize("script", ["tokens=5 cut=2", "tokens=2 error-in-stream", "think=a,b cut=1"])
async def test_after_the_first_token_nobody_else_is_asked(lab: Lab, script: str) -> None:
    fails(lab, one=script)
    router = lab.router()
    draft = router.draft()
    with pytest.raises(StreamCut) as caught:
        async for _ in router.stream(ask("hi"), draft=draft):
            pass
    assert caught.value.provider == "one"
    assert isinstance(caught.value.__cause__, ProviderError)
    assert draft.message("error").content
    assert lab.calls == [1, 0, 0]


async def test_offline_is_asked_last_when_a_pool_lists_it(lab: Lab) -> None:
    fails(lab, one="fail=503")
    events = await collect(lab.router(pools={"pool": ["one", "offline"]}), ask("echo x", "pool"))
    assert isinstance(events[-1], Finished)
    assert text_of(events[-1].message) == f"{NOT_ANSWERING}\n\nx"
    with pytest.raises(Overloaded):
        await collect(lab.router(), ask("hi", "one"))


async def test_without_providers_offline_serves(make_router: MakeRouter) -> None:
    router = make_router(clock=lambda: datetime(2026, 11, 21, 1, 20, tzinfo=UTC))
    await router.warm_up()
    events = await collect(router, ask("2+2"))
    assert events[0] == Started("offline", "assistant", "offline")
    assert isinstance(events[-1], Finished)
    message = events[-1].message
    assert text_of(message) == f"{NOT_CONFIGURED}\n\n2+2 = 4"
    assert (message.provider, message.stop_reason, message.timestamp) == ("offline", "stop", 1795224000000)
    assert message.usage is not None
    assert message.usage.cost_microusd == 0


async def test_an_unknown_model_asks_nobody(lab: Lab) -> None:
    with pytest.raises(UnknownModel, match="unknown model 'gpt-9'; available: one/mock-1, two/mock-1, three/mock-1"):
        await collect(lab.router(), ask("hi", "gpt-9"))
    assert lab.calls == [0, 0, 0]


async def test_a_pool_may_be_left_while_it_runs(lab: Lab) -> None:
    fails(lab, one="fail=503")
    router = lab.router()
    async with aclosing(router.stream(ask("tokens=1000 delay=20"))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    await until(lambda: lab.servers[1].disconnects == 1)


async def test_a_key_never_appears_in_a_failure(server: ModelServer, make_router: MakeRouter) -> None:
    with pytest.raises(AuthFailed, match=r"Incorrect API key provided: \*\*\* \(HTTP 401\)"):
        await collect(make_router(row_of(server)), ask("fail=401 say=Incorrect API key provided: key-of-lab"))
