"""The road of a connection: challenged, authenticating, ready, closed, whatever happens at each step."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.connection import MAX_HELD_KEYS, MAX_IN_FLIGHT, MAX_ROLE_REFUSALS
from skynet_memory.ids import SessionKey
from skynet_protocol.device import DeviceIdentity
from tests.support.client import connect_params
from tests.support.connections import TOKEN, FakeWire, Parts, connection_parts
from tests.support.polling import until

OUTBOUND = 10_000


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with connection_parts(tmp_path, outbound_bytes=OUTBOUND) as built:
        yield built


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Parts]:
    """Parts of a gateway that soon gives up on a handshake, though not before one that nothing holds up is done."""
    async with connection_parts(tmp_path, handshake_timeout_s=0.5) as built:
        yield built


def key(number: int = 0) -> SessionKey:
    return SessionKey(f"user:u:agent:main:s{number}")


# The handshake.


async def test_the_challenge_has_no_number(parts: Parts) -> None:
    (challenge,) = parts.open().sent
    assert set(challenge) == {"type", "event", "payload"}


async def test_hello_comes_before_any_event(parts: Parts) -> None:
    wire = parts.open()
    wire.requests("connect", connect_params(token=TOKEN), id="c")
    while not wire.responses():
        parts.gateway.broadcaster.publish("tick", {"ts": 1}, owner=None)
        await asyncio.sleep(0)
    parts.gateway.broadcaster.publish("tick", {"ts": 2}, owner=None)
    assert [sent.get("event", sent["type"]) for sent in wire.sent] == ["connect.challenge", "res", "tick"]
    assert wire.sent[-1]["seq"] == 1
    assert [caller.user_id for caller in parts.connected] == [parts.owner.id]


async def test_the_greater_limit_holds_after_the_handshake(parts: Parts) -> None:
    wire = parts.open()
    assert wire.limit_bytes == 0
    wire = await parts.ready()
    assert wire.limit_bytes == parts.gateway.limits.frame_bytes


async def test_nothing_is_handed_over_while_authenticating(parts: Parts) -> None:
    wire = parts.open()
    wire.requests("connect", connect_params(token=TOKEN), id="c")
    wire.requests("health", id="h")
    assert wire.paused_by == {"handshake"}
    await until(lambda: len(wire.responses()) == 2)
    assert [response["id"] for response in wire.responses()] == ["c", "h"]


async def test_silence_ends_it(hasty: Parts) -> None:
    wire = hasty.open()
    await until(lambda: wire.ended)
    assert wire.ended == (1000, "")
    assert len(wire.sent) == 1


async def test_the_deadline_is_off_when_ready(hasty: Parts) -> None:
    wire, silent = await hasty.ready(), hasty.open()
    await until(lambda: silent.ended)
    assert wire.ended is None


async def test_who_leaves_while_authenticating_never_becomes_ready(parts: Parts) -> None:
    for steps in range(12):
        wire = parts.open()
        wire.requests("connect", connect_params(token=TOKEN), id="c")
        for _ in range(steps):
            await asyncio.sleep(0)
        wire.connection.closed()
        await until(lambda: not len(parts.gateway.tasks))
        assert not len(parts.gateway.broadcaster)
    assert (await parts.ready()).ended is None


@pytest.mark.parametrize("cause", ["timeout", "shutdown"])
async def test_who_is_closed_while_authenticating_never_becomes_ready(hasty: Parts, cause: str) -> None:
    wire = hasty.open()
    nonce = wire.sent[0]["payload"]["nonce"]
    async with hasty.database.transaction():  # pairing has to wait
        wire.requests("connect", connect_params(token=TOKEN, device=DeviceIdentity.generate(), nonce=nonce))
        if cause == "shutdown":
            wire.connection.shut_down()
        await until(lambda: wire.ended)
    await until(lambda: not len(hasty.gateway.tasks))
    assert wire.ended == ((1000, "") if cause == "timeout" else (1012, "service restart"))
    assert len(wire.sent) == 1
    assert not len(hasty.gateway.broadcaster)


async def test_a_failure_of_our_own_is_told_without_details(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    wire = parts.open()
    await parts.database.__aexit__(None, None, None)
    try:
        wire.requests("connect", connect_params(token="sk-sky-x"), id="c")
        await until(lambda: wire.ended)
    finally:
        await parts.database.__aenter__()
    assert wire.ended == (1011, "internal error")
    (answer,) = wire.responses()
    assert answer["ok"] is False
    assert answer["error"]["code"] == "UNAVAILABLE"
    assert "sk-sky" not in caplog.text


# Ready.


async def test_numbers_skip_nothing(parts: Parts) -> None:
    wire, blind = await parts.ready(), await parts.ready(scopes=[])
    for number in range(10):
        parts.gateway.broadcaster.publish("agent", {"n": number}, owner=parts.owner.id)
        wire.buffered = OUTBOUND + 1 if number % 3 else 0
        parts.gateway.broadcaster.publish("tick", {"ts": number}, owner=None)
        wire.buffered = 0
    assert [event["seq"] for event in wire.events()] == list(range(1, 15))
    assert [event["seq"] for event in blind.events()] == list(range(1, 11))


async def test_a_slow_consumer(parts: Parts) -> None:
    wire, other = await parts.ready(), await parts.ready()
    wire.buffered = OUTBOUND
    wire.connection.send_event(event("agent"), droppable=False)  # exactly the limit is fine
    wire.buffered = OUTBOUND + 1
    wire.connection.send_event(event("tick"), droppable=True)
    assert len(wire.events()) == 1
    wire.requests("health")  # an answer is never dropped
    assert wire.responses()[-1]["ok"]
    assert wire.ended is None
    wire.connection.send_event(event("agent"), droppable=False)
    assert wire.ended == (1008, "slow consumer")
    assert parts.gateway.broadcaster.all() == [other.connection]


def event(name: str) -> Any:
    return lambda seq: json.dumps({"type": "event", "event": name, "seq": seq}).encode()


async def test_requests_that_wait_pause_the_reading(parts: Parts) -> None:
    wire = await parts.ready()
    for number in range(MAX_IN_FLIGHT + 50):
        wire.requests("status", id=str(number))
    wire.requests("health", id="after")
    assert wire.paused_by == {"in flight"}
    assert len(wire.responses()) == 1
    parts.methods.release.set()
    await until(lambda: len(wire.responses()) == MAX_IN_FLIGHT + 52)
    assert not wire.paused_by
    assert "after" in {answer["id"] for answer in wire.responses()}


async def test_a_broken_method_ends_neither_the_connection_nor_the_count(parts: Parts) -> None:
    wire = await parts.ready()
    for number in range(MAX_IN_FLIGHT * 2):
        wire.requests("sessions.list", id=str(number))
    await until(lambda: len(wire.responses()) == MAX_IN_FLIGHT * 2 + 1)
    assert {answer["error"]["code"] for answer in wire.responses()[1:]} == {"UNAVAILABLE"}
    assert not wire.paused_by
    wire.requests("health", id="h")
    assert wire.responses()[-1]["ok"]


@pytest.mark.parametrize("between", [None, "health", "nope", "connect"])
async def test_the_flood_guard_counts_what_is_consecutive(parts: Parts, between: str | None) -> None:
    wire = await parts.ready()
    for _ in range(MAX_ROLE_REFUSALS):
        wire.requests("skills.bins")
    assert wire.ended is None
    if between is not None:
        wire.requests(between)
    wire.requests("skills.bins")
    assert wire.ended == ((1008, "repeated unauthorized calls") if between is None else None)
    assert wire.responses()[-1]["error"]["message"] == "unauthorized role: operator"


async def test_a_frame_that_is_not_json_is_ignored(parts: Parts) -> None:
    wire = await parts.ready()
    before = len(wire.sent)
    wire.arrives(b"\xff{")
    assert len(wire.sent) == before
    wire.arrives(b"{}")
    assert wire.sent[-1]["id"] == "invalid"
    assert wire.ended is None


# Events that wait until an answer was read.


async def held(parts: Parts) -> FakeWire:
    """A terminal interface's connection that has an answer to read before the event behind it."""
    wire = await parts.ready(mode="ui", client_id="gateway-client")
    wire.connection.hold_events()
    wire.connection.send_event(event("agent"), droppable=False)
    await until(lambda: wire.pings == 1)
    assert not wire.events()
    return wire


