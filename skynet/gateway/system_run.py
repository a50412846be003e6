"""``system.run`` over ``node.invoke``: what of its params reaches the node (OPENCLAW-V3 6.13).

A node host runs what it is told was approved. So a client cannot say so: it names the approval, which has to be one of
exactly this command, on this node, asked for by this client.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeGuard

from skynet_memory.ids import ConnId, DeviceId, UserId
from skynet_protocol.errors import DetailCode, RequestError
from skynet_users.caller import Caller

COMMAND: Final = "system.run"
FORWARDED: Final = (
    "command",
    "rawCommand",
    "cwd",
    "env",
    "timeoutMs",
    "needsScreenRecording",
    "agentId",
    "sessionKey",
    "runId",
)
ALWAYS: Final = "allow-always"
DECISIONS: Final = ("allow-once", ALWAYS)

REFUSALS: Final[Mapping[str, str]] = {
    "MISSING_RUN_ID": "approval override requires params.runId",
    "UNKNOWN_APPROVAL_ID": "unknown or expired approval id",
    "APPROVAL_EXPIRED": "approval expired",
    "APPROVAL_NODE_BINDING_MISSING": "approval id missing node binding",
    "APPROVAL_NODE_MISMATCH": "approval id not valid for this node",
    "APPROVAL_DEVICE_MISMATCH": "approval id not valid for this device",
    "APPROVAL_CLIENT_MISMATCH": "approval id not valid for this client",
    "APPROVAL_REQUEST_MISMATCH": "approval id does not match request",
    "APPROVAL_REQUIRED": "approval required",
}
"""OpenClaw's words, by ``details.code``."""


class RunApprovals(Protocol):
    """What was asked and allowed; :class:`skynet.gateway.exec_approvals.ExecApprovals`."""

    def check(
        self,
        owner: UserId,
        run_id: str,
        node_id: str,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        agent_id: str | None = None,
        session_key: str | None = None,
        device_id: DeviceId | None = None,
        conn_id: ConnId | None = None,
    ) -> str | None: ...

    async def allows(
        self,
        user_id: UserId,
        commands: Sequence[Sequence[str]],
        *,
        host: Literal["node"],
        node_id: str,
    ) -> bool: ...


async def guard_system_run(
    caller: Caller, node_id: str, params: object, approvals: RunApprovals | None, *, needs_approval: bool = False
) -> dict[str, Any]:
    """The params that go to the node.

    Args:
        approvals: None where none are kept: then nothing counts as approved.
        needs_approval: without an approval nothing runs, whatever the node's own rules are.

    Raises:
        RequestError: an approval is claimed, or needed, and there is none of this command.
    """
    if not isinstance(params, dict):
        raise RequestError("system.run requires params", details={"code": DetailCode.INVALID_PARAMS})
    kept = {name: params[name] for name in FORWARDED if name in params}
    claimed = params.get("approvalDecision")
    if params.get("approved") is not True and claimed not in DECISIONS:
        if needs_approval:
            raise _refused("APPROVAL_REQUIRED")
        return kept
    run_id, argv, env = _text(params, "runId"), params.get("command"), params.get("env")
    if run_id is None:
        raise _refused("MISSING_RUN_ID")
    if approvals is None:
        raise _refused("UNKNOWN_APPROVAL_ID")
    if not _is_words(argv) or not (env is None or (isinstance(env, dict) and _is_words([*env.values()]))):
        raise _refused("APPROVAL_REQUEST_MISMATCH")
    refusal = approvals.check(
        caller.user_id,
        run_id,
        node_id,
        argv,
        cwd=_text(params, "cwd"),
        env=env,
        agent_id=_text(params, "agentId"),
        session_key=_text(params, "sessionKey"),
        device_id=caller.device_id,
        conn_id=caller.conn_id,
    )
    if refusal is not None:
        raise _refused(refusal)
    # The node remembers what is allowed for good: only what it was
    always = claimed == ALWAYS and await approvals.allows(caller.user_id, [argv], host="node", node_id=node_id)
    return {**kept, "runId": run_id, "approved": True, "approvalDecision": DECISIONS[always]}


def _text(params: Mapping[str, object], name: str) -> str | None:
    value = params.get(name)
    return value.strip() or None if isinstance(value, str) else None


def _is_words(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _refused(code: str) -> RequestError:
    return RequestError(REFUSALS.get(code, "approval required"), details={"code": code})
