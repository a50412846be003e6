import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_terminal.policy.patterns import ArgvPattern

WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.parametrize(
    ("pattern", "argv", "fits"),
    [
        (["git", "push"], ["git", "push"], True),
        (["git", "push"], ["git", "push", "--force"], False),
        (["git", "push"], ["git"], False),
        (["git", "*"], ["git", "push"], True),
        (["git", "*"], ["git"], False),
        (["git", "*"], ["git", "push", "x"], False),
        (["git", "push", "**"], ["git", "push"], True),
        (["git", "push", "**"], ["git", "push", "a", "b"], True),
        (["git", "push", "**"], ["git", "pull"], False),
        (["git", "*", "origin"], ["git", "push", "origin"], True),
        (["git", "pu*"], ["git", "push"], False),
        (["git", "\\*"], ["git", "*"], True),
        (["git", "\\*"], ["git", "x"], False),
        (["git", ""], ["git", ""], True),
        (["git"], ["/tmp/git"], False),
    ],
)
def test_matching(pattern: list[str], argv: list[str], fits: bool) -> None:
    assert ArgvPattern(tuple(pattern)).matches(argv) is fits


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", "[1]", '["*"]', '["**"]', '["a","**","b"]', '["a\\u0000"]', "null", "[" * 9999]
)
def test_texts_that_are_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ArgvPattern.parse(text)


@given(st.lists(WORD, min_size=1), st.lists(WORD))
def test_a_command_is_matched_by_its_own_pattern_alone(argv: list[str], other: list[str]) -> None:
    pattern = ArgvPattern.for_command(argv)
    assert pattern.matches(argv)
    assert ArgvPattern.parse(pattern.format()) == pattern
    assert pattern.matches(other) == (argv == other)
