import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.paths import DEEPEST, Folder, PathRefused, identity, shown

OPEN = Path("/proc/self/fd")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret.txt").write_text("secret")
    return directory


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    directory = tmp_path / "inside"
    directory.mkdir()
    (directory / "notes.txt").write_text("notes")
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "file.txt").write_text("deep")
    return directory


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def read(root: Path, path: str) -> bytes:
    with Folder(root).place(path) as place, place.opened() as (descriptor, _):
        return os.read(descriptor, 1000)


def write(root: Path, path: str, data: bytes = b"new") -> None:
    with Folder(root).place(path, make_parents=True) as place:
        place.replace(data)


class TestInside:
    @pytest.mark.parametrize(
        "path",
        ["notes.txt", "./notes.txt", "deep/../notes.txt", "deep//er/../../notes.txt", "deep/er/../.././notes.txt"],
    )
    def test_any_way_to_a_file_is_taken(self, root: Path, path: str) -> None:
        assert read(root, path) == b"notes"

    def test_an_absolute_path_into_it_too(self, root: Path) -> None:
        assert read(root, str(root / "notes.txt")) == b"notes"

    def test_by_the_name_it_was_given_or_its_real_one(self, root: Path, tmp_path: Path) -> None:
        by_link = tmp_path / "by-link"
        by_link.symlink_to(root)
        assert read(by_link, str(by_link / "notes.txt")) == read(by_link, str(root / "notes.txt")) == b"notes"

    @pytest.mark.parametrize("target", ["er/file.txt", "../deep/er/file.txt", "./er/../er/file.txt"])
    def test_links_that_stay_are_followed(self, root: Path, target: str) -> None:
        (root / "deep" / "link").symlink_to(target)
        assert read(root, "deep/link") == b"deep"

    def test_absolute_links_that_stay_too(self, root: Path) -> None:
        (root / "deep" / "link").symlink_to(root / "deep" / "er")
        assert read(root, "deep/link/file.txt") == b"deep"

    def test_it_says_where_a_link_leads(self, root: Path) -> None:
        (root / "link").symlink_to("deep/er")
        with Folder(root).place("link/../er/file.txt") as place:
            assert place.path == "deep/er/file.txt"

    @pytest.mark.parametrize("path", ["", ".", "./", "deep/..", "/"])
    def test_the_top_itself(self, root: Path, path: str) -> None:
        with Folder(root).place(path if path != "/" else str(root)) as place:
            assert place.path == "."
            with place.entered() as descriptor:
                assert identity(os.fstat(descriptor)) == identity(root.stat())

    def test_what_is_missing_has_a_place(self, root: Path) -> None:
        with Folder(root).place("deep/new.txt") as place:
            assert place.stat() is None

    def test_a_missing_folder_on_the_way_is_an_error(self, root: Path) -> None:
        with pytest.raises(FileNotFoundError), Folder(root).place("no/new.txt"):
            pass


