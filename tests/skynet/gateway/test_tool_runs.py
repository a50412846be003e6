"""Runs whose model uses the gateway's tools: what is stored when, what is told, and what the next message sees."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.run import Run
from skynet_agent.events import ToolCallDelta, ToolEnded, TurnEvent
from skynet_agent.messages import text_of
from skynet_agent.requests import ModelOptions, ToolDefinition
from skynet_agent.tools import Tool, ToolContext
from skynet_memory.ids import AgentId
from skynet_memory.keys import build_key
from tests.skynet.gateway.stage import Stage, end_of, open_stage
from tests.support.polling import until


class Look:
    """A tool that says for whom it ran; it waits while ``gate`` is closed."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.contexts: list[ToolContext] = []
        self.running = 0

    def tool(self) -> Tool:
        return Tool(
            name="look",
            description="Looks.",
            parameters={"type": "object"},
            permission="files.read",
            run=self._run,
        )

    async def _run(self, context: ToolContext, arguments: Mapping[str, Any]) -> str:
        self.contexts.append(context)
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return f"seen {arguments.get('n', '')}"


@asynccontextmanager
async def tooled(home: Path) -> AsyncIterator[tuple[Stage, Look]]:
    look = Look()
    async with open_stage(home, look.tool()) as stage:
        yield stage, look


async def kinds(stage: Stage) -> list[str]:
    """Role and text of every stored message."""
    session = await stage.sessions.get(stage.ada, build_key(stage.ada, AgentId("main"), "main"))
    assert session is not None
    entries = await stage.transcripts.history(stage.ada, session.session_id, limit=100)
    messages = [json.loads(entry.payload) for entry in entries]
    return [f"{m['role']}: {''.join(block.get('text', '') for block in m['content'])}" for m in messages]


async def test_a_run_with_tools_is_stored_in_order_with_the_usage_of_each_call(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, look):
        result = await stage.end('say=let me see tool=look:{"n":1} tool=look:{"n":2} next-round say=it is blue')
        assert (result.status, result.text) == ("ok", "let me see\n\nit is blue")
        assert (await kinds(stage))[1:] == [
            "assistant: let me see",
            "toolResult: seen 1",
            "toolResult: seen 2",
            "assistant: it is blue",
        ]
        rows = await stage.db.fetchall("SELECT input, output FROM usage")
        assert len(rows) == 2
        assert result.usage.input == sum(row["input"] for row in rows) == 200
        session = await stage.sessions.get(stage.ada, build_key(stage.ada, AgentId("main"), "main"))
        assert session is not None and (session.input_tokens, session.total_tokens) == (200, 100)
        (context, _) = look.contexts
        assert (context.user_id, context.session_key) == (stage.ada, session.key)


async def test_the_kept_answer_has_a_payload_for_each_message(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, _):
        await stage.end("say=one tool=look:{} next-round say=two", "k", kind="agent")
        known = await stage.turns.lookup(stage.ada, "agent", stage.inbound("", "k").run_id)
        assert known is not None and known.response is not None
        answer = json.loads(known.response)["result"]
        assert [payload["text"] for payload in answer["payloads"]] == ["one", "two"]
        meta = answer["meta"]["agentMeta"]
        assert (meta["usage"]["input"], meta["lastCallUsage"]["input"]) == (200, 100)


