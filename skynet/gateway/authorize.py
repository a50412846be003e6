"""Which permission each way in needs: one table for the methods, one for the HTTP routes, and one question.

A tool names its own (``Tool.permission``). Scopes are OpenClaw's and come first: they say what a connection asked for,
permissions what its person may do.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from skynet_users.caller import Caller
from skynet_users.permissions import Permission

P = Permission

METHOD_PERMISSIONS: Final[Mapping[str, Permission | None]] = MappingProxyType(
    {
        # None: for every connection, it tells and changes nothing of anybody
        **dict.fromkeys(("connect", "health", "ping", "skills.bins", "node.invoke.result", "node.event")),
        **dict.fromkeys(
            (
                "agent",
                "agent.identity.get",
                "agent.model",
                "agent.wait",
                "agents.list",
                "approvals.request",
                "chat.abort",
                "chat.send",
                "groups.join",
                "groups.leave",
                "groups.list",
                "groups.members",
                "models.list",
                "poll",
                "push.test",
                "send",
                "talk.config",
                "talk.mode",
                "tools.catalog",
                "tts.convert",
                "tts.disable",
                "tts.enable",
                "tts.providers",
                "tts.setProvider",
                "tts.status",
                "voicewake.get",
                "voicewake.set",
                "wake",
            ),
            P.MESSAGES_SEND,
        ),
        **dict.fromkeys(
            (
                "agent.status",
                "channels.status",
                "chat.history",
                "cron.list",
                "cron.runs",
                "cron.status",
                "history.search",
                "last-heartbeat",
                "sessions.list",
                "sessions.preview",
                "sessions.resolve",
                "sessions.usage",
                "sessions.usage.logs",
                "sessions.usage.timeseries",
                "skills.status",
                "status",
                "system-presence",
            ),
            P.SESSIONS_READ,
        ),
        **dict.fromkeys(
            ("chat.inject", "sessions.compact", "sessions.delete", "sessions.patch", "sessions.reset"), P.SESSIONS_WRITE
        ),
        **dict.fromkeys(
            (
                "doctor.memory.status",
                "knowledge.list",
                "knowledge.search",
                "memory.export",
                "memory.list",
                "memory.search",
                "memory.show",
            ),
            P.MEMORY_READ,
        ),
        **dict.fromkeys(
            (
                "knowledge.forget",
                "knowledge.write",
                "memory.forget",
                "memory.import",
                "memory.learn",
                "memory.update",
            ),
            P.MEMORY_WRITE,
        ),
        **dict.fromkeys(("approvals.list", "identities.list", "users.get", "users.list"), P.PROFILE_READ),
        **dict.fromkeys(
            ("identities.claim", "identities.unlink", "users.password", "users.set"),
            P.PROFILE_WRITE,
        ),
        **dict.fromkeys(
            (
                "device.pair.approve",
                "device.pair.list",
                "device.pair.reject",
                "device.pair.remove",
                "device.token.revoke",
                "device.token.rotate",
                "identities.code",
                "node.describe",
                "node.list",
                "node.pair.approve",
                "node.pair.list",
                "node.pair.reject",
                "node.pair.request",
                "node.pair.verify",
                "node.rename",
                "users.tokens.create",
                "users.tokens.list",
                "users.tokens.revoke",
            ),
            P.DEVICES_MANAGE,
        ),
        **dict.fromkeys(("usage.cost", "usage.status", "users.budget"), P.COSTS_VIEW),
        **dict.fromkeys(
            (
                "node.invoke",
                "terminal.create",
                "terminal.exec",
                "terminal.exec_bg",
                "terminal.job_kill",
                "terminal.job_list",
                "terminal.job_output",
                "terminal.job_status",
                "terminal.kill",
                "terminal.list",
                "terminal.read",
                "terminal.resize",
                "terminal.signal",
                "terminal.subscribe",
                "terminal.unsubscribe",
                "terminal.write",
            ),
            P.COMMANDS_RUN,
        ),
        "browser.request": P.BROWSER_USE,
        **dict.fromkeys(("skills.install", "skills.update", "update.run"), P.SOFTWARE_INSTALL),
        **dict.fromkeys(
            ("cron.add", "cron.remove", "cron.run", "cron.update", "set-heartbeats", "system-event"), P.JOBS_MANAGE
        ),
        **dict.fromkeys(("groups.create", "groups.set"), P.GROUPS_MANAGE),
        **dict.fromkeys(
            (
                "approvals.decide",
                "exec.approval.grants",
                "exec.approval.grants.remove",
                "exec.approval.list",
                "exec.approval.request",
                "exec.approval.resolve",
                "exec.approval.waitDecision",
            ),
            P.APPROVALS_DECIDE,
        ),
        **dict.fromkeys(("agents.create", "agents.delete", "agents.files.set", "agents.update"), P.WORKSPACE_WRITE),
        **dict.fromkeys(("agents.files.get", "agents.files.list", "config.get", "providers.list"), P.CONFIG_READ),
        **dict.fromkeys(
            (
                "channels.logout",
                "config.apply",
                "config.patch",
                "config.schema",
                "config.set",
                "exec.approvals.get",
                "exec.approvals.node.get",
                "exec.approvals.node.set",
                "exec.approvals.set",
                "secrets.reload",
                "web.login.start",
                "web.login.wait",
                "wizard.cancel",
                "wizard.next",
                "wizard.start",
                "wizard.status",
            ),
            P.CONFIG_WRITE,
        ),
        **dict.fromkeys(("providers.models", "providers.test"), P.PROVIDERS_MANAGE),
        "logs.tail": P.LOGS_READ,
        **dict.fromkeys(("audit.list", "audit.verify"), P.AUDIT_READ),
        **dict.fromkeys(
            (
                "identities.link",
                "users.add",
                "users.guardians.remove",
                "users.guardians.set",
                "users.remove",
            ),
            P.USERS_MANAGE,
        ),
    }
)
"""Every method of the protocol. Another person's things need :attr:`~skynet_users.permissions.Reach.ALL` on top, which
the handler that is given a ``userId`` asks for."""

ROUTE_PERMISSIONS: Final[Mapping[str, Permission | None]] = MappingProxyType(
    {
        "/health": None,
        "/healthz": None,
        "/readyz": None,
        "/v1/chat/completions": P.MESSAGES_SEND,
        "/v1/models": P.MESSAGES_SEND,
        "/v1/models/{id:path}": P.MESSAGES_SEND,
    }
)
"""Every HTTP route by its path; None for those that need no caller."""


def authorize_method(caller: Caller, method: str) -> None:
    """
    Raises:
        Forbidden: the caller's person may not call ``method``.
        KeyError: the method has no rule, which a test keeps from happening.
    """
    permission = METHOD_PERMISSIONS[method]
    if permission is not None:
        caller.require(permission)


def authorize_route(caller: Caller, path: str) -> None:
    """
    Raises:
        Forbidden: the caller's person may not use the route.
        KeyError: the route has no rule.
    """
    permission = ROUTE_PERMISSIONS[path]
    if permission is not None:
        caller.require(permission)
