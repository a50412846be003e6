"""``sessions.*`` against real stores: shapes, texts, and that nobody reaches another person's sessions."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from skynet.gateway.dispatch import Dispatcher, collect
from skynet.methods import sessions as module
from skynet.methods.sessions import SessionMethods
from skynet_agent.messages import TextBlock, ToolResultMessage, encode_message
from skynet_memory.compactions import CompactionStore
from skynet_memory.ids import SessionKey, UserId
from skynet_memory.sessions import SessionQuery
from tests.skynet.methods import shapes
from tests.skynet.methods.world import RefusedError, World, key_of


async def test_list_of_nothing(world: World) -> None:
    result = await world.call(world.admin, "sessions.list")
    shapes.check(shapes.SESSIONS_LIST, result)
    assert (result["count"], result["sessions"]) == (0, [])
    assert result["defaults"] == {"modelProvider": "mock", "model": "mock-1", "contextTokens": 128_000}


async def test_list_row(world: World) -> None:
    session = await world.turn(
        world.admin, text="what is up?", label="openclaw-tui", provider="webchat", surface="webchat", chatType="direct"
    )
    params = {"includeDerivedTitles": True, "includeLastMessage": True, "includeGlobal": False}
    result = await world.call(world.admin, "sessions.list", params)
    shapes.check(shapes.SESSIONS_LIST, result)
    assert result["sessions"] == [
        {
            "key": "agent:main:main",
            "kind": "direct",
            "updatedAt": session.updated_at_ms,
            "sessionId": session.session_id,
            "systemSent": True,
            "abortedLastRun": False,
            "totalTokensFresh": True,
            "displayName": "openclaw-tui",
            "chatType": "direct",
            "origin": {"label": "openclaw-tui", "provider": "webchat", "surface": "webchat", "chatType": "direct"},
            "inputTokens": 100,
            "outputTokens": 20,
            "totalTokens": session.total_tokens,
            "modelProvider": "mock",
            "model": "mock-1",
            "contextTokens": 128_000,
            "deliveryContext": {"channel": "webchat"},
            "lastChannel": "webchat",
            "derivedTitle": "what is up?",
            "lastMessagePreview": "hello",
        }
    ]


async def test_list_is_newest_first_and_filters(world: World) -> None:
    for name in ("one", "two", "discord:group:7", "cron:j:run:1"):
        await world.turn(world.admin, name)
    await world.call(world.admin, "sessions.patch", {"key": "one", "label": "Groceries"})

    async def names(**params: Any) -> list[str]:
        result = await world.call(world.admin, "sessions.list", params)
        shapes.check(shapes.SESSIONS_LIST, result)
        assert result["count"] == len(result["sessions"])
        return [row["key"].removeprefix("agent:main:") for row in result["sessions"]]

    assert await names() == ["discord:group:7", "two", "one"]
    assert await names(limit=2) == ["discord:group:7"]  # a job's run is not listed
    assert await names(label="Groceries") == ["one"]
    assert await names(search="GROC") == ["one"]
    assert await names(agentId="MAIN") == ["discord:group:7", "two", "one"]
    assert await names(agentId="other") == []
    assert await names(activeMinutes=5) == ["discord:group:7", "two", "one"]
    assert await names(activeMinutes=2**53 - 1) == await names()
    kinds = {row["key"]: row["kind"] for row in (await world.call(world.admin, "sessions.list"))["sessions"]}
    assert kinds["agent:main:discord:group:7"] == "group" and kinds["agent:main:two"] == "direct"


async def test_list_follows_every_change(world: World) -> None:
    await world.turn(world.admin)
    first = await world.call(world.admin, "sessions.list")
    assert (await world.call(world.admin, "sessions.list"))["sessions"] == first["sessions"]
    await world.turn(world.admin)
    second = await world.call(world.admin, "sessions.list")
    assert second["sessions"][0]["updatedAt"] > first["sessions"][0]["updatedAt"]
    await world.call(world.admin, "sessions.patch", {"key": "main", "thinkingLevel": "high"})
    third = await world.call(world.admin, "sessions.list")
    assert third["sessions"][0]["thinkingLevel"] == "high"


async def test_a_kept_list_is_answered_at_once_with_its_own_time(world: World) -> None:
    now = [1_000_000_000_000]
    methods = SessionMethods(
        sessions=world.sessions,
        transcripts=world.transcripts,
        router=world.router,
        abort_session=lambda owner, key: asyncio.sleep(0),
        store_path="(multiple)",
        clock=lambda: now[0],
    )
    await world.sessions.get_or_create(world.admin.user_id, key_of(world.admin), at_ms=now[0])
    params = module.SessionsListParams(active_minutes=1)
    made = methods.list_sessions(world.admin, params)
    assert not isinstance(made, msgspec.Raw)
    body = bytes(await made)
    assert body.startswith(b'{"ts":1000000000000,"path":"(multiple)","count":1,')
    now[0] += 60_000
    kept = methods.list_sessions(world.admin, params)
    assert isinstance(kept, msgspec.Raw)
    assert bytes(kept) == body.replace(b'"ts":1000000000000', b'"ts":1000000060000')
    now[0] += 1  # now the session has been quiet for longer than a minute
    remade = methods.list_sessions(world.admin, params)
    assert not isinstance(remade, msgspec.Raw)
    assert b'"count":0' in bytes(await remade)


async def test_kept_lists_are_bounded(world: World) -> None:
    methods = SessionMethods(
        sessions=world.sessions,
        transcripts=world.transcripts,
        router=world.router,
        abort_session=lambda owner, key: asyncio.sleep(0),
        store_path="x",
    )
    for index in range(module.CACHED_PAGES + 50):
        made = methods.list_sessions(world.admin, module.SessionsListParams(search=f"s{index}"))
        assert not isinstance(made, msgspec.Raw)
        await made
    assert len(methods._pages._pages) == module.CACHED_PAGES
    assert methods._pages._bytes == sum(module._size(key[1], page) for key, page in methods._pages._pages.items())


async def test_a_long_question_is_not_kept(world: World) -> None:
    """A frame may hold 25 MiB, and a person may ask for 512 different lists."""
    methods = SessionMethods(
        sessions=world.sessions,
        transcripts=world.transcripts,
        router=world.router,
        abort_session=lambda owner, key: asyncio.sleep(0),
        store_path="x",
    )
    for index in range(4):
        made = methods.list_sessions(
            world.admin, module.SessionsListParams(search=f"{index}" + "x" * (module.CACHED_BYTES // 2))
        )
        assert not isinstance(made, msgspec.Raw)
        await made
    assert len(methods._pages._pages) == 1
    assert module.CACHED_BYTES // 2 < methods._pages._bytes < module.CACHED_BYTES


async def test_a_page_costs_the_same_with_many_stored(world: World) -> None:
    """The work of one answer is bounded by its page: the rows come from an index, newest first."""
    plan = await world.db.fetchall(
        "EXPLAIN QUERY PLAN SELECT * FROM sessions WHERE owner = ? ORDER BY updated_at_ms DESC, key DESC LIMIT 50",
        (world.admin.user_id,),
    )
    assert all("SCAN" not in row["detail"] and "TEMP B-TREE" not in row["detail"] for row in plan)


async def test_preview(world: World) -> None:
    await world.turn(
        world.admin, text="[Sat 2026-11-21 01:20 UTC] hi", answer="[[reply_to_current]] hello there, my friend"
    )
    await world.transcripts.append(
        world.admin.user_id,
        key_of(world.admin),
        encode_message(
            ToolResultMessage(
                tool_call_id="c", tool_name="exec", content=[TextBlock(text="a b")], is_error=False, timestamp=1
            )
        ),
        kind="tool_result",
    )
    await world.sessions.get_or_create(world.admin.user_id, key_of(world.admin, "quiet"))
    params = {"keys": [" main ", "quiet", "nosuch", "agent:x"], "maxChars": 20}
    result = await world.call(world.admin, "sessions.preview", params)
    shapes.check(shapes.SESSIONS_PREVIEW, result)
    assert [(p["key"], p["status"]) for p in result["previews"]] == [
        ("main", "ok"),
        ("quiet", "empty"),
        ("nosuch", "missing"),
        ("agent:x", "error"),
    ]
    assert result["previews"][0]["items"] == [
        {"role": "user", "text": "hi"},
        {"role": "assistant", "text": "hello there, my f..."},
        {"role": "tool", "text": "a b"},
    ]
    limited = await world.call(world.admin, "sessions.preview", {"keys": ["main"], "limit": 1})
    assert limited["previews"][0]["items"] == [{"role": "tool", "text": "a b"}]
    many = await world.call(world.admin, "sessions.preview", {"keys": [f"k{i}" for i in range(70)]})
    assert len(many["previews"]) == 64


async def test_resolve(world: World) -> None:
    session = await world.turn(world.admin, "work")
    await world.call(world.admin, "sessions.patch", {"key": "work", "label": "Work"})
    for params in ({"key": "WORK"}, {"sessionId": session.session_id}, {"label": " Work "}):
        result = await world.call(world.admin, "sessions.resolve", params)
        shapes.check(shapes.SESSIONS_RESOLVE, result)
        assert result == {"ok": True, "key": "agent:main:work"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "Either key, sessionId, or label is required"),
        ({"key": " "}, "Either key, sessionId, or label is required"),
        ({"key": "a", "label": "b"}, "Provide either key, sessionId, or label (not multiple)"),
        ({"key": "nosuch"}, "No session found: nosuch"),
        ({"sessionId": "nosuch"}, "No session found: nosuch"),
        ({"label": "nosuch"}, "No session found with label: nosuch"),
        ({"key": "work", "agentId": "other"}, "No session found: work"),
        ({"key": "work", "spawnedBy": "agent:main:main"}, "No session found: work"),
        ({"key": "agent:x"}, 'malformed session key "agent:x"'),
        ({"kee": 1}, "invalid sessions.resolve params: at root: unexpected property 'kee'"),
    ],
)
async def test_resolve_refusals(world: World, params: dict[str, Any], message: str) -> None:
    await world.turn(world.admin, "work")
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, "sessions.resolve", params)
    assert str(refused.value) == message and refused.value.error["code"] == "INVALID_REQUEST"


async def test_patch_makes_and_changes_a_session(world: World) -> None:
    result = await world.call(
        world.admin,
        "sessions.patch",
        {
            "key": "agent:main:main",
            "label": " Home ",
            "thinkingLevel": "ON",
            "verboseLevel": "yes",
            "reasoningLevel": "live",
            "responseUsage": "on",
            "elevatedLevel": "approve",
            "execHost": "Node",
            "execSecurity": "allowlist",
            "execAsk": "on-miss",
            "execNode": " n1 ",
            "sendPolicy": "deny",
            "groupActivation": "always",
        },
    )
    shapes.check(shapes.SESSIONS_PATCH, result)
    entry = result["entry"]
    assert {name: entry[name] for name in entry if name.endswith("Level")} == {
        "thinkingLevel": "low",
        "verboseLevel": "on",
        "reasoningLevel": "stream",
        "elevatedLevel": "ask",
    }
    assert (entry["label"], entry["responseUsage"], entry["sendPolicy"]) == ("Home", "tokens", "deny")
    assert (entry["execHost"], entry["execSecurity"], entry["execAsk"], entry["execNode"]) == (
        "node",
        "allowlist",
        "on-miss",
        "n1",
    )
    assert result["resolved"] == {"modelProvider": "mock", "model": "mock-1"}
    cleared = await world.call(
        world.admin,
        "sessions.patch",
        {"key": "main", "label": None, "thinkingLevel": None, "responseUsage": "off", "verboseLevel": None},
    )
    assert not {"label", "thinkingLevel", "responseUsage", "verboseLevel"} & set(cleared["entry"])
    assert cleared["entry"]["sessionId"] == entry["sessionId"]
    assert cleared["entry"]["updatedAt"] == entry["updatedAt"]
    assert cleared["entry"]["reasoningLevel"] == "stream"


@pytest.mark.parametrize(
    ("level", "stored"),
    [("off", "off"), ("minimal", "minimal"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "xhigh"),
     ("max", "high"), ("think harder".replace(" ", "-"), "medium"), ("extra_high", "xhigh")],
)  # fmt: skip
async def test_thinking_levels(world: World, level: str, stored: str) -> None:
    result = await world.call(world.admin, "sessions.patch", {"key": "main", "thinkingLevel": level})
    assert result["entry"]["thinkingLevel"] == stored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thinkingLevel": "huge"}, "invalid thinkingLevel (use off|minimal|low|medium|high|xhigh)"),
        ({"verboseLevel": "x"}, 'invalid verboseLevel (use "on"|"off")'),
        ({"reasoningLevel": "x"}, 'invalid reasoningLevel (use "on"|"off"|"stream")'),
        ({"elevatedLevel": "x"}, 'invalid elevatedLevel (use "on"|"off"|"ask"|"full")'),
        ({"execHost": "x"}, 'invalid execHost (use "sandbox"|"gateway"|"node")'),
        ({"execSecurity": "x"}, 'invalid execSecurity (use "deny"|"allowlist"|"full")'),
        ({"execAsk": "x"}, 'invalid execAsk (use "off"|"on-miss"|"always")'),
        ({"execNode": " "}, "invalid execNode: empty"),
        ({"label": " "}, "invalid label: empty"),
        ({"model": " "}, "invalid model: empty"),
        ({"spawnedBy": "agent:main:main"}, "spawnedBy is only supported for subagent:* sessions"),
        ({"spawnDepth": 1}, "spawnDepth is only supported for subagent:* sessions"),
        ({"nope": 1}, "invalid sessions.patch params: at root: unexpected property 'nope'"),
    ],
)
async def test_patch_refusals_change_nothing(world: World, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.call(world.admin, "sessions.patch", {"key": "main", "sendPolicy": "deny", **change})
    assert str(refused.value) == message and refused.value.error["code"] == "INVALID_REQUEST"
    assert await world.sessions.count(world.admin.user_id) == 0


async def test_a_label_is_unique(world: World) -> None:
    await world.call(world.admin, "sessions.patch", {"key": "one", "label": "x"})
    with pytest.raises(RefusedError, match=r"^label already in use: x$"):
        await world.call(world.admin, "sessions.patch", {"key": "two", "label": "x"})
    await world.call(world.admin, "sessions.patch", {"key": "one", "label": "x"})


async def test_spawned_by_is_set_once(world: World) -> None:
    key = "agent:main:subagent:1"
    await world.call(world.admin, "sessions.patch", {"key": key, "spawnedBy": "agent:main:main", "spawnDepth": 1})
    result = await world.call(world.admin, "sessions.patch", {"key": key, "spawnedBy": "agent:main:main"})
    assert (result["entry"]["spawnedBy"], result["entry"]["spawnDepth"]) == ("agent:main:main", 1)
    for change, message in (
        ({"spawnedBy": None}, "spawnedBy cannot be cleared once set"),
        ({"spawnedBy": "other"}, "spawnedBy cannot be changed once set"),
        ({"spawnDepth": 2}, "spawnDepth cannot be changed once set"),
    ):
        with pytest.raises(RefusedError) as refused:
            await world.call(world.admin, "sessions.patch", {"key": key, **change})
        assert str(refused.value) == message
    listed = await world.call(world.admin, "sessions.list", {"spawnedBy": "agent:main:main"})
    assert [row["key"] for row in listed["sessions"]] == [key]


@pytest.mark.parametrize(
    ("model", "stored", "resolved"),
    [
        ("mock/mock-2", "mock/mock-2", ("mock", "mock-2")),
        ("fast", "fast", ("mock", "mock-2")),
        ("smart", "smart", ("other", "plain")),
        ("mock/mock-1", "", ("mock", "mock-1")),
        (None, "", ("mock", "mock-1")),
        ("lab/new-model", "lab/new-model", ("lab", "new-model")),
        ("openrouter/anthropic/claude", "openrouter/anthropic/claude", ("openrouter", "anthropic/claude")),
    ],
)
async def test_model_of_a_session(world: World, model: str | None, stored: str, resolved: tuple[str, str]) -> None:
    await world.call(world.admin, "sessions.patch", {"key": "main", "model": "mock/mock-2"})
    result = await world.call(world.admin, "sessions.patch", {"key": "main", "model": model})
    shapes.check(shapes.SESSIONS_PATCH, result)
    assert (result["resolved"]["modelProvider"], result["resolved"]["model"]) == resolved
    entry = result["entry"]
    if stored:
        assert (entry["providerOverride"], entry["modelOverride"]) == resolved
    else:
        assert "providerOverride" not in entry and "modelOverride" not in entry
    session = await world.sessions.get(world.admin.user_id, key_of(world.admin))
    assert session is not None and session.model == stored
    (row,) = (await world.call(world.admin, "sessions.list"))["sessions"]
    assert (row["modelProvider"], row["model"]) == resolved


async def test_an_unknown_model_is_told_what_there_is(world: World) -> None:
    with pytest.raises(RefusedError, match=r"unknown model 'gpt'.*smart.*fast.*mock/mock-1") as refused:
        await world.call(world.admin, "sessions.patch", {"key": "main", "model": "gpt"})
    assert refused.value.error["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("client", [{"client_mode": "webchat"}, {"client_id": "webchat-ui", "client_mode": "ui"}])
async def test_webchat_may_not_change_sessions(world: World, client: dict[str, str]) -> None:
    webchat = replace(world.admin, **client)  # type: ignore[arg-type]
    for action in ("patch", "delete"):
        with pytest.raises(RefusedError) as refused:
            await world.call(webchat, f"sessions.{action}", {"key": "work"})
        assert str(refused.value) == (
            f"webchat clients cannot {action} sessions; use chat.send for session-scoped updates"
        )


async def test_reset(world: World) -> None:
    before = await world.turn(world.admin, label="cli", provider="cli")
    await world.call(world.admin, "sessions.patch", {"key": "main", "thinkingLevel": "high", "label": "Home"})
    result = await world.call(world.admin, "sessions.reset", {"key": "main", "reason": "new"})
    shapes.check(shapes.SESSIONS_RESET, result)
    entry = result["entry"]
    assert result["key"] == "agent:main:main" and entry["sessionId"] != before.session_id
    assert (entry["inputTokens"], entry["outputTokens"], entry["totalTokens"]) == (0, 0, 0)
    assert entry["totalTokensFresh"] is True and entry["systemSent"] is False
    assert (entry["thinkingLevel"], entry["label"], entry["origin"]["label"]) == ("high", "Home", "cli")
    assert world.aborted == [key_of(world.admin)]


async def test_what_a_reset_puts_away_is_told(world: World) -> None:
    """BA-019: so that it can be remembered."""
    told: list[object] = []

    async def nothing_runs(owner: UserId, key: SessionKey) -> None: ...

    methods = SessionMethods(
        sessions=world.sessions,
        transcripts=world.transcripts,
        router=world.router,
        abort_session=nothing_runs,
        archived=lambda *archived: told.append(archived),
        store_path="x",
    )
    world.dispatcher = Dispatcher(collect(methods), world.tasks)
    await world.call(world.admin, "sessions.reset", {"key": "work"})
    assert told == [], "there was nothing"
    before = await world.turn(world.admin, "work")
    await world.call(world.admin, "sessions.reset", {"key": "work"})
    (archived,) = told
    assert archived == (world.admin.user_id, before.key, before.session_id)


async def test_reset_makes_a_session(world: World) -> None:
    result = await world.call(world.admin, "sessions.reset", {"key": "fresh"})
    shapes.check(shapes.SESSIONS_RESET, result)
    assert await world.sessions.count(world.admin.user_id) == 1


async def test_a_run_that_does_not_end_stops_reset_and_delete(world: World) -> None:
    async def never(owner: UserId, key: SessionKey) -> None:
        await asyncio.Event().wait()

    methods = SessionMethods(
        sessions=world.sessions,
        transcripts=world.transcripts,
        router=world.router,
        abort_session=never,
        store_path="x",
        abort_timeout_s=0.01,
    )
    world.dispatcher = Dispatcher(collect(methods), world.tasks)
    session = await world.turn(world.admin, "work")
    for name in ("reset", "delete"):
        with pytest.raises(RefusedError) as refused:
            await world.call(world.admin, f"sessions.{name}", {"key": "work"})
        assert str(refused.value) == "Session work is still active; try again in a moment."
        assert refused.value.error["code"] == "UNAVAILABLE" and refused.value.error["retryable"] is True
    kept = await world.sessions.get(world.admin.user_id, session.key)
    assert kept is not None and kept.session_id == session.session_id


async def test_delete(world: World) -> None:
    session = await world.turn(world.admin, "work")
    result = await world.call(world.admin, "sessions.delete", {"key": "work", "emitLifecycleHooks": False})
    shapes.check(shapes.SESSIONS_DELETE, result)
    assert result == {"ok": True, "key": "agent:main:work", "deleted": True, "archived": []}
    assert await world.transcripts.history(world.admin.user_id, session.session_id, limit=10) == []
    again = await world.call(world.admin, "sessions.delete", {"key": "work"})
    assert again["deleted"] is False
    assert world.aborted == [session.key, session.key]


async def test_delete_can_keep_the_transcript(world: World) -> None:
    session = await world.turn(world.admin, "work")
    await world.call(world.admin, "sessions.delete", {"key": "work", "deleteTranscript": False})
    assert len(await world.transcripts.history(world.admin.user_id, session.session_id, limit=10)) == 2


async def test_the_main_session_stays(world: World) -> None:
    await world.turn(world.admin)
    with pytest.raises(RefusedError, match=r"^Cannot delete the main session \(agent:main:main\)\.$"):
        await world.call(world.admin, "sessions.delete", {"key": "main"})
    assert await world.sessions.count(world.admin.user_id) == 1


async def test_compact(world: World) -> None:
    missing = await world.call(world.admin, "sessions.compact", {"key": "work"})
    await world.sessions.get_or_create(world.admin.user_id, key_of(world.admin, "work"))
    empty = await world.call(world.admin, "sessions.compact", {"key": "work"})
    for _ in range(3):
        session = await world.turn(world.admin, "work")
    short = await world.call(world.admin, "sessions.compact", {"key": "work"})
    cut = await world.call(world.admin, "sessions.compact", {"key": "work", "maxLines": 2})
    for result in (missing, empty, short, cut):
        shapes.check(shapes.SESSIONS_COMPACT, result)
        assert result["key"] == "agent:main:work"
    assert (missing["compacted"], missing["reason"]) == (False, "no sessionId")
    assert (empty["compacted"], empty["reason"]) == (False, "no transcript")
    assert (short["compacted"], short["kept"]) == (False, 6)
    assert (cut["compacted"], cut["kept"]) == (True, 2)
    assert len(await world.transcripts.history(world.admin.user_id, session.session_id, limit=100)) == 2
    (row,) = (await world.call(world.admin, "sessions.list"))["sessions"]
    assert row["totalTokensFresh"] is False and "totalTokens" not in row
    patched = await world.call(world.admin, "sessions.patch", {"key": "work", "label": "w"})
    assert patched["entry"]["compactionCount"] == 1
    history = await world.transcripts.history(world.admin.user_id, session.session_id, limit=100, include_covered=True)
    assert len(history) == 6


async def test_a_compacted_conversation_is_truncated_without_its_summaries(world: World) -> None:
    """``kept`` counts what was said; compactions are no lines, and what they told goes with what they covered."""
    owner = world.admin.user_id
    for _ in range(3):
        session = await world.turn(world.admin, "work")
    compactions = CompactionStore(world.db)
    live = await compactions.live(owner, session.session_id)
    await compactions.cover(owner, session.session_id, live[1:3], summary="s", now_ms=1)
    short = await world.call(world.admin, "sessions.compact", {"key": "work", "maxLines": 3})
    assert (short["compacted"], short["kept"]) == (False, 3)
    cut = await world.call(world.admin, "sessions.compact", {"key": "work", "maxLines": 2})
    assert (cut["compacted"], cut["kept"]) == (True, 2)
    window = await compactions.window(owner, session.session_id, limit=100)
    assert (window.first, window.told, len(window.entries)) == (None, (), 2)
    patched = await world.call(world.admin, "sessions.patch", {"key": "work", "label": "w"})
    assert patched["entry"]["compactionCount"] == 2


async def test_another_persons_sessions_do_not_exist(world: World) -> None:
    """By any of its names, another person's session answers as one that was never there, and stays as it is."""
    stranger = replace(world.user, scopes=world.admin.scopes)  # even with every scope
    mine = await world.turn(world.admin, "work", text="my secret")
    await world.call(world.admin, "sessions.patch", {"key": "work", "label": "Work"})
    full = str(mine.key)
    assert (await world.call(stranger, "sessions.list"))["sessions"] == []
    assert (await world.call(stranger, "sessions.list", {"search": "work"}))["sessions"] == []
    for params in ({"key": full}, {"sessionId": mine.session_id}, {"label": "Work"}):
        with pytest.raises(RefusedError, match=r"^No session found"):
            await world.call(stranger, "sessions.resolve", params)
    previews = (await world.call(stranger, "sessions.preview", {"keys": ["work", full]}))["previews"]
    assert [preview["status"] for preview in previews] == ["missing", "missing"]
    for method in ("patch", "reset", "delete", "compact"):
        with pytest.raises(RefusedError, match=r"^no session found"):
            await world.call(stranger, f"sessions.{method}", {"key": full})
    # the same words mean the stranger's own session
    await world.call(stranger, "sessions.patch", {"key": "work", "label": "Work"})
    await world.call(stranger, "sessions.reset", {"key": "work"})
    await world.call(stranger, "sessions.delete", {"key": "work"})
    await world.call(stranger, "sessions.compact", {"key": "work", "maxLines": 1})
    after = await world.sessions.get(world.admin.user_id, mine.key)
    assert after is not None and after.session_id == mine.session_id and after.label == "Work"
    assert len(await world.transcripts.history(world.admin.user_id, mine.session_id, limit=10)) == 2
    assert mine.key not in world.aborted


async def test_a_kept_list_is_never_anothers(world: World) -> None:
    await world.turn(world.admin, "work")
    for _ in range(2):
        assert (await world.call(world.admin, "sessions.list"))["count"] == 1
        assert (await world.call(world.user, "sessions.list"))["count"] == 0
    await world.turn(world.user, "own")
    assert [r["key"] for r in (await world.call(world.user, "sessions.list"))["sessions"]] == ["agent:main:own"]
    assert len(await world.sessions.list(world.admin.user_id, SessionQuery())) == 1


@pytest.mark.parametrize("method", ["sessions.patch", "sessions.reset", "sessions.delete", "sessions.compact"])
async def test_changing_needs_the_scope_to_write(world: World, method: str) -> None:
    """Unlike in OpenClaw, where a session is everybody's: it is a person's own here."""
    reader = replace(world.user, scopes=frozenset({"operator.read"}))
    with pytest.raises(RefusedError, match=r"^missing scope: operator\.write$"):
        await world.call(reader, method, {"key": "work"})
