"""Every provider that is known by name, as configured and as the router asks it, before a scripted server.

What a section becomes in detail is in ``test_config``; each wire API's ways are in ``tests/skynet_agent``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from skynet.config import load_config
from skynet.models import provider_rows, unprotected
from skynet_agent.errors import AuthFailed, ContextOverflow, Overloaded, ProviderError, RateLimited, StreamCut
from skynet_agent.events import Finished, TextDelta
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
from skynet_agent.registry import REGISTRY, KnownProvider
from skynet_agent.requests import ModelOptions, ModelRequest, ToolDefinition
from skynet_agent.router import Router
from tests.support.model_server import ModelServer
from tests.support.polling import until

BY_KEY = [known for known in REGISTRY if known.row.auth in ("bearer", "x-api-key", "api-key", "anthropic")]
OWN_SERVERS = [known for known in BY_KEY if not known.needs_key]
HEADERS = {"bearer": "authorization", "x-api-key": "x-api-key", "anthropic": "x-api-key", "api-key": "api-key"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL = ToolDefinition(name="exec", description="Run a command.")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


def router_of(known: KnownProvider, server: ModelServer, home: Path, *, key: str) -> Router:
    """A router whose one provider is the registry's, at the server's address."""
    home.mkdir()
    models = "" if known.models else 'models = [{ id = "mock-1" }]'
    (home / "skynet.toml").write_text(f'[providers.{known.name}]\napi_key = "{key}"\n{models}')
    env = {"SKYNET_HOME": str(home), "AZURE_OPENAI_ENDPOINT": server.origin}
    (row,) = provider_rows(load_config(None, env=env))
    is_openai_like = row.api.startswith("openai")
    return Router([replace(row, base_url=server.url if is_openai_like else server.origin)], retries=0)


async def answer(router: Router, text: str, options: ModelOptions) -> AssistantMessage:
    return await finished(router, [UserMessage([TextBlock(text)], 1)], options)


async def finished(router: Router, messages: Sequence[Message], options: ModelOptions) -> AssistantMessage:
    request = ModelRequest(messages=messages, system=("You help.",), options=options)
    async with aclosing(router.stream(request)) as events:
        async for event in events:
            if isinstance(event, Finished):
                return event.message
    raise AssertionError("no end")


@pytest.mark.parametrize("known", BY_KEY, ids=lambda known: known.name)
async def test_a_key_alone_makes_it_usable(known: KnownProvider, server: ModelServer, tmp_path: Path) -> None:
    """SK-066, SK-067: its first model answers, and uses tools, however much it is to think."""
    router = router_of(known, server, tmp_path / "home", key="key-of-house")
    async with aclosing(router):
        message = await answer(router, "tokens=3", ModelOptions(max_tokens=100))
        assert text_of(message) == "w0 w1 w2"
        assert (message.provider, message.api) == (known.name, known.row.api)
        if known.name == "perplexity":  # its models take no tools
            return
        for level in ("off", "high", "xhigh"):
            message = await answer(router, 'tool=exec:{"x":1}', ModelOptions(tools=(TOOL,), thinking=level))
            (call,) = (block for block in message.content if isinstance(block, ToolCallBlock))
            assert (call.name, call.arguments) == ("exec", {"x": 1})
    header = server.requests[-1].headers[HEADERS[known.row.auth]]
    assert header.removeprefix("Bearer ") == "key-of-house"


FAILURES: Sequence[tuple[str, type[ProviderError]]] = (
    ("fail=context", ContextOverflow),
    ("fail=429:7", RateLimited),
    ("fail=500", Overloaded),
    ("fail=401", AuthFailed),
    ("tokens=5 cut=2", StreamCut),
    ("cut=0", StreamCut),
)


@pytest.mark.parametrize("known", BY_KEY, ids=lambda known: known.name)
async def test_each_passes_the_scenarios(known: KnownProvider, server: ModelServer, tmp_path: Path) -> None:
    """SK-057: with whatever is its own; in all ways there are the wire APIs pass them in ``test_scenarios``."""
    router = router_of(known, server, tmp_path / "home", key="key-of-house")
    async with aclosing(router):
        for script, said in (
            ("tokens=100", " ".join(f"w{number}" for number in range(100))),
            ("first=60 tokens=1", "w0"),
            ("say=日本語 👩‍👩‍👧‍👦 e\u0301 split=1", "日本語 👩‍👩‍👧‍👦 e\u0301"),
            ("empty", ""),
        ):
            assert text_of(await answer(router, script, ModelOptions())) == said
        seen = UserMessage([TextBlock("say=a dot"), ImageBlock("image/png", PNG)], 1)
        assert text_of(await finished(router, [seen], ModelOptions())).startswith("a dot")
        if router.offers_tools(""):
            await use_tools(router)
        for script, kind in FAILURES:
            with pytest.raises(ProviderError) as caught:
                await answer(router, script, ModelOptions())
            assert type(caught.value) is kind, script
            if isinstance(caught.value, RateLimited):
                assert caught.value.retry_after_s == 7
        request = ModelRequest(messages=[UserMessage([TextBlock("tokens=1 hang")], 1)])
        async with aclosing(router.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await until(lambda: server.disconnects == 1)


async def use_tools(router: Router) -> None:
    """Two rounds with thinking between them, the first of two calls at the same time."""
    options = ModelOptions(tools=(TOOL,), thinking="high")
    script = 'think=hm sign=c2ln tool=exec:{"n":1} tool=exec:{"n":2} next-round tool=exec:{"n":3} next-round say=done'
    messages: list[Message] = [UserMessage([TextBlock(script)], 1)]
    for expected in ([1, 2], [3], []):
        message = await finished(router, messages, options)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        assert [call.arguments["n"] for call in calls] == expected
        results = [ToolResultMessage(call.id, call.name, [TextBlock("ok")], False, 2) for call in calls]
        messages += [message, *results]
    assert text_of(message) == "done"


@pytest.mark.parametrize("known", OWN_SERVERS, ids=lambda known: known.name)
async def test_servers_of_ones_own_need_none(known: KnownProvider, server: ModelServer, tmp_path: Path) -> None:
    """SK-072, BA-066."""
    router = router_of(known, server, tmp_path / "home", key="")
    async with aclosing(router):
        message = await answer(router, "tokens=3", ModelOptions())
    assert message.usage is not None
    assert message.usage.cost_microusd == (0 if known.row.local else None)
    assert not {"authorization", "x-api-key", "api-key"} & set(server.requests[-1].headers)


@pytest.mark.parametrize(
    ("base_url", "fields", "is_told"),
    [
        ("http://lab.example.org/v1", 'api_key = "k"', True),
        ("http://192.168.1.5:8000/v1", 'headers = { X-Key = "k" }', True),
        ("http://lab.example.org/v1", "", False),
        ("https://lab.example.org/v1", 'api_key = "k"', False),
        ("http://127.0.0.1:8000/v1", 'api_key = "k"', False),
        ("http://[::1]:8000/v1", 'api_key = "k"', False),
        ("http://localhost:8000/v1", 'api_key = "k"', False),
    ],
)
def test_a_key_that_goes_unencrypted_is_told(tmp_path: Path, base_url: str, fields: str, is_told: bool) -> None:
    (tmp_path / "skynet.toml").write_text(f'[providers.lab]\nbase_url = "{base_url}"\n{fields}\n')
    rows = provider_rows(load_config(None, env={"SKYNET_HOME": str(tmp_path)}))
    words = f"provider lab: what proves who asks goes unencrypted to {base_url}; use https"
    assert unprotected(rows) == ([words] if is_told else [])
