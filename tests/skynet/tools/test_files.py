import asyncio
import base64
import os
import re
import shutil
import stat
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.paths import Folder
from skynet.places import Places
from skynet.tools.files import (
    FILE_BYTES,
    IMAGE_BYTES,
    MOST_AT_ONCE,
    READ_CHARS,
    FileTools,
    SeenFiles,
    State,
    page,
    replaced,
)
from skynet_agent.tools import ToolContext, ToolFailed
from tests.skynet.tools.conftest import ADA, ADMIN, BOB, ELSEWHERE, World
from tests.support.polling import until

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class TestRead:
    async def test_the_text_of_a_file(self, world: World) -> None:
        (world.folder() / "notes.txt").write_text("one\ntwo ä 😀\n")
        assert await world.does("read_file", path="notes.txt") == "one\ntwo ä 😀"

    async def test_a_range_of_lines(self, world: World) -> None:
        """SK-090, BA-088."""
        (world.folder() / "lines").write_text("".join(f"line {number}\n" for number in range(1, 31)))
        text = await world.does("read_file", path="lines", offset=10, limit=11)
        body, note = text.rsplit("\n", 1)
        assert body.split("\n") == [f"line {number}" for number in range(10, 21)]
        assert note == "[lines 10-20 of 30, 143 characters left out; go on with offset 21]"

    async def test_a_long_file_is_cut_at_a_line_and_says_how_to_go_on(self, world: World) -> None:
        """SK-090."""
        lines = [f"{number:06d} {'x' * 42}" for number in range(1, 1001)]
        (world.folder() / "long").write_text("\n".join(lines))
        text = await world.does("read_file", path="long")
        assert len(text) <= READ_CHARS
        body, note = text.rsplit("\n", 1)
        assert body.split("\n") == lines[:594]
        assert note == "[lines 1-594 of 1000, 20300 characters left out; go on with offset 595]"
        rest = await world.does("read_file", path="long", offset=595)
        assert rest.split("\n")[:-1] == lines[594:]

    async def test_a_line_that_is_too_long_goes_on_in_its_middle(self, world: World) -> None:
        """SK-090."""
        line = "".join(chr(0x4E00 + number % 20_000) for number in range(40_000))
        (world.folder() / "line").write_text(f"{line}\nlast")
        first, note = (await world.does("read_file", path="line")).rsplit("\n", 1)
        assert first == line[:29_700]
        assert note.endswith("line 1 is shown up to column 29700; go on with offset 1, column 29701]")
        rest = await world.does("read_file", path="line", offset=1, column=29_701)
        assert rest.startswith(f"{line[29_700:]}\nlast\n[lines 1-2 of 2")

    async def test_what_is_behind_the_end_is_told(self, world: World) -> None:
        (world.folder() / "two").write_text("one\ntwo\n")
        assert "has 2 lines; offset 3 is behind its end" in await world.fails("read_file", path="two", offset=3)
        assert "line 2 has 3 characters" in await world.fails("read_file", path="two", offset=2, column=4)

    async def test_empty_and_blank_files(self, world: World) -> None:
        (world.folder() / "empty").touch()
        (world.folder() / "blank").write_text("\n\n\n")
        assert await world.does("read_file", path="empty") == "(the file is empty)"
        assert await world.does("read_file", path="blank") == "(nothing but blank lines)"

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\xef\xbb\xbfmark", "mark"),
            ("mark".encode("utf-16"), "mark"),
            (b"bad \xff byte", "bad \ufffd byte"),
            (b"one\r\ntwo\r\n", "one\ntwo"),
        ],
    )
    async def test_encodings(self, world: World, data: bytes, text: str) -> None:
        (world.folder() / "file").write_bytes(data)
        assert await world.does("read_file", path="file") == text

    async def test_binary_files_are_named_and_not_shown(self, world: World) -> None:
        (world.folder() / "a.zip").write_bytes(b"PK\x03\x04\x00\x00" + bytes(2000))
        assert await world.fails("read_file", path="a.zip") == (
            "a.zip is no text: a binary file, application/zip, 2.0 KiB"
        )

    async def test_images_are_shown(self, world: World) -> None:
        (world.folder() / "dot.png").write_bytes(PNG)
        answer = await world.call("read_file", path="dot.png")
        assert answer.text == f"dot.png: image/png, {len(PNG)} bytes"
        assert [(image.mime_type, base64.b64decode(image.data)) for image in answer.images] == [("image/png", PNG)]

    async def test_images_that_no_model_takes_are_not(self, world: World) -> None:
        (world.folder() / "big.png").write_bytes(PNG + bytes(IMAGE_BYTES))
        assert "too large to look at, the limit is 3.6 MiB" in await world.fails("read_file", path="big.png")

    async def test_of_a_very_large_file_what_can_be_read(self, world: World) -> None:
        with (world.folder() / "large").open("wb") as file:
            file.write(b"a line\n" * (FILE_BYTES // 7 + 100))
        text = await world.does("read_file", path="large", limit=1)
        assert text.startswith("a line\n[lines 1-1 of ")
        assert text.endswith("the file is larger than 8.0 MiB, what is behind that cannot be read]")

    async def test_folders_and_what_is_missing(self, world: World) -> None:
        (world.folder() / "folder").mkdir()
        assert "list_files shows what is in it" in await world.fails("read_file", path="folder")
        assert await world.fails("read_file", path="no\nfile") == "no\\nfile: No such file or directory"

    async def test_numbers_that_are_whole_in_json_only(self, world: World) -> None:
        (world.folder() / "two").write_text("one\ntwo\n")
        assert (await world.does("read_file", path="two", offset=2.0)).startswith("two\n")


@given(
    st.lists(st.text(alphabet="ab ä😀", max_size=12), min_size=1, max_size=40),
    st.integers(1, 45),
    st.one_of(st.none(), st.integers(1, 45)),
    st.booleans(),
)
def test_any_page_is_those_lines(lines: list[str], first: int, limit: int | None, ends: bool) -> None:
    text = "\n".join(lines) + "\n" * ends
    if not text.strip():
        return
    total = text.removesuffix("\n").split("\n")
    if first > len(total):
        with pytest.raises(ToolFailed, match=f"has {len(total)} lines"):
            page(text, "f", first=first, limit=limit, column=1)
        return
    wanted = total[first - 1 : None if limit is None else first - 1 + limit]
    shown = page(text, "f", first=first, limit=limit, column=1)
    body = "\n".join(wanted) if "".join(wanted).strip() else "(nothing but blank lines)"
    if len(wanted) == len(total):
        assert shown == body
    else:
        assert shown.startswith(f"{body}\n[lines {first}-{first + len(wanted) - 1} of {len(total)}, ")
        assert ("go on" in shown) == (first + len(wanted) - 1 < len(total))


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=8))
def test_pages_lead_through_any_file(lengths: list[int]) -> None:
    """Who goes on as the notes say has read all of it, and no page is longer than the limit."""
    text = "\n".join(chr(97 + number) * length for number, length in enumerate(lengths)).rstrip("\n")
    offset, column, read = 1, 1, ""
    while text.strip():
        shown = page(text, "f", first=offset, limit=None, column=column)
        assert len(shown) <= READ_CHARS
        body, _, note = shown.partition("\n[lines ")
        read += body.replace("(nothing but blank lines)", "")
        on = re.search(r"go on with offset (\d+)(?:, column (\d+))?\]$", note)
        if on is None:
            break
        offset, column = int(on[1]), int(on[2] or 1)
        read += "" if on[2] else "\n"
    assert read.replace("\n", "") == text.replace("\n", "")


