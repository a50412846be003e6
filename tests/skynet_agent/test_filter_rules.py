"""The files of rules, and what is said of those that are wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.filter_rules import FilterRulesError, load_rules, parse_phrase
from skynet_agent.filter_words import words_of
from skynet_agent.filters import GENERAL, SELF_HARM, ContentFilter

LANGUAGES = ("en", "de", "fr", "es")


def hits(phrase: str, text: str) -> bool:
    words = words_of(text)
    return any(parse_phrase(phrase).end(words, at) is not None for at in range(len(words)))


@pytest.mark.parametrize(
    ("phrase", "text", "hit"),
    [
        ("word", "a word here", True),
        ("word", "words", False),
        ("word", "sword", False),
        ("word*", "wordless", True),
        ("word*", "sword", False),
        ("Two Words", "two, words", True),
        ("two words", "two other words", False),
        ("two ... words", "two words", True),
        ("two ... words", "two or more other words", True),
        ("two ... words", "two or more quite other words", False),
        ("one|two words", "two words", True),
        ("one|two* words", "twofold words", True),
        ("self-harm", "self harm", True),
        ("töten", "toeten", True),
        ("töten", "toten", True),
        ("l'arme", "l’arme", True),
        ("kill", "kiiiiill", True),
        ("one ... two ... three", "one or two or so three", True),
        ("one ... two ... three", "one two or two three", True),
    ],
)
def test_a_phrase_stands_in_a_text_or_not(phrase: str, text: str, hit: bool) -> None:
    assert hits(phrase, text) is hit


@pytest.mark.parametrize(
    ("phrase", "problem"),
    [
        ("", "begin and end with a word"),
        ("... word", "begin and end with a word"),
        ("word ...", "begin and end with a word"),
        ("a ... b ... c ... d", "more than two"),
        ("a " * 11, "more than 10 words"),
        ("x" * 1001, "longer than 1000"),
        ("!!!", "no letter"),
        ("ab*", "three letters"),
        ("*", "one word|three letters"),
        ("wo*rd", "only at its end"),
        ("a||b", "one word between"),
        ("a-b|c", "one word between"),
    ],
)
def test_a_phrase_without_meaning_is_refused(phrase: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_phrase(phrase)


@given(st.text(alphabet="ab*|. -'é", max_size=30))
def test_any_text_is_a_phrase_or_refused(text: str) -> None:
    try:
        phrase = parse_phrase(text)
    except ValueError:
        return
    assert phrase.elements
    assert phrase.elements[0] is not None


def test_every_category_has_words_and_a_friendly_answer_in_every_language() -> None:
    """SK-130: a replacement for each category and language; self-harm's points to people who help."""
    rules = load_rules()
    for name, category in rules.categories.items():
        assert set(category.replacement) == set(LANGUAGES), name
        assert all(len(text) > 60 for text in category.replacement.values()), name
        if name != GENERAL:
            assert {language for language, kind in category.phrases if kind == "moderate"} == set(LANGUAGES), name
            assert {language for language, kind in category.phrases if kind == "strict"} == set(LANGUAGES), name
    for name, topic in rules.topics.items():
        assert {language for language, _ in topic.phrases} == set(LANGUAGES), name
    assert next(iter(rules.categories)) == SELF_HARM


@pytest.mark.parametrize(
    ("language", "adult", "number"),
    [
        ("en", "adult you trust", "988"),
        ("de", "Erwachsenen, dem du vertraust", "116 111"),
        ("fr", "adulte", "3114"),
        ("es", "persona adulta", "024"),
    ],
)
def test_who_writes_of_self_harm_is_pointed_to_an_adult_and_to_emergency_services(
    language: str, adult: str, number: str
) -> None:
    text = load_rules().categories[SELF_HARM].replacement[language].replace("\n", " ")
    assert adult in text
    assert number in text
    assert "112" in text
    assert "cannot" not in text


