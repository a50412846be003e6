"""What is learned, by which rule, and how it is found."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skynet_memory.database import Database
from skynet_memory.errors import MemoriesRefused, MemoryNotFound, MemoryRefused
from skynet_memory.ids import UserId
from skynet_memory.memories import CATEGORIES, MAX_LEARNED, Category, MemoryChanges, MemoryStore, NewMemory, Source
from skynet_memory.memories_schema import COMPONENT
from skynet_memory.memory_gate import WriteGate
from skynet_memory.migrations import migrate
from skynet_users.schema import COMPONENT as USER_TABLES
from tests.skynet_memory.support import ADA, BEN, T0, add_person


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "skynet.db") as db:
        await migrate(db, [USER_TABLES, COMPONENT])
        await add_person(db, ADA)
        await add_person(db, BEN)
        yield db


@pytest.fixture
def memories(db: Database) -> MemoryStore:
    return MemoryStore(db)


def fact(key: str, value: str, **values: object) -> NewMemory:
    return replace(NewMemory("fact", key, value), **values)  # type: ignore[arg-type]


async def found(
    memories: MemoryStore, query: str, owner: UserId = ADA, *, now_ms: int = T0, **values: object
) -> list[str]:
    return [hit.memory.key for hit in await memories.search(owner, query, now_ms=now_ms, **values)]  # type: ignore[arg-type]


async def test_learn_search_forget(memories: MemoryStore) -> None:
    """SK-135, BA-219."""
    learned = await memories.learn(ADA, fact("dentist", "Emma's dentist is Dr. Lang in Bern"), T0)
    assert learned.outcome == "added" and learned.memory is not None
    assert await found(memories, "dentist Bern") == ["dentist"]
    assert await memories.get(ADA, learned.memory.id) == learned.memory == await memories.by_key(ADA, "Dentist!")
    assert await memories.forget(ADA, learned.memory.id)
    assert await found(memories, "dentist") == []
    assert not await memories.forget(ADA, learned.memory.id)
    assert not await memories.forget(ADA, "dentist")
    assert await memories.count(ADA) == 0


async def test_what_is_stored_comes_back(memories: MemoryStore) -> None:
    """SK-136, SR-015, SR-019, SR-020, BA-220."""
    new = NewMemory(
        "preference",
        " Coffee  order ",
        "black\nno sugar",
        "pattern",
        7.5,
        "inferred",
        -1,
        ("food", "food", " "),
        T0 + 5,
    )
    memory = (await memories.learn(ADA, new, T0)).memory
    assert memory is not None
    assert (memory.category, memory.key, memory.value, memory.kind) == (
        "preference",
        "Coffee order",
        "black\nno sugar",
        "pattern",
    )
    assert (memory.confidence, memory.source, memory.importance, memory.tags) == (1.0, "inferred", 0.0, ("food",))
    assert (memory.created_at_ms, memory.updated_at_ms, memory.expires_at_ms) == (T0, T0, T0 + 5)
    assert (await memories.learn(ADA, fact("x", "y", confidence=float("nan")), T0)).memory.confidence == 0  # type: ignore[union-attr]


SOURCES: list[tuple[Source, float, Source, float, str]] = [
    ("user_said", 0.8, "user_said", 0.7, "kept"),
    ("user_said", 0.8, "user_said", 0.8, "updated"),
    ("user_said", 0.8, "inferred", 0.9, "updated"),
    ("user_said", 0.8, "inferred", 0.5, "kept"),
    ("inferred", 0.9, "user_said", 0.1, "updated"),
    ("inferred", 0.9, "inferred", 0.8, "kept"),
    ("admin_set", 0.1, "user_said", 1.0, "kept"),
    ("admin_set", 0.1, "inferred", 1.0, "kept"),
    ("admin_set", 0.5, "admin_set", 0.4, "kept"),
    ("admin_set", 0.5, "admin_set", 0.5, "updated"),
    ("user_said", 1.0, "admin_set", 0.1, "updated"),
    ("inferred", 1.0, "admin_set", 0.1, "updated"),
]


@pytest.mark.parametrize(("source", "confidence", "new_source", "new_confidence", "outcome"), SOURCES)
async def test_who_is_believed(
    memories: MemoryStore, source: Source, confidence: float, new_source: Source, new_confidence: float, outcome: str
) -> None:
    """SK-136, SR-018: the same key, however it is written."""
    old = fact("favourite colour", "it is green", source=source, confidence=confidence)
    new = fact("Favourite-Colour", "it is blue", source=new_source, confidence=new_confidence)
    await memories.learn(ADA, old, T0)
    learned = await memories.learn(ADA, new, T0 + 1)
    assert learned.outcome == outcome
    assert learned.memory is not None and await memories.by_key(ADA, "favourite_colour") == learned.memory
    assert await memories.count(ADA) == 1
    assert await found(memories, "blue") == (["Favourite-Colour"] if outcome == "updated" else [])
    assert await found(memories, "green") == ([] if outcome == "updated" else ["favourite colour"])


async def test_what_expired_is_neither_found_nor_in_the_way(memories: MemoryStore) -> None:
    """SK-136, BA-221, SR-019."""
    await memories.learn(
        ADA, fact("guest", "Uncle Tom sleeps here", confidence=1, source="admin_set", expires_at_ms=T0 + 10), T0
    )
    assert await found(memories, "uncle", now_ms=T0 + 9) == ["guest"]
    assert await found(memories, "uncle", now_ms=T0 + 10) == []
    assert await memories.sweep(T0 + 9) == 0
    assert (await memories.learn(ADA, fact("guest", "Aunt May", confidence=0), T0 + 10)).outcome == "updated"
    await memories.learn(BEN, fact("guest", "nobody", expires_at_ms=T0 + 10), T0)
    assert await memories.sweep(T0 + 10) == 1
    assert (await memories.count(ADA), await memories.count(BEN)) == (1, 0)


@pytest.mark.parametrize(
    ("key", "value", "outcome"),
    [
        ("morning", "In the morning, ADA likes black coffee!", "unchanged"),
        ("coffee order", "Ada likes black coffee in the morning", "unchanged"),
        ("coffee", "Ada likes black coffee in the morning", "unchanged"),
        ("coffee", "Ada likes black tea in the morning", "updated"),
        ("tea", "Ada likes black tea in the morning", "added"),
        ("no coffee", "Ada does not like black coffee in the morning", "added"),
        ("coffee hour", "Ada likes black coffee in the morning at 7", "added"),
        ("Ben", "black coffee", "added"),
        ("Ben at breakfast", "likes black coffee in the morning", "added"),
    ],
)
async def test_nothing_is_stored_twice(memories: MemoryStore, key: str, value: str, outcome: str) -> None:
    """SP-079, BA-288: the same under another name, in another order; but another word is another fact."""
    await memories.learn(ADA, fact("coffee", "Ada likes black coffee in the morning"), T0)
    learned = await memories.learn(ADA, fact(key, value), T0)
    assert learned.outcome == outcome
    assert (await memories.learn(BEN, fact(key, value), T0)).outcome == "added"


async def test_the_same_name_of_two_people_is_two_facts(memories: MemoryStore) -> None:
    for key in ("wife birthday", "son birthday"):
        assert (await memories.learn(ADA, fact(key, "born on 5 May 1980 in Bern"), T0)).outcome == "added"


async def test_at_most_ten_at_a_time(memories: MemoryStore) -> None:
    """SR-010."""
    learned = await memories.learn_many(ADA, [fact(f"k{number}", f"v{number}") for number in range(12)], T0)
    assert [item.outcome for item in learned] == ["added"] * MAX_LEARNED + ["refused"] * 2
    assert "10" in learned[-1].reason


async def test_update(memories: MemoryStore) -> None:
    memory = (
        await memories.learn(ADA, fact("car", "a red Volvo", source="admin_set", expires_at_ms=T0 + 9), T0)
    ).memory
    other = (await memories.learn(ADA, fact("bike", "a blue bike"), T0)).memory
    assert memory is not None and other is not None
    changed = await memories.update(ADA, memory.id, MemoryChanges(value="a grey Saab", expires_at_ms=None), T0 + 1)
    assert changed == replace(memory, value="a grey Saab", expires_at_ms=None, updated_at_ms=T0 + 1)
    assert await found(memories, "saab") == ["car"]
    assert await found(memories, "volvo") == []
    with pytest.raises(MemoryRefused, match="another memory"):
        await memories.update(ADA, other.id, MemoryChanges(key="CAR"), T0)
    with pytest.raises(MemoryRefused, match="secret"):
        await memories.update(ADA, other.id, MemoryChanges(value="password: hunter2"), T0)
    for owner, memory_id in ((BEN, memory.id), (ADA, "nothing")):
        with pytest.raises(MemoryNotFound):
            await memories.update(owner, memory_id, MemoryChanges(value="x"), T0)


async def test_list_is_paged_newest_first(memories: MemoryStore) -> None:
    for number in range(7):
        await memories.learn(ADA, NewMemory(CATEGORIES[number % 2], f"k{number}", f"v{number}"), T0)
    pages: list[str] = []
    after = ""
    while page := await memories.list(ADA, limit=3, after=after):
        pages += [memory.key for memory in page]
        after = page[-1].id
    assert pages == [f"k{number}" for number in reversed(range(7))]
    assert [memory.key for memory in await memories.list(ADA, category="preference")] == ["k5", "k3", "k1"]
    assert await memories.list(BEN, after=after) == await memories.list(ADA, limit=-1) == []


async def test_export_and_import(memories: MemoryStore) -> None:
    """BA-219."""
    for category in CATEGORIES:
        await memories.learn(ADA, NewMemory(category, f"k {category}", f"v {category} 寿司", tags=("a", "b")), T0)
    items = await memories.export(ADA)
    learned = await memories.import_(BEN, items, T0 + 5)
    assert [item.outcome for item in learned] == ["added"] * 4
    assert [{**item, "updatedAt": 0} for item in await memories.export(BEN)] == [
        {**item, "updatedAt": 0} for item in items
    ]
    assert [item.outcome for item in await memories.import_(BEN, items, T0 + 6)] == ["unchanged"] * 4
    assert len(await found(memories, "寿司", BEN)) == 4


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"category": "fact", "key": "x"}, "value"),
        ({"category": "secret", "key": "x", "value": "y"}, "category"),
        ({"category": "fact", "key": 5, "value": "y"}, "key"),
        ({"category": "fact", "key": "", "value": "y"}, "key"),
        ({"category": "fact", "key": "x", "value": "y" * 2001}, "value"),
        ({"category": "fact", "key": "x", "value": "y", "kind": "z"}, "kind"),
        ({"category": "fact", "key": "x", "value": "y", "confidence": True}, "confidence"),
        ({"category": "fact", "key": "x", "value": "y", "tags": "a"}, "tags"),
        ({"category": "fact", "key": "x", "value": "y", "expiresAt": -1}, "expiresAt"),
        ({"category": "fact", "key": "x", "value": "y", "colour": 1}, "colour"),
        ({"category": "fact", "key": "x", "value": "password: hunter2"}, "value"),
        ("text", "item"),
    ],
)
async def test_an_import_is_all_or_nothing_and_names_what_is_bad(
    memories: MemoryStore, bad: object, field: str
) -> None:
    good = {"category": "fact", "key": "good", "value": "fine"}
    with pytest.raises(MemoriesRefused) as caught:
        await memories.import_(ADA, [good, bad], T0)
    assert [(index, name) for index, name, _ in caught.value.problems] == [(1, field)]
    assert "item 1" in str(caught.value) and "hunter2" not in str(caught.value)
    assert await memories.count(ADA) == 0


@pytest.mark.parametrize(
    ("query", "hit"),
    [
        ("swimming", True), ("SWIM", True), ("swims on Tuesday", True), ("swi", True), ("tue", True),
        ("zurich", True), ("Zürich", True), ("ZÜRICH", True), ("strasse", True), ("straße", True),
        ("水泳", True), ("火曜日", True), ("曜", True), ("日", True), ("수영", True), ("プール", True), ("ﾌﾟｰﾙ", True),
        ("when is the swimming", True), ("hockey", False), ("水球", False), ("", False), ("   ", False), ("!?", False),
        ("fact", False), ("facet", False), ('"', False), ("swim AND", True), ("NEAR(swim", True), ("terms:swim", True),
        ("-swim", True), ("swim*", True), ("(swim", True), ("swim OR hockey", True), ("swim\0", True),
        ("\ud800swim", True),
    ],
)  # fmt: skip
async def test_any_text_is_a_query(memories: MemoryStore, query: str, hit: bool) -> None:
    """SK-134: stems, beginnings, accents, scripts without spaces; what FTS5 takes for syntax is only words."""
    text = "Emma swims every Tuesday in Zürich, Bahnhofstraße. Seestraße. 火曜日に水泳、プール。수영장"
    await memories.learn(ADA, fact("course", text.replace("Bahnhofstraße. Seestraße", "Alte Straße")), T0)
    for number in range(5):
        await memories.learn(ADA, fact(f"other {number}", f"nothing of that kind {number}"), T0)
    assert (await found(memories, query))[:1] == (["course"] if hit else [])
    assert await found(memories, query, BEN) == []


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text() | st.text(alphabet='"*():^-+ ANDORNEAR{}\\\0abé寿'))
async def test_no_query_is_an_error(memories: MemoryStore, query: str) -> None:
    await memories.learn(ADA, fact("abc", "a b c é 寿司 and or near"), T0)
    await memories.learn(BEN, fact("abc", query[:2000] or "x"), T0)
    for hit in await memories.search(ADA, query, now_ms=T0):
        assert hit.memory.owner == ADA


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=60))
async def test_what_is_learned_is_found_by_its_own_words(memories: MemoryStore, text: str) -> None:
    await memories.forget_all(ADA)
    learned = await memories.learn(ADA, fact("key", text), T0)
    if learned.memory is not None and any(char.isalnum() and char < "\u0e00" for char in text):
        assert await found(memories, text) == ["key"]


async def test_importance_and_category(memories: MemoryStore) -> None:
    """BA-220, SR-036."""
    categories: list[Category] = ["fact", "context", "preference"]
    for number, category in enumerate(categories):
        await memories.learn(ADA, NewMemory(category, f"tea {category}", f"tea {number}", importance=number / 2), T0)
    assert await found(memories, "tea") == ["tea preference", "tea context", "tea fact"]
    assert await found(memories, "tea", category="fact") == ["tea fact"]
    assert await found(memories, "tea", limit=1) == ["tea preference"]
    assert await found(memories, "tea", limit=-1) == []


async def test_rare_words_are_found_among_many_common_ones(memories: MemoryStore) -> None:
    items = [
        {"category": "fact", "key": f"note {number}", "value": f"the garden gate number {number}"}
        for number in range(3000)
    ]
    items[17]["value"] = "the garden gate has a xylophone"
    await memories.import_(ADA, items, T0)
    assert (await found(memories, "where at the garden gate is a xylophone"))[0] == "note 17"
    assert (await found(memories, "xyl"))[0] == "note 17"
    assert len(await found(memories, "garden gate", limit=500)) == 50


async def test_a_childs_topics_are_refused(db: Database) -> None:
    async def refuses(owner: UserId) -> object:
        return (lambda text: "health is not remembered" if "asthma" in text else None) if owner == BEN else None

    memories = MemoryStore(db, WriteGate(refuses=refuses))  # type: ignore[arg-type]
    assert (await memories.learn(ADA, fact("health", "has asthma"), T0)).outcome == "added"
    learned = await memories.learn(BEN, fact("health", "has asthma"), T0)
    assert (learned.outcome, learned.reason, learned.memory) == ("refused", "health is not remembered", None)


async def test_versions_grow_with_changes_alone(memories: MemoryStore) -> None:
    """SR-101."""
    assert memories.version(ADA) == 0
    await memories.learn(ADA, fact("a", "b"), T0)
    await memories.learn(ADA, fact("a", "b"), T0)
    await memories.learn(ADA, fact("a", "c", confidence=0.1), T0)
    await memories.forget(ADA, "nothing")
    assert (memories.version(ADA), memories.version(BEN)) == (1, 0)
    await memories.forget(ADA, "a")
    assert memories.version(ADA) == 2


async def test_nothing_of_ada_reaches_ben(memories: MemoryStore) -> None:
    """SK-134."""
    memory = (await memories.learn(ADA, fact("secret plan", "a party on Sunday"), T0)).memory
    assert memory is not None
    await memories.learn(BEN, fact("plan", "nothing planned"), T0)
    assert await memories.get(BEN, memory.id) is None
    assert await memories.by_key(BEN, "secret plan") is None
    assert not await memories.forget(BEN, memory.id)
    assert not await memories.forget(BEN, "secret plan")
    assert await found(memories, "party sunday secret plan", BEN) == ["plan"]
    assert [item["key"] for item in await memories.export(BEN)] == ["plan"]
    assert [item.key for item in await memories.most_important(BEN, 10, T0)] == ["plan"]
    assert await memories.list(BEN, after=memory.id) == []
    await memories.forget_all(BEN)
    assert await memories.count(ADA) == 1


async def test_a_person_takes_everything_along(db: Database, memories: MemoryStore) -> None:
    await memories.learn(ADA, fact("a", "zanzibar"), T0)
    await db.write(lambda tx: tx.execute("DELETE FROM users WHERE id = ?", (ADA,)))
    for table in ("memories", "memory_owners"):
        assert await db.fetchall(f"SELECT 1 FROM {table} WHERE owner = ?", (ADA,)) == []
    rows = await db.fetchall("SELECT rowid FROM memory_words_1 WHERE memory_words_1 MATCH 'zanzibar'")
    assert rows == []