class TestWrite:
    async def test_a_file_and_the_folders_it_needs(self, world: World) -> None:
        """SK-091, BA-089."""
        assert await world.does("write_file", path="a/b/c.txt", content="täglich\n") == "a/b/c.txt: created, 9 bytes"
        assert (world.folder() / "a/b/c.txt").read_text() == "täglich\n"
        assert stat.S_IMODE((world.folder() / "a/b/c.txt").stat().st_mode) == 0o600

    async def test_its_own_file_again(self, world: World) -> None:
        """SK-091."""
        await world.does("write_file", path="a", content="1")
        assert await world.does("write_file", path="a", content="2") == "a: replaced, 1 bytes"
        assert (world.folder() / "a").read_text() == "2"

    async def test_a_file_that_was_never_read_is_left_alone(self, world: World) -> None:
        (world.folder() / "a").write_text("precious")
        assert "was not read in this session: read it first" in await world.fails("write_file", path="a", content="x")
        assert (world.folder() / "a").read_text() == "precious"
        await world.does("read_file", path="a")
        await world.does("write_file", path="a", content="x")
        assert (world.folder() / "a").read_text() == "x"

    async def test_each_session_has_to_read_for_itself(self, world: World) -> None:
        await world.does("write_file", path="a", content="1")
        assert "read it first" in await world.fails("write_file", ELSEWHERE, path="a", content="x")

    async def test_a_file_that_changed_since_it_was_read(self, world: World) -> None:
        """SK-199."""
        path = world.folder() / "a"
        await world.does("write_file", path="a", content="1")
        path.write_text("2")
        assert "has changed since it was last read" in await world.fails("write_file", path="a", content="x")
        assert path.read_text() == "2"

    async def test_so_is_one_of_the_same_size_and_time(self, world: World) -> None:
        """SK-199."""
        path = world.folder() / "a"
        await world.does("write_file", path="a", content="1")
        times = path.stat()
        path.write_text("2")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert "has changed since it was last read" in await world.fails("write_file", path="a", content="x")
        assert path.read_text() == "2"

    async def test_a_link_to_it_is_the_same_file(self, world: World) -> None:
        await world.does("write_file", path="folder/a", content="1")
        (world.folder() / "link").symlink_to("folder")
        await world.does("write_file", path="link/a", content="2")
        assert (world.folder() / "folder/a").read_text() == "2"

    async def test_a_file_that_went_away_is_made_anew(self, world: World) -> None:
        await world.does("write_file", path="a", content="1")
        (world.folder() / "a").unlink()
        assert "created" in await world.does("write_file", path="a", content="2")

    async def test_no_folder_and_no_half_character(self, world: World) -> None:
        (world.folder() / "folder").mkdir()
        assert "is a folder" in await world.fails("write_file", path="folder", content="x")
        assert "the name of a folder" in await world.fails("write_file", path="folder/", content="x")
        assert "half a character" in await world.fails("write_file", path="a", content="x\ud800")
        assert not (world.folder() / "a").exists()

    async def test_not_more_than_can_be_read(self, world: World) -> None:
        words = await world.fails("write_file", path="a", content="x" * (FILE_BYTES + 1))
        assert words == "the file would have 8.0 MiB, the limit is 8.0 MiB"

    async def test_a_name_the_file_system_does_not_take(self, world: World) -> None:
        (world.folder() / "file").touch()
        assert await world.fails("write_file", path="file/x", content="x") == "file/x: Not a directory"

    async def test_people_have_different_folders(self, world: World) -> None:
        await world.does("write_file", ADA, path="a", content="of ada")
        await world.does("write_file", BOB, path="a", content="of bob")
        assert await world.does("read_file", ADA, path="a") == "of ada"


