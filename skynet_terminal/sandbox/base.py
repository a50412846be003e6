"""What a sandbox is, whichever program it is made with.

A command sees the directory :data:`HOME_INSIDE`, its person's folder, the mounts of its profile and a read-only
system. It has no network but what ``Profile.hosts`` names, an environment of its own, and limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

HOME_INSIDE = PurePosixPath("/files")
"""The person's folder as commands see it: home and first working directory."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SANDBOX_UID = 1000
"""Who commands are in the sandbox (BA-101)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A directory or file of the machine that commands see as well."""

    source: Path
    target: PurePosixPath
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one command has, with all that it starts. None is without a limit."""

    cpu_s: int = 600
    """Processor time of each of its processes."""
    memory_bytes: int = 2 * 1024**3
    """Data of each process, and resident memory of all of them."""
    processes: int = 256
    """Processes and threads."""
    file_bytes: int = 1024**3
    """The largest file it writes."""
    disk_bytes: int = 4 * 1024**3
    """What it may add to the disk that the person's folder is on."""
    tmp_bytes: int = 512 * 1024**2
    """Its private ``/tmp``, which is in memory."""
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one person's commands get."""

    folder: Path
    """The person's folder on the machine, writable as :data:`HOME_INSIDE`. It exists."""
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beyond those that every command has (``PATH``, ``HOME``, ``LANG``, ``TERM``, ``USER``, ``SHELL``)."""
    hosts: tuple[str, ...] = ()
    """Hosts that can be reached through the egress proxy: names, ``*.name`` for those below it, ``*`` for all that are
    public. Empty: no network."""
    limits: Limits = Limits()


class Launch(Protocol):
    """A command that is about to be started: what to start for it, and what hangs on its life.

    Whoever starts it calls ``started`` with the process id or nothing, and ``release`` at the end, whatever happened::

        launch = await sandbox.prepare(profile, ["sh", "-c", line])
        try:
            process = start(launch.argv, launch.env, launch.cwd, launch.pass_fds)
            launch.started(process.pid)
            ...
        finally:
            await launch.release()
    """

    @property
    def argv(self) -> Sequence[str]:
        """What to execute on the machine. The first word is an absolute path."""

    @property
    def env(self) -> Mapping[str, str]:
        """The whole environment of it."""

    @property
    def cwd(self) -> Path:
        """A directory of the machine."""

    @property
    def pass_fds(self) -> Sequence[int]:
        """Descriptors that it inherits under the same numbers. They stay the launch's to close."""

    @property
    def overrun(self) -> str:
        """Which limit all of it was ended for (``more than 256 processes``); "" for none."""

    def started(self, pid: int) -> None:
        """It was started as ``pid``, which leads a process group: its limits are watched from now on."""

    def kill(self) -> None:
        """End all of it at once (SIGKILL). Safe at any time before ``release``, and more than once."""

    async def release(self) -> None:
        """It has ended, or was never started: give back what it had. Kills what is left. Idempotent."""


class Sandbox(Protocol):
    """What confines commands. One for the whole gateway."""

    @property
    def name(self) -> str:
        """``bubblewrap``, ``podman``, ``docker`` or ``none``."""

    async def prepare(
        self, profile: Profile, argv: Sequence[str], *, cwd: PurePosixPath = HOME_INSIDE, tty: bool = False
    ) -> Launch:
        """
        Args:
            argv: as the command sees it; the program is looked for in :data:`PATH`.
            cwd: as the command sees it, absolute.
            tty: its three descriptors will be a terminal that it controls.

        Raises:
            SandboxUnavailable: it cannot be made now.
        """
