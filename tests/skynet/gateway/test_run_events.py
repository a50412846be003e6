"""The events of one run: their order, their numbers, and how deltas are gathered (OPENCLAW-V3 7.2-7.4)."""

import asyncio
import json
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.gateway.broadcast import Broadcaster
from skynet.gateway.connection import Connection
from skynet.gateway.keys import render_key
from skynet.gateway.run_events import COALESCE_S, RunEvents
from skynet_agent.messages import TextBlock, ToolCallBlock, ToolResultMessage
from skynet_memory.ids import AgentId, ConnId, Role, RunId, SessionKey, UserId
from skynet_memory.keys import build_key
from skynet_protocol.events import assistant_message
from skynet_users.caller import Caller
from tests.support.polling import until

ADA = UserId("ada")
KEY = build_key(ADA, AgentId("main"), "main")
NOW_MS = 1_700_000_000_000


class Listener:
    """A ready connection of Ada's that keeps what it is sent, and when."""

    def __init__(
        self, conn_id: str, form: str = "", scopes: tuple[str, ...] = ("operator.read",), caps: tuple[str, ...] = ()
    ) -> None:
        self.conn_id = ConnId(conn_id)
        self.caller = Caller(user_id=ADA, role=Role.USER, scopes=frozenset(scopes), correlation_id=conn_id)
        self.frames: list[dict[str, Any]] = []
        self.droppable: list[bool] = []
        self.times: list[float] = []
        self.caps = frozenset(caps)
        self._form = form

    def form_of(self, key: SessionKey) -> str:
        return self._form or render_key(key)

    def send_event(self, frame: Callable[[int], bytes], *, droppable: bool, numbered: bool = True) -> None:
        self.frames.append(json.loads(frame(len(self.frames) + 1)))
        assert numbered == ("seq" in self.frames[-1])
        self.droppable.append(droppable)
        self.times.append(asyncio.get_running_loop().time())

    def of(self, event: str) -> list[dict[str, Any]]:
        return [frame["payload"] for frame in self.frames if frame["event"] == event]

    @property
    def assistant(self) -> list[dict[str, Any]]:
        return [payload["data"] for payload in self.of("agent") if payload["stream"] == "assistant"]

    @property
    def deltas(self) -> list[str]:
        return [text_of(payload) for payload in self.of("chat") if payload["state"] == "delta"]


def text_of(payload: dict[str, Any]) -> str:
    return "".join(block["text"] for block in payload["message"]["content"])


class Stage:
    """A run's events, and who listens."""

    def __init__(
        self,
        *listeners: Listener,
        with_session_key: bool = True,
        settings: dict[str, str] | None = None,
        watchers: set[ConnId] | None = None,
    ) -> None:
        self.listeners = listeners or (Listener("1"),)
        broadcaster = Broadcaster()
        for listener in self.listeners:
            broadcaster.add(cast(Connection, listener))
        clock = count(NOW_MS)
        self.events = RunEvents(
            broadcaster,
            owner=ADA,
            key=KEY,
            run_id=RunId("run"),
            with_session_key=with_session_key,
            watchers={each.conn_id for each in self.listeners} if watchers is None else watchers,
            settings=settings or {},
            clock=lambda: next(clock),
        )

    @property
    def seen(self) -> Listener:
        return self.listeners[0]


async def test_the_first_delta_leaves_at_once_and_later_ones_together() -> None:
    stage = Stage()
    stage.events.started(NOW_MS)
    stage.events.add_text("one")
    assert stage.seen.deltas == ["one"]
    for word in (" two", " three", " four"):
        stage.events.add_text(word)
    assert stage.seen.deltas == ["one"]
    await until(lambda: len(stage.seen.deltas) > 1)
    assert stage.seen.deltas == ["one", "one two three four"]
    assert stage.seen.assistant == [
        {"text": "one", "delta": "one"},
        {"text": "one two three four", "delta": " two three four"},
    ]
    stage.events.ended(NOW_MS, assistant_message(stage.events.text, NOW_MS))