class TestPatch:
    async def test_one_passage(self, world: World) -> None:
        """SK-095, BA-090."""
        path = world.folder() / "a.py"
        path.write_text("one = 1\ntwo = 2\n")
        path.chmod(0o755)
        words = await world.does("patch_file", path="a.py", old_text="two = 2", new_text="two = 3")
        assert words == "a.py: replaced 1 passage, the first in line 2"
        assert path.read_text() == "one = 1\ntwo = 3\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o755

    async def test_what_is_not_there(self, world: World) -> None:
        """SK-095."""
        (world.folder() / "a").write_text("one")
        assert "(0 matches), nothing was changed" in await world.fails(
            "patch_file", path="a", old_text="two", new_text="x"
        )
        assert (world.folder() / "a").read_text() == "one"

    async def test_what_is_there_more_than_once(self, world: World) -> None:
        """SK-095, BA-090."""
        path = world.folder() / "a"
        path.write_text("x y x y x")
        assert "3 times, nothing was changed" in await world.fails("patch_file", path="a", old_text="x", new_text="z")
        assert path.read_text() == "x y x y x"
        words = await world.does("patch_file", path="a", old_text="x", new_text="z", replace_all=True)
        assert words == "a: replaced 3 passages, the first in line 1"
        assert path.read_text() == "z y z y z"

    async def test_a_touch_between_read_and_edit_is_a_change(self, world: World) -> None:
        """SK-199."""
        path = world.folder() / "a"
        path.write_text("one")
        await world.does("read_file", path="a")
        os.utime(path, ns=(0, 0))
        assert "has changed since it was last read" in await world.fails(
            "patch_file", path="a", old_text="one", new_text="x"
        )
        await world.does("read_file", path="a")
        await world.does("patch_file", path="a", old_text="one", new_text="x")

    async def test_so_is_other_content_of_the_same_size_and_time(self, world: World) -> None:
        path = world.folder() / "a"
        path.write_text("one")
        await world.does("read_file", path="a")
        times = path.stat()
        path.write_text("two")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert "has changed" in await world.fails("patch_file", path="a", old_text="two", new_text="x")

    async def test_an_exact_passage_needs_no_reading_but_is_none(self, world: World) -> None:
        (world.folder() / "a").write_text("one two")
        await world.does("patch_file", path="a", old_text="one", new_text="1")
        assert "read it first" in await world.fails("write_file", path="a", content="x")

    async def test_several_at_once_lose_nothing(self, world: World) -> None:
        path = world.folder() / "a"
        path.write_text("".join(f"<{number}>\n" for number in range(20)))
        await world.does("read_file", path="a")
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(world.does("patch_file", path="a", old_text=f"<{number}>", new_text=f"[{number}]"))
        assert path.read_text() == "".join(f"[{number}]\n" for number in range(20))

    @pytest.mark.parametrize(
        ("before", "old", "new", "after"),
        [
            (b"one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\nand", b"1\r\n2\r\nand\r\nthree\r\n"),
            (b"one\ntwo\r\nthree\r\n", "two\nthree", "2\n3", b"one\n2\r\n3\r\n"),
            (b"one\ntwo\r\n", "one\n", "1\n", b"1\ntwo\r\n"),
            (b"\xef\xbb\xbfone\n", "one", "1", b"\xef\xbb\xbf1\n"),
            (b"bad \xff byte\n", "byte", "bytes", b"bad \xff bytes\n"),
        ],
    )
    async def test_all_other_bytes_stay(self, world: World, before: bytes, old: str, new: str, after: bytes) -> None:
        path = world.folder() / "a"
        path.write_bytes(before)
        await world.does("patch_file", path="a", old_text=old, new_text=new)
        assert path.read_bytes() == after

    async def test_what_cannot_be_patched(self, world: World) -> None:
        folder = world.folder()
        (folder / "wide").write_text("one", encoding="utf-16")
        (folder / "binary").write_bytes(b"one\0")
        (folder / "same").write_text("one")
        for path, words in (("wide", "UTF-16"), ("binary", "is no text"), ("same", "are the same"), ("no", "No such")):
            new = "one" if path == "same" else "x"
            assert words in await world.fails("patch_file", path=path, old_text="one", new_text=new)
        assert "half a character" in await world.fails("patch_file", path="same", old_text="one", new_text="\udcff")

    async def test_nothing_that_grows_without_bounds(self, world: World) -> None:
        (world.folder() / "a").write_text("x" * 100_000)
        words = await world.fails("patch_file", path="a", old_text="x", new_text="y" * 100_000, replace_all=True)
        assert "the limit is 8.0 MiB" in words


