"""``[budgets]`` and people's own limits as the ledger gets them."""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from skynet.config import load_config
from skynet.gateway.budgets import limits_for, limits_of, limits_reader, loader, warning_event
from skynet.gateway.time_zone import machine_zone
from skynet_memory.database import Database
from skynet_memory.ids import Role, RunId, SessionId, SessionKey, UserId
from skynet_memory.migrations import migrate
from skynet_memory.schema import COMPONENT as MEMORY_TABLES
from skynet_memory.usage import UsageRecord, UsageStore
from skynet_users.budgets import WARN_AT_PERCENT, BudgetWarning, Limits, PersonLimits, Spent
from skynet_users.errors import UnknownUser
from skynet_users.people import User, UserStore
from skynet_users.periods import _SHORTEST_MS
from skynet_users.schema import COMPONENT as USER_TABLES

FILE = """
[budgets.user]
daily_tokens = 1000
daily_usd = 0.5
[budgets.child]
monthly_tokens = 0
[budgets.house]
monthly_usd = 20
"""


def person(role: Role = Role.USER, **fields: int | str) -> User:
    return User(id=UserId("ada"), display_name="Ada", role=role, created_at_ms=0, **fields)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "skynet.toml").write_text(FILE)
    return tmp_path


def test_limits_are_the_persons_own_else_the_roles(file: Path) -> None:
    """SK-124, BA-292."""
    budgets = load_config(None, env={"SKYNET_HOME": str(file)}).budgets
    assert limits_for(person(), budgets) == Limits(daily_tokens=1000, daily_microusd=500_000)
    assert limits_for(person(daily_tokens=5, monthly_microusd=7), budgets) == Limits(
        daily_tokens=5, daily_microusd=500_000, monthly_microusd=7
    )
    assert limits_for(person(Role.CHILD), budgets) == Limits(monthly_tokens=0)
    assert limits_for(person(Role.ADMIN), budgets) == Limits()
    assert limits_of(budgets.house) == Limits(monthly_microusd=20_000_000)


async def test_the_ledger_asks_for_a_person(file: Path) -> None:
    people = {"ada": person(time_zone="Asia/Tokyo"), "ben": person()}

    async def find(owner: UserId) -> User | None:
        return people.get(owner)

    limits = limits_reader(find, load_config(None, env={"SKYNET_HOME": str(file)}).budgets, UTC)
    expected = Limits(daily_tokens=1000, daily_microusd=500_000)
    assert await limits(UserId("ada")) == PersonLimits(expected, ZoneInfo("Asia/Tokyo"))
    assert await limits(UserId("ben")) == PersonLimits(expected, UTC)
    with pytest.raises(UnknownUser):
        await limits(UserId("nobody"))


async def test_the_ledger_begins_with_what_is_stored(tmp_path: Path) -> None:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, MEMORY_TABLES])
        ada = await UserStore(db).add("Ada", Role.USER)
        usage = UsageStore(db)
        record = UsageRecord(provider="lab", model="m", input=5, output=1, cost_microusd=9, at_ms=100)
        await usage.add(ada.id, SessionKey("k"), SessionId("s"), RunId("r"), [record])
        assert await loader(usage)(ada.id, 100) == await loader(usage)(None, 0) == Spent(6, 9)
        assert await loader(usage)(ada.id, 101) == Spent()


def test_a_warning_on_the_wire() -> None:
    warning = BudgetWarning(owner=None, period="month", unit="money", used=8_000_000, limit=10**7, resets_at_ms=0)
    assert msgspec.to_builtins(warning_event(warning, UTC)) == {
        "whose": "house",
        "period": "month",
        "unit": "money",
        "used": 8_000_000,
        "limit": 10_000_000,
        "resetsAt": 0,
        "message": "All people of this house together have used $8.00 of $10.00 for this month;"
        " it starts again on Thu 1 Jan, 00:00.",
    }


def test_the_machines_zone(tmp_path: Path) -> None:
    tokyo = Path("/usr/share/zoneinfo/Asia/Tokyo")
    link, bare, wrong = tmp_path / "link", tmp_path / "bare", tmp_path / "wrong"
    link.symlink_to(tokyo)
    wrong.write_text("x")
    assert machine_zone({"TZ": ":Europe/Zurich"}, link) == ZoneInfo("Europe/Zurich")
    assert machine_zone({}, link) == machine_zone({"TZ": "/no/such"}, link) == ZoneInfo("Asia/Tokyo")
    assert machine_zone({}, wrong) is UTC
    assert machine_zone({}, tmp_path / "missing") is UTC
    if tokyo.exists():
        bare.write_bytes(tokyo.read_bytes())
        assert str(machine_zone({}, bare)) == "local"


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "budgets.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "skynet.toml").write_text(example)
    budgets = load_config(None, env={"SKYNET_HOME": str(tmp_path)}).budgets
    assert (budgets.user.daily_tokens, budgets.child.daily_tokens, budgets.house.monthly_usd) == (200_000, 50_000, 60)
    assert f"at\n{WARN_AT_PERCENT} % of a limit" in text
    assert f"less\nthan {_SHORTEST_MS['day'] // 3_600_000} hours" in text
