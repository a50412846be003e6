"""``POST /v1/chat/completions``: from a body's bytes to a turn. Pure; *any bytes are a turn or an HttpError*.

Fields nobody here knows are ignored, for clients are often newer than servers. Fields that are known and cannot be
honoured are refused by name, so that nobody waits for what will not come.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import msgspec
import orjson
from msgspec import Meta

from skynet.http.errors import invalid
from skynet_agent.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)
from skynet_agent.requests import ModelOptions, OneTool, ThinkingLevel, ToolDefinition
from skynet_agent.thinking import thinking_level

DEFAULT_MAX_TOKENS = 4096
"""Of an answer whose length nobody limits (SK-040)."""

NonEmpty = Annotated[str, Meta(min_length=1)]
Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]

_IMAGE_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,", re.IGNORECASE)
_ERROR_PATH = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_NAMED_FIELD = re.compile(r"missing required field `(?P<name>[^`]+)`")
MISSING_USER = "Missing user message in `messages`."


class TextPart(msgspec.Struct, tag_field="type", tag="text", frozen=True):
    text: str


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal", frozen=True):
    refusal: str


class ImageUrl(msgspec.Struct, frozen=True):
    url: str


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url", frozen=True):
    image_url: ImageUrl


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio", frozen=True):
    """Known only to be refused."""


class FilePart(msgspec.Struct, tag_field="type", tag="file", frozen=True):
    """Known only to be refused."""


class FunctionCall(msgspec.Struct, frozen=True):
    name: NonEmpty
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    id: NonEmpty
    function: FunctionCall
    type: Literal["function"] = "function"


TextContent: TypeAlias = str | list[TextPart]
UserContent: TypeAlias = str | list[TextPart | ImagePart | AudioPart | FilePart]


class SystemMessage(msgspec.Struct, tag_field="role", tag="system", frozen=True):
    content: TextContent


class DeveloperMessage(msgspec.Struct, tag_field="role", tag="developer", frozen=True):
    content: TextContent


class UserTurn(msgspec.Struct, tag_field="role", tag="user", frozen=True):
    content: UserContent


class AssistantTurn(msgspec.Struct, tag_field="role", tag="assistant", frozen=True):
    content: str | list[TextPart | RefusalPart] | None = None
    tool_calls: list[ToolCall] | None = None


class ToolTurn(msgspec.Struct, tag_field="role", tag="tool", frozen=True):
    tool_call_id: NonEmpty
    content: TextContent


ChatMessage: TypeAlias = SystemMessage | DeveloperMessage | UserTurn | AssistantTurn | ToolTurn


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body. Every optional field may also be null."""

    messages: list[ChatMessage]
    model: Annotated[str, Meta(max_length=512)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Meta(max_length=400)] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | list[str] | None = None
    seed: Int64 | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: NonEmpty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    # Known only to be refused where they ask for something.
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    audio: dict[str, Any] | None = None
    modalities: list[str] | None = None
    functions: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """What the client wants.

    ``history`` is None when the stored transcript is the conversation so far. ``content`` is empty when the
    conversation ends in tool results: then ``history`` is the whole of it.
    """

    model: str
    stream: bool
    include_usage: bool
    user: str
    system: str
    content: tuple[UserBlock, ...]
    history: tuple[Message, ...] | None
    options: ModelOptions


_decoder = msgspec.json.Decoder(ChatRequest)


def parse_chat_request(body: bytes, *, now_ms: int, max_tokens: int = DEFAULT_MAX_TOKENS) -> ChatTurn:
    """The turn a body asks for.

    Args:
        max_tokens: of the answer, where the body does not say.

    Raises:
        HttpError: 400; ``param`` names the field.
    """
    request = _decode(body)
    _refuse_unsupported(request)
    if not request.model:
        raise invalid("model: missing; `skynet` is the assistant with its default model", "model")
    system, conversation = _conversation(request.messages, now_ms)
    content, history = _split(conversation)
    return ChatTurn(
        model=request.model,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        user=request.user or "",
        system=system,
        content=content,
        history=history,
        options=_options(request, max_tokens),
    )