async def test_events_wait_for_the_pong(parts: Parts) -> None:
    wire = await held(parts)
    wire.connection.send_event(event("chat"), droppable=False)
    wire.connection.pong()
    assert [(sent["event"], sent["seq"]) for sent in wire.events()] == [("agent", 1), ("chat", 2)]
    wire.connection.send_event(event("tick"), droppable=True)
    assert len(wire.events()) == 3


async def test_two_answers_need_two_pongs(parts: Parts) -> None:
    wire = await held(parts)
    wire.connection.hold_events()
    await until(lambda: wire.pings == 2)
    wire.connection.pong()
    assert not wire.events()
    wire.connection.pong()
    assert len(wire.events()) == 1


async def test_events_do_not_wait_for_ever_nor_end_the_next_wait(parts: Parts) -> None:
    wire = await held(parts)
    await until(wire.events)
    wire.connection.hold_events()
    wire.connection.send_event(event("chat"), droppable=False)
    wire.connection.pong()
    wire.connection.pong()  # nobody asked for it
    wire.connection.hold_events()
    wire.connection.send_event(event("tick"), droppable=True)
    assert [sent["event"] for sent in wire.events()] == ["agent", "chat"]


async def test_the_end_is_told_even_if_events_wait(parts: Parts) -> None:
    wire = await held(parts)
    wire.connection.shut_down()
    assert [sent["event"] for sent in wire.events()] == ["agent", "shutdown"]


