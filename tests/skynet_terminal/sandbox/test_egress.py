"""The egress proxy as a sandbox's client meets it at its socket, with real servers behind it."""

import asyncio
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.supervisor import Supervisor
from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox.egress import REFUSALS_TOLD, Door, EgressLimits, EgressProxy
from tests.support.polling import until

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MIB = 1024 * 1024


class World:
    """Names and addresses, of which 127.0.0.x with x below 100 count as public; and servers there."""

    def __init__(self, tasks: Supervisor, directory: Path) -> None:
        self.names: dict[str, list[str]] = {"good.example": ["127.0.0.1"], "bad.example": ["127.0.0.200"]}
        self.asked: list[str] = []
        self.answers: Callable[[str], Sequence[str]] | None = None
        self.tasks = tasks
        self.directory = directory
        self.proxy: EgressProxy

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError("no such host")
        return self.names[host]

    def may_reach(self, address: str) -> bool:
        return address.startswith("127.0.0.") and int(address.rpartition(".")[2]) < 100

    def make(self, limits: EgressLimits | None = None) -> EgressProxy:
        self.proxy = EgressProxy(
            self.tasks, directory=self.directory, resolve=self.resolve, may_reach=self.may_reach, limits=limits
        )
        return self.proxy

    @asynccontextmanager
    async def door(self, *hosts: str, limits: EgressLimits | None = None) -> AsyncIterator[Door]:
        door = await self.make(limits).open(hosts)
        try:
            yield door
        finally:
            await door.close()
            assert not door.socket_path.exists()


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server; its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                await handler(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Supervisor() as tasks:
        yield World(tasks, tmp_path / "egress")


async def connect(door: Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if len(str(door.socket_path)) <= 107:
        return await asyncio.open_unix_connection(door.socket_path)
    link = door.socket_path.parent.with_name("short")
    link.symlink_to(door.socket_path.parent)
    return await asyncio.open_unix_connection(link / door.socket_path.name)


async def ask(door: Door, *pieces: bytes) -> bytes:
    """All that is answered to what is sent."""
    reader, writer = await connect(door)
    try:
        for piece in pieces:
            writer.write(piece)
        async with asyncio.timeout(40):
            return await reader.read()
    finally:
        writer.transport.abort()


def get(url: str, *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {url} HTTP/1.1", "Host: whatever.example", *fields, "", ""]).encode()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def fixed(answer: bytes, seen: list[bytes] | None = None) -> Handler:
    """Reads a head, gives ``answer`` and closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        if seen is not None:
            seen.append(head)
        writer.write(answer)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    return handler


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_a_request(world: World) -> None:
    seen: list[bytes] = []
    async with serving(fixed(OK, seen)) as port, world.door(f"good.example:{port}") as door:
        request = get(
            f"http://GOOD.example.:{port}/a?b",
            "X-Own: 1",
            "Connection: close, X-Hop",
            "X-Hop: 1",
            "Proxy-Connection: keep-alive",
            "Proxy-Authorization: Basic c2VjcmV0",
        )
        answer = await ask(door, request)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nok")
    assert seen == [f"GET /a?b HTTP/1.1\r\nHost: good.example:{port}\r\nX-Own: 1\r\nConnection: close\r\n\r\n".encode()]
    assert world.asked == ["good.example"]


async def test_requests_one_after_the_other(world: World) -> None:
    world.names["other.example"] = ["127.0.0.1"]
    bodies: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        bodies.append(await reader.readexactly(4))
        writer.write(OK)
        await writer.drain()

    async with serving(handler) as port, world.door(f"*:{port}") as door:
        reader, writer = await connect(door)
        for name in ("good", "other", "good"):
            writer.write(get(f"http://{name}.example:{port}/", "Content-Length: 4", method="POST") + b"body")
            assert (await read_head(reader)).startswith(b"HTTP/1.1 200 OK")
            assert await reader.readexactly(2) == b"ok"
        writer.write(get("http://evil\\.example/"))
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
    assert bodies == [b"body"] * 3
    assert world.asked == ["good.example", "other.example", "good.example"]


async def test_pipelined_requests_do_not_end_at_the_first_ones_host(world: World) -> None:
    """What follows a request is another one, with a host of its own that is checked, and not more of the first."""
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_head(reader))
        writer.write(OK)
        await writer.drain()
        writer.write_eof()
        seen.append(await reader.read())

    async with serving(handler) as port, world.door(f"good.example:{port}") as door:
        answer = await ask(door, get(f"http://good.example:{port}/") + get("http://evil.example/"))
        await until(lambda: len(seen) == 2)
    assert b"ok" in answer and b"HTTP/1.1 403 " in answer
    assert b"evil.example is not among the hosts" in answer
    assert seen[1] == b""


async def test_chunks_and_trailers_both_ways(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"Transfer-Encoding: chunked" in await read_head(reader)
        assert await reader.readuntil(b"0\r\n") == b"3\r\nabc\r\n0\r\n"
        assert await reader.readuntil(b"\r\n\r\n") == b"Sum: 1\r\n\r\n"
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nEnd: 2\r\n\r\n")
        await writer.drain()

    async with serving(handler) as port, world.door(f"good.example:{port}") as door:
        body = b"3\r\nabc\r\n0\r\nSum: 1\r\n\r\n"
        request = get(f"http://good.example:{port}/", "Transfer-Encoding: chunked", "Connection: close", method="PUT")
        answer = await ask(door, request + body)
    assert answer.startswith(b"HTTP/1.1 103 Early Hints\r\n")
    assert b"HTTP/1.1 200 OK\r\n" in answer
    assert answer.endswith(b"2\r\nok\r\n0\r\nEnd: 2\r\n\r\n")


async def test_an_answer_that_ends_with_its_connection(world: World) -> None:
    async with (
        serving(fixed(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\nall of it")) as port,
        world.door(f"good.example:{port}") as door,
    ):
        answer = await ask(door, get(f"http://good.example:{port}/", "Connection: close"))
    assert b"Transfer-Encoding: chunked" in answer and b"all of it" in answer and answer.endswith(b"0\r\n\r\n")


async def test_an_answer_that_is_cut_off_does_not_look_whole(world: World) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"
    async with serving(fixed(answer)) as port, world.door(f"good.example:{port}") as door:
        said = await ask(door, get(f"http://good.example:{port}/"))
    assert b"abc" in said and not said.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000])
async def test_an_answer_that_is_none(world: World, answer: bytes) -> None:
    async with serving(fixed(answer)) as port, world.door(f"good.example:{port}") as door:
        said = await ask(door, get(f"http://good.example:{port}/"))
    assert said.startswith(b"HTTP/1.1 502 ")
    assert b"did not answer as HTTP/1.1 has it" in said


async def test_a_tunnel(world: World) -> None:
    async with serving(echo) as port, world.door(f"good.example:{port}") as door:
        reader, writer = await connect(door)
        writer.write(f"CONNECT good.example:{port} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
        assert await read_head(reader) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await reader.readexactly(5) == b"early"
        writer.write(b"\0\r\n\xff")
        assert await reader.readexactly(4) == b"\0\r\n\xff"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert door.passed_bytes == 18


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        ("evil.example", 403, "evil.example is not among the hosts that may be reached: "),
        ("bad.example", 403, "bad.example leads to an address that is not public"),
        ("mixed.example", 403, "mixed.example leads to an address that is not public"),
        ("gone.example", 502, "gone.example is not known"),
        ("empty.example", 502, "empty.example has no address"),
        ("127.0.0.200", 403, "127.0.0.200 leads to an address that is not public"),
        ("[::1]", 403, "::1 leads to an address that is not public"),
        ("[::ffff:7f00:c8]", 403, "127.0.0.200 leads to an address that is not public"),
        ("0x7f.0.0.200", 403, "is an address in a form that is not allowed"),
        ("2130706632", 403, "is an address in a form that is not allowed"),
    ],
)
async def test_refusals(world: World, method: str, host: str, status: int, words: str) -> None:
    """W4: and nobody is connected to."""
    world.names |= {"mixed.example": ["127.0.0.1", "127.0.0.200"], "empty.example": []}
    connections: list[bytes] = []
    everything = ["bad.example", "mixed.example", "gone.example", "empty.example", "127.0.0.200", "[::1]"]
    async with (
        serving(fixed(OK, connections), "127.0.0.200") as port,
        world.door(*(f"{each}:{port}" for each in everything)) as door,
    ):
        target = f"{host}:{port}" if method == "CONNECT" else f"http://{host}:{port}/"
        answer = await ask(door, get(target, method=method))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert words in answer.decode()
    assert not connections
    assert "evil.example" not in world.asked


async def test_refusals_do_not_fill_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "skynet_terminal.sandbox.egress")
    async with world.door("example.org") as door:
        for _ in range(REFUSALS_TOLD + 5):
            assert b" 403 " in await ask(door, get("http://elsewhere.example/"))
        assert caplog.text.count("refused: ") == REFUSALS_TOLD
    assert "refused 5 more" in caplog.text


async def test_the_default_reaches_nothing_of_this_machine(world: World) -> None:
    """W4."""
    async with serving(fixed(OK)) as port:
        proxy = EgressProxy(world.tasks, directory=world.directory)
        door = await proxy.open([f"*:{port}"])
        for host in ("localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"):
            answer = await ask(door, get(f"http://{host}:{port}/"))
            assert b" 403 " in answer, host
            assert b"leads to an address that is not public" in answer
        await proxy.close()


async def test_a_name_that_leads_elsewhere_the_second_time(world: World) -> None:
    """W4: it is asked for once a request, and what was checked is what is connected to."""
    turns = iter((["127.0.0.1"], ["127.0.0.200"], ["127.0.0.1"]))
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return next(turns)

    async with serving(fixed(OK)) as port:
        proxy = EgressProxy(world.tasks, directory=world.directory, resolve=resolve, may_reach=world.may_reach)
        door = await proxy.open([f"turns.example:{port}"])
        request = get(f"http://turns.example:{port}/", "Connection: close")
        answers = [(await ask(door, request))[:13] for _ in range(3)]
        await proxy.close()
    assert answers == [b"HTTP/1.1 200 ", b"HTTP/1.1 403 ", b"HTTP/1.1 200 "]
    assert len(asked) == 3


async def test_the_next_address_is_tried(world: World) -> None:
    world.names["two.example"] = ["127.0.0.2", "127.0.0.1"]
    async with serving(fixed(OK)) as port, world.door(f"two.example:{port}") as door:
        assert (await ask(door, get(f"http://two.example:{port}/", "Connection: close"))).endswith(b"ok")
    async with world.door(f"two.example:{port}") as door:
        answer = await ask(door, get(f"http://two.example:{port}/"))
    assert answer.startswith(b"HTTP/1.1 502 ") and b"Connection refused" in answer


async def test_other_ports_than_those_of_the_web(world: World) -> None:
    async with world.door("good.example") as door:
        answer = await ask(door, get("good.example:22", method="CONNECT"))
    assert b" 403 " in answer and b"port 22 of good.example may not be reached" in answer


async def test_a_request_that_never_ends(world: World) -> None:
    """A slow loris."""
    async with world.door("good.example", limits=EgressLimits(header_s=0.3)) as door:
        reader, writer = await connect(door)
        writer.write(b"GET http://good.example/ HTTP/1.1\r\n")

        async def drip() -> None:
            with suppress(OSError):
                while True:
                    writer.write(b"X: y\r\n")
                    await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(40):
            answer = await reader.read()
        dripping.cancel()
        writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_is_too_long(world: World) -> None:
    async with world.door("good.example", limits=EgressLimits(header_bytes=10_000)) as door:
        answer = await ask(door, b"GET http://good.example/ HTTP/1.1\r\n", b"X: " + b"y" * 100_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_nobody_says_anything(world: World) -> None:
    """Not the client, not the far side, with and without a tunnel: nothing hangs."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    limits = EgressLimits(idle_s=0.3)
    async with serving(silent) as port, world.door(f"good.example:{port}", limits=limits) as door:
        assert await ask(door) == b""
        assert (await ask(door, get(f"http://good.example:{port}/"))).startswith(b"HTTP/1.1 504 ")
        answer = await ask(door, get(f"good.example:{port}", method="CONNECT"))
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert not len(world.tasks)


async def test_a_name_that_is_never_found(world: World) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    limits = EgressLimits(connect_s=0.2)
    proxy = EgressProxy(world.tasks, directory=world.directory, resolve=never, limits=limits)
    door = await proxy.open(["*"])
    assert (await ask(door, get("http://good.example/"))).startswith(b"HTTP/1.1 504 ")
    await proxy.close()


async def test_the_far_side_goes(world: World) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"some")
        await writer.drain()
        await reader.readexactly(4)

    async with serving(rude) as port, world.door(f"good.example:{port}") as door:
        reader, writer = await connect(door)
        writer.write(get(f"good.example:{port}", method="CONNECT"))
        await read_head(reader)
        assert await reader.readexactly(4) == b"some"
        writer.write(b"more!!!!")
        async with asyncio.timeout(40):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: not len(world.tasks))


async def test_the_client_goes(world: World) -> None:
    ended = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65_536))
                await writer.drain()
        finally:
            ended.set()

    async with serving(endless) as port, world.door(f"good.example:{port}") as door:
        reader, writer = await connect(door)
        writer.write(get(f"good.example:{port}", method="CONNECT"))
        await reader.readexactly(MIB)
        writer.transport.abort()
        async with asyncio.timeout(40):
            await ended.wait()
        await until(lambda: not len(world.tasks))