def _decode(body: bytes) -> ChatRequest:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise _wrong_field(str(exc)) from None
    except UnicodeDecodeError:
        raise invalid("the body is not valid UTF-8") from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
    except msgspec.DecodeError as exc:
        raise invalid(f"the body is not valid JSON: {exc}") from None


def _wrong_field(text: str) -> Exception:
    match = _ERROR_PATH.fullmatch(text)
    assert match is not None
    what, path = match["what"], match["path"] or ""
    if named := _NAMED_FIELD.search(what):
        path = f"{path}.{named['name']}" if path else named["name"]
    return invalid(f"{path}: {what}" if path else f"the body has to be a JSON object: {what}", path or None)


def _refuse_unsupported(request: ChatRequest) -> None:
    if request.n is not None and request.n != 1:
        raise invalid("n: only one choice is supported", "n")
    if request.logprobs:
        raise invalid("logprobs: log probabilities are not supported", "logprobs")
    if request.top_logprobs:
        raise invalid("top_logprobs: log probabilities are not supported", "top_logprobs")
    if request.audio is not None:
        raise invalid("audio: answers are text", "audio")
    if "audio" in (request.modalities or ()):
        raise invalid("modalities: answers are text", "modalities")
    if request.functions:
        raise invalid("functions: not supported; use tools", "functions")


def _options(request: ChatRequest, max_tokens: int) -> ModelOptions:
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(_encodable(request.tools, "tools") or ())]
    extra = {
        name: value
        for name in ("presence_penalty", "frequency_penalty", "logit_bias")
        if (value := getattr(request, name)) is not None
    }
    return ModelOptions(
        max_tokens=request.max_completion_tokens or request.max_tokens or max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=([request.stop] if isinstance(request.stop, str) else request.stop) if request.stop else None,
        seed=request.seed,
        tools=tools,
        tool_choice=_tool_choice(request.tool_choice, tools),
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_encodable(request.response_format, "response_format"),
        thinking=_thinking(request.reasoning_effort),
        extra=extra,
    )


def _thinking(effort: str | None) -> ThinkingLevel | None:
    try:
        return None if effort is None else thinking_level(effort)
    except ValueError as exc:
        raise invalid(f"reasoning_effort: {exc}", "reasoning_effort") from exc


def _tool_choice(
    choice: object, tools: Sequence[ToolDefinition]
) -> Literal["auto", "none", "required"] | OneTool | None:
    match choice:
        case None | "auto" | "none" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}}:
            if all(tool.name != name for tool in tools):
                raise invalid(f"tool_choice: there is no tool {name[:64]!r} among the tools", "tool_choice")
            return OneTool(name)
        case _:
            raise invalid("tool_choice: expected none, auto, required or one function", "tool_choice")


def _tool(tool: Mapping[str, Any], param: str) -> ToolDefinition:
    if tool.get("type") != "function":
        raise invalid(f"{param}.type: only function tools are supported", f"{param}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{param}.function: expected an object", f"{param}.function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{param}.function.name: expected a non-empty string", f"{param}.function.name")
    description, parameters, strict = (function.get(each) for each in ("description", "parameters", "strict"))
    if not isinstance(description, str | None):
        raise invalid(f"{param}.function.description: expected a string", f"{param}.function.description")
    if not isinstance(parameters, dict | None):
        raise invalid(f"{param}.function.parameters: expected an object", f"{param}.function.parameters")
    if not isinstance(strict, bool | None):
        raise invalid(f"{param}.function.strict: expected true or false", f"{param}.function.strict")
    definition = ToolDefinition(name=name, description=description or "", strict=strict)
    return replace(definition, parameters=parameters) if parameters else definition


def _encodable(value: Any, param: str) -> Any:
    """``value``, if it can be written as JSON again inside a request to a provider."""
    if value is not None and not _is_encodable(value):
        raise invalid(f"{param}: nested too deeply, or a number that is too large", param)
    return value


def _is_encodable(value: object) -> bool:
    try:
        orjson.dumps([[[[value]]]])  # refuses what is nested deeper than 254 levels, and integers beyond 64 bits
    except orjson.JSONEncodeError:
        return False
    return True


