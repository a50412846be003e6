"""``usage.status``, ``usage.cost`` and ``doctor.memory.status``."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from skynet.gateway.dispatch import method
from skynet_memory.ids import DEFAULT_AGENT, UserId, now_ms
from skynet_memory.usage import NOTHING_USED, DailyUsage, PersonUsage, UsageStore
from skynet_memory.usage import UsageTotals as StoredTotals
from skynet_protocol.params import invalid_params
from skynet_protocol.usage import (
    DoctorMemoryStatusParams,
    DoctorMemoryStatusResult,
    EmbeddingStatus,
    UsageCostParams,
    UsageCostResult,
    UsageDay,
    UsageModel,
    UsagePerson,
    UsageStatusParams,
    UsageStatusResult,
    UsageTotals,
)
from skynet_users.caller import Caller
from skynet_users.errors import UnknownUser
from skynet_users.permissions import Permission

DEFAULT_DAYS = 30
MAX_DAYS = 3660
"""Ten years: more is not asked for in earnest."""
MICROUSD = 1_000_000
DAY_MS = 86_400_000
EPOCH = date(1970, 1, 1).toordinal()

EVERYBODY = UserId("")
"""Whose costs are asked for with ``all``: nobody's own."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_OFFSET = re.compile(r"UTC([+-])(\d{1,2})(?::([0-5]\d))?", re.ASCII)


class UsageMethods:
    """What the caller's messages cost; for those who may see it, what everybody's did."""

    def __init__(self, usage: UsageStore) -> None:
        self._usage = usage

    @method("usage.status")
    def status(self, caller: Caller, params: UsageStatusParams) -> UsageStatusResult:
        """The providers' own quotas. None of this version's wire APIs tells them."""
        return UsageStatusResult(updated_at=now_ms(), providers=[])

    @method("usage.cost")
    async def cost(self, caller: Caller, params: UsageCostParams) -> UsageCostResult:
        """Tokens and dollars of the caller by day: of ``startDate`` to ``endDate``, or of the last ``days``.

        ``cacheShare`` is the part of the input tokens that the providers' caches had, ``estimatedEntries`` the number
        of calls of which no provider told what they used. Who may see everybody's costs asks with ``userId`` for
        another person's, or with ``all`` for those of all, and also gets them by person and model.

        Raises:
            Forbidden: costs of others are not for the caller.
            UnknownUser: there is no such person.
        """
        whose = _whose(caller, params)
        now = now_ms()
        period = _period(params, now)
        if whose is EVERYBODY:
            return await self._cost_of_everybody(period, now)
        daily = await self._usage.daily(
            whose, period.since_ms, period.until_ms, utc_offset_minutes=period.offset_minutes
        )
        totals = await self._usage.totals(whose, period.since_ms, period.until_ms)
        result = UsageCostResult(
            updated_at=now, days=period.days, daily=_days_of(daily), totals=UsageTotals(**_totals(totals))
        )
        if params.user_id:
            name = await self._usage.name_of(whose)
            if name is None:
                raise UnknownUser(whose)
            models = await self._usage.models(whose, period.since_ms, period.until_ms)
            result.people = [
                _person(
                    PersonUsage(owner=whose, display_name=name, totals=totals, daily=tuple(daily), models=tuple(models))
                )
            ]
        return result

    async def _cost_of_everybody(self, period: _Period, now: int) -> UsageCostResult:
        people = await self._usage.by_person(period.since_ms, period.until_ms, utc_offset_minutes=period.offset_minutes)
        days: defaultdict[str, StoredTotals] = defaultdict(lambda: NOTHING_USED)
        for day in (day for person in people for day in person.daily):
            days[day.date] += day.totals
        return UsageCostResult(
            updated_at=now,
            days=period.days,
            daily=[UsageDay(date=day, **_totals(days[day])) for day in sorted(days)],
            totals=UsageTotals(**_totals(sum((person.totals for person in people), NOTHING_USED))),
            people=[_person(person) for person in people],
        )

    @method("doctor.memory.status")
    def memory_status(self, caller: Caller, params: DoctorMemoryStatusParams) -> DoctorMemoryStatusResult:
        """Whether memories can be searched by meaning."""
        return DoctorMemoryStatusResult(
            agent_id=DEFAULT_AGENT, embedding=EmbeddingStatus(ok=False, error="no embedding provider is configured")
        )