async def test_deltas_are_never_closer_than_the_interval() -> None:
    stage = Stage()
    while len(stage.seen.deltas) < 4:
        stage.events.add_text("x")
        await asyncio.sleep(0)
    stage.events.aborted("rpc", None)
    times = [
        at for at, frame in zip(stage.seen.times, stage.seen.frames, strict=True) if frame["payload"].get("state")
    ][:4]
    # The loop's timers have a resolution of a millisecond.
    assert all(later - earlier >= COALESCE_S - 0.002 for earlier, later in pairwise(times))


async def test_each_delta_comes_as_agent_then_chat_under_one_number() -> None:
    stage = Stage()
    stage.events.started(NOW_MS)
    stage.events.add_text("a")
    stage.events.add_text("b")
    stage.events.ended(NOW_MS + 9, assistant_message("ab", NOW_MS))
    shown = [
        (frame["event"], frame["payload"]["seq"], frame["payload"].get("stream") or frame["payload"]["state"])
        for frame in stage.seen.frames
    ]
    assert shown == [
        ("agent", 1, "lifecycle"),
        ("agent", 2, "assistant"),
        ("chat", 2, "delta"),
        ("agent", 3, "assistant"),
        ("agent", 4, "lifecycle"),
        ("chat", 4, "final"),
    ]
    assert stage.seen.of("agent")[0]["data"] == {"phase": "start", "startedAt": NOW_MS}
    assert stage.seen.of("agent")[-1]["data"] == {"phase": "end", "endedAt": NOW_MS + 9}
    assert {frame["payload"]["sessionKey"] for frame in stage.seen.frames} == {"agent:main:main"}
    assert {frame["payload"]["runId"] for frame in stage.seen.frames} == {"run"}


async def test_only_chat_deltas_may_be_missed() -> None:
    stage = Stage()
    stage.events.started(NOW_MS)
    stage.events.add_text("a")
    stage.events.ended(NOW_MS, assistant_message("a", NOW_MS))
    states = [frame["payload"].get("state") for frame in stage.seen.frames]
    assert stage.seen.droppable == [state == "delta" for state in states]


@given(st.lists(st.text(max_size=4), max_size=12), st.sampled_from(["ended", "failed"]), st.data())
async def test_agent_deltas_are_the_text_and_the_final_has_all_of_it(
    pieces: list[str], end: str, data: st.DataObject
) -> None:
    stage = Stage()
    for piece in pieces:
        stage.events.add_text(piece)
        if data.draw(st.booleans()):
            await asyncio.sleep(0)
    whole = "".join(pieces)
    assert stage.events.text == whole
    message = assistant_message(whole, NOW_MS)
    if end == "ended":
        stage.events.ended(NOW_MS, message)
    else:
        stage.events.failed(NOW_MS, "broken", message)
    assert "".join(part["delta"] for part in stage.seen.assistant) == whole
    texts = [part["text"] for part in stage.seen.assistant]
    assert texts == sorted(texts, key=len)
    assert (texts or [""])[-1] == whole
    assert all(whole.startswith(text) for text in (*texts, *stage.seen.deltas))
    assert text_of(stage.seen.of("chat")[-1]) == whole


@pytest.mark.parametrize("end", ["ended", "failed", "aborted"])
async def test_nothing_follows_the_end(end: str) -> None:
    stage = Stage(settings={"reasoningLevel": "stream"})
    stage.events.add_thinking("hm")
    stage.events.add_text("a")
    stage.events.add_text("b")  # waits for its interval
    stage.events.add_thinking(" so")
    message = assistant_message("ab", NOW_MS)
    if end == "ended":
        stage.events.ended(NOW_MS, message)
    elif end == "failed":
        stage.events.failed(NOW_MS, "broken", message)
    else:
        stage.events.aborted("rpc", message)
    sent = len(stage.seen.frames)
    later = Stage()  # whose gathered delta is due after the one that waited here
    later.events.add_text("a")
    later.events.add_text("b")
    await until(lambda: len(later.seen.deltas) == 2)
    later.events.ended(NOW_MS, None)
    assert len(stage.seen.frames) == sent
    assert stage.seen.frames[-1]["payload"]["state"] in ("final", "error", "aborted")