def _conversation(messages: Sequence[ChatMessage], now_ms: int) -> tuple[str, list[Message]]:
    """The joined system texts, and everything else in order."""
    system: list[str] = []
    conversation: list[Message] = []
    tool_names: dict[str, str] = {}
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        if isinstance(message, UserTurn):
            blocks = _user_blocks(message.content, f"{param}.content")
            conversation.append(UserMessage(content=blocks, timestamp=now_ms))
        elif isinstance(message, AssistantTurn):
            answer = _assistant_blocks(message)
            tool_names.update((block.id, block.name) for block in answer if isinstance(block, ToolCallBlock))
            if answer:  # an empty one says nothing, and providers refuse it
                conversation.append(_assistant_message(answer, now_ms))
        elif isinstance(message, ToolTurn):
            if message.tool_call_id not in tool_names:
                raise invalid(
                    f"{param}.tool_call_id: no earlier assistant message has this tool call", f"{param}.tool_call_id"
                )
            conversation.append(
                ToolResultMessage(
                    tool_call_id=message.tool_call_id,
                    tool_name=tool_names[message.tool_call_id],
                    content=[TextBlock(text=_text(message.content))],
                    is_error=False,
                    timestamp=now_ms,
                )
            )
        elif text := _text(message.content):
            system.append(text)
    return "\n\n".join(system), conversation


def _split(conversation: list[Message]) -> tuple[tuple[UserBlock, ...], tuple[Message, ...] | None]:
    """The message of this turn and what came before it, as :class:`ChatTurn` has them."""
    if not any(isinstance(message, UserMessage | ToolResultMessage) for message in conversation):
        raise invalid(MISSING_USER, "messages")
    last = conversation[-1]
    if not isinstance(last, UserMessage):
        return (), tuple(conversation)
    if not last.content:
        raise invalid(MISSING_USER, "messages")
    return tuple(last.content), tuple(message for message in conversation[:-1] if message.content) or None


def _text(content: str | Sequence[TextPart | RefusalPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)


def _user_blocks(content: UserContent, param: str) -> list[UserBlock]:
    if isinstance(content, str):
        return [TextBlock(text=content)] if content else []
    blocks: list[UserBlock] = []
    for index, part in enumerate(content):
        if isinstance(part, TextPart):
            if part.text:
                blocks.append(TextBlock(text=part.text))
        elif isinstance(part, ImagePart):
            blocks.append(_image(part.image_url.url, f"{param}[{index}].image_url.url"))
        else:
            kind = "input_audio" if isinstance(part, AudioPart) else "file"
            raise invalid(f"{param}[{index}]: {kind} parts are not supported", f"{param}[{index}].type")
    return blocks


def _image(url: str, param: str) -> ImageBlock:
    match = _IMAGE_URL.match(url)
    if match is None:
        _refuse_image(url, param)
    data = url[match.end() :]
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{param}: not valid base64", param) from None
    if not data:
        raise invalid(f"{param}: the image is empty", param)
    return ImageBlock(mime_type=match[1].lower(), data=data)


def _refuse_image(url: str, param: str) -> NoReturn:
    if url[:8].lower().startswith(("http://", "https://")):
        raise invalid(f"{param}: the gateway does not fetch images; send it as a data: URL", param)
    raise invalid(f"{param}: expected data:image/…;base64,…", param)


def _assistant_blocks(message: AssistantTurn) -> list[AssistantBlock]:
    blocks: list[AssistantBlock] = []
    if text := _text(message.content):
        blocks.append(TextBlock(text=text))
    for call in message.tool_calls or ():
        arguments = _arguments(call.function.arguments)
        blocks.append(ToolCallBlock(id=call.id, name=call.function.name, arguments=arguments))
    return blocks


def _arguments(text: str) -> dict[str, Any]:
    """A model's arguments come back as it wrote them, which need not be an object; then they are ``{}``."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) and _is_encodable(value) else {}


def _assistant_message(blocks: list[AssistantBlock], now_ms: int) -> AssistantMessage:
    calls = any(isinstance(block, ToolCallBlock) for block in blocks)
    return AssistantMessage(
        content=blocks, api="", provider="", model="", stop_reason="toolUse" if calls else "stop", timestamp=now_ms
    )
