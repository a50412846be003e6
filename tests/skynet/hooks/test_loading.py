"""Hooks from files and packages: in the order of their names, refused with file and line, believed only if private."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skynet.hooks import (
    BeforeMessage,
    BeforeToolCall,
    HookBus,
    HooksRefused,
    MessageReceived,
    MessageSent,
    Stopped,
    load_hooks,
    thawed,
)
from skynet.hooks.files import FILE_BYTES
from skynet.supervisor import Supervisor
from tests.skynet.hooks.support import message, tool_call

APPEND = """
from dataclasses import replace
from skynet.hooks import BeforeMessage, on

@on(BeforeMessage, priority={priority})
async def append(event):
    return replace(event, text=event.text + "{text}")
"""


@pytest.fixture
async def bus() -> AsyncIterator[HookBus]:
    async with Supervisor() as tasks, HookBus(tasks) as bus:
        yield bus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "hooks"
    folder.mkdir(0o700)
    return folder


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    """No module of a test is seen by another."""
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        if name.startswith(("skynet_hooks.", "some_package")):
            del sys.modules[name]


def put(folder: Path, name: str, text: str, mode: int = 0o600) -> Path:
    path = folder / name
    path.parent.mkdir(0o700, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def problems(bus: HookBus, folder: Path) -> list[str]:
    with pytest.raises(HooksRefused) as caught:
        load_hooks(bus, folder)
    lines = str(caught.value).splitlines()
    assert lines[:-1] == [str(problem) for problem in caught.value.problems]
    assert 'on_error = "skip"' in lines[-1]
    assert not any(map(bus.has, (BeforeMessage, BeforeToolCall, MessageReceived, MessageSent)))
    return lines[:-1]


async def test_there_need_not_be_a_folder(bus: HookBus, tmp_path: Path) -> None:
    load_hooks(bus, tmp_path / "hooks")
    assert not bus.has(BeforeMessage)


class TestPython:
    async def test_files_are_loaded_in_the_order_of_their_names(self, bus: HookBus, folder: Path) -> None:
        """SK-143: priority first; ties keep the order in which they were loaded."""
        put(folder, "c.py", APPEND.format(text="c", priority=0))
        put(folder, "a.py", APPEND.format(text="a", priority=0))
        put(folder, "b.py", APPEND.format(text="b", priority=-1))
        put(folder, "d.py", APPEND.format(text="d", priority=9))
        load_hooks(bus, folder)
        assert (await bus.ask(message(""))).text == "dacb"

    async def test_all_of_a_file_is_loaded_once(self, bus: HookBus, folder: Path) -> None:
        put(
            folder,
            "mine.py",
            """
from __future__ import annotations
from dataclasses import dataclass, replace
from skynet.hooks import *

@dataclass
class Word:
    text: str

@on(BeforeMessage)
def first(event):
    return replace(event, text=event.text + Word("1").text)

@on(MessageReceived)
@on(BeforeMessage)
async def second(event):
    return replace(event, text=event.text + __name__)

