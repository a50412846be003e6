"""Skynet's own ``approvals.*``: what waits until somebody who may decides it, and the events that tell of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, Result
from skynet_protocol.users import IdText, NameText, Person

ApprovalKind = Literal["registration", "tool_call", "request"]
ApprovalStatus = Literal["pending", "approved", "denied", "expired", "used"]
ReasonText = Annotated[str, Meta(max_length=500)]
SummaryText = Annotated[str, Meta(min_length=1, max_length=500)]


class ApprovalSummary(Result, kw_only=True):
    """Something that was asked for.

    ``subject`` says of what kind it is in particular: the channel's account that wants in, or the tool and its
    arguments. ``mine``: the caller asked. ``decidable``: the caller may decide it now.
    """

    id: str
    kind: ApprovalKind
    status: ApprovalStatus
    summary: str
    subject: dict[str, Any]
    created_at: NonNegativeInt
    expires_at: NonNegativeInt
    requester: str | UnsetType = UNSET
    requester_name: str | UnsetType = UNSET
    decided_by: str | UnsetType = UNSET
    decided_at: NonNegativeInt | UnsetType = UNSET
    used_at: NonNegativeInt | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    mine: bool
    decidable: bool


class ApprovalsListParams(Params, frozen=True):
    """``status``: absent for all."""

    status: ApprovalStatus | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class ApprovalsListResult(Result, kw_only=True):
    """What the caller asked for and what the caller may decide, newest first."""

    approvals: list[ApprovalSummary]


class ApprovalsDecideParams(Params, frozen=True):
    """Of a registration: ``role`` and ``display_name`` of the new person, or ``user_id``, whose account it is."""

    id: IdText
    approve: bool
    reason: ReasonText = ""
    role: Literal["user", "child"] | UnsetType = UNSET
    display_name: NameText | UnsetType = UNSET
    user_id: IdText | UnsetType = UNSET


class ApprovalsDecideResult(Result, kw_only=True):
    """``user``: who was let in."""

    approval: ApprovalSummary
    user: Person | UnsetType = UNSET


class ApprovalsRequestParams(Params, frozen=True):
    """``summary``: what is asked for, in the person's own words."""

    summary: SummaryText


class ApprovalsRequestResult(Result, kw_only=True):
    """``created``: false where the same question was open already."""

    approval: ApprovalSummary
    created: bool


class ApprovalRequestedEvent(Result, kw_only=True):
    """``approvals.requested``, to each who may decide it."""

    approval: ApprovalSummary
    ts: NonNegativeInt


class ApprovalResolvedEvent(Result, kw_only=True):
    """``approvals.resolved``: it was decided, or has expired; to those who could decide it, and to who asked."""

    id: str
    kind: ApprovalKind
    status: ApprovalStatus
    decided_by: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    ts: NonNegativeInt
