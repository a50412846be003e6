"""``execute_command`` and ``bash`` as a model uses them, with real commands in the real sandbox."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from skynet.config import load_config
from skynet.gateway.command_desk import ExecRequest
from skynet.tables import TABLES
from skynet.tools.commands import CommandTools, told
from skynet_agent.messages import TextBlock, ToolCallBlock
from skynet_agent.tools import Toolbox, ToolContext
from skynet_memory.database import Database
from skynet_memory.ids import Role
from skynet_memory.migrations import migrate
from skynet_terminal.capture import LONGEST_TEXT
from tests.support.commands import DeskWorld, open_desk
from tests.support.programs import needs

pytestmark = needs("bwrap")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[DeskWorld]:
    home = tmp_path / "home"
    home.mkdir()
    config = load_config(None, env={"SKYNET_HOME": str(home), "HOME": str(tmp_path)})
    async with Database(home / "skynet.db") as database:
        await migrate(database, TABLES)
        async with open_desk(home, database, config) as world:
            yield world


async def call(world: DeskWorld, context: ToolContext, tool: str, **arguments: object) -> tuple[str, bool]:
    toolbox = Toolbox(CommandTools(world.desk).tools(), permits=lambda context, tool: None)
    result = await toolbox.run(ToolCallBlock("call", tool, arguments), context)
    return "".join(block.text for block in result.content if isinstance(block, TextBlock)), result.is_error


async def does(world: DeskWorld, context: ToolContext, tool: str, **arguments: object) -> str:
    text, is_error = await call(world, context, tool, **arguments)
    assert not is_error, text
    return text


async def fails(world: DeskWorld, context: ToolContext, tool: str, **arguments: object) -> str:
    text, is_error = await call(world, context, tool, **arguments)
    assert is_error, text
    assert str(world.home) not in text
    return text


async def test_a_command_runs_in_the_persons_folder(world: DeskWorld) -> None:
    """SK-094, SP-067."""
    ada, bob = await world.person("Ada"), await world.person("Bob")
    assert await does(world, ada, "execute_command", command="echo hi") == "hi\n[exit code 0]"
    (world.folder(ada) / "sub").mkdir()
    (world.folder(ada) / "sub" / "a").touch()
    assert await does(world, ada, "execute_command", command="ls", cwd="sub") == "a\n[exit code 0]"
    assert await does(world, bob, "execute_command", command="ls") == "(no output)\n[exit code 0]"


async def test_how_a_command_ended_is_told(world: DeskWorld) -> None:
    """SK-175."""
    ada = await world.person("Ada")
    text = await does(world, ada, "execute_command", command="echo no >&2; exit 3")
    assert text == "no\n[failed with exit code 3]"
    text = await does(world, ada, "execute_command", command="echo half; sleep 60", timeout_s=1)
    assert text == "half\n[ended after 1 seconds, its time was up]"
    assert await does(world, ada, "execute_command", command="kill -TERM $$") == "(no output)\n[ended by SIGTERM]"


async def test_what_is_refused_is_told_with_the_rule(world: DeskWorld) -> None:
    """SK-094: a blocked result for the model."""
    ada = await world.person("Ada")
    for tool in ("execute_command", "bash"):
        text = await fails(world, ada, tool, command="rm -rf /")
        assert "not run" in text
        assert "(rule destructive." in text


async def test_its_time_is_what_is_asked_for_within_bounds(world: DeskWorld) -> None:
    ada = await world.person("Ada")
    for timeout_s in (0, 301, 1.5):
        assert "arguments are wrong" in await fails(world, ada, "execute_command", command="true", timeout_s=timeout_s)


async def test_it_runs_in_a_folder_and_in_no_other(world: DeskWorld) -> None:
    ada, bob = await world.person("Ada"), await world.person("Bob")
    (world.folder(ada) / "file").touch()
    (world.folder(ada) / "link").symlink_to(world.folder(bob))
    assert "out of" in await fails(world, ada, "execute_command", command="touch made", cwd="link")
    assert "Not a directory" in await fails(world, ada, "execute_command", command="ls", cwd="file")
    assert not [*world.folder(bob).iterdir()]


async def test_what_it_writes_is_plain_and_short_enough(world: DeskWorld) -> None:
    """SK-180, SK-181."""
    ada = await world.person("Ada")
    text = await does(world, ada, "execute_command", command=r"printf '\033[31mred\033[0m'")
    assert text == "red\n[exit code 0]"
    command = "python3 -c 'print(chr(0x1f600) * 100_000 + chr(101) + chr(110) + chr(100))'; exit 1"
    text = await does(world, ada, "execute_command", command=command)
    assert len(text) <= LONGEST_TEXT
    assert text.startswith("😀" * 15_000)
    assert text.endswith("end\n[failed with exit code 1]")
    assert "characters left out" in text


async def test_clients_that_watch_see_it_as_it_comes(world: DeskWorld) -> None:
    told_so_far: list[str] = []
    ada = replace(await world.person("Ada"), update=told_so_far.append)
    await does(world, ada, "execute_command", command="echo one; sleep 0.5; echo two")
    assert told_so_far[0] == "one\n"
    assert told_so_far[-1] == "one\ntwo\n"


async def test_the_shell_is_the_sessions_own(world: DeskWorld) -> None:
    """SK-096, W5."""
    ada, bob = await world.person("Ada"), await world.person("Bob")
    first = await does(world, ada, "bash", command="cd /tmp; x=1")
    assert "(no output)\n[exit code 0]" in first
    assert (await does(world, ada, "bash", command="pwd; echo $x")).startswith("/tmp\n1\n[exit code 0]")
    assert (await does(world, bob, "bash", command="pwd; echo [$x]")).startswith("/files\n[]\n[exit code 0]")
    assert "new shell" in await does(world, ada, "bash", command="exit 4") + await does(
        world, ada, "bash", command="echo $x"
    )


async def test_a_node_that_nobody_has_is_an_error(world: DeskWorld) -> None:
    root = await world.person("Root", Role.ADMIN)
    assert "not run" in await fails(world, root, "execute_command", command="uptime", node="laptop")


async def test_an_outcome_has_room_for_how_it_ended(world: DeskWorld) -> None:
    ada = await world.person("Ada")
    outcome = await world.desk.execute(ada, ExecRequest(command="yes | head -c 1000000"))
    assert len(told(outcome, 30)) <= LONGEST_TEXT
