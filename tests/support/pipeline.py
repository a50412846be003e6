"""The parts that a run needs and that most tests have no interest in: no limits, no hooks."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from skynet.gateway.budgets import loader
from skynet.gateway.model_calls import ModelCalls
from skynet.gateway.tool_calls import ToolCalls
from skynet.hooks import HookBus
from skynet.supervisor import Supervisor
from skynet_agent.router import Router
from skynet_agent.tools import Tool, Toolbox
from skynet_memory.database import Database
from skynet_memory.ids import UserId, now_ms
from skynet_memory.usage import UsageStore
from skynet_users.budgets import Ledger, Limits, PersonLimits


def make_ledger(db: Database, *, limits: Limits | None = None, house: Limits | None = None, **more: Any) -> Ledger:
    """A ledger in which everybody has the same limits."""

    async def limits_of(owner: UserId) -> PersonLimits:
        return PersonLimits(limits or Limits(), UTC)

    values: dict[str, Any] = {"on_warning": lambda warning: None, "clock": now_ms}
    return Ledger(loader(UsageStore(db)), limits_of, house or Limits(), UTC, **(values | more))


def make_calls(
    db: Database,
    router: Router,
    tasks: Supervisor,
    *,
    ledger: Ledger | None = None,
    hooks: HookBus | None = None,
) -> ModelCalls:
    """Models, asked as the gateway asks them."""
    return ModelCalls(router, ledger or make_ledger(db), hooks or HookBus(tasks), UsageStore(db))


def make_tools(tasks: Supervisor, tools: Sequence[Tool] = (), *, hooks: HookBus | None = None) -> ToolCalls:
    """Tools that everybody may use."""
    return ToolCalls(Toolbox(tools, permits=lambda context, tool: None), hooks or HookBus(tasks))
