"""Tables of what is remembered about people. They refer to ``users``, so the users' migrations run first.

The indexes of words are kept by triggers, so that whatever removes a row, be it the removal of its person, removes its
words. ``memory_unerased`` names the FTS5 tables in whose older segments removed words still stand; see ``fulltext.py``.
"""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_memories(tx: Transaction) -> None:
    """``row`` is the owner's number shifted by 32 bits, and the number of the memory among theirs.

    No index holds a text, so that erasing one has to look at the table alone.
    """
    await tx.execute(
        """
        CREATE TABLE memory_owners (
            number INTEGER PRIMARY KEY,
            owner TEXT NOT NULL UNIQUE REFERENCES users(id) ON DELETE CASCADE,
            last_memory INTEGER NOT NULL DEFAULT 0,
            last_topic INTEGER NOT NULL DEFAULT 0
        ) STRICT
        """
    )
    await tx.execute(
        """
        CREATE TABLE memories (
            row INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            category TEXT NOT NULL CHECK (category IN ('instruction', 'preference', 'fact', 'context')),
            key TEXT NOT NULL,
            key_digest BLOB NOT NULL,
            value TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('preference', 'invariant', 'pattern', 'guard', 'note')),
            confidence REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
            source TEXT NOT NULL CHECK (source IN ('user_said', 'inferred', 'admin_set')),
            importance REAL NOT NULL CHECK (importance BETWEEN 0 AND 1),
            tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
            terms TEXT NOT NULL,
            digest BLOB NOT NULL,
            created_at_ms INTEGER NOT NULL,
            updated_at_ms INTEGER NOT NULL,
            expires_at_ms INTEGER,
            UNIQUE (owner, key_digest)
        ) STRICT
        """
    )
    await tx.execute(
        "CREATE INDEX memories_rank ON memories(owner, category, importance DESC, updated_at_ms DESC, row DESC)"
    )
    await tx.execute("CREATE INDEX memories_digest ON memories(owner, digest)")
    await tx.execute("CREATE INDEX memories_expiry ON memories(expires_at_ms) WHERE expires_at_ms IS NOT NULL")
    await tx.execute("CREATE TABLE memory_unerased (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID")
    for shard in range(8):
        owners_turn = f"(({{}}.row >> 32) + ({{}}.row & 4294967295) / 25000) % 8 = {shard}"
        await _index(tx, f"memory_words_{shard}", "memories", "category", owners_turn, ("key", "value", "tags"))


async def m002_knowledge(tx: Transaction) -> None:
    """Topics with their tags, and how often each person's tools were used."""
    await tx.execute(
        """
        CREATE TABLE knowledge (
            row INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            topic TEXT NOT NULL,
            topic_form TEXT NOT NULL,
            content TEXT NOT NULL,
            tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
            terms TEXT NOT NULL,
            created_at_ms INTEGER NOT NULL,
            updated_at_ms INTEGER NOT NULL,
            UNIQUE (owner, topic_form)
        ) STRICT
        """
    )
    await _index(tx, "knowledge_words", "knowledge", "''", "true", ("topic", "content", "tags"))
    await tx.execute(
        """
        CREATE TABLE knowledge_tags (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            tag TEXT NOT NULL,
            row INTEGER NOT NULL REFERENCES knowledge(row) ON DELETE CASCADE,
            PRIMARY KEY (owner, tag, row)
        ) STRICT, WITHOUT ROWID
        """
    )
    await tx.execute("CREATE INDEX knowledge_tags_row ON knowledge_tags(row)")
    await tx.execute(
        """
        CREATE TABLE tool_use (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            tool TEXT NOT NULL,
            count INTEGER NOT NULL CHECK (count > 0),
            PRIMARY KEY (owner, tool)
        ) STRICT, WITHOUT ROWID
        """
    )


async def _index(tx: Transaction, name: str, table: str, facet: str, condition: str, texts: tuple[str, ...]) -> None:
    """An FTS5 table over ``terms`` of those rows of ``table`` that meet ``condition``, kept by triggers.

    It stores no text of its own, and no sizes: ranking reads the rows. The terms are what FTS5's ``porter unicode61``
    made of a text, so they are only split here.
    """
    await tx.execute(
        f"CREATE VIRTUAL TABLE {name} USING fts5(terms, facet, content = '', columnsize = 0, detail = column,"
        " tokenize = 'unicode61 remove_diacritics 0')"
    )
    is_old, is_new = condition.format("old", "old"), condition.format("new", "new")
    old_facet, new_facet = (facet if facet == "''" else f"{which}.{facet}" for which in ("old", "new"))
    insert = f"INSERT INTO {name}(rowid, terms, facet) VALUES (new.row, new.terms, {new_facet});"  # noqa: S608 - fixed texts
    remove = (
        f"INSERT INTO {name}({name}, rowid, terms, facet) VALUES ('delete', old.row, old.terms, {old_facet});"  # noqa: S608 - fixed texts
        f" INSERT OR IGNORE INTO memory_unerased VALUES ('{name}');"
    )
    # Also when only the case of a text changed: the old one has to be erased from the log
    changed = " OR ".join(f"old.{column} <> new.{column}" for column in ("terms", *texts))
    changed = f"({changed} OR {old_facet} <> {new_facet})"
    await tx.execute(f"CREATE TRIGGER {name}_insert AFTER INSERT ON {table} WHEN {is_new} BEGIN {insert} END")
    await tx.execute(f"CREATE TRIGGER {name}_delete AFTER DELETE ON {table} WHEN {is_old} BEGIN {remove} END")
    await tx.execute(
        f"CREATE TRIGGER {name}_update AFTER UPDATE ON {table} WHEN {is_new} AND {changed} BEGIN {remove} {insert} END"
    )


MIGRATIONS: Final = (m001_memories, m002_knowledge)
COMPONENT: Final = Component("memories", MIGRATIONS)
