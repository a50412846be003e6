"""Every command of ``docs/people.md``, in its order, on a real gateway with an empty state directory."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from skynet.cli import run_command
from skynet.cli.errors import Exit
from skynet.tables import TABLES
from skynet_memory.database import Database
from skynet_memory.migrations import migrate
from skynet_users.resolver import UserResolver, Waiting
from tests.skynet.cli.conftest import running_gateway, use_environment

TEXT = (Path(__file__).parents[3] / "docs" / "people.md").read_text()
ELSEWHERE = "home.example"
"""An address of the text that nobody has."""
SHOWN_ID = "90f3a1c2"
"""What the text calls a request that waits."""


def commands() -> list[list[str]]:
    """What follows the prompt in the examples."""
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)).replace("\\\n", "")
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in blocks.splitlines() if line[:2] == "$ "]


async def strangers(home: Path, count: int) -> list[str]:
    """The ends of the ids of so many accounts that have written and wait."""
    async with Database(home / "skynet.db") as db:
        await migrate(db, TABLES)
        resolver, ids = UserResolver(db), []
        for number in range(count):
            resolved = await resolver.resolve("discord", f"77{number}", display_name="Zoe")
            assert isinstance(resolved, Waiting)
            ids.append(resolved.approval_id[-8:])
    return ids


def test_the_walk_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in commands() if ELSEWHERE not in " ".join(line)]
    assert len(lines) > 15 and all(line[0] == "skynet" for line in lines)
    waiting = asyncio.run(strangers(tmp_path, sum(SHOWN_ID in line for line in lines)))
    removed: list[list[str]] = []
    with running_gateway(tmp_path) as gateway:
        use_environment(monkeypatch, tmp_path, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])
        for _, *arguments in lines:
            if arguments[:2] == ["users", "remove"]:
                removed.append(arguments)  # what follows is about people who are still there
                continue
            arguments = [waiting.pop() if part == SHOWN_ID else part for part in arguments]
            assert run_command(arguments) == Exit.OK, (arguments, capsys.readouterr().err)
        said = capsys.readouterr().out
        assert "changed Mia: files.read allowed, $0.50 a day" in said
        assert "Zoë is let in as child" in said and "Mia is let in as child" in said
        for arguments in removed:
            assert run_command(arguments) == Exit.OK
        run_command(["users", "list"])
        assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["Owner", "Anna", "Zoë"]
    assert waiting == []
