"""Which sandbox is taken, what is said where none works, and what is found of one that does."""

import os
import shutil
from pathlib import Path

import psutil
import pytest

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox.bubblewrap import Bubblewrap
from skynet_terminal.sandbox.choose import choose, isolation_report
from skynet_terminal.sandbox.unconfined import Unconfined
from tests.support.programs import needs

EVERYTHING = {
    "user",
    "user namespace",
    "network namespace",
    "process namespace",
    "mount namespace",
    "no capabilities",
    "no new privileges",
    "seccomp",
    "no user namespaces inside",
    "read-only system",
    "rlimits",
}


@needs("bwrap")
@pytest.mark.parametrize("name", ["auto", "bubblewrap"])
async def test_bubblewrap_where_it_works(tmp_path: Path, name: str) -> None:
    """BA-022."""
    before = psutil.Process().num_fds()
    sandbox = await choose(name, directory=tmp_path / "sandbox")
    assert isinstance(sandbox, Bubblewrap)
    assert psutil.Process().num_fds() == before


@needs("bwrap")
async def test_all_that_isolates_is_in_force(tmp_path: Path) -> None:
    """BA-179, BA-180."""
    sandbox = await choose("bubblewrap", directory=tmp_path / "sandbox")
    report = await isolation_report(sandbox)
    assert report.name == "bubblewrap"
    assert report.version[0].isdecimal()
    assert {each.name for each in report.features if each.in_force} == EVERYTHING
    assert [each for each in report.warnings if "runs as root" not in each] == []
    assert any("runs as root" in each for each in report.warnings) == (os.geteuid() == 0)


async def test_none_is_what_somebody_asked_for(tmp_path: Path) -> None:
    """SQ-117: it says what that means."""
    sandbox = await choose("none", directory=tmp_path)
    assert isinstance(sandbox, Unconfined)
    (warning,) = (await isolation_report(sandbox)).warnings
    assert "can do and read whatever the gateway can" in warning


async def test_auto_never_ends_in_none(tmp_path: Path) -> None:
    """BA-022: where nothing works no command runs, and it is said what to do about each."""
    with pytest.raises(SandboxUnavailable) as caught:
        await choose("auto", directory=tmp_path / "sandbox", path=str(tmp_path))
    assert "apt install bubblewrap" in str(caught.value)
    assert "terminal.image" in str(caught.value)
    with pytest.raises(SandboxUnavailable, match=r"podman is not installed.*docker is not installed"):
        await choose("auto", directory=tmp_path / "sandbox", image="debian", path=str(tmp_path))


@pytest.mark.parametrize("name", ["bubblewrap", "podman", "docker"])
async def test_one_that_is_missing_is_refused(tmp_path: Path, name: str) -> None:
    """BA-022: another is not taken for it."""
    with pytest.raises(SandboxUnavailable, match=f"{name} is not installed"):
        await choose(name, directory=tmp_path / "sandbox", image="debian", path=str(tmp_path))


async def test_an_engine_needs_an_image(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"set terminal\.image"):
        await choose("podman", directory=tmp_path)


async def test_a_name_that_is_no_sandbox(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no sandbox 'chroot'"):
        await choose("chroot", directory=tmp_path)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: setting up uid map: Permission denied", "docs/sandbox.md"),
        ("bwrap: No permissions to create new namespace, likely because the kernel does not allow it", "seccomp="),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "no network of its own"),
        ("bwrap: something new", "docs/sandbox.md"),
    ],
)
async def test_what_bubblewrap_says_becomes_advice(tmp_path: Path, said: str, advice: str) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    program.chmod(0o755)
    with pytest.raises(SandboxUnavailable) as caught:
        await choose("bubblewrap", directory=tmp_path / "sandbox", path=str(tmp_path), settings=tmp_path)
    assert said in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value", "advice"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor"),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    ],
)
async def test_what_the_kernel_is_set_to_becomes_advice(tmp_path: Path, setting: str, value: str, advice: str) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text(f"{value}\n")
    with pytest.raises(SandboxUnavailable, match=advice):
        await choose("bubblewrap", directory=tmp_path / "sandbox", path=str(tmp_path), settings=tmp_path)


@needs("bwrap")
async def test_a_bubblewrap_that_cannot_forbid_user_namespaces(tmp_path: Path) -> None:
    """Those before 0.8: the filter forbids them as well."""
    real = shutil.which("bwrap")
    program = tmp_path / "bwrap"
    program.write_text(
        f'#!/bin/sh\nif tr "\\0" "\\n" < /proc/self/fd/$2 | grep -q disable-userns; then\n'
        f'echo "bwrap: Unknown option --disable-userns" >&2; exit 1; fi\nexec {real} "$@"\n'
    )
    program.chmod(0o755)
    sandbox = await choose("bubblewrap", directory=tmp_path / "sandbox", path=str(tmp_path))
    assert {each.name for each in (await isolation_report(sandbox)).features if each.in_force} == EVERYTHING
