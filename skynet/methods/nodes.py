"""``node.list``, ``node.describe`` and ``node.pair.list`` (OPENCLAW-V3 6.13)."""

from msgspec import UNSET, structs

from skynet.gateway.dispatch import method
from skynet_memory.ids import DeviceId, now_ms
from skynet_protocol.errors import DetailCode, RequestError
from skynet_protocol.nodes import (
    NodeDescribeParams,
    NodeDescribeResult,
    NodeListParams,
    NodeListResult,
    NodePairListParams,
    NodePairListResult,
    NodeSummary,
)
from skynet_users.caller import Caller
from skynet_users.devices import DeviceStore, PairedDevice

NODE = "node"


class NodeMethods:
    """Devices that lend the assistant their abilities. This version knows them and does not use them yet.

    Even an admin sees only the own ones: what runs on a person's machine is that person's.
    """

    def __init__(self, devices: DeviceStore) -> None:
        self._devices = devices

    @method("node.list")
    async def list_nodes(self, caller: Caller, params: NodeListParams) -> NodeListResult:
        """The caller's paired nodes, by name."""
        nodes = [_summary(device) for device in await self._devices.paired(caller.user_id) if NODE in device.roles]
        nodes.sort(key=lambda node: ((node.display_name or node.node_id).lower(), node.node_id))
        return NodeListResult(ts=now_ms(), nodes=nodes)

    @method("node.describe")
    async def describe(self, caller: Caller, params: NodeDescribeParams) -> NodeDescribeResult:
        """One node.

        Raises:
            RequestError: ``unknown nodeId``.
        """
        device = await self._devices.get(caller.user_id, DeviceId(params.node_id.strip()))
        if device is None or NODE not in device.roles:
            raise RequestError("unknown nodeId", details={"code": DetailCode.NOT_FOUND})
        return NodeDescribeResult(ts=now_ms(), **structs.asdict(_summary(device)))

    @method("node.pair.list")
    def list_pairing(self, caller: Caller, params: NodePairListParams) -> NodePairListResult:
        """OpenClaw's older store of nodes, which is not kept here: nodes are devices."""
        return NodePairListResult(pending=[], paired=[])


def _summary(device: PairedDevice) -> NodeSummary:
    return NodeSummary(
        node_id=device.device_id,
        caps=[],
        commands=[],
        paired=True,
        connected=False,
        display_name=device.display_name or UNSET,
        platform=device.platform or UNSET,
        device_family=device.device_family or UNSET,
        remote_ip=device.remote_ip or UNSET,
    )
