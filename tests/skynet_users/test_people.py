import asyncio
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_memory.secrets import Secret
from skynet_users.approvals import ApprovalStore
from skynet_users.credentials import CredentialStore
from skynet_users.errors import AmbiguousUser, InvalidProfile, LastAdmin, UnknownUser
from skynet_users.groups import GroupStore
from skynet_users.guardians import GuardianStore
from skynet_users.identities import IdentityStore
from skynet_users.links import LinkCodes
from skynet_users.people import User, UserChanges, UserStore
from skynet_users.permissions import Permission
from skynet_users.profiles import INTERESTS, checked_profile, clean_name


async def test_the_owner_is_made_once(store: Database) -> None:
    users = UserStore(store)
    made = await asyncio.gather(*[users.ensure_owner("Ada") for _ in range(10)])
    assert len({user.id for user in made}) == 1
    assert (made[0].display_name, made[0].role) == ("Ada", Role.ADMIN)
    assert await users.ensure_owner("Somebody else") == made[0]
    assert await users.list() == [made[0]]


async def test_the_owner_is_the_first_admin(store: Database) -> None:
    users = UserStore(store)
    child = await users.add("Kim", Role.CHILD)
    admin = await users.add("Ada", Role.ADMIN)
    other = await users.add("Eve", Role.ADMIN)
    assert await users.ensure_owner() == admin
    assert [user.display_name for user in await users.list()] == ["Kim", "Ada", "Eve"]
    assert await users.by_id(child.id) == child
    assert await users.get(child.id) == child
    await users.set(admin.id, UserChanges(disabled=True))
    assert await users.ensure_owner() == other


async def test_unknown_people(store: Database) -> None:
    users = UserStore(store)
    assert await users.by_id(UserId("none")) is None
    with pytest.raises(UnknownUser, match="none"):
        await users.get(UserId("none"))
    with pytest.raises(UnknownUser, match="none"):
        await users.set(UserId("none"), UserChanges(tone="dry"))
    with pytest.raises(UnknownUser, match="none"):
        await users.set(UserId("none"), UserChanges())
    assert not await users.remove(UserId("none"))


async def test_roles_are_checked_by_the_table(store: Database) -> None:
    """SK-121"""
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        await store.write(
            lambda tx: tx.execute(
                "INSERT INTO users (id, display_name, role, created_at_ms) VALUES ('u', 'U', 'root', 0)"
            )
        )
    with pytest.raises(InvalidProfile, match="role: must be one of admin, user, child"):
        await UserStore(store).add("Eve", "root")  # type: ignore[arg-type]


