"""``memory.*``, ``knowledge.*`` and ``history.search``."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet.gateway.dispatch import Dispatcher, collect
from skynet.gateway.memory_access import MemoryAccess
from skynet.methods.history import HistoryMethods
from skynet.methods.knowledge import KnowledgeMethods
from skynet.methods.memory import MemoryMethods
from skynet.tables import TABLES
from skynet_memory.ids import Role, UserId, now_ms
from skynet_memory.knowledge import KnowledgeStore
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_context import ContextCache
from skynet_memory.migrations import migrate
from skynet_memory.search import TranscriptSearch
from skynet_users.caller import Caller
from skynet_users.permissions import Permission, Reach
from tests.skynet.methods.shapes import S1, B, I, N, S, arr, check, obj, one_of
from tests.skynet.methods.world import RefusedError, World, open_world

FIELDS = {
    "id": S1,
    "category": one_of("instruction", "preference", "fact", "context"),
    "key": S1,
    "value": S1,
    "kind": S1,
    "confidence": N,
    "source": one_of("user_said", "inferred", "admin_set"),
    "importance": N,
    "tags": arr(S1),
    "createdAt": I,
    "updatedAt": I,
}
MEMORY = obj(FIELDS, expiresAt=I)
TOPIC_FIELDS = {"id": S1, "topic": S1, "content": S1, "tags": arr(S1), "createdAt": I, "updatedAt": I}
HIT = obj(
    {
        "sessionKey": S1,
        "sessionId": S1,
        "entryId": S1,
        "score": N,
        "entries": arr(obj({"id": S1, "role": one_of("user", "assistant"), "text": S, "timestamp": I, "matched": B})),
    }
)
SHAPES = {
    "memory.search": obj({"memories": arr(obj(FIELDS | {"score": N}, expiresAt=I))}),
    "memory.list": obj({"memories": arr(MEMORY), "total": I}, next=S1),
    "memory.learn": obj({"outcome": one_of("added", "updated", "unchanged", "kept"), "memory": MEMORY}, reason=S1),
    "memory.update": obj({"memory": MEMORY}),
    "memory.forget": obj({"ok": {"const": True}, "forgotten": I}),
    "memory.export": obj({"memories": arr(MEMORY)}, next=S1),
    "memory.import": obj({"added": I, "updated": I, "unchanged": I, "kept": I}),
    "memory.show": obj({"text": S}),
    "knowledge.list": obj({"topics": arr(obj(TOPIC_FIELDS))}, next=S1),
    "knowledge.search": obj({"topics": arr(obj(TOPIC_FIELDS | {"score": N}))}),
    "knowledge.write": obj({"topic": obj(TOPIC_FIELDS)}),
    "knowledge.forget": obj({"ok": {"const": True}}),
    "history.search": obj({"hits": arr(HIT)}),
}


@dataclass
class Scene:
    world: World
    recorded: list[dict[str, Any]]
    members: set[tuple[str, str]]
    """Who (the second) is in which group."""

    async def call(self, caller: Caller, method: str, **params: Any) -> Any:
        result = await self.world.call(caller, method, params)
        check(SHAPES[method], result)
        return result

    async def fails(self, caller: Caller, method: str, **params: Any) -> dict[str, Any]:
        with pytest.raises(RefusedError) as caught:
            await self.world.call(caller, method, params)
        return caught.value.error

    async def learn(self, caller: Caller, key: str, value: str, **more: Any) -> Any:
        return await self.call(caller, "memory.learn", **{"category": "fact", "key": key, "value": value, **more})

    async def found(self, caller: Caller, query: str, **more: Any) -> list[str]:
        result = await self.call(caller, "memory.search", query=query, **more)
        return [memory["key"] for memory in result["memories"]]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_world(tmp_path) as world:
        await migrate(world.db, TABLES)
        recorded: list[dict[str, Any]] = []
        members: set[tuple[str, str]] = set()

        async def record(action: str, **fields: Any) -> None:
            recorded.append({"action": action, **fields})

        async def is_member(group: UserId, person: UserId) -> bool:
            return (group, person) in members

        memories = MemoryStore(world.db)
        context = ContextCache(memories)
        access = MemoryAccess(
            person=world.users.get,
            is_member=is_member,
            record=record,
            broadcaster=world.broadcaster,
            system_events=world.events,
        )
        table = collect(
            MemoryMethods(memories, access, prompt_text=lambda owner: context.render(owner, now_ms())),
            KnowledgeMethods(KnowledgeStore(world.db), access),
            HistoryMethods(TranscriptSearch(world.db)),
        )
        yield Scene(replace(world, dispatcher=Dispatcher(table, world.tasks)), recorded, members)


@pytest.fixture
def user(scene: Scene) -> Caller:
    return scene.world.user


@pytest.fixture
def admin(scene: Scene) -> Caller:
    return replace(scene.world.admin, display_name="Ada")


async def test_learn_search_forget(scene: Scene, user: Caller) -> None:
    """SK-051, SK-135, BA-219: learn, search finds it, forget, search is empty, a second forget is NOT_FOUND."""
    learned = await scene.learn(user, "bike", "a blue Brompton")
    assert learned["outcome"] == "added"
    memory = learned["memory"]
    assert (memory["confidence"], memory["source"], memory["kind"], memory["importance"]) == (
        0.8,
        "user_said",
        "note",
        0.5,
    )
    assert await scene.found(user, "Brompton") == ["bike"]
    assert await scene.call(user, "memory.forget", key="bike") == {"ok": True, "forgotten": 1}
    assert await scene.found(user, "Brompton") == []
    for name in ({"key": "bike"}, {"id": memory["id"]}):
        error = await scene.fails(user, "memory.forget", **name)
        assert error["details"]["code"] == "NOT_FOUND"


async def test_the_five_operations(scene: Scene, user: Caller) -> None:
    """BA-219: write, read, search, list, delete by key."""
    memory = (await scene.learn(user, "bike", "a blue Brompton"))["memory"]
    [listed] = (await scene.call(user, "memory.list"))["memories"]
    assert listed == memory
    changed = (await scene.call(user, "memory.update", id=memory["id"], value="a red one", tags=["sport"]))["memory"]
    assert (changed["id"], changed["key"], changed["value"], changed["tags"]) == (
        memory["id"],
        "bike",
        "a red one",
        ["sport"],
    )
    assert await scene.found(user, "Brompton") == []
    assert await scene.found(user, "red") == ["bike"]
    await scene.call(user, "memory.forget", id=memory["id"])
    assert (await scene.call(user, "memory.list")) == {"memories": [], "total": 0}
    error = await scene.fails(user, "memory.update", id=memory["id"], value="x")
    assert error["details"]["code"] == "NOT_FOUND"


@pytest.mark.parametrize(("given", "stored"), [(7, 1), (-1, 0), (0.25, 0.25)])
async def test_confidence_is_clamped(scene: Scene, user: Caller, given: float, stored: float) -> None:
    """SK-051."""
    assert (await scene.learn(user, "bike", "blue", confidence=given))["memory"]["confidence"] == stored


async def test_the_limit(scene: Scene, user: Caller) -> None:
    """SK-051: default 10, max 50."""
    items = [{"category": "fact", "key": f"bike {n}", "value": f"bike number {n}"} for n in range(60)]
    assert (await scene.call(user, "memory.import", memories=items))["added"] == 60
    assert len(await scene.found(user, "bike")) == 10
    assert len(await scene.found(user, "bike", limit=7)) == 7
    assert len(await scene.found(user, "bike", limit=1000)) == 50


@pytest.mark.parametrize("method", ["memory.search", "knowledge.search", "history.search"])
async def test_an_empty_query_is_refused(scene: Scene, user: Caller, method: str) -> None:
    """SK-051."""
    for params in ({"query": ""}, {"query": " \n"}, {}):
        error = await scene.fails(user, method, **params)
        assert error["message"].startswith(f"invalid {method} params: ")
        assert error["details"]["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("memory.learn", {"category": "secret", "key": "a", "value": "b"}),
        ("memory.learn", {"category": "fact", "key": "", "value": "b"}),
        ("memory.learn", {"category": "fact", "key": "a", "value": "b" * 2001}),
        ("memory.learn", {"category": "fact", "key": "a", "value": "b", "surprise": 1}),
        ("memory.learn", {"category": "fact", "key": "a", "value": "b", "tags": ["x"] * 21}),
        ("memory.forget", {}),
        ("memory.forget", {"id": "a", "key": "b"}),
        ("memory.forget", {"all": False}),
        ("memory.list", {"limit": 0}),
        ("memory.import", {"memories": [{"category": "fact", "key": "a"}]}),
        ("memory.import", {"memories": [{"category": "fact", "key": "a", "value": "b"}] * 1001}),
        ("knowledge.write", {"topic": "a", "content": "b" * 8001}),
        ("history.search", {"query": "a", "window": 11}),
    ],
)
async def test_wrong_params(scene: Scene, user: Caller, method: str, params: dict[str, Any]) -> None:
    error = await scene.fails(user, method, **params)
    assert error["details"]["code"] == "INVALID_PARAMS"
    assert (await scene.call(user, "memory.list"))["total"] == 0


async def test_what_the_gate_refuses_is_told_without_it(scene: Scene, user: Caller) -> None:
    secret = "sk-live-0123456789abcdef0123"
    errors = [
        await scene.fails(user, "memory.learn", category="fact", key="key", value=secret),
        await scene.fails(user, "knowledge.write", topic="key", content=secret),
        await scene.fails(
            user,
            "memory.import",
            memories=[
                {"category": "fact", "key": "fine", "value": "fine"},
                {"category": "fact", "key": "key", "value": secret},
            ],
        ),
    ]
    assert all("secret" in error["message"] and secret not in error["message"] for error in errors)
    assert "item 1" in errors[2]["message"]
    assert (await scene.call(user, "memory.list"))["total"] == 0


async def test_what_is_surer_stays(scene: Scene, user: Caller) -> None:
    await scene.learn(user, "bike", "blue", confidence=0.9)
    kept = await scene.learn(user, "bike", "red", confidence=0.4)
    assert (kept["outcome"], kept["memory"]["value"]) == ("kept", "blue")
    assert kept["reason"]
    assert (await scene.learn(user, "bike", "red", confidence=0.95))["outcome"] == "updated"


async def test_pages(scene: Scene, user: Caller) -> None:
    items = [
        {"category": "fact" if n % 2 else "preference", "key": f"bike {n}", "value": f"number {n}"} for n in range(450)
    ]
    await scene.call(user, "memory.import", memories=items)
    for method, more in (("memory.list", {"limit": 200}), ("memory.export", {})):
        keys: list[str] = []
        page: dict[str, Any] = {"next": None}
        while "next" in page:
            page = await scene.call(user, method, **more, **({"after": page["next"]} if page["next"] else {}))
            keys += [memory["key"] for memory in page["memories"]]
        assert sorted(keys) == sorted(item["key"] for item in items)
    facts = await scene.call(user, "memory.list", category="fact", limit=3)
    assert (len(facts["memories"]), facts["total"]) == (3, 450)
    assert {memory["category"] for memory in facts["memories"]} == {"fact"}


async def test_what_is_exported_can_be_imported(scene: Scene, user: Caller, admin: Caller) -> None:
    """BA-219."""
    await scene.learn(user, "bike", "blue\nand old", tags=["sport"], importance=0.9, expiresAt=now_ms() + 10**9)
    await scene.learn(user, "tone", "be brief", category="instruction", confidence=0.6, kind="guard")
    exported = (await scene.call(user, "memory.export"))["memories"]
    assert await scene.call(admin, "memory.import", memories=exported) == {
        "added": 2,
        "updated": 0,
        "unchanged": 0,
        "kept": 0,
    }

    def told(memories: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [{name: memory[name] for name in memory if name not in ("id", "updatedAt")} for memory in memories]
        return sorted(kept, key=lambda memory: memory["key"])

    assert told((await scene.call(admin, "memory.export"))["memories"]) == told(exported)
    again = await scene.call(user, "memory.import", memories=exported)
    assert (again["added"], again["updated"], again["unchanged"]) == (0, 0, 2)


async def test_nobody_makes_their_own_words_an_admins(scene: Scene, user: Caller, admin: Caller) -> None:
    item = {"category": "fact", "key": "bike", "value": "blue", "source": "admin_set"}
    for caller, source in ((user, "user_said"), (admin, "admin_set")):
        await scene.call(caller, "memory.import", memories=[item])
        [memory] = (await scene.call(caller, "memory.list"))["memories"]
        assert memory["source"] == source


async def test_forgetting_everything(scene: Scene, user: Caller, admin: Caller) -> None:
    for n in range(3):
        await scene.learn(user, f"bike {n}", f"number {n}")
    await scene.learn(admin, "car", "red")
    assert await scene.call(user, "memory.forget", all=True) == {"ok": True, "forgotten": 3}
    assert await scene.call(user, "memory.forget", all=True) == {"ok": True, "forgotten": 0}
    assert (await scene.call(admin, "memory.list"))["total"] == 1


async def test_show_is_what_the_prompt_holds(scene: Scene, user: Caller) -> None:
    """SQ-048."""
    assert await scene.call(user, "memory.show") == {"text": ""}
    await scene.learn(user, "bike", "blue")
    await scene.learn(user, "tone", "be brief", category="instruction")
    text = (await scene.call(user, "memory.show"))["text"]
    assert text == "Instructions:\n- tone: be brief\nFacts:\n- bike: blue"


# Other people's


READS = (
    ("memory.search", {"query": "Brompton"}),
    ("memory.list", {}),
    ("memory.export", {}),
    ("memory.show", {}),
    ("knowledge.list", {}),
    ("knowledge.search", {"query": "Brompton"}),
)
CHANGES = (
    ("memory.learn", {"category": "fact", "key": "car", "value": "red"}),
    ("memory.import", {"memories": []}),
    ("knowledge.write", {"topic": "car", "content": "red"}),
)
ERASES = (("memory.forget", {"key": "bike"}), ("memory.forget", {"all": True}), ("knowledge.forget", {"topic": "bike"}))


async def test_own_memory_is_nobody_elses(scene: Scene, user: Caller, admin: Caller) -> None:
    """SK-134: A's memories never match B's query."""
    await scene.learn(user, "bike", "a blue Brompton")
    await scene.call(user, "knowledge.write", topic="bike", content="a blue Brompton")
    for caller in (admin, scene.world.child):
        assert await scene.found(caller, "Brompton") == []
        assert (await scene.call(caller, "memory.list"))["total"] == 0
        assert (await scene.call(caller, "memory.show")) == {"text": ""}
        assert (await scene.call(caller, "knowledge.list")) == {"topics": []}
        assert (await scene.call(caller, "knowledge.search", query="Brompton")) == {"topics": []}
    assert scene.recorded == []


@pytest.mark.parametrize(("method", "params"), [*READS, *CHANGES, *ERASES])
async def test_only_who_may_reach_everybodys(
    scene: Scene, user: Caller, admin: Caller, method: str, params: dict[str, Any]
) -> None:
    """Whether there is such a person is not told to those who may not reach anybody."""
    await scene.learn(user, "bike", "a blue Brompton")
    for caller in (scene.world.child, replace(user, user_id=admin.user_id, role=Role.USER)):
        told = [await scene.fails(caller, method, **params, userId=owner) for owner in (user.user_id, "nobody")]
        assert told[0] == told[1]
        assert told[0]["details"]["code"] == "FORBIDDEN"
    error = await scene.fails(admin, method, **params, userId="nobody")
    assert error["details"]["code"] == "NOT_FOUND"
    assert scene.recorded == []
    assert (await scene.call(user, "memory.list"))["total"] == 1


@pytest.mark.parametrize(
    ("action", "method", "params"),
    [
        *(("read", *case) for case in READS),
        *(("changed", *case) for case in CHANGES),
        *(("erased", *case) for case in ERASES),
    ],
)
async def test_who_reaches_anothers_is_recorded_and_told(
    scene: Scene, user: Caller, admin: Caller, action: str, method: str, params: dict[str, Any]
) -> None:
    """Admins reading another's memory: only by an explicit call, audited and visible to that person."""
    await scene.learn(user, "bike", "a blue Brompton")
    await scene.call(user, "knowledge.write", topic="bike", content="a blue Brompton")
    theirs, own = scene.world.listen(user), scene.world.listen(admin)
    await scene.call(admin, method, **params, userId=user.user_id)
    [row] = scene.recorded
    assert (row["action"], row["actor"], row["subject"]) == (f"memory.{action}", admin.user_id, user.user_id)
    assert row["details"] == {"method": method} | ({"everything": True} if "all" in params else {})
    [event] = theirs.named("memory.read")
    assert event["payload"] == {
        "ts": event["payload"]["ts"],
        "action": action,
        "method": method,
        "by": admin.user_id,
        "byName": "Ada",
    }
    assert own.events == []
    [text] = scene.world.events.queued(user.user_id)
    assert "Ada" in text
    assert method in text
    assert "Brompton" not in text


