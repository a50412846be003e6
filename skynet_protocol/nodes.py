"""``node.list``, ``node.describe`` and ``node.pair.list`` (OPENCLAW-V3 6.13)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result


class NodeListParams(Params, frozen=True):
    pass


class NodeSummary(Result):
    """A paired or connected node; ``caps`` and ``commands`` are sorted, and empty while it is offline."""

    node_id: str
    caps: list[str]
    commands: list[str]
    paired: bool
    connected: bool
    display_name: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    core_version: str | UnsetType = UNSET
    ui_version: str | UnsetType = UNSET
    device_family: str | UnsetType = UNSET
    model_identifier: str | UnsetType = UNSET
    remote_ip: str | UnsetType = UNSET
    path_env: str | UnsetType = UNSET
    permissions: dict[str, bool] | UnsetType = UNSET
    connected_at_ms: NonNegativeInt | UnsetType = UNSET


class NodeListResult(Result):
    ts: NonNegativeInt
    nodes: list[NodeSummary]


class NodeDescribeParams(Params, frozen=True):
    node_id: NonEmptyStr


class NodeDescribeResult(NodeSummary, kw_only=True):
    """One node, flattened."""

    ts: NonNegativeInt


class NodePairListParams(Params, frozen=True):
    pass


class NodePairListResult(Result):
    """OpenClaw's older store of nodes; a gateway without it answers with two empty lists."""

    pending: list[Any]
    paired: list[Any]
