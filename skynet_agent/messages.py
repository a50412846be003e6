"""Transcript messages: what people, models and tools said.

The JSON of these structs **is** the stored transcript payload and has the shapes of OpenClaw's ``chat.history``:
camelCase keys, ``role`` and ``type`` as tags, absent instead of null. Fields of a newer version are ignored when read;
a field that is added later needs a default, because stored payloads are never rewritten.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

StopReason: TypeAlias = Literal["stop", "length", "toolUse", "error", "aborted"]
Json: TypeAlias = Any
"""A decoded JSON value of somebody else's making (tool arguments); narrowed where it is used."""


class TextBlock(msgspec.Struct, tag_field="type", tag="text", frozen=True):
    text: str


class ImageBlock(msgspec.Struct, tag_field="type", tag="image", rename="camel", frozen=True):
    """An image in the message itself; ``data`` is base64 without a ``data:`` prefix."""

    mime_type: str
    data: str


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking", rename="camel", omit_defaults=True, frozen=True):
    """What a model showed of its reasoning, and what it wants to see again to go on after a tool's result.

    ``thinking_signature`` is the provider's own text (a signature, an encrypted item), which only the same model of the
    same provider understands. Of a ``redacted`` block it is all there is.
    """

    thinking: str
    thinking_signature: str = ""
    redacted: bool = False


class ToolCallBlock(msgspec.Struct, tag_field="type", tag="toolCall", rename="camel", omit_defaults=True, frozen=True):
    """A call the model asks for. ``arguments`` is ``{}`` when the model's JSON was not an object.

    ``thought_signature`` is to a call what ``thinking_signature`` is to thinking.
    """

    id: str
    name: str
    arguments: dict[str, Json]
    thought_signature: str = ""


UserBlock: TypeAlias = TextBlock | ImageBlock
AssistantBlock: TypeAlias = TextBlock | ThinkingBlock | ToolCallBlock


class Usage(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Tokens of one model call and what they cost.

    ``input`` counts only what was neither read from nor written to the provider's cache, so
    ``total == input + output + cache_read + cache_write``. ``cost_microusd`` is None when the price is unknown;
    ``cost_parts`` is that of input, output, cache read and cache write, whose sum it is. ``estimated``: the provider
    told nothing, or the answer was not whole.
    """

    input: int
    output: int
    cache_read: int
    cache_write: int
    total: int
    cost_microusd: int | None = None
    cost_parts: tuple[int, int, int, int] | None = None
    estimated: bool = False


class AbortMark(msgspec.Struct, rename="camel", frozen=True):
    """Why a gateway-made copy of a partial answer exists (OpenClaw's ``openclawAbort``)."""

    origin: str
    run_id: str
    aborted: bool = True


class Speaker(msgspec.Struct, rename="camel", frozen=True):
    """Who said something where several people talk."""

    id: str
    name: str


class UserMessage(msgspec.Struct, tag_field="role", tag="user", rename="camel", omit_defaults=True, frozen=True):
    """What a person said. ``channel`` is where it came from, ``speaker`` who it was, in a room; no model is sent them.

    In a person's own session there is no ``speaker``, since nobody else talks there.
    """

    content: list[UserBlock]
    timestamp: int
    channel: str = ""
    speaker: Speaker | None = None


class AssistantMessage(
    msgspec.Struct, tag_field="role", tag="assistant", rename="camel", omit_defaults=True, frozen=True
):
    """What a model answered, complete or as far as it came (``stop_reason`` ``error`` or ``aborted``).

    Messages the gateway itself writes name ``provider="openclaw"``, ``model="gateway-injected"``, as OpenClaw's clients
    expect; ``idempotency_key`` and ``openclaw_abort`` exist only on those. ``asked`` is what the message that this one
    answers said to the model, where that is not what was written; "" if no model was told of it.
    """

    content: list[AssistantBlock]
    api: str
    provider: str
    model: str
    stop_reason: StopReason
    timestamp: int
    error_message: str | None = None
    usage: Usage | None = None
    idempotency_key: str | None = None
    openclaw_abort: AbortMark | None = None
    asked: str | None = None


class ToolResultMessage(msgspec.Struct, tag_field="role", tag="toolResult", rename="camel", frozen=True):
    tool_call_id: str
    tool_name: str
    content: list[UserBlock]
    is_error: bool
    timestamp: int


Message: TypeAlias = UserMessage | AssistantMessage | ToolResultMessage

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """The transcript payload of ``message``."""
    return _encoder.encode(message)


def decode_message(payload: bytes) -> Message:
    """The message of a stored payload.

    Raises:
        ValueError: the payload is not one (``msgspec.ValidationError`` and ``msgspec.DecodeError`` are both).
    """
    return _decoder.decode(payload)


def text_of(message: Message) -> str:
    """The plain text of ``message``: its text blocks, joined without a separator."""
    return "".join([block.text for block in message.content if isinstance(block, TextBlock)])
