"""``openai-completions``: OpenAI's chat completions, as OpenAI, its many imitators and local servers speak it.

Messages to the wire (``build_body``), and the stream's events to parts (``Interpreter``). Reference:
https://platform.openai.com/docs/api-reference/chat. The reader takes what imitators do differently: ``reasoning`` for
``reasoning_content``, thinking among the parts of ``content`` (Mistral), signatures of thoughts in ``extra_content``
(Gemini), tool calls without an index or with the same one for all, usage in several chunks, no ``[DONE]``, halves of a
surrogate pair in two chunks.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from skynet_agent.endpoint import Endpoint, ask
from skynet_agent.errors import BadRequest, Overloaded
from skynet_agent.events import Ended, Part
from skynet_agent.history import ANY_IDS, CallIds, conversation
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Json,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserBlock,
    UserMessage,
    text_of,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import AnswerReader, Parts, Source, usage_of
from skynet_agent.requests import CACHED_TIERS, ModelOptions, ModelRequest, OneTool, ToolDefinition
from skynet_agent.sse import SseDecoder, SseEvent
from skynet_agent.thinking import nearest_level
from skynet_agent.writing import IMAGES, NO_OUTPUT, SEE_IMAGES, answer_tokens

NINE_IDS = CallIds(r"[a-zA-Z0-9]{9}", 9)

_encoder = msgspec.json.Encoder()


def stream(endpoint: Endpoint, model: ModelInfo, request: ModelRequest) -> AsyncGenerator[Part, None]:
    """See ``StreamFunction``."""
    body = _encoder.encode(build_body(endpoint.row, model, request))
    return ask(endpoint, "/chat/completions", body, reader(endpoint.source))


def reader(source: Source) -> AnswerReader[SseEvent]:
    """A reader of one streamed answer."""
    return AnswerReader(source, SseDecoder(), Interpreter(source))


# Messages to the wire


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a streamed request."""
    options = request.options
    wanted = {
        "temperature": options.temperature if model.sampling else None,
        "top_p": options.top_p if model.sampling else None,
        "stop": options.stop,
        "seed": options.seed,
        "user": options.user,
        "tools": [_wire_tool(tool) for tool in options.tools] or None,
        "tool_choice": _tool_choice(options),
        "parallel_tool_calls": options.parallel_tool_calls if options.tools else None,
        "response_format": options.response_format,
        "prompt_cache_key": (request.cache_key or None) if row.supports_prompt_cache_key else None,
        row.max_tokens_field: answer_tokens(model, options),
        **_thinking(row, model, options),
    }
    body: dict[str, Json] = {"model": model.id, "messages": wire_messages(row, model, request)}
    body["stream"] = True
    if row.supports_stream_options:
        body["stream_options"] = {"include_usage": True}
    body.update((key, value) for key, value in wanted.items() if value is not None)
    body.update((key, value) for key, value in options.extra.items() if key not in body and key not in wanted)
    return body


def _thinking(row: ProviderRow, model: ModelInfo, options: ModelOptions) -> dict[str, Json]:
    """How much to think, in the row's or the model's own form (``ThinkingField``)."""
    field = row.thinking_field if model.thinking_field is None else model.thinking_field
    level = options.thinking
    if level is None or not field:
        return {}
    told = nearest_level(level, model.thinking_levels or row.thinking_levels)
    if field == "reasoning_effort":
        return {} if told is None else {"reasoning_effort": "none" if told == "off" else told}
    if level == "off" and model.thinking_levels and told is None:
        return {}  # it always thinks
    switched_on = level != "off"
    match field:
        case "enable_thinking":
            return {"enable_thinking": switched_on}
        case "reasoning":
            return {"reasoning": {"effort": told or "medium"} if switched_on else {"enabled": False}}
        case "reasoning_enabled":
            return {"reasoning": {"enabled": switched_on}}
        case "thinking" | "thinking_effort":
            switch = {"thinking": {"type": "enabled" if switched_on else "disabled"}}
            has_word = field == "thinking_effort" and told is not None and told != "off"
            return switch | ({"reasoning_effort": told} if has_word else {})


def _wire_tool(tool: ToolDefinition) -> dict[str, Json]:
    function: dict[str, Json] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(options: ModelOptions) -> Json:
    choice = options.tool_choice if options.tools else None
    return {"type": "function", "function": {"name": choice.name}} if isinstance(choice, OneTool) else choice


def wire_messages(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> list[dict[str, Json]]:
    """The conversation as OpenAI wants it: thinking left out, images of tool results in a user's message."""
    wire: list[dict[str, Json]] = []
    if any(request.system):
        wire.append({"role": "system", "content": _system(row, request.system)})
    images: list[ImageBlock] = []  # of tool results: only a user's message can hold them
    for message in conversation(row, model, request, ids=NINE_IDS if row.tool_call_ids == "nine" else ANY_IDS):
        if images and not isinstance(message, ToolResultMessage):
            wire.append(_image_message(images))
            images = []
        wire.append(_wire_message(row, message))
        if isinstance(message, ToolResultMessage):
            images += [block for block in message.content if isinstance(block, ImageBlock)]
    if images:
        wire.append(_image_message(images))
    return wire


def _wire_message(row: ProviderRow, message: Message) -> dict[str, Json]:
    match message:
        case UserMessage():
            return {"role": "user", "content": _user_content(message.content)}
        case AssistantMessage():
            entry: dict[str, Json] = {"role": "assistant", "content": text_of(message) or None}
            calls = [_wire_call(block) for block in message.content if isinstance(block, ToolCallBlock)]
            if calls:
                entry["tool_calls"] = calls
            thoughts = [block.thinking for block in message.content if isinstance(block, ThinkingBlock)]
            if thoughts and row.wants_thinking_back:
                entry["reasoning_content"] = "".join(thoughts)
            return entry
        case ToolResultMessage():
            has_image = any(isinstance(block, ImageBlock) for block in message.content)
            text = text_of(message) or (SEE_IMAGES if has_image else NO_OUTPUT)
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}


