"""A conversation that began with one model and goes on with another.

Transcripts hold what was said whoever said it. What a model gets is made from them for each call, so that a model can
take over at any time, in the middle of a turn even: each call of a tool is followed by its result, ids have the form
the provider takes, thinking goes back only to who thought it, and a model that cannot see is told of the images.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

import msgspec

from skynet_agent.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)
from skynet_agent.providers import ModelInfo, ProviderRow
from skynet_agent.requests import ModelRequest

MISSING_RESULT = "No result: the call was interrupted."
NO_TEXT = "(no text)"
"""Stands for a message of a user that says nothing: most providers refuse empty ones."""

Side: TypeAlias = Literal["user", "assistant"]


class CallIds:
    """The form of tool call ids that a wire API takes. Other ids are replaced, always by the same one."""

    def __init__(self, form: str, length: int) -> None:
        self._form = re.compile(form)
        self._length = length

    def fit(self, identity: str) -> str:
        """``identity``, or what stands for it."""
        if self._form.fullmatch(identity) and len(identity) <= self._length:
            return identity
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[: min(self._length, 32)]


ANY_IDS = CallIds(r"[a-zA-Z0-9_-]+", 40)
"""What every provider takes that does not say otherwise: OpenAI's is the shortest, Anthropic's the narrowest."""


def conversation(
    row: ProviderRow, model: ModelInfo, request: ModelRequest, *, ids: CallIds = ANY_IDS, volatile: bool = True
) -> list[Message]:
    """The messages of ``request`` as ``model`` can be given them.

    - Every call is directly followed by its result, in the order of the calls. A result that a cut or interrupted
      history lacks is replaced by a note; one whose call is gone is left out, and so are calls of an answer that
      failed: they were never carried out. Of calls with one id, the first result belongs to the first.
    - No two calls have the same id, and ids have the form of ``ids``.
    - Thinking of earlier turns is left out (SK-083). That of this turn goes back, signed, to the very model that
      thought it; another model gets it as text between ``<thinking>`` tags.
    - Images become a line of text for a model that cannot see.
    - No text is empty or mere blanks; a tool's result may have no content at all.
    - ``request.volatile`` stands at the end of the last user's message, unless ``volatile`` is False.
    """
    cleaned = _Cleaner(row, model, ids)
    last = max((n for n, message in enumerate(request.messages) if isinstance(message, UserMessage)), default=-1)
    for number, message in enumerate(request.messages):
        if number == last and volatile and request.volatile and isinstance(message, UserMessage):
            message = UserMessage([*message.content, TextBlock(request.volatile)], message.timestamp)
        cleaned.add(message, is_this_turn=number > last)
    cleaned.settle()
    return cleaned.messages


def by_side(messages: Iterable[Message]) -> list[tuple[Side, list[Message]]]:
    """The messages in turns, for providers where user and assistant alternate: tool results are the user's."""
    groups = groupby(messages, key=lambda message: isinstance(message, AssistantMessage))
    return [("assistant" if is_assistant else "user", list(group)) for is_assistant, group in groups]


class _Cleaner:
    def __init__(self, row: ProviderRow, model: ModelInfo, ids: CallIds) -> None:
        self.messages: list[Message] = []
        self._row = row
        self._model = model
        self._ids = ids
        self._used: set[str] = set()
        self._open: list[_OpenCall] = []  # of the answer that came last, in order

    def add(self, message: Message, *, is_this_turn: bool) -> None:
        if isinstance(message, ToolResultMessage):
            mine = [each for each in self._open if each.id == message.tool_call_id]
            if mine:
                next((each for each in mine if each.result is None), mine[-1]).result = message
            return
        self.settle()
        if isinstance(message, UserMessage):
            content = self._visible(message.content) or [TextBlock(NO_TEXT)]
            self.messages.append(UserMessage(content, message.timestamp))
            return
        blocks = [kept for block in message.content for kept in self._kept(message, block, is_this_turn)]
        if any(not isinstance(block, ThinkingBlock) for block in blocks):
            self.messages.append(msgspec.structs.replace(message, content=blocks))

    def settle(self) -> None:
        """The results of the calls that were made last, in their order."""
        for call, result in [(each.call, each.result) for each in self._open]:
            self.messages.append(
                ToolResultMessage(
                    tool_call_id=call.id,
                    tool_name=call.name,
                    content=[TextBlock(MISSING_RESULT)] if result is None else self._visible(result.content),
                    is_error=result is None or result.is_error,
                    timestamp=0 if result is None else result.timestamp,
                )
            )
        self._open.clear()

    def _kept(self, message: AssistantMessage, block: AssistantBlock, is_this_turn: bool) -> list[AssistantBlock]:
        own = (message.api, message.provider, message.model) == (self._row.api, self._row.name, self._model.id)
        match block:
            case TextBlock():
                return [block] if block.text.strip() else []
            case ThinkingBlock():
                if not is_this_turn:
                    return []
                if own:
                    return [block]
                return [TextBlock(_thought(block))] if block.thinking.strip() else []
            case ToolCallBlock():
                if message.stop_reason in ("error", "aborted"):
                    return []
                call = msgspec.structs.replace(
                    block, id=self._unique(block.id), thought_signature=block.thought_signature if own else ""
                )
                self._open.append(_OpenCall(block.id, call))
                return [call]

    def _unique(self, identity: str) -> str:
        fitted, number = self._ids.fit(identity), 1
        while fitted in self._used:
            number += 1
            fitted = self._ids.fit(f"{identity} {number}")
        self._used.add(fitted)
        return fitted

    def _visible(self, blocks: Sequence[UserBlock]) -> list[UserBlock]:
        sees = "image" in self._model.input
        told = [TextBlock(_told(block)) if isinstance(block, ImageBlock) and not sees else block for block in blocks]
        return [block for block in told if isinstance(block, ImageBlock) or block.text.strip()]


@dataclass(slots=True)
class _OpenCall:
    id: str
    """In the transcript."""
    call: ToolCallBlock
    result: ToolResultMessage | None = None


def _thought(block: ThinkingBlock) -> str:
    return f"<thinking>\n{block.thinking}\n</thinking>\n\n"


def _told(image: ImageBlock) -> str:
    size = len(image.data) * 3 // 4
    return f"[{image.mime_type}, {max(1, size // 1024)} KiB: an image that this model cannot see]"
