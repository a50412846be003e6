"""No sandbox: commands run as the gateway's own user. For admins who want that, and for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from skynet_terminal.sandbox.base import HOME_INSIDE, PATH, Profile

# The shell sets the limits, since code between fork and exec is not safe in a process with threads (preexec_fn).
_LIMITED = (
    "umask 077; ulimit -c 0; ulimit -n {open_files} 2>/dev/null; ulimit -t {cpu_s} 2>/dev/null; "
    'ulimit -f {file_blocks} 2>/dev/null; cd -- "$1" || exit 126; shift; exec "$@"'
)


class Unconfined:
    """The sandbox that is none. :data:`HOME_INSIDE` is the person's folder under its real name."""

    name = "none"

    async def prepare(
        self, profile: Profile, argv: Sequence[str], *, cwd: PurePosixPath = HOME_INSIDE, tty: bool = False
    ) -> UnconfinedLaunch:
        """As ``Sandbox.prepare``; outside of :data:`HOME_INSIDE` a ``cwd`` is the machine's."""
        directory = profile.folder / cwd.relative_to(HOME_INSIDE) if cwd.is_relative_to(HOME_INSIDE) else Path(cwd)
        limits = profile.limits
        script = _LIMITED.format(
            open_files=limits.open_files, cpu_s=limits.cpu_s, file_blocks=max(1, limits.file_bytes // 512)
        )
        env = {
            "PATH": PATH,
            "HOME": str(profile.folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "USER": "skynet",
            "SHELL": "/bin/bash",
        }
        return UnconfinedLaunch(
            ["/bin/sh", "-c", script, "sh", str(directory), *argv], env | dict(profile.env), profile.folder
        )


class UnconfinedLaunch:
    """See :class:`~skynet_terminal.sandbox.base.Launch`."""

    pass_fds: Sequence[int] = ()
    overrun = ""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self._group: int | None = None

    def started(self, pid: int) -> None:
        self._group = pid

    def kill(self) -> None:
        if self._group is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)

    async def release(self) -> None:
        self._group = None  # the number may be another's by now: whoever waited for it has killed the rest
