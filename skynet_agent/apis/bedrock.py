"""``bedrock``: Amazon Bedrock's Converse stream, one format for the models of all makers.

Messages to the wire (``build_body``), and the event stream to parts (``Interpreter``). Reference: ``ConverseStream`` in
https://docs.aws.amazon.com/bedrock/latest/APIReference/, whose shapes botocore has as data. What only the models of one
maker understand is in ``FAMILIES``: Bedrock refuses a request that has more than its model can do with.

**Cache points** follow the two stable tiers of the system prompt and two places in the messages (``claude``).

**Tools.** Bedrock takes calls and results only together with ``toolConfig``, and has no way to say that none may be
called. So where none may be (no tools, ``tool_choice`` ``none``), calls and results are told as text.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from skynet_agent import claude
from skynet_agent.endpoint import Endpoint, ask
from skynet_agent.errors import AuthFailed, BadRequest, Overloaded, ProviderError
from skynet_agent.events import Ended, Part
from skynet_agent.eventstream import EventStreamDecoder, EventStreamMessage
from skynet_agent.failures import error_facts, failure_of_facts
from skynet_agent.history import CallIds, Side, by_side, conversation
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
from skynet_agent.requests import CACHED_TIERS, ModelOptions, ModelRequest, OneTool, ToolDefinition
from skynet_agent.thinking import nearest_level
from skynet_agent.writing import EARLIER, NO_OUTPUT, answer_tokens, last_of_user, unseen, unsupported_format

IDS = CallIds(r"[a-zA-Z0-9_-]+", 64)
IMAGE_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}

Block: TypeAlias = dict[str, Json]

_encoder = msgspec.json.Encoder()
_name_form = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Family(NamedTuple):
    """What the models of one maker understand.

    ``points``: where cache points may stand, after a user's text or after results of tools as well; a model that does
    not know them refuses the request. ``result_status``: whether a result can be said to be an error.
    """

    points: Literal["", "text", "all"] = ""
    thinking: Literal["", "claude", "nova", "effort"] = ""
    result_status: bool = False


CLAUDE = Family("all", "claude", result_status=True)
FAMILIES: tuple[tuple[str, Family], ...] = (
    (r"anthropic\.claude-(?:v2|instant|3-(?:haiku|sonnet|opus)|3-5-sonnet)", CLAUDE._replace(points="")),
    (r"anthropic\.claude-", CLAUDE),
    (r"amazon\.nova-(?:micro|lite|pro|premier)-", Family("text", result_status=True)),
    (r"amazon\.nova-", Family(thinking="nova", result_status=True)),
    (r"openai\.gpt-oss-", Family(thinking="effort")),
)
"""By what the id has at its beginning, after a region (``us.``, ``global.``) or at the end of an ARN; the first fits.

