"""Attacks from inside. Each tries what a hostile command would, and must get nothing by it."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from skynet_terminal.sandbox import Limits, Profile
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.warden import Warden
from tests.skynet_terminal.sandbox.contract import SandboxContract
from tests.skynet_terminal.sandbox.running import Tasks, folder_of, python, run, shell, started
from tests.support.polling import until
from tests.support.programs import needs

pytestmark = needs("bwrap")

SECRET = "sk-never-to-be-seen"
MB = 1024 * 1024
THERE_OUTSIDE = """
/etc/shadow /etc/gshadow /etc/sudoers /etc/ssh /etc/ssl/private /etc/machine-id /etc/pip.conf /root /home /boot /opt
/mnt /sys /var/log/syslog /var/lib/dpkg /run/systemd /run/docker.sock /var/run/docker.sock /proc/1/root/etc/shadow
/proc/self/root/etc/shadow /proc/kcore /oldroot /newroot /dev/sda /dev/vda /dev/mem /dev/kmsg /dev/fuse /dev/net/tun
"""


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks() as tasks:
        yield tasks


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The gateway's directory, with its database and the folder of somebody else."""
    home = tmp_path / "skynet-home"
    (home / "users" / "bob" / "files").mkdir(parents=True)
    (home / "users" / "bob" / "files" / "diary").write_text(SECRET)
    with closing(sqlite3.connect(home / "skynet.db")) as database, database:
        database.execute("CREATE TABLE secrets (value TEXT)")
        database.execute("INSERT INTO secrets VALUES (?)", (SECRET,))
    (home / "skynet.toml").write_text(f'key = "{SECRET}"')
    return home


@pytest.fixture
def sandbox(home: Path, tasks: Tasks) -> Bubblewrap:
    return Bubblewrap(home / "sandbox", warden=Warden(tasks), hidden=[home])


@pytest.fixture
def profile(home: Path) -> Profile:
    return Profile(folder=folder_of(home))


@pytest.fixture
def listener() -> Iterator[int]:
    """A server of the machine, as the gateway is one, that anybody outside reaches."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        yield port


# Files


@pytest.mark.parametrize("path", THERE_OUTSIDE.split())
async def test_files_of_the_machine(sandbox: Bubblewrap, profile: Profile, path: str) -> None:
    """BA-100: it is not there, or it is empty."""
    ended = await shell(sandbox, profile, f"ls -A {path}/ 2>/dev/null; head -c 100 {path}")
    assert ended.stdout == ""


async def test_the_gateways_files(sandbox: Bubblewrap, profile: Profile, home: Path) -> None:
    """SP-121, BA-100: by its real path, by the user's home and by links in the folder."""
    (profile.folder / "link").symlink_to(home)
    (profile.folder / "database").symlink_to(home / "skynet.db")
    paths = (
        f"{home}/skynet.db ~/.skynet/skynet.db link/skynet.db database {home}/skynet.toml {home}/users/bob/files/diary"
    )
    up = "../bob/files/diary ../../bob/files/diary /files/../users/bob/files/diary"
    ended = await shell(sandbox, profile, f"cat {paths} {up}; ls -R {home} link/ ..")
    assert SECRET not in ended.stdout
    assert "diary" not in ended.stdout
    assert "skynet.db" not in ended.stdout


async def test_writing_outside(sandbox: Bubblewrap, profile: Profile, tmp_path: Path) -> None:
    """BA-098: the system, its mounts, and the machine by links in the folder."""
    (profile.folder / "link").symlink_to(tmp_path)
    targets = "/x /etc/x /etc/passwd /usr/x /usr/bin/true /bin/x /lib/x /var/x /run/x /dev/x /proc/x link/x ../x"
    script = (
        f"for each in {targets} {tmp_path}/x; do (echo x > $each) && echo $each; done; "
        "for each in / /etc /usr /proc /dev; do mkdir $each/d && echo $each; chmod 777 $each && echo $each; "
        "mount -o remount,rw $each && echo $each; done; rm -rf /usr/bin/true && echo /usr/bin/true"
    )
    assert (await shell(sandbox, profile, script)).stdout == ""
    assert not (tmp_path / "x").exists()
    assert shutil.which("true", path="/usr/bin")


def modes_of_devices() -> list[int]:
    return [Path("/dev", name).stat().st_mode for name in ("null", "zero", "tty")]


