"""What holds for every tool there is."""

import json
import os
import re
from typing import cast

import pytest
from jsonschema import Draft202012Validator

from skynet.gateway.command_desk import CommandDesk
from skynet.tools import built_in_tools
from skynet_agent.tools import Tool
from tests.skynet.tools.conftest import BOB, World

PERMISSIONS = {
    "files.read",
    "files.write",
    "commands.run",
    "workspace.write",
    "memory.read",
    "memory.write",
    "sessions.read",
}
REMEMBERING = [
    "memory_learn",
    "memory_search",
    "memory_forget",
    "history_search",
    "knowledge_write",
    "knowledge_search",
]


def all_tools(world: World) -> list[Tool]:
    return list(
        built_in_tools(
            places=world.places,
            workspace=world.workspace,
            commands=cast(CommandDesk, object()),
            remembered=world.remembered,
        )
    )


def test_these_are_there_in_this_order(world: World) -> None:
    names = ["read_file", "write_file", "patch_file", "list_files", "search_files"]
    names += ["execute_command", "bash", "workspace_update", *REMEMBERING]
    assert [tool.name for tool in all_tools(world)] == names


def test_without_a_desk_there_are_no_commands(world: World) -> None:
    tools = built_in_tools(places=world.places, workspace=world.workspace)
    assert not {"execute_command", "bash"} & {tool.name for tool in tools}


def test_what_is_remembered_costs_few_tokens(world: World) -> None:
    """A model reads them with every message: some 3.5 characters a token."""
    tools = [tool for tool in all_tools(world) if tool.name in REMEMBERING]
    size = sum(len(json.dumps({"d": tool.description, "p": tool.parameters}, separators=(",", ":"))) for tool in tools)
    assert size < 3600


def test_each_says_what_it_is(world: World) -> None:
    for tool in all_tools(world):
        assert re.fullmatch(r"[a-z][a-z_]{1,63}", tool.name)
        assert len(tool.description) > 40
        assert tool.permission in PERMISSIONS
        assert tool.timeout_s > 0
        assert tool.needs_sandbox == (tool.permission == "commands.run")


def test_each_has_a_closed_schema_whose_arguments_are_described(world: World) -> None:
    """SK-089."""
    for tool in all_tools(world):
        Draft202012Validator.check_schema(tool.parameters)
        assert tool.parameters["type"] == "object"
        assert tool.parameters["additionalProperties"] is False
        assert all(about["description"] for about in tool.parameters["properties"].values())
        assert set(tool.parameters.get("required", ())) <= set(tool.parameters["properties"])


async def test_no_argument_is_taken_that_is_not_in_the_schema(world: World) -> None:
    for tool in all_tools(world):
        assert "'surprise' was unexpected" in await world.fails(tool.name, surprise=1)


@pytest.mark.parametrize(
    "path", ["../../bob/files/secret.txt", "/etc/passwd", "link/secret.txt", "a\0b", "fifo/x", "/"]
)
async def test_no_tool_leaves_the_folder(world: World, path: str) -> None:
    """SK-090 to SK-096."""
    secret = world.folder(BOB) / "secret.txt"
    secret.write_text("of bob")
    (world.folder() / "link").symlink_to(world.folder(BOB))
    os.mkfifo(world.folder() / "fifo")
    for tool, arguments in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("patch_file", {"old_text": "of", "new_text": "x"}),
        ("list_files", {}),
        ("search_files", {"query": "of"}),
    ):
        await world.fails(tool, path=path, **arguments)
    await world.fails("execute_command", command="true", cwd=path)
    assert secret.read_text() == "of bob"
    assert [name.name for name in world.folder(BOB).iterdir()] == ["secret.txt"]