async def test_other_clients_do_not_wait(parts: Parts) -> None:
    wire = await parts.ready()
    wire.connection.hold_events()
    wire.connection.send_event(event("agent"), droppable=False)
    assert len(wire.events()) == 1


# Keys as the client writes them.


async def test_a_client_gets_the_key_that_it_wrote(parts: Parts) -> None:
    connection = (await parts.ready()).connection
    assert connection.form_of(key()) == "agent:main:s0"
    connection.hold(key(), "s0")
    assert connection.form_of(key()) == "s0"
    connection.hold(key(), "agent:main:s0")
    assert connection.form_of(key()) == "agent:main:s0"


async def test_held_keys_are_bounded(parts: Parts) -> None:
    connection = (await parts.ready()).connection
    for number in range(MAX_HELD_KEYS + 10):
        connection.hold(key(number), f"s{number}")
    assert len(connection._forms) == MAX_HELD_KEYS
    assert connection.form_of(key(MAX_HELD_KEYS + 9)) == f"s{MAX_HELD_KEYS + 9}"
    assert connection.form_of(key(0)) == "agent:main:s0"


# The end.


async def test_the_end_comes_once(parts: Parts) -> None:
    wire = await parts.ready(mode="ui", client_id="gateway-client")
    watcher = await parts.ready()
    wire.connection.close(4000, "enough")
    wire.connection.shut_down()
    wire.connection.closed()
    wire.connection.closed()
    assert wire.ended == (4000, "enough")
    assert len(watcher.events("presence")) == 1
    assert parts.gateway.broadcaster.all() == [watcher.connection]


async def test_shutdown_says_so_first(parts: Parts) -> None:
    wire = await parts.ready()
    wire.connection.shut_down()
    assert wire.events()[-1]["event"] == "shutdown"
    assert wire.events()[-1]["seq"] == 1
    assert wire.ended == (1012, "service restart")


async def test_answers_after_the_end_go_nowhere(parts: Parts) -> None:
    wire = await parts.ready()
    wire.requests("status", id="s")
    wire.connection.close(1000, "")
    before = list(wire.sent)
    parts.methods.release.set()
    await until(lambda: not len(parts.gateway.tasks))
    wire.connection.send_event(event("tick"), droppable=True)
    assert wire.sent == before
