import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet_memory.database import Database
from skynet_memory.ids import Role
from skynet_memory.migrations import migrate
from skynet_users.approvals import EXPIRY_MS, MAX_REGISTRATIONS, ApprovalStore
from skynet_users.identities import FIND, IdentityStore
from skynet_users.people import User, UserChanges, UserStore
from skynet_users.resolver import CACHED, Known, RefusedSender, UserResolver, Waiting
from skynet_users.schema import COMPONENT

T0 = 1_795_000_000_000


class CountingDatabase(Database):
    """Knows every statement that reaches SQLite."""

    statements: list[str]

    def _open(self) -> sqlite3.Connection:
        connection = super()._open()
        self.statements = []
        connection.set_trace_callback(lambda statement: self.statements.append(statement))
        return connection

    def queries(self) -> int:
        count = sum(statement.lstrip().startswith("SELECT") for statement in self.statements)
        self.statements.clear()
        return count


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountingDatabase]:
    async with CountingDatabase(tmp_path / "skynet.db") as db:
        await migrate(db, [COMPONENT])
        yield db


@pytest.fixture
def resolver(store: Database) -> UserResolver:
    return UserResolver(store, clock=lambda: T0)


async def everybody(store: Database) -> list[str]:
    return [user.display_name for user in await UserStore(store).list()]


class TestRemembering:
    async def test_the_second_time_without_a_query(
        self, store: CountingDatabase, resolver: UserResolver, ben: User
    ) -> None:
        """SK-120"""
        await IdentityStore(store).link(ben.id, "discord", "2")
        store.queries()
        assert await resolver.resolve("discord", "2") == Known(ben)
        assert store.queries() == 1
        assert await resolver.resolve("discord", "2") == Known(ben)
        assert await resolver.user(ben.id) == ben
        assert store.queries() == 1
        assert await resolver.user(ben.id) == ben
        assert store.queries() == 0

    async def test_the_257th_evicts_the_oldest(
        self, store: CountingDatabase, resolver: UserResolver, ben: User
    ) -> None:
        """SK-120"""
        for n in range(CACHED + 1):
            await IdentityStore(store).link(ben.id, "discord", f"n{n}")
        for n in range(CACHED):
            await resolver.resolve("discord", f"n{n}")
        await resolver.resolve("discord", "n0")  # now n1 was used longest ago
        store.queries()
        await resolver.resolve("discord", f"n{CACHED}")
        assert store.queries() == 1
        for n in (0, *range(2, CACHED + 1)):
            await resolver.resolve("discord", f"n{n}")
        assert store.queries() == 0
        await resolver.resolve("discord", "n1")
        assert store.queries() == 1
        assert CACHED == 256

    async def test_so_many_people(self, store: CountingDatabase, resolver: UserResolver) -> None:
        people = [await UserStore(store).add(f"P{n}", Role.USER) for n in range(CACHED + 1)]
        for user in people:
            await resolver.user(user.id)
        store.queries()
        for user in people[1:]:
            assert await resolver.user(user.id) == user
        assert store.queries() == 0
        await resolver.user(people[0].id)
        assert store.queries() == 1

    async def test_every_change_is_seen_at_once(
        self, store: CountingDatabase, resolver: UserResolver, ada: User, ben: User
    ) -> None:
        users, identities = UserStore(store), IdentityStore(store)
        await identities.link(ben.id, "discord", "2")
        await identities.link(ada.id, "discord", "1")

        async def now() -> tuple[object, object]:
            return await resolver.resolve("discord", "2"), await resolver.user(ben.id)

        assert await now() == (Known(ben), ben)
        child = await users.set(ben.id, UserChanges(role=Role.CHILD))
        assert await now() == (Known(child), child)
        await users.set(ben.id, UserChanges(disabled=True))
        assert await now() == (RefusedSender("disabled"), None)
        child = await users.set(ben.id, UserChanges(disabled=False))
        assert await now() == (Known(child), child)
        await identities.relink(ada.id, "discord", "2", linked_by=ada.id)
        assert await now() == (Known(ada), child)
        await identities.relink(ben.id, "discord", "2", linked_by=ada.id)
        assert await now() == (Known(child), child)
        await resolver.resolve("discord", "1")
        store.queries()
        await users.set(ben.id, UserChanges(tone="dry"))
        store.queries()
        assert await resolver.resolve("discord", "1") == Known(ada)
        assert store.queries() == 0  # a change of one person says nothing about another
        assert await identities.unlink(ben.id, "discord", "2")
        assert isinstance((await now())[0], Waiting)
        await identities.link(ben.id, "discord", "3")
        assert isinstance(await resolver.resolve("discord", "3"), Known)
        await users.remove(ben.id)
        assert await resolver.user(ben.id) is None
        assert isinstance(await resolver.resolve("discord", "3"), Waiting)

    @pytest.mark.parametrize("whom", ["ben", "everybody"])
    async def test_forget(
        self, store: CountingDatabase, resolver: UserResolver, ada: User, ben: User, whom: str
    ) -> None:
        await IdentityStore(store).link(ada.id, "discord", "1")
        await IdentityStore(store).link(ben.id, "discord", "2")
        for _ in range(2):
            await resolver.resolve("discord", "1")
            await resolver.resolve("discord", "2")
            await resolver.user(ben.id)
        store.queries()
        resolver.forget(ben.id if whom == "ben" else None)
        await resolver.resolve("discord", "2")
        await resolver.user(ben.id)
        assert store.queries() == 2
        await resolver.resolve("discord", "1")
        assert store.queries() == (0 if whom == "ben" else 1)

    async def test_what_is_forgotten_while_it_is_looked_up_is_not_remembered(
        self, store: CountingDatabase, resolver: UserResolver, ben: User
    ) -> None:
        await IdentityStore(store).link(ben.id, "discord", "2")
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(resolver.resolve("discord", "2"))
            await asyncio.sleep(0)
            resolver.forget(ben.id)
        assert looking.result() == Known(ben)
        store.queries()
        await resolver.resolve("discord", "2")
        assert store.queries() == 1

    @given(
        steps=st.lists(
            st.tuples(st.sampled_from(["resolve", "link", "relink", "unlink", "set", "forget"]), st.integers(0, 3)),
            max_size=20,
        )
    )
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    async def test_it_never_says_what_is_no_longer_so(
        self, store: Database, ada: User, ben: User, steps: list[tuple[str, int]]
    ) -> None:
        """Invariant: the resolver and the table say the same, after any changes in any order."""
        resolver, users, identities = UserResolver(store, unknown="refuse"), UserStore(store), IdentityStore(store)
        await store.write(lambda tx: tx.execute("DELETE FROM identities"))
        for step, n in steps:
            who = (ada, ben)[n % 2]
            if step == "link" and await identities.find("discord", str(n)) is None:
                await identities.link(who.id, "discord", str(n))
            elif step == "relink":
                await identities.relink(who.id, "discord", str(n), linked_by=ada.id)
            elif step == "unlink":
                await identities.unlink(who.id, "discord", str(n))
            elif step == "set":
                await users.set(ben.id, UserChanges(tone=str(n), disabled=n == 3))
            elif step == "forget":
                resolver.forget(who.id)
            for m in range(4):
                user = await identities.find("discord", str(m))
                resolved = await resolver.resolve("discord", str(m))
                if user is None or user.disabled:
                    assert isinstance(resolved, RefusedSender)
                else:
                    assert resolved == Known(user)


