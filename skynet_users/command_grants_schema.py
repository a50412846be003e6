"""Tables of the commands that people were allowed for good."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_command_grants(tx: Transaction) -> None:
    """``pattern`` holds a command's words as a JSON array, never the text of a command line.

    ``decided_by`` keeps no foreign key: what a person allowed goes on to hold, or not, whether they are there or not.
    """
    await tx.execute(
        """
        CREATE TABLE command_grants (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            host TEXT NOT NULL CHECK (host IN ('sandbox', 'gateway', 'node')),
            node_id TEXT NOT NULL,
            pattern TEXT NOT NULL CHECK (json_type(pattern) = 'array'),
            decided_by TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            last_used_at_ms INTEGER,
            uses INTEGER NOT NULL DEFAULT 0,
            CHECK ((host = 'node') = (node_id <> ''))
        ) STRICT
        """
    )
    await tx.execute("CREATE UNIQUE INDEX command_grants_one ON command_grants(owner, host, node_id, pattern)")


MIGRATIONS: Final = (m001_command_grants,)
COMPONENT: Final = Component("command_grants", MIGRATIONS)
