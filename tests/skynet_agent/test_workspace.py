import logging
import os
import re
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.cutting import LEAST_LIMIT
from skynet_agent.workspace import (
    BOOTSTRAP,
    BUILT_IN,
    FILE_CHARS,
    FILES,
    FIRST_RUN,
    MOST_FILES,
    TOTAL_CHARS,
    Workspace,
    WorkspaceMode,
    assembled,
    fair_share,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


def fill(directory: Path, **texts: str) -> None:
    """Files by their names without ``.md``."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / f"{name}.md").write_text(text)


class TestWhereTheTextComesFrom:
    def test_the_configured_directory(self, home: Path, tmp_path: Path) -> None:
        """SK-114."""
        fill(home, SOUL="of home")
        fill(tmp_path / "configured", SOUL="of the directory", NOTES="and its notes")
        (tmp_path / "soul.txt").write_text("of the file")
        workspace = Workspace(home, workspace_dir=tmp_path / "configured", soul_path=tmp_path / "soul.txt")
        assert "of the directory" in workspace.text and "and its notes" in workspace.text
        assert "of home" not in workspace.text and "of the file" not in workspace.text
        assert workspace.mode == "workspace directory"
        assert workspace.files == ("SOUL.md", "NOTES.md")

    def test_the_state_directory_once_it_has_a_soul(self, home: Path) -> None:
        """SK-115."""
        workspace = Workspace(home)
        fill(home, USER="somebody")
        assert workspace.mode == "built-in prompt"
        fill(home, SOUL="of home")
        assert "of home" in workspace.text and "somebody" in workspace.text
        assert workspace.mode == "state directory"

    def test_one_file(self, home: Path, tmp_path: Path) -> None:
        """SK-116."""
        fill(home, SOUL="of home", USER="somebody")
        (tmp_path / "who.txt").write_text("of the file")
        workspace = Workspace(home, soul_path=tmp_path / "who.txt")
        assert workspace.text == "# SOUL.md: your personality and tone\n\nof the file"
        assert workspace.mode == "one soul file"

    def test_the_built_in_text(self, home: Path) -> None:
        """SK-117."""
        before = list(home.iterdir())
        workspace = Workspace(home)
        assert workspace.text == BUILT_IN
        assert workspace.mode is WorkspaceMode.BUILT_IN
        assert list(home.iterdir()) == before, "a start writes nothing"

    @pytest.mark.parametrize("configured", ["missing", "empty", "blank"])
    def test_the_built_in_text_where_nothing_can_be_read(self, home: Path, tmp_path: Path, configured: str) -> None:
        (tmp_path / "empty").mkdir()
        fill(tmp_path / "blank", SOUL=" \n")
        workspace = Workspace(home, workspace_dir=tmp_path / configured)
        assert (workspace.text, workspace.mode) == (BUILT_IN, WorkspaceMode.BUILT_IN)
        assert Workspace(home, soul_path=tmp_path / "missing.md").text == BUILT_IN
        assert Workspace(tmp_path / "no home").text == BUILT_IN


class TestOrder:
    def test_of_all_files(self, home: Path) -> None:
        """SK-108."""
        names = ["ZZZ", "AAA", "BOOTSTRAP", "MEMORY", "TOOLS", "USER", "AGENTS", "IDENTITY", "SOUL", "middle"]
        fill(home, **{name: f"<{name}>" for name in names})
        (home / FIRST_RUN).touch()
        assert re.findall(r"<(\w+)>", Workspace(home).text) == [
            *("SOUL", "IDENTITY", "AGENTS", "USER", "TOOLS", "MEMORY", "AAA", "ZZZ", "middle", "BOOTSTRAP")
        ]

    def test_the_bootstrap_is_there_only_in_the_first_run(self, home: Path) -> None:
        """SK-109."""
        fill(home, SOUL="soul", BOOTSTRAP="the ritual")
        workspace = Workspace(home)
        assert "the ritual" not in workspace.text and not workspace.is_first_run
        (home / FIRST_RUN).touch()
        assert "the ritual" in workspace.text and workspace.is_first_run
        assert workspace.finish_first_run()
        assert "the ritual" not in workspace.text and not workspace.is_first_run
        assert not workspace.finish_first_run()

    def test_each_file_stands_under_its_role(self, home: Path) -> None:
        """SK-107."""
        fill(home, **{Path(name).stem: f"text of {name}" for name in (*FILES, BOOTSTRAP)}, EXTRA="text of EXTRA.md")
        (home / FIRST_RUN).touch()
        text = Workspace(home).text
        for name, role in (*FILES.items(), ("EXTRA.md", "further notes"), (BOOTSTRAP, "what to do now")):
            assert re.search(rf"^# {re.escape(name)}: {role}.*\n\ntext of {re.escape(name)}$", text, re.MULTILINE)

    def test_only_plain_markdown_files_count(self, home: Path) -> None:
        fill(home, SOUL="soul")
        for name in (".hidden.md", "skynet.toml", "notes.md.bak", ".SOUL.md.swp", "md"):
            (home / name).write_text("not this")
        (home / "folder.md").mkdir()
        assert Workspace(home).files == ("SOUL.md",)
        assert "not this" not in Workspace(home).text


class TestLimits:
    def test_a_long_file_is_cut(self, home: Path) -> None:
        """SK-111, SK-113."""
        fill(home, SOUL="a" * 15_000 + "b" * 15_000)
        body = Workspace(home).text.split("\n\n", 1)[1]
        assert body == "a" * 14_000 + "\n[… 12000 characters left out …]\n" + "b" * 4_000
        assert len(body) <= FILE_CHARS

    def test_many_files_are_cut_alike(self, home: Path) -> None:
        """SK-112."""
        fill(home, SOUL="short soul", **{f"n{number}": str(number) * 20_000 for number in range(10)})
        text = Workspace(home).text
        assert 85_000 < len(text) <= 100_000
        assert "short soul" in text
        counts = [text.count(str(number) * 1000) for number in range(10)]
        assert len(set(counts)) == 1

    def test_files_beyond_the_hundredth_are_left_out(self, home: Path, caplog: pytest.LogCaptureFixture) -> None:
        fill(home, SOUL="soul", BOOTSTRAP="ritual", **{f"n{number:03d}": "x" * 5000 for number in range(150)})
        (home / FIRST_RUN).touch()
        workspace = Workspace(home)
        assert len(workspace.text) <= TOTAL_CHARS
        assert len(workspace.files) == MOST_FILES
        assert workspace.files[0] == "SOUL.md" and workspace.files[-1] == BOOTSTRAP
        assert "of 152 files only 100 are in the prompt" in caplog.text

    @given(st.lists(st.tuples(st.text("ab.", max_size=80), st.integers(0, 60_000)), min_size=1, max_size=MOST_FILES))
    def test_any_files_stay_within_them(self, files: list[tuple[str, int]]) -> None:
        text = assembled([(f"{name}.md", "x" * length) for name, length in files])
        assert len(text) <= TOTAL_CHARS
        parts = re.split(r"(?:^|\n\n)# .*: further notes\n\n", text)[1:]
        assert len(parts) == len(files)
        assert max(map(len, parts)) <= FILE_CHARS
        for part, (_, length) in zip(parts, files, strict=True):
            assert len(part) == length or "characters left out" in part

    @given(st.lists(st.integers(0, 20_000), min_size=1, max_size=100), st.integers(100_000 - 16_000, 100_000))
    def test_the_share_is_the_largest_that_fits(self, lengths: list[int], room: int) -> None:
        share = fair_share(lengths, room)
        assert sum(min(length, share) for length in lengths) <= room
        assert share >= LEAST_LIMIT
        if sum(lengths) > room:
            assert sum(min(length, share + 1) for length in lengths) > room


class TestChanges:
    def test_every_kind_of_change_is_seen_at_once(self, home: Path) -> None:
        fill(home, SOUL="one")
        workspace = Workspace(home)
        assert "one" in workspace.text
        fill(home, SOUL="two")  # the same size, and perhaps the same time
        assert "two" in workspace.text
        fill(home, USER="a person")
        assert "a person" in workspace.text
        (home / "fresh").write_text("tri")
        (home / "fresh").replace(home / "SOUL.md")
        assert "tri" in workspace.text
        (home / "USER.md").unlink()
        assert "a person" not in workspace.text

    def test_the_text_is_the_same_object_while_nothing_changes(self, home: Path) -> None:
        fill(home, SOUL="one", USER="two")
        long_ago = time.time() - 1000
        for name in ("SOUL.md", "USER.md"):
            os.utime(home / name, (long_ago, long_ago))
        workspace = Workspace(home)
        assert workspace.text is workspace.text

    def test_looking_costs_next_to_nothing(self, home: Path) -> None:
        workspace = Workspace(home)
        workspace.create()
        for name in (*FILES, BOOTSTRAP):
            os.utime(home / name, (1, 1))
        assert workspace.text

        def once() -> float:
            began = time.perf_counter()
            for _ in range(100):
                workspace.text  # noqa: B018
            return (time.perf_counter() - began) / 100

        assert min(once() for _ in range(20)) < 100e-6


class TestWhatCannotBeRead:
    def test_is_left_out_and_told_once(self, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        fill(home, SOUL="soul", GOOD="good")
        (tmp_path / "outside.md").write_text("outside")
        (home / "LINK.md").symlink_to(tmp_path / "outside.md")
        (home / "LOST.md").symlink_to(home / "nowhere.md")
        (home / "LARGE.md").write_text("x" * (1024 * 1024 + 1))
        os.mkfifo(home / "FIFO.md")
        (home / "FOLDER.md").mkdir()
        workspace = Workspace(home)
        for _ in range(3):
            assert workspace.files == ("SOUL.md", "GOOD.md")
            assert "outside" not in workspace.text
        told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert told == [
            "left out of the prompt: FIFO.md: it is no file",
            "left out of the prompt: FOLDER.md: it is no file",
            "left out of the prompt: LARGE.md: it is larger than 1048576 bytes",
            "left out of the prompt: LINK.md: it is a link out of the workspace",
        ]

    def test_links_within_are_followed(self, home: Path) -> None:
        (home / "texts").mkdir()
        (home / "texts" / "soul").write_text("linked soul")
        (home / "SOUL.md").symlink_to("texts/soul")
        workspace = Workspace(home)
        assert "linked soul" in workspace.text
        (home / "texts" / "soul").write_text("another soul")
        assert "another soul" in workspace.text

    def test_bytes_that_are_no_text_are_replaced(self, home: Path) -> None:
        (home / "SOUL.md").write_bytes(b"\xef\xbb\xbfcaf\xe9")
        assert Workspace(home).text.endswith("\n\ncaf\ufffd")

    def test_nothing_stays_open(self, home: Path) -> None:
        fill(home, SOUL="soul")
        (home / "FOLDER.md").mkdir()
        os.mkfifo(home / "FIFO.md")
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert Workspace(home).text
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestWriting:
    def test_a_file_is_replaced_whole(self, home: Path) -> None:
        fill(home, SOUL="old")
        workspace = Workspace(home)
        workspace.write("SOUL.md", "new")
        assert workspace.read("SOUL.md") == "new"
        assert sorted(path.name for path in home.iterdir()) == ["SOUL.md"]
        assert stat.S_IMODE((home / "SOUL.md").stat().st_mode) == 0o600

    def test_a_link_is_replaced_and_not_followed(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "outside.md").write_text("outside")
        (home / "SOUL.md").symlink_to(tmp_path / "outside.md")
        Workspace(home).write("SOUL.md", "new")
        assert (tmp_path / "outside.md").read_text() == "outside"
        assert (home / "SOUL.md").read_text() == "new"

    def test_nothing_that_would_not_be_read(self, home: Path, tmp_path: Path) -> None:
        workspace = Workspace(home)
        with pytest.raises(ValueError, match=r"write SOUL\.md first"):
            workspace.write("USER.md", "x")
        with pytest.raises(ValueError, match="20001 characters, the limit is 20000"):
            workspace.write("SOUL.md", "x" * 20_001)
        with pytest.raises(ValueError, match=r"there is no workspace file EXTRA\.md"):
            workspace.write("EXTRA.md", "x")
        with pytest.raises(ValueError, match="one file alone"):
            Workspace(home, soul_path=tmp_path / "soul.txt").write("USER.md", "x")
        assert not list(home.iterdir())

    def test_the_one_file_too(self, home: Path, tmp_path: Path) -> None:
        workspace = Workspace(home, soul_path=tmp_path / "soul.txt")
        workspace.write("SOUL.md", "mine")
        assert (tmp_path / "soul.txt").read_text() == workspace.read("SOUL.md") == "mine"


class TestCreate:
    def test_the_seven_files_and_the_first_run(self, tmp_path: Path) -> None:
        directory = tmp_path / "new" / "workspace"
        workspace = Workspace(tmp_path, workspace_dir=directory)
        assert set(workspace.create()) == {*FILES, BOOTSTRAP, FIRST_RUN}
        assert workspace.files == (*FILES, BOOTSTRAP)
        assert workspace.is_first_run
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in directory.iterdir())
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert len(workspace.text) < 6000

    def test_what_is_there_stays_and_has_no_second_first_run(self, home: Path) -> None:
        fill(home, SOUL="mine")
        workspace = Workspace(home)
        assert set(workspace.create()) == {*FILES, BOOTSTRAP} - {"SOUL.md"}
        assert workspace.read("SOUL.md") == "mine"
        assert not workspace.is_first_run
        assert not workspace.create()


class TestProtection:
    def test_of_every_file_the_assistant_is_made_of(self, home: Path, tmp_path: Path) -> None:
        directory = tmp_path / "workspace"
        directory.mkdir()
        workspace = Workspace(home, workspace_dir=directory, soul_path=tmp_path / "soul.txt")
        (tmp_path / "link").symlink_to(directory)
        for name in ("SOUL.md", "any.md", "Soul.MD", FIRST_RUN):
            assert workspace.protects(directory.stat(), name)
            assert workspace.protects((tmp_path / "link").stat(), name)
            assert not workspace.protects(tmp_path.stat(), name)
        assert workspace.protects(tmp_path.stat(), "soul.txt")
        assert not workspace.protects(directory.stat(), "data.json")

    def test_of_a_directory_that_is_not_there(self, home: Path, tmp_path: Path) -> None:
        assert not Workspace(home, workspace_dir=tmp_path / "missing").protects(home.stat(), "SOUL.md")
