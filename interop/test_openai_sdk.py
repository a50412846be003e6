"""The unmodified ``openai`` SDK against ``/v1``, with the gateway's token as its key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessageParam,
    ChatCompletionStreamOptionsParam,
    ChatCompletionToolParam,
)
from pydantic import BaseModel

from interop.gateway import PROVIDER_KEY, Gateway
from interop.models import Models
from interop.openclaw import OpenClaw
from interop.processes import until

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK_WEATHER = 'tool=get_weather:{"city":"Oslo"}'


@pytest.fixture
def client(gateway: Gateway) -> Iterator[OpenAI]:
    """An SDK that does not hide failures behind retries."""
    with OpenAI(base_url=f"{gateway.http_url}/v1", api_key=gateway.token, max_retries=0, timeout=30) as sdk:
        yield sdk


@pytest.fixture
async def async_client(gateway: Gateway) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.http_url}/v1", api_key=gateway.token, max_retries=0, timeout=30) as sdk:
        yield sdk


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def ask(client: OpenAI, text: str, **more: Any) -> ChatCompletion:
    """One question, answered whole."""
    completion = client.chat.completions.create(model="skynet", messages=user(text), **more)
    assert isinstance(completion, ChatCompletion)
    return completion


def spoken(body: dict[str, Any]) -> list[str]:
    """The roles of a request to the model, without the system prompt."""
    return [message["role"] for message in body["messages"] if message["role"] != "system"]


def test_models_are_listed_and_found(client: OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert {"skynet", "mock/mock-1"} <= listed.keys()
    assert (listed["mock/mock-1"].owned_by, listed["mock/mock-1"].object) == ("mock", "model")
    assert client.models.retrieve("mock/mock-1").id == "mock/mock-1"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/nothing")


def test_an_answer_in_one_piece(client: OpenAI, models: Models) -> None:
    completion = client.chat.completions.create(
        model="mock/mock-1",
        messages=[
            {"role": "system", "content": "You are a lighthouse."},
            {"role": "user", "content": [{"type": "text", "text": "tokens=6"}]},
        ],
        temperature=0.25,
        max_tokens=77,
        seed=5,
        stop=["END"],
    )
    assert (completion.object, completion.model) == ("chat.completion", "mock/mock-1")
    (choice,) = completion.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        "w0 w1 w2 w3 w4 w5",
        "stop",
    )
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (
        100,
        6,
        106,
    )
    (request,) = models.requests("tokens=6")
    assert request["model"] == "mock-1"
    assert (request["temperature"], request["seed"], request["stop"]) == (0.25, 5, ["END"])
    assert 77 in (request.get("max_tokens"), request.get("max_completion_tokens"))
    assert "You are a lighthouse." in str([each for each in request["messages"] if each["role"] == "system"])


@pytest.mark.parametrize("model", ["skynet", "openclaw", "openclaw:main", "openclaw/main", "mock/mock-1"])
def test_every_name_of_the_assistant_or_its_model_answers(client: OpenAI, models: Models, model: str) -> None:
    text = f"say=by the name of {model}"
    completion = client.chat.completions.create(model=model, messages=user(text))
    assert (completion.model, completion.choices[0].message.content) == (model, f"by the name of {model}")
    (request,) = models.requests(text)
    assert request["model"] == "mock-1"


def test_a_stream_has_each_word_its_end_and_no_usage_unless_asked(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="skynet", messages=user("tokens=5 delay=30"), stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    words = [delta.content for delta in deltas if delta.content]
    assert words == ["w0", " w1", " w2", " w3", " w4"]  # 30 ms apart: not gathered into one
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_usage_when_asked(client: OpenAI) -> None:
    options: ChatCompletionStreamOptionsParam = {"include_usage": True}
    *rest, last = client.chat.completions.create(
        model="skynet", messages=user("tokens=7"), stream=True, stream_options=options
    )
    assert all(chunk.usage is None and chunk.choices for chunk in rest)
    assert last.choices == [] and last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (100, 7, 107)


def test_the_sdk_s_own_stream_reader_puts_it_together(client: OpenAI) -> None:
    with client.chat.completions.stream(model="skynet", messages=user("say=put me together")) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert "".join(event.delta for event in events if event.type == "content.delta") == "put me together"
    assert events[-1].type == "content.done"
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == ("put me together", "stop")


def test_any_text_goes_there_and_back(client: OpenAI, models: Models) -> None:
    text = 'say=Grüße 👩‍👩‍👧 \u202e שלום \\ " </script> 日本'
    assert ask(client, text).choices[0].message.content == text.removeprefix("say=")
    assert models.requests(text)


def test_tool_calls_stream_back_and_their_results_are_answered(client: OpenAI, models: Models) -> None:
    with client.chat.completions.stream(model="skynet", messages=user(ASK_WEATHER), tools=[WEATHER]) as stream:
        fragments = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0]
    assert len(fragments) > 1  # arguments come in pieces
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls is not None
    (call,) = final.message.tool_calls
    assert (call.id, call.function.name) == ("call_0", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    (request,) = models.requests(ASK_WEATHER)
    assert request["tools"] == [WEATHER]

    conversation: list[ChatCompletionMessageParam] = [
        *user(ASK_WEATHER),
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": call.function.arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "rain, 4 degrees"},
    ]
    answered = client.chat.completions.create(model="skynet", messages=conversation, tools=[WEATHER])
    assert answered.choices[0].message.content == "tool said: rain, 4 degrees"
    body = models.requests(ASK_WEATHER)[-1]
    assert spoken(body) == ["user", "assistant", "tool"]
    sent = next(message for message in body["messages"] if message["role"] == "assistant")["tool_calls"]
    assert [(each["id"], each["function"]["name"]) for each in sent] == [("call_0", "get_weather")]
    assert json.loads(sent[0]["function"]["arguments"]) == {"city": "Oslo"}


def test_tool_calls_in_one_piece_and_in_parallel(client: OpenAI) -> None:
    text = 'tool=get_weather:{"city":"Rome"} tool=get_weather:{"city":"Bern"}'
    (choice,) = ask(client, text, tools=[WEATHER], tool_choice="auto").choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    cities = [
        json.loads(call.function.arguments)["city"] for call in choice.message.tool_calls if call.type == "function"
    ]
    assert cities == ["Rome", "Bern"]


class Place(BaseModel):
    city: str
    people: int


def test_a_response_format_reaches_the_model_and_is_parsed(client: OpenAI, models: Models) -> None:
    text = 'say={"city":"Bergen","people":290000}'
    completion = client.chat.completions.parse(model="skynet", messages=user(text), response_format=Place)
    assert completion.choices[0].message.parsed == Place(city="Bergen", people=290_000)
    (request,) = models.requests(text)
    assert request["response_format"]["type"] == "json_schema"
    assert request["response_format"]["json_schema"]["name"] == "Place"


def test_user_names_one_lasting_conversation(client: OpenAI, models: Models) -> None:
    assert ask(client, "say=I am Ann", user="ann").choices[0].message.content == "I am Ann"
    ask(client, "say=who am I", user="ann")
    (request,) = models.requests("say=who am I")
    assert spoken(request) == ["user", "assistant", "user"]
    assert "I am Ann" in str(request["messages"])
    ask(client, "say=and who am I", user="bob")
    (other,) = models.requests("say=and who am I")
    assert spoken(other) == ["user"]
    assert "Ann" not in str([each for each in other["messages"] if each["role"] != "system"])


def test_without_user_or_session_each_request_stands_alone(client: OpenAI, models: Models) -> None:
    ask(client, "say=alone the first time")
    ask(client, "say=alone the second time")
    (request,) = models.requests("say=alone the second time")
    assert spoken(request) == ["user"]


def test_a_session_header_joins_the_conversation_openclaw_clients_see(
    client: OpenAI, models: Models, owner: OpenClaw
) -> None:
    key = "agent:main:interop-http"
    header = {"x-openclaw-session-key": key}
    ask(client, "say=over HTTP", extra_headers=header)
    owner.call(
        "agent", {"sessionKey": key, "message": "say=over WebSocket", "idempotencyKey": "ws-http-1"}, "--expect-final"
    )
    ask(client, "say=over HTTP again", extra_headers=header)
    (request,) = models.requests("say=over HTTP again")
    assert spoken(request) == ["user", "assistant", "user", "assistant", "user"]
    history = owner.call("chat.history", {"sessionKey": key})
    texts = [message["content"][0]["text"] for message in history["messages"] if message["role"] == "assistant"]
    assert texts == ["over HTTP", "over WebSocket", "over HTTP again"]


async def test_streams_side_by_side_stay_apart(async_client: AsyncOpenAI) -> None:
    async def read(number: int) -> str:
        stream = await async_client.chat.completions.create(
            model="skynet", messages=user(f"say=stream number {number} of ten delay=20"), stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert await asyncio.gather(*map(read, range(10))) == [f"stream number {number} of ten" for number in range(10)]


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Bearer sk-sky-not-issued", "Bearer", "Basic eDp5"])
def test_a_wrong_key_is_an_authentication_error(gateway: Gateway, models: Models, authorization: str) -> None:
    header = {"Authorization": authorization}
    with OpenAI(base_url=f"{gateway.http_url}/v1", api_key="unused", max_retries=0, default_headers=header) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(client, "say=never")
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
    assert refused.value.status_code == 401
    assert refused.value.code == "invalid_api_key"
    assert models.requests("say=never") == []


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "only rules"}], user("")])
def test_no_user_message_is_a_bad_request(client: OpenAI, messages: list[ChatCompletionMessageParam]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="skynet", messages=messages)
    assert (refused.value.type, refused.value.param) == ("invalid_request_error", "messages")
    assert "user message" in refused.value.message


def test_a_wrong_field_is_named(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, "say=x", temperature=7)
    assert refused.value.param == "temperature"


def test_an_unknown_model_is_not_found(client: OpenAI, models: Models) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="nobody/nothing", messages=user("say=to nobody"))
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert models.requests("say=to nobody") == []


@pytest.mark.parametrize("stream", [False, True])
def test_the_model_s_rate_limit_is_a_rate_limit_error(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="skynet", messages=user("fail=429:7"), stream=stream)
    assert refused.value.response.headers["retry-after"] == "7"
    assert "429" in refused.value.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "status"), [("fail=503", 503), ("fail=500", 502), ("fail=401", 502), ("fail=403", 502)]
)
def test_the_model_s_failure_is_a_server_error_and_never_blamed_on_the_client(
    client: OpenAI, script: str, status: int, stream: bool
) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="skynet", messages=user(script), stream=stream)
    assert refused.value.status_code in (status, 503)
    assert refused.value.type == "api_error"
    assert PROVIDER_KEY not in refused.value.response.text


def test_a_too_long_conversation_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, "fail=context")
    assert refused.value.code == "context_length_exceeded"


def test_the_sdk_s_retry_succeeds_after_a_failure(gateway: Gateway) -> None:
    with OpenAI(base_url=f"{gateway.http_url}/v1", api_key=gateway.token, max_retries=2) as client:
        assert ask(client, "fail-once=503 say=second try").choices[0].message.content == "second try"


def test_a_cut_stream_raises_after_what_came(client: OpenAI) -> None:
    stream, text = client.chat.completions.create(model="skynet", messages=user("tokens=9 cut=3"), stream=True), ""
    with pytest.raises(openai.APIError):
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text == "w0 w1 w2"


def test_a_client_that_leaves_a_stream_ends_the_model_s_request(client: OpenAI, models: Models) -> None:
    gone = models.disconnects()
    stream = client.chat.completions.create(model="skynet", messages=user("tokens=5000 delay=40"), stream=True)
    first = next(chunk for chunk in stream if chunk.choices[0].delta.content)
    assert first.choices[0].delta.content == "w0"
    stream.close()
    until(lambda: models.disconnects() == gone + 1, 5, "the request to the model ended")


def test_a_client_that_stops_waiting_ends_the_model_s_request(client: OpenAI, models: Models) -> None:
    gone = models.disconnects()
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=1), "hang")
    until(lambda: models.disconnects() == gone + 1, 5, "the request to the model ended")
