import time
import uuid

import pytest

from skynet_memory import ids
from skynet_memory.ids import Role, new_id, now_ms


def test_ids_are_uuid7_of_now() -> None:
    before = now_ms()
    parsed = uuid.UUID(new_id())
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert before - 1 <= parsed.int >> 80 <= now_ms() + 1
    assert str(parsed) == str(parsed).lower()


def test_ids_are_unique_and_sort_by_age() -> None:
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_ids_still_grow_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    now = time.time_ns()
    monkeypatch.setattr(ids.time, "time_ns", lambda: now - 3_600_000_000_000)
    assert first < new_id() < new_id()


def test_roles_are_text() -> None:
    assert [*Role] == ["admin", "user", "child"]
    assert f"{Role.CHILD}" == "child"