async def test_device_files_of_the_machine_cannot_be_changed(sandbox: Bubblewrap, profile: Profile) -> None:
    """A gateway that is root owns them outside as well: a null device that nobody may open stops the machine."""
    before = modes_of_devices()
    script = "chmod 600 /dev/null /dev/zero /dev/tty /dev/pts; chmod 600 /proc/*/fd/*; touch -d yesterday /dev/null"
    ended = await shell(sandbox, profile, f"{script}; echo done > /dev/null; head -c 2 /dev/zero | wc -c")
    assert ended.stdout == "2\n"
    assert modes_of_devices() == before
    assert sandbox.guards_devices


async def test_device_files_that_a_command_is_given(sandbox: Bubblewrap, profile: Profile) -> None:
    """They are open in there, and ``/proc`` leads to them as well."""
    before = os.stat("/dev/null").st_mtime  # noqa: PTH116
    script = "touch -d 2001-01-01 /proc/1/fd/* /proc/self/fd/*; chmod 666 /proc/1/fd/*; echo x; echo done > file"
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    async with started(sandbox, profile, ["sh", "-c", script], **nothing) as (_, process):
        await until(lambda: process.poll() is not None)
    assert (profile.folder / "file").exists()
    assert os.stat("/dev/null").st_mtime == before  # noqa: PTH116


async def test_making_devices(sandbox: Bubblewrap, profile: Profile) -> None:
    script = "mknod disk b 8 0; mknod memory c 1 1; mknod /tmp/disk b 8 0; ls; ls /tmp"
    assert (await shell(sandbox, profile, script)).stdout == ""


async def test_the_kernels_settings(sandbox: Bubblewrap, profile: Profile) -> None:
    script = (
        "for each in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/overcommit_memory "
        "/proc/sysrq-trigger /proc/sys/user/max_user_namespaces /proc/1/oom_score_adj /proc/self/uid_map; do "
        "(echo 1 > $each) && echo $each; done"
    )
    assert (await shell(sandbox, profile, script)).stdout == ""


# Processes


