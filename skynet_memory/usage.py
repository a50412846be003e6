"""What was used and spent: one record a model call. Money is integer micro-dollars, None where the price is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skynet_memory.database import Database, Row, Statements
from skynet_memory.ids import RunId, SessionId, SessionKey, UserId


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

    def __add__(self, other: UsageTotals) -> UsageTotals:
        mine, others = self.cost_parts, other.cost_parts
        return UsageTotals(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cost_microusd=self.cost_microusd + other.cost_microusd,
            calls=self.calls + other.calls,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            estimated_calls=self.estimated_calls + other.estimated_calls,
            cost_parts=(mine[0] + others[0], mine[1] + others[1], mine[2] + others[2], mine[3] + others[3]),
        )


NOTHING_USED = UsageTotals(input=0, output=0, cache_read=0, cache_write=0, cost_microusd=0, calls=0, unpriced_calls=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUsage:
    date: str
    """``YYYY-MM-DD`` at the asked offset from UTC."""
    totals: UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    provider: str
    model: str
    totals: UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonUsage:
    owner: UserId
    display_name: str
    totals: UsageTotals
    daily: tuple[DailyUsage, ...]
    models: tuple[ModelUsage, ...]
    """What cost most first."""


_SUMS = (
    "coalesce(sum(input), 0) AS input, coalesce(sum(output), 0) AS output,"
    " coalesce(sum(cache_read), 0) AS cache_read, coalesce(sum(cache_write), 0) AS cache_write,"
    " coalesce(sum(cost_microusd), 0) AS cost_microusd, count(*) AS calls,"
    " count(*) - count(cost_microusd) AS unpriced_calls, coalesce(sum(estimated), 0) AS estimated_calls,"
    " coalesce(sum(input_cost), 0) AS input_cost, coalesce(sum(output_cost), 0) AS output_cost,"
    " coalesce(sum(cache_read_cost), 0) AS cache_read_cost, coalesce(sum(cache_write_cost), 0) AS cache_write_cost"
)
_WHERE = "owner = :owner AND at_ms >= :since_ms AND at_ms < :until_ms AND (:key IS NULL OR key = :key)"


_COSTLIEST = "ORDER BY sum(cost_microusd) DESC, sum(input + output) DESC"
_DATE = "date(at_ms / 1000 + :offset_s, 'unixepoch')"


class UsageStore:
    """Every method but ``by_person`` sees only what ``owner`` used. ``since_ms`` is included, ``until_ms`` is not.

    ``key`` narrows it to one session; usage of deleted sessions still counts, that of removed people does not.
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
            f"SELECT {_DATE} AS date, {_SUMS}"  # noqa: S608 - fixed texts
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

    async def models(self, owner: UserId, since_ms: int, until_ms: int) -> list[ModelUsage]:
        """A row for each model, what cost most first."""
        rows = await self._db.fetchall(
            f"SELECT provider, model, {_SUMS} FROM usage WHERE {_WHERE} GROUP BY provider, model {_COSTLIEST}",  # noqa: S608
            {"owner": owner, "since_ms": since_ms, "until_ms": until_ms, "key": None},
        )
        return [_read_model(row) for row in rows]

    async def spent(self, owner: UserId | None, since_ms: int) -> tuple[int, int]:
        """Tokens of every kind and micro-dollars since a time: of one person, or of all (None), for their budgets."""
        sums = "coalesce(sum(input + output + cache_read + cache_write), 0), coalesce(sum(cost_microusd), 0)"
        whose = "" if owner is None else "owner = :owner AND "
        row = await self._db.fetchone(
            f"SELECT {sums} FROM usage WHERE {whose}at_ms >= :since_ms",  # noqa: S608 - fixed texts
            {"owner": owner, "since_ms": since_ms},
        )
        assert row is not None, "an aggregate has a row"
        return row[0], row[1]

    async def add(
        self, owner: UserId, key: SessionKey, session_id: SessionId, run_id: RunId, records: Sequence[UsageRecord]
    ) -> None:
        """Record calls that are part of no turn (compaction, titles); a turn's are recorded when it is stored."""
        await self._db.write(lambda tx: insert_usage(tx, owner, key, session_id, run_id, records))

    async def by_person(self, since_ms: int, until_ms: int, *, utc_offset_minutes: int = 0) -> list[PersonUsage]:
        """Everybody who used something, who cost most first: for those who may see the costs of others."""
        values = {"since_ms": since_ms, "until_ms": until_ms, "offset_s": utc_offset_minutes * 60}

        def grouped(tx: Statements, columns: str, groups: str, order: str) -> list[Row]:
            return tx.fetchall(
                f"SELECT owner, {columns}{_SUMS} FROM usage"  # noqa: S608 - fixed texts
                f" WHERE at_ms >= :since_ms AND at_ms < :until_ms GROUP BY owner{groups} {order}",
                values,
            )

        def read(tx: Statements) -> list[PersonUsage]:
            names = {row["id"]: row["display_name"] for row in tx.fetchall("SELECT id, display_name FROM users")}
            days = _by_owner(grouped(tx, f"{_DATE} AS date, ", ", date", "ORDER BY date"))
            models = _by_owner(grouped(tx, "provider, model, ", ", provider, model", _COSTLIEST))
            return [
                PersonUsage(
                    owner=row["owner"],
                    display_name=names[row["owner"]],
                    totals=_read_totals(row),
                    daily=tuple(DailyUsage(date=day["date"], totals=_read_totals(day)) for day in days[row["owner"]]),
                    models=tuple(_read_model(model) for model in models[row["owner"]]),
                )
                for row in grouped(tx, "", "", _COSTLIEST)
            ]

        return await self._db.read(read)

    async def name_of(self, owner: UserId) -> str | None:
        """The person's name; None if there is no such person."""
        row = await self._db.fetchone("SELECT display_name FROM users WHERE id = ?", (owner,))
        return None if row is None else row[0]


def insert_usage(
    tx: Statements,
    owner: UserId,
    key: SessionKey,
    session_id: SessionId,
    run_id: RunId,
    records: Iterable[UsageRecord],
) -> None:
    """Record calls as part of a write."""
    tx.executemany(
        "INSERT INTO usage (owner, key, session_id, run_id, provider, model, input, output, cache_read,"
        " cache_write, cost_microusd, at_ms, estimated, input_cost, output_cost, cache_read_cost, cache_write_cost)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                owner,
                key,
                session_id,
                run_id,
                record.provider,
                record.model,
                record.input,
                record.output,
                record.cache_read,
                record.cache_write,
                record.cost_microusd,
                record.at_ms,
                record.estimated,
                *(record.cost_parts or (None,) * 4),
            )
            for record in records
        ],
    )


def _by_owner(rows: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["owner"], []).append(row)
    return grouped


def _read_model(row: Row) -> ModelUsage:
    return ModelUsage(provider=row["provider"], model=row["model"], totals=_read_totals(row))


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
