"""Skynet's own event ``budget.warning``."""

from __future__ import annotations

from typing import Literal

from skynet_protocol.params import NonNegativeInt, Result


class BudgetWarningEvent(Result, kw_only=True):
    """80 % of a limit is used: once for each limit and period. To the person's connections; about the house, to
    admins'. ``used`` and ``limit`` are tokens, or millionths of a US dollar if ``unit`` is ``money``."""

    whose: Literal["you", "house"]
    period: Literal["day", "month"]
    unit: Literal["tokens", "money"]
    used: NonNegativeInt
    limit: NonNegativeInt
    resets_at: NonNegativeInt
    message: str
    """The same in words, in the time zone of the one who is told."""
