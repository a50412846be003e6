"""What a run begins with and what it leaves: a person's message, the gateway's own words, the answer of ``agent``."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET

from skynet.gateway.context import GATEWAY_MODEL
from skynet_agent.events import Attempt
from skynet_agent.messages import AssistantMessage, ImageBlock, Message, TextBlock, ToolCallBlock, Usage, text_of
from skynet_memory.ids import RunId
from skynet_protocol.agent import (
    AgentAttempt,
    AgentError,
    AgentMeta,
    AgentOutcome,
    AgentPayload,
    AgentResult,
    AgentRunMeta,
    AgentToolCall,
    AgentUsage,
)
from skynet_protocol.chat import Attachments, add_time_prefix

RunStatus: TypeAlias = Literal["ok", "error", "aborted", "timeout"]

BETWEEN_ROUNDS = "\n\n"
"""Stands between what the model said before and after it used the gateway's tools."""
NO_USAGE = Usage(input=0, output=0, cache_read=0, cache_write=0, total=0)
"""Of a model that did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended.

    ``messages`` is what is stored, complete or as far as it came; ``message`` is the last one. ``tried`` are the models
    that failed on the way, each failure once.
    """

    run_id: RunId
    status: RunStatus
    message: AssistantMessage
    messages: tuple[Message, ...] = ()
    session_id: str
    started_at_ms: int
    ended_at_ms: int
    stop_reason: str = ""
    exception: Exception | None = None
    tried: tuple[Attempt, ...] = ()

    @property
    def error(self) -> str:
        """What went wrong, for people; "" for a run that is ``ok``."""
        return self.message.error_message or ""

    @property
    def answers(self) -> list[AssistantMessage]:
        """What the model said, round by round."""
        return [message for message in self.messages if isinstance(message, AssistantMessage)]

    @property
    def text(self) -> str:
        """All that the model said, round by round."""
        return BETWEEN_ROUNDS.join(text for answer in self.answers if (text := text_of(answer)))

    @property
    def usage(self) -> Usage:
        """Tokens of the run, all its model calls together; zeros where the model did not say."""
        usages = [answer.usage for answer in self.answers if answer.usage is not None]
        if len(usages) == 1:
            return usages[0]
        return Usage(
            input=sum(usage.input for usage in usages),
            output=sum(usage.output for usage in usages),
            cache_read=sum(usage.cache_read for usage in usages),
            cache_write=sum(usage.cache_write for usage in usages),
            total=sum(usage.total for usage in usages),
        )


def user_content(text: str, attachments: Attachments, now: datetime) -> tuple[TextBlock | ImageBlock, ...]:
    """What a person said, as the model and the transcript get it: with the time in front, and the images."""
    return (
        TextBlock(text=add_time_prefix(text, now)),
        *(ImageBlock(mime_type=image.mime_type, data=image.data) for image in attachments.images),
    )


def gateway_message(text: str, at_ms: int) -> AssistantMessage:
    """A message that the gateway itself writes into a transcript (OPENCLAW-V3 8.4)."""
    return AssistantMessage(
        content=[TextBlock(text=text)],
        api="openai-responses",
        provider="openclaw",
        model=GATEWAY_MODEL,
        stop_reason="stop",
        timestamp=at_ms,
    )


def agent_result(result: RunResult) -> AgentResult:
    """The final answer of ``agent`` (OPENCLAW-V3 6.6), also what a repeated key gets.

    A model's failure is an answer, not a failure of the machinery: its text is the payload, as in OpenClaw, and
    ``meta.error`` says what it was.
    """
    message, usage, aborted = result.message, result.usage, result.status in ("aborted", "timeout")
    last, error = message.usage or NO_USAGE, None
    texts = [text for answer in result.answers if (text := text_of(answer))]
    if result.status == "error":
        error = AgentError(kind=type(result.exception).__name__, message=result.error)
        texts.append(result.error)
    calls = [
        AgentToolCall(id=block.id, name=block.name, arguments=msgspec.json.encode(block.arguments).decode())
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    return AgentResult(
        run_id=result.run_id,
        status="ok",
        summary="aborted" if aborted else "completed",
        result=AgentOutcome(
            payloads=[AgentPayload(text=text, media_url=None) for text in texts],
            meta=AgentMeta(
                duration_ms=result.ended_at_ms - result.started_at_ms,
                agent_meta=AgentRunMeta(
                    session_id=result.session_id,
                    provider=message.provider,
                    model=message.model,
                    usage=_agent_usage(usage),
                    last_call_usage=_agent_usage(last),
                    prompt_tokens=last.input + last.cache_read + last.cache_write,
                    tried=[_attempt(attempt) for attempt in result.tried] or UNSET,
                ),
                aborted=aborted,
                stop_reason=message.stop_reason,
                pending_tool_calls=calls if message.stop_reason == "toolUse" else UNSET,
                error=UNSET if error is None else error,
            ),
        ),
    )


def _attempt(attempt: Attempt) -> AgentAttempt:
    return AgentAttempt(provider=attempt.provider, model=attempt.model, error=attempt.message)


def _agent_usage(usage: Usage) -> AgentUsage:
    return AgentUsage(
        input=usage.input,
        output=usage.output,
        total=usage.total,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
    )
