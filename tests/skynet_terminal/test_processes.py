"""Programs: what they get, what is kept of what they write, and that nothing is left of them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from skynet_terminal import processes
from skynet_terminal.processes import OUTPUT_BYTES, Ended, run_program
from tests.support.polling import until
from tests.support.programs import LIBRARY_SIGNALS

ENV = {"PATH": "/usr/bin:/bin"}
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Runs a coroutine on a loop. In the end nothing is left open there, and no child."""
    with asyncio.Runner(loop_factory=request.param, debug=True) as runner:
        runner.run(shell(tmp_path, "true"))
        before = runner.run(counted())
        yield runner.run
        runner.run(until(lambda: left_open() == before))


async def counted() -> tuple[int, int, int]:
    return left_open()  # while the loop runs: it has descriptors of its own then


def left_open() -> tuple[int, int, int]:
    return psutil.Process().num_fds(), threading.active_count(), len(psutil.Process().children())


async def shell(tmp_path: Path, script: str, **more: Any) -> Ended:
    return await run_program(["sh", "-c", script], **{"name": "test", "cwd": tmp_path, "env": ENV} | more)


async def output(tmp_path: Path, script: str, **more: Any) -> str:
    ended = await shell(tmp_path, script, **more)
    assert (ended.returncode, ended.stderr.text()) == (0, "")
    return ended.stdout.text()


def is_running(pid: int) -> bool:
    """A zombie is not: whose child it is has to look after it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def pids(file: Path, count: int) -> list[int]:
    """The numbers that a script has written, a line each."""
    found: list[int] = []

    def are_there() -> bool:
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        found[:] = [int(line) for line in lines if line.endswith("\n")]
        return len(found) >= count

    await until(are_there)
    return found


def test_both_outputs_and_the_exit_code(run: Run, tmp_path: Path) -> None:
    ended = run(shell(tmp_path, "echo out; echo err >&2; exit 7"))
    assert (ended.stdout.text(), ended.stderr.text(), ended.returncode) == ("out", "err", 7)


def test_it_gets_its_variables_and_no_others(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    lines = run(output(tmp_path, "env", env={**ENV, "A": "ä\n", "B": b"\xff"}, name="x")).split("\n")
    assert {line.partition("=")[0] for line in lines} - {"_", "SHLVL", "OLDPWD"} == {"A", "B", "PATH", "PWD", ""}


def test_it_begins_in_its_directory_with_a_umask_and_limits(run: Run, tmp_path: Path) -> None:
    said = run(output(tmp_path, "pwd; umask; ulimit -c; ulimit -n; touch file"))
    assert said.split("\n") == [str(tmp_path), "0077", "0", "1024"]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


OPEN = """
import os
for number in range(1000):
    try:
        print(number, os.readlink(f"/proc/self/fd/{number}"))
    except FileNotFoundError:
        pass
