"""Who watches what the limits of the kernel do not bind: how much all processes of one command take together.

``RLIMIT_NPROC`` does not bind at all when the gateway runs as root, whom the kernel excepts; memory is limited for each
process, and what is written to a disk not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from skynet_terminal.sandbox.base import Limits
from skynet_terminal.sandbox.disk import added
from skynet_terminal.sandbox.process_tree import Process, all_pids, children_of, proportional_bytes, read_process, trees

log = logging.getLogger(__name__)

INTERVAL_S = 0.05
"""How often the machine's counts are looked at, which takes 0.1 ms."""
FULL_INTERVAL_S = 1.0
"""How often all processes are, if those counts say nothing new."""
DISK_RESERVE_BYTES = 256 * 1024**2
MEMORY_RESERVE_BYTES = 192 * 1024**2
MOST_FILES = 500_000
"""So many new ones are too many: disks have room for a number of files, however small they are."""
BYTES_A_FILE = 4096
"""Of a directory in memory: more files than one for each of these bytes take more memory than it may have."""

_MORE_THREADS = 32
_LESS_MEMORY_BYTES = 64 * 1024**2
_PROCESSES_A_STEP = 100
_MEGABYTE = 1024**2


class TaskOwner(Protocol):
    """Who owns tasks that outlive the call which starts them."""

    def start(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


class Watchable(Protocol):
    """What was launched."""

    def end(self, overrun: str) -> None:
        """Kill it, for ``overrun``."""


@dataclass(slots=True)
class _Watched:
    launch: Watchable
    pid: int
    folder: Path
    limits: Limits
    device: int
    since_ns: int
    free_bytes: int
    """Of the folder's disk when it was started, or when it was last found not to be the one who fills it."""
    processes: list[Process] = field(default_factory=list)
    memory_bytes: int = 0
    free_files: int = 0
    ended: bool = False

    def end(self, overrun: str) -> None:
        if not self.ended:
            self.ended = True
            log.warning("command %d ended: %s", self.pid, overrun)
            self.launch.end(overrun)


@dataclass(slots=True)
class _Counts:
    threads: int
    available_bytes: int


class Warden:
    """Watches the commands that run. It works only while there are any, in one task for all."""

    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks
        self._watched: dict[Watchable, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, launch: Watchable, pid: int, folder: Path, limits: Limits) -> None:
        """Watch ``pid`` and all below it, until ``forget``. Only with the sandbox's first process below it are they
        all of what was launched."""
        free, free_files, device = 0, 0, -1
        with suppress(OSError):
            device = folder.stat().st_dev
            free, free_files = _free(folder)
        # The time of files is that of the last tick of the clock, which may be some milliseconds ago.
        since_ns = time.time_ns() - 20_000_000
        self._watched[launch] = _Watched(launch, pid, folder, limits, device, since_ns, free, free_files=free_files)
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._run(), name="sandbox-warden")

    def forget(self, launch: Watchable) -> None:
        """It has ended."""
        if (watched := self._watched.pop(launch, None)) is not None:
            watched.ended = True

    async def _run(self) -> None:
        last = _Counts(0, 0)
        looked_at = 0.0
        while self._watched:
            counts = _counts()
            now = time.monotonic()
            if counts.threads - last.threads >= _MORE_THREADS:
                # They may double every few milliseconds, and take the time that a look at all of them needs.
                for each in tuple(self._watched.values()):
                    _check_number(each)
            if (
                now - looked_at >= FULL_INTERVAL_S
                or counts.threads - last.threads >= _MORE_THREADS
                or last.available_bytes - counts.available_bytes >= _LESS_MEMORY_BYTES
            ):
                try:
                    await self._look(counts)
                except Exception:  # whatever it is, the next look must come
                    log.exception("commands could not be watched")
                last, looked_at = counts, time.monotonic()
            else:
                last.threads = min(last.threads, counts.threads)
                last.available_bytes = max(last.available_bytes, counts.available_bytes)
            await asyncio.sleep(INTERVAL_S)

    async def _look(self, counts: _Counts) -> None:
        processes = []
        for index, pid in enumerate(all_pids()):
            if index % _PROCESSES_A_STEP == _PROCESSES_A_STEP - 1:
                await asyncio.sleep(0)
            if (process := read_process(pid)) is not None:
                processes.append(process)
        watched = [each for each in self._watched.values() if not each.ended]
        found = trees([each.pid for each in watched], processes)
        for each in watched:
            each.processes = found[each.pid]
            each.memory_bytes = sum(process.resident_bytes for process in each.processes)
            _check_processes(each)
            await _check_memory(each)
            _check_directories_in_memory(each)
        if counts.available_bytes < MEMORY_RESERVE_BYTES:
            _end_the_largest(watched)
        await self._check_disks(watched)

    async def _check_disks(self, watched: list[_Watched]) -> None:
        free: dict[int, tuple[int, int]] = {}
        for each in watched:
            if each.device not in free:
                with suppress(OSError):
                    free[each.device] = _free(each.folder)
            now = free.get(each.device)
            if now is None or each.ended:
                continue
            now_bytes, now_files = now
            fell = each.free_bytes - now_bytes
            short = now_bytes < DISK_RESERVE_BYTES and fell > 0
            if fell >= each.limits.disk_bytes or short or each.free_files - now_files >= MOST_FILES:
                await _check_disk(each, short=short)
                each.free_bytes, each.free_files = now


