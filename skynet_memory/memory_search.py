"""Finding memories by words, in the thread of a database connection.

A query is answered from a bounded set of candidates, whatever is stored: the newest memories that have all of its rare
words; if these are few, those that have a rare word and another one, then those with one rare word. Common words bring
in candidates only if there are no others, or too many. Candidates alone are ranked, by BM25 over all words, and by
importance and confidence. What is given up: of words that many thousand memories share, old memories are not looked at
when enough newer ones match as well; the last word is not taken for the beginning of another one if it is itself in
many memories; and how rare a word is, is estimated from one stretch of the memories.

Candidates come from the asked person's range of row ids alone, and the rows are read by owner once more.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from skynet_memory.database import Row, Statements, Value
from skynet_memory.fulltext import SHARD_ROWS, Tokenizer, is_prefix, join_words, quoted, spans
from skynet_memory.ids import UserId

MAX_WORDS: Final = 12
ALL_WORDS: Final = 60
"""Candidates that have every word of the query."""
SOME_WORDS: Final = 30
"""Candidates for each rare word with another."""
RAREST: Final = 3
"""Queries for a rare word with any other of the words, and one less for a rare word alone."""
FEW: Final = 40
"""Candidates from which on no more are looked for."""
SAMPLE: Final = 200
"""Hits that are counted to estimate how rare a word is."""
COMMON: Final = 0.03
"""A word in a greater share of the memories finds no candidates, as long as there are rarer ones; it ranks them."""
K1: Final = 1.2
B: Final = 0.75

_STOP_WORDS: Final = """
a an and are as at be been but by can could did do does for from had has have he her his how i if in is it its me my of
on or our she so that the their them they this to was we were what when where which who whom whose why will with would
you your
aber als am an auf aus bei bist das dass dein deine dem den der des die du ein eine einem einen einer er es für
hatte ich ihr im in ist ja mein meine mit sein seine sich sie sind so und uns von was wann wer wie wir wo wurde
zu zum zur welche welcher welches
au aux avec ce ces cette dans de des du elle en est et il ils je la le les leur lui ma mes mon où pour qu que quel
quelle qui sa se ses sur ta tes tu un une vous nous
"""


@dataclass(frozen=True, slots=True)
class Words:
    """What is looked for. With ``prefix`` the last term stands for all that begin with it."""

    terms: tuple[str, ...]
    prefix: bool

    def expression(self, index: int) -> str:
        return join_words([self.terms[index]], prefix=self.is_prefix(index))

    def is_prefix(self, index: int) -> bool:
        return (self.prefix and index == len(self.terms) - 1) or is_prefix(self.terms[index])


class WordReader:
    """Makes words of texts as the index has them, without those that say nothing."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer()
        self._stop_words: frozenset[str] = frozenset()

    def terms(self, text: str) -> tuple[str, ...]:
        return tuple(self._tokenizer.terms(text)) if text else ()

    def indexed(self, *texts: str) -> str:
        """What the index stores of these texts together: stems with single spaces."""
        return " ".join(self._tokenizer.terms(" \n ".join(texts)))

    def words(self, text: str) -> Words:
        """At most ``MAX_WORDS`` different ones. Stop words count only where there is nothing else."""
        every = tuple(dict.fromkeys(self._tokenizer.terms(text, query=True)))
        stop_words = self.stop_words()
        terms = tuple(term for term in every if term not in stop_words) or every
        if len(terms) > MAX_WORDS:
            return Words(terms[:MAX_WORDS], prefix=False)
        return Words(terms, prefix=bool(terms) and terms[-1] == every[-1] and text[-1:].isalnum())

    def telling(self, terms: Iterable[str]) -> frozenset[str]:
        """The terms that are no stop words; all of them where there is nothing else."""
        every = frozenset(terms)
        return every - self.stop_words() or every

    def stop_words(self) -> frozenset[str]:
        if not self._stop_words:
            self._stop_words = frozenset(self._tokenizer.terms(_STOP_WORDS))
        return self._stop_words


