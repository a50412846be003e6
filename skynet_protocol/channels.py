"""``channels.status`` (OPENCLAW-V3 6.10)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result


class ChannelsStatusParams(Params, frozen=True):
    probe: bool = False
    timeout_ms: NonNegativeInt = 10_000


class ChannelUiMeta(Result):
    id: NonEmptyStr
    label: NonEmptyStr
    detail_label: NonEmptyStr
    system_image: str | UnsetType = UNSET


class ChannelsStatusResult(Result):
    """Everything is keyed by channel id. A gateway without channels answers with empty containers, all there."""

    ts: NonNegativeInt
    channel_order: list[str]
    channel_labels: dict[str, str]
    channel_detail_labels: dict[str, str]
    channel_system_images: dict[str, str]
    channel_meta: list[ChannelUiMeta]
    channels: dict[str, Any]
    channel_accounts: dict[str, list[dict[str, Any]]]
    channel_default_account_id: dict[str, str]