def _system(row: ProviderRow, system: Sequence[str]) -> str | list[dict[str, Json]]:
    if not row.cache_marks:
        return "\n\n".join(filter(None, system))
    marked = [number for number, text in enumerate(system[:CACHED_TIERS]) if text]
    blocks: list[dict[str, Json]] = []
    for number, text in enumerate(system):
        if text:
            mark = {"cache_control": {"type": "ephemeral"}} if number in marked else {}
            blocks.append({"type": "text", "text": text, **mark})
    return blocks


def _image_message(images: Sequence[ImageBlock]) -> dict[str, Json]:
    return {"role": "user", "content": _user_content([TextBlock(IMAGES), *images])}


def _wire_call(call: ToolCallBlock) -> dict[str, Json]:
    function = {"name": call.name, "arguments": _encoder.encode(call.arguments).decode()}
    wire: dict[str, Json] = {"id": call.id, "type": "function", "function": function}
    if call.thought_signature:
        wire["extra_content"] = {"google": {"thought_signature": call.thought_signature}}
    return wire


def _user_content(blocks: Sequence[UserBlock]) -> str | list[dict[str, Json]]:
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    if len(texts) == len(blocks):  # not every imitator takes anything but a text
        return "\n\n".join(texts)
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
    extra_content: Any = None


class _ContentPart(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: list[_ContentPart] | None = None


class _Delta(msgspec.Struct):
    content: str | list[_ContentPart] | None = None
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


class Interpreter:
    """Events of the stream to parts; the model's answer is the choice number 0."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stop = ""
        self._usage: Usage | None = None
        self._ids: list[str] = []  # of the calls, by our number
        self._numbers: dict[int, int] = {}  # the wire's index → our number

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def read(self, event: SseEvent, parts: Parts) -> bool:
        if event.data == b"[DONE]":
            return True
        chunk = self._source.decode(_decoder, event.data)
        if chunk.error is not None or event.name == "error" or chunk.object == "error":
            raise self._source.failure_in(event.data)
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        for choice in chunk.choices or ():
            if choice.index == 0:
                if choice.delta is not None:
                    self._read_delta(choice.delta, parts)
                self._stop = choice.finish_reason or self._stop
        return False

    def end(self, parts: Parts) -> Ended:
        name, reason = self._source.provider, self._stop
        if reason == "content_filter":
            raise BadRequest(f"{name}: the content filter stopped the answer", provider=name)
        if reason in ("error", "insufficient_system_resource"):
            raise Overloaded(f"{name}: the answer ended with {reason!r}", provider=name)
        stop = _STOP_REASONS.get(reason, "stop")
        if stop == "stop" and parts.calls:
            stop = "toolUse"  # some say "stop" although they ask for tools
        return Ended(stop, self._usage)

    def _read_delta(self, delta: _Delta, parts: Parts) -> None:
        if delta.reasoning_content or delta.reasoning:
            parts.thinking(delta.reasoning_content or delta.reasoning or "")
        content = delta.content or delta.refusal
        if isinstance(content, str):
            parts.text(content)
        elif content:
            self._read_content(content, parts)
        for call in delta.tool_calls or ():
            self._read_call(call, parts)

    def _read_content(self, content: Sequence[_ContentPart], parts: Parts) -> None:
        for part in content:
            if part.type == "thinking":
                parts.thinking("".join([each.text for each in part.thinking or ()]))
            else:
                parts.text(part.text)

    def _read_call(self, call: _ToolCall, parts: Parts) -> None:
        function = call.function or _Function()
        arguments = function.arguments
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments)
        known = self._numbers.get(call.index) if call.index is not None else len(self._ids) - 1
        # an id that is new begins a new call, whatever its index
        if known is not None and known >= 0 and (not call.id or call.id == self._ids[known]):
            parts.arguments(known, arguments)
            return
        signature = _thought_signature(call.extra_content) if call.extra_content else ""
        number = parts.begin_call(call.id or "", function.name or "", arguments, signature=signature)
        self._ids.append(call.id or f"call_{number}")
        if call.index is not None:
            self._numbers[call.index] = number


def _thought_signature(extra: Any) -> str:
    match extra:
        case {"google": {"thought_signature": str(signature)}}:
            return signature
    return ""


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details or _PromptDetails()
    return usage_of(
        prompt=usage.prompt_tokens,
        output=usage.completion_tokens,
        cache_read=details.cached_tokens or usage.prompt_cache_hit_tokens,
        cache_write=details.cache_write_tokens,
    )