Cache points: "Supported models" of https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html. Claude 3.5
Sonnet is left out, as only who took part in a preview may use them there; so is Nova 2, of which it says nothing. Nova
refuses points after results of tools (https://github.com/earendil-works/pi/issues/2053). Thinking: the pages
``claude-messages-extended-thinking`` and ``claude-messages-adaptive-thinking`` of the same guide, ``extended-thinking``
of the guide to Nova 2.
"""


def stream(endpoint: Endpoint, model: ModelInfo, request: ModelRequest) -> AsyncGenerator[Part, None]:
    """See ``StreamFunction``."""
    body = _encoder.encode(build_body(endpoint.row, model, request))
    path = f"/model/{quote(model.id, safe='')}/converse-stream"
    return _ask(endpoint, path, body, wire_names(request.options.tools))


async def _ask(endpoint: Endpoint, path: str, body: bytes, names: Mapping[str, str]) -> AsyncGenerator[Part, None]:
    """Ask, once more if credentials had run out: Bedrock says 403 to these, and endpoints renew after 401 only."""
    renewed = False
    while True:
        try:
            async with aclosing(ask(endpoint, path, body, reader(endpoint.source, names))) as parts:
                async for part in parts:
                    yield part
            return
        except AuthFailed as exc:
            is_of_token = exc.status == 403 and "security token" in str(exc)
            if renewed or not is_of_token or not await endpoint.auth.renew():
                raise
            renewed = True


def reader(source: Source, names: Mapping[str, str] | None = None) -> AnswerReader[EventStreamMessage]:
    """A reader of one streamed answer. ``names``: see ``wire_names``."""
    return AnswerReader(source, EventStreamDecoder(), Interpreter(source, names or {}))


# The body


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a request.

    Raises:
        BadRequest: ``response_format`` is one that the API has no form for.
    """
    options = request.options
    family = family_of(row, model)
    messages = conversation(row, model, request, ids=IDS, volatile=False)
    tools = options.tools if model.tools and options.tool_choice != "none" else ()
    thinking = _thinking(family, row, model, options, messages)
    output = {**thinking.effort, **_format(row, options)}
    wanted: dict[str, Json] = {
        "system": _system(request.system, family),
        "messages": wire_messages(messages, family, volatile=request.volatile, tools=bool(tools)),
        "inferenceConfig": _inference(family, model, options, thinking),
        "toolConfig": _tool_config(tools, options),
        "outputConfig": output,
        "additionalModelRequestFields": thinking.fields,
    }
    return {key: value for key, value in wanted.items() if value}


def family_of(row: ProviderRow, model: ModelInfo) -> Family:
    """What ``model`` understands. An ARN need not name its model: with the row's ``cache_marks`` it is a Claude."""
    for form, family in FAMILIES:
        if re.search(rf"(?:^|[./]){form}", model.id):
            return family
    return CLAUDE if row.cache_marks else Family()


def _system(system: Sequence[str], family: Family) -> list[Block]:
    blocks: list[Block] = []
    for tier, text in enumerate(system):
        if text.strip():
            blocks.append({"text": text})
            if tier < CACHED_TIERS and family.points:
                blocks.append(_cache_point())
    return blocks


def _inference(family: Family, model: ModelInfo, options: ModelOptions, thinking: _Thinking) -> dict[str, Json]:
    is_claude = family.thinking == "claude"
    temperature, top_p = (options.temperature, options.top_p) if model.sampling else (None, None)
    if thinking.is_alone:
        temperature, top_p = None, None
    elif is_claude and temperature is not None:
        temperature, top_p = min(temperature, 1.0), None  # OpenAI's scale goes up to 2; newer models take one of them
    wanted = {
        "maxTokens": thinking.max_tokens,
        "temperature": temperature,
        "topP": top_p,
        "stopSequences": [text for text in options.stop or () if text.strip() or (text and not is_claude)] or None,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _format(row: ProviderRow, options: ModelOptions) -> dict[str, Json]:
    match options.response_format:
        case None | {"type": "text"}:
            return {}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)} as described}:
            words = {key: described[key] for key in ("name", "description") if isinstance(described.get(key), str)}
            json_schema = {"schema": _encoder.encode(schema).decode(), **words}
            return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": json_schema}}}
    raise unsupported_format(row, options, "text, json_schema with a schema")


def _cache_point() -> Block:
    return {"cachePoint": {"type": "default"}}


# Tools


def wire_name(name: str) -> str:
    """The name of a tool as Bedrock takes it: ``name`` itself, or what always stands for it."""
    if _name_form.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:55]}_{digest}"


def wire_names(tools: Sequence[ToolDefinition]) -> dict[str, str]:
    """The tools' own names by what stands for them."""
    return {wire_name(tool.name): tool.name for tool in tools}


def _tool_config(tools: Sequence[ToolDefinition], options: ModelOptions) -> dict[str, Json]:
    if not tools:
        return {}
    config: dict[str, Json] = {"tools": [_wire_tool(tool) for tool in tools]}
    if options.tool_choice == "required":
        config["toolChoice"] = {"any": {}}
    elif isinstance(options.tool_choice, OneTool):
        config["toolChoice"] = {"tool": {"name": wire_name(options.tool_choice.name)}}
    return config


def _wire_tool(tool: ToolDefinition) -> Block:
    """``strict`` is not asked for: most models refuse the field, and schemas that have more than it knows."""
    described = {"description": tool.description} if tool.description else {}
    schema = {"type": "object", **tool.parameters}
    return {"toolSpec": {"name": wire_name(tool.name), **described, "inputSchema": {"json": schema}}}


# Thinking


class _Thinking(NamedTuple):
    max_tokens: int | None
    fields: Mapping[str, Json] = MappingProxyType({})
    """What only models of its maker know."""
    effort: Mapping[str, Json] = MappingProxyType({})
    is_alone: bool = False
    """Temperature and the like are refused beside it."""


