import asyncio
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.places import Places
from skynet.tools.search import MOST_WALKS, SEARCHED_BYTES, SearchTools, finder, matches
from skynet_agent.tools import Toolbox
from skynet_agent.workspace import Workspace
from skynet_memory.ids import UserId
from tests.skynet.tools.conftest import ADA, ADMIN, BOB, World
from tests.support.polling import until

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d"


def names(listing: str) -> list[str]:
    return [line.split(" (")[0] for line in listing.split("\n") if not line.startswith("[")]


class TestList:
    async def test_names_types_sizes_and_times(self, world: World) -> None:
        """SK-092, BA-091."""
        folder = world.folder()
        (folder / "b.txt").write_text("12345")
        (folder / "a").mkdir()
        (folder / ".hidden").touch()
        (folder / "link").symlink_to("/etc/passwd")
        os.mkfifo(folder / "fifo")
        os.utime(folder / "b.txt", (1_700_000_000, 1_700_000_000))
        lines = (await world.does("list_files")).split("\n")
        assert re.fullmatch(rf"\.hidden \(file, 0 bytes, {TIME}\)", lines[0])
        assert re.fullmatch(rf"a/ \(folder, {TIME}\)", lines[1])
        assert lines[2] == "b.txt (file, 5 bytes, 2023-11-14 22:13)"
        assert re.fullmatch(rf"fifo \(device, socket or pipe, {TIME}\)", lines[3])
        assert re.fullmatch(rf"link \(link, {TIME}\)", lines[4])

    async def test_at_most_a_thousand(self, world: World) -> None:
        """SK-092."""
        for number in range(1500):
            (world.folder() / f"{number:04d}").touch()
        listing = await world.does("list_files")
        assert names(listing) == [f"{number:04d}" for number in range(1000)]
        assert listing.endswith(
            "[the first 1000 of 1500 entries; for the others list a folder of these, or give a glob]"
        )

    async def test_fewer_if_their_names_are_very_long(self, world: World) -> None:
        for number in range(900):
            (world.folder() / f"{number:04d}{'x' * 250}").touch()
        listing = await world.does("list_files")
        assert len(listing) < 101_000
        assert re.search(r"the first 3\d\d of 900 entries", listing)

    async def test_recursively_in_order_without_what_is_in_git(self, world: World) -> None:
        for path in ("a/b/c.txt", "a.txt", ".git/objects/x", "sub/.git/y", "z/z"):
            (world.folder() / path).parent.mkdir(parents=True, exist_ok=True)
            (world.folder() / path).touch()
        (world.folder() / "loop").symlink_to(".")
        assert names(await world.does("list_files", recursive=True)) == [
            *(".git/", "a/", "a/b/", "a/b/c.txt", "a.txt", "loop", "sub/", "sub/.git/", "z/", "z/z")
        ]
        assert names(await world.does("list_files", recursive=True, depth=2)) == [
            *(".git/", "a/", "a/b/", "a.txt", "loop", "sub/", "sub/.git/", "z/", "z/z")
        ]
        assert names(await world.does("list_files")) == [".git/", "a/", "a.txt", "loop", "sub/", "z/"]

    async def test_a_folder_in_it_or_one_file(self, world: World) -> None:
        (world.folder() / "a/b").mkdir(parents=True)
        (world.folder() / "a/b/c").touch()
        assert names(await world.does("list_files", path="a")) == ["b/"]
        assert names(await world.does("list_files", path="a/b/c")) == ["c"]
        assert "No such file" in await world.fails("list_files", path="no")

    async def test_nothing(self, world: World) -> None:
        (world.folder() / "a").mkdir()
        assert await world.does("list_files", path="a") == "a is empty"
        assert await world.does("list_files", glob="*.py") == "the folder has nothing like *.py"

    async def test_by_a_pattern(self, world: World) -> None:
        """BA-093."""
        for path in ("x.py", "a/y.py", "a/b/z.py", "a/b/z.txt"):
            (world.folder() / path).parent.mkdir(parents=True, exist_ok=True)
            (world.folder() / path).touch()
        assert names(await world.does("list_files", glob="*.py")) == ["x.py"]
        assert names(await world.does("list_files", glob="*.py", recursive=True)) == ["a/b/z.py", "a/y.py", "x.py"]
        assert names(await world.does("list_files", glob="**/*.py")) == ["a/b/z.py", "a/y.py", "x.py"]

    async def test_names_that_would_be_lines_of_their_own(self, world: World) -> None:
        (world.folder() / "a\nb (file, 1 bytes)").touch()
        assert (await world.does("list_files")).startswith("a\\nb (file, 1 bytes) (file, 0 bytes, ")

    async def test_what_is_deeper_than_can_be_reached_is_said(self, world: World) -> None:
        (world.folder() / ("d/" * 66)).mkdir(parents=True)
        listing = await world.does("list_files", recursive=True)
        assert len(names(listing)) == 64
        assert listing.endswith("[folders more than 64 deep were left out]")


