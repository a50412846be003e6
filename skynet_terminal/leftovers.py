"""Processes that outlived the gateway which started them, because it was killed: they are found and ended (BA-035).

In a sandbox there are none, since it dies with the gateway; without one a variable tells whose they are.
"""

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

JOB_VARIABLE: Final = "SKYNET_JOB"
"""Holds the id of the job that a process belongs to."""
_TRIES: Final = 50
_WAIT_S: Final = 0.02


def end_leftovers(jobs: Collection[str]) -> int:
    """Kill what belongs to these jobs, except this process; blocks until it is gone. Returns how many there were.

    Needs Linux's ``/proc``; elsewhere nothing is found.
    """
    marks = {f"{JOB_VARIABLE}={job}".encode() for job in jobs}
    ended: set[int] = set()
    for _ in range(_TRIES):
        found = [pid for pid in _processes() if _is_marked(pid, marks)]
        if not found:
            break
        ended.update(found)
        for pid in found:
            _kill(pid, marks)
        time.sleep(_WAIT_S)
    return len(ended)


def _processes() -> list[int]:
    try:
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except FileNotFoundError:
        return []
    return [pid for pid in pids if pid != os.getpid()]


def _is_marked(pid: int, marks: Collection[bytes]) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False
    return any(mark in variables for mark in marks)


def _kill(pid: int, marks: Collection[bytes]) -> None:
    """Numbers are used again, descriptors are not: what is killed is what was looked at."""
    with suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _is_marked(pid, marks):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
