"""The limits of ``[budgets]``, as the ledger counts them, and its warnings as clients get them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import tzinfo

from skynet.config.schema import BudgetConfig, BudgetsConfig
from skynet_memory.ids import Role, UserId
from skynet_memory.usage import UsageStore
from skynet_protocol.budgets import BudgetWarningEvent
from skynet_users.budgets import BudgetWarning, Limits, PersonLimits, Spent
from skynet_users.errors import UnknownUser
from skynet_users.hours import zone_of
from skynet_users.people import User

MICROUSD = 1_000_000


def limits_of(configured: BudgetConfig) -> Limits:
    """Dollars become micro-dollars."""
    return Limits(
        daily_tokens=configured.daily_tokens,
        monthly_tokens=configured.monthly_tokens,
        daily_microusd=_microusd(configured.daily_usd),
        monthly_microusd=_microusd(configured.monthly_usd),
    )


def limits_for(user: User, configured: BudgetsConfig) -> Limits:
    """The person's own limits; where there is none, the role's."""
    of_role = limits_of(
        {Role.ADMIN: configured.admin, Role.USER: configured.user, Role.CHILD: configured.child}[user.role]
    )
    return Limits(
        daily_tokens=_first(user.daily_tokens, of_role.daily_tokens),
        monthly_tokens=_first(user.monthly_tokens, of_role.monthly_tokens),
        daily_microusd=_first(user.daily_microusd, of_role.daily_microusd),
        monthly_microusd=_first(user.monthly_microusd, of_role.monthly_microusd),
    )


def limits_reader(
    find: Callable[[UserId], Awaitable[User | None]], configured: BudgetsConfig, zone: tzinfo
) -> Callable[[UserId], Awaitable[PersonLimits]]:
    """What the ledger asks for somebody's limits.

    Args:
        find: gives a person, or a group, by id.
        zone: of those who have named none.
    """

    async def limits(owner: UserId) -> PersonLimits:
        user = await find(owner)
        if user is None:
            raise UnknownUser(owner)
        return PersonLimits(limits_for(user, configured), zone_of(user.time_zone) if user.time_zone else zone)

    return limits


def loader(usage: UsageStore) -> Callable[[UserId | None, int], Awaitable[Spent]]:
    """What the ledger begins with."""

    async def load(owner: UserId | None, since_ms: int) -> Spent:
        return Spent(*await usage.spent(owner, since_ms))

    return load


def warning_event(warning: BudgetWarning, zone: tzinfo) -> BudgetWarningEvent:
    """For the person, or, when it is about the house, for admins; the time is told in ``zone``."""
    return BudgetWarningEvent(
        whose=warning.whose,
        period=warning.period,
        unit=warning.unit,
        used=warning.used,
        limit=warning.limit,
        resets_at=warning.resets_at_ms,
        message=warning.words(zone),
    )


def _microusd(dollars: float | None) -> int | None:
    return None if dollars is None else round(dollars * MICROUSD)


def _first(own: int | None, of_role: int | None) -> int | None:
    return of_role if own is None else own
