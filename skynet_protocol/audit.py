"""Skynet's own ``audit.*``: the record of who did what, and whether somebody changed it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonNegativeInt, Params, PositiveInt, Result

MOST_ENTRIES = 200

Filter = Annotated[str, Meta(min_length=1, max_length=512)]


class AuditListParams(Params, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=MOST_ENTRIES)] = 50
    before: PositiveInt | UnsetType = UNSET
    """Only entries with a lower ``seq``: ``next_before`` of the page before."""
    actor: Filter | UnsetType = UNSET
    """A person's id."""
    subject: Filter | UnsetType = UNSET
    action: Filter | UnsetType = UNSET
    """An action, or what stands before its dot."""
    since: NonNegativeInt | UnsetType = UNSET
    until: NonNegativeInt | UnsetType = UNSET
    """Not included."""


class AuditEntryView(Result, kw_only=True):
    """``actor`` and ``subject`` are ids, the names those of that time; what there is not is left out."""

    seq: int
    """0 and less only where somebody has been at the file."""
    at: NonNegativeInt
    action: str
    actor: str | UnsetType = UNSET
    actor_name: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    subject_name: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET
    hash: str


class AuditListResult(Result, kw_only=True):
    """Newest first; ``next_before`` only where older ones may follow."""

    entries: list[AuditEntryView]
    next_before: NonNegativeInt | UnsetType = UNSET


class AuditVerifyParams(Params, frozen=True):
    head: Annotated[str, Meta(pattern=r"^[0-9]{1,18}:[0-9a-fA-F]{64}$")] | UnsetType = UNSET
    """One that was told earlier and kept elsewhere: has the log grown from there?"""


class AuditVerifyResult(Result, kw_only=True):
    """``rows``: those found right, from the first on. ``head``: ``<seq>:<hash>`` of the last of them."""

    ok: bool
    rows: NonNegativeInt
    head: str
    first_bad_seq: int | UnsetType = UNSET
    problem: Literal["changed", "missing", "cut", "added", "head", "unlike"] | UnsetType = UNSET
