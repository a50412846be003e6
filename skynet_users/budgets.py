"""What each person, and the house, may still use: reserved before a model call, settled after it.

The ledger does no I/O but for ``load`` and ``limits``, which it is given, and takes its time from ``clock``. All of it
happens in one event loop: between looking at the limits and taking a reservation there is no await, so concurrent
calls see each other's reservations. A call is granted while what is used and what is reserved are together below every
limit; so no limit is overshot by more than one reservation, as long as estimates are no lower than what is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Literal

from skynet_memory.ids import UserId
from skynet_users.money import dollars
from skynet_users.periods import PERIODS, Period, PeriodName, following, period_of, when

Unit = Literal["tokens", "money"]
Whose = Literal["you", "house"]
UNITS: tuple[Unit, ...] = ("tokens", "money")

WARN_AT_PERCENT = 80
CLOCK_TOLERANCE_MS = 3_600_000
"""How far the clock may be set back before what was used is read again for the earlier period."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of every kind, and micro-dollars."""

    tokens: int = 0
    microusd: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.microusd + other.microusd)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.tokens - other.tokens, self.microusd - other.microusd)

    def of(self, unit: Unit) -> int:
        return self.tokens if unit == "tokens" else self.microusd


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: no limit. 0: nothing may be used."""

    daily_tokens: int | None = None
    monthly_tokens: int | None = None
    daily_microusd: int | None = None
    monthly_microusd: int | None = None

    def of(self, period: PeriodName, unit: Unit) -> int | None:
        if period == "day":
            return self.daily_tokens if unit == "tokens" else self.daily_microusd
        return self.monthly_tokens if unit == "tokens" else self.monthly_microusd

    @property
    def of_money(self) -> bool:
        """Whether money is limited, so that a call without a known price escapes a limit."""
        return self.daily_microusd is not None or self.monthly_microusd is not None


@dataclass(frozen=True, slots=True)
class PersonLimits:
    limits: Limits
    zone: tzinfo
    """Where the person's days begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodStatus:
    used: Spent
    reserved: Spent
    """Of calls under way: counted against every limit until it is known what they used."""
    limit_tokens: int | None
    limit_microusd: int | None
    starts_at_ms: int
    resets_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    day: PeriodStatus
    month: PeriodStatus
    house_day: PeriodStatus
    house_month: PeriodStatus
    zone: tzinfo
    """The person's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarning:
    """80 % of a limit is used. Told once for each limit and period."""

    owner: UserId | None
    """None: the house's limit, of interest to admins."""
    period: PeriodName
    unit: Unit
    used: int
    """Tokens, or micro-dollars; the limit as well."""
    limit: int
    resets_at_ms: int

    @property
    def whose(self) -> Whose:
        return "house" if self.owner is None else "you"

    def words(self, zone: tzinfo) -> str:
        """For the person, or for an admin."""
        used = _used(self.whose, self.period, self.unit, self.used, self.limit)
        return f"{used}; it starts again on {when(self.resets_at_ms, zone)}."


class BudgetExceeded(Exception):  # noqa: N818 - says what happened, as "except BudgetExceeded" should read
    """Nothing may be used until ``resets_at_ms``, or until somebody raises the limit. ``str()`` is for the person.

    Of several limits that are reached it names the one that holds longest.
    """

    def __init__(
        self,
        *,
        whose: Whose,
        period: PeriodName,
        unit: Unit,
        used: int,
        reserved: int,
        limit: int,
        resets_at_ms: int,
        zone: tzinfo,
    ) -> None:
        busy = ", and answers under way need the rest" if used < limit else ""
        amounts = _used(whose, period, unit, used, limit)
        super().__init__(f"{amounts}{busy}; it starts again on {when(resets_at_ms, zone)}.")
        self.whose: Whose = whose
        self.period: PeriodName = period
        self.unit: Unit = unit
        self.used = used
        """Tokens, or micro-dollars; below the limit when calls under way have reserved the rest."""
        self.reserved = reserved
        self.limit = limit
        self.resets_at_ms = resets_at_ms


def _used(whose: Whose, period: PeriodName, unit: Unit, used: int, limit: int) -> str:
    who = "You have" if whose == "you" else "All people of this house together have"
    amounts = f"{used:,} of {limit:,} tokens" if unit == "tokens" else f"{dollars(used)} of {dollars(limit)}"
    return f"{who} used {amounts} for {'today' if period == 'day' else 'this month'}"


@dataclass(slots=True)
class _Meter:
    """What was used in the period that is now."""

    period: Period
    used: Spent = Spent()
    is_loaded: bool = False
    warned: dict[Unit, int] = field(default_factory=dict)
    """The limits of which it was already told that 80 % are used."""


