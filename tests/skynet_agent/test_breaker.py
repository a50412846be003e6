"""When a provider is left alone, and how it comes back (SK-080)."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skynet_agent.breaker import COOL_DOWN_S, FAILURES, LONGEST_S, Breaker, Permit
from tests.skynet_agent.fake_time import FakeTime


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def breaker(time: FakeTime) -> Breaker:
    return Breaker(time)


def enter(breaker: Breaker) -> Permit:
    permit = breaker.enter()
    assert permit is not None
    return permit


def fail(breaker: Breaker, times: int = 1, retry_after_s: float | None = None) -> None:
    for _ in range(times):
        breaker.failed(enter(breaker), retry_after_s)


def test_it_opens_after_so_many_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, FAILURES - 1)
    breaker.succeeded(enter(breaker))
    fail(breaker, FAILURES - 1)
    assert (breaker.state, breaker.failures) == ("closed", FAILURES - 1)
    fail(breaker)
    assert (breaker.state, breaker.failures, breaker.open_for_s) == ("open", FAILURES, COOL_DOWN_S)
    assert breaker.enter() is None


def test_one_probe_closes_it(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S - 0.001
    assert breaker.enter() is None
    time.now_s += 0.001
    assert breaker.state == "half_open"
    probe = enter(breaker)
    assert breaker.enter() is None
    assert breaker.state == "half_open"
    breaker.answered(probe)
    assert (breaker.state, breaker.failures) == ("closed", 0)
    enter(breaker)


def test_a_failed_probe_opens_it_again(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S
    fail(breaker)
    assert (breaker.state, breaker.open_for_s) == ("open", COOL_DOWN_S)
    time.now_s += COOL_DOWN_S
    breaker.succeeded(enter(breaker))
    assert breaker.state == "closed"


def test_a_probe_that_nobody_waits_for_is_followed_by_another(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S
    for _ in range(3):
        probe = enter(breaker)
        assert breaker.enter() is None
        breaker.abandoned(probe)
        assert breaker.state == "half_open"
    breaker.abandoned(probe)  # twice is once
    enter(breaker)


def test_a_rate_limit_opens_it_for_as_long_as_was_asked(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, retry_after_s=7)
    assert (breaker.state, breaker.open_for_s, breaker.failures) == ("open", 7, 1)
    time.now_s += 7
    fail(breaker, retry_after_s=2)  # the probe: the provider's own word is shorter than the cool-down
    assert breaker.open_for_s == 2
    time.now_s += 2
    fail(breaker)
    assert breaker.open_for_s == COOL_DOWN_S


def test_the_cool_down_is_the_longer_of_both_and_bounded(breaker: Breaker) -> None:
    fail(breaker, FAILURES - 1)
    fail(breaker, retry_after_s=90)
    assert breaker.open_for_s == 90
    breaker.failed(breaker.force(), retry_after_s=86_400)
    assert breaker.open_for_s == LONGEST_S
    breaker.failed(breaker.force(), retry_after_s=1)
    assert breaker.open_for_s == LONGEST_S


def test_failures_and_short_limits_cool_down_whole(breaker: Breaker) -> None:
    fail(breaker, FAILURES - 1)
    fail(breaker, retry_after_s=1)
    assert breaker.open_for_s == COOL_DOWN_S


def test_a_request_that_was_forced_counts_like_others(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, FAILURES)
    time.now_s += 10
    breaker.failed(breaker.force())
    assert breaker.open_for_s == COOL_DOWN_S
    breaker.answered(breaker.force())
    assert breaker.state == "closed"


def test_forced_while_half_open_it_is_the_probe(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S
    first, second = breaker.force(), breaker.force()
    assert breaker.enter() is None
    breaker.abandoned(second)
    assert breaker.enter() is None
    breaker.abandoned(first)
    enter(breaker)


def test_a_probe_that_hangs_keeps_nobody_out_once_another_request_was_answered(
    breaker: Breaker, time: FakeTime
) -> None:
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S
    hanging = enter(breaker)
    breaker.answered(breaker.force())
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S
    probe = enter(breaker)
    breaker.failed(hanging)  # from before all that: nothing to do with the state of now
    assert breaker.state == "half_open"
    assert breaker.enter() is None
    breaker.succeeded(probe)
    assert breaker.state == "closed"


def test_old_news_count_for_nothing(breaker: Breaker, time: FakeTime) -> None:
    early = [enter(breaker) for _ in range(3)]
    fail(breaker, FAILURES)
    breaker.answered(early[0])
    assert breaker.state == "open"
    time.now_s += COOL_DOWN_S
    breaker.failed(early[1])
    assert breaker.state == "half_open"
    breaker.succeeded(enter(breaker))
    breaker.failed(early[2])
    assert breaker.failures == 0


def test_answers_that_break_off_count_although_they_began(breaker: Breaker) -> None:
    for _ in range(FAILURES):
        permit = enter(breaker)
        breaker.answered(permit)
        breaker.failed(permit)
    assert breaker.state == "open"


def test_the_answer_that_closed_it_counts_when_it_breaks_off(breaker: Breaker, time: FakeTime) -> None:
    fail(breaker, FAILURES)
    time.now_s += COOL_DOWN_S
    probe = enter(breaker)
    breaker.answered(probe)
    breaker.failed(probe)
    assert (breaker.state, breaker.failures) == ("closed", 1)


class BreakerMachine(RuleBasedStateMachine):
    """Whatever happens: closed admits everybody, open nobody, half open one; and it is never stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.time = FakeTime()
        self.breaker = Breaker(self.time)
        self.running: list[Permit] = []
        self.probes: list[Permit] = []

    def pick(self, data: st.DataObject) -> Permit:
        permit = data.draw(st.sampled_from(self.running))
        self.running.remove(permit)
        if permit in self.probes:
            self.probes.remove(permit)
        return permit

    @rule()
    def ask(self) -> None:
        state = self.breaker.state
        permit = self.breaker.enter()
        if state == "closed":
            assert permit is not None
        elif state == "open":
            assert permit is None
        elif permit is not None:
            assert not self.probes
            self.probes.append(permit)
        if permit is not None:
            self.running.append(permit)

    @rule()
    def force(self) -> None:
        may = self.breaker.state == "half_open" and not self.probes
        permit = self.breaker.force()
        self.running.append(permit)
        if may:
            self.probes.append(permit)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        self.breaker.succeeded(self.pick(data))
        self.forget_probes()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def begin_to_answer(self, data: st.DataObject) -> None:
        permit = data.draw(st.sampled_from(self.running))
        self.breaker.answered(permit)
        self.forget_probes()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), retry_after_s=st.sampled_from([None, 0.0, 0.5, 20.0, 5000.0]))
    def fail(self, data: st.DataObject, retry_after_s: float | None) -> None:
        self.breaker.failed(self.pick(data), retry_after_s)
        if retry_after_s:
            assert self.breaker.state == "open"

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        was = self.breaker.state
        self.breaker.abandoned(self.pick(data))
        assert self.breaker.state == was

    @rule(seconds=st.sampled_from([0.5, 10.0, COOL_DOWN_S, LONGEST_S]))
    def wait(self, seconds: float) -> None:
        self.time.now_s += seconds

    def forget_probes(self) -> None:
        if self.breaker.state == "closed":
            self.probes.clear()

    @invariant()
    def it_is_open_for_a_bounded_time(self) -> None:
        assert 0 <= self.breaker.open_for_s <= LONGEST_S
        assert (self.breaker.state == "open") == (self.breaker.open_for_s > 0)

    def teardown(self) -> None:
        for permit in self.running:
            self.breaker.abandoned(permit)
        self.time.now_s += LONGEST_S
        assert self.breaker.admits()


TestBreakerMachine = BreakerMachine.TestCase