class TestOutside:
    @pytest.mark.parametrize(
        "path",
        [
            "..",
            "../outside/secret.txt",
            "deep/../../outside/secret.txt",
            "deep/er/../../../outside/secret.txt",
            "/etc/passwd",
            "/",
            "//etc/passwd",
            "../inside/notes.txt",
            "../inside-evil/x",
        ],
    )
    def test_is_refused(self, root: Path, path: str) -> None:
        with pytest.raises(PathRefused, match="out of the folder"), Folder(root).place(path):
            pass

    def test_a_name_that_begins_alike_is_outside(self, root: Path) -> None:
        evil = root.with_name("inside-evil")
        evil.mkdir()
        (evil / "x").write_text("x")
        with pytest.raises(PathRefused, match="out of the folder"), Folder(root).place(str(evil / "x")):
            pass

    @pytest.mark.parametrize("target", ["../outside", "../../etc", "/etc", "/", "..", "deep/../../outside"])
    def test_links_that_leave_are_refused(self, root: Path, target: str) -> None:
        (root / "link").symlink_to(target)
        for path in ("link", "link/secret.txt", "link/new/file", "deep/../link/secret.txt"):
            with pytest.raises(PathRefused, match="out of the folder"):
                write(root, path)

    def test_so_are_links_that_leave_and_come_back(self, root: Path) -> None:
        (root / "link").symlink_to("../inside/notes.txt")
        with pytest.raises(PathRefused, match="out of the folder"):
            read(root, "link")

    def test_and_absolute_ones_that_go_up_from_inside(self, root: Path, outside: Path) -> None:
        (root / "link").symlink_to(f"{root}/deep/../../outside/secret.txt")
        with pytest.raises(PathRefused, match="out of the folder"):
            read(root, "link")

    def test_a_file_behind_a_link_to_nothing_is_made_inside_or_not_at_all(self, root: Path, outside: Path) -> None:
        (root / "stays").symlink_to("deep/made.txt")
        (root / "leaves").symlink_to(outside / "made.txt")
        write(root, "stays")
        assert (root / "deep" / "made.txt").read_bytes() == b"new"
        with pytest.raises(PathRefused):
            write(root, "leaves")
        assert not (outside / "made.txt").exists()

    def test_links_that_go_round_are_refused(self, root: Path) -> None:
        (root / "a").symlink_to("b")
        (root / "b").symlink_to("a")
        with pytest.raises(PathRefused, match="more than 40 links"):
            read(root, "a")

    def test_links_that_grow_are_refused(self, root: Path) -> None:
        for number in range(60):
            (root / f"l{number}").symlink_to("/".join([f"l{number + 1}"] * 50))
        with pytest.raises(PathRefused, match="more than 40 links"):
            read(root, "l0")

    def test_sealed_directories_are_not_entered(self, root: Path) -> None:
        folder = Folder(root, sealed=[identity((root / "deep").stat())])
        (root / "link").symlink_to("deep/er")
        for path in ("deep/er/file.txt", "link/file.txt"):
            with pytest.raises(PathRefused, match="the gateway itself"), folder.place(path):
                pass
        with folder.place("deep") as place, pytest.raises(PathRefused, match="the gateway itself"), place.entered():
            pass

    def test_sealed_files_are_neither_read_nor_replaced(self, root: Path) -> None:
        folder = Folder(root, sealed=[identity((root / "notes.txt").stat())])
        (root / "link").symlink_to("notes.txt")
        os.link(root / "notes.txt", root / "deep" / "other")
        for path in ("notes.txt", "link", "deep/other"):
            with folder.place(path) as place:
                with pytest.raises(PathRefused, match="the gateway itself"), place.opened():
                    pass
                with pytest.raises(PathRefused, match="the gateway itself"):
                    place.replace(b"new")
        assert (root / "notes.txt").read_text() == "notes" and names_in(root / "deep") == ["er", "other"]


class TestWhatIsNoPath:
    def test_nul(self, root: Path) -> None:
        with pytest.raises(PathRefused, match="NUL"), Folder(root).place("notes\0.txt"):
            pass

    def test_long_names(self, root: Path) -> None:
        write(root, "x" * 255)
        with pytest.raises(PathRefused, match="longer than 255 bytes"), Folder(root).place("ä" * 128):
            pass

    def test_long_paths(self, root: Path) -> None:
        with (
            pytest.raises(PathRefused, match="5001 bytes long, the limit is 4096"),
            Folder(root).place("x/" * 2500 + "x"),
        ):
            pass

    def test_deep_paths(self, root: Path) -> None:
        write(root, "x/" * DEEPEST + "file")
        with pytest.raises(PathRefused, match="64 folders deep"):
            write(root, "x/" * (DEEPEST + 1) + "file")

    def test_half_characters(self, root: Path) -> None:
        with pytest.raises(PathRefused, match="no valid text"), Folder(root).place("\ud800"):
            pass


