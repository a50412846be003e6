import pytest

from skynet.gateway.heartbeat import MAX_EVENT_CHARS, MAX_QUEUED_EVENTS, Heartbeats, SystemEvents
from skynet_memory.ids import UserId
from skynet_protocol.events import HeartbeatEvent

ME, OTHER = UserId("me"), UserId("other")


@pytest.mark.parametrize(
    ("every_ms", "words"),
    [(3_600_000, "1h"), (1_800_000, "30m"), (5_400_000, "90m"), (45_000, "45s"), (1500, "1500ms"), (None, "disabled")],
)
def test_interval_in_words(every_ms: int | None, words: str) -> None:
    summary = Heartbeats(every_ms=every_ms).summary()
    assert (summary.enabled, summary.every, summary.every_ms) == (every_ms is not None, words, every_ms)


def test_switched_off() -> None:
    heartbeats = Heartbeats(every_ms=1_800_000)
    heartbeats.enabled = False
    assert (heartbeats.summary().enabled, heartbeats.summary().every, heartbeats.every_ms) == (False, "disabled", None)
    heartbeats.enabled = True
    assert heartbeats.every_ms == 1_800_000


def test_the_last_one_is_a_persons_own() -> None:
    heartbeats = Heartbeats()
    heartbeats.ended(ME, HeartbeatEvent(ts=1, status="ok-token"))
    assert heartbeats.last(ME) is not None and heartbeats.last(OTHER) is None


def test_events_wait_in_order_and_are_bounded() -> None:
    events = SystemEvents()
    for index in range(MAX_QUEUED_EVENTS + 5):
        events.add(ME, f"e{index}")
    assert events.queued(ME) == [f"e{index}" for index in range(5, MAX_QUEUED_EVENTS + 5)]
    assert events.queued(OTHER) == []


def test_a_repeated_event_is_kept_once_and_a_long_one_cut() -> None:
    events = SystemEvents()
    for text in ("a", "a", "b", "a", "x" * (MAX_EVENT_CHARS + 1)):
        events.add(ME, text)
    assert events.queued(ME) == ["a", "b", "a", "x" * MAX_EVENT_CHARS]
