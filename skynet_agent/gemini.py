"""Gemini's ``generateContent``: the body of a request, and the reader of its stream.

The address belongs to who offers it (Vertex AI: ``apis/vertex.py``). References:
https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference, ``…/docs/thinking``,
``…/docs/thought-signatures``, ``…/docs/multimodal/function-calling``.

What is different from other APIs:

- Calls come whole and have no ids; results are told apart by order and name alone. So a content that answers calls
  holds as many results as there were calls, in their order, and nothing else.
- **Thought signatures** may come with any part, and go back where they came from while the turn lasts. Gemini 3 and
  later refuse a round of this turn whose first call has none; a call that another model made gets the text that
  Google names for it.
- **Schemas** are sent as JSON schema (``parametersJsonSchema``), of which unknown words are passed over. The other
  field, ``parameters``, has a schema of its own, and a request is refused for each word that it does not know.
- What a model thinks is part of ``maxOutputTokens``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from skynet_agent.errors import BadRequest, Overloaded, RateLimited
from skynet_agent.events import Ended
from skynet_agent.failures import SHOWN_CHARACTERS, retry_delay
from skynet_agent.history import by_side, conversation
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
from skynet_agent.reading import AnswerReader, Parts, Source, repair, usage_of
from skynet_agent.requests import ModelOptions, ModelRequest, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.sse import SseDecoder, SseEvent
from skynet_agent.thinking import BUDGET_TOKENS, nearest_level
from skynet_agent.writing import (
    EARLIER,
    IMAGES,
    NO_OUTPUT,
    SEE_IMAGES,
    answer_tokens,
    output_limit,
    unseen,
    unsupported_format,
)

UNSIGNED = "skip_thought_signature_validator"
"""In place of the signature of a call that this model did not make (``…/docs/thought-signatures``)."""
SIGNING_GENERATION = 3
"""From this one on, calls have to be signed, and results may hold images."""
WORDS: tuple[ThinkingLevel, ...] = ("minimal", "low", "medium", "high")
LEVELS = WORDS[1:]
"""Those that every model knows that is told one."""
MOST_OUTPUT = 65_536
"""What models write at most that think; more is refused."""
LEAST_BUDGET = 128
"""Of a model that cannot do without thinking."""
MOST_BUDGET = 24_576
MOST_BUDGET_OF_PRO = 32_768

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
RESULT_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})
MOST_SCHEMA_NODES = 20_000
DEEPEST_SCHEMA = 100

Part: TypeAlias = dict[str, Json]

_DEFINITIONS = ("$defs", "definitions")

_generation = re.compile(r"gemini-(\d+)")
_signature = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def reader(source: Source, prefix: str = "") -> AnswerReader[SseEvent]:
    """A reader of one streamed answer. Ids of calls begin with ``prefix``, else with a word of this answer's own."""
    return AnswerReader(source, SseDecoder(), Interpreter(source, prefix or f"call_{os.urandom(6).hex()}_"))


def generation(model_id: str) -> int:
    """The number in ``gemini-2.5-pro``; of a name without one (``gemini-flash-latest``) what is newest."""
    match = _generation.search(model_id)
    return int(match[1]) if match else SIGNING_GENERATION


# The body


