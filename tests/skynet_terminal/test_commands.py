"""One-shot commands: what they wrote, how they ended, and that nothing is left of them."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from skynet_memory.ids import new_id
from skynet_terminal.commands import LIVE_BYTES, LIVE_S, CommandResult, how_ended, run_command
from skynet_terminal.errors import StartFailed
from skynet_terminal.sandbox import Sandbox
from skynet_terminal.sandbox.unconfined import UnconfinedLaunch
from tests.support.polling import until
from tests.support.sandboxes import SANDBOXES, launcher, left_open, running_with, sandbox

Run = Callable[[Coroutine[Any, Any, Any]], Any]
MB = 1024**2


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on a loop. In the end nothing is left open there, and no child."""

    async def counted() -> tuple[int, int, int]:
        await asyncio.to_thread(time.time)  # a thread of the loop's own stays
        return left_open()

    with asyncio.Runner(loop_factory=request.param, debug=True) as runner:
        before = runner.run(counted())
        yield runner.run
        runner.run(until(lambda: left_open() == before))


@pytest.fixture(params=SANDBOXES)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return sandbox(request.param, tmp_path / "sandbox")


class Commands:
    """Runs commands of a person."""

    def __init__(self, box: Sandbox, folder: Path) -> None:
        self.prepare = launcher(box, folder)
        self.folder = folder
        self.is_confined = box.name != "none"

    async def __call__(self, script: str, timeout_s: float = 40, **more: Any) -> CommandResult:
        return await run_command(await self.prepare(["bash", "-c", script]), timeout_s=timeout_s, **more)


@pytest.fixture
def command(box: Sandbox, tmp_path: Path) -> Commands:
    return Commands(box, tmp_path / "files")


def test_outputs_and_the_exit_code(run: Run, command: Commands) -> None:
    """SP-067 and BA-027: in the sandbox; exit code and both outputs are told."""
    result = run(command("echo out; sleep 0.1; echo err >&2; sleep 0.1; echo more; exit 3"))
    assert (result.stdout.data, result.stderr.data, result.exit_code) == (b"out\nmore\n", b"err\n", 3)
    assert result.output.data == b"out\nerr\nmore\n"
    assert (result.signal, result.timed_out, result.overrun) == ("", False, "")
    assert (result.omitted_stdout, result.omitted_stderr) == (0, 0)
    assert 200 <= result.duration_ms < 40_000


def test_hi(run: Run, command: Commands) -> None:
    """SK-094."""
    assert run(command("echo hi")).output.text() == "hi\n"


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM", "USR1"])
def test_a_signal_is_told_whoever_reports_it(run: Run, command: Commands, name: str) -> None:
    result = run(command(f"kill -{name} $$; sleep 30"))
    assert (result.exit_code, result.signal, result.timed_out) == (None, f"SIG{name}", False)


@pytest.mark.parametrize(
    ("returncode", "told"),
    [
        *((0, (0, "")), (1, (1, "")), (128, (128, "")), (129, (129, "")), (255, (255, "")), (-9, (None, "SIGKILL"))),
        *((-1, (None, "SIGHUP")), (137, (None, "SIGKILL")), (130, (None, "SIGINT")), (-40, (None, "signal 40"))),
        *((168, (168, "")), (192, (None, "SIGRTMAX")), (193, (193, ""))),
    ],
)
def test_how_ended(returncode: int, told: tuple[int | None, str]) -> None:
    assert how_ended(returncode) == told


def test_the_time_limit_ends_it_with_its_children(run: Run, command: Commands) -> None:
    """SK-175: also those that hear no signal; what was written until then is kept (BA-026)."""
    word = new_id()
    script = (
        f"trap '' TERM INT HUP; echo begun; for n in 1 2; do (exec -a {word} sleep 60) & done; exec -a {word} sleep 60"
    )
    result = run(command(script, 1))
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, "SIGKILL")
    assert result.stdout.data == b"begun\n"
    assert 1000 <= result.duration_ms < 30_000
    run(until(lambda: not running_with(word)))


def test_cancelling_ends_it_with_its_children(run: Run, command: Commands) -> None:
    """SK-175."""
    word = new_id()

    async def main() -> None:
        task = asyncio.create_task(command(f"trap '' TERM INT; (exec -a {word} sleep 60) & exec -a {word} sleep 60"))
        await until(lambda: len(running_with(word)) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not running_with(word))

    run(main())


@pytest.mark.parametrize("steps", range(0, 12, 2))
def test_cancelling_at_any_step(run: Run, command: Commands, steps: int) -> None:
    async def main() -> None:
        word = new_id()
        launch = await command.prepare(["bash", "-c", f"exec -a {word} sleep 60"])
        task = asyncio.create_task(run_command(launch, timeout_s=40))
        await asyncio.sleep(0)  # a task that never began cannot give back what it was given
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not running_with(word))

    run(main())


def test_one_that_closes_its_outputs_lives_on(run: Run, command: Commands) -> None:
    result = run(command("echo out; exec 1>&- 2>&-; sleep 0.5; exit 4"))
    assert (result.stdout.data, result.exit_code) == (b"out\n", 4)
    assert result.duration_ms >= 500


def test_one_that_closes_its_outputs_has_its_time_limit(run: Run, command: Commands) -> None:
    """SK-175."""
    assert run(command("exec 1>&- 2>&-; sleep 60", 1)).timed_out


