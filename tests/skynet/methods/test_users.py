"""``users.*``: who sees and changes whom, what the wire refuses, and what a change ends."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.gateway.authorize import authorize_method
from skynet_memory.ids import Role, UserId
from skynet_users.audit import MOST_RECORDS
from skynet_users.caller import Caller
from skynet_users.errors import Forbidden
from skynet_users.permissions import Permission, Reach
from tests.skynet.methods.people import People, open_people
from tests.skynet.methods.world import RefusedError

NOBODY = "01900000-0000-7000-8000-000000000000"


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with open_people(tmp_path) as opened:
        yield opened


async def refused(people: People, caller: Caller, method: str, params: Any) -> tuple[str, str]:
    """The finer code and the words."""
    with pytest.raises(RefusedError) as caught:
        await people.call(caller, method, params)
    assert caught.value.error["code"] == "INVALID_REQUEST"
    return caught.value.error["details"]["code"], str(caught.value)


async def test_who_manages_people_sees_all_of_them_and_others_themselves(people: People) -> None:
    everybody = (await people.call(people.world.admin, "users.list"))["users"]
    assert [(user["displayName"], user["role"]) for user in everybody] == [
        ("Owner", "admin"),
        ("Bo", "user"),
        ("Cy", "child"),
        ("Gwen", "user"),
    ]
    for caller in (people.world.user, people.world.child, people.guardian):
        (own,) = (await people.call(caller, "users.list"))["users"]
        assert own["id"] == caller.user_id


async def test_a_person_with_everything_at_once(people: People) -> None:
    """SK-129."""
    params = {
        "displayName": "Mia",
        "role": "child",
        "age": 9,
        "language": "de",
        "tone": "playful",
        "interests": ["horses", "space"],
        "timeZone": "Europe/Berlin",
        "flags": {"files.read": True},
        "quietHours": "20:00-07:00",
        "allowedHours": "mo-fr 14:00-19:00, sa,su 09:00-20:00",
        "dailyTokens": 20_000,
        "monthlyMicrousd": 5_000_000,
        "identities": [{"channel": "discord", "externalId": "1234"}],
    }
    user = (await people.call(people.world.admin, "users.add", params))["user"]
    identities = params.pop("identities")
    assert user == {
        **params,
        "id": user["id"],
        "createdAt": user["createdAt"],
        "contentFilter": "strict",
        "requiresApproval": False,
        "needsWelcome": False,
        "disabled": False,
    }
    shown = await people.call(people.world.admin, "users.get", {"userId": user["id"]})
    assert shown["user"] == user
    assert [{name: each[name] for name in ("channel", "externalId")} for each in shown["identities"]] == identities
    assert shown["identities"][0]["linkedBy"] == people.world.admin.user_id
    assert shown["permissions"]["files.read"] == "own"
    assert shown["permissions"]["commands.run"] == "none"
    found = await people.identities.find("discord", "1234")
    assert found is not None and found.id == user["id"]
    assert [action for action, *_ in await people.actions()] == ["user.added", "identity.linked"]


async def test_nobody_is_added_when_an_identity_is_taken(people: People) -> None:
    await people.identities.link(people.world.user.user_id, "discord", "1")
    identities = [{"channel": "discord", "externalId": "2"}, {"channel": "discord", "externalId": "1"}]
    code, words = await refused(
        people, people.world.admin, "users.add", {"displayName": "Mia", "identities": identities}
    )
    assert (code, words) == ("INVALID_PARAMS", "identities: discord:1 belongs to another person")
    assert len(await people.world.users.list()) == 4
    assert await people.identities.find("discord", "2") is None


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"displayName": ""}, "at /displayName"),
        ({"displayName": "x\x00"}, "displayName: must be"),
        ({"displayName": "x", "role": "owner"}, "at /role"),
        ({"displayName": "x", "age": 151}, "at /age"),
        ({"displayName": "x", "timeZone": "Europe/Nowhere"}, "timeZone: must be an IANA name"),
        ({"displayName": "x", "quietHours": "late"}, "quietHours: "),
        ({"displayName": "x", "allowedHours": "mo 25:00-26:00"}, "allowedHours: "),
        ({"displayName": "x", "flags": {"fly": True}}, "flags: there is no permission 'fly'"),
        ({"displayName": "x", "flags": {"users.manage": True}}, "flags: users.manage cannot be given to the role user"),
        (
            {"displayName": "x", "role": "child", "flags": {"commands.run": True}},
            "flags: commands.run cannot be given to the role child",
        ),
        ({"displayName": "x", "dailyTokens": -1}, "at /dailyTokens"),
        ({"displayName": "x", "identities": [{"channel": "Dis cord", "externalId": "1"}]}, "at /identities/0/channel"),
        ({"displayName": "x", "id": "y"}, "unexpected property 'id'"),
    ],
)
async def test_an_error_names_the_field(people: People, params: dict[str, Any], words: str) -> None:
    code, said = await refused(people, people.world.admin, "users.add", params)
    assert code == "INVALID_PARAMS"
    assert words in said
    assert len(await people.world.users.list()) == 4


OWN = {
    "displayName": "Me",
    "language": "fr",
    "tone": "dry",
    "interests": ["chess"],
    "timeZone": "Europe/Paris",
    "quietHours": "22:00-07:00",
}
KEPT: dict[str, Any] = {
    "role": "admin",
    "contentFilter": "off",
    "requiresApproval": False,
    "flags": {"commands.run": True},
    "allowedHours": "",
    "needsWelcome": False,
    "disabled": True,
    "dailyTokens": 5,
    "monthlyTokens": None,
    "dailyMicrousd": 5,
    "monthlyMicrousd": None,
}


@pytest.mark.parametrize("field", OWN)
async def test_everybody_changes_how_they_are_answered(people: People, field: str) -> None:
    grown_up, child = people.world.user, people.world.child
    for caller in (grown_up,) if field == "timeZone" else (grown_up, child):  # its hours go by the child's clock
        user = (await people.call(caller, "users.set", {field: OWN[field]}))["user"]
        assert user[field] == OWN[field]
    assert people.changed == []


@pytest.mark.parametrize("field", KEPT)
async def test_nobody_gives_themselves_more(people: People, field: str) -> None:
    for caller in (people.world.user, people.world.child):
        before = await people.user(caller)
        code, words = await refused(people, caller, "users.set", {"language": "fr", field: KEPT[field]})
        assert (code, words) == ("FORBIDDEN", "not permitted: users.manage")
        assert await people.user(caller) == before


async def test_a_child_cannot_grow_up_by_itself(people: People) -> None:
    assert (await refused(people, people.world.child, "users.set", {"age": 30}))[0] == "FORBIDDEN"
    assert (await people.call(people.world.user, "users.set", {"age": 30}))["user"]["age"] == 30
    admin = people.world.admin
    user = (await people.call(admin, "users.set", {"userId": people.world.child.user_id, "age": 10}))["user"]
    assert user["age"] == 10


async def test_who_may_talk_at_hours_does_not_move_the_clock(people: People) -> None:
    """SK-121: the hours go by the person's own time zone, so it is given with them."""
    admin = people.world.admin
    for caller in (people.world.child, people.world.user):
        given = {"userId": caller.user_id, "allowedHours": "07:00-19:00", "timeZone": "Europe/Berlin"}
        await people.call(admin, "users.set", given)
        for zone in ("Asia/Tokyo", ""):
            words = await refused(people, caller, "users.set", {"timeZone": zone, "tone": "dry"})
            assert words == ("FORBIDDEN", "not permitted: users.manage")
        assert (await people.user(caller)).time_zone == "Europe/Berlin"
        moved = (await people.call(admin, "users.set", {"userId": caller.user_id, "timeZone": "Asia/Tokyo"}))["user"]
        assert moved["timeZone"] == "Asia/Tokyo"