class TestSearch:
    async def test_finds_what_is_planted(self, world: World) -> None:
        """SK-093."""
        for path, text in {
            "a.txt": "nothing\nthe needle here\n",
            "deep/er/b.txt": "needle\r\nneedle needle\n",
            ".hidden": "a needle without an end",
            "c.txt": "Needle\n",
            ".git/config": "needle\n",
            "deep/.git/x": "needle\n",
        }.items():
            (world.folder() / path).parent.mkdir(parents=True, exist_ok=True)
            (world.folder() / path).write_text(text)
        (world.folder() / "binary").write_bytes(b"\0needle\n")
        (world.folder() / "link").symlink_to("a.txt")
        assert (await world.does("search_files", query="needle")).split("\n") == [
            ".hidden:1: a needle without an end",
            "a.txt:2: the needle here",
            "deep/er/b.txt:1: needle",
            "deep/er/b.txt:2: needle needle",
        ]
        assert "c.txt:1: Needle" in await world.does("search_files", query="nEEDLE", ignore_case=True)
        assert await world.does("search_files", query="nEEDLE") == "no match for nEEDLE"
        assert await world.does("search_files", query="needle", path="deep", glob="*.txt") == (
            "deep/er/b.txt:1: needle\ndeep/er/b.txt:2: needle needle"
        )
        assert await world.does("search_files", query="needle", path="a.txt") == "a.txt:2: the needle here"

    async def test_what_it_finds_can_be_read_as_it_is_named(self, world: World, shared: Path) -> None:
        (shared / "deep").mkdir()
        (shared / "deep" / "a").write_text("needle")
        found = await world.does("search_files", ADMIN, query="needle", path=str(shared))
        path = found.split(":")[0]
        assert path == str(shared / "deep" / "a")
        assert await world.does("read_file", ADMIN, path=path) == "needle"

    async def test_at_most_a_hundred(self, world: World) -> None:
        """SK-093."""
        (world.folder() / "a").write_text("needle\n" * 60)
        (world.folder() / "b").write_text("needle\n" * 41)
        lines = (await world.does("search_files", query="needle")).split("\n")
        assert len(lines) == 101
        assert lines[-1].startswith("[the first 100 matches, there are more")
        (world.folder() / "b").write_text("needle\n" * 40)
        assert len((await world.does("search_files", query="needle")).split("\n")) == 100

    async def test_long_lines_are_shown_around_the_match(self, world: World) -> None:
        (world.folder() / "a").write_text("x" * 5000 + "needle" + "y" * 5000)
        found = await world.does("search_files", query="needle")
        assert len(found) < 320 and found.startswith("a:1: …x") and "xneedley" in found and found.endswith("y…")

    async def test_only_the_beginning_of_a_large_file(self, world: World) -> None:
        with (world.folder() / "large").open("wb") as file:
            file.write(b"first needle\n")
            file.truncate(9 * 1024 * 1024)
        with (world.folder() / "text").open("wb") as file:
            file.write(b"first needle\n" + b"x" * 1023 * 9 * 1024 + b"\nlast needle\n")
        found = await world.does("search_files", query="needle")
        assert found == "text:1: first needle\n[of 1 large file only the first 8 MiB were searched]"

    async def test_no_line_breaks_and_no_half_characters(self, world: World) -> None:
        assert "line break" in await world.fails("search_files", query="a\nb")
        assert "half a character" in await world.fails("search_files", query="\ud800")

    async def test_text_that_is_a_pattern_elsewhere(self, world: World) -> None:
        (world.folder() / "a").write_text("price (a+)+$ [x]\n")
        for query in ("(a+)+$", "[x]"):
            for ignore_case in (False, True):
                assert "a:1:" in await world.does("search_files", query=query, ignore_case=ignore_case)

    async def test_it_ends_when_its_time_is_up_and_says_so(self, world: World) -> None:
        for name in "abc":
            (world.folder() / name).write_text("needle\n")
        ticks = iter([0.0, 0.0, 0.0, 31.0])
        tools = SearchTools(world.places, clock=lambda: next(ticks))
        box = Toolbox(tools.tools(), permits=lambda context, tool: None)
        inner = replace(world, toolbox=box)
        found = await inner.does("search_files", query="needle")
        assert found == "a:1: needle\nb:1: needle\n[stopped after 30 seconds]"


