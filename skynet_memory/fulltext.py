"""What memories and knowledge share of full text search: words as FTS5 sees them, queries that nothing can break, and
the layout of an index over several FTS5 tables.

A text is split by FTS5's own tokenizer (unicode61, diacritics folded, Porter's stems), in a database in memory. What
comes out is stored beside the text and indexed: ranking and the look for duplicates need the stems as well, and FTS5
does not give them back. Scripts that do without spaces are indexed by pairs of characters: unlike triples, these find
the words of two characters, which are most of them.

FTS5 deletes by writing what is deleted into a new segment; the words vanish only when the segments that have them are
merged. So an index is spread over tables of bounded size, and erasing rewrites one of them (``optimize``). The rows of
one person fill a table before they begin the next, so most people's are all in one.
"""

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

SHARDS: Final = 8
"""FTS5 tables of the index of memories. Fixed by the first migration."""
SHARD_ROWS: Final = 25_000
"""Rows of one person in a table before the next is begun. Fixed by the first migration."""
OWNER_BITS: Final = 32
"""A row id is the owner's number, shifted by this, and the row's number: a range of row ids is one person's."""

_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005\u3006\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_WORD: Final = re.compile(r"\w+")


def folded(text: str) -> str:
    """The form in which texts are compared: compatibility forms and case folded, and spaces for what cannot be seen."""
    whole = "".join(char if char.isprintable() else " " for char in text)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", whole).casefold())


def segmented(text: str, *, query: bool = False) -> str:
    """``text`` with scripts that use no spaces cut into overlapping pairs, each between spaces.

    A document's last character of a run stands alone as well, so that every single character begins a word: a search
    for one is one for words that begin with it. A query has it only where the run is a single character.
    """

    def pairs(found: re.Match[str]) -> str:
        run = found[0]
        cut = [run[at : at + 2] for at in range(len(run) - 1)]
        if not query or len(run) == 1:
            cut.append(run[-1])
        return f" {' '.join(cut)} "

    return _UNSPACED.sub(pairs, text)


def quoted(word: str) -> str:
    """``word`` as a string of FTS5's query language, whatever is in it."""
    return '"' + word.replace("\0", " ").replace('"', '""') + '"'


def match_query(text: str, *, prefix: bool = True, operator: str = "AND") -> str:
    """The FTS5 query for all (``OR``: any) of the words of ``text``, for an index whose documents were ``segmented``.

    Every word is quoted, so no text is a syntax error. With ``prefix`` the last one matches whatever begins with it.
    Empty if there is nothing to look for: an empty MATCH would be an error.
    """
    words = _WORD.findall(segmented(folded(text), query=True))
    return join_words(words, prefix=prefix, operator=operator)


def join_words(words: Sequence[str], *, prefix: bool = False, operator: str = "AND") -> str:
    parts = [quoted(word) + ("*" if is_prefix(word) else "") for word in words]
    if prefix and parts and not parts[-1].endswith("*"):
        parts[-1] += "*"
    return f" {operator} ".join(parts)


def is_prefix(word: str) -> bool:
    """A single character of a script without spaces is looked for as the beginning of a pair."""
    return len(word) == 1 and _UNSPACED.match(word) is not None


class Tokenizer:
    """FTS5's ``porter unicode61`` as a function. May be used from any thread; takes some 40 µs for a sentence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def terms(self, text: str, *, query: bool = False) -> list[str]:
        """The stems of ``text`` in their order, repeated ones as often as they occur."""
        with self._lock:
            connection = self._connection or self._open()
            connection.execute("BEGIN")
            try:
                connection.execute("INSERT INTO text VALUES (?)", (segmented(folded(text), query=query),))
                return [row[0] for row in connection.execute("SELECT term FROM terms ORDER BY offset")]
            finally:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        self._connection = connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute(
            "CREATE VIRTUAL TABLE text USING fts5("
            "body, content = '', tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(text, instance)")
        return connection


def row_id(owner_number: int, number: int) -> int:
    return owner_number << OWNER_BITS | number


def shard_of(row: int) -> int:
    """The table that has this row; ``SHARD_SQL`` is the same for triggers."""
    return ((row >> OWNER_BITS) + (row & (1 << OWNER_BITS) - 1) // SHARD_ROWS) % SHARDS


def spans(owner_number: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The tables that hold a person's rows up to number ``last``, newest first, each with the first and last row id.

    A table that holds several stretches of the same person's rows is named once for each.
    """
    for stretch in range(last // SHARD_ROWS, -1, -1):
        low = row_id(owner_number, stretch * SHARD_ROWS)
        yield shard_of(low), low, low + SHARD_ROWS - 1


def similarity(one: Iterable[str], other: Iterable[str]) -> float:
    """Jaccard's: what two sets of terms have in common, of what either has."""
    left, right = set(one), set(other)
    union = len(left | right)
    return len(left & right) / union if union else 1.0
