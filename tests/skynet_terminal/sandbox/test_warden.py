"""The warden, watching processes without a sandbox: it counts what they take together, and only while there are any."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from skynet_terminal.sandbox import Limits
from skynet_terminal.sandbox.disk import added
from skynet_terminal.sandbox.process_tree import Process, all_pids, children_of, read_process, trees
from skynet_terminal.sandbox.warden import Warden
from tests.skynet_terminal.sandbox.running import Tasks
from tests.support.polling import until

MB = 1024 * 1024


class Watched:
    def __init__(self) -> None:
        self.overrun = ""

    def end(self, overrun: str) -> None:
        self.overrun = overrun


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks() as tasks:
        yield tasks


@pytest.fixture
def warden(tasks: Tasks) -> Warden:
    return Warden(tasks)


class Programs:
    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str, cwd: Path) -> int:
        self._started.append(subprocess.Popen(argv, cwd=cwd, start_new_session=True))
        return self._started[-1].pid

    def end(self) -> None:
        for process in self._started:
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                each.kill()
            process.wait()


@pytest.fixture
def programs() -> Iterator[Programs]:
    programs = Programs()
    yield programs
    programs.end()


async def test_it_works_only_while_there_is_something_to_watch(
    warden: Warden, tasks: Tasks, programs: Programs, tmp_path: Path
) -> None:
    watched = [Watched(), Watched()]
    assert len(tasks) == 0
    for each in watched:
        warden.watch(each, programs.start("sleep", "1000", cwd=tmp_path), tmp_path, Limits())
    assert (len(tasks), len(warden)) == (1, 2)
    for each in watched:
        warden.forget(each)
        warden.forget(each)
    await until(lambda: len(tasks) == 0)
    warden.watch(watched[0], programs.start("sleep", "1000", cwd=tmp_path), tmp_path, Limits())
    assert len(tasks) == 1
    assert [each.overrun for each in watched] == ["", ""]


async def test_only_the_one_that_takes_too_much_is_ended(warden: Warden, programs: Programs, tmp_path: Path) -> None:
    modest, greedy = Watched(), Watched()
    many = "for each in 1 2 3 4 5 6 7 8 9; do (sleep 1000; true) & done; wait"
    warden.watch(modest, programs.start("sh", "-c", many, cwd=tmp_path), tmp_path, Limits(processes=100))
    warden.watch(greedy, programs.start("sh", "-c", many, cwd=tmp_path), tmp_path, Limits(processes=8))
    await until(lambda: greedy.overrun)
    assert (greedy.overrun, modest.overrun) == ("more than 8 processes", "")


async def test_memory_that_is_shared_counts_once(warden: Warden, programs: Programs, tmp_path: Path) -> None:
    """BA-041: five that share 100 MB have 100 MB, though each has them."""
    script = (
        "import mmap, os, sys, time\n"
        "memory = mmap.mmap(-1, 100 * 2**20)\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0: break\n"
        "for page in range(0, len(memory), 4096): memory[page] = 1\n"
        "open(str(os.getpid()), 'w').close()\n"
        "time.sleep(1000)\n"
    )
    sharing, taking = Watched(), Watched()
    pid = programs.start("/usr/bin/env", "python3", "-c", script, cwd=tmp_path)
    warden.watch(sharing, pid, tmp_path, Limits(memory_bytes=300 * MB))
    await until(lambda: len(list(tmp_path.iterdir())) == 5)
    warden.watch(taking, pid, tmp_path, Limits(memory_bytes=50 * MB))
    await until(lambda: taking.overrun)
    assert (taking.overrun, sharing.overrun) == ("more than 50 MB of memory", "")


async def test_two_hundred_that_do_nothing_cost_little(warden: Warden, programs: Programs, tmp_path: Path) -> None:
    """As many terminals as a household may have open."""
    for _ in range(200):
        warden.watch(Watched(), programs.start("sleep", "1000", cwd=tmp_path), tmp_path, Limits())
    await asyncio.sleep(0.2)
    before, began = time.process_time(), time.monotonic()
    await asyncio.sleep(2)
    share = (time.process_time() - before) / (time.monotonic() - began)
    assert share < 0.25  # it is some 0.02 on a machine with nothing else to do


# Processes


def test_a_process() -> None:
    mine = read_process(os.getpid())
    assert mine is not None
    assert (mine.pid, mine.parent) == (os.getpid(), os.getppid())
    assert mine.resident_bytes > MB
    assert os.getpid() in all_pids()
    assert read_process(2**22 + 1) is None


def test_a_name_cannot_be_taken_for_the_fields_after_it(programs: Programs, tmp_path: Path) -> None:
    odd = tmp_path / ") S 1 1 ("
    odd.symlink_to("/bin/sleep")
    pid = programs.start(str(odd), "1000", cwd=tmp_path)
    process = read_process(pid)
    assert process is not None
    assert process.parent == os.getpid()
    assert pid in children_of(os.getpid())


def test_a_process_whose_first_thread_has_ended_still_counts(programs: Programs, tmp_path: Path) -> None:
    """It looks like one that has ended, memory and all."""
    script = (
        "import ctypes, threading, time\n"
        "def run():\n"
        "    data = bytearray(50 * 2**20)\n"
        "    open('ready', 'w').close()\n"
        "    time.sleep(1000)\n"
        "threading.Thread(target=run).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    pid = programs.start("/usr/bin/env", "python3", "-c", script, cwd=tmp_path)
    deadline = time.monotonic() + 40
    while not (tmp_path / "ready").exists() or psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process = read_process(pid)
    assert process is not None
    assert process.threads == 2
    assert process.resident_bytes > 50 * MB


def test_trees() -> None:
    def process(pid: int, parent: int) -> Process:
        return Process(pid, parent, 1, 0)

    known = [process(1, 0), process(2, 1), process(3, 2), process(4, 3), process(5, 1), process(7, 8), process(8, 7)]
    found = trees([2, 5, 9], known)
    assert {root: [each.pid for each in below] for root, below in found.items()} == {2: [2, 3, 4], 5: [5], 9: []}


# Disks


def bytes_added(folder: Path, since_ns: int, *, pids: tuple[int, ...] = ()) -> int:
    *_, last = added(str(folder), since_ns, pids, 1 << 60)
    assert not last.too_deep
    return last.bytes


def test_what_was_there_before_was_not_added(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * MB)
    since_ns = (tmp_path / "old").stat().st_ctime_ns + 1
    assert bytes_added(tmp_path, since_ns) == 0


def test_what_was_added(tmp_path: Path) -> None:
    """Links to other files do not count, names of the same one count once, holes not at all, open files do."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "new").write_bytes(os.urandom(MB))
    (tmp_path / "again").hardlink_to(tmp_path / "a" / "b" / "new")
    (tmp_path / "link").symlink_to("/usr")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MB)
    assert MB <= bytes_added(tmp_path, 0) < 2 * MB
    with (tmp_path / "deleted").open("wb") as file:
        file.write(os.urandom(4 * MB))
        (tmp_path / "deleted").unlink()
        assert 5 * MB <= bytes_added(tmp_path, 0, pids=(os.getpid(),)) < 6 * MB


def test_nothing_can_be_hidden_by_depth(tmp_path: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(400):
            Path("deeper").mkdir()
            os.chdir("deeper")
    finally:
        os.chdir(here)
    assert list(added(str(tmp_path), 0, (), 1 << 60))[-1].too_deep
