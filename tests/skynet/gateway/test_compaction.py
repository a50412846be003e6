"""The worker with a real database and a scripted model: what it does, and what it never does."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skynet.gateway.compaction import AT_ONCE, FIRST_PAUSE_MS, LONGEST_PAUSE_MS, SUMMARY_SHARE, Compactor
from skynet.gateway.context import in_turns, opening, readable, within_window
from skynet.gateway.transcript import display_message
from skynet.supervisor import Supervisor
from skynet.tables import TABLES
from skynet_agent.compaction import (
    FIRST_SHARE,
    FULL,
    FULLER,
    KEPT_LAST,
    LEAST_SHARE,
    LEFT,
    MOST_TOLD,
    OVERFULL,
    TOLD_SHARE,
    TURNS,
)
from skynet_agent.events import Finished
from skynet_agent.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    encode_message,
    text_of,
)
from skynet_agent.providers import ModelInfo, Price, ProviderRow
from skynet_agent.requests import ModelRequest
from skynet_agent.router import Router
from skynet_agent.summaries import LONGEST_SUMMARY, MOST_FACTS
from skynet_agent.tokens import message_tokens
from skynet_memory.compactions import CompactionStore, Window
from skynet_memory.database import Database
from skynet_memory.ids import AgentId, EntryId, Role, RunId, SessionKey, UserId, new_id
from skynet_memory.keys import build_key
from skynet_memory.memories import MemoryStore
from skynet_memory.memory_gate import WriteGate
from skynet_memory.migrations import migrate
from skynet_memory.sessions import Session, SessionStore
from skynet_memory.transcripts import Entry, NewEntry, TranscriptStore
from skynet_memory.turns import TurnBegun, TurnStore
from skynet_memory.usage import UsageRecord
from skynet_users.people import UserStore
from tests.support.model_server import ModelServer
from tests.support.polling import until

ROOT = Path(__file__).resolve().parents[3]
WINDOW = 10_000
T0 = 1_795_000_000_000
LIMIT = 10_000
FACT = {"category": "fact", "key": "dog", "value": "The dog of the family is called Rex.", "importance": 0.8}
ANSWER = f"say=They talked about the dog Rex.\nFACTS\n{json.dumps(FACT)}"


@dataclass
class World:
    home: Path
    db: Database
    models: ModelServer
    tasks: Supervisor
    router: Router
    owner: UserId
    other: UserId
    now_ms: int = T0
    asked: list[ModelRequest] = field(default_factory=list)
    failing: Exception | None = None
    hold: asyncio.Event | None = None
    """While it is there and not set, the model does not answer."""
    compactor: Compactor = field(init=False)

    def __post_init__(self) -> None:
        self.sessions, self.transcripts = SessionStore(self.db), TranscriptStore(self.db)
        self.turns, self.compactions = TurnStore(self.db), CompactionStore(self.db)
        self.memories = MemoryStore(self.db)
        self.compactor = self.make()

    def make(self, router: Router | None = None, **values: object) -> Compactor:
        """A worker as after a start: it remembers nothing."""
        given = {"compactions": self.compactions, "tasks": self.tasks, "memories": self.memories, **values}
        return Compactor(
            sessions=self.sessions,
            router=router or self.router,
            ask=self.ask,
            clock=lambda: self.now_ms,
            **given,  # type: ignore[arg-type]
        )

    @property
    def key(self) -> SessionKey:
        return build_key(self.owner, AgentId("main"), "main")

    async def ask(self, owner: UserId, key: SessionKey, request: ModelRequest) -> AssistantMessage:
        assert (owner, key) == (self.owner, self.key)
        self.asked.append(request)
        if self.hold is not None:
            await self.hold.wait()
        if self.failing is not None:
            raise self.failing
        async with aclosing(self.router.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.message
        raise AssertionError("an answer ends")

    async def begin(self, text: str) -> RunId:
        run_id = RunId(new_id())
        message = UserMessage([TextBlock(text)], self.now_ms)
        begun = await self.turns.begin(
            owner=self.owner,
            key=self.key,
            run_id=run_id,
            kind="chat",
            payload=encode_message(message),
            now_ms=self.now_ms,
        )
        assert isinstance(begun, TurnBegun)
        return run_id

    async def finish(self, run_id: RunId, *messages: Message, counted: int = 0) -> None:
        usage = UsageRecord(provider="lab", model="m", input=counted, output=1, cost_microusd=None, at_ms=self.now_ms)
        await self.turns.finish(
            owner=self.owner,
            kind="chat",
            run_id=run_id,
            entries=[
                NewEntry(
                    "tool_result" if isinstance(message, ToolResultMessage) else "message", encode_message(message)
                )
                for message in messages
            ],
            usage=[usage],
            status="ok",
            response=b"{}",
            now_ms=self.now_ms,
        )

    async def turn(self, text: str, answer: str = "ok", *, counted: int = 0) -> None:
        await self.finish(await self.begin(text), said(answer), counted=counted)

    async def fill(self, share: float, turns: int = 10, word: str = "m") -> None:
        """Messages that together fill so much of the window."""
        size = int(share * WINDOW / turns) * 4 - 32
        for number in range(turns):
            await self.turn(f"{word}{number} " + "x" * (size // 2 - 5), "y" * (size // 2))

    async def look(self, compactor: Compactor | None = None) -> None:
        """A turn has ended, and what follows from it is over."""
        (compactor or self.compactor).turn_ended(self.owner, self.key)
        await self.idle()

    async def idle(self) -> None:
        await until(lambda: len(self.tasks) == 0, "all is done")

    async def session(self) -> Session:
        session = await self.sessions.get(self.owner, self.key)
        assert session is not None
        return session

    async def window(self) -> Window:
        return await self.compactions.window(self.owner, (await self.session()).session_id, limit=LIMIT)

    async def everything(self) -> list[Entry]:
        session_id = (await self.session()).session_id
        return await self.transcripts.history(self.owner, session_id, limit=LIMIT, include_covered=True)


class Stuck(CompactionStore):
    """The process dies before it writes."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.reached = asyncio.Event()

    async def cover(self, *_: object, **__: object) -> EntryId | None:
        self.reached.set()
        return await asyncio.get_running_loop().create_future()


