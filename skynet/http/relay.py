"""A run's events on their way to a client that streams."""

import asyncio
from enum import Enum, auto

from starlette.types import Send

from skynet.gateway.run import RunEnded
from skynet.gateway.run_answer import BETWEEN_ROUNDS
from skynet.http.chat_answer import Answer, ChunkEncoder, encode_stream_error
from skynet.http.errors import HttpError
from skynet.http.responses import NO_STORE, NOSNIFF, Header, send_error
from skynet_agent.events import Answered, Started, TextDelta, ToolCallDelta, TurnEvent

SEND_BYTES = 262_144
"""About this much is handed to the server at once, in whole events; what the kernel does not take stays in the
server's memory besides the relay's."""

_EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    NOSNIFF,
    NO_STORE,
    (b"x-accel-buffering", b"no"),
)


class _State(Enum):
    OPEN = auto()
    ENDED = auto()
    """The last bytes are in the buffer."""
    REFUSED = auto()
    """It failed before anything was shown: the answer is an HTTP error."""
    GONE = auto()


class Relay:
    """Holds what a client has still to read, and sends it.

    The run's listener fills the buffer; :meth:`send_all` empties it. Whatever came since the last send leaves in one
    piece, each token in an event of its own. The response's head waits for the first delta, so that a failure before
    it has an honest HTTP status. Beyond ``limit_bytes`` unread the answer ends with an error, and :meth:`on_event` says
    so.
    """

    def __init__(self, encoder: ChunkEncoder, *, limit_bytes: int) -> None:
        self._encoder = encoder
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._state = _State.OPEN
        self._shown = False
        self._said = False
        self._separator = ""
        self._error: HttpError | None = None
        self._source = ""
        self.overflowed = False

    @property
    def gone(self) -> bool:
        """Whether the client left."""
        return self._state is _State.GONE

    def on_event(self, event: TurnEvent | RunEnded) -> bool:
        """Take an event of the run. False when the client reads too slowly: then the run has to be stopped."""
        if self._state is not _State.OPEN:
            return True
        if isinstance(event, TextDelta):
            if event.text:
                self._put(self._encoder.text(self._separator + event.text))
                self._separator, self._said = "", True
        elif isinstance(event, ToolCallDelta):
            self._put(self._encoder.tool_call(event))
        elif isinstance(event, Answered):
            self._separator = BETWEEN_ROUNDS if self._said else ""
        elif isinstance(event, Started):
            self._source = f"{event.provider}/{event.model}"
        return not self.overflowed

    def complete(self, answer: Answer) -> None:
        """The run ended well and is stored."""
        if self._state is _State.OPEN:
            self._source = self._source or answer.source
            if answer.text and not self._said:  # the gateway's own words, in the model's place
                self._put(self._encoder.text(answer.text))
            self._put(self._encoder.end(answer.finish_reason, answer.usage))
            if self._state is _State.OPEN:
                self._state = _State.ENDED

    def replay(self, answer: Answer) -> None:
        """There is no run: send an answer that was kept."""
        self._source = answer.source
        self._shown = True
        self._parts.append(self._encoder.whole(answer))
        self._state = _State.ENDED
        self._wake.set()

    def fail(self, error: HttpError) -> None:
        """The run ended otherwise."""
        if self._state is not _State.OPEN:
            return
        if self._shown:
            self._parts.append(encode_stream_error(error))
            self._state = _State.ENDED
        else:
            self._error = error
            self._state = _State.REFUSED
        self._wake.set()

    def leave(self) -> None:
        """The client is gone; nothing more is sent."""
        self._state = _State.GONE
        self._drop()
        self._wake.set()

    async def send_all(self, send: Send, headers: tuple[Header, ...]) -> None:
        """Answer the client, until the end of the run or its own."""
        await self._wake.wait()
        if self._error is not None:
            await send_error(send, self._error, headers)
            return
        if self.gone:
            return
        head = [*_EVENT_STREAM, *source_header(self._source), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        while not self.gone:
            self._wake.clear()
            data, ended = self._take()
            if data or ended:
                await send({"type": "http.response.body", "body": data, "more_body": not ended})
            if ended:
                return
            if not self._parts:
                await self._wake.wait()

    def _put(self, event: bytes) -> None:
        if not self._shown:
            self._shown = True
            event = self._encoder.role() + event
        self._parts.append(event)
        self._size += len(event)
        if self._size > self._limit_bytes:
            self._overflow()
        self._wake.set()

    def _overflow(self) -> None:
        size = self._size
        self._drop()
        self.overflowed = True
        self.fail(
            HttpError(
                503,
                f"the answer was stopped: {size} bytes were waiting to be read, the limit is {self._limit_bytes}",
                kind="api_error",
                code="slow_consumer",
            )
        )

    def _drop(self) -> None:
        self._parts.clear()
        self._size = 0

    def _take(self) -> tuple[bytes, bool]:
        """The next bytes to send, and whether they are the last."""
        parts = self._parts
        if self._size <= SEND_BYTES:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            self._drop()
        else:
            count = size = 0
            while size < SEND_BYTES and count < len(parts):
                size += len(parts[count])
                count += 1
            data = b"".join(parts[:count])
            del parts[:count]
            self._size -= size
        return data, self._state is _State.ENDED and not parts


def source_header(source: str) -> tuple[Header, ...]:
    """``x-skynet-model``: the ``provider/model`` that answered, if it can be written in a header."""
    if source and source.isascii() and source.isprintable():
        return ((b"x-skynet-model", source.encode()),)
    return ()
