"""Script plugins in a running gateway: dropped in, called, changed, removed, and who may call them (SK-105)."""

import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skynet_memory.ids import Role
from tests.end_to_end.scene import MAIN, add_person, answer, history, owner_of, say, send, text, tool
from tests.end_to_end.test_restart import make_home, running
from tests.support.client import WireClient
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until
from tests.support.programs import needs

pytestmark = needs("bwrap")

PLACE = '[parameters]\ntype = "object"\nproperties.place.type = "string"\nrequired = ["place"]\n'
WORD = f"98.{os.getpid()}"
SLOW = f"trap '' TERM; sleep {WORD} & setsid sleep {WORD} & wait"
"""Hears no signal, and has children."""


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def gateway(tmp_path: Path, models: ModelServer) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, models=models) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[WireClient]:
    async with gateway.client() as connected:
        yield connected


def drop(home: Path, name: str, script: str, more: str = "") -> Path:
    """Put a plugin where a running gateway finds it."""
    (home / "tools").mkdir(mode=0o700, exist_ok=True)
    folder = home / "tools" / name
    folder.mkdir(mode=0o700, exist_ok=True)
    program = folder / "run.sh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    (folder / "tool.toml").write_text(f'description = "Does {name}."\ncommand = ["./run.sh"]\n{more}')
    (folder / "tool.toml").chmod(0o600)
    return folder


def offered(models: ModelServer) -> list[str]:
    """The names of the tools that the last request had."""
    return [each["function"]["name"] for each in models.bodies[-1].get("tools", [])]


def first_tier(models: ModelServer) -> str:
    """What the last request says to everybody, before it comes to the person."""
    first, second, _ = str(models.bodies[-1]["messages"][0]["content"]).partition("# The person you talk with")
    assert second
    return first