async def test_a_client_that_does_not_read_holds_up_the_far_side(world: World) -> None:
    """Memory stays where it was, however much there would be."""
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while sent < 1_000_000_000:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    limits = EgressLimits(idle_s=1)
    async with serving(endless) as port, world.door(f"good.example:{port}", limits=limits) as door:
        before = psutil.Process().memory_info().rss
        _, writer = await connect(door)
        writer.transport.pause_reading()
        writer.write(get(f"http://good.example:{port}/"))
        await until(lambda: sent)
        await until(lambda: not len(world.tasks), "it to be given up")
        assert sent < 32 * MIB
        assert psutil.Process().memory_info().rss - before < 32 * MIB
        writer.transport.abort()


async def test_big_bodies(world: World) -> None:
    size = 64 * MIB
    received = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await read_head(reader)
        while received < size:
            received += len(await reader.read(65_536))
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // 65_536):
            writer.write(bytes(65_536))
            await writer.drain()

    async with serving(handler) as port, world.door(f"good.example:{port}") as door:
        before = psutil.Process().memory_info().rss
        reader, writer = await connect(door)
        writer.write(get(f"http://good.example:{port}/", f"Content-Length: {size}", method="PUT"))
        for _ in range(size // 65_536):
            writer.write(bytes(65_536))
            await writer.drain()
        await read_head(reader)
        back = 0
        while back < size:
            back += len(await reader.read(65_536))
        assert psutil.Process().memory_info().rss - before < 32 * MIB
        writer.close()
    assert received == size and door.passed_bytes > 2 * size


async def test_fifty_at_once(world: World) -> None:
    async with serving(echo) as port, world.door(f"good.example:{port}") as door:

        async def talk(number: int) -> bool:
            text = b"%d " % number * 20_000
            reader, writer = await connect(door)
            writer.write(get(f"good.example:{port}", method="CONNECT"))
            await read_head(reader)
            async with asyncio.TaskGroup() as group:
                back = group.create_task(reader.readexactly(len(text)))
                writer.write(text)
                await writer.drain()
            writer.close()
            return back.result() == text

        async with asyncio.timeout(40):
            assert all(await asyncio.gather(*map(talk, range(50))))


async def test_too_many_at_once(world: World) -> None:
    async with serving(echo) as port, world.door(f"good.example:{port}", limits=EgressLimits(connections=2)) as door:
        open_ones = [await connect(door) for _ in range(2)]
        for reader, writer in open_ones:
            writer.write(get(f"good.example:{port}", method="CONNECT"))
            await read_head(reader)
        answer = await ask(door, get(f"good.example:{port}", method="CONNECT"))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"2 connections are open already" in answer
        for _, writer in open_ones:
            writer.close()
        await until(lambda: not len(world.tasks))
        assert b" 403 " in await ask(door, get("http://evil.example/"))


async def test_too_many_bytes(world: World) -> None:
    limits = EgressLimits(total_bytes=1000)
    async with serving(echo) as port, world.door(f"good.example:{port}", limits=limits) as door:
        reader, writer = await connect(door)
        writer.write(get(f"good.example:{port}", method="CONNECT"))
        await read_head(reader)
        writer.write(bytes(2000))
        assert len(await reader.read()) <= 1000
        writer.close()
        answer = await ask(door, get(f"good.example:{port}", method="CONNECT"))
    assert b" 403 " in answer and b"more than 1000 bytes" in answer


async def test_closing_ends_what_is_open(world: World) -> None:
    async with serving(echo) as port, world.door(f"good.example:{port}") as door:
        reader, writer = await connect(door)
        writer.write(get(f"good.example:{port}", method="CONNECT"))
        await read_head(reader)
        await world.proxy.close()
        async with asyncio.timeout(40):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(OSError):
            await connect(door)
        await door.close()
    assert not len(world.tasks)


async def test_each_door_has_its_own_hosts(world: World) -> None:
    proxy = world.make()
    one, two = await proxy.open(["one.example"]), await proxy.open(["two.example"])
    assert one.socket_path != two.socket_path
    assert b"one.example is not among the hosts that may be reached: two.example" in await ask(
        two, get("http://one.example/")
    )
    assert b"one.example is not known" in await ask(one, get("http://one.example/"))
    await proxy.close()


async def test_nobody_else_may_use_the_socket(world: World) -> None:
    async with world.door("good.example") as door:
        assert stat.S_IMODE(door.socket_path.stat().st_mode) == 0o600
        assert stat.S_IMODE(world.directory.stat().st_mode) == 0o700


async def test_a_directory_with_a_long_name(world: World) -> None:
    """Addresses of Unix sockets have 107 bytes; in the sandbox its path is a short one."""
    world.directory = world.directory / ("d" * 120)
    async with world.door("good.example") as door:
        assert door.socket_path.is_socket()


@pytest.mark.parametrize("name", ["egress", "d" * 120])
async def test_sockets_of_a_gateway_that_was_killed(world: World, tmp_path: Path, name: str) -> None:
    world.directory = tmp_path / name
    async with world.door("good.example") as open_one:
        left = world.directory / "left.sock"
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(tmp_path / "s"))
        (tmp_path / "s").rename(left)
        async with world.door("good.example"):
            assert not left.exists() and open_one.socket_path.exists()
        await ask(open_one, get("http://evil.example/"))


