"""What was used and spent: one record a model call. Money is integer micro-dollars, None where the price is unknown."""

from dataclasses import dataclass

from skynet_memory.database import Database, Row
from skynet_memory.ids import SessionKey, UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    provider: str
    model: str
    input: int
    """Tokens; those read from and written to the provider's cache are not among them."""
    output: int
    cache_read: int = 0
    cache_write: int = 0
    cost_microusd: int | None
    cost_parts: tuple[int, int, int, int] | None = None
    """Of input, output, cache read and cache write, in micro-dollars."""
    at_ms: int
    estimated: bool = False
    """The provider told nothing, or the answer was not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_microusd: int
    """Of the calls whose price is known."""
    calls: int
    unpriced_calls: int
    estimated_calls: int = 0
    cost_parts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Of input, output, cache read and cache write, where they are known: since version 0.2."""

    @property
    def prompt(self) -> int:
        """Input tokens, those of the cache included."""
        return self.input + self.cache_read + self.cache_write

    @property
    def cache_share(self) -> float:
        """The part of the input tokens that a provider's cache had, from 0 to 1."""
        return self.cache_read / self.prompt if self.prompt else 0.0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUsage:
    date: str
    """``YYYY-MM-DD`` at the asked offset from UTC."""
    totals: UsageTotals


_SUMS = (
    "coalesce(sum(input), 0) AS input, coalesce(sum(output), 0) AS output,"
    " coalesce(sum(cache_read), 0) AS cache_read, coalesce(sum(cache_write), 0) AS cache_write,"
    " coalesce(sum(cost_microusd), 0) AS cost_microusd, count(*) AS calls,"
    " count(*) - count(cost_microusd) AS unpriced_calls, coalesce(sum(estimated), 0) AS estimated_calls,"
    " coalesce(sum(input_cost), 0) AS input_cost, coalesce(sum(output_cost), 0) AS output_cost,"
    " coalesce(sum(cache_read_cost), 0) AS cache_read_cost, coalesce(sum(cache_write_cost), 0) AS cache_write_cost"
)
_WHERE = "owner = :owner AND at_ms >= :since_ms AND at_ms < :until_ms AND (:key IS NULL OR key = :key)"


class UsageStore:
    """Every method sees only what ``owner`` used. ``since_ms`` is included, ``until_ms`` is not.

    ``key`` narrows it to one session; usage of deleted sessions still counts.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    async def daily(
        self,
        owner: UserId,
        since_ms: int,
        until_ms: int,
        *,
        utc_offset_minutes: int = 0,
        key: SessionKey | None = None,
    ) -> list[DailyUsage]:
        """A row for each day on which something was used, oldest first."""
        rows = await self._db.fetchall(
            f"SELECT date(at_ms / 1000 + :offset_s, 'unixepoch') AS date, {_SUMS}"  # noqa: S608 - fixed texts
            f" FROM usage WHERE {_WHERE} GROUP BY 1 ORDER BY 1",
            {
                "owner": owner,
                "since_ms": since_ms,
                "until_ms": until_ms,
                "offset_s": utc_offset_minutes * 60,
                "key": key,
            },
        )
        return [DailyUsage(date=row["date"], totals=_read_totals(row)) for row in rows]

    async def totals(
        self, owner: UserId, since_ms: int, until_ms: int, *, key: SessionKey | None = None
    ) -> UsageTotals:
        row = await self._db.fetchone(
            f"SELECT {_SUMS} FROM usage WHERE {_WHERE}",  # noqa: S608 - fixed texts
            {"owner": owner, "since_ms": since_ms, "until_ms": until_ms, "key": key},
        )
        assert row is not None, "an aggregate has a row"
        return _read_totals(row)


def _read_totals(row: Row) -> UsageTotals:
    return UsageTotals(
        input=row["input"],
        output=row["output"],
        cache_read=row["cache_read"],
        cache_write=row["cache_write"],
        cost_microusd=row["cost_microusd"],
        calls=row["calls"],
        unpriced_calls=row["unpriced_calls"],
        estimated_calls=row["estimated_calls"],
        cost_parts=(row["input_cost"], row["output_cost"], row["cache_read_cost"], row["cache_write_cost"]),
    )