def running_children() -> int:
    """How many there are of those that ``SLOW`` starts."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += WORD.encode() in path.read_bytes().split(b"\0")
    return found


async def children_gone() -> None:
    await until(lambda: not running_children())


async def children_started() -> None:
    await until(lambda: running_children() == 2)


async def results(client: WireClient) -> list[dict[str, Any]]:
    return [message for message in await history(client) if message["role"] == "toolResult"]


async def test_one_that_is_dropped_in_is_called_in_the_next_turn(
    client: WireClient, models: ModelServer, tmp_path: Path
) -> None:
    call = tool("weather", place="Paris")
    assert "there is no tool 'weather'" in await answer(client, call)
    assert "weather" not in offered(models) and "weather" not in first_tier(models)
    own, before = offered(models), first_tier(models)

    folder = drop(tmp_path, "weather", 'echo "rain: $SKYNET_INPUT"', PLACE)
    assert await answer(client, call) == 'tool said: rain: {"place":"Paris"}'
    assert offered(models) == [*own, "weather"]
    with_weather = first_tier(models)
    assert with_weather != before and "weather" in with_weather
    (definition,) = [each["function"] for each in models.bodies[-1]["tools"] if each["function"]["name"] == "weather"]
    assert definition["description"] == "Does weather."
    assert definition["parameters"]["required"] == ["place"]
    assert "'place' is a required property" in await answer(client, tool("weather"))

    drop(tmp_path, "weather", "echo sun", 'name = "forecast"\n')
    assert await answer(client, tool("forecast")) == "tool said: sun"
    assert offered(models) == [*own, "forecast"]

    shutil.rmtree(folder)
    assert "there is no tool 'forecast'" in await answer(client, tool("forecast"))
    assert (offered(models), first_tier(models)) == (own, before)


async def test_the_first_tier_is_the_same_for_all_while_no_plugin_changes(
    gateway: RunningGateway, client: WireClient, models: ModelServer, tmp_path: Path
) -> None:
    _, token = await add_person(gateway, Role.CHILD)
    drop(tmp_path, "weather", "echo sun")

    async def beginning(of: WireClient) -> tuple[str, str]:
        await say(of, "say=hello")
        return json.dumps(models.bodies[-1]["tools"]), first_tier(models)

    async with gateway.client(token=token) as child:
        first = await beginning(client)
        assert await beginning(client) == first
        assert await beginning(child) == first
        drop(tmp_path, "news", "echo none")
        changed = await beginning(child)
        assert changed[0] != first[0] and changed[1] != first[1]
        assert await beginning(client) == changed


async def test_the_catalogue_lists_them(client: WireClient, tmp_path: Path) -> None:
    drop(tmp_path, "weather", "echo sun", 'name = "forecast"\n')
    groups = (await client.call("tools.catalog", {}))["groups"]
    assert [group for group in groups if group["source"] == "plugin"] == [
        {
            "id": "plugin:weather",
            "label": "weather",
            "source": "plugin",
            "pluginId": "weather",
            "tools": [
                {
                    "id": "forecast",
                    "label": "forecast",
                    "description": "Does weather.",
                    "source": "plugin",
                    "pluginId": "weather",
                    "defaultProfiles": [],
                }
            ],
        }
    ]
    shutil.rmtree(tmp_path / "tools")
    assert (await client.call("tools.catalog", {}))["groups"] == [each for each in groups if each["source"] == "core"]


async def test_a_failure_is_a_result(client: WireClient, tmp_path: Path) -> None:
    drop(tmp_path, "fails", "echo out; echo no such place >&2; exit 4")
    drop(tmp_path, "slow", "sleep 31", "timeout_s = 1\n")
    await say(client, f"{tool('fails')} {tool('slow')}")
    first, second = await results(client)
    assert (first["isError"], second["isError"]) == (True, True)
    assert text(first) == "fails failed with exit code 4:\nno such place"
    assert text(second) == "slow was stopped after 1 seconds"


async def test_it_sees_nothing_of_the_gateway(
    gateway: RunningGateway, client: WireClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BA-068."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-house")
    monkeypatch.setenv("WEATHER_KEY", "w-123")
    drop(tmp_path, "dump", "env; ls -l /proc/$$/fd; cat /proc/$$/cmdline", 'env = { KEY = "${WEATHER_KEY}" }\n')
    said = (await answer(client, tool("dump"))).removeprefix("tool said: ")
    names = {line.partition("=")[0] for line in said.split("\n") if "=" in line}
    the_shells = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names - the_shells == {"PATH", "LANG", "HOME", "KEY", "SKYNET_INPUT", "SKYNET_USER"}
    assert "KEY=w-123" in said
    assert f"SKYNET_USER={await owner_of(gateway)}" in said
    assert "sk-of-the-house" not in said
    assert gateway.token not in said
    assert "skynet.db" not in said and "socket:" not in said


async def test_it_sees_nothing_of_people(client: WireClient, tmp_path: Path) -> None:
    """W11."""
    drop(tmp_path, "look", f"ls {tmp_path} /files 2>&1; cat {tmp_path}/skynet.db 2>&1; tail -n +3 /proc/net/dev")
    await answer(client, tool("write_file", path="diary", content="mine"))
    said = await answer(client, tool("look"))
    assert said.count("No such file or directory") == 2
    assert "diary" not in said
    assert said.rsplit("\n", 1)[1].strip().startswith("lo:")


async def test_one_without_a_sandbox(tmp_path: Path, models: ModelServer) -> None:
    """For who wants that, as the gateway's own user in the plugin's folder."""
    folder = drop(tmp_path, "mark", "echo ran >>marks; pwd")
    toml = '[terminal]\nsandbox = "none"\n'
    async with running_gateway(tmp_path, models=models, toml=toml) as gateway, gateway.client() as admin:
        assert await answer(admin, tool("mark")) == f"tool said: {folder}"
    assert (folder / "marks").read_text() == "ran\n"


async def test_what_others_can_write_is_no_tool(client: WireClient, models: ModelServer, tmp_path: Path) -> None:
    drop(tmp_path, "good", "echo good")
    folder = drop(tmp_path, "bad", "echo bad")
    (folder / "run.sh").chmod(0o722)
    assert "there is no tool 'bad'" in await answer(client, tool("bad"))
    assert await answer(client, tool("good")) == "tool said: good"
    (folder / "run.sh").chmod(0o700)
    assert await answer(client, tool("bad")) == "tool said: bad"


async def test_children_run_none(
    gateway: RunningGateway, client: WireClient, models: ModelServer, tmp_path: Path
) -> None:
    drop(tmp_path, "mark", "echo ran >>/files/marks; cat /files/marks", 'files = "write"\n')
    _, child_token = await add_person(gateway, Role.CHILD)
    _, user_token = await add_person(gateway, Role.USER)
    async with gateway.client(token=child_token) as child:
        assert await answer(child, tool("mark")) == (
            "tool said: mark is not for this person (role child): it needs the permission plugins.run"
        )
        system = [message["content"] for message in models.bodies[-1]["messages"] if message["role"] == "system"]
        assert ", mark, " in str(system)
    assert not [*(tmp_path / "users").glob("*/files/marks")]
    async with gateway.client(token=user_token) as user:
        assert await answer(user, tool("mark")) == "tool said: ran"
        system = [message["content"] for message in models.bodies[-1]["messages"] if message["role"] == "system"]
        assert "May not use: workspace_update." in str(system)
    assert await answer(client, tool("mark")) == "tool said: ran"
    assert await answer(client, tool("mark")) == "tool said: ran\nran"
    assert len([*(tmp_path / "users").glob("*/files/marks")]) == 2


async def test_no_file_tool_reaches_them(tmp_path: Path, models: ModelServer) -> None:
    """Or whoever talks to the assistant could have it write what the gateway runs."""
    toml = "[agent]\nrestrict_to_workspace = false\n"
    folder = drop(tmp_path, "mark", "echo ran")
    async with running_gateway(tmp_path, models=models, toml=toml) as gateway, gateway.client() as admin:
        for path in (folder / "run.sh", folder / "tool.toml", tmp_path / "tools" / "new" / "tool.toml"):
            said = await answer(admin, tool("write_file", path=str(path), content="x"))
            assert "was refused" in said
        assert await answer(admin, tool("mark")) == "tool said: ran"


async def test_an_abort_kills_it_with_its_children(client: WireClient, models: ModelServer, tmp_path: Path) -> None:
    drop(tmp_path, "slow", SLOW)
    run_id = await send(client, tool("slow"))
    await children_started()
    await client.call("chat.abort", {"sessionKey": MAIN})
    assert (await client.chat_end(run_id))["state"] == "aborted"
    await children_gone()
    assert await answer(client, "say=never mind") == "never mind"


async def test_a_stop_of_the_gateway_kills_it_with_its_children(tmp_path: Path, models: ModelServer) -> None:
    home = make_home(tmp_path / "state", models)
    drop(home, "slow", SLOW)
    async with running(home) as process, process.client() as client:
        await send(client, tool("slow"))
        await children_started()
        process.signal(signal.SIGTERM)
        await process.ended()
    await children_gone()


async def test_problems_are_in_the_log_before_anybody_asks(tmp_path: Path, models: ModelServer) -> None:
    home = make_home(tmp_path / "state", models)
    drop(home, "bad", "", "timeout_s = 500\n")
    drop(home, "good", "")
    log = home / "logs" / "skynet.log"
    async with running(home):
        await until(lambda: log.exists() and "plugins: good" in log.read_text())
    said = log.read_text()
    assert "left out the plugin bad: " in said
    assert "bad/tool.toml:3: timeout_s: 500 is not allowed; allowed: a number from 1 to 300" in said