@dataclass(slots=True)
class _Account:
    limits: Limits
    zone: tzinfo
    meters: dict[PeriodName, _Meter]
    reserved: Spent = Spent()
    """Of the periods that are now, whenever it was reserved: that is where it will be settled."""

    def roll_over(self, now_ms: int) -> None:
        """Begin the periods that the clock has reached; what was used before is of no interest any more."""
        for name, meter in self.meters.items():
            if now_ms >= meter.period.ends_ms:
                self.meters[name] = _Meter(following(name, meter.period, now_ms, self.zone))
            elif now_ms < meter.period.starts_ms - CLOCK_TOLERANCE_MS:
                self.meters[name] = _Meter(period_of(name, now_ms, self.zone), used=meter.used)

    def is_ready(self, now_ms: int) -> bool:
        self.roll_over(now_ms)
        return all(meter.is_loaded for meter in self.meters.values())

    def count_as_warned(self, meter: _Meter) -> None:
        """What is used already when it is read was told when it was used."""
        for _, other, unit, limit in self.each():
            if other is meter and _is_near(meter, unit, limit):
                meter.warned.setdefault(unit, limit)

    def each(self) -> Iterator[tuple[PeriodName, _Meter, Unit, int]]:
        """Every limit there is, with what it is measured by."""
        for name, meter in self.meters.items():
            for unit in UNITS:
                limit = self.limits.of(name, unit)
                if limit is not None:
                    yield name, meter, unit, limit


class Reservation:
    """Part of a budget, set aside for one call. The first ``settle`` or ``release`` counts, others do nothing."""

    __slots__ = ("_estimate", "_is_open", "_ledger", "owner")

    def __init__(self, ledger: Ledger, owner: UserId, estimate: Spent) -> None:
        self.owner = owner
        self._ledger = ledger
        self._estimate = estimate
        self._is_open = True

    def settle(self, tokens: int, microusd: int | None) -> None:
        """Put what was really used in place of the estimate; ``microusd`` None: the price is not known."""
        if self._is_open:
            self._is_open = False
            self._ledger.settle(self.owner, self._estimate, tokens, microusd)

    def release(self) -> None:
        """Nothing was used."""
        if self._is_open:
            self._is_open = False
            self._ledger.release(self.owner, self._estimate)


