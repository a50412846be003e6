"""``audit.*``: Skynet's own."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from skynet.gateway.dispatch import method
from skynet_protocol.audit import (
    AuditEntryView,
    AuditListParams,
    AuditListResult,
    AuditVerifyParams,
    AuditVerifyResult,
)
from skynet_users.audit import AuditEntry, AuditLog
from skynet_users.caller import Caller
from skynet_users.permissions import Permission


class AuditMethods:
    """The record of who did what: whole, for those who may read it, and for nobody else."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    @method("audit.list")
    async def list_entries(self, caller: Caller, params: AuditListParams) -> AuditListResult:
        """What was recorded, newest first, by page.

        Raises:
            Forbidden: it is not for the caller: there is nothing in it that belongs to one person.
        """
        caller.require(Permission.AUDIT_READ)
        entries = await self._audit.list(
            params.limit,
            params.before or None,
            actor=params.actor or None,
            subject=params.subject or None,
            action=params.action or None,
            since_ms=_or_none(params.since),
            until_ms=_or_none(params.until),
        )
        more = len(entries) == params.limit and entries[-1].seq > 1
        return AuditListResult(
            entries=[_view(entry) for entry in entries], next_before=entries[-1].seq if more else UNSET
        )

    @method("audit.verify")
    async def verify(self, caller: Caller, params: AuditVerifyParams) -> AuditVerifyResult:
        """Whether every row is as it was recorded; reads the whole log, in batches.

        Raises:
            Forbidden: as ``audit.list``.
        """
        caller.require(Permission.AUDIT_READ)
        result = await self._audit.verify(params.head or "")
        return AuditVerifyResult(
            ok=result.ok,
            rows=result.rows,
            head=result.head,
            first_bad_seq=UNSET if result.first_bad_seq is None else result.first_bad_seq,
            problem=result.problem or UNSET,
        )


def _view(entry: AuditEntry) -> AuditEntryView:
    details: dict[str, Any] = dict(entry.details)
    return AuditEntryView(
        seq=entry.seq,
        at=entry.at_ms,
        action=entry.action,
        actor=entry.actor or UNSET,
        actor_name=entry.actor_name or UNSET,
        subject=entry.subject or UNSET,
        subject_name=entry.subject_name or UNSET,
        details=details or UNSET,
        hash=entry.hash,
    )


def _or_none(value: int | UnsetType) -> int | None:
    return None if value is UNSET else value
