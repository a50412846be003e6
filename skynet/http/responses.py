"""Whole answers, sent over plain ASGI: the chat endpoint answers too often for a response object each time."""

from collections.abc import Iterable

from starlette.types import Send

from skynet.http.errors import HttpError

NOSNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = (b"cache-control", b"no-store")
_JSON = (b"content-type", b"application/json")

Header = tuple[bytes, bytes]


def request_id(correlation_id: str) -> Header:
    """The header that names a request, here and in the log; OpenAI's SDKs show it."""
    return (b"x-request-id", correlation_id.encode("latin-1", "replace"))


async def send_json(send: Send, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
    """Send a JSON answer that no cache keeps."""
    length = (b"content-length", b"%d" % len(body))
    await send(
        {"type": "http.response.start", "status": status, "headers": [_JSON, length, NOSNIFF, NO_STORE, *headers]}
    )
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: HttpError, headers: Iterable[Header] = ()) -> None:
    """Send an error in OpenAI's shape."""
    own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers]
    await send_json(send, error.status, error.body(), [*own, *headers])
