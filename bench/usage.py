"""Processor time and memory of a process and its children, as the kernel counts them."""

import os
import time
from contextlib import suppress

import psutil

YOUNG_S = 3.0


def cpu_s(pid: int) -> float:
    """Return user and system time so far of ``pid``, of its living children, and of those it has waited for."""
    process = psutil.Process(pid)
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def own_cpu_s() -> float:
    """Return user and system time so far of this process."""
    times = os.times()
    return times.user + times.system


def others_cpu_s() -> float:
    """Return processor time so far of the whole machine, without this process and the children it has waited for."""
    machine, own = psutil.cpu_times(), os.times()
    busy: float = sum(machine) - machine.idle - machine.iowait - machine.guest - machine.guest_nice
    return busy - (own.user + own.system + own.children_user + own.children_system)


def rss_bytes(pid: int) -> int:
    """Return the resident memory of ``pid`` and its children together."""
    process = psutil.Process(pid)
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += child.memory_info().rss
    return int(total)


def settled_rss_bytes(pid: int, timeout_s: float = 10.0) -> int:
    """Wait until the process is at rest, and return its memory then.

    At rest: for half a second it used under 5 % of a processor and its memory moved by less than 0.2 MB, and it is
    ``YOUNG_S`` old, by when it has loaded what it puts off until after its start.
    """
    deadline = time.monotonic() + timeout_s
    time.sleep(max(0.0, psutil.Process(pid).create_time() + YOUNG_S - time.time()))
    rss, cpu, at = rss_bytes(pid), cpu_s(pid), time.monotonic()
    while True:
        time.sleep(0.5)
        rss_now, cpu_now, now = rss_bytes(pid), cpu_s(pid), time.monotonic()
        if (abs(rss_now - rss) < 200_000 and (cpu_now - cpu) / (now - at) < 0.05) or now > deadline:
            return rss_now
        rss, cpu, at = rss_now, cpu_now, now
