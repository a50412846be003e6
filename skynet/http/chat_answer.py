"""``POST /v1/chat/completions``: what the client reads, as bytes. Pure."""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from skynet.gateway.run_answer import BETWEEN_ROUNDS, RunResult
from skynet.http.errors import HttpError
from skynet_agent.events import ToolCallDelta
from skynet_agent.messages import ToolCallBlock, Usage

DONE = b"data: [DONE]\n\n"

_FINISH_REASONS = {"length": "length", "toolUse": "tool_calls"}
# json.dumps writes a whole pair as high, low; what is matched here is either half without the other
_LONE_SURROGATE = re.compile(
    rb"\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2}"
)


@dataclass(frozen=True, slots=True)
class ToolCallText:
    """A finished tool call; ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer, just given or kept from the first request with the same idempotency key."""

    text: str
    tool_calls: tuple[ToolCallText, ...]
    finish_reason: str
    usage: Usage
    provider: str
    model: str

    @property
    def source(self) -> str:
        """``provider/model``, or "" when no model answered."""
        return f"{self.provider}/{self.model}" if self.provider else ""


def answer_of(result: RunResult) -> Answer:
    """The answer that a run ended with: all that the model said, and the calls that are left to the client.

    A call that was cut off is nobody's to carry out; it may be one of the gateway's own tools.
    """
    message = result.message
    calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
    return Answer(
        text=result.text,
        tool_calls=tuple(
            ToolCallText(call.id, call.name, msgspec.json.encode(call.arguments).decode())
            for call in calls
            if message.stop_reason == "toolUse"
        ),
        finish_reason=finish_reason(message.stop_reason),
        usage=result.usage,
        provider=message.provider,
        model=message.model,
    )


def finish_reason(stop_reason: str) -> str:
    """OpenAI's word for a transcript's stop reason."""
    return _FINISH_REASONS.get(stop_reason, "stop")


def usage_of(usage: Usage) -> dict[str, Any]:
    """OpenAI counts cached tokens among the prompt's. Zeros where the provider told nothing."""
    prompt_tokens = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": usage.output,
        "total_tokens": prompt_tokens + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def encode_completion(answer: Answer, *, completion_id: str, created_s: int, model: str) -> bytes:
    """The body of an answer that is not streamed."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text if answer.text or not answer.tool_calls else None,
        "refusal": None,
    }
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
    return orjson.dumps(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created_s,
            "model": model,
            "system_fingerprint": None,
            "choices": [choice],
            "usage": usage_of(answer.usage),
        }
    )


def _dumps(value: object) -> bytes:
    """JSON of ``value``; half a surrogate pair, which UTF-8 cannot carry, becomes U+FFFD."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return _LONE_SURROGATE.sub(rb"\\ufffd", json.dumps(value).encode())


class ChunkEncoder:
    """Makes the events of one streamed answer. Everything of a chunk but its content is encoded once."""

    def __init__(self, *, completion_id: str, created_s: int, model: str, include_usage: bool) -> None:
        head = orjson.dumps(
            {
                "id": completion_id,
                "object": "chat.completion.chunk",
                "created": created_s,
                "model": model,
                "system_fingerprint": None,
            }
        )
        self._head = b"data: " + head[:-1]
        self._usage = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._include_usage = include_usage
        self._open = self._head + b',"choices":[{"index":0,"delta":'
        self._close = b',"logprobs":null,"finish_reason":null}]' + self._usage
        self._text_open = self._open + b'{"content":'
        self._text_close = b"}" + self._close

    def role(self) -> bytes:
        """The first chunk."""
        return self._open + b'{"role":"assistant","content":"","refusal":null}' + self._close

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._text_open + _dumps(text) + self._text_close

    def tool_call(self, delta: ToolCallDelta) -> bytes:
        """A piece of a tool call; id, type and name only where they begin it."""
        call: dict[str, Any] = {"index": delta.index}
        if delta.id:
            call |= {"id": delta.id, "type": "function"}
        function = {"arguments": delta.arguments}
        call["function"] = {"name": delta.name, **function} if delta.name else function
        return self._open + _dumps({"tool_calls": [call]}) + self._close

    def end(self, reason: str, usage: Usage) -> bytes:
        """The last chunks: the finish reason, the usage if it was asked for, and ``[DONE]``."""
        finish = self._open + b'{},"logprobs":null,"finish_reason":"' + reason.encode() + b'"}]' + self._usage
        if not self._include_usage:
            return finish + DONE
        tail = self._head + b',"choices":[],"usage":' + orjson.dumps(usage_of(usage)) + b"}\n\n"
        return finish + tail + DONE

    def whole(self, answer: Answer) -> bytes:
        """A finished answer as a stream."""
        parts = [self.role()]
        if answer.text:
            parts.append(self.text(answer.text))
        for index, call in enumerate(answer.tool_calls):
            parts.append(self.tool_call(ToolCallDelta(index, call.id, call.name, call.arguments)))
        parts.append(self.end(answer.finish_reason, answer.usage))
        return b"".join(parts)


def encode_stream_error(error: HttpError) -> bytes:
    """How a stream ends that has begun and cannot be completed; there is no ``[DONE]`` after it."""
    return b"data: " + error.body() + b"\n\n"


class _StoredPayload(msgspec.Struct):
    text: str = ""


class _StoredUsage(msgspec.Struct, rename="camel"):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0


class _StoredAgentMeta(msgspec.Struct, rename="camel"):
    provider: str = ""
    model: str = ""
    usage: _StoredUsage = msgspec.field(default_factory=_StoredUsage)


class _StoredCall(msgspec.Struct):
    id: str
    name: str
    arguments: str


class _StoredError(msgspec.Struct):
    kind: str
    message: str


class _StoredMeta(msgspec.Struct, rename="camel"):
    agent_meta: _StoredAgentMeta
    stop_reason: str = "stop"
    error: _StoredError | None = None
    pending_tool_calls: list[_StoredCall] = msgspec.field(default_factory=list)


class _StoredResult(msgspec.Struct):
    meta: _StoredMeta
    payloads: list[_StoredPayload] = msgspec.field(default_factory=list)


class _StoredRun(msgspec.Struct):
    result: _StoredResult


_stored_decoder = msgspec.json.Decoder(_StoredRun)


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """A run that ended with an error, as far as it was kept."""

    kind: str
    message: str
    provider: str


def stored_answer(response: bytes) -> Answer | StoredFailure:
    """What :func:`skynet.gateway.run_answer.agent_result` kept of a run.

    Raises:
        ValueError: the bytes are not that.
    """
    result = _stored_decoder.decode(response).result
    meta, source = result.meta, result.meta.agent_meta
    if meta.error is not None:
        return StoredFailure(meta.error.kind, meta.error.message, source.provider)
    usage = source.usage
    return Answer(
        text=BETWEEN_ROUNDS.join(payload.text for payload in result.payloads),
        tool_calls=tuple(ToolCallText(call.id, call.name, call.arguments) for call in meta.pending_tool_calls),
        finish_reason=finish_reason(meta.stop_reason),
        usage=Usage(
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write=usage.cache_write,
            total=usage.total,
        ),
        provider=source.provider,
        model=source.model,
    )