async def test_another_person_is_out_of_reach_and_not_told_from_nobody(people: People) -> None:
    for caller in (people.world.user, people.world.child, people.guardian):
        for other in (people.world.admin.user_id, NOBODY):
            for method, params in (
                ("users.get", {}),
                ("users.set", {"language": "fr"}),
                ("users.remove", {}),
                ("users.tokens.list", {}),
                ("users.tokens.create", {"name": "x"}),
                ("users.tokens.revoke", {"id": "x"}),
                ("users.password", {"password": "long enough"}),
                ("users.budget", {}),
                ("users.guardians.set", {"guardianId": caller.user_id}),
                ("users.guardians.remove", {"guardianId": caller.user_id}),
                ("identities.list", {}),
                ("identities.link", {"channel": "discord", "externalId": "1"}),
                ("identities.unlink", {"channel": "discord", "externalId": "1"}),
            ):
                with pytest.raises(RefusedError) as caught:
                    await people.call(caller, method, {"userId": other, **params})
                assert caught.value.error["details"]["code"] == "FORBIDDEN", method


async def test_what_a_role_or_a_flag_was_let_in_with_ends(people: People) -> None:
    """The caller of a connection is as it was when it was made, so the connection has to go."""
    admin, bo = people.world.admin, people.world.user.user_id
    await people.call(admin, "users.set", {"userId": bo, "language": "fr"})
    await people.call(admin, "users.set", {"userId": bo, "role": "user"})
    assert people.changed == []
    await people.call(admin, "users.set", {"userId": bo, "flags": {"browser.use": True}})
    await people.call(admin, "users.set", {"userId": bo, "role": "child"})
    await people.call(admin, "users.set", {"userId": bo, "disabled": True})
    assert people.changed == [bo] * 3
    assert (await people.world.users.get(bo)).content_filter == "strict"


