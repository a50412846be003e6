"""Tables of conversations. They refer to ``users``, so the users' migrations run first.

Ownership is part of every row and of every query.
"""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_sessions(tx: Transaction) -> None:
    """A session is a row under a key; its title and last message are kept with it, so a list reads nothing else."""
    await tx.execute(
        """
        CREATE TABLE sessions (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            session_id TEXT NOT NULL,
            agent_id TEXT NOT NULL,
            name TEXT NOT NULL,
            label TEXT NOT NULL,
            model TEXT NOT NULL,
            settings TEXT NOT NULL CHECK (json_type(settings) = 'object'),
            origin TEXT NOT NULL CHECK (json_type(origin) = 'object'),
            display_name TEXT NOT NULL,
            last_model TEXT NOT NULL,
            last_provider TEXT NOT NULL,
            context_tokens INTEGER,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cache_read INTEGER NOT NULL,
            cache_write INTEGER NOT NULL,
            total_tokens INTEGER NOT NULL,
            system_sent INTEGER NOT NULL CHECK (system_sent IN (0, 1)),
            aborted_last_run INTEGER NOT NULL CHECK (aborted_last_run IN (0, 1)),
            compaction_count INTEGER NOT NULL,
            created_at_ms INTEGER NOT NULL,
            updated_at_ms INTEGER NOT NULL,
            leaf_entry TEXT,
            title TEXT NOT NULL,
            last_message TEXT NOT NULL,
            PRIMARY KEY (owner, key),
            UNIQUE (owner, session_id)
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX sessions_recent ON sessions(owner, updated_at_ms, key)")
    await tx.execute("CREATE INDEX sessions_recent_of_agent ON sessions(owner, agent_id, updated_at_ms, key)")
    await tx.execute("CREATE UNIQUE INDEX sessions_label ON sessions(owner, label) WHERE label <> ''")
    # Kept by triggers, so that counting costs the same however many there are
    await tx.execute(
        """
        CREATE TABLE session_counts (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            agent_id TEXT NOT NULL,
            count INTEGER NOT NULL CHECK (count >= 0),
            PRIMARY KEY (owner, agent_id)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER sessions_counted AFTER INSERT ON sessions BEGIN
            INSERT INTO session_counts VALUES (new.owner, new.agent_id, 1)
                ON CONFLICT DO UPDATE SET count = count + 1;
        END
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER sessions_discounted AFTER DELETE ON sessions BEGIN
            UPDATE session_counts SET count = count - 1 WHERE owner = old.owner AND agent_id = old.agent_id;
        END
        """
    )


async def m002_transcripts(tx: Transaction) -> None:
    """A transcript is a tree that only grows; a session that was reset or deleted leaves its transcript archived."""
    await tx.execute(
        """
        CREATE TABLE entries (
            id TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            session_id TEXT NOT NULL,
            parent_id TEXT,
            kind TEXT NOT NULL CHECK (kind IN ('message', 'tool_call', 'tool_result', 'compaction', 'model_change')),
            payload BLOB NOT NULL,
            created_at_ms INTEGER NOT NULL,
            covered_by TEXT
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX entries_session ON entries(owner, session_id)")
    await tx.execute(
        """
        CREATE TABLE archived_transcripts (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            session_id TEXT NOT NULL,
            key TEXT NOT NULL,
            leaf_entry TEXT,
            archived_at_ms INTEGER NOT NULL,
            PRIMARY KEY (owner, session_id)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX archived_transcripts_key ON archived_transcripts(owner, key)")
    # Entries may be deleted only while their session is named here, or with the person they belong to
    await tx.execute(
        """
        CREATE TABLE erasing (
            owner TEXT NOT NULL,
            session_id TEXT NOT NULL,
            PRIMARY KEY (owner, session_id)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER entries_grow_in_their_session BEFORE INSERT ON entries
        WHEN new.parent_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM entries WHERE id = new.parent_id AND owner = new.owner AND session_id = new.session_id)
        BEGIN SELECT RAISE(ABORT, 'an entry''s parent has to be in the same transcript'); END
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER entries_never_change
        BEFORE UPDATE OF id, owner, session_id, parent_id, kind, payload, created_at_ms ON entries
        BEGIN SELECT RAISE(ABORT, 'transcript entries never change'); END
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER entries_stay BEFORE DELETE ON entries
        WHEN NOT EXISTS (SELECT 1 FROM erasing WHERE owner = old.owner AND session_id = old.session_id)
            AND EXISTS (SELECT 1 FROM users WHERE id = old.owner)
        BEGIN SELECT RAISE(ABORT, 'transcript entries are deleted only with their session'); END
        """
    )


async def m003_runs(tx: Transaction) -> None:
    """What was asked once is answered once: a run is claimed by its idempotency key."""
    await tx.execute(
        """
        CREATE TABLE dedupe (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            kind TEXT NOT NULL,
            run_id TEXT NOT NULL,
            key TEXT NOT NULL,
            session_id TEXT NOT NULL,
            entry_id TEXT,
            status TEXT NOT NULL
                CHECK (status IN ('running', 'ok', 'error', 'aborted', 'timeout', 'interrupted')),
            response BLOB,
            started_at_ms INTEGER NOT NULL,
            ended_at_ms INTEGER,
            PRIMARY KEY (owner, kind, run_id),
            CHECK ((status = 'running') = (ended_at_ms IS NULL))
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX dedupe_age ON dedupe(started_at_ms)")
    await tx.execute("CREATE INDEX dedupe_running ON dedupe(started_at_ms) WHERE status = 'running'")


async def m004_usage(tx: Transaction) -> None:
    """One row a model call. It outlives the session: the money is spent."""
    await tx.execute(
        """
        CREATE TABLE usage (
            id INTEGER PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            session_id TEXT NOT NULL,
            run_id TEXT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            input INTEGER NOT NULL,
            output INTEGER NOT NULL,
            cache_read INTEGER NOT NULL,
            cache_write INTEGER NOT NULL,
            cost_microusd INTEGER,
            at_ms INTEGER NOT NULL
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX usage_time ON usage(owner, at_ms)")


async def m005_cost_parts(tx: Transaction) -> None:
    """What a call cost is told by its parts, too. Of older calls they are not known."""
    for part in ("input", "output", "cache_read", "cache_write"):
        await tx.execute(f"ALTER TABLE usage ADD COLUMN {part}_cost INTEGER")


async def m006_estimates(tx: Transaction) -> None:
    """Of some calls nobody tells what they used. Of older ones it is not known which."""
    await tx.execute("ALTER TABLE usage ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0")


MIGRATIONS: Final = (m001_sessions, m002_transcripts, m003_runs, m004_usage, m005_cost_parts, m006_estimates)
COMPONENT: Final = Component("memory", MIGRATIONS)