again = first
""",
        )
        load_hooks(bus, folder)
        assert (await bus.ask(message(""))).text == "1skynet_hooks.mine"
        assert bus.has(MessageReceived)
        assert not bus.has(MessageSent)

    async def test_what_is_not_meant_is_left_alone(self, bus: HookBus, folder: Path) -> None:
        for name in ("_shared.py", ".hidden.py", "old.py~", "README.md", "notes.txt", "__pycache__/x.py", "more/y.py"):
            put(folder, name, "raise RuntimeError")
        before = files_below(folder)
        load_hooks(bus, folder)
        assert files_below(folder) == before

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("import os\n\nnowhere()\n", ":3", "NameError: name 'nowhere' is not defined"),
            ("x = 1\ndef f(:\n", ":2", "SyntaxError: invalid syntax"),
            ("import no_such_module\n", ":1", "ModuleNotFoundError: No module named 'no_such_module'"),
            ("def f():\n    import json\n    json.loads('x')\nf()\n", ":3", "JSONDecodeError: Expecting value"),
            ("import sys\nsys.exit(3)\n", ":2", "SystemExit: 3"),
            ("x = 1\n", "", "there is no hook in it: no function is marked with @on(…)"),
            ("from skynet.hooks import *\n@on(BeforeMessage)\ndef f(): ...\n", ":2", "cannot be called with an event"),
            ("x = '\0'", "", "source code string cannot contain null bytes"),
            ("x" * (FILE_BYTES + 1), "", f"it is larger than {FILE_BYTES} bytes"),
        ],
    )
    async def test_what_cannot_be_loaded_is_told_with_its_line(
        self, bus: HookBus, folder: Path, text: str, line: str, words: str
    ) -> None:
        path = put(folder, "bad.py", text)
        put(folder, "good.py", APPEND.format(text="", priority=0))
        (problem,) = problems(bus, folder)
        where, _, told = problem.partition(": ")
        assert where.removesuffix(line) == str(path)
        assert words in told
        assert "skynet_hooks.bad" not in sys.modules

    async def test_everything_that_is_wrong_is_told_at_once(self, bus: HookBus, folder: Path) -> None:
        put(folder, "a.py", "a(")
        put(folder, "b.py", "b")
        put(folder, "before_mesage.sh", "#!/bin/sh\n", 0o700)
        assert len(problems(bus, folder)) == 3

    async def test_it_can_be_skipped(self, bus: HookBus, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = put(folder, "bad.py", "from skynet.hooks import *\n@on(BeforeToolCall)\ndef f(e): ...\nnowhere()\n")
        put(folder, "good.py", APPEND.format(text="!", priority=0))
        load_hooks(bus, folder, on_error="skip")
        assert (await bus.ask(message())).text == "Hello!"
        assert not bus.has(BeforeToolCall)
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.getMessage() == f"left out a hook: {path}:4: NameError: name 'nowhere' is not defined"

    async def test_the_log_knows_a_hook_by_its_file(
        self, bus: HookBus, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(folder, "bad.py", "from skynet.hooks import *\n@on(BeforeMessage)\ndef check(event):\n    1 / 0\n")
        load_hooks(bus, folder)
        with pytest.raises(Stopped):
            await bus.ask(message())
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.getMessage() == "stopped before_message: the hook hooks/bad.py:check failed"
        assert "bad.py" in caplog.text
        assert "1 / 0" in caplog.text


class TestTrust:
    """Whoever can write a hook runs code as the gateway."""

    GOOD = APPEND.format(text="!", priority=0)

    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
    async def test_files_that_others_can_write(self, bus: HookBus, folder: Path, mode: int) -> None:
        put(folder, "a.py", self.GOOD, mode)
        put(folder, "before_message.sh", "#!/bin/sh\n", mode | 0o700)
        assert all("can be written by others" in problem for problem in problems(bus, folder))
        assert len(problems(bus, folder)) == 2

    @pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
    async def test_a_folder_that_others_can_write(self, bus: HookBus, folder: Path, mode: int) -> None:
        put(folder, "a.py", self.GOOD)
        os.chmod(folder, mode)  # noqa: PTH101
        (problem,) = problems(bus, folder)
        assert problem.startswith(f"{folder}: the folder can be written by others")

    async def test_a_folder_of_programs_that_others_can_write(self, bus: HookBus, folder: Path) -> None:
        put(folder, "before_message.d/a", "#!/bin/sh\n", 0o700)
        (folder / "before_message.d").chmod(0o770)
        (problem,) = problems(bus, folder)
        assert "the folder can be written by others" in problem

    @pytest.mark.parametrize("name", ["a.py", "before_message.sh", "before_message.d", "before_message.d/a"])
    async def test_links_out_of_the_folder(self, bus: HookBus, folder: Path, tmp_path: Path, name: str) -> None:
        outside = tmp_path / "outside"
        put(outside, "file", self.GOOD, 0o700)
        (folder / name).parent.mkdir(0o700, exist_ok=True)
        (folder / name).symlink_to(outside if name.endswith(".d") else outside / "file")
        (problem,) = problems(bus, folder)
        assert problem == f"{folder / name}: it leads out of the folder"

    async def test_a_link_that_stays_inside(self, bus: HookBus, folder: Path) -> None:
        put(folder, "_there.txt", self.GOOD)
        (folder / "a.py").symlink_to("_there.txt")
        load_hooks(bus, folder)
        assert (await bus.ask(message())).text == "Hello!"

    async def test_a_link_to_what_others_can_write(self, bus: HookBus, folder: Path) -> None:
        put(folder, "shared/a.txt", self.GOOD)
        (folder / "shared").chmod(0o777)
        (folder / "a.py").symlink_to("shared/a.txt")
        (problem,) = problems(bus, folder)
        assert "can be written by others" in problem

    async def test_the_folder_itself_may_be_a_link(self, bus: HookBus, folder: Path, tmp_path: Path) -> None:
        put(folder, "a.py", self.GOOD)
        (tmp_path / "link").symlink_to(folder)
        load_hooks(bus, tmp_path / "link")
        assert bus.has(BeforeMessage)

    async def test_what_is_no_file(self, bus: HookBus, folder: Path) -> None:
        os.mkfifo(folder / "a.py", 0o600)
        (folder / "b.py").mkdir(0o700)
        (folder / "c.py").symlink_to("nowhere.py")
        put(folder, "before_message.d", "")
        told = problems(bus, folder)
        assert len(told) == 4
        assert "no file" in told[0]
        assert "it is a folder" in told[1]
        assert "Not a directory" in told[2]
        assert "No such file" in told[3]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    async def test_files_of_somebody_else(self, bus: HookBus, folder: Path) -> None:
        os.chown(put(folder, "a.py", self.GOOD), 12345, 12345)
        (problem,) = problems(bus, folder)
        assert "belongs to the user 12345" in problem


class TestNames:
    @pytest.mark.parametrize("name", ["before_mesage.sh", "before_mesage.d/a"])
    async def test_a_misspelt_event(self, bus: HookBus, folder: Path, name: str) -> None:
        put(folder, name, "#!/bin/sh\n", 0o700)
        (problem,) = problems(bus, folder)
        assert problem.endswith("there is no event before_mesage; did you mean before_message?")

    @pytest.mark.parametrize("name", ["before_message", "before_message.bash"])
    async def test_a_forgotten_ending(self, bus: HookBus, folder: Path, name: str) -> None:
        put(folder, name, "#!/bin/sh\n", 0o700)
        (problem,) = problems(bus, folder)
        assert "before_message.sh" in problem

    @pytest.mark.parametrize("name", ["before_message.sh", "before_message.d/a"])
    async def test_a_program_that_is_not_executable(self, bus: HookBus, folder: Path, name: str) -> None:
        path = put(folder, name, "#!/bin/sh\n")
        assert problems(bus, folder) == [f"{path}: it cannot be run; make it executable (chmod u+x)"]


class TestPackages:
    """Entry points of the group ``skynet.hooks``."""

    def install(self, site: Path, points: str, **modules: str) -> None:
        info = site / "some_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[skynet.hooks]\n{points}\n")
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)

    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        site = tmp_path / "site"
        site.mkdir()
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()
        return site

    async def test_a_module_and_a_function(self, bus: HookBus, site: Path, folder: Path) -> None:
        put(folder, "a.py", APPEND.format(text="file", priority=0))
        function = APPEND.format(text="function ", priority=0)
        self.install(
            site,
            "z = some_package_module\na = some_package_function:append",
            some_package_module=APPEND.format(text="module ", priority=0),
            some_package_function=function,
        )
        load_hooks(bus, folder)
        assert (await bus.ask(message(""))).text == "function module file"

    async def test_what_cannot_be_loaded(self, bus: HookBus, site: Path, folder: Path) -> None:
        self.install(
            site,
            "a = some_package_missing\nb = some_package_module:nothing\nc = some_package_module:number",
            some_package_module="number = 3\n",
        )
        told = problems(bus, folder)
        assert told == [
            "entry point a (some_package_missing): ModuleNotFoundError: No module named 'some_package_missing'",
            "entry point b (some_package_module:nothing): "
            "AttributeError: module 'some_package_module' has no attribute 'nothing'",
            "entry point c (some_package_module:number): there is no hook in it: no function is marked with @on(…)",
        ]


class TestPrograms:
    async def test_they_are_loaded_in_the_order_of_their_names(self, bus: HookBus, folder: Path) -> None:
        for name, answer in (("20-b", '{"x": 2}'), ("10-a", '{"x": 1}'), ("_not", "")):
            words = f'{{"modify": {{"arguments": {answer}}}}}'
            script = f"#!/bin/sh\n[ $SKYNET_EVENT = before_tool_call ] && echo '{words}'\n"
            put(folder, f"before_tool_call.d/{name}", script, 0o700)
        load_hooks(bus, folder)
        assert thawed((await bus.ask(tool_call())).arguments) == {"x": 2}
