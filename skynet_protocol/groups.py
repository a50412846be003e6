"""Skynet's own ``groups.*``: rooms that several people share."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, Result
from skynet_protocol.users import IdText, NameText

GroupHistory = Literal["from_join", "all"]


class GroupSummary(Result, kw_only=True):
    """``channel`` and ``external_id`` are absent for a room of this gateway's own.

    ``history``: what a member sees, all or what was said since joining. A group that is not ``active`` keeps what it
    has and takes no messages. ``member``: the caller is one.
    """

    id: str
    name: str
    active: bool
    history: GroupHistory
    channel: str | UnsetType = UNSET
    external_id: str | UnsetType = UNSET
    created_by: str | UnsetType = UNSET
    member: bool


class GroupsListParams(Params, frozen=True):
    pass


class GroupsListResult(Result, kw_only=True):
    """The caller's groups; all of them for those who manage groups."""

    groups: list[GroupSummary]


class GroupsCreateParams(Params, frozen=True):
    name: NameText
    history: GroupHistory = "from_join"


class GroupsCreateResult(Result, kw_only=True):
    group: GroupSummary


class GroupsSetParams(Params, frozen=True):
    """What is absent stays."""

    group_id: IdText
    active: bool | UnsetType = UNSET


class GroupsSetResult(Result, kw_only=True):
    group: GroupSummary


class GroupsJoinParams(Params, frozen=True):
    """``user_id``: absent for the caller."""

    group_id: IdText
    user_id: IdText | UnsetType = UNSET


class GroupsJoinResult(Result, kw_only=True):
    group_id: str
    user_id: str


class GroupsLeaveParams(Params, frozen=True):
    """``user_id``: absent for the caller."""

    group_id: IdText
    user_id: IdText | UnsetType = UNSET


class GroupsLeaveResult(Result, kw_only=True):
    group_id: str
    user_id: str


class GroupsMembersParams(Params, frozen=True):
    group_id: IdText


class GroupMember(Result, kw_only=True):
    user_id: str
    display_name: str
    joined_at: NonNegativeInt


class GroupsMembersResult(Result, kw_only=True):
    members: list[GroupMember]
