"""``logs.tail`` (OPENCLAW-V3 6.11)."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from skynet_protocol.params import NonEmptyStr, NonNegativeInt, Params, Result


class LogsTailParams(Params, frozen=True):
    """``cursor`` is the byte offset that the last answer gave."""

    cursor: NonNegativeInt | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=5000)] = 500
    max_bytes: Annotated[int, Meta(ge=1, le=1_000_000)] = 250_000


class LogsTailResult(Result):
    """``truncated``: older bytes were skipped. ``reset``: the file shrank, was rotated, or ran away from the cursor."""

    file: NonEmptyStr
    cursor: NonNegativeInt
    size: NonNegativeInt
    lines: list[str]
    truncated: bool
    reset: bool