async def test_what_an_admin_sets_for_another_stays(scene: Scene, user: Caller, admin: Caller) -> None:
    set_ = await scene.learn(admin, "bedtime", "at eight", userId=user.user_id)
    assert set_["memory"]["source"] == "admin_set"
    assert (await scene.learn(user, "bedtime", "at ten", confidence=1))["outcome"] == "kept"
    assert (await scene.call(user, "memory.list"))["memories"][0]["value"] == "at eight"


async def test_nobody_puts_words_into_an_admins_mouth(scene: Scene, user: Caller, admin: Caller) -> None:
    """One may erase what an admin set; changed, it would still say that an admin did."""
    set_ = (await scene.learn(admin, "bedtime", "at eight", userId=user.user_id))["memory"]
    with pytest.raises(RefusedError, match="an admin has set it"):
        await scene.call(user, "memory.update", id=set_["id"], value="at ten")
    assert [each["value"] for each in (await scene.call(user, "memory.list"))["memories"]] == ["at eight"]
    changed = await scene.call(admin, "memory.update", id=set_["id"], value="at nine", userId=user.user_id)
    assert changed["memory"]["source"] == "admin_set"
    assert (await scene.call(user, "memory.forget", id=set_["id"]))["ok"]


async def test_own_erasing_is_recorded_and_nobody_is_told(scene: Scene, user: Caller) -> None:
    await scene.learn(user, "bike", "blue")
    listening = scene.world.listen(user)
    await scene.call(user, "memory.forget", key="bike")
    assert [row["action"] for row in scene.recorded] == ["memory.erased"]
    assert listening.events == []
    assert scene.world.events.queued(user.user_id) == []


