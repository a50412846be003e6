from tests.skynet.tools.conftest import ADMIN, World


async def test_reads_and_writes_the_files_the_assistant_is_made_of(world: World) -> None:
    assert await world.does("workspace_update", ADMIN, action="read", file="SOUL.md") == "(SOUL.md is not there yet)"
    words = await world.does("workspace_update", ADMIN, action="write", file="SOUL.md", content="Be brief.")
    assert words == "SOUL.md: written, 9 characters; it holds from the next message on"
    assert await world.does("workspace_update", ADMIN, action="read", file="SOUL.md") == "Be brief."
    assert "Be brief." in world.workspace.text


async def test_finishes_the_bootstrap(world: World) -> None:
    """SK-109, SK-110."""
    world.workspace.create()
    identity = "- Name: Ferdinand"
    await world.does("workspace_update", ADMIN, action="write", file="IDENTITY.md", content=identity)
    assert await world.does("workspace_update", ADMIN, action="finish_bootstrap") == "the bootstrap is finished"
    assert not world.workspace.is_first_run
    assert identity in world.workspace.text
    assert "BOOTSTRAP" not in world.workspace.text
    words = await world.does("workspace_update", ADMIN, action="finish_bootstrap")
    assert words == "the bootstrap was finished before"


async def test_says_what_is_missing_or_wrong(world: World) -> None:
    assert "name it in file" in await world.fails("workspace_update", ADMIN, action="read")
    assert "whole new text" in await world.fails("workspace_update", ADMIN, action="write", file="SOUL.md")
    for name in ("BOOTSTRAP.md", "../skynet.toml", "notes.md"):
        assert "arguments are wrong" in await world.fails("workspace_update", ADMIN, action="read", file=name)
    for text in ("x" * 20_001, "\ud800"):
        await world.fails("workspace_update", ADMIN, action="write", file="SOUL.md", content=text)
    assert not (world.home / "workspace" / "SOUL.md").exists()


async def test_a_folder_in_its_place_is_told_without_its_path(world: World) -> None:
    (world.home / "workspace" / "SOUL.md").mkdir(parents=True)
    assert await world.fails("workspace_update", ADMIN, action="read", file="SOUL.md") == "SOUL.md: it is no file"
    words = await world.fails("workspace_update", ADMIN, action="write", file="SOUL.md", content="x")
    assert words == "SOUL.md: Is a directory"
