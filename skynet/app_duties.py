"""Small things that the composition root has the parts do for each other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import tzinfo

from skynet.gateway.auth import Note
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.budgets import warning_event
from skynet.gateway.compaction import Compactor
from skynet.gateway.heartbeat import SystemEvents
from skynet.gateway.model_calls import Account, ModelCalls
from skynet.gateway.run import Run
from skynet.hooks import HookUser
from skynet_agent.messages import AssistantMessage
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from skynet_agent.tools import Tool, Toolbox, ToolContext
from skynet_memory.ids import Role, SessionKey, UserId, now_ms
from skynet_memory.sessions import SessionStore
from skynet_protocol.events import TickEvent
from skynet_terminal.jobs import Job
from skynet_users.budgets import BudgetWarning
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.memberships import Memberships
from skynet_users.people import User, UserStore
from skynet_users.permissions import Permission
from skynet_users.resolver import UserResolver

log = logging.getLogger(__name__)

WARM_UP_AFTER_S = 1.0
"""When the HTTP client is loaded: after the first clients were answered, before somebody asks a model."""


def permits(context: ToolContext, tool: Tool) -> str | None:
    """Why somebody may not use a tool; None if they may."""
    if tool.permission in context.permissions:
        return None
    return f"{tool.name} is not for this person (role {context.role}): it needs the permission {tool.permission}"


def log_refusal(note: Note, caller: Caller, method: str, refusal: Forbidden) -> None:
    log.warning("refused %s: %s", method, refusal, extra={"user_id": caller.user_id})
    note("permission.refused", caller.user_id, method, {"permission": refusal.permission})


def note_refused_tool(note: Note, context: ToolContext, tool: Tool) -> None:
    note("permission.refused", context.user_id, tool.name, {"permission": tool.permission})


def warn_of_budget(broadcaster: Broadcaster, zone: tzinfo, warning: BudgetWarning) -> None:
    """Tell the person; of the house's limits, the admins."""
    event = warning_event(warning, zone)
    admins = {peer.caller.user_id for peer in broadcaster.all() if peer.caller.may(Permission.USERS_MANAGE)}
    for owner in admins if warning.owner is None else {warning.owner}:
        broadcaster.publish("budget.warning", event, owner=owner)


def compact(compactor: Compactor, run: Run) -> None:
    """After a turn of a conversation that the gateway keeps; a client that sends its own has no use for it."""
    if run.inbound.history is None and run.inbound.reply is None:
        compactor.turn_ended(run.owner, run.key)


async def ask_beside(
    calls: ModelCalls,
    person: Callable[[UserId], Awaitable[User | None]],
    sessions: SessionStore,
    owner: UserId,
    key: SessionKey,
    request: ModelRequest,
) -> AssistantMessage:
    """Ask a model about a conversation outside of its runs; whose it is pays."""
    user, session = await person(owner), await sessions.get(owner, key)
    if session is None:
        raise LookupError("the conversation is gone")
    told = HookUser(
        id=owner,
        role=Role.USER if user is None else user.role,
        display_name="" if user is None else user.display_name,
    )
    return await calls.ask(Account(user=told, key=key, session_id=session.session_id), request)


def tell_of_job(events: SystemEvents, job: Job) -> None:
    """The assistant knows, when its person next writes, which of the person's jobs have ended."""
    if job.status != "killed":
        events.add(
            job.owner, f"A background job has ended ({job.status}): {job.title or job.command[:100]}, id {job.id}"
        )


async def session_counts(users: UserStore, sessions: SessionStore) -> list[tuple[User, int]]:
    return [(user, await sessions.count(user.id)) for user in await users.list()]


async def readers(memberships: Memberships, resolver: UserResolver, room: UserId) -> list[User]:
    """Who reads what is said in a room."""
    people = [await resolver.user(member) for member in memberships.members(room)]
    return [user for user in people if user is not None]


async def tick(broadcaster: Broadcaster, interval_s: float) -> None:
    """Clients leave after two missed ticks, whatever else they get (OPENCLAW-V3 1.4)."""
    while True:
        await asyncio.sleep(interval_s)
        broadcaster.publish("tick", TickEvent(ts=now_ms()), owner=None)


async def warm_up(router: Router, toolbox: Toolbox) -> None:
    """Load what the first request to a model needs, so that it does not pay for it."""
    await asyncio.sleep(WARM_UP_AFTER_S)
    await toolbox.refresh()
    await router.warm_up()