class TestProfile:
    FULL: dict[str, Any] = {  # noqa: RUF012
        "language": "German",
        "tone": "dry, short",
        "interests": ("chess", "whales"),
        "age": 41,
        "time_zone": "Europe/Berlin",
        "content_filter": "off",
        "requires_approval": True,
        "flags": {"browser.use": True, "commands.run": False},
        "quiet_hours": "22:00-07:00",
        "allowed_hours": "mo-fr 07:00-20:00",
        "needs_welcome": True,
        "disabled": False,
        "daily_tokens": 0,
        "monthly_tokens": 1,
        "daily_microusd": 2,
        "monthly_microusd": 3,
    }

    async def test_every_field_is_kept(self, store: Database) -> None:
        """SK-129"""
        users = UserStore(store)
        user = await users.add("Ada", Role.USER, **self.FULL)
        assert {name: getattr(user, name) for name in self.FULL} == self.FULL
        assert await users.get(user.id) == user
        assert hash(user) == hash(await users.get(user.id))

    async def test_every_field_can_be_changed_alone(self, store: Database) -> None:
        users = UserStore(store)
        plain = await users.add("Ada", Role.USER)
        full = await users.add("Ada", Role.USER, **self.FULL)
        for name, value in self.FULL.items():
            assert getattr(await users.set(plain.id, UserChanges(**{name: value})), name) == value
            changed = await users.set(full.id, UserChanges(**{name: getattr(User(**self._ids(plain)), name)}))
            assert getattr(changed, name) == getattr(User(**self._ids(plain)), name)
        assert {name: getattr(await users.get(plain.id), name) for name in self.FULL} == self.FULL

    def _ids(self, user: User) -> dict[str, Any]:
        return {"id": user.id, "display_name": "Ada", "role": Role.USER, "created_at_ms": 0}

    async def test_defaults(self, store: Database, ben: User) -> None:
        """SK-129"""
        assert (ben.content_filter, ben.requires_approval, ben.needs_welcome, ben.disabled) == (
            "moderate",
            False,
            False,
            False,
        )
        assert await UserStore(store).set(ben.id, UserChanges()) == ben

    async def test_a_child_is_filtered_strictly_unless_said_otherwise(self, store: Database, ben: User) -> None:
        users = UserStore(store)
        assert (await users.add("Kim", Role.CHILD)).content_filter == "strict"
        assert (await users.add("Kim", Role.CHILD, content_filter="moderate")).content_filter == "moderate"
        assert (await users.set(ben.id, UserChanges(role=Role.CHILD))).content_filter == "strict"
        assert (await users.set(ben.id, UserChanges(content_filter="off"))).content_filter == "off"
        assert (await users.set(ben.id, UserChanges(age=9))).content_filter == "off"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("display_name", ""),
            ("display_name", "   "),
            ("display_name", "\u200d"),
            ("display_name", "x" * 65),
            ("display_name", "a\nb"),
            ("display_name", "\u202egnp"),
            ("display_name", "\udc80"),
            ("display_name", 7),
            ("role", "root"),
            ("language", "x" * 101),
            ("tone", "x\0"),
            ("interests", ["x"] * 21),
            ("interests", ["x" * 61]),
            ("interests", [""]),
            ("interests", "chess"),
            ("interests", [7]),
            ("age", -1),
            ("age", 151),
            ("age", True),
            ("age", 7.5),
            ("time_zone", "Mars/Olympus"),
            ("time_zone", "Europe"),
            ("time_zone", "../../etc/passwd"),
            ("time_zone", "/etc/localtime"),
            ("time_zone", "\0"),
            ("time_zone", "x" * 5000),
            ("time_zone", None),
            ("content_filter", "none"),
            ("requires_approval", 1),
            ("flags", {"everything": True}),
            ("flags", {"commands.run": 1}),
            ("flags", ["commands.run"]),
            ("quiet_hours", "x" * 101),
            ("daily_tokens", -1),
            ("monthly_tokens", 10**16),
            ("daily_microusd", 1.5),
            ("monthly_microusd", "7"),
        ],
    )
    async def test_what_it_must_not_hold_is_named(self, store: Database, ben: User, field: str, value: object) -> None:
        users = UserStore(store)
        with pytest.raises(InvalidProfile, match=f"^{field}: ") as caught:
            await users.set(ben.id, UserChanges(**{field: value}))  # type: ignore[arg-type]
        assert caught.value.field == field
        assert await users.get(ben.id) == ben

    async def test_limits_are_inclusive(self, store: Database) -> None:
        user = await UserStore(store).add(
            "x" * 64,
            Role.USER,
            language="x" * 100,
            tone="x" * 100,
            interests=["x" * 60] * INTERESTS,
            age=150,
            flags=dict.fromkeys(Permission, True),
        )
        assert len(user.interests) == INTERESTS
        assert (await UserStore(store).add("ا\u200cب 👩\u200d👧", Role.USER)).display_name == "ا\u200cب 👩\u200d👧"

    async def test_fields_that_do_not_exist(self, store: Database) -> None:
        for field in ("id", "kind", "auto_created", "x; DROP TABLE users"):
            with pytest.raises(InvalidProfile, match="there is no such field"):
                await UserStore(store).add("Eve", Role.USER, **{field: "x"})  # type: ignore[arg-type]

    @given(st.text(max_size=200))
    def test_any_name_of_a_channel_becomes_one(self, text: str) -> None:
        """Invariant: what ``clean_name`` gives is a display name."""
        name = clean_name(text, "Somebody")
        assert checked_profile({"display_name": name}) == {"display_name": name}