async def test_it_ends_also_where_there_is_no_room_for_the_record(people: People) -> None:
    admin, bo = people.world.admin, people.world.user.user_id
    for _ in range(MOST_RECORDS):
        await people.audit.record("login", actor=admin.user_id)
    with pytest.raises(RefusedError) as caught:
        await people.call(admin, "users.set", {"userId": bo, "disabled": True})
    assert caught.value.error["code"] == "UNAVAILABLE"
    assert people.changed == [bo]


async def test_flags_are_changed_one_by_one(people: People) -> None:
    admin, bo = people.world.admin, people.world.user.user_id
    for flags, left in (
        ({"browser.use": True, "commands.run": False}, {"browser.use": True, "commands.run": False}),
        ({"commands.run": None}, {"browser.use": True}),
        ({"plugins.run": False}, {"browser.use": True, "plugins.run": False}),
    ):
        assert (await people.call(admin, "users.set", {"userId": bo, "flags": flags}))["user"]["flags"] == left


async def test_limits_are_taken_back_and_hold_at_once(people: People) -> None:
    """SK-124."""
    admin, bo = people.world.admin, people.world.user.user_id
    await people.call(admin, "users.set", {"userId": bo, "dailyTokens": 1000, "dailyMicrousd": 2_000_000})
    status = await people.call(people.world.user, "users.budget")
    assert (status["day"]["tokens"]["limit"], status["day"]["microusd"]["limit"]) == (1000, 2_000_000)
    assert "limit" not in status["month"]["tokens"]
    await people.call(admin, "users.set", {"userId": bo, "dailyTokens": None})
    status = await people.call(people.world.user, "users.budget")
    assert "limit" not in status["day"]["tokens"]
    assert ("budget.changed", admin.user_id, bo) in await people.actions()
    assert people.changed == []


async def test_the_budget_tells_what_was_used_and_the_house_to_those_who_see_it(people: People) -> None:
    caller = people.world.user
    await people.world.turn(caller)
    own = await people.call(caller, "users.budget")
    assert (own["userId"], own["displayName"]) == (caller.user_id, "Bo")
    assert own["day"]["tokens"] == {"used": 120, "reserved": 0}
    assert own["month"]["microusd"]["used"] == 1500
    assert own["day"]["resetsAt"] > people.clock.now_ms
    assert "houseDay" not in own
    seen = await people.call(people.world.admin, "users.budget", {"userId": caller.user_id})
    assert seen["day"] == own["day"]
    assert seen["houseDay"]["tokens"] == {"used": 120, "reserved": 0, "limit": 1_000_000}


async def test_the_last_admin_stays(people: People) -> None:
    admin = people.world.admin
    for params in ({"role": "user"}, {"disabled": True}):
        code, words = await refused(people, admin, "users.set", params)
        assert code == "FORBIDDEN" and "last enabled admin" in words
    code, words = await refused(people, admin, "users.remove", {"userId": admin.user_id})
    assert (code, words) == ("FORBIDDEN", "nobody removes themselves")
    second = (await people.call(admin, "users.add", {"displayName": "Two", "role": "admin"}))["user"]["id"]
    other = await people.caller(UserId(second))
    assert (await people.call(other, "users.remove", {"userId": admin.user_id}))["removed"]
    assert people.changed == [admin.user_id]
    code, _ = await refused(people, other, "users.set", {"role": "user"})
    assert code == "FORBIDDEN"


