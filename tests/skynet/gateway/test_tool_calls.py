"""What a tool call passes: hooks first, then somebody's approval, then the toolbox; and who is told."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from skynet.gateway.approvals import ToolDecision
from skynet.gateway.tool_calls import LONGEST_SUMMARY, ToolCalls, ToolUser
from skynet.hooks import BeforeToolCall, Block, HookBus, HookUser, ToolCalled, ToolReturned
from skynet.supervisor import Supervisor
from skynet_agent.messages import TextBlock, ToolCallBlock, ToolResultMessage
from skynet_agent.tools import Tool, Toolbox, ToolContext
from skynet_memory.ids import AgentId, Role, RunId, UserId, now_ms
from skynet_memory.keys import build_key
from skynet_users.approvals import Approval
from skynet_users.people import User
from tests.support.polling import until

ME = UserId("me")
TOLD = HookUser(id=ME, role=Role.USER, display_name="Me")
PERSON = User(id=ME, display_name="Me", role=Role.USER, created_at_ms=0, requires_approval=True)
CONTEXT = ToolContext(
    user_id=ME,
    role=Role.USER,
    session_key=build_key(ME, AgentId("main"), "main"),
    run_id=RunId("r"),
    permissions=frozenset({"files.read", "files.write"}),
)


class Bench:
    """Two tools, and everything that happens around them."""

    def __init__(self, tasks: Supervisor) -> None:
        self.hooks = HookBus(tasks)
        self.ran: list[tuple[str, Mapping[str, Any]]] = []
        self.asked: list[tuple[str, Mapping[str, Any], str]] = []
        self.used: list[tuple[UserId, str]] = []
        self.decision = "approved"
        self.calls = self.make(approve=self._approve)

    def make(self, **fields: Any) -> ToolCalls:
        tools = [
            self._tool("look", "files.read"),
            self._tool("write", "files.write"),
            self._tool("run", "commands.run"),
        ]
        toolbox = Toolbox(tools, permits=lambda context, tool: None if tool.permission in context.permissions else "no")
        return ToolCalls(toolbox, self.hooks, used=self._used, **fields)

    def _tool(self, name: str, permission: str) -> Tool:
        async def run(context: ToolContext, arguments: Mapping[str, Any]) -> str:
            self.ran.append((name, arguments))
            return f"{name} done"

        return Tool(name=name, description=name, parameters={"type": "object"}, permission=permission, run=run)

    async def _approve(self, user: User, tool: str, arguments: Mapping[str, Any], summary: str) -> ToolDecision:
        self.asked.append((tool, arguments, summary))
        approval = Approval(
            id="0123456789abcdef",
            kind="tool_call",
            requester=user.id,
            subject={},
            arguments_hash="",
            summary=summary,
            status="pending",
            created_at_ms=now_ms(),
            expires_at_ms=now_ms(),
            decided_by=None,
            decided_at_ms=None,
            used_at_ms=None,
            reason="",
        )
        return ToolDecision(self.decision, approval)  # type: ignore[arg-type]

    async def _used(self, owner: UserId, tool: str) -> None:
        self.used.append((owner, tool))

    async def call(
        self, name: str, arguments: dict[str, Any] | None = None, *, user: ToolUser | None = None, **fields: Any
    ) -> ToolResultMessage:
        calls = self.make(**fields) if fields else self.calls
        runner = calls.runner(CONTEXT, user or ToolUser(told=TOLD))
        return await runner(ToolCallBlock("c1", name, arguments or {}), lambda text: None)


@pytest.fixture
async def bench() -> Any:
    async with Supervisor() as tasks:
        yield Bench(tasks)


def said(result: ToolResultMessage) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextBlock))


UNDER_APPROVAL = ToolUser(told=TOLD, under_approval=PERSON)


async def test_a_call_is_carried_out_and_counted(bench: Bench) -> None:
    """SK-104: counted by person and tool."""
    assert said(await bench.call("look", {"n": 1})) == "look done"
    assert (bench.ran, bench.used) == ([("look", {"n": 1})], [(ME, "look")])


async def test_in_a_room_it_counts_for_the_room(bench: Bench) -> None:
    """SK-104: whose topics the room's prompt has."""
    room = UserId("room")
    runner = bench.calls.runner(replace(CONTEXT, group=room), ToolUser(told=TOLD))
    assert said(await runner(ToolCallBlock("c1", "look", {}), lambda text: None)) == "look done"
    assert bench.used == [(room, "look")]