class Ledger:
    """The budgets of everybody. What was used is read once for each person and period, then kept in memory.

    Args:
        load: what a person, or everybody (None), has used since a time, as far as it is stored.
        limits: a person's limits and time zone; may raise if there is no such person.
        on_warning: told at most once for each limit and period; must not raise.
        clock: epoch milliseconds.
    """

    def __init__(
        self,
        load: Callable[[UserId | None, int], Awaitable[Spent]],
        limits: Callable[[UserId], Awaitable[PersonLimits]],
        house: Limits,
        house_zone: tzinfo,
        on_warning: Callable[[BudgetWarning], None],
        clock: Callable[[], int],
    ) -> None:
        self._load = load
        self._limits = limits
        self._house = PersonLimits(house, house_zone)
        self._on_warning = on_warning
        self._clock = clock
        self._accounts: dict[UserId | None, _Account] = {}
        self._outdated: set[UserId | None] = set()
        self._opening: dict[UserId | None, asyncio.Future[None]] = {}
        self.unpriced = 0
        """Calls that a limit of money applied to, but whose price was not known: they counted as 0."""

    async def reserve(self, owner: UserId, tokens: int, microusd: int | None) -> Reservation:
        """Set aside what a call will use at most; ``microusd`` None: its price is not known, so it counts as 0.

        Raises:
            BudgetExceeded: what is used and reserved reaches a limit of the person or of the house.
        """
        if tokens < 0 or (microusd or 0) < 0:
            raise ValueError(f"an estimate is {tokens} tokens and {microusd} micro-dollars, both must be at least 0")
        person, house = await self._open_both(owner)
        # No await from here on: others must not be granted what this one is about to take
        _refuse(person, house)
        estimate = Spent(tokens, microusd or 0)
        person.reserved += estimate
        house.reserved += estimate
        return Reservation(self, owner, estimate)

    async def check(self, owner: UserId) -> None:
        """Refuse as ``reserve`` would, and reserve nothing.

        Raises:
            BudgetExceeded: as ``reserve``.
        """
        _refuse(*await self._open_both(owner))

    async def status(self, owner: UserId) -> BudgetStatus:
        """Where the person and the house are."""
        person, house = await self._open_both(owner)
        return BudgetStatus(
            day=_status(person, "day"),
            month=_status(person, "month"),
            house_day=_status(house, "day"),
            house_month=_status(house, "month"),
            zone=person.zone,
        )

    def forget(self, owner: UserId) -> None:
        """The person's limits or time zone have changed. Limits hold at once; a day that has begun ends when it would
        have, so that nobody gets a second one by moving, and the next ends where the person then lives."""
        if owner in self._accounts or owner in self._opening:
            self._outdated.add(owner)

    def settle(self, owner: UserId, estimate: Spent, tokens: int, microusd: int | None) -> None:
        """For ``Reservation``: it knows whether it is open."""
        now_ms = self._clock()
        used = Spent(max(0, tokens), max(0, microusd or 0))
        both = {owner: self._accounts[owner], None: self._accounts[None]}
        if microusd is None and tokens > 0 and any(account.limits.of_money for account in both.values()):
            self.unpriced += 1
        for account in both.values():
            account.roll_over(now_ms)
            account.reserved -= estimate
            for meter in account.meters.values():
                meter.used += used
        for whose, account in both.items():
            self._warn(whose, account)

    def release(self, owner: UserId, estimate: Spent) -> None:
        """For ``Reservation``."""
        for account in (self._accounts[owner], self._accounts[None]):
            account.reserved -= estimate

    def _warn(self, owner: UserId | None, account: _Account) -> None:
        for name, meter, unit, limit in account.each():
            if _is_near(meter, unit, limit) and meter.warned.get(unit) != limit:
                meter.warned[unit] = limit
                self._on_warning(
                    BudgetWarning(
                        owner=owner,
                        period=name,
                        unit=unit,
                        used=meter.used.of(unit),
                        limit=limit,
                        resets_at_ms=meter.period.ends_ms,
                    )
                )

    # Reading what is not known yet

    async def _open_both(self, owner: UserId) -> tuple[_Account, _Account]:
        """Both accounts, up to date at the moment of return."""
        while True:
            unready = [who for who in (owner, None) if not self._is_ready(who)]
            if not unready:
                return self._accounts[owner], self._accounts[None]
            who = unready[0]
            opening = self._opening.get(who)
            if opening is not None:  # another reservation is at it; if that one fails, the next tries
                await asyncio.wait([opening])
                continue
            self._opening[who] = done = asyncio.get_running_loop().create_future()
            try:
                await self._open(who)
            finally:
                del self._opening[who]
                done.set_result(None)

    def _is_ready(self, who: UserId | None) -> bool:
        account = self._accounts.get(who)
        return account is not None and who not in self._outdated and account.is_ready(self._clock())

    async def _open(self, who: UserId | None) -> None:
        account = self._accounts.get(who)
        if account is None or who in self._outdated:
            account = await self._with_limits(who, account)
        account.roll_over(self._clock())
        for meter in list(account.meters.values()):
            if not meter.is_loaded:
                stored = await self._load(who, meter.period.starts_ms)
                # What is settled may not be stored yet; what an earlier process stored was never settled here
                meter.used = Spent(max(meter.used.tokens, stored.tokens), max(meter.used.microusd, stored.microusd))
                meter.is_loaded = True
                account.count_as_warned(meter)
        self._accounts[who] = account

    async def _with_limits(self, who: UserId | None, account: _Account | None) -> _Account:
        """The account with the limits of now; a change while they are read has them read again."""
        self._outdated.discard(who)
        try:
            current = self._house if who is None else await self._limits(who)
        except BaseException:
            if account is not None:
                self._outdated.add(who)
            raise
        if account is None:
            now_ms = self._clock()
            meters = {name: _Meter(period_of(name, now_ms, current.zone)) for name in PERIODS}
            return _Account(current.limits, current.zone, meters)
        account.limits, account.zone = current.limits, current.zone
        return account


def _refuse(person: _Account, house: _Account) -> None:
    """Raise for the limit that holds longest, of those that are reached."""
    worst: BudgetExceeded | None = None
    sides: tuple[tuple[Whose, _Account], ...] = (("you", person), ("house", house))
    for whose, account in sides:
        for name, meter, unit, limit in account.each():
            used, reserved = meter.used.of(unit), account.reserved.of(unit)
            if used + reserved >= limit and (worst is None or meter.period.ends_ms > worst.resets_at_ms):
                worst = BudgetExceeded(
                    whose=whose,
                    period=name,
                    unit=unit,
                    used=used,
                    reserved=reserved,
                    limit=limit,
                    resets_at_ms=meter.period.ends_ms,
                    zone=person.zone,
                )
    if worst is not None:
        raise worst


def _is_near(meter: _Meter, unit: Unit, limit: int) -> bool:
    return limit > 0 and meter.used.of(unit) * 100 >= limit * WARN_AT_PERCENT


def _status(account: _Account, name: PeriodName) -> PeriodStatus:
    meter = account.meters[name]
    return PeriodStatus(
        used=meter.used,
        reserved=account.reserved,
        limit_tokens=account.limits.of(name, "tokens"),
        limit_microusd=account.limits.of(name, "money"),
        starts_at_ms=meter.period.starts_ms,
        resets_at_ms=meter.period.ends_ms,
    )
