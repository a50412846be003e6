"""The sandbox made with podman or docker: what is asked of the engine, and where one works, what it does."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from skynet_terminal.errors import SandboxUnavailable
from skynet_terminal.sandbox import HOME_INSIDE, Limits, Mount, Profile, Sandbox
from skynet_terminal.sandbox.egress import EgressProxy
from skynet_terminal.sandbox.engine import ContainerEngine, EngineName
from tests.skynet_terminal.sandbox.contract import SandboxContract
from tests.skynet_terminal.sandbox.running import Tasks, folder_of, run
from tests.skynet_terminal.sandbox.test_egress import OK, World, fixed, serving
from tests.support.programs import needs

IMAGE = "localhost/skynet-contract:1"
ENGINES: tuple[EngineName, ...] = ("podman", "docker")
CLIENT = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with clients of both engines, which say what they are asked."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ENGINES:
        (directory / name).write_text(CLIENT)
        (directory / name).chmod(0o755)
    monkeypatch.setattr("skynet_terminal.sandbox.engine.PATH", f"{directory}:/usr/bin:/bin")
    return directory


def options_of(arguments: list[str], name: str) -> list[str]:
    return [arguments[at + 1] for at, each in enumerate(arguments) if each == name]


@pytest.mark.parametrize("name", ENGINES)
async def test_what_the_engine_is_asked_for(name: EngineName, path: Path, tmp_path: Path) -> None:
    """BA-098, BA-101, BA-102, BA-179."""
    folder = folder_of(tmp_path, "a, b")
    secret = folder_of(tmp_path, "secrets") / ".env"
    secret.write_text("x")
    mount = Mount(source=secret.parent, target=PurePosixPath("/mnt/shared"))
    limits = Limits(processes=12, memory_bytes=1024**3, tmp_bytes=2048, open_files=99)
    profile = Profile(folder=folder, mounts=(mount,), env={"TOKEN": "sk-\n1"}, limits=limits)
    launch = await ContainerEngine(name, "image:1").prepare(profile, ["ls", "-l"], cwd=HOME_INSIDE / "x")
    try:
        arguments = [*launch.argv]
        assert arguments[:2] == [str(path / name), "run"]
        at = arguments.index("image:1")
        assert arguments[at + 1] == "-c" and arguments[at + 3 :] == ["sh", "/files/x", "ls", "-l"]
        options = arguments[:at]
        assert {"--rm", "--read-only", "--interactive"} <= set(options) and "--tty" not in options
        for option, value in {
            "--network": "none",
            "--cap-drop": "ALL",
            "--pull": "never",
            "--pids-limit": "12",
            "--memory": str(1024**3),
            "--entrypoint": "/bin/sh",
        }.items():
            assert options_of(options, option) == [value]
        assert "no-new-privileges" in options_of(options, "--security-opt")
        assert any(each.startswith("/tmp:") and "size=2048" in each for each in options_of(options, "--tmpfs"))
        mounts = options_of(options, "--mount")
        assert mounts[0] == f'type=bind,"source={folder}",target=/files'
        assert f"type=bind,source={secret.parent},target=/mnt/shared,readonly" in mounts
        assert "type=bind,source=/dev/null,target=/mnt/shared/.env,readonly" in mounts
        assert "nofile=99:99" in options_of(options, "--ulimit")
        assert options_of(options, "--user")
        assert "sk-" not in " ".join(arguments) and "TOKEN" not in launch.env
        (variables,) = (each for each in mounts if "target=/run/skynet/variables" in each)
        file = tmp_path / variables.split(",")[1].removeprefix("source=")
        assert file.stat().st_mode & 0o777 == 0o600
        assert "export TOKEN='sk-\n1'\n" in file.read_text()
        assert variables.endswith(",readonly")
    finally:
        await launch.release()
    assert not file.exists()


@pytest.mark.parametrize("name", ENGINES)
async def test_a_terminal(name: EngineName, path: Path, tmp_path: Path) -> None:
    launch = await ContainerEngine(name, "image:1").prepare(Profile(folder=folder_of(tmp_path)), ["sh"], tty=True)
    assert "--tty" in launch.argv
    await launch.release()


@pytest.mark.parametrize("name", ENGINES)
async def test_each_container_has_a_name_of_its_own(name: EngineName, path: Path, tmp_path: Path) -> None:
    names = set()
    for _ in range(3):
        launch = await ContainerEngine(name, "image:1").prepare(Profile(folder=folder_of(tmp_path)), ["true"])
        names |= set(options_of([*launch.argv], "--name"))
        await launch.release()
    assert len(names) == 3


async def test_hosts(path: Path, tmp_path: Path) -> None:
    profile = Profile(folder=folder_of(tmp_path), hosts=("good.example",))
    with pytest.raises(SandboxUnavailable, match="no egress proxy"):
        await ContainerEngine("podman", "image:1").prepare(profile, ["true"])
    async with Tasks() as tasks:
        proxy = EgressProxy(tasks, directory=tmp_path / "egress")
        launch = await ContainerEngine("podman", "image:1", egress=proxy).prepare(profile, ["true"])
        arguments = [*launch.argv]
        forwarder = ["python3", "-I", "-S", "/run/skynet/egress_forwarder.py", "3128", "/run/skynet/egress.sock"]
        assert arguments[-len(forwarder) - 1 :] == [*forwarder, "true"]
        assert options_of(arguments, "--network") == ["none"]
        assert any("target=/run/skynet/egress.sock" in each for each in options_of(arguments, "--mount"))
        assert len([*(tmp_path / "egress").iterdir()]) == 1
        await launch.release()
        assert not [*(tmp_path / "egress").iterdir()]


async def test_there_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skynet_terminal.sandbox.engine.PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="podman is not installed"):
        await ContainerEngine("podman", "image:1").prepare(Profile(folder=folder_of(tmp_path)), ["true"])


async def test_a_variable_that_cannot_be_one(path: Path, tmp_path: Path) -> None:
    for name in ("", "a=b", "a b", "x;id", "é"):
        with pytest.raises(ValueError, match="cannot be a variable"):
            await ContainerEngine("docker", "image:1").prepare(
                Profile(folder=folder_of(tmp_path), env={name: "x"}), ["true"]
            )


def podman(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["podman", *arguments], env=environ, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of a podman with a storage of its own, in which there is a small image."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox, of which an image is made, is not installed")
    directory = tmp_path_factory.mktemp("podman")
    root = directory / "root"
    for each in ("bin", "usr", "etc", "tmp", "files", "run", "proc", "dev", "sys", "var", "mnt"):
        (root / each).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for each in ("lib", "lib64"):  # for programs of the machine, whose /usr a test mounts
        (root / each).symlink_to(f"usr/{each}")
    shutil.copy(busybox, root / "bin/busybox")
    (root / "etc/passwd").write_text("skynet:x:1000:1000::/files:/bin/sh\n")
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    subprocess.run(["tar", "-cf", directory / "image.tar", "-C", root, "."], check=True)
    storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{directory}/graph"\nrunroot = "{directory}/run"\n'
    (directory / "storage.conf").write_text(storage)
    runtime = next((each for each in ("runc", "crun") if shutil.which(each)), "crun")
    (directory / "containers.conf").write_text(f'[engine]\nruntime = "{runtime}"\n')
    environ = os.environ | {
        "CONTAINERS_STORAGE_CONF": f"{directory}/storage.conf",
        "CONTAINERS_CONF": f"{directory}/containers.conf",
    }
    podman(environ, "import", f"{directory}/image.tar", IMAGE)
    tried = podman(
        environ, "run", "--rm", "--network=none", "--ulimit=nproc=99:99", "--ulimit=nofile=99:99", "--pids-limit=9",
        "--memory=100m", IMAGE, "/bin/true",
    )  # fmt: skip
    if tried.returncode != 0:
        pytest.skip(f"podman cannot run containers here: {tried.stderr.strip()[-300:]}")
    yield environ
    assert podman(environ, "ps", "--all", "--quiet").stdout == "", "containers were left behind"
    podman(environ, "rmi", "--all", "--force")


@needs("podman")
class TestPodman(SandboxContract):
    @pytest.fixture
    async def sandbox(self, environ: Mapping[str, str]) -> AsyncIterator[Sandbox]:
        yield ContainerEngine("podman", IMAGE, environ=environ)

    async def test_an_image_that_is_missing(self, environ: Mapping[str, str], profile: Profile) -> None:
        """It is not fetched."""
        ended = await run(ContainerEngine("podman", "localhost/missing:1", environ=environ), profile, ["true"])
        assert ended.status == 125
        assert "localhost/missing:1" in ended.stderr

    async def test_a_directory_that_is_not_to_be_seen(
        self, environ: Mapping[str, str], profile: Profile, tmp_path: Path
    ) -> None:
        """BA-100: what is in it is not copied to what hides it either."""
        for name in ("project/.ssh", "project/state"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "key").write_text("s3cr3t")
        mount = Mount(source=tmp_path / "project", target=PurePosixPath("/mnt/project"))
        sandbox = ContainerEngine("podman", IMAGE, environ=environ, hidden=[tmp_path / "project" / "state"])
        mine = Profile(folder=profile.folder, mounts=(mount,))
        ended = await run(
            sandbox, mine, ["sh", "-c", "cd /mnt/project; ls -A . .ssh state; grep -r s3cr3t .; echo end"]
        )
        assert ended.stdout.split() == [".:", ".ssh", "state", ".ssh:", "state:", "end"]

    async def test_hosts(self, environ: Mapping[str, str], profile: Profile, tmp_path: Path) -> None:
        """The machine's own Python stands for that of an image."""
        async with Tasks() as tasks:
            world = World(tasks, tmp_path / "egress")
            sandbox = ContainerEngine("podman", IMAGE, environ=environ, egress=world.make())
            usr = tuple(
                Mount(source=Path(f"/usr/{each}"), target=PurePosixPath(f"/usr/{each}")) for each in ("bin", "lib")
            )
            usr += (Mount(source=Path("/usr/lib64"), target=PurePosixPath("/usr/lib64")),)
            async with serving(fixed(OK)) as port:
                mine = Profile(folder=profile.folder, mounts=usr, hosts=(f"good.example:{port}",))
                script = f"wget -q -O - http://good.example:{port}/; wget -O - http://evil.example/; exit 7"
                ended = await run(sandbox, mine, ["sh", "-c", script])
            assert (ended.stdout, ended.status) == ("ok", 7), ended.stderr
            assert "403 Forbidden" in ended.stderr
            assert not list(world.directory.iterdir())
            await world.proxy.close()