@given(st.text(alphabet="ab\n", max_size=30), st.text(alphabet="ab\n", min_size=1, max_size=4), st.booleans())
def test_any_replacement_is_pythons_own(text: str, old: str, replace_all: bool) -> None:
    count = text.count(old)
    starts = [n for n in range(len(text)) if text.startswith(old, n)]
    if not starts or (len(starts) > 1 and not replace_all):
        with pytest.raises(ToolFailed, match="nothing was changed"):
            replaced(text, old, "new", path="f", replace_all=replace_all)
        return
    result, times, line = replaced(text, old, "new", path="f", replace_all=replace_all)
    assert (result, times) == (text.replace(old, "new"), count)
    assert line == text[: starts[0]].count("\n") + 1
    windows, _, _ = replaced(text.replace("\n", "\r\n"), old, "new", path="f", replace_all=replace_all)
    assert windows == result.replace("\n", "\r\n")


class TestWorkspaceFiles:
    """The assistant's own files are not for these tools, by whatever way they are reached (W8)."""

    @pytest.mark.parametrize("name", ["SOUL.md", "USER.md", "anything.md", ".first-run", "soul.MD"])
    async def test_a_root_that_is_the_workspace(self, world: World, name: str) -> None:
        world.workspace.create()
        path = world.home / "workspace" / name
        before = path.read_bytes() if path.exists() else None
        for tool, arguments in (
            ("write_file", {"content": "x"}),
            ("patch_file", {"old_text": "You", "new_text": "x"}),
        ):
            words = (await world.call(tool, ADMIN, path=str(path), **arguments)).text
            assert "use workspace_update" in words
        assert (path.read_bytes() if path.exists() else None) == before

    async def test_what_is_no_prompt_there_is_written(self, world: World) -> None:
        world.workspace.create()
        await world.does("write_file", ADMIN, path=str(world.home / "workspace" / "data.json"), content="{}")
        await world.does("write_file", ADMIN, path=str(world.home / "workspace" / "docs" / "a.md"), content="x")

    async def test_a_folder_that_has_the_workspace_in_it(self, world: World, tmp_path: Path) -> None:
        from skynet.places import Places
        from skynet.tools import built_in_tools
        from skynet_agent.tools import Toolbox
        from skynet_agent.workspace import Workspace

        own = tmp_path / "own"
        workspace = Workspace(world.home, workspace_dir=own / "deep" / "workspace", soul_path=own / "soul.txt")
        places = Places(lambda context: own, protected=workspace.protects)
        tools = built_in_tools(places=places, workspace=workspace)
        toolbox = Toolbox(tools, permits=lambda context, tool: None)
        inner = replace(world, workspace=workspace, places=places, toolbox=toolbox)
        (tmp_path / "own" / "link").parent.mkdir()
        (tmp_path / "own" / "link").symlink_to("deep/workspace")
        for path in ("deep/workspace/SOUL.md", "deep/../deep/workspace/NEW.md", "link/SOUL.md", "soul.txt"):
            assert "use workspace_update" in await inner.fails("write_file", path=path, content="x")
        await inner.does("write_file", path="deep/SOUL.md", content="x")


