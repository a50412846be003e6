"""OpenAI's own SDK, unmodified, against the surface."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.skynet.http.conftest import TOKEN, Surface, until

TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture
async def client(surface: Surface) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key=TOKEN, base_url=f"{surface.url}/v1", timeout=20) as opened:
        yield opened


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["skynet", "mock/mock-1", "mock/mock-2"]
    assert (await client.models.retrieve("mock/mock-1")).owned_by == "mock"


async def test_an_answer(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(model="skynet", messages=user("say=hello there"))
    assert completion.choices[0].message.content == "hello there"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 2
    assert completion._request_id


async def test_a_stream(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="openclaw:main", messages=user("tokens=20"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == " ".join(f"w{number}" for number in range(20))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20


async def test_a_tool_call_there_and_back(client: AsyncOpenAI) -> None:
    messages = user('tool=look:{"at":"sky"}')
    async with client.chat.completions.stream(model="mock/mock-1", messages=messages, tools=[TOOL]) as stream:
        completion = await stream.get_final_completion()
    message = completion.choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"at":"sky"}'
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "blue"},
    ]
    completion = await client.chat.completions.create(model="mock/mock-1", messages=messages, tools=[TOOL])
    assert completion.choices[0].message.content == "tool said: blue"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("fail=429:1", openai.RateLimitError),
        ("fail=context", openai.BadRequestError),
        ("fail=500", openai.InternalServerError),
        ("fail=401", openai.InternalServerError),
    ],
)
async def test_failures(client: AsyncOpenAI, script: str, error: type[openai.APIStatusError]) -> None:
    with pytest.raises(error) as caught:
        await client.with_options(max_retries=0).chat.completions.create(model="mock/mock-1", messages=user(script))
    assert caught.value.code
    assert not isinstance(caught.value, openai.AuthenticationError)


async def test_a_refused_key_of_the_gateway_is_not_tried_again(surface: Surface, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="mock/mock-1", messages=user("fail=401"))
    assert surface.models.served == 1


async def test_a_stream_that_breaks_off(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="mock/mock-1", messages=user("tokens=9 cut=4"), stream=True)
    shown = ""
    with pytest.raises(openai.APIError, match="broke off"):
        async for chunk in stream:
            shown += chunk.choices[0].delta.content or ""
    assert shown == "w0 w1 w2 w3"


async def test_wrong_keys_models_and_fields(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError) as not_found:
        await client.chat.completions.create(model="gpt-77", messages=user("x"))
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        await client.chat.completions.create(model="skynet", messages=user("x"), n=2)
    assert bad.value.param == "n"


async def test_closing_a_stream_stops_the_model(surface: Surface, client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="skynet", messages=user("tokens=2 hang"), stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await until(lambda: surface.models.disconnects == 1)
    await until(surface.idle)


async def test_many_at_once(client: AsyncOpenAI) -> None:
    async def ask(number: int) -> str | None:
        completion = await client.chat.completions.create(model="skynet", messages=user(f"say=answer {number}"))
        return completion.choices[0].message.content

    assert await asyncio.gather(*map(ask, range(30))) == [f"answer {number}" for number in range(30)]
