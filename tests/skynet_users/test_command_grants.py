"""What people were allowed for good: each one's own, for one place, as words."""

import json
import sqlite3

import pytest

from skynet_memory.database import Database
from skynet_memory.ids import Role, UserId
from skynet_memory.migrations import migrate
from skynet_users.command_grants import MAX_PATTERN, MOST, CommandGrantStore
from skynet_users.command_grants_schema import COMPONENT
from skynet_users.people import UserStore
from skynet_users.schema import COMPONENT as PEOPLE

NOON = 1_800_000_000_000


@pytest.fixture
async def grants(store: Database) -> CommandGrantStore:
    await migrate(store, [PEOPLE, COMPONENT])
    return CommandGrantStore(store)


@pytest.fixture
async def ada(store: Database) -> UserId:
    return (await UserStore(store).add("Ada", Role.USER)).id


@pytest.fixture
async def ben(store: Database) -> UserId:
    return (await UserStore(store).add("Ben", Role.USER)).id


def words(*argv: str) -> str:
    return json.dumps(argv, separators=(",", ":"))


async def test_what_is_allowed_is_the_persons_and_for_one_place(
    grants: CommandGrantStore, ada: UserId, ben: UserId
) -> None:
    await grants.add(ada, [words("git", "push")], host="sandbox", decided_by=ada, now_ms=NOON)
    await grants.add(ada, [words("ls")], host="node", node_id="n1", decided_by=ben, now_ms=NOON + 1)
    assert [each.pattern for each in await grants.of(ada)] == [words("ls"), words("git", "push")]
    both = [words("git", "push"), words("ls"), "other"]
    assert [each.pattern for each in await grants.find(ada, both, "sandbox")] == [words("git", "push")]
    assert [each.pattern for each in await grants.find(ada, both, "node", "n1")] == [words("ls")]
    assert await grants.find(ada, both, "node", "n2") == await grants.find(ada, both, "gateway") == []
    assert await grants.find(ada, [words("git"), '["git", "push"]'], "sandbox") == await grants.find(ada, [], "sandbox")
    assert await grants.of(ben) == await grants.find(ben, both, "sandbox") == []


async def test_the_same_twice_is_one_and_says_who_decided_last(
    grants: CommandGrantStore, ada: UserId, ben: UserId
) -> None:
    (first,) = await grants.add(ada, [words("ls"), words("ls")], host="sandbox", decided_by=ada, now_ms=NOON)
    (again,) = await grants.add(ada, [words("ls")], host="sandbox", decided_by=ben, now_ms=NOON + 5)
    assert (again.id, again.decided_by, again.created_at_ms) == (first.id, ben, NOON + 5)
    assert len(await grants.of(ada)) == 1


async def test_uses_are_counted_for_their_owner_alone(grants: CommandGrantStore, ada: UserId, ben: UserId) -> None:
    (grant,) = await grants.add(ada, [words("ls")], host="sandbox", decided_by=ada, now_ms=NOON)
    assert (grant.uses, grant.last_used_at_ms) == (0, None)
    await grants.used(ben, [grant.id], NOON + 1)
    await grants.used(ada, [grant.id], NOON + 2)
    (grant,) = await grants.of(ada)
    assert (grant.uses, grant.last_used_at_ms) == (1, NOON + 2)


async def test_nobody_removes_anothers(grants: CommandGrantStore, ada: UserId, ben: UserId) -> None:
    (grant,) = await grants.add(ada, [words("ls")], host="sandbox", decided_by=ada, now_ms=NOON)
    assert await grants.remove(ben, grant.id) is False
    assert await grants.remove(ada, grant.id) is True
    assert await grants.remove(ada, grant.id) is False


async def test_of_too_many_the_one_goes_that_was_used_longest_ago(
    grants: CommandGrantStore, ada: UserId, ben: UserId
) -> None:
    await grants.add(ben, [words("his")], host="sandbox", decided_by=ben, now_ms=NOON - 1)
    patterns = [words("run", str(number)) for number in range(MOST)]
    for number, pattern in enumerate(patterns):
        await grants.add(ada, [pattern], host="sandbox", decided_by=ada, now_ms=NOON + number)
    oldest = next(each for each in await grants.of(ada) if each.pattern == patterns[0])
    await grants.used(ada, [oldest.id], NOON + 10_000)
    await grants.add(ada, [words("one", "more")], host="sandbox", decided_by=ada, now_ms=NOON + 20_000)
    kept = {each.pattern for each in await grants.of(ada)}
    assert len(kept) == MOST
    assert patterns[0] in kept and patterns[1] not in kept and words("one", "more") in kept
    assert len(await grants.of(ben)) == 1


@pytest.mark.parametrize("pattern", ["ls -la", "", "{}", '"ls"', "[", "null"])
async def test_the_text_of_a_command_line_is_not_kept(grants: CommandGrantStore, ada: UserId, pattern: str) -> None:
    with pytest.raises(sqlite3.Error):
        await grants.add(ada, [words("fine"), pattern], host="sandbox", decided_by=ada, now_ms=NOON)
    assert await grants.of(ada) == []


async def test_odd_words_come_back_as_they_were(grants: CommandGrantStore, ada: UserId) -> None:
    argv = ("printf", "\udcff", "a\nb", "'; DROP TABLE command_grants; --", "\u202e", "")
    await grants.add(ada, [json.dumps(argv)], host="gateway", decided_by=ada, now_ms=NOON)
    assert tuple(json.loads((await grants.of(ada))[0].pattern)) == argv
    assert len(await grants.find(ada, [json.dumps(argv)], "gateway")) == 1


async def test_a_place_and_a_length_that_cannot_be(grants: CommandGrantStore, ada: UserId) -> None:
    with pytest.raises(ValueError, match="a node, and nothing else, has an id"):
        await grants.add(ada, [words("ls")], host="node", decided_by=ada, now_ms=NOON)
    with pytest.raises(ValueError, match="a node, and nothing else, has an id"):
        await grants.add(ada, [words("ls")], host="sandbox", node_id="n", decided_by=ada, now_ms=NOON)
    with pytest.raises(ValueError, match=f"the limit is {MAX_PATTERN}"):
        await grants.add(ada, [words("x" * MAX_PATTERN)], host="sandbox", decided_by=ada, now_ms=NOON)
    with pytest.raises(sqlite3.IntegrityError):
        await grants.add(UserId("nobody"), [words("ls")], host="sandbox", decided_by=ada, now_ms=NOON)


async def test_they_go_with_the_person(grants: CommandGrantStore, store: Database, ada: UserId) -> None:
    await grants.add(ada, [words("ls")], host="sandbox", decided_by=ada, now_ms=NOON)
    await UserStore(store).remove(ada)
    assert await store.fetchall("SELECT * FROM command_grants", ()) == []
