import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_users.approvals import (
    EXPIRY_MS,
    KEPT_MS,
    MAX_MESSAGES,
    MAX_PENDING,
    MAX_REGISTRATIONS,
    MESSAGE_CHARS,
    Approval,
    ApprovalStore,
    arguments_hash,
)
from skynet_users.errors import InvalidProfile, NotPending, OwnRequest, TooManyPending, UnknownApproval, UnknownUser
from skynet_users.identities import IdentityStore
from skynet_users.people import User, UserChanges, UserStore

T0 = 1_795_000_000_000
ARGUMENTS: dict[str, Any] = {"command": "rm -r old", "timeout": 5}
STRANGER: dict[str, Any] = {"channel": "discord", "external_id": "7", "display_name": "Kim"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
arguments_of_a_call = st.dictionaries(st.text(), json_values, max_size=4)


@pytest.fixture
def approvals(store: Database) -> ApprovalStore:
    return ApprovalStore(store, clock=lambda: T0)


async def asked(
    approvals: ApprovalStore, who: User, arguments: dict[str, Any] | None = None, at_ms: int = T0, tool: str = "run"
) -> Approval:
    arguments = ARGUMENTS if arguments is None else arguments
    approval, _ = await approvals.request("tool_call", who.id, "Run it", {"tool": tool}, arguments, at_ms)
    return approval


class TestAsking:
    async def test_a_question(self, approvals: ApprovalStore, ben: User) -> None:
        approval, is_new = await approvals.request("tool_call", ben.id, "Run it", {"tool": "run"}, ARGUMENTS, T0)
        assert is_new
        assert (approval.kind, approval.requester, approval.summary, approval.status) == (
            "tool_call",
            ben.id,
            "Run it",
            "pending",
        )
        assert approval.subject == {"tool": "run"}
        assert (approval.created_at_ms, approval.expires_at_ms) == (T0, T0 + EXPIRY_MS) == (T0, T0 + 86_400_000)
        assert (approval.decided_by, approval.decided_at_ms, approval.used_at_ms, approval.reason) == (
            None,
            None,
            None,
            "",
        )
        assert await approvals.get(approval.id) == approval

    async def test_the_same_is_asked_once(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        first = await asked(approvals, ben)
        turned = dict(reversed(ARGUMENTS.items()))
        again = await asyncio.gather(
            *[approvals.request("tool_call", ben.id, "Run it", {"tool": "run"}, turned, T0 + 5) for _ in range(10)]
        )
        assert all(found == (first, False) for found in again)
        for other in (
            await asked(approvals, ada),
            await asked(approvals, ben, ARGUMENTS | {"timeout": 6}),
            await asked(approvals, ben, tool="walk"),
            (await approvals.request("request", ben.id, "Run it", {"tool": "run"}, ARGUMENTS, T0))[0],
        ):
            assert other.id != first.id
        later = await asked(approvals, ben, at_ms=T0 + EXPIRY_MS)
        assert later.id != first.id
        expired = await approvals.get(first.id)
        assert expired is not None
        assert expired.status == "expired"

    async def test_a_request_without_arguments_is_what_it_says(self, approvals: ApprovalStore, ben: User) -> None:
        first, _ = await approvals.request("request", ben.id, "A later bedtime", {"text": "bedtime"})
        assert await approvals.request("request", ben.id, "Please!", {"text": "bedtime"}) == (first, False)
        assert (await approvals.request("request", ben.id, "A dog", {"text": "dog"}))[1]

    async def test_no_more_than_so_many(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        first = await asked(approvals, ben, {"n": 0})
        for n in range(1, MAX_PENDING):
            await asked(approvals, ben, {"n": n})
        with pytest.raises(TooManyPending, match=str(MAX_PENDING)):
            await asked(approvals, ben, {"n": MAX_PENDING})
        assert await asked(approvals, ben, {"n": 0}) == first
        await asked(approvals, ada)
        await approvals.decide(first.id, by=ada.id, approve=False)
        await asked(approvals, ben, {"n": MAX_PENDING})
        with pytest.raises(TooManyPending):
            await asked(approvals, ben, {"n": 0})
        await asked(approvals, ben, {"n": 0}, at_ms=T0 + EXPIRY_MS)

    async def test_only_a_registration_has_no_requester(self, approvals: ApprovalStore, ben: User) -> None:
        with pytest.raises(ValueError, match="requester"):
            await approvals.request("request", None, "?", {})
        with pytest.raises(ValueError, match="requester"):
            await approvals.request("registration", ben.id, "?", STRANGER)
        with pytest.raises(InvalidProfile, match="external_id"):
            await approvals.request("registration", None, "?", {"channel": "discord"})

    async def test_half_characters(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        odd = {"text": "\udc80"}
        approval, _ = await approvals.request("tool_call", ben.id, "\udc80", {"tool": "run", **odd}, odd)
        assert approval.subject["text"] == "\udc80"
        await approvals.decide(approval.id, by=ada.id, approve=True, reason="\udc80")
        assert await approvals.consume(ben.id, "run", odd) is not None
        assert await approvals.get("\udc80") is None
        with pytest.raises(UnknownApproval):
            await approvals.decide("\udc80", by=ada.id, approve=True)


class TestDeciding:
    async def test_approve_and_deny(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        yes, no = await asked(approvals, ben, {"n": 1}), await asked(approvals, ben, {"n": 2})
        approved = await approvals.decide(yes.id, by=ada.id, approve=True, reason="fine", now_ms=T0 + 5)
        assert (approved.status, approved.decided_by, approved.decided_at_ms, approved.reason) == (
            "approved",
            ada.id,
            T0 + 5,
            "fine",
        )
        assert approved.expires_at_ms == T0 + 5 + EXPIRY_MS
        denied = await approvals.decide(no.id, by=ada.id, approve=False, now_ms=T0 + 6)
        assert (denied.status, denied.expires_at_ms) == ("denied", no.expires_at_ms)
        for done, status in ((approved, "approved"), (denied, "denied")):
            assert await approvals.get(done.id) == done
            with pytest.raises(NotPending) as caught:
                await approvals.decide(done.id, by=ada.id, approve=True)
            assert caught.value.status == status

    async def test_nobody_decides_about_the_own_question(
        self, approvals: ApprovalStore, store: Database, ada: User
    ) -> None:
        approval = await asked(approvals, ada)
        for approve in (True, False):
            with pytest.raises(OwnRequest):
                await approvals.decide(approval.id, by=ada.id, approve=approve)
        assert await approvals.get(approval.id) == approval
        with pytest.raises(Exception, match="CHECK"):
            await store.write(lambda tx: tx.execute("UPDATE approvals SET decided_by = owner"))

    async def test_who_cannot_decide(self, approvals: ApprovalStore, store: Database, ada: User, ben: User) -> None:
        approval = await asked(approvals, ada)
        await UserStore(store).set(ben.id, UserChanges(disabled=True))
        for by in (ben.id, UserId("nobody")):
            with pytest.raises(UnknownUser):
                await approvals.decide(approval.id, by=by, approve=True)
        with pytest.raises(UnknownApproval):
            await approvals.decide("none", by=ada.id, approve=True)

    async def test_only_one_of_many_decides(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        approval = await asked(approvals, ben)
        outcomes = await asyncio.gather(
            *[approvals.decide(approval.id, by=ada.id, approve=bool(n % 2)) for n in range(20)], return_exceptions=True
        )
        assert sum(isinstance(outcome, NotPending) for outcome in outcomes) == 19

    async def test_too_late(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        """SK-131"""
        approval = await asked(approvals, ben)
        last = approval.expires_at_ms - 1
        assert (await approvals.get(approval.id, now_ms=last)) == approval
        with pytest.raises(NotPending) as caught:
            await approvals.decide(approval.id, by=ada.id, approve=True, now_ms=last + 1)
        assert caught.value.status == "expired"
        [shown] = await approvals.list(now_ms=last + 1)
        assert (shown.id, shown.status) == (approval.id, "expired")
        assert await approvals.list("pending", now_ms=last + 1) == []
        assert await approvals.list("expired", now_ms=last + 1) == [shown]
        assert await approvals.list("pending", now_ms=last) == [approval]
        assert await approvals.expire(last) == []
        assert await approvals.expire(last + 1) == [shown]
        assert await approvals.expire(last + 1) == []

    async def test_list(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        """SK-131"""
        mine = [await asked(approvals, ben, {"n": n}, at_ms=T0 + n) for n in range(3)]
        other = await asked(approvals, ada, at_ms=T0 + 9)
        assert await approvals.list() == [other, *reversed(mine)]
        assert await approvals.list(requester=ben.id) == mine[::-1]
        assert await approvals.list("pending", ben.id, 2) == mine[:0:-1]
        assert await approvals.get(other.id, requester=ben.id) is None
        assert await approvals.get(other.id, requester=ada.id) == other


class TestUsing:
    async def test_once_with_exactly_these_arguments(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        approval = await asked(approvals, ben)
        assert await approvals.consume(ben.id, "run", ARGUMENTS) is None
        await approvals.decide(approval.id, by=ada.id, approve=True)
        for who, tool, arguments in (
            (ada.id, "run", ARGUMENTS),
            (ben.id, "walk", ARGUMENTS),
            (ben.id, "run", {}),
            (ben.id, "run", ARGUMENTS | {"timeout": 5.0}),
            (ben.id, "run", ARGUMENTS | {"force": None}),
            (ben.id, "run", {"command": "rm -r old"}),
        ):
            assert await approvals.consume(who, tool, arguments) is None
        used = await approvals.consume(ben.id, "run", dict(reversed(ARGUMENTS.items())), T0 + 7)
        assert used is not None
        assert (used.id, used.status, used.used_at_ms) == (approval.id, "used", T0 + 7)
        assert await approvals.consume(ben.id, "run", ARGUMENTS) is None
        assert await approvals.get(approval.id) == used
        assert (await asked(approvals, ben)).id != approval.id

    async def test_of_many_at_once_one_wins(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        approval = await asked(approvals, ben)
        await approvals.decide(approval.id, by=ada.id, approve=True)
        found = await asyncio.gather(*[approvals.consume(ben.id, "run", ARGUMENTS) for _ in range(50)])
        assert sum(each is not None for each in found) == 1

    async def test_for_a_day_after_the_decision(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        approval = await asked(approvals, ben)
        decided = approval.expires_at_ms - 1
        await approvals.decide(approval.id, by=ada.id, approve=True, now_ms=decided)
        assert await approvals.consume(ben.id, "run", ARGUMENTS, decided + EXPIRY_MS) is None
        shown = await approvals.get(approval.id, now_ms=decided + EXPIRY_MS)
        assert shown is not None
        assert shown.status == "expired"
        assert await approvals.expire(decided + EXPIRY_MS - 1) == []
        assert await approvals.consume(ben.id, "run", ARGUMENTS, decided + EXPIRY_MS - 1) is not None
        assert await approvals.expire(decided + EXPIRY_MS) == []

    async def test_denied_is_denied(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        approval = await asked(approvals, ben)
        await approvals.decide(approval.id, by=ada.id, approve=False)
        assert await approvals.consume(ben.id, "run", ARGUMENTS) is None

    async def test_a_request_is_no_tool_call(self, approvals: ApprovalStore, ada: User, ben: User) -> None:
        approval, _ = await approvals.request("request", ben.id, "?", {"tool": "run"}, ARGUMENTS)
        await approvals.decide(approval.id, by=ada.id, approve=True)
        assert await approvals.consume(ben.id, "run", ARGUMENTS) is None
        kept = await approvals.get(approval.id, now_ms=T0 + 2 * EXPIRY_MS)
        assert kept is not None
        assert kept.status == "approved"

    @given(arguments_of_a_call, arguments_of_a_call)
    def test_the_hash_is_of_the_arguments(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        """Invariant: two calls have the same hash exactly when they are the same JSON, whatever the order of keys."""
        same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
        assert (arguments_hash(UserId("u"), "t", one) == arguments_hash(UserId("u"), "t", other)) == same
        assert arguments_hash(UserId("u"), "t", one) == arguments_hash(UserId("u"), "t", dict(reversed(one.items())))
        assert arguments_hash(UserId("u"), "t", one) != arguments_hash(UserId("v"), "t", one)
        assert arguments_hash(UserId("u"), "t", one) != arguments_hash(UserId("u"), "s", one)

    @given(calls=st.lists(arguments_of_a_call, min_size=1, max_size=4))
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    async def test_what_was_approved_runs_once(
        self, store: Database, ada: User, ben: User, calls: list[dict[str, Any]]
    ) -> None:
        """Invariant: as many runs of a call as there were approvals of it, and no run of any other."""
        approvals = ApprovalStore(store, clock=lambda: T0)
        await store.write(lambda tx: tx.execute("DELETE FROM approvals"))
        approval = await asked(approvals, ben, calls[0])
        await approvals.decide(approval.id, by=ada.id, approve=True)
        ran = [call for call in [*calls[1:], *calls] if await approvals.consume(ben.id, "run", call)]
        assert [json.dumps(call, sort_keys=True) for call in ran] == [json.dumps(calls[0], sort_keys=True)]


class TestRegistrations:
    async def test_approving_makes_the_person(self, approvals: ApprovalStore, store: Database, ada: User) -> None:
        """SK-125, SK-133"""
        approval, is_new = await approvals.request("registration", None, "Kim wants in", STRANGER)
        assert is_new
        assert approval.requester is None
        assert await approvals.request("registration", None, "again", STRANGER) == (approval, False)
        assert await approvals.add_message(approval.id, "hello", T0 + 1)
        decided = await approvals.decide(approval.id, by=ada.id, approve=True, role="child")
        assert decided.subject["messages"] == [{"text": "hello", "at_ms": T0 + 1}]
        kim = await IdentityStore(store).find("discord", "7")
        assert kim is not None
        assert decided.requester == kim.id
        assert (kim.display_name, kim.role, kim.content_filter, kim.needs_welcome) == (
            "Kim",
            Role.CHILD,
            "strict",
            True,
        )
        [identity] = await IdentityStore(store).list(kim.id)
        assert (identity.display_name, identity.verified, identity.linked_by) == ("Kim", True, ada.id)

    async def test_under_another_name(self, approvals: ApprovalStore, store: Database, ada: User) -> None:
        approval, _ = await approvals.request("registration", None, "", STRANGER)
        with pytest.raises(InvalidProfile):
            await approvals.decide(approval.id, by=ada.id, approve=True, role="user", display_name="\n")
        assert await approvals.get(approval.id) == approval
        await approvals.decide(approval.id, by=ada.id, approve=True, role="user", display_name="Kimberley")
        kim = await IdentityStore(store).find("discord", "7")
        assert kim is not None
        assert (kim.display_name, kim.role) == ("Kimberley", Role.USER)

    async def test_for_somebody_who_is_known(
        self, approvals: ApprovalStore, store: Database, ada: User, ben: User
    ) -> None:
        for external_id, whose in (("7", ben), ("8", ada)):
            approval, _ = await approvals.request("registration", None, "", STRANGER | {"external_id": external_id})
            with pytest.raises(UnknownUser):
                await approvals.decide(approval.id, by=ada.id, approve=True, user_id=UserId("nobody"))
            await approvals.decide(approval.id, by=ada.id, approve=True, user_id=whose.id)
            assert await IdentityStore(store).find("discord", external_id) == whose
        assert len(await UserStore(store).list()) == 2

    async def test_never_an_admin(self, approvals: ApprovalStore, store: Database, ada: User) -> None:
        """SK-126"""
        approval, _ = await approvals.request("registration", None, "", STRANGER)
        with pytest.raises(ValueError, match="admin"):
            await approvals.decide(approval.id, by=ada.id, approve=True, role="admin")  # type: ignore[arg-type]
        assert await approvals.get(approval.id) == approval

    async def test_denying_makes_nobody_and_keeps_no_words(
        self, approvals: ApprovalStore, store: Database, ada: User
    ) -> None:
        approval, _ = await approvals.request("registration", None, "", STRANGER)
        await approvals.add_message(approval.id, "secret", T0)
        denied = await approvals.decide(approval.id, by=ada.id, approve=False, role="user")
        assert denied.subject == STRANGER
        assert await UserStore(store).list() == [ada]

    async def test_expiry_keeps_no_words(self, approvals: ApprovalStore) -> None:
        for external_id in ("7", "8"):
            approval, _ = await approvals.request("registration", None, "", STRANGER | {"external_id": external_id})
            await approvals.add_message(approval.id, "secret", T0)
        await approvals.request("registration", None, "", STRANGER, now_ms=T0 + EXPIRY_MS)
        await approvals.expire(T0 + EXPIRY_MS)
        assert not any(each.subject.get("messages") for each in await approvals.list())

    async def test_who_is_linked_waits_no_more(
        self, approvals: ApprovalStore, store: Database, ada: User, ben: User
    ) -> None:
        approval, _ = await approvals.request("registration", None, "", STRANGER)
        await IdentityStore(store).link(ben.id, "discord", "7")
        with pytest.raises(NotPending):
            await approvals.decide(approval.id, by=ada.id, approve=True, role="user")
        assert await IdentityStore(store).find("discord", "7") == ben

    async def test_messages_are_few_and_short(self, approvals: ApprovalStore, ada: User) -> None:
        approval, _ = await approvals.request("registration", None, "", STRANGER)
        kept = await asyncio.gather(
            *[
                approvals.add_message(approval.id, "\udc80" + "x" * 2 * MESSAGE_CHARS, T0)
                for _ in range(MAX_MESSAGES + 3)
            ]
        )
        assert sum(kept) == MAX_MESSAGES
        found = await approvals.get(approval.id)
        assert found is not None
        messages: Any = found.subject["messages"]
        assert [len(message["text"]) for message in messages] == [MESSAGE_CHARS] * MAX_MESSAGES
        await approvals.decide(approval.id, by=ada.id, approve=False)
        assert not await approvals.add_message(approval.id, "hello", T0)
        assert not await approvals.add_message("none", "hello", T0)
        other, _ = await approvals.request("request", ada.id, "", {"text": "x"})
        assert not await approvals.add_message(other.id, "hello", T0)

    async def test_no_more_strangers_than_so_many(self, approvals: ApprovalStore) -> None:
        for n in range(MAX_REGISTRATIONS):
            await approvals.request("registration", None, "", STRANGER | {"external_id": f"n{n}"})
        with pytest.raises(TooManyPending):
            await approvals.request("registration", None, "", STRANGER)


async def test_old_ones_are_forgotten(approvals: ApprovalStore, ada: User, ben: User) -> None:
    done, waits = await asked(approvals, ben, {"n": 1}), await asked(approvals, ben, {"n": 2})
    await approvals.decide(done.id, by=ada.id, approve=False)
    await approvals.expire(T0 + KEPT_MS - 1)
    assert len(await approvals.list()) == 2
    await approvals.expire(T0 + KEPT_MS)
    assert await approvals.list() == []
    assert await approvals.get(waits.id) is None


async def test_a_removed_person_leaves_none(approvals: ApprovalStore, store: Database, ada: User, ben: User) -> None:
    eve = await UserStore(store).add("Eve", Role.ADMIN)
    await asked(approvals, ben)
    other = await asked(approvals, ada)
    stranger, _ = await approvals.request("registration", None, "", STRANGER)
    await approvals.decide(other.id, by=eve.id, approve=True)
    await approvals.decide(stranger.id, by=ada.id, approve=True, role="user")
    kim = await IdentityStore(store).find("discord", "7")
    assert kim is not None
    for person in (ben, eve, kim):
        await UserStore(store).remove(person.id)
    [left] = await approvals.list()
    assert (left.id, left.decided_by, left.status) == (other.id, None, "approved")
