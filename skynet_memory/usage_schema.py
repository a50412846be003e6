"""Indexes of ``usage``: sums since a time, of one person and of all, are read from an index alone."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component

_SUMMED: Final = "input, output, cache_read, cache_write, cost_microusd"


async def m001_sums(tx: Transaction) -> None:
    """Budgets are read at the first call of a day. The index on owner and time alone is part of the new one."""
    await tx.execute(f"CREATE INDEX usage_spent ON usage(owner, at_ms, {_SUMMED})")
    await tx.execute(f"CREATE INDEX usage_spent_by_all ON usage(at_ms, {_SUMMED})")
    await tx.execute("DROP INDEX IF EXISTS usage_time")


MIGRATIONS: Final = (m001_sums,)
COMPONENT: Final = Component("usage", MIGRATIONS)
