"""``device.pair.*`` and ``device.token.*`` (OPENCLAW-V3 6.14)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from skynet_protocol.events import DevicePairRequestedEvent
from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result


class DevicePairListParams(Params, frozen=True):
    pass


class DeviceTokenSummary(Result):
    """A token without the secret."""

    role: NonEmptyStr
    scopes: list[NonEmptyStr]
    created_at_ms: NonNegativeInt
    rotated_at_ms: NonNegativeInt | UnsetType = UNSET
    revoked_at_ms: NonNegativeInt | UnsetType = UNSET
    last_used_at_ms: NonNegativeInt | UnsetType = UNSET


class DevicePaired(Result):
    device_id: NonEmptyStr
    public_key: NonEmptyStr
    created_at_ms: NonNegativeInt
    approved_at_ms: NonNegativeInt
    tokens: list[DeviceTokenSummary]
    display_name: NonEmptyStr | UnsetType = UNSET
    platform: NonEmptyStr | UnsetType = UNSET
    device_family: NonEmptyStr | UnsetType = UNSET
    client_id: NonEmptyStr | UnsetType = UNSET
    client_mode: NonEmptyStr | UnsetType = UNSET
    role: NonEmptyStr | UnsetType = UNSET
    roles: list[NonEmptyStr] | UnsetType = UNSET
    scopes: list[NonEmptyStr] | UnsetType = UNSET
    remote_ip: NonEmptyStr | UnsetType = UNSET


class DevicePairListResult(Result):
    """Pending newest first, paired by ``approved_at_ms`` descending."""

    pending: list[DevicePairRequestedEvent]
    paired: list[DevicePaired]


class DevicePairApproveParams(Params, frozen=True):
    request_id: NonEmptyStr


class DevicePairApproveResult(Result):
    request_id: str
    device: DevicePaired


class DevicePairRejectParams(Params, frozen=True):
    request_id: NonEmptyStr


class DevicePairRejectResult(Result):
    request_id: str
    device_id: str


class DevicePairRemoveParams(Params, frozen=True):
    device_id: NonEmptyStr


class DevicePairRemoveResult(Result):
    device_id: str


class DeviceTokenRotateParams(Params, frozen=True):
    device_id: NonEmptyStr
    role: NonEmptyStr
    scopes: tuple[NonEmptyStr, ...] | UnsetType = UNSET


class DeviceTokenRotateResult(Result):
    device_id: str
    role: str
    token: str
    scopes: list[str]
    rotated_at_ms: NonNegativeInt


class DeviceTokenRevokeParams(Params, frozen=True):
    device_id: NonEmptyStr
    role: NonEmptyStr


class DeviceTokenRevokeResult(Result):
    device_id: str
    role: str
    revoked_at_ms: NonNegativeInt
