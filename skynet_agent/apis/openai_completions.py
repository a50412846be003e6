"""``openai-completions``: OpenAI's chat completions, as OpenAI, its many imitators and local servers speak it.

Three parts: messages to the wire (``build_body``), a pure reader of the stream (``StreamReader``), and the loop between
them (``stream``). Reference: https://platform.openai.com/docs/api-reference/chat. The reader takes what imitators do
differently: ``reasoning`` for ``reasoning_content``, tool calls without an index or with the same one for all, usage in
several chunks, no ``[DONE]``, halves of a surrogate pair in two chunks.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from skynet_agent.errors import BadRequest, Overloaded, ProviderError, StreamCut
from skynet_agent.events import Ended, Part, TextDelta, ThinkingDelta, ToolCallDelta
from skynet_agent.failures import failure_of_answer, failure_of_object
from skynet_agent.http_client import HttpClient
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Json,
    Message,
    StopReason,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserBlock,
    UserMessage,
    text_of,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelOptions, ModelRequest
from skynet_agent.sse import SseDecoder, SseEvent

MOST_TOKENS = 10_000_000_000
"""Of one call. No model reads or writes as many; sums and prices of such counts still fit 64 bits."""
MOST_CHARACTERS = 16 * 1024 * 1024
"""Of one answer, with its thinking and its tool calls: some thirty times what models can write."""
SHORTEST_KEY = 8
MISSING_RESULT = "No result: the call was interrupted."

_encoder = msgspec.json.Encoder()


async def stream(
    http: HttpClient, clock: Callable[[], datetime], row: ProviderRow, model: ModelInfo, request: ModelRequest
) -> AsyncGenerator[Part, None]:
    """Ask ``model``; closing the generator closes the connection to the provider.

    Raises:
        ProviderError: of the kind that the provider's answer, or its absence, stands for.
    """
    headers = {"Authorization": f"Bearer {row.api_key.reveal()}"} if row.api_key else {}
    body = _encoder.encode(build_body(row, model, request))
    async with http.post(row, "/chat/completions", body, headers) as answer:
        if not 200 <= answer.status < 300:
            said = await answer.read_error()
            said = _without(row.api_key.reveal().encode(), said)
            raise failure_of_answer(row.name, answer.status, answer.headers, said, clock())
        reader = StreamReader(row.name, secret=row.api_key.reveal().encode())
        while not reader.ended:
            try:
                data = await answer.read()
            except StreamCut:
                if not reader.complete:
                    raise
                data = b""
            for part in reader.feed(data) if data else reader.close():
                if isinstance(part, Ended):
                    await answer.drain()  # now: who has the end may leave
                yield part
        if reader.failure is not None:
            raise reader.failure


# Messages to the wire


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a streamed request."""
    options = request.options
    wanted = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop": options.stop,
        "seed": options.seed,
        "user": options.user,
        "tools": options.tools,
        "tool_choice": options.tool_choice,
        "parallel_tool_calls": options.parallel_tool_calls,
        "response_format": options.response_format,
        "reasoning_effort": options.reasoning_effort,
        row.max_tokens_field: _max_tokens(model, options),
    }
    body: dict[str, Json] = {"model": model.id, "messages": wire_messages(request.system, request.messages)}
    body["stream"] = True
    if row.supports_stream_options:
        body["stream_options"] = {"include_usage": True}
    body.update((key, value) for key, value in wanted.items() if value is not None)
    body.update((key, value) for key, value in options.extra.items() if key not in body and key not in wanted)
    return body


def _max_tokens(model: ModelInfo, options: ModelOptions) -> int | None:
    """What was asked for, but never more than the model can write."""
    if options.max_tokens is None or model.max_output_tokens is None:
        return options.max_tokens or model.max_output_tokens
    return min(options.max_tokens, model.max_output_tokens)


