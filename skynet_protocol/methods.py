"""Every method name there is, who may call it, and the check that comes before all others (OPENCLAW-V3 6.1, 6.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from skynet_protocol.errors import DetailCode, RequestError, UnauthorizedRole, shorten
from skynet_protocol.scopes import Scope, satisfies


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One method. ``listed`` says whether hello-ok names it.

    ``scope`` is what an operator needs; None means nothing beyond a connection, of either role unless ``node_only``.
    A method of OpenClaw that is in none of its scope groups needs ``operator.admin``. So do ``sessions.patch``,
    ``.reset``, ``.delete`` and ``.compact`` there; here sessions are a person's own, and changing them is writing.
    """

    name: str
    scope: str | None
    node_only: bool = False
    listed: bool = True


_SPECS: tuple[MethodSpec, ...] = (
    # OpenClaw's, in the order of its hello-ok
    MethodSpec("health", None),
    MethodSpec("doctor.memory.status", Scope.READ),
    MethodSpec("logs.tail", Scope.READ),
    MethodSpec("channels.status", Scope.READ),
    MethodSpec("channels.logout", Scope.ADMIN),
    MethodSpec("status", Scope.READ),
    MethodSpec("usage.status", Scope.READ),
    MethodSpec("usage.cost", Scope.READ),
    MethodSpec("tts.status", Scope.READ),
    MethodSpec("tts.providers", Scope.READ),
    MethodSpec("tts.enable", Scope.WRITE),
    MethodSpec("tts.disable", Scope.WRITE),
    MethodSpec("tts.convert", Scope.WRITE),
    MethodSpec("tts.setProvider", Scope.WRITE),
    MethodSpec("config.get", Scope.READ),
    MethodSpec("config.set", Scope.ADMIN),
    MethodSpec("config.apply", Scope.ADMIN),
    MethodSpec("config.patch", Scope.ADMIN),
    MethodSpec("config.schema", Scope.ADMIN),
    MethodSpec("exec.approvals.get", Scope.ADMIN),
    MethodSpec("exec.approvals.set", Scope.ADMIN),
    MethodSpec("exec.approvals.node.get", Scope.ADMIN),
    MethodSpec("exec.approvals.node.set", Scope.ADMIN),
    MethodSpec("exec.approval.request", Scope.APPROVALS),
    MethodSpec("exec.approval.waitDecision", Scope.APPROVALS),
    MethodSpec("exec.approval.resolve", Scope.APPROVALS),
    MethodSpec("wizard.start", Scope.ADMIN),
    MethodSpec("wizard.next", Scope.ADMIN),
    MethodSpec("wizard.cancel", Scope.ADMIN),
    MethodSpec("wizard.status", Scope.ADMIN),
    MethodSpec("talk.config", Scope.READ),
    MethodSpec("talk.mode", Scope.WRITE),
    MethodSpec("models.list", Scope.READ),
    MethodSpec("tools.catalog", Scope.READ),
    MethodSpec("agents.list", Scope.READ),
    MethodSpec("agents.create", Scope.ADMIN),
    MethodSpec("agents.update", Scope.ADMIN),
    MethodSpec("agents.delete", Scope.ADMIN),
    MethodSpec("agents.files.list", Scope.READ),
    MethodSpec("agents.files.get", Scope.READ),
    MethodSpec("agents.files.set", Scope.ADMIN),
    MethodSpec("skills.status", Scope.READ),
    MethodSpec("skills.bins", None, node_only=True),
    MethodSpec("skills.install", Scope.ADMIN),
    MethodSpec("skills.update", Scope.ADMIN),
    MethodSpec("update.run", Scope.ADMIN),
    MethodSpec("voicewake.get", Scope.READ),
    MethodSpec("voicewake.set", Scope.WRITE),
    MethodSpec("secrets.reload", Scope.ADMIN),
    MethodSpec("sessions.list", Scope.READ),
    MethodSpec("sessions.preview", Scope.READ),
    MethodSpec("sessions.patch", Scope.WRITE),
    MethodSpec("sessions.reset", Scope.WRITE),
    MethodSpec("sessions.delete", Scope.WRITE),
    MethodSpec("sessions.compact", Scope.WRITE),
    MethodSpec("last-heartbeat", Scope.READ),
    MethodSpec("set-heartbeats", Scope.ADMIN),
    MethodSpec("wake", Scope.WRITE),
    MethodSpec("node.pair.request", Scope.PAIRING),
    MethodSpec("node.pair.list", Scope.PAIRING),
    MethodSpec("node.pair.approve", Scope.PAIRING),
    MethodSpec("node.pair.reject", Scope.PAIRING),
    MethodSpec("node.pair.verify", Scope.PAIRING),
    MethodSpec("device.pair.list", Scope.PAIRING),
    MethodSpec("device.pair.approve", Scope.PAIRING),
    MethodSpec("device.pair.reject", Scope.PAIRING),
    MethodSpec("device.pair.remove", Scope.PAIRING),
    MethodSpec("device.token.rotate", Scope.PAIRING),
    MethodSpec("device.token.revoke", Scope.PAIRING),
    MethodSpec("node.rename", Scope.PAIRING),
    MethodSpec("node.list", Scope.READ),
    MethodSpec("node.describe", Scope.READ),
    MethodSpec("node.invoke", Scope.WRITE),
    MethodSpec("node.invoke.result", None, node_only=True),
    MethodSpec("node.event", None, node_only=True),
    MethodSpec("cron.list", Scope.READ),
    MethodSpec("cron.status", Scope.READ),
    MethodSpec("cron.add", Scope.ADMIN),
    MethodSpec("cron.update", Scope.ADMIN),
    MethodSpec("cron.remove", Scope.ADMIN),
    MethodSpec("cron.run", Scope.ADMIN),
    MethodSpec("cron.runs", Scope.READ),
    MethodSpec("system-presence", Scope.READ),
    MethodSpec("system-event", Scope.ADMIN),
    MethodSpec("send", Scope.WRITE),
    MethodSpec("agent", Scope.WRITE),
    MethodSpec("agent.identity.get", Scope.READ),
    MethodSpec("agent.wait", Scope.WRITE),
    MethodSpec("browser.request", Scope.WRITE),
    MethodSpec("chat.history", Scope.READ),
    MethodSpec("chat.abort", Scope.WRITE),
    MethodSpec("chat.send", Scope.WRITE),
    # Skynet's own
    MethodSpec("ping", None),
    MethodSpec("agent.status", Scope.READ),
    MethodSpec("agent.model", Scope.READ),
    MethodSpec("providers.list", Scope.READ),
    MethodSpec("providers.test", Scope.ADMIN),
    MethodSpec("providers.models", Scope.ADMIN),
    MethodSpec("users.list", Scope.READ),
    MethodSpec("users.get", Scope.READ),
    MethodSpec("users.add", Scope.ADMIN),
    MethodSpec("users.set", Scope.WRITE),
    MethodSpec("users.remove", Scope.ADMIN),
    MethodSpec("users.password", Scope.WRITE),
    MethodSpec("users.budget", Scope.READ),
    MethodSpec("users.tokens.list", Scope.READ),
    MethodSpec("users.tokens.create", Scope.WRITE),
    MethodSpec("users.tokens.revoke", Scope.WRITE),
    MethodSpec("users.guardians.set", Scope.ADMIN),
    MethodSpec("users.guardians.remove", Scope.ADMIN),
    MethodSpec("identities.list", Scope.READ),
    MethodSpec("identities.link", Scope.ADMIN),
    MethodSpec("identities.unlink", Scope.WRITE),
    MethodSpec("identities.code", Scope.WRITE),
    MethodSpec("identities.claim", Scope.WRITE),
    MethodSpec("approvals.list", Scope.READ),
    MethodSpec("approvals.decide", Scope.APPROVALS),
    MethodSpec("approvals.request", Scope.WRITE),
    MethodSpec("exec.approval.list", Scope.APPROVALS),
    MethodSpec("exec.approval.grants", Scope.APPROVALS),
    MethodSpec("exec.approval.grants.remove", Scope.APPROVALS),
    MethodSpec("groups.list", Scope.READ),
    MethodSpec("groups.members", Scope.READ),
    MethodSpec("groups.create", Scope.ADMIN),
    MethodSpec("groups.set", Scope.ADMIN),
    MethodSpec("groups.join", Scope.WRITE),
    MethodSpec("groups.leave", Scope.WRITE),
    MethodSpec("memory.search", Scope.READ),
    MethodSpec("memory.list", Scope.READ),
    MethodSpec("memory.show", Scope.READ),
    MethodSpec("memory.export", Scope.READ),
    MethodSpec("memory.learn", Scope.WRITE),
    MethodSpec("memory.update", Scope.WRITE),
    MethodSpec("memory.forget", Scope.WRITE),
    MethodSpec("memory.import", Scope.WRITE),
    MethodSpec("knowledge.list", Scope.READ),
    MethodSpec("knowledge.search", Scope.READ),
    MethodSpec("knowledge.write", Scope.WRITE),
    MethodSpec("knowledge.forget", Scope.WRITE),
    MethodSpec("history.search", Scope.READ),
    MethodSpec("audit.list", Scope.ADMIN),
    MethodSpec("audit.verify", Scope.ADMIN),
    MethodSpec("terminal.exec", Scope.WRITE),
    MethodSpec("terminal.exec_bg", Scope.WRITE),
    MethodSpec("terminal.job_status", Scope.READ),
    MethodSpec("terminal.job_list", Scope.READ),
    MethodSpec("terminal.job_output", Scope.READ),
    MethodSpec("terminal.job_kill", Scope.WRITE),
    MethodSpec("terminal.create", Scope.WRITE),
    MethodSpec("terminal.write", Scope.WRITE),
    MethodSpec("terminal.read", Scope.READ),
    MethodSpec("terminal.resize", Scope.WRITE),
    MethodSpec("terminal.signal", Scope.WRITE),
    MethodSpec("terminal.kill", Scope.WRITE),
    MethodSpec("terminal.list", Scope.READ),
    MethodSpec("terminal.subscribe", Scope.READ),
    MethodSpec("terminal.unsubscribe", Scope.READ),
    # OpenClaw's that its hello-ok does not name
    MethodSpec("connect", Scope.ADMIN, listed=False),
    MethodSpec("poll", Scope.WRITE, listed=False),
    MethodSpec("sessions.resolve", Scope.READ, listed=False),
    MethodSpec("sessions.usage", Scope.READ, listed=False),
    MethodSpec("sessions.usage.timeseries", Scope.READ, listed=False),
    MethodSpec("sessions.usage.logs", Scope.READ, listed=False),
    MethodSpec("chat.inject", Scope.ADMIN, listed=False),
    MethodSpec("web.login.start", Scope.ADMIN, listed=False),
    MethodSpec("web.login.wait", Scope.ADMIN, listed=False),
    MethodSpec("push.test", Scope.WRITE, listed=False),
)

