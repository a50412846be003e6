"""Which mounts are refused, and what of those that are not is hidden."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.sandbox import Mount, Profile
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.mounts import MountRefused, blocked_within, check_mounts, is_blocked
from tests.skynet_terminal.sandbox.running import folder_of, shell
from tests.support.programs import needs

BLOCKED = (
    ".ssh .SSH .gnupg .aws .env .env.local credentials credentials.json .kube .docker server.pem tls.key id_rsa "
    "id_rsa.old id_ed25519 .netrc .bash_history .zsh_history .config/gcloud .config/gh .pgpass .git-credentials "
    "docker.sock store.kdbx .skynet"
)
OF_THE_SANDBOX = (
    "/ /files /files/x /usr/local/x /etc/passwd /proc /dev/x /tmp /run/skynet /bin/sh /var relative /mnt/../etc "
    "/lib64/x /root"
)


@dataclass(frozen=True)
class Setting:
    source: str
    target: str = ""
    mode: str = "ro"


def made(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (directory / name).mkdir(exist_ok=True)
        else:
            (directory / name).write_text(f"secret of {name}")
    return directory


def refused(*settings: Setting, hidden: tuple[Path, ...] = ()) -> str:
    with pytest.raises(MountRefused) as caught:
        check_mounts(settings, hidden=hidden)
    return str(caught.value)


def test_a_mount_has_a_target_of_its_name_and_is_read_only(tmp_path: Path) -> None:
    """BA-099."""
    made(tmp_path, "project/", "notes/")
    settings = (Setting(str(tmp_path / "project")), Setting(str(tmp_path / "notes"), "/data/notes", "rw"))
    assert check_mounts(settings) == (
        Mount(source=tmp_path / "project", target=PurePosixPath("/mnt/project")),
        Mount(source=tmp_path / "notes", target=PurePosixPath("/data/notes"), writable=True),
    )


@pytest.mark.parametrize("name", BLOCKED.split())
def test_names_that_hold_secrets(tmp_path: Path, name: str) -> None:
    """BA-184, BA-212: as the source, as a directory on the way to it, and as what a link leads to."""
    made(tmp_path, f"{name}/below/")
    assert "terminal.mounts[0].source" in refused(Setting(str(tmp_path / name)))
    assert "always blocked" in refused(Setting(str(tmp_path / name / "below")))
    (tmp_path / "link").symlink_to(tmp_path / name)
    assert "always blocked" in refused(Setting(str(tmp_path / "link")))
    assert blocked_within(tmp_path) == [tmp_path / name]


@pytest.mark.parametrize("name", [".env.example", "id_rsa.pub", "environment", "keys", "credential", "pem", ".github"])
def test_names_that_hold_none(name: str) -> None:
    assert not is_blocked(PurePosixPath("/srv", name))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("/", "too much"),
        ("/home", "too much"),
        ("/usr", "too much"),
        ("/etc", "belongs to the system"),
        ("/etc/ssl", "belongs to the system"),
        ("/proc/self", "belongs to the system"),
        ("/sys", "belongs to the system"),
        ("/dev/shm", "belongs to the system"),
        ("/root", "belongs to the system"),
        ("/boot", "belongs to the system"),
        ("/var/run/docker.sock", "cannot be found"),
        ("relative", "not absolute"),
        ("/no/such/directory", "cannot be found"),
        ("/usr/../etc/ssl", "belongs to the system"),
    ],
)
def test_sources_of_the_system(source: str, words: str) -> None:
    """BA-100."""
    message = refused(Setting("/usr/share"), Setting(source, "/mnt/x"))
    assert message.startswith("terminal.mounts[1].source: ")
    assert words in message or "always blocked" in message


def test_the_gateways_own_directory(tmp_path: Path) -> None:
    """BA-100, BA-185: neither it, nor what is in it, nor what it is in."""
    home = made(tmp_path, "home/users/ada/files/") / "home"
    for source in (home, home / "users/ada/files", tmp_path):
        assert "the gateway's own" in refused(Setting(str(source)), hidden=(home,))
    (tmp_path / "link").symlink_to(home)
    assert "the gateway's own" in refused(Setting(str(tmp_path / "link")), hidden=(home,))


@pytest.mark.parametrize("target", OF_THE_SANDBOX.split())
def test_targets(tmp_path: Path, target: str) -> None:
    assert refused(Setting(str(made(tmp_path, "a/") / "a"), target)).startswith("terminal.mounts[0].target: ")


def test_mounts_in_each_other(tmp_path: Path) -> None:
    made(tmp_path, "a/b/", "c/")
    outer, inner, other = (str(tmp_path / name) for name in ("a", "a/b", "c"))
    assert "in another mount's" in refused(Setting(outer, "/mnt/x"), Setting(other, "/mnt/x/y"))
    assert "in another mount's" in refused(Setting(outer, "/mnt/x"), Setting(other, "/mnt/x"))
    for settings in ((Setting(outer, mode="rw"), Setting(inner)), (Setting(inner), Setting(outer, mode="rw"))):
        assert "one in the other" in refused(*settings)
    assert len(check_mounts((Setting(outer), Setting(inner)))) == 2
    assert refused(Setting(outer, mode="write")).startswith("terminal.mounts[0].mode: ")


@given(st.lists(st.sampled_from(["..", ".", "etc", "proc", "root", "", "home", "usr"]), min_size=1, max_size=8))
def test_no_way_of_writing_a_path_leads_to_the_system(parts: list[str]) -> None:
    source = "/" + "/".join(parts)
    try:
        (mount,) = check_mounts([Setting(source, "/mnt/x")])
    except MountRefused:
        return
    assert not any(mount.source.is_relative_to(each) for each in ("/etc", "/proc", "/root", "/home"))
    assert mount.source not in (Path("/"), Path("/usr"))


def test_what_is_blocked_in_a_tree(tmp_path: Path) -> None:
    """BA-184: on top and further down, not in other people's code, and not by links."""
    made(tmp_path, "a/.env", "a/b/c/.ssh/id_rsa", "a/.env.example", "node_modules/x/test.pem", "d/.config/gh/hosts.yml")
    (tmp_path / "link").symlink_to(tmp_path / "a" / ".env")
    (tmp_path / "id_rsa").symlink_to("/nowhere")
    assert sorted(blocked_within(tmp_path)) == sorted(
        [tmp_path / "a/.env", tmp_path / "a/b/c/.ssh", tmp_path / "d/.config/gh"]
    )
    assert blocked_within(tmp_path / "missing") == []


@needs("bwrap")
@pytest.mark.parametrize("writable", [False, True])
async def test_what_is_blocked_cannot_be_read_inside(tmp_path: Path, writable: bool) -> None:
    """BA-184, BA-185: a project with secrets can be mounted; those are not there."""
    project = (
        made(tmp_path, "project/.env", "project/.ssh/id_rsa", "project/code", "project/deep/er/tls.key") / "project"
    )
    mount = Mount(source=project, target=PurePosixPath("/mnt/project"), writable=writable)
    profile = Profile(folder=folder_of(tmp_path), mounts=(mount,))
    script = (
        "cd /mnt/project; cat code .env .ssh/* deep/er/tls.key; echo x > .env; rm -f .env; mv .ssh ssh; echo x > .ssh/x"
    )
    ended = await shell(Bubblewrap(tmp_path / "sandbox"), profile, script)
    assert ended.stdout == "secret of project/code"
    assert (project / ".env").read_text() == "secret of project/.env"
    assert [path.name for path in (project / ".ssh").iterdir()] == ["id_rsa"]