class Broken(CompactionStore):
    """What should not happen happens."""

    async def cover(self, *_: object, **__: object) -> EntryId | None:
        raise ValueError("broken")


def said(text: str, *calls: ToolCallBlock) -> AssistantMessage:
    blocks = [TextBlock(text), *calls]
    return AssistantMessage([*blocks], "a", "lab", "m", "toolUse" if calls else "stop", T0)


def texts(entries: Sequence[Entry]) -> list[str]:
    return [text_of(message).split(" ")[0] for entry in entries if (message := readable(entry)) is not None]


def summaries(window: Window) -> list[str]:
    return [each.compaction.summary for each in window.told]


def rows(url: str) -> list[ProviderRow]:
    dear, cheap = Price(input=5_000_000, output=25_000_000), Price(input=100_000, output=400_000)
    return [
        ProviderRow(name="lab", base_url=url, models=(ModelInfo(id="large", context_window=WINDOW, price=dear),)),
        ProviderRow(name="shed", base_url=url, models=(ModelInfo(id="small", context_window=64_000, price=cheap),)),
    ]


@asynccontextmanager
async def open_world(home: Path) -> AsyncIterator[World]:
    async with ModelServer() as models, Database(home / "skynet.db") as db, Supervisor() as tasks:
        await migrate(db, TABLES)
        users = UserStore(db)
        ada, ben = await users.add("Ada", Role.USER), await users.add("Ben", Role.USER)
        models.script = ANSWER
        router = Router(rows(models.url), retries=0)
        async with aclosing(router):
            yield World(home, db, models, tasks, router, ada.id, ben.id)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(tmp_path) as opened:
        yield opened


async def test_below_the_thresholds_no_model_is_asked(world: World) -> None:
    """SP-029."""
    await world.fill(0.79)
    await world.look()
    assert (world.asked, (await world.window()).told) == ([], ())
    assert (await world.session()).compaction_count == 0


