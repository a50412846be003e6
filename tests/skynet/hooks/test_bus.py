"""Gates are asked in their order and stop what they should; observers hold up nobody."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.hooks import (
    EVENTS,
    BeforeMessage,
    BeforeModelCall,
    BeforeToolCall,
    Block,
    Event,
    Gate,
    Hook,
    HookBus,
    HookUser,
    MessageReceived,
    MessageSent,
    Stopped,
    on,
    thawed,
)
from skynet.hooks import calls as hook_calls
from skynet.hooks.bus import FAILED, LONGEST_REASON, wishes
from skynet.supervisor import Supervisor
from skynet_memory.ids import Role, UserId
from tests.skynet.hooks.support import ADA, SESSION, message, one_of_each, sent, tool_call
from tests.support.polling import until

A_MOMENT_S = 0.02
"""What nobody should have to wait for, in tests of what takes too long."""


@pytest.fixture
async def bus() -> AsyncIterator[HookBus]:
    async with Supervisor() as tasks, HookBus(tasks) as bus:
        yield bus


@pytest.fixture
async def hasty() -> AsyncIterator[HookBus]:
    """With time limits that are over at once, and room for three events."""
    async with (
        Supervisor() as tasks,
        HookBus(tasks, gate_timeout_s=A_MOMENT_S, observer_timeout_s=A_MOMENT_S, queued_events=3) as bus,
    ):
        yield bus


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class TestOrder:
    """SK-143: integer priority decides; ties keep the order of registration."""

    @given(st.lists(st.integers(-3, 3) | st.integers(), max_size=12))
    def test_gates_are_asked_by_priority_then_as_registered(self, priorities: list[int]) -> None:
        async def ask_all() -> list[int]:
            asked: list[int] = []
            async with Supervisor() as tasks, HookBus(tasks) as bus:
                for number, priority in enumerate(priorities):

                    async def handler(event: BeforeMessage, number: int = number) -> None:
                        asked.append(number)

                    bus.register(BeforeMessage, handler, priority)
                await bus.ask(message())
            return asked

        expected = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
        assert asyncio.run(ask_all()) == expected

    async def test_observers_are_started_in_this_order_too(self, bus: HookBus) -> None:
        begun: list[str] = []

        def observer(name: str) -> Callable[[MessageSent], Awaitable[None]]:
            async def handler(event: MessageSent) -> None:
                begun.append(name)

            return handler

        for name, priority in {"b": 0, "d": -1, "a": 5, "c": 0}.items():
            bus.register(MessageSent, observer(name), priority)
        bus.announce(sent())
        await until(lambda: len(begun) == 4)
        assert begun == ["a", "b", "c", "d"]

    async def test_one_observer_is_told_in_the_order_of_events(self, bus: HookBus) -> None:
        """Also of events of several types, and if it is slow with the first."""
        told: list[Event] = []
        gate = asyncio.Event()

        async def observer(event: Event) -> None:
            if not told:
                await gate.wait()
            told.append(event)

        for event_type in EVENTS.values():
            bus.register(event_type, observer)
        events = [event for event in one_of_each() if isinstance(event, Hook)]
        for event in events:
            bus.announce(event)
        gate.set()
        await until(lambda: len(told) == len(events))
        assert told == events


class TestGates:
    """SK-140: in the request's path, and able to stop it. SK-144: able to change it."""

    async def test_nobody_is_asked(self, bus: HookBus) -> None:
        asked = message()
        assert not bus.has(BeforeMessage)
        assert await bus.ask(asked) is asked

    async def test_each_gets_what_the_one_before_made_of_it(self, bus: HookBus) -> None:
        @functools.partial(bus.register, BeforeMessage)
        async def first(event: BeforeMessage) -> BeforeMessage:
            return replace(event, text=event.text + " and")

        @functools.partial(bus.register, BeforeMessage)
        def second(event: BeforeMessage) -> BeforeMessage:
            return replace(event, text=event.text + " then")

        @functools.partial(bus.register, BeforeMessage)
        async def third(event: BeforeMessage) -> None:
            assert event.text == "Hello and then"

        assert bus.has(BeforeMessage)
        assert not bus.has(BeforeToolCall)
        assert (await bus.ask(message())).text == "Hello and then"

    async def test_who_changes_nothing_gives_back_the_same(self, bus: HookBus) -> None:
        bus.register(BeforeToolCall, lambda event: None)
        bus.register(BeforeToolCall, lambda event: event)
        asked = tool_call(path="a")
        assert await bus.ask(asked) is asked

    async def test_arguments_and_the_prompt_can_be_changed(self, bus: HookBus) -> None:
        bus.register(BeforeToolCall, lambda event: replace(event, arguments={**event.arguments, "limit": [1]}))
        bus.register(BeforeModelCall, lambda event: replace(event, system_suffix=event.system_suffix + "Be brief."))
        bus.register(BeforeModelCall, lambda event: replace(event, system_suffix=event.system_suffix + " Be kind."))
        assert thawed((await bus.ask(tool_call(path="a"))).arguments) == {"path": "a", "limit": [1]}
        asked = await bus.ask(BeforeModelCall(user=ADA, session=SESSION, model="", system=("x",), messages=()))
        assert asked.system_suffix == "Be brief. Be kind."

    async def test_a_no_stops_with_its_reason(self, bus: HookBus, caplog: pytest.LogCaptureFixture) -> None:
        asked_later: list[Event] = []
        bus.register(BeforeMessage, lambda event: replace(event, text="changed"), 2)
        bus.register(BeforeMessage, lambda event: Block("not at night"), 1)
        bus.register(BeforeMessage, asked_later.append)
        with pytest.raises(Stopped, match="not at night") as caught:
            await bus.ask(message())
        assert caught.value.reason == "not at night"
        assert isinstance(caught.value.event, BeforeMessage)
        assert caught.value.event.text == "changed"
        assert not caught.value.is_failure
        assert not asked_later
        assert not errors(caplog)

    @pytest.mark.parametrize(
        ("reason", "told"), [("", "a hook"), ("x" * 5000, "x" * LONGEST_REASON), ("a\ud800", "a?")]
    )
    async def test_any_reason_can_be_told(self, bus: HookBus, reason: str, told: str) -> None:
        bus.register(BeforeMessage, lambda event: Block(reason))
        with pytest.raises(Stopped) as caught:
            await bus.ask(message())
        assert caught.value.reason.startswith(told)
        assert len(caught.value.reason) <= LONGEST_REASON

    @pytest.mark.parametrize("is_coroutine", [True, False])
    @pytest.mark.parametrize(
        "error",
        [ValueError("secret"), SystemExit(1), StopIteration(), asyncio.CancelledError(), TimeoutError()],
        ids=repr,
    )
    async def test_one_that_raises_stops(
        self, bus: HookBus, error: BaseException, is_coroutine: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(event: BeforeMessage) -> None:
            raise error

        async def broken_too(event: BeforeMessage) -> None:
            raise error

        bus.register(BeforeMessage, broken_too if is_coroutine else broken, name="mine")
        with pytest.raises(Stopped) as caught:
            await bus.ask(message())
        assert caught.value.reason == FAILED
        assert caught.value.is_failure
        assert errors(caplog) == ["stopped before_message: the hook mine failed"]
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.exc_info is not None
        assert (vars(record)["user_id"], vars(record)["run_id"]) == (ADA.id, "run-1")

    async def test_one_that_is_slow_stops(self, hasty: HookBus, caplog: pytest.LogCaptureFixture) -> None:
        ended = asyncio.Event()

        async def slow(event: BeforeMessage) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        hasty.register(BeforeMessage, slow, name="mine")
        with pytest.raises(Stopped) as caught:
            await hasty.ask(message())
        assert caught.value.reason == FAILED
        assert errors(caplog) == ["stopped before_message: the hook mine took longer than 0.02 s"]
        await ended.wait()

    async def test_one_that_cannot_be_cancelled_stops_too(self, hasty: HookBus) -> None:
        free = asyncio.Event()

        async def stubborn(event: BeforeMessage) -> None:
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

        hasty.register(BeforeMessage, stubborn)
        with pytest.raises(Stopped):
            await hasty.ask(message())
        free.set()

    async def test_one_that_blocks_its_thread_stops_and_does_not_block_the_loop(self, hasty: HookBus) -> None:
        free = threading.Event()
        hasty.register(BeforeMessage, lambda event: free.wait() and None)
        try:
            for _ in range(hook_calls.MOST_THREADS + 2):  # the last ones find no thread free
                with pytest.raises(Stopped):
                    await hasty.ask(message())
            assert sum(thread.name.startswith("hook ") for thread in threading.enumerate()) <= hook_calls.MOST_THREADS
        finally:
            free.set()
        await until(lambda: not any(thread.name.startswith("hook ") for thread in threading.enumerate()))

    @pytest.mark.parametrize(
        "answer",
        [
            True,
            "text",
            sent(),
            BeforeMessage,
            replace(message(), text=3),  # type: ignore[arg-type]
            replace(message(), text=" "),
            replace(message(), text="\ud800"),
            replace(message(), user=HookUser(id=UserId("x"), role=Role.ADMIN, display_name="Eve")),
            replace(message(), session="user:x:agent:main:main"),  # type: ignore[arg-type]
            replace(message(), source="phone"),
        ],
        ids=str,
    )
    async def test_an_answer_that_is_none_stops(self, bus: HookBus, answer: object) -> None:
        """SK-132: who it is cannot be changed either."""
        bus.register(BeforeMessage, lambda event: answer)
        with pytest.raises(Stopped, match="did not succeed"):
            await bus.ask(message())

    async def test_only_arguments_of_a_tool_can_be_changed(self, bus: HookBus) -> None:
        bus.register(BeforeToolCall, lambda event: replace(event, tool="write_file"))
        with pytest.raises(Stopped):
            await bus.ask(tool_call())

    async def test_who_asks_can_be_cancelled(self, bus: HookBus) -> None:
        """SP-051: a run that is stopped meanwhile does not go on."""
        begun, ended = asyncio.Event(), asyncio.Event()

        async def slow(event: BeforeMessage) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        bus.register(BeforeMessage, slow)
        asking = asyncio.create_task(bus.ask(message()))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await ended.wait()

    async def test_nothing_goes_on_when_the_gateway_stops(self) -> None:
        async with Supervisor() as tasks:
            bus = HookBus(tasks)
            bus.register(BeforeMessage, lambda event: None)
        with pytest.raises(Stopped):
            await bus.ask(message())

    async def test_it_knows_the_context(self, bus: HookBus) -> None:
        where: ContextVar[str] = ContextVar("where", default="")
        seen: list[str] = []

        async def on_the_loop(event: Event) -> None:
            seen.append(where.get())

        def in_a_thread(event: Event) -> None:
            seen.append(where.get())

        for event_type in (BeforeMessage, MessageSent):
            bus.register(event_type, on_the_loop)
            bus.register(event_type, in_a_thread)
        where.set("first")
        await bus.ask(message())
        bus.announce(sent())
        bus.announce(sent())
        where.set("later")
        await until(lambda: len(seen) == 6)
        assert set(seen) == {"first"}


class TestObservers:
    """SK-141: told afterwards; slow or failing ones do not delay or break a reply, and are logged."""

    async def test_nobody_waits_for_them(self, bus: HookBus) -> None:
        free = asyncio.Event()
        told: list[Event] = []

        async def slow(event: MessageSent) -> None:
            await free.wait()
            told.append(event)

        bus.register(MessageSent, slow)
        quick: list[Event] = []

        async def other(event: MessageSent) -> None:
            quick.append(event)

        bus.register(MessageSent, other)
        events = [sent(str(number)) for number in range(5)]
        for event in events:
            bus.announce(event)
        await until(lambda: quick == events, "the other one is not held up either")
        assert not told
        free.set()
        await until(lambda: told == events)

    async def test_those_in_threads_hold_up_nobody_either(self, bus: HookBus) -> None:
        free = threading.Event()
        told: list[Event] = []

        def slow(event: MessageSent) -> None:
            free.wait()
            told.append(event)

        bus.register(MessageSent, slow)
        events = [sent(str(number)) for number in range(5)]
        for event in events:
            bus.announce(event)
        assert not told
        free.set()
        await until(lambda: told == events)

    @pytest.mark.parametrize(
        "error", [ValueError("x"), SystemExit(1), asyncio.CancelledError(), TimeoutError()], ids=repr
    )
    async def test_failures_are_logged_and_the_next_event_is_told(
        self, bus: HookBus, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[Event] = []

        async def broken(event: MessageSent) -> None:
            told.append(event)
            raise error

        bus.register(MessageSent, broken, name="mine")
        bus.announce(sent())
        bus.announce(sent())
        await until(lambda: len(errors(caplog)) == 2)
        assert len(told) == 2
        assert all(words.startswith("the hook mine ") for words in errors(caplog))
        assert all(record.exc_info for record in caplog.records if record.levelno >= logging.ERROR)

    async def test_one_that_is_slow_is_ended(self, hasty: HookBus, caplog: pytest.LogCaptureFixture) -> None:
        async def slow(event: MessageSent) -> None:
            await asyncio.Event().wait()

        hasty.register(MessageSent, slow, name="mine")
        hasty.announce(sent())
        await until(lambda: errors(caplog))
        assert errors(caplog) == ["the hook mine was ended: it took longer than 0.02 s for message_sent"]

    async def test_too_many_drop_the_oldest_and_are_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        free = asyncio.Event()
        told: list[str] = []

        async def slow(event: MessageSent) -> None:
            await free.wait()
            told.append(event.text)

        async with Supervisor() as tasks, HookBus(tasks, queued_events=3) as bus:
            bus.register(MessageSent, slow, name="mine")
            for number in range(10):
                bus.announce(sent(str(number)))
            free.set()
            await until(lambda: len(told) == 4)
        assert told == ["0", "7", "8", "9"]
        assert errors(caplog) == [
            "the hook mine is too slow: events are dropped, the oldest of 3 first",
            "the hook mine has missed 6 events",
        ]

    async def test_what_they_return_does_not_matter(self, bus: HookBus, caplog: pytest.LogCaptureFixture) -> None:
        told: list[Event] = []

        async def observer(event: MessageSent) -> Block:
            told.append(event)
            return Block("no")

        bus.register(MessageSent, observer)
        bus.announce(sent())
        await until(lambda: told)
        assert not errors(caplog)

    async def test_closing_lets_them_finish(self) -> None:
        told: list[Event] = []

        async def observer(event: MessageSent) -> None:
            await asyncio.sleep(0)
            told.append(event)

        async with Supervisor() as tasks:
            async with HookBus(tasks) as bus:
                bus.register(MessageSent, observer)
                for _ in range(20):
                    bus.announce(sent())
            assert len(told) == 20
            bus.announce(sent())
            await bus.aclose()
        assert len(told) == 20

    async def test_closing_does_not_wait_for_ever(self, caplog: pytest.LogCaptureFixture) -> None:
        async def slow(event: MessageSent) -> None:
            await asyncio.Event().wait()

        async with Supervisor() as tasks:
            async with HookBus(tasks, close_s=A_MOMENT_S) as bus:
                bus.register(MessageSent, slow, name="mine")
                for _ in range(3):
                    bus.announce(sent())
            await until(lambda: not len(tasks))
        assert errors(caplog) == ["the hook mine was stopped; 2 events that waited are lost"]

    async def test_a_supervisor_that_is_gone_breaks_nothing(self) -> None:
        async with Supervisor() as tasks:
            bus = HookBus(tasks)
            bus.register(MessageSent, lambda event: None)
        bus.announce(sent())
        bus.announce(sent())


async def test_opening_and_closing_leaves_nothing() -> None:
    before = threading.active_count(), len(asyncio.all_tasks())
    for _ in range(20):
        async with Supervisor() as tasks, HookBus(tasks) as bus:
            told: list[Event] = []
            bus.register(BeforeMessage, lambda event: None)
            bus.register(MessageSent, told.append)
            await bus.ask(message())
            bus.announce(sent())
        assert len(told) == 1
        assert not len(tasks)
    await until(lambda: (threading.active_count(), len(asyncio.all_tasks())) == before)


@pytest.mark.parametrize("steps", range(8))
async def test_cancelling_anywhere_leaves_a_bus_that_works(bus: HookBus, steps: int) -> None:
    bus.register(BeforeMessage, lambda event: replace(event, text="1"))

    async def slow(event: BeforeMessage) -> BeforeMessage:
        await asyncio.sleep(0)
        return replace(event, text=event.text + "2")

    bus.register(BeforeMessage, slow)
    asking = asyncio.create_task(bus.ask(message()))
    for _ in range(steps):
        await asyncio.sleep(0)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    assert (await bus.ask(message())).text == "12"


class TestRegistering:
    @pytest.mark.parametrize("event_type", [Event, Gate, Hook, str, "before_message", None, message()], ids=str)
    async def test_only_for_events(self, bus: HookBus, event_type: Any) -> None:
        with pytest.raises(TypeError, match="is no event"):
            bus.register(event_type, lambda event: None)

    @pytest.mark.parametrize(
        "handler",
        [3, lambda: None, lambda a, b: None, lambda *, event: None, int],
        ids=["3", "none", "two", "named", "int"],
    )
    async def test_only_what_takes_an_event(self, bus: HookBus, handler: Any) -> None:
        with pytest.raises(TypeError):
            bus.register(BeforeMessage, handler)
        assert not bus.has(BeforeMessage)

    async def test_no_generators(self, bus: HookBus) -> None:
        async def generator(event: Event) -> AsyncIterator[None]:
            yield

        with pytest.raises(TypeError, match="returns an answer"):
            bus.register(BeforeMessage, generator)

    async def test_priorities_are_whole_numbers(self, bus: HookBus) -> None:
        with pytest.raises(TypeError, match="whole number"):
            bus.register(BeforeMessage, lambda event: None, "high")  # type: ignore[arg-type]

    async def test_any_way_to_write_a_handler(self, bus: HookBus) -> None:
        class Gatekeeper:
            async def __call__(self, event: BeforeMessage) -> BeforeMessage:
                return replace(event, text=event.text + "1")

            async def method(self, event: BeforeMessage) -> BeforeMessage:
                return replace(event, text=event.text + "2")

        async def of_two(more: str, event: BeforeMessage) -> BeforeMessage:
            return replace(event, text=event.text + more)

        bus.register(BeforeMessage, Gatekeeper())
        bus.register(BeforeMessage, Gatekeeper().method)
        bus.register(BeforeMessage, functools.partial(of_two, "3"))
        bus.register(BeforeMessage, lambda event: of_two("4", event))
        assert (await bus.ask(message("0"))).text == "01234"


class TestDecorator:
    def test_it_only_marks(self) -> None:
        @on(BeforeMessage, priority=10)
        @on(MessageReceived, MessageSent)
        async def handler(event: Event) -> None: ...

        assert [(wish.event_type, wish.priority) for wish in wishes(handler)] == [
            (MessageReceived, 0),
            (MessageSent, 0),
            (BeforeMessage, 10),
        ]
        assert wishes(print) == ()

    def test_it_refuses_what_cannot_be(self) -> None:
        with pytest.raises(TypeError, match="needs an event"):
            on()
        with pytest.raises(TypeError, match="is no event"):
            on(str)(lambda event: None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="cannot be called with an event"):
            on(BeforeMessage)(lambda: None)  # type: ignore[type-var]
