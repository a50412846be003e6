"""Anthropic's messages: the body of a request, and the reader of its stream.

Anthropic itself and Google (Claude on Vertex) speak this format, each in an envelope of its own; ``build_body`` leaves
out what belongs to the envelope (``model``, ``stream``). References, all below https://platform.claude.com/docs/en/:
``api/messages``, ``build-with-claude/streaming``, ``.../structured-outputs``.

How much Claude thinks, and where the marks of the prompt cache stand, is in ``claude``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from skynet_agent.claude import CacheMarks, thinking
from skynet_agent.errors import BadRequest
from skynet_agent.events import Ended
from skynet_agent.failures import SHOWN_CHARACTERS
from skynet_agent.history import by_side, conversation
from skynet_agent.messages import (
    AssistantBlock,
    AssistantMessage,
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
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import AnswerReader, Parts, Source, tokens, usage_of
from skynet_agent.requests import CACHED_TIERS, ModelOptions, ModelRequest, OneTool, ToolDefinition
from skynet_agent.sse import SseDecoder, SseEvent
from skynet_agent.writing import EARLIER, NO_OUTPUT, last_of_user, unseen, unsupported_format

VERSION = "2023-06-01"
"""Of the format; Anthropic wants it in the header ``anthropic-version``."""

LONGEST_USER_ID = 256
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

Block: TypeAlias = dict[str, Json]


def reader(source: Source) -> AnswerReader[SseEvent]:
    """A reader of one streamed answer."""
    return AnswerReader(source, SseDecoder(), Interpreter(source))


# The body


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a request, without what belongs to the envelope.

    Raises:
        BadRequest: ``response_format`` is one that the API has no form for.
    """
    options = request.options
    messages = conversation(row, model, request, volatile=False)
    thought = thinking(row, model, options, messages)
    effort = {"effort": thought.effort} if thought.effort else {}
    wanted: dict[str, Json] = {
        "max_tokens": thought.max_tokens,
        "tools": [_wire_tool(tool) for tool in options.tools] or _tools_of(messages) or None,
        "tool_choice": _tool_choice(options, messages),
        "system": _system(request.system) or None,
        "messages": wire_messages(messages, request.volatile),
        "thinking": thought.config,
        "output_config": {**effort, **_format(row, options)} or None,
        "stop_sequences": [text for text in options.stop or () if text.strip()] or None,  # blank ones are refused
        "metadata": {"user_id": options.user[:LONGEST_USER_ID]} if options.user else None,
    }
    if model.sampling and not thought.is_on:
        wanted |= _sampling(options)
    return {key: value for key, value in wanted.items() if value is not None}


def _sampling(options: ModelOptions) -> dict[str, Json]:
    """One of the two: newer models refuse both together."""
    if options.temperature is not None:
        return {"temperature": min(options.temperature, 1.0)}  # OpenAI's scale goes up to 2
    return {"top_p": options.top_p}


def _format(row: ProviderRow, options: ModelOptions) -> dict[str, Json]:
    match options.response_format:
        case None | {"type": "text"}:
            return {}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"format": {"type": "json_schema", "schema": schema}}
    raise unsupported_format(row, options, "text, json_schema with a schema")


def _system(system: Sequence[str]) -> list[Block]:
    return [
        {"type": "text", "text": text, **({"cache_control": {"type": "ephemeral"}} if tier < CACHED_TIERS else {})}
        for tier, text in enumerate(system)
        if text.strip()
    ]


# Tools


def _wire_tool(tool: ToolDefinition) -> dict[str, Json]:
    """``strict`` is not asked for: it would refuse schemas that are well-formed but have more than it knows."""
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": {"type": "object", **tool.parameters}}