class TestStrangers:
    async def test_they_wait(self, store: Database, resolver: UserResolver, ada: User) -> None:
        """SK-125, SK-126"""
        approvals = ApprovalStore(store, clock=lambda: T0)
        first = await resolver.resolve("discord", "7", display_name="Kim\n\u202e")
        assert isinstance(first, Waiting)
        assert first.is_new
        assert await resolver.resolve("discord", "7") == Waiting(first.approval_id, False)
        [approval] = await approvals.list("pending")
        assert approval.id == first.approval_id
        assert approval.subject == {"channel": "discord", "external_id": "7", "display_name": "Kim", "messages": []}
        assert approval.summary == "Kim (discord:7) wants to talk with the assistant"
        assert await everybody(store) == ["Ada"]
        await approvals.add_message(approval.id, "hello?", T0)
        await approvals.decide(approval.id, by=ada.id, approve=True, role=Role.USER)
        known = await resolver.resolve("discord", "7")
        assert isinstance(known, Known)
        assert (known.user.display_name, known.user.role, known.user.needs_welcome) == ("Kim", Role.USER, True)

    async def test_a_denied_one_is_not_asked_about_again(
        self, store: Database, resolver: UserResolver, ada: User, ben: User
    ) -> None:
        waiting = await resolver.resolve("discord", "7")
        assert isinstance(waiting, Waiting)
        await ApprovalStore(store, clock=lambda: T0).decide(waiting.approval_id, by=ada.id, approve=False)
        assert await resolver.resolve("discord", "7") == RefusedSender("denied")
        assert await UserResolver(store, unknown="create").resolve("discord", "7") == RefusedSender("denied")
        await IdentityStore(store).link(ben.id, "discord", "7")
        assert await resolver.resolve("discord", "7") == Known(ben)

    async def test_one_who_waited_in_vain_is_asked_about_again(self, store: Database, resolver: UserResolver) -> None:
        first = await resolver.resolve("discord", "7")
        later = UserResolver(store, clock=lambda: T0 + EXPIRY_MS)
        second = await later.resolve("discord", "7")
        assert isinstance(first, Waiting)
        assert isinstance(second, Waiting)
        assert second.is_new
        assert second.approval_id != first.approval_id

    async def test_too_many_of_them(self, store: Database, resolver: UserResolver) -> None:
        for n in range(MAX_REGISTRATIONS):
            await resolver.resolve("discord", f"n{n}")
        assert await resolver.resolve("discord", "7") == RefusedSender("too_many_waiting")
        assert isinstance(await resolver.resolve("discord", "n0"), Waiting)

    @pytest.mark.parametrize("role", [Role.USER, Role.CHILD])
    async def test_they_become_people(self, store: CountingDatabase, ada: User, role: Any) -> None:
        """SK-126, SK-133, BA-268"""
        resolver = UserResolver(store, unknown="create", new_role=role)
        kim = await resolver.resolve("discord", "7", display_name="Kim")
        lee = await resolver.resolve("telegram", "7", display_name="")
        assert isinstance(kim, Known)
        assert isinstance(lee, Known)
        assert kim.user.id != lee.user.id
        assert (kim.user.display_name, lee.user.display_name) == ("Kim", "telegram 7")
        assert (kim.user.role, kim.user.needs_welcome) == (role, True)
        assert kim.user.content_filter == ("strict" if role is Role.CHILD else "moderate")
        assert len(await everybody(store)) == 3
        store.queries()
        await resolver.resolve("discord", "7")
        assert store.queries() == 0
        [identity] = await IdentityStore(store).list(kim.user.id)
        assert (identity.display_name, identity.linked_by) == ("Kim", "")

    def test_nobody_becomes_an_admin(self, store: Database) -> None:
        """SK-126"""
        with pytest.raises(ValueError, match="admin"):
            UserResolver(store, unknown="create", new_role="admin")  # type: ignore[arg-type]

    async def test_they_are_refused(self, store: Database) -> None:
        resolver = UserResolver(store, unknown="refuse")
        assert await resolver.resolve("discord", "7") == RefusedSender("unknown")
        assert await ApprovalStore(store).list() == []

    @pytest.mark.parametrize("unknown", ["approve", "create"])
    async def test_all_at_once_are_one(self, store: Database, unknown: Any) -> None:
        resolver = UserResolver(store, unknown=unknown)
        met = await asyncio.gather(*[resolver.resolve("discord", "7", display_name="Kim") for _ in range(30)])
        if unknown == "create":
            assert len({each.user.id for each in met if isinstance(each, Known)}) == 1
            assert await everybody(store) == ["Kim"]
        else:
            waiting = [each for each in met if isinstance(each, Waiting)]
            assert len({each.approval_id for each in waiting}) == 1
            assert [each.is_new for each in waiting].count(True) == 1
            assert len(await ApprovalStore(store).list()) == 1

    @pytest.mark.parametrize("steps", range(12))
    @pytest.mark.parametrize("unknown", ["approve", "create"])
    async def test_cancelled_anywhere(self, store: Database, unknown: Any, steps: int) -> None:
        resolver = UserResolver(store, unknown=unknown)
        task = asyncio.get_running_loop().create_task(resolver.resolve("discord", "7"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        first, again = await resolver.resolve("discord", "7"), await resolver.resolve("discord", "7")
        if unknown == "create":
            assert isinstance(first, Known)
            assert first == again
            assert len(await everybody(store)) == 1
        else:
            assert isinstance(first, Waiting)
            assert again == Waiting(first.approval_id, False)
            assert len(await ApprovalStore(store).list()) == 1

    @given(channel=st.text(max_size=80), external_id=st.text(max_size=300), name=st.text(max_size=100))
    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    async def test_any_identity_and_name(self, store: Database, channel: str, external_id: str, name: str) -> None:
        """Invariant: whatever a channel says, somebody is a person and stays the same one, or is refused."""
        resolver = UserResolver(store, unknown="create")
        once = await resolver.resolve(channel, external_id, display_name=name)
        assert await resolver.resolve(channel, external_id, display_name="other") == once
        assert isinstance(once, Known) or once == RefusedSender("not_an_identity")


async def test_a_hundred_thousand_identities(store: CountingDatabase, resolver: UserResolver, ben: User) -> None:
    """BA-267"""
    rows = ((("discord", f"n{n}", ben.id)) for n in range(100_000))
    await store.write(
        lambda tx: tx.executemany(
            "INSERT INTO identities (channel, external_id, owner, display_name, linked_at_ms) VALUES (?, ?, ?, '', 0)",
            rows,
        )
    )
    plan = [row["detail"] for row in await store.fetchall(f"EXPLAIN QUERY PLAN {FIND}", ("discord", "n1"))]
    assert plan[0] == "SEARCH identities USING PRIMARY KEY (channel=? AND external_id=?)"
    assert all("SCAN" not in step for step in plan)
    took = []
    for n in range(0, 100_000, 1000):
        before = time.perf_counter()
        assert isinstance(await resolver.resolve("discord", f"n{n}"), Known)
        took.append(time.perf_counter() - before)
    assert min(took) < 0.001  # the one that a busy machine disturbed least