class TestKinds:
    def test_a_fifo_is_neither_read_nor_waited_for(self, root: Path) -> None:
        os.mkfifo(root / "fifo")
        for use in (read, write):
            with pytest.raises(PathRefused, match="a device, a socket or a pipe"):
                use(root, "fifo")

    def test_a_socket(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(root)  # its address must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
        for use in (read, write):
            with pytest.raises(PathRefused, match="a device, a socket or a pipe"):
                use(root, "socket")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
    def test_a_device(self, root: Path) -> None:
        os.mknod(root / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        for use in (read, write):
            with pytest.raises(PathRefused, match="a device, a socket or a pipe"):
                use(root, "null")

    def test_a_folder_is_no_file_and_a_file_no_folder(self, root: Path) -> None:
        for use in (read, write):
            with pytest.raises(PathRefused, match="it is a folder"):
                use(root, "deep")
        with Folder(root).place("notes.txt") as place, pytest.raises(NotADirectoryError), place.entered():
            pass
        with pytest.raises(NotADirectoryError), Folder(root).place("notes.txt/x"):
            pass


class TestReplace:
    def test_parents_are_made_for_their_owner_alone(self, root: Path) -> None:
        write(root, "a/b/c.txt")
        assert (root / "a/b/c.txt").read_bytes() == b"new"
        assert stat.S_IMODE((root / "a").stat().st_mode) == stat.S_IMODE((root / "a/b").stat().st_mode) == 0o700
        assert stat.S_IMODE((root / "a/b/c.txt").stat().st_mode) == 0o600

    def test_the_way_back_from_a_missing_folder_makes_none(self, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            write(root, "a/../b.txt")
        assert not (root / "a").exists()

    def test_the_mode_is_kept(self, root: Path) -> None:
        (root / "notes.txt").chmod(0o754)
        write(root, "notes.txt")
        assert stat.S_IMODE((root / "notes.txt").stat().st_mode) == 0o754

    def test_other_names_of_the_file_keep_the_old_content(self, root: Path) -> None:
        os.link(root / "notes.txt", root / "other.txt")
        write(root, "notes.txt")
        assert (root / "other.txt").read_bytes() == b"notes"

    def test_what_is_given_up_leaves_nothing(self, root: Path) -> None:
        def give_up() -> None:
            raise InterruptedError("given up")

        before = sorted(root.iterdir())
        with Folder(root).place("notes.txt") as place, pytest.raises(InterruptedError):
            place.replace(b"x" * 10_000_000, ready=give_up)
        assert sorted(root.iterdir()) == before
        assert (root / "notes.txt").read_bytes() == b"notes"

    def test_a_directory_that_moves_takes_the_file_with_it(self, root: Path, outside: Path) -> None:
        """What was opened stays what it was: never the link that has its name now."""
        with Folder(root).place("deep/er/new.txt") as place:
            (root / "deep").rename(root / "moved")
            (root / "deep").symlink_to(outside)
            place.replace(b"new")
        assert (root / "moved/er/new.txt").read_bytes() == b"new"
        assert names_in(outside) == ["secret.txt"]


WRITER = """
import sys
from pathlib import Path
from skynet.paths import Folder
folder = Folder(Path(sys.argv[1]))
while True:
    for letter in (b"a", b"b"):
        with folder.place("notes.txt") as place:
            place.replace(letter * 3_000_000)
        print(flush=True)
"""


@pytest.mark.parametrize("writes", [1, 2, 5])
def test_a_killed_writer_leaves_a_whole_file(root: Path, writes: int) -> None:
    """SK-095."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(writes):
            writer.stdout.readline()
        writer.kill()
    content = (root / "notes.txt").read_bytes()
    assert content in (b"a" * 3_000_000, b"b" * 3_000_000)


def test_nothing_stays_open(root: Path) -> None:
    (root / "leaves").symlink_to("/etc")
    os.mkfifo(root / "fifo")
    before = len(names_in(OPEN))
    for path in ("deep/er/file.txt", "leaves/passwd", "fifo", "no/file", "x" * 300, "../x", "deep", "deep/../.."):
        for use in (read, write):
            with suppress(PathRefused, OSError):
                use(root, path)
    assert len(names_in(OPEN)) == before


@contextmanager
def flipping(*steps: Callable[[], None]) -> Iterator[None]:
    """A thread does the steps in turn, until the block is left."""
    is_over = threading.Event()

    def flip() -> None:
        while not is_over.is_set():
            for step in steps:
                step()

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class TestRace:
    """Somebody exchanges a directory, or a file, for a link to the outside while it is used."""

    ROUNDS = 4000

    def test_of_a_directory(self, root: Path, outside: Path) -> None:
        (root / "deep" / "secret.txt").write_text("notes")
        outside_before = {path: path.read_bytes() for path in outside.iterdir()}
        (root / "link").symlink_to(outside)
        steps = (
            lambda: (root / "deep").rename(root / "away"),
            lambda: (root / "link").rename(root / "deep"),
            lambda: (root / "deep").rename(root / "link"),
            lambda: (root / "away").rename(root / "deep"),
        )
        seen, refused = 0, 0
        with flipping(*steps):
            for number in range(self.ROUNDS):
                try:
                    assert read(root, "deep/secret.txt") == b"notes"
                    seen += 1
                except (PathRefused, OSError):
                    refused += 1
                with suppress(PathRefused, OSError), Folder(root).place(f"deep/new{number % 7}.txt") as place:
                    place.replace(b"new")
        assert {path: path.read_bytes() for path in outside.iterdir()} == outside_before
        assert seen and refused

    def test_of_a_file(self, root: Path, outside: Path) -> None:
        path = root / "file.txt"
        path.write_text("notes")
        link = root / "link"

        def to_a_link() -> None:
            link.symlink_to(outside / "secret.txt")
            link.rename(path)

        def to_a_file() -> None:
            (root / "fresh").write_text("notes")
            (root / "fresh").rename(path)

        with flipping(to_a_link, to_a_file):
            for _ in range(self.ROUNDS):
                with suppress(PathRefused, OSError):
                    assert read(root, "file.txt") == b"notes"
                with suppress(PathRefused, OSError):
                    write(root, "file.txt", b"notes")
        assert (outside / "secret.txt").read_text() == "secret"

    def test_of_a_file_and_a_fifo(self, root: Path) -> None:
        """Never a wait for who writes to it."""
        path = root / "file.txt"

        def to_a_fifo() -> None:
            os.mkfifo(root / "fifo")
            (root / "fifo").rename(path)

        def to_a_file() -> None:
            (root / "fresh").write_text("notes")
            (root / "fresh").rename(path)

        to_a_file()
        with flipping(to_a_fifo, to_a_file):
            for _ in range(self.ROUNDS):
                with suppress(PathRefused, OSError):
                    assert read(root, "file.txt") == b"notes"


NAMES = st.sampled_from(["a", "b", "c", "..", ".", "", "link", "a.txt", "inside", "outside", "secret.txt"])
PATHS = st.one_of(
    st.lists(NAMES, min_size=1, max_size=6).map("/".join),
    st.lists(NAMES, max_size=4).map(lambda names: "/".join(["{root}", *names])),
    st.lists(NAMES, max_size=4).map(lambda names: "/".join(["{outside}", *names])),
    st.text(max_size=20),
)
TREES = st.lists(st.tuples(st.sampled_from(["directory", "file", "link"]), PATHS, PATHS), max_size=12)


class TestAnyTree:
    """Whatever is in a folder and whatever is asked for: what is opened lies inside, what is written too."""

    @given(TREES, st.lists(PATHS, min_size=1, max_size=8))
    def test_nothing_leads_out(self, tree: list[tuple[str, str, str]], paths: list[str]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            top = Path(os.path.realpath(scratch))
            root, outside = top / "inside", top / "outside"
            for directory in (root, outside):
                directory.mkdir()
                (directory / "secret.txt").write_text(directory.name)
            (root / "a").mkdir()

            def real(path: str) -> str:
                return path.replace("{root}", str(root)).replace("{outside}", str(outside))

            for what, where, target in tree:
                name = Path(os.path.normpath(f"{root}/{where}"))
                if root not in name.parents or "{" in where:
                    continue
                with suppress(OSError, ValueError):
                    if what == "directory":
                        name.mkdir()
                    elif what == "file":
                        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW))
                    else:
                        name.symlink_to(real(target))

            for path in map(real, paths):
                self.use(root, path)
            assert names_in(top) == ["inside", "outside"]
            assert names_in(outside) == ["secret.txt"]
            assert (outside / "secret.txt").read_text() == "outside"

    def use(self, root: Path, path: str) -> None:
        with suppress(PathRefused, OSError), Folder(root).place(path) as place:
            assert (OPEN / str(place.directory)).readlink().is_relative_to(root)
            status = place.stat()
            if status is not None and stat.S_ISREG(status.st_mode):
                with place.opened() as (descriptor, opened):
                    assert (OPEN / str(descriptor)).readlink() == (root / place.path).resolve()
                    # The kernel goes the same way, where it goes one that never leaves.
                    assert identity(opened) == identity((root / path).stat())
                    assert b"outside" not in os.read(descriptor, 100)
        with suppress(PathRefused, OSError), Folder(root).place(path, make_parents=True) as place:
            place.replace(b"written")
            assert (root / place.path).read_bytes() == b"written"

    @given(
        st.lists(st.sampled_from(["a", "b", "ä", " ", "-", "a b", "…", "\n", "\udcff", "*"]), min_size=1, max_size=8)
    )
    def test_every_plain_path_is_taken(self, names: list[str]) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            write(root, "/".join(names))
            assert read(root, "/".join(names)) == b"new"
            assert root.joinpath(*names).read_bytes() == b"new"


@given(st.text(), st.integers(min_value=10, max_value=300))
def test_a_path_is_shown_on_one_line(path: str, longest: int) -> None:
    assert shown(path, longest).isprintable()
    assert len(shown(path, longest)) <= longest


def test_a_path_is_shown_as_it_is_or_escaped() -> None:
    assert shown("täglich/a b.txt") == "täglich/a b.txt"
    assert shown("a\nb\x1b[0m\udcff") == "a\\nb\\x1b[0m\\xff"