@dataclass(frozen=True, slots=True)
class _Period:
    """Whole days in one zone; ``until_ms`` is not included."""

    since_ms: int
    until_ms: int
    offset_minutes: int

    @property
    def days(self) -> int:
        return max(0, self.until_ms - self.since_ms) // DAY_MS


def _period(params: UsageCostParams, now: int) -> _Period:
    offset = _utc_offset(params, now)
    shift_ms = offset * 60_000
    first, last = _day(params.start_date), _day(params.end_date)
    if first is None or last is None:
        last = (now + shift_ms) // DAY_MS
        first = last - _days(params.days) + 1
    return _Period(first * DAY_MS - shift_ms, (last + 1) * DAY_MS - shift_ms, offset)


def _utc_offset(params: UsageCostParams, now: int) -> int:
    """Minutes east of UTC in which days begin: ``gateway`` is the machine's zone, ``specific`` what is asked for."""
    if params.mode == "gateway":
        local = datetime.fromtimestamp(now / 1000).astimezone().utcoffset()
        return 0 if local is None else round(local.total_seconds() / 60)
    if params.mode == "specific" and isinstance(params.utc_offset, str):
        match = _OFFSET.fullmatch(params.utc_offset.strip())
        if match is not None:
            minutes = (int(match[2]) * 60 + int(match[3] or 0)) * (1 if match[1] == "+" else -1)
            return minutes if -12 * 60 <= minutes <= 14 * 60 else 0
    return 0


def _day(text: object) -> int | None:
    """``YYYY-MM-DD`` as days since 1970; ``None`` for anything else."""
    if not isinstance(text, str) or _DATE.fullmatch(text.strip()) is None:
        return None
    try:
        return date.fromisoformat(text.strip()).toordinal() - EPOCH
    except ValueError:
        return None


def _days(asked: object) -> int:
    """A number, or a text that is one, of days."""
    if isinstance(asked, bool) or not isinstance(asked, int | float | str) or asked == "":
        return DEFAULT_DAYS
    try:
        number = float(asked)
    except (ValueError, OverflowError):
        return DEFAULT_DAYS
    return max(1, math.floor(min(number, MAX_DAYS))) if math.isfinite(number) else DEFAULT_DAYS


def _whose(caller: Caller, params: UsageCostParams) -> UserId:
    """
    Raises:
        Forbidden: it is about others, whose costs the caller may not see.
    """
    if params.all and params.user_id:
        raise invalid_params("usage.cost", "at /all: must not be true beside userId")
    whose = EVERYBODY if params.all else UserId(params.user_id or caller.user_id)
    caller.require(Permission.COSTS_VIEW, whose)
    return whose


def _person(person: PersonUsage) -> UsagePerson:
    return UsagePerson(
        user_id=person.owner,
        display_name=person.display_name,
        totals=UsageTotals(**_totals(person.totals)),
        daily=_days_of(person.daily),
        models=[
            UsageModel(provider=model.provider, model=model.model, **_totals(model.totals)) for model in person.models
        ],
    )


def _days_of(daily: Iterable[DailyUsage]) -> list[UsageDay]:
    return [UsageDay(date=day.date, **_totals(day.totals)) for day in daily]


def _totals(stored: StoredTotals) -> dict[str, Any]:
    of_input, of_output, of_reading, of_writing = (part / MICROUSD for part in stored.cost_parts)
    return {
        "input": stored.input,
        "output": stored.output,
        "cache_read": stored.cache_read,
        "cache_write": stored.cache_write,
        "total_tokens": stored.total,
        "total_cost": stored.cost_microusd / MICROUSD,
        "input_cost": of_input,
        "output_cost": of_output,
        "cache_read_cost": of_reading,
        "cache_write_cost": of_writing,
        "missing_cost_entries": stored.unpriced_calls,
        "cache_share": round(stored.cache_share, 4),
        "estimated_entries": stored.estimated_calls,
    }
