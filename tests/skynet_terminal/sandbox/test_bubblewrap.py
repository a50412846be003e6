"""Bubblewrap does what every sandbox does, with a terminal as well, and keeps what it was given to itself."""

import asyncio
import os
import pty
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import psutil
import pytest

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox import Mount, Profile, Sandbox
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.warden import Warden
from tests.skynet_terminal.sandbox.contract import SandboxContract
from tests.skynet_terminal.sandbox.running import Tasks, folder_of, run, shell, start
from tests.support.polling import until
from tests.support.programs import needs

pytestmark = needs("bwrap")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with Tasks() as tasks:
        yield Bubblewrap(tmp_path / "sandbox", warden=Warden(tasks))


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile(folder=folder_of(tmp_path))


class TestBubblewrap(SandboxContract):
    pass


class Terminal:
    """A command with a terminal of its own."""

    def __init__(self) -> None:
        self.controller, self.terminal = pty.openpty()
        os.set_blocking(self.controller, False)
        self.screen = ""

    def descriptors(self) -> dict[str, int]:
        return {"stdin": self.terminal, "stdout": self.terminal, "stderr": self.terminal}

    def type(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def shows(self, text: str) -> Callable[[], bool]:
        def is_there() -> bool:
            with suppress(OSError):
                self.screen += os.read(self.controller, 65_536).decode("utf-8", "replace")
            return text in self.screen

        return is_there

    def close(self) -> None:
        os.close(self.controller)
        os.close(self.terminal)


def statuses(pid: int) -> dict[str, str]:
    """Of all below it, by their names."""
    found = {}
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[each.name()] = each.status()
    return found


async def test_job_control_in_a_terminal(sandbox: Sandbox, profile: Profile) -> None:
    """SK-173: the terminal is the command's own: Ctrl-C and Ctrl-Z reach the program in front and not the shell."""
    terminal = Terminal()
    launch = await sandbox.prepare(profile, ["bash", "--norc", "-i"], tty=True)
    take_it = (
        "import os, sys, fcntl, termios\n"
        "os.setsid()\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - with the end of the thread that starts it it ends
            ["/usr/bin/python3", "-c", take_it, *launch.argv],
            env=dict(launch.env),
            pass_fds=tuple(launch.pass_fds),
            **terminal.descriptors(),
        )
        launch.started(process.pid)
        terminal.type("PS1='pr''ompt> '\n")
        await until(terminal.shows("prompt> "))
        terminal.type("tty; sleep 1000\n")
        await until(terminal.shows("/dev/"))
        await until(lambda: "sleep" in statuses(process.pid))
        terminal.type("\x1a")
        await until(terminal.shows("Stopped"))
        terminal.type("fg\n")
        await until(terminal.shows("fg\r\n"))
        await until(lambda: statuses(process.pid)["sleep"] == psutil.STATUS_SLEEPING)
        terminal.type("\x03")
        await until(lambda: "sleep" not in statuses(process.pid))
        terminal.type("echo st''atus $?\n")
        await until(terminal.shows("status 130"))
        assert "no job control" not in terminal.screen
        terminal.type("exit 5\n")
        await until(lambda: process.poll() is not None)
        assert process.returncode == 5
    finally:
        await launch.release()
        terminal.close()


async def test_there_is_nothing_of_the_gateway_among_its_descriptors(sandbox: Sandbox, profile: Profile) -> None:
    """Neither its own arguments and filter, nor those of the process that watches over it."""
    script = "ls /proc/self/fd; readlink /proc/1/fd/*; ls -l /proc/self/fd"
    ended = await shell(sandbox, profile, script)
    assert ended.stdout.split()[:4] == ["0", "1", "2", "3"]
    assert "memfd" not in ended.stdout


async def test_a_variable_cannot_be_of_any_form(sandbox: Sandbox, profile: Profile) -> None:
    for env in ({"A=B": "c"}, {"": "c"}, {"A": "b\0c"}, {"A\0--bind\0/\0/mnt": "c"}):
        before = psutil.Process().num_fds()
        with pytest.raises(ValueError, match="cannot be a variable"):
            await sandbox.prepare(Profile(folder=profile.folder, env=env), ["true"])
        assert psutil.Process().num_fds() == before


async def test_variables_of_commands_do_not_act_on_bubblewrap(sandbox: Sandbox, profile: Profile) -> None:
    """It runs outside: what is loaded there runs as the gateway."""
    launch = await sandbox.prepare(Profile(folder=profile.folder, env={"LD_PRELOAD": "/files/evil.so"}), ["true"])
    assert "LD_PRELOAD" not in launch.env
    await launch.release()


async def test_what_is_hidden_cannot_be_seen_in_mounts(tmp_path: Path, profile: Profile) -> None:
    """SP-121: the gateway's own directory, wherever it is."""
    home = tmp_path / "project" / "gateway"
    home.mkdir(parents=True)
    (home / "skynet.db").write_text("secret")
    sandbox = Bubblewrap(tmp_path / "sandbox", hidden=[home])
    mount = Mount(source=tmp_path / "project", target=PurePosixPath("/mnt/project"), writable=True)
    mine = Profile(folder=profile.folder, mounts=(mount,))
    ended = await shell(sandbox, mine, "ls -A /mnt/project/gateway; cat /mnt/project/gateway/skynet.db; echo done")
    assert ended.stdout == "done\n"


class Door:
    """A way out as the egress proxy opens it."""

    closed = False

    def __init__(self, socket: Path) -> None:
        self.env: Mapping[str, str] = {"HTTP_PROXY": "http://127.0.0.1:3128"}
        self.mounts: Sequence[Mount] = (Mount(source=socket, target=PurePosixPath("/run/skynet/door")),)

    def argv_prefix(self, argv: Sequence[str]) -> Sequence[str]:
        return ["env", "FORWARDED=yes", *argv]

    async def close(self) -> None:
        self.closed = True


async def test_hosts_get_a_door_that_is_closed_in_the_end(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    socket.write_text("door")
    doors = []

    class Egress:
        async def open(self, hosts: Sequence[str]) -> Door:
            assert hosts == ("example.org",)
            doors.append(Door(socket))
            return doors[-1]

    sandbox = Bubblewrap(tmp_path / "sandbox", egress=Egress())
    profile = Profile(folder=folder_of(tmp_path), hosts=("example.org",))
    ended = await shell(sandbox, profile, "echo $HTTP_PROXY $FORWARDED; cat /run/skynet/door")
    assert ended.stdout == "http://127.0.0.1:3128 yes\ndoor"
    assert [door.closed for door in doors] == [True]


async def test_hosts_without_an_egress_proxy(sandbox: Sandbox, profile: Profile) -> None:
    with pytest.raises(SandboxUnavailable, match="no egress proxy"):
        await sandbox.prepare(Profile(folder=profile.folder, hosts=("example.org",)), ["true"])


def helping(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3])


async def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """BA-035: a gateway that is killed leaves no command behind."""
    folder = folder_of(tmp_path)
    helper = (
        "import asyncio, sys, pathlib\n"
        "from skynet_terminal.sandbox import Profile\n"
        "from skynet_terminal.sandbox.bubblewrap import Bubblewrap\n"
        "from tests.skynet_terminal.sandbox.running import start\n"
        "async def main():\n"
        f"    sandbox = Bubblewrap(pathlib.Path({str(tmp_path / 'sandbox')!r}))\n"
        f"    launch = await sandbox.prepare(Profile(folder=pathlib.Path({str(folder)!r})),\n"
        "        ['sh', '-c', 'setsid sleep 1000 & echo > started; sleep 1000'])\n"
        "    start(launch).wait()\n"
        "asyncio.run(main())\n"
    )
    gateway = helping(helper)
    try:
        await until((folder / "started").exists)
        assert TestBubblewrap().running_in(folder)
    finally:
        gateway.kill()
        gateway.wait()
    await until(lambda: not TestBubblewrap().running_in(folder))


async def test_it_ends_when_bubblewrap_is_killed(sandbox: Sandbox, profile: Profile) -> None:
    launch = await sandbox.prepare(profile, ["sh", "-c", "setsid sleep 1000 & echo > started; sleep 1000"])
    process = start(launch)
    try:
        await until((profile.folder / "started").exists)
        process.kill()
        await until(lambda: not TestBubblewrap().running_in(profile.folder))
    finally:
        process.communicate()
        await launch.release()


async def test_killing_leaves_nothing_at_any_moment(sandbox: Sandbox, profile: Profile) -> None:
    """While bubblewrap makes its namespaces too: its child waits for it then, and would do so for ever."""
    seconds = f"1000.{os.getpid()}"
    for step in range(30):
        launch = await sandbox.prepare(profile, ["sleep", seconds])
        process = start(launch)
        time.sleep(step * 0.0003)  # noqa: ASYNC251 - the moment is what it is about
        launch.kill()
        await asyncio.to_thread(process.communicate)
        await launch.release()
    left = [each.pid for each in psutil.process_iter(["cmdline"]) if seconds in (each.info["cmdline"] or ())]
    assert left == []


async def test_the_system_is_seen_anew_when_it_changes(tmp_path: Path, profile: Profile) -> None:
    sandbox = Bubblewrap(tmp_path / "sandbox")
    assert (await run(sandbox, profile, ["cat", "/etc/passwd"])).stdout.startswith("skynet:x:1000:1000:")
    sandbox.close()
    assert (await run(sandbox, profile, ["cat", "/etc/hostname"])).stdout == "skynet\n"
