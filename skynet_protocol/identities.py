"""Skynet's own ``identities.*``: which person a channel's ``discord:1234`` is."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, Result
from skynet_protocol.users import ChannelName, ExternalId, IdText, PersonIdentity, ShortText

CodeText = Annotated[str, Meta(min_length=1, max_length=40)]


class IdentitiesListParams(Params, frozen=True):
    """``user_id``: absent for the caller."""

    user_id: IdText | UnsetType = UNSET


class IdentitiesListResult(Result, kw_only=True):
    identities: list[PersonIdentity]


class IdentitiesLinkParams(Params, frozen=True):
    """``move``: also take it from the person it belongs to."""

    user_id: IdText
    channel: ChannelName
    external_id: ExternalId
    display_name: ShortText = ""
    move: bool = False


class IdentitiesLinkResult(Result, kw_only=True):
    """``moved_from``: whose it was."""

    user_id: str
    channel: str
    external_id: str
    moved_from: str | UnsetType = UNSET


class IdentitiesUnlinkParams(Params, frozen=True, kw_only=True):
    """``user_id``: absent for the caller."""

    user_id: IdText | UnsetType = UNSET
    channel: ChannelName
    external_id: ExternalId


class IdentitiesUnlinkResult(Result, kw_only=True):
    user_id: str
    channel: str
    external_id: str


class IdentitiesCodeParams(Params, frozen=True):
    pass


class IdentitiesCodeResult(Result, kw_only=True):
    """``say``: what to send, from the account that is to be linked, to the assistant there."""

    code: str
    expires_at: NonNegativeInt
    say: str


class IdentitiesClaimParams(Params, frozen=True):
    """For a channel's adapter, which vouches for the account that sent this code."""

    code: CodeText
    channel: ChannelName
    external_id: ExternalId
    display_name: ShortText = ""


class IdentitiesClaimResult(Result, kw_only=True):
    user_id: str
    channel: str
    external_id: str
