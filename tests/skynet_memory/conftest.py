from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory import schema
from skynet_memory.database import Database
from skynet_memory.ids import UserId
from skynet_memory.migrations import migrate
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, add_person


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Database]:
    """A database without tables."""
    async with Database(tmp_path / "skynet.db") as db:
        yield db


@pytest.fixture
async def store(empty: Database) -> Database:
    """A database with all tables and two people."""
    await migrate(empty, [USER_TABLES, schema.COMPONENT])
    await add_person(empty, ADA)
    await add_person(empty, BEN)
    return empty


@pytest.fixture
def ada() -> UserId:
    return ADA


@pytest.fixture
def ben() -> UserId:
    return BEN
