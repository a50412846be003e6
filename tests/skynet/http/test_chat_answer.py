"""What a client of chat completions reads, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.run_answer import RunResult
from skynet.http.chat_answer import (
    Answer,
    ChunkEncoder,
    StoredFailure,
    ToolCallText,
    answer_of,
    encode_completion,
    encode_stream_error,
    stored_answer,
)
from skynet.http.errors import HttpError
from skynet_agent.events import ToolCallDelta
from skynet_agent.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from skynet_memory.ids import RunId

USAGE = Usage(input=10, output=5, cache_read=3, cache_write=2, total=20)
OPENAI_USAGE = {
    "prompt_tokens": 15,
    "completion_tokens": 5,
    "total_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 3},
}


def encoder(*, include_usage: bool = False) -> ChunkEncoder:
    return ChunkEncoder(completion_id="chatcmpl_1", created_s=7, model="skynet", include_usage=include_usage)


def events(data: bytes) -> list[Any]:
    """The data of each event; fails on anything else in the stream."""
    assert data.endswith(b"\n\n")
    parsed: list[Any] = []
    for event in data[:-2].split(b"\n\n"):
        assert event.startswith(b"data: ")
        assert b"\n" not in event
        parsed.append("[DONE]" if event == b"data: [DONE]" else json.loads(event[6:]))
    return parsed


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl_1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "skynet",
        "system_fingerprint": None,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
    }


def test_chunks_without_usage() -> None:
    encode = encoder()
    data = encode.role() + encode.text("hi") + encode.text(' "you"\n') + encode.end("stop", USAGE)
    assert events(data) == [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "hi"}),
        chunk({"content": ' "you"\n'}),
        chunk({}, "stop"),
        "[DONE]",
    ]


def test_chunks_with_usage() -> None:
    encode = encoder(include_usage=True)
    *rest, last, done = events(encode.role() + encode.text("hi") + encode.end("length", USAGE))
    assert [event["usage"] for event in rest] == [None, None, None]
    assert rest[-1]["choices"][0]["finish_reason"] == "length"
    assert last["choices"] == []
    assert last["usage"] == OPENAI_USAGE
    assert done == "[DONE]"


def test_tool_call_chunks() -> None:
    encode = encoder()
    data = encode.tool_call(ToolCallDelta(1, "call_1", "look", "")) + encode.tool_call(ToolCallDelta(1, "", "", '{"a'))
    begins = {"index": 1, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    goes_on = {"index": 1, "function": {"arguments": '{"a'}}
    assert events(data) == [chunk({"tool_calls": [begins]}), chunk({"tool_calls": [goes_on]})]


@given(st.text(alphabet=st.characters(categories=None)))
def test_any_text_is_one_event(text: str) -> None:
    """*Any text is one event that says it*; half a surrogate pair, which UTF-8 cannot carry, as U+FFFD."""
    (event,) = events(encoder().text(text))
    expected = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    assert event["choices"][0]["delta"]["content"] in (
        expected,
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\ud83d", "a\ufffd"),
        ("\ude00b", "\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d", "\ufffd\ufffd"),
    ],
)
def test_half_a_surrogate_pair(text: str, shown: str) -> None:
    (event,) = events(encoder().text(text))
    assert event["choices"][0]["delta"]["content"] == shown
    (event,) = events(encoder().tool_call(ToolCallDelta(0, "", "", text)))
    assert event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] == shown


def message(*content: Any, **fields: Any) -> AssistantMessage:
    values = {"api": "a", "provider": "p", "model": "m/1", "stop_reason": "stop", "timestamp": 1, **fields}
    return AssistantMessage(content=list(content), **values)


def result(*messages: AssistantMessage) -> RunResult:
    return RunResult(
        run_id=RunId("r"),
        status="ok",
        message=messages[-1],
        messages=messages,
        session_id="s",
        started_at_ms=1,
        ended_at_ms=2,
    )


def complete(answer: Answer) -> dict[str, Any]:
    body = encode_completion(answer, completion_id="chatcmpl_1", created_s=7, model="skynet")
    decoded = json.loads(body)
    assert isinstance(decoded, dict)
    return decoded


def test_a_whole_answer() -> None:
    answer = answer_of(result(message(ThinkingBlock(thinking="hm"), TextBlock(text="hi"), usage=USAGE)))
    assert answer.source == "p/m/1"
    assert complete(answer) == {
        "id": "chatcmpl_1",
        "object": "chat.completion",
        "created": 7,
        "model": "skynet",
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": OPENAI_USAGE,
    }


def test_tool_calls_of_a_whole_answer() -> None:
    call = ToolCallBlock(id="c", name="look", arguments={"at": [1]})
    choice = complete(answer_of(result(message(call, stop_reason="toolUse"))))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at":[1]}'}}
    ]


def test_an_answer_without_usage_counts_zero() -> None:
    answer = answer_of(result(message(stop_reason="length")))
    assert complete(answer)["usage"]["total_tokens"] == 0
    assert complete(answer)["choices"][0]["finish_reason"] == "length"
    assert complete(answer)["choices"][0]["message"]["content"] == ""


def test_a_whole_answer_as_a_stream() -> None:
    answer = Answer(
        text="hi",
        tool_calls=(ToolCallText("c", "look", "{}"),),
        finish_reason="tool_calls",
        usage=USAGE,
        provider="",
        model="",
    )
    assert answer.source == ""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert events(encoder().whole(answer)) == [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "hi"}),
        chunk({"tool_calls": [call]}),
        chunk({}, "tool_calls"),
        "[DONE]",
    ]


def test_an_error_in_a_stream() -> None:
    error = HttpError(502, "gone", kind="api_error", code="provider_stream_cut")
    assert events(encode_stream_error(error)) == [
        {"error": {"message": "gone", "type": "api_error", "param": None, "code": "provider_stream_cut"}}
    ]


def kept(**meta: Any) -> bytes:
    agent_meta = {
        "provider": "p",
        "model": "m",
        "usage": {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2, "total": 20},
    }
    result = {"payloads": [{"text": "hi", "mediaUrl": None}], "meta": {"agentMeta": agent_meta, **meta}}
    return json.dumps({"runId": "r", "status": "ok", "result": result}).encode()


def test_a_kept_answer() -> None:
    calls = [{"id": "c", "name": "look", "arguments": "{}"}]
    assert stored_answer(kept(stopReason="toolUse", pendingToolCalls=calls)) == Answer(
        text="hi",
        tool_calls=(ToolCallText("c", "look", "{}"),),
        finish_reason="tool_calls",
        usage=USAGE,
        provider="p",
        model="m",
    )
    failure = stored_answer(kept(error={"kind": "RateLimited", "message": "slow down"}))
    assert failure == StoredFailure("RateLimited", "slow down", "p")


def test_what_is_no_kept_answer() -> None:
    with pytest.raises(ValueError, match="result"):
        stored_answer(b"{}")
