from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role
from skynet_memory.migrations import migrate
from skynet_users.people import User, UserStore
from skynet_users.schema import COMPONENT


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [COMPONENT])
        yield db


@pytest.fixture
async def ada(store: Database) -> User:
    return await UserStore(store).add("Ada", Role.ADMIN)


@pytest.fixture
async def ben(store: Database) -> User:
    return await UserStore(store).add("Ben", Role.USER)