class Gate:
    """A folder that can be asked for only once the gate is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = threading.Event()
        self.waiting = 0

    def folder_of(self, context: object) -> Path:
        self.waiting += 1
        self._open.wait(10)
        return self._folder

    def open(self) -> None:
        self._open.set()


class TestManyAtOnce:
    async def test_only_so_many_take_a_thread(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path)
        tools = SearchTools(Places(gate.folder_of))
        async with asyncio.TaskGroup() as group:
            people = [replace(ADA, user_id=UserId(f"person-{number}")) for number in range(6)]
            searches = [group.create_task(tools.search(person, {"query": "x"})) for person in people]
            await until(lambda: gate.waiting == MOST_WALKS)
            assert not any(search.done() for search in searches)
            gate.open()
        assert gate.waiting == 6

    async def test_one_person_does_not_keep_the_others_waiting(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path)
        places = Places(lambda context: gate.folder_of(context) if context is ADA else tmp_path)
        tools = SearchTools(places)
        async with asyncio.TaskGroup() as group:
            mine = [group.create_task(tools.search(ADA, {"query": "x"})) for _ in range(MOST_WALKS * 3)]
            await until(lambda: gate.waiting == 1)
            assert await tools.search(BOB, {"query": "x"}) == "no match for x"
            assert (gate.waiting, any(search.done() for search in mine)) == (1, False)
            gate.open()
        assert gate.waiting == len(mine)

    async def test_one_that_is_cancelled_stops_and_makes_room(self, tmp_path: Path) -> None:
        """The thread ends too: nobody would hear what it finds."""
        (tmp_path / "a").write_bytes(b"line\n" * 1_000_000)
        looked, gone = 0, threading.Event()

        def clock() -> float:
            nonlocal looked
            looked += 1
            if looked > 10:
                gone.wait(10)
            return 0.0

        tools = SearchTools(Places(lambda context: tmp_path), clock=clock)
        searches = [asyncio.create_task(tools.search(ADA, {"query": "x"})) for _ in range(4)]
        await until(lambda: looked > 10)
        for search in searches:
            search.cancel()
        gone.set()
        results = await asyncio.gather(*searches, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert await tools.search(ADA, {"query": "x", "glob": "none"}) == "no match for x"


@pytest.mark.parametrize(
    ("path", "glob", "is_match"),
    [
        ("a/b.py", "*.py", True),
        ("a/b.py", "a/*.py", True),
        ("a/b/c.py", "a/*.py", False),
        ("a/b/c.py", "a/**/c.py", True),
        ("a/c.py", "a/**/c.py", True),
        ("c.py", "**/c.py", True),
        ("a/b/c", "a/**", True),
        ("a/b/c", "**", True),
        ("a/b/c", "**/b/**", True),
        ("a/b/c", "/a/b/c", True),
        ("a/b/c", "a/[ab]/?", True),
        ("A.py", "a.py", False),
        ("a", "a/b", False),
    ],
)
def test_patterns(path: str, glob: str, is_match: bool) -> None:
    assert matches(path, glob) == is_match


@given(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", "*", "**"]), max_size=5),
)
def test_any_pattern_is_as_its_regular_expression(path: list[str], glob: list[str]) -> None:
    if len(glob) < 2:
        return
    pattern = "".join({"*": "[^/]/", "**": "(?:[^/]/)*"}.get(part, f"{part}/") for part in glob)
    assert matches("/".join(path), "/".join(glob)) == bool(re.fullmatch(pattern, "/".join(path) + "/"))


def test_patterns_that_are_made_to_take_long_do_not() -> None:
    assert not matches("a" * 255, "*a" * 200 + "b")
    assert not matches("/".join("a" * 64), "/".join(["**", "a"] * 60) + "/b")


@pytest.mark.parametrize("ignore_case", [False, True])
def test_no_text_takes_long_to_search(ignore_case: bool) -> None:
    """A regular expression takes 28 s for this, and no other thread runs meanwhile."""
    find = finder("a" * 999 + "b", ignore_case=ignore_case)
    begun_s = time.process_time()
    assert find(b"a" * SEARCHED_BYTES) is None
    assert time.process_time() - begun_s < 2


@pytest.mark.parametrize("before", ["x", "ß", "İ"])
def test_of_a_long_line_the_match_is_shown_whatever_becomes_of_the_others(before: str) -> None:
    found = finder("NEEDLE", ignore_case=True)(f"{before * 1000} needle {before * 1000}".encode())
    assert found is not None and " needle " in found


@given(st.text(alphabet="aAbßİ ", max_size=30), st.text(alphabet="aAbßİ ", min_size=1, max_size=3))
def test_what_is_found_is_there(line: str, query: str) -> None:
    exact: Callable[[bytes], str | None] = finder(query, ignore_case=False)
    assert (exact(line.encode()) is not None) == (query in line)
    if query in line:
        assert finder(query, ignore_case=True)(line.encode()) is not None


async def test_a_search_does_not_enter_the_gateways_own_directory(world: World, tmp_path: Path) -> None:
    Workspace(world.home, workspace_dir=world.home / "workspace").create()
    (world.folder() / "a").write_text("needle")
    found = await world.call("search_files", ADMIN, query="needle", path=str(tmp_path))
    assert "no match for needle" in found.text
    assert str(world.folder()) not in found.text
