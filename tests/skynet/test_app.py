"""What is decided where the parts are put together: which places no tool of anybody's touches."""

import os
from pathlib import Path

import pytest

from skynet.app_settings import private_places
from skynet.config import Config, load_config
from skynet.places import Places
from skynet.tools import built_in_tools
from skynet_agent.messages import TextBlock, ToolCallBlock
from skynet_agent.tools import Toolbox, ToolContext
from skynet_agent.workspace import Workspace
from skynet_memory.ids import Role, RunId, SessionKey, UserId

ADMIN = ToolContext(
    user_id=UserId("root"), role=Role.ADMIN, session_key=SessionKey("user:root:agent:main:main"), run_id=RunId("run")
)
SECRET = "sk-of-the-house"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """One that keeps everything where the person who wrote it wanted it."""
    for name in ("conf", "data", "log", "keys", "me/.aws", "me/.config/gcloud"):
        (tmp_path / name).mkdir(parents=True)
    file = tmp_path / "conf" / "house.toml"
    file.write_text(
        f'[providers.lab]\nbase_url = "http://127.0.0.1:1"\napi_key = "{SECRET}"\n'
        f'[providers.vertex]\ncredentials_file = "{tmp_path}/keys/google.json"\n'
        f'[database]\npath = "{tmp_path}/data/house.db"\n[logging]\nfile = "{tmp_path}/log/house.log"\n'
        "[agent]\nrestrict_to_workspace = false\n"
    )
    return load_config(file, env={"SKYNET_HOME": str(tmp_path / "home")})


@pytest.fixture
def toolbox(config: Config, tmp_path: Path) -> Toolbox:
    config.home.mkdir()
    workspace = Workspace(config.home)
    env = {"HOME": str(tmp_path / "me"), "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "keys" / "default.json")}
    places = Places(
        lambda context: config.home / "users" / context.user_id / "files",
        roots=[Path("/")],
        sealed=private_places(config, env),
        protected=workspace.protects,
    )
    return Toolbox(built_in_tools(places=places, workspace=workspace), permits=lambda context, tool: None)


async def call(toolbox: Toolbox, tool: str, **arguments: object) -> tuple[str, bool]:
    result = await toolbox.run(ToolCallBlock("call", tool, arguments), ADMIN)
    return "".join(block.text for block in result.content if isinstance(block, TextBlock)), result.is_error


FILES = (
    "conf/house.toml",
    "data/house.db",
    "data/house.db-wal",
    "log/house.log",
    "log/house.log.1",
    "keys/google.json",
    "keys/default.json",
    "me/.aws/credentials",
    "me/.config/gcloud/application_default_credentials.json",
    "home/gateway.token",
    "home/credentials/qwen.json",
    "home/users/ada/files/diary.txt",
)


@pytest.mark.parametrize("name", FILES)
async def test_an_admin_with_all_of_the_machine_does_not_reach_the_gateways_own(
    toolbox: Toolbox, tmp_path: Path, name: str
) -> None:
    """BA-068."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(SECRET)
    before = file.read_bytes()
    for path in (file, await another_name(tmp_path, file)):
        for tool, arguments in (
            ("read_file", {}),
            ("write_file", {"content": "x"}),
            ("patch_file", {"old_text": SECRET, "new_text": "x"}),
        ):
            told, is_error = await call(toolbox, tool, path=str(path), **arguments)
            assert is_error and SECRET not in told, told
    told, _ = await call(toolbox, "search_files", query=SECRET, path=str(tmp_path))
    assert name not in told
    assert file.read_bytes() == before


async def another_name(tmp_path: Path, file: Path) -> Path:
    link = tmp_path / "link"
    link.symlink_to(file)
    return link


async def test_nor_by_a_second_name_of_the_same_file(toolbox: Toolbox, config: Config, tmp_path: Path) -> None:
    os.link(config.file_path, tmp_path / "copy.toml")
    told, is_error = await call(toolbox, "read_file", path=str(tmp_path / "copy.toml"))
    assert is_error and "it belongs to the gateway itself" in told
    told, _ = await call(toolbox, "search_files", query=SECRET, path=str(tmp_path / "copy.toml"))
    assert f"no match for {SECRET}" in told


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ",
        pytest.param(f"/proc/{os.getpid()}/environ", id="/proc/PID/environ"),
        "/proc/thread-self/environ",
        "/proc/self/root/proc/self/environ",
        "/proc/self/cmdline",
        "/dev/fd/0",
        "/dev/stdin",
    ],
)
async def test_nor_the_environment_that_holds_the_keys(toolbox: Toolbox, path: str) -> None:
    """BA-068."""
    told, is_error = await call(toolbox, "read_file", path=path)
    assert is_error and "it belongs to the gateway itself" in told
    listing, _ = await call(toolbox, "list_files", path="/proc")
    assert "it belongs to the gateway itself" in listing


def test_a_user_without_a_home_starts_too(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    assert config.home / ".aws" in private_places(config, {})


async def test_all_else_is_there(toolbox: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "data" / "plan.txt").write_text("buy milk")
    assert await call(toolbox, "read_file", path=str(tmp_path / "data" / "plan.txt")) == ("buy milk", False)
    told, is_error = await call(toolbox, "write_file", path=str(tmp_path / "conf" / "new.txt"), content="x")
    assert not is_error, told