def wire_messages(system: Sequence[str], messages: Iterable[Message]) -> list[dict[str, Json]]:
    """The conversation as OpenAI wants it: thinking left out, and every tool call followed by its result.

    A history that was cut or interrupted can lack a call's result (a note takes its place) or the call of a result (the
    result is left out). Calls of an answer that failed were never carried out and are left out too.
    """
    wire: list[dict[str, Json]] = []
    if any(system):
        wire.append({"role": "system", "content": "\n\n".join(filter(None, system))})
    open_calls: dict[str, None] = {}  # asked for and not yet answered, in order
    images: list[ImageBlock] = []  # of tool results: only a user's message can hold them

    def settle() -> None:
        wire.extend({"role": "tool", "tool_call_id": each, "content": MISSING_RESULT} for each in open_calls)
        open_calls.clear()
        if images:
            wire.append({"role": "user", "content": _user_content([TextBlock("Images of the tool results:"), *images])})
            images.clear()

    for message in messages:
        match message:
            case UserMessage():
                settle()
                wire.append({"role": "user", "content": _user_content(message.content)})
            case AssistantMessage():
                settle()
                calls = _calls_of(message)
                text = text_of(message)
                if text or calls:
                    entry: dict[str, Json] = {"role": "assistant", "content": text or None}
                    if calls:
                        entry["tool_calls"] = [_wire_call(call) for call in calls]
                    wire.append(entry)
                open_calls.update((call.id, None) for call in calls)
            case ToolResultMessage() if message.tool_call_id in open_calls:
                del open_calls[message.tool_call_id]
                found = [block for block in message.content if isinstance(block, ImageBlock)]
                images += found
                text = text_of(message) or ("(see the image)" if found else "(no output)")
                wire.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": text})
            case _:
                pass
    settle()
    return wire


def _calls_of(message: AssistantMessage) -> list[ToolCallBlock]:
    if message.stop_reason in ("error", "aborted"):
        return []
    return [block for block in message.content if isinstance(block, ToolCallBlock)]


def _wire_call(call: ToolCallBlock) -> dict[str, Json]:
    arguments = _encoder.encode(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _user_content(blocks: Sequence[UserBlock]) -> str | list[dict[str, Json]]:
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
        for block in blocks
    ]


# The stream


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None  # JSON text; an object with some imitators


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


_decoder = msgspec.json.Decoder(_Chunk)

_STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}


