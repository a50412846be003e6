"""What terminals write, to connections that read fast, slowly, and not at all."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skynet.gateway.terminal_streams import MARK_BYTES, TerminalStreams
from skynet_terminal.pty import Terminal
from skynet_terminal.replay import RING_BYTES
from tests.support.connections import FakeWire, Parts, connection_parts
from tests.support.polling import until
from tests.support.terminals import Place, place


@dataclass
class Scene:
    parts: Parts
    there: Place
    streams: TerminalStreams

    async def watch(self, wire: FakeWire, terminal: Terminal, cursor: int | None = None) -> None:
        assert self.streams.start(wire.connection.conn_id, terminal, cursor)
        await asyncio.sleep(0)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with connection_parts(tmp_path) as parts, place(tmp_path / "files") as there:
        yield Scene(parts, there, TerminalStreams(parts.gateway.broadcaster, parts.gateway.tasks))


def text(wire: FakeWire) -> str:
    return "".join(event["payload"]["data"] for event in wire.events("terminal.output"))


def exits(wire: FakeWire) -> list[dict[str, Any]]:
    return [event["payload"] for event in wire.events("terminal.exit")]


async def test_all_of_it_and_the_end(scene: Scene) -> None:
    wire = await scene.parts.ready()
    terminal = await scene.there.open(["sh", "-c", "printf 'Zoë 🙂\\n%.0s' $(seq 2000); exit 3"])
    await scene.watch(wire, terminal)
    await until(lambda: exits(wire))
    assert exits(wire) == [{"terminalId": terminal.id, "exitCode": 3, "signal": None}]
    assert text(wire) == "Zoë 🙂\r\n" * 2000
    assert wire.sent[-1]["event"] == "terminal.exit"
    cursors = [event["payload"]["cursor"] for event in wire.events("terminal.output")]
    assert cursors == sorted(cursors)
    assert cursors[-1] == len(text(wire).encode())
    numbers = [event["seq"] for event in wire.events()]
    assert numbers == list(range(1, len(numbers) + 1))
    await until(lambda: not len(scene.streams))


async def test_two_see_the_same_and_nobody_else_sees_anything(scene: Scene) -> None:
    wires = [await scene.parts.ready() for _ in range(3)]
    terminal = await scene.there.open(["sh", "-c", "read line; echo got $line"])
    for wire in wires[:2]:
        await scene.watch(wire, terminal)
    terminal.write(b"it\n")
    await until(lambda: all(exits(wire) for wire in wires[:2]))
    assert text(wires[0]) == text(wires[1]) == "it\r\ngot it\r\n"
    assert wires[2].events() == []


async def test_who_does_not_read_gets_no_more_and_the_program_waits(scene: Scene) -> None:
    """And is not closed for it."""
    wire, other = await scene.parts.ready(), await scene.parts.ready()
    terminal = await scene.there.open(["sh", "-c", "read go; exec yes"])
    await scene.watch(wire, terminal)
    wire.buffered = MARK_BYTES + 1
    terminal.write(b"\n")
    await until(lambda: terminal.ring.end > 1000)
    before = terminal.ring.end
    sent = len(wire.events("terminal.output"))
    assert sent <= 2
    other.requests("health")
    assert other.responses()[-1]["ok"]
    wire.buffered = 0  # it reads again
    await until(lambda: terminal.ring.end > before + RING_BYTES)
    assert wire.ended is None
    assert len(wire.events("terminal.output")) > sent
    assert not any("dropped" in event["payload"] for event in wire.events("terminal.output"))


async def test_going_on_where_one_was(scene: Scene) -> None:
    wire = await scene.parts.ready()
    terminal = await scene.there.open(["sh", "-c", "while read line; do echo $line; done"])
    await scene.watch(wire, terminal)
    terminal.write(b"one\n")
    await until(lambda: text(wire).count("one") == 2)
    cursor = wire.events("terminal.output")[-1]["payload"]["cursor"]
    wire.connection.closed()
    await until(lambda: not terminal.viewers)
    terminal.write(b"two\n")
    await until(lambda: terminal.ring.end >= cursor + 10)
    again = await scene.parts.ready()
    await scene.watch(again, terminal, cursor)
    await until(lambda: text(again).count("two") == 2)
    assert text(again) == "two\r\ntwo\r\n"
    replayed = await scene.parts.ready()
    await scene.watch(replayed, terminal)
    await until(lambda: text(replayed).endswith("two\r\ntwo\r\n"))
    assert text(replayed).count("one") == 2


async def test_what_ends_it(scene: Scene) -> None:
    """Not subscribing any more, the connection's end from either side, and lost rights."""
    terminal = await scene.there.open(["cat"])
    wires = [await scene.parts.ready() for _ in range(3)]
    for wire in wires:
        await scene.watch(wire, terminal)
    await until(lambda: terminal.viewers == 3)
    assert scene.streams.stop(wires[0].connection.conn_id, terminal.id)
    assert not scene.streams.stop(wires[0].connection.conn_id, terminal.id)
    wires[1].connection.closed()
    wires[2].connection.close(1008, "permissions changed")
    await until(lambda: not terminal.viewers and not len(scene.streams))
    terminal.write(b"unseen\n")
    await until(lambda: terminal.ring.end >= 16)
    assert [text(wire) for wire in wires] == ["", "", ""]
    assert not scene.streams.start(wires[1].connection.conn_id, terminal, None)


async def test_a_connection_that_goes_before_anything_was_sent(scene: Scene) -> None:
    terminal = await scene.there.open(["cat"])
    wire = await scene.parts.ready()
    assert scene.streams.start(wire.connection.conn_id, terminal, None)
    wire.connection.closed()
    await until(lambda: not len(scene.streams))
    assert not terminal.viewers


async def test_again_is_in_the_place_of_what_was_before(scene: Scene) -> None:
    terminal = await scene.there.open(["cat"])
    wire = await scene.parts.ready()
    for _ in range(5):
        await scene.watch(wire, terminal, 0)
    terminal.write(b"once\n")
    await until(lambda: text(wire).count("once") == 2)
    assert (len(scene.streams), terminal.viewers) == (1, 1)
    await asyncio.sleep(0)
    assert text(wire) == "once\r\nonce\r\n"


async def test_events_that_are_held_back_do_not_pile_up(scene: Scene) -> None:
    """OpenClaw's terminal interface gets no events before it has read an answer; a flood waits too."""
    wire = await scene.parts.ready(mode="ui", client_id="gateway-client")
    terminal = await scene.there.open(["sh", "-c", "exec yes"])
    await scene.watch(wire, terminal)
    await until(lambda: wire.events("terminal.output"))
    wire.connection.hold_events()
    sent = len(wire.events("terminal.output"))
    seen = terminal.ring.end
    await until(lambda: terminal.ring.end > seen or len(wire.events("terminal.output")) > sent)
    assert len(wire.connection._held or ()) <= 1
