"""Reading bodies, message by message."""

import asyncio
from typing import Any

import pytest

from skynet.gateway.peer import PeerInfo
from skynet.http.body import ClientGone, read_body
from skynet.http.errors import HttpError


def peer(**headers: str) -> PeerInfo:
    return PeerInfo(
        address="127.0.0.1", port=1, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def part(data: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


async def read(*messages: dict[str, Any], limit_bytes: int = 10, **headers: str) -> bytes:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    return await read_body(receive, peer(**headers), limit_bytes=limit_bytes)


async def test_parts_are_joined() -> None:
    assert await read(part(b"abc", more=False)) == b"abc"
    assert await read(part(b"abc", more=True), part(b"", more=True), part(b"defghij", more=False)) == b"abcdefghij"
    assert await read({"type": "http.request"}) == b""


@pytest.mark.parametrize("announced", ["11", "9" * 30])
async def test_an_announced_length_is_refused_unread(announced: str) -> None:
    with pytest.raises(HttpError) as caught:
        await read(content_length=announced)
    assert caught.value.status == 413


async def test_what_comes_is_counted() -> None:
    with pytest.raises(HttpError) as caught:
        await read(part(b"123456", more=True), part(b"123456", more=True), content_length="1")
    assert caught.value.status == 413


async def test_a_client_that_leaves() -> None:
    with pytest.raises(ClientGone):
        await read(part(b"a", more=True), {"type": "http.disconnect"})


async def test_a_body_that_does_not_come() -> None:
    async def receive() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    with pytest.raises(HttpError) as caught:
        await read_body(receive, peer(), limit_bytes=10, timeout_s=0.01)
    assert (caught.value.status, caught.value.headers) == (408, (("connection", "close"),))
