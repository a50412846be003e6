"""Words under their disguises."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.filter_words import MAX_CHUNK, words_of


def plain(text: str) -> list[str]:
    return [word.forms[0] for word in words_of(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n\t ", []),
        ("!!! ... ---", []),
        ("Hello, World!", ["hello", "world"]),
        ("self-harm", ["self", "harm"]),
        ("don't Don’t don´t", ["dont"] * 3),
        ("l'arme j’ai qu'il", ["l", "arme", "j", "ai", "qu", "il"]),
        ("Straße ÜBER niño", ["strasse", "uber", "nino"]),
        ("ｆｕｌｌ ｗｉｄｔｈ", ["full", "width"]),
        ("𝐛𝐨𝐥𝐝 𝓼𝓬𝓻𝓲𝓹𝓽 ⓒⓘⓡⓒⓛⓔ", ["bold", "script", "circle"]),
        ("ze\u200bro wi\u00addth jo\u200diner \ufeffbom", ["zero", "width", "joiner", "bom"]),
        ("z\u0336a\u0336l\u0336g\u0336o", ["zalgo"]),
        ("ѕаmе ріg ΗΟΤ οr", ["same", "pig", "hot", "or"]),
        ("w o r d", ["word"]),
        ("w.o.r.d", ["word"]),
        ("w-o-r-d w_o_r_d", ["word", "word"]),
        ("w o r d  t w o", ["word", "two"]),
        ("say w.o.r.d now", ["say", "word", "now"]),
        ("1 2 3 4", ["1", "2", "3", "4"]),
        ("a b", ["a", "b"]),
        ("2026-11-21", ["2026", "11", "21"]),
    ],
)
def test_a_text_has_these_words(text: str, words: list[str]) -> None:
    assert plain(text) == words


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("w0rd", "word"),
        ("1ist", "list"),
        ("fu11", "full"),
        ("p@ss", "pass"),
        ("cla$$", "class"),
        ("w!n", "win"),
        ("h3ll0", "hello"),
        ("wo.rd", "word"),
        ("wo-rd", "word"),
        ("w-ord", "word"),
        ("wor-der", "worder"),
        ("w*rd", "word"),
        ("w#rd!", "word"),
        ("i w o r d a", "word"),
        ("woooord", "=word"),
        ("kiiiill", "=kil"),
        ("wwoordd", "=word"),
    ],
)
def test_the_first_word_may_be_meant_so(text: str, meant: str) -> None:
    assert meant in words_of(text)[0].forms


@pytest.mark.parametrize("text", ["book", "Sussex", "mississippi"[:5], "pen is", "see"])
def test_an_ordinary_word_has_one_form(text: str) -> None:
    assert len(words_of(text)[0].forms) == 1


@given(st.text())
def test_any_text_has_words_in_their_order_within_it(text: str) -> None:
    words = words_of(text)
    assert all(0 <= word.start < word.end <= len(text) and word.forms and word.forms[0] for word in words)
    assert words == sorted(words, key=lambda word: word.start)


@given(st.text(alphabet="ab.- $1é", max_size=3 * MAX_CHUNK))
def test_what_is_long_is_cut_and_nothing_of_it_is_left_out(text: str) -> None:
    words = words_of(text)
    letters = [char for char in unicodedata.normalize("NFD", text) if char in "abe1"]
    assert "".join(letters).replace("1", "") == "".join(char for word in words for char in word.forms[0] if char != "1")


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=12), st.data())
def test_a_word_is_known_in_capitals_wide_letters_and_with_what_cannot_be_seen_in_it(
    word: str, data: st.DataObject
) -> None:
    def disguise(char: str) -> str:
        wide = chr(ord(char) + 0xFEE0)
        return data.draw(st.sampled_from([char, char.upper(), wide, char + "\u200b", "\u2060" + char, char + "\u0301"]))

    assert plain("".join(map(disguise, word))) == [word]


@pytest.mark.parametrize(
    "text",
    [
        part * 100_000
        for part in (".", "a", "a ", "a.b", "$", "aab", "\u0301", "'", "a'", "1", "\ufdfa", " ", "-a", "1 ")
    ],
    ids=lambda text: ascii(text[:3]),
)
def test_a_hostile_text_takes_no_longer_than_another(text: str) -> None:
    """Were any step to take the square of the length, this test would not end."""
    assert len(words_of(text)) <= 18 * len(text)
