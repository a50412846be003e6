"""``ollama``: Ollama's own chat API, lines of JSON over ``POST /api/chat``.

Reference: https://docs.ollama.com/api/chat, and ``api/types.go`` of Ollama for what it leaves out. Calls of tools come
whole, their arguments as an object, from most versions without an id. There is no way to make a model call a tool: a
choice of one tool leaves it that one, ``required`` is not passed on.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from skynet_agent.endpoint import Endpoint, ask
from skynet_agent.errors import BadRequest
from skynet_agent.events import Ended, Part
from skynet_agent.history import conversation
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
from skynet_agent.ndjson import LineDecoder
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.reading import AnswerReader, Parts, Source, usage_of
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.thinking import nearest_level
from skynet_agent.writing import IMAGES, NO_OUTPUT, SEE_IMAGES, answer_tokens, unsupported_format

THINKING_WORDS: Mapping[ThinkingLevel, str] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "max"}
"""How a model that takes words (``thinking_form="effort"``: gpt-oss) is told how much to think."""

_encoder = msgspec.json.Encoder()


async def stream(endpoint: Endpoint, model: ModelInfo, request: ModelRequest) -> AsyncGenerator[Part, None]:
    """See ``StreamFunction``."""
    body = _encoder.encode(build_body(endpoint.row, model, request))
    answer = reader(endpoint.source, f"call_{os.urandom(4).hex()}")
    try:
        async with aclosing(ask(endpoint, "/api/chat", body, answer)) as parts:
            async for part in parts:
                yield part
    except BadRequest as exc:
        if exc.status != 404:
            raise
        raise BadRequest(f"{exc}; get it with: ollama pull {model.id}", provider=exc.provider, status=404) from exc


def reader(source: Source, call_ids: str = "call") -> AnswerReader[bytes]:
    """A reader of one streamed answer. ``call_ids`` begins the ids of calls that have none."""
    return AnswerReader(source, LineDecoder(), Interpreter(source, call_ids))


# Messages to the wire


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a streamed request.

    Raises:
        BadRequest: the ``response_format`` is none that Ollama has a form for.
    """
    options = request.options
    wanted = {
        "tools": _tools(options) or None,
        "think": _think(row, model, options.thinking),
        "format": _format(row, options),
        "options": _options(model, options) or None,
    }
    body: dict[str, Json] = {
        "model": model.id,
        "messages": wire_messages(row, model, request),
        "stream": True,
        # else what does not fit is left out of the conversation without a word; so it is a context overflow
        "truncate": False,
        "shift": False,
    }
    body.update((key, value) for key, value in wanted.items() if value is not None)
    return body


def _options(model: ModelInfo, options: ModelOptions) -> dict[str, Json]:
    wanted = {
        "num_ctx": model.context_window,  # else a few thousand tokens, whatever the model could hold
        "num_predict": answer_tokens(model, options),
        "temperature": options.temperature if model.sampling else None,
        "top_p": options.top_p if model.sampling else None,
        "stop": options.stop,
        "seed": options.seed,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _tools(options: ModelOptions) -> list[dict[str, Json]]:
    choice = options.tool_choice
    if choice == "none":
        return []
    return [_wire_tool(tool) for tool in options.tools if not isinstance(choice, OneTool) or tool.name == choice.name]


def _wire_tool(tool: ToolDefinition) -> dict[str, Json]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _think(row: ProviderRow, model: ModelInfo, level: ThinkingLevel | None) -> bool | str | None:
    if level is None:
        return None
    if model.thinking_form == "budget" or level == "off":
        return level != "off"
    levels = model.thinking_levels or row.thinking_levels
    nearest = nearest_level(level, [each for each in levels if each in THINKING_WORDS])
    return None if nearest is None else THINKING_WORDS[nearest]


def _format(row: ProviderRow, options: ModelOptions) -> Json:
    match options.response_format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return "json"
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise unsupported_format(row, options, "text, json_object, json_schema with a schema")


def wire_messages(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> list[dict[str, Json]]:
    """The conversation as Ollama wants it: images beside the text, those of tool results in a user's message."""
    wire: list[dict[str, Json]] = []
    if any(request.system):
        wire.append({"role": "system", "content": "\n\n".join(filter(None, request.system))})
    images: list[str] = []  # of tool results: templates show a model those of a user
    for message in conversation(row, model, request):
        if images and not isinstance(message, ToolResultMessage):
            wire.append({"role": "user", "content": IMAGES, "images": images})
            images = []
        wire.append(_wire_message(message))
        if isinstance(message, ToolResultMessage):
            images += _images(message.content)
    if images:
        wire.append({"role": "user", "content": IMAGES, "images": images})
    return wire


def _wire_message(message: Message) -> dict[str, Json]:
    match message:
        case UserMessage():
            text = "\n\n".join(block.text for block in message.content if isinstance(block, TextBlock))
            images = _images(message.content)
            return {"role": "user", "content": text, **({"images": images} if images else {})}
        case AssistantMessage():
            entry: dict[str, Json] = {"role": "assistant", "content": text_of(message)}
            thoughts = "".join(block.thinking for block in message.content if isinstance(block, ThinkingBlock))
            if thoughts:
                entry["thinking"] = thoughts
            calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
            if calls:
                entry["tool_calls"] = [_wire_call(index, call) for index, call in enumerate(calls)]
            return entry
        case ToolResultMessage():
            text = text_of(message) or (SEE_IMAGES if _images(message.content) else NO_OUTPUT)
            return {
                "role": "tool",
                "tool_name": message.tool_name,
                "tool_call_id": message.tool_call_id,
                "content": text,
            }


def _wire_call(index: int, call: ToolCallBlock) -> dict[str, Json]:
    return {"id": call.id, "function": {"index": index, "name": call.name, "arguments": call.arguments}}


def _images(blocks: list[UserBlock]) -> list[str]:
    return [block.data for block in blocks if isinstance(block, ImageBlock)]


# The stream


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None  # an object


class _ToolCall(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Chunk(msgspec.Struct):
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class Interpreter:
    """Lines of the stream to parts. The last one is ``done`` and has the counts."""

    def __init__(self, source: Source, call_ids: str) -> None:
        self._source = source
        self._call_ids = call_ids
        self._reason = ""
        self._usage: Usage | None = None

    @property
    def complete(self) -> bool:
        return False  # nothing follows the line that ends the answer

    def read(self, event: bytes, parts: Parts) -> bool:
        chunk = self._source.decode(_decoder, event)
        if chunk.error is not None:
            raise self._source.failure_in(event)
        message = chunk.message
        if message is not None:
            if message.thinking:
                parts.thinking(message.thinking)
            if message.content:
                parts.text(message.content)
            for call in message.tool_calls or ():
                self._read_call(call, parts)
        if not chunk.done:
            return False
        self._reason = chunk.done_reason or ""
        if chunk.prompt_eval_count is not None or chunk.eval_count is not None:
            self._usage = usage_of(prompt=chunk.prompt_eval_count, output=chunk.eval_count)
        return True

    def end(self, parts: Parts) -> Ended:
        stop: StopReason = "length" if self._reason == "length" else "stop"
        return Ended("toolUse" if stop == "stop" and parts.calls else stop, self._usage)

    def _read_call(self, call: _ToolCall, parts: Parts) -> None:
        function = call.function or _Function()
        arguments = function.arguments
        if not isinstance(arguments, str):
            try:
                arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
            except RecursionError as exc:
                raise self._source.cut("a call whose arguments are nested too deeply") from exc
        parts.begin_call(call.id or f"{self._call_ids}_{parts.calls}", function.name or "", arguments)
