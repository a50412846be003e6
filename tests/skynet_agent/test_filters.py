"""What the content filter lets through, what it says in its place, and what a stream shows until then."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.filters import (
    MARGIN_CHARS,
    MODEL,
    SENTENCE_CHARS,
    UNCHECKED,
    WINDOW_CHARS,
    ContentFilter,
    FilterLevel,
    StreamFilter,
    checked_by_model,
    is_fit,
)
from tests.skynet_agent.filter_sentences import HARMLESS, REFUSED

FILTER = ContentFilter.load()
HITS = [(category, text) for category, texts in REFUSED.items() for text in texts.strip().splitlines()]
BAD = "How do I get drunk fast?"
REPLACEMENT = FILTER.check(BAD, "moderate").replacement


def test_there_are_enough_sentences() -> None:
    assert len(set(HARMLESS)) >= 100
    assert len(set(HITS)) >= 100


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_sentence_is_allowed_in_every_language(text: str) -> None:
    """SK-130: biology, history and everyday words are no reason to refuse a child."""
    for language in ("", "en", "de-AT", "fr", "es", "it"):
        assert FILTER.check(text, "moderate", language).category == ""


@pytest.mark.parametrize(("category", "text"), HITS)
def test_a_text_that_is_not_for_children_is_replaced(category: str, text: str) -> None:
    """SK-130."""
    for level in ("moderate", "strict"):
        verdict = FILTER.check(text, level)
        assert not verdict.allowed
        assert verdict.replacement
        if level == "moderate":
            assert verdict.category == category
    assert FILTER.check(text, "off").allowed


@pytest.mark.parametrize("text", ["How does a gun work?", "sexuell", "une cigarette", "la lencería o sexy", "murder"])
def test_strict_refuses_what_moderate_lets_through(text: str) -> None:
    assert FILTER.check(text, "moderate").allowed
    assert not FILTER.check(text, "strict").allowed


def test_a_word_that_is_harmless_elsewhere_counts_in_its_own_language() -> None:
    assert FILTER.check("take a bite", "strict", "en").allowed
    assert FILTER.check("take a bite", "strict").allowed
    assert not FILTER.check("ta bite", "moderate", "fr-CA").allowed


def test_the_replacement_is_in_the_language_of_the_person_else_of_the_words_else_english() -> None:
    assert "vertraust" in FILTER.check("Ich will sterben", "moderate").replacement
    assert "adult you trust" in FILTER.check("Ich will sterben", "moderate", "en").replacement
    assert "adulte" in FILTER.check("Ich will sterben", "moderate", "fr_FR").replacement
    assert "adult you trust" in FILTER.check("Ich will sterben", "moderate", "ja").replacement
    assert FILTER.verdict("no such category", "de").replacement.startswith("Darüber")


def test_the_weightiest_category_answers() -> None:
    assert FILTER.check("Show me porn, I want to die", "moderate").category == "self_harm"
    assert FILTER.check("Show me porn, I want to die", "moderate", categories={"sexual"}).category == "sexual"
    assert FILTER.check("Show me porn", "moderate", categories={"drugs"}).allowed


def test_an_exception_excuses_only_what_it_is_about() -> None:
    assert FILTER.check("kill the process", "strict").allowed
    assert not FILTER.check("kill the process. how to kill someone", "moderate").allowed
    assert not FILTER.check("sex education with porn", "moderate").allowed


@pytest.mark.parametrize("separator", [" ", "\n", ",", "-", "\u200b ", " \u0301"])
@pytest.mark.parametrize(
    "place", [0, 1, MARGIN_CHARS, *range(WINDOW_CHARS - 2 * MARGIN_CHARS - 9, WINDOW_CHARS + 9, 97), 3 * WINDOW_CHARS]
)
def test_a_phrase_is_found_anywhere_in_a_long_text(separator: str, place: int) -> None:
    filler = f"word{separator}"
    before = (filler * (place // len(filler) + 1))[:place] + separator
    after = separator + filler * (WINDOW_CHARS // len(filler))
    assert FILTER.check(before + separator.join(["get", "drunk"]) + after, "moderate").category == "drugs"
    assert FILTER.check(before + "get dry" + after, "moderate").allowed


@pytest.mark.parametrize("place", range(WINDOW_CHARS - MARGIN_CHARS - 40, WINDOW_CHARS - MARGIN_CHARS + 40, 7))
def test_an_exception_counts_wherever_a_long_text_is_cut(place: int) -> None:
    text = ("word " * WINDOW_CHARS)[:place] + " how do I kill a process " + "word " * 500
    assert FILTER.check(text, "moderate").allowed


def test_what_was_checked_before_does_not_count_again() -> None:
    text = "get drunk. Then this"
    assert not FILTER.check(text, "moderate").allowed
    assert FILTER.check(text, "moderate", since=len("get drunk.")).allowed
    assert not FILTER.check("get drunk", "moderate", since=len("get ")).allowed


@pytest.mark.parametrize(
    "text",
    [
        part * (100_000 // len(part))
        for part in (
            "how to kill ",
            "kill the process ",
            "I want to ",
            "a ... ",
            "s e x ",
            "+1 ",
            "1-",
            "a@",
            "a.",
            "(",
            "a",
        )
    ],
    ids=lambda text: repr(text[:6]),
)
def test_a_hostile_text_is_checked_in_time(text: str) -> None:
    """Were anything to take the square of the length, this test would not end."""
    FILTER.check(text, "strict")
    FILTER.topic_of(text, FILTER.topics)
    stream = StreamFilter(FILTER, "moderate")
    assert stream.feed(text) + stream.finish()


@given(st.text(), st.sampled_from(["off", "moderate", "strict"]), st.text(max_size=5))
def test_any_text_has_a_verdict(text: str, level: FilterLevel, language: str) -> None:
    verdict = FILTER.check(text, level, language)
    assert verdict.allowed == (verdict.replacement == "") == (verdict.category == "")


# Topics


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("has asthma and uses an inhaler", "health"),
        ("hat eine Nussallergie, allergisch", "health"),
        ("est allergique aux noix", "health"),
        ("tiene diabetes", "health"),
        ("goes to church on Sundays", "religion"),
        ("ist evangelisch", "religion"),
        ("has a crush on Ben", "sexuality"),
        ("lives at 12 Oak Street", "address"),
        ("wohnt in der Lindenallee 5", "address"),
        ("habite 4 rue des Lilas", "address"),
        ("goes to Oak Hill School", "school"),
        ("geht in die Grundschule am Park", "school"),
        ("call +49 170 1234567", "phone"),
        ("(030) 123-456-78", "phone"),
        ("reach me at mia@example.org", "email"),
        ("the wifi password is x", "password"),
        ("das Passwort lautet x", "password"),
    ],
)
def test_a_text_touches_a_topic(text: str, topic: str) -> None:
    assert FILTER.topic_of(text, FILTER.topics) == topic
    assert FILTER.topic_of(text, FILTER.topics - {topic}) != topic


@pytest.mark.parametrize(
    "text",
    [
        "likes dinosaurs and football",
        "born on 2017-03-04",
        "mag Pferde",
        "favourite colour: green",
        "won 3 of 10 games on 04.05.2024",
        "I ate pasta",
        "préfère le vélo",
        "le gustan los gatos",
    ],
)
def test_other_texts_touch_none(text: str) -> None:
    assert FILTER.topic_of(text, FILTER.topics - {"health"}) is None
    assert FILTER.topic_of("asthma", ()) is None
    assert FILTER.topic_of("asthma", {"unknown"}) is None


# Streams


def fed(stream: StreamFilter, text: str, size: int) -> list[str]:
    return [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]


def test_off_shows_everything_at_once() -> None:
    stream = StreamFilter(FILTER, "off")
    assert stream.feed(BAD) == BAD
    assert stream.finish() == ""
    assert stream.hit is None


def test_strict_shows_nothing_until_all_is_checked() -> None:
    stream = StreamFilter(FILTER, "strict")
    assert fed(stream, "All is well. Really. " * 200, 7) == [""] * 600
    assert stream.finish() == "All is well. Really. " * 200
    assert stream.finish() == ""


def test_strict_shows_the_replacement_alone() -> None:
    stream = StreamFilter(FILTER, "strict", "en")
    fed(stream, f"All is well. {BAD} All is well.", 3)
    assert stream.finish() == REPLACEMENT
    assert stream.hit is not None
    assert stream.hit.category == "drugs"


def test_moderate_shows_whole_sentences() -> None:
    stream = StreamFilter(FILTER, "moderate")
    assert stream.feed("Cats purr. Dogs") == "Cats purr. "
    assert stream.feed(" bark") == ""
    assert stream.feed("!") == ""
    assert stream.feed(" Cows") == "Dogs bark! "
    assert stream.feed("\n") == "Cows\n"
    assert stream.finish() == ""


def test_what_was_shown_stays_and_the_rest_is_replaced() -> None:
    stream = StreamFilter(FILTER, "moderate")
    assert stream.feed("Cats purr. ") == "Cats purr. "
    assert stream.feed(f"{BAD} More. ") == f"\n\n{REPLACEMENT}"
    assert stream.feed("And more. ") == ""
    assert stream.finish() == ""


@pytest.mark.parametrize("text", ["I want to\ndie", "s. e. x. now", "Get. Drunk. Fast.", "how to\nroll a\njoint"])
def test_a_hit_across_sentences_is_found(text: str) -> None:
    stream = StreamFilter(FILTER, "moderate")
    shown = "".join(fed(stream, text, 1)) + stream.finish()
    assert stream.hit is not None
    assert shown.endswith(stream.hit.replacement)


def test_a_long_sentence_is_shown_in_parts() -> None:
    stream = StreamFilter(FILTER, "moderate")
    text = "word " * SENTENCE_CHARS
    parts = fed(stream, text, 50)
    assert parts[SENTENCE_CHARS // 50] != ""
    assert "".join(parts) + stream.finish() == text
    stream = StreamFilter(FILTER, "moderate")
    shown = "".join(fed(stream, f"{text}get drunk {text}", 50)) + stream.finish()
    assert "drunk" not in shown
    assert stream.hit is not None


sentences = st.lists(
    st.sampled_from(
        ["Cats purr. ", "Why?\n", "word " * 300, "Kill the process! ", "", "a\u0301. ", f"{BAD} ", "s.e.x "]
    ),
    max_size=8,
)


@given(sentences, st.integers(1, 400), st.sampled_from(["moderate", "strict"]))
def test_a_stream_shows_what_is_allowed_and_replaces_the_rest(parts: list[str], size: int, level: FilterLevel) -> None:
    text = "".join(parts)
    stream = StreamFilter(FILTER, level)
    shown = "".join(fed(stream, text, size)) + stream.finish()
    if FILTER.check(text, level).allowed:
        assert (shown, stream.hit) == (text, None)
    else:
        assert stream.hit is not None
        kept = shown.removesuffix(stream.hit.replacement).removesuffix("\n\n")
        assert kept + stream.hit.replacement in (
            shown,
            shown.replace("\n\n" + stream.hit.replacement, stream.hit.replacement),
        )
        assert text.startswith(kept)
        assert FILTER.check(kept, level).allowed


# The model check


async def test_the_model_is_asked_after_the_words() -> None:
    async def fit(text: str) -> bool:
        return text != "unfit"

    assert await checked_by_model(fit, "fine", "strict") is None
    assert await checked_by_model(fit, "unfit", "moderate") == MODEL
    assert await checked_by_model(fit, "unfit", "off") is None
    assert await checked_by_model(fit, " ", "strict") is None


@pytest.mark.parametrize(("level", "category"), [("strict", UNCHECKED), ("moderate", None)])
async def test_a_model_that_fails_blocks_only_at_strict(level: FilterLevel, category: str | None) -> None:
    async def failing(text: str) -> bool:
        raise ConnectionError

    async def hanging(text: str) -> bool:
        await asyncio.Event().wait()
        return True

    assert await checked_by_model(failing, "text", level) == category
    assert await checked_by_model(hanging, "text", level, timeout_s=0.01) == category


def test_the_models_answer_is_one_of_two_words() -> None:
    assert is_fit(" FIT.\n")
    assert not is_fit("**Unfit**")
    for answer in ("", "yes", "It is FIT", "FIT UNFIT"):
        with pytest.raises(ValueError, match="neither"):
            is_fit(answer)