"""


def test_it_inherits_no_descriptor(run: Run, tmp_path: Path) -> None:
    mine = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(mine, True)
    try:
        ended = run(run_program([sys.executable, "-c", OPEN], name="x", cwd=tmp_path, env=ENV))
    finally:
        os.close(mine)
    opened = dict(line.split() for line in ended.stdout.text().split("\n"))
    assert opened.keys() == {"0", "1", "2"}
    assert opened["0"] == "/dev/null"


def test_it_has_a_session_of_its_own(run: Run, tmp_path: Path) -> None:
    pid, session = run(output(tmp_path, "echo $$; cut -d' ' -f6 /proc/$$/stat")).split()
    assert pid == session != str(os.getsid(0))


def test_its_outputs_can_be_opened_by_name(run: Run, tmp_path: Path) -> None:
    ended = run(shell(tmp_path, "echo a >/dev/stderr; cat /dev/stdin >/dev/stdout", stdin=b"given"))
    assert (ended.stdout.text(), ended.stderr.text()) == ("given", "a")


@pytest.mark.parametrize(("script", "left"), [("cat", 3_000_000), ("true", 0), ("head -c 1 >/dev/null", 0)])
def test_input_that_is_read_or_not(run: Run, tmp_path: Path, script: str, left: int) -> None:
    assert int(run(output(tmp_path, f"{script} | wc -c", stdin=b"x" * 3_000_000))) == left


def test_much_output_is_read_and_its_beginning_kept(run: Run, tmp_path: Path) -> None:
    size = OUTPUT_BYTES * 5
    ended = run(shell(tmp_path, f"head -c {size} /dev/zero; yes | head -c {size} >&2"))
    assert (len(ended.stdout.data), ended.stdout.size) == (OUTPUT_BYTES, size)
    assert ended.stderr.data == b"y\n" * (OUTPUT_BYTES // 2)
    assert ended.stderr.text().endswith(f"y\n[of {size} bytes the first {OUTPUT_BYTES} were read]")


def test_output_of_one_that_does_not_end_takes_no_room(run: Run, tmp_path: Path) -> None:
    async def for_a_while() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await shell(tmp_path, "yes")

    run(for_a_while())


def test_bytes_that_are_no_text(run: Run, tmp_path: Path) -> None:
    assert run(output(tmp_path, r"printf 'a\377\000\342\202'")) == "a�\0�"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["./nothing"], 127, "weather: 1: exec: ./nothing: not found"),
        (["no-such-program"], 127, "no-such-program: not found"),
        (["./plain"], 126, "./plain: Permission denied"),
        (["./no-interpreter"], 127, "./no-interpreter: not found"),
    ],
)
def test_what_cannot_be_run(run: Run, tmp_path: Path, argv: list[str], code: int, words: str) -> None:
    (tmp_path / "plain").touch(mode=0o600)
    (tmp_path / "no-interpreter").write_text("#!/no/such/thing\n")
    (tmp_path / "no-interpreter").chmod(0o700)
    ended = run(run_program(argv, name="weather", cwd=tmp_path, env=ENV))
    assert ended.returncode == code
    assert ended.stderr.text().startswith("weather: ")
    assert words in ended.stderr.text() or not Path("/bin/sh").resolve().name.startswith("dash")


def test_arguments_are_no_shells(run: Run, tmp_path: Path) -> None:
    argv = ["printf", "%s|", "$HOME", "`id`", "a b", "", "*", "-x", "'"]
    ended = run(run_program(argv, name="x", cwd=tmp_path, env=ENV))
    assert ended.stdout.text() == "$HOME|`id`|a b||*|-x|'|"


def test_a_signal_is_told(run: Run, tmp_path: Path) -> None:
    assert run(shell(tmp_path, "kill -SEGV $$")).returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    "more", [{"cwd": Path("/no/such/place")}, {"env": {"A": "x" * 200_000}}], ids=["no directory", "too much"]
)
def test_one_that_cannot_be_started(run: Run, tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(OSError):
        run(shell(tmp_path, "true", **more))


def test_what_it_leaves_running_ends_with_it(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(40):
            ended = await shell(tmp_path, "sleep 99 & echo $! >pids; (sleep 99 & echo $! >>pids); echo done")
        assert ended.stdout.text() == "done"
        for pid in await pids(tmp_path / "pids", 2):
            await until(lambda pid=pid: not is_running(pid))

    run(main())


def test_one_that_leaves_its_group_holds_nobody_up(run: Run, tmp_path: Path) -> None:
    script = "setsid sh -c 'echo $$ >pids; exec sleep 99' & while ! test -s pids; do :; done; echo done"

    async def main() -> None:
        async with asyncio.timeout(40):
            ended = await shell(tmp_path, script)
        assert ended.stdout.text() == "done"

    run(main())
    os.kill(int((tmp_path / "pids").read_text()), signal.SIGKILL)


TREE = "trap '' TERM HUP INT; sleep 99 & echo $! >pids; sh -c 'echo $$ >>pids; exec sleep 99' & echo $$ >>pids; wait"
"""A program that hears no signal, with two children."""


def test_cancelling_kills_all_of_it(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        task = asyncio.create_task(shell(tmp_path, TREE))
        started = await pids(tmp_path / "pids", 3)
        assert all(map(is_running, started))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not any(map(is_running, started)))

    run(main())


@pytest.mark.parametrize("steps", range(12))
def test_cancelling_at_any_step_leaves_nothing(run: Run, tmp_path: Path, steps: int) -> None:
    async def main() -> None:
        task = asyncio.create_task(shell(tmp_path, "echo $$ >pids; exec sleep 99"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = (tmp_path / "pids").read_text() if (tmp_path / "pids").exists() else ""
        assert not left or not is_running(int(left))

    run(main())


def test_cancelling_twice_leaves_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        task = asyncio.create_task(shell(tmp_path, TREE))
        started = await pids(tmp_path / "pids", 3)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not any(map(is_running, started)))
        await until(lambda: not psutil.Process().children())  # waited for, though nobody waits

    run(main())


def test_many_at_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(output(tmp_path, f"echo {number}; sleep 0.1")) for number in range(40)]
        assert [task.result() for task in running] == [str(number) for number in range(40)]

    run(main())


class TestWithoutPidfd:
    """As on systems that have none."""

    @pytest.fixture(autouse=True)
    def no_pidfd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(processes.os, "pidfd_open")

    def test_an_end_is_noticed(self, run: Run, tmp_path: Path) -> None:
        ended = run(shell(tmp_path, "echo out; sleep 99 & exit 3"))
        assert (ended.stdout.text(), ended.returncode) == ("out", 3)

    def test_cancelling_kills_all_of_it(self, run: Run, tmp_path: Path) -> None:
        test_cancelling_kills_all_of_it(run, tmp_path)


@pytest.mark.parametrize("ignored", ["HUP", "INT QUIT", "HUP INT QUIT TERM USR1 USR2"])
def test_what_the_gateway_ignores_is_heard_by_what_it_starts(tmp_path: Path, ignored: str) -> None:
    """``nohup`` and ``&`` have it ignore signals, which everything started by it would ignore as well."""
    script = (
        "import asyncio, pathlib\n"
        "from skynet_terminal.processes import hear_signals, run_program\n"
        "hear_signals()\n"
        "argv = ['grep', '-E', '^Sig(Ign|Blk)', '/proc/self/status']\n"
        f"ended = asyncio.run(run_program(argv, name='test', cwd=pathlib.Path('/'), env={ENV!r}))\n"
        "print(ended.stdout.text())\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh", sys.executable, "-c", script],
        capture_output=True,
        check=True,
        timeout=40,
        cwd=Path(__file__).parents[2],
    )
    assert [int(line.split()[1], 16) & ~LIBRARY_SIGNALS for line in done.stdout.decode().splitlines()] == [0, 0]


def test_nothing_to_read_is_no_file(run: Run, tmp_path: Path) -> None:
    """ripgrep, for one, would look for words in it and not in the directory."""
    assert run(output(tmp_path, "stat -Lc %F /proc/self/fd/0")) == "character special file"