async def test_an_abort_has_no_lifecycle_end() -> None:
    stage = Stage()
    stage.events.started(NOW_MS)
    stage.events.add_text("par")
    stage.events.add_text("tial")
    stage.events.aborted("stop", assistant_message("partial", NOW_MS))
    assert [payload["stream"] for payload in stage.seen.of("agent")] == ["lifecycle", "assistant"]
    last = stage.seen.of("chat")[-1]
    assert (last["state"], last["stopReason"], last["seq"], text_of(last)) == ("aborted", "stop", 3, "partial")


async def test_an_error_says_so_in_both_streams() -> None:
    stage = Stage()
    stage.events.started(NOW_MS)
    stage.events.failed(NOW_MS + 1, "no model", None)
    assert stage.seen.of("agent")[-1]["data"] == {"phase": "error", "error": "no model", "endedAt": NOW_MS + 1}
    assert stage.seen.of("chat") == [
        {"runId": "run", "sessionKey": "agent:main:main", "seq": 2, "state": "error", "errorMessage": "no model"}
    ]


async def test_a_silent_answer_has_a_final_without_a_message() -> None:
    stage = Stage()
    stage.events.started(NOW_MS)
    stage.events.add_text("")
    stage.events.ended(NOW_MS, None)
    assert stage.seen.of("chat") == [{"runId": "run", "sessionKey": "agent:main:main", "seq": 2, "state": "final"}]


async def test_a_command_has_one_final_and_nothing_else() -> None:
    stage = Stage()
    stage.events.answered(assistant_message("done", NOW_MS))
    (frame,) = stage.seen.frames
    assert (frame["event"], frame["payload"]["seq"], frame["payload"]["state"]) == ("chat", 1, "final")


async def test_a_fallback_is_a_lifecycle_event() -> None:
    stage = Stage()
    stage.events.fell_back({"provider": "spare", "model": "s-1", "tried": []})
    assert stage.seen.of("agent")[0]["data"] == {
        "phase": "fallback",
        "provider": "spare",
        "model": "s-1",
        "tried": [],
    }


async def test_a_run_without_a_key_has_no_chat_events() -> None:
    stage = Stage(with_session_key=False)
    stage.events.started(NOW_MS)
    stage.events.add_text("a")
    stage.events.ended(NOW_MS, assistant_message("a", NOW_MS))
    assert [frame["event"] for frame in stage.seen.frames] == ["agent"] * 3
    assert all("sessionKey" not in frame["payload"] for frame in stage.seen.frames)


async def test_each_connection_gets_the_key_as_it_holds_it() -> None:
    plain, literal, blind = Listener("1"), Listener("2", form="main"), Listener("3", scopes=())
    stage = Stage(plain, literal, blind)
    stage.events.started(NOW_MS)
    stage.events.ended(NOW_MS, assistant_message("a", NOW_MS))
    assert {frame["payload"]["sessionKey"] for frame in plain.frames} == {"agent:main:main"}
    assert {frame["payload"]["sessionKey"] for frame in literal.frames} == {"main"}
    without_key = [
        [{**frame["payload"], "sessionKey": None} for frame in listener.frames] for listener in (plain, literal)
    ]
    assert without_key[0] == without_key[1]
    assert not blind.frames


CALL = ToolCallBlock(id="c1", name="look", arguments={"at": "sky"})
RESULT = ToolResultMessage("c1", "look", [TextBlock("blue")], False, NOW_MS)


def tool_data(listener: Listener) -> list[dict[str, Any]]:
    return [payload["data"] for payload in listener.of("agent") if payload["stream"] == "tool"]


