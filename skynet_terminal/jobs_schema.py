"""Background jobs: what was started for whom, and how it ended."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_jobs(tx: Transaction) -> None:
    """Ids sort by the time they were made, so the index gives a person's newest first."""
    await tx.execute(
        """
        CREATE TABLE jobs (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            command TEXT NOT NULL,
            title TEXT NOT NULL,
            cwd TEXT NOT NULL,
            sandbox TEXT NOT NULL,
            timeout_ms INTEGER,
            status TEXT NOT NULL
                CHECK (status IN ('running', 'completed', 'failed', 'killed', 'timed_out', 'lost')),
            exit_code INTEGER,
            signal TEXT NOT NULL DEFAULT '',
            note TEXT NOT NULL DEFAULT '',
            started_at_ms INTEGER NOT NULL,
            ended_at_ms INTEGER,
            stdout_bytes INTEGER NOT NULL DEFAULT 0,
            stderr_bytes INTEGER NOT NULL DEFAULT 0
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX jobs_owner ON jobs(owner, id)")
    await tx.execute("CREATE INDEX jobs_running ON jobs(id) WHERE status = 'running'")


MIGRATIONS: Final = (m001_jobs,)
COMPONENT: Final = Component("terminal", MIGRATIONS)