async def test_other_processes(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-100: what it sees are its own, and there is nobody else to signal."""
    outside = subprocess.Popen(["sleep", "1000"])  # noqa: ASYNC220
    try:
        ended = await shell(sandbox, profile, f"echo /proc/[0-9]*; kill -9 {outside.pid}; kill -9 -1; echo not reached")
        assert len(ended.stdout.split()) < 6
        assert "not reached" not in ended.stdout or outside.poll() is None
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


async def test_the_gateways_environment(sandbox: Bubblewrap, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """SP-120, BA-200: not among one's own variables, and not in /proc of any process."""
    monkeypatch.setenv("SKYNET_TEST_KEY", SECRET)
    os.putenv("SKYNET_TEST_KEY", SECRET)
    pid = os.getpid()
    script = f"env; cat /proc/$PPID/environ /proc/1/environ /proc/{pid}/environ /proc/*/environ; cat /proc/*/cmdline"
    assert SECRET not in (await shell(sandbox, profile, script)).stdout


async def test_the_process_that_watches_cannot_be_taken_over(sandbox: Bubblewrap, profile: Profile) -> None:
    """It runs as the same user inside: its memory is not to be written to."""
    script = (
        "import os, re\n"
        "for pid in (1, os.getppid(), os.getpid()):\n"
        "    try:\n"
        "        with open(f'/proc/{pid}/mem', 'r+b', buffering=0) as memory:\n"
        "            print('opened', pid)\n"
        "    except OSError:\n"
        "        pass\n"
        "os.kill(1, 9)\n"
        "os.kill(1, 15)\n"
        "print('end')\n"
    )
    ended = await python(sandbox, profile, script)
    assert (ended.stdout, ended.status) == ("end\n", 0)


async def test_what_runs_on_ends_with_the_command(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-087: forked twice, in a session of its own, deaf to signals, with nobody to wait for it."""
    script = (
        "import os, signal, time\n"
        "for number in range(1, 32):\n"
        "    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):\n"
        "        signal.signal(number, signal.SIG_IGN)\n"
        "ready, told = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 3)\n"
        "        os.write(told, b'x')\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.read(ready, 1)\n"
    )
    assert (await python(sandbox, profile, script)).status == 0
    assert SandboxContract().running_in(profile.folder) == []


# System calls

CALLS = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*arguments)
    print(name, 'worked' if result >= 0 else errno.errorcode[ctypes.get_errno()])
"""


async def test_system_calls_that_are_refused(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-180, BA-202."""
    script = (
        f"{CALLS}"
        "import os, fcntl, socket\n"
        "call('ptrace', 16, 1, 0, 0)\n"
        "call('unshare', 0x10000000)\n"
        "call('unshare', 0x00020000)\n"
        "call('setns', 0, 0)\n"
        "call('mount', b'none', b'/tmp', b'tmpfs', 0, None)\n"
        "call('umount2', b'/files', 2)\n"
        "call('chroot', b'/tmp')\n"
        "call('personality', 0x0040000)\n"
        "call('swapon', b'/files/swap', 0)\n"
        "call('reboot', 0x01234567)\n"
        "call('acct', None)\n"
        "call('sethostname', b'x', 1)\n"
        "call('syscall', 248, b'user', b'x', b'y', 1, -3)\n"
        "call('syscall', 425, 8, 0)\n"
        "call('syscall', 321, 0, 0, 0)\n"
        "call('syscall', 323, 0)\n"
        "call('syscall', 298, 0, 0, -1, -1, 0)\n"
        "call('syscall', 304, 0, 0, 0)\n"
        "call('prctl', 1, 0, 0, 0, 0)\n"
        "call('prctl', 1, 28, 0, 0, 0)\n"
        "call('socket', 17, 3, 0)\n"
        "call('socket', 38, 5, 0)\n"
        "call('socket', 40, 1, 0)\n"
        "call('socket', 2, 3, 1)\n"
        "call('socket', 16, 3, 9)\n"
    )
    ended = await python(sandbox, profile, script)
    lines = ended.stdout.splitlines()
    assert len(lines) == 25, ended.stderr
    assert not [line for line in lines if line.endswith("worked")]


async def test_putting_words_into_a_terminals_mouth(sandbox: Bubblewrap, profile: Profile) -> None:
    """TIOCSTI and TIOCLINUX, of which the kernel looks at the lower 32 bits alone."""
    script = (
        f"{CALLS}import os\n"
        "controller, terminal = os.openpty()\n"
        "for request in (0x5412, 0x541C, 0x5423, 0x100005412):\n"
        "    call('syscall', 16 if os.uname().machine == 'x86_64' else 29, terminal, ctypes.c_ulong(request), b'x')\n"
    )
    assert (await python(sandbox, profile, script)).stdout == "syscall EPERM\n" * 4


async def test_programs_that_become_somebody_else(sandbox: Bubblewrap, profile: Profile) -> None:
    """No new privileges: setuid bits do nothing, neither those of the machine nor one's own."""
    shutil.copyfile("/bin/sh", profile.folder / "shell")
    (profile.folder / "shell").chmod(0o6755)
    script = "./shell -c 'id -u'; su -c id </dev/null; grep NoNewPrivs /proc/self/status"
    lines = (await shell(sandbox, profile, script)).stdout.splitlines()
    assert lines[0] == "1000"
    assert lines[-1].split() == ["NoNewPrivs:", "1"]
    assert "uid=0" not in " ".join(lines)


async def test_programs_for_another_kind_of_processor_get_nowhere(sandbox: Bubblewrap, profile: Profile) -> None:
    """The numbers of calls are others there: on x86_64 mount(2) is 21 of 32 bits, which is access(2) of 64."""
    if os.uname().machine != "x86_64":
        pytest.skip("there is no second set of numbers")
    # mov eax, 20 (getpid of 32 bits); int 0x80; ret — and: mov eax, 0x40000027 (getpid of x32); syscall; ret
    script = (
        "import ctypes, mmap\n"
        "for code in (b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3', b'\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3'):\n"
        "    memory = mmap.mmap(-1, 4096, prot=7)\n"
        "    memory.write(code)\n"
        "    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n"
        "    print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())\n"
    )
    ended = await python(sandbox, profile, script)
    assert ended.stdout == "-38\n-38\n", ended.stderr


async def test_files_that_make_somebody_else_of_whoever_runs_them(sandbox: Bubblewrap, profile: Profile) -> None:
    """Outside the file is the gateway's own: whoever of the machine ran it would become the gateway."""
    script = (
        "import os, tempfile\n"
        "def tried(name, function, *arguments):\n"
        "    try:\n"
        "        function(*arguments)\n"
        "    except OSError as exc:\n"
        "        return\n"
        "    print(name, 'worked')\n"
        "open('file', 'w').close()\n"
        "for mode in (0o4755, 0o2755, 0o6777):\n"
        "    tried('chmod', os.chmod, 'file', mode)\n"
        "    tried('fchmod', os.fchmod, os.open('file', os.O_RDONLY), mode)\n"
        "    tried('open', os.open, f'new{mode}', os.O_CREAT | os.O_WRONLY, mode)\n"
        "    tried('tmpfile', os.open, '.', os.O_TMPFILE | os.O_WRONLY, mode)\n"
        "    tried('mknod', os.mknod, f'node{mode}', 0o100000 | mode)\n"
        "os.chmod('file', 0o1755)\n"
    )
    ended = await python(sandbox, profile, script)
    assert (ended.stdout, ended.status) == ("", 0), ended.stderr
    assert not [path for path in profile.folder.iterdir() if path.stat().st_mode & 0o6000]


# Network


async def test_servers_of_the_machine(sandbox: Bubblewrap, profile: Profile, listener: int) -> None:
    """BA-102, BA-094: neither by its loopback, nor by any other address of it."""
    addresses = {each.address for cards in psutil.net_if_addrs().values() for each in cards if ":" not in each.address}
    script = (
        "import socket, sys\n"
        "for address in sys.argv[2:]:\n"
        "    try:\n"
        "        socket.create_connection((address, int(sys.argv[1])), 2)\n"
        "        print('reached', address)\n"
        "    except OSError as exc:\n"
        "        print('refused')\n"
    )
    tried = ["127.0.0.1", "localhost", "::1", "0.0.0.0", *addresses]
    ended = await python(sandbox, profile, script, str(listener), *tried)
    assert ended.stdout == "refused\n" * len(tried), ended.stderr


async def test_the_network(sandbox: Bubblewrap, profile: Profile, listener: int) -> None:
    """BA-094, BA-102: `curl` inside fails, and so does every name."""
    script = (
        f"curl -sS -m 5 http://127.0.0.1:{listener}; curl -sS -m 5 http://1.1.1.1; getent hosts example.org; "
        f"(echo > /dev/tcp/127.0.0.1/{listener}) && echo reached; (echo > /dev/udp/1.1.1.1/53) && echo reached"
    )
    assert (await shell(sandbox, profile, script)).stdout == ""


async def test_unix_sockets_of_the_machine(sandbox: Bubblewrap, profile: Profile, tmp_path: Path) -> None:
    """Abstract ones belong to the network namespace, the others to directories that are not there."""
    name = f"\0skynet-test-{os.getpid()}"
    path = tmp_path / "socket"
    with closing(socket.socket(socket.AF_UNIX)) as abstract, closing(socket.socket(socket.AF_UNIX)) as named:
        for each, address in ((abstract, name), (named, str(path))):
            each.bind(address)
            each.listen()
        script = (
            "import socket, sys\n"
            f"for address in ({name!r}, {str(path)!r}, '/run/dbus/system_bus_socket', '/var/run/docker.sock'):\n"
            "    try:\n"
            "        socket.socket(socket.AF_UNIX).connect(address)\n"
            "        print('reached', address)\n"
            "    except OSError:\n"
            "        print('refused')\n"
        )
        assert (await python(sandbox, profile, script)).stdout == "refused\n" * 4


# Exhaustion


async def test_a_fork_bomb(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-208: others go on meanwhile. The kernel holds it within its limit, and if the gateway is root it is ended."""
    mine = Profile(folder=profile.folder, limits=Limits(processes=64))
    other = Profile(folder=folder_of(profile.folder.parents[2], "eve"))
    bomb = ["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"]
    async with started(sandbox, mine, bomb) as (launch, process):
        assert (await shell(sandbox, other, "echo alive")).stdout == "alive\n"
        if os.geteuid() == 0:
            await until(lambda: launch.overrun)
            assert launch.overrun == "more than 64 processes"
            await until(lambda: process.poll() is not None)
        else:
            assert len(SandboxContract().running_in(profile.folder)) <= 64
    assert SandboxContract().running_in(profile.folder) == []


async def test_threads_count_too(sandbox: Bubblewrap, profile: Profile) -> None:
    mine = Profile(folder=profile.folder, limits=Limits(processes=64))
    script = (
        "import threading, time\n"
        "try:\n"
        "    for _ in range(100):\n"
        "        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "    time.sleep(1000)\n"
        "except RuntimeError:\n"
        "    print('refused')\n"
    )
    ended = await python(sandbox, mine, script)
    assert (ended.overrun or ended.stdout) in ("more than 64 processes", "refused\n")


async def test_a_memory_hog(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-041: one process gets no more than its limit."""
    mine = Profile(folder=profile.folder, limits=Limits(memory_bytes=200 * MB))
    ended = await python(sandbox, mine, "data = bytearray(300 * 2**20)")
    assert "MemoryError" in ended.stderr or ended.overrun


async def test_memory_hogs_together(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-041: nor do several that each keep within it, nor one that shares what it takes."""
    mine = Profile(folder=profile.folder, limits=Limits(memory_bytes=200 * MB))
    script = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        data = [os.urandom(2**20) for _ in range(80)]\n"
        "        time.sleep(1000)\n"
        "os.wait()\n"
    )
    assert (await python(sandbox, mine, script)).overrun == "more than 200 MB of memory"
    shared = "import mmap, time; data = mmap.mmap(-1, 300 * 2**20); data.write(b'x' * 300 * 2**20); time.sleep(1000)"
    assert (await python(sandbox, mine, f"import resource\n{shared}")).status != 0


async def test_a_file_that_is_too_large(sandbox: Bubblewrap, profile: Profile) -> None:
    mine = Profile(folder=profile.folder, limits=Limits(file_bytes=5 * MB))
    ended = await shell(sandbox, mine, "head -c 10M /dev/zero > big; echo $?; truncate -s 10M sparse; echo $?")
    assert (profile.folder / "big").stat().st_size <= 5 * MB
    assert not (profile.folder / "sparse").exists() or (profile.folder / "sparse").stat().st_size == 0
    assert "0" not in ended.stdout.split()


async def test_files_that_are_too_many(sandbox: Bubblewrap, profile: Profile) -> None:
    """BA-208: each is within its limit, and together they fill the disk, deleted while they are open or not."""
    mine = Profile(folder=profile.folder, limits=Limits(file_bytes=50 * MB, disk_bytes=100 * MB))
    script = "for each in 1 2 3 4 5 6; do head -c 40M /dev/urandom > file$each; done; sleep 1000"
    assert (await shell(sandbox, mine, script)).overrun == "more than 100 MB written"
    for file in profile.folder.iterdir():
        file.unlink()
    one = 'eval "exec $each>file"; rm file; head -c 40M /dev/urandom >&$each'
    deleted = f"for each in 3 4 5 6 7 8; do {one}; done; sleep 1000"
    assert (await shell(sandbox, mine, deleted)).overrun == "more than 100 MB written"


async def test_tmp_is_full_at_its_limit(sandbox: Bubblewrap, profile: Profile) -> None:
    mine = Profile(folder=profile.folder, limits=Limits(tmp_bytes=5 * MB))
    ended = await shell(sandbox, mine, "head -c 10M /dev/zero > /tmp/big; wc -c < /tmp/big; df -k /tmp | tail -1")
    assert int(ended.stdout.split()[0]) <= 5 * MB
    assert "No space left" in ended.stderr


async def test_empty_files_in_tmp_are_too_many(sandbox: Bubblewrap, profile: Profile) -> None:
    """They take no space of it, but memory of the machine."""
    mine = Profile(folder=profile.folder, limits=Limits(tmp_bytes=8 * MB))
    script = "import time\nfor number in range(5000): open(f'/tmp/{number}', 'w').close()\ntime.sleep(1000)\n"
    assert (await python(sandbox, mine, script)).overrun == "more than 2048 files in /tmp"


async def test_processor_time(sandbox: Bubblewrap, profile: Profile) -> None:
    mine = Profile(folder=profile.folder, limits=Limits(cpu_s=1))
    ended = await shell(sandbox, mine, "while :; do :; done")
    assert ended.status in (-9, 137, 128 + 24, -24)


async def test_limits_cannot_be_raised(sandbox: Bubblewrap, profile: Profile) -> None:
    script = (
        "ulimit -n 4096 && echo n; ulimit -f unlimited && echo f; ulimit -t unlimited && echo t; ulimit -c 1 && echo c"
    )
    assert (await shell(sandbox, profile, script)).stdout == ""


async def test_ordinary_commands_go_on_beside_others(sandbox: Bubblewrap, profile: Profile) -> None:
    async with started(sandbox, profile, ["sleep", "1000"]) as (_, process):
        await until(lambda: psutil.pid_exists(process.pid))
        assert (await run(sandbox, profile, ["echo", sys.platform])).stdout == f"{sys.platform}\n"
