"""What a model's tool call passes on its way: hooks, the person's permission, somebody's approval, the tool."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from skynet.gateway.approvals import ToolDecision
from skynet.hooks import BeforeToolCall, HookBus, HookUser, Stopped, ToolCalled, ToolReturned, thawed
from skynet_agent.messages import Json, TextBlock, ToolCallBlock, ToolResultMessage
from skynet_agent.tools import Tool, Toolbox, ToolContext, tool_result
from skynet_agent.turn import ToolRunner
from skynet_memory.ids import UserId
from skynet_users.people import User
from skynet_users.permissions import Permission

Approve: TypeAlias = Callable[[User, str, Mapping[str, Json], str], Awaitable[ToolDecision]]
"""Ask whether a person may run a tool with these arguments; the last argument says it in one line."""

RISKY = frozenset(
    {
        Permission.COMMANDS_RUN,
        Permission.PLUGINS_RUN,
        Permission.BROWSER_USE,
        Permission.SOFTWARE_INSTALL,
        Permission.FILES_WRITE,
    }
)
"""Tools with these permissions wait for an approval, for people who need one."""
LONGEST_SUMMARY = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUser:
    """Who uses tools: as hooks are told, and, if their calls need approvals, the person."""

    told: HookUser
    under_approval: User | None = None


class ToolCalls:
    """
    Args:
        approve: asked for the risky calls of people whose calls need an approval; without it those are refused.
        used: told of each call that was carried out, by its person, or in a room by that, and its tool.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        hooks: HookBus,
        *,
        approve: Approve | None = None,
        used: Callable[[UserId, str], Awaitable[object]] | None = None,
    ) -> None:
        self.toolbox = toolbox
        self._hooks = hooks
        self._approve = approve
        self._used = used

    def runner(self, context: ToolContext, user: ToolUser) -> ToolRunner:
        """Carries out the calls of one run."""

        async def carry_out(call: ToolCallBlock, update: Callable[[str], None]) -> ToolResultMessage:
            return await self._carry_out(call, replace(context, call_id=call.id, update=update), user)

        return carry_out

    async def _carry_out(self, call: ToolCallBlock, context: ToolContext, user: ToolUser) -> ToolResultMessage:
        begun_s = time.monotonic()
        blocked = ""
        if self._hooks.has(BeforeToolCall):
            try:
                call = await self._through_hooks(call, context, user)
            except Stopped as stopped:
                blocked = stopped.reason
        if self._hooks.has(ToolCalled):
            self._hooks.announce(
                ToolCalled(
                    user=user.told,
                    session=context.session_key,
                    run=context.run_id,
                    tool=call.name,
                    call_id=call.id,
                    arguments=call.arguments,
                    blocked=blocked,
                )
            )
        if blocked:
            result = tool_result(call, f"not carried out: {blocked}", is_error=True)
        else:
            result = await self._run(call, context, user)
        if self._hooks.has(ToolReturned):
            self._hooks.announce(
                ToolReturned(
                    user=user.told,
                    session=context.session_key,
                    run=context.run_id,
                    tool=call.name,
                    call_id=call.id,
                    text="\n".join(block.text for block in result.content if isinstance(block, TextBlock)),
                    is_error=result.is_error,
                    duration_ms=round((time.monotonic() - begun_s) * 1000),
                )
            )
        return result

    async def _through_hooks(self, call: ToolCallBlock, context: ToolContext, user: ToolUser) -> ToolCallBlock:
        asked = BeforeToolCall(
            user=user.told,
            session=context.session_key,
            run=context.run_id,
            tool=call.name,
            call_id=call.id,
            arguments=call.arguments,
        )
        gate = await self._hooks.ask(asked)
        return call if gate is asked else msgspec.structs.replace(call, arguments=thawed(gate.arguments))

    async def _run(self, call: ToolCallBlock, context: ToolContext, user: ToolUser) -> ToolResultMessage:
        if user.under_approval is not None and (refusal := await self._refusal(call, context, user.under_approval)):
            return tool_result(call, refusal, is_error=True)
        result = await self.toolbox.run(call, context)
        if self._used is not None and self.toolbox.get(call.name) is not None:
            await self._used(context.owner, call.name)
        return result

    async def _refusal(self, call: ToolCallBlock, context: ToolContext, user: User) -> str:
        """Why the call may not be carried out now; "" if it may. What cannot be done anyway needs no question."""
        tool = self.toolbox.get(call.name)
        if tool is None or tool.permission not in RISKY or self.toolbox.why_not(context, tool) is not None:
            return ""
        if not await self.toolbox.is_valid(tool, call.arguments):
            return ""
        if self._approve is None:
            return "not carried out: this person's calls need an approval, and nobody can give one"
        context.update("waiting for an approval")
        decision = await self._approve(user, call.name, call.arguments, _summary(call, tool))
        return "" if decision.outcome == "approved" else f"not carried out: {decision}"


def _summary(call: ToolCallBlock, tool: Tool) -> str:
    arguments = msgspec.json.encode(call.arguments, order="deterministic").decode()
    words = f"{tool.name} {arguments}"
    return words if len(words) <= LONGEST_SUMMARY else f"{words[: LONGEST_SUMMARY - 10]}… [{len(words):,}]"