async def test_a_full_window_is_summarised_by_the_cheapest_model(world: World) -> None:
    """SP-030, SK-197, BA-058, SP-081: in the background, with nothing removed and the facts remembered."""
    await world.fill(0.81)
    await world.look()
    [request] = world.asked
    assert request.model == "shed/small"
    assert "m0" not in text_of(request.messages[0]).split() and "m1" in text_of(request.messages[0]).split()
    window = await world.window()
    assert summaries(window) == ["They talked about the dog Rex."]
    assert window.told[0].compaction.model == "shed/small"
    assert window.first is not None and texts([window.first]) == ["m0"]
    kept = texts(window.entries)
    assert kept[0].startswith("m") and kept[-2:] == ["m9", "y" * len(kept[-1])]
    everything = await world.everything()
    assert texts(everything)[::2] == [f"m{n}" for n in range(10)]
    covered = [entry for entry in everything if entry.covered_by == window.told[0].id]
    assert len(covered) == 20 - 1 - len(window.entries)
    session = await world.session()
    assert session.compaction_count == 1
    [found] = await world.memories.search(world.owner, "what is the dog called", now_ms=world.now_ms)
    assert (found.memory.value, found.memory.source) == (FACT["value"], "inferred")
    assert await world.memories.count(world.other) == 0
    await world.look()
    assert len(world.asked) == 1, "once is enough"


async def test_a_fuller_one_loses_more(world: World) -> None:
    """SP-031."""
    await world.fill(0.86)
    await world.look()
    assert len((await world.window()).entries) <= 8
    assert len(world.asked) == 1


async def test_a_nearly_full_one_loses_its_oldest_turns_unread(world: World) -> None:
    """SP-032: no model, a marker is left."""
    await world.fill(0.96)
    await world.look()
    window = await world.window()
    assert world.asked == []
    assert summaries(window) == [""]
    assert "messages are left out" in "".join(block.text for block in opening(window) if isinstance(block, TextBlock))
    assert len(await world.everything()) == 21
    assert await world.memories.count(world.owner) == 0


async def test_what_the_provider_counted_decides(world: World) -> None:
    """BA-082."""
    await world.fill(0.5)
    await world.turn("last", counted=8_100)
    await world.look()
    assert len(world.asked) == 1
    assert (await world.session()).total_tokens == 0, "of the shortened conversation nobody has counted yet"


async def test_the_forty_first_turn_reduces_the_oldest_twenty(world: World) -> None:
    """SK-102: to at most ten facts, which are found; archived, not lost."""
    facts = "\n".join(
        json.dumps(FACT | {"key": f"pet {n}", "value": f"Pet number {n} is an animal{n}."}) for n in range(14)
    )
    world.models.script = f"say=Pets.\nFACTS\n{facts}"
    for number in range(TURNS):
        await world.turn(f"q{number}")
        await world.look()
    assert world.asked == []
    await world.turn(f"q{TURNS}")
    await world.look()
    window = await world.window()
    assert texts(window.entries)[::2] == [f"q{number}" for number in range(20, 41)]
    assert window.first is None and summaries(window) == ["Pets."]
    assert await world.memories.count(world.owner) == 10
    assert (await world.memories.search(world.owner, "animal7", now_ms=world.now_ms))[0].memory.key == "pet 7"
    assert texts(await world.everything())[::2] == [f"q{number}" for number in range(41)]
    await world.look()
    assert len(world.asked) == 1


async def test_summaries_stand_in_order_before_what_is_shown(world: World) -> None:
    """SP-034, SP-015: and the beginning stays the same until the next compaction, for the providers' caches."""
    said_first: list[str] = []
    for number, word in enumerate("abc"):
        world.models.script = f"say=Summary {number}."
        await world.fill(0.81 if number == 0 else 0.45, word=word)
        await world.look()
        prompts = []
        for _ in range(2):
            await world.turn("more")
            window = await world.window()
            messages = [message for entry in window.entries if (message := readable(entry)) is not None]
            prompt = within_window(in_turns(messages), system=("s",), window_tokens=WINDOW, opening=opening(window))
            prompts.append(prompt)
            assert isinstance(prompt[0], UserMessage) and isinstance(prompt[1], AssistantMessage)
        first = text_of(prompts[0][0])
        assert prompts[1][: len(prompts[0])] == prompts[0]
        told = [f"Summary {n}." for n in range(number + 1)]
        assert sorted(told, key=first.index) == told and first.index("a0") < first.index("Summary 0.")
        said_first.append(first)
    assert len(set(said_first)) == 3
    assert (await world.session()).compaction_count == 3


