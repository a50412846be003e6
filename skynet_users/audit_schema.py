"""Tables of the audit log: rows that are only ever added, and a record of the last of them."""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component

START: Final = "0" * 64
"""What the first row is chained to."""


async def m001_audit(tx: Transaction) -> None:
    """No foreign keys: the log outlives the people in it. ``audit_head`` tells when the newest rows were cut off."""
    await tx.execute(
        """
        CREATE TABLE audit (
            seq INTEGER NOT NULL PRIMARY KEY,
            at_ms INTEGER NOT NULL,
            action TEXT NOT NULL,
            actor TEXT NOT NULL,
            actor_name TEXT NOT NULL,
            subject TEXT NOT NULL,
            subject_name TEXT NOT NULL,
            details TEXT NOT NULL,
            hash TEXT NOT NULL
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX audit_actor ON audit(actor, seq)")
    await tx.execute("CREATE INDEX audit_subject ON audit(subject, seq)")
    await tx.execute("CREATE INDEX audit_action ON audit(action, seq)")
    await tx.execute(
        """
        CREATE TABLE audit_head (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            count INTEGER NOT NULL,
            hash TEXT NOT NULL
        ) STRICT
        """
    )
    await tx.execute("INSERT INTO audit_head VALUES (1, 0, ?)", (START,))
    # INSERT OR REPLACE runs no DELETE trigger: it is refused by its number
    for name, event, condition in (
        ("audit_append", "INSERT ON audit", "NEW.seq <> (SELECT count + 1 FROM audit_head)"),
        ("audit_no_update", "UPDATE ON audit", "1"),
        ("audit_no_delete", "DELETE ON audit", "1"),
        ("audit_head_no_insert", "INSERT ON audit_head", "1"),
        ("audit_head_forward", "UPDATE ON audit_head", "NEW.count <> OLD.count + 1"),
        ("audit_head_no_delete", "DELETE ON audit_head", "1"),
    ):
        await tx.execute(
            f"CREATE TRIGGER {name} BEFORE {event} WHEN {condition}"
            " BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        )


MIGRATIONS: Final = (m001_audit,)
COMPONENT: Final = Component("audit", MIGRATIONS)