METHODS: Mapping[str, MethodSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})
"""All methods by name, in the order of hello-ok, the hidden ones last."""

LISTED_METHODS: tuple[str, ...] = tuple(spec.name for spec in _SPECS if spec.listed)
"""What ``features.methods`` of hello-ok says."""


def authorize(method: str, gateway_role: str, scopes: Collection[str]) -> None:
    """Whether a connection of this role and these scopes may call ``method``; checked before its params.

    Raises:
        UnauthorizedRole: ``unauthorized role: …``, the method is not for this role.
        RequestError: ``missing scope: …``, then ``unknown method: …``. In this order, so that only an administrator
            learns which names exist.
    """
    spec = METHODS.get(method)
    if gateway_role == "operator":
        if spec is not None and spec.node_only:
            raise UnauthorizedRole(gateway_role)
        scope = Scope.ADMIN.value if spec is None else spec.scope
        if scope is not None and not satisfies(scopes, scope):
            raise RequestError(f"missing scope: {scope}", details={"code": DetailCode.FORBIDDEN, "scope": scope})
    elif gateway_role != "node" or spec is None or spec.scope is not None:
        raise UnauthorizedRole(gateway_role)
    if spec is None:
        raise RequestError(f"unknown method: {shorten(method)}", details={"code": DetailCode.METHOD_NOT_FOUND})
