"""Waiting for what will become true."""

import asyncio
from collections.abc import Callable

INTERVAL_S = 0.005


async def until(condition: Callable[[], object], what: str = "", *, timeout: float = 40) -> None:
    """Return when ``condition()`` is true.

    Raises:
        AssertionError: it was not within ``timeout`` seconds; ``what`` says what was waited for.
    """
    try:
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110  (there is no event for it)
                await asyncio.sleep(INTERVAL_S)
    except TimeoutError as exc:
        raise AssertionError(f"not within {timeout} s: {what or condition}") from exc
