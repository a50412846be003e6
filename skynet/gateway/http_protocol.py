"""HTTP I/O: uvicorn's protocol, with limits for peers that have not said yet what they want."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from skynet.config import LimitsConfig

FRAMING_SHARE = 16
"""Bytes of chunk heads that are allowed for each byte of a body."""


class HttpProtocol(HttpToolsProtocol):
    """Ends a connection whose request headers are too large or take too long.

    uvicorn waits for them for ever and keeps whatever comes. The limits are those of a WebSocket client that has not
    authenticated: ``preauth_frame_bytes`` and ``handshake_timeout_s``. A connection that is idle after a request is
    uvicorn's business (``timeout_keep_alive``).
    """

    def __init__(self, *args: Any, limits: LimitsConfig, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._sent_bytes = 0
        self._body_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._got_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is None:
            self._check_frame_of_body(data)
            return
        self._head_bytes += len(data)
        if self._head_bytes > self._limits.preauth_frame_bytes and not self.transport.is_closing():
            self.send_400_response("Request headers are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._sent_bytes = self._body_bytes = 0
        self._expect_head()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def _check_frame_of_body(self, data: bytes) -> None:
        """Trailers and the heads of tiny chunks count as headers do: who sends little else is not answered."""
        self._sent_bytes += len(data)
        allowed = 2 * self._limits.preauth_frame_bytes + FRAMING_SHARE * self._body_bytes
        if self._sent_bytes - self._body_bytes > allowed and not self.transport.is_closing():
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._got_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self._limits.handshake_timeout_s, self.transport.close)

    def _got_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
