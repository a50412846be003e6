"""The pipeline by itself: real storage, a scripted model, no sockets."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from skynet.gateway.run import Repeat, Run, RunEnded, RunKind
from skynet.gateway.runs import MAX_QUEUED, REMEMBERED_MS, REMEMBERED_RUNS
from skynet_agent.events import ModelEvent, TextDelta
from skynet_agent.messages import text_of
from skynet_agent.requests import ModelOptions
from skynet_memory.database import Database, Statements
from skynet_memory.errors import StorageUnavailable
from skynet_memory.ids import AgentId, RunId, now_ms
from skynet_memory.keys import build_key
from skynet_memory.sessions import SessionChanges
from skynet_memory.turns import TurnRepeated, TurnStore
from skynet_protocol.errors import RequestError
from tests.skynet.gateway.stage import Stage, answering, end_of, open_stage
from tests.support.polling import until
from tests.support.script import without_session


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path) as opened:
        yield opened


# Accepting


async def test_a_message_is_durable_when_it_is_accepted(stage: Stage) -> None:
    run = await stage.submit("hang")
    assert await stage.said() == ["hang"]
    assert await stage.open_runs() == 1
    run.abort("rpc")
    result = await end_of(run)
    assert (result.status, result.stop_reason) == ("aborted", "rpc")
    assert await stage.open_runs() == 0


async def test_a_run_has_one_result_for_everybody_who_waits(stage: Stage) -> None:
    run = await stage.submit("say=hello there")
    first, second, known = await asyncio.gather(
        end_of(run), end_of(run), stage.runs.result(stage.ada, run.run_id, timeout_s=10)
    )
    assert first is second
    assert known is not None and (known.status, known.message) == (first.status, first.message)
    assert (first.status, text_of(first.message), first.error) == ("ok", "hello there", "")
    assert (first.usage.input, first.usage.output) == (100, 2)
    assert first.started_at_ms <= first.ended_at_ms
    assert await stage.said() == ["say=hello there", "hello there"]


async def test_a_cancelled_wait_leaves_the_run_alone(stage: Stage) -> None:
    run = await stage.submit("first=50 say=x")
    waiting = asyncio.create_task(run.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await end_of(run)).status == "ok"


@pytest.mark.parametrize("kind", ["chat", "agent", "http"])
async def test_a_repeated_key_runs_nothing(stage: Stage, kind: RunKind) -> None:
    inbound = stage.inbound("say=once", "k", kind=kind)
    assert not await stage.runs.known(stage.ada, kind, inbound.run_id)
    run = await stage.runs.submit(inbound)
    assert isinstance(run, Run)
    assert await stage.runs.known(stage.ada, kind, inbound.run_id)
    repeat = await stage.runs.submit(inbound)
    assert isinstance(repeat, Repeat)
    assert repeat.run is run
    await end_of(run)
    repeat = await stage.runs.submit(inbound)
    assert isinstance(repeat, Repeat)
    assert (repeat.status, repeat.run) == ("ok", None)
    assert repeat.response is not None
    assert json.loads(repeat.response)["result"]["payloads"] == [{"text": "once", "mediaUrl": None}]
    assert await stage.said() == ["say=once", "once"]
    assert len(stage.models.bodies) == 1


async def test_many_sends_of_one_key_run_once(stage: Stage) -> None:
    inbound = stage.inbound("say=once hang", "k")
    outcomes = await asyncio.gather(*(stage.runs.submit(inbound) for _ in range(MAX_QUEUED)))
    (run,) = [outcome for outcome in outcomes if isinstance(outcome, Run)]
    assert all(outcome.run is run for outcome in outcomes if isinstance(outcome, Repeat))
    run.abort("rpc")
    await end_of(run)
    assert (await stage.said())[0] == "say=once hang"
    assert len(await stage.said()) == 2


async def test_two_people_use_the_same_key_for_their_own_runs(stage: Stage) -> None:
    ada, ben = await asyncio.gather(stage.submit("say=a", "k"), stage.submit("say=b", "k", who=stage.ben))
    assert {text_of((await end_of(run)).message) for run in (ada, ben)} == {"a", "b"}
    assert await stage.said() == ["say=a", "a"]
    assert await stage.said(who=stage.ben) == ["say=b", "b"]
    result = await stage.runs.result(stage.ben, RunId("k"), timeout_s=0)
    assert result is not None
    assert text_of(result.message) == "b"


async def test_one_key_of_two_kinds_is_two_runs(stage: Stage) -> None:
    """Idempotency keys of ``chat.send``, ``agent`` and ``/v1`` are apart, whether their runs are over or not."""
    inbound = stage.inbound("hang", "k")
    runs = await asyncio.gather(
        stage.runs.submit(inbound),
        stage.runs.submit(replace(inbound, kind="agent")),
        stage.runs.submit(replace(inbound, kind="http")),
    )
    assert all(isinstance(run, Run) for run in runs)
    assert len(stage.runs.active(stage.ada)) == 3
    for kind in ("chat", "agent", "http"):
        again = await stage.runs.submit(replace(inbound, kind=kind))
        assert isinstance(again, Repeat)
        assert again.run is not None
        assert again.run.inbound.kind == kind
    assert await stage.runs.abort(stage.ada, inbound.key, stop_reason="rpc", run_id="k") == ["k", "k", "k"]
    assert stage.runs.active(stage.ada) == []
    assert await stage.open_runs() == 0


async def test_a_lane_holds_so_many_and_no_more(stage: Stage) -> None:
    await stage.submit("hang", name="busy")
    outcomes = await asyncio.gather(
        *(stage.runs.submit(stage.inbound(f"say={n}", name="busy")) for n in range(2 * MAX_QUEUED)),
        return_exceptions=True,
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, RequestError)]
    assert len(refused) == MAX_QUEUED
    assert all(error.retryable and error.retry_after_ms for error in refused)
    assert len(await stage.said("busy")) == MAX_QUEUED + 1
    assert (await stage.end("say=elsewhere")).status == "ok"
    await stage.runs.abort_session(stage.ada, build_key(stage.ada, AgentId("main"), "busy"))
    assert await stage.open_runs() == 0
    assert (await stage.end("say=again", name="busy")).status == "ok"


async def test_a_session_that_takes_no_messages(stage: Stage) -> None:
    key = build_key(stage.ada, AgentId("main"), "main")
    await stage.sessions.patch(stage.ada, key, SessionChanges(settings={"sendPolicy": "deny"}))
    with pytest.raises(RequestError, match="send blocked by session policy"):
        await stage.runs.submit(stage.inbound("x"))
    assert await stage.said() == []


@pytest.mark.parametrize("steps", range(9))
async def test_a_submit_that_is_cancelled_leaves_no_message_without_an_end(stage: Stage, steps: int) -> None:
    inbound = stage.inbound("hang", "k")
    task = asyncio.create_task(stage.runs.submit(inbound))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, Run):
        outcome.abort("disconnect")
    await until(lambda: len(stage.tasks) == 0, "nothing runs any more")
    assert await stage.open_runs() == 0
    assert len(await stage.said()) in (0, 2)
    assert (await stage.end("say=x")).status == "ok"


# Lanes


async def test_a_session_is_answered_in_order_and_sessions_beside_each_other(stage: Stage) -> None:
    slow = await stage.submit("hang", name="slow")
    blocking = await stage.submit("hang")
    ended: list[str] = []
    runs = [await stage.submit(f"first={10 - 3 * n} say={n}") for n in range(3)]
    for run in runs:
        run.listen(lambda event, run=run: ended.append(run.run_id) if isinstance(event, RunEnded) else None)  # type: ignore[misc]
    blocking.abort("rpc")
    for run in runs:
        await end_of(run)
    assert ended == [run.run_id for run in runs]
    assert not slow.stop_reason
    slow.abort("rpc")


async def test_the_model_sees_each_answer_after_its_message_and_nothing_that_waits(stage: Stage) -> None:
    runs = [await stage.submit(f"first=20 say=a{n}") for n in range(4)]
    for run in runs:
        await end_of(run)
    await stage.end("say=last")
    seen = [
        [without_session(part["content"]).removeprefix("first=20 say=") for part in body["messages"][1:]]
        for body in stage.models.bodies
    ]
    assert seen == [
        [name for n in range(count) for name in (f"a{n}", f"a{n}")] + [f"a{count}"] for count in range(4)
    ] + [[name for n in range(4) for name in (f"a{n}", f"a{n}")] + ["say=last"]]


async def test_an_entry_that_cannot_be_read_is_left_out(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    run = await stage.submit("say=a")
    await end_of(run)
    entry = await stage.transcripts.append(stage.ada, run.key, b'{"role":"oracle","content":"of a newer version"}')
    assert (await stage.end("say=b")).status == "ok"
    told = [without_session(part["content"]) for part in stage.models.bodies[-1]["messages"][1:]]
    assert told == ["say=a", "a", "say=b"]
    assert entry.id in caplog.text


async def test_a_message_is_numbered_as_long_as_the_number_is_known(stage: Stage) -> None:
    for number in range(3):
        run = await stage.submit(f"say={number}")
        await end_of(run)
        assert f"Message {number + 1} of this session" in stage.models.bodies[-1]["messages"][-1]["content"]
    await stage.transcripts.truncate_view(stage.ada, run.key, 2)
    await stage.end("say=x")
    assert [part["role"] for part in stage.models.bodies[-1]["messages"]] == ["system", "user", "assistant", "user"]
    assert "of this session" not in stage.models.bodies[-1]["messages"][-1]["content"]


async def test_a_message_that_is_stored_while_another_begins_is_not_part_of_it(stage: Stage) -> None:
    """However the two meet: what came later is never told before what came first."""
    for number in range(20):
        first, second = await asyncio.gather(
            stage.submit(f"say=first {number}", name=str(number)),
            stage.submit(f"say=second {number}", name=str(number)),
        )
        await end_of(first)
        await end_of(second)
    for body in stage.models.bodies:
        told = [part["content"] for part in body["messages"][1:]]
        assert [part["role"] for part in body["messages"][1:]] == ["user", "assistant", "user"][-len(told) :]


async def test_a_queued_message_that_is_stopped_never_asks_the_model(stage: Stage) -> None:
    first = await stage.submit("hang")
    second = await stage.submit("say=never")
    second.abort("rpc")
    first.abort("rpc")
    assert (await end_of(second)).status == "aborted"
    assert len(stage.models.bodies) <= 1
    assert (await stage.said())[1] == "say=never"


async def test_a_queued_run_answers_with_the_model_that_was_chosen_meanwhile(stage: Stage) -> None:
    first = await stage.submit("hang")
    second = await stage.submit("say=x")
    await stage.sessions.patch(stage.ada, first.key, SessionChanges(model="mock/none"))
    first.abort("rpc")
    result = await end_of(second)
    assert result.status == "error"
    assert "mock/none" in result.error


async def test_a_listener_that_fails_takes_nothing_down(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: ModelEvent | RunEnded) -> None:
        raise ValueError("a listener's own mistake")

    heard: list[str] = []
    run = await stage.submit("tokens=3")
    run.listen(fail)
    run.listen(lambda event: heard.append(event.text) if isinstance(event, TextDelta) else None)
    queued = await stage.submit("say=after")
    assert text_of((await end_of(run)).message) == "w0 w1 w2"
    assert "".join(heard) == "w0 w1 w2"
    assert text_of((await end_of(queued)).message) == "after"
    assert "a listener's own mistake" in caplog.text


async def test_listeners_hear_everything_in_order_until_they_leave(stage: Stage) -> None:
    run = await stage.submit("tokens=3 think=deep")
    heard: list[str] = []
    run.listen(lambda event: heard.append(type(event).__name__))
    gone: list[object] = []
    leave = run.listen(gone.append)
    leave()
    leave()
    await end_of(run)
    assert heard[0] == "Started"
    assert heard[-2:] == ["Finished", "RunEnded"]
    assert heard.index("ThinkingDelta") < heard.index("TextDelta")
    assert gone == []


# Ends


async def test_a_model_that_fails_is_a_result_not_an_exception(stage: Stage) -> None:
    result = await stage.end("fail=400")
    assert result.status == "error"
    assert result.exception is not None
    assert result.error
    assert await stage.said() == ["fail=400", result.error]


@pytest.mark.parametrize(("text", "told"), [("say=x", 0), ("fail-once=500 say=x", 1), ("fail=500", 1), ("cut=1", 1)])
async def test_the_kept_answer_tells_who_failed(stage: Stage, text: str, told: int) -> None:
    """BA-072. A failure that came several times is told once."""
    result = await stage.end(text, "k", kind="agent")
    known = await stage.turns.lookup(stage.ada, "agent", RunId("k"))
    assert known is not None and known.response is not None
    tried = json.loads(known.response)["result"]["meta"]["agentMeta"].get("tried", [])
    assert [(each["provider"], each["model"]) for each in tried] == [("mock", "mock-1")] * told
    assert [each["error"] for each in tried] == [attempt.message for attempt in result.tried]


async def test_out_of_time(stage: Stage) -> None:
    result = await stage.end("tokens=2 hang", timeout_s=0.2)
    assert (result.status, result.stop_reason) == ("timeout", "timeout")
    assert result.error == "the run took longer than allowed"


@pytest.mark.parametrize("timeout_s", [0.0, 1e12])
async def test_without_a_limit(stage: Stage, timeout_s: float) -> None:
    assert (await stage.end("first=20 say=x", timeout_s=timeout_s)).status == "ok"


async def test_the_first_reason_to_stop_stands(stage: Stage) -> None:
    run = await stage.submit("hang")
    run.abort("disconnect")
    run.abort("rpc")
    assert (await end_of(run)).stop_reason == "disconnect"
    run.abort("stop")
    assert run.stop_reason == "disconnect"


async def test_an_abort_keeps_what_was_shown(stage: Stage) -> None:
    run = await stage.submit("tokens=3 hang")
    shown: list[str] = []
    run.listen(lambda event: shown.append(event.text) if isinstance(event, TextDelta) else None)
    await until(lambda: "".join(shown) == "w0 w1 w2")
    assert await stage.runs.abort(stage.ada, run.key, stop_reason="rpc") == [run.run_id]
    assert await stage.said() == ["tokens=3 hang", "w0 w1 w2"]
    session = await stage.sessions.get(stage.ada, run.key)
    assert session is not None
    assert session.aborted_last_run


async def test_a_run_that_was_over_is_not_called_stopped(stage: Stage) -> None:
    """A stop that comes while the complete answer is being stored stops nothing."""
    run = await stage.submit("say=x")
    stopping: list[asyncio.Task[list[RunId]]] = []

    def stop(event: ModelEvent | RunEnded) -> None:
        if type(event).__name__ == "Finished":
            asyncio.get_running_loop().call_soon(
                lambda: asyncio.get_running_loop().call_soon(
                    lambda: stopping.append(
                        asyncio.create_task(stage.runs.abort(stage.ada, run.key, stop_reason="rpc"))
                    )
                )
            )

    run.listen(stop)
    result = await end_of(run)
    await until(lambda: stopping)
    assert await stopping[0] == ([run.run_id] if result.status == "aborted" else [])


async def test_another_sessions_run_cannot_be_stopped_by_its_id(stage: Stage) -> None:
    run = await stage.submit("hang", "k", name="one")
    with pytest.raises(RequestError, match="runId does not match sessionKey"):
        await stage.runs.abort(stage.ada, build_key(stage.ada, AgentId("main"), "two"), stop_reason="rpc", run_id="k")
    assert await stage.runs.abort(stage.ben, run.key, stop_reason="rpc", run_id="k") == []
    assert await stage.runs.abort(stage.ben, run.key, stop_reason="rpc") == []
    assert not run.stop_reason
    run.abort("rpc")


async def test_a_reply_takes_the_models_place(stage: Stage) -> None:
    async def reply() -> str:
        return "from the gateway"

    result = await stage.end("/status", reply=reply)
    assert (result.status, text_of(result.message)) == ("ok", "from the gateway")
    assert await stage.said() == ["from the gateway"]
    assert not stage.models.bodies


async def test_a_reply_beside_a_run_does_not_wait_for_it(stage: Stage) -> None:
    """The run may wait for just that: a yes of the person."""

    async def reply() -> str:
        return "allow-once"

    blocking = await stage.submit("hang")
    behind = await stage.submit("say=behind")
    result = await stage.end("/approve 1234 allow-once", reply=reply, beside=True)
    assert (text_of(result.message), result.status) == ("allow-once", "ok")
    assert blocking.ended is None and behind.ended is None
    blocking.abort("rpc")
    assert text_of((await end_of(behind)).message) == "behind"


async def test_a_reply_that_fails(stage: Stage) -> None:
    async def reply() -> str:
        raise RequestError("no such level")

    result = await stage.end("/think wild", reply=reply)
    assert (result.status, result.error) == ("error", "no such level")
    assert (await stage.end("say=x")).status == "ok"
    assert await stage.said() == ["say=x", "x"]


async def test_a_command_that_fails_is_nobodys_answer(stage: Stage) -> None:
    """What was said while it waited is told with the answers that it got."""

    async def reply() -> str:
        raise RequestError("no such level")

    runs = [await stage.submit("first=50 say=a0")]
    runs.append(await stage.submit("/think wild", reply=reply))
    runs += [await stage.submit(f"say=a{n}") for n in (1, 2)]
    for run in runs:
        await end_of(run)
    await stage.end("say=last")
    told = [without_session(part["content"]) for part in stage.models.bodies[-1]["messages"][1:]]
    assert told == ["first=50 say=a0", "a0", "say=a1", "a1", "say=a2", "a2", "say=last"]


async def test_a_session_that_goes_away_under_its_run(stage: Stage) -> None:
    run = await stage.submit("first=50 say=x", "k")
    await answering(run)
    await stage.sessions.delete(stage.ada, run.key)
    assert text_of((await end_of(run)).message) == "x"
    assert await stage.said() == []
    assert await stage.open_runs() == 0
    assert isinstance(await stage.runs.submit(stage.inbound("again", "k")), Repeat)


async def test_an_answer_goes_to_the_transcript_its_message_is_in(stage: Stage) -> None:
    run = await stage.submit("first=50 say=x")
    await answering(run)
    before = run.session.session_id
    await stage.sessions.reset(stage.ada, run.key)
    await end_of(run)
    assert await stage.transcript(before) == ["first=50 say=x", "x"]
    assert await stage.said() == []


@pytest.mark.parametrize(("limit", "asked", "told"), [(None, None, None), (500, None, 500), (500, 70, 70)])
async def test_answers_are_as_long_as_configured(
    tmp_path: Path, limit: int | None, asked: int | None, told: int | None
) -> None:
    async with open_stage(tmp_path, max_output_tokens=limit) as stage:
        await stage.end("say=x", options=ModelOptions(max_tokens=asked))
        assert stage.models.bodies[-1].get("max_tokens") == told


# Storage that fails


async def test_a_message_that_cannot_be_stored_was_never_there(stage: Stage) -> None:
    await stage.end("say=before")
    await stage.fill()
    with pytest.raises(StorageUnavailable, match="full"):
        await stage.runs.submit(stage.inbound("x" * 100_000, "k"))
    assert stage.runs.active(stage.ada) == []
    assert await stage.said() == ["say=before", "before"]
    await stage.make_room()
    assert (await stage.end("say=after", "k")).status == "ok"
    assert await stage.said() == ["say=before", "before", "say=after", "after"]


async def test_an_end_that_cannot_be_stored_is_told_and_stored_when_there_is_room(stage: Stage) -> None:
    run = await stage.submit("first=100 big=200000", "k")
    await answering(run)
    await stage.fill()
    result = await end_of(run)
    assert result.status == "error"
    assert "the disk is full" in result.error
    assert isinstance(result.exception, StorageUnavailable)
    assert len(await stage.said()) == 1
    await stage.make_room()
    after = await stage.submit("say=after")
    assert (await end_of(after)).status == "ok"
    said = await stage.said()
    assert [len(text) for text in (said[0], said[-1])] == [len("first=100 big=200000"), len("after")]
    assert len(said) == 4
    assert await stage.open_runs() == 0
    known = await stage.turns.lookup(stage.ada, "chat", RunId("k"))
    assert isinstance(known, TurnRepeated)
    assert known.status == "error"


@pytest.mark.parametrize("together", [False, True])
async def test_what_waits_behind_an_end_without_room_can_be_stopped(stage: Stage, together: bool) -> None:
    """Else a session could not be reset before there is room."""
    run = await stage.submit("big=200000 hang")
    await until(lambda: text_of(run.draft.message("stop")), "the answer comes")
    queued = await stage.submit("say=never")
    await stage.fill()
    run.abort("rpc")
    if not together:
        await end_of(run)
    queued.abort("rpc")
    assert [(await end_of(each)).status for each in (run, queued)] == ["aborted", "aborted"]
    await stage.make_room()
    await until(lambda: not stage.runs.active(stage.ada), "the lane is empty")
    assert len(await stage.said()) == 4
    assert await stage.open_runs() == 0


async def test_a_stop_does_not_wait_for_room(tmp_path: Path) -> None:
    async with asyncio.timeout(40):
        async with open_stage(tmp_path) as stage:
            run = await stage.submit("first=100 big=200000", "k")
            await answering(run)
            await stage.fill()
            await end_of(run)
            queued = asyncio.create_task(end_of(run))
        await queued
    async with Database(tmp_path / "skynet.db") as db:
        (interrupted,) = await TurnStore(db).close_unfinished(now_ms())
        assert interrupted.run_id == "k"


# Closing, and what is remembered


async def test_an_end_that_can_never_be_stored_holds_up_nothing(stage: Stage) -> None:
    run = await stage.submit("first=300 big=100000")
    queued = await stage.submit("say=next")
    await stage.fill()
    assert (await end_of(run)).status == "error"

    def make_room_for_no_end(tx: Statements) -> None:
        tx.fetchone("PRAGMA max_page_count = 1000000")
        tx.execute(
            "CREATE TEMP TRIGGER no_end BEFORE UPDATE OF status ON dedupe"
            f" WHEN new.run_id = '{run.run_id}' BEGIN SELECT raise(ABORT, 'never'); END"
        )

    await stage.db.write(make_room_for_no_end)
    assert (await end_of(queued)).status == "ok"


async def test_closing_stops_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage:
        running = await stage.submit("tokens=2 hang")
        shown: list[str] = []
        running.listen(lambda event: shown.append(event.text) if isinstance(event, TextDelta) else None)
        queued = await stage.submit("say=never")
        await until(lambda: "".join(shown) == "w0 w1")
        await stage.runs.__aexit__(None, None, None)
        assert stage.runs.closing
        for run in (running, queued):
            result = await end_of(run)
            assert (result.status, result.stop_reason) == ("error", "shutdown")
            assert result.error == "interrupted: the gateway was stopped"
        assert await stage.said() == [
            "tokens=2 hang",
            "say=never",
            "w0 w1",
            "interrupted: the gateway was stopped",
        ]
        assert await stage.open_runs() == 0
        with pytest.raises(RequestError, match="shutting down") as refused:
            await stage.runs.submit(stage.inbound("x"))
        assert refused.value.retryable


async def test_results_are_remembered_for_a_while(stage: Stage) -> None:
    await stage.end("say=x", "k")
    stage.now_ms += REMEMBERED_MS - 1
    assert await stage.runs.result(stage.ada, RunId("k"), timeout_s=0) is not None
    stage.now_ms += 2
    assert await stage.runs.result(stage.ada, RunId("k"), timeout_s=0) is None


async def test_of_what_is_remembered_the_end_alone_stays_in_memory(stage: Stage) -> None:
    """What tools gave may be megabytes, and an exception holds on to all that its frames knew."""
    await stage.end("say=x", "k")
    await stage.end("fail=400", "bad")
    for run_id, status in (("k", "ok"), ("bad", "error")):
        result = await stage.runs.result(stage.ada, RunId(run_id), timeout_s=0)
        assert result is not None
        assert (result.status, result.messages, result.exception) == (status, (), None)


async def test_so_many_results_are_remembered(stage: Stage) -> None:
    async def reply() -> str:
        return "x"

    runs = [await stage.submit("/x", f"k{n}", reply=reply, name=str(n % 100)) for n in range(REMEMBERED_RUNS + 1)]
    for run in runs:
        await end_of(run)
    found = [await stage.runs.result(stage.ada, run.run_id, timeout_s=0) for run in runs]
    assert found.count(None) == 1


async def test_a_result_may_be_awaited_before_its_run_begins(stage: Stage) -> None:
    waits = [asyncio.create_task(stage.runs.result(who, RunId("later"), timeout_s=10)) for who in (stage.ada,) * 2]
    other = asyncio.create_task(stage.runs.result(stage.ben, RunId("later"), timeout_s=0.05))
    await asyncio.sleep(0)
    run = await stage.submit("first=100 say=x", "later")
    result = await end_of(run)
    assert await asyncio.gather(*waits) == [result, result]
    assert await other is None


async def test_a_wait_that_is_cancelled_is_forgotten(stage: Stage) -> None:
    waiting = asyncio.create_task(stage.runs.result(stage.ada, RunId("never"), timeout_s=10))
    await asyncio.sleep(0)
    assert stage.runs._waiters
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not stage.runs._waiters


async def test_lines_of_a_run_belong_to_its_person(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="skynet.gateway.runs"):
        await stage.end("say=x")
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["run started", "run ended"]
