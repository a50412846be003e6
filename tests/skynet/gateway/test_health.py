"""The health board: when a snapshot is made anew, who waits for it, and who is told of it."""

import asyncio
import json

import msgspec

from skynet.gateway.health import HealthBoard
from skynet.gateway.heartbeat import Heartbeats
from skynet_memory.database import Database
from skynet_memory.ids import AgentId, UserId
from skynet_memory.sessions import SessionStore
from tests.skynet.methods import shapes
from tests.skynet.methods.conftest import world
from tests.skynet.methods.world import World, caller_of, node_of

__all__ = ["world"]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def board_of(
    world: World,
    clock: Clock,
    *,
    heartbeats: Heartbeats | None = None,
    sessions: SessionStore | None = None,
    max_people: int = 100,
) -> HealthBoard:
    return HealthBoard(
        sessions=sessions or world.sessions,
        heartbeats=heartbeats or world.heartbeats,
        broadcaster=world.broadcaster,
        versions=world.versions,
        tasks=world.tasks,
        store_path="db",
        agent_name="Ada",
        max_people=max_people,
        clock=clock,
        now=lambda: int(clock.now_s * 1000),
    )


async def settled(world: World) -> None:
    """Wait until no refresh runs any more."""
    async with asyncio.timeout(40):
        while len(world.tasks):  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0)


async def test_when_a_snapshot_is_made_anew(world: World) -> None:
    clock = Clock()
    board = board_of(world, clock)
    first = board.current(world.admin)
    assert not isinstance(first, msgspec.Raw)
    body = bytes(await first)
    clock.now_s += 0.9
    assert bytes(at_once(board, world)) == body and len(world.tasks) == 0
    clock.now_s += 0.1
    assert bytes(at_once(board, world)) == body  # the old one, while one refresh runs
    assert bytes(at_once(board, world)) == body and len(world.tasks) == 1
    await settled(world)
    assert json.loads(bytes(at_once(board, world)))["ts"] == 1_001_000
    clock.now_s += 60
    assert not isinstance(waiting := board.current(world.admin), msgspec.Raw)  # too old to be answered
    assert json.loads(bytes(await waiting))["ts"] == 1_061_000


def at_once(board: HealthBoard, world: World) -> msgspec.Raw:
    answer = board.current(world.admin)
    assert isinstance(answer, msgspec.Raw)
    return answer


async def test_those_who_wait_share_one_snapshot(world: World) -> None:
    board = board_of(world, Clock())
    answers = [board.fresh(world.admin) for _ in range(50)]
    bodies = await asyncio.gather(*answers)
    assert len({bytes(body) for body in bodies}) == 1 and len({id(body) for body in bodies}) == 1


async def test_a_waiter_that_leaves_takes_nothing_down(world: World) -> None:
    board = board_of(world, Clock())
    leaving = asyncio.create_task(board.fresh(world.admin))
    staying = asyncio.create_task(board.fresh(world.admin))
    await asyncio.sleep(0)
    leaving.cancel()
    shapes.check(shapes.HEALTH, json.loads(bytes(await staying)))


async def test_health_is_published_to_its_person_when_it_changes(world: World) -> None:
    clock = Clock()
    board = board_of(world, clock)
    mine, theirs, node = world.listen(world.admin), world.listen(world.user), world.listen(node_of(world.admin))
    board.client_connected(world.admin)
    await settled(world)
    (event,) = mine.named("health")
    shapes.check(shapes.HEALTH, event["payload"])
    assert event["stateVersion"] == {"presence": 1, "health": 2}
    clock.now_s += 2
    board.client_connected(world.admin)
    await settled(world)
    assert len(mine.named("health")) == 1  # nothing is new
    await world.turn(world.admin)
    board.client_connected(world.admin)
    await settled(world)
    assert [e["payload"]["sessions"]["count"] for e in mine.named("health")] == [0, 1]
    assert mine.named("health")[-1]["stateVersion"]["health"] == 3
    assert theirs.events == [] and node.events == []


async def test_every_interval_everybody_connected_gets_theirs(world: World) -> None:
    clock = Clock()
    board = board_of(world, clock)
    await world.turn(world.admin)
    mine, theirs = world.listen(world.admin), world.listen(world.user)
    task = asyncio.create_task(board.keep_fresh(interval_s=0.001))
    try:
        async with asyncio.timeout(40):
            while len(mine.named("health")) < 3 or len(theirs.named("health")) < 3:
                clock.now_s += 1
                await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert {e["payload"]["sessions"]["count"] for e in mine.named("health")} == {1}
    assert {e["payload"]["sessions"]["count"] for e in theirs.named("health")} == {0}


class CountingSessions(SessionStore):
    """Notes each read."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.reads = 0

    async def count(self, owner: UserId, agent_id: AgentId | None = None) -> int:
        self.reads += 1
        return await super().count(owner, agent_id)


async def test_a_refresh_without_change_reads_nothing(world: World) -> None:
    """What it costs to be asked does not depend on what is stored: the database is read only after a change."""
    sessions = CountingSessions(world.db)
    board = board_of(world, Clock(), sessions=sessions)
    for _ in range(3):
        await board.fresh(world.admin)
    assert sessions.reads == 1
    await world.turn(world.admin)
    await board.fresh(world.admin)
    assert sessions.reads == 2


async def test_latest_for_hello(world: World) -> None:
    board = board_of(world, Clock())
    assert bytes(board.latest(world.admin)) == b"{}"
    await board.fresh(world.admin)
    shapes.check(shapes.HEALTH, json.loads(bytes(board.latest(world.admin))))
    assert bytes(board.latest(world.user)) == b"{}"


async def test_snapshots_are_bounded(world: World) -> None:
    board = board_of(world, Clock(), max_people=3)
    people = [caller_of((await world.users.add(f"p{i}", world.user.role)).id, world.user.role) for i in range(5)]
    for person in people:
        await board.fresh(person)
    assert list(board._snapshots) == [person.user_id for person in people[2:]]


async def test_heartbeats_show(world: World) -> None:
    board = board_of(world, Clock(), heartbeats=Heartbeats(every_ms=1_800_000))
    result = json.loads(bytes(await board.fresh(world.admin)))
    shapes.check(shapes.HEALTH, result)
    assert result["heartbeatSeconds"] == 1800
    assert (result["agents"][0]["heartbeat"]["every"], result["agents"][0]["heartbeat"]["enabled"]) == ("30m", True)