def test_only_the_newest_states_are_remembered(tmp_path: Path) -> None:
    seen = SeenFiles(most=2)
    state = State(1, 2, 3, b"")
    with Folder(tmp_path).place("a") as a, Folder(tmp_path).place("b") as b, Folder(tmp_path).place("c") as c:
        for place in (a, b, c):
            seen.note(ADA, place, state)
        assert [seen.get(ADA, place) for place in (a, b, c)] == [None, state, state]
        assert seen.get(BOB, c) is None


async def test_a_cancelled_write_changes_nothing(world: World) -> None:
    """BA-089: cancelled at any moment, a file is the old or the new one, and nothing lies about."""
    path = world.folder() / "a"
    await world.does("write_file", path="a", content="old")
    for steps in range(12):
        writing = asyncio.create_task(world.call("write_file", path="a", content="new"))
        for _ in range(steps):
            await asyncio.sleep(0)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    await world.call("read_file", path="a")
    await world.does("write_file", path="b", content="x")  # takes its turn after all of them
    assert path.read_text() in ("old", "new")
    assert sorted(entry.name for entry in world.folder().iterdir()) == ["a", "b"]


class TestRace:
    async def test_a_folder_that_becomes_a_link_to_the_outside(self, world: World) -> None:
        folder, outside = world.folder(), world.folder(BOB)
        (outside / "secret.txt").write_text("secret")
        (outside / "of-bob").touch()
        (folder / "deep").mkdir()
        (folder / "deep" / "secret.txt").write_text("mine")
        (folder / "link").symlink_to(outside)
        is_over = threading.Event()

        def flip() -> None:
            while not is_over.is_set():
                (folder / "deep").rename(folder / "away")
                with suppress(OSError):  # write_file made a folder where none was
                    (folder / "link").rename(folder / "deep")
                    (folder / "deep").rename(folder / "link")
                while (folder / "away").exists():
                    with suppress(OSError):
                        shutil.rmtree(folder / "deep")
                    with suppress(OSError):
                        (folder / "away").rename(folder / "deep")

        thread = threading.Thread(target=flip)
        thread.start()
        try:
            for number in range(150):
                assert (await world.call("read_file", path="deep/secret.txt")).text != "secret"
                assert "of-bob" not in (await world.call("list_files", recursive=True)).text
                assert "secret.txt:1" not in (await world.call("search_files", query="secret")).text
                await world.call("write_file", path=f"deep/new{number}", content="x")
                await world.call("patch_file", path="deep/secret.txt", old_text="secret", new_text="x")
        finally:
            is_over.set()
            thread.join()
        assert sorted(entry.name for entry in outside.iterdir()) == ["of-bob", "secret.txt"]
        assert (outside / "secret.txt").read_text() == "secret"


async def test_one_person_does_not_take_all_threads(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    waiting, gate = [0], threading.Event()

    def folder_of(context: ToolContext) -> Path:
        if context is ADA:
            waiting[0] += 1
            gate.wait(10)
        return tmp_path

    tools = FileTools(Places(folder_of))
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(tools.read(ADA, {"path": "a"})) for _ in range(20)]
        await until(lambda: waiting == [MOST_AT_ONCE])
        assert await tools.read(BOB, {"path": "a"}) == "x"
        assert waiting == [MOST_AT_ONCE] and not any(call.done() for call in calls)
        gate.set()
    assert waiting == [20]
