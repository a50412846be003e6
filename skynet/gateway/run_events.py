"""A run as OpenClaw clients see it: ``agent`` and ``chat`` events in the order and numbering of OPENCLAW-V3 7."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import UNSET

from skynet.gateway.broadcast import Broadcaster
from skynet_agent.messages import TextBlock, ToolCallBlock, ToolResultMessage
from skynet_memory.ids import ConnId, RunId, SessionKey, UserId
from skynet_protocol.events import (
    AgentEvent,
    AssistantData,
    ChatEvent,
    ChatMessage,
    ChatState,
    CompactionEnd,
    CompactionStart,
    LifecycleEnd,
    LifecycleError,
    LifecycleStart,
    ToolResult,
    ToolStart,
    ToolUpdate,
    assistant_message,
)

COALESCE_S = 0.05
"""At least this long between two deltas of a run after its first: a delta carries the whole text so far."""
DELTA_CHARS_PER_S = 1_000_000
"""What the deltas of one run may carry to a connection: a very long text is told less often, so that the cost of
telling it does not grow with the square of its length."""


class _Growing:
    """A text that grows, and is told whole with what is new: the first piece at once, later ones some time apart.

    Args:
        tell: called with the text so far and the end of it that was not told yet.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._pieces: list[str] = []
        self._told_chars = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, delta: str) -> None:
        self._pieces.append(delta)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait_s = self._next_s - loop.time()
            if wait_s <= 0:
                self.flush()
            else:
                self._timer = loop.call_later(wait_s, self.flush)

    def flush(self) -> None:
        """Tell now what is not told yet, if there is something."""
        if (untold := self.take()) is not None:
            text, delta = untold
            self._next_s = asyncio.get_running_loop().time() + COALESCE_S + len(text) / DELTA_CHARS_PER_S
            self._tell(text, delta)

    def take(self) -> tuple[str, str] | None:
        """What ``tell`` would be called with, which then counts as told; None if there is nothing new."""
        self.stop()
        text = self.text
        self._pieces = [text]
        delta = text[self._told_chars :]
        self._told_chars = len(text)
        return (text, delta) if delta else None

    def stop(self) -> None:
        """Tell nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def restart(self) -> None:
        """Begin with an empty text."""
        self.stop()
        self._pieces, self._told_chars = [], 0


class RunEvents:
    """Publishes one run. ``agent`` comes before the ``chat`` event made from it; both share one counter from 1.

    The first delta leaves at once, later ones at most every :data:`COALESCE_S`, and slower for a very long text. What a
    delta did not carry is in the final event.
    """

    def __init__(
        self,
        broadcaster: Broadcaster,
        *,
        owner: UserId,
        key: SessionKey,
        run_id: RunId,
        with_session_key: bool,
        watchers: Collection[ConnId],
        settings: Mapping[str, Any],
        clock: Callable[[], int],
    ) -> None:
        self._broadcaster = broadcaster
        self._owner = owner
        self._key = key
        self._run_id = run_id
        self._with_session_key = with_session_key
        self._watchers = watchers
        self._clock = clock
        self.use(settings)
        self._seq = 0
        self._thought = _Growing(self._tell_thinking)
        self._said = _Growing(self._tell_text)

    def use(self, settings: Mapping[str, Any]) -> None:
        """The session's settings, which say how much is told."""
        self._shows_results = settings.get("verboseLevel") == "full"
        self._streams_thinking = settings.get("reasoningLevel") == "stream"

    @property
    def text(self) -> str:
        """The assistant's text so far: of the message that is being written."""
        return self._said.text

    def started(self, at_ms: int) -> None:
        """The run left its lane."""
        self._agent("lifecycle", LifecycleStart(started_at=at_ms))

    def add_text(self, delta: str) -> None:
        """The model said more."""
        if delta:
            self._said.add(delta)

    def add_thinking(self, delta: str) -> None:
        """The model thinks; told only in a session whose ``reasoningLevel`` is ``stream``."""
        if delta and self._streams_thinking:
            self._thought.add(delta)

    def next_message(self) -> None:
        """The answer so far asked for tools and is complete; what comes now is another. No final has its text."""
        for growing in (self._thought, self._said):
            growing.flush()
            growing.restart()

    def tool_started(self, call: ToolCallBlock) -> None:
        """A tool is at work; it and its output are told to the watching connections alone (OPENCLAW-V3 7.3)."""
        self._tool(ToolStart(name=call.name, tool_call_id=call.id, args=call.arguments))

    def tool_updated(self, call: ToolCallBlock, text: str) -> None:
        """A tool tells of its output."""
        partial = {"content": [TextBlock(text)]} if self._shows_results else UNSET
        self._tool(ToolUpdate(name=call.name, tool_call_id=call.id, partial_result=partial))

    def tool_ended(self, call: ToolCallBlock, result: ToolResultMessage) -> None:
        """A tool is done."""
        shown = {"content": result.content} if self._shows_results else UNSET
        self._tool(ToolResult(name=call.name, tool_call_id=call.id, is_error=result.is_error, result=shown))

    def shortened(self) -> None:
        """The conversation was too long for the model, which is asked again with less of it."""
        self._agent("compaction", CompactionStart())
        self._agent("compaction", CompactionEnd(will_retry=True))

    def fell_back(self, data: dict[str, Any]) -> None:
        """Another model than the first choice answers."""
        self._agent("lifecycle", {"phase": "fallback", **data})

    def ended(self, at_ms: int, message: ChatMessage | None) -> None:
        """The run is over and stored."""
        self._flush_rest()
        self._agent("lifecycle", LifecycleEnd(ended_at=at_ms))
        self._chat("final", message=message)

    def answered(self, message: ChatMessage) -> None:
        """The gateway answered in place of a model: one final event and no others (OPENCLAW-V3 7.7)."""
        self._seq += 1
        self._chat("final", message=message)

    def failed(self, at_ms: int, error: str, message: ChatMessage | None) -> None:
        """The run ended with an error; ``message`` holds the text so far, if there was any."""
        self._flush_rest()
        self._agent("lifecycle", LifecycleError(error=error, ended_at=at_ms))
        self._chat("error", error_message=error, message=message)

    def aborted(self, stop_reason: str, message: ChatMessage | None) -> None:
        """Somebody stopped the run. No lifecycle event follows (OPENCLAW-V3 7.6)."""
        self._thought.stop()
        self._said.stop()
        self._seq += 1
        self._chat("aborted", stop_reason=stop_reason, message=message)

    def _tell_thinking(self, text: str, delta: str) -> None:
        self._agent("thinking", AssistantData(text=text, delta=delta))

    def _tell_text(self, text: str, delta: str) -> None:
        self._thought.flush()  # it came before
        self._agent("assistant", AssistantData(text=text, delta=delta))
        self._chat("delta", message=assistant_message(text, self._clock()))

    def _flush_rest(self) -> None:
        """The ``agent`` stream has to be whole at its end; ``chat`` has its final for that."""
        self._thought.flush()
        if (untold := self._said.take()) is not None:
            text, delta = untold
            self._agent("assistant", AssistantData(text=text, delta=delta))

    def _agent(self, stream: str, data: object) -> None:
        self._broadcaster.publish_to_session("agent", self._key, self._event(stream, data), owner=self._owner)

    def _tool(self, data: object) -> None:
        self._broadcaster.publish_to_watchers(
            "agent", self._key, self._event("tool", data), owner=self._owner, watchers=self._watchers
        )

    def _event(self, stream: str, data: object) -> Callable[[str], AgentEvent]:
        self._seq += 1
        seq, ts = self._seq, self._clock()
        return lambda form: AgentEvent(
            run_id=self._run_id,
            seq=seq,
            stream=stream,
            ts=ts,
            data=data,
            session_key=form if self._with_session_key else UNSET,
        )

    def _chat(
        self,
        state: ChatState,
        *,
        message: ChatMessage | None = None,
        error_message: str | None = None,
        stop_reason: str | None = None,
    ) -> None:
        # A run that is known by its session id alone has no chat events (OPENCLAW-V3 6.6).
        if not self._with_session_key:
            return
        self._broadcaster.publish_to_session(
            "chat",
            self._key,
            lambda form: ChatEvent(
                run_id=self._run_id,
                session_key=form,
                seq=self._seq,
                state=state,
                message=UNSET if message is None else message,
                error_message=UNSET if error_message is None else error_message,
                stop_reason=UNSET if stop_reason is None else stop_reason,
            ),
            owner=self._owner,
            droppable=state == "delta",
        )
