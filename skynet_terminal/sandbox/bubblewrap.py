"""The sandbox made with bubblewrap: namespaces of Linux, without a daemon and without an image."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Protocol

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox.base import HOME_INSIDE, PATH, SANDBOX_UID, Limits, Mount, Profile
from skynet_terminal.sandbox.mounts import blocked_within
from skynet_terminal.sandbox.process_tree import children_of
from skynet_terminal.sandbox.seccomp import seccomp_filter
from skynet_terminal.sandbox.system import HOSTNAME, USER, SystemFiles, system_arguments
from skynet_terminal.sandbox.warden import Warden

PROBE_S = 10.0
DEATH_S = 2.0
"""So long ``release`` waits for what was killed."""
SHARED_MEMORY_BYTES = 64 * 1024**2
"""``/dev/shm``, beside the ``/tmp`` of the profile."""
NICENESS = 5
"""Of commands: a gateway that hundreds of them leave no time could not end them."""
_PIECE_BYTES = 4096
KILLED_FIRST = 500
"""What is added to the points of commands when the kernel runs out of memory (0-1000): they go before the gateway."""

# The limits are set inside, where processes are counted apart from the gateway's others; they are hard ones, so nothing
# in there can raise them. dash calls -p what bash calls -u.
_LIMITED = (
    "umask 077; ulimit -c 0; {limits}"
    'if test -d "$1"; then cd -- "$1"; else printf "%s: no such directory\\n" "$1" >&2; exit 126; fi; shift; exec "$@"'
)
# What it was given as its three descriptors is reached by /proc from inside: nothing of them may be a device of the
# machine, whose permissions root can change (see SystemFiles.devices).
_WITHOUT_DEVICES = (
    'test -c /dev/fd/0 && ! test -t 0 && exec 0<"$1"; test -c /dev/fd/1 && ! test -t 1 && exec 1>"$1"; '
    'test -c /dev/fd/2 && ! test -t 2 && exec 2>"$1"; shift; exec "$@"'
)
# With a terminal bubblewrap is in the process group of what it runs, unless that is a shell which makes groups. A key
# is then for both, and would end all of it where the program has its own way with that: outside nobody hears these
# signals, and inside they are again what they are everywhere.
_HEARD_INSIDE = ("INT", "QUIT", "TSTP", "TERM", "HUP", "USR1", "USR2")
_DEAF = f"trap '' {' '.join(_HEARD_INSIDE)}; exec \"$@\""
_ENV = "/usr/bin/env"
_HEARING = f"--default-signal={','.join(_HEARD_INSIDE)}"
_NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
# Readable for root, whom commands are outside if the gateway is; some say more of the machine than they need.
_MASKED = ("/proc/kcore", "/proc/keys", "/proc/timer_list")


class Door(Protocol):
    """A way out to some hosts, see :class:`~skynet_terminal.sandbox.egress.Door`."""

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def mounts(self) -> Sequence[Mount]: ...

    def argv_prefix(self, argv: Sequence[str]) -> Sequence[str]: ...

    async def close(self) -> None: ...


class Egress(Protocol):
    """Who opens them, see :class:`~skynet_terminal.sandbox.egress.EgressProxy`."""

    async def open(self, hosts: Sequence[str]) -> Door: ...


class Bubblewrap:
    """See :class:`~skynet_terminal.sandbox.base.Sandbox`.

    Args:
        directory: of the sandbox alone; it is made. What commands see as ``/etc`` is kept there.
        warden: watches what no limit of the kernel binds; without one only those bind.
        egress: opens the way to ``Profile.hosts``; without one no profile can have any.
        hidden: directories of the machine that commands never see, whatever is mounted: the gateway's own.
        program: bubblewrap's, an absolute path. Default: the one on :data:`PATH`.
        no_user_namespaces: commands cannot make user namespaces. Versions before 0.8 cannot do that.
    """

    name = "bubblewrap"

    def __init__(
        self,
        directory: Path,
        *,
        warden: Warden | None = None,
        egress: Egress | None = None,
        hidden: Sequence[Path] = (),
        program: str = "",
        no_user_namespaces: bool = True,
    ) -> None:
        self._program = program or shutil.which("bwrap", path=PATH) or "/usr/bin/bwrap"
        self._warden = warden
        self._egress = egress
        self._hidden = tuple(path.resolve() for path in hidden)
        self._no_user_namespaces = no_user_namespaces
        self._system = SystemFiles(directory)
        self._refreshing = asyncio.Lock()
        self._filter = seccomp_filter()
        self._can_hear: bool | None = None
        """Whether ``env`` can reset signals, once that was tried."""

    @property
    def guards_devices(self) -> bool:
        """Whether commands cannot change the machine's own device files. Known once something was prepared."""
        return bool(self._system.devices) or not self._system.shares_devices

    async def prepare(
        self, profile: Profile, argv: Sequence[str], *, cwd: PurePosixPath = HOME_INSIDE, tty: bool = False
    ) -> BubblewrapLaunch:
        """As ``Sandbox.prepare``. With hosts it has a way out of its own for as long as the launch lives."""
        try:
            async with self._refreshing:
                masked = await asyncio.to_thread(self._look, profile)
                if tty and self._can_hear is None:
                    self._can_hear = await asyncio.to_thread(_resets_signals)
        except OSError as exc:
            raise SandboxUnavailable(f"the sandbox's system cannot be made: {exc}") from exc
        door = await self._open(profile.hosts) if profile.hosts else None
        try:
            with ExitStack() as on_failure:
                descriptors: list[int] = []
                arguments = [*self._arguments(profile, door, masked, tty=tty)]
                if self._filter is not None:
                    descriptors.append(_file_of("seccomp", self._filter, on_failure))
                    arguments += ["--seccomp", str(descriptors[-1])]
                information = _file_of("information", b"", on_failure)
                descriptors.append(information)
                arguments += ["--info-fd", str(information)]
                # Not on the command line: it is everybody's to read, and variables hold secrets.
                data = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
                descriptors.append(_file_of("arguments", data, on_failure))
                inner = [_ENV, _HEARING, *argv] if tty and self._can_hear else [*argv]
                if door is not None:
                    inner = [*door.argv_prefix(inner)]
                script = _LIMITED.format(limits=_ulimits(profile.limits))
                launch = BubblewrapLaunch(
                    [
                        *self._prepared(tty=tty),
                        self._program,
                        "--args",
                        str(descriptors[-1]),
                        "--",
                        "/bin/sh",
                        "-c",
                        script,
                        "sh",
                        str(cwd),
                        *inner,
                    ],
                    descriptors,
                    information,
                    profile,
                    door,
                    self._warden,
                )
                on_failure.pop_all()
                return launch
        except BaseException:
            if door is not None:
                await door.close()
            raise

    def close(self) -> None:
        """Delete what it kept. Commands that still run keep what they see."""
        self._system.remove()

    def _look(self, profile: Profile) -> list[str]:
        """What has to be done before: the options that hide what is in the mounts and must not be seen."""
        self._system.refresh()
        options: list[str] = []
        for mount in (Mount(source=Path("/usr"), target=PurePosixPath("/usr")), *profile.mounts):
            blocked = blocked_within(mount.source) if mount.source != Path("/usr") else []
            for path in (*blocked, *self._hidden):
                if path != mount.source and path.is_relative_to(mount.source) and path.exists():
                    target = mount.target / path.relative_to(mount.source)
                    options += _nothing_at(target) if path.is_dir() else ("--ro-bind", "/dev/null", str(target))
        return options

    def _prepared(self, *, tty: bool) -> Sequence[str]:
        """What bubblewrap is started by, so that its descriptors and signals are as they have to be."""
        if tty:
            return ("/bin/sh", "-c", _DEAF, "sh") if self._can_hear else ()
        null = next((str(path) for path in self._system.devices if path.name == "null"), "")
        return ("/bin/sh", "-c", _WITHOUT_DEVICES, "sh", null) if null else ()

    async def _open(self, hosts: Sequence[str]) -> Door:
        if self._egress is None:
            raise SandboxUnavailable("commands cannot reach hosts here: there is no egress proxy")
        return await self._egress.open(hosts)

    def _arguments(self, profile: Profile, door: Door | None, masked: Sequence[str], *, tty: bool) -> Iterator[str]:
        identity = str(SANDBOX_UID)
        yield from _NAMESPACES
        if self._no_user_namespaces:
            yield "--disable-userns"
        yield from ("--uid", identity, "--gid", identity, "--hostname", HOSTNAME, "--cap-drop", "ALL")
        yield "--die-with-parent"
        if not tty:
            # With one, the terminal is the command's own, and its session has to stay the one that controls it.
            yield "--new-session"
        yield from self._variables(profile, door)
        yield from ("--proc", "/proc")
        for masked_file in _MASKED:
            if Path(masked_file).exists():
                yield from ("--ro-bind", "/dev/null", masked_file)
        yield from ("--remount-ro", "/proc")
        yield from ("--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108
        for device in self._system.devices:
            yield from ("--dev-bind", str(device), f"/dev/{device.name}")
        yield from ("--remount-ro", "/dev")
        yield from system_arguments()
        yield from ("--ro-bind", str(self._system.etc), "/etc")
        yield from ("--size", str(profile.limits.tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp")  # noqa: S108
        yield from ("--dir", "/run/lock", "--dir", "/var/lib", "--dir", "/var/log", "--dir", "/var/cache")
        yield from ("--symlink", "/tmp", "/var/tmp", "--symlink", "/run", "/var/run")  # noqa: S108
        yield from ("--bind", str(profile.folder), str(HOME_INSIDE))
        for mount in (*profile.mounts, *(door.mounts if door is not None else ())):
            yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(mount.target))
        yield from masked
        yield from ("--remount-ro", "/", "--chdir", "/")

    def _variables(self, profile: Profile, door: Door | None) -> Iterator[str]:
        variables = {
            "PATH": PATH,
            "HOME": str(HOME_INSIDE),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "USER": USER,
            "LOGNAME": USER,
            "SHELL": "/bin/bash",
        }
        variables |= door.env if door is not None else {}
        variables |= profile.env
        yield "--clearenv"
        for name, value in variables.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} cannot be a variable of commands")
            yield from ("--setenv", name, value)


class BubblewrapLaunch:
    """See :class:`~skynet_terminal.sandbox.base.Launch`."""

    env: Mapping[str, str] = {"PATH": PATH, "LANG": "C.UTF-8"}
    """Bubblewrap's own: what the command has is among the arguments, so that none of it acts outside."""
    cwd = Path("/")

    def __init__(
        self,
        argv: Sequence[str],
        descriptors: Sequence[int],
        information: int,
        profile: Profile,
        door: Door | None,
        warden: Warden | None,
    ) -> None:
        self.argv = argv
        self.pass_fds = descriptors
        self.overrun = ""
        self._information = information
        self._profile = profile
        self._door = door
        self._warden = warden
        self._pid: int | None = None
        self._process: int | None = None
        """A descriptor of it: numbers of processes are used again, descriptors are not."""
        self._inits: list[int] = []
        self._released = False

    def started(self, pid: int) -> None:
        self._pid = pid
        with suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(KILLED_FIRST))
            os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
        with suppress(OSError):  # it has ended and was waited for
            self._process = os.pidfd_open(pid)
            if self._warden is not None:
                self._warden.watch(self, pid, self._profile.folder, self._profile.limits)

    def end(self, overrun: str) -> None:
        """Kill it for ``overrun``; the first word stays."""
        self.overrun = self.overrun or overrun
        self.kill()

    def kill(self) -> None:
        if self._process is None or self._pid is None:
            return
        with suppress(OSError):
            # Bubblewrap's child is the first process in there, with which the kernel ends all others. It would end with
            # bubblewrap too, if it had come so far already as to ask for that.
            signal.pidfd_send_signal(self._process, signal.SIGSTOP)
            for child in children_of(self._pid):
                with suppress(OSError):
                    self._inits.append(os.pidfd_open(child))
                    signal.pidfd_send_signal(self._inits[-1], signal.SIGKILL)
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(OSError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def _find_init(self) -> None:
        """Bubblewrap ends some moments before the first process in there, and with that one all others do."""
        with suppress(OSError, ValueError, KeyError):
            about = json.loads(os.pread(self._information, _PIECE_BYTES, 0))
            namespace = f"pid:[{about['pid-namespace']}]"
            descriptor = os.pidfd_open(about["child-pid"])
            self._inits.append(descriptor)
            if os.readlink(f"/proc/{about['child-pid']}/ns/pid") == namespace:  # noqa: PTH115
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            else:  # another's, who has the number by now
                os.close(self._inits.pop())

    async def release(self) -> None:
        if self._released:
            return
        self._released = True
        self.kill()
        if self._process is not None:
            self._find_init()
        if self._warden is not None:
            self._warden.forget(self)
        try:
            for descriptor in self._inits:
                await _ended(descriptor)
        finally:
            for descriptor in (*self.pass_fds, *self._inits, *(() if self._process is None else (self._process,))):
                os.close(descriptor)
            self.pass_fds = ()
            self._inits, self._process = [], None
            if self._door is not None:
                await self._door.close()


async def _ended(descriptor: int) -> None:
    """Wait for the process of this descriptor, at most ``DEATH_S``."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(DEATH_S):
                await ended.wait()
    finally:
        loop.remove_reader(descriptor)


def _resets_signals() -> bool:
    """Whether ``env`` can (coreutils 8.31, of 2019). Commands see the same one."""
    with suppress(OSError, subprocess.SubprocessError):
        argv = (_ENV, _HEARING, "true")
        return subprocess.run(argv, capture_output=True, timeout=PROBE_S, check=False).returncode == 0  # noqa: S603
    return False


def _ulimits(limits: Limits) -> str:
    """Commands of a shell; what one cannot set is left out there and then."""
    data_kib = limits.memory_bytes // 1024
    return (
        f"ulimit -n {limits.open_files} 2>/dev/null; ulimit -t {limits.cpu_s} 2>/dev/null; "
        f"ulimit -f {max(1, limits.file_bytes // 512)} 2>/dev/null; ulimit -d {data_kib} 2>/dev/null; "
        f"ulimit -u {limits.processes} 2>/dev/null || ulimit -p {limits.processes} 2>/dev/null; "
    )


def _nothing_at(path: PurePosixPath) -> tuple[str, ...]:
    return ("--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path))


def _file_of(name: str, data: bytes, on_failure: ExitStack) -> int:
    """A file in memory without a name, to be read from its start."""
    descriptor = os.memfd_create(name)
    on_failure.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
