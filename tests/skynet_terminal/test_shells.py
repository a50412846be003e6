"""Persistent shells: what stays from command to command, whose they are, and that no command gets them out of step."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from skynet.supervisor import Supervisor
from skynet_memory.ids import UserId, new_id
from skynet_terminal.errors import StartFailed, TooMany
from skynet_terminal.sandbox import Launch, Sandbox
from skynet_terminal.sandbox.unconfined import Unconfined, UnconfinedLaunch
from skynet_terminal.shells import ARGV, ShellResult, Shells
from tests.skynet_memory.support import ADA, BEN
from tests.support.polling import until
from tests.support.sandboxes import SANDBOXES, launcher, left_open, running_with, sandbox


@pytest.fixture(params=SANDBOXES)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return sandbox(request.param, tmp_path / "sandbox")


class World:
    def __init__(self, shells: Shells, box: Sandbox, tmp_path: Path) -> None:
        self.shells = shells
        self.folders = {owner: tmp_path / owner for owner in (ADA, BEN)}
        self.is_confined = box.name != "none"
        self._prepare = {owner: launcher(box, folder) for owner, folder in self.folders.items()}

    async def __call__(self, command: str, owner: UserId = ADA, session: str = "main", **more: Any) -> ShellResult:
        async def make() -> Launch:
            return await self._prepare[owner](ARGV)

        return await self.shells.run(owner, session, make, command, **{"timeout_s": 40} | more)

    async def said(self, command: str, owner: UserId = ADA, session: str = "main") -> str:
        return (await self(command, owner, session)).output.text()


@asynccontextmanager
async def opened(box: Sandbox, tmp_path: Path, **more: Any) -> AsyncIterator[World]:
    async with Supervisor() as tasks, Shells(tasks, **more) as shells:
        yield World(shells, box, tmp_path)


@pytest.fixture
async def shell(box: Sandbox, tmp_path: Path) -> AsyncIterator[World]:
    async with opened(box, tmp_path) as world:
        yield world


async def test_directory_variables_functions_and_options_stay(shell: World) -> None:
    """SK-096: ``cd /tmp`` and then ``pwd``."""
    result = await shell("cd /tmp; x='a  b'; f() { echo \"f:$1\"; }; set -f; export Y=1")
    assert (result.exit_code, result.output.data, result.notice) == (0, b"", "")
    assert result.cwd == "/tmp"
    assert await shell.said("pwd") == "/tmp\n"
    assert await shell.said("echo \"$x\"; f z; echo *; sh -c 'echo $Y'") == "a  b\nf:z\n*\n1\n"


async def test_both_outputs_in_order_and_the_exit_code(shell: World) -> None:
    """SK-094 and SP-067."""
    result = await shell("for n in 1 2 3; do echo o$n; echo e$n >&2; done; (exit 7)")
    assert result.output.data == b"o1\ne1\no2\ne2\no3\ne3\n"
    assert (result.stdout, result.exit_code, result.signal) == (result.output, 7, "")
    assert (await shell("sh -c 'kill -SEGV $$'")).signal == "SIGSEGV"


async def test_two_people_have_two_shells(shell: World) -> None:
    """SK-096 and W5: never shared, neither between people nor between sessions."""
    await shell("secret=ada; cd /tmp", ADA)
    assert await shell.said('echo "[$secret]"; pwd', BEN) != "[ada]\n/tmp\n"
    assert await shell.said('echo "[$secret]"', BEN) == "[]\n"
    assert await shell.said('echo "[$secret]"', ADA, "other") == "[]\n"
    assert await shell.said('echo "[$secret]"', ADA) == "[ada]\n"
    assert len(shell.shells) == 3


async def test_exit_ends_the_shell_and_the_next_is_new(shell: World) -> None:
    """SK-096."""
    await shell("x=1")
    result = await shell("echo out; exit 3")
    assert (result.output.data, result.exit_code, result.cwd) == (b"out\n", 3, "")
    assert "ended with this command" in result.notice
    result = await shell('echo "[$x]"')
    assert result.output.data == b"[]\n"
    assert "new shell" in result.notice
    assert "exit code 3" in result.notice
    assert (await shell("true")).notice == ""


async def test_out_of_time_it_is_interrupted_and_the_shell_stays(shell: World) -> None:
    """SK-175 and SK-096."""
    word = new_id()
    await shell("x=kept; cd /tmp")
    result = await shell(f"(exec -a {word} sleep 60) & echo begun; (exec -a {word} sleep 60)", timeout_s=1)
    assert (result.timed_out, result.signal, result.output.data[:6]) == (True, "SIGINT", b"begun\n")
    assert result.notice == ""
    await until(lambda: not running_with(word))
    assert await shell.said('echo "$x"; pwd') == "kept\n/tmp\n"


@pytest.mark.parametrize(
    "script", ["while :; do :; done", "trap '' INT; {sleep}", "while :; do sleep 0.01; done; {sleep}"]
)
async def test_one_that_cannot_be_interrupted_is_killed_with_the_shell(shell: World, script: str) -> None:
    """SK-175 and SK-096."""
    word = new_id()
    await shell("x=1")
    result = await shell(script.replace("{sleep}", f"(exec -a {word} sleep 60)"), timeout_s=0.5)
    assert (result.timed_out, result.signal, result.exit_code) == (True, "SIGKILL", None)
    assert "ended with this command" in result.notice
    await until(lambda: not running_with(word))
    result = await shell('echo "[$x]"')
    assert (result.output.data, result.exit_code) == (b"[]\n", 0)
    assert "out of time" in result.notice


async def test_cancelling_ends_the_command(shell: World) -> None:
    word = new_id()
    await shell("x=1")
    task = asyncio.create_task(shell(f"(exec -a {word} sleep 60)"))
    await until(lambda: running_with(word))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not running_with(word))
    assert "was stopped" in (await shell("true")).notice


async def test_one_after_another(shell: World) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shell(f"n=$((n + 1)); sleep 0.0{9 - k}; echo {k} $n")) for k in range(9)]
    assert [task.result().output.text() for task in tasks] == [f"{k} {k + 1}\n" for k in range(9)]


BREAKING = [
    *("exec 1>&-", "exec 2>&-", "exec 1>&- 2>&- 0<&-", "exec >/dev/null", "exec 0</etc/passwd", "exec 3>&- 4>&-"),
    *("echo 'unbalanced", 'echo "$(', "if true; then echo", "cat <<EOF\nnever ended", "}", ")", "{", "case x in"),
    *("cat", "read -r x; echo $?", "cat <&0; head -c 5 /dev/stdin", "break; continue; return 3", "trap 'echo T' DEBUG"),
    *(
        "trap 'echo T' ERR; false",
        "set -x; echo x",
        "set -v; echo v",
        "set -f; set -o noclobber",
        "IFS=x; readonly IFS",
    ),
    *("shopt -s expand_aliases; alias printf=false eval=false", "PATH=/nowhere", "printf() { :; }; eval() { :; }"),
    *("yes & ", "(while sleep 0.01; do echo noise; done) &", "setopt; \\\n", "# a comment", "", "\n\n", "echo \\", "!"),
    *("printf '%s\\0' 0000 0 /tmp >&2", "LC_ALL=C; PS4='$(echo p)'; set -x", "wait; jobs; bg", "ulimit -n 20"),
    *("echo $'\\e[31m\\x00\\xff'", "coproc cat", "exec {fd}>/dev/null", "set -- a b c; shift 9", "unset PWD OLDPWD"),
    *(
        "PROMPT_COMMAND='echo P'",
        "set -o posix",
        "set -o history",
        "shopt -s extglob; echo !(x)",
        "umask 777; umask 022",
    ),
]


@pytest.mark.parametrize("command", BREAKING)
async def test_no_command_gets_it_out_of_step(tmp_path: Path, command: str) -> None:
    """SK-096: after it another says what it says, with its own exit code, without its shell having ended."""
    async with opened(Unconfined(), tmp_path) as shell:
        await shell("kept=1")
        await shell(command, timeout_s=30)
        result = await shell('set +xv; trap - DEBUG ERR; kill %1 2>/dev/null; echo "one $kept"; (exit 5)')
        assert result.output.text().split("\n")[-2].endswith("one 1")
        assert (result.exit_code, result.notice) == (5, "")
        result = await shell('command echo "two $kept" 2>&1')
        assert [line for line in result.output.text().split("\n") if line not in ("y", "noise")] == ["two 1", ""]


@pytest.mark.parametrize(
    "command",
    [
        *("set -e; false", "set -u; echo $nope", "exec true", "exec 10>&- 11>&- 12>&- 13>&-", "kill -9 $$", "kill $$"),
        *(
            "exec sleep 0.05",
            "set -n",
            "builtin() { :; }",
            "enable -n printf eval",
            "trap 'exit 4' DEBUG",
            "read -ru 10 x",
        ),
    ],
)
async def test_one_that_ends_or_breaks_its_shell_is_followed_by_a_new_one(tmp_path: Path, command: str) -> None:
    """SK-096: it takes no longer than the time that the commands have, and is said."""
    async with opened(Unconfined(), tmp_path) as shell:
        notices = ""
        for _ in range(2):
            notices += (await shell(command, timeout_s=0.5)).notice
            result = await shell("echo next", timeout_s=1)
            notices += result.notice
            if result.timed_out:
                result = await shell("echo next")
                notices += result.notice
            assert result.output.text() == "next\n"
        assert "new shell" in notices or command == "enable -n printf eval"


@given(st.lists(st.text(st.sampled_from("'\"\\\n $(){}<>|&;#`!x0é"), max_size=30), max_size=4))
@settings(max_examples=30)
def test_any_text_is_one_command(tmp_path_factory: pytest.TempPathFactory, commands: list[str]) -> None:
    """SK-096. There are no words in it that do anything but to its own folder."""

    async def main() -> None:
        async with opened(Unconfined(), tmp_path_factory.mktemp("shell")) as shell:
            for command in commands:
                await shell(command, timeout_s=5)
            for _ in range(2):
                assert (await shell("echo next; (exit 6)")).exit_code == 6

    asyncio.run(main())


async def test_a_long_command(shell: World) -> None:
    text = "x" * 300_000 + "'\n$é"
    result = await shell(f"cat <<'END' | wc -m\n{text}\nEND\necho done")
    assert result.output.text() == f"{len(text) + 1}\ndone\n"


async def test_a_nul_is_refused(shell: World) -> None:
    with pytest.raises(ValueError, match="NUL"):
        await shell("echo a\0b")
    assert await shell.said("echo '\ud800'") == "?\n"


async def test_what_the_background_writes_is_told_with_the_next(shell: World) -> None:
    await shell("(sleep 0.1; echo from the background; echo >written) & echo now")
    await until((shell.folders[ADA] / "written").exists)
    result = await shell("echo next")
    assert (result.earlier.text(), result.output.text()) == ("from the background\n", "next\n")


async def test_a_flood_in_the_background_is_bounded(shell: World) -> None:
    """SK-180."""
    await shell("yes & echo $!")
    for _ in range(3):
        result = await shell("sleep 0.2; echo here; (exit 5)")
        assert (result.exit_code, result.notice) == (5, "")
        assert len(result.earlier.data) < 40_000
    assert (await shell("kill %1")).exit_code == 0
    await shell("wait")
    assert await shell.said("echo quiet") == "quiet\n"


async def test_much_output(shell: World) -> None:
    """SK-180 and SK-181."""
    result = await shell("printf '\\e[32m'; head -c 20M /dev/zero | tr '\\0' x; echo; echo end")
    assert result.output.size == 20 * 1024**2 + 10
    assert result.output.text().endswith("x\nend\n")
    assert len(result.output.text()) <= 30_000


async def test_live_updates(shell: World) -> None:
    told: list[bytes] = []
    result = await shell("echo a; sleep 0.3; echo b >&2", on_output=lambda _stream, data: told.append(data))
    assert b"".join(told) == result.output.data == b"a\nb\n"
    assert len(told) == 2


async def test_one_that_is_not_used_goes(box: Sandbox, tmp_path: Path) -> None:
    async with opened(box, tmp_path, idle_s=0.2) as shell:
        await shell("x=1; sleep 0.4")
        assert await shell.said("echo $x") == "1\n"
        await until(lambda: len(shell.shells) == 0)
        result = await shell('echo "[$x]"')
        assert (result.output.text(), "not used for 0.2 seconds" in result.notice) == ("[]\n", True)


async def test_a_person_has_so_many_and_the_oldest_goes(box: Sandbox, tmp_path: Path) -> None:
    async with opened(box, tmp_path, most_per_person=2) as shell:
        for session in ("one", "two", "one", "three"):
            await shell("x=1", ADA, session)
        await shell("x=1", BEN)
        assert len(shell.shells) == 3
        assert await shell.said("echo $x", ADA, "one") == "1\n"
        assert "others were used since" in (await shell("true", ADA, "two")).notice
        running = [asyncio.create_task(shell("touch begun; sleep 60", ADA, session)) for session in ("a", "b")]
        await until((shell.folders[ADA] / "begun").exists)
        await until(lambda: len(shell.shells) == 3)
        with pytest.raises(TooMany):
            await shell("true", ADA, "c")
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await shell("true", ADA, "c")


async def test_a_person_is_closed(shell: World) -> None:
    word = new_id()
    await shell("x=1", BEN)
    await shell("x=1", ADA, "other")
    task = asyncio.create_task(shell(f"(exec -a {word} sleep 60)"))
    await until(lambda: running_with(word))
    await shell.shells.close_person(ADA)
    await until(lambda: not running_with(word))
    result = await task
    assert (result.signal, "ended" in result.notice) == ("SIGKILL", True)
    assert await shell.said("echo $x", BEN) == "1\n"
    assert "it was closed" in (await shell("true", ADA, "other")).notice


async def test_the_gateways_end_ends_all(box: Sandbox, tmp_path: Path) -> None:
    word = new_id()
    async with opened(box, tmp_path) as shell:
        await shell(f"(exec -a {word} sleep 60) & echo begun")
        task = asyncio.create_task(shell(f"(exec -a {word} sleep 60)", BEN))
        await until(lambda: len(running_with(word)) >= 2)
    await until(lambda: not running_with(word))
    assert (await task).signal == "SIGKILL"
    with pytest.raises(StartFailed):
        await shell("true")


async def test_one_that_cannot_be_started(tmp_path: Path) -> None:
    async with Supervisor() as tasks, Shells(tasks) as shells:

        async def make() -> Launch:
            return UnconfinedLaunch(["/no/such"], {}, tmp_path)

        for _ in range(2):
            with pytest.raises(StartFailed):
                await shells.run(ADA, "main", make, "true")
        assert len(shells) == 0


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_hundred_commands_leave_nothing(
    box: Sandbox, tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with opened(box, tmp_path) as shell:
            await shell("true")
            before = left_open()
            for number in range(100):
                assert await shell.said(f"echo {number}") == f"{number}\n"
            await shell("exit")
            await shell("true")
            await until(lambda: left_open() == before)

    async def counted(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await asyncio.to_thread(os.getpid)
        before = left_open()
        await make()
        await until(lambda: left_open()[0::2] == before[0::2])

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(counted(main))
