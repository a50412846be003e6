"""Everybody's terminals: whose they are, how many, and when they go."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from skynet_terminal.errors import StartFailed, TooMany, UnknownTerminal
from skynet_terminal.terminals import MOST_ENDED
from tests.support.polling import until
from tests.support.terminals import Place, Watcher, all_of, place


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Counted:
    """A launch that says what became of it."""

    pass_fds: Sequence[int] = ()
    overrun = ""

    def __init__(self, argv: Sequence[str], cwd: Path, *, slow: bool = False) -> None:
        self.argv = argv
        self.env: Mapping[str, str] = {"PATH": "/usr/bin:/bin"}
        self.cwd = cwd
        self.pids: list[int] = []
        self.released = 0
        self._slow = slow

    def started(self, pid: int) -> None:
        self.pids.append(pid)

    def kill(self) -> None:
        pass

    async def release(self) -> None:
        if self._slow:
            await asyncio.sleep(0.05)
        self.released += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def there(tmp_path: Path, clock: Clock) -> AsyncIterator[Place]:
    async with place(tmp_path / "files", most=3, idle_s=100, ended_s=50, now_s=clock) as there:
        yield there


async def test_they_are_their_persons_alone(there: Place) -> None:
    mine = await there.open(["cat"], shell="cat", title="My cat", cols=80, rows=24)
    theirs = await there.open(["cat"], owner="bert")
    assert there.terminals.get("anna", mine.id) is mine
    assert there.terminals.list("anna") == [mine]
    assert there.terminals.list("bert") == [theirs]
    for owner, terminal in (("bert", mine), ("anna", theirs), ("", mine)):
        with pytest.raises(UnknownTerminal, match=f"no terminal '{terminal.id}'"):
            there.terminals.get(owner, terminal.id)
    with pytest.raises(UnknownTerminal):
        there.terminals.get("anna", "none")
    assert (mine.shell, mine.title, mine.cols, mine.rows, mine.owner) == ("cat", "My cat", 80, 24, "anna")


async def test_nobody_has_too_many(there: Place) -> None:
    terminals = [await there.open(["cat"]) for _ in range(3)]
    with pytest.raises(TooMany, match="3 terminals are open"):
        await there.open(["cat"])
    await there.open(["cat"], owner="bert")
    await terminals[0].close(0)
    there.terminals.check_room("anna")
    await there.open(["cat"])
    with pytest.raises(TooMany):
        there.terminals.check_room("anna")


@pytest.mark.parametrize("size", [{"cols": 0}, {"rows": 1001}, {"cols": -1}])
async def test_no_size_of_a_terminal(there: Place, size: dict[str, int]) -> None:
    launch = Counted(["/bin/true"], there.profile.folder)
    with pytest.raises(ValueError, match=f"{next(iter(size))} is {next(iter(size.values()))}, allowed are 1 to 1000"):
        await there.terminals.create("anna", launch, **size)
    assert (launch.pids, launch.released) == ([], 1)
    assert there.terminals.list("anna") == []


async def test_what_cannot_be_started_is_released(there: Place) -> None:
    before = psutil.Process().num_fds()
    launch = Counted(["/bin/true"], there.profile.folder / "missing")
    with pytest.raises(StartFailed, match="missing"):
        await there.terminals.create("anna", launch)
    assert (launch.pids, launch.released) == ([], 1)
    nul = Counted(["/bin/echo", "a\0b"], there.profile.folder)
    with pytest.raises(StartFailed):
        await there.terminals.create("anna", nul)
    assert nul.released == 1
    assert psutil.Process().num_fds() == before


async def test_a_program_that_is_missing_says_so(there: Place) -> None:
    terminal = await there.terminals.create("anna", Counted(["/bin/missing"], there.profile.folder))
    assert "not found" in await all_of(terminal)
    assert terminal.exit_code == 127


async def test_its_launch_is_released_at_its_end(there: Place) -> None:
    launch = Counted(["/bin/cat"], there.profile.folder)
    terminal = await there.terminals.create("anna", launch)
    assert (launch.pids, launch.released) == ([terminal.pid], 0)
    terminal.kill()
    await until(lambda: launch.released)
    assert launch.released == 1


async def test_release_survives_who_waits_for_it(there: Place) -> None:
    launch = Counted(["/bin/cat"], there.profile.folder, slow=True)
    creating = asyncio.create_task(there.terminals.create("anna", launch, cols=0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    creating.cancel()
    with pytest.raises((asyncio.CancelledError, ValueError)):
        await creating
    await until(lambda: launch.released == 1)


@pytest.mark.parametrize("steps", range(6))
async def test_an_end_that_is_cancelled_is_one(there: Place, steps: int) -> None:
    """Whoever waits for it or not: nothing is left of the program."""
    terminal = await there.open(["sh", "-c", "trap '' HUP TERM; echo up; while :; do sleep 1; done"])
    await until(lambda: terminal.ring.end)
    closing = asyncio.create_task(there.terminals.close_person("anna"))
    for _ in range(steps):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    if steps:
        await until(lambda: not psutil.pid_exists(terminal.pid))
        assert there.terminals.list("anna") == []
    else:
        assert terminal.running


async def test_nobody_uses_it(there: Place, clock: Clock) -> None:
    idle, seen, read, typed = [await there.open(["cat"], owner=name) for name in ("a", "b", "c", "d")]
    watcher = Watcher(seen.attach())
    clock.now += 99
    await read.read(0)
    typed.write(b"x")
    await there.terminals.expire()
    assert idle.running
    clock.now += 2
    await there.terminals.expire()
    assert not idle.running
    assert idle.signal == "SIGHUP"
    assert seen.running
    assert read.running
    assert typed.running
    await watcher.close()
    clock.now += 99
    await there.terminals.expire()
    assert seen.running  # somebody looked until just before
    clock.now += 2
    await there.terminals.expire()
    assert not (seen.running or read.running or typed.running)


async def test_output_is_use(there: Place, clock: Clock) -> None:
    terminal = await there.open(["sh", "-c", "until test -e go; do sleep 0.05; done; echo got; exec cat"])
    clock.now += 80
    (there.profile.folder / "go").touch()
    await until(lambda: terminal.ring.end)
    clock.now += 80
    await there.terminals.expire()
    assert terminal.running


async def test_one_that_has_ended_stays_for_a_while(there: Place, clock: Clock) -> None:
    terminal = await there.open(["sh", "-c", "echo last words; exit 7"])
    await terminal.ended.wait()
    assert there.terminals.list("anna") == [terminal]
    assert (await there.terminals.get("anna", terminal.id).read(0)).text == "last words\r\n"
    assert terminal.exit_code == 7
    clock.now += 49
    await there.terminals.expire()
    assert there.terminals.list("anna") == [terminal]
    clock.now += 2
    await there.terminals.expire()
    assert there.terminals.list("anna") == []


async def test_not_many_of_them_stay(there: Place) -> None:
    opened = []
    for _ in range(MOST_ENDED + 3):
        terminal = await there.open(["true"])
        opened.append(terminal)
        await terminal.ended.wait()
    await until(lambda: len(there.terminals.list("anna")) == MOST_ENDED)
    assert there.terminals.list("anna") == opened[3:]


async def test_somebody_may_have_none_any_more(there: Place) -> None:
    mine = [await there.open(["cat"]) for _ in range(2)]
    theirs = await there.open(["cat"], owner="bert")
    watcher = Watcher(mine[0].attach())
    await there.terminals.close_person("anna")
    await until(lambda: watcher.ended)
    assert there.terminals.list("anna") == []
    assert not any(terminal.running for terminal in mine)
    assert theirs.running
    assert not any(psutil.pid_exists(terminal.pid) for terminal in mine)


async def test_leaving_ends_all(tmp_path: Path) -> None:
    async with place(tmp_path / "files") as there:
        terminals = [await there.open(["sleep", "100"], owner=name) for name in "abc"]
        launch = Counted(["/bin/cat"], tmp_path)
        await there.terminals.create("a", launch)
    assert not any(psutil.pid_exists(terminal.pid) for terminal in terminals)
    assert launch.released == 1
    late = Counted(["/bin/cat"], tmp_path)
    with pytest.raises(RuntimeError, match="shutting down"):
        await there.terminals.create("a", late)
    assert (late.pids, late.released) == ([], 1)