async def test_too_many_summaries_are_rolled_up(world: World) -> None:
    """SP-035."""
    session_id = None
    for number in range(MOST_TOLD + 1):
        await world.turn(f"u{number}")
        session_id = (await world.session()).session_id
        live = await world.compactions.live(world.owner, session_id)
        await world.compactions.cover(world.owner, session_id, live, summary=f"part {number}", now_ms=T0)
    assert session_id is not None
    await world.fill(0.85)
    world.models.script = "say=Whole."
    await world.look()
    window = await world.window()
    assert [len(each.messages) for each in world.asked] == [1, 1]
    assert "part 0" in text_of(world.asked[1].messages[0])
    assert summaries(window) == ["Whole.", "Whole."]
    assert window.told[0].compaction.before == 0
    assert window.told[1].compaction.before == window.told[0].compaction.covered


async def test_only_markers_are_rolled_up_without_a_model(world: World) -> None:
    for number in range(MOST_TOLD + 1):
        await world.turn(f"u{number}")
        session_id = (await world.session()).session_id
        live = await world.compactions.live(world.owner, session_id)
        await world.compactions.cover(world.owner, session_id, live, now_ms=T0)
    await world.fill(0.96)
    await world.look()
    assert world.asked == []
    assert summaries(await world.window()) == ["", ""]


