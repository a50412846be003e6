"""``approvals.*`` and what is behind them: who decides, who is told, and what a decision sets in motion."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.approvals import ToolDecision
from skynet_memory.ids import Role, UserId
from skynet_users.approvals import MAX_PENDING, Approval
from skynet_users.caller import Caller
from skynet_users.resolver import Known, RefusedSender, Waiting
from tests.skynet.methods.people import People, open_people
from tests.skynet.methods.world import RefusedError
from tests.support.polling import until

ARGUMENTS: dict[str, Any] = {"command": "rm -r photos", "timeout": 5}
DAY_MS = 86_400_000


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with open_people(tmp_path) as opened:
        yield opened


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[People]:
    """Where nobody waits for a decision."""
    async with open_people(tmp_path, wait_s=0.01) as opened:
        yield opened


async def refused(people: People, caller: Caller, params: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        await people.call(caller, "approvals.decide", params)
    return caught.value.error["details"]["code"], str(caught.value)


async def stranger(people: People, external_id: str = "77", name: str = "Zoe") -> Approval:
    """Somebody unknown writes on a channel."""
    resolved = await people.resolver.resolve("discord", external_id, display_name=name)
    assert isinstance(resolved, Waiting)
    approval = await people.store.get(resolved.approval_id)
    assert approval is not None
    await people.approvals.announce(approval)
    return approval


async def open_question(people: People, caller: Caller, arguments: dict[str, Any] = ARGUMENTS) -> Approval:
    """A tool call that nobody has decided about yet."""
    decision = await ask_for_tool(people, caller, arguments)
    assert decision.outcome == "pending" and "still open" in str(decision)
    assert decision.approval is not None
    return decision.approval


async def ask_for_tool(people: People, caller: Caller, arguments: dict[str, Any] = ARGUMENTS) -> ToolDecision:
    user = await people.user(caller)
    return await people.approvals.ask_for_tool(user, "run_command", arguments, "run rm -r photos")


async def asked(people: People, caller: Caller) -> asyncio.Task[ToolDecision]:
    """A tool call that waits for its decision."""
    before = waiting(people)
    task = people.world.tasks.start(ask_for_tool(people, caller), name="tool call")
    await until(lambda: waiting(people) > before)
    return task


def waiting(people: People) -> int:
    return sum(len(calls) for calls in people.approvals._waiting.values())


class TestRegistrations:
    """SK-125, SK-131."""

    async def test_a_stranger_is_let_in_with_a_role_and_a_name(self, people: People) -> None:
        admin = people.world.admin
        heard, other = people.world.listen(admin), people.world.listen(people.world.user)
        approval = await stranger(people)
        (event,) = heard.named("approvals.requested")
        told = event["payload"]["approval"]
        assert (told["id"], told["kind"], told["decidable"]) == (approval.id, "registration", True)
        assert "Zoe (discord:77)" in told["summary"]
        (listed,) = (await people.call(admin, "approvals.list", {"status": "pending"}))["approvals"]
        assert listed == told

        params = {"id": approval.id, "approve": True, "role": "child", "displayName": "Zoë"}
        result = await people.call(admin, "approvals.decide", params)
        assert result["approval"]["status"] == "approved"
        assert (result["user"]["displayName"], result["user"]["role"]) == ("Zoë", "child")
        assert (result["user"]["contentFilter"], result["user"]["needsWelcome"]) == ("strict", True)
        known = await people.resolver.resolve("discord", "77")
        assert isinstance(known, Known) and known.user.id == result["user"]["id"]
        ((registered, user),) = people.registered
        assert (registered.id, user.id) == (approval.id, result["user"]["id"])
        (resolved,) = heard.named("approvals.resolved")
        assert (resolved["payload"]["status"], resolved["payload"]["decidedBy"]) == ("approved", admin.user_id)
        assert other.events == []
        assert [action for action, *_ in await people.actions()] == [
            "approval.requested",
            "approval.decided",
            "user.added",
            "identity.linked",
        ]

    async def test_a_stranger_may_be_somebody_who_is_known(self, people: People) -> None:
        approval, bo = await stranger(people), people.world.user.user_id
        before = len(await people.world.users.list())
        params = {"id": approval.id, "approve": True, "userId": bo}
        assert (await people.call(people.world.admin, "approvals.decide", params))["user"]["id"] == bo
        assert len(await people.world.users.list()) == before
        known = await people.resolver.resolve("discord", "77")
        assert isinstance(known, Known) and known.user.id == bo

    async def test_who_is_denied_stays_out(self, people: People) -> None:
        approval = await stranger(people)
        params = {"id": approval.id, "approve": False, "reason": "who is that?"}
        result = await people.call(people.world.admin, "approvals.decide", params)
        assert (result["approval"]["status"], "user" in result) == ("denied", False)
        assert isinstance(await people.resolver.resolve("discord", "77"), RefusedSender)
        assert people.registered == []

    async def test_nobody_is_let_in_as_an_admin(self, people: People) -> None:
        approval = await stranger(people)
        code, words = await refused(people, people.world.admin, {"id": approval.id, "approve": True, "role": "admin"})
        assert code == "INVALID_PARAMS" and "at /role" in words

    async def test_only_who_decides_everything_sees_them(self, people: People) -> None:
        approval = await stranger(people)
        for caller in (people.world.user, people.guardian):
            assert (await people.call(caller, "approvals.list"))["approvals"] == []
            assert await refused(people, caller, {"id": approval.id, "approve": True}) == (
                "NOT_FOUND",
                f"unknown approval: {approval.id}",
            )
        assert (await people.call(people.world.child, "approvals.list"))["approvals"] == []
        assert (await refused(people, people.world.child, {"id": approval.id, "approve": True}))[0] == "FORBIDDEN"

    async def test_what_a_stranger_wrote_is_not_shown(self, people: People) -> None:
        approval = await stranger(people)
        await people.store.add_message(approval.id, "my secret", people.clock.now_ms)
        assert "my secret" not in str(await people.call(people.world.admin, "approvals.list"))

    async def test_the_end_of_the_id_is_enough(self, people: People) -> None:
        approval = await stranger(people)
        assert (await refused(people, people.world.admin, {"id": approval.id[-3:], "approve": True}))[0] == "NOT_FOUND"
        params = {"id": approval.id[-8:], "approve": True}
        assert (await people.call(people.world.admin, "approvals.decide", params))["approval"]["id"] == approval.id

    async def test_it_is_decided_once(self, people: People) -> None:
        approval = await stranger(people)
        params = {"id": approval.id, "approve": True}
        results = await asyncio.gather(
            *(people.call(people.world.admin, "approvals.decide", params) for _ in range(5)), return_exceptions=True
        )
        assert len([result for result in results if isinstance(result, dict)]) == 1
        assert len(people.registered) == 1
        code, words = await refused(people, people.world.admin, params)
        assert (code, words) == ("INVALID_PARAMS", "the request is not pending, it is approved")

    async def test_after_a_day_it_has_expired(self, people: People) -> None:
        approval = await stranger(people)
        people.clock.now_ms += DAY_MS + 1000
        assert (await people.approvals.list(people.world.admin))[0].id == approval.id
        await people.approvals.expire()
        (listed,) = (await people.call(people.world.admin, "approvals.list"))["approvals"]
        assert (listed["status"], listed["decidable"]) == ("expired", False)
        assert (await refused(people, people.world.admin, {"id": approval.id, "approve": True}))[1].endswith("expired")
        assert [each.status for each in people.decided] == ["expired"]

    @pytest.mark.parametrize("field", ["role", "displayName", "userId"])
    async def test_what_is_no_registration_makes_nobody(self, people: People, field: str) -> None:
        await people.call(people.world.child, "approvals.request", {"summary": "a later bedtime"})
        (approval,) = await people.approvals.list(people.world.admin)
        value = {"role": "user", "displayName": "x", "userId": people.world.user.user_id}[field]
        code, _ = await refused(people, people.world.admin, {"id": approval.id, "approve": True, field: value})
        assert code == "INVALID_PARAMS"
        assert (await people.store.list("pending"))[0].id == approval.id


class TestRequests:
    async def test_a_childs_request_goes_to_its_guardian_and_the_admins(self, people: People) -> None:
        callers = (people.world.admin, people.guardian, people.world.user, people.world.child)
        admin, guardian, other, child = (people.world.listen(caller) for caller in callers)
        result = await people.call(people.world.child, "approvals.request", {"summary": "may I stay up?"})
        assert result["created"] and result["approval"]["mine"] and not result["approval"]["decidable"]
        again = await people.call(people.world.child, "approvals.request", {"summary": "may I stay up?"})
        assert not again["created"] and again["approval"]["id"] == result["approval"]["id"]
        for connection in (admin, guardian):
            (event,) = connection.named("approvals.requested")
            assert event["payload"]["approval"]["requesterName"] == "Cy"
        assert other.events == child.events == []

        params = {"id": result["approval"]["id"], "approve": True, "reason": "until nine"}
        await people.call(people.guardian, "approvals.decide", params)
        for connection in (admin, guardian, child):
            (event,) = connection.named("approvals.resolved")
            assert (event["payload"]["status"], event["payload"]["reason"]) == ("approved", "until nine")
        assert other.events == []
        assert people.world.events.queued(people.world.child.user_id) == ["Approved: may I stay up? (until nine)."]

    async def test_nobody_decides_the_own_one(self, people: People) -> None:
        for caller in (people.world.admin, people.guardian):
            result = await people.call(caller, "approvals.request", {"summary": "more tokens"})
            code, words = await refused(people, caller, {"id": result["approval"]["id"], "approve": True})
            assert (code, words) == ("FORBIDDEN", "somebody else has to decide about this request")

    async def test_a_guardian_decides_for_the_own_child_alone(self, people: People) -> None:
        result = await people.call(people.world.user, "approvals.request", {"summary": "more tokens"})
        assert (await people.call(people.guardian, "approvals.list"))["approvals"] == []
        params = {"id": result["approval"]["id"], "approve": True}
        assert (await refused(people, people.guardian, params))[0] == "NOT_FOUND"
        assert (await people.call(people.world.admin, "approvals.decide", params))["approval"]["status"] == "approved"

    async def test_a_guardian_who_may_decide_nothing_decides_nothing(self, people: People) -> None:
        await people.call(people.world.child, "approvals.request", {"summary": "may I?"})
        (approval,) = await people.approvals.list(people.world.admin)
        assert await people.approvals.deciders(approval) == {people.world.admin.user_id, people.guardian.user_id}
        params = {"userId": people.guardian.user_id, "flags": {"approvals.decide": False}}
        await people.call(people.world.admin, "users.set", params)
        guardian = await people.caller(people.guardian.user_id)
        assert (await refused(people, guardian, {"id": approval.id, "approve": True}))[0] == "FORBIDDEN"
        assert (await people.call(guardian, "approvals.list"))["approvals"] == []
        assert await people.approvals.deciders(approval) == {people.world.admin.user_id}

    async def test_so_many_may_be_open(self, people: People) -> None:
        for number in range(MAX_PENDING):
            await people.call(people.world.child, "approvals.request", {"summary": f"wish {number}"})
        with pytest.raises(RefusedError, match=f"^{MAX_PENDING} requests are waiting already$"):
            await people.call(people.world.child, "approvals.request", {"summary": "one more"})


class TestTools:
    async def test_who_has_too_many_questions_open_is_denied(self, impatient: People) -> None:
        for number in range(MAX_PENDING):
            await ask_for_tool(impatient, impatient.world.user, {"command": f"rm {number}"})
        decision = await ask_for_tool(impatient, impatient.world.user)
        assert str(decision) == f"denied: {MAX_PENDING} requests are waiting already"

    async def test_a_call_waits_and_goes_on_once_it_is_approved(self, people: People) -> None:
        call = await asked(people, people.world.user)
        (approval,) = await people.approvals.list(people.world.admin, "pending")
        assert approval.subject == {"tool": "run_command", "arguments": ARGUMENTS}
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": True})
        decision = await call
        assert decision.approval is not None
        assert (decision.outcome, decision.approval.status) == ("approved", "used")
        # Who waited knows it already.
        assert people.world.events.queued(people.world.user.user_id) == []
        assert [action for action, *_ in await people.actions()] == [
            "approval.requested",
            "approval.decided",
            "approval.used",
        ]

    async def test_a_call_is_told_why_not(self, people: People) -> None:
        call = await asked(people, people.world.user)
        (approval,) = await people.approvals.list(people.world.admin, "pending")
        params = {"id": approval.id, "approve": False, "reason": "keep the photos"}
        await people.call(people.world.admin, "approvals.decide", params)
        assert str(await call) == "denied: keep the photos"

    async def test_after_a_while_it_is_pending_and_works_once_when_it_was_approved(self, impatient: People) -> None:
        people = impatient
        approval = await open_question(people, people.world.user)
        assert (await open_question(people, people.world.user)).id == approval.id
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": True})
        (news,) = people.world.events.queued(people.world.user.user_id)
        assert news.startswith("Approved: run rm -r photos.")
        assert (await ask_for_tool(people, people.world.user)).outcome == "approved"
        assert (await ask_for_tool(people, people.world.user)).outcome == "pending"

    async def test_other_arguments_need_another_approval(self, impatient: People) -> None:
        """The attack: ask for something harmless, have it approved, do something else."""
        people = impatient
        approval = await open_question(people, people.world.user)
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": True})
        for arguments in ({**ARGUMENTS, "command": "rm -r /"}, {**ARGUMENTS, "more": 1}, {"command": "rm -r photos"}):
            assert (await ask_for_tool(people, people.world.user, arguments)).outcome == "pending"
        assert (await ask_for_tool(people, people.guardian)).outcome == "pending"
        assert (await ask_for_tool(people, people.world.user)).outcome == "approved"

    async def test_an_approval_serves_one_of_many_calls(self, impatient: People) -> None:
        people = impatient
        approval = await open_question(people, people.world.user)
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": True})
        decisions = await asyncio.gather(*(ask_for_tool(people, people.world.user) for _ in range(10)))
        assert [each.outcome for each in decisions].count("approved") == 1

    async def test_two_calls_that_wait_for_one_decision(self, people: People) -> None:
        calls = [await asked(people, people.world.user) for _ in range(2)]
        (approval,) = await people.approvals.list(people.world.admin, "pending")
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": False})
        assert [(await call).outcome for call in calls] == ["denied", "denied"]

    async def test_a_call_that_is_given_up_leaves_nothing_behind(self, people: People) -> None:
        call = await asked(people, people.world.user)
        call.cancel()
        await asyncio.wait([call])
        assert people.approvals._waiting == {}
        (approval,) = await people.approvals.list(people.world.admin, "pending")
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": True})
        assert len(people.world.events.queued(people.world.user.user_id)) == 1

    async def test_long_arguments_are_shown_shortened_and_bound_whole(self, impatient: People) -> None:
        people = impatient
        long = {"content": "x" * 100_000}
        approval = await open_question(people, people.world.user, long)
        assert len(str(approval.subject)) < 5000
        await people.call(people.world.admin, "approvals.decide", {"id": approval.id, "approve": True})
        other = {"content": "x" * 99_999 + "y"}
        assert (await ask_for_tool(people, people.world.user, other)).outcome == "pending"
        assert (await ask_for_tool(people, people.world.user, long)).outcome == "approved"


async def test_an_admin_of_the_same_role_decides_for_another(people: People) -> None:
    second = await people.world.users.add("Two", Role.ADMIN)
    other = await people.caller(UserId(second.id))
    result = await people.call(people.world.admin, "approvals.request", {"summary": "x"})
    decided = await people.call(other, "approvals.decide", {"id": result["approval"]["id"], "approve": True})
    assert decided["approval"]["decidedBy"] == second.id


async def test_a_disabled_admin_is_neither_asked_nor_heard(people: People) -> None:
    second = await people.world.users.add("Two", Role.ADMIN)
    other = await people.caller(UserId(second.id))
    await people.call(people.world.admin, "users.set", {"userId": second.id, "disabled": True})
    result = await people.call(people.world.child, "approvals.request", {"summary": "x"})
    (approval,) = await people.approvals.list(people.world.admin)
    assert second.id not in await people.approvals.deciders(approval)
    assert (await refused(people, replace(other), {"id": result["approval"]["id"], "approve": True}))[0] == "NOT_FOUND"