async def test_what_tools_do_is_told_to_those_who_watch_and_can_show_it() -> None:
    """OPENCLAW-V3 7.3: no frame number, and no output unless the session is verbose."""
    watching, plain, stranger = (
        Listener("1", caps=("tool-events",)),
        Listener("2"),
        Listener("3", caps=("tool-events",)),
    )
    stage = Stage(watching, plain, stranger, watchers={watching.conn_id, plain.conn_id, ConnId("gone")})
    stage.events.started(NOW_MS)
    stage.events.tool_started(CALL)
    stage.events.tool_updated(CALL, "bl")
    stage.events.tool_ended(CALL, RESULT)
    stage.events.ended(NOW_MS, None)
    assert tool_data(watching) == [
        {"phase": "start", "name": "look", "toolCallId": "c1", "args": {"at": "sky"}},
        {"phase": "update", "name": "look", "toolCallId": "c1"},
        {"phase": "result", "name": "look", "toolCallId": "c1", "isError": False},
    ]
    assert [payload["seq"] for payload in watching.of("agent")] == [1, 2, 3, 4, 5]
    assert not tool_data(plain)
    assert not tool_data(stranger)


async def test_a_verbose_session_shows_what_tools_gave() -> None:
    listener = Listener("1", caps=("tool-events",))
    stage = Stage(listener, settings={"verboseLevel": "full"})
    stage.events.tool_updated(CALL, "bl")
    stage.events.tool_ended(CALL, RESULT)
    update, result = tool_data(listener)
    assert update["partialResult"] == {"content": [{"type": "text", "text": "bl"}]}
    assert result["result"] == {"content": [{"type": "text", "text": "blue"}]}


async def test_the_text_begins_anew_with_each_message_of_a_turn() -> None:
    stage = Stage()
    stage.events.add_text("let me")
    stage.events.add_text(" look")
    stage.events.next_message()
    stage.events.add_text("blue")
    stage.events.ended(NOW_MS, assistant_message("blue", NOW_MS))
    assert [(data["text"], data["delta"]) for data in stage.seen.assistant] == [
        ("let me", "let me"),
        ("let me look", " look"),
        ("blue", "blue"),
    ]


@pytest.mark.parametrize(("level", "told"), [("stream", ["hm", "hm so"]), ("on", []), ("off", [])])
async def test_thinking_is_streamed_where_the_session_wants_it(level: str, told: list[str]) -> None:
    stage = Stage(settings={"reasoningLevel": level})
    stage.events.add_thinking("hm")
    stage.events.add_thinking(" so")
    stage.events.ended(NOW_MS, None)
    assert [data["text"] for data in thoughts(stage.seen)] == told


def thoughts(listener: Listener) -> list[dict[str, Any]]:
    return [payload["data"] for payload in listener.of("agent") if payload["stream"] == "thinking"]


async def test_long_thinking_is_told_together_and_before_the_words_that_follow_it() -> None:
    """Each delta carries all of it, so one a token would fill the connection of whoever watches."""
    stage = Stage(settings={"reasoningLevel": "stream"})
    for _ in range(1000):
        stage.events.add_thinking("hm ")
    assert [data["delta"] for data in thoughts(stage.seen)] == ["hm "]
    stage.events.add_text("so")
    assert [data["delta"] for data in thoughts(stage.seen)] == ["hm ", 999 * "hm "]
    assert [p["stream"] for p in stage.seen.of("agent")] == ["thinking", "thinking", "assistant"]
    stage.events.add_thinking("more")
    stage.events.next_message()
    stage.events.add_thinking("else")
    stage.events.ended(NOW_MS, None)
    assert [data["text"] for data in thoughts(stage.seen)[2:]] == [1000 * "hm " + "more", "else"]


async def test_who_reads_only_chat_sees_all_that_was_said_before_a_tool() -> None:
    """The final has the last message alone."""
    stage = Stage()
    stage.events.add_text("let me")
    stage.events.add_text(" look")
    stage.events.next_message()
    stage.events.next_message()
    assert stage.seen.deltas == ["let me", "let me look"]
    stage.events.ended(NOW_MS, None)


async def test_a_shortened_conversation_is_told() -> None:
    stage = Stage()
    stage.events.shortened()
    assert [(p["stream"], p["data"]) for p in stage.seen.of("agent")] == [
        ("compaction", {"phase": "start"}),
        ("compaction", {"phase": "end", "willRetry": True}),
    ]
