"""Programs as hooks: JSON in, JSON out, and whatever goes wrong with a gate's stops."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skynet.hooks import BeforeMessage, Block, Event, HookBus, MessageSent, Stopped, load_hooks, thawed
from skynet.hooks.bus import FAILED
from skynet.hooks.shell import ShellHookFailed, answer, event_json
from skynet.supervisor import Supervisor
from skynet_terminal.processes import OUTPUT_BYTES, Ended, Output
from tests.skynet.hooks.support import ADA, message, one_of_each, sent, tool_call
from tests.support.polling import until


@pytest.fixture
async def bus() -> AsyncIterator[HookBus]:
    async with Supervisor() as tasks, HookBus(tasks, gate_timeout_s=60.0) as bus:
        yield bus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "hooks"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def ask(bus: HookBus, folder: Path) -> Callable[..., Awaitable[BeforeMessage]]:
    """Ask a program for a message."""

    async def ask(script: str) -> BeforeMessage:
        put(folder, "before_message.sh", script)
        load_hooks(bus, folder)
        return await bus.ask(message())

    return ask


def put(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def runs(pid_file: Path) -> bool:
    """Whether the program that wrote this still runs; one that was ended before it could does not."""
    pid = pid_file.read_text().strip() if pid_file.exists() else ""
    return bool(pid) and Path("/proc", pid).exists()


def errors(caplog: pytest.LogCaptureFixture) -> str:
    assert [record for record in caplog.records if record.levelno == logging.ERROR]
    return caplog.text


class TestGates:
    """SK-140, SK-144."""

    async def test_saying_nothing_lets_it_through(self, bus: HookBus, folder: Path) -> None:
        put(folder, "before_message.sh", "exit 0")
        load_hooks(bus, folder)
        asked = message()
        assert await bus.ask(asked) is asked

    async def test_it_is_given_the_event(self, ask: Callable[..., Awaitable[BeforeMessage]], folder: Path) -> None:
        await ask("cat > got.json; env > got.env; pwd > got.cwd; umask > got.umask")
        got = json.loads((folder / "got.json").read_text())
        assert got.pop("at_ms") > 0
        assert got == {
            "event": "before_message",
            "user": {"id": ADA.id, "role": "user", "display_name": "Ada"},
            "session": "user:0190-ada:agent:main:main",
            "run": "run-1",
            "text": "Hello",
            "images": 0,
            "source": "cli",
        }
        env = dict(line.split("=", 1) for line in (folder / "got.env").read_text().splitlines())
        assert env.keys() - {"PWD", "_", "SHLVL", "OLDPWD"} == {"PATH", "LANG", "HOME", "SKYNET_EVENT", "SKYNET_USER"}
        assert (env["SKYNET_EVENT"], env["SKYNET_USER"], env["HOME"]) == ("before_message", ADA.id, str(folder))
        assert (folder / "got.cwd").read_text().strip() == str(folder)

    async def test_it_can_stop(self, ask: Callable[..., Awaitable[BeforeMessage]]) -> None:
        with pytest.raises(Stopped, match="not now") as caught:
            await ask("""echo '{"block": "not now"}'""")
        assert not caught.value.is_failure

    async def test_it_can_change(self, ask: Callable[..., Awaitable[BeforeMessage]]) -> None:
        assert (await ask("""echo '{"modify": {"text": "Hello, Ådå"}}'""")).text == "Hello, Ådå"

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ('echo \'{"modify": {"text": "x"}}\'; echo it broke >&2; exit 3', "exit code 3: it broke"),
            ("kill -9 $$", "signal 9"),
            ("echo ok", "not what it may be"),
            ('echo \'{"blok": "x"}\'', "not what it may be"),
            ("echo '{\"block\": 3}'", "not what it may be"),
            ('echo \'{"block": "x", "modify": {}}\'', "both block and modify"),
            ('echo \'{"modify": {"user": {}, "run": 1}}\'', "modify has run, user; what it may have is text"),
            ('echo \'{"modify": {"text": 3}}\'', "text is int"),
            ('echo \'{"modify": {"text": ""}}\'', "emptied"),
            (f"head -c {OUTPUT_BYTES + 1} /dev/zero", "the limit is"),
        ],
    )
    async def test_whatever_goes_wrong_stops(
        self, ask: Callable[..., Awaitable[BeforeMessage]], script: str, words: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(Stopped, match=FAILED.split(",")[0]):
            await ask(script)
        assert words in errors(caplog)

    async def test_it_is_believed_only_as_long_as_it_is_private(
        self, bus: HookBus, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = put(folder, "before_message.sh", "exit 0")
        load_hooks(bus, folder)
        await bus.ask(message())
        path.chmod(0o777)
        with pytest.raises(Stopped):
            await bus.ask(message())
        assert "can be written by others" in errors(caplog)
        path.unlink()
        with pytest.raises(Stopped):
            await bus.ask(message())

    async def test_so_does_the_way_to_it(self, bus: HookBus, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        put(folder, "_common", "exit 0")
        (folder / "before_message.d").mkdir(0o700)
        (folder / "before_message.d" / "a").symlink_to("../_common")
        load_hooks(bus, folder)
        await bus.ask(message())
        os.chmod(folder / "before_message.d", 0o777)  # noqa: PTH101
        with pytest.raises(Stopped):
            await bus.ask(message())
        assert "the folder can be written by others" in errors(caplog)

    async def test_one_that_is_slow_stops_and_is_killed(self, folder: Path) -> None:
        os.mkfifo(folder / "wait")
        put(folder, "before_message.sh", "echo $$ > pid; read -r nothing < wait")
        async with Supervisor() as tasks, HookBus(tasks, gate_timeout_s=0.5) as bus:
            load_hooks(bus, folder)
            with pytest.raises(Stopped):
                await bus.ask(message())
            await until(lambda: not len(tasks))
            await until(lambda: not runs(folder / "pid"))

    async def test_arguments_of_a_tool(self, bus: HookBus, folder: Path) -> None:
        put(
            folder,
            "before_tool_call.sh",
            """sed 's/.*"arguments":\\({.*}\\).*/{"modify":{"arguments":\\1}/; s/"a"/"b"/'""",
        )
        load_hooks(bus, folder)
        assert thawed((await bus.ask(tool_call(a=[1, {"c": None}]))).arguments) == {"b": [1, {"c": None}]}


class TestObservers:
    """SK-141."""

    async def test_it_is_told_and_its_answer_does_not_matter(self, bus: HookBus, folder: Path) -> None:
        put(folder, "message_sent.sh", """cat > got.tmp; mv got.tmp got; echo '{"block": "no"}'""")
        load_hooks(bus, folder)
        bus.announce(sent("Hi"))
        await until((folder / "got").exists)
        assert json.loads((folder / "got").read_text())["text"] == "Hi"

    async def test_failures_are_logged(self, bus: HookBus, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        put(folder, "message_sent.sh", "echo no >&2; exit 4")
        load_hooks(bus, folder)
        bus.announce(sent())
        await until(lambda: "exit code 4: no" in caplog.text)
        assert "the hook hooks/message_sent.sh failed at message_sent" in caplog.text


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.NAME)
def test_every_event_has_a_form_in_json(event: Event) -> None:
    given = json.loads(event_json(event))
    assert given["event"] == event.NAME
    assert given["user"]["role"] == "user"


def ended(stdout: bytes) -> Ended:
    return Ended(0, Output(stdout, len(stdout)), Output(b"", 0))


json_texts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["block", "modify", "text", "user"]), inner),
)


@given(st.binary() | json_texts.map(lambda value: json.dumps(value).encode()))
def test_any_answer_is_one_or_fails(said: bytes) -> None:
    """What a program says can stop, change the text or nothing; never anything else."""
    asked = message()
    try:
        given: Any = answer(asked, ended(said))
    except ShellHookFailed:
        return
    if isinstance(given, BeforeMessage):
        assert (given.user, given.session, given.run) == (asked.user, asked.session, asked.run)
    else:
        assert given is None or isinstance(given, Block)


def test_too_deep_an_answer_fails() -> None:
    with pytest.raises(ShellHookFailed):
        answer(message(), ended(b'{"modify": ' + b"[" * 100_000))


def test_observers_have_no_answer() -> None:
    assert not hasattr(MessageSent, "CHANGEABLE")
