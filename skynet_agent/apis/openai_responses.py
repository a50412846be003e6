"""``openai-responses``: OpenAI's Responses API, used without its memory: every request carries the whole conversation.

Reference: https://platform.openai.com/docs/api-reference/responses. What a model reasoned comes back as an encrypted
item, which is kept as the signature of the thinking (``ThinkingBlock``) and sent again while the turn lasts; nothing is
stored at OpenAI. Ids of other items are not sent, for they would name stored ones.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from skynet_agent.endpoint import Endpoint, ask
from skynet_agent.errors import BadRequest
from skynet_agent.events import Ended, Part
from skynet_agent.history import conversation
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
from skynet_agent.reading import AnswerReader, Parts, Source, usage_of
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ToolDefinition
from skynet_agent.sse import SseDecoder, SseEvent
from skynet_agent.thinking import nearest_level
from skynet_agent.writing import NO_OUTPUT, answer_tokens, unsupported_format

LEAST_OUTPUT_TOKENS = 16
"""Fewer are refused."""

_encoder = msgspec.json.Encoder()


def stream(endpoint: Endpoint, model: ModelInfo, request: ModelRequest) -> AsyncGenerator[Part, None]:
    """See ``StreamFunction``."""
    body = _encoder.encode(build_body(endpoint.row, model, request))
    return ask(endpoint, "/responses", body, reader(endpoint.source))


def reader(source: Source) -> AnswerReader[SseEvent]:
    """A reader of one streamed answer."""
    return AnswerReader(source, SseDecoder(), Interpreter(source))


# Messages to the wire


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a streamed request. There is no ``seed``, which is a wish; ``stop`` would be a promise.

    Raises:
        BadRequest: ``stop`` or a ``response_format`` that the API has no form for.
    """
    options = request.options
    most_tokens = answer_tokens(model, options)
    if options.stop:
        raise BadRequest(
            f"{row.name}: stop sequences are not supported by its API (openai-responses)", provider=row.name
        )
    wanted = {
        "instructions": "\n\n".join(filter(None, request.system)) or None,
        "temperature": options.temperature if model.sampling else None,
        "top_p": options.top_p if model.sampling else None,
        "user": options.user,
        "tools": [_wire_tool(tool) for tool in options.tools] or None,
        "tool_choice": _tool_choice(options),
        "parallel_tool_calls": options.parallel_tool_calls if options.tools else None,
        "text": _text_format(row, options),
        "reasoning": _reasoning(row, model, options),
        # other models refuse to include it
        "include": ["reasoning.encrypted_content"] if model.reasoning else None,
        "prompt_cache_key": (request.cache_key or None) if row.supports_prompt_cache_key else None,
        "max_output_tokens": most_tokens and max(most_tokens, LEAST_OUTPUT_TOKENS),
        # without this, each delta is padded with random text
        "stream_options": {"include_obfuscation": False} if row.supports_stream_options else None,
    }
    body: dict[str, Json] = {
        "model": model.id,
        "input": wire_items(row, model, request),
        "stream": True,
        "store": False,
    }
    body.update((key, value) for key, value in wanted.items() if value is not None)
    return body


def _reasoning(row: ProviderRow, model: ModelInfo, options: ModelOptions) -> dict[str, Json] | None:
    if options.thinking is None:
        return None
    level = nearest_level(options.thinking, model.thinking_levels or row.thinking_levels)
    if level is None:
        return None
    return {"effort": "none"} if level == "off" else {"effort": level, "summary": "auto"}


def _wire_tool(tool: ToolDefinition) -> dict[str, Json]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),  # true unless said otherwise, which takes only some schemas
    }


def _tool_choice(options: ModelOptions) -> Json:
    choice = options.tool_choice if options.tools else None
    return {"type": "function", "name": choice.name} if isinstance(choice, OneTool) else choice


def _text_format(row: ProviderRow, options: ModelOptions) -> dict[str, Json] | None:
    match options.response_format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"format": {"type": "json_object"}}
        case {"type": "json_schema", "json_schema": {"name": str(), "schema": dict()} as schema}:
            fields = {key: schema[key] for key in ("name", "schema", "description", "strict") if key in schema}
            return {"format": {"type": "json_schema", **fields}}
    raise unsupported_format(row, options, "text, json_object, json_schema with a name and a schema")


def wire_items(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> list[dict[str, Json]]:
    """The conversation as items."""
    return [item for message in conversation(row, model, request) for item in _items(message)]


def _items(message: Message) -> list[dict[str, Json]]:
    match message:
        case UserMessage():
            return [{"type": "message", "role": "user", "content": _content(message.content)}]
        case AssistantMessage():
            return _assistant_items(message.content)
        case ToolResultMessage():
            output = _content(message.content) if message.content else NO_OUTPUT
            return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]


def _assistant_items(blocks: Sequence[AssistantBlock]) -> list[dict[str, Json]]:
    items: list[dict[str, Json]] = []
    reasoning: list[dict[str, Json]] = []  # refused unless what it led to follows
    for block in blocks:
        match block:
            case ThinkingBlock():
                reasoning += _reasoning_items(block)
                continue
            case TextBlock():
                content = [{"type": "output_text", "text": block.text}]
                item: dict[str, Json] = {"type": "message", "role": "assistant", "content": content}
            case ToolCallBlock():
                arguments = _encoder.encode(block.arguments).decode()
                item = {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments}
        items += [*reasoning, item]
        reasoning = []
    return items


