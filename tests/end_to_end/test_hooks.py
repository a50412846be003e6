"""Hooks in a whole gateway: the points of a run in order, with the person, and what gates stop or change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet.hooks import HOOKS, HooksRefused
from skynet_memory.ids import Role
from tests.end_to_end.scene import add_person, answer, owner_of, say, tool
from tests.support.gateway import running_gateway
from tests.support.model_server import ModelServer
from tests.support.polling import until

WORK = "agent:main:work"
WRITE_DOWN = """
import json
from pathlib import Path
from skynet.hooks import GATES, HOOKS, on

FILE = Path(__file__).with_name("_trace")

def line(event):
    fields = {name: str(getattr(event, name)) for name in ("text", "blocked", "status") if hasattr(event, name)}
    who = {"event": event.NAME, "user": event.user.id, "role": event.user.role, "name": event.user.display_name}
    return json.dumps({**who, "session": event.session, "run": event.run, **fields})

@on(*GATES)
async def asked(event):
    with FILE.open("a") as file:
        file.write(line(event) + chr(10))

@on(*HOOKS)
async def told(event):
    with FILE.open("a") as file:
        file.write(line(event) + chr(10))
"""


NOT_TODAY = """#!/bin/sh
if grep -q '"role":"child"'; then
    echo '{"block": "Ask again tomorrow."}'
fi
"""
BROKEN = """
from skynet.hooks import BeforeMessage, on

@on(BeforeMessage)
async def broken(event):
    raise ValueError("inner words")
"""


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


def put(home: Path, name: str, text: str) -> None:
    (home / "hooks").mkdir(0o700, exist_ok=True)
    (home / "hooks" / name).write_text(text)
    (home / "hooks" / name).chmod(0o700)


def trace(home: Path) -> list[dict[str, Any]]:
    file = home / "hooks" / "_trace"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def names(home: Path) -> list[str]:
    return [each["event"] for each in trace(home)]


async def test_the_points_of_a_run_in_their_order(tmp_path: Path, models: ModelServer) -> None:
    """SK-132, SK-142, SK-145: who it is is known first, then gates, the assistant, observers."""
    put(tmp_path, "trace.py", WRITE_DOWN)
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        await answer(client, f"say=look {tool('list_files')} next-round say=done", key=WORK)
        await until(lambda: "agent_complete" in names(tmp_path))
        told = [name for name in names(tmp_path) if not name.startswith("before_")]
        assert told == [
            "session_start",
            "message_received",
            "agent_start",
            "llm_input",
            "llm_output",
            "tool_call",
            "tool_result",
            "llm_input",
            "llm_output",
            "message_sent",
            "agent_complete",
        ]
        asked = [name for name in names(tmp_path) if name.startswith("before_")]
        assert asked == ["before_message", "before_model_call", "before_tool_call", "before_model_call"]
        assert names(tmp_path).index("before_message") < names(tmp_path).index("agent_start")
        owner = await owner_of(gateway)
        for each in trace(tmp_path):
            assert (each["user"], each["role"]) == (owner, "admin")
            assert each["session"] == f"user:{owner}:{WORK}"
        await say(client, "fail=400", key=WORK)
        await until(lambda: "llm_error" in names(tmp_path))
        assert set(names(tmp_path)) >= {hook.NAME for hook in HOOKS} - {"session_end"}


async def test_a_no_is_the_answer_and_no_model_is_asked(tmp_path: Path, models: ModelServer) -> None:
    """SK-140."""
    put(tmp_path, "trace.py", WRITE_DOWN)
    put(tmp_path, "before_message.sh", NOT_TODAY)
    async with running_gateway(tmp_path, models=models) as gateway:
        user, token = await add_person(gateway, Role.CHILD)
        async with gateway.client(token=token) as child:
            assert await answer(child, "say=hello") == "Ask again tomorrow."
        assert models.asked == 0
        await until(lambda: "message_sent" in names(tmp_path))
        (received,) = [each for each in trace(tmp_path) if each["event"] == "message_received"]
        assert (received["user"], received["blocked"]) == (user, "Ask again tomorrow.")
        assert "agent_start" not in names(tmp_path)


async def test_a_rewritten_message_reaches_the_model(tmp_path: Path, models: ModelServer) -> None:
    """SK-144."""
    put(
        tmp_path,
        "rewrite.py",
        """
from dataclasses import replace
from skynet.hooks import BeforeMessage, BeforeModelCall, on

@on(BeforeMessage)
async def rewrite(event):
    return replace(event, text=event.text.replace("hello", "goodbye"))

@on(BeforeModelCall)
async def remind(event):
    return replace(event, system_suffix="Be brief, says the house.")
""",
    )
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        await answer(client, "say=hello")
        asked = json.dumps(models.bodies[-1])
        assert "say=goodbye" in asked
        assert "hello" not in asked
        assert "Be brief, says the house." in asked


async def test_a_tool_is_skipped_and_the_run_goes_on(tmp_path: Path, models: ModelServer) -> None:
    """SP-051: a hook may let continue, end or skip."""
    put(tmp_path, "before_tool_call.sh", """#!/bin/sh\necho '{"block": "Not this one."}'\n""")
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        assert (await answer(client, f"{tool('list_files')} next-round say=done")).endswith("done")
        assert "Not this one." in json.dumps(models.bodies[-1])


async def test_a_broken_gate_stops_with_nothing_of_why(tmp_path: Path, models: ModelServer) -> None:
    put(tmp_path, "broken.py", BROKEN)
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        told = await answer(client, "say=hello")
        assert "did not succeed" in told
        assert "inner words" not in told
        assert models.asked == 0


async def test_a_slow_observer_delays_no_reply(tmp_path: Path, models: ModelServer) -> None:
    """SK-141."""
    put(
        tmp_path,
        "slow.py",
        """
import time
from pathlib import Path
from skynet.hooks import HOOKS, on

@on(*HOOKS)
def slow(event):
    while not Path(__file__).with_name("_go").exists():
        time.sleep(0.01)
    raise ValueError("and it fails")
""",
    )
    async with running_gateway(tmp_path, models=models) as gateway, gateway.client() as client:
        assert await answer(client, "say=hello") == "hello"
        assert await answer(client, "say=again") == "again"
        put(tmp_path, "_go", "")


async def test_a_hook_that_cannot_be_loaded_stops_the_start(tmp_path: Path) -> None:
    put(tmp_path, "bad.py", "import os\nnowhere()\n")
    with pytest.raises(HooksRefused, match=r"bad\.py:2: NameError"):
        async with running_gateway(tmp_path):
            pass
    async with running_gateway(tmp_path, toml='[hooks]\non_error = "skip"\n') as gateway, gateway.client() as client:
        assert await answer(client, "hello")
