"""The HTTP client against servers that mean no good: what leaves it, and what it takes in."""

import asyncio
import datetime
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skynet_agent.auth.google_tokens import Token, TransportAnswer
from skynet_agent.errors import ConnectFailed, ProviderError
from skynet_agent.http_client import HttpClient, HttpRequest
from skynet_agent.providers import ProviderRow
from tests.support.model_server import ModelServer

LAB = ProviderRow(name="lab")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that hands each connection to ``handler``; nothing of it is left afterwards."""
    busy: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            writer.transport.abort()
            busy.discard(task)

    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls) as server:
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            for task in tuple(busy):
                task.cancel()
            await asyncio.gather(*busy)


class Host:
    """Answers every request with the same bytes and keeps the heads of what came."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    @asynccontextmanager
    async def saying(self, answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
                await writer.drain()

        async with serving(handle, tls) as url:
            yield url


async def read(http: HttpClient, request: HttpRequest, pieces: Callable[[int], None] = lambda size: None) -> bytes:
    async with http.send(LAB, request) as answer:
        whole = b""
        while data := await answer.read():
            pieces(len(data))
            whole = data[:1000]
        return whole


@pytest.mark.parametrize(("client", "connections"), [(HttpClient(), 1), (HttpClient(idle_s=0), 3)])
async def test_a_connection_is_used_again_unless_it_was_idle_for_long(client: HttpClient, connections: int) -> None:
    async with ModelServer() as server:
        for _ in range(3):
            assert b"mock-1" in await read(client, HttpRequest(url=f"{server.url}/models", method="GET"))
        await client.aclose()
        connected = server.connected
    assert connected == connections


@pytest.mark.parametrize(
    "headers",
    [{"X-Title": "a\r\nX-Evil: 1"}, {"X-Title\r\nX-Evil": "1"}, {"X-Title": "a\nX-Evil: 1"}, {"X-Title": "a\0b"}],
)
async def test_a_header_cannot_become_two(http: HttpClient, headers: dict[str, str]) -> None:
    host = Host()
    async with host.saying(OK) as url:
        with pytest.raises(ConnectFailed, match=r"\(ValueError\)$"):
            await read(http, HttpRequest(url=url, headers=headers))
    assert host.heads == []


@pytest.mark.parametrize("path", ["/a\r\nX-Evil: 1", "/a HTTP/1.1\r\nX-Evil: 1\r\n\r\n", "/a\nX-Evil: 1"])
async def test_nor_can_an_address(http: HttpClient, path: str) -> None:
    host = Host()
    async with host.saying(OK) as url:
        await read(http, HttpRequest(url=url + path))
    assert [line for line in host.heads[0].split(b"\r\n") if line.startswith(b"X-Evil")] == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_credentials_are_not_sent_on_to_where_an_answer_points(http: HttpClient, status: int) -> None:
    first, second = Host(), Host()
    async with second.saying(OK) as other:
        moved = f"HTTP/1.1 {status} Moved\r\nLocation: {other}/x\r\nContent-Length: 0\r\n\r\n"
        async with first.saying(moved.encode()) as url:
            request = HttpRequest(url=url, headers={"Authorization": "Bearer of-lab"})
            async with http.send(LAB, request) as answer:
                assert answer.status == status
    assert len(first.heads) == 1 and second.heads == []


async def test_cookies_are_not_kept(http: HttpClient) -> None:
    host = Host()
    async with host.saying(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: who=anna\r\n\r\n")) as url:
        for _ in range(2):
            await read(http, HttpRequest(url=url))
    assert len(host.heads) == 2 and b"anna" not in host.heads[1]


async def test_what_is_compressed_unasked_is_unpacked_in_small_pieces(http: HttpClient) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(64)) + packer.flush()
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    host, sizes = Host(), list[int]()
    async with host.saying(head + bomb) as url:
        await read(http, HttpRequest(url=url), sizes.append)
    assert b"Accept-Encoding: identity" in host.heads[0]
    assert sum(sizes) == 64 * 1024 * 1024
    assert max(sizes) <= 2 * 1024 * 1024


async def test_an_endless_error_is_read_to_64_kib(http: HttpClient) -> None:
    host = Host()
    body = b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n" + b"x" * 10_000_000
    async with host.saying(body) as url, http.send(LAB, HttpRequest(url=url)) as answer:
        assert len(await answer.read_error()) == 64 * 1024


async def test_an_error_that_drips_is_not_waited_for(http: HttpClient) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nit ")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(drip) as url, asyncio.timeout(40), http.send(LAB, HttpRequest(url=url)) as answer:
        assert (await answer.read_error(0.2)).startswith(b"it .")


async def test_a_certificate_that_nobody_vouches_for_is_refused(http: HttpClient, tmp_path: Path) -> None:
    host = Host()
    async with host.saying(OK, self_signed(tmp_path)) as url:
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await read(http, HttpRequest(url=url, headers={"Authorization": "Bearer of-lab"}))
    assert host.heads == []


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://127.0.0.1:99999", "ftp://127.0.0.1", "http://", "\0", ""])
async def test_an_address_that_is_none_is_a_failure_with_a_name(http: HttpClient, url: str) -> None:
    with pytest.raises(ProviderError, match=r"^lab: "):
        await read(http, HttpRequest(url=url))


def test_what_proves_who_asks_does_not_show_itself() -> None:
    shown = [
        HttpRequest(url="http://x", headers={"Authorization": "Bearer of-lab"}, body=b"my diary, of-lab"),
        ProviderRow(name="lab", headers={"X-Key": "of-lab"}),
        Token("of-lab", 1.0),
        TransportAnswer(200, {}, b'{"access_token":"of-lab"}'),
    ]
    assert "of-lab" not in repr(shown)


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "host.pem"
    file.write_bytes(certificate + secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