def build_body(row: ProviderRow, model: ModelInfo, request: ModelRequest) -> dict[str, Json]:
    """The body of a request.

    Raises:
        BadRequest: ``response_format`` is one that the API has no form for.
    """
    options = request.options
    system = [{"text": text} for text in request.system if text.strip()]
    wanted: dict[str, Json] = {
        "contents": wire_contents(model, conversation(row, model, request)),
        "systemInstruction": {"parts": system} if system else None,
        "tools": [{"functionDeclarations": [_wire_tool(tool) for tool in options.tools]}] if options.tools else None,
        "toolConfig": _tool_config(options),
        "generationConfig": _generation_config(row, model, options) or None,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _generation_config(row: ProviderRow, model: ModelInfo, options: ModelOptions) -> dict[str, Json]:
    wanted: dict[str, Json] = {
        "temperature": options.temperature if model.sampling else None,
        "topP": options.top_p if model.sampling else None,
        "maxOutputTokens": _max_tokens(model, options),
        "stopSequences": [text for text in options.stop or () if text] or None,
        "seed": None if options.seed is None else options.seed & 0x7FFFFFFF,  # 32 bits
        "thinkingConfig": _thinking(model, options),
        **_format(row, options),
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _max_tokens(model: ModelInfo, options: ModelOptions) -> int | None:
    """What was asked for and what is thought besides, but never more than the model can write."""
    if options.max_tokens is None:
        return answer_tokens(model, options)
    with_thinking = min(options.max_tokens + BUDGET_TOKENS[options.thinking or "off"], MOST_OUTPUT)
    asked = max(options.max_tokens, with_thinking)
    return min(asked, output_limit(model) or asked)


def _thinking(model: ModelInfo, options: ModelOptions) -> dict[str, Json] | None:
    if options.thinking is None:
        return None
    shown = {} if options.thinking == "off" else {"includeThoughts": True}
    if model.thinking_form == "effort":
        levels = [level for level in model.thinking_levels if level in WORDS] or LEVELS
        level = nearest_level(options.thinking, levels) or levels[0]  # the least, where none is not to be had
        return {"thinkingLevel": level.upper(), **shown}
    is_pro = "pro" in model.id
    can_rest = "off" in model.thinking_levels or not (is_pro or generation(model.id) >= SIGNING_GENERATION)
    budget = min(BUDGET_TOKENS[options.thinking], MOST_BUDGET_OF_PRO if is_pro else MOST_BUDGET)
    return {"thinkingBudget": budget if can_rest else max(budget, LEAST_BUDGET), **shown}


def _format(row: ProviderRow, options: ModelOptions) -> dict[str, Json]:
    match options.response_format:
        case None | {"type": "text"}:
            return {}
        case {"type": "json_object"}:
            return {"responseMimeType": "application/json"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"responseMimeType": "application/json", "responseJsonSchema": wire_schema(schema)}
    raise unsupported_format(row, options, "text, json_object, json_schema with a schema")


# Tools


def _wire_tool(tool: ToolDefinition) -> dict[str, Json]:
    wire: dict[str, Json] = {"name": tool.name}
    if tool.description:
        wire["description"] = tool.description
    if tool.parameters.get("properties"):  # a function without parameters has no schema
        wire["parametersJsonSchema"] = {"type": "object", **wire_schema(tool.parameters)}
    return wire


def _tool_config(options: ModelOptions) -> dict[str, Json] | None:
    choice = options.tool_choice
    if not options.tools or choice is None:
        return None
    if isinstance(choice, OneTool):
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice.name]}}
    return {"functionCallingConfig": {"mode": {"auto": "AUTO", "none": "NONE", "required": "ANY"}[choice]}}


def wire_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """``schema`` as Gemini takes it: without ``$schema``, and with what references mean in their place.

    A reference may have no other words beside it, which most have that are made by a program. One that leads back to
    itself, leads nowhere, or would make the schema larger than it should be becomes any object.
    """
    made = _Schema(schema).resolved(schema, ())
    return {key: value for key, value in made.items() if key not in _DEFINITIONS}


class _Schema:
    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._left = MOST_SCHEMA_NODES

    def resolved(self, node: Json, via: tuple[str, ...], depth: int = 0) -> Json:
        self._left -= 1
        if isinstance(node, list) and depth < DEEPEST_SCHEMA:
            return [self.resolved(each, via, depth + 1) for each in node]
        if not isinstance(node, Mapping):
            return node
        if self._left < 0 or depth >= DEEPEST_SCHEMA:
            return {"type": "object"}
        reference = node.get("$ref")
        if isinstance(reference, str):
            target = None if reference in via else self._target(reference)
            beside = {key: value for key, value in node.items() if key != "$ref"}
            if not isinstance(target, Mapping):
                target = {"type": "object"}
            return self.resolved({**target, **beside}, (*via, reference), depth + 1)
        return {
            key: self.resolved(value, via, depth + 1)
            for key, value in node.items()
            if not (key == "$schema" and isinstance(value, str)) and not (depth == 0 and key in _DEFINITIONS)
        }

    def _target(self, reference: str) -> Json:
        """What a JSON pointer into the schema points at; None if that is nothing."""
        if not reference.startswith("#"):
            return None
        found: Json = self._root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and re.fullmatch(r"[0-9]{1,9}", step) and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, Mapping):
                found = found.get(step)
            else:
                return None
        return found