@dataclass(frozen=True, slots=True)
class Index:
    """The rows of one person in the index of a table."""

    table: str
    """Has the columns ``row``, ``owner`` and ``terms``."""
    stretches: tuple[tuple[str, int, int], ...]
    """FTS5 table, first and last row id, newest first."""
    last: int
    """The number of the person's newest row, which is how many there are, or were."""

    @classmethod
    def of_memories(cls, tx: Statements, owner: UserId) -> "Index | None":
        row = tx.fetchone("SELECT number, last_memory FROM memory_owners WHERE owner = ?", (owner,))
        if row is None:
            return None
        number, last = row
        stretches = tuple((f"memory_words_{shard}", low, high) for shard, low, high in spans(number, last))
        return cls("memories", stretches, last)

    @classmethod
    def of_knowledge(cls, tx: Statements, owner: UserId) -> "Index | None":
        row = tx.fetchone("SELECT number, last_topic FROM memory_owners WHERE owner = ?", (owner,))
        if row is None:
            return None
        number, last = row
        return cls("knowledge", (("knowledge_words", number << 32, number << 32 | last),), last)

    def newest(self, tx: Statements, query: str, want: int) -> list[int]:
        """Row ids of at most ``want`` rows that match, newest first."""
        rows: list[int] = []
        for name, low, high in self.stretches:
            found = tx.fetchall(
                f"SELECT rowid FROM {name} WHERE {name} MATCH ? AND rowid BETWEEN ? AND ?"  # noqa: S608 - fixed names
                " ORDER BY rowid DESC LIMIT ?",
                (query, low, high, want - len(rows)),
            )
            rows += [row[0] for row in found]
            if len(rows) >= want:
                break
        return rows

    def frequency(self, tx: Statements, query: str) -> float:
        """About how many rows match."""
        count, looked_at = self._sample(tx, query)
        return count * self.last / looked_at

    def _sample(self, tx: Statements, query: str) -> tuple[int, int]:
        """How many match, at most ``SAMPLE``, of how many rows; in one stretch that is not almost empty."""
        is_new = len(self.stretches) > 1 and self.last % SHARD_ROWS < SHARD_ROWS // 2
        name, low, high = self.stretches[1 if is_new else 0]
        high = min(high, self.stretches[-1][1] + self.last)
        row = tx.fetchone(
            f"SELECT count(*), min(rowid) FROM (SELECT rowid FROM {name} WHERE {name} MATCH ?"  # noqa: S608 - fixed names
            " AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
            (f"terms : {query}", low, high, SAMPLE),
        )
        assert row is not None, "an aggregate has a row"
        count, first = row
        return count, max(high - (first if count >= SAMPLE else low) + 1, 1)


def search(
    tx: Statements,
    owner: UserId,
    index: Index,
    words: Words,
    *,
    facet: str = "",
    condition: str = "true",
    params: Sequence[Value] = (),
) -> list[tuple[int, float]]:
    """Row ids with their BM25, best first, of all candidates that meet ``condition``, a fixed text."""
    if not words.terms:
        return []
    of_facet = f" AND facet : {quoted(facet)}" if facet else ""
    if words.prefix and index.frequency(tx, quoted(words.terms[-1])) >= FEW:
        words = Words(words.terms, prefix=False)
    expressions = [words.expression(place) for place in range(len(words.terms))]
    frequencies = [index.frequency(tx, expression) for expression in expressions]
    hits: dict[int, None] = {}

    def ask(query: str, want: int) -> bool:
        found = index.newest(tx, f"terms : ({query}){of_facet}", want)
        hits.update(dict.fromkeys(found))
        return bool(found)

    rarest_first = sorted(range(len(expressions)), key=frequencies.__getitem__)
    common = [expressions[place] for place in rarest_first if frequencies[place] > COMMON * index.last]
    rare = [expressions[place] for place in rarest_first][: len(expressions) - len(common)] or common
    ask(" AND ".join(rare), ALL_WORDS)
    if len(hits) >= ALL_WORDS and common and rare is not common:
        ask(" AND ".join(expressions), ALL_WORDS)
    together = [f"{word} AND ({' OR '.join(rare[place + 1 :])})" for place, word in enumerate(rare[:-1])]
    for queries, most in ((together, RAREST), (rare, RAREST - 1), (common, RAREST - 1)):
        for query in queries:
            if len(hits) < FEW and most:
                most -= ask(query, SOME_WORDS)  # one that finds nothing costs little, and does not count
    # The plus: an index by owner would be read whole
    rows = tx.fetchall(
        f"SELECT row, terms FROM {index.table}"  # noqa: S608 - fixed names
        f" WHERE row IN (SELECT value FROM json_each(?)) AND +owner = ? AND {condition}",
        (json.dumps(list(hits)), owner, *params),
    )
    return rank(rows, words, frequencies, index.last)


def rank(rows: Sequence[Row], words: Words, frequencies: Sequence[float], total: int) -> list[tuple[int, float]]:
    """Okapi BM25 with the constants of FTS5's; equal scores newest first."""
    if not rows:
        return []
    documents = [(row["row"], f" {row['terms']} ", row["terms"].count(" ") + 1) for row in rows]
    average = sum(length for _, _, length in documents) / len(documents)
    counts = [min(frequency, total) for frequency in frequencies]
    weights = [math.log((total - count + 0.5) / (count + 0.5) + 1) for count in counts]
    # What begins a term has no space behind it
    wanted = [f" {term}" if words.is_prefix(place) else f" {term} " for place, term in enumerate(words.terms)]
    scored = []
    for row, terms, length in documents:
        norm = K1 * (1 - B + B * length / average)
        score = 0.0
        for text, weight in zip(wanted, weights, strict=True):
            if count := terms.count(text):
                score += weight * count * (K1 + 1) / (count + norm)
        scored.append((row, score))
    scored.sort(key=lambda item: (-item[1], -item[0]))
    return scored
