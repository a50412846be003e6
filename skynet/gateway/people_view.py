"""People as clients see them."""

from msgspec import UNSET, UnsetType

from skynet_protocol.users import Allowance, BudgetPeriod, Person, PersonIdentity
from skynet_users.budgets import PeriodStatus
from skynet_users.identities import Identity
from skynet_users.people import User


def person_view(user: User) -> Person:
    return Person(
        id=user.id,
        display_name=user.display_name,
        role=user.role.value,
        created_at=user.created_at_ms,
        language=user.language or UNSET,
        tone=user.tone or UNSET,
        interests=user.interests or UNSET,
        age=_given(user.age),
        time_zone=user.time_zone or UNSET,
        content_filter=user.content_filter,
        requires_approval=user.requires_approval,
        flags=dict(user.flags),
        quiet_hours=user.quiet_hours or UNSET,
        allowed_hours=user.allowed_hours or UNSET,
        needs_welcome=user.needs_welcome,
        disabled=user.disabled,
        daily_tokens=_given(user.daily_tokens),
        monthly_tokens=_given(user.monthly_tokens),
        daily_microusd=_given(user.daily_microusd),
        monthly_microusd=_given(user.monthly_microusd),
    )


def identity_view(identity: Identity) -> PersonIdentity:
    return PersonIdentity(
        channel=identity.channel,
        external_id=identity.external_id,
        display_name=identity.display_name or UNSET,
        linked_at=identity.linked_at_ms,
        verified=identity.verified,
        linked_by=identity.linked_by or UNSET,
    )


def period_view(status: PeriodStatus) -> BudgetPeriod:
    """What was used of a budget; a limit that there is not is left out."""
    used, reserved = status.used, status.reserved
    return BudgetPeriod(
        tokens=Allowance(used=used.tokens, reserved=reserved.tokens, limit=_given(status.limit_tokens)),
        microusd=Allowance(used=used.microusd, reserved=reserved.microusd, limit=_given(status.limit_microusd)),
        resets_at=status.resets_at_ms,
    )


def _given(value: int | None) -> int | UnsetType:
    return UNSET if value is None else value
