"""The audit log says that the configuration has changed, and which part of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet.config import load_config
from skynet.gateway.config_audit import record_configuration
from skynet.tables import TABLES
from skynet_memory.database import Database
from skynet_memory.migrations import migrate
from skynet_users.audit import AuditLog


@pytest.fixture
async def audit(tmp_path: Path) -> AsyncIterator[AuditLog]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, TABLES)
        yield AuditLog(db)


async def test_each_change_is_recorded_once(audit: AuditLog, tmp_path: Path) -> None:
    """SK-193"""

    async def start(toml: str) -> list[list[str]]:
        (tmp_path / "skynet.toml").write_text(toml)
        await record_configuration(audit, load_config(None, env={"SKYNET_HOME": str(tmp_path)}))
        return [list(entry.details["changed"]) for entry in await audit.list(10, action="config.changed")]

    (first,) = await start("")
    assert {"permissions", "budgets", "gateway"} <= set(first)
    assert await start("") == [first]
    stricter = '[permissions.user]\n"commands.run" = "none"\n'
    assert await start(stricter) == [["permissions"], first]
    assert await start(f"{stricter}[budgets.house]\ndaily_tokens = 5\n") == [["budgets"], ["permissions"], first]
    assert await start("") == [["budgets", "permissions"], ["budgets"], ["permissions"], first]
    assert (await audit.verify()).ok