async def test_the_next_message_sees_what_the_tools_gave(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, _):
        await stage.end("say=one tool=look:{} next-round say=two")
        await stage.end("say=three")
        roles = [message["role"] for message in stage.models.bodies[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("keep", [2, 3])
async def test_a_truncated_conversation_never_begins_with_a_result(tmp_path: Path, keep: int) -> None:
    async with tooled(tmp_path) as (stage, _):
        run = await stage.submit("say=one tool=look:{} tool=look:{} next-round say=two")
        await end_of(run)
        assert (await stage.transcripts.truncate_view(stage.ada, run.key, keep)).kept == 1
        assert await kinds(stage) == ["assistant: two"]
        await stage.end("say=three")
        roles = [message["role"] for message in stage.models.bodies[-1]["messages"]]
        assert roles == ["system", "assistant", "user"]


async def test_a_round_is_durable_before_the_run_ends(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, _):
        run = await stage.submit("say=one tool=look:{} next-round hang")
        await until(lambda: stage.models.served == 2, "the model is asked again")
        assert (await kinds(stage))[1:] == ["assistant: one", "toolResult: seen "]
        assert await stage.open_runs() == 1
        run.abort("rpc")
        assert (await end_of(run)).status == "aborted"
        assert (await kinds(stage))[1:] == ["assistant: one", "toolResult: seen ", "assistant: "]


async def test_a_round_that_the_disk_has_no_room_for_is_stored_with_the_end(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, look):
        look.gate.clear()
        run = await stage.submit("say=one tool=look:{} next-round first=200 say=two")
        await until(lambda: look.running, "the tool is at work")
        await stage.fill()
        look.gate.set()
        await until(lambda: stage.models.served == 2, "the model is asked again")
        await stage.make_room()
        assert (await end_of(run)).status == "ok"
        assert (await kinds(stage))[1:] == ["assistant: one", "toolResult: seen ", "assistant: two"]
        assert len(await stage.db.fetchall("SELECT 1 FROM usage")) == 2


@pytest.mark.parametrize("rounds", [0, 1])
async def test_an_answer_that_cannot_be_stored_has_an_end_all_the_same(tmp_path: Path, rounds: int) -> None:
    """Whatever of it cannot: the next answer is never told with this message."""
    async with tooled(tmp_path) as (stage, look):
        look.gate.clear()
        run = await stage.submit(
            "say=one tool=look:{} " + rounds * "next-round say=more tool=look:{} " + "next-round say=two"
        )
        for _ in range(rounds):
            await until(lambda: look.running, "the tool is at work")
            look.gate.set()
            look.gate.clear()
            await until(lambda: stage.models.served == 2, "the model is asked again")
        await until(lambda: look.running, "the tool is at work")
        await stage.db.write(
            lambda tx: tx.execute(
                "CREATE TEMP TRIGGER never BEFORE INSERT ON usage BEGIN SELECT raise(ABORT, 'never'); END"
            )
        )
        look.gate.set()
        result = await end_of(run)
        assert (result.status, result.error) == ("error", "internal error")
        await stage.db.write(lambda tx: tx.execute("DROP TRIGGER never"))
        assert await stage.open_runs() == 0
        told = ["assistant: one", "toolResult: seen "] * rounds
        assert (await kinds(stage))[1:] == [*told, "assistant: "]
        await stage.end("say=on")
        roles = [message["role"] for message in stage.models.bodies[-1]["messages"]]
        assert roles == ["system", "user", *["assistant", "tool"] * rounds, "user"]


async def test_an_answer_that_was_complete_when_the_disk_was_full_is_paid_for(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        run = await stage.submit("first=100 big=200000")
        await until(lambda: run.started_at_ms, "the run begins")
        await stage.fill()
        assert (await end_of(run)).status == "error"
        await stage.make_room()
        await stage.end("say=on")
        rows = await stage.db.fetchall("SELECT input, output FROM usage ORDER BY id")
        assert [tuple(row) for row in rows] == [(100, 1), (100, 1)]


async def test_a_run_that_is_stopped_is_paid_for(tmp_path: Path) -> None:
    """BA-082: the provider told nothing, so it is estimated."""
    async with open_stage(tmp_path) as stage:
        run = await stage.submit("tokens=40 hang")
        await until(lambda: len(text_of(run.draft.message("stop"))) > 100, "the answer comes")
        run.abort("rpc")
        result = await end_of(run)
        assert result.message.usage is not None and result.message.usage.estimated
        (row,) = await stage.db.fetchall("SELECT provider, model, input, output, estimated FROM usage")
        assert (row["provider"], row["model"], row["input"]) == ("mock", "mock-1", result.usage.input)
        assert row["estimated"] == 1
        assert row["output"] == result.usage.output > 25
        session = await stage.sessions.get(stage.ada, run.key)
        assert session is not None and session.output_tokens == row["output"]


async def test_stopping_a_run_stops_its_tools(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, look):
        look.gate.clear()
        run = await stage.submit("say=one tool=look:{}")
        await until(lambda: look.running, "the tool is at work")
        run.abort("rpc")
        result = await end_of(run)
        assert (result.status, look.running) == ("aborted", 0)
        interrupted = "toolResult: No result: the call was interrupted."
        assert (await kinds(stage))[1:] == ["assistant: one", interrupted, "assistant: "]
        await stage.end("say=on")
        sent = stage.models.bodies[-1]["messages"]
        assert "interrupted" in next(message["content"] for message in sent if message["role"] == "tool")


async def test_a_listener_hears_of_the_tools_but_has_no_call_to_carry_out(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, look):
        look.gate.clear()
        run = await stage.submit('tool=look:{"n":1}')
        assert isinstance(run, Run)
        heard: list[TurnEvent] = []
        run.listen(heard.append)  # type: ignore[arg-type]
        await until(lambda: look.running, "the tool is at work")
        look.gate.set()
        await end_of(run)
        assert [text_of(event.result) for event in heard if isinstance(event, ToolEnded)] == ["seen 1"]
        assert not any(isinstance(event, ToolCallDelta) for event in heard)


@pytest.mark.parametrize(
    "options", [ModelOptions(tools=[ToolDefinition(name="theirs")]), ModelOptions(tool_choice="none")]
)
async def test_a_client_with_tools_of_its_own_gets_no_others(tmp_path: Path, options: ModelOptions) -> None:
    async with tooled(tmp_path) as (stage, look):
        result = await stage.end("tool=theirs:{}", kind="http", options=options)
        assert (result.message.stop_reason, look.contexts) == ("toolUse", [])
        names = [tool["function"]["name"] for tool in stage.models.bodies[-1].get("tools", ())]
        assert names == [tool.name for tool in options.tools]


async def test_a_model_that_goes_round_in_circles_is_stopped(tmp_path: Path) -> None:
    async with tooled(tmp_path) as (stage, look):
        result = await stage.end('every-round tool=look:{"n":1}')
        assert "with the same input and the same result" in result.text
        assert len(look.contexts) == 5
