"""Request bodies, read with a limit in bytes and one in time."""

import asyncio

from starlette.types import Receive

from skynet.gateway.peer import PeerInfo
from skynet.http.errors import HttpError

BODY_TIMEOUT_S = 30.0


class ClientGone(Exception):  # noqa: N818
    """The client left before its request was complete; there is nobody to answer."""


async def read_body(receive: Receive, peer: PeerInfo, *, limit_bytes: int, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """The whole body.

    Raises:
        HttpError: longer than ``limit_bytes`` (413, at once if ``Content-Length`` says so), or slower than
            ``timeout_s`` (408).
        ClientGone: the connection ended first.
    """
    announced = peer.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 18 or int(announced) > limit_bytes):
        raise _too_large(limit_bytes)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                size += len(part)
                if size > limit_bytes:
                    raise _too_large(limit_bytes)
                if not message.get("more_body", False):
                    return b"".join((*parts, part)) if parts else part
                parts.append(part)
    except TimeoutError:
        raise HttpError(408, f"the body took longer than {timeout_s:g} s", headers=(("connection", "close"),)) from None


def _too_large(limit_bytes: int) -> HttpError:
    return HttpError(413, f"the body is longer than {limit_bytes} bytes", code="body_too_large")
