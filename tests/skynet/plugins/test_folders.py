"""Which plugins there are, and which are left out for what reason."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skynet.plugins import MOST_PLUGINS, Plugins

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="files can only be given away by root")
TOML = 'description = "{description}"\ncommand = ["./run.sh"]\n'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "tools"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def plugins(directory: Path) -> Plugins:
    return Plugins(directory, env={"KEY": "k-123"}, taken=["read_file"])


def put(directory: Path, name: str, toml: str = "", *, description: str = "Does something.") -> Path:
    """A plugin that works, or one with this ``tool.toml``."""
    folder = directory / name
    folder.mkdir(mode=0o700)
    script = folder / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    write(folder / "tool.toml", toml or TOML.format(description=description))
    return folder


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


async def names(plugins: Plugins) -> list[str]:
    return [plugin.name for plugin in await plugins.current()]


async def reason(plugins: Plugins, caplog: pytest.LogCaptureFixture) -> str:
    """Why the one plugin there is was left out."""
    caplog.clear()
    assert await names(plugins) == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("left out ")
    return said


async def test_no_directory_is_no_plugins(tmp_path: Path) -> None:
    plugins = Plugins(tmp_path / "tools", env={})
    assert await names(plugins) == []
    (tmp_path / "tools").mkdir(mode=0o700)
    assert await names(plugins) == []
    put(tmp_path / "tools", "a")
    assert await names(plugins) == ["a"]
    shutil.rmtree(tmp_path / "tools")
    assert await names(plugins) == []


async def test_a_plugin(plugins: Plugins, directory: Path) -> None:
    folder = put(
        directory,
        "Weather of today",
        'name = "weather"\ndescription = "Tells."\ncommand = ["./run.sh", "-v"]\nenv = { TOKEN = "${KEY}" }\n',
    )
    (plugin,) = await plugins.current()
    assert (plugin.id, plugin.folder, plugin.name) == ("Weather of today", folder, "weather")
    assert (plugin.command, plugin.env["TOKEN"].reveal()) == (("./run.sh", "-v"), "k-123")
    assert "k-123" not in repr(plugin)


async def test_they_come_in_the_order_of_their_folders(plugins: Plugins, directory: Path) -> None:
    for name in ("b", "c", "a"):
        put(directory, name)
    assert await names(plugins) == ["a", "b", "c"]


async def test_nothing_changes_while_nothing_changes(plugins: Plugins, directory: Path) -> None:
    put(directory, "a")
    put(directory, "b")
    first = await plugins.current()
    for _ in range(3):
        assert await plugins.current() is first
    assert all(map(plugins.is_current, first))


async def test_what_comes_goes_and_changes_is_seen_at_once(plugins: Plugins, directory: Path) -> None:
    put(directory, "a", description="one")
    (a,) = await plugins.current()
    put(directory, "b")
    assert await names(plugins) == ["a", "b"]
    assert (await plugins.current())[0] is a

    write(directory / "a" / "tool.toml", TOML.format(description="two"))  # as long as before
    assert not plugins.is_current(a)
    assert [plugin.description for plugin in await plugins.current()] == ["two", "Does something."]
    assert not plugins.is_current(a)

    shutil.rmtree(directory / "b")
    assert await names(plugins) == ["a"]
    (directory / "a").rename(directory / "c")
    assert await names(plugins) == ["c"]


async def test_many_changes_within_a_tick_of_the_clock(plugins: Plugins, directory: Path) -> None:
    folder = put(directory, "a")
    for number in range(200):
        write(folder / "tool.toml", TOML.format(description=f"{number:03}"))
        assert (await plugins.current())[0].description == f"{number:03}"


async def test_a_folder_that_is_being_copied_becomes_a_plugin(
    plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = directory / "a"
    folder.mkdir(mode=0o700)
    assert (await reason(plugins, caplog)).endswith("a/tool.toml: No such file or directory")
    write(folder / "tool.toml", 'description = "Does."\ncommand = ["./bin/run.sh"]')
    assert (await reason(plugins, caplog)).endswith("a/bin/run.sh: No such file or directory")
    (folder / "bin").mkdir(mode=0o700)
    (folder / "bin" / "run.sh").touch(mode=0o600)
    assert (await reason(plugins, caplog)).endswith('"./bin/run.sh" cannot be run; make it executable (chmod +x)')
    (folder / "bin" / "run.sh").chmod(0o700)
    assert await names(plugins) == ["a"]


async def test_one_that_is_wrong_is_told_once_and_leaves_the_others_alone(
    plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(directory, "a", "timeout_s = 500")
    put(directory, "b")
    for _ in range(3):
        assert await names(plugins) == ["b"]
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith("left out the plugin a: ")
    assert f"{directory}/a/tool.toml:1: timeout_s: 500 is not allowed; allowed: a number from 1 to 300" in said
    put(directory, "c")
    assert await names(plugins) == ["b", "c"]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


async def test_a_name_is_given_once(plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(directory, "a")
    put(directory, "b", 'name = "a"\n' + TOML)
    put(directory, "read_file")
    assert [plugin.id for plugin in await plugins.current()] == ["a"]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [
        "left out the plugin b: the name a is that of the plugin a already",
        "left out the plugin read_file: the name read_file is that of a tool of the gateway itself",
    ]
    shutil.rmtree(directory / "a")
    assert [plugin.id for plugin in await plugins.current()] == ["b"]


async def test_what_is_no_folder_or_hidden_is_not_meant(
    plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(directory, ".git")
    put(directory, "_shared")
    write(directory / "README.md", "# Tools")
    (directory / "nowhere").symlink_to(directory / "gone")
    assert await names(plugins) == []
    assert not caplog.records


def link_folder(directory: Path) -> None:
    (directory / "a").rename(directory / "_a")
    (directory / "a").symlink_to("_a")


def link_toml(directory: Path) -> None:
    (directory / "a" / "tool.toml").rename(directory / "a" / "other.toml")
    (directory / "a" / "tool.toml").symlink_to("other.toml")


def pipe_for_toml(directory: Path) -> None:
    (directory / "a" / "tool.toml").unlink()
    os.mkfifo(directory / "a" / "tool.toml")


def large_toml(directory: Path) -> None:
    write(directory / "a" / "tool.toml", "#" * 70_000)


def link_out(directory: Path) -> None:
    (directory / "a" / "run.sh").rename(directory.parent / "run.sh")
    (directory / "a" / "run.sh").symlink_to("../../run.sh")


def folder_out(directory: Path) -> None:
    outside = directory.parent / "bin"
    outside.mkdir()
    (directory / "a" / "run.sh").rename(outside / "run.sh")
    (directory / "a" / "bin").symlink_to(outside)
    write(directory / "a" / "tool.toml", TOML.replace("./run.sh", "bin/run.sh"))


def path_out(directory: Path) -> None:
    write(directory / "a" / "tool.toml", TOML.replace("./run.sh", "../a/run.sh"))


def link_to_nothing(directory: Path) -> None:
    (directory / "a" / "run.sh").unlink()
    (directory / "a" / "run.sh").symlink_to("gone")


def folder_for_program(directory: Path) -> None:
    (directory / "a" / "run.sh").unlink()
    (directory / "a" / "run.sh").mkdir(mode=0o700)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (link_folder, "the folder is a link; put the folder itself here"),
        (link_toml, "a/tool.toml is no file"),
        (pipe_for_toml, "a/tool.toml is no file"),
        (large_toml, "a/tool.toml is larger than 65536 bytes"),
        (link_out, 'command: "./run.sh" is a link that leads out of '),
        (folder_out, 'command: "bin/run.sh" is a link that leads out of '),
        (path_out, 'command: "../a/run.sh": leave out ..'),
        (link_to_nothing, "a/gone: No such file or directory"),
        (folder_for_program, 'command: "./run.sh" cannot be run'),
    ],
)
async def test_links_and_oddities(
    plugins: Plugins,
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    words: str,
) -> None:
    put(directory, "a")
    assert await names(plugins) == ["a"]
    spoil(directory)
    assert words in await reason(plugins, caplog)


async def test_a_link_that_stays_among_the_tools_is_followed(
    plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = directory / "_shared"
    shared.mkdir(mode=0o700)
    folder = put(directory, "a")
    (folder / "run.sh").rename(shared / "run.sh")
    (folder / "run.sh").symlink_to("../_shared/run.sh")
    assert await names(plugins) == ["a"]
    shared.chmod(0o777)  # on the way, so whoever writes there runs code
    assert "_shared can be written by others (its mode is 0777)" in await reason(plugins, caplog)
    shared.chmod(0o700)
    assert await names(plugins) == ["a"]
    (shared / "run.sh").chmod(0o600)
    assert "cannot be run" in await reason(plugins, caplog)


@pytest.mark.parametrize("mode", [0o002, 0o020, 0o022])
@pytest.mark.parametrize("what", ["", "a", "a/tool.toml", "a/bin", "a/bin/run.sh", "a/main.py"])
async def test_what_others_can_write_is_left_out(
    plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture, what: str, mode: int
) -> None:
    folder = put(directory, "a", 'description = "Does."\ncommand = ["./bin/run.sh", "main.py", "--fast", "x\\ny"]')
    (folder / "bin").mkdir(mode=0o700)
    (folder / "run.sh").rename(folder / "bin" / "run.sh")
    (folder / "main.py").touch(mode=0o600)
    (plugin,) = await plugins.current()
    path = directory / what
    before = path.stat().st_mode & 0o777
    path.chmod(before | mode)
    assert not plugins.is_current(plugin) or not what
    said = await reason(plugins, caplog)
    assert f"{path} can be written by others (its mode is {before | mode:04o}); chmod go-w" in said
    path.chmod(before)
    assert await names(plugins) == ["a"]


@AS_ROOT
@pytest.mark.parametrize("what", ["", "a", "a/tool.toml", "a/run.sh"])
async def test_what_belongs_to_others_is_left_out(
    plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    put(directory, "a")
    assert await names(plugins) == ["a"]
    os.chown(directory / what, 12345, -1)
    words = f"{directory / what} belongs to the user 12345, and not to the gateway's (0)"
    assert words in await reason(plugins, caplog)
    os.chown(directory / what, 0, -1)
    assert await names(plugins) == ["a"]


async def test_a_program_elsewhere_has_to_be_trusted_too(
    plugins: Plugins, directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o700)
    put(directory, "a", f'description = "Does."\ncommand = ["{program}"]')
    assert await names(plugins) == ["a"]
    program.chmod(0o777)
    assert f"{program} can be written by others" in await reason(plugins, caplog)


async def test_a_directory_that_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "tools", "")
    plugins = Plugins(tmp_path / "tools", env={})
    assert (await reason(plugins, caplog)).endswith("tools: Not a directory")
    assert await plugins.current() == ()


async def test_the_directory_may_be_a_link(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o700)
        put(tmp_path / name, "a", description=name)
    link = tmp_path / "tools"
    link.symlink_to("one")
    plugins = Plugins(link, env={})
    assert [plugin.description for plugin in await plugins.current()] == ["one"]
    link.unlink()
    link.symlink_to("two")
    assert [plugin.description for plugin in await plugins.current()] == ["two"]


async def test_names_that_are_no_text(plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(directory, os.fsdecode(b"b\xff\n"), 'name = "b"\n' + TOML)
    put(directory, os.fsdecode(b"c\xff\n"))
    (plugin,) = await plugins.current()
    assert plugin.id == "b\\xff\\n"
    caplog.text.encode()
    assert "left out the plugin c\\xff\\n: " in caplog.text


async def test_a_thousand_and_one(plugins: Plugins, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST_PLUGINS + 1):
        put(directory, f"tool_{number:04}")
    found = await plugins.current()
    assert len(found) == MOST_PLUGINS == 1000
    assert found[-1].name == "tool_0999"
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == "left out plugins: of 1001 folders only 1000 are looked at, and not tool_1000 and so on"
    shutil.rmtree(directory / "tool_0000")
    after = await plugins.current()
    assert await plugins.current() is after
    assert after[-1].name == "tool_1000"
    assert after[:999] == found[1:]


async def test_many_ask_at_once(plugins: Plugins, directory: Path) -> None:
    put(directory, "a")
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(plugins.current()) for _ in range(20)]
    assert all(task.result() is asking[0].result() for task in asking)


async def test_who_stops_asking_stops_nobody(plugins: Plugins, directory: Path) -> None:
    put(directory, "a")
    for steps in range(6):
        write(directory / "a" / "tool.toml", TOML.format(description=f"{steps}"))
        impatient = asyncio.create_task(plugins.current())
        patient = asyncio.create_task(plugins.current())
        for _ in range(steps):
            await asyncio.sleep(0)
        impatient.cancel()
        (plugin,) = await patient
        assert plugin.description == f"{steps}"
        await asyncio.gather(impatient, return_exceptions=True)
