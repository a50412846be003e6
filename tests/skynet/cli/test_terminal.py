"""``skynet terminal`` in a real pseudo-terminal, against a real gateway and the real sandbox."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ptyprocess
import pytest

from skynet.cli.errors import CliError, Exit
from skynet.cli.tty import detach_key
from tests.skynet.cli.conftest import SKYNET, TIMEOUT_S, RunningGateway, Skynet, environment, running_gateway
from tests.support.programs import needs

pytestmark = needs("bwrap")

LEAVE = "\x1d"  # Ctrl-]


class Window:
    """A terminal of 90 by 33 with the command in it. It is only read while something is expected."""

    def __init__(self, process: ptyprocess.PtyProcess) -> None:
        self.process = process
        self.shown = ""

    def type(self, text: str) -> None:
        self.process.write(text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until this is shown; what was shown up to its end is not looked at again."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := re.search(pattern, self.shown, re.DOTALL)) is None:
            assert self._read(deadline), f"{pattern!r} did not come after {self.shown[-2000:]!r}"
        self.shown = self.shown[found.end() :]
        return found

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(deadline):
            pass
        self.process.wait()
        status: int = self.process.exitstatus if self.process.exitstatus is not None else -self.process.signalstatus
        return status

    def attributes(self) -> list[Any]:
        return termios.tcgetattr(self.process.fd)

    def _read(self, deadline: float) -> bool:
        if not select.select([self.process.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.process.fd, 65536)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@contextmanager
def window(gateway: RunningGateway, *arguments: str, shell: bool = False) -> Iterator[Window]:
    """``skynet terminal`` by itself, or typed into a shell that stays when it ends."""
    env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2], TERM="xterm", PS1="here> ")
    command = ["/bin/sh", "-i"] if shell else [*SKYNET, "terminal", *arguments]
    process = ptyprocess.PtyProcess.spawn(command, env=env, dimensions=(33, 90))
    try:
        yield Window(process)
    finally:
        process.close(force=True)


@pytest.fixture(autouse=True)
def no_terminal_stays(skynet: Skynet) -> Iterator[None]:
    yield
    for line in skynet("terminal", "list").out.splitlines():
        if "\trunning\t" in line:
            skynet("terminal", "kill", line.split("\t")[0])


def test_a_shell_of_ones_own_size_and_its_exit_code(gateway: RunningGateway, skynet: Skynet) -> None:
    """SK-173."""
    with window(gateway) as own:
        own.expect(r"\$ ")
        own.type("stty size; tty -s && echo a t''ty; pwd\r")
        own.expect("33 90\r\na tty\r\n/files\r\n")
        own.type("read -p 'name? ' name; echo hello $name\r")
        own.expect(r"name\? ")
        own.type("Zoë 🙂\r")
        own.expect("hello Zoë 🙂\r\n")
        own.process.setwinsize(20, 70)
        deadline = time.monotonic() + TIMEOUT_S
        while "\t70x20\t" not in skynet("terminal", "list").out:
            assert time.monotonic() < deadline
        own.type("stty size\r")
        own.expect("20 70\r\n")
        own.type("exit 7\r")
        assert own.end() == 7


def test_every_key_goes_there(gateway: RunningGateway) -> None:
    with window(gateway) as own:
        own.expect(r"\$ ")
        own.type("echo be''gun; sleep 1000\r")
        own.expect("begun\r\n")
        own.type("\x03")  # Ctrl-C ends the sleep, not the command here
        own.expect(r"\^C")
        own.type("echo be''gun; cat -v\r")
        own.expect("begun\r\n")
        own.type("\x1b[Ax\x7f\x01é\r")
        own.expect(r"\r\n\^\[\[A\^AM-CM-\)\r\n")
        own.type("\x04")
        own.expect(r"\$ ")
        own.type("\x04")
        assert own.end() == 0


def test_leaving_and_going_back(gateway: RunningGateway, skynet: Skynet) -> None:
    with window(gateway, "--title", "mine") as own:
        own.expect(r"\$ ")
        own.type("x=kept; echo $x in''side\r")
        own.expect("kept inside\r\n")
        own.type(LEAVE + "never sent")
        own.expect(r"\[left; to go back: skynet terminal attach ")
        assert own.end() == Exit.OK
    [row] = [line.split("\t") for line in skynet("terminal", "list").out.splitlines() if "\tmine" in line]
    assert (row[1], row[2], row[4]) == ("running", "90x33", "mine")
    for name in ((), ("mine",), (row[0],), (row[0][-12:],)):
        with window(gateway, "attach", *name) as own:
            own.expect("kept inside\r\n")  # what is kept of the screen
            own.expect(r"\$ ")
            own.type("echo $x once mo''re\r")
            own.expect("kept once more\r\n")
            own.type(LEAVE)
            assert own.end() == Exit.OK
    assert skynet("terminal", "kill", "mine").out == f"ended {row[0]}\n"
    assert skynet("terminal", "kill", "yours").code == Exit.FAILED


def test_two_windows_on_one(gateway: RunningGateway) -> None:
    with window(gateway, "--title", "both") as one:
        one.expect(r"\$ ")
        with window(gateway, "attach", "both") as two:
            two.expect(r"\$ ")
            one.type("echo from o''ne\r")
            two.expect("from one\r\n")
            two.type("exit 3\r")
            assert two.end() == 3
        assert one.end() == 3


def test_another_key_to_leave_with(gateway: RunningGateway) -> None:
    with window(gateway, "--detach-key", "^T") as own:
        own.expect(r"\$ ")
        own.type("echo be''gun; cat -v\r")
        own.expect("begun\r\n")
        own.type(f"{LEAVE}\r")
        own.expect(r"\^\]\r\n\^\]\r\n")
        own.type("\x14")
        own.expect(r"\[left")
        assert own.end() == Exit.OK


@pytest.mark.parametrize(("text", "key"), [("^]", b"\x1d"), ("^a", b"\x01"), ("^_", b"\x1f"), ("none", b"")])
def test_keys(text: str, key: bytes) -> None:
    assert detach_key(text) == key


@pytest.mark.parametrize("text", ["", "a", "^", "^^^", "^@", "^1", "^é", "x]"])
def test_no_keys(text: str) -> None:
    with pytest.raises(CliError):
        detach_key(text)


@pytest.mark.parametrize("how", ["exit", "leave", "kill", "TERM", "HUP", "INT"])
def test_ones_own_terminal_is_as_before(gateway: RunningGateway, skynet: Skynet, how: str) -> None:
    """However it ends, in a full-screen program too."""
    with window(gateway, shell=True) as own:
        own.expect("here> ")
        before = own.attributes()
        own.type(f"{' '.join(SKYNET)} terminal --title {how}; echo code $?\r")
        own.expect(r"\$ $")
        raw = own.attributes()
        assert not raw[3] & termios.ECHO
        own.type("printf '\\033[?1049h\\033[?25l\\033[?1000h\\033[?2004hready'\r")
        own.expect(r"\x1b\[\?1049h.*ready")
        if how == "exit":
            own.type("exit 5\r")
        elif how == "leave":
            own.type(LEAVE)
        elif how == "kill":
            skynet("terminal", "kill", how)
        else:
            group = struct.unpack("i", fcntl.ioctl(own.process.fd, termios.TIOCGPGRP, b"\0" * 4))[0]
            os.killpg(group, signal.Signals[f"SIG{how}"])
        told = own.expect(r"(\x1b\[\?[^\r]*\x1b\[\?1049l.*)code (\d+)\r\n")
        codes = {"exit": 5, "leave": 0, "kill": 137, "TERM": 143, "HUP": 129, "INT": 130}
        assert int(told[2]) == codes[how]
        for back in ("\x1b[?25h", "\x1b[?1000l", "\x1b[?1049l"):
            assert back in told[1]
        own.expect("here> ")
        assert own.attributes() == before


def test_the_gateway_goes_away(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "state") as other, window(other) as own:
        own.expect(r"\$ ")
        other.process.terminate()
        own.expect("error: the connection to the gateway was lost")
        own.expect("skynet terminal attach")
        assert own.end() == Exit.UNREACHABLE


def test_ones_own_terminal_goes_away(gateway: RunningGateway, skynet: Skynet) -> None:
    with window(gateway, "--title", "closed") as own:
        own.expect(r"\$ ")
        own.process.close(force=False)  # the window is closed
    [row] = [line for line in skynet("terminal", "list").out.splitlines() if "closed" in line]
    assert "\trunning\t" in row


def test_a_flood_waits_for_a_slow_window(gateway: RunningGateway) -> None:
    """Whoever does not look holds the program up; Ctrl-C gets through."""
    with window(gateway) as own:
        own.expect(r"\$ ")
        own.type("yes 'a line of the flood'\r")
        own.expect("(a line of the flood\r\n){1000}")
        time.sleep(0.5)  # nobody looks: what there are of buffers is filled
        own.type("\x03")
        own.expect(r"\^C")
        own.shown = ""
        own.type("echo sti''ll here\r")
        own.expect("still here\r\n")
        own.type("exit\r")
        assert own.end() == 0


def test_only_opening_one(gateway: RunningGateway, skynet: Skynet) -> None:
    opened = skynet("terminal", "new", "--detached", "--command", "cat", "--title", "cat")
    assert opened.code == Exit.OK
    assert f"{opened.out.strip()}\trunning\t220x50" in skynet("terminal", "list").out
    assert '"terminalId"' in skynet("terminal", "--json").out


def test_without_a_terminal(skynet: Skynet, gateway: RunningGateway) -> None:
    for command in (("terminal",), ("terminal", "new"), ("terminal", "attach")):
        outcome = skynet(*command)
        assert outcome.code == Exit.USAGE
        assert "skynet exec" in outcome.err
    assert skynet("terminal", "--detach-key", "x").code == Exit.USAGE
    env = environment(gateway.home, SKYNET_GATEWAY_PORT=gateway.url.rpartition(":")[2])
    done = subprocess.run([*SKYNET, "terminal"], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == Exit.USAGE


def test_what_may_not_be_run(gateway: RunningGateway) -> None:
    with window(gateway, "--command", "rm -rf /") as own:
        own.expect("error: ")
        assert own.end() == Exit.BLOCKED
