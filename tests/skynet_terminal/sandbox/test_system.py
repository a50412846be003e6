"""The ``/etc`` that commands see: what is copied of the machine's, and what never is."""

import os
from pathlib import Path

import pytest

from skynet_terminal.sandbox.system import SystemFiles, system_arguments


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "machine"
    for name in ("ssl/certs/ca.crt", "ssl/private/key.pem", "shadow", "sudoers", "pip.conf", "services", "passwd"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "resolv.conf").symlink_to("/run/systemd/resolve/resolv.conf")
    (source / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    return source


def names(files: SystemFiles) -> set[str]:
    return {str(path.relative_to(files.etc)) for path in files.etc.rglob("*") if not path.is_dir()}


def test_what_is_copied(tmp_path: Path, source: Path) -> None:
    files = SystemFiles(tmp_path / "sandbox", source=source)
    files.refresh()
    generated = {"group", "hostname", "hosts", "nsswitch.conf", "passwd", "resolv.conf"}
    assert names(files) == {"ssl/certs/ca.crt", "services", "localtime"} | generated
    assert (files.etc / "passwd").read_text().startswith("skynet:x:1000:")
    assert not (files.etc / "resolv.conf").is_symlink()
    assert (files.etc / "localtime").readlink() == Path("/usr/share/zoneinfo/Europe/Berlin")


def test_what_only_some_may_read_is_left_out(tmp_path: Path, source: Path) -> None:
    """As root the gateway could read it, and so could commands."""
    (source / "ssl/certs/own.key").write_text("secret")
    (source / "ssl/certs/own.key").chmod(0o640)
    (source / "vim").mkdir(mode=0o700)
    (source / "vim" / "vimrc").write_text("secret")
    os.mkfifo(source / "ssl/certs/pipe")
    files = SystemFiles(tmp_path / "sandbox", source=source)
    files.refresh()
    assert not names(files) & {"ssl/certs/own.key", "vim/vimrc", "ssl/certs/pipe"}


def test_it_is_made_anew_when_the_system_has_changed(tmp_path: Path, source: Path) -> None:
    files = SystemFiles(tmp_path / "sandbox", source=source)
    files.refresh()
    before = files.etc.stat().st_ino
    files.refresh()
    assert files.etc.stat().st_ino == before
    (source / "ssl/certs/new.crt").write_text("new")
    files.refresh()
    assert "ssl/certs/new.crt" in names(files)
    assert {path.name for path in (tmp_path / "sandbox").iterdir()} <= {"etc", "dev"}
    files.remove()
    assert list((tmp_path / "sandbox").iterdir()) == []
    files.refresh()
    assert "services" in names(files)


def test_directories_are_as_the_machine_has_them(tmp_path: Path) -> None:
    """Links with one merged ``/usr``, directories without."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "lib").mkdir()
    assert list(system_arguments(tmp_path)) == [
        *("--ro-bind", f"{tmp_path}/usr", "/usr"),
        *("--symlink", "usr/bin", "/bin"),
        *("--ro-bind", f"{tmp_path}/lib", "/lib"),
    ]
