"""Tables of the search over transcripts: a copy of what was said, and the index of its words.

Both follow the transcripts: an entry, a session or a person that goes takes its rows along.
"""

from typing import Final

from skynet_memory.database import Transaction
from skynet_memory.migrations import Component


async def m001_spoken(tx: Transaction) -> None:
    """What people and models said, as far as it was read; the writing of transcripts knows nothing of it."""
    # A person's entries have ids from their number, shifted by 32 bits, on: in the index of words they are one range
    await tx.execute(
        """
        CREATE TABLE search_people (
            number INTEGER PRIMARY KEY,
            owner TEXT NOT NULL UNIQUE REFERENCES users(id) ON DELETE CASCADE,
            last INTEGER NOT NULL DEFAULT 0,
            entries INTEGER NOT NULL DEFAULT 0,
            words INTEGER NOT NULL DEFAULT 0
        ) STRICT
        """
    )
    # How far each transcript was read, by the row numbers of ``entries``, which grow within a transcript
    await tx.execute(
        """
        CREATE TABLE search_marks (
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            session_id TEXT NOT NULL,
            upto INTEGER NOT NULL,
            PRIMARY KEY (owner, session_id)
        ) STRICT, WITHOUT ROWID
        """
    )
    # ``previous`` is what was said before it in its branch of the transcript
    await tx.execute(
        """
        CREATE TABLE search_entries (
            id INTEGER PRIMARY KEY,
            owner TEXT NOT NULL REFERENCES users(id) ON DELETE CASCADE,
            session_id TEXT NOT NULL,
            entry_id TEXT NOT NULL UNIQUE REFERENCES entries(id) ON DELETE CASCADE,
            previous INTEGER,
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
            text TEXT NOT NULL,
            segments TEXT NOT NULL,
            words INTEGER NOT NULL,
            at_ms INTEGER NOT NULL
        ) STRICT
        """
    )
    await tx.execute("CREATE INDEX search_entries_owner ON search_entries(owner)")
    await tx.execute("CREATE INDEX search_entries_next ON search_entries(previous)")
    await tx.execute(
        """
        CREATE VIRTUAL TABLE search_words USING fts5(
            text, segments, content = 'search_entries', content_rowid = 'id',
            tokenize = 'porter unicode61 remove_diacritics 2')
        """
    )
    # Whether the index still holds words of what is gone: FTS5 drops them when it merges its segments
    await tx.execute("CREATE TABLE search_leftovers (words INTEGER NOT NULL) STRICT")
    await tx.execute("INSERT INTO search_leftovers VALUES (0)")
    await tx.execute(
        """
        CREATE TRIGGER search_entries_added AFTER INSERT ON search_entries BEGIN
            INSERT INTO search_words (rowid, text, segments)
                VALUES (new.id, new.text, new.segments);
            UPDATE search_people SET entries = entries + 1, words = words + new.words WHERE number = new.id >> 32;
        END
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER search_entries_removed AFTER DELETE ON search_entries BEGIN
            INSERT INTO search_words (search_words, rowid, text, segments)
                VALUES ('delete', old.id, old.text, old.segments);
            UPDATE search_people SET entries = entries - 1, words = words - old.words WHERE number = old.id >> 32;
            UPDATE search_leftovers SET words = 1 WHERE words = 0;
        END
        """
    )
    await tx.execute(
        """
        CREATE TRIGGER search_marks_removed AFTER DELETE ON entries BEGIN
            DELETE FROM search_marks WHERE owner = old.owner AND session_id = old.session_id;
        END
        """
    )


MIGRATIONS: Final = (m001_spoken,)
COMPONENT: Final = Component("search", MIGRATIONS)