# Messages to the wire


def wire_contents(model: ModelInfo, messages: Sequence[Message]) -> list[dict[str, Json]]:
    """``messages``, which ``conversation`` cleaned. Results of tools stand by themselves, before what a user says."""
    signs = generation(model.id) >= SIGNING_GENERATION
    contents: list[dict[str, Json]] = []
    for side, group in by_side(messages):
        if side == "user":
            contents += [{"role": "user", "parts": parts} for parts in _user_parts(group, signs=signs) if parts]
            continue
        if not contents:  # a call has to follow something of the user's
            contents.append({"role": "user", "parts": [{"text": EARLIER}]})
        contents.append({"role": "model", "parts": _answer_parts(group, signs=signs)})
    return contents


def _user_parts(group: Sequence[Message], *, signs: bool) -> tuple[list[Part], list[Part]]:
    results = [message for message in group if isinstance(message, ToolResultMessage)]
    said = [block for message in group if isinstance(message, UserMessage) for block in message.content]
    images = [] if signs else _images_of(results)
    return [_result_part(result, images=signs) for result in results], [*images, *map(_user_part, said)]


def _answer_parts(group: Sequence[Message], *, signs: bool) -> list[Part]:
    answers = [message for message in group if isinstance(message, AssistantMessage)]
    parts = [part for answer in answers for part in _model_parts(answer)]
    calls = [part for part in parts if "functionCall" in part]
    if signs and calls and "thoughtSignature" not in calls[0]:
        calls[0]["thoughtSignature"] = UNSIGNED
    return parts


def _model_parts(message: AssistantMessage) -> list[Part]:
    """An answer's parts. A signature without thinking is that of the text before it, else of what follows."""
    parts: list[Part] = []
    waiting = ""
    for block in message.content:
        match block:
            case ThinkingBlock():
                signature = _whole(block.thinking_signature)
                if not signature:
                    continue  # a summary: nothing that the model needs again
                if block.thinking:
                    parts.append({"text": block.thinking, "thought": True, "thoughtSignature": signature})
                elif parts and "text" in parts[-1] and "thoughtSignature" not in parts[-1]:
                    parts[-1]["thoughtSignature"] = signature
                else:
                    waiting = signature
                continue
            case TextBlock():
                part: Part = {"text": block.text}
            case ToolCallBlock():
                part = {"functionCall": {"name": block.name, "args": block.arguments}}
                waiting = _whole(block.thought_signature) or waiting
        if waiting:
            part["thoughtSignature"] = waiting
            waiting = ""
        parts.append(part)
    return parts


def _whole(signature: str) -> str:
    """``signature`` if it is one: it is bytes in base64, and anything else is refused."""
    return signature if _signature.fullmatch(signature) else ""


def _result_part(result: ToolResultMessage, *, images: bool) -> Part:
    """A result; ``images``: with its images. Without an id, which Vertex AI's ``v1`` does not know."""
    shown = [block for block in result.content if isinstance(block, ImageBlock)]
    told = [text_of(result), *(unseen(block) for block in shown if block.mime_type not in _types(images=images))]
    text = "\n".join(filter(None, told)) or (SEE_IMAGES if shown else NO_OUTPUT)
    response: Part = {"name": result.tool_name, "response": {"error" if result.is_error else "output": text}}
    if images and (seen := [_inline(block) for block in shown if block.mime_type in RESULT_IMAGE_TYPES]):
        response["parts"] = seen
    return {"functionResponse": response}


def _types(*, images: bool) -> frozenset[str]:
    return RESULT_IMAGE_TYPES if images else IMAGE_TYPES