def _thinking(
    family: Family, row: ProviderRow, model: ModelInfo, options: ModelOptions, messages: Sequence[Message]
) -> _Thinking:
    """How much to think and to write."""
    asked = answer_tokens(model, options)
    if family.thinking == "claude":
        told = claude.thinking(row, model, options, messages)
        return _Thinking(
            told.max_tokens if asked or told.has_budget else None,
            {"thinking": told.config} if told.config else {},
            {"effort": told.effort} if told.effort else {},
            is_alone=told.is_on,
        )
    words = [level for level in model.thinking_levels or row.thinking_levels if level in ("low", "medium", "high")]
    word = nearest_level(options.thinking, words) if options.thinking and family.thinking else None
    if word is None:
        return _Thinking(asked)
    if family.thinking == "effort":
        return _Thinking(asked, {"reasoning_effort": word})
    fields = {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": word}}
    return _Thinking(None if word == "high" else asked, fields, is_alone=word == "high")


# Messages to the wire


def wire_messages(
    messages: Sequence[Message], family: Family, *, volatile: str = "", tools: bool = True
) -> list[dict[str, Json]]:
    """``messages``, which ``conversation`` cleaned, with cache points; user and assistant alternate, the user first.

    Without ``tools``, calls and results become text.
    """
    blocks: list[Block] = []
    turns: list[tuple[Side, range]] = []
    marks = claude.CacheMarks()
    last = last_of_user(messages)
    for side, group in by_side(messages):
        start = len(blocks)
        has_results = any(isinstance(message, ToolResultMessage) for message in group)
        for message in group:
            blocks += _content(message, family, tools)
            if isinstance(message, UserMessage):
                if family.points == "all" or (family.points and "text" in blocks[-1] and not has_results):
                    marks.asked(len(blocks) - 1)
                if message is last and volatile.strip():
                    blocks.append({"text": volatile})
        if family.points == "all" and isinstance(message, ToolResultMessage):
            marks.answered(len(blocks) - 1)
        turns.append((side, range(start, len(blocks))))
    places = marks.places()
    wire: list[dict[str, Json]] = []
    if turns and turns[0][0] == "assistant":
        wire.append({"role": "user", "content": [{"text": EARLIER}]})
    for side, numbers in turns:
        content = [block for n in numbers for block in ([blocks[n], _cache_point()] if n in places else [blocks[n]])]
        wire.append({"role": side, "content": content})
    return wire


def _content(message: Message, family: Family, tools: bool) -> list[Block]:
    match message:
        case UserMessage():
            return [_user_block(block) for block in message.content]
        case AssistantMessage():
            content = [block for each in message.content for block in _assistant_block(each, family, tools)]
            while "reasoningContent" in content[-1]:
                content.pop()  # the answer was cut there; none may end with thinking
            return content
        case ToolResultMessage():
            shown = [_user_block(block) for block in message.content] or [{"text": NO_OUTPUT}]
            if not tools:
                return [{"text": f"[{message.tool_name} answered:]"}, *shown]
            result: Block = {"toolUseId": message.tool_call_id, "content": shown}
            if message.is_error and family.result_status:
                result["status"] = "error"
            return [{"toolResult": result}]


def _assistant_block(block: AssistantBlock, family: Family, tools: bool) -> list[Block]:
    match block:
        case TextBlock():
            return [{"text": block.text}]
        case ThinkingBlock() if family.thinking != "claude" or not block.thinking_signature:
            return []  # others take no thinking back, and Claude none that was cut before its signature
        case ThinkingBlock(redacted=True):
            return [{"reasoningContent": {"redactedContent": block.thinking_signature}}]
        case ThinkingBlock():
            text = {"text": block.thinking, "signature": block.thinking_signature}
            return [{"reasoningContent": {"reasoningText": text}}]
        case ToolCallBlock() if tools:
            call = {"toolUseId": block.id, "name": wire_name(block.name), "input": block.arguments}
            return [{"toolUse": call}]
        case ToolCallBlock():
            return [{"text": f"[called {block.name} with {_encoder.encode(block.arguments).decode()}]"}]


def _user_block(block: UserBlock) -> Block:
    if isinstance(block, TextBlock):
        return {"text": block.text}
    if block.mime_type not in IMAGE_FORMATS:
        return {"text": unseen(block)}
    return {"image": {"format": IMAGE_FORMATS[block.mime_type], "source": {"bytes": block.data}}}


# The stream


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: str | None = None


class _Reasoning(msgspec.Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _Delta(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None


class _Start(msgspec.Struct, rename="camel"):
    tool_use: _ToolUse | None = None


class _Usage(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Event(msgspec.Struct, rename="camel"):
    """The payload of any event."""

    content_block_index: int = 0
    delta: _Delta | None = None
    start: _Start | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Event)

_KINDS = frozenset(("contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStop", "metadata"))
_STOP_REASONS: Mapping[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "toolUse",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class Interpreter:
    """Messages of the event stream to parts. Events and blocks of other kinds than ours are passed over.

    Args:
        names: see ``wire_names``.
    """

    def __init__(self, source: Source, names: Mapping[str, str]) -> None:
        self._source = source
        self._names = names
        self._stop = ""
        self._usage: Usage | None = None
        self._calls: dict[int, int] = {}  # the wire's index of a block → our number of the call
        self._signatures: dict[int, str] = {}
        self._redacted: dict[int, list[str]] = {}

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def read(self, event: EventStreamMessage, parts: Parts) -> bool:
        headers = event.headers
        if headers.get(":message-type") != "event":
            raise self._failure(event)
        kind = headers.get(":event-type")
        if kind not in _KINDS:
            return False
        told = self._source.decode(_decoder, event.payload)
        match kind:
            case "contentBlockDelta":
                if told.delta is not None:
                    self._read_delta(told.content_block_index, told.delta, parts)
            case "contentBlockStart":
                if told.start is not None and told.start.tool_use is not None:
                    self._begin(told.content_block_index, told.start.tool_use, parts)
            case "contentBlockStop":
                self._finish(told.content_block_index, parts)
            case "messageStop":
                self._stop = told.stop_reason or "end_turn"
            case "metadata":
                self._usage = _usage(told.usage) if told.usage is not None else None
                return self.complete
        return False

    def end(self, parts: Parts) -> Ended:
        name, reason = self._source.provider, self._stop
        if reason in ("guardrail_intervened", "content_filtered"):
            what = "a guardrail" if reason == "guardrail_intervened" else "the content filter"
            raise BadRequest(f"{name}: {what} stopped the answer", provider=name)
        if reason in ("malformed_model_output", "malformed_tool_use"):
            raise Overloaded(f"{name}: the answer ended with {reason!r}", provider=name)
        for index in [*self._signatures, *self._redacted]:
            self._finish(index, parts)
        stop = _STOP_REASONS.get(reason, "stop")
        if stop == "stop" and parts.calls:
            stop = "toolUse"  # some models say "end_turn" although they ask for tools
        return Ended(stop, self._usage)

    def _begin(self, index: int, call: _ToolUse, parts: Parts) -> None:
        name = call.name or ""
        self._calls[index] = parts.begin_call(call.tool_use_id or "", self._names.get(name, name))

    def _read_delta(self, index: int, delta: _Delta, parts: Parts) -> None:
        if delta.text is not None:
            parts.text(delta.text)
        elif delta.tool_use is not None:
            number = self._calls.get(index)
            if number is not None:
                parts.arguments(number, delta.tool_use.input or "")
        elif delta.reasoning_content is not None:
            thought = delta.reasoning_content
            parts.thinking(thought.text or "")
            if thought.signature:
                self._signatures[index] = self._signatures.get(index, "") + thought.signature
            if thought.redacted_content:
                self._redacted.setdefault(index, []).append(thought.redacted_content)

    def _finish(self, index: int, parts: Parts) -> None:
        """A block is whole; may be told more than once."""
        parts.thinking("", signature=self._signatures.pop(index, ""))
        if pieces := self._redacted.pop(index, None):
            parts.thinking("", signature=_joined(pieces), redacted=True)

    def _failure(self, event: EventStreamMessage) -> ProviderError:
        """The failure that a message of the type ``exception`` or ``error`` tells."""
        headers = event.headers
        if headers.get(":message-type") not in ("exception", "error"):
            return self._source.cut("a message of a type that nobody knows")
        kind = str(headers.get(":exception-type") or headers.get(":error-code") or "")
        message, _, _ = error_facts(self._source.redact(event.payload))
        return failure_of_facts(self._source.provider, message or str(headers.get(":error-message") or kind), "", kind)


def _joined(pieces: Sequence[str]) -> str:
    """The base64 of several, which may end in the middle."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        return b64encode(b"".join([b64decode(piece) for piece in pieces])).decode()
    except ValueError:
        return "".join(pieces)


def _usage(usage: _Usage) -> Usage:
    """Bedrock's ``inputTokens`` are those that the cache had nothing to do with."""
    read, written = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
    return usage_of(
        prompt=(usage.input_tokens or 0) + read + written,
        output=usage.output_tokens,
        cache_read=read,
        cache_write=written,
    )
