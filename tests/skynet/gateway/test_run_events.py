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

    def __init__(self, conn_id: str, form: str = "", scopes: tuple[str, ...] = ("operator.read",)) -> None:
        self.conn_id = ConnId(conn_id)
        self.caller = Caller(user_id=ADA, role=Role.USER, scopes=frozenset(scopes), correlation_id=conn_id)
        self.frames: list[dict[str, Any]] = []
        self.droppable: list[bool] = []
        self.times: list[float] = []
        self._form = form

    def form_of(self, key: SessionKey) -> str:
        return self._form or render_key(key)

    def send_event(self, frame: Callable[[int], bytes], *, droppable: bool) -> None:
        self.frames.append(json.loads(frame(len(self.frames) + 1)))
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

    def __init__(self, *listeners: Listener, with_session_key: bool = True) -> None:
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
    stage = Stage()
    stage.events.add_text("a")
    stage.events.add_text("b")  # waits for its interval
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
