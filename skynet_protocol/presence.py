"""``system-presence`` and ``system-event`` (OPENCLAW-V3 6.3)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from skynet_protocol.params import LenientParams, NonNegativeInt, Result


class SystemPresenceParams(LenientParams, frozen=True):
    pass


class SystemEventParams(LenientParams, frozen=True):
    """Fields of another type than the protocol's count as absent, as in OpenClaw; the handler sees to that."""

    text: object = UNSET
    device_id: object = UNSET
    instance_id: object = UNSET
    host: object = UNSET
    ip: object = UNSET
    mode: object = UNSET
    version: object = UNSET
    platform: object = UNSET
    device_family: object = UNSET
    model_identifier: object = UNSET
    last_input_seconds: object = UNSET
    reason: object = UNSET
    roles: object = UNSET
    scopes: object = UNSET
    tags: object = UNSET


class SystemEventResult(Result):
    ok: bool


class PresenceEntry(Result):
    """A device, a client or the gateway itself, as the last thing that was heard of it."""

    ts: NonNegativeInt
    host: str | UnsetType = UNSET
    ip: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    device_family: str | UnsetType = UNSET
    model_identifier: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    last_input_seconds: NonNegativeInt | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    device_id: str | UnsetType = UNSET
    roles: tuple[str, ...] | UnsetType = UNSET
    scopes: tuple[str, ...] | UnsetType = UNSET
    instance_id: str | UnsetType = UNSET