async def test_a_tool_that_is_not_there_is_not_counted(bench: Bench) -> None:
    assert (await bench.call("nope")).is_error
    assert bench.used == []


async def test_risky_calls_of_some_people_wait_for_an_approval(bench: Bench) -> None:
    assert said(await bench.call("look", user=UNDER_APPROVAL)) == "look done"
    assert bench.asked == []
    assert said(await bench.call("write", {"path": "a"}, user=UNDER_APPROVAL)) == "write done"
    assert bench.asked == [("write", {"path": "a"}, 'write {"path":"a"}')]


async def test_who_decides_sees_that_there_is_more(bench: Bench) -> None:
    """What a call does may stand behind a long beginning that does nothing."""
    await bench.call("write", {"text": "x" * 1000 + "evil"}, user=UNDER_APPROVAL)
    ((_, _, summary),) = bench.asked
    assert len(summary) <= LONGEST_SUMMARY
    assert summary.endswith("x… [1,021]")


@pytest.mark.parametrize("decision", ["denied", "pending"])
async def test_without_it_nothing_is_carried_out(bench: Bench, decision: str) -> None:
    bench.decision = decision
    result = await bench.call("write", user=UNDER_APPROVAL)
    assert result.is_error
    assert said(result).startswith("not carried out: ")
    assert bench.ran == bench.used == []


async def test_what_is_not_permitted_is_not_asked_for(bench: Bench) -> None:
    assert said(await bench.call("run", user=UNDER_APPROVAL)) == "no"
    assert bench.asked == bench.ran == []


async def test_where_nobody_can_approve_nothing_risky_runs(bench: Bench) -> None:
    assert (await bench.call("write", user=UNDER_APPROVAL, approve=None)).is_error
    assert bench.ran == []


async def test_hooks_may_change_the_arguments_and_the_approval_is_of_those(bench: Bench) -> None:
    bench.hooks.register(BeforeToolCall, lambda event: replace(event, arguments={"path": "b"}))
    await bench.call("write", {"path": "a"}, user=UNDER_APPROVAL)
    assert bench.asked[0][1] == {"path": "b"}
    assert bench.ran == [("write", {"path": "b"})]


async def test_a_hook_may_stop_a_call(bench: Bench) -> None:
    told: list[Any] = []
    bench.hooks.register(BeforeToolCall, lambda event: Block("not this one"))
    for event in (ToolCalled, ToolReturned):
        bench.hooks.register(event, told.append)
    result = await bench.call("look")
    assert (result.is_error, said(result)) == (True, "not carried out: not this one")
    assert bench.ran == bench.used == []
    await until(lambda: len(told) == 2, "both are told")
    called, returned = sorted(told, key=lambda event: event.NAME)
    assert (called.tool, called.blocked) == ("look", "not this one")
    assert (returned.is_error, returned.text) == (True, "not carried out: not this one")


async def test_hooks_are_told_what_a_tool_gave(bench: Bench) -> None:
    """SK-142: tool call and result."""
    told: list[Any] = []
    for event in (ToolCalled, ToolReturned):
        bench.hooks.register(event, told.append)
    await bench.call("look", {"n": [1, {"a": 2}]})
    await until(lambda: len(told) == 2, "both are told")
    called, returned = sorted(told, key=lambda event: event.NAME)
    assert (called.user.id, called.run, called.arguments["n"][1]["a"]) == (ME, "r", 2)
    assert (returned.text, returned.is_error, returned.call_id) == ("look done", False, "c1")


async def test_a_call_that_is_cancelled_is_cancelled(bench: Bench) -> None:
    started = asyncio.Event()

    async def forever(user: User, tool: str, arguments: Mapping[str, Any], summary: str) -> ToolDecision:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("it is never decided")

    task = asyncio.create_task(bench.call("write", user=UNDER_APPROVAL, approve=forever))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.ran == []
