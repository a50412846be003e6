"""A run as OpenClaw clients see it: ``agent`` and ``chat`` events in the order and numbering of OPENCLAW-V3 7."""

import asyncio
from collections.abc import Callable
from typing import Any

from skynet.gateway.broadcast import Broadcaster
from skynet_memory.ids import RunId, SessionKey, UserId
from skynet_protocol.events import AgentEvent, ChatEvent

COALESCE_S = 0.05
"""At least this long between two deltas of a run after its first: a delta carries the whole text so far."""


class RunEvents:
    """Publishes one run. ``agent`` comes before the ``chat`` event made from it; both share one counter from 1.

    The first delta leaves at once, later ones at most every :data:`COALESCE_S`; what a delta did not carry is in the
    final event.
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
        self._agent("lifecycle", {"phase": "start", "startedAt": at_ms})

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

    def ended(self, at_ms: int, message: dict[str, Any] | None) -> None:
        """The run is over and stored."""
        self._flush_rest()
        self._agent("lifecycle", {"phase": "end", "endedAt": at_ms})
        self._chat("final", message=message)

    def failed(self, at_ms: int, error: str, message: dict[str, Any] | None) -> None:
        """The run ended with an error; ``message`` holds the text so far, if there was any."""
        self._flush_rest()
        self._agent("lifecycle", {"phase": "error", "error": error, "endedAt": at_ms})
        self._chat("error", error_message=error, message=message)

    def aborted(self, stop_reason: str, message: dict[str, Any] | None) -> None:
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
        self._next_flush = asyncio.get_running_loop().time() + COALESCE_S
        self._agent("assistant", {"text": text, "delta": delta})
        self._chat("delta", message=text_message(text, self._clock()))

    def _flush_rest(self) -> None:
        """The ``agent`` stream has to be whole at its end; ``chat`` has its final for that."""
        self._cancel_timer()
        text = self.text
        if len(text) > self._sent_chars:
            delta = text[self._sent_chars :]
            self._sent_chars = len(text)
            self._agent("assistant", {"text": text, "delta": delta})

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _agent(self, stream: str, data: dict[str, Any]) -> None:
        self._seq += 1
        seq, ts = self._seq, self._clock()
        self._broadcaster.publish_to_session(
            "agent",
            self._key,
            lambda form: AgentEvent(
                run_id=self._run_id,
                stream=stream,
                data=data,
                seq=seq,
                ts=ts,
                **({"session_key": form} if self._with_session_key else {}),
            ),
            owner=self._owner,
        )

    def _chat(self, state: str, **fields: Any) -> None:
        # A run that is known by its session id alone has no chat events (OPENCLAW-V3 6.6).
        if not self._with_session_key:
            return
        present = {name: value for name, value in fields.items() if value is not None}
        self._broadcaster.publish_to_session(
            "chat",
            self._key,
            lambda form: ChatEvent(run_id=self._run_id, session_key=form, seq=self._seq, state=state, **present),
            owner=self._owner,
            droppable=state == "delta",
        )


def text_message(text: str, timestamp_ms: int) -> dict[str, Any]:
    """An assistant's message as ``chat`` events carry it."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": timestamp_ms}