class StreamReader:
    """Bytes of the stream in, parts out; no I/O, and no exception whatever the bytes are.

    Once ``ended``, either the last part was ``Ended`` or ``failure`` says what went wrong: an error object in the
    stream, something that is no chunk, or no end. The rest is ignored.

    Args:
        secret: what no failure shows, should the provider repeat it.
    """

    def __init__(self, provider: str, *, secret: bytes = b"") -> None:
        self._provider = provider
        self._secret = secret
        self._sse = SseDecoder()
        self._stop = ""
        self._usage: Usage | None = None
        self._calls: list[str] = []  # the id of each tool call, in our own numbering
        self._numbers: dict[int, int] = {}  # the wire's index → our number
        self._characters = 0
        self._halves: dict[str, str] = {}  # a high surrogate that waits for its low one, by kind of delta
        self.ended = False
        self.failure: ProviderError | None = None

    @property
    def complete(self) -> bool:
        """The model has said that it is done; only usage and ``[DONE]`` may be missing."""
        return bool(self._stop)

    def feed(self, data: bytes) -> list[Part]:
        """The parts that ``data`` completes."""
        try:
            events = self._sse.feed(data)
        except ValueError as exc:
            return self._fail([], StreamCut(f"{self._provider}: {exc}", provider=self._provider))
        return self._read(events)

    def close(self) -> list[Part]:
        """The connection has ended; the parts that this completes."""
        parts = self._read(self._sse.close())
        if self.ended:
            return parts
        if self.complete:
            return self._end(parts)
        text = f"{self._provider}: the stream ended before the answer"
        return self._fail(parts, StreamCut(text, provider=self._provider))

    def _read(self, events: list[SseEvent]) -> list[Part]:
        parts: list[Part] = []
        for event in events:
            if self.ended:
                break
            if event.data == b"[DONE]":
                return self._end(parts)
            try:
                chunk = self._decode(event)
            except StreamCut as exc:
                return self._fail(parts, exc)
            if chunk.error is not None or event.name == "error" or chunk.object == "error":
                return self._fail(parts, self._failure_in(event))
            if chunk.usage is not None:
                self._usage = _usage(chunk.usage)
            for choice in chunk.choices or ():
                if choice.index == 0:
                    if choice.delta is not None:
                        self._read_delta(choice.delta, parts)
                    self._stop = choice.finish_reason or self._stop
            if self._characters > MOST_CHARACTERS:
                text = f"{self._provider}: the answer is longer than {MOST_CHARACTERS} characters"
                return self._fail(parts, StreamCut(text, provider=self._provider))
        return parts

    def _failure_in(self, event: SseEvent) -> ProviderError:
        """The failure that an event tells, in its own words but for the key."""
        try:
            chunk = self._decode(event._replace(data=_without(self._secret, event.data)))
        except StreamCut as exc:
            return exc
        return failure_of_object(self._provider, chunk.error or {"message": chunk.message})

    def _decode(self, event: SseEvent) -> _Chunk:
        try:
            return _decoder.decode(event.data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
        try:  # lone surrogates and broken UTF-8 are repaired further on; strict decoders refuse them
            return msgspec.convert(json.loads(event.data.decode("utf-8", "replace")), _Chunk)
        except (ValueError, RecursionError) as exc:
            shown = _without(self._secret, event.data)[:80].decode("utf-8", "replace")
            text = f"{self._provider}: a chunk that makes no sense: {shown!r}"
            raise StreamCut(text, provider=self._provider) from exc

    def _read_delta(self, delta: _Delta, parts: list[Part]) -> None:
        thinking = delta.reasoning_content or delta.reasoning
        if thinking and (thinking := self._whole("thinking", thinking)):
            self._characters += len(thinking)
            parts.append(ThinkingDelta(thinking))
        text = delta.content or delta.refusal
        if text and (text := self._whole("text", text)):
            self._characters += len(text)
            parts.append(TextDelta(text))
        parts.extend([self._tool_call(call) for call in delta.tool_calls or ()])

    def _tool_call(self, call: _ToolCall) -> ToolCallDelta:
        function = call.function or _Function()
        number, begins = self._number(call)
        arguments = function.arguments
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments)
        name = (function.name or "") if begins else ""
        identity = self._calls[number] if begins else ""
        self._characters += len(arguments) + len(name) + len(identity) + (100 if begins else 1)
        return ToolCallDelta(
            number, _repair(identity), _repair(name), self._whole(f"arguments {number}", arguments) if arguments else ""
        )

    def _number(self, call: _ToolCall) -> tuple[int, bool]:
        """Our number of the call, and whether this is its first fragment. An id that is new begins a new call."""
        known = self._numbers.get(call.index) if call.index is not None else len(self._calls) - 1
        if known is not None and known >= 0 and (not call.id or call.id == self._calls[known]):
            return known, False
        number = len(self._calls)
        self._calls.append(call.id or f"call_{number}")
        if call.index is not None:
            self._numbers[call.index] = number
        return number, True

    def _whole(self, kind: str, text: str) -> str:
        """``text`` without halves of surrogate pairs: joined with the half before, or replaced."""
        if not self._halves and text.isascii():
            return text
        half = self._halves.pop(kind, "")
        text = half + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._halves[kind] = text[-1]
            text = text[:-1]
        return _repair(text)

    def _end(self, parts: list[Part]) -> list[Part]:
        name, reason = self._provider, self._stop
        if reason == "content_filter":
            return self._fail(parts, BadRequest(f"{name}: the content filter stopped the answer", provider=name))
        if reason in ("error", "insufficient_system_resource"):
            return self._fail(parts, Overloaded(f"{name}: the answer ended with {reason!r}", provider=name))
        stop = _STOP_REASONS.get(reason, "stop")
        if stop == "stop" and self._calls:
            stop = "toolUse"  # some say "stop" although they ask for tools
        self.ended = True
        return [*parts, Ended(stop, self._usage)]

    def _fail(self, parts: list[Part], failure: ProviderError) -> list[Part]:
        self.ended, self.failure = True, failure
        return parts


def _without(secret: bytes, data: bytes) -> bytes:
    """``data`` without the key. One as short as those of local servers (``x``) is none, and part of many words."""
    return data.replace(secret, b"***") if len(secret) >= SHORTEST_KEY else data


def _repair(text: str) -> str:
    """``text`` with surrogate pairs joined and lone ones replaced, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details or _PromptDetails()
    prompt, output = _tokens(usage.prompt_tokens), _tokens(usage.completion_tokens)
    cache_read = min(_tokens(details.cached_tokens or usage.prompt_cache_hit_tokens), prompt)
    cache_write = min(_tokens(details.cache_write_tokens), prompt - cache_read)
    uncached = prompt - cache_read - cache_write
    return Usage(uncached, output, cache_read, cache_write, prompt + output)


def _tokens(count: int | None) -> int:
    """A count as far as it can be one: a number that no column holds must not cost the answer."""
    return min(max(count or 0, 0), MOST_TOKENS)
