"""What every sandbox does, whichever program it is made with.

A test class of one inherits from :class:`SandboxContract` and has a fixture ``sandbox``.
"""

import asyncio
from pathlib import Path, PurePosixPath

import psutil
import pytest

from skynet_terminal.sandbox import HOME_INSIDE, SANDBOX_UID, Limits, Mount, Profile, Sandbox
from tests.skynet_terminal.sandbox.running import folder_of, run, started
from tests.support.polling import until


class SandboxContract:
    """Scripts are for ``sh``, as an image may have no other shell."""

    @pytest.fixture
    def profile(self, tmp_path: Path) -> Profile:
        return Profile(folder=folder_of(tmp_path))

    async def test_both_outputs_and_the_exit_code(self, sandbox: Sandbox, profile: Profile) -> None:
        ended = await run(sandbox, profile, ["sh", "-c", "echo out; echo err >&2; exit 7"])
        assert (ended.stdout, ended.stderr, ended.status) == ("out\n", "err\n", 7)

    async def test_arguments_arrive_as_they_are(self, sandbox: Sandbox, profile: Profile) -> None:
        odd = ["a b", "", "$HOME", "-x", "--", "ä\n'\"\\", "*"]
        ended = await run(sandbox, profile, ["sh", "-c", 'for each; do printf "<%s>" "$each"; done', "sh", *odd])
        assert ended.stdout == "".join(f"<{each}>" for each in odd)

    async def test_a_program_that_is_missing(self, sandbox: Sandbox, profile: Profile) -> None:
        ended = await run(sandbox, profile, ["no-such-program"])
        assert ended.status in (126, 127)
        assert "no-such-program" in ended.stderr

    async def test_standard_input(self, sandbox: Sandbox, profile: Profile) -> None:
        data = b"line\n" * 50_000
        assert (await run(sandbox, profile, ["wc", "-c"], stdin=data)).stdout.split() == [str(len(data))]

    async def test_the_folder_is_home_and_the_first_directory(self, sandbox: Sandbox, profile: Profile) -> None:
        ended = await run(sandbox, profile, ["sh", "-c", 'pwd; echo "$HOME"'])
        assert ended.stdout == f"{HOME_INSIDE}\n{HOME_INSIDE}\n"

    async def test_another_directory_to_begin_in(self, sandbox: Sandbox, profile: Profile) -> None:
        (profile.folder / "a b").mkdir()
        assert (await run(sandbox, profile, ["pwd"], cwd=HOME_INSIDE / "a b")).stdout == f"{HOME_INSIDE}/a b\n"
        assert (await run(sandbox, profile, ["pwd"], cwd=PurePosixPath("/usr"))).stdout == "/usr\n"

    async def test_a_directory_that_is_missing_is_an_error(self, sandbox: Sandbox, profile: Profile) -> None:
        ended = await run(sandbox, profile, ["pwd"], cwd=HOME_INSIDE / "missing")
        assert ended.status != 0
        assert ended.stderr

    async def test_files_are_written_to_the_folder_and_read_from_it(self, sandbox: Sandbox, profile: Profile) -> None:
        """BA-087, BA-098: what is in the folder stays, and nothing else does."""
        (profile.folder / "in").write_text("from outside")
        script = "cat in > out; echo x > /tmp/gone; cat /tmp/gone"
        assert (await run(sandbox, profile, ["sh", "-c", script])).stdout == "x\n"
        assert (profile.folder / "out").read_text() == "from outside"
        assert (await run(sandbox, profile, ["sh", "-c", "cat /tmp/gone"])).status != 0

    async def test_nothing_but_the_folder_and_tmp_can_be_written(self, sandbox: Sandbox, profile: Profile) -> None:
        """BA-098, BA-179."""
        script = "for each in / /etc /usr /usr/bin /bin /var /proc/sys/kernel; do echo x > $each/x && echo $each; done"
        assert (await run(sandbox, profile, ["sh", "-c", script])).stdout == ""

    async def test_it_is_no_root(self, sandbox: Sandbox, profile: Profile) -> None:
        """BA-024, BA-101."""
        assert (await run(sandbox, profile, ["id", "-u"])).stdout == f"{SANDBOX_UID}\n"
        (capabilities,) = {
            line.split()[1]
            for line in (await run(sandbox, profile, ["cat", "/proc/self/status"])).stdout.splitlines()
            if line.startswith(("CapEff", "CapPrm", "CapBnd"))
        }
        assert int(capabilities, 16) == 0

    async def test_variables(self, sandbox: Sandbox, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
        """SP-120: those of the profile and a few everybody has, none of the gateway."""
        monkeypatch.setenv("OPENAI_API_KEY", "sk-gateway")
        mine = Profile(folder=profile.folder, env={"TOKEN": "a b\n='\"$x", "LANG": "de_DE.UTF-8"})
        ended = await run(sandbox, mine, ["env", "-0"])
        found = dict(line.split("=", 1) for line in ended.stdout.split("\0") if line)
        assert found["TOKEN"] == "a b\n='\"$x"
        assert found["LANG"] == "de_DE.UTF-8"
        assert (found["HOME"], found["USER"]) == (str(HOME_INSIDE), "skynet")
        allowed = {"PATH", "HOME", "LANG", "TERM", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "TOKEN"}
        assert set(found) <= allowed | {"HOSTNAME", "container"}

    async def test_values_of_variables_are_on_no_command_line(self, sandbox: Sandbox, profile: Profile) -> None:
        """SP-120: every user of the machine can read those."""
        launch = await sandbox.prepare(Profile(folder=profile.folder, env={"TOKEN": "sk-tool"}), ["true"])
        try:
            assert "sk-tool" not in " ".join(launch.argv)
        finally:
            await launch.release()

    async def test_no_network(self, sandbox: Sandbox, profile: Profile) -> None:
        """BA-102: there is none but its own loopback."""
        ended = await run(sandbox, profile, ["cat", "/proc/net/dev"])
        names = {line.split(":")[0].strip() for line in ended.stdout.splitlines() if ":" in line}
        assert names <= {"lo"}
        assert len((await run(sandbox, profile, ["cat", "/proc/net/route"])).stdout.splitlines()) <= 1

    async def test_mounts(self, sandbox: Sandbox, profile: Profile, tmp_path: Path) -> None:
        """BA-099."""
        for name in ("reference", "project"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text(name)
            (tmp_path / name / ".env").write_text("SECRET=1")
        mounts = (
            Mount(source=tmp_path / "reference", target=PurePosixPath("/mnt/reference")),
            Mount(source=tmp_path / "project", target=PurePosixPath("/mnt/project"), writable=True),
        )
        mine = Profile(folder=profile.folder, mounts=mounts)
        script = "cat /mnt/*/file; cat /mnt/*/.env; echo x > /mnt/project/new; echo x > /mnt/reference/new"
        ended = await run(sandbox, mine, ["sh", "-c", script])
        assert ended.stdout == "projectreference"
        assert (tmp_path / "project/new").exists()
        assert not (tmp_path / "reference/new").exists()

    async def test_its_limits_are_in_force(self, sandbox: Sandbox, profile: Profile) -> None:
        mine = Profile(folder=profile.folder, limits=Limits(open_files=64, cpu_s=33, file_bytes=1024 * 1024))
        ended = await run(sandbox, mine, ["sh", "-c", "ulimit -n; ulimit -t; ulimit -c; head -c 2M /dev/zero > big"])
        assert ended.stdout.split() == ["64", "33", "0"]
        assert (profile.folder / "big").stat().st_size <= 1024 * 1024
        assert ended.status != 0

    async def test_kill_ends_all_of_it(self, sandbox: Sandbox, profile: Profile) -> None:
        script = "(setsid sh -c 'echo > one; sleep 1000') & sleep 1000 & echo > two; sleep 1000"
        async with started(sandbox, profile, ["sh", "-c", script]) as (launch, process):
            await until(lambda: (profile.folder / "one").exists() and (profile.folder / "two").exists())
            launch.kill()
            launch.kill()
            await until(lambda: process.poll() is not None)
        assert not self.running_in(profile.folder)

    async def test_it_can_be_killed_before_it_has_begun(self, sandbox: Sandbox, profile: Profile) -> None:
        async with started(sandbox, profile, ["sh", "-c", "sleep 1000"]) as (launch, process):
            launch.kill()
            await until(lambda: process.poll() is not None)
        assert not self.running_in(profile.folder)

    async def test_what_it_leaves_running_ends_with_it(self, sandbox: Sandbox, profile: Profile) -> None:
        """BA-087: whether it has a session of its own and a parent or not."""
        script = "setsid sh -c 'sleep 1000 <&- >&- 2>&- & echo > started' ; exit 3"
        assert (await run(sandbox, profile, ["sh", "-c", script])).status == 3
        assert (profile.folder / "started").exists()
        assert not self.running_in(profile.folder)

    async def test_a_launch_that_is_never_started(self, sandbox: Sandbox, profile: Profile) -> None:
        launch = await sandbox.prepare(profile, ["true"])
        launch.kill()
        await launch.release()
        await launch.release()

    async def test_release_leaves_no_descriptors(self, sandbox: Sandbox, profile: Profile) -> None:
        await run(sandbox, profile, ["true"])
        before = psutil.Process().num_fds()
        for script in ("true", "exit 1", "kill -9 $$", "sleep 1000 &"):
            await run(sandbox, profile, ["sh", "-c", script])
        await (await sandbox.prepare(profile, ["true"])).release()
        async with started(sandbox, profile, ["sleep", "1000"]):
            pass
        assert psutil.Process().num_fds() == before

    async def test_many_at_a_time(self, sandbox: Sandbox, profile: Profile) -> None:
        scripts = [f"echo {number}; sleep 0.05; echo {number}" for number in range(8)]
        ended = await asyncio.gather(*(run(sandbox, profile, ["sh", "-c", script]) for script in scripts))
        assert [each.stdout for each in ended] == [f"{number}\n{number}\n" for number in range(8)]

    def running_in(self, folder: Path) -> list[psutil.Process]:
        """The processes that have this folder as their working directory, by whatever name."""
        about = folder.stat()
        found = []
        for process in psutil.process_iter():
            try:
                inside = Path(f"/proc/{process.pid}/cwd").stat()
            except OSError:
                continue
            if (inside.st_dev, inside.st_ino) == (about.st_dev, about.st_ino):
                found.append(process)
        return found