def _reasoning_items(block: ThinkingBlock) -> list[dict[str, Json]]:
    try:
        item = msgspec.json.decode(block.thinking_signature, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    return [item] if item.get("type") == "reasoning" else []


def _content(blocks: Sequence[UserBlock]) -> str | list[dict[str, Json]]:
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    return [
        {"type": "input_text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "input_image", "detail": "auto", "image_url": f"data:{block.mime_type};base64,{block.data}"}
        for block in blocks
    ]


# The stream


class _Item(msgspec.Struct):
    """An item of the answer; which fields it has depends on its type. Those of other types may have any form."""

    type: str = ""
    id: Any = None
    call_id: Any = None
    name: Any = None
    arguments: Any = None
    content: Any = None
    summary: Any = None
    encrypted_content: Any = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens: int | None = None


class _IncompleteDetails(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _IncompleteDetails | None = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: str | None = None
    arguments: Any = None
    output_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


class _Progress:
    """What was shown of one item."""

    __slots__ = ("call", "is_shown")

    def __init__(self, call: int | None = None, *, is_shown: bool = False) -> None:
        self.call = call
        self.is_shown = is_shown


class Interpreter:
    """Events of the stream to parts. Deltas tell what is said; an item's end tells what no delta told."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._response: _Response | None = None
        self._items: dict[int | str | None, _Progress] = {}

    @property
    def complete(self) -> bool:
        return self._response is not None

    def read(self, event: SseEvent, parts: Parts) -> bool:
        if event.data == b"[DONE]":
            raise self._source.cut("the stream ended before the answer")
        told = self._source.decode(_decoder, event.data)
        match told.type or event.name:
            case "response.output_text.delta" | "response.refusal.delta":
                self._progress(told).is_shown = True
                parts.text(told.delta or "")
            case "response.function_call_arguments.delta":
                self._read_arguments(self._progress(told), told.delta, parts)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._progress(told).is_shown = True
                parts.thinking(told.delta or "")
            case "response.reasoning_summary_part.added" if told.summary_index:
                parts.thinking("\n\n")
            case "response.function_call_arguments.done":
                self._end_arguments(self._progress(told), told.arguments, parts)
            case "response.output_item.added" if told.item is not None and told.item.type == "function_call":
                self._begin_call(told, told.item, parts)
            case "response.output_item.done" if told.item is not None:
                self._read_item(told, told.item, parts)
            case "response.completed" | "response.incomplete" as kind:
                self._response = told.response or _Response()
                self._response.status = self._response.status or kind.removeprefix("response.")
                if self._response.status == "failed" or self._response.error is not None:
                    raise self._source.failure_in(event.data)
                return True
            case "response.failed" | "error":
                raise self._source.failure_in(event.data)
        return False

    def end(self, parts: Parts) -> Ended:
        assert self._response is not None, "there is no end without it"
        response, name = self._response, self._source.provider
        details = response.incomplete_details
        if details is not None and details.reason == "content_filter":
            raise BadRequest(f"{name}: the content filter stopped the answer", provider=name)
        stop: StopReason = "toolUse" if parts.calls else "stop"
        if response.status == "incomplete":
            stop = "length"
        return Ended(stop, None if response.usage is None else _usage(response.usage))

    def _progress(self, event: _Event) -> _Progress:
        key = event.item_id if event.output_index is None else event.output_index
        progress = self._items.get(key)
        if progress is None:
            progress = self._items[key] = _Progress()
        return progress

    def _begin_call(self, event: _Event, item: _Item, parts: Parts) -> _Progress:
        arguments = _text(item.arguments)
        number = parts.begin_call(_text(item.call_id) or _text(item.id), _text(item.name), arguments)
        key = (_text(item.id) or event.item_id) if event.output_index is None else event.output_index
        self._items[key] = progress = _Progress(number, is_shown=bool(arguments))
        return progress

    def _read_arguments(self, progress: _Progress, fragment: str | None, parts: Parts) -> None:
        if progress.call is not None and fragment:
            progress.is_shown = True
            parts.arguments(progress.call, fragment)

    def _end_arguments(self, progress: _Progress, arguments: Any, parts: Parts) -> None:
        if not progress.is_shown:
            self._read_arguments(progress, _text(arguments), parts)

    def _read_item(self, event: _Event, item: _Item, parts: Parts) -> None:
        """The end of an item: the reasoning to be sent again, and what was not told before."""
        key = (_text(item.id) or event.item_id) if event.output_index is None else event.output_index
        progress = self._items.get(key) or _Progress()
        match item.type:
            case "function_call":
                if progress.call is None:
                    progress = self._begin_call(event, item, parts)
                self._end_arguments(progress, item.arguments, parts)
            case "message" if not progress.is_shown:
                parts.text("".join(_texts(item.content)))
            case "reasoning":
                summary = _texts(item.summary)
                if not progress.is_shown:
                    parts.thinking("\n\n".join(summary))
                if isinstance(item.encrypted_content, str):
                    is_hidden = not progress.is_shown and not summary
                    parts.thinking("", signature=_sealed(item, summary), redacted=is_hidden)


def _sealed(item: _Item, summary: Sequence[str]) -> str:
    """The item as it has to be sent again."""
    sealed = {
        "type": "reasoning",
        "id": _text(item.id),
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "encrypted_content": item.encrypted_content,
    }
    return json.dumps(sealed, separators=(",", ":"))  # encodes halves of surrogate pairs, which msgspec refuses


def _texts(parts: Any) -> list[str]:
    """The texts of an item's parts."""
    found = [part.get("text") or part.get("refusal") for part in _list(parts) if isinstance(part, dict)]
    return [text for text in found if text and isinstance(text, str)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _usage(usage: _Usage) -> Usage:
    details = usage.input_tokens_details or _InputDetails()
    return usage_of(
        prompt=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=details.cached_tokens,
        cache_write=details.cache_write_tokens,
    )
