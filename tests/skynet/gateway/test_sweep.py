"""What is over is forgotten, whatever of it cannot be at the moment."""

import logging
from pathlib import Path

import pytest

from skynet.gateway.sweep import INTERVAL_S, Sweep
from skynet_memory.errors import StorageUnavailable
from skynet_memory.memories import MemoryStore, NewMemory
from skynet_memory.search import TranscriptSearch
from skynet_memory.turns import TurnStore
from skynet_users.approvals import EXPIRY_MS
from tests.skynet.methods.people import open_people


class FullDisk(TurnStore):
    """Where nothing can be written."""

    async def sweep(self, now_ms: int) -> int:
        raise StorageUnavailable("disk is full")


async def test_what_is_over_goes_within_a_day_and_a_full_disk_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """BA-221, SK-131."""
    assert INTERVAL_S <= 86_400
    async with open_people(tmp_path) as people:
        db, clock, bo = people.world.db, people.clock, people.world.user.user_id
        memories = MemoryStore(db)
        for key, expires_at_ms in (("cake", clock() + 1), ("bike", None)):
            new = NewMemory("fact", key, f"of {key}", expires_at_ms=expires_at_ms)
            await memories.learn(bo, new, now_ms=clock())
        approval, _ = await people.approvals.ask(await people.user(people.world.user), "May I?")
        sweep = Sweep(FullDisk(db), people.approvals, memories, TranscriptSearch(db), clock=clock)
        await sweep.once()
        assert await memories.count(bo) == 2
        assert people.decided == []
        clock.now_ms += EXPIRY_MS
        with caplog.at_level(logging.WARNING):
            await sweep.once()
        assert [memory.key for memory in await memories.list(bo)] == ["bike"]
        assert [(each.id, each.status) for each in people.decided] == [(approval.id, "expired")]
        assert "disk is full" in caplog.text
