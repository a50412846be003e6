from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory.database import Database


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Database]:
    """A database without tables."""
    async with Database(tmp_path / "skynet.db") as db:
        yield db
