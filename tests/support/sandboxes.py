"""The sandboxes that whatever runs commands is tried with."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath

import psutil
import pytest

from skynet_terminal.sandbox import HOME_INSIDE, Launch, Limits, Profile, Sandbox
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.unconfined import Unconfined
from tests.support.programs import needs

SANDBOXES = [pytest.param("none", id="none"), pytest.param("bubblewrap", id="bubblewrap", marks=needs("bwrap"))]
"""For a parametrised fixture that calls ``sandbox``."""

MakeLaunch = Callable[[Sequence[str]], Awaitable[Launch]]


def sandbox(name: str, directory: Path) -> Sandbox:
    """One that works in ``directory``, which is empty or absent."""
    directory.mkdir(exist_ok=True)
    return Bubblewrap(directory / "system") if name == "bubblewrap" else Unconfined()


def launcher(
    sandbox: Sandbox, folder: Path, *, cwd: PurePosixPath = HOME_INSIDE, limits: Limits | None = None
) -> MakeLaunch:
    """What prepares commands of a person whose folder that is."""
    folder.mkdir(exist_ok=True)
    profile = Profile(folder=folder, limits=limits or Limits())

    async def make(argv: Sequence[str]) -> Launch:
        return await sandbox.prepare(profile, argv, cwd=cwd)

    return make


def left_open() -> tuple[int, int, int]:
    """Descriptors, threads and children of this process."""
    return psutil.Process().num_fds(), threading.active_count(), len(psutil.Process().children())


def running_with(word: str) -> list[int]:
    """Processes of the machine that have ``word`` in their command line, zombies not."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            pass
    return found