class TestLastAdmin:
    @pytest.mark.parametrize(
        "changes", [UserChanges(disabled=True), UserChanges(role=Role.USER), UserChanges(role=Role.CHILD)]
    )
    async def test_stays(self, store: Database, ada: User, ben: User, changes: UserChanges) -> None:
        users = UserStore(store)
        with pytest.raises(LastAdmin):
            await users.set(ada.id, changes)
        with pytest.raises(LastAdmin):
            await users.remove(ada.id)
        assert await users.get(ada.id) == ada
        await users.set(ben.id, changes)
        assert (await users.set(ada.id, UserChanges(role=Role.ADMIN, tone="dry"))).tone == "dry"

    async def test_a_disabled_admin_is_none(self, store: Database, ada: User) -> None:
        users = UserStore(store)
        eve = await users.add("Eve", Role.ADMIN, disabled=True)
        with pytest.raises(LastAdmin):
            await users.remove(ada.id)
        assert await users.remove(eve.id)
        eve = await users.add("Eve", Role.ADMIN)
        assert await users.remove(ada.id)
        with pytest.raises(LastAdmin):
            await users.remove(eve.id)

    async def test_two_cannot_leave_at_once(self, store: Database, ada: User) -> None:
        users = UserStore(store)
        eve = await users.add("Eve", Role.ADMIN)
        outcomes = await asyncio.gather(
            users.remove(ada.id), users.set(eve.id, UserChanges(role=Role.USER)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes].count(LastAdmin) == 1


class TestByName:
    async def test_id_prefix_and_name(self, store: Database, ada: User) -> None:
        users = UserStore(store)
        zoe = await users.add("Zoë Straße", Role.USER)
        for text in (ada.id, ada.id[:-1], ada.id[:-1].upper(), "Ada", " ADA "):
            assert await users.by_name(text) == ada, text
        assert await users.by_name("zOË STRASSE") == zoe
        for text in ("", "Ad", ada.id[:7], "%", "_" * 36, "\udc80", "x' OR 1=1 --"):
            with pytest.raises(UnknownUser):
                await users.by_name(text)

    async def test_several(self, store: Database) -> None:
        users = UserStore(store)
        for user_id in ("00000000-1", "00000000-2"):
            await store.write(
                lambda tx, user_id=user_id: tx.execute(
                    "INSERT INTO users (id, display_name, role, created_at_ms) VALUES (?, 'Sam', 'user', 0)", (user_id,)
                )
            )
        for text in ("00000000", "sam"):
            with pytest.raises(AmbiguousUser):
                await users.by_name(text)
        assert (await users.by_name("00000000-2")).id == "00000000-2"


async def test_a_disabled_person_has_no_way_in(store: Database, ben: User) -> None:
    users, credentials = UserStore(store), CredentialStore(store)
    await IdentityStore(store).link(ben.id, "discord", "2")
    token = (await credentials.create_token(ben.id, "laptop")).token.reveal()
    await users.set(ben.id, UserChanges(disabled=True))
    assert await credentials.lookup(token) is None
    assert [user.id for user in await users.list()] == [ben.id]
    await users.set(ben.id, UserChanges(disabled=False))
    assert await credentials.lookup(token) is not None


async def test_nothing_is_left_of_somebody_who_is_removed(store: Database, ada: User, ben: User) -> None:
    """Every table of people has something of Ben; then no row of any table names him."""
    users, credentials, identities = UserStore(store), CredentialStore(store), IdentityStore(store)
    approvals, groups, guardians = ApprovalStore(store), GroupStore(store), GuardianStore(store)
    kim = await users.add("Kim", Role.CHILD)
    await credentials.create_token(ben.id, "laptop")
    await credentials.set_password(ben.id, Secret("pw"))
    await identities.link(ben.id, "discord", "ben")
    await identities.link(kim.id, "discord", "kim", linked_by=ben.id)
    await LinkCodes(store).create(ben.id, "discord", "ben")
    await guardians.set(kim.id, ben.id)
    asked, _ = await approvals.request("request", kim.id, "a dog", {"text": "a dog"})
    await approvals.decide(asked.id, by=ben.id, approve=True)
    await approvals.request("tool_call", ben.id, "run", {"tool": "run"}, {})
    await groups.join((await groups.create("Kitchen", ben.id)).id, ben.id)

    async def named() -> set[str]:
        tables = await store.fetchall("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
        rows = {row["name"]: await store.fetchall(f"SELECT * FROM {row['name']}") for row in tables}
        return {table for table, found in rows.items() if any(ben.id in map(str, row) for row in found)}

    assert await named() == {
        "users",
        "credentials",
        "identities",
        "link_codes",
        "guardians",
        "approvals",
        "groups",
        "group_members",
    }
    assert await users.remove(ben.id)
    assert await named() == set()
    assert len(await identities.list(kim.id)) == len(await approvals.list()) == len(await groups.list()) == 1
