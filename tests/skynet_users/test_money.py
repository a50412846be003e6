import pytest

from skynet_users.money import dollars


@pytest.mark.parametrize(
    ("microusd", "words"),
    [(0, "$0.00"), (1, "$0.000001"), (1_500, "$0.0015"), (10_000, "$0.01"), (1_234_567_890, "$1,234.57")],
)
def test_small_amounts_are_exact(microusd: int, words: str) -> None:
    assert dollars(microusd) == words
