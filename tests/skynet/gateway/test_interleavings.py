"""Messages that arrive, tools that work and runs that are stopped, in any order: what every request to the model is."""

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.run import Run, RunEnded
from skynet.gateway.run_answer import gateway_message
from skynet.gateway.runs import MAX_QUEUED
from skynet_agent.events import TurnEvent
from skynet_agent.messages import encode_message
from skynet_agent.tools import Tool, ToolContext, ToolFailed
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import AgentId
from skynet_memory.keys import build_key
from skynet_protocol.errors import RequestError
from tests.skynet.gateway.stage import Stage, end_of, open_stage
from tests.support.polling import until

SCRIPTS = (
    "say=a{n}",
    "fail=400 say=no{n}",
    "say=a{n}c tool=look:{{}} next-round say=a{n}",
    'tool=look:{{"n":1}} tool=look:{{"n":2}} next-round say=a{n}c tool=look:{{"fail":1}} next-round say=a{n}',
    "say=a{n}c tool=look:{{}} tool=none:{{}} next-round tokens=3 hang",
    "tokens=3 hang",
)


DISKS = [(seed, "saaalllllicwffm") for seed in range(4)]
"""The same with a disk that is full now and then."""


class Gated:
    """A tool whose calls wait until they are let through."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []

    async def __call__(self, context: ToolContext, arguments: Mapping[str, Any]) -> str:
        gate = asyncio.Event()
        self.waiting.append(gate)
        try:
            await gate.wait()
        finally:
            self.waiting.remove(gate)
        if "fail" in arguments:
            raise ToolFailed("cannot see")
        return "seen"


async def fail() -> str:
    raise RequestError("no such level")


def check(messages: Sequence[Mapping[str, Any]]) -> None:
    """Calls have their results behind them, in order, nothing else has; answers are told after their own messages."""
    asked, expected, seen = "", list[str](), set[str]()
    for message in messages:
        match message["role"]:
            case "tool":
                assert message["tool_call_id"] == expected.pop(0)
                continue
            case "user":
                asked = message["content"]
            case "assistant":
                expected_of = re.search(r"a(\d+)c?(?: |$)", message["content"] or "")
                if expected_of is not None and asked:  # a long conversation begins anywhere
                    assert f"say=a{expected_of[1]}" in asked
                calls = [call["id"] for call in message.get("tool_calls", ())]
                assert message["content"] or calls
                assert seen.isdisjoint(calls)
                seen.update(calls)
        assert not expected, "a call has no result"
        expected = [call["id"] for call in message.get("tool_calls", ())]
    assert not expected
    assert messages[-1]["role"] in ("user", "tool"), "the person's own message, or what a tool gave, comes last"


@pytest.mark.parametrize(("seed", "actions"), [*((seed, "saaalllllicw") for seed in range(12)), *DISKS])
async def test_every_request_is_well_formed(tmp_path: Path, seed: int, actions: str) -> None:
    look, chance = Gated(), random.Random(seed)
    tool = Tool(name="look", description="", parameters={"type": "object"}, permission="files.read", run=look)
    async with open_stage(tmp_path, tool) as stage:
        runs, ends = list[Run](), list[str]()
        key = build_key(stage.ada, AgentId("main"), "main")

        def note_end(event: TurnEvent | RunEnded) -> None:
            if isinstance(event, RunEnded):
                ends.append(event.result.run_id)

        for number in range(60):
            match chance.choice(actions):
                case "s":
                    for run in chance.sample(runs, min(1, len(runs))):
                        run.abort("rpc")
                case "a" if len(stage.runs.active(stage.ada)) < MAX_QUEUED:
                    with suppress(StorageUnavailable):
                        runs.append(await stage.submit(chance.choice(SCRIPTS).format(n=number)))
                        runs[-1].listen(note_end)
                case "l" if look.waiting:
                    chance.choice(look.waiting).set()
                case "i" if runs:
                    with suppress(StorageUnavailable):
                        await stage.transcripts.append(stage.ada, key, encode_message(gateway_message("a note", 1)))
                case "c" if len(stage.runs.active(stage.ada)) < MAX_QUEUED:
                    with suppress(StorageUnavailable):
                        runs.append(await stage.submit("/think", reply=fail))
                        runs[-1].listen(note_end)
                case "f":
                    await stage.fill()
                case "m":
                    await stage.make_room()
                case _:
                    served = stage.models.served
                    for _ in range(50):
                        await asyncio.sleep(0)
                        if stage.models.served > served:
                            break
        await stage.make_room()
        await finish(stage, look)
        assert sorted(ends) == sorted(run.run_id for run in runs)
        assert await stage.open_runs() == 0
        last = await stage.end("say=last")
        assert last.status == "ok"
        for body in stage.models.bodies:
            check(body["messages"][1:])
        # Each message is stored once, and each that was the model's to answer has one end.
        assert len(await ends_in(stage)) == sum(run.entry_id is not None for run in runs) + 1


async def finish(stage: Stage, look: Gated) -> None:
    """Let all runs come to their ends; those that never would are stopped."""
    while active := stage.runs.active(stage.ada):
        head = active[0]

        def moves(head: Run = head) -> object:
            return head.ended or look.waiting or (head.turn is not None and len(head.draft.message("stop").content))

        await until(moves, "the first run goes on")
        for gate in look.waiting:
            gate.set()
        if "hang" in str(head.inbound.content) and not look.waiting:
            head.abort("rpc")
        await asyncio.sleep(0)
        if head.ended:
            await end_of(head)


async def ends_in(stage: Stage) -> Sequence[str]:
    """How each stored answer ended that is the last of its run."""
    session = await stage.sessions.get(stage.ada, build_key(stage.ada, AgentId("main"), "main"))
    assert session is not None
    rows = await stage.db.fetchall(
        "SELECT json_extract(payload, '$.stopReason') AS reason FROM entries WHERE session_id = ?"
        " AND json_extract(payload, '$.role') = 'assistant' AND json_extract(payload, '$.model') <> 'gateway-injected'",
        (session.session_id,),
    )
    return [row["reason"] for row in rows if row["reason"] != "toolUse"]
