"""``audit.*``."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skynet.gateway.dispatch import collect
from skynet.methods.audit import AuditMethods
from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_memory.migrations import migrate
from skynet_protocol.errors import RequestError
from skynet_protocol.params import decode_params
from skynet_users.audit import Action, AuditLog
from skynet_users.audit_schema import COMPONENT as AUDIT_TABLES
from skynet_users.audit_schema import START
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.people import UserStore
from skynet_users.schema import COMPONENT as USER_TABLES

ADMIN, USER, CHILD = (
    Caller(user_id=UserId(role.value), role=role, scopes=frozenset(), correlation_id="c") for role in Role
)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, AUDIT_TABLES])
        yield db


async def call(db: Database, name: str, params: dict[str, Any] | None = None, caller: Caller = ADMIN) -> Any:
    bound = collect(AuditMethods(AuditLog(db)))[name]
    result = await bound.call(
        caller, decode_params(msgspec.Raw(msgspec.json.encode(params or {})), bound.decoder, name)
    )
    return msgspec.json.decode(msgspec.json.encode(result))


async def test_a_page_and_the_next(db: Database) -> None:
    log = AuditLog(db)
    ada = await UserStore(db).add("Ada", Role.ADMIN)
    await log.record(Action.LOGIN, actor=ada.id, details={"client": "cli"}, now_ms=5)
    for number in range(4):
        await log.record(Action.TOKEN_CREATED, actor=ada.id, subject=f"t{number}", now_ms=6)
    first = await call(db, "audit.list", {"limit": 3})
    assert [entry["seq"] for entry in first["entries"]] == [5, 4, 3] and first["nextBefore"] == 3
    second = await call(db, "audit.list", {"limit": 3, "before": first["nextBefore"]})
    assert [entry["seq"] for entry in second["entries"]] == [2, 1] and "nextBefore" not in second
    assert second["entries"][1] == {
        "seq": 1,
        "at": 5,
        "action": "login",
        "actor": ada.id,
        "actorName": "Ada",
        "details": {"client": "cli"},
        "hash": second["entries"][1]["hash"],
    }
    exact = await call(db, "audit.list", {"limit": 5})
    assert "nextBefore" not in exact
    filtered = {"action": "token", "subject": "t1", "actor": ada.id, "since": 6, "until": 7}
    assert [entry["subject"] for entry in (await call(db, "audit.list", filtered))["entries"]] == ["t1"]
    assert (await call(db, "audit.list", {"until": 6, "action": "token"}))["entries"] == []


async def test_verify(db: Database) -> None:
    """SK-193."""
    log = AuditLog(db)
    assert await call(db, "audit.verify") == {"ok": True, "rows": 0, "head": f"0:{START}"}
    for _ in range(3):
        await log.record(Action.LOGIN, actor="")
    whole = await call(db, "audit.verify")
    assert whole == {"ok": True, "rows": 3, "head": await log.head()}
    assert (await call(db, "audit.verify", {"head": whole["head"]}))["ok"]
    assert (await call(db, "audit.verify", {"head": f"3:{START}"}))["problem"] == "unlike"
    with contextlib.closing(sqlite3.connect(db.path)) as file:
        file.execute("DROP TRIGGER audit_no_update")
        file.execute("UPDATE audit SET actor = 'ben' WHERE seq = 2")
        file.commit()
    broken = await call(db, "audit.verify")
    assert (broken["ok"], broken["rows"], broken["firstBadSeq"], broken["problem"]) == (False, 1, 2, "changed")


@pytest.mark.parametrize("name", ["audit.list", "audit.verify"])
@pytest.mark.parametrize("caller", [USER, CHILD])
async def test_it_is_for_nobody_but_admins(db: Database, name: str, caller: Caller) -> None:
    with pytest.raises(Forbidden, match=r"not permitted: audit\.read"):
        await call(db, name, caller=caller)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("audit.list", {"limit": 0}),
        ("audit.list", {"limit": 201}),
        ("audit.list", {"before": 0}),
        ("audit.list", {"actor": ""}),
        ("audit.list", {"sql": "1"}),
        ("audit.verify", {"head": "x"}),
        ("audit.verify", {"head": f"1:{START}0"}),
    ],
)
async def test_params_that_are_wrong(db: Database, name: str, params: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        await call(db, name, params)