def test_a_household_adds_and_removes_words(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        """
        [category.gambling.en]
        moderate = ["marble* for money"]
        remove = ["Casino*"]
        [category.gambling.replacement]
        en = "Ask grandma."
        [category.spoilers]
        replacement.en = "No spoilers, please."
        it.moderate = ["la fine del film"]
        [topic.pets]
        en.words = ["hamster*"]
        """
    )
    rules = ContentFilter.load([file])
    assert rules.check("we play marbles for money", "moderate").replacement == "Ask grandma."
    assert rules.check("a casino", "strict").allowed
    assert not ContentFilter.load().check("a casino", "strict").allowed
    assert rules.check("racconta la fine del film", "moderate").category == "spoilers"
    assert rules.check("racconta la fine del film", "moderate", "it").replacement == "No spoilers, please."
    assert rules.topic_of("has two hamsters", {"pets"}) == "pets"


def test_a_word_that_was_removed_may_be_added_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text('[category.gambling.en]\nremove = ["poker"]\n')
    second.write_text('[category.gambling.en]\nmoderate = ["poker"]\n')
    assert ContentFilter.load([first]).check("poker", "strict").allowed
    assert ContentFilter.load([first, second]).check("poker", "moderate").category == "gambling"


@pytest.mark.parametrize(
    ("text", "line", "key", "problem"),
    [
        ("category = 1", 1, "category", "wanted a table"),
        ("\nwords = []", 2, "words", "unknown key"),
        ("[category.drugs]\nen = 5", 2, "category.drugs.en", "wanted a table"),
        ("[category.drugs]\n\nengl = {}", 3, "category.drugs.engl", "wanted a language"),
        ("# x\n[category.drugs.en]\nmedium = []", 3, "category.drugs.en.medium", "wanted moderate, strict"),
        ("[category.drugs.en]\nstrict = 'a'", 2, "category.drugs.en.strict", "wanted a list"),
        ("[category.drugs.en]\nstrict = ['a', 5]", 2, "category.drugs.en.strict", "not 5"),
        ("[category.drugs.en]\nstrict = [\n'fine',\n'b*',\n]", 4, "category.drugs.en.strict", "three letters"),
        (
            "[category.drugs.en]\nmoderate = [\n'x',\n]\nremove = [\n'nix']",
            6,
            "category.drugs.en.remove",
            "'nix' is not",
        ),
        ("[category.new.en]\nmoderate = ['a']", 1, "category.new", "needs replacement.en"),
        ("[category.New.en]\nmoderate = ['a']", 1, "category.New", "lower-case"),
        ("[category.drugs.replacement]\nen = ' '", 2, "category.drugs.replacement.en", "its text"),
        ("[category.drugs.replacement]\nENG = 'x'", 2, "category.drugs.replacement.ENG", "wanted a language"),
        ("[topic.pets.en]\nmoderate = ['x']", 2, "topic.pets.en.moderate", "wanted words, remove"),
        ("[topic.pets.replacement]\nen = 'x'", 1, "topic.pets.replacement", "unknown key"),
        ("[category.drugs.en\n", 1, "", "not TOML"),
        ("a = 1\na = 2\n", 2, "", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_line_and_key(
    tmp_path: Path, text: str, line: int, key: str, problem: str
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(FilterRulesError, match=problem) as refused:
        load_rules([file])
    assert (refused.value.file, refused.value.line, refused.value.key) == (str(file), line, key)
    assert str(refused.value).startswith(f"{file}:{line}: ")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe")
    large.write_bytes(b"#" * 1_048_577)
    for path, problem in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
        (binary, "UTF-8"),
        (large, "larger"),
    ):
        with pytest.raises(FilterRulesError, match=problem):
            load_rules([path])


@given(st.text(alphabet="[]{}=.'\"\n category.drugs.en.moderate", max_size=80))
def test_any_file_is_rules_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    from skynet_agent.filter_rules import Rules, _Reader

    try:
        _Reader("file", text).read_into(Rules())
    except FilterRulesError as refused:
        assert str(refused)


def test_the_documented_file_can_be_used(tmp_path: Path) -> None:
    documentation = Path(__file__).parents[2].joinpath("docs", "children.md").read_text()
    file = tmp_path / "rules.toml"
    file.write_text(documentation.partition("```toml\n")[2].partition("```")[0])
    rules = ContentFilter.load([file])
    assert rules.check("Tell me how the movie ends", "moderate").category == "spoilers"
    assert rules.check("the jackpot of a poker face", "strict").allowed
    assert "pets" in rules.topics
    for name in {*rules.categories, *rules.topics} - {"spoilers", "pets", GENERAL}:
        assert f"| `{name}` |" in documentation
