from skynet.tools.commands import OUTPUT_CHARS, CommandOutcome, told
from tests.skynet.tools.conftest import ADA, BOB, World


async def test_a_command_runs_in_the_persons_folder(world: World) -> None:
    """SK-094."""
    assert await world.does("execute_command", command="echo hi") == "hi\n[exit code 0]"
    (world.folder() / "sub").mkdir()
    (world.folder() / "sub" / "a").touch()
    assert await world.does("execute_command", command="ls", cwd="sub") == "a\n[exit code 0]"
    assert await world.does("execute_command", BOB, command="ls") == "(no output)\n[exit code 0]"


async def test_a_failing_command_is_a_result(world: World) -> None:
    assert await world.does("execute_command", command="echo no >&2; exit 3") == "no\n[failed with exit code 3]"


async def test_its_time_is_what_is_asked_for_within_bounds(world: World) -> None:
    await world.does("execute_command", command="true")
    await world.does("execute_command", command="true", timeout_s=300)
    assert [timeout_s for _, timeout_s in world.commands.asked] == [30, 300]
    for timeout_s in (0, 301, 1.5):
        assert "arguments are wrong" in await world.fails("execute_command", command="true", timeout_s=timeout_s)


async def test_it_runs_in_a_folder_and_in_no_other(world: World) -> None:
    world.folder(BOB)
    (world.folder() / "file").touch()
    (world.folder() / "link").symlink_to(world.folder(BOB))
    assert "out of" in await world.fails("execute_command", command="ls", cwd="link")
    assert "Not a directory" in await world.fails("execute_command", command="ls", cwd="file")
    assert [command for command, _ in world.commands.asked] == []


async def test_the_shell_is_the_sessions_own(world: World) -> None:
    """SK-096."""
    assert await world.does("bash", ADA, command="pwd") == "ada in user:ada:agent:main:main: pwd\n[exit code 0]"
    assert await world.does("bash", BOB, command="pwd") == "bob in user:bob:agent:main:main: pwd\n[exit code 0]"
    assert world.commands.asked == [("pwd", 60), ("pwd", 60)]


def test_an_outcome_in_words() -> None:
    assert told(CommandOutcome(output="", exit_code=0), 30) == "(no output)\n[exit code 0]"
    assert told(CommandOutcome(output="half\n", timed_out=True), 30) == (
        "half\n[ended after 30 seconds, its time was up]"
    )
    assert told(CommandOutcome(output="x", signal="SIGKILL"), 30) == "x\n[ended by SIGKILL]"


def test_long_output_loses_its_middle() -> None:
    text = told(CommandOutcome(output="😀" * 100_000 + "end", exit_code=1), 30)
    assert len(text) <= OUTPUT_CHARS
    assert text.startswith("😀" * 20_000)
    assert text.endswith("end\n[failed with exit code 1]")
    assert "characters left out" in text
