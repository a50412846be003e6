"""Whom one request asks, in which order, how often, and when it gives up. Pure: told of failures, it names steps.

Only what failed before anything was shown is asked again, here or elsewhere:

- A failure that may pass (``ProviderError.retriable``) is asked again at the same model, after 200 ms, then 400 ms …
  (SK-081), and then at the next one of the route. A rate limit, and silence for the provider's whole time limit, go to
  the next one at once; an answer that broke off or makes no sense is asked for just once more (BA-076).
- In a pool ``AuthFailed`` goes to the next one too. Every other refusal ends it: the request is at fault.
- A conversation that is too long goes to the next model of the route with a larger known window. If none has it, the
  failure is ``ContextOverflow``, whatever else failed: a shorter conversation is the way out.
- A provider whose circuit is open comes after all the others, and is asked once.
- When nobody is left and one of them was rate limited for a few seconds only, it is asked once more after those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from skynet_agent.errors import AuthFailed, ContextOverflow, ProviderError, ProviderTimeout, RateLimited, StreamCut
from skynet_agent.events import Attempt
from skynet_agent.routes import Target

RETRIES = 2
RETRY_PAUSE_S = 0.2
"""Before the first retry; before the second twice that, and so on."""
SHORT_WAIT_S = 5.0
"""A rate limit that is over so soon is waited for, when nobody else can answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """``target`` is asked after a pause, for the time number ``attempt``."""

    target: Target
    attempt: int = 1
    pause_s: float = 0.0
    last_resort: bool = False
    """Ask even if its circuit is open: nobody else is left."""


class Failover:
    """The way of one request.

    Args:
        targets: who may answer, in order.
        pooled: a person listed them as each other's replacement.
        retries: each is asked at most so often again.
    """

    def __init__(self, targets: Iterable[Target], *, pooled: bool = False, retries: int = RETRIES) -> None:
        self._steps = deque(Step(target) for target in targets)
        self._put_off: list[Step] = []
        self._pooled = pooled
        self._retries = retries
        self._overflow: ContextOverflow | None = None
        self._last: ProviderError | None = None
        self._too_small_tokens = -1  # the largest window that was too small; 0 for an unknown one
        self._wait: Step | None = None
        self._has_waited = False
        self.tried: tuple[Attempt, ...] = ()

    @property
    def failure(self) -> ProviderError:
        """Why nobody answered, once ``next`` has no step any more."""
        failure = self._overflow or self._last
        assert failure is not None, "nobody was asked"
        return failure.with_tried(self.tried)

    def next(self, admits: Callable[[Target], bool]) -> Step | None:
        """Whom to ask now; None when nobody is left. ``admits``: whether its circuit lets a request through."""
        while self._steps:
            step = self._steps.popleft()
            if not self._could_hold_it(step.target):
                continue
            if step.last_resort or admits(step.target):
                return step
            self._put_off.append(step)
        if self._put_off:
            self._steps.extend(replace(step, last_resort=True) for step in self._put_off)
            self._put_off.clear()
            return self.next(admits)
        wait, self._wait = self._wait, None
        self._has_waited = self._has_waited or wait is not None
        return wait

    def put_off(self, step: Step) -> None:
        """The circuit was opened between ``next`` and the request."""
        self._put_off.append(step)

    def failed(self, step: Step, failure: ProviderError) -> None:
        """What came of ``step``."""
        row, info = step.target.row, step.target.info
        self.tried += (Attempt(row.name, info.id, type(failure).__name__, str(failure)),)
        self._last = failure
        if isinstance(failure, ContextOverflow):
            self._overflow = failure
            self._too_small_tokens = max(self._too_small_tokens, info.context_window or 0)
        elif not failure.retriable and not (self._pooled and isinstance(failure, AuthFailed)):
            self._steps.clear()
            self._put_off.clear()
            self._wait = None
        elif step.attempt <= self._retries_after(failure) and not step.last_resort:
            self._steps.appendleft(Step(step.target, step.attempt + 1, RETRY_PAUSE_S * step.attempt))
        if isinstance(failure, RateLimited) and not self._has_waited:
            self._consider_waiting(step.target, failure.retry_after_s)

    def _retries_after(self, failure: ProviderError) -> int:
        if isinstance(failure, RateLimited | AuthFailed):
            return 0
        if isinstance(failure, ProviderTimeout) and failure.status is None:
            return 0  # the person has waited for a whole time limit already (BA-039)
        return min(1, self._retries) if isinstance(failure, StreamCut) else self._retries

    def _consider_waiting(self, target: Target, retry_after_s: float | None) -> None:
        if retry_after_s is None or retry_after_s > SHORT_WAIT_S:
            return
        if self._wait is None or retry_after_s < self._wait.pause_s:
            self._wait = Step(target, pause_s=retry_after_s, last_resort=True)

    def _could_hold_it(self, target: Target) -> bool:
        return self._overflow is None or (target.info.context_window or 0) > self._too_small_tokens
