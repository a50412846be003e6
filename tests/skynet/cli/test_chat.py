"""``skynet chat`` in a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from skynet.cli.errors import Exit
from tests.skynet.cli.conftest import SKYNET, TIMEOUT_S, RunningGateway, Skynet, environment, running_gateway

PROMPT = "<prompt>"
_PROMPT_STARTS = "\x1b[?2004h"  # bracketed paste goes on when the prompt takes the keyboard
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[=>]|\][^\x07]*\x07)")


class Terminal:
    """A command in a terminal of 100 by 40: what it shows, and what is typed."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def answer(self, text: str) -> None:
        """Type a line once the prompt is there."""
        self.expect(PROMPT)
        self.type(f"{text}\r")

    def expect(self, text: str) -> str:
        """Wait until the text is shown; what was shown up to its end is not looked at again."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self._shown:
            assert self._read(deadline - time.monotonic()), f"{text!r} did not come after {self._shown!r}"
        seen, _, self._shown = self._shown.partition(text)
        return seen + text

    def end(self) -> int:
        """Wait until the command has ended; its exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._descriptor], [], [], max(0.0, wait_s))[0]:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # Linux: the last process has closed the terminal
            return False
        if b"\x1b[6n" in data:  # where is the cursor?
            os.write(self._descriptor, b"\x1b[1;1R")
        self._shown += _ESCAPES.sub("", data.decode(errors="replace").replace(_PROMPT_STARTS, PROMPT)).replace("\r", "")
        return bool(data)


@contextmanager
def chatting(gateway: RunningGateway, *arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2], TERM="xterm")
    command = [*SKYNET, "chat", *arguments]
    with subprocess.Popen(
        command, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=_take_terminal
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)


def _take_terminal() -> None:
    """Make the terminal the controlling one, so that a typed Ctrl-C becomes a signal."""
    ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return f"chat-{request.node.name.replace('_', '-')}"


def test_a_conversation(gateway: RunningGateway, skynet: Skynet, session: str) -> None:
    skynet("agent", "-m", "say=from before", "--session", session)
    with chatting(gateway, "--session", session) as terminal:
        assert "from before" in terminal.expect(f"conversation {session}. /help lists what you can do.")
        terminal.answer("tokens=4")
        terminal.expect("w0 w1 w2 w3\n")
        terminal.answer("/status")
        status = terminal.expect("tokens ")
        assert f"agent:main:{session}" in status
        assert "mock/mock-1" in status
        terminal.answer("/model")
        terminal.expect("mock/mock-2")
        terminal.answer("/model mock/mock-2")
        terminal.expect("model: mock/mock-2")
        terminal.answer("fail=400")
        terminal.expect("error: ")
        terminal.answer("/new")
        terminal.expect("a new conversation")
        terminal.answer("/help")
        terminal.expect("Anything else is said to the assistant.")
        terminal.answer("/quit")
        assert terminal.end() == Exit.OK
    assert "from before" not in skynet("sessions", "show", session).out


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(gateway: RunningGateway, session: str) -> None:
    with chatting(gateway, "--session", session) as terminal:
        terminal.expect(PROMPT)
        terminal.type("tokens=2 hang\r")
        terminal.expect("w0 w1")
        terminal.type("\x03")
        terminal.expect("[stopped]")
        terminal.expect(PROMPT)
        terminal.type("half a line\x03")
        terminal.expect(PROMPT)
        terminal.type("say=still here\r")
        terminal.expect("still here\n")
        terminal.expect(PROMPT)
        terminal.type("\x04")
        assert terminal.end() == Exit.OK


def test_the_gateway_goes_away_while_typing(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "state") as other, chatting(other) as terminal:
        terminal.expect(PROMPT)
        terminal.type("an unfinished li")
        terminal.expect("li")
        other.process.terminate()
        terminal.expect("error: the connection to the gateway was lost")
        assert terminal.end() == Exit.UNREACHABLE


def test_without_a_terminal(skynet: Skynet) -> None:
    outcome = skynet("chat")
    assert outcome.code == Exit.USAGE
    assert "skynet agent -m TEXT" in outcome.err
