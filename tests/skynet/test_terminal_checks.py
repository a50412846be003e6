"""The settings of commands: what cannot be made is said at the start, by its key."""

from pathlib import Path

import pytest

from skynet.config import ConfigError, load_config


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "skynet.toml"
    file.write_text(text)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    try:
        config = load_config(file, env={"SKYNET_HOME": str(home), "HOME": str(tmp_path)})
    except ConfigError as exc:
        return [str(problem) for problem in exc.problems]
    return [f"warning: {warning}" for warning in config.warnings]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[terminal]\nsandbox = "podman"', "terminal.image"),
        ("[terminal]\ntimeout_s = 100\nlongest_s = 50", "terminal.timeout_s"),
        ('[terminal]\nsandbox = "chroot"', "terminal.sandbox"),
        ('[terminal.env]\n"A-B" = "x"', "terminal.env"),
        ('[terminal.hosts]\nuser = ["http://x/"]', "terminal.hosts.user[0]"),
        ('[terminal.hosts]\nadmin = ["ok.example", ""]', "terminal.hosts.admin[1]"),
        ('[[terminal.mounts]]\nsource = "relative"', "terminal.mounts[0].source"),
        ('[[terminal.mounts]]\nsource = "/etc"', "terminal.mounts[0].source"),
        ('[[terminal.mounts]]\nsource = "/usr/share"\ntarget = "/usr"', "terminal.mounts[0].target"),
        ('[[terminal.mounts]]\nsource = "/usr/share"\npeople = ["role:child"]', "terminal.mounts[0].people[0]"),
        ('[[terminal.rules]]\ndecision = "deny"\nprogram = "/bin/ls"', "terminal.rules[0].program"),
        ('[terminal]\nblocked = ["  "]', "terminal.blocked[0]"),
        ("[terminal.limits]\nprocesses = 0", "terminal.limits.processes"),
    ],
)
def test_what_cannot_be_is_named_by_its_key(tmp_path: Path, text: str, key: str) -> None:
    found = problems(tmp_path, text)
    assert found
    assert any(key in problem for problem in found), found


def test_the_gateways_own_directory_is_no_mount(tmp_path: Path) -> None:
    """BA-100."""
    (tmp_path / "home" / "users").mkdir(parents=True)
    for source in (tmp_path, tmp_path / "home", tmp_path / "home" / "users"):
        assert problems(tmp_path, f'[[terminal.mounts]]\nsource = "{source}"')


def test_what_can_be(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    text = f"""
[terminal]
blocked = ["terraform apply"]
[terminal.env]
WEATHER_KEY = "x"
[terminal.hosts]
user = ["*.example.org"]
[[terminal.rules]]
decision = "ask"
program = "make"
args = ["deploy"]
[[terminal.mounts]]
source = "{tmp_path / "photos"}"
people = ["role:user"]
"""
    assert problems(tmp_path, text) == []


def test_nothing_that_holds_commands_is_warned_about(tmp_path: Path) -> None:
    (warning,) = problems(tmp_path, '[terminal]\nsandbox = "none"')
    assert "terminal.sandbox" in warning


def test_a_disk_that_is_not_plugged_in_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    text = f'[[terminal.mounts]]\nsource = "{tmp_path / "gone"}"\n[[terminal.mounts]]\nsource = "{tmp_path / "there"}"'
    (warning,) = problems(tmp_path, text)
    assert "terminal.mounts[0].source" in warning
    found = problems(tmp_path, text.replace(str(tmp_path / "there"), "/etc"))
    assert any("terminal.mounts[1].source" in problem for problem in found), found