async def test_removing_a_person_ends_what_is_theirs(people: People) -> None:
    admin, bo = people.world.admin, people.world.user.user_id
    await people.identities.link(bo, "discord", "1")
    token = await people.credentials.create_token(bo, "phone")
    assert await people.call(admin, "users.remove", {"userId": bo}) == {"userId": bo, "removed": True}
    assert people.changed == [bo]
    assert await people.credentials.lookup(token.token.reveal()) is None
    assert await people.identities.find("discord", "1") is None
    assert await refused(people, admin, "users.remove", {"userId": bo}) == ("NOT_FOUND", f"unknown user: {bo}")
    assert (await people.actions())[-1] == ("user.removed", admin.user_id, bo)


async def test_who_manages_people_without_being_an_admin_becomes_none(people: People) -> None:
    """However the matrix is configured: nobody becomes an admin by way of managing people."""
    grants = {**people.policy.grants(Role.USER), Permission.USERS_MANAGE: Reach.ALL}
    manager = replace(people.world.user, scopes=people.world.admin.scopes, grants=grants)
    admin = people.world.admin.user_id
    for method, params in (
        ("users.add", {"displayName": "x", "role": "admin"}),
        ("users.set", {"userId": manager.user_id, "role": "admin"}),
        ("users.set", {"userId": admin, "language": "fr"}),
        ("users.set", {"userId": admin, "disabled": True}),
        ("users.remove", {"userId": admin}),
        ("users.password", {"userId": admin, "password": "long enough"}),
        ("users.tokens.create", {"userId": admin, "name": "x"}),
    ):
        assert await refused(people, manager, method, params) == ("FORBIDDEN", "not permitted: users.manage")
    assert (await people.call(manager, "users.add", {"displayName": "x"}))["user"]["role"] == "user"


class TestTokens:
    async def test_one_is_shown_once_and_is_the_person(self, people: People) -> None:
        created = await people.call(people.world.user, "users.tokens.create", {"name": "phone", "expiresInDays": 2})
        assert created["token"].startswith("sk-sky-")
        (listed,) = (await people.call(people.world.user, "users.tokens.list"))["tokens"]
        assert listed == {
            "id": created["id"],
            "name": "phone",
            "createdAt": listed["createdAt"],
            "expiresAt": people.clock.now_ms + 2 * 86_400_000,
        }
        proved = await people.credentials.lookup(created["token"], people.clock.now_ms)
        assert proved is not None and proved.user.id == people.world.user.user_id
        assert await people.credentials.lookup(created["token"], created["expiresAt"]) is None
        assert created["token"] not in str(await people.audit.list(10))

    async def test_a_token_that_ends_makes_none_that_stays(self, people: People) -> None:
        """Who was let in for a day does not stay for ever."""
        ends_ms = people.clock() + 1000
        guest = replace(people.world.user, credential_id="c", expires_at_ms=ends_ms)
        for days in ({}, {"expiresInDays": 2}):
            created = await people.call(guest, "users.tokens.create", {"name": "phone", **days})
            assert created["expiresAt"] == ends_ms
            assert await people.credentials.lookup(created["token"], ends_ms - 1) is not None
            assert await people.credentials.lookup(created["token"], ends_ms) is None

    async def test_revoking_one_closes_what_it_let_in(self, people: People) -> None:
        created = await people.call(people.world.user, "users.tokens.create", {"name": "phone"})
        admin = people.world.admin
        params = {"userId": people.world.user.user_id, "id": created["id"]}
        assert await people.call(admin, "users.tokens.revoke", params) == {"id": created["id"], "revoked": True}
        assert people.revoked == [created["id"]]
        assert (await refused(people, admin, "users.tokens.revoke", params))[0] == "NOT_FOUND"
        assert [action for action, *_ in await people.actions()] == ["token.created", "token.revoked"]

    async def test_anothers_token_is_not_revoked_as_an_own_one(self, people: People) -> None:
        created = await people.call(people.world.admin, "users.tokens.create", {"name": "phone"})
        code, _ = await refused(people, people.world.user, "users.tokens.revoke", {"id": created["id"]})
        assert code == "NOT_FOUND"
        assert people.revoked == []

    async def test_scopes_stay_within_the_role(self, people: People) -> None:
        admin, child = people.world.admin, people.world.child.user_id
        for caller, params in (
            (people.world.user, {"name": "x", "scopes": ["operator.admin"]}),
            (admin, {"userId": child, "name": "x", "scopes": ["operator.read", "operator.pairing"]}),
            (admin, {"userId": child, "name": "x", "scopes": ["made.up"]}),
        ):
            code, words = await refused(people, caller, "users.tokens.create", params)
            assert code == "INVALID_PARAMS" and "scopes: the role" in words
        created = await people.call(
            admin, "users.tokens.create", {"userId": child, "name": "x", "scopes": ["operator.read"]}
        )
        assert created["scopes"] == ["operator.read"]

    async def test_a_narrow_connection_makes_no_wide_token(self, people: People) -> None:
        """Else whoever holds a token that may only write would hold one that may do all."""
        narrow = replace(people.world.admin, scopes=frozenset({"operator.write"}))
        for params in ({"name": "x"}, {"name": "x", "scopes": ["operator.admin"]}):
            code, words = await refused(people, narrow, "users.tokens.create", params)
            assert code == "FORBIDDEN" and words.startswith("missing scope: operator.")
        made = await people.call(narrow, "users.tokens.create", {"name": "x", "scopes": ["operator.read"]})
        assert made["scopes"] == ["operator.read"]


