import re

from hypothesis import given
from hypothesis import strategies as st

from skynet_agent.cutting import LEAST_LIMIT, cut_middle


def test_what_fits_stays_as_it_is() -> None:
    assert cut_middle("x" * 500, 500) == "x" * 500


def test_a_cut_keeps_the_beginning_and_the_end_and_tells_what_is_missing() -> None:
    """SK-113."""
    text = "".join(chr(0x4E00 + number % 20_000) for number in range(30_000))
    cut = cut_middle(text, 20_000)
    assert cut == f"{text[:14_000]}\n[… 12000 characters left out …]\n{text[-4_000:]}"


@given(st.text(alphabet="aé😀\n", min_size=1, max_size=50), st.integers(1, 5000), st.integers(LEAST_LIMIT, 30_000))
def test_any_text_stays_within_its_limit(piece: str, times: int, limit: int) -> None:
    text = piece * times
    cut = cut_middle(text, limit)
    assert len(cut) <= limit
    cut.encode()  # no character is cut in two
    if len(text) > limit:
        head, marker, tail = re.split(r"\n(?=\[… \d+ c)|(?<=out …\])\n", cut, maxsplit=2)
        assert (len(head), len(tail)) == (limit * 7 // 10, limit * 2 // 10)
        assert text.startswith(head) and text.endswith(tail)
        assert marker == f"[… {len(text) - len(head) - len(tail)} characters left out …]"
        assert len(marker) + 2 <= limit // 10