async def test_a_groups_memory_is_its_members(scene: Scene, user: Caller, admin: Caller) -> None:
    """BA-264."""
    group = (await scene.world.users.add("The house", Role.USER)).id
    scene.members.add((group, user.user_id))
    learned = await scene.learn(user, "bins", "Thursday", userId=group)
    assert learned["memory"]["source"] == "user_said"
    assert await scene.found(user, "Thursday", userId=group) == ["bins"]
    assert await scene.found(user, "Thursday") == []
    assert scene.recorded == []
    error = await scene.fails(scene.world.child, "memory.search", query="Thursday", userId=group)
    assert error["details"]["code"] == "FORBIDDEN"


async def test_without_the_permission_not_even_the_own(scene: Scene, user: Caller) -> None:
    nothing = replace(user, grants={Permission.MEMORY_READ: Reach.NONE, Permission.MEMORY_WRITE: Reach.NONE})
    for method, params in (*READS, *CHANGES, *ERASES):
        assert (await scene.fails(nothing, method, **params))["details"]["code"] == "FORBIDDEN"


# Knowledge and history


async def test_topics(scene: Scene, user: Caller) -> None:
    """SK-103: write, search by word, rewrite replaces."""
    written = await scene.call(user, "knowledge.write", topic="Router", content="Hold the button", tags=["network"])
    assert written["topic"]["tags"] == ["network"]
    assert [topic["topic"] for topic in (await scene.call(user, "knowledge.search", query="button"))["topics"]] == [
        "Router"
    ]
    await scene.call(user, "knowledge.write", topic="router", content="Pull the plug")
    assert (await scene.call(user, "knowledge.search", query="button"))["topics"] == []
    [topic] = (await scene.call(user, "knowledge.list"))["topics"]
    assert topic["content"] == "Pull the plug"
    await scene.call(user, "knowledge.write", topic="Zebra", content="stripes")
    page = await scene.call(user, "knowledge.list", limit=1)
    assert [topic["topic"] for topic in page["topics"]] == ["router"]
    page = await scene.call(user, "knowledge.list", limit=5, after=page["next"])
    assert [topic["topic"] for topic in page["topics"]] == ["Zebra"]
    assert await scene.call(user, "knowledge.forget", topic="router") == {"ok": True}
    error = await scene.fails(user, "knowledge.forget", topic="router")
    assert error["details"]["code"] == "NOT_FOUND"