async def test_a_directory_that_cannot_be(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    world.directory = tmp_path / "file" / "egress"
    with pytest.raises(SandboxUnavailable, match="no way out can be opened in"):
        await world.make().open(["good.example"])
    with pytest.raises(ValueError, match="names no host"):
        await world.make().open(["http://good.example"])


async def test_nothing_is_left(world: World) -> None:
    async with serving(fixed(OK)) as port:
        before = psutil.Process().num_fds()
        for _ in range(20):
            async with world.door(f"good.example:{port}") as door:
                answer = await ask(door, get(f"http://good.example:{port}/", "Connection: close"))
                assert answer.endswith(b"ok")
                await ask(door, get("http://evil.example/"))
        assert not list(world.directory.iterdir())
        await until(lambda: psutil.Process().num_fds() == before)


async def test_what_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Hosts and sizes; no paths, fields or bodies."""
    caplog.set_level("INFO")
    async with serving(fixed(OK)) as port, world.door(f"good.example:{port}") as door:
        await ask(door, get(f"http://good.example:{port}/private-path?q=1", "X-Secret: 1", "Connection: close"))
        await ask(door, get("ftp://good.example/private-path"))
    assert f"to good.example:{port}" in caplog.text and "bytes out" in caplog.text
    assert "private" not in caplog.text.replace("ftp://good.example/private-path", "") and "Secret" not in caplog.text


WORDS = "GET |CONNECT |http://|good.example|:80|/| HTTP/1.1| HTTP/1.0|\r\n|\n|Host: x|Content-Length: 5|5\r\n|\0|:| |\t"
PIECES = st.sampled_from([b"\xff", b"Connection: ", b"Transfer-Encoding: chunked", *WORDS.encode().split(b"|")])


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=30).map(b"".join))
def test_whatever_is_sent_is_answered_or_closed(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    async def check() -> None:
        async with Supervisor() as tasks:
            world = World(tasks, tmp_path_factory.getbasetemp() / "egress")
            world.names = {}
            async with world.door("good.example", limits=EgressLimits(header_s=5)) as door:
                reader, writer = await connect(door)
                writer.write(data)
                writer.write_eof()
                async with asyncio.timeout(40):
                    answer = await reader.read()
                writer.transport.abort()
                assert not answer or answer.startswith(b"HTTP/1.1 ")
                assert b" 200 " not in answer[:20]

    asyncio.run(check())