def _check_number(watched: _Watched) -> None:
    """Of processes, without a look at any of them: in their namespace they are all that there is."""
    most = watched.limits.processes
    for child in children_of(watched.pid):
        with suppress(OSError):
            root = f"/proc/{child}/root"
            if os.path.samefile(root, "/"):  # noqa: PTH121 - it has no namespace, or is about to get one
                continue
            names = os.listdir(f"{root}/proc")  # noqa: PTH208
            if sum(name.isdecimal() for name in names) - 1 > most:
                watched.end(f"more than {most} processes")


def _check_processes(watched: _Watched) -> None:
    # Without bubblewrap itself and the first process in there, which are not the command's.
    count = sum(process.threads for process in watched.processes) - 2
    if count > watched.limits.processes:
        watched.end(f"more than {watched.limits.processes} processes")


async def _check_memory(watched: _Watched) -> None:
    most = watched.limits.memory_bytes
    if watched.ended or watched.memory_bytes <= most:
        return
    # Pages that are shared were counted for each of those who share them.
    total = 0
    for process in watched.processes:
        total += proportional_bytes(process)
        await asyncio.sleep(0)
    if total > most:
        watched.end(f"more than {most // _MEGABYTE} MB of memory")


def _check_directories_in_memory(watched: _Watched) -> None:
    """Their size is limited by the kernel, the number of files in them is not. It counts when the machine's memory
    runs low."""
    if watched.ended:
        return
    most = watched.limits.tmp_bytes // BYTES_A_FILE
    for process in watched.processes:
        if process.parent == watched.pid:
            root = f"/proc/{process.pid}/root"
            for directory in ("tmp", "dev/shm"):
                with suppress(OSError):
                    about = os.statvfs(f"{root}/{directory}")
                    # Before the sandbox is made, and in others, it is the machine's own.
                    size = about.f_blocks * about.f_frsize
                    is_own = size <= watched.limits.tmp_bytes + about.f_frsize and not os.path.samefile(root, "/")  # noqa: PTH121
                    if is_own:
                        watched.memory_bytes += (about.f_blocks - about.f_bfree) * about.f_frsize
                        if about.f_files - about.f_ffree > most:
                            watched.end(f"more than {most} files in /{directory}")


def _end_the_largest(watched: list[_Watched]) -> None:
    running = [each for each in watched if not each.ended]
    if running:
        max(running, key=lambda each: each.memory_bytes).end("the machine is out of memory")


async def _check_disk(watched: _Watched, *, short: bool) -> None:
    most = min(watched.limits.disk_bytes, DISK_RESERVE_BYTES // 2) if short else watched.limits.disk_bytes
    pids = [process.pid for process in watched.processes]
    with suppress(OSError):
        for found in added(str(watched.folder), watched.since_ns, pids, most):
            if found.files >= MOST_FILES // 2 and found.bytes < most:
                watched.end(f"more than {MOST_FILES} files written")
                return
            if found.bytes >= most or found.too_deep:
                words = "the disk is nearly full" if short else f"more than {most // _MEGABYTE} MB written"
                watched.end(words)
                return
            await asyncio.sleep(0)


def _free(folder: Path) -> tuple[int, int]:
    """Bytes, and how many files."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize, about.f_favail


def _counts() -> _Counts:
    """Of the whole machine. Where they cannot be read nothing is ever new, and all is looked at in its time."""
    threads, available = 0, 1 << 62
    with suppress(OSError, ValueError, IndexError):
        threads = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
                break
    return _Counts(threads, available)
