"""A run as OpenClaw clients see it: ``agent`` and ``chat`` events in the order and numbering of OPENCLAW-V3 7."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from skynet.gateway.broadcast import Broadcaster
from skynet_memory.ids import RunId, SessionKey, UserId
from skynet_protocol.events import (
    AgentEvent,
    AssistantData,
    ChatEvent,
    ChatMessage,
    ChatState,
    LifecycleEnd,
    LifecycleError,
    LifecycleStart,
    assistant_message,
)

COALESCE_S = 0.05
"""At least this long between two deltas of a run after its first: a delta carries the whole text so far."""
DELTA_CHARS_PER_S = 1_000_000
"""What the deltas of one run may carry to a connection: a very long text is told less often, so that the cost of
telling it does not grow with the square of its length."""


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
        clock: Callable[[], int],
    ) -> None:
        self._broadcaster = broadcaster
        self._owner = owner
        self._key = key
        self._run_id = run_id
        self._with_session_key = with_session_key
        self._clock = clock
        self._seq = 0
        self._text: list[str] = []
        self._sent_chars = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next_flush = 0.0

    @property
    def text(self) -> str:
        """The assistant's text so far."""
        return "".join(self._text)

    def started(self, at_ms: int) -> None:
        """The run left its lane."""
        self._agent("lifecycle", LifecycleStart(started_at=at_ms))

    def add_text(self, delta: str) -> None:
        """The model said more."""
        if not delta:
            return
        self._text.append(delta)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait_s = self._next_flush - loop.time()
            if wait_s <= 0:
                self._flush()
            else:
                self._timer = loop.call_later(wait_s, self._flush)

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
        self._cancel_timer()
        self._seq += 1
        self._chat("aborted", stop_reason=stop_reason, message=message)

    def _flush(self) -> None:
        self._timer = None
        text = self.text
        self._text = [text]
        delta = text[self._sent_chars :]
        self._sent_chars = len(text)
        self._next_flush = asyncio.get_running_loop().time() + COALESCE_S + len(text) / DELTA_CHARS_PER_S
        self._agent("assistant", AssistantData(text=text, delta=delta))
        self._chat("delta", message=assistant_message(text, self._clock()))

    def _flush_rest(self) -> None:
        """The ``agent`` stream has to be whole at its end; ``chat`` has its final for that."""
        self._cancel_timer()
        text = self.text
        if len(text) > self._sent_chars:
            delta = text[self._sent_chars :]
            self._sent_chars = len(text)
            self._agent("assistant", AssistantData(text=text, delta=delta))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _agent(self, stream: str, data: object) -> None:
        self._seq += 1
        seq, ts = self._seq, self._clock()
        self._broadcaster.publish_to_session(
            "agent",
            self._key,
            lambda form: AgentEvent(
                run_id=self._run_id,
                seq=seq,
                stream=stream,
                ts=ts,
                data=data,
                session_key=form if self._with_session_key else UNSET,
            ),
            owner=self._owner,
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
