"""A circuit breaker: leaves a provider alone that keeps failing, and finds out when it is back (SK-080). Pure.

Closed, every request goes through. After so many failures in a row it opens for a cool-down; a rate limit opens it for
as long as the provider asked for. Then it is half open: one request, the probe, goes through, and its outcome closes
or opens it again. Nothing is stored: a gateway that starts trusts every provider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

CircuitState: TypeAlias = Literal["closed", "open", "half_open"]

FAILURES = 5
"""So many failures in a row open it."""
COOL_DOWN_S = 30.0
LONGEST_S = 900.0
"""It stays open at most so long, whatever a provider asks for: a day's quota may be raised before the day is over."""


@dataclass(slots=True, eq=False)
class Permit:
    """A request that goes to the provider. Whoever has it reports how it went, once: ``abandoned`` if nobody knows."""

    era: int


class Breaker:
    """The state of one provider.

    Args:
        clock: seconds that only grow.
        failures: so many in a row open it.
        cool_down_s: how long.
        longest_s: the longest that a rate limit may open it.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        failures: int = FAILURES,
        cool_down_s: float = COOL_DOWN_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._clock = clock
        self._most_failures = failures
        self._cool_down_s = cool_down_s
        self._longest_s = longest_s
        self._open_until: float | None = None
        self._probe: Permit | None = None
        self._era = 0  # of openings and closings; the outcome of a request from before the last one is old news
        self.failures = 0
        """In a row, up to now."""

    @property
    def state(self) -> CircuitState:
        if self._open_until is None:
            return "closed"
        return "open" if self._clock() < self._open_until else "half_open"

    @property
    def open_for_s(self) -> float:
        """Seconds until a probe may go through; 0 when one may, or everything."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - self._clock())

    def admits(self) -> bool:
        """Whether ``enter`` would let a request through."""
        state = self.state
        return state == "closed" or (state == "half_open" and self._probe is None)

    def enter(self) -> Permit | None:
        """Leave to send a request; None: ask somebody else."""
        return self.force() if self.admits() else None

    def force(self) -> Permit:
        """The same whatever the state, for a request that nobody else is left for."""
        permit = Permit(self._era)
        if self._probe is None and self.state == "half_open":
            self._probe = permit
        return permit

    def answered(self, permit: Permit) -> None:
        """The answer has begun: the provider is back, if it was away."""
        if self._open_until is not None and self._is_news(permit):
            self._open_until = self._probe = None
            self._era += 1
            permit.era = self._era  # how this answer ends counts again
            self.failures = 0

    def succeeded(self, permit: Permit) -> None:
        """The answer is whole; a refusal that is about the request alone is one, too."""
        self.answered(permit)
        if self._is_news(permit):
            self.failures = 0

    def failed(self, permit: Permit, retry_after_s: float | None = None) -> None:
        """The provider failed, or broke off. ``retry_after_s``: it said when to come back."""
        was_probe = permit is self._probe
        self.abandoned(permit)
        wait_s = min(retry_after_s or 0.0, self._longest_s)
        if self._is_news(permit):
            self.failures += 1
            if self.failures >= self._most_failures or (was_probe and not wait_s):
                wait_s = max(wait_s, self._cool_down_s)
        if wait_s:
            if self._open_until is None:
                self._era += 1
            self._open_until = max(self._open_until or 0.0, self._clock() + wait_s)

    def abandoned(self, permit: Permit) -> None:
        """Nothing came of the request, good or bad: whoever asks next may be the probe."""
        if permit is self._probe:
            self._probe = None

    def _is_news(self, permit: Permit) -> bool:
        return permit.era == self._era
