"""Tables of nodes: the names that people give them, and OpenClaw's older store of nodes that are no devices."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_nodes(tx: Transaction) -> None:
    """A device tells its own name at every connect, so the one that its person gave it is kept apart."""
    await tx.execute(
        """
        CREATE TABLE node_names (
            device_id TEXT NOT NULL PRIMARY KEY REFERENCES devices(id) ON DELETE CASCADE,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            display_name TEXT NOT NULL
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX node_names_owner ON node_names(owner)")
    await tx.execute(
        """
        CREATE TABLE bridge_requests (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            node_id TEXT NOT NULL,
            described TEXT NOT NULL,
            silent INTEGER NOT NULL CHECK (silent IN (0, 1)),
            is_repair INTEGER NOT NULL CHECK (is_repair IN (0, 1)),
            requested_at_ms INTEGER NOT NULL,
            UNIQUE (owner, node_id)
        ) STRICT
        """
    )
    await tx.execute(
        """
        CREATE TABLE bridge_nodes (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            node_id TEXT NOT NULL,
            described TEXT NOT NULL,
            token_hash BLOB NOT NULL,
            created_at_ms INTEGER NOT NULL,
            approved_at_ms INTEGER NOT NULL,
            last_connected_at_ms INTEGER,
            PRIMARY KEY (owner, node_id)
        ) STRICT, WITHOUT ROWID
        """
    )


MIGRATIONS: Final = (m001_nodes,)
COMPONENT: Final = Component("nodes", MIGRATIONS)
