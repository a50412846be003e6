"""A turn: rounds of answers and tools, and an assistant message at its end whatever happens."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import pytest

from skynet_agent.errors import BadRequest, ContextOverflow, StreamCut, UnknownModel
from skynet_agent.events import (
    Answered,
    Finished,
    Shortened,
    Started,
    TextDelta,
    ToolEnded,
    ToolStarted,
    ToolUpdated,
    TurnEvent,
)
from skynet_agent.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
    text_of,
)
from skynet_agent.requests import ModelRequest, OneTool, ToolDefinition
from skynet_agent.router import Router
from skynet_agent.tools import tool_result
from skynet_agent.turn import FAILED_ROUNDS, LOOP_REPEATS, MAX_CALLS, MAX_RESULT_CHARS, MAX_SHORTENINGS, LoopWatch, Turn
from tests.skynet_agent.lab import ask, row_of, until
from tests.support.model_server import ModelServer

MakeRouter = Callable[..., Router]
LOOK = (ToolDefinition(name="look"),)


class Tools:
    """Runs every call with ``answer`` and counts."""

    def __init__(self, answer: Callable[[ToolCallBlock], Awaitable[ToolResultMessage]] | None = None) -> None:
        self.calls: list[ToolCallBlock] = []
        self.at_once = self.most_at_once = 0
        self._answer = answer

    async def __call__(self, call: ToolCallBlock, update: Callable[[str], None]) -> ToolResultMessage:
        self.calls.append(call)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            update("at it")
            if self._answer is not None:
                return await self._answer(call)
            return tool_result(call, f"{call.name} {call.arguments.get('n', len(self.calls))}")
        finally:
            self.at_once -= 1


class Outcome:
    def __init__(self, turn: Turn, events: list[TurnEvent]) -> None:
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert sum(isinstance(event, Finished) for event in events) == 1
        assert turn.messages[-1] is finished.message
        self.turn, self.events, self.finished, self.message = turn, events, finished, finished.message

    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


async def run(router: Router, request: ModelRequest, **settings: object) -> Outcome:
    events: list[TurnEvent] = []
    turn = Turn(router, request, emit=events.append, **settings)  # type: ignore[arg-type]
    assert await turn.run() is events[-1]
    return Outcome(turn, events)


# Without tools


async def test_a_turn(server: ModelServer, make_router: MakeRouter) -> None:
    outcome = await run(make_router(row_of(server)), ask("think=hm say=hello you prompt=50 cached=20"))
    assert outcome.events[0] == Started("lab", "mock-1", "openai-completions")
    assert outcome.finished.error is None
    assert outcome.message.content == [ThinkingBlock("hm"), TextBlock("hello you")]
    assert (outcome.message.stop_reason, outcome.message.error_message) == ("stop", None)
    assert outcome.message.usage == Usage(30, 3, 20, 0, 53, cost_microusd=80, cost_parts=(30, 30, 20, 0))


async def test_a_failure_before_anything(server: ModelServer, make_router: MakeRouter) -> None:
    outcome = await run(make_router(row_of(server)), ask("fail=400"))
    assert len(outcome.events) == 1
    assert isinstance(outcome.finished.error, BadRequest)
    message = outcome.message
    assert (message.content, message.stop_reason, message.usage) == ([], "error", None)
    assert (message.provider, message.model, message.error_message) == (
        "lab",
        "mock-1",
        "lab: scripted failure 400 (HTTP 400)",
    )


async def test_what_a_provider_says_of_a_message_is_not_in_the_log(
    server: ModelServer, make_router: MakeRouter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        outcome = await run(make_router(row_of(server)), ask("fail=400 say=you wrote my diary"))
    assert "my diary" in (outcome.message.error_message or "")
    assert "the turn failed (BadRequest: HTTP 400)" in caplog.text
    assert "diary" not in caplog.text


async def test_a_failure_in_the_middle_keeps_the_text(server: ModelServer, make_router: MakeRouter) -> None:
    outcome = await run(make_router(row_of(server)), ask("tokens=9 cut=3"))
    assert isinstance(outcome.finished.error, StreamCut)
    assert text_of(outcome.message) == "w0 w1 w2"
    assert (outcome.message.stop_reason, outcome.message.error_message) == ("error", "lab: the answer broke off")


async def test_an_unknown_model(server: ModelServer, make_router: MakeRouter) -> None:
    outcome = await run(make_router(row_of(server)), ask("hi", "gpt-9"))
    assert isinstance(outcome.finished.error, UnknownModel)
    assert "unknown model 'gpt-9'" in (outcome.message.error_message or "")


@pytest.mark.parametrize("script", ["hang", "tokens=3 hang", "tokens=500 delay=10"])
async def test_a_cancelled_turn_can_be_stored(server: ModelServer, make_router: MakeRouter, script: str) -> None:
    events: list[TurnEvent] = []
    turn = Turn(make_router(row_of(server)), ask(script), emit=events.append)
    task = asyncio.create_task(turn.run())
    await until(lambda: server.served == 1 and (script == "hang" or len(events) > 2))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.disconnects == 1)
    assert not any(isinstance(event, Finished) for event in events)
    (message,) = turn.stopped("aborted", "stopped by a test")
    assert isinstance(message, AssistantMessage)
    assert (message.stop_reason, message.error_message, message.model) == ("aborted", "stopped by a test", "mock-1")
    assert text_of(message).startswith("" if script == "hang" else "w0 w1")


# With tools


async def test_a_round_of_tools(server: ModelServer, make_router: MakeRouter) -> None:
    """SK-098."""
    tools = Tools()
    outcome = await run(
        make_router(row_of(server)), ask('tool=look:{"n":1} tool=look:{"n":2}', tools=LOOK), tools=tools
    )
    assert text_of(outcome.message) == "tool said: look 2"
    first, one, two, last = outcome.turn.messages
    assert isinstance(first, AssistantMessage) and first.stop_reason == "toolUse"
    assert [text_of(result) for result in (one, two)] == ["look 1", "look 2"]
    assert last is outcome.message
    assert [call.arguments for call in tools.calls] == [{"n": 1}, {"n": 2}]
    kinds = outcome.kinds()
    answered = kinds.index(Answered)
    assert sorted(kind.__name__ for kind in kinds[answered + 1 : answered + 7]) == sorted(
        2 * ["ToolStarted", "ToolUpdated", "ToolEnded"]
    )
    assert kinds[answered + 7] is Started
    sent = server.bodies[-1]["messages"]
    assert [(message["role"], message.get("content")) for message in sent[1:]] == [
        ("assistant", None),
        ("tool", "look 1"),
        ("tool", "look 2"),
    ]


async def test_without_a_runner_a_call_ends_the_turn(server: ModelServer, make_router: MakeRouter) -> None:
    outcome = await run(make_router(row_of(server)), ask("tool=look:{}", tools=LOOK))
    assert (outcome.message.stop_reason, len(outcome.turn.messages), server.served) == ("toolUse", 1, 1)


async def test_parallel_calls_run_at_the_same_time(server: ModelServer, make_router: MakeRouter) -> None:
    together = asyncio.Barrier(3)

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        async with asyncio.timeout(40):
            await together.wait()
        return tool_result(call, str(call.arguments["n"]))

    script = 'tool=look:{"n":0} tool=look:{"n":1} tool=look:{"n":2}'
    outcome = await run(make_router(row_of(server)), ask(script, tools=LOOK), tools=Tools(answer))
    assert [text_of(message) for message in outcome.turn.messages[1:4]] == ["0", "1", "2"]


async def test_results_stand_in_the_order_of_the_calls(server: ModelServer, make_router: MakeRouter) -> None:
    done = [asyncio.Event() for _ in range(3)]

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        number = call.arguments["n"]
        if number < 2:
            await done[number + 1].wait()
        done[number].set()
        return tool_result(call, str(number))

    script = 'tool=look:{"n":0} tool=look:{"n":1} tool=look:{"n":2}'
    outcome = await run(make_router(row_of(server)), ask(script, tools=LOOK), tools=Tools(answer))
    ended = [text_of(event.result) for event in outcome.events if isinstance(event, ToolEnded)]
    assert ended == ["2", "1", "0"]
    assert [text_of(message) for message in outcome.turn.messages[1:4]] == ["0", "1", "2"]


async def test_of_very_many_calls_only_some_are_carried_out(server: ModelServer, make_router: MakeRouter) -> None:
    tools = Tools()
    script = " ".join(f'tool=look:{{"n":{number}}}' for number in range(MAX_CALLS + 3))
    outcome = await run(make_router(row_of(server)), ask(script, tools=LOOK), tools=tools)
    assert {call.arguments["n"] for call in tools.calls} == set(range(MAX_CALLS))
    results = [message for message in outcome.turn.messages if isinstance(message, ToolResultMessage)]
    assert [(result.is_error, text_of(result)) for result in results[-4:]] == [
        (False, f"look {MAX_CALLS - 1}"),
        *[(True, f"not carried out: at most {MAX_CALLS} calls are, at a time")] * 3,
    ]
    assert len(results) == MAX_CALLS + 3 == outcome.kinds().count(ToolEnded)


async def test_results_of_a_turn_have_room_for_so_much(server: ModelServer, make_router: MakeRouter) -> None:
    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        return tool_result(call, [ImageBlock("image/png", "A" * (MAX_RESULT_CHARS // 3))])

    script = " next-round ".join([*(f'tool=look:{{"n":{number}}}' for number in range(4)), "say=seen"])
    outcome = await run(make_router(row_of(server)), ask(script, tools=LOOK), tools=Tools(answer))
    results = [message for message in outcome.turn.messages if isinstance(message, ToolResultMessage)]
    assert [result.is_error for result in results] == [False, False, False, True]
    assert text_of(results[-1]) == (
        f"the result is left out: those of this turn would have more than {MAX_RESULT_CHARS} characters"
    )


async def test_a_model_that_always_calls_is_stopped_after_25_rounds(
    server: ModelServer, make_router: MakeRouter
) -> None:
    """SK-097: exactly 25 calls, then a stated stop that a client sees as text."""
    tools = Tools()
    outcome = await run(make_router(row_of(server)), ask("every-round tool=look:{}", tools=LOOK), tools=tools)
    assert (len(tools.calls), server.served) == (25, 25)
    assert text_of(outcome.message) == "I stopped here: the model was asked 25 times and still wanted to use tools."
    assert isinstance(outcome.events[-2], TextDelta)
    assert (outcome.message.stop_reason, outcome.message.model) == ("length", "mock-1")


async def test_a_model_that_repeats_itself_is_stopped(server: ModelServer, make_router: MakeRouter) -> None:
    """SK-195."""

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        return tool_result(call, "the same")

    outcome = await run(make_router(row_of(server)), ask("every-round tool=look:{}", tools=LOOK), tools=Tools(answer))
    assert server.served == LOOP_REPEATS
    assert "with the same input and the same result" in text_of(outcome.message)


async def test_a_model_whose_tools_only_fail_is_stopped(server: ModelServer, make_router: MakeRouter) -> None:
    """SK-195."""
    count = iter(range(100))

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        return tool_result(call, f"no {next(count)}", is_error=True)

    outcome = await run(make_router(row_of(server)), ask("every-round tool=look:{}", tools=LOOK), tools=Tools(answer))
    assert server.served == FAILED_ROUNDS
    assert "failed 3 times in a row" in text_of(outcome.message)


LOOPS = f"look was called {LOOP_REPEATS} times with the same input and the same result"
FAILS = f"every use of a tool failed {FAILED_ROUNDS} times in a row"


@pytest.mark.parametrize(
    ("rounds", "stuck"),
    [
        ("a a a a a", LOOPS),
        ("aaaaa", LOOPS),  # in one round
        ("ab ac ad ae a", LOOPS),
        ("abcdefgaaaa a", LOOPS),
        ("abc abc abc abc abc", ""),  # three other steps between two of the same: the window holds four of them
        ("abcdefghijaaaa", ""),  # the first one was too long ago
        ("X Y Z", FAILS),
        ("X Ya Z Xb Y", ""),  # a call of the round was good
        ("X Y a Z X", ""),
        ("X Y a X Y Z", FAILS),
        ("XYZ", ""),  # one round
    ],
)
def test_what_is_going_round_in_circles(rounds: str, stuck: str) -> None:
    """SK-195: five repeats within ten steps, or three failures one after the other. A letter is a call, a capital one
    that fails; what the last round says is compared."""
    watch, said = LoopWatch(), ""
    for letters in rounds.split():
        assert said == ""
        calls = [ToolCallBlock("c", "look", {"at": letter.lower()}) for letter in letters]
        results = [
            tool_result(call, letter, is_error=letter.isupper()) for call, letter in zip(calls, letters, strict=True)
        ]
        said = watch.stuck(calls, results)
    assert said == stuck


def test_another_input_or_result_is_another_step() -> None:
    for steps in (
        [({"at": number}, "seen") for number in range(20)],
        [({"at": 1}, f"seen {number}") for number in range(20)],
    ):
        watch = LoopWatch()
        for arguments, text in steps:
            call = ToolCallBlock("c", "look", arguments)
            assert watch.stuck([call], [tool_result(call, text)]) == ""


async def test_cancelling_stops_the_tools_and_keeps_what_they_gave(
    server: ModelServer, make_router: MakeRouter
) -> None:
    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        if call.arguments["n"] == 2:
            await asyncio.Event().wait()
        return tool_result(call, "done")

    tools, events = Tools(answer), list[TurnEvent]()
    request = ask('tool=look:{"n":1} tool=look:{"n":2}', tools=LOOK)
    turn = Turn(make_router(row_of(server)), request, emit=events.append, tools=tools)
    task = asyncio.create_task(turn.run())
    await until(lambda: any(isinstance(event, ToolEnded) for event in events) and tools.at_once == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tools.at_once == 0
    answered, result, missing, last = turn.stopped("aborted")
    assert isinstance(answered, AssistantMessage) and len(answered.content) == 2
    assert text_of(result) == "done"
    assert isinstance(missing, ToolResultMessage) and isinstance(result, ToolResultMessage)
    assert (missing.is_error, text_of(missing)) == (True, "No result: the call was interrupted.")
    assert missing.tool_call_id != result.tool_call_id
    assert isinstance(last, AssistantMessage) and (last.stop_reason, last.content) == ("aborted", [])


async def test_a_tool_that_ends_although_it_is_stopped_has_its_result(
    server: ModelServer, make_router: MakeRouter
) -> None:
    stopped = asyncio.Event()

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
        return tool_result(call, "done all the same")

    tools = Tools(answer)
    turn = Turn(make_router(row_of(server)), ask("tool=look:{}", tools=LOOK), emit=lambda event: None, tools=tools)
    task = asyncio.create_task(turn.run())
    await until(lambda: tools.at_once == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
    assert [text_of(message) for message in turn.stopped("aborted")] == ["", "done all the same", ""]


async def test_each_call_without_a_result_gets_one_when_the_turn_is_stopped(
    server: ModelServer, make_router: MakeRouter
) -> None:
    """Calls may have the same id."""
    turn = Turn(make_router(row_of(server)), ask("hi"), emit=lambda event: None, tools=Tools())
    calls = [ToolCallBlock(identity, "look", {}) for identity in ("a", "b", "a", "a")]
    for given in range(len(calls) + 1):
        answer = AssistantMessage([*calls], "", "", "", "toolUse", 1)
        turn.messages = [answer, *(tool_result(call, "seen") for call in calls[:given])]
        stored = turn.stopped("aborted")
        results = [message for message in stored if isinstance(message, ToolResultMessage)]
        assert sorted(result.tool_call_id for result in results) == ["a", "a", "a", "b"]
        assert sum(result.is_error for result in results) == len(calls) - given


@pytest.mark.parametrize("choice", ["required", OneTool("look")])
async def test_a_call_that_has_to_be_made_is_made_once(
    server: ModelServer, make_router: MakeRouter, choice: Literal["required"] | OneTool
) -> None:
    """Else the model could never answer."""
    request = ask("tool=look:{} next-round say=done", tools=LOOK, tool_choice=choice)
    outcome = await run(make_router(row_of(server)), request, tools=Tools())
    assert text_of(outcome.message) == "done"
    first, second = server.bodies
    assert first["tool_choice"] in ("required", {"type": "function", "function": {"name": "look"}})
    assert "tool_choice" not in second


async def test_what_a_tool_tells_after_its_end_is_not_passed_on(server: ModelServer, make_router: MakeRouter) -> None:
    tellers: list[Callable[[str], None]] = []

    async def look(call: ToolCallBlock, update: Callable[[str], None]) -> ToolResultMessage:
        update("at it")
        tellers.append(update)
        return tool_result(call, "seen")

    outcome = await run(make_router(row_of(server)), ask("tool=look:{}", tools=LOOK), tools=look)
    told = len(outcome.events)
    tellers[0]("still at it")
    assert len(outcome.events) == told
    assert sum(isinstance(event, ToolUpdated) for event in outcome.events) == 1


async def test_a_round_is_told_before_the_model_is_asked_again(server: ModelServer, make_router: MakeRouter) -> None:
    rounds: list[tuple[int, int]] = []

    async def after_round() -> None:
        rounds.append((server.served, len(turn.messages)))

    events: list[TurnEvent] = []
    turn = Turn(
        make_router(row_of(server)),
        ask("tool=look:{}", tools=LOOK),
        emit=events.append,
        tools=Tools(),
        after_round=after_round,
    )
    await turn.run()
    assert rounds == [(1, 2)]
    assert [type(event) for event in events if isinstance(event, ToolStarted | ToolUpdated | ToolEnded)] == [
        ToolStarted,
        ToolUpdated,
        ToolEnded,
    ]


# Conversations that are too long


async def test_a_conversation_that_is_too_long_is_shortened(server: ModelServer, make_router: MakeRouter) -> None:
    def shorten(messages: Sequence[Message]) -> Sequence[Message] | None:
        server.script = ""
        return messages[-1:]

    server.script = "fail=context"
    history = [UserMessage([TextBlock("old")], 1)]
    outcome = await run(make_router(row_of(server)), ask("say=fine", history=history), shorten=shorten)
    assert text_of(outcome.message) == "fine"
    assert outcome.kinds()[0] is Shortened
    assert [len(body["messages"]) for body in server.bodies] == [2, 1]


async def test_what_cannot_be_shortened_fails(server: ModelServer, make_router: MakeRouter) -> None:
    outcome = await run(make_router(row_of(server)), ask("fail=context"), shorten=lambda messages: None)
    assert isinstance(outcome.finished.error, ContextOverflow)
    outcome = await run(make_router(row_of(server)), ask("fail=context"), shorten=lambda messages: messages)
    assert isinstance(outcome.finished.error, ContextOverflow)
    assert server.served == 1 + MAX_SHORTENINGS + 1


async def test_a_turn_that_is_too_long_itself_is_told_with_shorter_results(
    server: ModelServer, make_router: MakeRouter
) -> None:
    """What was said before is not given up for what one of the tools poured out. The stored results stay whole."""
    events: list[TurnEvent] = []

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        server.script = "fail=context"
        return tool_result(call, 30_000 * "x")

    def emit(event: TurnEvent) -> None:
        events.append(event)
        if sum(isinstance(each, Shortened) for each in events) == 2:
            server.script = ""

    def shorten(messages: Sequence[Message]) -> Sequence[Message] | None:
        raise AssertionError("the conversation is short enough")

    history = [UserMessage([TextBlock("old")], 1)]
    request = ask("think=hm tool=look:{} next-round say=fine", history=history, tools=LOOK)
    turn = Turn(make_router(row_of(server)), request, emit=emit, tools=Tools(answer), shorten=shorten)
    finished = await turn.run()
    assert text_of(finished.message) == "fine"
    results = [[len(m["content"]) for m in body["messages"] if m["role"] == "tool"] for body in server.bodies]
    assert results[:2] == [[], [30_000]]
    assert results[2][0] < 4_001 and results[3][0] < 501 and len(results) == 4
    assert all(len(body["messages"]) >= 2 for body in server.bodies)
    assert len(text_of(turn.messages[1])) == 30_000


async def test_after_a_shortening_no_thinking_goes_back(server: ModelServer, make_router: MakeRouter) -> None:
    """It is signed for the conversation it was thought in, and refused in any other."""

    async def answer(call: ToolCallBlock) -> ToolResultMessage:
        server.script = "fail=context"
        return tool_result(call, "seen")

    def shorten(messages: Sequence[Message]) -> Sequence[Message] | None:
        server.script = ""
        return messages[-1:]

    row = row_of(server, wants_thinking_back=True)
    history = [UserMessage([TextBlock("old")], 1)]
    request = ask("think=hm tool=look:{} next-round say=fine", history=history, tools=LOOK)
    outcome = await run(make_router(row), request, tools=Tools(answer), shorten=shorten)
    assert text_of(outcome.message) == "fine"
    thoughts = [[m.get("reasoning_content") for m in body["messages"]] for body in server.bodies[1:]]
    assert thoughts == [[None, None, "hm", None], [None, None, None]]
    assert isinstance(outcome.turn.messages[0], AssistantMessage)
    assert isinstance(outcome.turn.messages[0].content[0], ThinkingBlock)