async def test_history_is_searched_by_its_owner_alone(scene: Scene, user: Caller, admin: Caller) -> None:
    """SP-065, SQ-086."""
    await scene.world.turn(user, "main", "the plumber comes on Friday", "noted")
    await scene.world.turn(user, "other", "hello", "hello")
    [hit] = (await scene.call(user, "history.search", query="plumber"))["hits"]
    assert hit["sessionKey"] == "agent:main:main"
    assert [(entry["role"], entry["text"], entry["matched"]) for entry in hit["entries"]] == [
        ("user", "the plumber comes on Friday", True),
        ("assistant", "noted", False),
    ]
    assert hit["entryId"] == hit["entries"][0]["id"]
    [hit] = (await scene.call(user, "history.search", query="plumber", window=0))["hits"]
    assert len(hit["entries"]) == 1
    assert await scene.call(admin, "history.search", query="plumber") == {"hits": []}
    error = await scene.fails(admin, "history.search", query="plumber", userId=user.user_id)
    assert error["details"]["code"] == "INVALID_PARAMS"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=40), key=st.text(max_size=40), value=st.text(max_size=40))
async def test_any_text_is_answered_or_refused(scene: Scene, query: str, key: str, value: str) -> None:
    user = scene.world.user
    for method, params in (
        ("memory.learn", {"category": "fact", "key": key, "value": value}),
        ("memory.search", {"query": query}),
        ("history.search", {"query": query}),
        ("knowledge.write", {"topic": key, "content": value}),
        ("knowledge.search", {"query": query}),
        ("memory.forget", {"key": key}),
        ("knowledge.forget", {"topic": key}),
    ):
        try:
            await scene.call(user, method, **params)
        except RefusedError as refused:
            assert refused.error["details"]["code"] in ("INVALID_PARAMS", "NOT_FOUND")
