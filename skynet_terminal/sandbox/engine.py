"""The sandbox made with containers: of podman or docker, whose image has to be on the machine.

Each command is a container of its own, without a network, with a read-only system, without capabilities. Its client is
what is started; ending the client does not end the container, so the engine is told apart.
"""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox.base import HOME_INSIDE, PATH, SANDBOX_UID, Limits, Mount, Profile
from skynet_terminal.sandbox.bubblewrap import Door, Egress
from skynet_terminal.sandbox.mounts import blocked_within

EngineName: TypeAlias = Literal["podman", "docker"]

REMOVE_S = 20.0
"""So long the engine may take to end a container and forget it."""
MOST_PROCESSES = 16_384
"""Of the user whom a container's processes belong to, all of whose are counted; ``--pids-limit`` is the limit of one
container. Stated since engines' own default may be more than they may set."""

_VARIABLES = PurePosixPath("/run/skynet/variables")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_THE_CLIENT = (
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "HOME",
    "TMPDIR",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
"""What the client has of the gateway's variables: where its engine is, and what that keeps where."""
_INITS = ("/usr/libexec/podman/catatonit", "/usr/local/libexec/podman/catatonit", "/usr/bin/catatonit")
# As the first process of the container signals would pass it by, and nobody would clear away what ended: then the
# shell stays the first.
_SCRIPT = (
    ". {variables}; umask 077; {limits}"
    'if test -d "$1"; then cd -- "$1"; else printf "%s: no such directory\\n" "$1" >&2; exit 126; fi; shift; '
    'if test $$ = 1; then "$@"; exit $?; fi; exec "$@"'
)


class ContainerEngine:
    """See :class:`~skynet_terminal.sandbox.base.Sandbox`.

    Args:
        image: it needs ``/bin/sh``, and ``python3`` for profiles with hosts. It is never fetched.
        egress: opens the way to ``Profile.hosts``; without one no profile can have any.
        hidden: directories of the machine that commands never see, whatever is mounted: the gateway's own.
        environ: the gateway's environment, for the engine's client.
    """

    def __init__(
        self,
        name: EngineName,
        image: str,
        *,
        egress: Egress | None = None,
        hidden: Sequence[Path] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = name
        self._image = image
        self._egress = egress
        self._hidden = tuple(path.resolve() for path in hidden)
        self._env = {"PATH": PATH, "LANG": "C.UTF-8"} | {
            each: environ[each] for each in _OF_THE_CLIENT if each in environ
        }
        self._identity: Sequence[str] = ()

    async def prepare(
        self, profile: Profile, argv: Sequence[str], *, cwd: PurePosixPath = HOME_INSIDE, tty: bool = False
    ) -> ContainerLaunch:
        """As ``Sandbox.prepare``. With hosts it has a way out of its own for as long as the launch lives."""
        program = shutil.which(self.name, path=PATH)
        if program is None:
            raise SandboxUnavailable(f"{self.name} is not installed")
        door = await self._open(profile.hosts) if profile.hosts else None
        try:
            masked = await asyncio.to_thread(self._look, profile, program)
            variables = await asyncio.to_thread(_variables_file, _variables(profile, door))
        except OSError as exc:
            if door is not None:
                await door.close()
            raise SandboxUnavailable(f"a container cannot be made: {exc}") from exc
        except BaseException:
            if door is not None:
                await door.close()
            raise
        name = f"skynet-{secrets.token_hex(8)}"
        inner = [*door.argv_prefix(argv)] if door is not None else [*argv]
        script = _SCRIPT.format(variables=_VARIABLES, limits=_ulimits(profile.limits))
        mounts = [
            Mount(source=profile.folder, target=HOME_INSIDE, writable=True),
            *profile.mounts,
            *(door.mounts if door is not None else ()),
            Mount(source=variables, target=_VARIABLES),
        ]
        options = [*self._options(name, profile.limits, tty=tty)]
        for mount in mounts:
            options += ("--mount", _mount(mount))
        command = [program, "run", *options, *masked, self._image, "-c", script, "sh", str(cwd), *inner]
        return ContainerLaunch(command, self._env, program, name, variables, door)

    def _options(self, name: str, limits: Limits, *, tty: bool) -> Iterator[str]:
        yield from ("--rm", "--name", name, "--pull", "never", "--interactive")
        if tty:
            yield "--tty"
        yield from ("--network", "none", "--hostname", "skynet", "--log-driver", "none")
        yield from ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--pids-limit", str(limits.processes))
        yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
        yield from ("--ulimit", f"nofile={limits.open_files}:{limits.open_files}", "--ulimit", "core=0:0")
        yield from ("--ulimit", f"nproc={MOST_PROCESSES}:{MOST_PROCESSES}")
        yield from self._empty(f"/tmp:rw,exec,nosuid,nodev,mode=1777,size={limits.tmp_bytes}")  # noqa: S108
        yield from self._identity
        if self.name == "podman":
            yield from ("--read-only-tmpfs=false", "--http-proxy=false", "--security-opt", "label=disable")
        if self.name == "docker" or any(map(os.path.exists, _INITS)):
            yield "--init"
        yield from ("--workdir", "/", "--entrypoint", "/bin/sh")

    def _look(self, profile: Profile, program: str) -> list[str]:
        """What has to be found out before: whom files belong to, and what is in the mounts and must not be seen."""
        if not self._identity:
            self._identity = _identity(self.name, program, self._env)
        options: list[str] = []
        for mount in profile.mounts:
            for path in (*blocked_within(mount.source), *self._hidden):
                if path != mount.source and path.is_relative_to(mount.source) and path.exists():
                    target = mount.target / path.relative_to(mount.source)
                    if path.is_dir():
                        options += self._empty(f"{target}:ro,size=4096,mode=0555")
                    else:
                        options += ("--mount", _mount(Mount(source=Path("/dev/null"), target=target)))
        return options

    def _empty(self, directory: str) -> tuple[str, str]:
        """The options for a directory in memory; podman would copy into it what is there."""
        return ("--tmpfs", f"{directory},notmpcopyup" if self.name == "podman" else directory)

    async def _open(self, hosts: Sequence[str]) -> Door:
        if self._egress is None:
            raise SandboxUnavailable("commands cannot reach hosts here: there is no egress proxy")
        return _ImageDoor(await self._egress.open(hosts))


class ContainerLaunch:
    """See :class:`~skynet_terminal.sandbox.base.Launch`."""

    cwd = Path("/")
    pass_fds: Sequence[int] = ()
    overrun = ""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], program: str, name: str, variables: Path, door: Door | None
    ) -> None:
        self.argv = argv
        self.env = env
        self._program = program
        self._name = name
        self._variables = variables
        self._door = door
        self._client: int | None = None
        """A descriptor of it: numbers of processes are used again, descriptors are not."""
        self._pid: int | None = None
        self._killers: list[subprocess.Popen[bytes]] = []
        self._released = False

    def started(self, pid: int) -> None:
        self._pid = pid
        with suppress(OSError):  # it has ended and was waited for
            self._client = os.pidfd_open(pid)

    def kill(self) -> None:
        if self._pid is None or self._released:
            return
        if not self._killers:
            self._killers.append(self._engine("kill", "--signal", "KILL", self._name))
        if self._client is not None:
            with suppress(OSError):
                signal.pidfd_send_signal(self._client, signal.SIGKILL)

    async def release(self) -> None:
        if self._released:
            return
        self.kill()
        self._released = True
        try:
            if self._pid is not None:
                await asyncio.to_thread(self._remove)
        finally:
            if self._client is not None:
                os.close(self._client)
            self._variables.unlink(missing_ok=True)
            if self._door is not None:
                await self._door.close()

    def _remove(self) -> None:
        """Wait until the container is gone, at most ``REMOVE_S``."""
        now = ("--time", "0", "--ignore") if self._program.endswith("podman") else ()
        for process in (*self._killers, self._engine("rm", "--force", *now, self._name)):
            try:
                process.wait(REMOVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _engine(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603
            [self._program, *arguments],
            env=dict(self.env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


class _ImageDoor:
    """A door whose forwarder runs in the image's own Python."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.env = door.env
        self.mounts = [mount for mount in door.mounts if mount.target.is_relative_to(_VARIABLES.parent)]

    def argv_prefix(self, argv: Sequence[str]) -> Sequence[str]:
        return ("python3", *self._door.argv_prefix(argv)[1:])

    async def close(self) -> None:
        await self._door.close()


def _identity(name: EngineName, program: str, env: Mapping[str, str]) -> Sequence[str]:
    """The options with which files that commands make belong to the gateway's user, and commands are ``SANDBOX_UID``
    where the engine can map that."""
    user, group = os.geteuid(), os.getegid()
    if name == "podman":
        mine = f"{SANDBOX_UID}:{SANDBOX_UID}"
        if user != 0:
            return ("--user", mine, "--userns", f"keep-id:uid={SANDBOX_UID},gid={SANDBOX_UID}")
        # 65,536 ids of the machine's that nobody has, but for the one that is the gateway's own.
        others = (f"0:100000:{SANDBOX_UID}", f"{SANDBOX_UID + 1}:{100_001 + SANDBOX_UID}:{65_535 - SANDBOX_UID}")
        uids, gids = (f"{SANDBOX_UID}:{user}:1", *others), (f"{SANDBOX_UID}:{group}:1", *others)
        return ("--user", mine, *(f"--uidmap={each}" for each in uids), *(f"--gidmap={each}" for each in gids))
    with suppress(OSError, subprocess.SubprocessError):
        asked = [program, "info", "--format", "{{.SecurityOptions}}"]
        told = subprocess.run(asked, env=dict(env), capture_output=True, timeout=REMOVE_S, check=True)  # noqa: S603
        if b"rootless" in told.stdout:  # its root is whoever started it
            return ("--user", "0:0")
    return ("--user", f"{user}:{group}")


def _variables(profile: Profile, door: Door | None) -> Mapping[str, str]:
    variables = {
        "PATH": PATH,
        "HOME": str(HOME_INSIDE),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "USER": "skynet",
        "LOGNAME": "skynet",
        "SHELL": "/bin/sh",
    }
    return variables | (dict(door.env) if door is not None else {}) | dict(profile.env)


def _variables_file(variables: Mapping[str, str]) -> Path:
    """Lines for a shell, in a file. Not options: every user can read those, and the engine keeps them.

    Raises:
        ValueError: one cannot be a variable.
        OSError: it cannot be written.
    """
    for name, value in variables.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"{name!r} cannot be a variable of commands")
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    descriptor, path = tempfile.mkstemp(prefix="skynet-variables-")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return Path(path)


def _ulimits(limits: Limits) -> str:
    """Commands of a shell; what one cannot set is left out there and then."""
    return (
        f"ulimit -c 0; ulimit -t {limits.cpu_s} 2>/dev/null; ulimit -f {max(1, limits.file_bytes // 512)} 2>/dev/null; "
        f"ulimit -d {limits.memory_bytes // 1024} 2>/dev/null; "
    )


def _mount(mount: Mount) -> str:
    """The value of ``--mount``, which is a line of CSV."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields if mount.writable else [*fields, "readonly"])
    return line.getvalue()
