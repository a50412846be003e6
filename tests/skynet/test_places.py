from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from skynet.places import Places
from skynet_agent.tools import ToolContext, ToolFailed
from skynet_memory.ids import Role, RunId, SessionKey, UserId

ADA = ToolContext(user_id=UserId("ada"), role=Role.USER, session_key=SessionKey("s"), run_id=RunId("r"))
BOB = replace(ADA, user_id=UserId("bob"))
ADMIN = replace(ADA, user_id=UserId("root"), role=Role.ADMIN)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    directory = tmp_path / "shared"
    directory.mkdir()
    return directory


@pytest.fixture
def places(home: Path, shared: Path, tmp_path: Path) -> Places:
    return Places(
        lambda context: home / "users" / context.user_id / "files",
        roots=[tmp_path / "missing", home, tmp_path, shared],
        sealed=[home],
        protected=lambda directory, name: name == "protected",
    )


def write(places: Places, context: ToolContext, path: str) -> Path:
    """Where the file is now."""
    with places.writable(context, path, make_parents=True) as place:
        place.replace(b"x")
        return Path(f"/proc/self/fd/{place.directory}").resolve() / place.name


def test_each_person_has_a_folder_that_is_made_private(places: Places, home: Path) -> None:
    assert write(places, ADA, "a") == home / "users/ada/files/a"
    assert write(places, BOB, "a") == home / "users/bob/files/a"
    for directory in (home, home / "users", home / "users/ada", home / "users/ada/files"):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_an_absolute_path_into_the_own_folder(places: Places, home: Path) -> None:
    assert write(places, ADA, str(home / "users/ada/files/b")) == home / "users/ada/files/b"


def test_only_admins_reach_other_roots(places: Places, shared: Path) -> None:
    assert write(places, ADMIN, str(shared / "deep" / "a")) == shared / "deep" / "a"
    with pytest.raises(ToolFailed, match="out of your folder; give a path that is relative to it"):
        write(places, ADA, str(shared / "a"))


def test_nobody_enters_the_gateways_own_directory(places: Places, home: Path) -> None:
    """An admin's root may hold it, or be it: in there are everybody's files and secrets."""
    write(places, BOB, "a")
    for path in (home / "users/bob/files/a", home / "skynet.toml"):
        with pytest.raises(ToolFailed, match="it belongs to the gateway itself"):
            write(places, ADMIN, str(path))
    assert not (home / "skynet.toml").exists()


def test_protected_names_are_not_written_but_read(places: Places, home: Path) -> None:
    with pytest.raises(ToolFailed, match="use workspace_update"):
        write(places, ADA, "deep/protected")
    (home / "users/ada/files/protected").write_text("x")
    with places.place(ADA, "protected") as place, place.opened():
        pass


def test_a_disk_that_is_nearly_full_is_left_to_the_gateway(home: Path) -> None:
    def folder_of(context: ToolContext) -> Path:
        return home / "users" / context.user_id / "files"

    write(Places(folder_of), ADA, "a")
    with pytest.raises(ToolFailed, match="b was not written: the disk is nearly full"):
        write(Places(folder_of, least_free_bytes=2**62), ADA, "b")
    assert [path.name for path in (home / "users/ada/files").iterdir()] == ["a"]


@pytest.mark.parametrize("path", ["", "deep/"])
def test_a_folder_is_no_name_to_write(places: Places, path: str) -> None:
    with pytest.raises(ToolFailed, match="the name of a folder"):
        write(places, ADA, path)


def test_a_directory_by_its_real_path(places: Places, home: Path) -> None:
    write(places, ADA, "deep/a")
    (home / "users/ada/files/link").symlink_to("deep")
    (home / "users/ada/files/leaves").symlink_to("../../bob")
    assert places.directory(ADA, "") == home / "users/ada/files"
    assert places.directory(ADA, "link") == home / "users/ada/files/deep"
    for path in ("leaves", "..", "deep/a", "missing"):
        with pytest.raises(ToolFailed):
            places.directory(ADA, path)


def test_failures_are_told_without_the_machines_paths(places: Places, home: Path) -> None:
    write(places, ADA, "file")
    (home / "users/ada/files/leaves").symlink_to(home)
    for path in ("missing/a", "file/a", "leaves/x", "../x", "x" * 300, "a\0b"):
        with pytest.raises(ToolFailed) as told, places.place(ADA, path):
            pass
        assert str(home) not in str(told.value)
        assert "\0" not in str(told.value)


def test_what_the_caller_raises_is_left_alone(places: Places) -> None:
    with pytest.raises(LookupError), ExitStack() as stack:
        stack.enter_context(places.place(ADA, "a"))
        raise LookupError
