"""The scripted Anthropic server: Anthropic's own SDK understands it, and it refuses what Anthropic refuses."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from tests.support.dialects.anthropic_messages import AnthropicMessages
from tests.support.model_server import ModelServer
from tests.support.script import Refused, Seen, parse_script

MARK = {"cache_control": {"type": "ephemeral"}}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


def seen(body: Any, **headers: str) -> Seen:
    return Seen("POST", "/v1/messages", {"x-api-key": "key", "anthropic-version": "2023-06-01", **headers}, body)


@pytest.fixture
async def sdk(server: ModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(api_key="key", base_url=server.origin, max_retries=0) as client:
        yield client


TOOL: Any = {"name": "exec", "input_schema": {"type": "object"}}
USES: Any = [{"type": "tool_use", "id": "a", "name": "exec", "input": {}}]
RESULTS: Any = [{"type": "tool_result", "tool_use_id": "a", "content": "out"}]
HI: Any = {"role": "user", "content": "hi"}


async def test_the_vendors_client_understands_the_stream(sdk: anthropic.AsyncAnthropic) -> None:
    asked: Any = {"role": "user", "content": 'think=let me see say=so it is tool=exec:{"command":"ls -l"} tool=exec:{}'}
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    stream = sdk.messages.stream(model="m", max_tokens=2000, messages=[asked], tools=[TOOL], thinking=thinking)
    async with stream as events:
        texts = [text async for text in events.text_stream]
        message = await events.get_final_message()
    assert texts == ["so", " it", " is"]
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[2].input == {"command": "ls -l"}  # type: ignore[union-attr]
    assert message.stop_reason == "tool_use"
    results: Any = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "out"}
        for block in message.content
        if block.type == "tool_use"
    ]
    history: Any = [asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    answer = await sdk.messages.create(model="m", max_tokens=2000, messages=history, tools=[TOOL], thinking=thinking)
    assert answer.content[0].text == "so it is"  # type: ignore[union-attr]


async def test_the_vendors_client_understands_a_whole_answer(sdk: anthropic.AsyncAnthropic) -> None:
    message = await sdk.messages.create(
        model="m",
        max_tokens=9,
        tools=[TOOL],
        messages=[{"role": "user", "content": 'think=hm sign=s tool=exec:{"a":1}'}],
    )
    assert [block.model_dump(include={"type", "thinking", "signature", "input"}) for block in message.content] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "input": {"a": 1}},
    ]
    assert message.usage.input_tokens == 100
    assert [model.id async for model in sdk.models.list()] == ["mock-1", "mock-2"]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("fail=401", anthropic.AuthenticationError),
        ("fail=413", anthropic.ContentTooLargeError),
        ("fail=429:7", anthropic.RateLimitError),
        ("fail=500", anthropic.InternalServerError),
        ("fail=529", anthropic.OverloadedError),
        ("fail=context", anthropic.BadRequestError),
        ("say=a error-in-stream", anthropic.APIStatusError),
    ],
)
async def test_the_vendors_client_understands_failures(
    script: str, error: type[Exception], sdk: anthropic.AsyncAnthropic
) -> None:
    with pytest.raises(error):
        async with sdk.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": script}]
        ) as stream:
            await stream.get_final_message()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": ""}, "model: Field required"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": 10**6}, "maximum allowed number of output tokens"),
        ({"seed": 1}, "seed: Extra inputs"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "system", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": []}]}, "non-empty content"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "first message"),
        ({"messages": [{"role": "user", "content": [text(" ")]}]}, "non-whitespace"),
        ({"messages": [HI, {"role": "assistant", "content": "x "}]}, "trailing whitespace"),
        ({"messages": [HI, {"role": "user", "content": RESULTS}]}, "unexpected `tool_use_id`"),
        ({"messages": [HI, {"role": "assistant", "content": USES}, HI]}, "without `tool_result` blocks"),
        ({"messages": [HI, {"role": "assistant", "content": USES}]}, "without `tool_result` blocks"),
        (
            {
                "messages": [
                    HI,
                    {"role": "assistant", "content": USES},
                    {"role": "user", "content": [text("a"), *RESULTS]},
                ]
            },
            "without `tool_result` blocks immediately after",
        ),
        (
            {"messages": [HI, {"role": "assistant", "content": USES}, {"role": "user", "content": RESULTS * 2}]},
            "single result",
        ),
        ({"messages": [HI, {"role": "assistant", "content": USES * 2}, HI]}, "must be unique"),
        (
            {"messages": [HI, *[{"role": "assistant", "content": USES}, {"role": "user", "content": RESULTS}] * 2]},
            "must be unique",
        ),
        (
            {
                "messages": [HI, {"role": "assistant", "content": USES}, {"role": "user", "content": RESULTS}],
                "tools": [],
            },
            "must define tools",
        ),
        (
            {
                "messages": [
                    HI,
                    {"role": "assistant", "content": [{**USES[0], "id": "a b"}]},
                    {"role": "user", "content": [{**RESULTS[0], "tool_use_id": "a b"}]},
                ]
            },
            "match pattern",
        ),
        (
            {
                "messages": [
                    HI,
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}]},
                ]
            },
            "cannot be `thinking`",
        ),
        (
            {
                "messages": [
                    HI,
                    {
                        "role": "assistant",
                        "content": [{"type": "thinking", "thinking": "", "signature": "s"}, text("x")],
                    },
                ]
            },
            "Invalid `signature`",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]},
            "expected blocks",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AA=="}}
                        ],
                    }
                ]
            },
            "media_type",
        ),
        (
            {"system": [text("a", **MARK)] * 3, "messages": [{"role": "user", "content": [text("a", **MARK)] * 2}]},
            "Found 5",
        ),
        ({"system": [text("")]}, "system"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "must be greater than"),
        ({"thinking": {"type": "adaptive"}, "temperature": 0.5}, "may only be set to 1"),
        ({"thinking": {"type": "adaptive"}, "tool_choice": {"type": "any"}}, "forces tool use"),
        ({"thinking": {"type": "sometimes"}}, "thinking"),
        (
            {
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "messages": [HI, {"role": "assistant", "content": USES}, {"role": "user", "content": RESULTS}],
            },
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
        ),
        ({"output_config": {"effort": "minimal"}}, "effort"),
        ({"output_config": {"format": {"type": "json_object"}}}, "format"),
        ({"temperature": 1.5}, "range"),
        ({"temperature": 0.5, "top_p": 0.5}, "cannot both"),
        ({"stop_sequences": ["\n"]}, "non-whitespace"),
        ({"tools": [{"name": "exec", "input_schema": {}}]}, "input_schema"),
        ({"tools": [TOOL, TOOL]}, "unique"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, "not found"),
        ({"tools": None, "tool_choice": {"type": "auto"}}, "while providing tools"),
        ({"metadata": {"user_id": "u" * 257}}, "256"),
    ],
)
def test_the_scripted_server_refuses_what_anthropic_refuses(change: dict[str, Any], words: str) -> None:
    sound = {"model": "m", "max_tokens": 2048, "messages": [HI], "tools": [TOOL]}
    dialect = AnthropicMessages()
    dialect.ask(seen(sound))
    with pytest.raises(Refused, match=words):
        dialect.ask(seen({name: value for name, value in {**sound, **change}.items() if value is not None}))


def test_the_scripted_server_knows_its_own_signatures() -> None:
    dialect = AnthropicMessages()
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [HI], "tools": [TOOL]}
    signature = dialect.signatures.of(parse_script("think=hm tool=exec:{}"), asked)
    thought = {"type": "thinking", "thinking": "hm", "signature": signature}
    again = [{"role": "assistant", "content": [thought, *USES]}, {"role": "user", "content": RESULTS}]
    dialect.ask(seen({**asked, "messages": [HI, *again]}))
    dialect.ask(seen({**asked, "messages": [{"role": "user", "content": [text("hi", **MARK)]}, *again]}))
    with pytest.raises(Refused, match="bound to a different conversation"):
        dialect.ask(seen({**asked, "messages": [{"role": "user", "content": "ho"}, *again]}))
    thought["thinking"] = "ha"
    with pytest.raises(Refused, match="Invalid `signature`"):
        dialect.ask(seen({**asked, "messages": [HI, *again]}))


@pytest.mark.parametrize(
    "headers",
    [
        {"anthropic-version": "2020-01-01"},
        {"x-api-key": ""},
        {"x-api-key": "sk-ant-oat01-x"},
        {"x-api-key": "", "authorization": "Bearer sk-ant-oat01-x"},
        {"x-api-key": "", "authorization": "Bearer sk-ant-oat01-x", "anthropic-beta": "other"},
    ],
)
def test_the_scripted_server_refuses_headers(headers: dict[str, str]) -> None:
    with pytest.raises(Refused):
        AnthropicMessages().ask(seen({"model": "m", "max_tokens": 9, "messages": [HI]}, **headers))
