"""What a sandboxed command sees of the egress proxy: real clients in real bubblewrap."""

import asyncio
import os
import pty
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from skynet.supervisor import Supervisor
from skynet_terminal.sandbox import Launch, Profile
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.egress import EgressProxy
from tests.skynet_terminal.sandbox.test_egress import OK, World, fixed, read_head, serving
from tests.support.polling import until
from tests.support.programs import LIBRARY_SIGNALS, needs

pytestmark = needs("bwrap")


class Inside:
    """Commands in sandboxes that reach what a world has."""

    def __init__(self, world: World, sandbox: Bubblewrap, folder: Path) -> None:
        self.world = world
        self.sandbox = sandbox
        self.folder = folder
        folder.mkdir(exist_ok=True)

    @asynccontextmanager
    async def launch(self, command: str, *hosts: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Launch]:
        profile = Profile(folder=self.folder, hosts=hosts, env=env or {})
        launch = await self.sandbox.prepare(profile, ["/bin/sh", "-c", command])
        try:
            yield launch
        finally:
            await launch.release()

    async def run(self, command: str, *hosts: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit code and all that was written."""
        async with self.launch(command, *hosts, env=env) as launch:
            process = await start(launch)
            async with asyncio.timeout(40):
                output, _ = await process.communicate()
            assert process.returncode is not None
            return process.returncode, output.decode()


async def start(launch: Launch) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        env=launch.env,
        cwd=launch.cwd,
        pass_fds=launch.pass_fds,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    launch.started(process.pid)
    return process


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with Supervisor() as tasks:
        world = World(tasks, tmp_path / "egress")
        yield Inside(world, Bubblewrap(tmp_path / "system", egress=world.make()), tmp_path / "folder")
        await world.proxy.close()
        assert not list(world.directory.glob("*")), "doors were left open"


async def test_curl(inside: Inside) -> None:
    async with serving(fixed(OK)) as port:
        code, said = await inside.run(f"curl -sS http://good.example:{port}/", f"good.example:{port}")
    assert (code, said) == (0, "ok")


async def test_python(inside: Inside) -> None:
    script = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).read())"
    async with serving(fixed(OK)) as port:
        url = f"http://good.example:{port}/"
        code, said = await inside.run(f"python3 -c '{script}' {url}", f"good.example:{port}")
    assert (code, said) == (0, "b'ok'\n")


async def test_what_is_refused_says_why(inside: Inside) -> None:
    code, said = await inside.run("curl -sS http://evil.example/", "good.example")
    assert (code, said) == (0, "evil.example is not among the hosts that may be reached: good.example\n")
    code, said = await inside.run("curl -sS https://evil.example/", "good.example")
    assert code == 56 and "403" in said


async def test_without_hosts_there_is_no_network(inside: Inside) -> None:
    async with serving(fixed(OK)) as port:
        code, said = await inside.run(f"curl -sS http://127.0.0.1:{port}/; env | grep -i proxy; ls /run/skynet")
    assert code != 0 and "127.0.0.1" in said and "proxy" not in said.lower()


async def test_there_is_no_way_but_the_proxy(inside: Inside) -> None:
    async with serving(fixed(OK)) as port:
        code, said = await inside.run(f"curl -sS --noproxy '*' http://127.0.0.1:{port}/", "*")
        assert code == 7, said
        _, said = await inside.run("cat /proc/net/route /proc/net/if_inet6 /proc/net/dev", "*")
    assert {line.split(":")[0].strip() for line in said.splitlines() if ":" in line} == {"lo"}


SPELLINGS = (
    "127.0.0.1 127.1 127.0.1 2130706433 017700000001 0x7f000001 0x7f.1 0177.0.0.1 127.0.0.1. 0.0.0.0 0 localhost "
    "LOCALHOST localhost. [::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] "
    "[2002:7f00:1::] [::127.0.0.1] 169.254.169.254 [fd00:ec2::254] 127.0.0.1.nip.example ①②⑦.⓪.⓪.①"
)


async def test_every_spelling_of_this_machine(inside: Inside, tmp_path: Path) -> None:
    """W4: with the rule that is in force by default, and whatever the client makes of the spelling."""
    connections: list[bytes] = []

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host.endswith("nip.example") else ["::1", "127.0.0.1"]

    proxy = EgressProxy(inside.world.tasks, directory=tmp_path / "doors", resolve=resolve)
    inside.sandbox = Bubblewrap(tmp_path / "system", egress=proxy)
    async with serving(fixed(OK, connections)) as port:
        urls = " ".join(f"'http://{each}:{port}/'" for each in SPELLINGS.split())
        command = f"for url in {urls}; do curl -gsS --noproxy '' -o /dev/null -w '%{{http_code}}\\n' $url; done 2>&1"
        _, said = await inside.run(command, f"*:{port}")
    answers = said.split()
    assert len(answers) == len(SPELLINGS.split())
    assert set(answers) <= {"400", "403"}, said
    assert not connections


async def test_a_redirect_to_what_is_not_public(inside: Inside) -> None:
    """W4: it is the client's next request, and is checked like the first."""
    secret: list[bytes] = []
    async with serving(fixed(OK, secret), "127.0.0.200") as private:
        place = f"http://bad.example:{private}/"
        redirect = f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
        async with serving(fixed(redirect)) as port:
            hosts = (f"good.example:{port}", f"bad.example:{private}")
            _, said = await inside.run(f"curl -sSL http://good.example:{port}/", *hosts)
    assert said == "bad.example leads to an address that is not public\n"
    assert not secret


async def test_nobody_uses_the_door_of_another(inside: Inside) -> None:
    async with inside.launch("sleep 99", "good.example"):
        others = next(inside.world.directory.glob("*.sock"))
        command = f"ls /run/skynet; ls {others}; curl -sS --noproxy '' --unix-socket {others} http://good.example/"
        code, said = await inside.run(command, "other.example")
        assert code != 0
        assert "egress.sock\negress_forwarder.py\n" in said and others.name in said
        assert "No such file or directory" in said
        _, said = await inside.run("curl -sS http://good.example/", "other.example")
        assert said == "good.example is not among the hosts that may be reached: other.example\n"


async def test_it_cannot_be_replaced(inside: Inside) -> None:
    command = "rm -f /run/skynet/*; mv /run/skynet /run/other; echo x >/run/skynet/egress_forwarder.py; ls /run/skynet"
    _, said = await inside.run(command, "good.example")
    assert said.endswith("egress.sock\negress_forwarder.py\n")


async def test_much_both_ways(inside: Inside) -> None:
    """Through the forwarder, with and without a tunnel."""
    size = 8_000_000
    received: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        received.append(len(await reader.readexactly(size)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
        await writer.drain()
        await reader.read()

    async with serving(handler) as port:
        for tunnel in ("", "-p"):
            command = (
                f"head -c {size} /dev/zero | curl -sS {tunnel} -H Expect: --data-binary @- "
                f"http://good.example:{port}/ | wc -c"
            )
            code, said = await inside.run(command, f"good.example:{port}")
            assert (code, said.strip()) == (0, str(size))
    assert received == [size, size]


async def test_fifty_at_once(inside: Inside) -> None:
    async with serving(fixed(OK)) as port:
        url = f"http://good.example:{port}/"
        command = f"seq 50 | xargs -P 50 -I{{}} curl -sS {url}{{}} | tr -d '\\n'"
        code, said = await inside.run(command, f"good.example:{port}")
    assert (code, said) == (0, "ok" * 50)


ENDS = r"""
import os, socket, struct, sys, time
port = sys.argv[1]
def connected(text):
    s = socket.create_connection(("127.0.0.1", 3128)); s.sendall(text); return s
tunnel = f"CONNECT good.example:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
for number in range(20):
    s = connected(tunnel if number % 2 else b"GET x\r\n\r\n" if number % 3 else b"GET ")
    if number % 3: s.recv(10)
    if number % 5 == 0: s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if number % 7 == 0: s.shutdown(socket.SHUT_WR)
    s.close()
kept = []
for _ in range(5):
    s = connected(tunnel); s.shutdown(socket.SHUT_WR); kept.append(s)
    s = connected(tunnel); kept.append(s); s.recv(10)
time.sleep(0.3)
def used():
    ticks = files = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().split(b"\0")[3:4] == [b"/run/skynet/egress_forwarder.py"]:
                with open(f"/proc/{pid}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
                files += len(os.listdir(f"/proc/{pid}/fd"))
    return ticks, files
before, _ = used(); time.sleep(1); after, _ = used()
print("idle" if after - before < 20 else f"busy: {after - before} ticks")
for s in kept: s.close()
for _ in range(400):
    if used()[1] < 8: break
    time.sleep(0.1)
print("files", 0 < used()[1] < 8)
"""


async def test_ends_that_go(inside: Inside) -> None:
    """Clients that end at once and in the middle, a server that breaks off: the forwarder goes on, and is idle."""

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(100_000))
        await writer.drain()

    (inside.folder / "ends.py").write_text(ENDS)
    async with serving(rude) as port:
        code, said = await inside.run(f"python3 ends.py {port}; curl -sS http://evil.example/", f"good.example:{port}")
    assert code == 0
    assert said == f"idle\nfiles True\nevil.example is not among the hosts that may be reached: good.example:{port}\n"


async def test_exit_codes_and_signals(inside: Inside) -> None:
    assert await inside.run("exit 7", "good.example") == (7, "")
    plain, _ = await inside.run("kill -TERM $$")
    assert (await inside.run("kill -TERM $$", "good.example"))[0] == plain


async def test_the_command_is_what_it_would_be_without(inside: Inside) -> None:
    """The same signals, umask, files and variables, no child that it does not know of."""
    command = (
        "grep -E '^(Sig(Blk|Ign|Cgt)|Umask|NoNewPrivs|Seccomp):' /proc/self/status; ls /proc/self/fd | wc -l; "
        "ps -o ppid= -p $$ | tr -d ' '; ps -o comm= --ppid $$ | grep python; env | grep -iv proxy | sort; pwd"
    )
    env = {"LC_TIME": "C", "LANG": "C", "ODD": "a\nb"}
    code, said = await inside.run(command, "good.example", env=env)
    assert code == 0
    ignored = next(line for line in said.splitlines() if line.startswith("SigIgn:"))
    assert int(ignored.split()[1], 16) & ~LIBRARY_SIGNALS == 0
    assert "LC_CTYPE" not in said
    assert (code, said) == await inside.run(command, env=env)


async def test_a_program_that_is_missing(inside: Inside) -> None:
    launch = await inside.sandbox.prepare(Profile(folder=inside.folder, hosts=("a.example",)), ["no-such-program"])
    try:
        process = await start(launch)
        output, _ = await process.communicate()
    finally:
        await launch.release()
    assert (process.returncode, output) == (127, b"no-such-program: No such file or directory\n")


async def test_nobody_waits_for_the_forwarder(inside: Inside) -> None:
    """It holds nothing of the command's open, is in a session of its own and in no terminal's."""
    command = "pid=$(pgrep -f '^[^ ]*python3 -I -S'); readlink /proc/$pid/fd/*; ps -o sid=,tty= -p $pid"
    code, said = await inside.run(f"{command}; ps -o sid= -p $$", "good.example")
    *files, forwarders, own = said.splitlines()
    assert code == 0
    assert files[:3] == ["/dev/null"] * 3 and len(files) == 5
    assert all(file.startswith(("socket:", "anon_inode:[eventpoll]")) for file in files[3:])
    assert forwarders.split()[1] == "?" and forwarders.split()[0] != own.strip()


async def test_killing_leaves_nothing(inside: Inside) -> None:
    marker = f"{os.getpid()}.{id(inside)}"

    def running() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if marker.encode() in path.read_bytes():
                    found.append(path.parent.name)
        return found

    async with inside.launch(f"sleep 99; : {marker}", "good.example") as launch:
        process = await start(launch)
        await until(lambda: len(running()) >= 3)
        launch.kill()
        await process.wait()
        await until(lambda: not running())


async def test_job_control(inside: Inside) -> None:
    """In a terminal the command leads its session, and its shell stops and continues what it starts."""
    profile = Profile(folder=inside.folder, hosts=("good.example",))
    launch = await inside.sandbox.prepare(profile, ["/bin/bash", "--norc", "-i"], tty=True)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(launch.cwd)
        for descriptor in launch.pass_fds:
            os.set_inheritable(descriptor, True)
        os.execve(launch.argv[0], launch.argv, launch.env)
    launch.started(pid)
    os.set_blocking(terminal, False)
    seen = bytearray()

    def shows(word: str) -> bool:
        with suppress(OSError):  # nothing yet, or the end
            seen.extend(os.read(terminal, 65_536))
        return word.encode() in seen

    status: list[int] = []

    def has_ended() -> bool:
        shows("")
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            status.append(os.waitstatus_to_exitcode(code))
        return bool(ended)

    try:
        os.write(terminal, b"PS1='$ '; echo be''gin\n")
        await until(lambda: shows("begin"), "a prompt")
        assert b"no job control" not in seen
        os.write(terminal, b"sh -c 'echo first''-job; exec sleep 98'\n")
        await until(lambda: shows("first-job"), "a job")
        os.write(terminal, b"\x1a")
        await until(lambda: shows("Stopped"), "the stop")
        os.write(terminal, b"kill %1; wait; sh -c 'echo second''-job; exec sleep 97'; echo co''de $?\n")
        await until(lambda: shows("second-job"), "another job")
        os.write(terminal, b"\x03")
        os.write(terminal, b"echo af''ter; curl -sS http://evil.example/ 2>&1 | head -c 12; exit 5\n")
        await until(lambda: shows("after"), "the interruption")
        await until(has_ended, "the end")
        assert b"evil.example" in seen.partition(b"after")[2]
        assert status == [5]
    finally:
        if not status:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # noqa: ASYNC222 - it was killed
        os.close(terminal)
        await launch.release()


async def test_https(inside: Inside, tmp_path: Path) -> None:
    """The client's own TLS, from end to end."""
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=good.example -addext subjectAltName=DNS:good.example"
    authority, key = inside.folder / "ca.crt", tmp_path / "key"
    process = await asyncio.create_subprocess_exec(
        "openssl", *words.split(), "-keyout", key, "-out", authority, stderr=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        pytest.skip("openssl cannot make certificates here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, key)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(OK)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        command = f"curl -sS --cacert ca.crt https://good.example:{port}/"
        assert await inside.run(command, f"good.example:{port}") == (0, "ok")
    finally:
        server.close()


def test_it_needs_no_module_but_those_of_the_interpreter() -> None:
    """It runs in whatever Python 3 a sandbox has."""
    source = Path(sys.modules[EgressProxy.__module__].__file__ or "").with_name("egress_forwarder.py").read_text()
    imported = {line.split()[1] for line in source.splitlines() if line.split()[:1] in (["import"], ["from"])}
    assert imported == {"__future__", "_socket", "os", "signal", "sys", "select", "socket"}