async def test_a_failure_changes_nothing_and_is_tried_again_after_a_pause(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.failing = RuntimeError("no budget, and m0 is not for the log")
    await world.fill(0.81)
    before = await world.everything()
    pause_ms, waited_ms = FIRST_PAUSE_MS, 0
    for number in range(1, 4):
        await world.look()
        await world.look()
        assert len(world.asked) == number, "not again before the pause is over"
        world.now_ms += pause_ms - 1
        await world.look()
        assert len(world.asked) == number
        world.now_ms += 1
        waited_ms += pause_ms
        pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
    assert await world.everything() == before
    assert (await world.session()).compaction_count == 0
    assert "m0 is not" not in caplog.text
    world.failing = None
    await world.look()
    assert summaries(await world.window()) == ["They talked about the dog Rex."]


@pytest.mark.parametrize("script", ["fail=500", "fail=429:60", "empty", "say=x cut=1", "say=<think>hm</think>", "drop"])
async def test_an_answer_that_is_none_covers_nothing(world: World, script: str) -> None:
    world.models.script = script
    await world.fill(0.81)
    await world.look()
    assert (await world.window()).told == ()
    assert len(world.asked) == 1


async def test_with_a_failing_model_the_window_does_not_overflow(world: World) -> None:
    world.failing = RuntimeError("down")
    await world.fill(0.9)
    await world.look()
    assert (await world.window()).told == ()
    await world.turn("x" * 2_400)
    await world.look()
    assert summaries(await world.window()) == [""], "at 95 % nobody is asked"
    assert len(world.asked) == 1


async def test_what_arrives_meanwhile_is_not_covered_and_does_not_wait(world: World) -> None:
    """SP-033: the reply is stored while the summary is still being written; nothing of it waits."""
    world.hold = asyncio.Event()
    await world.fill(0.81)
    world.compactor.turn_ended(world.owner, world.key)
    await until(lambda: world.asked)
    run_id = await world.begin("meanwhile")
    await world.finish(run_id, said("at once"))
    world.compactor.turn_ended(world.owner, world.key)
    still = await world.begin("waiting")
    assert (await world.window()).told == ()
    world.hold.set()
    await world.idle()
    assert texts((await world.window()).entries)[-3:] == ["meanwhile", "at", "waiting"]
    assert len(world.asked) == 1
    await world.finish(still, said("done"))
    assert texts((await world.window()).entries)[-1] == "done"


async def test_one_at_a_time_and_then_once_more(world: World) -> None:
    world.hold = asyncio.Event()
    await world.fill(0.81)
    for _ in range(5):
        world.compactor.turn_ended(world.owner, world.key)
    await until(lambda: world.asked)
    assert len(world.tasks) == 1
    await world.fill(0.45, word="n")
    world.compactor.turn_ended(world.owner, world.key)
    assert len(world.tasks) == 1
    world.hold.set()
    await world.idle()
    assert len(world.asked) == 2, "the turns that ended meanwhile are looked at too"


async def test_a_conversation_of_others_is_not_touched(world: World) -> None:
    other = build_key(world.other, AgentId("main"), "main")
    world.compactor.turn_ended(world.other, other)
    world.compactor.turn_ended(world.other, world.key)
    await world.idle()
    assert world.asked == []


async def test_killed_between_the_answer_and_the_write(world: World) -> None:
    """SP-035: nothing is half covered, the next start does it again, and what was learned twice is known once."""
    await world.fill(0.81)

    stuck = Stuck(world.db)
    async with Supervisor() as doomed:
        world.make(compactions=stuck, tasks=doomed).turn_ended(world.owner, world.key)
        async with asyncio.timeout(40):
            await stuck.reached.wait()
    assert await world.memories.count(world.owner) == 1
    window = await world.window()
    assert window.told == () and len(window.entries) == 20
    await world.look(world.make())
    window = await world.window()
    assert summaries(window) == ["They talked about the dog Rex."]
    assert await world.memories.count(world.owner) == 1
    assert len(world.asked) == 2


async def test_a_reset_meanwhile_leaves_both_conversations_alone(world: World) -> None:
    world.hold = asyncio.Event()
    await world.fill(0.81)
    before = await world.session()
    world.compactor.turn_ended(world.owner, world.key)
    await until(lambda: world.asked)
    await world.sessions.reset(world.owner, world.key)
    await world.turn("new")
    world.hold.set()
    await world.idle()
    assert (await world.window()).told == ()
    assert (await world.compactions.window(world.owner, before.session_id, limit=LIMIT)).told == ()


async def test_a_deleted_conversation_is_no_error(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.hold = asyncio.Event()
    await world.fill(0.81)
    world.compactor.turn_ended(world.owner, world.key)
    await until(lambda: world.asked)
    await world.sessions.delete(world.owner, world.key)
    world.hold.set()
    await world.idle()
    world.compactor.turn_ended(world.owner, world.key)
    await world.idle()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_without_a_model_nothing_is_summarised(world: World) -> None:
    """The offline assistant: at 95 % the oldest are left out, and nothing else happens."""
    router = Router([])
    alone = world.make(router)
    async with aclosing(router):
        for number in range(TURNS + 1):
            await world.turn(f"q{number}")
        await world.look(alone)
        assert (await world.window()).told == ()
        await world.turn("x" * 500_000)
        await world.look(alone)
    assert world.asked == []
    assert summaries(await world.window()) == [""]


@pytest.mark.parametrize(("model", "asked"), [("lab/large", "lab/large"), ("gone/model", "shed/small")])
async def test_the_configured_model_summarises(world: World, model: str, asked: str) -> None:
    await world.fill(0.81)
    await world.look(world.make(model=model))
    assert world.asked[0].model == asked


async def test_the_default_model_where_no_price_is_known(world: World) -> None:
    row = ProviderRow(name="lab", base_url=world.models.url, models=(ModelInfo(id="large", context_window=WINDOW),))
    router = Router([row])
    async with aclosing(router):
        await world.fill(0.81)
        await world.look(world.make(router))
    assert world.asked[0].model == ""


async def test_calls_and_results_stay_together(world: World) -> None:
    run_id = await world.begin("do it")
    messages: list[Message] = []
    for number in range(12):
        call = ToolCallBlock(f"c{number}", "read_file", {})
        messages += [said("", call), ToolResultMessage(call.id, "read_file", [TextBlock("r" * 2_700)], False, T0)]
    await world.finish(run_id, *messages, said("done"))
    await world.look()
    window = await world.window()
    first = readable(window.entries[0])
    assert summaries(window) == ["They talked about the dog Rex."]
    assert isinstance(first, AssistantMessage) and first.stop_reason == "toolUse"
    told = [message for entry in window.entries if (message := readable(entry)) is not None]
    assert sum(map(message_tokens, told)) < WINDOW / 2


async def test_a_very_long_conversation_of_before_is_begun_where_it_is_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skynet.gateway.compaction.MOST_ENTRIES", 20)
    for number in range(TURNS):
        await world.turn(f"q{number}")
    await world.look()
    window = await world.window()
    assert summaries(window) == [""] and window.told[0].compaction.covered == 60
    assert texts(window.entries)[::2] == [f"q{number}" for number in range(30, 40)]
    assert world.asked == []


async def test_the_storage_refuses(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.fill(0.81)
    await world.db.write(lambda tx: tx.fetchone("PRAGMA max_page_count = 1"))
    world.models.script = "say=" + "word " * 2_000
    await world.look()
    await world.db.write(lambda tx: tx.fetchone("PRAGMA max_page_count = 1000000"))
    assert (await world.window()).told == ()
    world.now_ms += FIRST_PAUSE_MS
    await world.look()
    assert len((await world.window()).told) == 1


async def test_an_archived_conversation_is_remembered(world: World) -> None:
    """BA-019."""
    await world.turn("my dog")
    before = await world.session()
    world.compactor.archived(world.owner, world.key, before.session_id)
    await world.idle()
    assert world.asked == [], "too little was said"
    await world.turn("is called Rex")
    await world.sessions.reset(world.owner, world.key)
    world.compactor.archived(world.owner, world.key, before.session_id)
    await world.idle()
    assert len(world.asked) == 1
    assert await world.memories.count(world.owner) == 1
    world.failing = RuntimeError("down")
    world.compactor.archived(world.owner, world.key, before.session_id)
    await world.idle()
    world.compactor.archived(world.other, world.key, before.session_id)
    await world.idle()
    assert len(world.asked) == 2


async def test_history_shows_everything(world: World) -> None:
    """What is covered as well, and where it was compacted."""
    await world.fill(0.81)
    await world.look()
    await world.turn("after")
    shown = [message for entry in await world.everything() if (message := display_message(entry)) is not None]
    assert [message["role"] for message in shown] == ["user", "assistant"] * 10 + ["system", "user", "assistant"]
    assert shown[20]["__openclaw"]["kind"] == "compaction"
    assert shown[20]["content"] == [{"type": "text", "text": "Compaction"}]


async def test_when_it_closes_nothing_is_begun(world: World) -> None:
    await world.fill(0.81)
    async with Supervisor() as tasks:
        compactor = world.make(tasks=tasks)
    compactor.turn_ended(world.owner, world.key)
    compactor.turn_ended(world.owner, world.key)
    assert world.asked == []


async def test_what_should_not_happen_asks_no_model_in_a_loop(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.fill(0.81)
    broken = world.make(compactions=Broken(world.db))
    for _ in range(3):
        await world.look(broken)
    assert len(world.asked) == 1
    assert "cannot be compacted" in caplog.text


async def test_more_conversations_than_are_looked_at_wait_for_their_next_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skynet.gateway.compaction.MOST_SESSIONS", 1)
    await world.fill(0.81)
    world.hold = asyncio.Event()
    world.compactor.turn_ended(world.owner, world.key)
    await until(lambda: world.asked)
    world.compactor.turn_ended(world.other, build_key(world.other, AgentId("main"), "main"))
    assert len(world.tasks) == 1
    world.hold.set()
    await world.idle()
    assert len((await world.window()).told) == 1


async def test_what_a_child_is_not_to_be_remembered_for_is_not_learned(world: World) -> None:
    """The write gate decides, whoever gathered it."""

    async def refuses(owner: UserId) -> Callable[[str], str | None]:
        return lambda text: "not of children" if "dog" in text else None

    gated = MemoryStore(world.db, WriteGate(refuses=refuses))
    await world.fill(0.81)
    await world.look(world.make(memories=gated))
    assert len((await world.window()).told) == 1
    assert await world.memories.count(world.owner) == 0


def test_the_documentation_says_so() -> None:
    text = " ".join((ROOT / "docs" / "assistant.md").read_text().split())
    for figure in (
        f"the conversation fills {FULL:.0%}".replace("%", " %"),
        f"| {FULLER:.0%}".replace("%", " %"),
        f"| {OVERFULL:.0%}".replace("%", " %"),
        f"more than {TURNS} turns (`compaction.turns`)",
        f"at most {number_word(MOST_FACTS)} facts",
        f"More than {number_word(MOST_TOLD)} summaries",
        f"at most {LONGEST_SUMMARY:,} characters",
    ):
        assert figure in text, figure
    assert (LEFT["full"], LEFT["overfull"], LEFT["fuller"]) == (0.5, 0.5, 0.3)
    assert (KEPT_LAST, FIRST_SHARE, TOLD_SHARE, LEAST_SHARE, SUMMARY_SHARE) == (3, 1 / 8, 1 / 8, 1 / 20, 16)
    assert (FIRST_PAUSE_MS, LONGEST_PAUSE_MS, AT_ONCE) == (60_000, 3_600_000, 2)


def number_word(number: int) -> str:
    return {8: "eight", 10: "ten"}[number]