def _images_of(results: Sequence[ToolResultMessage]) -> list[Part]:
    images = [
        _inline(block)
        for result in results
        for block in result.content
        if isinstance(block, ImageBlock) and block.mime_type in IMAGE_TYPES
    ]
    return [{"text": IMAGES}, *images] if images else []


def _user_part(block: UserBlock) -> Part:
    if isinstance(block, TextBlock):
        return {"text": block.text}
    return _inline(block) if block.mime_type in IMAGE_TYPES else {"text": unseen(block)}


def _inline(block: ImageBlock) -> Part:
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


# The stream


class _FunctionCall(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: int | None = None
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)

_STOP_REASONS: Mapping[str, StopReason] = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length"}
_STUMBLES = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER"}
)
"""Ends that are the model's own mistake: asked again, it may do better. All others are somebody's verdict."""


class Interpreter:
    """Events of the stream to parts. The stream has no last event; it ends with the connection."""

    def __init__(self, source: Source, prefix: str) -> None:
        self._source = source
        self._prefix = prefix
        self._stop = ""
        self._why = ""
        self._of_text = ""
        self._usage: Usage | None = None

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def read(self, event: SseEvent, parts: Parts) -> bool:
        chunk = self._source.decode(_decoder, event.data)
        if chunk.error is not None:
            raise self._failure(event.data)
        if chunk.usage_metadata is not None:
            self._usage = _usage(chunk.usage_metadata)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            reason, message = chunk.prompt_feedback.block_reason, chunk.prompt_feedback.block_reason_message
            raise self._verdict("the prompt was refused", reason, message)
        for candidate in chunk.candidates or ():
            if not candidate.index:
                self._read_candidate(candidate, parts)
        return False

    def end(self, parts: Parts) -> Ended:
        name, reason = self._source.provider, self._stop
        if reason in _STUMBLES:
            raise Overloaded(f"{name}: the answer has a broken form: {reason}{self._why}", provider=name)
        if reason not in _STOP_REASONS:
            raise self._verdict("the answer was stopped", reason, self._why.removeprefix(": "))
        stop = _STOP_REASONS[reason]
        return Ended("toolUse" if stop == "stop" and parts.calls else stop, self._usage)

    def _read_candidate(self, candidate: _Candidate, parts: Parts) -> None:
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                self._read_part(part, parts)
        if candidate.finish_reason and candidate.finish_reason != "FINISH_REASON_UNSPECIFIED":
            self._stop = candidate.finish_reason
            if candidate.finish_message:
                self._why = f": {candidate.finish_message[:SHOWN_CHARACTERS]}"

    def _read_part(self, part: _Part, parts: Parts) -> None:
        signature = part.thought_signature or ""
        call = part.function_call
        if call is not None:
            # that of a text is wanted again only if the turn goes on behind it
            parts.thinking("", signature=self._of_text)
            self._of_text = ""
            identity = call.id or f"{self._prefix}{parts.calls}"
            parts.begin_call(identity, call.name or "", _json(call.args), signature=signature)
        elif part.thought:
            parts.thinking(part.text or "", signature=signature)
        else:
            parts.text(part.text or "")
            self._of_text = signature or self._of_text

    def _verdict(self, what: str, reason: str, message: str | None) -> BadRequest:
        name = self._source.provider
        why = f": {message[:SHOWN_CHARACTERS]}" if message else ""
        return BadRequest(f"{name}: {what} ({reason}){why}", provider=name)

    def _failure(self, data: bytes) -> Exception:
        failure = self._source.failure_in(data)
        if isinstance(failure, RateLimited):
            failure.retry_after_s = retry_delay(data)
        return failure


def _usage(usage: _Usage) -> Usage:
    return usage_of(
        prompt=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        cache_read=usage.cached_content_token_count,
    )


def _json(arguments: Json) -> str:
    """``arguments`` as JSON text, whatever characters they have; ``{}`` if they are none, or nested too deeply."""
    if arguments is None:
        return "{}"
    try:
        return msgspec.json.encode(arguments).decode()
    except (UnicodeEncodeError, RecursionError):
        pass
    try:
        return repair(json.dumps(arguments, ensure_ascii=False))
    except RecursionError:
        return "{}"
