"""Compactions are entries of the transcript; what is told of them is found without reading the others."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_compactions(tx: Transaction) -> None:
    """An index of those entries alone: the first thing that is read of a conversation, for each message."""
    await tx.execute("CREATE INDEX entries_compactions ON entries(owner, session_id) WHERE kind = 'compaction'")


MIGRATIONS: Final = (m001_compactions,)
COMPONENT: Final = Component("compactions", MIGRATIONS)
