"""``node.*`` and ``skills.bins`` (OPENCLAW-V3 6.13)."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType, structs

from skynet.gateway.approvals import Record
from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.dispatch import Waiting, method
from skynet.gateway.node_events import NodeEvents
from skynet.gateway.nodes import Nodes
from skynet.gateway.system_run import COMMAND, RunApprovals, guard_system_run
from skynet_memory.ids import UserId, now_ms
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.nodes import (
    EXEC_APPROVALS_COMMANDS,
    NodeDescribeParams,
    NodeDescribeResult,
    NodeEventParams,
    NodeEventResult,
    NodeInvokeParams,
    NodeInvokeResult,
    NodeInvokeResultAnswer,
    NodeInvokeResultParams,
    NodeListParams,
    NodeListResult,
    NodePairApproveParams,
    NodePairApproveResult,
    NodePaired,
    NodePairListParams,
    NodePairListResult,
    NodePairPending,
    NodePairRejectParams,
    NodePairRejectResult,
    NodePairRequestParams,
    NodePairRequestResult,
    NodePairResolvedEvent,
    NodePairVerifyParams,
    NodePairVerifyResult,
    NodeRenameParams,
    NodeRenameResult,
    SkillsBinsParams,
    SkillsBinsResult,
)
from skynet_users.caller import Caller
from skynet_users.devices import DeviceStore, PairedDevice
from skynet_users.errors import TooManyPending, UnknownNode, UnknownPairingRequest
from skynet_users.nodes import BridgeNode, BridgeRequest, Described, NodeStore
from skynet_users.people import User

log = logging.getLogger(__name__)

HARMLESS: Final = frozenset({"system.which", "system.run.prepare", "device.info", "device.status"})
"""What people may have a node do whose commands need an approval."""


class NodeMethods:
    """Devices that lend the assistant their abilities. What runs on a person's machine is that person's: even an admin
    sees and uses only the own ones.

    Args:
        people: who somebody is now.
        approvals: where it is known which commands were approved; None for nowhere.
        record: where it is written down who paired what.
    """

    def __init__(
        self,
        nodes: Nodes,
        events: NodeEvents,
        devices: DeviceStore,
        store: NodeStore,
        broadcaster: Broadcaster,
        *,
        people: Callable[[UserId], Awaitable[User | None]],
        approvals: RunApprovals | None = None,
        record: Record,
    ) -> None:
        self._nodes = nodes
        self._events = events
        self._devices = devices
        self._store = store
        self._broadcaster = broadcaster
        self._people = people
        self._approvals = approvals
        self._record = record

    # For those who have nodes

    @method("node.list")
    async def list_nodes(self, caller: Caller, params: NodeListParams) -> NodeListResult:
        """The caller's nodes, connected ones first, then by name."""
        return NodeListResult(ts=now_ms(), nodes=await self._nodes.list(caller.user_id))

    @method("node.describe")
    async def describe(self, caller: Caller, params: NodeDescribeParams) -> NodeDescribeResult:
        """One node.

        Raises:
            RequestError: ``unknown nodeId``.
        """
        node = await self._nodes.describe(caller.user_id, params.node_id.strip())
        return NodeDescribeResult(ts=now_ms(), **structs.asdict(node))

    @method("node.rename")
    async def rename(self, caller: Caller, params: NodeRenameParams) -> NodeRenameResult:
        """Name one of the caller's nodes, for good: a device as well as a node of the older store.

        Raises:
            RequestError: ``unknown nodeId``.
        """
        node_id, name = params.node_id.strip(), params.display_name.strip()
        if not name:
            raise RequestError("nodeId and displayName required", details={"code": DetailCode.INVALID_PARAMS})
        try:
            await self._store.rename(caller.user_id, node_id, name)
        except UnknownNode as exc:
            raise _not_found(exc) from exc
        return NodeRenameResult(node_id=node_id, display_name=name)

    @method("node.invoke")
    def invoke(self, caller: Caller, params: NodeInvokeParams) -> Waiting:
        """Have one of the caller's nodes carry out a command, and wait for its answer.

        Raises:
            RequestError: as of :meth:`skynet.gateway.nodes.Nodes.ask` and
                :func:`skynet.gateway.system_run.guard_system_run`; commands that only ``exec.approvals.node.*`` sends.
        """
        return Waiting(self._invoke(caller, params))

    async def _invoke(self, caller: Caller, params: NodeInvokeParams) -> NodeInvokeResult:
        node_id, command = params.node_id.strip(), params.command.strip()
        if not node_id or not command:
            raise RequestError("nodeId and command required", details={"code": DetailCode.INVALID_PARAMS})
        if command in EXEC_APPROVALS_COMMANDS:
            raise RequestError(
                "node.invoke does not allow system.execApprovals.*; use exec.approvals.node.*",
                details={"code": DetailCode.FORBIDDEN, "command": command},
            )
        user = await self._people(caller.user_id)
        needs_approval = user is None or user.requires_approval
        if needs_approval and command != COMMAND and command not in HARMLESS:
            raise RequestError(
                "this needs an approval, which only commands can have", details={"code": DetailCode.FORBIDDEN}
            )
        given: object = UNSET if params.params is None else params.params
        guard = partial(guard_system_run, caller, node_id, given, self._approvals, needs_approval=needs_approval)
        answer = await self._nodes.ask(
            caller.user_id,
            node_id,
            command,
            given,
            guard=guard if command == COMMAND else None,
            timeout_s=None if isinstance(params.timeout_ms, UnsetType) else params.timeout_ms / 1000,
            idempotency_key=params.idempotency_key,
        )
        return NodeInvokeResult(
            ok=True, node_id=node_id, command=command, payload=answer.payload, payload_json=answer.payload_json
        )

    # For nodes

    @method("node.invoke.result")
    def take_result(self, caller: Caller, params: NodeInvokeResultParams) -> NodeInvokeResultAnswer:
        """What the node was asked for is done, or has failed. Ignored if nobody waits for it from this connection.

        Raises:
            RequestError: ``nodeId mismatch``.
        """
        ignored = not self._nodes.take_result(caller, params)
        return NodeInvokeResultAnswer(ok=True, ignored=True if ignored else UNSET)

    @method("node.event")
    async def event(self, caller: Caller, params: NodeEventParams) -> NodeEventResult:
        """Something happened on the node; what it may be, :class:`~skynet.gateway.node_events.NodeEvents` says."""
        payload = b"" if isinstance(params.payload, UnsetType) else bytes(params.payload)
        if isinstance(params.payload_json, str):
            payload = params.payload_json.encode("utf-8", "replace")
        await self._events.receive(caller, params.event, payload)
        return NodeEventResult(ok=True)

    @method("skills.bins")
    def bins(self, caller: Caller, params: SkillsBinsParams) -> SkillsBinsResult:
        """Programs that a node runs without asking because skills need them: none."""
        return SkillsBinsResult(bins=[])

    # OpenClaw's older store

    @method("node.pair.request")
    async def request_pairing(self, caller: Caller, params: NodePairRequestParams) -> NodePairRequestResult:
        """Ask for a node that is no device. A second request for it is merged into the first.

        Raises:
            RequestError: too many wait.
        """
        node_id = params.node_id.strip()
        if not node_id:
            raise RequestError("nodeId required", details={"code": DetailCode.INVALID_PARAMS})
        described = {
            name: value for name, value in structs.asdict(params).items() if value and name not in ("node_id", "silent")
        }
        try:
            request, created = await self._store.request(caller.user_id, node_id, described, silent=params.silent)
        except TooManyPending as exc:
            raise RequestError(str(exc), details={"code": DetailCode.FORBIDDEN}) from exc
        pending = _pending(request)
        if created:
            self._broadcaster.publish("node.pair.requested", pending, owner=caller.user_id)
        return NodePairRequestResult(status="pending", request=pending, created=created)

    @method("node.pair.list")
    async def list_pairing(self, caller: Caller, params: NodePairListParams) -> NodePairListResult:
        """The caller's nodes of the older store, and those that are devices: so ``nodes list`` shows all there are."""
        paired = [_paired(node) for node in await self._store.paired(caller.user_id)]
        known, names = {node.node_id for node in paired}, await self._store.names(caller.user_id)
        paired += [
            _paired_device(device, names.get(device.device_id, ""))
            for device in await self._devices.paired(caller.user_id)
            if "node" in device.roles and device.device_id not in known
        ]
        return NodePairListResult(
            pending=[_pending(request) for request in await self._store.pending(caller.user_id)], paired=paired
        )

    @method("node.pair.approve")
    async def approve(self, caller: Caller, params: NodePairApproveParams) -> NodePairApproveResult:
        """Take in a node that the caller asked for; its token is in this answer alone.

        Raises:
            RequestError: ``unknown requestId``.
        """
        try:
            node, token = await self._store.approve(caller.user_id, params.request_id)
        except UnknownPairingRequest as exc:
            raise _not_found(exc) from exc
        await self._resolved(caller, params.request_id, node.node_id, "approved")
        paired = structs.replace(_paired(node), token=token.reveal())
        return NodePairApproveResult(request_id=params.request_id, node=paired)

    @method("node.pair.reject")
    async def reject(self, caller: Caller, params: NodePairRejectParams) -> NodePairRejectResult:
        """Drop a request of the caller's.

        Raises:
            RequestError: ``unknown requestId``.
        """
        try:
            request = await self._store.reject(caller.user_id, params.request_id)
        except UnknownPairingRequest as exc:
            raise _not_found(exc) from exc
        await self._resolved(caller, params.request_id, request.node_id, "rejected")
        return NodePairRejectResult(request_id=params.request_id, node_id=request.node_id)

    @method("node.pair.verify")
    async def verify(self, caller: Caller, params: NodePairVerifyParams) -> NodePairVerifyResult:
        """Whether this is the token of that node."""
        node = await self._store.verify(caller.user_id, params.node_id.strip(), params.token)
        return NodePairVerifyResult(ok=node is not None, node=UNSET if node is None else _paired(node))

    async def _resolved(self, caller: Caller, request_id: str, node_id: str, decision: Any) -> None:
        log.info("node %s of the older store %s", node_id, decision, extra={"user_id": caller.user_id})
        details = {"owner": caller.user_id, "kind": "node"}
        await self._record(f"pairing.{decision}", actor=caller.user_id, subject=node_id, details=details)
        event = NodePairResolvedEvent(request_id=request_id, node_id=node_id, decision=decision, ts=now_ms())
        self._broadcaster.publish("node.pair.resolved", event, owner=caller.user_id)


def _pending(request: BridgeRequest) -> NodePairPending:
    return NodePairPending(
        request_id=request.request_id,
        node_id=request.node_id,
        ts=request.requested_at_ms,
        silent=request.silent or UNSET,
        is_repair=request.is_repair or UNSET,
        **_described(request.described),
    )


def _paired(node: BridgeNode) -> NodePaired:
    last = node.last_connected_at_ms
    return NodePaired(
        node_id=node.node_id,
        created_at_ms=node.created_at_ms,
        approved_at_ms=node.approved_at_ms,
        last_connected_at_ms=UNSET if last is None else last,
        **_described(node.described),
    )


def _paired_device(device: PairedDevice, name: str) -> NodePaired:
    return NodePaired(
        node_id=device.device_id,
        created_at_ms=device.created_at_ms,
        approved_at_ms=device.approved_at_ms,
        display_name=name or device.display_name or UNSET,
        platform=device.platform or UNSET,
        device_family=device.device_family or UNSET,
        remote_ip=device.remote_ip or UNSET,
    )


def _described(described: Described) -> Any:
    return msgspec.to_builtins(described)


def _not_found(exc: Exception) -> RequestError:
    return RequestError(str(exc), details={"code": DetailCode.NOT_FOUND})