def test_a_daemon_ends_with_its_command(run: Run, command: Commands) -> None:
    """In a sandbox also one that has left the process group. Nobody waits for it."""
    word = new_id()
    script = f"setsid bash -c 'echo $$ >pid; exec -a {word} sleep 60' & while ! test -s pid; do :; done; echo done"
    result = run(command(script))
    assert (result.stdout.data, result.exit_code) == (b"done\n", 0)
    if command.is_confined:
        run(until(lambda: not running_with(word)))
    else:
        os.kill(int((command.folder / "pid").read_text()), signal.SIGKILL)


def test_a_quarter_of_a_gigabyte(command: Commands) -> None:
    """SK-180: beginning and end are kept, what lies between is counted, memory is not taken for it."""
    before = psutil.Process().memory_info().rss
    result = uvloop.run(command("echo begin; head -c 256M /dev/zero | tr '\\0' x; echo; echo end", 300))
    assert result.stdout.size == 256 * MB + len("begin\n\nend\n")
    assert result.omitted_stdout == result.stdout.size - len(result.stdout.data) > 255 * MB
    assert result.stdout.text().startswith("begin\nxxx")
    assert result.stdout.text().endswith("xxx\nend\n")
    assert psutil.Process().memory_info().rss - before < 32 * MB


def test_a_flood_leaves_the_loop_to_others(run: Run, command: Commands) -> None:
    async def main() -> int:
        task = asyncio.create_task(command("yes", 1))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert task.result().timed_out
        assert task.result().stdout.size > 1_000_000
        return turns

    assert run(main()) > 50


def test_reading_input_that_does_not_come(run: Run, command: Commands) -> None:
    result = run(command("cat; while read -r line; do :; done; cat /dev/stdin; echo end"))
    assert (result.stdout.data, result.exit_code) == (b"end\n", 0)


def test_input(run: Run, command: Commands) -> None:
    data = bytes(range(256)) * 4000
    assert run(command("cat", stdin=data)).stdout.data[: 200 * 1024] == data[: 200 * 1024]
    assert run(command("head -c 1 | od -An -tx1", stdin=data)).stdout.data.strip() == b"00"


def test_emoji_and_colours(run: Run, command: Commands) -> None:
    """SK-180 and SK-181."""
    result = run(command("printf '\\e[32m'; for n in {1..100000}; do printf 😀; done; printf '\\e[0m'"))
    head, marker, tail = result.output.text().split("\n")
    assert (set(head), set(tail)) == ({"😀"}, {"😀"})
    assert marker == f"[… {100_000 - len(head) - len(tail)} characters left out …]"
    assert len(result.output.text()) <= 30_000


def test_live_updates_are_bundled_and_complete(run: Run, command: Commands) -> None:
    told: list[tuple[float, str, bytes]] = []
    script = "for n in {1..300}; do echo $n; echo e$n >&2; sleep 0.002; done"
    result = run(command(script, on_output=lambda stream, data: told.append((time.monotonic(), stream, data))))
    for stream, capture in (("stdout", result.stdout), ("stderr", result.stderr)):
        assert b"".join(data for _, name, data in told if name == stream) == capture.data
    times = sorted({at for at, name, _ in told if name == "stdout"})
    assert len(times) >= 3
    # all but the last, which comes with the end
    assert all(later - at > LIVE_S * 0.9 for at, later in pairwise(times[:-1]))


def test_live_updates_of_a_flood_are_its_newest(run: Run, command: Commands) -> None:
    told: list[bytes] = []
    result = run(command("yes", 1, on_output=lambda _stream, data: told.append(data)))
    assert result.timed_out
    assert max(map(len, told)) < LIVE_BYTES + 100
    assert any(b"bytes left out" in data for data in told)
    assert len(told) <= result.duration_ms / 1000 / LIVE_S + 3


def test_one_who_cannot_be_told_stops_nothing(run: Run, command: Commands, caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def fail(_stream: str, data: bytes) -> None:
        calls.append(data)
        raise RuntimeError("gone")

    assert run(command("echo a; sleep 0.3; echo b", on_output=fail)).stdout.data == b"a\nb\n"
    assert calls == [b"a\n"]
    assert "output could not be told" in caplog.text


class Watched(UnconfinedLaunch):
    """One that counts."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        super().__init__(argv, env, cwd)
        self.pids: list[int] = []
        self.released = 0

    def started(self, pid: int) -> None:
        super().started(pid)
        self.pids.append(pid)

    async def release(self) -> None:
        await super().release()
        self.released += 1


@pytest.mark.parametrize(
    ("argv", "env"),
    [(["/no/such/program"], {}), (["/bin/true"], {"A": "x" * 200_000}), (["/bin/echo", "a\0b"], {})],
)
def test_what_cannot_be_started_is_released(run: Run, tmp_path: Path, argv: list[str], env: dict[str, str]) -> None:
    launch = Watched(argv, tmp_path, env)
    with pytest.raises(StartFailed):
        run(run_command(launch, timeout_s=40))
    assert (launch.pids, launch.released) == ([], 1)


def test_what_ended_is_released(run: Run, tmp_path: Path) -> None:
    launch = Watched(["/bin/true"], tmp_path, {})
    run(run_command(launch, timeout_s=40))
    assert (len(launch.pids), launch.released) == (1, 1)


def test_a_hundred_commands_leave_nothing(run: Run, command: Commands) -> None:
    """The fixture compares descriptors, threads and children."""

    async def main() -> None:
        for _ in range(4):
            async with asyncio.TaskGroup() as group:
                for number in range(25):
                    is_last = number == 24
                    script = f"echo {number}; sleep 60" if is_last else "true"
                    group.create_task(command(script, 0.5 if is_last else 40))

    run(main())