class TestPasswords:
    async def test_the_own_one_is_changed_by_who_knows_it(self, people: People) -> None:
        caller = people.world.user
        await people.call(caller, "users.password", {"password": "first password"})
        for current in ("", "wrong"):
            params = {"password": "second password", "current": current}
            assert (await refused(people, caller, "users.password", params))[1] == "current: not the password"
        await people.call(caller, "users.password", {"password": "second password", "current": "first password"})
        assert await people.credentials.check_password(caller.user_id, "second password")

    async def test_an_admin_sets_a_new_one_for_somebody(self, people: People) -> None:
        bo = people.world.user.user_id
        await people.call(people.world.user, "users.password", {"password": "first password"})
        await people.call(people.world.admin, "users.password", {"userId": bo, "password": "other password"})
        assert await people.credentials.check_password(bo, "other password")
        assert "other password" not in str(await people.audit.list(10))

    async def test_a_short_one_is_none(self, people: People) -> None:
        code, words = await refused(people, people.world.user, "users.password", {"password": "short"})
        assert code == "INVALID_PARAMS" and "at /password" in words


class TestGuardians:
    async def test_they_are_set_shown_and_removed(self, people: People) -> None:
        admin, child, bo = people.world.admin, people.world.child.user_id, people.world.user.user_id
        params = {"userId": child, "guardianId": bo, "readsTranscripts": True}
        result = await people.call(admin, "users.guardians.set", params)
        assert [(each["displayName"], each["readsTranscripts"]) for each in result["guardians"]] == [
            ("Gwen", False),
            ("Bo", True),
        ] or {each["id"] for each in result["guardians"]} == {bo, people.guardian.user_id}
        shown = await people.call(people.world.user, "users.get")
        assert [each["id"] for each in shown["children"]] == [child]
        params.pop("readsTranscripts")
        await people.call(admin, "users.guardians.remove", params)
        code, _ = await refused(people, admin, "users.guardians.remove", params)
        assert code == "NOT_FOUND"

    async def test_only_children_have_grown_up_ones(self, people: People) -> None:
        admin, child, bo = people.world.admin, people.world.child.user_id, people.world.user.user_id
        code, words = await refused(people, admin, "users.guardians.set", {"userId": bo, "guardianId": bo})
        assert (code, words) == ("INVALID_PARAMS", "invalid users.guardians.set params: userId: Bo is no child")
        code, words = await refused(people, admin, "users.guardians.set", {"userId": child, "guardianId": child})
        assert "guardianId: Cy is a child" in words


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.dictionaries(
        st.sampled_from([*OWN, *KEPT, "age", "interests", "nonsense"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.lists(st.text(max_size=5), max_size=3),
        max_size=4,
    )
)
async def test_any_params_change_a_person_or_nothing(people: People, params: dict[str, Any]) -> None:
    """Whatever a child sends, its role, limits and rules stay."""
    child = people.world.child
    before = await people.user(child)
    try:
        await people.call(child, "users.set", params)
    except RefusedError as exc:
        assert exc.error["details"]["code"] in ("INVALID_PARAMS", "FORBIDDEN")
        assert await people.user(child) == before
    after = await people.user(child)
    for name in ("role", "age", "content_filter", "flags", "allowed_hours", "disabled", "daily_tokens"):
        assert getattr(after, name) == getattr(before, name)


async def test_a_child_lends_nobody_its_ways_in(people: People) -> None:
    for method in ("users.tokens.create", "identities.code"):
        with pytest.raises(Forbidden, match=r"^not permitted: devices\.manage$"):
            authorize_method(people.world.child, method)