def _tools_of(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Something to stand for tools that were called and are not offered now: calls of unknown tools are refused."""
    return [{"name": name, "input_schema": {"type": "object"}} for name in dict.fromkeys(_called(messages))]


def _called(messages: Sequence[Message]) -> list[str]:
    return [
        block.name
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]


def _tool_choice(options: ModelOptions, messages: Sequence[Message]) -> dict[str, Json] | None:
    choice = options.tool_choice
    if not options.tools:
        return {"type": "none"} if _called(messages) else None
    if choice == "none":
        return {"type": "none"}
    if choice is None and options.parallel_tool_calls is not False:
        return None
    form: dict[str, Json] = {"type": "any" if choice == "required" else "auto"}
    if isinstance(choice, OneTool):
        form = {"type": "tool", "name": choice.name}
    if options.parallel_tool_calls is False:
        form["disable_parallel_tool_use"] = True
    return form


# Messages to the wire


def wire_messages(messages: Sequence[Message], volatile: str = "") -> list[dict[str, Json]]:
    """``messages``, which ``conversation`` cleaned, with the marks; user and assistant alternate, the user first."""
    wire: list[dict[str, Json]] = []
    blocks: list[Block] = []
    marks = CacheMarks()
    last = last_of_user(messages)
    for side, group in by_side(messages):
        start = len(blocks)
        for message in group:
            blocks += _content(message)
            if isinstance(message, UserMessage):
                marks.asked(len(blocks) - 1)
                if message is last and volatile.strip():
                    blocks.append(_text(volatile))
        if isinstance(message, ToolResultMessage):
            marks.answered(len(blocks) - 1)
        if side == "assistant" and not wire:
            wire.append({"role": "user", "content": [_text(EARLIER)]})
        wire.append({"role": side, "content": blocks[start:]})
    for place in marks.places():
        blocks[place]["cache_control"] = {"type": "ephemeral"}
    return wire


def _content(message: Message) -> list[Block]:
    match message:
        case UserMessage():
            return [_user_block(block) for block in message.content]
        case AssistantMessage():
            content = [_wire_block(block) for block in message.content if _is_whole(block)]
            while content[-1]["type"] in ("thinking", "redacted_thinking"):
                content.pop()  # the answer was cut there; none may end with thinking
            return content
        case ToolResultMessage():
            shown = [_user_block(block) for block in message.content] or [_text(NO_OUTPUT)]
            result: Block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": shown}
            return [{**result, "is_error": True} if message.is_error else result]


def _is_whole(block: AssistantBlock) -> bool:
    """Not thinking that was cut before its signature, which the API refuses."""
    return not isinstance(block, ThinkingBlock) or bool(block.thinking_signature)


def _wire_block(block: AssistantBlock) -> Block:
    match block:
        case TextBlock():
            return _text(block.text)
        case ThinkingBlock(redacted=True):
            return {"type": "redacted_thinking", "data": block.thinking_signature}
        case ThinkingBlock():
            return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}
        case ToolCallBlock():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}


def _user_block(block: UserBlock) -> Block:
    if isinstance(block, TextBlock):
        return _text(block.text)
    if block.mime_type not in IMAGE_TYPES:
        return _text(unseen(block))
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


# The stream


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _StopDetails(msgspec.Struct):
    explanation: str | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    """Any event of the stream."""

    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | str | None = None
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Event)

_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
}


class Interpreter:
    """Events of the stream to parts. Blocks, deltas and events of other kinds than ours are passed over."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stop = ""
        self._explanation = ""
        self._usage: _Usage | None = None
        self._calls: dict[int, int] = {}  # the wire's index of a block → our number of the call
        self._inputs: dict[int, str] = {}  # arguments that came with the beginning of a block
        self._signatures: dict[int, str] = {}

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def read(self, event: SseEvent, parts: Parts) -> bool:
        told = self._source.decode(_decoder, event.data)
        match told.type:
            case "content_block_delta":
                if told.delta is not None:
                    self._read_delta(told.index, told.delta, parts)
            case "content_block_start":
                if told.content_block is not None:
                    self._begin(told.index, told.content_block, parts)
            case "content_block_stop":
                self._finish(told.index, parts)
            case "message_start":
                if isinstance(told.message, _Message):
                    self._count(told.message.usage)
            case "message_delta":
                self._count(told.usage)
                if told.delta is not None:
                    self._stop = told.delta.stop_reason or self._stop
                    if told.delta.stop_details is not None:
                        self._explanation = told.delta.stop_details.explanation or ""
            case "message_stop":
                return True
            case kind if kind == "error" or event.name == "error":
                raise self._source.failure_in(event.data)
        return False

    def end(self, parts: Parts) -> Ended:
        name, reason = self._source.provider, self._stop
        if reason == "refusal":
            why = f": {self._explanation[:SHOWN_CHARACTERS]}" if self._explanation else ""
            raise BadRequest(f"{name}: the model declined to answer{why}", provider=name)
        for index in list(self._calls):
            self._finish(index, parts)
        stop = _STOP_REASONS.get(reason, "stop")
        if stop == "stop" and parts.calls:
            stop = "toolUse"  # imitators say "end_turn" although they ask for tools
        return Ended(stop, _usage(self._usage) if self._usage else None)

    def _begin(self, index: int, block: _Block, parts: Parts) -> None:
        match block.type:
            case "tool_use":
                self._calls[index] = parts.begin_call(block.id or "", block.name or "")
                if block.input:
                    self._inputs[index] = _json(block.input)
            case "text":
                parts.text(block.text or "")
            case "thinking":
                parts.thinking(block.thinking or "")
                self._signatures[index] = block.signature or ""
            case "redacted_thinking":
                parts.thinking("", signature=block.data or "", redacted=True)

    def _read_delta(self, index: int, delta: _Delta, parts: Parts) -> None:
        match delta.type:
            case "text_delta":
                parts.text(delta.text or "")
            case "thinking_delta":
                parts.thinking(delta.thinking or "")
            case "input_json_delta":
                number = self._calls.get(index)
                if number is not None and delta.partial_json:
                    self._inputs.pop(index, None)
                    parts.arguments(number, delta.partial_json)
            case "signature_delta":
                self._signatures[index] = self._signatures.get(index, "") + (delta.signature or "")

    def _finish(self, index: int, parts: Parts) -> None:
        """A block is whole; may be told more than once."""
        number = self._calls.pop(index, None)
        if number is not None:
            parts.arguments(number, self._inputs.pop(index, ""))
        parts.thinking("", signature=self._signatures.pop(index, ""))

    def _count(self, usage: _Usage | None) -> None:
        """Counts are cumulative; one that is not repeated still holds."""
        if usage is None:
            return
        before = self._usage or _Usage()
        self._usage = _Usage(
            *(max(tokens(getattr(before, name)), tokens(getattr(usage, name))) for name in _Usage.__struct_fields__)
        )


def _usage(usage: _Usage) -> Usage:
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return usage_of(
        prompt=(usage.input_tokens or 0) + read + written,
        output=usage.output_tokens,
        cache_read=read,
        cache_write=written,
    )


def _json(value: Json) -> str:
    """``value`` as JSON text, whatever characters it has; empty if it is nested too deeply to be any."""
    try:
        return json.dumps(value)
    except RecursionError:
        return ""
