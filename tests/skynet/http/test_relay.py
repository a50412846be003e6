"""From a run's events to what the server is asked to send."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from skynet.http.chat_answer import Answer, ChunkEncoder
from skynet.http.errors import HttpError
from skynet.http.relay import SEND_BYTES, Relay
from skynet_agent.events import Finished, Started, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.messages import AssistantMessage, Usage

USAGE = Usage(input=1, output=2, cache_read=0, cache_write=0, total=3)
ANSWER = Answer(text="ab", tool_calls=(), finish_reason="stop", usage=USAGE, provider="p", model="m")
MESSAGE = AssistantMessage(content=[], api="a", provider="p", model="m", stop_reason="stop", timestamp=1)
STARTED = Started("p", "m", "openai-completions")


def encoder() -> ChunkEncoder:
    return ChunkEncoder(completion_id="c", created_s=1, model="m", include_usage=False)


class Client:
    """The sending side of ASGI: keeps what is sent; while ``reading`` is clear it takes nothing more."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.on_send: Callable[[], None] = lambda: None

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        self.sent.append(message)
        self.on_send()

    @property
    def head(self) -> dict[str, str]:
        assert self.sent[0]["type"] == "http.response.start"
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]


async def test_what_came_meanwhile_leaves_in_one_piece() -> None:
    relay, client, encode = Relay(encoder(), limit_bytes=10_000), Client(), encoder()
    async with asyncio.TaskGroup() as group:
        group.create_task(relay.send_all(client.send, ((b"x-test", b"1"),)))
        for event in (STARTED, ThinkingDelta("hm"), TextDelta("a"), TextDelta(""), TextDelta("b")):
            assert relay.on_event(event)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        relay.on_event(ToolCallDelta(0, "i", "n", "{}"))
        relay.on_event(Finished(MESSAGE))
        relay.complete(ANSWER)
    assert client.sent[0]["status"] == 200
    assert client.head["x-skynet-model"] == "p/m"
    assert client.head["x-test"] == "1"
    assert client.bodies == [
        encode.role() + encode.text("a") + encode.text("b"),
        encode.tool_call(ToolCallDelta(0, "i", "n", "{}")) + encode.end("stop", USAGE),
    ]
    assert [message["more_body"] for message in client.sent[1:]] == [True, False]


async def test_an_empty_answer_is_a_whole_stream() -> None:
    relay, client, encode = Relay(encoder(), limit_bytes=10_000), Client(), encoder()
    relay.complete(replace(ANSWER, text=""))
    await relay.send_all(client.send, ())
    assert client.bodies == [encode.role() + encode.end("stop", USAGE)]
    assert client.head["x-skynet-model"] == "p/m"


async def test_what_the_gateway_says_itself_is_sent_though_no_model_said_it() -> None:
    relay, client, encode = Relay(encoder(), limit_bytes=10_000), Client(), encoder()
    relay.complete(replace(ANSWER, text="Not now."))
    await relay.send_all(client.send, ())
    assert client.bodies == [encode.role() + encode.text("Not now.") + encode.end("stop", USAGE)]


async def test_nothing_is_sent_before_the_first_delta() -> None:
    relay, client = Relay(encoder(), limit_bytes=10_000), Client()
    async with asyncio.TaskGroup() as group:
        group.create_task(relay.send_all(client.send, ()))
        relay.on_event(STARTED)
        for _ in range(5):
            await asyncio.sleep(0)
        assert client.sent == []
        relay.fail(HttpError(503, "no", code="x"))
    assert client.sent[0]["status"] == 503
    assert b'"code":"x"' in client.bodies[0]


async def test_a_failure_after_the_first_delta_is_an_event() -> None:
    relay, client = Relay(encoder(), limit_bytes=10_000), Client()
    relay.on_event(TextDelta("a"))
    relay.fail(HttpError(502, "cut"))
    assert relay.on_event(TextDelta("late"))
    relay.complete(ANSWER)
    await relay.send_all(client.send, ())
    (body,) = client.bodies
    assert body.endswith(
        b'data: {"error":{"message":"cut","type":"invalid_request_error","param":null,"code":null}}\n\n'
    )
    assert b"late" not in body


async def test_a_reader_that_is_too_slow() -> None:
    relay, client = Relay(encoder(), limit_bytes=5000), Client()
    async with asyncio.TaskGroup() as group:
        group.create_task(relay.send_all(client.send, ()))
        relay.on_event(TextDelta("first"))
        client.reading.clear()
        await asyncio.sleep(0)
        stopped_after = next(number for number in range(1000) if not relay.on_event(TextDelta("x" * 100)))
        assert stopped_after < 50
        assert relay.overflowed
        client.reading.set()
    assert b"slow_consumer" in client.bodies[-1]
    assert b"[DONE]" not in b"".join(client.bodies)
    assert client.sent[-1]["more_body"] is False


async def test_much_is_sent_in_whole_events() -> None:
    relay, client = Relay(encoder(), limit_bytes=100 * SEND_BYTES), Client()
    for _ in range(20):
        relay.on_event(TextDelta("x" * (SEND_BYTES // 5)))
    relay.complete(ANSWER)
    await relay.send_all(client.send, ())
    assert len(client.bodies) > 3
    assert all(body.endswith(b"\n\n") and len(body) < 2 * SEND_BYTES for body in client.bodies)
    assert b"".join(client.bodies).count(b"x" * (SEND_BYTES // 5)) == 20


async def test_a_client_that_leaves() -> None:
    relay, client = Relay(encoder(), limit_bytes=10_000), Client()
    relay.leave()
    await relay.send_all(client.send, ())
    assert client.sent == []
    relay = Relay(encoder(), limit_bytes=10_000)
    relay.on_event(TextDelta("a"))
    client.on_send = relay.leave
    await relay.send_all(client.send, ())
    assert len(client.sent) == 1
    assert relay.gone
    assert relay.on_event(TextDelta("b"))


async def test_a_kept_answer() -> None:
    relay, client, encode = Relay(encoder(), limit_bytes=0), Client(), encoder()
    relay.replay(ANSWER)
    await relay.send_all(client.send, ())
    assert client.bodies == [encode.whole(ANSWER)]


async def test_a_model_name_that_no_header_can_carry() -> None:
    for name in ("ä", "a\nb"):
        relay, client = Relay(encoder(), limit_bytes=10_000), Client()
        relay.on_event(Started("p", name, "a"))
        relay.complete(ANSWER)
        await relay.send_all(client.send, ())
        assert "x-skynet-model" not in client.head
