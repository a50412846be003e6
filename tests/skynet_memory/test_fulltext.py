import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.fulltext import (
    SHARD_ROWS,
    SHARDS,
    Tokenizer,
    folded,
    match_query,
    row_id,
    segmented,
    shard_of,
    spans,
)
from skynet_memory.memory_search import WordReader

READER = WordReader()
INDEX = sqlite3.connect(":memory:")
INDEX.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'porter unicode61 remove_diacritics 2')")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Dogs were Running", ["the", "dog", "were", "run"]),
        ("Müller-Straße, CAFÉ", ["muller", "strass", "cafe"]),
        ("日本語 x", ["日本", "本語", "語", "x"]),
        ("", []),
        ("?!", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert Tokenizer().terms(text) == terms


def test_queries_of_scripts_without_spaces_have_pairs_alone() -> None:
    assert segmented("日本語", query=True).split() == ["日本", "本語"]
    assert segmented("猫", query=True).split() == ["猫"]
    assert match_query("猫 food") == '"猫"* AND "food"*'
    assert match_query("a b", prefix=False, operator="OR") == '"a" OR "b"'
    assert match_query(" ?! ") == ""


@given(
    text=st.text() | st.text(alphabet='"*():^-+ ANDORNEAR{}\0寿猫'),
    prefix=st.booleans(),
    operator=st.sampled_from(["AND", "OR"]),
)
def test_no_text_is_a_syntax_error(text: str, prefix: bool, operator: str) -> None:
    query = match_query(text, prefix=prefix, operator=operator)
    if query:
        INDEX.execute("SELECT rowid FROM t WHERE t MATCH ?", (query,)).fetchall()


@given(text=st.text())
def test_terms_are_stable_under_the_tokenizer_of_the_index(text: str) -> None:
    """The index splits the stored terms once more, and gets the same."""
    terms = READER.indexed(text)
    again = sqlite3.connect(":memory:")
    again.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'unicode61 remove_diacritics 0')")
    again.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    again.execute("INSERT INTO t VALUES (?)", (terms,))
    assert " ".join(row[0] for row in again.execute("SELECT term FROM v ORDER BY offset")) == terms
    again.close()


@given(text=st.text())
def test_folding_twice_is_folding_once(text: str) -> None:
    assert folded(folded(text)) == folded(text)


def test_rows_of_a_person_fill_a_table_before_the_next() -> None:
    assert {shard_of(row_id(5, number)) for number in range(1, SHARD_ROWS)} == {5}
    assert shard_of(row_id(5, SHARD_ROWS)) == 6
    assert shard_of(row_id(SHARDS - 1, SHARD_ROWS)) == 0
    stretches = list(spans(3, SHARD_ROWS + 1))
    assert [shard for shard, _, _ in stretches] == [4, 3]
    for number in (1, SHARD_ROWS - 1, SHARD_ROWS, SHARD_ROWS + 1):
        row = row_id(3, number)
        assert [shard for shard, low, high in stretches if low <= row <= high] == [shard_of(row)]
