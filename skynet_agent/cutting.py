"""Texts that are too long: what of them is kept."""

LEAST_LIMIT = 500
"""The smallest limit that has room for the marker in its tenth."""


def cut_middle(text: str, limit: int) -> str:
    """``text``, or its beginning and its end with a marker between that tells how many characters are missing.

    Of ``limit`` characters 70 % go to the beginning, 20 % to the end and up to 10 % to the marker (SK-113), so the
    result is never longer than ``limit``, which is at least ``LEAST_LIMIT``. Characters are code points.
    """
    assert limit >= LEAST_LIMIT
    if len(text) <= limit:
        return text
    head, tail = limit * 7 // 10, limit // 5
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"
