"""The model that is asked whether a text is fit for a child, with a scripted model behind a real router."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skynet.gateway.model_check import ModelCheck
from skynet_agent.errors import CallRefused, UnknownModel
from skynet_agent.filters import MODEL, UNCHECKED, checked_by_model
from skynet_memory.ids import Role
from skynet_users.budgets import Limits
from skynet_users.people import User, UserStore
from tests.skynet.gateway.stage import Stage, open_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path) as opened:
        yield opened


async def child_of(stage: Stage) -> User:
    return await UserStore(stage.db).add("Kim", Role.CHILD)


async def test_the_model_says_whether_a_text_is_fit(stage: Stage) -> None:
    child, check = await child_of(stage), ModelCheck(stage.calls, "mock/mock-1")
    assert await check(child, "say=FIT")
    assert not await check(child, "say=unfit.")
    with pytest.raises(ValueError, match="neither"):
        await check(child, "say=perhaps")


async def test_it_is_on_the_childs_budget_and_leaves_no_session(stage: Stage) -> None:
    child, check = await child_of(stage), ModelCheck(stage.calls, "mock/mock-1")
    await check(child, "say=FIT prompt=14")
    rows = await stage.db.fetchall("SELECT owner, key FROM usage")
    assert [tuple(row) for row in rows] == [(child.id, f"user:{child.id}:agent:main:content-filter")]
    assert (await stage.ledger.status(child.id)).day.used.tokens == 15
    assert (await stage.db.fetchall("SELECT count(*) FROM sessions"))[0][0] == 0


async def test_what_fails_is_not_fit_at_strict(stage: Stage) -> None:
    child = await child_of(stage)
    unknown = ModelCheck(stage.calls, "none/such")
    with pytest.raises(UnknownModel):
        await unknown(child, "say=FIT")
    assert await checked_by_model(lambda text: unknown(child, text), "say=FIT", "strict") == UNCHECKED
    assert await checked_by_model(lambda text: unknown(child, text), "say=FIT", "moderate") is None
    check = ModelCheck(stage.calls, "mock/mock-1")
    assert await checked_by_model(lambda text: check(child, text), "say=UNFIT", "strict") == MODEL


async def test_a_budget_that_is_used_up_pays_for_no_check(tmp_path: Path) -> None:
    async with open_stage(tmp_path, limits=Limits(daily_tokens=10)) as stage:
        child, check = await child_of(stage), ModelCheck(stage.calls, "mock/mock-1")
        assert await check(child, "say=FIT prompt=14")
        with pytest.raises(CallRefused):
            await check(child, "say=FIT")
